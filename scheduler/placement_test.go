package scheduler

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
)

// An executor whose disk is full fails whatever it is given. It has slots free all
// the time, and so would get each task again: jobs succeed on the others all the
// same, no task fails there twice, and after a while it gets none.
func TestAFullDiskOfOneExecutorFailsNoJob(t *testing.T) {
	for _, dispatch := range []string{DispatchPush, DispatchPull} {
		t.Run(dispatch, func(t *testing.T) {
			h := start(t, func(c *Config) {
				many(40)(c)
				c.Dispatch = dispatch
			})
			var failures atomic.Int64
			failedTasks := map[string]bool{}
			startExecutor(t, h.s, executorOptions{id: "full", slots: 1, task: func(d *firnpb.TaskDefinition, _ plan.Node) *firnpb.TaskStatus {
				failures.Add(1)
				id := fmt.Sprint(d.GetJobId(), d.GetTask())
				if failedTasks[id] { // one slot: one at a time
					t.Errorf("task %s failed there before", id)
				}
				failedTasks[id] = true
				return fail(d, &commit.Error{Code: commit.CodeShuffleFull, Op: "write"}, wire.ClassRetryable)
			}})
			startExecutor(t, h.s, executorOptions{id: "sound", slots: 1})
			for range 3 {
				wantState(t, h.run(&firnpb.ExecuteRequest{Sql: selectMany}), graph.Succeeded, commit.CommitNone)
			}
			if n := failures.Load(); n != 2 {
				t.Errorf("%d tasks failed there, want 2: it is passed over then", n)
			}
			resp, err := h.client.ListExecutors(t.Context(), &firnpb.ListExecutorsRequest{})
			must(t, err)
			for _, e := range resp.GetExecutors() {
				if want := map[string]string{"full": "passed_over", "sound": "ready"}[e.GetExecutorId()]; e.GetState() != want {
					t.Errorf("%s is %s, want %s", e.GetExecutorId(), e.GetState(), want)
				}
			}
		})
	}
}

// A task may use its slot's share of the executor's memory.
func TestATaskGetsItsSlotsMemory(t *testing.T) {
	for _, dispatch := range []string{DispatchPush, DispatchPull} {
		h := start(t, func(c *Config) { c.Dispatch = dispatch })
		e := startExecutor(t, h.s, executorOptions{id: "e1", slots: 4}) // with 1 GiB
		wantState(t, h.run(&firnpb.ExecuteRequest{Sql: insert}), graph.Succeeded, commit.CommitCommitted)
		for range parts {
			if task := receive(t, e.launched, "task"); task.GetMemoryBytes() != 1<<28 {
				t.Errorf("%s: a task gets %d bytes, want %d", dispatch, task.GetMemoryBytes(), 1<<28)
			}
		}
	}
}

// Without another executor a task is tried again where it failed.
func TestTheOnlyExecutorIsTriedAgain(t *testing.T) {
	for _, dispatch := range []string{DispatchPush, DispatchPull} {
		t.Run(dispatch, func(t *testing.T) {
			h := start(t, func(c *Config) { c.Dispatch = dispatch })
			var e *fakeExecutor
			var tries atomic.Int64
			e = startExecutor(t, h.s, executorOptions{id: "e1", slots: 1, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
				if tries.Add(1) <= 3 {
					return fail(d, &commit.Error{Code: commit.CodeShuffleFull, Op: "write"}, wire.ClassRetryable)
				}
				return e.succeed(d, n)
			}})
			wantState(t, h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1"}), graph.Succeeded, commit.CommitNone)
		})
	}
}
