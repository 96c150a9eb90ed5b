//go:build integration

package integration_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/firn-project/firn/integration/process"
)

// The scheduler is killed while a job runs and starts again on its directory: the
// client that waits gets the answer of the same job, what had been accepted isn't
// run again, and the rows are there once.
func TestJobOutlivesItsScheduler(t *testing.T) {
	for _, moment := range []struct {
		name  string
		words []string
	}{
		{"launched", []string{`"msg":"task launched"`, `"stage":0`}},
		{"second stage", []string{`"msg":"task launched"`, `"stage":1`}},
		{"reading", []string{`"msg":"root phase"`, `"phase":"reading"`}},
		{"sending", []string{`"msg":"sending commit request"`}},
	} {
		t.Run(moment.name, func(t *testing.T) {
			l := startProcesses(t, "push", 2)
			l.Exec(nil, "CREATE TABLE lake.air.t (n bigint, part bigint) PARTITIONED BY (part)")
			mark := l.scheduler.Mark()
			done := l.launch("INSERT INTO lake.air.t SELECT i, i % 7 FROM range(400000) r(i)", "k")
			l.scheduler.AwaitLog(t, mark, moment.words...)
			l.scheduler.Kill()
			l.scheduler = l.scheduler.Again(t)
			r := <-done
			if r.Code != 0 {
				t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
			}
			w := written(t, r)
			if w.Commit != "committed" || w.Rows != 400000 || w.IdempotencyKey != "k" {
				t.Fatalf("%+v", w)
			}
			if all, distinct := l.rows("lake.air.t"); all != 400000 || distinct != 400000 {
				t.Fatalf("%d rows, %d different ones", all, distinct)
			}
			var again process.Write
			l.Exec(&again, "INSERT INTO lake.air.t SELECT i, i % 7 FROM range(400000) r(i)", "--idempotency-key", "k")
			if !again.Deduplicated || again.JobID != w.JobID {
				t.Fatalf("the key ran again: %+v", again)
			}
		})
	}
}

// A scheduler is stopped while its commit is under way, another one takes its
// directory over (somebody removes the lock of the one that "hangs"), and then
// the old one goes on: it changes nothing any more.
func TestDeposedSchedulerChangesNothing(t *testing.T) {
	l := startProcesses(t, "push", 1)
	l.Exec(nil, "CREATE TABLE lake.air.t (n bigint)")
	mark := l.scheduler.Mark()
	insert := "INSERT INTO lake.air.t SELECT i FROM range(1000) r(i)"
	old := l.launch(insert, "k")
	l.scheduler.AwaitLog(t, mark, `"msg":"root phase"`, `"phase":"reading"`)
	suspend(t, l.scheduler, filepath.Join(l.dir, "scheduler", "scheduler", "journal.db"))
	locks := 0
	err := filepath.WalkDir(filepath.Join(l.dir, "scheduler"), func(path string, d os.DirEntry, err error) error {
		if err == nil && (strings.HasSuffix(path, ".lock") || filepath.Base(path) == "lock") {
			locks++
			return os.Remove(path)
		}
		return err
	})
	if err != nil || locks == 0 {
		t.Fatalf("%d locks, %v", locks, err)
	}
	now := process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(l.dir, "scheduler"), "--config", filepath.Join(l.dir, "scheduler.yaml"))
	process.Start(t, "executor", "--server", now.Address, "--dir", filepath.Join(l.dir, "executor-now"), "--slots", "2", "--memory", "512MB")
	c := &lakeside{Client: process.NewClient(t, "--server", now.Address), t: t, dir: l.dir, scheduler: now}
	if w := written(t, c.Try(insert, "--idempotency-key", "k")); w.Commit != "committed" || w.Rows != 1000 {
		t.Fatalf("%+v", w)
	}
	l.scheduler.Signal(t, syscall.SIGCONT)
	<-old // it may be told the truth or an error, but the table is as it was
	if r := l.Try("INSERT INTO lake.air.t SELECT 5000", "--idempotency-key", "late"); r.Code == 0 || !strings.Contains(r.Stderr, "FIRN-6024") {
		t.Errorf("the old scheduler took a statement: exit code %d, %s", r.Code, r.Stderr)
	}
	if all, distinct := c.rows("lake.air.t"); all != 1000 || distinct != 1000 {
		t.Fatalf("%d rows, %d different ones", all, distinct)
	}
}

// suspend stops a scheduler between two transactions of its journal: in the middle
// of one it would hold SQLite's lock for ever.
func suspend(t *testing.T, s *process.Server, journal string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+journal+"?_pragma=busy_timeout(500)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for t.Context().Err() == nil {
		s.Signal(t, syscall.SIGSTOP)
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(s.PID(), &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatalf("the scheduler didn't stop: %v, %v", status, err)
		}
		if _, err := db.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err == nil {
			if _, err := db.ExecContext(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
			return
		}
		s.Signal(t, syscall.SIGCONT)
	}
}

// Two schedulers with a journal each write to one table by mistake, also under
// the same keys: no row twice, and none lost.
func TestTwoSchedulersOnOneTable(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "scheduler.yaml")
	body := fmt.Sprintf("sources: {local: {allow: [/]}}\ncatalogs:\n  lake:\n    type: sql\n    uri: %q\n    warehouse: %q\n",
		"sqlite:///"+strings.TrimPrefix(filepath.Join(dir, "catalog.db"), "/"), "file://"+filepath.Join(dir, "warehouse"))
	if err := os.WriteFile(config, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	var both []*lakeside
	for i := range 2 {
		s := process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(dir, fmt.Sprint("scheduler-", i)), "--config", config)
		process.Start(t, "executor", "--server", s.Address, "--dir", filepath.Join(dir, fmt.Sprint("executor-", i)), "--slots", "2", "--memory", "512MB")
		both = append(both, &lakeside{Client: process.NewClient(t, "--server", s.Address), t: t, dir: dir, scheduler: s})
	}
	both[0].Exec(nil, "CREATE NAMESPACE lake.air")
	both[0].Exec(nil, "CREATE TABLE lake.air.t (n bigint)")
	const keys = 12
	var wg sync.WaitGroup
	for k := range keys {
		for _, l := range both {
			wg.Go(func() {
				r := l.Try(fmt.Sprintf("INSERT INTO lake.air.t SELECT i FROM range(%d, %d) r(i)", k*100, k*100+100), "--idempotency-key", fmt.Sprint("k-", k))
				if r.Code != 0 {
					t.Errorf("key %d: exit code %d: %s", k, r.Code, r.Stderr)
				}
			})
		}
	}
	wg.Wait()
	for _, l := range both {
		if all, distinct := l.rows("lake.air.t"); all != keys*100 || distinct != keys*100 {
			t.Fatalf("%d rows, %d different ones; want %d", all, distinct, keys*100)
		}
	}
}
