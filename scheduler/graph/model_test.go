package graph_test

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/firn-project/firn/scheduler/graph"
)

// model is all that should be needed to say which outputs count: an attempt that
// was launched may be accepted until it ends, one at most for each task, and what
// was accepted counts until it is dropped. It knows nothing of stages, limits,
// epochs and reruns.
type model struct {
	running  map[string]graph.TaskLaunched
	accepted map[graph.TaskID]string
	// tasks are those of all attempts, ever those that were accepted at some time.
	tasks map[string]graph.TaskID
	ever  map[string]bool
}

func newModel() *model {
	return &model{running: map[string]graph.TaskLaunched{}, accepted: map[graph.TaskID]string{}, tasks: map[string]graph.TaskID{}, ever: map[string]bool{}}
}

// expect takes in an event, before it is applied, and says which attempt the graph
// must accept; empty for none.
func (m *model) expect(ev graph.Event) string {
	is := func(id graph.TaskID, stageAttempt int, attempt, executor string) bool {
		l, ok := m.running[attempt]
		return ok && l.Task == id && l.StageAttempt == stageAttempt && l.Executor == executor
	}
	switch ev := ev.(type) {
	case graph.TaskLaunched:
		m.running[ev.Attempt], m.tasks[ev.Attempt] = ev, ev.Task
	case graph.TaskSucceeded:
		if is(ev.Task, ev.StageAttempt, ev.Attempt, ev.Executor) {
			delete(m.running, ev.Attempt)
			return ev.Attempt
		}
	case graph.TaskFailed:
		if is(ev.Task, ev.StageAttempt, ev.Attempt, ev.Executor) {
			delete(m.running, ev.Attempt)
		}
	case graph.ExecutorLost:
		for a, l := range m.running {
			if l.Executor == ev.Executor {
				delete(m.running, a)
			}
		}
	}
	return ""
}

// follow holds what the graph did against the model.
func (m *model) follow(w *world, want string, acts []graph.Action) {
	got := ""
	for _, a := range acts {
		switch a := a.(type) {
		case graph.KeepOutput:
			id, known := m.tasks[a.Attempt]
			w.check(known && !m.ever[a.Attempt], "attempt %s is accepted again, or was never launched", a.Attempt)
			w.check(m.accepted[id] == "", "%v has %s and %s", id, m.accepted[id], a.Attempt)
			m.accepted[id], m.ever[a.Attempt] = a.Attempt, true
			got += a.Attempt
		case graph.DropOutput:
			id := m.tasks[a.Attempt]
			w.check(m.accepted[id] == a.Attempt, "%s is dropped, but %v has %q", a.Attempt, id, m.accepted[id])
			delete(m.accepted, id)
		case graph.CancelTask:
			delete(m.running, a.Attempt)
		case graph.RunTask:
			w.check(m.accepted[a.Task] == "", "%v runs and has %s", a.Task, m.accepted[a.Task])
			for _, l := range m.running {
				w.check(l.Task != a.Task, "%v is queued while %s runs", a.Task, l.Attempt)
			}
			m.listed(w, a.Inputs)
		case graph.RunSchedulerRoot:
			m.listed(w, a.Inputs)
		}
	}
	w.check(got == want, "accepted %q, want %q", got, want)
	m.listed(w, w.g.Accepted())
	accepted, running := 0, 0
	doneOn, odd := map[string]int{}, map[string]int{}
	for _, r := range w.g.Runs() {
		if r.Done {
			accepted++
			doneOn[r.Executor]++
			odd[r.Executor] += r.Task.Stage % 2
			w.check(m.accepted[r.Task] == r.Attempt, "%v has %s, want %q", r.Task, r.Attempt, m.accepted[r.Task])
		} else {
			running++
			w.check(m.running[r.Attempt].Executor == r.Executor, "%s runs, but the model has ended it", r.Attempt)
		}
	}
	maps.DeleteFunc(odd, func(_ string, n int) bool { return n == 0 })
	shown := 0
	for _, s := range w.g.Stages() {
		shown += s.Done
	}
	w.check(shown == accepted, "%d are counted by stage, %d were accepted", shown, accepted)
	all := w.g.DoneOn(func(int) bool { return true })
	w.check(maps.Equal(all, doneOn), "counted by executor: %v, accepted were %v", all, doneOn)
	some := w.g.DoneOn(func(stage int) bool { return stage%2 == 1 })
	w.check(maps.Equal(some, odd), "counted by executor: %v of odd stages, accepted were %v", some, odd)
	for _, e := range []string{"", "e0", "e1", "e2", "e9"} {
		w.check(w.g.HasOutputOn(e) == (doneOn[e] > 0), "output on %q: %t, accepted were %v", e, w.g.HasOutputOn(e), doneOn)
	}
	w.check(accepted == len(m.accepted) && running == len(m.running), "%d accepted and %d run; the model has %v and %v", accepted, running, m.accepted, m.running)
}

// listed: each output stands once, and is of the attempt that counts.
func (m *model) listed(w *world, outputs []graph.Accepted) {
	type output struct {
		task      graph.TaskID
		partition int
	}
	seen := map[output]bool{}
	for _, o := range outputs {
		key := output{o.Task, o.Output.Partition}
		w.check(!seen[key], "output %d of %v is listed twice", o.Output.Partition, o.Task)
		if o.Running {
			w.check(m.running[o.Attempt].Task == o.Task && w.spec.Pipelined, "listed is %s of %v, which doesn't run", o.Attempt, o.Task)
		} else {
			w.check(m.accepted[o.Task] == o.Attempt, "listed is %s of %v, accepted %q", o.Attempt, o.Task, m.accepted[o.Task])
		}
		seen[key] = true
	}
}

// TestW1_NoAcceptedOutputIsEverListedTwice: whatever is lost, doubled, reordered,
// late, forged, cancelled or run twice at a time, every list of outputs that the
// graph gives (to a task, to the root, to a client) has each output once, of the
// one attempt that was accepted and not dropped since.
func TestW1_NoAcceptedOutputIsEverListedTwice(t *testing.T) {
	twins, dropped := 0, 0
	for range 10 {
		rapid.Check(t, func(rt *rapid.T) {
			w := newWorld(rt)
			w.step(graph.Start{})
			for range rapid.IntRange(0, 80).Draw(rt, "steps") {
				w.random()
			}
			w.settleDown()
			twins += w.twins
			dropped += len(w.model.ever) - len(w.model.accepted)
		})
	}
	if twins == 0 || dropped == 0 {
		t.Errorf("%d twins were accepted, %d outputs dropped: the histories miss something", twins, dropped)
	}
}
