package client

import (
	"strings"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

// State is the state of a job. Whether the table changed is told by
// JobStatus.Commit, never by the state alone.
type State string

// States of a job.
const (
	StateQueued    State = "queued"
	StatePlanning  State = "planning"
	StateRunning   State = "running"
	StateSucceeded State = "succeeded"
	StateFailed    State = "failed"
	StateCancelled State = "cancelled"
)

// Ended says whether the state is final.
func (s State) Ended() bool {
	return s == StateSucceeded || s == StateFailed || s == StateCancelled
}

// JobStatus is what is known of a job at one moment.
type JobStatus struct {
	ID        string
	Key       string
	Statement string
	SQL       string
	// Table is what the job writes to, by its full name; empty until that is known,
	// and for jobs that only read.
	Table string
	State State
	// Phase of a running job: "executing" or "committing".
	Phase string
	// Commit says whether the table changed.
	Commit commit.CommitState
	// Percent is below 100 until the job has ended.
	Percent float64
	// Stages are in order, the scheduler's own, "scheduler", last.
	Stages []Stage
	// Err says why a job failed; nil otherwise.
	Err error
	// Report is the result of a job that writes, once its commit has an outcome.
	Report *commit.Report
	// Executors says how many tasks each executor did.
	Executors []ExecutorTasks
	Tasks     int
	// Rows is the number of rows of a SELECT.
	Rows int64
	// RejectedRows counts rows left out under the reject limit; Rejects shows
	// the first ten as "file:line: why".
	RejectedRows int64
	Rejects      []string
	// WaitsFor is what the job waits for, in words: a commit that is under way, which
	// only Job.Status tells, a pipelined job whose tasks don't all have a slot, or a
	// job that no executor is there for.
	WaitsFor string
	// Plan is the plan as EXPLAIN shows it.
	Plan                      string
	Submitted, Started, Ended time.Time
	// Revision grows with each change.
	Revision uint64

	proto *firnpb.JobStatus
}

// Duration is the time from submission to the end, or to now.
func (s JobStatus) Duration(now time.Time) time.Duration {
	if s.Submitted.IsZero() {
		return 0
	}
	if !s.Ended.IsZero() {
		now = s.Ended
	}
	return max(0, now.Sub(s.Submitted))
}

// settled says whether there is nothing more to wait for: the job has ended, or
// its deadline has passed while its commit isn't proven either way.
func (s JobStatus) settled() bool {
	return s.State.Ended() || s.Commit == commit.CommitUnknown
}

// Stage is one stage of a job.
type Stage struct {
	// ID is a number, or "scheduler" for the part that runs on the scheduler.
	ID          string
	State       string
	Tasks, Done int
	Attempt     int
	Rows, Bytes int64
	Files       int
	Error       string
	// Attempts and Conflicts count commit requests, of the stage "scheduler".
	Attempts       int
	Conflicts      int
	SnapshotID     string
	Started, Ended time.Time
}

// ExecutorTasks counts the tasks of one executor.
type ExecutorTasks struct {
	ID    string
	Tasks int
}

func statusOf(p *firnpb.JobStatus) (JobStatus, error) {
	s := JobStatus{
		ID: p.GetJobId(), Key: p.GetIdempotencyKey(), Statement: p.GetStatement(), SQL: p.GetSql(), Table: p.GetTable(),
		State: State(p.GetState()), Phase: p.GetPhase(), Commit: commit.CommitState(p.GetCommit()),
		Percent: p.GetPercentComplete(), Err: wire.ErrorFromProto(p.GetError()), Tasks: int(p.GetTasks()),
		Rows: p.GetRows(), RejectedRows: p.GetRejectedRows(), Rejects: p.GetRejects(), Plan: p.GetPlanText(),
		Submitted: unixMS(p.GetSubmittedUnixMs()), Started: unixMS(p.GetStartedUnixMs()), Ended: unixMS(p.GetEndedUnixMs()),
		Revision: p.GetRevision(), WaitsFor: p.GetWaitsFor(), proto: p,
	}
	for _, st := range p.GetStages() {
		s.Stages = append(s.Stages, stageOf(st))
	}
	for _, e := range p.GetExecutors() {
		s.Executors = append(s.Executors, ExecutorTasks{ID: e.GetExecutorId(), Tasks: int(e.GetTasks())})
	}
	var err error
	s.Report, err = reportOf(p)
	return s, err
}

func stageOf(p *firnpb.StageStatus) Stage {
	return Stage{
		ID: p.GetId(), State: p.GetState(), Tasks: int(p.GetTasks()), Done: int(p.GetTasksDone()),
		Attempt: int(p.GetAttempt()), Rows: p.GetRows(), Bytes: p.GetBytes(), Files: int(p.GetFiles()),
		Error: p.GetError(), Attempts: int(p.GetAttempts()), Conflicts: int(p.GetConflicts()),
		SnapshotID: p.GetSnapshotId(), Started: unixMS(p.GetStartedUnixMs()), Ended: unixMS(p.GetEndedUnixMs()),
	}
}

// reportOf decodes the report of a job that committed or tried to. The inline
// result is the job's result proper; the message beside it says the same for a
// job whose result was discarded, and whether this submission wrote anything.
func reportOf(p *firnpb.JobStatus) (*commit.Report, error) {
	side := p.GetReport()
	if side == nil {
		return nil, nil
	}
	r := &commit.Report{JobID: p.GetJobId(), Key: p.GetIdempotencyKey(), Table: tableNameOf(side.GetTable())}
	if raw := p.GetInlineResult(); len(raw) > 0 {
		decoded, err := wire.DecodeReport(raw)
		if err != nil {
			return nil, &commit.Error{Code: commit.CodeProtocol, Op: "decode result of job", Object: p.GetJobId(), Cause: err}
		}
		r = &decoded
		r.Deduplicated = r.Deduplicated || side.GetDeduplicated()
		return r, nil
	}
	r.Format, r.Operation = side.GetFormat(), commit.Operation(side.GetOperation())
	r.State = commit.CommitState(side.GetCommit())
	r.Deduplicated, r.RolledBack, r.OtherSubmission = side.GetDeduplicated(), side.GetRolledBack(), side.GetOtherSubmission()
	r.Rows, r.Files, r.Bytes, r.SnapshotID = side.GetRows(), side.GetFiles(), side.GetBytes(), side.GetSnapshotId()
	r.Attempts, r.Conflicts = int(side.GetAttempts()), int(side.GetConflicts())
	r.CommittedAt = unixMS(side.GetCommittedUnixMs())
	return r, nil
}

// tableNameOf reads a name as TableName.String writes it.
func tableNameOf(s string) commit.TableName {
	if catalog, path, ok := strings.Cut(s, ".`"); ok {
		return commit.TableName{Catalog: catalog, Name: strings.TrimSuffix(path, "`")}
	}
	parts := strings.Split(s, ".")
	if len(parts) < 2 {
		return commit.TableName{Name: s}
	}
	return commit.TableName{Catalog: parts[0], Namespace: parts[1 : len(parts)-1], Name: parts[len(parts)-1]}
}

func unixMS(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
