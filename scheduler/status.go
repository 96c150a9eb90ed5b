package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/adoption"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/metrics"
)

// rootStage is the id of the stage that runs on the scheduler.
const rootStage = "scheduler"

// status is the job as clients see it. It is the one source of WatchJob, GetJob
// and the journal's record, so all three say the same.
func (s *Scheduler) status(j *job) *firnpb.JobStatus {
	if j.mode == plan.ModePipelined && j.graph != nil && !j.hasEnded() && j.graph.Listing() != j.listing {
		s.showReadable(j)
	}
	st := &firnpb.JobStatus{
		JobId: j.id, IdempotencyKey: j.key, Statement: j.statement, Sql: strings.ToValidUTF8(j.sql, "\uFFFD"),
		State: string(j.state()), Commit: string(j.commitState()), Error: wire.ErrorToProto(j.toldError()),
		SubmittedUnixMs: j.submitted.UnixMilli(), StartedUnixMs: millis(j.started), EndedUnixMs: millis(j.ended),
		PlanText: strings.ToValidUTF8(j.planText, "\uFFFD"), Revision: j.revision,
		InlineResult: j.inline, Partitions: j.partitions, ResultSchema: j.schema,
	}
	if j.target.Name != "" {
		st.Table = j.target.String()
	}
	if j.early == graph.Succeeded {
		st.PercentComplete = 100
	}
	st.WaitsFor = s.waitsFor(j)
	if j.graph != nil {
		st.Phase = j.graph.Phase()
		st.PercentComplete = float64(j.graph.Progress())
		st.Stages = s.stages(j)
		for _, stage := range st.Stages {
			st.Tasks += stage.GetTasks()
		}
		st.RejectedRows, st.Rejects = j.graph.Rejected()
		// Pieces of cached frames were made for other jobs.
		st.Executors = executorTasks(j.graph.DoneOn(func(stage int) bool { return j.planned.Stages[stage].Frame == "" }))
		if j.planned.Root == nil && len(st.Stages) > 0 {
			st.Rows = st.Stages[len(st.Stages)-1].GetRows()
		}
	}
	if j.external != nil && j.graph == nil && j.early == graph.Running {
		st.Phase = graph.PhaseExecuting
	}
	for i, r := range st.Rejects {
		st.Rejects[i] = strings.ToValidUTF8(r, "\uFFFD")
	}
	switch {
	case j.report != nil:
		st.Report = reportOf(*j.report)
		st.Rows = j.report.Rows
	case j.target.Name != "" && j.hasEnded():
		st.Report = reportOf(commit.Report{Table: j.target, Operation: commit.OperationAppend, State: j.commitState()})
	}
	return st
}

// waitsFor says what the job waits for, in words, as far as the event loop knows.
func (s *Scheduler) waitsFor(j *job) string {
	switch {
	case j.hasEnded():
	case s.lacksExecutors(j):
		return "an executor: none takes tasks now"
	case j.state() == graph.Queued && j.turn != nil && j.turn.Waits():
		return fmt.Sprintf("a place to be planned: %d statements are planned at a time, and %d wait", s.line.Places(), s.line.Waiting())
	case len(j.queue) > 0 && j.mode == plan.ModePipelined:
		return fmt.Sprintf("slots: %d tasks that could run wait for a free one, and those that read them with them", len(j.queue))
	case len(j.queue) > 0 && !s.runsTasks(j):
		return fmt.Sprintf("slots: %d tasks could run, and none of them has got a free one yet", len(j.queue))
	}
	return ""
}

// runsTasks says whether a task of the job is on an executor.
func (s *Scheduler) runsTasks(j *job) bool {
	for _, a := range s.state.attempts {
		if a.job == j {
			return true
		}
	}
	return false
}

// lacksExecutors: the job is planned or has tasks to run, and no executor takes any.
func (s *Scheduler) lacksExecutors(j *job) bool {
	if state := j.state(); state != graph.Planning && (j.graph == nil || state != graph.Running || j.graph.Phase() != graph.PhaseExecuting || len(j.queue) == 0) {
		return false
	}
	for _, e := range s.state.executors {
		if e.stays() {
			return false
		}
	}
	return true
}

// toldError is what is told as wrong with the job: what it failed of, or why its
// commit's outcome isn't known.
func (j *job) toldError() error {
	if j.err() == nil && j.commitState() == commit.CommitUnknown {
		return j.unresolved
	}
	return j.err()
}

// stages lists the stages in plan order, the scheduler's own last.
func (s *Scheduler) stages(j *job) []*firnpb.StageStatus {
	var all []*firnpb.StageStatus
	for _, v := range j.graph.Stages() {
		all = append(all, &firnpb.StageStatus{
			Id: strconv.Itoa(v.ID), State: string(v.State), Tasks: uint32(v.Tasks), TasksDone: uint32(v.Done),
			Attempt: uint32(v.Attempt), Rows: v.Rows, Bytes: v.Bytes, Files: uint32(v.Files),
			StartedUnixMs: millis(v.Started), EndedUnixMs: millis(v.Ended),
		})
	}
	v, ok := j.graph.Root()
	if !ok {
		return all
	}
	root := &firnpb.StageStatus{
		Id: rootStage, State: string(v.State), Attempt: uint32(v.Epoch),
		StartedUnixMs: millis(v.Started), EndedUnixMs: millis(v.Ended),
	}
	if r := j.report; r != nil {
		showReport(root, r)
	}
	if err := j.err(); err != nil && v.State == graph.StageFailed {
		root.Error = strings.ToValidUTF8(err.Error(), "\uFFFD")
	}
	return append(all, root)
}

// showReport puts what is known of the commit into the scheduler's stage.
func showReport(root *firnpb.StageStatus, r *commit.Report) {
	root.Rows, root.Bytes, root.Files = r.Rows, r.Bytes, uint32(r.Files)
	root.Attempts, root.Conflicts, root.SnapshotId = uint32(r.Attempts), uint32(r.Conflicts), r.SnapshotID
}

// executorTasks lists how many attempts were accepted on each executor.
func executorTasks(done map[string]int) []*firnpb.ExecutorTasks {
	var all []*firnpb.ExecutorTasks
	for id, tasks := range done {
		if id == "" { // of an external write
			continue
		}
		all = append(all, &firnpb.ExecutorTasks{ExecutorId: id, Tasks: uint32(tasks)})
	}
	slices.SortFunc(all, func(a, b *firnpb.ExecutorTasks) int { return cmp.Compare(a.GetExecutorId(), b.GetExecutorId()) })
	return all
}

func reportOf(r commit.Report) *firnpb.CommitReport {
	return &firnpb.CommitReport{
		Table: r.Table.String(), Format: r.Format, Operation: string(r.Operation), Commit: string(r.State),
		Deduplicated: r.Deduplicated, RolledBack: r.RolledBack, OtherSubmission: r.OtherSubmission,
		Rows: r.Rows, Files: r.Files, Bytes: r.Bytes, SnapshotId: r.SnapshotID,
		Attempts: uint32(r.Attempts), Conflicts: uint32(r.Conflicts), CommittedUnixMs: millis(r.CommittedAt),
	}
}

// recorded is the status that the journal kept of a job.
func recorded(r journal.Job) (*firnpb.JobStatus, error) {
	st := &firnpb.JobStatus{}
	if err := proto.Unmarshal(r.Status, st); err != nil {
		return nil, &commit.Error{Code: commit.CodeJournal, Op: "read job", Object: r.ID, Cause: err}
	}
	return st, nil
}

// now is how the scheduler is, for its metrics.
func (s *Scheduler) now(ctx context.Context) (metrics.Now, error) {
	n := metrics.Now{Queued: s.line.Waiting(), Executors: map[string]int{}, QueueLength: map[string]int64{}, Unknown: map[string]int64{}, Orphans: map[string]int64{}}
	for _, w := range s.committer.Waits() {
		n.QueueLength[w.Format]++
	}
	running, err := s.runningJobs(ctx)
	if err != nil {
		return n, err
	}
	if err := s.loop.call(ctx, func() {
		for _, j := range s.state.ready {
			n.TasksPending += len(j.queue)
		}
		for _, j := range s.state.jobs {
			if j.isOpenWrite() {
				n.OpenWrites++
			}
		}
		n.Frames, n.FrameBytes = s.state.frames.Totals()
		for _, e := range s.state.executors {
			n.Executors[s.executorStatus(e).GetState()]++
		}
	}); err != nil {
		return n, err
	}
	units, err := s.journal.Units(ctx, false)
	if err != nil {
		return n, err
	}
	for _, u := range units {
		if running[u.JobID] {
			continue
		}
		format := adoption.FormatOf(u)
		n.Orphans[format] += u.Files
		if u.State == journal.UnitSent || u.State == journal.UnitUnknown {
			n.Unknown[format]++
		}
	}
	n.Leads, err = s.journal.Leads(ctx)
	return n, err
}

// deduplicated marks the status of a committed job as the answer to a later
// submission of the same statement.
func deduplicated(st *firnpb.JobStatus) *firnpb.JobStatus {
	st = proto.CloneOf(st)
	if st.GetReport() != nil {
		st.Report.Deduplicated = true
	}
	if r, err := wire.DecodeReport(st.GetInlineResult()); err == nil {
		r.Deduplicated = true
		if raw, err := wire.EncodeReport(r); err == nil {
			st.InlineResult = raw
		}
	}
	return st
}

// interrupted is a job that ran when its scheduler's process ended, as the next
// process tells it. What is known of its commit is what the journal's unit
// says: a request that may have been sent is an outcome that isn't known. A job
// whose unit is known to be committed has succeeded; sends are that unit's.
func interrupted(r journal.Job, u journal.Unit, sends []journal.Send, now time.Time) journal.Job {
	err := &commit.Error{
		Code: commit.CodeJobInterrupted, Op: "run job", Object: r.ID,
		Cause: errors.New("the scheduler's process ended while the job ran"), Tried: "nothing was committed",
		Hint: "Run the statement again with the same idempotency key.",
	}
	r.Commit = commit.CommitNone
	switch u.State {
	case journal.UnitSent, journal.UnitUnknown:
		r.Commit = commit.CommitUnknown
		err.Code, err.Cause = commit.CodeUnknown, errors.New("the scheduler's process ended while the job's commit was in flight")
		err.Tried = "its files are kept"
		err.Hint = fmt.Sprintf("`firn commit retry %s` looks the commit up in the table and finishes it.", r.ID)
	case journal.UnitCommitted:
		r.Commit, err = commit.CommitCommitted, nil
	case journal.UnitRefused:
		r.Commit = commit.CommitRefused
	}
	r.State, r.Error, r.Ended = string(graph.Succeeded), "", now
	if err != nil {
		r.State, r.Error = string(graph.JobFailed), err.Error()
	}
	st, derr := recorded(r)
	if derr != nil {
		st = &firnpb.JobStatus{JobId: r.ID, IdempotencyKey: r.Key, Statement: r.Statement, Sql: r.SQL, SubmittedUnixMs: millis(r.Submitted)}
	}
	st.State, st.Phase, st.Commit = r.State, "", string(r.Commit)
	if err != nil {
		st.Error = wire.ErrorToProto(err)
	} else {
		committedUnit(st, u, sends)
	}
	st.EndedUnixMs = millis(now)
	st.Revision += 1 << 32 // above what the earlier process told
	if raw, err := proto.Marshal(st); err == nil {
		r.Status = raw
	}
	return r
}

// committedUnit makes the status that of a job which has committed the unit. Of
// several requests the journal doesn't know which one landed, and of what another
// submission of the key has committed only that.
func committedUnit(st *firnpb.JobStatus, u journal.Unit, sends []journal.Send) {
	report := commit.Report{
		JobID: u.JobID, Key: u.Key, Table: u.Table, Operation: u.Operation, State: commit.CommitCommitted,
		Rows: u.Rows, Files: u.Files, Bytes: u.Bytes, Attempts: len(sends),
	}
	if u.Other || u.LedgerOnly && len(sends) == 0 {
		report.Deduplicated, report.OtherSubmission = true, true
		report.Rows, report.Files, report.Bytes = 0, 0, 0
	} else if len(sends) == 1 {
		report.SnapshotID, report.CommittedAt = sends[0].SnapshotID, sends[0].At
	}
	st.Report, st.Rows, st.PercentComplete = reportOf(report), report.Rows, 100
	if raw, err := wire.EncodeReport(report); err == nil {
		st.InlineResult = raw
	}
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
