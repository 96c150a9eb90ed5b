package planner

import (
	"fmt"
	"slices"

	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/graph/adaptive"
)

// Job is a planned job: its stages in the order in which they run, the final
// one last, and the root that was split off. It is immutable.
type Job struct {
	ID   string
	Mode plan.Mode
	// Root is the scheduler root without its input, or nil.
	Root   plan.Node
	Stages []Stage
	// ResultColumns are those of the rows that the final stage gives; nil for a
	// job with a root.
	ResultColumns []plan.Column

	// slots is what adaptive stages are cut for, and what a pipelined job's tasks are
	// held against; 0 for static planning. askSlots gives the number also then.
	slots                             int
	askSlots                          func() int
	maxTaskFailures, maxStageAttempts int
	rejectLimit                       int64
}

// Stage is what runs between two exchanges.
type Stage struct {
	// ID is the stage's index in the job.
	ID int
	// Top is the stage's topmost operator: a *plan.Exchange, except for the
	// final stage.
	Top plan.Node
	// Tasks is the number of tasks: input partitions.
	Tasks int
	// Inputs are the stages that it reads. Task n reads output partition n of every
	// task there or, when ReadsAll is set, the only task reads everything.
	Inputs   []int
	ReadsAll bool
	// Frame is the cached frame that the stage stands for, with a task for each of
	// its pieces; empty for a stage that runs. Nothing of it is given to executors:
	// its tasks succeed with the pieces that there are.
	Frame string
	// Outputs is the number of shuffle partitions that each task writes.
	Outputs int
	// Deterministic: a task that runs again gives the same rows in the same
	// partitions.
	Deterministic bool
	// Once: what a task reads may be gone once it was read.
	Once bool
	// Manifests: the output is file manifests, not rows.
	Manifests bool
	// Adapt, if it isn't nil, says how the stage is cut into tasks once what it
	// reads is there. Tasks is how many there would be otherwise.
	Adapt *adaptive.Policy

	// rowsRepeat: a task that runs again gives the same rows in the same order.
	rowsRepeat bool
}

// Final is the last stage: the one that the root or the client reads.
func (j *Job) Final() *Stage { return &j.Stages[len(j.Stages)-1] }

// Commit is the root as the commit operator, or nil.
func (j *Job) Commit() *plan.Commit {
	c, _ := j.Root.(*plan.Commit)
	return c
}

// WithTasks is the job of an external write whose attempts are known: its only stage
// has that many tasks.
func (j *Job) WithTasks(n int) *Job {
	own := *j
	own.Stages = slices.Clone(j.Stages)
	own.Stages[len(own.Stages)-1].Tasks = n
	return &own
}

// Spec is the job as the graph sees it.
func (j *Job) Spec() graph.Spec {
	spec := graph.Spec{
		JobID: j.ID, HasRoot: j.Root != nil, Pipelined: j.Mode == plan.ModePipelined,
		MaxTaskFailures: j.maxTaskFailures, MaxStageAttempts: j.maxStageAttempts,
		RejectLimit: &j.rejectLimit,
	}
	for i := range j.Stages {
		s := &j.Stages[i]
		spec.Stages = append(spec.Stages, graph.StageSpec{
			ID: s.ID, Tasks: s.Tasks, Inputs: s.Inputs, ReadsAll: s.ReadsAll,
			Outputs: s.Outputs, Deterministic: s.Deterministic, Once: s.Once, Manifests: s.Manifests, Adapt: s.Adapt, Whole: s.Frame != "",
		})
	}
	return spec
}

// Fragment encodes what one task runs: the stage's operators with the query
// narrowed to the task's slice, or with the shuffle read filled with inputs, in
// plan order.
func (j *Job) Fragment(stage, task int, inputs []plan.ShuffleLocation) ([]byte, error) {
	if stage < 0 || stage >= len(j.Stages) {
		return nil, fmt.Errorf("job %s has no stage %d", j.ID, stage)
	}
	s := &j.Stages[stage]
	if s.Frame != "" {
		return nil, fmt.Errorf("stage %d of job %s is the cached frame %s and doesn't run", stage, j.ID, s.Frame)
	}
	// How many tasks a stage has that reads another is the graph's to say.
	if task < 0 || task >= s.Tasks && len(s.Inputs) == 0 {
		return nil, fmt.Errorf("stage %d of job %s has no task %d", stage, j.ID, task)
	}
	n, err := narrow(s.Top, task, inputs)
	if err != nil {
		return nil, fmt.Errorf("stage %d of job %s: %w", stage, j.ID, err)
	}
	return plan.Encode(n)
}

// narrow copies the operators from the top to the leaf, so that the plan that
// the job keeps stays as it is.
func narrow(top plan.Node, task int, inputs []plan.ShuffleLocation) (plan.Node, error) {
	var err error
	n := plan.Rewrite(top, func(n plan.Node) {
		switch n := n.(type) {
		case *plan.Query:
			if n.Parallel && len(n.Partitions) > 0 {
				slice := n.Partitions[task]
				n.Partitions = [][]plan.SourceFile{slice}
				// The task reads its slice of the partitioned source; the list of
				// all files would only make its message large.
				n.Sources = slices.Clone(n.Sources)
				n.Sources[n.Partitioned].Files = slice
			}
			fillFrames(n, inputs)
		case *plan.ShuffleRead:
			n.Locations = inputs
		case *plan.Commit:
			err = fmt.Errorf("a %s can't run on an executor", n.Kind())
		}
	})
	return n, err
}

// fillFrames says where a task reads the cached frames of its query.
func fillFrames(q *plan.Query, inputs []plan.ShuffleLocation) {
	for i := range q.Sources {
		f := q.Sources[i].Frame
		if f == nil {
			continue
		}
		own := *f
		own.Locations = nil
		for _, l := range inputs {
			if l.Frame == f.ID {
				own.Locations = append(own.Locations, l)
			}
		}
		q.Sources = slices.Clone(q.Sources)
		q.Sources[i].Frame = &own
	}
}
