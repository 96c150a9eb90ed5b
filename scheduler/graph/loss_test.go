package graph_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/graph"
)

func TestW1_DuplicateLateAndStaleStatusesChangeNothing(t *testing.T) {
	j := insert(t)
	old := j.launch(id(1, 0), "e0")
	j.fail(old, graph.Retryable, errors.New("io"), nil)
	cur := j.launch(id(1, 0), "e1")
	unchanged := func(what string, ev graph.Event) {
		t.Helper()
		before, rev := j.g.Stages(), j.g.Revision()
		if acts := j.apply(ev); len(acts) != 0 || j.g.Revision() != rev || !slices.Equal(before, j.g.Stages()) {
			t.Errorf("%s: %v", what, acts)
		}
	}
	unchanged("late success of an earlier attempt", j.success(old))
	unchanged("repeated failure of an earlier attempt", graph.TaskFailed{Task: old.Task, StageAttempt: old.StageAttempt, Attempt: old.Attempt, Executor: "e0", Class: graph.NotRetryable})
	stale := j.success(cur)
	stale.StageAttempt++
	unchanged("another stage attempt", stale)
	forged := j.success(cur)
	forged.Executor = "e9"
	unchanged("another executor", forged)
	forged = j.success(cur)
	forged.Task = id(7, 7)
	unchanged("no such task", forged)
	forged.Task = id(1, -1)
	unchanged("no such task", forged)
	j.apply(j.success(cur))
	unchanged("the same success again", j.success(cur))
	unchanged("a failure after the success", graph.TaskFailed{Task: cur.Task, StageAttempt: cur.StageAttempt, Attempt: cur.Attempt, Executor: "e1", Class: graph.NotRetryable, Err: errors.New("x")})
	if v := j.g.Stages()[0]; v.Done != 1 || v.Rows != 30 {
		t.Errorf("%+v", v)
	}
}

func TestLaunchOfATaskThatIsNotQueued(t *testing.T) {
	j := insert(t)
	l := j.launch(id(1, 0), "e0")
	again := l
	again.Attempt, again.Executor = "other", "e1"
	if c := get[graph.CancelTask](t, j.apply(again)); c.Attempt != "other" || c.Executor != "e1" {
		t.Errorf("%+v", c)
	}
	j.apply(j.success(l))
	if j.g.Stages()[0].Done != 1 {
		t.Error("the first launch must count")
	}
}

func TestExecutorLostRerunsExactlyTheLostTasks(t *testing.T) {
	j := insert(t)
	j.succeed(id(1, 0), "e0")
	j.succeed(id(1, 1), "e1")
	j.succeed(id(2, 0), "e0") // reads both
	running := j.launch(id(2, 1), "e1")
	j.apply(graph.ExecutorLost{Executor: "e0"})
	// e0's inputs are needed by tasks 1 and 2; its final output is lost too.
	// Task 2 can't start yet, task 1 goes on with what it has read.
	j.wantQueued(id(1, 0))
	if v := j.g.Stages(); v[0].Attempt != 2 || v[1].Done != 0 {
		t.Errorf("%+v", v)
	}
	j.apply(j.success(running))
	j.succeed(id(1, 0), "e2")
	j.wantQueued(id(2, 0), id(2, 2))
	for _, r := range j.queue {
		if r.Inputs[0].Executor != "e2" || r.Inputs[1].Executor != "e1" {
			t.Errorf("inputs %+v", r.Inputs)
		}
	}
	j.finishTasks()
	get[graph.RunSchedulerRoot](t, j.all)
	j.wantNoDuplicates()
}

func (j *job) wantNoDuplicates() {
	j.t.Helper()
	seen := map[graph.TaskID]bool{}
	for _, a := range j.g.Accepted() {
		if seen[a.Task] {
			j.t.Errorf("task %v is listed twice", a.Task)
		}
		seen[a.Task] = true
	}
}

func TestLostOutputThatNobodyNeedsIsNotMadeAgain(t *testing.T) {
	j := insert(t)
	j.succeed(id(1, 0), "e0")
	j.succeed(id(1, 1), "e1")
	for n := range 3 {
		j.launch(id(2, n), "e2")
	}
	for n := range 2 {
		j.apply(j.success(j.running[id(2, n)]))
	}
	l := j.running[id(2, 2)]
	j.apply(j.success(l))
	j.apply(graph.ExecutorLost{Executor: "e0"})
	j.wantQueued()
	if n := count[graph.RunSchedulerRoot](j.all); n != 1 || j.g.Stages()[0].State != graph.StageSucceeded {
		t.Errorf("%d roots, %+v", n, j.g.Stages())
	}
	// Now a final output is lost: its input must be made again, nothing else.
	j.apply(graph.RootStarted{Epoch: 1})
	j.apply(graph.RootLostInput{Epoch: 1, Lost: []graph.LostInput{{Task: id(2, 2), Attempt: l.Attempt, Executor: "e2"}}})
	j.wantQueued(id(1, 0))
	j.succeed(id(1, 0), "e3")
	j.wantQueued(id(2, 2))
	j.succeed(id(2, 2), "e3")
	if r := get[graph.RunSchedulerRoot](t, j.acts); r.Epoch != 2 || len(r.Inputs) != 3 {
		t.Errorf("%+v", r)
	}
	j.wantNoDuplicates()
}

func TestQueuedTasksGoBackWhenTheirInputIsLost(t *testing.T) {
	j := insert(t)
	j.finishStage1()
	j.wantQueued(id(2, 0), id(2, 1), id(2, 2))
	before := j.queue[0].StageAttempt
	j.apply(graph.ExecutorLost{Executor: "e1"})
	j.wantQueued(id(1, 1))
	// A launch that crossed the cancel is stale.
	crossed := graph.TaskLaunched{Task: id(2, 0), StageAttempt: before, Attempt: "x", Executor: "e0"}
	get[graph.CancelTask](t, j.apply(crossed))
	j.succeed(id(1, 1), "e0")
	j.wantQueued(id(2, 0), id(2, 1), id(2, 2))
	get[graph.CancelTask](t, j.apply(crossed))
	if j.queue[0].StageAttempt == before {
		t.Error("the stage attempt must tell the two apart")
	}
}

func (j *job) finishStage1() {
	j.t.Helper()
	j.succeed(id(1, 0), "e0")
	j.succeed(id(1, 1), "e1")
}

func TestFetchFailureRerunsProducerAndConsumer(t *testing.T) {
	j := insert(t)
	producer := j.succeed(id(1, 0), "e0")
	j.succeed(id(1, 1), "e1")
	a, b := j.launch(id(2, 0), "e2"), j.launch(id(2, 1), "e2")
	lost := &graph.LostInput{Task: producer.Task, Attempt: producer.Attempt, Executor: "e0"}
	j.fail(a, graph.Retryable, errors.New("connection refused"), lost)
	j.wantQueued(id(1, 0))
	j.fail(b, graph.Retryable, errors.New("connection refused"), lost) // the same loss again
	j.wantQueued(id(1, 0))
	if v := j.g.Stages(); v[0].Attempt != 2 {
		t.Errorf("one loss, stage attempt %d", v[0].Attempt)
	}
	j.succeed(id(1, 0), "e3")
	j.wantQueued(id(2, 0), id(2, 1), id(2, 2))
	j.finishTasks()
	get[graph.RunSchedulerRoot](t, j.all)
}

func TestFetchFailureOfSomethingItDoesNotRead(t *testing.T) {
	j := insert(t)
	a := j.succeed(id(1, 0), "e0")
	b := j.launch(id(1, 1), "e1")
	j.fail(b, graph.Retryable, errors.New("x"), &graph.LostInput{Task: a.Task, Attempt: a.Attempt})
	j.wantQueued(id(1, 1)) // an executor can't make a stranger's task run again
}

func TestNonDeterministicStageRerunsWhole(t *testing.T) {
	j := newJob(t, graph.Spec{HasRoot: true, Stages: []graph.StageSpec{
		{ID: 1, Tasks: 2, Outputs: 2, Deterministic: true},
		{ID: 2, Tasks: 2, Outputs: 2, Inputs: []int{1}},
		{ID: 3, Tasks: 2, Outputs: 1, Inputs: []int{2}, Deterministic: true, Manifests: true},
	}})
	j.apply(graph.Start{})
	j.finishStage1()
	j.succeed(id(2, 0), "e2")
	j.succeed(id(2, 1), "e3")
	done := j.succeed(id(3, 0), "e4")
	running := j.launch(id(3, 1), "e5")
	acts := j.apply(graph.ExecutorLost{Executor: "e2"})
	if c := get[graph.CancelTask](t, acts); c.Attempt != running.Attempt {
		t.Errorf("the consumer that read rows of the first run goes on: %+v", c)
	}
	j.wantQueued(id(2, 0), id(2, 1))
	if v := j.g.Stages(); v[2].Done != 0 || v[1].Done != 0 || v[0].Done != 2 {
		t.Errorf("%+v", v)
	}
	j.apply(j.success(running))
	j.finishTasks()
	run := get[graph.RunSchedulerRoot](t, j.all)
	for _, in := range run.Inputs {
		if in.Attempt == done.Attempt || in.Attempt == running.Attempt {
			t.Errorf("output of the first run is in the commit: %+v", in)
		}
	}
}

func TestLimits(t *testing.T) {
	j := insert(t)
	for n := range graph.DefaultMaxTaskFailures {
		if j.g.State() != graph.Running {
			t.Fatalf("failed after %d", n)
		}
		j.fail(j.launch(id(1, 0), "e0"), graph.Retryable, &commit.Error{Op: "read", Object: "s3://b/k", Cause: errors.New([]string{"a", "b", "c", "last"}[n]), Hint: "h"}, nil)
	}
	j.wantState(graph.JobFailed, commit.CommitNone)
	if err := j.g.Err(); commit.CodeOf(err) != commit.CodeTaskLimit || !strings.Contains(err.Error(), "last") || !strings.Contains(err.Error(), "task 0 of stage 1") {
		t.Errorf("%v", err)
	}

	j = insert(t)
	for n := range graph.DefaultMaxStageAttempts + 1 {
		p := j.succeed(id(1, 0), "e0")
		if n == 0 {
			j.succeed(id(1, 1), "e1")
		}
		j.fail(j.launch(id(2, 0), "e2"), graph.Retryable, errors.New("reset by peer"), &graph.LostInput{Task: p.Task, Attempt: p.Attempt})
	}
	j.wantState(graph.JobFailed, commit.CommitNone)
	if err := j.g.Err(); commit.CodeOf(err) != commit.CodeStageLimit || !strings.Contains(err.Error(), "reset by peer") {
		t.Errorf("%v", err)
	}

	j = insert(t)
	cause := &commit.Error{Code: commit.CodeVerification, Op: "cast", Object: "c", Cause: errors.New("bad"), Hint: "fix c"}
	j.fail(j.launch(id(1, 0), "e0"), graph.NotRetryable, cause, nil)
	j.wantState(graph.JobFailed, commit.CommitNone)
	if err := j.g.Err(); commit.CodeOf(err) != cause.Code || !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
}

func TestATaskThatKillsExecutorsIsLimited(t *testing.T) {
	j := insert(t)
	for range graph.DefaultMaxTaskFailures {
		j.launch(id(1, 0), "e0")
		j.apply(graph.ExecutorLost{Executor: "e0"})
	}
	if j.g.State() != graph.JobFailed || !strings.Contains(j.g.Err().Error(), "executor e0") {
		t.Errorf("%s %v", j.g.State(), j.g.Err())
	}
}

func TestReportsThatDoNotAddUp(t *testing.T) {
	for name, spoil := range map[string]func(*graph.TaskSucceeded){
		"partition twice":    func(s *graph.TaskSucceeded) { s.Outputs[1].Partition = 0 },
		"partition too high": func(s *graph.TaskSucceeded) { s.Outputs[1].Partition = 3 },
		"negative partition": func(s *graph.TaskSucceeded) { s.Outputs[1].Partition = -1 },
		"partition missing":  func(s *graph.TaskSucceeded) { s.Outputs, s.Rows = s.Outputs[:2], 20 },
		"no output":          func(s *graph.TaskSucceeded) { s.Outputs, s.Rows = nil, 0 },
		"rows differ":        func(s *graph.TaskSucceeded) { s.Rows++ },
		"negative rows":      func(s *graph.TaskSucceeded) { s.Outputs[0].Rows, s.Outputs[1].Rows = -10, 30 },
		"negative bytes":     func(s *graph.TaskSucceeded) { s.Bytes = -1 },
	} {
		j := insert(t)
		ev := j.success(j.launch(id(1, 0), "e0"))
		spoil(&ev)
		j.apply(ev)
		if j.g.Stages()[0].Done != 0 {
			t.Errorf("%s: accepted", name)
		}
		j.wantQueued(id(1, 1), id(1, 0))
	}
	j := insert(t)
	j.finishStage1()
	ev := j.success(j.launch(id(2, 0), "e0"))
	ev.Files = 2 // and one row in the manifest
	j.apply(ev)
	if j.g.Stages()[1].Done != 0 {
		t.Error("a manifest that lacks a file was accepted")
	}
}

func TestRejectLimit(t *testing.T) {
	limit := int64(5)
	for _, each := range []int64{2, 3} {
		j := newJob(t, graph.Spec{RejectLimit: &limit, Stages: []graph.StageSpec{{ID: 1, Tasks: 2, Outputs: 1, Deterministic: true}}})
		j.apply(graph.Start{})
		for n := range 2 {
			ev := j.success(j.launch(id(1, n), "e"))
			ev.Rejected, ev.Rejects = each, []string{"f.csv:7: not a number"}
			j.apply(ev)
		}
		if each == 2 {
			if rows, why := j.g.Rejected(); j.g.State() != graph.Succeeded || rows != 4 || len(why) != 2 {
				t.Errorf("%s, %d rejected %v", j.g.State(), rows, why)
			}
		} else if commit.CodeOf(j.g.Err()) != commit.CodeRejectLimit || !strings.Contains(j.g.Err().Error(), "f.csv:7") {
			t.Errorf("%v", j.g.Err())
		}
	}
}

func TestRoot26_LostInputIsRerunAndTheRootStartsAgain(t *testing.T) {
	t.Run("the root can't read", func(t *testing.T) {
		j := committing(t)
		a := j.g.Accepted()[1]
		j.apply(graph.RootLostInput{Epoch: 1, Lost: []graph.LostInput{{Task: a.Task, Attempt: a.Attempt, Executor: a.Executor}}})
		j.wantQueued(a.Task)
		j.succeed(a.Task, "e9")
		if r := get[graph.RunSchedulerRoot](t, j.acts); r.Epoch != 2 || len(r.Inputs) != 3 || r.Inputs[1].Executor != "e9" {
			t.Errorf("%+v", r)
		}
		// The old epoch has nothing to say any more.
		get[graph.StopRoot](t, j.apply(graph.RootInFlight{Epoch: 1}))
		get[graph.SkipRoot](t, j.apply(graph.RootStarted{Epoch: 1}))
		j.apply(graph.RootFinished{Epoch: 1, Result: []byte("old"), Commit: commit.CommitCommitted})
		j.wantState(graph.Running, commit.CommitPreparing)
		get[graph.StartRoot](t, j.apply(graph.RootStarted{Epoch: 2}))
		get[graph.ProceedRoot](t, j.apply(graph.RootInFlight{Epoch: 2}))
	})
	t.Run("an executor is lost while it reads", func(t *testing.T) {
		j := committing(t)
		if s := get[graph.StopRoot](t, j.apply(graph.ExecutorLost{Executor: "e1"})); s.Epoch != 1 {
			t.Errorf("%+v", s)
		}
		// Executor e1 held the input of the lost task too.
		j.wantQueued(id(1, 1))
		get[graph.StopRoot](t, j.apply(graph.RootInFlight{Epoch: 1}))
		j.finishTasks()
		if n := count[graph.RunSchedulerRoot](j.all); n != 2 {
			t.Errorf("%d roots", n)
		}
	})
	t.Run("it has a copy of the manifest", func(t *testing.T) {
		j := insert(t)
		j.finishStage1()
		for n := range 3 {
			ev := j.success(j.launch(id(2, n), "e1"))
			ev.Manifest = []byte("ipc")
			j.apply(ev)
		}
		j.apply(graph.RootStarted{Epoch: 1})
		if acts := j.apply(graph.ExecutorLost{Executor: "e1"}); len(acts) != 0 {
			t.Errorf("%v, though the copies are enough", acts)
		}
	})
	t.Run("the seal was first", func(t *testing.T) {
		j := committing(t)
		j.apply(graph.RootInFlight{Epoch: 1})
		for _, ev := range []graph.Event{
			graph.ExecutorLost{Executor: "e0"},
			graph.ExecutorLost{Executor: "e1"},
			graph.ExecutorLost{Executor: "e2"},
			graph.RootLostInput{Epoch: 1, Lost: []graph.LostInput{{Task: id(2, 0), Attempt: j.g.Accepted()[0].Attempt}}},
		} {
			if acts := j.apply(ev); len(acts) != 0 {
				t.Errorf("%T: %v", ev, acts)
			}
		}
		j.apply(graph.RootFinished{Epoch: 1, Commit: commit.CommitCommitted})
		j.wantState(graph.Succeeded, commit.CommitCommitted)
	})
	t.Run("again and again", func(t *testing.T) {
		j := committing(t)
		for epoch := 1; j.g.State() == graph.Running; epoch++ {
			if epoch > 20 {
				t.Fatal("no limit")
			}
			a := j.g.Accepted()[0]
			j.apply(graph.RootLostInput{Epoch: epoch, Lost: []graph.LostInput{{Task: a.Task, Attempt: a.Attempt}}})
			j.finishTasks()
			j.apply(graph.RootStarted{Epoch: epoch + 1})
		}
		j.wantState(graph.JobFailed, commit.CommitNone)
	})
	t.Run("it names nothing that is lost", func(t *testing.T) {
		j := committing(t)
		j.apply(graph.RootLostInput{Epoch: 1, Lost: []graph.LostInput{{Task: id(2, 0), Attempt: "stranger"}}})
		if r := get[graph.RunSchedulerRoot](t, j.acts); r.Epoch != 2 {
			t.Errorf("%+v", r)
		}
	})
}

func TestRoot28_SpentDataIsFreedInOneCall(t *testing.T) {
	j := committing(t)
	j.apply(graph.RootInFlight{Epoch: 1})
	j.apply(graph.RootFinished{Epoch: 1, Commit: commit.CommitCommitted})
	if f := get[graph.FreeJobData](t, j.all); f.Stages != nil || count[graph.FreeJobData](j.all) != 1 {
		t.Errorf("%+v", f)
	}

	q := query(t)
	q.finishTasks()
	q.wantState(graph.Succeeded, commit.CommitNone)
	if f := get[graph.FreeJobData](t, q.all); !slices.Equal(f.Stages, []int{1}) || count[graph.FreeJobData](q.all) != 1 {
		t.Errorf("%+v, want all but the final stage", f)
	}
	if f := get[graph.FreeJobData](t, q.apply(graph.ResultExpired{})); !slices.Equal(f.Stages, []int{2}) {
		t.Errorf("%+v", f)
	}
	if acts := q.apply(graph.ResultExpired{}); len(acts) != 0 {
		t.Errorf("%v", acts)
	}

	one := newJob(t, graph.Spec{Stages: []graph.StageSpec{{ID: 1, Tasks: 1, Outputs: 1, Deterministic: true}}})
	one.apply(graph.Start{})
	one.finishTasks()
	if count[graph.FreeJobData](one.all) != 0 {
		t.Error("the only stage of a query is its result")
	}
}

func TestRoot29_DataIsFreedAfterTheRootHasStoppedReading(t *testing.T) {
	for name, end := range map[string]graph.Event{
		"cancelled": graph.CancelRequested{}, "failed": graph.Failed{Err: errors.New("x")},
	} {
		j := committing(t)
		j.apply(end)
		if count[graph.FreeJobData](j.all) != 0 {
			t.Errorf("%s: freed under the root's reading", name)
		}
		j.apply(graph.RootFinished{Epoch: 1, Err: errors.New("stopped")})
		if f := get[graph.FreeJobData](t, j.acts); f.Stages != nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
	// A root of an earlier epoch may still read.
	j := committing(t)
	j.apply(graph.ExecutorLost{Executor: "e2"})
	j.finishTasks()
	j.apply(graph.RootStarted{Epoch: 2})
	j.apply(graph.CancelRequested{})
	j.apply(graph.RootFinished{Epoch: 2, Err: errors.New("stopped")})
	if count[graph.FreeJobData](j.all) != 0 {
		t.Error("freed while the root of epoch 1 reads")
	}
	j.apply(graph.RootLostInput{Epoch: 1})
	if count[graph.FreeJobData](j.all) != 1 {
		t.Error("not freed though nobody reads")
	}
	// Without a root that reads it's freed at once.
	j = insert(t)
	j.launch(id(1, 0), "e0")
	acts := j.apply(graph.CancelRequested{})
	if count[graph.FreeJobData](acts) != 1 || count[graph.CancelTask](acts) != 2 {
		t.Errorf("%v", acts)
	}
}

func TestW6_ACommitNeedsNoExecutor(t *testing.T) {
	j := committing(t)
	j.apply(graph.RootInFlight{Epoch: 1})
	rev := j.g.Revision()
	for _, e := range []string{"e0", "e1", "e2"} {
		j.apply(graph.ExecutorLost{Executor: e})
	}
	if j.g.Revision() != rev {
		t.Error("lost executors changed a job whose commit is in flight")
	}
	j.wantState(graph.Running, commit.CommitInFlight)
}

func TestW19_FinalStatesAreIdempotent(t *testing.T) {
	jobs := map[string]*job{}
	jobs["succeeded"] = committing(t)
	jobs["succeeded"].apply(graph.RootInFlight{Epoch: 1})
	jobs["succeeded"].apply(graph.RootFinished{Epoch: 1, Result: []byte("r"), Commit: commit.CommitCommitted})
	jobs["cancelled"] = insert(t)
	jobs["cancelled"].apply(graph.CancelRequested{})
	jobs["failed"] = insert(t)
	jobs["failed"].apply(graph.Failed{Err: errors.New("x")})
	jobs["never started"] = newJob(t, graph.Spec{Stages: []graph.StageSpec{{ID: 1, Tasks: 1}}})
	jobs["never started"].apply(graph.CancelRequested{})
	for name, j := range jobs {
		state, result, rev, n := j.g.State(), string(j.g.Result()), j.g.Revision(), len(j.all)
		for _, ev := range []graph.Event{
			graph.CancelRequested{},
			graph.Failed{Err: errors.New("y")},
			graph.Start{},
			graph.ExecutorLost{Executor: "e0"},
			graph.RootFinished{Epoch: 1, Result: []byte("other")},
			graph.RootInFlight{Epoch: 1},
			graph.RootStarted{Epoch: 1},
			graph.ResultExpired{},
		} {
			acts := j.apply(ev)
			if _, ok := ev.(graph.CancelRequested); ok && get[graph.CancelAnswer](t, acts).Answer != graph.AnswerAlreadyEnded {
				t.Errorf("%s: %v", name, acts)
			}
		}
		if j.g.State() != state || string(j.g.Result()) != result || j.g.Revision() != rev {
			t.Errorf("%s changed to %s", name, j.g.State())
		}
		if later := j.all[n:]; count[graph.FreeJobData](later)+count[graph.JobEnded](later) != 0 {
			t.Errorf("%s: %v", name, later)
		}
	}
}
