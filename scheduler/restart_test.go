package scheduler

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
)

// dieSealed runs an INSERT up to its send, or, unless sent, up to right before the
// send record, kills scheduler and executor there, and starts the scheduler again
// with all places for roots taken: its root can't begin before begin is called.
func dieSealed(t *testing.T, sent bool) (h *harness, id string, begin func()) {
	t.Helper()
	catalogs := &fakeCatalogs{table: committest.NewCatalog(committest.Mode{})}
	dir := t.TempDir()
	h, m := startMortal(t, dir, "", catalogs, 0, false)
	addr := h.s.Addr()
	e := startExecutor(t, h.s, executorOptions{id: "e1"})
	stop := newStop()
	catalogs.set(func() {
		if sent {
			catalogs.send = stop.wait
		} else {
			catalogs.build = stop.wait
		}
	})
	id = h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	receive(t, stop.arrived, "sealed unit")
	m.die()
	catalogs.set(func() { catalogs.build, catalogs.send = nil, nil })
	close(stop.release)
	h.crash(m)
	e.kill()
	var s *Scheduler
	h, _ = startMortal(t, dir, addr, catalogs, 0, false, func(next *Scheduler) {
		s = next
		for range cap(s.rootSlots) {
			s.rootSlots <- struct{}{}
		}
	})
	return h, id, func() {
		for range cap(s.rootSlots) {
			<-s.rootSlots
		}
	}
}

// A unit that is sealed is fixed for ever: an executor that starts again before
// the root of the next process has begun takes nothing back, and no task runs
// again.
func TestSealedUnitOutlivesItsExecutor(t *testing.T) {
	for _, sent := range []bool{false, true} {
		t.Run(fmt.Sprintf("sent=%t", sent), func(t *testing.T) {
			h, id, begin := dieSealed(t, sent)
			before, err := h.s.journal.Unit(t.Context(), id)
			must(t, err)
			want := journal.UnitSealed
			if sent {
				want = journal.UnitSent
			}
			if before.State != want {
				t.Fatalf("the unit is %s", before.State)
			}
			e := startExecutor(t, h.s, executorOptions{id: "e1"}) // another incarnation
			begin()
			wantOnce(t, h, id)
			if len(e.launched) > 0 {
				t.Errorf("%d tasks ran again", len(e.launched))
			}
			after, err := h.s.journal.Unit(t.Context(), id)
			must(t, err)
			if after.Digest != before.Digest || after.State != journal.UnitCommitted {
				t.Errorf("the unit is %s, with other content: %t", after.State, after.Digest != before.Digest)
			}
		})
	}
}

// A cancel between the start and the root: it wins over a unit that was never
// sent, whose files go, and loses against one that may have been.
func TestCancelOfASealedUnit(t *testing.T) {
	for _, sent := range []bool{false, true} {
		t.Run(fmt.Sprintf("sent=%t", sent), func(t *testing.T) {
			h, id, begin := dieSealed(t, sent)
			resp, err := h.client.CancelJob(t.Context(), &firnpb.JobRequest{JobId: id})
			must(t, err)
			begin()
			if sent {
				if resp.GetAnswer() != graph.AnswerCommitInFlight {
					t.Fatalf("a cancel was answered %q", resp.GetAnswer())
				}
				wantOnce(t, h, id)
				return
			}
			if resp.GetAnswer() != graph.AnswerCancelled {
				t.Fatalf("a cancel was answered %q", resp.GetAnswer())
			}
			wantState(t, h.wait(id), graph.Cancelled, commit.CommitNone)
			h.close()
			deleted := 0
			// Its own deletion and the sweep may both come to a file.
			h.catalogs.set(func() { deleted = len(slices.Compact(slices.Sorted(slices.Values(h.catalogs.deleted)))) })
			if h.catalogs.table.Applied() != 0 || deleted != parts {
				t.Errorf("%d commits, %d files deleted of %d", h.catalogs.table.Applied(), deleted, parts)
			}
		})
	}
}

// An unknown outcome stays one over a restart: the next process looks it up and
// sends nothing. What lands late is found.
func TestUnknownIsNotSentAgain(t *testing.T) {
	h, id := leaveUnknown(t)
	h.close()
	h.catalogs.set(func() { h.catalogs.faults = nil })
	sends := h.catalogs.table.Sends()
	h = startIn(t, h.dir, h.catalogs, nil)
	st := h.waitUntil(id, func(st *firnpb.JobStatus) bool { return st.GetCommit() == string(commit.CommitUnknown) })
	wantState(t, st, graph.Running, commit.CommitUnknown)
	if code := st.GetError().GetCode(); code != string(commit.CodeUnknown) {
		t.Fatalf("%v", st)
	}
	h.s.resolveUnits(t.Context())
	if h.catalogs.table.Sends() != sends {
		t.Fatal("something was sent")
	}
	h.catalogs.table.Deliver()
	h.s.resolveUnits(t.Context())
	wantOnce(t, h, id)
}

// A scheduler that shuts down finishes the commit that is in flight and leaves
// the other jobs, wherever they stand, to the next process. Who watches one is
// told to ask again, and what ran on an executor goes on.
func TestCloseHandsJobsOver(t *testing.T) {
	catalogs := &fakeCatalogs{table: committest.NewCatalog(committest.Mode{})}
	dir := t.TempDir()
	h := startIn(t, dir, catalogs, nil)
	addr := h.s.Addr()
	tasks, reading := newStop(), newStop()
	var e *fakeExecutor
	var mode atomic.Value
	mode.Store("")
	e = startExecutor(t, h.s, executorOptions{id: "e1", slots: 4 * parts, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		if mode.Load() == "tasks" {
			tasks.wait()
		}
		return e.succeed(d, n)
	}, onGet: func() {
		if mode.Load() == "reading" {
			reading.wait()
		}
	}})
	send := newStop()
	catalogs.set(func() { catalogs.send = send.wait })
	inFlight := h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "in flight"})
	receive(t, send.arrived, "send")
	catalogs.set(func() { catalogs.send = nil })
	mode.Store("reading")
	atRoot := h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "reading"})
	receive(t, reading.arrived, "read")
	mode.Store("tasks")
	running := h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "running"})
	receive(t, tasks.arrived, "task")
	mode.Store("")
	planning := startBlocked(t, h)
	stream, err := h.client.WatchJob(t.Context(), &firnpb.JobRequest{JobId: running})
	must(t, err)
	closed := make(chan error, 1)
	s := h.s
	go func() { closed <- s.Close(context.Background()) }()
	for {
		var closing bool
		must(t, s.loop.call(t.Context(), func() { closing = s.state.closing }))
		if closing {
			break
		}
	}
	_, err = h.execute(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "too late"})
	wantCode(t, err, commit.CodeSchedulerClosing)
	close(send.release)
	wantState(t, h.wait(inFlight), graph.Succeeded, commit.CommitCommitted)
	for err = nil; err == nil; {
		var st *firnpb.JobStatus
		if st, err = stream.Recv(); err == nil && endedState(st.GetState()) {
			t.Fatalf("the job ended: %v", st)
		}
	}
	if status.Code(err) != codes.Unavailable {
		t.Fatalf("who watched was told %v", err)
	}
	close(reading.release)
	must(t, receive(t, closed, "end"))
	h.s = nil
	close(tasks.release)
	launched := len(e.launched)
	h = startIn(t, dir, catalogs, func(c *Config) { c.Listen = addr })
	for _, id := range []string{inFlight, atRoot, running} {
		wantState(t, h.wait(id), graph.Succeeded, commit.CommitCommitted)
	}
	wantState(t, h.wait(planning), graph.Succeeded, commit.CommitNone)
	if n := len(e.launched) - launched; n != parts {
		t.Errorf("%d tasks were started after the restart, want those of the job that was planned, %d", n, parts)
	}
	if catalogs.table.Applied() != 3 || catalogs.table.Rows("main") != 30*parts {
		t.Errorf("%d commits, %d rows", catalogs.table.Applied(), catalogs.table.Rows("main"))
	}
}

// With EndJobs they end: nobody will start the process again.
func TestCloseEndsJobs(t *testing.T) {
	end := func(c *Config) { c.EndJobs = true }
	h := start(t, end)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	hold := newStop()
	h.catalogs.set(func() { h.catalogs.send = hold.wait })
	inFlight := h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "a"})
	receive(t, hold.arrived, "send")
	waiting := startBlocked(t, h)
	closed := make(chan error, 1)
	s := h.s
	go func() { closed <- s.Close(context.Background()) }()
	st := h.wait(waiting)
	wantState(t, st, graph.JobFailed, commit.CommitNone)
	if st.GetError().GetCode() != string(commit.CodeSchedulerClosing) {
		t.Fatalf("%v", st.GetError())
	}
	close(hold.release)
	must(t, receive(t, closed, "end"))
	h.s = nil
	h = startIn(t, h.dir, h.catalogs, end)
	wantState(t, h.get(inFlight), graph.Succeeded, commit.CommitCommitted)
	wantState(t, h.get(waiting), graph.JobFailed, commit.CommitNone)
}

// A commit whose answer doesn't come is left after CloseTimeout, whatever its own
// deadline is: it is on record, and the next process finds out.
func TestCloseLeavesACommitWithoutAnAnswer(t *testing.T) {
	catalogs := &fakeCatalogs{table: committest.NewCatalog(committest.Mode{})}
	catalogs.set(func() { catalogs.faults = slices.Repeat([]string{"drop-request"}, 10_000) })
	h := startIn(t, t.TempDir(), catalogs, func(c *Config) { c.CloseTimeout, c.CommitDeadline = 300*time.Millisecond, time.Hour })
	startExecutor(t, h.s, executorOptions{id: "e1", slots: parts})
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	h.waitUntil(id, func(st *firnpb.JobStatus) bool { return catalogs.table.Sends() > 0 })
	began := time.Now()
	must(t, h.s.Close(t.Context()))
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("closing took %v", took)
	}
	h.s = nil
	catalogs.set(func() { catalogs.faults = nil })
	h = startIn(t, h.dir, catalogs, nil)
	wantState(t, h.wait(id), graph.Succeeded, commit.CommitCommitted)
	wantOnce(t, h, id)
}
