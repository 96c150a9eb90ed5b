package graph

import (
	"time"

	"github.com/firn-project/firn/scheduler/graph/adaptive"
)

// Action is what the event loop must do next.
type Action interface{ isAction() }

// Accepted is one accepted output: what a later stage, the root or the client
// reads.
type Accepted struct {
	Task     TaskID
	Attempt  string
	Executor string
	Output   Output
	// Manifest is the copy that came with the success, or nil.
	Manifest []byte
	// First and End limit what a task reads to the rows First ≤ n < End; both 0
	// for all of them.
	First, End int64
	// Running: the attempt still writes it, in a pipelined job. Rows and bytes
	// aren't known then.
	Running bool
}

// RunTask asks to queue the task for dispatch. Inputs are the accepted outputs that it
// reads, in plan order.
type RunTask struct {
	Task         TaskID
	StageAttempt int
	Inputs       []Accepted
	// Failed are the executors on which it failed, Since is when it was queued.
	Failed []string
	Since  time.Time
	// Broke are the streams that broke off before, the earliest first.
	Broke []SourceBreak
}

// CancelTask asks to tell the executor to stop the attempt (or drop it from the
// queue, when Attempt is empty).
type CancelTask struct {
	Task     TaskID
	Attempt  string
	Executor string
}

// RunSchedulerRoot asks to run the root over the final stage's accepted outputs. It
// is emitted once for each epoch; a new epoch exists only after RootLostInput.
type RunSchedulerRoot struct {
	Epoch  int
	Inputs []Accepted
}

// StartRoot answers RootStarted: go on.
type StartRoot struct{ Epoch int }

// SkipRoot answers RootStarted: the job isn't running any more.
type SkipRoot struct{ Epoch int }

// SealRoot answers RootSealed: go on.
type SealRoot struct{ Epoch int }

// KeepOutput says that the attempt was accepted: it must be on record before its
// executor is told so.
type KeepOutput struct{ Attempt string }

// DropOutput takes an acceptance back.
type DropOutput struct{ Attempt string }

// KeepLayout says how an adaptive stage is cut into tasks from now on; a nil Layout
// takes that back. It must be on record before a task of the stage is started, and
// with the acceptances that came before it.
type KeepLayout struct {
	Stage  int
	Layout *adaptive.Layout
}

// ProceedRoot answers RootInFlight: send; from now on no cancel wins.
type ProceedRoot struct{ Epoch int }

// StopRoot answers RootInFlight, or ends a root that has not got that far.
type StopRoot struct{ Epoch int }

// JobEnded says that the job is in a final state; tell who waits.
type JobEnded struct{}

// FreeJobData asks to remove shuffle data of the stages named on all executors; of
// the whole job when Stages is nil. It is emitted at most once for any stage.
type FreeJobData struct{ Stages []int }

// CancelAnswer answers CancelRequested.
type CancelAnswer struct{ Answer string }

// Answers to a cancel request.
const (
	AnswerCancelled      = "cancelled"
	AnswerCommitInFlight = "commit_in_flight"
	AnswerAlreadyEnded   = "already_ended"
)

func (RunTask) isAction()          {}
func (CancelTask) isAction()       {}
func (RunSchedulerRoot) isAction() {}
func (StartRoot) isAction()        {}
func (SkipRoot) isAction()         {}
func (SealRoot) isAction()         {}
func (KeepOutput) isAction()       {}
func (DropOutput) isAction()       {}
func (KeepLayout) isAction()       {}
func (ProceedRoot) isAction()      {}
func (StopRoot) isAction()         {}
func (JobEnded) isAction()         {}
func (FreeJobData) isAction()      {}
func (CancelAnswer) isAction()     {}
