package graph

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
