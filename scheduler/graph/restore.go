package graph

import (
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/graph/adaptive"
)

// Kept is what a record has of a job's tasks.
type Kept struct {
	// Accepted are the attempts that were accepted and not dropped since, at
	// most one of each task.
	Accepted []TaskSucceeded
	// Launched are attempts that may still run.
	Launched []TaskLaunched
	// Lost are the accepted attempts whose output can't be read any more.
	Lost map[string]bool
	// Layouts are those of adaptive stages, by stage.
	Layouts map[int]*adaptive.Layout
	// Shown is of how many tasks of the final stage, from the first on, a client may
	// have read rows while a pipelined job ran.
	Shown int
	// Sealed: the root had fixed what it commits. Sent: it may have sent it; that
	// goes with Sealed.
	Sealed, Sent bool
}

// Restore returns the graph of a job that another process ran, in state
// Running, and what must be done now. A task of which the record has nothing is
// queued as at the start.
//
// The record may be cut off anywhere: it has acceptances and drops in the order
// in which the other graph decided them, so what it has was a state of that
// graph, except that attempts which it has as launched may have ended. What
// makes no sense for the spec is left out, so that its task runs again.
//
// What is sealed is fixed for ever: such a job has nothing left to run but its
// root, and no lost executor changes that, not even before the root has started.
// One that may have been sent is past its point of no return from the first
// moment on.
func Restore(spec Spec, kept Kept, now time.Time) (*Graph, []Action) {
	g := New(spec, now)
	if g.specErr != nil {
		return g, g.Apply(Start{}, now)
	}
	g.touch()
	g.state = Running
	g.pipe.shown = min(kept.Shown, len(g.final().tasks))
	g.resumeLayouts(kept.Layouts)
	for _, ev := range kept.Accepted {
		s, t := g.find(ev.Task)
		if t == nil || t.state != taskWaiting || checkOutputs(s.spec, ev) != nil || s.spec.Adapt != nil && s.layout == nil {
			g.emit(DropOutput{Attempt: ev.Attempt})
			continue
		}
		g.accept(s, t, ev)
		if kept.Lost[ev.Attempt] {
			g.lose(s, t)
		}
		g.resume(s, ev.StageAttempt)
	}
	if kept.Sealed {
		g.resumeRoot(kept.Sent)
		out := g.out
		g.out = nil
		return g, out
	}
	for _, ev := range kept.Launched {
		s, t := g.find(ev.Task)
		if t == nil || t.state != taskWaiting || s.spec.Adapt != nil && s.layout == nil {
			continue
		}
		t.stageAttempt, t.attempt, t.executor, t.launched = ev.StageAttempt, ev.Attempt, ev.Executor, now
		g.become(s, t, taskRunning)
		g.seenOn(ev.Executor, ev.Task)
		g.resume(s, ev.StageAttempt)
	}
	if g.checkRejects() {
		g.settle()
	}
	out := g.out
	g.out = nil
	return g, out
}

// resumeLayouts cuts stages as they were cut. Layouts are taken up from the first
// stage on, as each must fit the stage that is read.
func (g *Graph) resumeLayouts(layouts map[int]*adaptive.Layout) {
	for _, s := range g.stages {
		l := layouts[s.spec.ID]
		if l == nil || s.spec.ReadsAll || len(s.spec.Inputs) != 1 {
			continue
		}
		in := g.stages[g.byID[s.spec.Inputs[0]]]
		if l.Check(len(in.tasks), max(in.spec.Outputs, 1)) {
			s.layout = l
			s.cut(len(l.Tasks))
		}
	}
}

// resume makes a stage one that has run.
func (g *Graph) resume(s *stage, attempt int) {
	s.state, s.attempt = StageRunning, max(s.attempt, attempt)
	if s.started.IsZero() {
		s.started = g.now
	}
}

// resumeRoot has the root run that an earlier process sealed.
func (g *Graph) resumeRoot(sent bool) {
	for _, s := range g.stages {
		s.state, s.ended = StageSucceeded, g.now
	}
	g.root = root{state: rootEmitted, resumed: rootSealed, epoch: 1}
	g.commit = commit.CommitPreparing
	if sent {
		g.root.resumed, g.commit = rootInFlight, commit.CommitInFlight
	}
	g.emit(RunSchedulerRoot{Epoch: g.root.epoch, Inputs: g.Accepted()})
}
