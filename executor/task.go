package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/executor/engine"
	"github.com/firn-project/firn/executor/shuffle"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

// States of a task attempt.
const (
	stateRunning   = "running"
	stateSucceeded = "succeeded"
	stateFailed    = "failed"
	stateCancelled = "cancelled"
)

// maxManifestCopy is the largest copy of a task's file manifests that goes with
// its success status, in bytes.
const maxManifestCopy = 64 << 10

// newStatus begins a status of an attempt.
func newStatus(t *firnpb.TaskDefinition, state string) *firnpb.TaskStatus {
	return &firnpb.TaskStatus{
		JobId: t.GetJobId(), Stage: t.GetStage(), StageAttempt: t.GetStageAttempt(),
		Task: t.GetTask(), AttemptId: t.GetAttemptId(), State: state,
	}
}

// failedStatus is the last status of an attempt that gave nothing.
func failedStatus(t *firnpb.TaskDefinition, err error) *firnpb.TaskStatus {
	s := newStatus(t, stateFailed)
	s.Error = wire.TaskErrorToProto(err)
	if errors.Is(err, errCancelled) {
		s.State, s.Error.Class = stateCancelled, wire.ClassCancelled
	} else {
		s.Error.Class = class(err)
	}
	s.EndedUnixMs = time.Now().UnixMilli()
	return s
}

// class says whether another attempt can help. The engine knows more about its
// errors than their codes say.
func class(err error) string {
	_, lost := errors.AsType[*wire.LostInputError](err)
	switch c := wire.Class(err); {
	case lost, c == wire.ClassCancelled:
		// Nobody cancelled the task: the executor shuts down, or a call of the
		// task's own ran out of time.
		return wire.ClassRetryable
	case engine.Class(err) == engine.ClassNotRetryable:
		return wire.ClassNotRetryable
	default:
		return c
	}
}

// runTask runs an attempt in a slot. Whatever happens, also a panic, ends in a
// status.
func (e *Executor) runTask(ctx context.Context, s *slot, t *firnpb.TaskDefinition) (last *firnpb.TaskStatus) {
	started := time.Now()
	log := e.log.With(slog.String("job_id", t.GetJobId()), slog.Int("stage", int(t.GetStage())),
		slog.Int("task", int(t.GetTask())), slog.String("attempt_id", t.GetAttemptId()))
	running := newStatus(t, stateRunning)
	running.StartedUnixMs = started.UnixMilli()
	e.reporter.report(running)

	r := &task{e: e, def: t, slot: s, started: started, status: newStatus(t, stateSucceeded)}
	err := r.guarded(ctx, log)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		// The reason is the cancellation and not what broke because of it. A
		// task that had ended before has won.
		err = cause
	}
	last = r.status
	if err != nil {
		last = failedStatus(t, err)
		last.RowsIn = r.status.RowsIn
		last.RejectedRows, last.Rejects = r.status.RejectedRows, r.status.Rejects
	}
	last.StartedUnixMs, last.EndedUnixMs = started.UnixMilli(), time.Now().UnixMilli()
	e.cfg.Metrics.Task(last.GetState(), time.Since(started), last.GetRowsIn(), last.GetRowsOut(), int(last.GetFiles()))
	log.LogAttrs(ctx, slog.LevelInfo, "task ended", slog.String("state", last.GetState()),
		slog.Int64("rows_in", last.GetRowsIn()), slog.Int64("rows_out", last.GetRowsOut()),
		slog.Duration("duration", time.Since(started)), slog.Any("error", err))
	return last
}

// task is one attempt while it runs.
type task struct {
	e      *Executor
	def    *firnpb.TaskDefinition
	slot   *slot
	status *firnpb.TaskStatus
	// started is when the slot was had.
	started time.Time
}

// guarded runs the task and makes a panic its error. The engine of the slot is
// given up then, as nobody knows what state it is in.
func (r *task) guarded(ctx context.Context, log *slog.Logger) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		log.LogAttrs(ctx, slog.LevelError, "task panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		err = &commit.Error{
			Code: commit.CodeTaskPanic, Op: "run", Object: fmt.Sprintf("task %d of stage %d", r.def.GetTask(), r.def.GetStage()),
			Cause: fmt.Errorf("panic: %v", p), Hint: "Report it with the log of executor " + r.e.cfg.ID + ", which has the stack.",
		}
		if derr := r.slot.discard(); derr != nil {
			log.LogAttrs(ctx, slog.LevelWarn, "closing the slot's engine failed", slog.Any("error", derr))
		}
	}()
	return r.run(ctx)
}

func (r *task) run(ctx context.Context) error {
	node, err := plan.Decode(r.def.GetFragment())
	if err != nil {
		return r.unplanned(err)
	}
	if !validID(r.def.GetJobId()) || !validID(r.def.GetAttemptId()) {
		return r.unplanned(fmt.Errorf("job %q or attempt %q isn't fit for a path", r.def.GetJobId(), r.def.GetAttemptId()))
	}
	switch n := node.(type) {
	case *plan.Write:
		return r.writeFiles(ctx, n)
	case *plan.Exchange:
		return r.exchange(ctx, n.Input, n)
	default:
		return r.exchange(ctx, node, &plan.Exchange{How: plan.ExchangeSingle, Partitions: 1})
	}
}

// unplanned is for tasks that can't be run as they are.
func (r *task) unplanned(err error) error {
	return &commit.Error{
		Code: commit.CodeTaskPlan, Op: "run",
		Object: fmt.Sprintf("task %d of stage %d", r.def.GetTask(), r.def.GetStage()), Cause: err,
	}
}

// stores reaches objects with the job's keys.
func (r *task) stores(storage map[string]string) objstore.Store {
	return r.e.keys.store(r.def.GetJobId(), storage)
}

func (r *task) attempt() shuffle.Attempt {
	return shuffle.Attempt{
		Job: r.def.GetJobId(), Stage: int(r.def.GetStage()), Task: int(r.def.GetTask()), ID: r.def.GetAttemptId(),
	}
}
