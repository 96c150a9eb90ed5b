//go:build integration

package integration_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/firn-project/firn/integration/process"
)

// landed is how many files there are, with a task for each.
const landed = 5

// race is a task that is run twice: a part that the first executor reads, and the second
// one too. Another part keeps the job from its end, on the second executor.
type race struct {
	*lakeside
	done          <-chan process.Result
	part, kept    int
	first, second string // attempts
}

// straggle starts a job on two executors, and gives it when the part that the first
// reads is read a second time. Nobody goes on with that part, or with the one that is
// kept; beforeTheSecond can change that.
func straggle(t *testing.T, s *landing, beforeTheSecond func(*race)) *race {
	t.Helper()
	l := onLanding(t, s, "speculation: {done: 0.5, slower: 1, at_least: 100ms}\n", 1, 4)
	l.Exec(nil, "CREATE TABLE lake.air.t (n bigint)")
	mark := l.scheduler.Mark()
	r := &race{lakeside: l, part: -1}
	r.done = l.launch("INSERT INTO lake.air.t SELECT n FROM read_parquet('s3://landing/part-*.parquet')", "k")
	for task := range landed {
		var launch struct{ Attempt, Executor string }
		line := l.scheduler.AwaitLog(t, mark, `"msg":"task launched"`, fmt.Sprintf(`"task":%d,`, task))
		if err := json.Unmarshal([]byte(line), &launch); err != nil {
			t.Fatal(err)
		}
		if launch.Executor == l.executors[0].Ready["id"] {
			r.part, r.first = task, launch.Attempt
		}
	}
	if r.part < 0 {
		t.Fatal("the first executor has no task")
	}
	r.kept = (r.part + 1) % landed
	s.await(t, r.part)
	beforeTheSecond(r)
	for other := range landed {
		if other != r.part && other != r.kept {
			s.open(other)
		}
	}
	var twice struct{ Attempt, Twin string }
	line := l.scheduler.AwaitLog(t, mark, `"msg":"task takes long and is run twice"`, fmt.Sprintf(`"task":%d,`, r.part))
	if err := json.Unmarshal([]byte(line), &twice); err != nil || twice.Attempt != r.first {
		t.Fatalf("%v: %s", err, line)
	}
	r.second = twice.Twin
	return r
}

// won checks the job's end: each row once, and no file but those of its commit.
func (l *race) won() {
	l.t.Helper()
	const rows = landed * perPart
	r := <-l.done
	if r.Code != 0 {
		l.t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
	}
	w := written(l.t, r)
	if w.Commit != "committed" || w.Rows != rows || w.Files != landed {
		l.t.Fatalf("%+v", w)
	}
	if all, distinct := l.rows("lake.air.t"); all != rows || distinct != rows {
		l.t.Errorf("%d rows, %d different ones; want %d", all, distinct, rows)
	}
	left := int64(-1)
	for deadline := time.Now().Add(20 * time.Second); left != w.Files; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatalf("the commit has %d files, there are %d", w.Files, left)
		}
		left = l.dataFiles()
	}
}

// stop has a process stand still until the test goes on with it, or ends.
func stop(t *testing.T, s *process.Server) {
	t.Helper()
	s.Signal(t, syscall.SIGSTOP)
	t.Cleanup(func() { s.Signal(t, syscall.SIGCONT) }) // or it can't be told to end
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(s.PID(), &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("it didn't stop: %v, %v", status, err)
	}
}

// TestFrozenStraggler: an executor stands still in the middle of a task. The task is run
// a second time on another one, whose files are committed. When the first goes on, while
// the job still runs, it is told to stop and leaves no file.
func TestFrozenStraggler(t *testing.T) {
	s := newLanding(t, landed)
	r := straggle(t, s, func(r *race) {
		stop(t, r.executors[0])
		s.pass(r.part)
	})
	r.executors[1].AwaitLog(t, 0, `"msg":"task ended"`, r.second, `"state":"succeeded"`)
	r.executors[0].Signal(t, syscall.SIGCONT)
	r.executors[0].AwaitLog(t, 0, `"msg":"task ended"`, r.first, `"state":"cancelled"`)
	s.open(r.kept)
	r.won()
	if text := r.scheduler.Log(); strings.Contains(text, `"msg":"executor lost"`) {
		t.Error("the executor was lost: the test shows nothing")
	}
}

// TestBothAttemptsSucceed: a straggler and its second attempt have both written their
// files when the scheduler hears of either. It takes those of one, and the others go.
func TestBothAttemptsSucceed(t *testing.T) {
	s := newLanding(t, landed)
	r := straggle(t, s, func(*race) {})
	s.await(t, r.part) // the second attempt reads, too
	stop(t, r.scheduler)
	s.open(r.part)
	r.executors[0].AwaitLog(t, 0, `"msg":"task ended"`, r.first, `"state":"succeeded"`)
	r.executors[1].AwaitLog(t, 0, `"msg":"task ended"`, r.second, `"state":"succeeded"`)
	if n := r.dataFiles(); n != landed {
		t.Errorf("%d files of %d tasks that have ended: the test shows nothing", n, landed-1)
	}
	s.open(r.kept)
	r.scheduler.Signal(t, syscall.SIGCONT)
	r.won()
}
