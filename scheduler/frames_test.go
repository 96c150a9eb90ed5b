package scheduler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/cached"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/sql"
)

// bindFrames binds FROM id to a query that reads the whole frame.
func bindFrames(c *Config) {
	inner := c.bindStatement
	c.bindStatement = func(ctx context.Context, st sql.Statement, s plan.Session, o sql.BindOptions) (plan.Node, error) {
		sel, ok := st.Body.(*sql.Select)
		if !ok || !strings.HasPrefix(sel.Query.Text, "FROM ") {
			return inner(ctx, st, s, o)
		}
		frame, columns, err := o.Frames(strings.TrimPrefix(sel.Query.Text, "FROM "))
		if err != nil {
			return nil, err
		}
		return &plan.Query{
			SQL: "FROM firn_f0", Columns: columns, Why: "whole",
			Sources: []plan.Source{{View: []string{"firn_f0"}, Kind: plan.SourceFrame, Frame: &frame, Columns: columns}},
		}, nil
	}
}

// cacheIt makes a frame of parts pieces.
func (h *harness) cacheIt(key string) (frame, job string) {
	h.t.Helper()
	resp, err := h.client.CacheFrame(h.t.Context(), &firnpb.CacheFrameRequest{Statement: &firnpb.ExecuteRequest{
		ProtocolVersion: wire.ProtocolVersion, Sql: "SELECT 1", IdempotencyKey: key,
	}})
	must(h.t, err)
	wantState(h.t, h.wait(resp.GetJob().GetJobId()), graph.Succeeded, commit.CommitNone)
	return resp.GetFrameId(), resp.GetJob().GetJobId()
}

// readFrame is a task that reads all pieces of a frame over Flight, and fails if one
// is lost.
func (e *fakeExecutor) readFrame(s func() *Scheduler, d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
	q, ok := n.(*plan.Query)
	if !ok || len(q.Sources) == 0 || q.Sources[0].Frame == nil {
		return e.succeed(d, n)
	}
	for _, l := range q.Sources[0].Frame.Locations {
		r := s().flight.Open(e.life, sourceOf(l))
		_, err := r.Schema()
		r.Close()
		if err != nil {
			return fail(d, err, wire.ClassRetryable)
		}
	}
	return e.succeed(d, n)
}

func startReaders(t *testing.T, h **harness, ids ...string) (all []*fakeExecutor) {
	t.Helper()
	for _, id := range ids {
		var e *fakeExecutor
		e = startExecutor(t, (*h).s, executorOptions{id: id, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
			return e.readFrame(func() *Scheduler { return (*h).s }, d, n)
		}})
		all = append(all, e)
	}
	return all
}

// launchedFor counts the tasks of a job that an executor was given, as far as they
// came.
func launchedFor(e *fakeExecutor, job string) (n int) {
	for {
		select {
		case d := <-e.launched:
			if d.GetJobId() == job {
				n++
			}
		default:
			return n
		}
	}
}

// rebuild is the only job that built pieces of a frame after the first one.
func (h *harness) rebuild(first string) string {
	h.t.Helper()
	resp, err := h.client.ListJobs(h.t.Context(), &firnpb.ListJobsRequest{})
	must(h.t, err)
	var builds []string
	for _, j := range resp.GetJobs() {
		if j.GetStatement() == statementCache && j.GetJobId() != first {
			builds = append(builds, j.GetJobId())
		}
	}
	if len(builds) != 1 {
		h.t.Fatalf("%d builds", len(builds))
	}
	return builds[0]
}

// TestFramesAreTheirOwners: somebody else's frame can't be read, seen or released, and
// the answer is that to a name that nobody has.
func TestFramesAreTheirOwners(t *testing.T) {
	h := start(t, bindFrames)
	startReaders(t, &h, "e1")
	mine, job := h.cacheIt("")
	const other = "other"
	run := func(namespace, frame string) error {
		st, err := h.s.submit(t.Context(), submission{
			namespace: namespace, key: newID(""), fingerprint: newID(""), statement: "SELECT", sql: "FROM " + frame,
			plan: &plan.Logical{SQL: "FROM " + frame}, mode: plan.ModeStaged, timeZone: "UTC",
		})
		must(t, err)
		return wire.ErrorFromProto(h.wait(st.GetJobId()).GetError())
	}
	if err := run(defaultNamespace, mine); err != nil {
		t.Fatal(err)
	}
	theirs, nobodys := run(other, mine), run(other, "f-0")
	if commit.CodeOf(theirs) != commit.CodeFrameNotFound || strings.ReplaceAll(theirs.Error(), mine, "f-0") != nobodys.Error() {
		t.Errorf("read: %v; of a frame that isn't there: %v", theirs, nobodys)
	}
	must(t, h.s.loop.call(t.Context(), func() {
		if all := h.s.state.frames.List(other); len(all) != 0 {
			t.Errorf("seen: %v", all)
		}
		if _, err := h.s.state.frames.Look(mine, other); commit.CodeOf(err) != commit.CodeFrameNotFound {
			t.Errorf("looked at: %v", err)
		}
		if err := h.s.frameEvent(cached.Release{Frame: mine, Owner: other}); commit.CodeOf(err) != commit.CodeFrameNotFound {
			t.Errorf("released: %v", err)
		}
	}))
	// Nor can a plan that a client makes itself name one.
	raw, err := plan.Encode(&plan.Query{SQL: "FROM f", Sources: []plan.Source{{View: []string{"f"}, Kind: plan.SourceFrame, Frame: &plan.Frame{
		ID: mine, Pieces: parts, Locations: []plan.ShuffleLocation{{Job: job, Frame: mine}},
	}}}})
	must(t, err)
	if _, err := h.execute(&firnpb.ExecuteRequest{Physical: raw}); commit.CodeOf(err) != commit.CodeBadPlan || !strings.Contains(err.Error(), "is a cached frame") {
		t.Errorf("in a plan: %v", err)
	}
	st, err := h.client.GetFrame(t.Context(), &firnpb.FrameRequest{FrameId: mine})
	if err != nil || st.GetState() != "ready" || st.GetPieces() != parts {
		t.Errorf("%v, %v", st, err)
	}
}

// TestTasksRunWherePiecesAre: rather than on an executor with more free slots.
func TestTasksRunWherePiecesAre(t *testing.T) {
	h := start(t, bindFrames)
	startReaders(t, &h, "e1")
	frame, _ := h.cacheIt("")
	e2 := startExecutor(t, h.s, executorOptions{id: "e2", slots: 4})
	id := h.submit(&firnpb.ExecuteRequest{Sql: "FROM " + frame})
	wantState(t, h.wait(id), graph.Succeeded, commit.CommitNone)
	if n := launchedFor(e2, id); n != 0 {
		t.Errorf("%d tasks ran away from what they read", n)
	}
	id = h.submit(&firnpb.ExecuteRequest{Sql: "SELECT 1"})
	wantState(t, h.wait(id), graph.Succeeded, commit.CommitNone)
	if launchedFor(e2, id) == 0 {
		t.Error("no task of another job ran on the executor with more free slots")
	}
}

// TestLostPiecesAreBuiltAgain: those alone, once for all jobs; and with the release of
// the frame everything of it is freed on all executors.
func TestLostPiecesAreBuiltAgain(t *testing.T) {
	h := start(t, bindFrames)
	es := startReaders(t, &h, "e1", "e2")
	frame, first := h.cacheIt("k")
	if again, job := h.cacheIt("k"); again != frame || job != first {
		t.Fatalf("the key gave %s and %s", frame, again)
	}
	here := launchedFor(es[0], first)
	if here == 0 || here+launchedFor(es[1], first) != parts {
		t.Fatalf("%d of %d pieces are on the first executor", here, parts)
	}
	// Its files are deleted; nobody knows.
	es[0].mu.Lock()
	clear(es[0].batches)
	es[0].mu.Unlock()
	ids := []string{h.submit(&firnpb.ExecuteRequest{Sql: "FROM " + frame}), h.submit(&firnpb.ExecuteRequest{Sql: "FROM " + frame})}
	for _, id := range ids {
		wantState(t, h.wait(id), graph.Succeeded, commit.CommitNone)
	}
	build := h.rebuild(first)
	if n := launchedFor(es[0], build) + launchedFor(es[1], build); n > here {
		t.Errorf("%d pieces were built again, %d were lost", n, here)
	}
	// A job's report that it lost what it never read changes nothing.
	must(t, h.s.loop.call(t.Context(), func() {
		j := h.s.state.jobs[ids[0]]
		v, _ := h.s.state.frames.Any(frame)
		l := h.s.lostInput(&attempt{job: j, task: graph.TaskID{Stage: 1}}, &wire.LostInputError{Task: 0, Attempt: v.Pieces[0].Attempt})
		if after, _ := h.s.state.frames.Any(frame); after.Lost != 0 || l.Attempt != v.Pieces[0].Attempt {
			t.Errorf("%+v, %+v", after, l)
		}
	}))
	_, err := h.client.ReleaseFrame(t.Context(), &firnpb.FrameRequest{FrameId: frame})
	must(t, err)
	for _, e := range es {
		var freed []string
		for !slices.Contains(freed, first) || !slices.Contains(freed, build) {
			freed = append(freed, receive(t, e.freed, "free").GetJobId())
		}
	}
	if rec, err := h.s.journal.Frames(t.Context()); err != nil || len(rec) != 0 {
		t.Errorf("on record: %v, %v", rec, err)
	}
}

// TestAnExecutorThatNoReaderReaches: all pieces on it are lost with the first that can't
// be read, and what is built again isn't put there.
func TestAnExecutorThatNoReaderReaches(t *testing.T) {
	h := start(t, bindFrames)
	var mu sync.Mutex
	far, told := "", 0
	unreached := func(e **fakeExecutor) func(*firnpb.TaskDefinition, plan.Node) *firnpb.TaskStatus {
		return func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
			if q, ok := n.(*plan.Query); ok && len(q.Sources) > 0 && q.Sources[0].Frame != nil {
				for _, l := range q.Sources[0].Frame.Locations {
					if mu.Lock(); l.Executor == far {
						told++
						mu.Unlock()
						lost := &wire.LostInputError{Stage: l.Stage, Task: l.Task, Attempt: l.Attempt, Executor: l.Executor, Unreachable: true, Cause: errors.New("no answer")}
						return fail(d, lost, wire.ClassRetryable)
					}
					mu.Unlock()
				}
			}
			return (*e).succeed(d, n)
		}
	}
	var e1, e2 *fakeExecutor
	e1 = startExecutor(t, h.s, executorOptions{id: "e1", task: unreached(&e1)})
	e2 = startExecutor(t, h.s, executorOptions{id: "e2", task: unreached(&e2)})
	frame, first := h.cacheIt("")
	there, near, here := e1, e2, launchedFor(e1, first)
	if here < parts-here {
		there, near, here = e2, e1, parts-here
	}
	if here < 2 || here == parts {
		t.Fatalf("%d of %d pieces are on one executor", here, parts)
	}
	mu.Lock()
	far = there.id
	mu.Unlock()
	wantState(t, h.run(&firnpb.ExecuteRequest{Sql: "FROM " + frame}), graph.Succeeded, commit.CommitNone)
	if told != 1 {
		t.Errorf("%d pieces were found lost one by one", told)
	}
	build := h.rebuild(first)
	if bad, good := launchedFor(there, build), launchedFor(near, build); bad != 0 || good != here {
		t.Errorf("built again: %d where nobody reads them, %d elsewhere, of %d", bad, good, here)
	}
}

// TestAnEndedJobIsForgotten: whoever tells of it late leaves nothing behind.
func TestAnEndedJobIsForgotten(t *testing.T) {
	h := start(t, nil)
	for _, id := range []string{"e1", "e2"} {
		startExecutor(t, h.s, executorOptions{id: id})
	}
	id := h.submit(&firnpb.ExecuteRequest{Sql: "SELECT 1"})
	wantState(t, h.wait(id), graph.Succeeded, commit.CommitNone)
	must(t, h.s.loop.call(t.Context(), func() {
		h.s.unreachable(h.s.state.jobs[id], &wire.LostInputError{Executor: "e1", Unreachable: true, Cause: errors.New("no answer")})
		if h.s.placement.PassedOver(id, "e1", time.Now()) {
			t.Error("the job's tasks pass an executor over, and it has ended")
		}
	}))
}

// TestTwoReadersOfALostPiece: the second tells of it when the job has another one, and
// isn't to blame either.
func TestTwoReadersOfALostPiece(t *testing.T) {
	h := start(t, bindFrames)
	stop := newStop()
	var e *fakeExecutor
	e = startExecutor(t, h.s, executorOptions{id: "e1", task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		if q, ok := n.(*plan.Query); ok && len(q.Sources) > 0 && q.Sources[0].Frame != nil {
			stop.wait()
		}
		return e.succeed(d, n)
	}})
	frame, _ := h.cacheIt("")
	id := h.submit(&firnpb.ExecuteRequest{Sql: "FROM " + frame})
	receive(t, stop.arrived, "task that reads")
	must(t, h.s.loop.call(t.Context(), func() {
		j := h.s.state.jobs[id]
		v, _ := h.s.state.frames.Any(frame)
		lost := &wire.LostInputError{Task: 1, Attempt: v.Pieces[1].Attempt}
		reader := &attempt{job: j, task: graph.TaskID{Stage: 1}}
		was := j.held[graph.TaskID{Task: 1}]
		l := h.s.lostInput(reader, lost)
		if len(was) != 1 || l.Attempt != was[0] {
			t.Errorf("the first tells of %+v, which is called %q", l, was)
		}
		// The job is about to have another one.
		_ = h.s.frameEvent(cached.Want{Frame: frame, User: id, Pieces: []int{1}, Of: parts})
		j.holdPiece(l.Task, nameOf(cached.Piece{Attempt: "a-again"}))
		if second := h.s.lostInput(reader, lost); *second != *l {
			t.Errorf("the second tells of %+v, the first of %+v", second, l)
		}
	}))
	close(stop.release)
	wantState(t, h.wait(id), graph.Succeeded, commit.CommitNone)
}

// TestAPieceThatIsNotHeldIsNotRead: a task that is to read a piece which its job doesn't
// hold isn't launched, and runs when the job holds it.
func TestAPieceThatIsNotHeldIsNotRead(t *testing.T) {
	h := start(t, bindFrames)
	stop := newStop()
	var e *fakeExecutor
	e = startExecutor(t, h.s, executorOptions{id: "e1", slots: 1, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		if q, ok := n.(*plan.Query); ok && len(q.Sources) > 0 && q.Sources[0].Frame != nil {
			stop.wait()
		}
		return e.succeed(d, n)
	}})
	frame, _ := h.cacheIt("")
	first := h.submit(&firnpb.ExecuteRequest{Sql: "FROM " + frame})
	receive(t, stop.arrived, "task that reads")
	id := h.submit(&firnpb.ExecuteRequest{Sql: "FROM " + frame}) // its task waits for the slot
	h.waitUntil(id, func(st *firnpb.JobStatus) bool {
		return len(st.GetStages()) == 2 && st.GetStages()[0].GetTasksDone() == parts
	})
	must(t, h.s.loop.call(t.Context(), func() {
		j, on := h.s.state.jobs[id], h.s.state.executors["e1"]
		run := j.queue[0]
		j.queue = nil
		if lost := h.s.notHeld(j, run.Inputs); lost != nil || len(run.Inputs) != parts {
			t.Errorf("%+v of %+v isn't held", lost, run.Inputs)
		}
		run.Inputs = slices.Clone(run.Inputs)
		run.Inputs[1].Attempt = nameOf(cached.Piece{Attempt: "a-another"})
		before := len(h.s.state.attempts)
		if l := h.s.launch(on, j, run, false); l != nil || len(h.s.state.attempts) != before || len(on.running) != 1 {
			t.Errorf("launched: %+v", l)
		}
		if len(j.queue) != 1 {
			t.Errorf("%d tasks wait", len(j.queue))
		}
	}))
	close(stop.release)
	wantState(t, h.wait(first), graph.Succeeded, commit.CommitNone)
	wantState(t, h.wait(id), graph.Succeeded, commit.CommitNone)
}

// TestAFrameThatCantBeBuiltAgain fails its readers with the reason, and is there to be
// tried again.
func TestAFrameThatCantBeBuiltAgain(t *testing.T) {
	h := start(t, bindFrames)
	broken := false
	var mu sync.Mutex
	var e *fakeExecutor
	e = startExecutor(t, h.s, executorOptions{id: "e1", task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		mu.Lock()
		defer mu.Unlock()
		if q, ok := n.(*plan.Query); ok && broken && q.Sources[0].Frame == nil {
			return fail(d, errors.New("the snapshot has expired"), wire.ClassNotRetryable)
		}
		return e.readFrame(func() *Scheduler { return h.s }, d, n)
	}})
	frame, _ := h.cacheIt("")
	e.mu.Lock()
	clear(e.batches)
	e.mu.Unlock()
	mu.Lock()
	broken = true
	mu.Unlock()
	err := wire.ErrorFromProto(h.run(&firnpb.ExecuteRequest{Sql: "FROM " + frame}).GetError())
	if commit.CodeOf(err) != commit.CodeFrameLost || !strings.Contains(err.Error(), "the snapshot has expired") {
		t.Fatalf("%v", err)
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	wantState(t, h.run(&firnpb.ExecuteRequest{Sql: "FROM " + frame}), graph.Succeeded, commit.CommitNone)
}

// TestFramesOutliveTheProcess: a job that reads one goes on, with the pieces that it
// had; a frame that was released meanwhile goes when it ends.
func TestFramesOutliveTheProcess(t *testing.T) {
	h := start(t, bindFrames)
	dir, addr := h.dir, h.s.Addr()
	stop := newStop()
	var e *fakeExecutor
	e = startExecutor(t, h.s, executorOptions{id: "e1", task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		if q, ok := n.(*plan.Query); ok && q.Sources[0].Frame != nil {
			stop.wait()
		}
		return e.succeed(d, n)
	}})
	frame, first := h.cacheIt("")
	kept, _ := h.cacheIt("")
	reader := h.submit(&firnpb.ExecuteRequest{Sql: "FROM " + frame})
	receive(t, stop.arrived, "task that reads")
	_, err := h.client.ReleaseFrame(t.Context(), &firnpb.FrameRequest{FrameId: frame})
	must(t, err)
	h.close()

	h = again(t, dir, addr, bindFrames)
	h.returned(e)
	must(t, h.s.loop.call(t.Context(), func() {
		h.s.tick(time.Now())
		v, ok := h.s.state.frames.Any(frame)
		if !ok || v.Users != 1 || v.Lost != 0 || !h.s.needs(first) {
			t.Errorf("while it is read: %+v, %t", v, ok)
		}
	}))
	close(stop.release)
	wantState(t, h.wait(reader), graph.Succeeded, commit.CommitNone)
	for receive(t, e.freed, "free").GetJobId() != first {
		continue // stages of the reader
	}
	if n := launchedFor(e, first); n != parts {
		t.Errorf("the pieces were made %d times", n)
	}
	st, err := h.client.GetFrame(t.Context(), &firnpb.FrameRequest{FrameId: kept})
	if err != nil || st.GetState() != "ready" || st.GetLost() != 0 || len(st.GetResultSchema()) == 0 {
		t.Errorf("%v, %v", st, err)
	}
	wantState(t, h.run(&firnpb.ExecuteRequest{Sql: "FROM " + kept}), graph.Succeeded, commit.CommitNone)
}
