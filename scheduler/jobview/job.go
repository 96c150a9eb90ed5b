package jobview

import (
	"time"

	"github.com/firn-project/firn/internal/wire/firnpb"
)

// Job is one job.
type Job struct {
	ID        string  `json:"job_id"`
	Key       string  `json:"idempotency_key"`
	Statement string  `json:"statement" doc:"kind of statement, such as INSERT"`
	SQL       string  `json:"sql,omitempty"`
	Table     string  `json:"table,omitempty" doc:"what the job writes to, by its full name, once that is known"`
	State     string  `json:"state" enum:"queued,planning,running,succeeded,failed,cancelled"`
	Phase     string  `json:"phase,omitempty" doc:"of a running job: planning, executing or committing"`
	Commit    string  `json:"commit" doc:"whether the table changed: none, preparing, in_flight, committed, refused or unknown, whatever the state"`
	Percent   float64 `json:"percent_complete" doc:"100 only when the job has succeeded"`
	Submitted string  `json:"submitted,omitempty" format:"date-time"`
	Started   string  `json:"started,omitempty" format:"date-time"`
	Ended     string  `json:"ended,omitempty" format:"date-time"`
	Tasks     uint32  `json:"tasks"`
	Rows      int64   `json:"rows"`
	Rejected  int64   `json:"rejected_rows"`
	// Rejects are the first reasons.
	Rejects   []string       `json:"rejects,omitempty"`
	Stages    []Stage        `json:"stages" doc:"in plan order, the scheduler's own last"`
	Executors []ExecutorPart `json:"executors,omitempty"`
	Report    *Report        `json:"report,omitempty"`
	Error     *Error         `json:"error,omitempty"`
	Plan      string         `json:"plan,omitempty" doc:"as EXPLAIN shows it, the root on top"`
	WaitsFor  string         `json:"waits_for,omitempty"`
	Revision  uint64         `json:"revision" doc:"grows with each change"`
}

// Stage is one stage of a job. The last one of a job that commits runs on the
// scheduler, has the id "scheduler" and no tasks.
type Stage struct {
	ID        string `json:"stage_id" doc:"a number, or scheduler"`
	State     string `json:"state" enum:"unresolved,resolved,running,succeeded,failed"`
	Attempt   uint32 `json:"attempt"`
	TaskCount uint32 `json:"task_count"`
	TasksDone uint32 `json:"tasks_done"`
	Tasks     []Task `json:"tasks" doc:"attempts that run or were accepted; kept for some minutes after the job's end"`
	Rows      int64  `json:"rows"`
	Bytes     int64  `json:"bytes"`
	Files     uint32 `json:"files"`
	Started   string `json:"started,omitempty" format:"date-time"`
	Ended     string `json:"ended,omitempty" format:"date-time"`
	Error     string `json:"error,omitempty"`
	// These are the commit's, of the scheduler's stage.
	Attempts   uint32 `json:"attempts,omitempty" doc:"requests that were sent to the catalog"`
	Conflicts  uint32 `json:"conflicts,omitempty"`
	SnapshotID string `json:"snapshot_id,omitempty"`
}

// Task is one attempt of a task.
type Task struct {
	Task     int    `json:"task"`
	Attempt  string `json:"attempt_id"`
	Executor string `json:"executor_id"`
	State    string `json:"state" enum:"running,succeeded"`
	Twin     bool   `json:"twin,omitempty" doc:"a second attempt beside one that takes long"`
	Started  string `json:"started,omitempty" format:"date-time"`
	Ended    string `json:"ended,omitempty" format:"date-time"`
}

// ExecutorPart is an executor's part of a job.
type ExecutorPart struct {
	ID    string `json:"executor_id"`
	Tasks uint32 `json:"tasks"`
}

// Report is what became of a job's table.
type Report struct {
	Table           string `json:"table"`
	Format          string `json:"format,omitempty"`
	Operation       string `json:"operation,omitempty"`
	Commit          string `json:"commit"`
	Deduplicated    bool   `json:"deduplicated,omitempty" doc:"an earlier submission under the same key did it"`
	RolledBack      bool   `json:"rolled_back,omitempty" doc:"it landed, and isn't in the table's history any more"`
	OtherSubmission bool   `json:"other_submission,omitempty" doc:"another submission of the key landed"`
	Rows            int64  `json:"rows"`
	Files           int64  `json:"files"`
	Bytes           int64  `json:"bytes"`
	SnapshotID      string `json:"snapshot_id,omitempty"`
	Attempts        uint32 `json:"attempts"`
	Conflicts       uint32 `json:"conflicts"`
	Committed       string `json:"committed,omitempty" format:"date-time"`
}

// Error is why a job failed, or why its outcome isn't known.
type Error struct {
	Code   string `json:"code,omitempty"`
	Op     string `json:"op,omitempty"`
	Object string `json:"object,omitempty"`
	Cause  string `json:"cause,omitempty"`
	Tried  string `json:"tried,omitempty"`
	Hint   string `json:"hint,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// JobOf shows a status. Tasks of stages are left empty, see WithTasks.
func JobOf(s *firnpb.JobStatus) Job {
	j := Job{
		ID: s.GetJobId(), Key: s.GetIdempotencyKey(), Statement: s.GetStatement(), SQL: s.GetSql(), Table: s.GetTable(),
		State: s.GetState(), Phase: s.GetPhase(), Commit: s.GetCommit(), Percent: s.GetPercentComplete(),
		Submitted: Time(s.GetSubmittedUnixMs()), Started: Time(s.GetStartedUnixMs()), Ended: Time(s.GetEndedUnixMs()),
		Tasks: s.GetTasks(), Rows: s.GetRows(), Rejected: s.GetRejectedRows(), Rejects: s.GetRejects(), Stages: []Stage{},
		Plan: s.GetPlanText(), WaitsFor: s.GetWaitsFor(), Revision: s.GetRevision(),
	}
	for _, st := range s.GetStages() {
		j.Stages = append(j.Stages, Stage{
			ID: st.GetId(), State: st.GetState(), Attempt: st.GetAttempt(), TaskCount: st.GetTasks(), TasksDone: st.GetTasksDone(), Tasks: []Task{},
			Rows: st.GetRows(), Bytes: st.GetBytes(), Files: st.GetFiles(), Started: Time(st.GetStartedUnixMs()), Ended: Time(st.GetEndedUnixMs()),
			Error: st.GetError(), Attempts: st.GetAttempts(), Conflicts: st.GetConflicts(), SnapshotID: st.GetSnapshotId(),
		})
	}
	for _, e := range s.GetExecutors() {
		j.Executors = append(j.Executors, ExecutorPart{e.GetExecutorId(), e.GetTasks()})
	}
	if r := s.GetReport(); r != nil {
		j.Report = &Report{
			Table: r.GetTable(), Format: r.GetFormat(), Operation: r.GetOperation(), Commit: r.GetCommit(), Deduplicated: r.GetDeduplicated(),
			RolledBack: r.GetRolledBack(), OtherSubmission: r.GetOtherSubmission(), Rows: r.GetRows(), Files: r.GetFiles(), Bytes: r.GetBytes(),
			SnapshotID: r.GetSnapshotId(), Attempts: r.GetAttempts(), Conflicts: r.GetConflicts(), Committed: Time(r.GetCommittedUnixMs()),
		}
	}
	if e := s.GetError(); e != nil {
		j.Error = &Error{e.GetCode(), e.GetOp(), e.GetObject(), e.GetCause(), e.GetTried(), e.GetHint(), e.GetReason()}
	}
	return j
}

// WithTasks puts attempts into the stages that they are of, by the stages' ids.
func (j *Job) WithTasks(tasks map[string][]Task) {
	for i := range j.Stages {
		if of := tasks[j.Stages[i].ID]; of != nil {
			j.Stages[i].Tasks = of
		}
	}
}

// Time is a time of the wire, in milliseconds since 1970; empty for 0.
func Time(unixMs int64) string {
	if unixMs == 0 {
		return ""
	}
	return time.UnixMilli(unixMs).UTC().Format(time.RFC3339Nano)
}
