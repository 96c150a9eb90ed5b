//go:build integration

package integration_test

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/firn-project/firn/integration/process"
)

// launched are the tasks of a job's first stage that an executor was given, as the
// scheduler's log after mark has them.
func (l *lakeside) launched(mark int, executor string) (tasks []int) {
	l.t.Helper()
	for line := range strings.Lines(l.scheduler.Log()[mark:]) {
		if !strings.Contains(line, `"msg":"task launched"`) || !strings.Contains(line, `"stage":0,`) || !strings.Contains(line, executor) {
			continue
		}
		var launch struct{ Task int }
		if err := json.Unmarshal([]byte(line), &launch); err != nil {
			l.t.Fatalf("%v: %s", err, line)
		}
		tasks = append(tasks, launch.Task)
	}
	return tasks
}

// TestRollingRestart: all executors are drained, stopped and started again, one after
// the other, in the middle of one job, which can't end before the last of them is back.
// What an executor runs when it is told to stop goes on to its end; the job ends well,
// with each row once.
func TestRollingRestart(t *testing.T) {
	// Half of the tasks still wait when all executors were stopped.
	const parts, rows = 12, 12 * perPart
	s := newLanding(t, parts)
	l := onLanding(t, s, "", 2, 2, 2)
	l.Exec(nil, "CREATE TABLE lake.air.t (n bigint, part bigint) PARTITIONED BY (part)")
	mark := l.scheduler.Mark()
	done := l.launch("INSERT INTO lake.air.t SELECT n, n % 7 FROM read_parquet('s3://landing/part-*.parquet')", "rolling")
	running := func(when string) {
		t.Helper()
		select {
		case r := <-done:
			t.Fatalf("the job has ended %s: exit code %d, %s%s", when, r.Code, r.Stdout, r.Stderr)
		default:
		}
	}
	held, opened := map[int]bool{}, map[int]bool{}
	for i, e := range l.executors {
		id := e.Ready["id"].(string)
		l.scheduler.AwaitLog(t, mark, `"msg":"task launched"`, `"stage":0,`, id)
		if r := process.Run(t.Context(), t, "executor", "drain", id, "--no-wait", "--server", l.scheduler.Address); r.Code != 0 {
			t.Fatalf("drain: exit code %d, %s", r.Code, r.Stderr)
		}
		tasks := l.launched(mark, id) // it gets no more of them
		for timeout := time.After(20 * time.Second); slices.ContainsFunc(tasks, func(task int) bool { return !held[task] }); {
			select {
			case now := <-s.arrived:
				held[now] = true
			case <-timeout:
				t.Fatalf("executor %d has the tasks %v, but %v read", i, tasks, held)
			}
		}
		stopping := e.Mark()
		e.Signal(t, syscall.SIGTERM)
		e.AwaitLog(t, stopping, `"msg":"stopping"`)
		running("before an executor was stopped")
		for _, task := range tasks {
			s.open(task)
			opened[task] = true
		}
		awaitEnd(t, e, 20*time.Second)
		if ended := strings.Count(e.Log()[stopping:], `"state":"succeeded"`); ended != len(tasks) {
			t.Errorf("executor %d: of the tasks %v that it ran %d have ended well", i, tasks, ended)
		}
		running("before an executor was started again")
		l.executors[i] = e.Again(t)
	}
	running("before all executors were started again")
	for task := range parts {
		if !opened[task] {
			s.open(task)
		}
	}
	if r := <-done; r.Code != 0 {
		t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
	} else if w := written(t, r); w.Commit != "committed" || w.Rows != rows {
		t.Fatalf("%+v", w)
	}
	if all, distinct := l.rows("lake.air.t"); all != rows || distinct != rows {
		t.Errorf("%d rows, %d different ones; want %d", all, distinct, rows)
	}
	out := process.Run(t.Context(), t, "executor", "list", "--server", l.scheduler.Address, "-o", "json")
	if n := strings.Count(out.Stdout, `"state":"ready"`); n != len(l.executors) {
		t.Fatalf("%d executors are ready: %s", n, out.Stdout)
	}
}
