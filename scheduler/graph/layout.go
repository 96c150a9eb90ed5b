package graph

import (
	"errors"

	"github.com/firn-project/firn/scheduler/graph/adaptive"
)

// errRowsDiffer is the cause of a rollback for which nothing was lost.
var errRowsDiffer = errors.New("a task that ran again gave another number of rows")

// layOut cuts a stage into tasks, when what it reads is there.
func (g *Graph) layOut(s *stage) {
	in := g.stages[g.byID[s.spec.Inputs[0]]]
	outputs := make([][]adaptive.Output, len(in.tasks))
	for n := range in.tasks {
		for _, a := range in.tasks[n].accepted {
			outputs[n] = append(outputs[n], adaptive.Output{Rows: a.Output.Rows, Bytes: a.Output.Bytes})
		}
	}
	s.layout = adaptive.New(outputs, *s.spec.Adapt)
	s.cut(len(s.layout.Tasks))
	g.emit(KeepLayout{Stage: s.spec.ID, Layout: s.layout})
}

// laidOut lists what task n of a stage reads by its layout, of the attempts that are
// accepted now.
func (g *Graph) laidOut(s *stage, n int) []Accepted {
	in := g.stages[g.byID[s.spec.Inputs[0]]]
	var all []Accepted
	for _, p := range s.layout.Tasks[n] {
		if t := &in.tasks[p.Task]; p.Partition < len(t.accepted) {
			a := t.accepted[p.Partition]
			a.First, a.End = p.First, p.End
			all = append(all, a)
		}
	}
	return all
}

// checkLayouts looks whether a task that ran again gave what the layouts of its
// readers were made for. If it didn't, they are given up, with all that was made by
// them: a part of a partition is no longer what it was.
func (g *Graph) checkLayouts(s *stage, id TaskID) (fit bool) {
	if g.isSealed() {
		return true
	}
	rows := make([]int64, 0, len(s.tasks[id.Task].accepted))
	for _, a := range s.tasks[id.Task].accepted {
		rows = append(rows, a.Output.Rows)
	}
	i := g.byID[s.spec.ID]
	for _, reader := range g.stages[i+1:] {
		if reader.layout == nil || reader.spec.Inputs[0] != s.spec.ID || reader.layout.Fits(id.Task, rows) {
			continue
		}
		tainted := make([]bool, len(g.stages))
		tainted[i] = true
		g.giveUp(i, i+1, tainted)
		g.abandonRoot()
		s.rollbacks++
		if s.rollbacks > g.spec.MaxStageAttempts {
			g.fail(errStageLimit(s.spec.ID, s.rollbacks-1, errRowsDiffer))
		}
		return false
	}
	return true
}
