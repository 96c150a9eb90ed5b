package speculation

import (
	"slices"
	"time"

	"github.com/firn-project/firn/scheduler/graph"
)

// Policy says what a straggler is. The zero value picks none.
type Policy struct {
	// Done is the part of a stage's tasks that must have ended before the others
	// are compared with them, above 0 and at most 1; 0 switches speculation off.
	Done float64
	// Slower is how many times the median of the tasks that ended a straggler has
	// run.
	Slower float64
	// AtLeast is how long every straggler has run: for less a second attempt isn't
	// worth its start.
	AtLeast time.Duration
}

// Default is cautious: it repeats what hangs, and not what is merely large.
var Default = Policy{Done: 0.75, Slower: 3, AtLeast: 10 * time.Second}

// Pick gives the stragglers among the attempts of one job, those that run longest
// first. Tasks that run twice already are left out. runs are as Graph.Runs gives
// them: in plan order.
func (p Policy) Pick(runs []graph.TaskRun, stages []graph.StageView, now time.Time) []graph.TaskRun {
	if p.Done <= 0 {
		return nil
	}
	var late []graph.TaskRun
	for _, s := range stages {
		if p.looks(s) {
			late = append(late, p.ofStage(runs, s.ID, now)...)
		}
	}
	slices.SortStableFunc(late, func(a, b graph.TaskRun) int { return a.Started.Compare(b.Started) })
	return late
}

// Looks says whether there may be stragglers, so that a job's tasks need only be
// listed then.
func (p Policy) Looks(stages []graph.StageView) bool {
	return p.Done > 0 && slices.ContainsFunc(stages, p.looks)
}

// looks: enough of a stage's tasks have ended, and not all.
func (p Policy) looks(s graph.StageView) bool {
	return s.Done > 0 && s.Done < s.Tasks && float64(s.Done) >= p.Done*float64(s.Tasks)
}

func (p Policy) ofStage(runs []graph.TaskRun, stage int, now time.Time) []graph.TaskRun {
	var took []time.Duration
	var open []graph.TaskRun
	for _, r := range runs {
		switch {
		case r.Task.Stage != stage:
		case r.Twin:
			open = open[:len(open)-1] // stands right behind the attempt that it runs beside
		case !r.Done:
			open = append(open, r)
		case !r.Started.IsZero() && !r.Ended.IsZero():
			took = append(took, r.Ended.Sub(r.Started))
		}
	}
	if len(took) == 0 {
		return nil // their times went with an earlier process
	}
	slices.Sort(took)
	limit := max(p.AtLeast, time.Duration(p.Slower*float64(took[len(took)/2])))
	return slices.DeleteFunc(open, func(r graph.TaskRun) bool { return r.Started.IsZero() || now.Sub(r.Started) <= limit })
}
