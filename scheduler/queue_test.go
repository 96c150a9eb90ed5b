package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/sql"
)

// heldBinder lets a test say when each statement is bound.
type heldBinder struct {
	began chan string // job ids, in the order in which their binding began
	let   chan struct{}
}

func holdBinding(c *Config) *heldBinder {
	b := &heldBinder{began: make(chan string, 100), let: make(chan struct{}, 100)}
	bind := c.bindStatement
	c.bindStatement = func(ctx context.Context, st sql.Statement, session plan.Session, opts sql.BindOptions) (plan.Node, error) {
		b.began <- opts.JobID
		select {
		case <-b.let:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		return bind(ctx, st, session, opts)
	}
	return b
}

func (h *harness) selectOne(key string) string {
	h.t.Helper()
	return h.submit(&firnpb.ExecuteRequest{Sql: "SELECT 1", IdempotencyKey: key})
}

// TestQueue: eight statements are planned at a time. Others wait, say for what, can be
// cancelled, and are planned in the order in which they came.
func TestQueue(t *testing.T) {
	var b *heldBinder
	h := start(t, func(c *Config) { b = holdBinding(c) })
	startExecutor(t, h.s, executorOptions{id: "e1"})
	var ids []string
	for i := range 8 {
		id := h.selectOne(fmt.Sprint(i))
		ids = append(ids, id)
		if got := receive(t, b.began, "binding"); got != id {
			t.Fatalf("%s is bound, want %s", got, id)
		}
	}
	for i := 8; i < 11; i++ {
		ids = append(ids, h.selectOne(fmt.Sprint(i)))
	}
	for _, id := range ids[8:] {
		if st := h.get(id); st.GetState() != string(graph.Queued) || st.GetWaitsFor() != "a place to be planned: 8 statements are planned at a time, and 3 wait" {
			t.Errorf("%s, waits for %q", st.GetState(), st.GetWaitsFor())
		}
	}
	if st := h.get(ids[0]); st.GetState() != string(graph.Planning) || st.GetWaitsFor() != "" {
		t.Errorf("%s, waits for %q", st.GetState(), st.GetWaitsFor())
	}
	if n, err := h.s.now(t.Context()); err != nil || n.Queued != 3 {
		t.Errorf("%d are told as queued, %v", n.Queued, err)
	}
	if _, err := h.client.CancelJob(t.Context(), &firnpb.JobRequest{JobId: ids[9]}); err != nil {
		t.Fatal(err)
	}
	wantState(t, h.wait(ids[9]), graph.Cancelled, commit.CommitNone)
	if n := h.s.line.Waiting(); n != 2 {
		t.Errorf("%d wait after one was cancelled", n)
	}
	for _, next := range []string{ids[8], ids[10]} {
		b.let <- struct{}{}
		if got := receive(t, b.began, "binding"); got != next {
			t.Fatalf("%s is next, want %s", got, next)
		}
	}
	for range 8 {
		b.let <- struct{}{}
	}
	for i, id := range ids {
		if st := h.wait(id); i != 9 && st.GetState() != string(graph.Succeeded) {
			t.Errorf("job %d: %v", i, st)
		}
	}
}

// TestQueueIsFull: a statement that would be one too many is refused before anything of
// it is on record; one that only asks for a job that there is isn't.
func TestQueueIsFull(t *testing.T) {
	var b *heldBinder
	h := start(t, func(c *Config) {
		c.PlanSlots, c.MaxQueued = 1, 2
		b = holdBinding(c)
	})
	startExecutor(t, h.s, executorOptions{id: "e1"})
	ids := []string{h.selectOne("a"), h.selectOne("b"), h.selectOne("c")}
	receive(t, b.began, "binding")
	for _, sql := range []string{"SELECT 1", insert, "EXPLAIN SELECT 1"} {
		_, err := h.execute(&firnpb.ExecuteRequest{Sql: sql, IdempotencyKey: "d"})
		e, ok := errors.AsType[*commit.Error](err)
		if !ok || e.Code != commit.CodeQueueFull || !strings.Contains(err.Error(), "2 statements wait to be planned") || !strings.Contains(e.Hint, "jobs.max_queued") {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	_, err := h.client.CacheFrame(t.Context(), &firnpb.CacheFrameRequest{Statement: &firnpb.ExecuteRequest{Sql: "SELECT 1", IdempotencyKey: "d"}})
	if err == nil || !strings.Contains(err.Error(), "wait to be planned") {
		t.Errorf("a frame: %v", err)
	}
	if frames, err := h.client.ListFrames(t.Context(), &firnpb.ListFramesRequest{}); err != nil || len(frames.GetFrames()) != 0 {
		t.Errorf("%v, %v", frames, err)
	}
	if _, err := h.s.journal.JobByKey(t.Context(), defaultNamespace, "d"); !errors.Is(err, journal.ErrNotFound) {
		t.Errorf("the refused statement is on record: %v", err)
	}
	if id := h.selectOne("c"); id != ids[2] {
		t.Errorf("the key of %s gave %s", ids[2], id)
	}
	b.let <- struct{}{}
	receive(t, b.began, "binding")
	ids = append(ids, h.selectOne("d"))
	for range 3 {
		b.let <- struct{}{}
	}
	for _, id := range ids {
		wantState(t, h.wait(id), graph.Succeeded, commit.CommitNone)
	}
	if id := h.selectOne("a"); id == ids[0] {
		t.Error("a SELECT that has ended runs anew")
	}
	b.let <- struct{}{}
}

// TestQueueAfterARestart: what was let in is planned, however many may wait by now.
func TestQueueAfterARestart(t *testing.T) {
	var b *heldBinder
	h := start(t, func(c *Config) {
		c.PlanSlots = 1
		b = holdBinding(c)
	})
	startExecutor(t, h.s, executorOptions{id: "e1"})
	var ids []string
	for i := range 4 {
		ids = append(ids, h.selectOne(fmt.Sprint(i)))
	}
	receive(t, b.began, "binding")
	h.close()
	again := startIn(t, h.dir, h.catalogs, func(c *Config) { c.PlanSlots, c.MaxQueued = 1, 1 })
	startExecutor(t, again.s, executorOptions{id: "e2"})
	for _, id := range ids {
		wantState(t, again.wait(id), graph.Succeeded, commit.CommitNone)
	}
}

// TestWaitsForASlot: a job says so that has no task anywhere, and a job with one doesn't.
func TestWaitsForASlot(t *testing.T) {
	h := start(t, nil)
	held, let := make(chan string, 10), make(chan struct{})
	var e *fakeExecutor
	e = startExecutor(t, h.s, executorOptions{id: "e1", slots: 1, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		held <- d.GetJobId()
		select {
		case <-let:
		case <-e.life.Done():
		}
		return e.succeed(d, n)
	}})
	first := h.selectOne("a")
	if got := receive(t, held, "task"); got != first {
		t.Fatal(got)
	}
	second := h.selectOne("b")
	want := fmt.Sprintf("slots: %d tasks could run, and none of them has got a free one yet", parts)
	h.waitUntil(second, func(st *firnpb.JobStatus) bool { return st.GetWaitsFor() == want })
	if st := h.get(first); st.GetWaitsFor() != "" {
		t.Errorf("a job with a task that runs waits for %q", st.GetWaitsFor())
	}
	close(let)
	for _, id := range []string{first, second} {
		if st := h.wait(id); st.GetState() != string(graph.Succeeded) || st.GetWaitsFor() != "" {
			t.Errorf("%v", st)
		}
	}
}
