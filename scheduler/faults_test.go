package scheduler

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/speculation"
)

// passTime has the event loop look at the time twice, hours later.
func (h *harness) passTime() {
	h.t.Helper()
	for n := range 2 {
		must(h.t, h.s.loop.call(h.t.Context(), func() { h.s.tick(time.Now().Add(time.Duration(n+1) * time.Hour)) }))
	}
}

// All executors are gone: a job with tasks to run waits for a while and fails with
// the reason; one whose commit has begun needs none.
func TestW6_NoExecutorLeft(t *testing.T) {
	t.Run("executing", func(t *testing.T) {
		h := start(t, nil)
		e := startExecutor(t, h.s, executorOptions{id: "e1", task: func(*firnpb.TaskDefinition, plan.Node) *firnpb.TaskStatus { return nil }})
		id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
		receive(t, e.launched, "task")
		h.lose(e)
		wantState(t, h.get(id), graph.Running, commit.CommitNone)
		h.passTime()
		st := h.wait(id)
		wantState(t, st, graph.JobFailed, commit.CommitNone)
		wantCode(t, wire.ErrorFromProto(st.GetError()), commit.CodeNoExecutors, id, "5m0s")
	})
	t.Run("committing", func(t *testing.T) {
		h := start(t, nil)
		e := startExecutor(t, h.s, executorOptions{id: "e1"})
		hold := newStop()
		h.catalogs.set(func() { h.catalogs.send = hold.wait })
		id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
		receive(t, hold.arrived, "send")
		h.lose(e)
		h.passTime()
		wantState(t, h.get(id), graph.Running, commit.CommitInFlight)
		close(hold.release)
		wantState(t, h.wait(id), graph.Succeeded, commit.CommitCommitted)
	})
	t.Run("the root reads copies", func(t *testing.T) {
		h := start(t, nil)
		hold := newStop()
		e := startExecutor(t, h.s, executorOptions{id: "e1", copies: true, onGet: hold.wait})
		id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
		receive(t, hold.arrived, "read")
		close(hold.release)
		h.lose(e)
		h.passTime()
		wantState(t, h.wait(id), graph.Succeeded, commit.CommitCommitted)
	})
}

// Each status comes twice at once, behind a failure of the same attempt that was
// late, or before a "running" that was overtaken, and again when all is over.
func TestW8_StatusesLostDoubledLateAndReordered(t *testing.T) {
	for _, dispatch := range []string{DispatchPush, DispatchPull} {
		t.Run(dispatch, func(t *testing.T) {
			h := start(t, func(c *Config) { c.Dispatch = dispatch })
			var mu sync.Mutex
			var all []*firnpb.TaskStatus
			var e *fakeExecutor
			say := func(st *firnpb.TaskStatus) {
				_, err := e.sched.ReportStatus(e.life, &firnpb.ReportStatusRequest{ExecutorId: e.id, Incarnation: e.incarnation, Statuses: []*firnpb.TaskStatus{st}})
				if err != nil && e.life.Err() == nil {
					t.Error(err)
				}
			}
			var n atomic.Int32
			ready := make(chan struct{})
			task := func(d *firnpb.TaskDefinition, node plan.Node) *firnpb.TaskStatus {
				<-ready
				st := e.succeed(d, node)
				mu.Lock()
				all = append(all, st)
				mu.Unlock()
				late := fail(d, errors.New("said too late"), wire.ClassNotRetryable)
				switch n.Add(1) % 3 {
				case 0:
					var twice sync.WaitGroup
					for range 2 {
						twice.Go(func() { say(st) })
					}
					twice.Wait()
					say(late)
				case 1:
					say(st)
					say(statusFor(d, "running"))
					say(late)
				case 2:
					say(statusFor(d, "running"))
				}
				return st
			}
			e = startExecutor(t, h.s, executorOptions{id: "e1", slots: 4, task: task})
			close(ready)
			const jobs = 10
			for range jobs {
				wantState(t, h.run(&firnpb.ExecuteRequest{Sql: "INSERT INTO mem.ns.t SELECT 2"}), graph.Succeeded, commit.CommitCommitted)
			}
			for _, st := range all {
				say(st)
			}
			if rows, applied := h.catalogs.table.Rows(commit.MainBranch), h.catalogs.table.Applied(); rows != jobs*20 || applied != jobs {
				t.Fatalf("%d rows in %d commits", rows, applied)
			}
		})
	}
}

// Roots have a place of the pool while they read and verify. Sealed ones leave it:
// TestWaitingForTheTableTakesNoPlace.
func TestW15_RootsAreBounded(t *testing.T) {
	h := start(t, func(c *Config) { c.RootSlots = 2 })
	hold := newStop()
	release := sync.OnceFunc(func() { close(hold.release) })
	defer release()
	e := startExecutor(t, h.s, executorOptions{id: "e1", slots: 8, onGet: hold.wait})
	var ids []string
	for range 5 {
		ids = append(ids, h.submit(&firnpb.ExecuteRequest{Sql: insert}))
	}
	for _, id := range ids {
		h.waitUntil(id, func(st *firnpb.JobStatus) bool { return st.GetPhase() == graph.PhaseCommitting })
	}
	for range 2 {
		receive(t, hold.arrived, "read")
	}
	roots := 0
	h.s.running.Range(func(any, any) bool { roots++; return true })
	if n := e.gets.Load(); roots != 2 || n != 2 {
		t.Fatalf("%d roots run, and %d read", roots, n)
	}
	release()
	for _, id := range ids {
		wantState(t, h.wait(id), graph.Succeeded, commit.CommitCommitted)
	}
}

// eager calls everything a straggler that takes longer than the others.
var eager = &speculation.Policy{Done: 0.5, Slower: 1, AtLeast: 20 * time.Millisecond}

func TestStragglersRunTwice(t *testing.T) {
	for _, dispatch := range []string{DispatchPush, DispatchPull} {
		for _, winner := range []string{"the second", "the first"} {
			t.Run(dispatch+"/"+winner, func(t *testing.T) {
				h := start(t, func(c *Config) { c.Dispatch, c.Speculation = dispatch, eager })
				var first, second atomic.Pointer[firnpb.TaskDefinition]
				goOn := make(chan struct{})
				executors := map[string]*fakeExecutor{}
				var ready sync.WaitGroup
				ready.Add(1)
				for _, id := range []string{"e1", "e2"} {
					task := func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
						ready.Wait()
						switch {
						case d.GetTask() != 0:
						case first.CompareAndSwap(nil, d):
							if <-goOn; winner == "the second" {
								return nil
							}
						default:
							second.Store(d)
							if winner == "the first" {
								close(goOn)
								return nil
							}
						}
						return executors[id].succeed(d, n)
					}
					executors[id] = startExecutor(t, h.s, executorOptions{id: id, slots: 2, task: task})
				}
				ready.Done()
				st := h.run(&firnpb.ExecuteRequest{Sql: insert})
				wantState(t, st, graph.Succeeded, commit.CommitCommitted)
				if rows := h.catalogs.table.Rows(commit.MainBranch); rows != 10*parts {
					t.Fatalf("%d rows", rows)
				}
				loser := first.Load()
				if winner == "the first" {
					loser = second.Load()
				} else {
					close(goOn)
				}
				// Other tasks may have looked late too.
				timeout := time.After(20 * time.Second)
				for stopped := ""; stopped != loser.GetAttemptId(); {
					select {
					case stopped = <-executors["e1"].cancelled:
					case stopped = <-executors["e2"].cancelled:
					case <-timeout:
						t.Fatal("the loser wasn't stopped")
					}
				}
			})
		}
	}
}

// There's nobody to run it a second time but the one that runs it.
func TestNoTwinOnTheSameExecutor(t *testing.T) {
	h := start(t, func(c *Config) { c.Speculation = eager })
	hold := newStop()
	var e *fakeExecutor
	ready := make(chan struct{})
	e = startExecutor(t, h.s, executorOptions{id: "e1", slots: 8, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		<-ready
		if d.GetTask() == 0 {
			hold.wait()
		}
		return e.succeed(d, n)
	}})
	close(ready)
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	receive(t, hold.arrived, "task")
	h.waitUntil(id, func(st *firnpb.JobStatus) bool { return st.GetStages()[0].GetTasksDone() == parts-1 })
	must(t, h.s.loop.call(t.Context(), func() { h.s.speculate(time.Now().Add(time.Hour)) }))
	close(hold.release)
	wantState(t, h.wait(id), graph.Succeeded, commit.CommitCommitted)
	if len(e.launched) != parts {
		t.Fatal(fmt.Sprint(len(e.launched)) + " launches")
	}
}
