package graph_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/graph"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// tester is what a job needs of a test; a property's has no more.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// job is a graph with an event loop that does what it's told, one test step at
// a time.
type job struct {
	t       tester
	g       *graph.Graph
	spec    graph.Spec
	now     time.Time
	next    int
	queue   []graph.RunTask
	running map[graph.TaskID]graph.TaskLaunched
	acts    []graph.Action // of the last event
	all     []graph.Action
}

func newJob(t tester, spec graph.Spec) *job {
	if spec.JobID == "" {
		spec.JobID = "j"
	}
	j := &job{t: t, spec: spec, now: t0, running: map[graph.TaskID]graph.TaskLaunched{}}
	j.g = graph.New(spec, t0)
	return j
}

// insert is a job of a query stage of two tasks and a write stage of three,
// with a root.
func insert(tb testing.TB) *job {
	tb.Helper()
	j := newJob(tb, graph.Spec{HasRoot: true, Stages: []graph.StageSpec{
		{ID: 1, Tasks: 2, Outputs: 3, Deterministic: true},
		{ID: 2, Tasks: 3, Outputs: 1, Inputs: []int{1}, Deterministic: true, Manifests: true},
	}})
	j.apply(graph.Start{})
	return j
}

func query(tb testing.TB) *job {
	tb.Helper()
	j := newJob(tb, graph.Spec{Stages: []graph.StageSpec{
		{ID: 1, Tasks: 2, Outputs: 2, Deterministic: true},
		{ID: 2, Tasks: 2, Outputs: 1, Inputs: []int{1}, Deterministic: true},
	}})
	j.apply(graph.Start{})
	return j
}

func (j *job) apply(ev graph.Event) []graph.Action {
	j.now = j.now.Add(time.Second)
	j.acts = j.g.Apply(ev, j.now)
	j.all = append(j.all, j.acts...)
	for _, a := range j.acts {
		switch a := a.(type) {
		case graph.RunTask:
			j.queue = append(j.queue, a)
		case graph.CancelTask:
			j.queue = slices.DeleteFunc(j.queue, func(r graph.RunTask) bool { return a.Attempt == "" && r.Task == a.Task })
			if l, ok := j.running[a.Task]; ok && l.Attempt == a.Attempt {
				delete(j.running, a.Task)
			}
		}
	}
	return j.acts
}

func (j *job) launch(id graph.TaskID, executor string) graph.TaskLaunched {
	j.t.Helper()
	i := slices.IndexFunc(j.queue, func(r graph.RunTask) bool { return r.Task == id })
	if i < 0 {
		j.t.Fatalf("task %v isn't queued; queue: %v", id, tasksOf(j.queue))
	}
	run := j.queue[i]
	j.queue = slices.Delete(j.queue, i, i+1)
	j.next++
	l := graph.TaskLaunched{Task: id, StageAttempt: run.StageAttempt, Attempt: fmt.Sprintf("a%d", j.next), Executor: executor}
	j.apply(l)
	j.running[id] = l
	return l
}

func tasksOf(runs []graph.RunTask) (ids []graph.TaskID) {
	for _, r := range runs {
		ids = append(ids, r.Task)
	}
	return ids
}

// success is the report of an attempt, 10 rows for each output.
func (j *job) success(l graph.TaskLaunched) graph.TaskSucceeded {
	i := slices.IndexFunc(j.spec.Stages, func(s graph.StageSpec) bool { return s.ID == l.Task.Stage })
	s := j.spec.Stages[i]
	ev := graph.TaskSucceeded{Task: l.Task, StageAttempt: l.StageAttempt, Attempt: l.Attempt, Executor: l.Executor, Rows: int64(10 * s.Outputs), Bytes: 100}
	for p := range s.Outputs {
		rows := int64(10)
		if s.Manifests {
			rows = 1
		}
		ev.Outputs = append(ev.Outputs, graph.Output{Partition: p, Rows: rows, Bytes: 100})
	}
	if s.Manifests {
		ev.Files = s.Outputs
	}
	return ev
}

func (j *job) succeed(id graph.TaskID, executor string) graph.TaskLaunched {
	j.t.Helper()
	l := j.launch(id, executor)
	j.apply(j.success(l))
	delete(j.running, id)
	return l
}

func (j *job) fail(l graph.TaskLaunched, class graph.FailureClass, err error, lost *graph.LostInput) {
	j.apply(graph.TaskFailed{Task: l.Task, StageAttempt: l.StageAttempt, Attempt: l.Attempt, Executor: l.Executor, Class: class, Err: err, Lost: lost})
	delete(j.running, l.Task)
}

// finishTasks runs everything that is queued, task n on executor e<n>, until
// nothing is.
func (j *job) finishTasks() {
	j.t.Helper()
	for len(j.queue) > 0 {
		id := j.queue[0].Task
		j.succeed(id, fmt.Sprintf("e%d", id.Task))
	}
}

func count[A graph.Action](acts []graph.Action) int {
	n := 0
	for _, a := range acts {
		if _, ok := a.(A); ok {
			n++
		}
	}
	return n
}

func get[A graph.Action](tb testing.TB, acts []graph.Action) A {
	tb.Helper()
	var zero A
	for _, a := range acts {
		if a, ok := a.(A); ok {
			return a
		}
	}
	tb.Fatalf("no %T in %v", zero, acts)
	return zero
}

func (j *job) wantQueued(ids ...graph.TaskID) {
	j.t.Helper()
	if got := tasksOf(j.queue); !slices.Equal(got, ids) {
		j.t.Errorf("queued %v, want %v", got, ids)
	}
}

func (j *job) wantState(s graph.State, c commit.CommitState) {
	j.t.Helper()
	if j.g.State() != s || j.g.Commit() != c {
		j.t.Errorf("state %s, commit %s (%v); want %s, %s", j.g.State(), j.g.Commit(), j.g.Err(), s, c)
	}
}

// committing brings an insert to where its root reads.
func committing(tb testing.TB) *job {
	tb.Helper()
	j := insert(tb)
	j.finishTasks()
	get[graph.StartRoot](tb, j.apply(graph.RootStarted{Epoch: 1}))
	return j
}

func id(stage, task int) graph.TaskID { return graph.TaskID{Stage: stage, Task: task} }

func TestStagesRunInOrder(t *testing.T) {
	j := insert(t)
	j.wantQueued(id(1, 0), id(1, 1))
	if v := j.g.Stages(); v[0].State != graph.StageResolved || v[1].State != graph.StageUnresolved {
		t.Errorf("stages %+v", v)
	}
	j.succeed(id(1, 1), "e1")
	j.wantQueued(id(1, 0))
	j.succeed(id(1, 0), "e0")
	j.wantQueued(id(2, 0), id(2, 1), id(2, 2))
	for n, r := range j.queue {
		if len(r.Inputs) != 2 || r.Inputs[0].Task != id(1, 0) || r.Inputs[1].Task != id(1, 1) ||
			r.Inputs[0].Output.Partition != n || r.Inputs[1].Output.Partition != n {
			t.Errorf("task %d reads %+v, want partition %d of both tasks in order", n, r.Inputs, n)
		}
	}
	if v := j.g.Stages(); v[0].State != graph.StageSucceeded || v[0].Rows != 60 || v[0].Done != 2 || v[1].State != graph.StageResolved {
		t.Errorf("stages %+v", v)
	}
}

func TestReadsAllGetsEveryOutput(t *testing.T) {
	j := newJob(t, graph.Spec{Stages: []graph.StageSpec{
		{ID: 1, Tasks: 2, Outputs: 2, Deterministic: true},
		{ID: 2, Tasks: 1, Outputs: 1, Inputs: []int{1}, ReadsAll: true, Deterministic: true},
	}})
	j.apply(graph.Start{})
	j.succeed(id(1, 0), "e")
	j.succeed(id(1, 1), "e")
	if in := j.queue[0].Inputs; len(in) != 4 {
		t.Errorf("reads %+v, want four outputs", in)
	}
}

func TestAStageWithoutTasksIsDone(t *testing.T) {
	j := newJob(t, graph.Spec{HasRoot: true, Stages: []graph.StageSpec{
		{ID: 1, Tasks: 0, Outputs: 1}, {ID: 2, Tasks: 0, Outputs: 1, Inputs: []int{1}, Manifests: true},
	}})
	if r := get[graph.RunSchedulerRoot](t, j.apply(graph.Start{})); len(r.Inputs) != 0 {
		t.Errorf("inputs %v", r.Inputs)
	}
}

func TestBadSpecsFailTheJob(t *testing.T) {
	for name, stages := range map[string][]graph.StageSpec{
		"none":            nil,
		"twice":           {{ID: 1, Tasks: 1}, {ID: 1, Tasks: 1}},
		"forward":         {{ID: 1, Tasks: 1, Inputs: []int{2}}, {ID: 2, Tasks: 1}},
		"negative tasks":  {{ID: 1, Tasks: -1}},
		"negative output": {{ID: 1, Tasks: 1, Outputs: -1}},
	} {
		j := newJob(t, graph.Spec{Stages: stages})
		j.apply(graph.Start{})
		if j.g.State() != graph.JobFailed || commit.CodeOf(j.g.Err()) != commit.CodeBadStages {
			t.Errorf("%s: %s %v", name, j.g.State(), j.g.Err())
		}
	}
}

func TestRoot09_TheGraphOwnsTheRoot(t *testing.T) {
	j := insert(t)
	if v, ok := j.g.Root(); !ok || v.Epoch != 0 || v.State != graph.StageUnresolved {
		t.Errorf("root %+v before the stages are done", v)
	}
	j.finishTasks()
	if v, _ := j.g.Root(); v.Epoch != 1 || v.State != graph.StageResolved {
		t.Errorf("root %+v", v)
	}
	// It's handed out once: a second asker is turned away.
	get[graph.StartRoot](t, j.apply(graph.RootStarted{Epoch: 1}))
	get[graph.SkipRoot](t, j.apply(graph.RootStarted{Epoch: 1}))
	if _, ok := query(t).g.Root(); ok {
		t.Error("a query has a root")
	}
}

func TestRoot10_RunSchedulerRootEmittedOnce(t *testing.T) {
	j := insert(t)
	j.succeed(id(1, 0), "e0")
	j.succeed(id(1, 1), "e1")
	a, b := j.launch(id(2, 0), "e0"), j.launch(id(2, 1), "e1")
	c := j.launch(id(2, 2), "e2")
	for _, l := range []graph.TaskLaunched{a, b, c, c, b} {
		j.apply(j.success(l))
	}
	run := get[graph.RunSchedulerRoot](t, j.all)
	j.apply(j.success(a))
	j.apply(graph.RootStarted{Epoch: 1})
	j.apply(j.success(c))
	j.apply(graph.TaskFailed{Task: c.Task, StageAttempt: 1, Attempt: c.Attempt, Executor: c.Executor, Class: graph.Retryable})
	j.apply(graph.RootInFlight{Epoch: 1})
	j.apply(j.success(b))
	if n := count[graph.RunSchedulerRoot](j.all); n != 1 {
		t.Errorf("emitted %d times", n)
	}
	if len(run.Inputs) != 3 || run.Epoch != 1 {
		t.Errorf("%+v", run)
	}
	for n, in := range run.Inputs {
		if in.Task != id(2, n) {
			t.Errorf("input %d is of %v, want plan order", n, in.Task)
		}
	}
	if count[graph.JobEnded](j.all) != 0 {
		t.Error("the job ended before its root")
	}
}

func TestRoot11_RunningUntilTheRootHasFinished(t *testing.T) {
	j := insert(t)
	last := -1
	see := func() {
		if p := j.g.Progress(); p < last || p >= 100 {
			t.Errorf("progress %d after %d", p, last)
		} else {
			last = p
		}
	}
	see()
	if j.g.Phase() != graph.PhaseExecuting {
		t.Errorf("phase %s", j.g.Phase())
	}
	j.finishTasks()
	for _, ev := range []graph.Event{graph.RootStarted{Epoch: 1}, graph.RootInFlight{Epoch: 1}} {
		see()
		if j.g.State() != graph.Running || j.g.Phase() != graph.PhaseCommitting {
			t.Errorf("%s %s", j.g.State(), j.g.Phase())
		}
		j.apply(ev)
	}
	see()
	j.wantState(graph.Running, commit.CommitInFlight)
	j.apply(graph.RootFinished{Epoch: 1, Result: []byte("r"), Commit: commit.CommitCommitted})
	j.wantState(graph.Succeeded, commit.CommitCommitted)
	if j.g.Progress() != 100 || j.g.Phase() != "" {
		t.Errorf("progress %d, phase %q", j.g.Progress(), j.g.Phase())
	}
}

func TestRoot14_NotStartedWhenTheJobIsNotRunning(t *testing.T) {
	for name, ev := range map[string]graph.Event{
		"cancelled": graph.CancelRequested{}, "failed": graph.Failed{Err: errors.New("x")},
	} {
		j := insert(t)
		j.finishTasks()
		j.apply(ev)
		j.apply(graph.RootStarted{Epoch: 1})
		get[graph.SkipRoot](t, j.acts)
		if count[graph.StartRoot](j.all) != 0 {
			t.Errorf("%s: the root was started", name)
		}
		if n := count[graph.FreeJobData](j.all); n != 1 {
			t.Errorf("%s: data freed %d times", name, n)
		}
	}
}

func TestRoot15_ResultIsStoredBeforeTheJobEnds(t *testing.T) {
	j := committing(t)
	j.apply(graph.RootInFlight{Epoch: 1})
	acts := j.apply(graph.RootFinished{Epoch: 1, Result: []byte("ipc"), Commit: commit.CommitCommitted})
	if count[graph.JobEnded](acts) != 1 || string(j.g.Result()) != "ipc" || j.g.Err() != nil {
		t.Errorf("%v, result %q, %v", acts, j.g.Result(), j.g.Err())
	}
	if v, _ := j.g.Root(); v.State != graph.StageSucceeded || v.Ended.IsZero() || !v.Started.Before(v.Ended) {
		t.Errorf("root %+v", v)
	}
}

func TestRoot16_CancelledWhileTheRootRuns(t *testing.T) {
	for _, landed := range []commit.CommitState{commit.CommitCommitted, commit.CommitNone, ""} {
		j := committing(t)
		acts := j.apply(graph.CancelRequested{})
		if get[graph.CancelAnswer](t, acts).Answer != graph.AnswerCancelled || get[graph.StopRoot](t, acts).Epoch != 1 {
			t.Errorf("%v", acts)
		}
		j.wantState(graph.Cancelled, commit.CommitNone)
		get[graph.StopRoot](t, j.apply(graph.RootInFlight{Epoch: 1}))
		// Found by its token before it sent anything, the unit can be there.
		j.apply(graph.RootFinished{Epoch: 1, Result: []byte("late"), Commit: landed})
		want := landed
		if want == "" {
			want = commit.CommitNone
		}
		j.wantState(graph.Cancelled, want)
		if j.g.Result() != nil || count[graph.JobEnded](j.all) != 1 {
			t.Errorf("result %q of a cancelled job, %d ends", j.g.Result(), count[graph.JobEnded](j.all))
		}
	}
}

func TestW2_PointOfNoReturn(t *testing.T) {
	j := committing(t)
	get[graph.ProceedRoot](t, j.apply(graph.RootInFlight{Epoch: 1}))
	acts := j.apply(graph.CancelRequested{})
	if get[graph.CancelAnswer](t, acts).Answer != graph.AnswerCommitInFlight || len(acts) != 1 {
		t.Errorf("%v", acts)
	}
	j.apply(graph.Failed{Err: errors.New("dispatch broke")})
	j.wantState(graph.Running, commit.CommitInFlight)
	j.apply(graph.RootFinished{Epoch: 1, Commit: commit.CommitCommitted})
	j.wantState(graph.Succeeded, commit.CommitCommitted)

	j = committing(t)
	j.apply(graph.CancelRequested{})
	get[graph.StopRoot](t, j.apply(graph.RootInFlight{Epoch: 1}))
}

func TestRoot17_RootFailure(t *testing.T) {
	j := committing(t)
	j.apply(graph.RootFinished{Epoch: 1, Commit: commit.CommitNone, Err: errors.New("no such thing")})
	j.wantState(graph.JobFailed, commit.CommitNone)
	if msg := j.g.Err().Error(); !strings.HasPrefix(msg, "Error running the job's scheduler root: no such thing") {
		t.Errorf("%q", msg)
	}
	if commit.CodeOf(j.g.Err()) != commit.CodeRootFailed {
		t.Errorf("code %s", commit.CodeOf(j.g.Err()))
	}

	j = committing(t)
	cause := &commit.Error{Code: commit.CodeConflict, Op: "commit to", Object: "t", Reason: commit.ReasonConflict, Cause: errors.New("c"), Hint: "do this"}
	j.apply(graph.RootFinished{Epoch: 1, Commit: commit.CommitRefused, Err: cause})
	j.wantState(graph.JobFailed, commit.CommitRefused)
	err := j.g.Err()
	if msg := err.Error(); msg != "Error running the job's scheduler root: commit to t: c [FIRN-2003]" {
		t.Errorf("%q", msg)
	}
	var e *commit.Error
	if !errors.As(err, &e) || e.Hint != "do this" || commit.KindOf(err) != commit.KindConflict || commit.ReasonOf(err) != commit.ReasonConflict || !errors.Is(err, cause) {
		t.Errorf("the cause is lost in %#v", err)
	}
}

func TestRoot18_TheRootIsRunOnce(t *testing.T) {
	j := committing(t)
	j.apply(graph.RootFinished{Epoch: 1, Commit: commit.CommitNone, Err: errors.New("x")})
	for _, ev := range []graph.Event{
		graph.RootStarted{Epoch: 1},
		graph.RootStarted{Epoch: 2},
		graph.RootFinished{Epoch: 1},
		graph.ExecutorLost{Executor: "e0"},
		graph.RootLostInput{Epoch: 1, Lost: []graph.LostInput{{Task: id(2, 0), Attempt: "a3"}}},
		graph.Start{},
	} {
		j.apply(ev)
	}
	if n := count[graph.RunSchedulerRoot](j.all); n != 1 {
		t.Errorf("run %d times", n)
	}
	j.wantState(graph.JobFailed, commit.CommitNone)
}
