package planner

import (
	"fmt"

	"github.com/firn-project/firn/plan"
)

// part is the piece of a plan above the last cut, while stages are cut from
// the leaf upwards.
type part struct {
	top plan.Node
	// tasks is the number of partitions in which it runs.
	tasks int
	// inputs are those of the stage to be.
	inputs []int
	// manifests: it gives file manifests, not rows.
	manifests bool
	// deterministic: a task that runs again gives the same rows in the same
	// order.
	deterministic bool
}

// cut makes the job's stages from a plan without a root.
func (j *Job) cut(top plan.Node) error {
	final, err := j.walk(top)
	if err != nil {
		return err
	}
	j.close(final, 1)
	return nil
}

// walk returns the part that n is the top of, having closed the stages below.
func (j *Job) walk(n plan.Node) (part, error) {
	switch n := n.(type) {
	case *plan.Query:
		j.rejectLimit = n.RejectLimit
		tasks := 1
		if n.Parallel && len(n.Partitions) > 0 {
			tasks = len(n.Partitions)
		}
		// Rows that come out of a join, an aggregate or a limit have no order to
		// rely on, so only a row-wise query gives each output partition the same
		// rows each time.
		return part{top: n, tasks: tasks, deterministic: n.Deterministic && n.Parallel}, nil
	case *plan.Exchange:
		p, err := j.walk(n.Input)
		if err != nil {
			return p, err
		}
		return j.exchange(p, n), nil
	case *plan.Coalesce:
		p, err := j.walk(n.Input)
		if err != nil {
			return p, err
		}
		if p.tasks > 1 {
			p = j.exchange(p, &plan.Exchange{How: plan.ExchangeSingle, Partitions: 1})
		}
		return p.under(n), nil
	case *plan.Write:
		p, err := j.walk(n.Input)
		if err != nil {
			return p, err
		}
		p.manifests = true
		return p.under(n), nil
	default:
		return part{}, fmt.Errorf("planner: job %s: a %s can't be part of a stage", j.ID, n.Kind())
	}
}

// exchange closes a stage below ex and starts the next one, which reads it.
func (j *Job) exchange(p part, ex *plan.Exchange) part {
	columns := columnsOf(p.top)
	own := *ex
	own.Input = p.top
	p.top = &own
	id := j.close(p, own.Partitions)
	return part{
		top: &plan.ShuffleRead{Stage: id, Columns: columns}, tasks: own.Partitions,
		inputs: []int{id}, manifests: p.manifests,
		// A shuffle read takes the accepted outputs in plan order.
		deterministic: true,
	}
}

// under puts n on top of the part.
func (p part) under(n plan.Node) part {
	p.top = plan.WithInput(n, p.top)
	return p
}

// close appends the part as a stage and returns its id.
//
// What makes a rerun of single tasks unsafe is a stage whose tasks spread rows
// over several partitions differently each time: one reader would have the
// first attempt's rows, another the second's. With one output partition a task
// is read as a whole or not at all.
func (j *Job) close(p part, outputs int) int {
	id := len(j.Stages)
	j.Stages = append(j.Stages, Stage{
		ID: id, Top: p.top, Tasks: p.tasks, Inputs: p.inputs,
		Outputs: outputs, Deterministic: p.deterministic || outputs == 1,
		Manifests: p.manifests,
	})
	return id
}
