package graph

import (
	"github.com/firn-project/firn/commit"
)

// Event is something that happened to a job.
type Event interface{ isEvent() }

// TaskID names a task of a job.
type TaskID struct {
	Stage int
	Task  int
}

// Output is one shuffle partition that an attempt wrote.
type Output struct {
	Partition   int
	Rows, Bytes int64
}

// Start begins a planned job.
type Start struct{}

// TaskLaunched says that the dispatcher gave the task to an executor under a fresh
// attempt id.
type TaskLaunched struct {
	Task         TaskID
	StageAttempt int
	Attempt      string
	Executor     string
	// Twin: it runs beside an attempt that goes on, see Graph.Twin.
	Twin bool
}

// TaskSucceeded says that an executor reports the attempt's output.
type TaskSucceeded struct {
	Task         TaskID
	StageAttempt int
	Attempt      string
	Executor     string
	Outputs      []Output
	// Manifest is a copy of a small file manifest (IPC stream), or nil.
	Manifest []byte
	Rows     int64
	Bytes    int64
	Files    int
	Rejected int64
	Rejects  []string
}

// RowsReady says that an attempt of a pipelined job has written rows that can be
// read.
type RowsReady struct {
	Task         TaskID
	StageAttempt int
	Attempt      string
	Executor     string
}

// FailureClass sorts failures by what the graph does next.
type FailureClass string

// Classes of failures.
const (
	Retryable    FailureClass = "retryable"
	NotRetryable FailureClass = "not_retryable"
	CancelledTry FailureClass = "cancelled"
)

// LostInput says which accepted output a shuffle read couldn't get.
type LostInput struct {
	Task     TaskID
	Attempt  string
	Executor string
	// Unreachable: the executor couldn't be reached, so that nothing of the job that
	// it holds can be read.
	Unreachable bool
}

// TaskFailed says that the attempt ended without output.
type TaskFailed struct {
	Task         TaskID
	StageAttempt int
	Attempt      string
	Executor     string
	Class        FailureClass
	Err          error
	Lost         *LostInput
	// SourceLost: what the stage reads of somebody else's query is gone; see
	// RunSource.
	SourceLost bool
	// Broke is set when a stream of somebody else's query broke off.
	Broke *SourceBreak
}

// ExecutorLost says that the executor is gone and so is its shuffle output.
type ExecutorLost struct{ Executor string }

// OutputsLost says that accepted outputs can't be read any more, as when somebody else
// has found that out. Those that aren't accepted now don't matter.
type OutputsLost struct{ Lost []LostInput }

// RootStarted says that the event loop is about to run the root. The answer tells
// whether it may (see StartRoot, SkipRoot).
type RootStarted struct{ Epoch int }

// RootLostInput says that the root couldn't read an accepted output, before it sealed
// anything. The lost tasks rerun and the root starts again.
type RootLostInput struct {
	Epoch int
	Lost  []LostInput
	// Err is why; nil when that isn't known.
	Err error
}

// RootSealed says that the root has read everything and is about to fix what it
// commits. From SealRoot on a lost executor changes nothing. The answer is
// SealRoot, or StopRoot for a root of an earlier epoch.
type RootSealed struct{ Epoch int }

// RootInFlight says that the root is about to send a commit: the point of no return.
// The graph answers with ProceedRoot or, when a cancel was first, StopRoot.
type RootInFlight struct{ Epoch int }

// RootFinished says that the root ended. With Commit unknown the job goes on
// running, and a second one tells what was found out.
type RootFinished struct {
	Epoch int
	// Result is the inline result, an Arrow IPC stream.
	Result []byte
	// Commit is what is known of the table, whatever the root's own fate.
	Commit commit.CommitState
	Err    error
}

// CancelRequested says that a client wants the job to end.
type CancelRequested struct{}

// ResultExpired says that nobody may fetch the result of a job without root any more.
type ResultExpired struct{}

// Failed says that planning or dispatch failed outside of any task.
type Failed struct{ Err error }

func (Start) isEvent()           {}
func (TaskLaunched) isEvent()    {}
func (TaskSucceeded) isEvent()   {}
func (RowsReady) isEvent()       {}
func (TaskFailed) isEvent()      {}
func (ExecutorLost) isEvent()    {}
func (OutputsLost) isEvent()     {}
func (RootStarted) isEvent()     {}
func (RootLostInput) isEvent()   {}
func (RootSealed) isEvent()      {}
func (RootInFlight) isEvent()    {}
func (RootFinished) isEvent()    {}
func (CancelRequested) isEvent() {}
func (ResultExpired) isEvent()   {}
func (Failed) isEvent()          {}
