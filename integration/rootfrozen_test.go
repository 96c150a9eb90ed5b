//go:build integration

package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/internal/flightsql/flightsqltest"
)

// TestRootReadsAFrozenExecutor: an executor stands still between its last success and
// the root that reads it, while its heartbeats aren't waited for. The root gives up on it
// after a bounded time, what it holds is made again elsewhere, and there is one commit;
// when it goes on nothing changes, and none of its files stays.
func TestRootReadsAFrozenExecutor(t *testing.T) {
	const parts, each = 4, 20_000
	opened := make(chan struct{})
	s := &flightsqltest.Server{Endpoints: parts, Rows: each, Pace: func(ctx context.Context, r flightsqltest.Reading, batch int) {
		if r.Endpoint == 0 && r.Read == 1 && batch == 2 {
			select {
			case <-opened:
			case <-ctx.Done():
			}
		}
	}}
	l := onEngineWith(t, s, 2, "10m")
	l.Exec(nil, "DROP TABLE lake.air.t")
	l.Exec(nil, "CREATE TABLE lake.air.t (n bigint, execution bigint)")
	mark := l.scheduler.Mark()
	done := l.launch("INSERT INTO lake.air.t SELECT n, execution FROM flight_sql('engine', $$SELECT * FROM flights$$)", "k")
	// The task of the part that is held keeps the job's only stage from its end.
	frozen := l.executors[1-l.victim(l.scheduler.AwaitLog(t, mark, `"msg":"task launched"`, `"task":0,`))]
	l.awaitDone("k", parts-1)
	frozen.Signal(t, syscall.SIGSTOP)
	t.Cleanup(func() { frozen.Signal(t, syscall.SIGCONT) }) // or it can't be stopped when the test failed
	began := time.Now()
	close(opened)
	l.scheduler.AwaitLog(t, mark, `"msg":"root phase"`, `"phase":"reading"`)
	l.scheduler.AwaitLog(t, mark, `"msg":"executor can't be read from"`, fmt.Sprint(frozen.Ready["id"]))
	r := <-done
	took := time.Since(began)
	frozen.Signal(t, syscall.SIGCONT)
	if r.Code != 0 {
		t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
	}
	w := written(t, r)
	if w.Commit != "committed" || w.Rows != parts*each {
		t.Fatalf("%+v", w)
	}
	if took > 40*time.Second || strings.Contains(l.scheduler.Log(), `"msg":"executor lost"`) {
		t.Errorf("the job took %v after the executor was stopped, or its heartbeats were waited for", took)
	}
	l.once(parts*each, s.Executions())
	const rows = parts * each
	if f, want := l.files("n"), (tableFiles{Rows: rows, Distinct: rows, Sum: rows * (rows - 1) / 2, Files: w.Files, Recorded: rows, Snapshots: 1}); f != want {
		t.Errorf("PyIceberg reads %+v, want %+v", f, want)
	}
	left := int64(-1)
	for deadline := time.Now().Add(30 * time.Second); left != w.Files; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the commit has %d files, there are %d", w.Files, left)
		}
		left = l.dataFiles()
	}
	t.Logf("%v, %d execution(s)", took, s.Executions())
}

// awaitDone waits until the job of a key has so many tasks done.
func (l *lakeside) awaitDone(key string, tasks int) {
	l.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(20 * time.Millisecond) {
		var job struct {
			Stages []struct {
				Done int `json:"tasks_done"`
			}
		}
		r := process.Run(l.t.Context(), l.t, "job", "describe", "--key", key, "--server", l.scheduler.Address, "-o", "json")
		if json.Unmarshal([]byte(r.Stdout), &job) == nil && len(job.Stages) > 0 && job.Stages[0].Done == tasks {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("not %d tasks are done: %s%s", tasks, r.Stdout, r.Stderr)
		}
	}
}

// dataFiles counts what the warehouse has, whole or unfinished. A file may go while it
// looks.
func (l *lakeside) dataFiles() (n int64) {
	_ = filepath.WalkDir(filepath.Join(l.dir, "scheduler", "warehouse"), func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.Contains(path, ".parquet") {
			n++
		}
		return nil
	})
	return n
}
