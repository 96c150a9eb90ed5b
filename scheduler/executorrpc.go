package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/answers"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/jobview"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/metrics"
	"github.com/firn-project/firn/scheduler/storekeys"
)

// maxPoll bounds how long a poll for work waits, idlePoll one for which there
// will be none.
const (
	maxPoll  = time.Minute
	idlePoll = 100 * time.Millisecond
)

func checkVersion(op, who string, got uint32) error {
	if got == wire.ProtocolVersion {
		return nil
	}
	return &commit.Error{
		Code: commit.CodeProtocolVersion, Op: op, Object: who,
		Cause: fmt.Errorf("it speaks version %d of the protocol, the scheduler version %d", got, wire.ProtocolVersion),
		Hint:  "Run the same version of firn everywhere.",
	}
}

// Register implements firnpb.SchedulerServiceServer.
func (s *Scheduler) Register(ctx context.Context, r *firnpb.RegisterRequest) (*firnpb.RegisterResponse, error) {
	if err := checkVersion("register executor", r.GetExecutorId(), r.GetProtocolVersion()); err != nil {
		return nil, err
	}
	err := answers.Registration(r)
	if err != nil {
		return nil, err
	}
	if cerr := s.loop.call(ctx, func() { err = s.register(r) }); cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, err
	}
	free, err := s.spent(ctx, r.GetHolds())
	if err != nil {
		return nil, err
	}
	return &firnpb.RegisterResponse{
		Free:            free,
		TicketPublicKey: s.public, HeartbeatMs: uint32(s.cfg.HeartbeatInterval.Milliseconds()), Dispatch: s.cfg.Dispatch,
		ClusterId: s.journal.Incarnation(), LocalAllow: s.cfg.LocalAllow,
	}, nil
}

// Heartbeat implements firnpb.SchedulerServiceServer.
func (s *Scheduler) Heartbeat(ctx context.Context, r *firnpb.HeartbeatRequest) (*firnpb.HeartbeatResponse, error) {
	resp := &firnpb.HeartbeatResponse{}
	if err := answers.Heartbeat(r); err != nil {
		return nil, err
	}
	err := s.loop.call(ctx, func() {
		if e := s.known(r.GetExecutorId(), r.GetIncarnation()); e != nil {
			resp.Known = true
			if r.GetLeft() {
				s.loseExecutor(e, "it has shut down")
				return
			}
			e.draining = r.GetDraining()
			resp.Drain = e.drain
			e.outbox.freeAgain()
			resp.CancelAttempts = s.heartbeat(e, r.GetRunningAttempts())
		}
	})
	return resp, err
}

// ListExecutors implements firnpb.ClientServiceServer.
func (s *Scheduler) ListExecutors(ctx context.Context, _ *firnpb.ListExecutorsRequest) (*firnpb.ListExecutorsResponse, error) {
	resp := &firnpb.ListExecutorsResponse{}
	err := s.loop.call(ctx, func() {
		for _, id := range slices.Sorted(maps.Keys(s.state.executors)) {
			resp.Executors = append(resp.Executors, s.executorStatus(s.state.executors[id]))
		}
	})
	return resp, err
}

// DrainExecutor implements firnpb.ClientServiceServer.
func (s *Scheduler) DrainExecutor(ctx context.Context, r *firnpb.DrainExecutorRequest) (*firnpb.ExecutorStatus, error) {
	var st *firnpb.ExecutorStatus
	if err := s.loop.call(ctx, func() {
		if e := s.state.executors[r.GetExecutorId()]; e != nil {
			e.drain = true
			st = s.executorStatus(e)
			s.log.Info("executor drains", slog.String("executor", e.id), slog.Int("running", len(e.running)))
		}
	}); err != nil {
		return nil, err
	}
	if st == nil {
		return nil, &commit.Error{
			Code: commit.CodeExecutorNotFound, Op: "drain executor", Object: r.GetExecutorId(), Cause: errors.New("the scheduler knows no such executor"),
			Hint: "`firn executor list` shows those there are.",
		}
	}
	return st, nil
}

func (s *Scheduler) executorStatus(e *executor) *firnpb.ExecutorStatus {
	st := &firnpb.ExecutorStatus{
		ExecutorId: e.id, State: "ready", Address: e.control, Slots: uint32(e.slots), Running: uint32(len(e.running)), MemoryBytes: e.memory,
		Holds: s.holds(e), SeenUnixMs: millis(e.seen),
	}
	switch {
	case e.returning:
		st.State = "returning"
	case e.stays() && s.placement.PassedOver("", e.id, time.Now()):
		st.State = "passed_over"
	case e.stays():
	case len(e.running) == 0 && len(st.Holds) == 0:
		st.State = "drained"
	default:
		st.State = "draining"
	}
	return st
}

// Ready says how many executors take tasks, and what keeps the scheduler from
// running statements.
func (s *Scheduler) Ready(ctx context.Context) (executors int, err error) {
	closing := false
	if err := s.loop.call(ctx, func() {
		closing = s.state.closing
		for _, e := range s.state.executors {
			if e.stays() {
				executors++
			}
		}
	}); err != nil {
		return 0, err
	}
	if closing {
		return executors, errClosing()
	}
	_, err = s.journal.Jobs(ctx, journal.Filter{Limit: 1})
	return executors, err
}

// Tasks are the attempts of a job that run or were accepted, by the ids of their
// stages. Nothing is known of them any more some minutes after the job's end.
func (s *Scheduler) Tasks(ctx context.Context, jobID string) (map[string][]jobview.Task, error) {
	all := map[string][]jobview.Task{}
	err := s.loop.call(ctx, func() {
		j := s.state.jobs[jobID]
		if j == nil || j.graph == nil {
			return
		}
		for _, r := range j.graph.Runs() {
			t := jobview.Task{
				Task: r.Task.Task, Attempt: r.Attempt, Executor: r.Executor, State: "running", Twin: r.Twin,
				Started: jobview.Time(millis(r.Started)), Ended: jobview.Time(millis(r.Ended)),
			}
			if r.Done {
				t.State = "succeeded"
			}
			stage := strconv.Itoa(r.Task.Stage)
			all[stage] = append(all[stage], t)
		}
	})
	return all, err
}

// holds lists what may still be read of an executor's disk: the output of running
// jobs, up to their seal, the rows of SELECTs, and uploads.
func (s *Scheduler) holds(e *executor) []string {
	var all []string
	for _, j := range s.jobsInOrder() {
		needed := j.hasEnded() && j.resultOn(e.id)
		if j.graph != nil && !j.hasEnded() && !j.graph.Sealed() {
			needed = j.graph.HasOutputOn(e.id)
		}
		if needed {
			all = append(all, j.id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.state.uploads)) {
		if s.state.uploads[id].executor == e.id {
			all = append(all, id)
		}
	}
	return all
}

// PollWork implements firnpb.SchedulerServiceServer.
func (s *Scheduler) PollWork(ctx context.Context, r *firnpb.PollWorkRequest) (*firnpb.PollWorkResponse, error) {
	wait := min(time.Duration(r.GetWaitMs())*time.Millisecond, maxPoll)
	queued := false
	p := &poll{free: int(r.GetFreeSlots()), tasks: make(chan []*firnpb.TaskDefinition, 1)}
	known := false
	if err := s.loop.call(ctx, func() {
		p.executor = s.known(r.GetExecutorId(), r.GetIncarnation())
		if known = p.executor != nil; known {
			p.executor.asksAgain()
			s.endPolls(p.executor)
		}
		if queued = known && !s.state.closing && p.free > 0 && s.cfg.Dispatch == DispatchPull; queued {
			s.state.polls = append(s.state.polls, p)
		}
	}); err != nil || !known {
		return &firnpb.PollWorkResponse{}, err
	}
	if !queued {
		// There will be no work; the answer comes late all the same, so that an
		// executor that asks again at once doesn't spin.
		wait = min(wait, idlePoll)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case tasks := <-p.tasks:
		return &firnpb.PollWorkResponse{Known: known, Tasks: tasks}, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	if !queued {
		return &firnpb.PollWorkResponse{Known: known}, nil
	}
	// The poll leaves the queue, or was answered meanwhile: tasks that a caller
	// who has gone was given are found missing by its next heartbeats.
	if !s.loop.put(func() { s.leavePoll(p) }) {
		return nil, errClosing()
	}
	return &firnpb.PollWorkResponse{Known: known, Tasks: <-p.tasks}, nil
}

func (s *Scheduler) leavePoll(p *poll) {
	for i, other := range s.state.polls {
		if other == p {
			s.state.polls = append(s.state.polls[:i:i], s.state.polls[i+1:]...)
			close(p.tasks)
			return
		}
	}
}

// ReportStatus implements firnpb.SchedulerServiceServer. A status is
// acknowledged when it was applied and what it changed is durable; one of an attempt that nobody waits for is
// acknowledged and changes nothing.
func (s *Scheduler) ReportStatus(ctx context.Context, r *firnpb.ReportStatusRequest) (*firnpb.ReportStatusResponse, error) {
	if err := answers.Statuses(r); err != nil {
		return nil, err
	}
	resp := &firnpb.ReportStatusResponse{}
	durable := make(chan error, 1)
	err := s.loop.call(ctx, func() {
		if slices.ContainsFunc(r.GetStatuses(), func(st *firnpb.TaskStatus) bool { return st.GetState() != "running" }) {
			s.noted(nil, journal.Batch{}, func(err error) { durable <- err })
		} else {
			durable <- nil // nothing is kept of it
		}
		e := s.known(r.GetExecutorId(), r.GetIncarnation())
		if e == nil {
			return
		}
		resp.Known = true
		for _, st := range r.GetStatuses() {
			s.taskStatus(e, st)
			resp.AcknowledgedAttempts = append(resp.AcknowledgedAttempts, st.GetAttemptId())
		}
	})
	if err != nil {
		return nil, err
	}
	select {
	case err = <-durable:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (s *Scheduler) taskStatus(e *executor, st *firnpb.TaskStatus) {
	a := s.state.attempts[st.GetAttemptId()]
	if a == nil || a.executor != e {
		if st.GetState() == "succeeded" && st.GetFiles() > 0 {
			s.cfg.Metrics.Duplicate() // of an attempt that was given up
		}
		return
	}
	a.missed = 0
	switch st.GetState() {
	case "running":
		if st.GetRowsReady() {
			s.apply(a.job, graph.RowsReady{Task: a.task, StageAttempt: a.stageAttempt, Attempt: a.id, Executor: e.id})
		}
	case "succeeded":
		s.endAttempt(a)
		outcome := metrics.TaskFailed // its report may not add up
		for _, act := range s.apply(a.job, success(st, a.task, a.stageAttempt, e.id)) {
			if keep, ok := act.(graph.KeepOutput); ok && keep.Attempt == a.id {
				s.keepSuccess(a.job, st)
				outcome = metrics.TaskSucceeded
				s.placement.Succeeded(e.id)
			}
		}
		if outcome != metrics.TaskSucceeded && st.GetFiles() > 0 {
			s.cfg.Metrics.Duplicate()
		}
		s.attemptOver(a, outcome, tookOf(st), nil)
	case "failed", "cancelled":
		s.endAttempt(a)
		s.noted(nil, journal.Batch{Ended: []string{a.id}})
		ev := graph.TaskFailed{
			Task: a.task, StageAttempt: a.stageAttempt, Attempt: a.id, Executor: e.id,
			Class: graph.FailureClass(st.GetError().GetClass()), Err: wire.TaskErrorFromProto(st.GetError()),
		}
		if ev.Err == nil {
			ev.Err = fmt.Errorf("the attempt ended as %s", st.GetState())
		}
		ev.SourceLost = commit.CodeOf(ev.Err) == commit.CodeFlightLost
		ev.Broke = sourceBreak(st.GetError().GetBroke())
		if lost, ok := errors.AsType[*wire.LostInputError](ev.Err); ok {
			s.unreachable(a.job, lost)
			ev.Lost = s.lostInput(a, lost)
		}
		if until := s.placement.Failed(e.id, ev.Err, time.Now()); !until.IsZero() {
			s.log.Warn("executor fails tasks and is passed over", slog.String("executor", e.id), slog.Time("until", until), slog.Any("error", ev.Err))
		}
		s.apply(a.job, ev)
		s.attemptOver(a, st.GetState(), tookOf(st), ev.Err)
	}
}

// maxSaid bounds each text of a break in bytes: an executor may send any, and each goes
// with later attempts.
const maxSaid = 2 << 10

func sourceBreak(b *firnpb.SourceBreak) *graph.SourceBreak {
	if b == nil {
		return nil
	}
	short := func(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxSaid)], "") }
	return &graph.SourceBreak{
		Part: short(b.GetPart()), Location: short(b.GetLocation()), Said: short(b.GetSaid()), Code: commit.Code(short(b.GetCode())), Left: int(b.GetLeft()),
	}
}

// runsJob says whether an executor is known, and whether it runs an attempt of a job,
// of which look then takes what it needs.
func (s *Scheduler) runsJob(ctx context.Context, executor, incarnation, jobID string, look func(*job)) (known, runs bool, err error) {
	err = s.loop.call(ctx, func() {
		e := s.known(executor, incarnation)
		if known = e != nil; !known {
			return
		}
		for _, a := range e.running {
			if a.job.id == jobID && !a.job.hasEnded() {
				runs = true
				look(a.job)
				return
			}
		}
	})
	return known, runs, err
}

// SourceAccess implements firnpb.SchedulerServiceServer. As with StoreKeys, only who
// runs an attempt of a job gets what the job reads with.
func (s *Scheduler) SourceAccess(ctx context.Context, r *firnpb.SourceAccessRequest) (*firnpb.SourceAccessResponse, error) {
	resp := &firnpb.SourceAccessResponse{}
	reads := false
	known, runs, err := s.runsJob(ctx, r.GetExecutorId(), r.GetIncarnation(), r.GetJobId(), func(j *job) { reads = j.flight.Reads(r.GetSource()) })
	if resp.Known = known; err != nil || !known {
		return resp, err
	}
	if !runs || !reads {
		return nil, &commit.Error{
			Code: commit.CodeStoreKeysRefused, Op: "give access to a source to", Object: "executor " + r.GetExecutorId(),
			Cause: fmt.Errorf("it runs no attempt of job %s that reads the source %q", r.GetJobId(), r.GetSource()),
		}
	}
	a, err := s.cfg.Flight.Access(ctx, r.GetSource(), r.GetExpired())
	if err != nil {
		return nil, err
	}
	resp.Access, err = json.Marshal(a)
	return resp, err
}

// StoreKeys implements firnpb.SchedulerServiceServer. Only an executor that runs an
// attempt of a job gets the job's keys: none after its last attempt has ended.
func (s *Scheduler) StoreKeys(ctx context.Context, r *firnpb.StoreKeysRequest) (*firnpb.StoreKeysResponse, error) {
	resp := &firnpb.StoreKeysResponse{}
	var keys *storekeys.Job
	known, runs, err := s.runsJob(ctx, r.GetExecutorId(), r.GetIncarnation(), r.GetJobId(), func(j *job) { keys = j.storeKeys })
	if resp.Known = known; err != nil || !known {
		return resp, err
	}
	refused := &commit.Error{Code: commit.CodeStoreKeysRefused, Op: "give keys to", Object: "executor " + r.GetExecutorId()}
	if !runs {
		refused.Cause = fmt.Errorf("it runs no attempt of job %s", r.GetJobId())
		return nil, refused
	}
	k, err := keys.Keys(ctx, r.GetCredential(), r.GetExpiredKey())
	if err != nil {
		refused.Cause = err
		return nil, refused
	}
	resp.AccessKeyId, resp.SecretAccessKey, resp.SessionToken = k.AccessKeyID, k.SecretAccessKey, k.SessionToken
	if !k.Expires.IsZero() {
		// A time that's left, since clocks differ.
		resp.TtlMs = max(1, time.Until(k.Expires).Milliseconds())
	}
	return resp, nil
}
