package eventlog

import (
	"time"

	"github.com/firn-project/firn/scheduler/jobview"
)

// Kinds of events.
const (
	// JobSubmitted and JobEnded carry the job as it is then. A job that was
	// cancelled while its root ran ends once more when it is known what became of
	// the table.
	JobSubmitted = "job_submitted"
	JobEnded     = "job_ended"
	// JobChanged has a job's new state, phase and commit, StageChanged a stage's
	// new state.
	JobChanged   = "job_changed"
	StageChanged = "stage_changed"
	// TaskStarted: an executor is given the attempt. TaskEnded has its outcome.
	TaskStarted = "task_started"
	TaskEnded   = "task_ended"
)

// Event is one line.
type Event struct {
	Time time.Time `json:"time"`
	Job  string    `json:"job_id"`
	Kind string    `json:"event"`
	// State is the job's, the stage's or the attempt's.
	State  string `json:"state,omitempty"`
	Phase  string `json:"phase,omitempty"`
	Commit string `json:"commit,omitempty"`
	Stage  string `json:"stage_id,omitempty"`
	// Try is the stage's attempt.
	Try      int    `json:"stage_attempt,omitempty"`
	Task     *int   `json:"task,omitempty"`
	Attempt  string `json:"attempt_id,omitempty"`
	Executor string `json:"executor_id,omitempty"`
	Twin     bool   `json:"twin,omitempty"`
	Cause    string `json:"cause,omitempty"`
	// View is the job as other interfaces show it at that time.
	View *jobview.Job `json:"job,omitempty"`
}
