//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/firn-project/firn/integration/canary"
	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/internal/flightsql/flightsqltest"
)

// engineSecret stands nowhere but in the file that the scheduler's configuration
// names.
const engineSecret = "canary-password-of-the-engine-7c1e"

// gate lets streams of an engine on to their third batch and tells when all that can
// run at a time are there; they go on when it is opened.
type gate struct {
	reached, opened chan struct{}
	left            atomic.Int64
}

func newGate(streams int64) *gate {
	g := &gate{reached: make(chan struct{}), opened: make(chan struct{})}
	g.left.Store(streams)
	return g
}

func (g *gate) pace(ctx context.Context, r flightsqltest.Reading, batch int) {
	if batch != 2 || r.Execution > 1 || r.Read > 1 {
		return
	}
	if g.left.Add(-1) == 0 {
		close(g.reached)
	}
	select {
	case <-g.opened:
	case <-ctx.Done():
	}
}

// onEngine starts a scheduler that may read the engine over TLS, with a user and a
// password, and executors.
func onEngine(t *testing.T, s *flightsqltest.Server, executors int) *lakeside {
	t.Helper()
	return onEngineWith(t, s, executors, "5s")
}

// onEngineWith has executors lost after the time given.
func onEngineWith(t *testing.T, s *flightsqltest.Server, executors int, timeout string) *lakeside {
	t.Helper()
	s.User, s.Password = "firn", engineSecret
	addr, ca, stop, err := s.StartTLS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	l := &lakeside{t: t, dir: t.TempDir()}
	write := func(name, text string) string {
		path := filepath.Join(l.dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := write("scheduler.yaml", fmt.Sprintf(`executors: {heartbeat: 200ms, timeout: %s}
sources:
  flight_sql:
    engine:
      uri: grpc+tls://%s
      properties: {username: firn, password_file: %q, ca_file: %q}
`, timeout, addr, write("password", engineSecret+"\n"), write("engine-ca.pem", string(ca))))
	l.scheduler = process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(l.dir, "scheduler"), "--config", config, "--log-level", "debug")
	for i := range executors {
		l.executors = append(l.executors, process.Start(t, "executor", "--server", l.scheduler.Address,
			"--dir", filepath.Join(l.dir, fmt.Sprintf("executor-%d", i)), "--slots", "2", "--memory", "512MB", "--log-level", "debug"))
	}
	l.Client = process.NewClient(t, "--server", l.scheduler.Address)
	l.Exec(nil, "CREATE NAMESPACE lake.air")
	l.Exec(nil, "CREATE TABLE lake.air.t (n bigint, execution bigint, part bigint) PARTITIONED BY (part)")
	return l
}

const fromEngine = "INSERT INTO lake.air.t SELECT n, execution, endpoint % 3 FROM flight_sql('engine', $$SELECT * FROM flights$$)"

// once checks that the table has each row of one execution, once.
func (l *lakeside) once(rows int64, execution int) {
	l.t.Helper()
	if all, distinct := l.rows(fmt.Sprintf("lake.air.t WHERE execution = %d", execution)); all != rows || distinct != rows {
		l.t.Errorf("%d rows of execution %d, %d different ones; want %d", all, execution, distinct, rows)
	}
	if all, _ := l.rows("lake.air.t"); all != rows {
		l.t.Errorf("%d rows in all, want %d", all, rows)
	}
}

// TestFlightSQLOutlivesAnExecutor: an executor is killed while it reads an engine. With
// tickets that can be shown again the same execution is read to its end; with tickets
// for one time the query runs again, and nothing of the first execution is committed.
func TestFlightSQLOutlivesAnExecutor(t *testing.T) {
	for single, executions := range map[bool]int{false: 1, true: 2} {
		t.Run(fmt.Sprintf("single use %v", single), func(t *testing.T) {
			g := newGate(6)
			s := &flightsqltest.Server{Endpoints: 8, Rows: 20_000, SingleUse: single, Pace: g.pace}
			l := onEngine(t, s, 3)
			mark := l.scheduler.Mark()
			done := l.launch(fromEngine, "k")
			<-g.reached
			l.executors[l.victim(l.scheduler.AwaitLog(t, mark, `"msg":"task launched"`, `"stage":0`))].Kill()
			close(g.opened)
			r := <-done
			if r.Code != 0 {
				t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
			}
			if w := written(t, r); w.Commit != "committed" || w.Rows != 160_000 {
				t.Fatalf("%+v", w)
			}
			if got := s.Executions(); got != executions {
				t.Errorf("%d executions, want %d", got, executions)
			}
			l.once(160_000, executions)
		})
	}
}

// TestFlightSQLOutlivesTheScheduler: the scheduler is killed while executors read an
// engine, and goes on with the same execution.
func TestFlightSQLOutlivesTheScheduler(t *testing.T) {
	g := newGate(4)
	s := &flightsqltest.Server{Endpoints: 8, Rows: 20_000, Pace: g.pace}
	l := onEngine(t, s, 2)
	done := l.launch(fromEngine, "k")
	<-g.reached
	l.scheduler.Kill()
	s.EndSessions() // and the engine's token of the scheduler with it
	l.scheduler = l.scheduler.Again(t)
	close(g.opened)
	r := <-done
	if r.Code != 0 {
		t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
	}
	if w := written(t, r); w.Commit != "committed" || w.Rows != 160_000 {
		t.Fatalf("%+v", w)
	}
	l.once(160_000, 1)
}

// TestFlightSQLOutlivesTheEngine: the engine forgets its tickets while it is read, as
// one that was started again; the query runs once more.
func TestFlightSQLOutlivesTheEngine(t *testing.T) {
	g := newGate(4)
	s := &flightsqltest.Server{Endpoints: 8, Rows: 20_000, Pace: g.pace}
	l := onEngine(t, s, 2)
	done := l.launch(fromEngine, "k")
	<-g.reached
	s.Forget()
	s.EndSessions()
	close(g.opened)
	r := <-done
	if r.Code != 0 {
		t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
	}
	if got := s.Executions(); got != 2 {
		t.Errorf("%d executions, want 2", got)
	}
	l.once(160_000, 2)
	if got := s.Logins(); got < 2 {
		t.Errorf("%d logins after the session ended", got)
	}
}

// TestFlightSQLSecretsStay: the engine's password is in the scheduler's memory and in
// its file; not in executors, journals, events, logs or answers. What executors have is
// the token that the engine handed out, and only while they read it.
func TestFlightSQLSecretsStay(t *testing.T) {
	g := newGate(2)
	s := &flightsqltest.Server{Endpoints: 8, Rows: 20_000, Pace: g.pace}
	l := onEngine(t, s, 1)
	l.Exec(nil, "CREATE SOURCE mine WITH (type = 'flight_sql', secret = 'engine')")
	done := l.launch(fromEngine, "k")
	<-g.reached
	secret, token := canary.NewMarks(engineSecret), canary.NewMarks("session-1-of-firn")
	if found, searched, err := token.Process(l.executors[0].PID()); err != nil || searched == 0 || len(found) == 0 {
		t.Errorf("the search misses the token that the executor has: %v, %d bytes, %v", found, searched, err)
	}
	if found, searched, err := secret.Process(l.executors[0].PID()); err != nil || searched == 0 || len(found) > 0 {
		t.Errorf("the executor has %v (%d bytes searched, %v)", found, searched, err)
	}
	close(g.opened)
	r := <-done
	if r.Code != 0 {
		t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
	}
	said := r.Stdout + r.Stderr + l.scheduler.Log() + l.executors[0].Log() + fmt.Sprint(l.Row("SELECT count(*) FROM lake.air.t"))
	for _, statement := range []string{"SHOW SOURCES", "EXPLAIN " + fromEngine, "SELECT * FROM flight_sql('engine', 'q') WHERE nope", "SELECT * FROM flight_sql('nope', 'q')"} {
		res := l.Try(statement)
		said += res.Stdout + res.Stderr
	}
	if strings.Contains(said, engineSecret) || strings.Contains(said, "session-1-of") {
		t.Error("a secret stands in logs or answers")
	}
	l.scheduler.Stop(t)
	l.executors[0].Stop(t)
	for _, m := range []canary.Marks{secret, token} {
		for _, dir := range []string{"scheduler", "executor-0"} {
			if found, searched, err := m.Tree(filepath.Join(l.dir, dir)); err != nil || searched == 0 || len(found) > 0 {
				t.Errorf("%s: %v (%d bytes searched, %v)", dir, found, searched, err)
			}
		}
	}
}
