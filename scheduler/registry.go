package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/answers"
	"github.com/firn-project/firn/scheduler/cached"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/metrics"
)

// executor is a registered executor. It belongs to the event loop, except for
// rpc and life, which don't change.
type executor struct {
	id, incarnation string
	// flight is where its shuffle output is served, control where it is told what
	// to do.
	control, flight string
	slots           int
	memory          int64
	seen            time.Time
	// draining: it takes no more tasks, and leaves when those it has have ended.
	draining bool
	// drain: it is to drain, and doesn't say yet that it does.
	drain bool
	// returning: an earlier process of the scheduler knew it, and it hasn't
	// registered with this one yet. What it holds may still be there.
	returning bool
	// running are the attempts that it was given and has not ended.
	running map[string]*attempt
	// lastUse orders executors with the same number of free slots.
	lastUse uint64

	conn   *grpc.ClientConn
	rpc    firnpb.ExecutorServiceClient
	outbox *outbox
	life   context.Context //nolint:containedctx // ends when the executor is lost
	end    context.CancelFunc
}

// stays says whether the executor may be given something new.
func (e *executor) stays() bool { return !e.draining && !e.drain && !e.returning }

// free is how many more tasks the executor takes.
func (e *executor) free() int {
	if !e.stays() {
		return 0
	}
	return e.slots - len(e.running)
}

// attempt is one attempt that an executor was given.
type attempt struct {
	id           string
	job          *job
	task         graph.TaskID
	stageAttempt int
	executor     *executor
	twin         bool
	// handed: it was handed out; before that its record is written. given: the
	// executor has it, or it was lost on the way.
	handed, given bool
	// missed counts the heartbeats in a row that didn't list it.
	missed int
}

// maxMissed heartbeats without an attempt that was given mean that the executor
// doesn't have it. An executor sends one heartbeat at a time: one may cross the
// answer to the launch, one the status.
const maxMissed = 3

// maxAnswer bounds the answers to what an executor is told: there's nothing in them.
const maxAnswer = 64 << 10

// maxReplaced bounds how many replaced incarnations of an executor are known.
const maxReplaced = 16

// register adds an executor, or takes in that one has started again. An
// incarnation that another one has replaced doesn't come back: two processes with
// one id, as of a copied directory, would throw each other out for ever.
func (s *Scheduler) register(r *firnpb.RegisterRequest) error {
	if s.state.closing {
		return errClosing()
	}
	if slices.Contains(s.state.replaced[r.GetExecutorId()], r.GetIncarnation()) {
		return &commit.Error{
			Code: commit.CodeBadRequest, Op: "register executor", Object: r.GetExecutorId(),
			Cause: errors.New("another process has registered under its id since"),
			Hint:  "Give each executor a directory of its own: the id is in it, and goes with a copy. Stop this one, delete executor.id in its directory and start it again.",
		}
	}
	if old := s.state.executors[r.GetExecutorId()]; old != nil {
		if old.incarnation == r.GetIncarnation() && (!old.returning || old.control == r.GetControlAddress()) {
			if old.returning {
				s.log.Info("executor registered", slog.String("executor", old.id), slog.String("address", old.control), slog.Int("running", len(old.running)))
			}
			old.seen, old.returning = time.Now(), false
			s.executorArrived()
			return nil
		}
		s.noteReplaced(old)
		s.loseExecutor(old, "it started again")
	}
	if len(s.state.executors) >= answers.MaxExecutors {
		return &commit.Error{
			Code: commit.CodeBadRequest, Op: "register executor", Object: r.GetExecutorId(),
			Cause: fmt.Errorf("%d are registered, and no more may be", answers.MaxExecutors),
		}
	}
	s.loseUploads(r.GetExecutorId(), r.GetIncarnation())
	rec := journal.Executor{
		ID: r.GetExecutorId(), Incarnation: r.GetIncarnation(), Control: r.GetControlAddress(), Flight: r.GetFlightAddress(),
		Slots: int(r.GetSlots()), Memory: r.GetMemoryBytes(),
	}
	if _, err := s.addExecutor(rec); err != nil {
		return err
	}
	s.noted(nil, journal.Batch{Executors: []journal.Executor{rec}})
	s.executorArrived()
	s.log.Info("executor registered", slog.String("executor", rec.ID), slog.String("address", rec.Control), slog.Int("slots", rec.Slots))
	return nil
}

// noteReplaced remembers the incarnation of an executor that another one replaces.
func (s *Scheduler) noteReplaced(old *executor) {
	if len(s.state.replaced) >= answers.MaxExecutors {
		clear(s.state.replaced) // ids that nobody has any more, all but a few
	}
	replaced := append(s.state.replaced[old.id], old.incarnation)
	s.state.replaced[old.id] = replaced[max(0, len(replaced)-maxReplaced):]
}

// addExecutor makes the scheduler's side of an executor.
func (s *Scheduler) addExecutor(r journal.Executor) (*executor, error) {
	conn, err := grpc.NewClient("passthrough:///"+r.Control, append(slices.Concat(wire.DialOptions(), s.cfg.Dial),
		grpc.WithPerRPCCredentials(wire.NewControlCredentials(s.signer, r.ID)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))...)
	if err != nil {
		return nil, &commit.Error{Code: commit.CodeBadRequest, Op: "register executor", Object: r.ID, Cause: err}
	}
	e := &executor{
		id: r.ID, incarnation: r.Incarnation, control: r.Control, flight: r.Flight, slots: r.Slots, memory: r.Memory, seen: time.Now(),
		running: map[string]*attempt{}, conn: conn, rpc: firnpb.NewExecutorServiceClient(conn),
	}
	e.outbox = newOutbox(s, e)
	e.life, e.end = context.WithCancel(context.Background())
	s.state.executors[e.id] = e
	return e, nil
}

// executorArrived tells those that wait for an executor.
func (s *Scheduler) executorArrived() {
	close(s.state.arrived)
	s.state.arrived = make(chan struct{})
}

// known returns the executor if this incarnation of it is registered, and
// notes that it was heard of.
func (s *Scheduler) known(id, incarnation string) *executor {
	e := s.state.executors[id]
	if e == nil || e.incarnation != incarnation || e.returning {
		return nil // one that returns registers again: its settings may be old
	}
	e.seen = time.Now()
	return e
}

// loseExecutor forgets an executor: what ran there has failed, and what it had
// written for others is gone.
func (s *Scheduler) loseExecutor(e *executor, why string) {
	if s.state.executors[e.id] != e {
		return
	}
	level := slog.LevelWarn
	if e.returning && len(e.running) == 0 {
		level = slog.LevelInfo // scheduler and executor were both started again, as each embedded cluster does
	}
	s.log.Log(context.Background(), level, "executor lost",
		slog.String("executor", e.id), slog.String("why", why), slog.Int("running", len(e.running)))
	for id, a := range e.running {
		delete(s.state.attempts, id)
		s.attemptOver(a, metrics.TaskLost, 0, errors.New(why))
		s.noted(nil, journal.Batch{Ended: []string{id}})
	}
	s.noted(nil, journal.Batch{Gone: []journal.Executor{{ID: e.id, Incarnation: e.incarnation}}})
	s.dropExecutor(e, 0)
	s.placement.Forget(e.id)
	for fp, j := range s.state.cached {
		if j.resultOn(e.id) {
			delete(s.state.cached, fp)
		}
	}
	_ = s.frameEvent(cached.ExecutorLost{Executor: e.id})
	for _, j := range s.jobsInOrder() {
		if j.graph != nil {
			s.apply(j, graph.ExecutorLost{Executor: e.id})
		}
	}
}

// failDeserted fails the jobs with tasks to run once there has been no executor for
// ExecutorReturn. A root that reads goes on: it may have copies of all it needs.
func (s *Scheduler) failDeserted(now time.Time) {
	for _, e := range s.state.executors {
		if e.stays() || e.returning || len(e.running) > 0 {
			s.state.deserted = time.Time{}
			return
		}
	}
	if s.state.deserted.IsZero() {
		s.state.deserted = now
	}
	if now.Sub(s.state.deserted) < s.cfg.ExecutorReturn {
		return
	}
	for _, j := range s.jobsInOrder() {
		if j.graph != nil && j.graph.Phase() == graph.PhaseExecuting {
			s.failJob(j, &commit.Error{
				Code: commit.CodeNoExecutors, Op: "run job", Object: j.id,
				Cause: fmt.Errorf("it has tasks to run, and there has been no executor for %s", s.cfg.ExecutorReturn), Tried: "nothing was committed",
				Hint: "Start executors with `firn executor --server " + s.Addr() + " --dir DIR`, and run the statement again with the same idempotency key.",
			})
		}
	}
}

// dropExecutor ends what belongs to the executor on this side; the record keeps
// it. Calls that wait in its outbox are still made for as long as grace allows.
func (s *Scheduler) dropExecutor(e *executor, grace time.Duration) {
	delete(s.state.executors, e.id)
	timer := time.AfterFunc(grace, e.end)
	s.endPolls(e)
	s.wg.Go(func() {
		e.outbox.close()
		timer.Stop()
		e.end()
		if err := e.conn.Close(); err != nil {
			s.log.Debug("connection ended badly", slog.String("executor", e.id), slog.Any("error", err))
		}
	})
}

// endPolls answers an executor's polls for work with nothing: it has one at a time.
func (s *Scheduler) endPolls(e *executor) {
	s.state.polls = slices.DeleteFunc(s.state.polls, func(p *poll) bool {
		if p.executor == e {
			close(p.tasks)
			return true
		}
		return false
	})
}

// heartbeat makes both sides agree again on what runs. It returns the attempts
// that the executor should stop.
func (s *Scheduler) heartbeat(e *executor, running []string) (cancel []string) {
	listed := make(map[string]bool, len(running))
	for _, id := range running {
		listed[id] = true
		if a := s.state.attempts[id]; a == nil || a.executor != e {
			cancel = append(cancel, id)
		}
	}
	for _, a := range attemptsInOrder(e) {
		if listed[a.id] || !a.given {
			a.given = a.given || listed[a.id] || e.draining && a.handed
			a.missed = 0
			continue
		}
		if a.missed++; a.missed >= maxMissed {
			err := errors.New("the executor doesn't know of the attempt; its launch was lost")
			s.endAttempt(a)
			s.attemptOver(a, metrics.TaskLost, 0, err)
			s.noted(nil, journal.Batch{Ended: []string{a.id}})
			s.apply(a.job, graph.TaskFailed{
				Task: a.task, StageAttempt: a.stageAttempt, Attempt: a.id, Executor: e.id, Class: graph.Retryable, Err: err,
			})
		}
	}
	return cancel
}

// needs says whether somebody may still read what an executor has of a job or of an
// upload: one that it was never told to free, or was told while it couldn't be
// reached.
func (s *Scheduler) needs(id string) bool {
	if s.state.uploads[id] != nil || s.state.frames.Keeps(id) {
		return true
	}
	j := s.state.jobs[id]
	if j == nil {
		return false
	}
	_, read := s.running.Load(id)
	return read || !j.hasEnded() || len(j.holders) > 0
}

// spent picks of what an executor holds that which nobody needs. The rows of a
// SELECT that ended under an earlier process are read for their time all the same.
func (s *Scheduler) spent(ctx context.Context, holds []string) (free []string, err error) {
	var unknown []string
	if err := s.loop.call(ctx, func() {
		for _, id := range holds {
			if !s.needs(id) {
				unknown = append(unknown, id)
			}
		}
	}); err != nil {
		return nil, err
	}
	results := map[string]time.Time{}
	for _, id := range unknown {
		rec, err := s.journal.Job(ctx, id)
		if err != nil && !errors.Is(err, journal.ErrNotFound) {
			return nil, err
		}
		if until := rec.Ended.Add(s.cfg.ResultTTL); err == nil && rec.Table == "" && rec.State == string(graph.Succeeded) && time.Now().Before(until) {
			results[id] = until
			continue
		}
		free = append(free, id)
	}
	return free, s.loop.call(ctx, func() { maps.Copy(s.state.results, results) })
}

func (s *Scheduler) endAttempt(a *attempt) {
	delete(s.state.attempts, a.id)
	delete(a.executor.running, a.id)
}

// attemptsInOrder lists what runs on an executor by id, which is by time.
func attemptsInOrder(e *executor) []*attempt {
	all := make([]*attempt, 0, len(e.running))
	for _, a := range e.running {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b *attempt) int { return compareIDs(a.id, b.id) })
	return all
}

// anyExecutor waits until an executor is registered and returns the least busy
// one, with the number of slots that all have together. Those to avoid are taken when
// there's no other.
func (s *Scheduler) anyExecutor(ctx context.Context, avoid ...string) (*executor, int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.ExecutorWait, &commit.Error{
		Code: commit.CodeNoExecutors, Op: "find an executor", Cause: errors.New("none that takes tasks was there within " + s.cfg.ExecutorWait.String()),
		Hint: "Start one with `firn executor --server " + s.Addr() + " --dir DIR`. `firn executor list` shows those that drain.",
	})
	defer cancel()
	for {
		var e *executor
		var slots int
		var arrived chan struct{}
		if err := s.loop.call(ctx, func() {
			arrived = s.state.arrived
			fits := s.placement.Fit("", s.up(), avoid, 0, time.Now())
			e = s.leastBusy(func(e *executor) bool { return e.stays() && fits(e.id) })
			if e != nil {
				s.use(e)
			}
			for _, other := range s.state.executors {
				if other.stays() {
					slots += other.slots
				}
			}
		}); err != nil {
			return nil, 0, err
		}
		if e != nil {
			return e, max(slots, 1), nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
	}
}

// slots counts the task slots that there are, once they are asked for.
func (s *Scheduler) slots(ctx context.Context) func() int {
	return func() int {
		n := 0
		_ = s.loop.call(ctx, func() { // one is enough for a scheduler that ends
			for _, e := range s.state.executors {
				if e.stays() {
					n += e.slots
				}
			}
		})
		return n
	}
}

// leastBusy picks the executor with the most free slots; among equals the one
// whose last use is the longest ago.
func (s *Scheduler) leastBusy(fits func(*executor) bool) *executor {
	var best *executor
	for _, e := range s.state.executors {
		if !fits(e) {
			continue
		}
		if best == nil || e.free() > best.free() || e.free() == best.free() && e.before(best) {
			best = e
		}
	}
	return best
}

func (e *executor) before(o *executor) bool {
	if e.lastUse != o.lastUse {
		return e.lastUse < o.lastUse
	}
	return e.id < o.id
}

// use notes that the executor was just picked.
func (s *Scheduler) use(e *executor) {
	var last uint64
	for _, o := range s.state.executors {
		last = max(last, o.lastUse)
	}
	e.lastUse = last + 1
}
