//go:build integration

package hostile_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/integration/hostile"
	"github.com/firn-project/firn/integration/process"
)

// asExecutor has the arguments of hostile.Main when this program is to be that.
const asExecutor = "FIRN_HOSTILE_EXECUTOR"

func TestMain(m *testing.M) {
	if args := os.Getenv(asExecutor); args != "" {
		if err := hostile.Main(strings.Fields(args)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// lab is a cluster with an honest executor and a hostile one.
type lab struct {
	t         *testing.T
	c         *client.Client
	sched     *process.Server
	honest    *process.Server
	warehouse string
	in        *json.Encoder
	out       *json.Decoder
	// lost are the jobs that the hostile executor worked for.
	lost map[string]bool
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	l := &lab{t: t, lost: map[string]bool{}, warehouse: filepath.Join(dir, "warehouse")}
	config := filepath.Join(dir, "scheduler.yaml")
	body := fmt.Sprintf("catalogs:\n  lake:\n    type: sql\n    uri: sqlite://%s/catalog.db\n    warehouse: %s\nexecutors:\n  heartbeat: 200ms\n  timeout: 5s\nsources:\n  local:\n    allow: [%s]\ncommit:\n  manifest_memory: 256MiB\n",
		dir, l.warehouse, l.warehouse)
	if err := os.WriteFile(config, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "scheduler")
	token := func(role string) string {
		r := process.Run(t.Context(), t, "token", "create", "--dir", state, "--role", role, "-o", "json")
		var made struct{ Token string }
		if err := json.Unmarshal([]byte(r.Stdout), &made); err != nil || r.Code != 0 {
			t.Fatalf("token: %v %s", err, r.Stderr)
		}
		return made.Token
	}
	join, ask := token("executor"), token("client")
	l.sched = process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", state, "--config", config, "--log-level", "debug")
	l.honest = process.StartWith(t, []string{"FIRN_TOKEN=" + join}, "executor", "--server", l.sched.Address, "--dir", filepath.Join(dir, "honest"), "--slots", "2", "--memory", "512MB")
	l.startHostile(join)
	l.tell(hostile.Command{Do: "rest"})
	var err error
	if l.c, err = client.Dial(t.Context(), l.sched.Address, client.WithToken(ask)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.c.Close() })
	return l
}

// startHostile starts this program again as the hostile executor.
func (l *lab) startHostile(token string) {
	l.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asExecutor+"="+l.sched.Address+" "+token)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.in, l.out = json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))
	l.t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			l.t.Errorf("the hostile executor: %v\n%s", err, errs.String())
		}
	})
}

// tell gives the hostile executor a command.
func (l *lab) tell(c hostile.Command) hostile.Answer {
	l.t.Helper()
	var a hostile.Answer
	if err := errors.Join(l.in.Encode(c), l.out.Decode(&a)); err != nil || a.Err != "" {
		l.t.Fatalf("%s %s: %v %s", c.Do, c.Attack, err, a.Err)
	}
	return a
}

// submit starts a job.
func (l *lab) submit(sql string) *client.Job {
	l.t.Helper()
	r, err := l.c.Execute(l.t.Context(), client.Statement{SQL: sql})
	if err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
	return r.Job
}

// must runs a statement that succeeds.
func (l *lab) must(sql string) {
	l.t.Helper()
	if j := l.submit(sql); j != nil {
		ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
		defer cancel()
		if _, err := j.Wait(ctx); err != nil {
			l.t.Fatalf("%s: %v", sql, err)
		}
	}
}

// count counts a table's rows.
func (l *lab) count(table string) int64 {
	l.t.Helper()
	for b, err := range l.submit("SELECT count(*)::varchar AS n FROM lake.air." + table).Rows(l.t.Context()) {
		if err != nil {
			l.t.Fatal(err)
		}
		var n int64
		_, err := fmt.Sscan(b.Column(0).ValueStr(0), &n)
		b.Release()
		if err != nil {
			l.t.Fatal(err)
		}
		return n
	}
	l.t.Fatal("no row")
	return 0
}

// files are the warehouse's, with what is in them.
func (l *lab) files() map[string]string {
	l.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(l.warehouse, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		all[path] = string(raw)
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return all
}

// jobOf is the job that wrote a data file.
func jobOf(path string) string { return filepath.Base(filepath.Dir(path)) }

// data gives one data file of a table.
func data(l *lab, files map[string]string, table string) string {
	l.t.Helper()
	for path := range files {
		if strings.Contains(path, "/"+table) && strings.HasSuffix(path, ".parquet") {
			return path
		}
	}
	l.t.Fatalf("%s has no data file in %d", table, len(files))
	return ""
}

// memory gives a process's memory in MiB: now, and the most since the last reset.
func memory(t *testing.T, pid int) (now, most int) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &now)
		_, _ = fmt.Sscanf(line, "VmHWM: %d kB", &most)
	}
	return now >> 10, most >> 10
}

// resetMemory begins to measure the most anew.
func resetMemory(t *testing.T, pid int) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// mostMemory is what the scheduler may take in MiB, in the worst attack: twice the
// budget of a job's manifests, for the garbage, and what it takes at rest.
const mostMemory = 1300

// attack is a row of the table.
type attack struct {
	name string
	// rule is in the error of the attack's job.
	rule string
	// rerun: the attempt counts as failed, and another executor does its task.
	rerun bool
	// said is in each answer to the attack's own calls.
	said string
}

var table = []attack{
	{name: "another table's file", rule: "all files lie under the job's prefix"},
	{name: "another job's file", rule: "all files lie under the job's prefix"},
	{name: "another job's file of this attempt", rule: "all files lie under the job's prefix"},
	{name: "steps up", rule: "no path steps up"},
	{name: "steps up, escaped", rule: "no path steps up"},
	{name: "steps up, escaped twice", rule: "no path steps up"},
	{name: "steps up, with backslashes", rule: "no character that readers take apart"},
	{name: "absolute", rule: "all files lie under the job's prefix"},
	{name: "absolute URI", rule: "all files lie under the job's prefix"},
	{name: "another store", rule: "all files lie under the job's prefix"},
	{name: "a query", rule: "no character that readers take apart"},
	{name: "a control sign", rule: "no character that readers take apart"},
	{name: "no name", rule: "all files lie under the job's prefix"},
	{name: "twice the same", rule: "paths are unique"},
	{name: "another attempt", rule: "the attempt's id is part of the file's name"},
	{name: "not written", rule: "files are there"},
	{name: "more rows", rule: "bounds and partition values fit together"},
	{name: "fewer rows", rule: "bounds and partition values fit together"},
	{name: "another size", rule: "the size that its manifest says"},
	{name: "an absurd size", rule: "the size that its manifest says"},
	{name: "absurd rows", rule: "bounds and partition values fit together"},
	{name: "a negative size", rerun: true},
	{name: "swapped bounds", rule: "bounds and partition values fit together"},
	{name: "bounds of no type", rule: "bounds and partition values fit together"},
	{name: "more nulls than values", rule: "at most as many nulls as values"},
	{name: "another schema", rule: "the unit's schema and partition spec"},
	{name: "another spec", rule: "the unit's schema and partition spec"},
	{name: "another format", rule: "data files are Parquet"},
	{name: "a partition value of no field", rule: "bounds and partition values fit together"},
	{name: "a path of a megabyte", rule: "at most 8192 are allowed"},
	{name: "a million rows", rule: "bytes of memory"},
	{name: "a row less than reported", rule: "as many rows as its attempt reported"},
	{name: "a million reported", rule: "as many rows as its attempt reported"},
	{name: "rows that aren't there", rule: "the accepted tasks reported"},
	{name: "no output", rerun: true},
	{name: "a giant error", rule: "bytes more"},
	{name: "a manifest without end", rule: "bytes of memory"},
	{name: "rows instead", rule: "malformed file manifest"},
	{name: "no Arrow", rerun: true},
	{name: "a length of exabytes", rerun: true},
	{name: "held back", rerun: true},
	{name: "statuses of others", rule: "gave up", said: "1 acknowledged"},
	{name: "a flood", rule: "gave up", said: "no more may be"},
	{name: "giant messages", rule: "gave up"},
	{name: "keys of others", rule: "gave up", said: "FIRN-"},
	{name: "forged tickets", rule: "gave up", said: "PermissionDenied"},
	{name: "slow calls", rule: "gave up"},
	{name: "a probe of other files", rule: "only files that were asked for"},
	{name: "a probe of another table", rule: "only files that were asked for"},
}

// TestAttacks: see the package's comment.
func TestAttacks(t *testing.T) {
	l := newLab(t)
	l.must("CREATE NAMESPACE lake.air")
	for _, name := range []string{"target", "other"} {
		l.must("CREATE TABLE lake.air." + name + " (n bigint, s varchar)")
		l.must("INSERT INTO lake.air." + name + " VALUES (1, 'a'), (2, 'b')")
	}
	before := l.files()
	facts := hostile.Facts{OtherTable: data(l, before, "other"), OtherJob: data(l, before, "target"), Honest: l.honest.Address}

	// What it does honestly is taken: the attacks fail for what is in them.
	if _, err := l.strike("nothing", "INSERT INTO lake.air.target VALUES (3, 'c')", facts); err != nil {
		t.Fatalf("an honest task of the hostile executor: %v", err)
	}
	if n := l.count("target"); n != 12 {
		t.Fatalf("%d rows after an honest task, want 12", n)
	}
	clear(l.lost)
	idle, _ := memory(t, l.sched.PID())
	for _, a := range table {
		t.Run(a.name, func(t *testing.T) {
			l := *l
			l.t = t
			l.check(a, facts)
		})
	}
	now, _ := memory(t, l.sched.PID())
	t.Logf("scheduler: %d MiB before, %d MiB after %d attacks", idle, now, len(table))
}

// TestStaleAttempts: attempts that count as lost, and were done by others, change
// nothing when they come back with a success.
func TestStaleAttempts(t *testing.T) {
	l := newLab(t)
	l.must("CREATE NAMESPACE lake.air")
	l.must("CREATE TABLE lake.air.target (n bigint, s varchar)")
	l.must("CREATE TABLE lake.air.other (n bigint, s varchar)")
	if _, err := l.strike("stale", "INSERT INTO lake.air.target VALUES (3, 'c')", hostile.Facts{}); err != nil {
		t.Fatalf("nobody else did the task: %v", err)
	}
	l.tell(hostile.Command{Do: "strike", Attack: "nothing"}) // the same attempts, late
	l.must("INSERT INTO lake.air.target VALUES (4, 'd')")
	if n := l.count("target"); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

// strike runs one attack, while an honest job commits. It gives the answers to the
// attack's calls, and how its job ended.
func (l *lab) strike(name, statement string, facts hostile.Facts) ([]string, error) {
	l.t.Helper()
	probe := strings.Contains(statement, "read_parquet")
	l.tell(hostile.Command{Do: "take", Attack: name})
	victim := l.submit(statement)
	l.lost[victim.ID()] = true
	if probe {
		_, err := victim.Wait(l.t.Context())
		l.tell(hostile.Command{Do: "rest"})
		return nil, err
	}
	l.tell(hostile.Command{Do: "hold"})
	mark := l.sched.Mark()
	honest := l.submit("INSERT INTO lake.air.other SELECT i, 'row ' || i FROM range(20000) r(i)")
	var launched struct{ Attempt string }
	if err := json.Unmarshal([]byte(l.sched.AwaitLog(l.t, mark, "task launched", honest.ID())), &launched); err != nil {
		l.t.Fatal(err)
	}
	facts.Job, facts.Attempt = honest.ID(), launched.Attempt
	a := l.tell(hostile.Command{Do: "strike", Attack: name, Facts: facts})
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	if st, err := honest.Wait(ctx); err != nil || st.Rows != 20_000 {
		l.t.Errorf("the honest job: %d rows, %v", st.Rows, err)
	}
	_, err := victim.Wait(ctx)
	return a.Said, err
}

func (l *lab) check(a attack, facts hostile.Facts) {
	l.t.Helper()
	before := l.files()
	target, other := l.count("target"), l.count("other")
	resetMemory(l.t, l.sched.PID())
	began := time.Now()
	statement, honest := "INSERT INTO lake.air.target VALUES (3, 'c')", int64(20_000)
	if strings.HasPrefix(a.name, "a probe") {
		statement, honest = "INSERT INTO lake.air.target SELECT * FROM read_parquet("+process.Quote(facts.OtherTable)+")", 0
	}
	said, err := l.strike(a.name, statement, facts)
	_, most := memory(l.t, l.sched.PID())
	l.t.Logf("%.1f s, at most %d MiB: %.300v", time.Since(began).Seconds(), most, err)
	switch {
	case a.rerun:
		if err != nil {
			l.t.Error("another executor didn't do it")
		}
		target++
	case err == nil:
		l.t.Error("its job has succeeded")
	case !strings.Contains(err.Error(), a.rule):
		l.t.Errorf("the error doesn't say %q", a.rule)
	case len(err.Error()) > 32<<10:
		l.t.Errorf("the error has %d bytes", len(err.Error()))
	}
	for _, s := range said {
		if !strings.Contains(s, a.said) {
			l.t.Errorf("its call was answered with %q, want %q", s, a.said)
		}
	}
	if most > mostMemory {
		l.t.Errorf("the scheduler took %d MiB", most)
	}
	if n := l.count("target"); n != target {
		l.t.Errorf("the table has %d rows, %d before", n, target)
	}
	if n := l.count("other"); n != other+honest {
		l.t.Errorf("the other table has %d rows, %d before and %d by the honest job", n, other, honest)
	}
	after := l.files()
	for path, content := range before {
		// What another attempt of its own jobs has written instead is in the count.
		if l.lost[jobOf(path)] {
			continue
		}
		if now, there := after[path]; !there || now != content {
			l.t.Errorf("%s was changed or deleted", path)
		}
	}
}
