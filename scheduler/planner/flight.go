package planner

import (
	"slices"

	"github.com/firn-project/firn/plan"
)

// FlightSources are the sources of a plan that engines' queries are, by their index
// among the query's sources.
func FlightSources(top plan.Node) map[int]plan.Source {
	out := map[int]plan.Source{}
	for n := top; n != nil; n = input(n) {
		if q, ok := n.(*plan.Query); ok {
			for i, s := range q.Sources {
				if s.Kind == plan.SourceFlightSQL && s.Flight != nil {
					out[i] = s
				}
			}
		}
	}
	return out
}

// FlightSources are those of the job's plan: a plan has one query, which isn't in the
// first stage if that stands for a cached frame.
func (j *Job) FlightSources() map[int]plan.Source {
	for i := range j.Stages {
		if found := FlightSources(j.Stages[i].Top); len(found) > 0 {
			return found
		}
	}
	return nil
}

func readsFlight(q *plan.Query) bool { return len(FlightSources(q)) > 0 }

// Reread is a plan with other endpoints of its engines' queries: renewed ones, or
// those of another execution. The partitions stay as many as they were, since the
// tasks do: each gets its share of the endpoints, in the engine's order.
func Reread(top plan.Node, sources map[int]plan.Source) plan.Node {
	return plan.Rewrite(top, func(n plan.Node) {
		q, ok := n.(*plan.Query)
		if !ok {
			return
		}
		q.Sources = slices.Clone(q.Sources)
		for i, s := range sources {
			if i < 0 || i >= len(q.Sources) {
				continue
			}
			q.Sources[i].Files, q.Sources[i].Flight = s.Files, s.Flight
			if q.Parallel && q.Partitioned == i && len(q.Partitions) > 0 {
				q.Partitions = share(s.Files, len(q.Partitions))
			}
		}
	})
}

// share divides files among tasks, in their order.
func share(files []plan.SourceFile, tasks int) [][]plan.SourceFile {
	out := make([][]plan.SourceFile, tasks)
	for i := range out {
		out[i] = files[i*len(files)/tasks : (i+1)*len(files)/tasks]
	}
	return out
}

// Reread is the job with other endpoints of its engines' queries; see the function of
// the same name.
func (j *Job) Reread(sources map[int]plan.Source) *Job {
	own := *j
	own.Stages = slices.Clone(j.Stages)
	for i := range own.Stages {
		if own.Stages[i].Top != nil { // a cached frame has none
			own.Stages[i].Top = Reread(own.Stages[i].Top, sources)
		}
	}
	return &own
}
