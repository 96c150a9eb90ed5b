package graph

import (
	"slices"

	"github.com/firn-project/firn/commit"
)

// A stage may read what a query gave that somebody else ran. When a part of that is
// gone, the query runs again, and that is another execution: none of the rows that
// the stage, and all that reads it, made of the earlier one may meet those of the
// later one. So the stage is given up as a whole, at once, and waits until the
// event loop says that the new execution is there. Its attempt number grows with it:
// a status of an attempt that read the earlier one is stale.

// RunSource asks to run the queries again that a stage reads. SourceReady, or Failed,
// answers.
type RunSource struct{ Stage int }

// SourceReady says that a stage may read its source again: from now on its tasks get
// parts of the new execution.
type SourceReady struct{ Stage int }

// SourceBreak is a stream that broke off in an attempt. The attempt has failed and what
// it made is dropped, but the part may be had at other places too: the next attempt is
// told of the break, and begins elsewhere.
//
// An attempt that found out about one place doesn't count as a failure of the task
// while there are others: else four bad places would fail it before the fifth, which
// is good, is asked. It is so for the first break of a part at a place only, so that
// each such attempt leaves fewer places for the next, and for maxSpared attempts of a
// task in any case, whatever executors say.
//
// When the query runs again its parts are others, and so are their names. That a place
// was bad is still kept, for all tasks of the stage: where tickets are good for one use,
// an execution that began at the bad place again would be lost as the one before was.
type SourceBreak struct {
	// Part is empty for one of an earlier execution.
	Part     string
	Location string
	Said     string
	// Code is set when reading the part there again doesn't help.
	Code commit.Code
	// Left is how many other places of the part haven't been tried.
	Left int
}

const (
	maxSpared = 16
	// maxBroke is how many places of earlier executions are kept for a stage.
	maxBroke = 16
)

// spares keeps a break, and says whether its attempt is no failure of the task.
func (t *task) spares(b SourceBreak) bool {
	at := slices.IndexFunc(t.broke, func(o SourceBreak) bool { return o.Part == b.Part && o.Location == b.Location })
	first := at < 0
	// RunTask has the old one.
	t.broke = slices.Clone(t.broke)
	if !first {
		t.broke = slices.Delete(t.broke, at, at+1)
	}
	t.broke = append(t.broke, b)
	if !first || b.Left <= 0 || t.spared >= maxSpared {
		return false
	}
	t.spared++
	return true
}

// brokeFor is what an attempt of a task is told.
func (s *stage) brokeFor(t *task) []SourceBreak { return slices.Concat(s.broke, t.broke) }

// forgetParts keeps of all breaks the places only.
func (s *stage) forgetParts() {
	for i := range s.tasks {
		for _, b := range s.tasks[i].broke {
			s.broke = slices.DeleteFunc(s.broke, func(o SourceBreak) bool { return o.Location == b.Location })
			s.broke = append(s.broke, SourceBreak{Location: b.Location})
		}
		s.tasks[i].broke = nil
	}
	s.broke = s.broke[max(0, len(s.broke)-maxBroke):]
}

func (RunSource) isAction()  {}
func (SourceReady) isEvent() {}

// sourceLost gives up what a stage made of an execution that can't be read to its
// end.
func (g *Graph) sourceLost(s *stage, err error) {
	if g.isSealed() {
		return
	}
	if g.pipe.shown > 0 {
		s.state, s.ended = StageFailed, g.now
		g.fail(errShown(err))
		return
	}
	s.rollbacks++
	s.attempt++
	if s.rollbacks > g.spec.MaxStageAttempts {
		s.state, s.ended = StageFailed, g.now
		g.fail(errSourceLimit(s.spec.ID, s.rollbacks, err))
		return
	}
	s.awaitsSource, s.state = true, StageUnresolved
	s.forgetParts()
	g.rerunWhole(g.byID[s.spec.ID])
	g.abandonRoot()
	g.emit(RunSource{Stage: s.spec.ID})
}

func (g *Graph) sourceReady(ev SourceReady) {
	i, ok := g.byID[ev.Stage]
	if !ok || !g.stages[i].awaitsSource || g.state != Running {
		return
	}
	g.touch()
	g.stages[i].awaitsSource = false
	g.settle()
}
