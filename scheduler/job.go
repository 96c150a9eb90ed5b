package scheduler

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/admission"
	"github.com/firn-project/firn/scheduler/cached"
	"github.com/firn-project/firn/scheduler/eventlog"
	"github.com/firn-project/firn/scheduler/flightsource"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/graph/adaptive"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/planner"
	"github.com/firn-project/firn/scheduler/storekeys"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

// job is one submitted statement. It belongs to the event loop; what is above
// the line doesn't change.
//
// Until it is planned a job has no graph and its state is early; from then on
// the graph says how it is.
type job struct {
	submission
	id        string
	submitted time.Time
	// now is what now() and its like give, everywhere in the job.
	now time.Time
	// published is closed when the journal has the job's end, so that it may be
	// told.
	published chan struct{}
	// ----
	started, ended time.Time
	early          graph.State
	earlyErr       error
	// turn is the job's place for planning, or its wait for one.
	turn       *admission.Turn
	cancelPlan context.CancelFunc
	planned    *planner.Job
	// planBody is the plan as the journal has it, without layouts.
	planBody []byte
	layouts  map[int]*adaptive.Layout
	warnings []string
	// token is the job's unit's, origin the seat of the table at which its key
	// was first accepted.
	token  commit.Token
	origin commit.Seat
	// opened is closed when an external write is on record as open; write is that
	// record once it isn't open any more, with the manifests that were handed in.
	opened chan struct{}
	write  lifecycle.State
	handed []lifecycle.Manifest
	// resume is what the journal has of a job that an earlier process ran; nil
	// once it is taken up.
	resume *resume
	// lost: the journal is a copy that was made while the job ran.
	lost bool
	// again: its key was used before, by a job that may have left a parked unit.
	again    bool
	planText string
	// storeKeys are what its executors may ask for.
	storeKeys *storekeys.Job
	// store is how the scheduler looks at what is handed in to an external write.
	store *writeStore
	// flight are the queries that engines run for it.
	flight  *flightsource.Job
	table   string
	graph   *graph.Graph
	queue   []graph.RunTask
	uploads []string
	// frame is the cached frame that the job builds, and kept the pieces of it that
	// are left when it is built again; unwanted: nobody waits for it any more.
	frame    string
	kept     map[int]cached.Piece
	unwanted bool
	// wanted are the pieces of frames that the job waits for, asks those of them that
	// it is about to ask for, and held the names that those have which it was given, the
	// last one last.
	wanted map[graph.TaskID]graph.RunTask
	asks   []graph.TaskID
	held   map[graph.TaskID][]string

	// rootEpoch runs; stopRoot ends it.
	rootEpoch int
	// unresolved is why it isn't known what became of the table, once the
	// commit's deadline has passed.
	unresolved error
	stopRoot   context.CancelFunc
	// report is what is known of the table; inline the same as rows.
	report *commit.Report
	inline []byte

	// partitions and schema are a SELECT's result.
	partitions []*firnpb.ResultPartition
	holders    []string
	schema     []byte
	// listing is what partitions of a pipelined job that runs stand for.
	listing uint64
	expires time.Time

	// logged is what the event log has of it.
	logged logged

	revision uint64
	// changed is closed and replaced with each change.
	changed chan struct{}
}

// submission is what a client asked for.
type submission struct {
	namespace, key, fingerprint string
	// newKey: the client made the key for this request. A job that is resumed
	// doesn't know it any more.
	newKey bool
	// statement is the kind of statement, sql its text.
	statement, sql string
	plan           plan.Plan
	// target is what a statement writes to; its name is empty for a SELECT.
	target   commit.TableName
	mode     plan.Mode
	timeZone string
	// external is set for a write whose files others write.
	external *externalWrite
	// dryRun: the job stops before its commit is sealed, and what it wrote is
	// deleted.
	dryRun bool
	// caches is set if the rows stay as a cached frame.
	caches *caching
	// afterDeadline is what may be done for a commit whose outcome isn't known.
	afterDeadline journal.AfterDeadline
}

// caching says how rows are cached.
type caching struct {
	// ttl is how long they are kept without being used; 0 for the default.
	ttl time.Duration
	// again: lost pieces of a frame are built again.
	again bool
}

func newJob(sub submission, now time.Time) *job {
	return &job{
		submission: sub, id: newID("j-"), submitted: now, now: now.Truncate(time.Microsecond), early: graph.Queued,
		published: make(chan struct{}), opened: make(chan struct{}), changed: make(chan struct{}), revision: 1, cancelPlan: func() {}, stopRoot: func() {},
	}
}

func (j *job) state() graph.State {
	if j.graph != nil {
		return j.graph.State()
	}
	return j.early
}

func (j *job) err() error {
	if j.graph != nil {
		return j.graph.Err()
	}
	return j.earlyErr
}

func (j *job) commitState() commit.CommitState {
	switch {
	case j.graph != nil:
		return j.graph.Commit()
	case j.report != nil:
		return j.report.State
	default:
		return commit.CommitNone
	}
}

func (j *job) hasEnded() bool {
	switch j.state() {
	case graph.Succeeded, graph.JobFailed, graph.Cancelled:
		return true
	default:
		return false
	}
}

func (j *job) isPublished() bool {
	select {
	case <-j.published:
		return true
	default:
		return false
	}
}

// resultOn says whether an executor holds rows of the job's result.
func (j *job) resultOn(executor string) bool { return slices.Contains(j.holders, executor) }

// touch tells who watches the job that it has changed.
func (j *job) touch() {
	j.revision++
	close(j.changed)
	j.changed = make(chan struct{})
}

// jobsInOrder lists the jobs by id, which is by time.
func (s *Scheduler) jobsInOrder() []*job {
	return slices.SortedFunc(maps.Values(s.state.jobs), func(a, b *job) int { return cmp.Compare(a.id, b.id) })
}

// apply gives an event to the job's graph and carries out what it answers. The
// actions are returned for those that answer a question.
func (s *Scheduler) apply(j *job, ev graph.Event) []graph.Action {
	before := j.graph.Revision()
	actions := j.graph.Apply(ev, time.Now())
	s.carryOut(j, actions)
	s.noteChanges(j)
	if j.graph.Revision() != before || len(actions) > 0 {
		j.touch()
	}
	return actions
}

func (s *Scheduler) carryOut(j *job, actions []graph.Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case graph.RunTask:
			if j.planned.Stages[a.Task.Stage].Frame != "" {
				s.wantPiece(j, a)
			} else {
				s.enqueue(j, a)
			}
		case graph.CancelTask:
			s.cancelTask(j, a)
		case graph.RunSchedulerRoot:
			s.startRoot(j, a)
		case graph.StopRoot:
			if a.Epoch == j.rootEpoch {
				j.stopRoot()
			}
		case graph.JobEnded:
			s.jobEnded(j)
		case graph.FreeJobData:
			s.freeData(j.id, a.Stages)
		case graph.RunSource:
			s.runSource(j, a.Stage)
		case graph.KeepLayout:
			s.keepLayout(j, a)
		case graph.DropOutput:
			s.noted(j, journal.Batch{Ended: []string{a.Attempt}})
		case graph.StartRoot, graph.SkipRoot, graph.SealRoot, graph.ProceedRoot, graph.CancelAnswer, graph.KeepOutput:
			// The caller asked.
		}
	}
}

// failJob fails a job for a reason outside of it, unless its commit is in
// flight.
func (s *Scheduler) failJob(j *job, err error) {
	switch {
	case j.hasEnded():
	case j.graph != nil:
		s.apply(j, graph.Failed{Err: err})
	default:
		s.endEarly(j, graph.JobFailed, err)
	}
}

// endEarly ends a job that has no graph.
func (s *Scheduler) endEarly(j *job, state graph.State, err error) {
	if j.hasEnded() {
		return
	}
	j.cancelPlan()
	j.early, j.earlyErr = state, err
	s.jobEnded(j)
	s.noteChanges(j)
	j.touch()
}

// jobEnded records the job's end; when that is durable, whoever waits is told.
func (s *Scheduler) jobEnded(j *job) {
	j.ended = time.Now()
	s.placement.EndJob(j.id)
	j.expires = j.ended.Add(s.cfg.ResultTTL)
	for _, id := range j.uploads {
		s.releaseUpload(id, j.state() == graph.Succeeded)
	}
	s.frameEnded(j)
	s.endSources(j.flight, j.state() == graph.Succeeded)
	if j.graph != nil {
		j.planText = textOf(j.planned, j.graph.Stages(), j.warnings)
	}
	s.log.Info("job ended", slog.String("job_id", j.id), slog.String("state", string(j.state())),
		slog.String("commit", string(j.commitState())), slog.Duration("duration", j.ended.Sub(j.submitted)), slog.Any("error", j.err()))
	s.cfg.Metrics.Job(string(j.state()), strings.ToLower(j.statement), j.ended.Sub(j.submitted))
	if j.caches != nil && !j.caches.again && j.state() == graph.Succeeded {
		return // see frameEnded
	}
	if j.state() != graph.Succeeded || j.planned == nil || j.planned.Root != nil || j.caches != nil {
		s.publish(j)
		return
	}
	locations, expires := s.locations(j, j.graph.Accepted()), j.expires
	holders := map[string]bool{}
	for _, l := range locations {
		holders[l.Executor] = true
	}
	j.holders = slices.Sorted(maps.Keys(holders))
	if j.mode == plan.ModeCached {
		s.state.cached[j.fingerprint] = j
	}
	// The schema is in the data; a plan has only its own names of the types.
	s.wg.Go(func() {
		partitions := partitionsOf(s.sign(locations, expires))
		schema := s.resultSchema(locations)
		s.loop.put(func() {
			j.partitions, j.schema = partitions, schema
			s.publish(j)
		})
	})
}

// resultSchema reads the schema of a SELECT's result from its first partition;
// nil when that can't be had.
func (s *Scheduler) resultSchema(locations []plan.ShuffleLocation) []byte {
	for _, l := range locations {
		r := s.flight.Open(s.life, sourceOf(l))
		schema, err := r.Schema()
		r.Close()
		if err == nil {
			if raw, err := wire.EncodeIPC(schema); err == nil {
				return raw
			}
		}
	}
	return nil
}

func sourceOf(l plan.ShuffleLocation) flightread.Source {
	return flightread.Source{
		Address: l.Address, Ticket: l.Ticket, Stage: l.Stage, Task: l.Task, Attempt: l.Attempt, Executor: l.Executor,
	}
}

// publish writes the job's end to the journal, and then lets it be told.
func (s *Scheduler) publish(j *job) {
	// The record is newer than all that was told of the running job: the next
	// process tells it to those who still wait.
	j.touch()
	s.noted(nil, journal.Batch{Jobs: []journal.Job{s.record(j)}}, func(err error) {
		if err != nil {
			s.log.Error("job's end not recorded", slog.String("job_id", j.id), slog.Any("error", err))
		}
		s.loop.put(func() {
			if s.state.byKey[j.keyID()] == j {
				delete(s.state.byKey, j.keyID())
			}
			if !j.isPublished() {
				close(j.published)
			}
			s.noteJob(j, eventlog.JobEnded)
			if err == nil && j.target.Name != "" && (j.again || j.commitState() != commit.CommitCommitted) {
				s.sweeper.soon()
			}
			j.touch()
		})
	})
}

func (j *job) keyID() string { return j.namespace + "\x00" + j.key }

// expire frees what was kept of an ended job for its client.
func (s *Scheduler) expire(j *job) {
	if s.state.cached[j.fingerprint] == j {
		delete(s.state.cached, j.fingerprint)
	}
	if j.graph != nil && j.frame == "" {
		s.apply(j, graph.ResultExpired{})
	}
}

// showReadable shows what a client can read already of a pipelined job's rows.
func (s *Scheduler) showReadable(j *job) {
	n, changed := j.graph.Readable(j.listing)
	j.listing = j.graph.Listing()
	partitions := make([]*firnpb.ResultPartition, n) // a status that was told has the old ones
	copy(partitions, j.partitions)
	for _, r := range changed {
		running := r.Running
		// What has rows is there: a client doesn't wait for it to begin.
		r.Running = false
		p := partitionsOf(s.sign(s.locations(j, []graph.Accepted{r.Accepted}), time.Now().Add(ticketTTL)))[0]
		p.Running = running
		partitions[r.Place] = p
	}
	j.partitions = partitions
}

func partitionsOf(locations []plan.ShuffleLocation) []*firnpb.ResultPartition {
	var all []*firnpb.ResultPartition
	for _, l := range locations {
		all = append(all, &firnpb.ResultPartition{Address: l.Address, Ticket: l.Ticket, Rows: l.Rows})
	}
	return all
}

// record is the job as the journal keeps it. Tickets aren't kept: the rows of a
// SELECT are gone when the scheduler starts again.
func (s *Scheduler) record(j *job) journal.Job {
	st := s.status(j)
	st.Partitions = nil
	r := journal.Job{
		ID: j.id, Namespace: j.namespace, Key: j.key, Fingerprint: j.fingerprint, Statement: j.statement, SQL: j.sql,
		Table: j.table, State: string(j.state()), Commit: j.commitState(), Submitted: j.submitted, Ended: j.ended,
	}
	if err := j.err(); err != nil {
		r.Error = err.Error()
	}
	raw, err := proto.Marshal(st)
	if err != nil { // text that isn't UTF-8 was replaced; nothing else can fail
		s.log.Error("status not encoded", slog.String("job_id", j.id), slog.Any("error", err))
	}
	r.Status = raw
	return r
}
