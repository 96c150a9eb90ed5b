package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/firn-project/firn/internal/failpoint"
)

// Binary is the path of the firn under test: $FIRN_BIN, or bin/firn at the root
// of the repository.
func Binary(t testing.TB) string {
	t.Helper()
	bin := os.Getenv("FIRN_BIN")
	if bin == "" {
		root, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}").Output()
		if err != nil {
			t.Fatalf("find the module's root: %v", err)
		}
		bin = filepath.Join(strings.TrimSpace(string(root)), "bin", "firn")
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("%v: run `make build` first", err)
	}
	return bin
}

// Server is a running scheduler or executor.
type Server struct {
	// Ready is the JSON line that the process printed when it was ready.
	Ready map[string]any
	// Address is the process's own.
	Address string

	args []string
	cmd  *exec.Cmd
	log  *log
	done chan struct{}
}

// Start runs `firn args…` and waits for its JSON line. The process is stopped
// when the test ends, and its log shown if the test failed.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartWith(t, nil, args...)
}

// StartWith is Start with further environment variables, as NAME=VALUE.
func StartWith(t testing.TB, env []string, args ...string) *Server {
	t.Helper()
	args = slices.Clone(args)
	if i := slices.Index(args, "--listen") + 1; i > 0 && args[i] == "127.0.0.1:0" {
		args[i] = lastingAddress(t)
	}
	s, err := launch(t, env, args)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// launch starts a process and waits for its line. Without one the process has ended.
func launch(t testing.TB, env, args []string) (*Server, error) {
	t.Helper()
	s := &Server{args: args, cmd: exec.Command(Binary(t), args...), log: newLog(), done: make(chan struct{})}
	s.cmd.Env = append(append(os.Environ(), "FIRN_CHECK_ALL_FILES=true"), env...) // the first is for schedulers
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	go func() {
		defer close(s.done)
		_, _ = lines.WriteTo(&bytes.Buffer{})
		_ = s.cmd.Wait()
	}()
	t.Cleanup(func() {
		s.Stop(t)
		if t.Failed() {
			t.Logf("log of firn %s:\n%s", strings.Join(args, " "), tail(s.log.text()))
		}
	})
	if err != nil {
		<-s.done
		return s, fmt.Errorf("firn %s printed no line: %w\n%s", strings.Join(args, " "), err, s.log.text())
	}
	if err := json.Unmarshal([]byte(line), &s.Ready); err != nil {
		t.Fatalf("firn %s printed %q: %v", strings.Join(args, " "), line, err)
	}
	s.Address, _ = s.Ready["address"].(string)
	return s, nil
}

// lastingAddress is a free address that stays free while a process that had it is
// down: its port is below those that the system hands out by itself.
func lastingAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		at := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))
		if l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at); err == nil {
			_ = l.Close()
			return at
		}
	}
	t.Fatal("no port from 20000 to 29999 is free")
	return ""
}

// Stop asks the process to end and waits for it; a process that takes over 30 s
// fails the test and is killed.
func (s *Server) Stop(t testing.TB) {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(30 * time.Second):
		t.Errorf("pid %d did not stop within 30 s of SIGTERM", s.cmd.Process.Pid)
		s.Kill()
	}
}

// PID is the process's id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Kill ends the process at once, as a crash would.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

// Again starts the process again after its end, on the address that it had: a
// restart on the same directory. env are further environment variables.
func (s *Server) Again(t testing.TB, env ...string) *Server {
	t.Helper()
	return StartWith(t, env, s.args...)
}

// AgainUntil is Again for a process that dies the nth time that it gets to a fail
// point, and makes the file mark then. That may be before it has printed its line,
// with the work that it finds on its directory.
func (s *Server) AgainUntil(t testing.TB, at failpoint.Point, n int, mark string, env ...string) *Server {
	t.Helper()
	doomed, err := launch(t, append(env, fmt.Sprintf("FIRN_FAILPOINT=%s:%d", at, n), "FIRN_FAILPOINT_MARK="+mark), s.args)
	if err != nil {
		if _, missing := os.Stat(mark); missing != nil {
			t.Fatal(err)
		}
		doomed.Ready, doomed.Address = s.Ready, s.Address
	}
	return doomed
}

// Signal sends the process a signal.
func (s *Server) Signal(t testing.TB, sig os.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// Wait waits for the process's end.
func (s *Server) Wait() { <-s.done }

// Log is what the process has logged so far.
func (s *Server) Log() string { return s.log.text() }

// Mark is the end of the process's log as it is now, for AwaitLog.
func (s *Server) Mark() int { return s.log.size() }

// AwaitLog waits for a line of the log after mark that has all the words, and
// returns it. Tests meet a process at a point of its work that way, instead of
// guessing how long it takes to get there. 20 s without one fail the test.
func (s *Server) AwaitLog(t testing.TB, mark int, words ...string) string {
	t.Helper()
	line, ok := s.log.await(mark, 20*time.Second, func(line string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
	})
	if !ok {
		t.Fatalf("no line of the log has %q", words)
	}
	return line
}

func tail(s string) string {
	const most = 8 << 10
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

// Result is how one call of `firn` ended.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Run calls `firn args…` and waits.
func Run(ctx context.Context, t testing.TB, args ...string) Result {
	t.Helper()
	cmd := exec.CommandContext(ctx, Binary(t), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	r := Result{Stdout: out.String(), Stderr: errs.String()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		r.Code = exit.ExitCode()
	case err != nil:
		t.Fatalf("firn %s: %v", strings.Join(args, " "), err)
	}
	return r
}

// Write is the JSON object that a write statement prints.
type Write struct {
	JobID          string `json:"job_id"`
	IdempotencyKey string `json:"idempotency_key"`
	Deduplicated   bool   `json:"deduplicated"`
	State          string `json:"state"`
	Commit         string `json:"commit"`
	Rows           int64  `json:"rows"`
	Files          int64  `json:"files"`
	SnapshotID     string `json:"snapshot_id"`
	Tasks          int    `json:"tasks"`
	Executors      []struct {
		ID    string `json:"id"`
		Tasks int    `json:"tasks"`
	} `json:"executors"`
}

// Client runs statements against a server or an embedded cluster.
type Client struct {
	t    testing.TB
	args []string
}

// NewClient makes a client; args say where, such as "--server", address.
func NewClient(t testing.TB, args ...string) *Client { return &Client{t: t, args: args} }

// Try runs one statement and returns how the call ended.
func (c *Client) Try(statement string, flags ...string) Result {
	c.t.Helper()
	args := append([]string{"sql", "-o", "json"}, c.args...)
	return Run(c.t.Context(), c.t, append(append(args, flags...), "-c", statement)...)
}

// Exec runs one statement that must succeed and decodes its line into into,
// unless that is nil.
func (c *Client) Exec(into any, statement string, flags ...string) {
	c.t.Helper()
	r := c.Try(statement, flags...)
	if r.Code != 0 {
		c.t.Fatalf("%s\nexit code %d\n%s", statement, r.Code, r.Stderr)
	}
	if n := strings.Count(r.Stdout, "\n"); n != 1 {
		c.t.Fatalf("%s: want one line of JSON, got %d:\n%s", statement, n, r.Stdout)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal([]byte(r.Stdout), into); err != nil {
		c.t.Fatalf("%s: %v\n%s", statement, err, r.Stdout)
	}
}

// Row runs a SELECT of one row and returns it.
func (c *Client) Row(query string) map[string]any {
	c.t.Helper()
	var rows []map[string]any
	c.Exec(&rows, query)
	if len(rows) != 1 {
		c.t.Fatalf("%s: %d rows, want 1", query, len(rows))
	}
	return rows[0]
}

// Quote writes a text as an SQL literal.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// Int reads a number of a JSON row: numbers beyond 2^53 are strings.
func Int(v any) (int64, error) {
	switch v := v.(type) {
	case float64:
		return int64(v), nil
	case string:
		var n int64
		_, err := fmt.Sscan(v, &n)
		return n, err
	default:
		return 0, fmt.Errorf("%v is no number", v)
	}
}
