package scheduler

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/grpc"

	"github.com/firn-project/firn/internal/failpoint"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

// outbox makes the calls to an executor. They keep their order, so that neither a
// cancel nor a job's end can overtake a launch; but what waits while a call is
// under way goes out together, and removing the data of ended jobs, which has
// time, holds up no launch.
type outbox struct {
	s *Scheduler
	e *executor
	// calls and frees run one call at a time each. A job's data is freed after the
	// calls that were made before for it.
	calls, frees *mailbox

	mu sync.Mutex
	// tasks and ended wait for the next call that launches or frees, failed for the
	// executor to be heard of.
	tasks         []*firnpb.TaskDefinition
	ended, failed []string
}

func newOutbox(s *Scheduler, e *executor) *outbox {
	return &outbox{s: s, e: e, calls: newMailbox(nil), frees: newMailbox(nil)}
}

// close makes the calls that wait.
func (o *outbox) close() {
	o.calls.close()
	o.frees.close()
}

// launch hands tasks over. They may go with those that were given earlier: at the
// most they overtake what concerns other attempts. The executor is lost if it
// can't be told.
func (o *outbox) launch(tasks []*firnpb.TaskDefinition) {
	o.mu.Lock()
	o.tasks = append(o.tasks, tasks...)
	o.mu.Unlock()
	o.calls.put(func() {
		o.mu.Lock()
		all := o.tasks
		o.tasks = nil
		o.mu.Unlock()
		if len(all) == 0 {
			return
		}
		o.call("launch tasks", true, func(ctx context.Context) error {
			_, err := o.e.rpc.LaunchTasks(ctx, &firnpb.LaunchTasksRequest{Tasks: all}, grpc.WaitForReady(true))
			if err == nil {
				o.s.loop.put(func() { o.e.has(all) })
			}
			return err
		})
	})
}

// cancel stops an attempt.
func (o *outbox) cancel(attempt string) {
	o.calls.put(func() {
		o.call("cancel task", false, func(ctx context.Context) error {
			_, err := o.e.rpc.CancelTasks(ctx, &firnpb.CancelTasksRequest{AttemptIds: []string{attempt}})
			return err
		})
	})
}

// free removes shuffle data of a job that has ended, or of an upload: that of the
// stages named, or all.
func (o *outbox) free(id string, stages []int) {
	o.calls.put(func() {
		if len(stages) > 0 {
			req := &firnpb.FreeJobDataRequest{JobId: id}
			for _, n := range stages {
				req.Stages = append(req.Stages, uint32(n))
			}
			o.frees.put(func() { _ = o.freeNow(req) })
			return
		}
		o.mu.Lock()
		o.ended = append(o.ended, id)
		o.mu.Unlock()
		o.frees.put(o.freeEnded)
	})
}

// freeAgain frees what the executor couldn't be told of.
func (o *outbox) freeAgain() {
	o.mu.Lock()
	failed := len(o.failed) > 0
	o.ended, o.failed = append(o.ended, o.failed...), nil
	o.mu.Unlock()
	if failed {
		o.frees.put(o.freeEnded)
	}
}

func (o *outbox) freeEnded() {
	o.mu.Lock()
	all := o.ended
	o.ended = nil
	o.mu.Unlock()
	if len(all) == 0 || o.freeNow(&firnpb.FreeJobDataRequest{JobId: all[0], MoreJobs: all[1:]}) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = append(o.failed, all...)
}

func (o *outbox) freeNow(req *firnpb.FreeJobDataRequest) bool {
	return o.call("free job data", false, func(ctx context.Context) error {
		failpoint.Hit(failpoint.BeforeFree)
		_, err := o.e.rpc.FreeJobData(ctx, req)
		failpoint.HitIf(err == nil, failpoint.AfterFree)
		return err
	})
}

// call makes one call and says whether it was answered. One that fails for good makes the executor lost when must
// is set; else the next heartbeats straighten it out.
func (o *outbox) call(what string, must bool, f func(context.Context) error) bool {
	s, e := o.s, o.e
	ctx, cancel := context.WithTimeout(e.life, s.cfg.ExecutorTimeout)
	defer cancel()
	err := f(ctx)
	if err == nil || e.life.Err() != nil {
		return err == nil
	}
	s.log.Warn("call to executor failed", slog.String("executor", e.id), slog.String("call", what), slog.Any("error", err))
	if must {
		s.loop.put(func() { s.loseExecutor(e, what+" failed") })
	}
	return false
}

// mailbox runs functions one after the other on one goroutine, in the order in
// which they were put. Putting never blocks, so a function may put others, also
// into the mailbox that runs it.
//
// The event loop is a mailbox; the calls to each executor are two more.
type mailbox struct {
	mu     sync.Mutex
	queue  []func()
	closed bool
	wake   chan struct{}
	done   chan struct{}
	// after runs after each function, on the same goroutine.
	after func()
}

// newMailbox starts a mailbox. Close it.
func newMailbox(after func()) *mailbox {
	m := &mailbox{wake: make(chan struct{}, 1), done: make(chan struct{}), after: after}
	go m.run()
	return m
}

// put queues f. It returns false, and drops f, once close was called.
func (m *mailbox) put(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.queue = append(m.queue, f)
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return true
}

// call queues f and waits until it has run. When it returns an error f may
// still run, so the caller then leaves alone what f writes.
func (m *mailbox) call(ctx context.Context, f func()) error {
	ran := make(chan struct{})
	if !m.put(func() { defer close(ran); f() }) {
		return errClosing()
	}
	select {
	case <-ran:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close runs what is queued and then ends the goroutine; it waits for that.
func (m *mailbox) close() {
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		close(m.wake)
	}
	m.mu.Unlock()
	<-m.done
}

func (m *mailbox) run() {
	defer close(m.done)
	for {
		m.mu.Lock()
		batch, closed := m.queue, m.closed
		m.queue = nil
		m.mu.Unlock()
		for _, f := range batch {
			f()
			if m.after != nil {
				m.after()
			}
		}
		if len(batch) > 0 {
			continue
		}
		if closed {
			return
		}
		<-m.wake
	}
}
