package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/eventlog"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/graph/adaptive"
	"github.com/firn-project/firn/scheduler/jobview"
	"github.com/firn-project/firn/scheduler/journal"
)

// pending is what the event that is being handled has to write. It goes to the
// scribe as one note when the event has been handled, so that the record never
// has half of an event.
type pending struct {
	note
	// jobs are those that the records are about.
	jobs map[*job]bool
}

// noted adds to what the current event writes. It is called in the event loop.
func (s *Scheduler) noted(j *job, b journal.Batch, after ...func(error)) {
	p := &s.state.pending
	p.batch.Add(b)
	p.after = append(p.after, after...)
	if j != nil {
		if p.jobs == nil {
			p.jobs = map[*job]bool{}
		}
		p.jobs[j] = true
	}
}

// flush hands what the event has written to the scribe. A job whose records
// can't be kept fails: what the journal has of it later would not be a state
// that it was in.
func (s *Scheduler) flush() {
	p := s.state.pending
	if p.batch.Empty() && len(p.after) == 0 {
		return
	}
	s.state.pending = pending{}
	if len(p.jobs) > 0 {
		p.after = append([]func(error){func(err error) {
			if err == nil {
				return
			}
			s.log.Error("journal not written", slog.Any("error", err))
			s.loop.put(func() {
				for j := range p.jobs {
					s.failJob(j, err)
				}
			})
		}}, p.after...)
	}
	s.scribe.put(p.note)
}

// afterEvent runs after each event.
func (s *Scheduler) afterEvent() {
	s.dispatch()
	s.flush()
}

// keepSuccess records an accepted attempt.
func (s *Scheduler) keepSuccess(j *job, st *firnpb.TaskStatus) {
	raw, err := proto.Marshal(st)
	if err != nil {
		s.failJob(j, fmt.Errorf("record attempt %s: %w", st.GetAttemptId(), err))
		return
	}
	s.noted(j, journal.Batch{Accepted: []journal.Accepted{{ID: st.GetAttemptId(), Status: raw}}})
}

// logged is what the event log has of a job.
type logged struct {
	state  graph.State
	phase  string
	commit commit.CommitState
	stages []graph.StageMark
	root   graph.RootView
}

// noteChanges logs what the job is now, where the log doesn't have it: after the
// transition, whoever caused it.
func (s *Scheduler) noteChanges(j *job) {
	if s.events == nil {
		return
	}
	now, old := time.Now(), j.logged
	l := logged{state: j.state(), commit: j.commitState()}
	if j.graph != nil {
		l.phase, l.stages = j.graph.Phase(), j.graph.StageMarks()
		l.root, _ = j.graph.Root()
	} else if j.external != nil && l.state == graph.Running {
		l.phase = graph.PhaseExecuting // as it is shown
	}
	j.logged = l
	for i, m := range l.stages {
		if i >= len(old.stages) || old.stages[i] != m {
			s.events.Note(eventlog.Event{Time: now, Job: j.id, Kind: eventlog.StageChanged, Stage: strconv.Itoa(m.ID), State: string(m.State), Try: m.Attempt})
		}
	}
	if l.root.State != old.root.State && l.root.Epoch > 0 {
		s.events.Note(eventlog.Event{Time: now, Job: j.id, Kind: eventlog.StageChanged, Stage: rootStage, State: string(l.root.State), Try: l.root.Epoch})
	}
	if l.state != old.state || l.phase != old.phase || l.commit != old.commit {
		s.events.Note(eventlog.Event{Time: now, Job: j.id, Kind: eventlog.JobChanged, State: string(l.state), Phase: l.phase, Commit: string(l.commit)})
	}
}

// noteJob logs the job as others see it.
func (s *Scheduler) noteJob(j *job, kind string) {
	if s.events == nil {
		return
	}
	view := jobview.JobOf(s.status(j))
	s.events.Note(eventlog.Event{Time: time.Now(), Job: j.id, Kind: kind, State: view.State, Commit: view.Commit, View: &view})
}

// noteTask logs the start or the end of an attempt.
func (s *Scheduler) noteTask(a *attempt, kind, state string, cause error) {
	if s.events == nil {
		return
	}
	e := eventlog.Event{
		Time: time.Now(), Job: a.job.id, Kind: kind, State: state, Stage: strconv.Itoa(a.task.Stage), Try: a.stageAttempt, Task: &a.task.Task,
		Attempt: a.id, Executor: a.executor.id, Twin: a.twin,
	}
	if cause != nil {
		e.Cause = strings.ToValidUTF8(cause.Error(), "\uFFFD")
	}
	s.events.Note(e)
}

// attemptOver counts and logs the end of an attempt; took is 0 when it isn't known.
func (s *Scheduler) attemptOver(a *attempt, outcome string, took time.Duration, cause error) {
	s.cfg.Metrics.Task(outcome, took)
	s.noteTask(a, eventlog.TaskEnded, outcome, cause)
}

// tookOf is how long an attempt ran by its executor's clock.
func tookOf(st *firnpb.TaskStatus) time.Duration {
	return max(0, time.Duration(st.GetEndedUnixMs()-st.GetStartedUnixMs())*time.Millisecond)
}

// plannedRecord is a plan whose stages were cut into tasks, as the journal keeps it.
// A plan of which no stage was is kept as it is.
type plannedRecord struct {
	Plan    json.RawMessage          `json:"plan"`
	Layouts map[int]*adaptive.Layout `json:"layouts"`
}

// keepLayout records how a stage is cut into tasks, with the event that had it cut.
func (s *Scheduler) keepLayout(j *job, a graph.KeepLayout) {
	if j.layouts == nil {
		j.layouts = map[int]*adaptive.Layout{}
	}
	if j.layouts[a.Stage] = a.Layout; a.Layout == nil {
		delete(j.layouts, a.Stage)
	}
	raw, err := planRecord(j)
	if err != nil {
		s.failJob(j, fmt.Errorf("record how stage %d of job %s is cut: %w", a.Stage, j.id, err))
		return
	}
	s.noted(j, journal.Batch{Plans: []journal.Plan{{JobID: j.id, Body: raw}}})
}

// planRecord is the job's plan as the journal keeps it.
func planRecord(j *job) ([]byte, error) {
	return json.Marshal(plannedRecord{Plan: j.planBody, Layouts: j.layouts})
}

// splitPlanRecord parts a record into the plan and the layouts of its stages.
func splitPlanRecord(raw []byte) (body []byte, layouts map[int]*adaptive.Layout, err error) {
	var r plannedRecord
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, nil, fmt.Errorf("read plan: %w", err)
	}
	if len(r.Plan) == 0 {
		return raw, nil, nil
	}
	return r.Plan, r.Layouts, nil
}

// startedAttempt is the record of an attempt that is about to be handed out.
func startedAttempt(a *attempt) journal.Attempt {
	prefix := ""
	if stage := &a.job.planned.Stages[a.task.Stage]; stage.Manifests && a.job.planned.Commit() != nil {
		prefix = a.job.planned.Commit().Prefix
	}
	return journal.Attempt{
		ID: a.id, JobID: a.job.id, Stage: a.task.Stage, Task: a.task.Task, StageAttempt: a.stageAttempt,
		Executor: a.executor.id, Incarnation: a.executor.incarnation, Prefix: prefix, Started: time.Now(),
	}
}

// success is the event of a status.
func success(st *firnpb.TaskStatus, task graph.TaskID, stageAttempt int, executor string) graph.TaskSucceeded {
	ev := graph.TaskSucceeded{
		Task: task, StageAttempt: stageAttempt, Attempt: st.GetAttemptId(), Executor: executor,
		Manifest: st.GetManifestIpc(), Rows: st.GetRowsOut(), Bytes: st.GetBytesOut(), Files: int(st.GetFiles()),
		Rejected: st.GetRejectedRows(), Rejects: st.GetRejects(),
	}
	if len(ev.Manifest) == 0 {
		ev.Manifest = nil
	}
	for _, o := range st.GetOutputs() {
		ev.Outputs = append(ev.Outputs, graph.Output{Partition: int(o.GetPartition()), Rows: o.GetRows(), Bytes: o.GetBytes()})
	}
	return ev
}

// submissionRecord is a submission as the journal keeps it.
type submissionRecord struct {
	Statement string           `json:"statement"`
	SQL       string           `json:"sql"`
	Logical   *plan.Logical    `json:"logical,omitempty"`
	Physical  []byte           `json:"physical,omitempty"`
	Target    commit.TableName `json:"target"`
	Mode      plan.Mode        `json:"mode"`
	TimeZone  string           `json:"time_zone"`
	NowMicros int64            `json:"now_us"`
	DryRun    bool             `json:"dry_run,omitempty"`

	AfterDeadline journal.AfterDeadline `json:"after_deadline,omitempty"`
	External      *externalWrite        `json:"external,omitempty"`

	// Caches says that the rows stay as a cached frame, Again that lost pieces of one
	// are built again.
	Caches   bool          `json:"caches,omitempty"`
	Again    bool          `json:"again,omitempty"`
	FrameTTL time.Duration `json:"frame_ttl,omitempty"`
}

// submissionOf encodes what the job was submitted with.
func submissionOf(j *job) ([]byte, error) {
	r := submissionRecord{
		Statement: j.statement, SQL: j.sql, Target: j.target, Mode: j.mode, TimeZone: j.timeZone, NowMicros: j.now.UnixMicro(),
		DryRun: j.dryRun, AfterDeadline: j.afterDeadline, External: j.external,
	}
	if j.caches != nil {
		r.Caches, r.Again, r.FrameTTL = true, j.caches.again, j.caches.ttl
	}
	switch p := j.plan.(type) {
	case *plan.Logical:
		r.Logical = p
	case plan.Node:
		raw, err := withoutCredentials(p)
		if err != nil {
			return nil, err
		}
		r.Physical = raw
	}
	return json.Marshal(r)
}

// jobOf is the job of a record, as it was when it was admitted.
func jobOf(rec journal.Job, raw []byte) (*job, error) {
	var r submissionRecord
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	sub := submission{
		namespace: rec.Namespace, key: rec.Key, fingerprint: rec.Fingerprint, statement: r.Statement, sql: r.SQL,
		target: r.Target, mode: r.Mode, timeZone: r.TimeZone, dryRun: r.DryRun, afterDeadline: r.AfterDeadline, external: r.External,
	}
	if r.Caches {
		sub.caches = &caching{ttl: r.FrameTTL, again: r.Again}
	}
	switch {
	case r.Logical != nil:
		sub.plan = r.Logical
	case r.Again: // its plan is the frame's
	default:
		top, err := plan.Decode(r.Physical)
		if err != nil {
			return nil, err
		}
		sub.plan = top
	}
	j := newJob(sub, rec.Submitted)
	j.id, j.now, j.table = rec.ID, time.UnixMicro(r.NowMicros).UTC(), rec.Table
	return j, nil
}

// withoutCredentials encodes a plan without what reaches the stores. A journal
// holds nothing secret, and what is secret may be out of date when it is read.
func withoutCredentials(top plan.Node) ([]byte, error) {
	own := withTarget(top, nil, "")
	return plan.Encode(withSources(own, func(*plan.Source) map[string]string { return nil }))
}

// withTarget copies a plan and says everywhere in the copy how the target's
// store is reached.
func withTarget(top plan.Node, storage map[string]string, metadata string) plan.Node {
	return plan.Rewrite(top, func(n plan.Node) {
		switch n := n.(type) {
		case *plan.Commit:
			n.Target.Storage, n.Target.MetadataLocation = storage, metadata
		case *plan.Write:
			n.Context.Storage = storage
		case *plan.External:
			n.Context.Storage = storage
		}
	})
}

// withSources copies a plan and says in the copy how its sources are reached.
func withSources(top plan.Node, storage func(*plan.Source) map[string]string) plan.Node {
	return plan.Rewrite(top, func(n plan.Node) {
		if q, ok := n.(*plan.Query); ok {
			q.Sources = slices.Clone(q.Sources)
			for i := range q.Sources {
				q.Sources[i].Storage = storage(&q.Sources[i])
			}
		}
	})
}

// scribe writes the event loop's records into the journal, in the order of the
// events. What comes while a transaction is under way goes into the next one
// together, so that many statuses cost one write to the disk.
type scribe struct {
	write func(context.Context, journal.Batch) error

	mu     sync.Mutex
	queue  []note
	closed bool
	wake   chan struct{}
	done   chan struct{}
}

// note is what one event has to write, and who hears when it is durable.
type note struct {
	batch journal.Batch
	// after hears nil when the batch is durable, or why it isn't.
	after []func(error)
}

func newScribe(write func(context.Context, journal.Batch) error) *scribe {
	w := &scribe{write: write, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w
}

// put queues a note. It never blocks. After close nothing is written any more,
// and after hears so.
func (w *scribe) put(n note) {
	w.mu.Lock()
	closed := w.closed
	if !closed {
		w.queue = append(w.queue, n)
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	w.mu.Unlock()
	if closed {
		n.tell(errClosing())
	}
}

// record writes one batch and waits until it is durable.
func (w *scribe) record(ctx context.Context, b journal.Batch) error {
	done := make(chan error, 1)
	w.put(note{batch: b, after: []func(error){func(err error) { done <- err }}})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the journal: %w", context.Cause(ctx))
	}
}

// close writes what is queued and waits for it.
func (w *scribe) close() {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.wake)
	}
	w.mu.Unlock()
	<-w.done
}

func (w *scribe) run() {
	defer close(w.done)
	for {
		// As the journal's leader does: who is ready to run may have a note.
		runtime.Gosched()
		w.mu.Lock()
		notes, closed := w.queue, w.closed
		w.queue = nil
		w.mu.Unlock()
		if len(notes) > 0 {
			w.writeAll(notes)
			continue
		}
		if closed {
			return
		}
		<-w.wake
	}
}

// writeAll writes the notes in one transaction. When that fails each is tried by
// itself: one that can't be written must not take the others along.
func (w *scribe) writeAll(notes []note) {
	var all journal.Batch
	for _, n := range notes {
		all.Add(n.batch)
	}
	err := w.write(context.Background(), all)
	if err == nil || len(notes) == 1 {
		for _, n := range notes {
			n.tell(err)
		}
		return
	}
	for _, n := range notes {
		n.tell(w.write(context.Background(), n.batch))
	}
}

func (n note) tell(err error) {
	for _, f := range n.after {
		f(err)
	}
}
