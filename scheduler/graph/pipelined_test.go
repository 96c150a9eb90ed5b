package graph_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/graph/adaptive"
)

// content stands for the rows that an attempt gives: those of its task and of what
// it read, and of no other attempt if its stage is deterministic.
func (w *world) content(attempt string) string {
	id := w.model.tasks[attempt]
	var b strings.Builder
	fmt.Fprintf(&b, "%d.%d", id.Stage, id.Task)
	if !w.spec.Stages[id.Stage-1].Deterministic {
		b.WriteString("@" + attempt)
	}
	for _, in := range w.reads[attempt] {
		fmt.Fprintf(&b, "(%d:%s)", in.Output.Partition, w.content(in.Attempt))
	}
	return b.String()
}

// readable is what the client is shown. Somebody else asks now and then for what has
// changed, and has the same.
func (w *world) readable() []graph.Accepted {
	list := func(had []graph.Accepted, listing uint64) []graph.Accepted {
		n, changed := w.g.Readable(listing)
		now := make([]graph.Accepted, n)
		copy(now, had)
		for _, r := range changed {
			now[r.Place] = r.Accepted
		}
		return now
	}
	all := list(nil, 0)
	if w.asked++; w.asked%3 == 0 {
		w.had, w.listing = list(w.had, w.listing), w.g.Listing()
		w.check(reflect.DeepEqual(w.had, all), "of the changes of a listing come %v, of all %v", w.had, all)
	}
	return all
}

// read is a client of a pipelined job that reads all that it is shown at once, and
// holds it against what it has; and whether what runs reads what there is.
func (w *world) read(acts []graph.Action) {
	if !w.spec.Pipelined {
		return
	}
	list := w.g.Accepted()
	switch w.g.State() {
	case graph.Running:
		list = w.readable()
		w.model.listed(w, list)
	case graph.Succeeded:
	default:
		return
	}
	for n, a := range list {
		w.check(a.Task.Task == n, "output %d is of %v", n, a.Task)
		rows := w.content(a.Attempt)
		if n == len(w.shown) {
			w.shown = append(w.shown, rows)
		}
		w.check(w.shown[n] == rows, "the client has %s of task %d, and then %s", w.shown[n], n, rows)
	}
	for _, a := range acts {
		if l, ok := a.(graph.DropOutput); ok && len(w.shown) > 0 && w.model.tasks[l.Attempt].Stage == len(w.spec.Stages) {
			w.again++
		}
	}
	now := map[graph.TaskID]string{}
	readable := 0
	for _, r := range w.g.Runs() {
		now[r.Task] = r.Attempt
		if r.Task == id(len(w.spec.Stages), readable) && (r.Done || w.flowing[r.Attempt]) {
			readable++
		}
	}
	w.check(len(list) == readable || w.faulty && len(list) < readable, "%d outputs are shown, %d can be read", len(list), readable)
	for _, r := range w.g.Runs() {
		for _, in := range w.reads[r.Attempt] {
			w.check(r.Done || now[in.Task] == in.Attempt, "%v runs and reads %s of %v, which has %q", r.Task, in.Attempt, in.Task, now[in.Task])
		}
	}
}

// TestPipelinedRowsAreNeverMixed: whatever fails, is lost or comes late, a task of a
// pipelined job that runs reads attempts that run or were accepted; a client that
// reads all that it is shown never gets rows that don't go with those it has; and the
// result is of one run.
func TestPipelinedRowsAreNeverMixed(t *testing.T) {
	ends := map[graph.State]int{}
	lost, again := 0, 0
	for range 20 {
		rapid.Check(t, func(rt *rapid.T) {
			w := newWorld(rt)
			if !w.spec.Pipelined {
				rt.Skip("not pipelined")
			}
			w.step(graph.Start{})
			for range rapid.IntRange(0, 80).Draw(rt, "steps") {
				w.random()
			}
			w.settleDown()
			ends[w.g.State()]++
			again += w.again
			if commit.CodeOf(w.g.Err()) == commit.CodeResultLost {
				lost++
			}
		})
	}
	if ends[graph.Succeeded] == 0 || lost == 0 || again == 0 {
		t.Errorf("%v, %d lost rows that were shown, %d made shown rows again: the histories miss something", ends, lost, again)
	}
}

// What a pipelined job costs doesn't grow with the square of its tasks.
func TestPipelinedJobOfManyTasks(t *testing.T) {
	const tasks = 100_000
	j := newJob(t, graph.Spec{JobID: "j", Pipelined: true, Stages: []graph.StageSpec{{ID: 1, Tasks: 2, Outputs: tasks, Deterministic: true}, {ID: 2, Tasks: tasks, Outputs: 1, Inputs: []int{1}, Deterministic: true}}})
	g, now := j.g, j.now
	var queue []graph.RunTask
	apply := func(ev graph.Event) {
		for _, a := range g.Apply(ev, now) {
			if r, ok := a.(graph.RunTask); ok {
				queue = append(queue, r)
			}
		}
	}
	began := time.Now()
	apply(graph.Start{})
	for n := 0; n < len(queue); n++ {
		l := graph.TaskLaunched{Task: queue[n].Task, StageAttempt: queue[n].StageAttempt, Attempt: fmt.Sprint("a", n), Executor: "e"}
		apply(l)
		apply(graph.RowsReady{Task: l.Task, StageAttempt: l.StageAttempt, Attempt: l.Attempt, Executor: l.Executor})
	}
	if n, _ := g.Readable(0); n != tasks {
		t.Errorf("%d tasks can be read", n)
	}
	for n, r := range slices.Backward(queue) {
		apply(j.success(graph.TaskLaunched{Task: r.Task, StageAttempt: r.StageAttempt, Attempt: fmt.Sprint("a", n), Executor: "e"}))
	}
	if g.State() != graph.Succeeded || len(queue) != tasks+2 {
		t.Fatalf("%s after %d tasks", g.State(), len(queue))
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
}

// pipelined is a job of two stages, of two tasks each.
func pipelined(t *testing.T, deterministic bool) *job {
	t.Helper()
	return newJob(t, graph.Spec{JobID: "j", Pipelined: true, MaxTaskFailures: 3, Stages: []graph.StageSpec{
		{ID: 1, Tasks: 2, Outputs: 2, Deterministic: deterministic},
		{ID: 2, Tasks: 2, Outputs: 1, Inputs: []int{1}, Deterministic: true},
	}})
}

// launchAll launches what is queued, in order, and returns the launches.
func (j *job) launchAll(executor string) (all []graph.TaskLaunched) {
	for len(j.queue) > 0 {
		all = append(all, j.launch(j.queue[0].Task, executor))
	}
	return all
}

func TestPipelinedStagesRunAtOnce(t *testing.T) {
	j := pipelined(t, true)
	j.apply(graph.Start{})
	if len(j.queue) != 2 {
		t.Fatalf("queued are %v", j.queue)
	}
	j.launch(j.queue[0].Task, "e1")
	if len(j.queue) != 1 {
		t.Fatalf("a task is queued whose input doesn't run: %v", j.queue)
	}
	first := j.launch(j.queue[0].Task, "e1")
	if len(j.queue) != 2 || j.queue[0].Task != id(2, 0) || len(j.queue[0].Inputs) != 2 || !j.queue[0].Inputs[1].Running || j.queue[0].Inputs[1].Attempt != first.Attempt {
		t.Fatalf("queued are %+v", j.queue)
	}
	readers := j.launchAll("e2")

	// The final stage's rows come before those of the first have ended.
	j.apply(graph.RowsReady{Task: readers[1].Task, StageAttempt: readers[1].StageAttempt, Attempt: readers[1].Attempt, Executor: "e2"})
	if n, r := j.g.Readable(0); n != 0 || len(r) != 0 {
		t.Fatalf("%+v can be read before the task before it", r)
	}
	j.apply(graph.RowsReady{Task: readers[0].Task, StageAttempt: readers[0].StageAttempt, Attempt: readers[0].Attempt, Executor: "e2"})
	if n, r := j.g.Readable(0); n != 2 || len(r) != 2 || !r[0].Running || r[0].Attempt != readers[0].Attempt {
		t.Fatalf("%+v can be read", r)
	}

	// Readers may be faster with their success; the job ends with the last one.
	for _, l := range readers {
		j.apply(j.success(l))
	}
	if s := j.g.State(); s != graph.Running {
		t.Fatalf("the job is %s while tasks run", s)
	}
	for _, l := range j.launched(1) {
		j.apply(j.success(l))
	}
	if s := j.g.State(); s != graph.Succeeded {
		t.Fatalf("the job is %s", s)
	}
}

// launched are the launches of a stage that run.
func (j *job) launched(stage int) (all []graph.TaskLaunched) {
	for _, r := range j.g.Runs() {
		if l := j.running[r.Task]; !r.Done && r.Task.Stage == stage && l.Attempt == r.Attempt {
			all = append(all, l)
		}
	}
	return all
}

// With one slot the tasks run one after the other: none has it while it waits for
// one that hasn't.
func TestPipelinedJobsRunInOneSlot(t *testing.T) {
	jobs := []*job{pipelined(t, true), pipelined(t, true)}
	for _, j := range jobs {
		j.apply(graph.Start{})
	}
	for turn := range 100 {
		j := jobs[turn%2]
		if len(j.queue) == 0 {
			continue
		}
		l := j.launch(j.queue[0].Task, "e1")
		for _, in := range j.g.Runs() {
			if !in.Done && in.Task != l.Task {
				t.Fatalf("%v runs beside %v", in.Task, l.Task)
			}
		}
		j.apply(j.success(l))
	}
	for _, j := range jobs {
		if s := j.g.State(); s != graph.Succeeded {
			t.Fatalf("a job is %s: %+v", s, j.g.Stages())
		}
	}
}

// A task that fails takes its readers with it; of a deterministic stage those that
// have ended stay.
func TestPipelinedFailureTakesItsReaders(t *testing.T) {
	for _, deterministic := range []bool{true, false} {
		j := pipelined(t, deterministic)
		j.apply(graph.Start{})
		j.launchAll("e1")
		readers, makers := j.launched(2), j.launched(1)
		j.apply(j.success(readers[0]))
		var stopped, dropped []string
		for _, a := range j.apply(graph.TaskFailed{
			Task: makers[1].Task, StageAttempt: makers[1].StageAttempt, Attempt: makers[1].Attempt, Executor: "e1", Class: graph.Retryable, Err: errors.New("disk"),
		}) {
			switch a := a.(type) {
			case graph.CancelTask:
				stopped = append(stopped, a.Attempt)
			case graph.DropOutput:
				dropped = append(dropped, a.Attempt)
			}
		}
		if deterministic {
			if !slices.Equal(stopped, []string{readers[1].Attempt}) || len(dropped) != 0 {
				t.Errorf("stopped %v, dropped %v", stopped, dropped)
			}
			continue
		}
		// The first reader's success is a shown row: it isn't followed by others.
		if s := j.g.State(); s != graph.JobFailed || commit.CodeOf(j.g.Err()) != commit.CodeResultLost || !strings.Contains(j.g.Err().Error(), "disk") {
			t.Errorf("the job is %s: %v", s, j.g.Err())
		}
	}
}

// Before any row was shown, rows that don't repeat cost only what was made of them.
func TestPipelinedRowsThatDontRepeat(t *testing.T) {
	j := pipelined(t, false)
	j.apply(graph.Start{})
	j.launchAll("e1")
	readers, makers := j.launched(2), j.launched(1)
	j.apply(j.success(readers[1])) // not shown, as the first one's rows come before
	acts := j.apply(graph.TaskFailed{
		Task: makers[1].Task, StageAttempt: makers[1].StageAttempt, Attempt: makers[1].Attempt, Executor: "e1", Class: graph.Retryable, Err: errors.New("disk"),
	})
	if !slices.Contains(acts, graph.Action(graph.DropOutput{Attempt: readers[1].Attempt})) {
		t.Fatalf("what was made of lost rows stays: %+v", acts)
	}
	if s := j.g.State(); s != graph.Running || len(j.queue) != 1 || j.queue[0].Task != id(1, 1) {
		t.Fatalf("the job is %s, queued %v", s, j.queue)
	}
}

// A reader that fails before what it reads is told to have failed isn't at fault,
// and waits for that.
func TestPipelinedReaderIsNotAtFault(t *testing.T) {
	j := pipelined(t, true)
	j.apply(graph.Start{})
	j.launchAll("e1")
	makers := j.launched(1)
	for range 5 { // more than a task may fail
		l := j.launched(2)[0]
		j.apply(graph.TaskFailed{
			Task: l.Task, StageAttempt: l.StageAttempt, Attempt: l.Attempt, Executor: "e1", Class: graph.Retryable, Err: errors.New("stream broke"),
			Lost: &graph.LostInput{Task: makers[0].Task, Attempt: makers[0].Attempt, Executor: "e1"},
		})
		if len(j.queue) != 0 {
			t.Fatalf("%v reads again what it couldn't read", j.queue)
		}
		j.apply(j.success(makers[0]))
		if len(j.queue) != 1 || j.queue[0].Task != l.Task || j.queue[0].Inputs[0].Running {
			t.Fatalf("queued is %+v", j.queue)
		}
		// Now that it is accepted, an output that can't be read is made again.
		l = j.launchAll("e1")[0]
		j.apply(graph.TaskFailed{
			Task: l.Task, StageAttempt: l.StageAttempt, Attempt: l.Attempt, Executor: "e1", Class: graph.Retryable, Err: errors.New("gone"),
			Lost: &graph.LostInput{Task: makers[0].Task, Attempt: makers[0].Attempt, Executor: "e1"},
		})
		if j.g.State() == graph.JobFailed {
			break // the limit on the stage's rollbacks
		}
		j.launchAll("e1")
		makers = j.launched(1)
	}
	if err := j.g.Err(); commit.CodeOf(err) != commit.CodeStageLimit {
		t.Errorf("the job is %s: %v", j.g.State(), err)
	}
}

// A pipelined job that another process goes on with runs what is on record, and
// nothing that reads what isn't.
func TestPipelinedRestore(t *testing.T) {
	for _, deterministic := range []bool{true, false} {
		for shown, want := range []graph.State{graph.Running, graph.JobFailed} {
			j := pipelined(t, deterministic)
			l := func(stage, task int, attempt string) graph.TaskLaunched {
				return graph.TaskLaunched{Task: id(stage, task), StageAttempt: 1, Attempt: attempt, Executor: "e1"}
			}
			g, acts := graph.Restore(j.spec, graph.Kept{Launched: []graph.TaskLaunched{l(1, 0, "a1"), l(2, 0, "a3"), l(2, 1, "a4")}, Shown: shown}, j.now)
			if deterministic {
				want = graph.Running
			}
			if g.State() != want {
				t.Errorf("deterministic %v, %d shown: the job is %s: %v", deterministic, shown, g.State(), g.Err())
			}
			if !slices.Contains(acts, graph.Action(graph.CancelTask{Task: id(2, 1), Attempt: "a4", Executor: "e1"})) {
				t.Errorf("what reads what isn't there goes on: %+v", acts)
			}
		}
	}
}

// A job whose final stage has more tasks than there are slots, and rows that don't
// repeat, goes on as long as what was shown runs: also in another process, and when one
// fails that wasn't shown.
func TestPipelinedRestoreWithoutSlotsForAll(t *testing.T) {
	spec := graph.Spec{JobID: "j", Pipelined: true, Stages: []graph.StageSpec{
		{ID: 1, Tasks: 1, Outputs: 4, Deterministic: true}, {ID: 2, Tasks: 4, Outputs: 1, Inputs: []int{1}},
	}}
	l := func(stage, task int) graph.TaskLaunched {
		return graph.TaskLaunched{Task: id(stage, task), StageAttempt: 1, Attempt: fmt.Sprint("a", stage, task), Executor: "e1"}
	}
	for name, v := range map[string]struct {
		launched []graph.TaskLaunched
		want     graph.State
	}{
		"what was shown runs":        {[]graph.TaskLaunched{l(1, 0), l(2, 0), l(2, 1)}, graph.Running},
		"not all that was shown":     {[]graph.TaskLaunched{l(1, 0), l(2, 1)}, graph.JobFailed},
		"nothing of what it is from": {[]graph.TaskLaunched{l(2, 0), l(2, 1)}, graph.JobFailed},
	} {
		g, acts := graph.Restore(spec, graph.Kept{Launched: v.launched, Shown: 2}, time.Unix(0, 0))
		queued := slices.ContainsFunc(acts, func(a graph.Action) bool { r, ok := a.(graph.RunTask); return ok && r.Task == id(2, 3) })
		// What was made of rows that aren't there is missed when they come again.
		again := l(1, 0)
		again.Attempt = "again"
		g.Apply(again, time.Unix(0, 0))
		if g.State() != v.want || queued != (v.want == graph.Running) {
			t.Errorf("%s: the job is %s, %v; the last task is queued: %v", name, g.State(), g.Err(), queued)
		}
	}
	j := newJob(t, spec)
	j.apply(graph.Start{})
	j.launch(id(1, 0), "e1")
	first, second := j.launch(id(2, 0), "e1"), j.launch(id(2, 1), "e1")
	j.apply(graph.RowsReady{Task: first.Task, StageAttempt: first.StageAttempt, Attempt: first.Attempt, Executor: "e1"})
	fail := func(l graph.TaskLaunched) {
		j.apply(graph.TaskFailed{Task: l.Task, StageAttempt: l.StageAttempt, Attempt: l.Attempt, Executor: "e1", Class: graph.Retryable, Err: errors.New("disk")})
	}
	if fail(second); j.g.State() != graph.Running {
		t.Errorf("a task failed that wasn't shown, and the job is %s: %v", j.g.State(), j.g.Err())
	}
	if fail(first); commit.CodeOf(j.g.Err()) != commit.CodeResultLost {
		t.Errorf("a task failed that was shown, and the job is %s: %v", j.g.State(), j.g.Err())
	}
}

func TestPipelinedSpecIsChecked(t *testing.T) {
	s := pipelined(t, true).spec
	s.HasRoot = true
	if err := s.Validate(); commit.CodeOf(err) != commit.CodeBadStages {
		t.Error(err)
	}
	s.HasRoot = false
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	s.Stages[1].Adapt = &adaptive.Policy{Tasks: 4, MinTask: 1, MaxTask: 100}
	if s.Pipelined = false; s.Validate() != nil {
		t.Error(s.Validate())
	}
	if s.Pipelined = true; commit.CodeOf(s.Validate()) != commit.CodeBadStages {
		t.Errorf("an adaptive stage: %v", s.Validate())
	}
}
