package graph

import "time"

// Kept is what a record has of a job's tasks.
type Kept struct {
	// Accepted are the attempts that were accepted and not dropped since, at
	// most one of each task.
	Accepted []TaskSucceeded
	// Launched are attempts that may still run.
	Launched []TaskLaunched
}

// Restore returns the graph of a job that another process ran, in state
// Running, and what must be done now. A task of which the record has nothing is
// queued as at the start.
//
// The record may be cut off anywhere: it has acceptances and drops in the order
// in which the other graph decided them, so what it has was a state of that
// graph, except that attempts which it has as launched may have ended. What
// makes no sense for the spec is left out, so that its task runs again.
func Restore(spec Spec, kept Kept, now time.Time) (*Graph, []Action) {
	g := New(spec, now)
	if g.specErr != nil {
		return g, g.Apply(Start{}, now)
	}
	g.touch()
	g.state = Running
	for _, ev := range kept.Accepted {
		s, t := g.find(ev.Task)
		if t == nil || t.state != taskWaiting || checkOutputs(s.spec, ev) != nil {
			continue
		}
		t.accept(ev)
		g.resume(s, ev.StageAttempt)
	}
	for _, ev := range kept.Launched {
		s, t := g.find(ev.Task)
		if t == nil || t.state != taskWaiting {
			continue
		}
		t.state, t.stageAttempt, t.attempt, t.executor = taskRunning, ev.StageAttempt, ev.Attempt, ev.Executor
		g.resume(s, ev.StageAttempt)
	}
	g.settle()
	out := g.out
	g.out = nil
	return g, out
}

// resume makes a stage one that has run.
func (g *Graph) resume(s *stage, attempt int) {
	s.state, s.attempt = StageRunning, max(s.attempt, attempt)
	if s.started.IsZero() {
		s.started = g.now
	}
}
