//go:build integration

package integration_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/firn-project/firn/integration/process"
)

// lakeside is a scheduler and executors as processes, which notice losses fast.
type lakeside struct {
	*process.Client
	t         *testing.T
	dir       string
	scheduler *process.Server
	executors []*process.Server
}

func startProcesses(t *testing.T, dispatch string, executors int) *lakeside {
	t.Helper()
	return startProcessesWith(t, dispatch, executors, "2s")
}

// startProcessesWith has executors lost after the time given.
func startProcessesWith(t *testing.T, dispatch string, executors int, timeout string) *lakeside {
	t.Helper()
	l := &lakeside{t: t, dir: t.TempDir()}
	config := filepath.Join(l.dir, "scheduler.yaml")
	body := "dispatch: " + dispatch + "\nsources: {local: {allow: [/]}}\nexecutors: {heartbeat: 200ms, timeout: " + timeout + "}\n"
	if err := os.WriteFile(config, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	l.scheduler = process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(l.dir, "scheduler"),
		"--config", config, "--log-level", "debug")
	for i := range executors {
		l.executors = append(l.executors, process.Start(t, "executor", "--server", l.scheduler.Address,
			"--dir", filepath.Join(l.dir, fmt.Sprintf("executor-%d", i)), "--slots", "2", "--memory", "512MB"))
	}
	l.Client = process.NewClient(t, "--server", l.scheduler.Address)
	l.Exec(nil, "CREATE NAMESPACE lake.air")
	return l
}

// launch runs a statement beside the test and gives its end.
func (l *lakeside) launch(statement, key string) <-chan process.Result {
	done := make(chan process.Result, 1)
	go func() { done <- l.Try(statement, "--idempotency-key", key) }()
	return done
}

// written is what a write's line of JSON says.
func written(t *testing.T, r process.Result) process.Write {
	t.Helper()
	var w process.Write
	if err := json.Unmarshal([]byte(r.Stdout), &w); err != nil {
		t.Fatalf("%v: exit code %d, %q, %s", err, r.Code, r.Stdout, r.Stderr)
	}
	return w
}

// rows counts a table's rows and how many different ones there are.
func (l *lakeside) rows(from string) (all, distinct int64) {
	l.t.Helper()
	row := l.Row("SELECT count(*) AS n, count(DISTINCT n) AS d FROM " + from)
	all, err := process.Int(row["n"])
	if err != nil {
		l.t.Fatal(err)
	}
	distinct, err = process.Int(row["d"])
	if err != nil {
		l.t.Fatal(err)
	}
	return all, distinct
}

// An executor dies, or stands still, in each stage and while the root reads: the
// statement ends well all the same and no row is lost or doubled. It comes back on
// its directory each time.
func TestExecutorsFailInEachStage(t *testing.T) {
	for half, dispatch := range []string{"push", "pull"} {
		t.Run(dispatch, func(t *testing.T) {
			l := startProcesses(t, dispatch, 3)
			l.Exec(nil, "CREATE TABLE lake.air.t (n bigint, run int, part bigint) PARTITIONED BY (part)")
			for run, moment := range [][]string{
				{`"msg":"task launched"`, `"stage":0`},
				{`"msg":"task launched"`, `"stage":1`},
				{`"msg":"root phase"`, `"phase":"reading"`},
			} {
				for i, fail := range []func(*process.Server) *process.Server{
					func(s *process.Server) *process.Server { s.Kill(); return s.Again(t) },
					func(s *process.Server) *process.Server { s.Stop(t); return s.Again(t) },
					func(s *process.Server) *process.Server {
						s.Signal(t, syscall.SIGSTOP)
						// Lost after some silence; it finds out when it goes on.
						mark := l.scheduler.Mark()
						l.scheduler.AwaitLog(t, mark, `"msg":"executor lost"`)
						s.Signal(t, syscall.SIGCONT)
						return s
					},
				} {
					if (run+i)%2 != half {
						continue // the other dispatch has it
					}
					id := 10*run + i
					mark := l.scheduler.Mark()
					done := l.launch(fmt.Sprintf("INSERT INTO lake.air.t SELECT i, %d, i %% 7 FROM range(400000) r(i)", id), fmt.Sprint("run-", id))
					line := l.scheduler.AwaitLog(t, mark, moment...)
					victim := l.victim(line)
					l.executors[victim] = fail(l.executors[victim])
					if r := <-done; r.Code != 0 {
						t.Fatalf("run %d: exit code %d: %s", id, r.Code, r.Stderr)
					} else if w := written(t, r); w.Commit != "committed" || w.Rows != 400000 {
						t.Fatalf("run %d: %+v", id, w)
					}
					if all, distinct := l.rows(fmt.Sprintf("lake.air.t WHERE run = %d", id)); all != 400000 || distinct != 400000 {
						t.Fatalf("run %d: %d rows, %d different ones", id, all, distinct)
					}
				}
			}
		})
	}
}

// victim is the executor that a line of the log names, or any.
func (l *lakeside) victim(line string) int {
	for i, e := range l.executors {
		if id, _ := e.Ready["id"].(string); strings.Contains(line, id) {
			return i
		}
	}
	return 0
}

// The scheduler dies at each step of a commit and starts again on its directory.
// Whatever its clients are told, the same statement under the same key leaves its
// rows in the table exactly once.
func TestSchedulerFailsAtEachStep(t *testing.T) {
	l := startProcesses(t, "push", 2)
	l.Exec(nil, "CREATE TABLE lake.air.t (n bigint, run int)")
	for run, moment := range []string{
		`"msg":"task launched"`, `"phase":"reading"`, `"phase":"committing"`, `"msg":"sending commit request"`,
		`"msg":"commit request answered"`, `"msg":"commit unit ended"`, `"msg":"job ended"`,
	} {
		for i, sig := range []os.Signal{syscall.SIGKILL, syscall.SIGTERM}[:2-run%2] {
			id := 10*run + i
			from := fmt.Sprintf("lake.air.t WHERE run = %d", id)
			insert, key := fmt.Sprintf("INSERT INTO lake.air.t SELECT i, %d FROM range(100) r(i)", id), fmt.Sprint("run-", id)
			mark := l.scheduler.Mark()
			done := l.launch(insert, key)
			l.scheduler.AwaitLog(t, mark, moment)
			l.scheduler.Signal(t, sig)
			l.scheduler.Wait()
			l.scheduler = l.scheduler.Again(t)
			first := <-done
			for _, e := range l.executors { // they come back by themselves
				l.scheduler.AwaitLog(t, 0, `"msg":"executor registered"`, fmt.Sprint(e.Ready["id"]))
			}
			before, _ := l.rows(from)
			if first.Code == 0 && before != 100 || first.Code == 1 && before != 0 {
				t.Fatalf("%s, %s: %d rows after exit code %d: %s", moment, sig, before, first.Code, first.Stderr)
			}
			again := l.Try(insert, "--idempotency-key", key)
			if again.Code != 0 && strings.Contains(again.Stderr, "FIRN-6020") {
				l.retryUnits() // it isn't proven what became of the commit: this finds out
				again = l.Try(insert, "--idempotency-key", key)
			}
			if again.Code != 0 {
				t.Fatalf("%s, %s: again: %s", moment, sig, again.Stderr)
			}
			if w := written(t, again); w.Deduplicated != (before == 100) && first.Code != 7 {
				t.Errorf("%s, %s: %d rows before: %+v", moment, sig, before, w)
			}
			if all, distinct := l.rows(from); all != 100 || distinct != 100 {
				t.Fatalf("%s, %s: %d rows, %d different ones", moment, sig, all, distinct)
			}
		}
	}
}

// retryUnits drives every commit that waits.
func (l *lakeside) retryUnits() {
	l.t.Helper()
	r := process.Run(l.t.Context(), l.t, "commit", "list", "--server", l.scheduler.Address, "-o", "json")
	var units []struct {
		JobID string `json:"job_id"`
	}
	if err := json.Unmarshal([]byte(r.Stdout), &units); err != nil {
		l.t.Fatalf("%v: %s %s", err, r.Stdout, r.Stderr)
	}
	for _, u := range units {
		if r := process.Run(l.t.Context(), l.t, "commit", "retry", u.JobID, "--server", l.scheduler.Address); r.Code != 0 {
			l.t.Fatalf("retry %s: %s", u.JobID, r.Stderr)
		}
	}
}

// Twenty clients insert into one table at once, each key from two of them.
func TestConcurrentInserts(t *testing.T) {
	l := startProcesses(t, "push", 2)
	l.Exec(nil, "CREATE TABLE lake.air.t (n bigint)")
	results := make([]process.Result, 20)
	var wg sync.WaitGroup
	for i := range results {
		k := i / 2
		wg.Go(func() {
			results[i] = l.Try(fmt.Sprintf("INSERT INTO lake.air.t SELECT %d + i FROM range(100) r(i)", k*100), "--idempotency-key", fmt.Sprint("k-", k))
		})
	}
	wg.Wait()
	snapshots := map[string]bool{}
	for i, r := range results {
		if r.Code != 0 {
			t.Fatalf("client %d: %s", i, r.Stderr)
		}
		snapshots[written(t, r).SnapshotID] = true
	}
	if len(snapshots) > 10 {
		t.Errorf("%d snapshots for 10 keys", len(snapshots))
	}
	if all, distinct := l.rows("lake.air.t"); all != 1000 || distinct != 1000 {
		t.Errorf("%d rows, %d different ones; want 1000", all, distinct)
	}
}

// Jobs are cancelled at any point of their way. The job's field commit says
// whether its rows are there: all of them or none.
func TestCancelAtAnyPoint(t *testing.T) {
	l := startProcesses(t, "pull", 2)
	l.Exec(nil, "CREATE TABLE lake.air.t (n bigint, run int, part bigint) PARTITIONED BY (part)")
	moments := []string{
		`"msg":"task launched"`, `"stage":1`, `"phase":"reading"`, `"phase":"verifying"`, `"phase":"committing"`,
		`"msg":"sending commit request"`, `"msg":"job ended"`,
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for run := range 10 {
		moment := moments[rng.IntN(len(moments))]
		key := fmt.Sprint("run-", run)
		mark := l.scheduler.Mark()
		done := l.launch(fmt.Sprintf("INSERT INTO lake.air.t SELECT i, %d, i %% 5 FROM range(50000) r(i)", run), key)
		l.scheduler.AwaitLog(t, mark, moment)
		for _, verb := range []string{"cancel", "wait"} {
			process.Run(t.Context(), t, "job", verb, "--key", key, "--server", l.scheduler.Address)
		}
		r := <-done
		job := written(t, process.Run(t.Context(), t, "job", "describe", "--key", key, "--server", l.scheduler.Address, "-o", "json"))
		all, distinct := l.rows(fmt.Sprintf("lake.air.t WHERE run = %d", run))
		want := int64(0)
		if job.Commit == "committed" {
			want = 50000
		}
		if all != want || distinct != want || (r.Code == 0) != (want > 0) {
			t.Errorf("at %s: %s, commit %s, exit code %d, but %d rows", moment, job.State, job.Commit, r.Code, all)
		}
		if job.State != "succeeded" && job.State != "cancelled" {
			t.Errorf("at %s: the job is %s: %s", moment, job.State, r.Stderr)
		}
	}
}

// An executor that stands still with finished output that others need is known to
// the scheduler for long: who reads from it doesn't wait for that, and what it holds
// is made again. Its late successes change nothing when it goes on, and none of its
// files stays.
func TestFrozenExecutorWithOutput(t *testing.T) {
	for _, dispatch := range []string{"push", "pull"} {
		t.Run(dispatch, func(t *testing.T) {
			l := startProcessesWith(t, dispatch, 3, "10m")
			l.Exec(nil, "CREATE TABLE lake.air.t (n bigint, part bigint) PARTITIONED BY (part)")
			const rows = 400_000
			mark := l.scheduler.Mark()
			// The first stage takes longer than draining, on a busy machine too.
			const long = "SELECT count(*) FROM range(60000) a(x), range(12000) b(y) WHERE (x * 7 + y * 13) % 1000003 = 5"
			done := l.launch(fmt.Sprintf("INSERT INTO lake.air.t SELECT i, i %% 7 FROM range(%d) r(i) WHERE (%s) >= 0", rows, long), "frozen")
			frozen := l.executors[l.victim(l.scheduler.AwaitLog(t, mark, `"msg":"task launched"`, `"stage":0`))]
			// It gets no task of the next stage: its heartbeats would be waited for then.
			if r := process.Run(t.Context(), t, "executor", "drain", frozen.Ready["id"].(string), "--no-wait", "--server", l.scheduler.Address); r.Code != 0 {
				t.Fatalf("drain: exit code %d, %s", r.Code, r.Stderr)
			}
			l.scheduler.AwaitLog(t, mark, `"msg":"task launched"`, `"stage":1`)
			frozen.Signal(t, syscall.SIGSTOP)
			r := <-done
			if r.Code != 0 {
				t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
			}
			if w := written(t, r); w.Commit != "committed" || w.Rows != rows {
				t.Fatalf("%+v", w)
			}
			frozen.Signal(t, syscall.SIGCONT)
			if all, distinct := l.rows("lake.air.t"); all != rows || distinct != rows {
				t.Fatalf("%d rows, %d different ones", all, distinct)
			}
			left := []string{""}
			for deadline := time.Now().Add(30 * time.Second); len(left) > 0; <-time.After(10 * time.Millisecond) {
				if left, _ = filepath.Glob(filepath.Join(l.dir, "executor-*", "shuffle", "*", "*")); time.Now().After(deadline) {
					t.Fatalf("still on executors' disks: %v", left)
				}
			}
			if text := l.scheduler.Log(); strings.Contains(text, `"msg":"executor lost"`) {
				t.Error("the executor was lost: the test shows nothing")
			} else if !strings.Contains(text, `"msg":"executor can't be read from"`) {
				t.Log("everything had been read before it was stopped")
			}
		})
	}
}
