package binder

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Argument {
		os.Exit(helperProcess())
	}
	goleak.VerifyTestMain(m)
}

// helperProcess is the helper, and what a fault or an attacker in it would do when
// the statement says so.
func helperProcess() int {
	if len(os.Args) > 2 {
		return misbehave(os.Args[2])
	}
	return Main(os.Stdin, os.Stdout, os.Stderr)
}

// misbehave answers the greeting and then goes wrong at the first request.
func misbehave(how string) int {
	if _, _, err := readFrame(os.Stdin); err != nil {
		return 1
	}
	if err := writeFrame(os.Stdout, answered, []byte(confinement())); err != nil {
		return 1
	}
	if how == "idle" {
		return 3
	}
	if _, _, err := readFrame(os.Stdin); err != nil {
		return 1
	}
	switch how {
	case "crash":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
		time.Sleep(time.Minute)
	case "hang":
		time.Sleep(time.Hour)
	case "garbage":
		_, _ = os.Stdout.Write([]byte("+\xff\xff\xff\xff"))
		time.Sleep(time.Hour)
	case "escape":
		if err := writeFrame(os.Stdout, answered, []byte(strings.Join(escapes(), "\n"))); err != nil {
			return 1
		}
	}
	return 0
}

// escapes tries to get out of the process and lists what worked.
func escapes() (worked []string) {
	try := func(what string, err error) {
		if err == nil {
			worked = append(worked, what)
		}
	}
	if env := os.Environ(); len(env) > 0 {
		worked = append(worked, "environment: "+strings.Join(env, " "))
	}
	for _, path := range []string{"/etc/passwd", "/proc/self/environ", "/proc/self/exe", "/", "."} {
		_, err := os.Open(path)
		try("open "+path, err)
	}
	dir, err := os.Getwd()
	try("write", errors.Join(err, os.WriteFile(filepath.Join(dir, "x"), []byte("x"), 0o600)))
	try("make a directory", os.Mkdir(filepath.Join(dir, "d"), 0o700))
	try("remove", os.Remove(dir))
	try("link", os.Symlink("/etc/passwd", filepath.Join(dir, "l")))
	try("truncate", os.Truncate(dir, 0))
	_, err = net.Dial("tcp", "127.0.0.1:1")
	if errors.Is(err, syscall.ECONNREFUSED) {
		err = nil // it got through, and nobody listens there
	}
	try("connect", err)
	_, err = net.Listen("tcp", "127.0.0.1:0")
	try("listen", err)
	_, err = net.Listen("unix", filepath.Join(dir, "s"))
	try("listen on a path", err)
	try("exec", syscall.Exec("/bin/true", []string{"true"}, nil))
	_, err = os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
	try("start a process", err)
	try("ptrace", syscall.PtraceAttach(os.Getppid()))
	for fd := 3; fd < 64; fd++ {
		var st syscall.Stat_t
		if syscall.Fstat(fd, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG {
			worked = append(worked, "an open file")
		}
	}
	return worked
}

func newPool(t *testing.T, how ...string) *Pool {
	t.Helper()
	p, err := NewPool(Config{Command: append([]string{os.Args[0], Argument}, how...), Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestHelper(t *testing.T) {
	p := newPool(t)
	tree, err := p.ParseSelect(t.Context(), "SELECT 1 AS a")
	if err != nil || !strings.Contains(string(tree), "SELECT_NODE") {
		t.Fatalf("%s, %v", tree, err)
	}
	if text, err := p.FormatSelect(t.Context(), tree); err != nil || text != "SELECT 1 AS a" {
		t.Errorf("%s, %v", text, err)
	}
	_, err = p.ParseSelect(t.Context(), "SELECT ü FROM FROM x")
	if e, ok := errors.AsType[*duckdb.ParseError](err); !ok || e.Offset() != 15 || !strings.Contains(e.Error(), "syntax error") {
		t.Errorf("%v", err)
	}
	src := plan.Source{
		View: []string{"lake", "a", "t"}, Kind: plan.SourceTable, Columns: []plan.Column{{Name: "id", Type: "BIGINT"}, {Name: "v", Type: "DECIMAL(9,2)"}},
		Files: []plan.SourceFile{{Path: "s3://b/x.parquet"}}, Storage: map[string]string{"s3.secret-access-key": "secret"},
	}
	res, err := p.Probe(t.Context(), plan.ProbeRequest{SQL: "SELECT id + 1 AS n, v FROM lake.a.t WHERE v > 0", Sources: []plan.Source{src}})
	if err != nil || !res.RowWise || !res.Deterministic || !slices.Equal(res.Columns, []plan.Column{{Name: "n", Type: "BIGINT"}, {Name: "v", Type: "DECIMAL(9,2)"}}) {
		t.Errorf("%+v, %v", res, err)
	}
	if len(res.Sources) != 1 || len(res.Sources[0].Files) != 1 || res.Sources[0].Storage == nil {
		t.Errorf("the sources didn't come back: %+v", res.Sources)
	}
	_, err = p.Probe(t.Context(), plan.ProbeRequest{SQL: "SELECT nope FROM lake.a.t", Sources: []plan.Source{src}})
	if commit.CodeOf(err) != commit.CodeQueryFailed || !strings.Contains(err.Error(), "nope") {
		t.Errorf("%v", err)
	}
	src.Kind = plan.SourceCSV
	if _, err = p.Probe(t.Context(), plan.ProbeRequest{SQL: "FROM lake.a.t", Sources: []plan.Source{src}}); err == nil || !strings.Contains(err.Error(), "looks at files") {
		t.Errorf("%v", err)
	}
	// What is long and what is deep doesn't break it.
	if _, err := p.ParseSelect(t.Context(), "SELECT '"+strings.Repeat("x", 8<<20)+"'"); err != nil {
		t.Error(err)
	}
	if _, err := p.ParseSelect(t.Context(), "SELECT "+strings.Repeat("(", 100000)); err == nil {
		t.Error("an endless parenthesis was parsed")
	}
	if _, err := p.ParseSelect(t.Context(), "SELECT 1"); err != nil {
		t.Error(err)
	}
}

// TestHelperIsShared: calls wait for each other.
func TestHelperIsShared(t *testing.T) {
	p := newPool(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := p.ParseSelect(t.Context(), "SELECT 1"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestNothingGetsOut: whatever ran in the helper, there's nothing to reach.
func TestNothingGetsOut(t *testing.T) {
	t.Setenv("FIRN_CANARY", "secret")
	p := newPool(t, "escape")
	missing := newPool(t)
	raw, err := missing.ask(t.Context(), "greet", opHello, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > 0 {
		t.Skipf("this machine doesn't let a process give up %s", raw)
	}
	worked, err := p.ParseSelect(t.Context(), "SELECT 1")
	if err != nil || len(worked) > 0 {
		t.Errorf("worked: %s, %v", worked, err)
	}
}

// TestAFaultFailsOneStatement: a helper that breaks is told of, by name, and the
// next statement gets another.
func TestAFaultFailsOneStatement(t *testing.T) {
	for how, want := range map[string]string{"crash": "crashed", "hang": "no answer in time", "garbage": "too long"} {
		t.Run(how, func(t *testing.T) {
			p := newPool(t, how)
			p.cfg.Timeout = time.Second
			_, err := p.ParseSelect(t.Context(), "SELECT 1")
			if commit.CodeOf(err) != commit.CodeBindHelper || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			p.cfg.Command, p.cfg.Timeout = []string{os.Args[0], Argument}, time.Minute
			if _, err := p.ParseSelect(t.Context(), "SELECT 1"); err != nil {
				t.Errorf("the next statement: %v", err)
			}
		})
	}
}

// TestAHelperThatEndedIsReplaced: nobody was waiting, so nobody is told.
func TestAHelperThatEndedIsReplaced(t *testing.T) {
	p := newPool(t)
	h := <-p.free
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-h.done
	p.free <- h
	if _, err := p.ParseSelect(t.Context(), "SELECT 1"); err != nil {
		t.Error(err)
	}
}

func TestAPoolThatCannotStart(t *testing.T) {
	for how, want := range map[string][]string{"no such file": {"/nowhere/firn"}, "no command": nil, "start a helper": {"/bin/false"}} {
		if p, err := NewPool(Config{Command: want}); err == nil || !strings.Contains(err.Error(), how) {
			t.Errorf("%s: %v", how, err)
			if err == nil {
				_ = p.Close()
			}
		}
	}
}

func FuzzServe(f *testing.F) {
	f.Add([]byte("p\x00\x00\x00\x08SELECT 1h\x00\x00\x00\x00"))
	f.Add([]byte(`b` + "\x00\x00\x00\x13" + `{"SQL":"SELECT 1"}` + "\n"))
	h, err := newHelper()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(h.close)
	f.Fuzz(func(t *testing.T, b []byte) {
		var out strings.Builder
		_ = h.serve(strings.NewReader(string(b)), &out) // only its end matters
		r := strings.NewReader(out.String())
		for r.Len() > 0 {
			kind, content, err := readFrame(r)
			if err != nil {
				t.Fatalf("the answer isn't a frame: %v", err)
			}
			_, _ = decode("x", kind, content)
		}
	})
}

// BenchmarkParse shows what the way to the helper and back costs.
func BenchmarkParse(b *testing.B) {
	in, err := duckdb.NewParser()
	if err != nil {
		b.Fatal(err)
	}
	defer in.Close()
	p, err := NewPool(Config{Command: []string{os.Args[0], Argument}, Size: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	const text = "SELECT id, sum(v) AS s FROM t WHERE v > 0 GROUP BY id"
	for name, parser := range map[string]interface {
		ParseSelect(ctx context.Context, text string) ([]byte, error)
	}{"in process": in, "helper": p} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := parser.ParseSelect(b.Context(), text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
