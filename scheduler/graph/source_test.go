package graph_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/graph"
)

// reading is a job whose first stage reads what a query gave that somebody else ran.
func reading(tb tester, tasks int) *job {
	tb.Helper()
	j := newJob(tb, graph.Spec{HasRoot: true, MaxTaskFailures: 100, MaxStageAttempts: 3, Stages: []graph.StageSpec{
		{ID: 0, Tasks: tasks, Outputs: 2, Once: true},
		{ID: 1, Tasks: 2, Outputs: 1, Inputs: []int{0}, Deterministic: true, Manifests: true},
	}})
	j.apply(graph.Start{})
	return j
}

func lostSource(l graph.TaskLaunched) graph.TaskFailed {
	return graph.TaskFailed{
		Task: l.Task, StageAttempt: l.StageAttempt, Attempt: l.Attempt, Executor: l.Executor, Class: graph.Retryable, SourceLost: true,
		Err: &commit.Error{Code: commit.CodeFlightLost, Op: "read", Cause: errors.New("the ticket is gone")},
	}
}

// TestALostSourceIsGivenUpWhole: what was made of an execution goes as soon as a part
// of it can't be read, and nothing runs before the next one is there.
func TestALostSourceIsGivenUpWhole(t *testing.T) {
	j := reading(t, 4)
	var ls []graph.TaskLaunched
	for n := range 4 {
		ls = append(ls, j.launch(graph.TaskID{Stage: 0, Task: n}, fmt.Sprint("e", n)))
	}
	j.apply(j.success(ls[0]))
	j.apply(j.success(ls[1]))
	acts := j.apply(lostSource(ls[2]))
	want := []graph.Action{
		graph.DropOutput{Attempt: ls[0].Attempt},
		graph.DropOutput{Attempt: ls[1].Attempt},
		graph.CancelTask{Task: ls[2].Task, Attempt: ls[2].Attempt, Executor: "e2"},
		graph.CancelTask{Task: ls[3].Task, Attempt: ls[3].Attempt, Executor: "e3"},
		graph.RunSource{Stage: 0},
	}
	if !slices.EqualFunc(acts, want, func(a, b graph.Action) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		t.Fatalf("got %v, want %v", acts, want)
	}
	for _, ev := range []graph.Event{j.success(ls[3]), lostSource(ls[3]), lostSource(ls[0]), graph.ExecutorLost{Executor: "e1"}, graph.SourceReady{Stage: 1}, graph.SourceReady{Stage: 9}} {
		if acts := j.apply(ev); len(acts) > 0 {
			t.Errorf("%T while the query runs again: %v", ev, acts)
		}
	}
	j.apply(graph.SourceReady{Stage: 0})
	if ids := tasksOf(j.queue); len(ids) != 4 || j.queue[0].StageAttempt != 2 {
		t.Fatalf("queued %v", j.queue)
	}
	if acts := j.apply(graph.SourceReady{Stage: 0}); len(acts) > 0 {
		t.Errorf("told twice: %v", acts)
	}
	if _, ok := j.g.Twin(graph.TaskID{Stage: 0, Task: 0}); ok {
		t.Error("a ticket may be read once, and the task has a twin")
	}
}

// TestALostSourceIsRunAFewTimes and then fails the job, with the cause.
func TestALostSourceIsRunAFewTimes(t *testing.T) {
	j := reading(t, 1)
	for range 3 {
		j.apply(lostSource(j.launch(graph.TaskID{Stage: 0}, "e")))
		j.apply(graph.SourceReady{Stage: 0})
	}
	l := j.launch(graph.TaskID{Stage: 0}, "e")
	ev := lostSource(l)
	ev.Class = graph.NotRetryable // whatever the executor thinks of it
	j.apply(ev)
	err := j.g.Err()
	if j.g.State() != graph.JobFailed || commit.CodeOf(err) != commit.CodeFlightLost || !strings.Contains(err.Error(), "the ticket is gone") {
		t.Errorf("got %s, %v", j.g.State(), err)
	}
}

// TestNoSourceToLose: a stage that reads none fails as any other.
func TestNoSourceToLose(t *testing.T) {
	j := insert(t)
	ev := lostSource(j.launch(graph.TaskID{Stage: 1}, "e"))
	ev.Class = graph.NotRetryable
	if acts := j.apply(ev); slices.ContainsFunc(acts, func(a graph.Action) bool { _, ok := a.(graph.RunSource); return ok }) || j.g.State() != graph.JobFailed {
		t.Errorf("got %v, %s", acts, j.g.State())
	}
}

// TestACancelledJobRunsNoSource: what comes of the query then changes nothing.
func TestACancelledJobRunsNoSource(t *testing.T) {
	j := reading(t, 2)
	j.apply(lostSource(j.launch(graph.TaskID{Stage: 0}, "e")))
	j.apply(graph.CancelRequested{})
	if acts := j.apply(graph.SourceReady{Stage: 0}); len(acts) > 0 || j.g.State() != graph.Cancelled {
		t.Errorf("got %v, %s", acts, j.g.State())
	}
}

// TestShownRowsOfALostSource: a pipelined job that has shown rows of an execution
// fails instead of showing those of another.
func TestShownRowsOfALostSource(t *testing.T) {
	j := newJob(t, graph.Spec{Pipelined: true, Stages: []graph.StageSpec{{ID: 0, Tasks: 2, Outputs: 1, Once: true}}})
	j.apply(graph.Start{})
	a, b := j.launch(graph.TaskID{Stage: 0, Task: 0}, "e"), j.launch(graph.TaskID{Stage: 0, Task: 1}, "e")
	j.apply(j.success(a))
	if n, shown := j.g.Readable(0); n != 1 || len(shown) != 1 {
		t.Fatalf("shown: %v", shown)
	}
	j.apply(lostSource(b))
	if j.g.State() != graph.JobFailed || commit.CodeOf(j.g.Err()) != commit.CodeResultLost {
		t.Errorf("got %s, %v", j.g.State(), j.g.Err())
	}
}

// TestExecutionsAreNeverMixed: random failures, lost executors and lost sources. What
// the root reads in the end was made of rows of one execution.
func TestExecutionsAreNeverMixed(t *testing.T) {
	again := 0
	for seed := range uint64(3000) {
		again += mix(t, seed)
	}
	if again < 1000 {
		t.Errorf("only %d queries ran again", again)
	}
}

// mix runs one history and gives how often the query ran again.
func mix(t *testing.T, seed uint64) (again int) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 7))
	j := reading(t, 1+rnd.IntN(4))
	execution := 1
	pending := false // the query runs again
	made := map[string]map[int]bool{}
	var root *graph.RunSchedulerRoot
	see := func(acts []graph.Action) {
		for _, a := range acts {
			switch a := a.(type) {
			case graph.RunSource:
				pending = true
			case graph.RunSchedulerRoot:
				root = &a
			case graph.StopRoot:
				root = nil
			}
		}
	}
	var stale []graph.TaskLaunched
	for range 300 {
		if st := j.g.State(); st != graph.Running {
			return again
		}
		switch k := rnd.IntN(12); {
		case pending && k < 3:
			pending, execution, again = false, execution+1, again+1
			see(j.apply(graph.SourceReady{Stage: 0}))
		case root != nil && k == 3:
			var all []int
			for _, in := range root.Inputs {
				for x := range made[in.Attempt] {
					if !slices.Contains(all, x) {
						all = append(all, x)
					}
				}
			}
			if len(all) != 1 {
				t.Fatalf("seed %d: the root reads rows of the executions %v", seed, all)
			}
			return again
		case k == 4:
			see(j.apply(graph.ExecutorLost{Executor: fmt.Sprint("e", rnd.IntN(3))}))
		case k == 5 && len(stale) > 0:
			see(j.apply(j.success(stale[rnd.IntN(len(stale))])))
		case k < 9 && len(j.queue) > 0:
			run := j.queue[rnd.IntN(len(j.queue))]
			l := j.launch(run.Task, fmt.Sprint("e", rnd.IntN(3)))
			see(j.acts)
			stale = append(stale, l)
			made[l.Attempt] = map[int]bool{}
			if run.Task.Stage == 0 {
				made[l.Attempt][execution] = true
			}
			for _, in := range run.Inputs {
				for x := range made[in.Attempt] {
					made[l.Attempt][x] = true
				}
			}
		case len(j.running) > 0:
			ids := make([]graph.TaskID, 0, len(j.running))
			for id := range j.running {
				ids = append(ids, id)
			}
			slices.SortFunc(ids, func(a, b graph.TaskID) int { return (a.Stage-b.Stage)*100 + a.Task - b.Task })
			l := j.running[ids[rnd.IntN(len(ids))]]
			delete(j.running, l.Task)
			switch f := rnd.IntN(8); {
			case f == 0 && l.Task.Stage == 0:
				see(j.apply(lostSource(l)))
			case f == 1:
				see(j.apply(graph.TaskFailed{Task: l.Task, StageAttempt: l.StageAttempt, Attempt: l.Attempt, Executor: l.Executor, Class: graph.Retryable}))
			default:
				see(j.apply(j.success(l)))
			}
		}
	}
	return again
}
