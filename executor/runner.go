package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/firn-project/firn/internal/wire/firnpb"
)

// Causes for which a task's context ends.
var (
	errCancelled = errors.New("the scheduler cancelled the task")
	errShutdown  = errors.New("the executor shuts down")
	errDraining  = errors.New("the executor is shutting down and takes no tasks")
	errFull      = errors.New("too many statuses wait to be acknowledged by the scheduler")
)

// maxRemembered is how many attempts of the past are known again.
const maxRemembered = 16 << 10

// slot runs one task, or one probe, at a time. Its engine is made when it is
// first needed and made again after a fault or when its settings change.
type slot struct {
	cfg    EngineConfig
	make   func(EngineConfig) (Engine, error)
	engine Engine
}

// open gives the slot's engine under the settings in force.
func (s *slot) open(allow []string) (Engine, error) {
	if s.engine != nil && slices.Equal(s.cfg.LocalAllow, allow) {
		return s.engine, nil
	}
	if err := s.discard(); err != nil {
		return nil, err
	}
	s.cfg.LocalAllow = allow
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
		return nil, dirError(s.cfg.Dir, err)
	}
	e, err := s.make(s.cfg)
	if err != nil {
		return nil, fmt.Errorf("open the query engine: %w", err)
	}
	s.engine = e
	return e, nil
}

// discard closes the engine and removes its files.
func (s *slot) discard() error {
	var err error
	if s.engine != nil {
		err = s.engine.Close()
		s.engine = nil
	}
	return errors.Join(err, os.RemoveAll(s.cfg.Dir))
}

// runner owns the task slots and the attempts that run or wait in them.
type runner struct {
	log *slog.Logger
	// run runs one attempt to its end and gives its last status.
	run func(context.Context, *slot, *firnpb.TaskDefinition) *firnpb.TaskStatus
	// ended is told of the job of each attempt that ended, after the attempt
	// has left active.
	ended    func(job string)
	reporter *reporter
	slots    chan *slot
	// extra is for probes while all slots are busy.
	extra chan *slot
	// freed has a token after a task ended.
	freed chan struct{}
	wg    sync.WaitGroup

	mu       sync.Mutex
	draining bool
	active   map[string]*active
	// seen are attempts of the past, order their ids by age: a launch that
	// comes again must not run again.
	seen  map[string]bool
	order []string
}

// active is an attempt that runs or waits for a slot.
type active struct {
	job    string
	cancel context.CancelCauseFunc
}

func newRunner(cfg Config, rep *reporter, run func(context.Context, *slot, *firnpb.TaskDefinition) *firnpb.TaskStatus, ended func(string)) *runner {
	r := &runner{
		log: cfg.Logger, run: run, ended: ended, reporter: rep,
		slots: make(chan *slot, cfg.Slots), extra: make(chan *slot, 1), freed: make(chan struct{}, 1),
		active: map[string]*active{}, seen: map[string]bool{},
	}
	newSlot := func(name string) *slot {
		return &slot{make: cfg.Engines, cfg: EngineConfig{
			Dir: filepath.Join(cfg.Dir, slotsName, name), Memory: cfg.Memory / int64(cfg.Slots), ObjectCache: cfg.ObjectCache / int64(cfg.Slots),
		}}
	}
	for i := range cfg.Slots {
		r.slots <- newSlot(strconv.Itoa(i))
	}
	r.extra <- newSlot("probe")
	return r
}

// launch starts an attempt, or queues it when all slots are busy. It answers at
// once. An attempt that is known already is left as it is.
func (r *runner) launch(t *firnpb.TaskDefinition) error {
	if r.reporter.full() {
		return errFull
	}
	id := t.GetAttemptId()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.draining:
		return errDraining
	case r.active[id] != nil || r.seen[id]:
		return nil
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	r.active[id] = &active{job: t.GetJobId(), cancel: cancel}
	r.wg.Go(func() { r.attempt(ctx, t) })
	return nil
}

// attempt waits for a slot, runs the attempt in it and reports how it ended.
func (r *runner) attempt(ctx context.Context, t *firnpb.TaskDefinition) {
	var last *firnpb.TaskStatus
	select {
	case s := <-r.slots:
		last = r.run(ctx, s, t)
		r.slots <- s
	case <-ctx.Done():
		last = failedStatus(t, context.Cause(ctx))
	}
	// The status is handed over before the attempt counts as gone, so that
	// there's no moment at which a heartbeat would list it as neither.
	r.reporter.report(last)
	r.forget(t.GetAttemptId())
	r.ended(t.GetJobId())
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

func (r *runner) forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active[id].cancel(nil)
	delete(r.active, id)
	r.seen[id] = true
	r.order = append(r.order, id)
	if len(r.order) > maxRemembered {
		delete(r.seen, r.order[0])
		r.order = r.order[1:]
	}
}

// cancel ends attempts; unknown ones are ignored.
func (r *runner) cancel(ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if a := r.active[id]; a != nil {
			a.cancel(errCancelled)
		}
	}
}

// cancelJob ends all attempts of a job.
func (r *runner) cancelJob(job string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.active {
		if a.job == job {
			a.cancel(errCancelled)
		}
	}
}

// has says whether an attempt of the job runs or waits.
func (r *runner) has(job string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hasLocked(job)
}

// ifIdle calls f if no attempt of the job runs or waits. None is launched meanwhile, so
// that what f takes away is nobody's.
func (r *runner) ifIdle(job string, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.hasLocked(job) {
		f()
	}
}

func (r *runner) hasLocked(job string) bool {
	for _, a := range r.active {
		if a.job == job {
			return true
		}
	}
	return false
}

// count is how many attempts run or wait for a slot.
func (r *runner) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.active)
}

// free is how many more tasks would run at once.
func (r *runner) free() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return 0
	}
	return max(0, cap(r.slots)-len(r.active))
}

// running lists the attempts that run, wait for a slot, or have ended without
// the scheduler's acknowledgement.
func (r *runner) running() []string {
	r.mu.Lock()
	ids := make([]string, 0, len(r.active))
	for id := range r.active {
		ids = append(ids, id)
	}
	r.mu.Unlock()
	ids = append(ids, r.reporter.attempts()...)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// borrow takes a free slot, or the extra one, for a probe. The caller gives it
// back by calling back.
func (r *runner) borrow(ctx context.Context) (s *slot, back func(), err error) {
	select {
	case s = <-r.extra:
		return s, func() { r.extra <- s }, nil
	default:
	}
	select {
	case s = <-r.extra:
		return s, func() { r.extra <- s }, nil
	case s = <-r.slots:
		return s, func() { r.slots <- s }, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// stop takes no more tasks, waits for those that run until ctx ends, and then
// cancels them. Afterwards no slot is in use.
func (r *runner) stop(ctx context.Context) {
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		r.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	r.mu.Lock()
	for id, a := range r.active {
		r.log.LogAttrs(ctx, slog.LevelWarn, "task cancelled to shut down", slog.String("job_id", a.job), slog.String("attempt_id", id))
		a.cancel(errShutdown)
	}
	r.mu.Unlock()
	<-ended
}

// closeSlots closes all engines. Nothing may run any more.
func (r *runner) closeSlots() error {
	var errs []error
	for range cap(r.slots) {
		errs = append(errs, (<-r.slots).discard())
	}
	errs = append(errs, (<-r.extra).discard())
	return errors.Join(errs...)
}
