package graph

import (
	"time"

	"github.com/firn-project/firn/scheduler/graph/adaptive"
)

// Spec is a planned job, as the graph sees it: stages and numbers, no plan.
type Spec struct {
	JobID  string
	Stages []StageSpec
	// HasRoot: the job's last operator runs on the scheduler.
	HasRoot bool
	// Pipelined: a task runs as soon as those that it reads do, and reads what they
	// have written so far. An adaptive stage waits for the end of what it reads
	// all the same. Such a job has no root.
	Pipelined bool
	// MaxTaskFailures is how often one task may fail before the job does (4),
	// MaxStageAttempts how often a stage may be rolled back (4).
	MaxTaskFailures, MaxStageAttempts int
	// RejectLimit is how many rows the whole job may leave out; nil for no
	// limit beyond those that tasks keep themselves.
	RejectLimit *int64
}

// StageSpec is one stage. The last one of a Spec is the final stage.
type StageSpec struct {
	ID    int
	Tasks int
	// Inputs are the ids of the stages that it reads. Task n reads output
	// partition n of every task of each input stage, or everything when
	// ReadsAll is set.
	Inputs   []int
	ReadsAll bool
	// Outputs is the number of shuffle partitions each task writes.
	Outputs int
	// Deterministic: a task run again gives the same rows in the same
	// partitions. A stage that isn't reruns whole.
	Deterministic bool
	// Whole: readers wait for the end of the stage, also in a pipelined job.
	Whole bool
	// Once: what its tasks read may not be read twice at the same time, so that none
	// has a twin.
	Once bool
	// Manifests: the output is file manifests.
	Manifests bool
	// Adapt, if it isn't nil, has the stage cut into tasks when what it reads is
	// there; Tasks is only how many there would be otherwise. Such a stage has one
	// input, and reads it task by task. A pipelined job has none.
	Adapt *adaptive.Policy
}

// State is a job's state.
type State string

// States of a job.
const (
	Queued    State = "queued"
	Planning  State = "planning"
	Running   State = "running"
	Succeeded State = "succeeded"
	JobFailed State = "failed"
	Cancelled State = "cancelled"
)

// StageState is a stage's state.
type StageState string

// States of a stage.
const (
	StageUnresolved StageState = "unresolved"
	StageResolved   StageState = "resolved"
	StageRunning    StageState = "running"
	StageSucceeded  StageState = "succeeded"
	StageFailed     StageState = "failed"
)

// StageView is what can be shown of a stage.
type StageView struct {
	ID          int
	State       StageState
	Attempt     int
	Tasks, Done int
	Rows, Bytes int64
	Files       int
	Started     time.Time
	Ended       time.Time
	// Layout is how an adaptive stage was cut into tasks; nil before that.
	Layout *adaptive.Layout
}
