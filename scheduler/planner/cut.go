package planner

import (
	"fmt"

	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph/adaptive"
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
	// once: see Stage.
	once bool
	// how is the exchange that it reads; empty for a part that reads none.
	how plan.ExchangeKind
	// frames: what it reads are cached frames. readsAll: all of each.
	frames, readsAll bool
}

// arrowOfFile is how many bytes of rows in an exchange become one byte of a data
// file, about: what files come to is known only when they're written.
const arrowOfFile = 4

// Sizes of tasks, in bytes of an exchange. A task that writes makes at least one
// file, so it isn't cut smaller than a fraction of what its target takes.
const (
	smallTask      = 1 << 20
	defaultTarget  = 512 << 20
	leastOfTarget  = 4
	tasksOfOneSlot = 2
)

// policy says how the part is cut into tasks when what it reads is there; nil for
// one whose tasks are fixed. Operators that look at more than one row at a time,
// such as a limit, need the partitions as they are.
func (j *Job) policy(p part) *adaptive.Policy {
	slots := j.slots
	if p.frames && !p.readsAll {
		// The sizes of a frame are known anyway.
		slots = max(j.askSlots(), 1)
	}
	if slots == 0 || p.how == "" || j.Mode == plan.ModePipelined {
		return nil
	}
	file := int64(defaultTarget * arrowOfFile)
	writes := false
	for n := p.top; n != nil; n = input(n) {
		switch n := n.(type) {
		case *plan.Write:
			if writes = true; n.Context.TargetFileSize > 0 {
				file = min(n.Context.TargetFileSize, 1<<40) * arrowOfFile
			}
		case *plan.Exchange, *plan.ShuffleRead:
		case *plan.Query:
			if !n.Parallel {
				return nil
			}
		default:
			return nil
		}
	}
	a := &adaptive.Policy{Tasks: slots * tasksOfOneSlot, MinTask: smallTask, MaxTask: file, KeepOne: !writes}
	if writes {
		a.MinSplit = file / leastOfTarget
	}
	if writes && p.how != plan.ExchangeHash {
		// Rows may go to any file. After a hash exchange each table partition has
		// its own files, however few tasks write them.
		a.MinTask, a.Tasks = file/leastOfTarget, slots
	}
	return a
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
		p := part{top: n, tasks: tasks, deterministic: n.Deterministic && n.Parallel, once: readsFlight(n)}
		j.readFrames(&p, n)
		return p, nil
	case *plan.External:
		return part{top: n, tasks: n.Tasks, manifests: true}, nil
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
		inputs: []int{id}, manifests: p.manifests, how: own.How,
		// A shuffle read takes the outputs in plan order. Those of a stage that isn't
		// deterministic come again only with all that was made of them; but one that
		// is so because it's read as a whole may give others another time.
		deterministic: p.deterministic || !j.Stages[id].Deterministic,
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
// is read as a whole or not at all; in a pipelined job its first rows are read before
// it is known whether there will be others.
func (j *Job) close(p part, outputs int) int {
	id := len(j.Stages)
	s := Stage{
		ID: id, Top: p.top, Tasks: p.tasks, Inputs: p.inputs, ReadsAll: p.readsAll,
		Outputs: outputs, Deterministic: p.deterministic || outputs == 1 && j.Mode != plan.ModePipelined,
		Manifests: p.manifests, Once: p.once,
	}
	if s.Adapt = j.policy(p); s.Adapt != nil {
		// What it reads may be read in parts.
		in := &j.Stages[p.inputs[0]]
		in.Deterministic = in.rowsRepeat
	}
	s.rowsRepeat = p.deterministic
	j.Stages = append(j.Stages, s)
	return id
}

// readFrames makes a stage of each cached frame that a query reads, whose tasks are
// the frame's pieces, so that a lost piece is treated as any lost output is. A query
// that handles each row by itself is cut by the sizes of the pieces; any other one
// reads all of them.
func (j *Job) readFrames(p *part, q *plan.Query) {
	for _, src := range q.Sources {
		f := src.Frame
		if f == nil {
			continue
		}
		id := len(j.Stages)
		j.Stages = append(j.Stages, Stage{ID: id, Tasks: f.Pieces, Outputs: 1, Frame: f.ID, Deterministic: f.Repeats, rowsRepeat: f.Repeats})
		p.inputs, p.frames = append(p.inputs, id), true
	}
	switch {
	case !p.frames:
	case q.Parallel && j.Mode != plan.ModePipelined: // which has no adaptive stage
		p.how = plan.ExchangeRoundRobin
	default:
		p.readsAll = true
	}
}

// Repeats says whether a task of the final stage that runs again gives the same rows
// in the same order.
func (j *Job) Repeats() bool {
	for i := range j.Stages {
		if !j.Stages[i].rowsRepeat {
			return false
		}
	}
	return true
}
