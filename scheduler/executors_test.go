package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/speculation"
)

func registration(id, incarnation string) *firnpb.RegisterRequest {
	return &firnpb.RegisterRequest{
		ProtocolVersion: wire.ProtocolVersion, ExecutorId: id, Incarnation: incarnation,
		ControlAddress: "127.0.0.1:1", FlightAddress: "127.0.0.1:1", Slots: 1,
	}
}

func schedulerClient(t *testing.T, h *harness) firnpb.SchedulerServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+h.s.Addr(), wire.DialOptions()...)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return firnpb.NewSchedulerServiceClient(conn)
}

func TestOtherProtocolVersionRefused(t *testing.T) {
	h := start(t, nil)
	r := registration("e1", "i")
	r.ProtocolVersion = 77
	_, err := schedulerClient(t, h).Register(t.Context(), r)
	wantCode(t, wire.FromStatus(err), commit.CodeProtocolVersion, "e1", "version 77", fmt.Sprintf("version %d", wire.ProtocolVersion))
	_, err = h.client.Execute(t.Context(), &firnpb.ExecuteRequest{ProtocolVersion: 78, Sql: "SELECT 1"})
	wantCode(t, wire.FromStatus(err), commit.CodeProtocolVersion, "version 78")
}

func TestBadRegistrationsRefused(t *testing.T) {
	h := start(t, nil)
	for name, edit := range map[string]func(*firnpb.RegisterRequest){
		"no id":       func(r *firnpb.RegisterRequest) { r.ExecutorId = "" },
		"no slots":    func(r *firnpb.RegisterRequest) { r.Slots = 0 },
		"many slots":  func(r *firnpb.RegisterRequest) { r.Slots = 1 << 31 },
		"no address":  func(r *firnpb.RegisterRequest) { r.FlightAddress = "" },
		"no identity": func(r *firnpb.RegisterRequest) { r.Incarnation = "" },
	} {
		r := registration("e1", "i")
		edit(r)
		_, err := schedulerClient(t, h).Register(t.Context(), r)
		if commit.CodeOf(wire.FromStatus(err)) != commit.CodeBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnknownExecutorsAreToldSo(t *testing.T) {
	h := start(t, nil)
	c := schedulerClient(t, h)
	ctx := t.Context()
	hb, err := c.Heartbeat(ctx, &firnpb.HeartbeatRequest{ExecutorId: "e1", Incarnation: "i"})
	must(t, err)
	poll, err := c.PollWork(ctx, &firnpb.PollWorkRequest{ExecutorId: "e1", Incarnation: "i", FreeSlots: 1})
	must(t, err)
	rep, err := c.ReportStatus(ctx, &firnpb.ReportStatusRequest{ExecutorId: "e1", Incarnation: "i", Statuses: []*firnpb.TaskStatus{{AttemptId: "a-1"}}})
	must(t, err)
	if hb.GetKnown() || poll.GetKnown() || rep.GetKnown() || len(rep.GetAcknowledgedAttempts()) != 0 {
		t.Fatal("an executor is known that never registered")
	}
	_, err = c.Register(ctx, registration("e1", "i"))
	must(t, err)
	hb, err = c.Heartbeat(ctx, &firnpb.HeartbeatRequest{ExecutorId: "e1", Incarnation: "i", RunningAttempts: []string{"a-1"}})
	must(t, err)
	if !hb.GetKnown() || len(hb.GetCancelAttempts()) != 1 {
		t.Fatalf("an attempt that nobody knows goes on: %v", hb)
	}
	rep, err = c.ReportStatus(ctx, &firnpb.ReportStatusRequest{ExecutorId: "e1", Incarnation: "i", Statuses: []*firnpb.TaskStatus{{AttemptId: "a-1", State: "succeeded"}}})
	must(t, err)
	if len(rep.GetAcknowledgedAttempts()) != 1 {
		t.Fatal("a status that nobody waits for is repeated for ever")
	}
	if hb, err = c.Heartbeat(ctx, &firnpb.HeartbeatRequest{ExecutorId: "e1", Incarnation: "earlier"}); err != nil || hb.GetKnown() {
		t.Fatalf("another incarnation is known: %v, %v", hb, err)
	}
}

func TestTasksAreSpread(t *testing.T) {
	for _, dispatch := range []string{DispatchPush, DispatchPull} {
		t.Run(dispatch, func(t *testing.T) {
			h := start(t, func(c *Config) { c.Dispatch = dispatch })
			for i := range parts {
				startExecutor(t, h.s, executorOptions{id: fmt.Sprint("e", i), slots: 8})
			}
			st := h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1"})
			wantState(t, st, graph.Succeeded, commit.CommitNone)
			if len(st.GetExecutors()) != parts {
				t.Fatalf("tasks ran on %v", st.GetExecutors())
			}
		})
	}
}

func TestSlotsAreNotOverbooked(t *testing.T) {
	h := start(t, nil)
	var now, most atomic.Int32
	var e *fakeExecutor
	e = startExecutor(t, h.s, executorOptions{id: "e1", slots: 1, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		if v := now.Add(1); v > most.Load() {
			most.Store(v)
		}
		st := e.succeed(d, n)
		now.Add(-1)
		return st
	}})
	h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1"})
	if most.Load() != 1 {
		t.Fatalf("%d tasks at once in one slot", most.Load())
	}
}

// The executor dies with tasks running: they run again elsewhere.
func TestExecutorLostWhileTasksRun(t *testing.T) {
	h := start(t, func(c *Config) { c.ExecutorTimeout = 2 * time.Second })
	e1 := startExecutor(t, h.s, executorOptions{id: "e1", slots: parts, task: func(*firnpb.TaskDefinition, plan.Node) *firnpb.TaskStatus { return nil }})
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	for range parts {
		receive(t, e1.launched, "task")
	}
	e1.kill()
	startExecutor(t, h.s, executorOptions{id: "e2"})
	st := h.wait(id)
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	if len(st.GetExecutors()) != 1 || st.GetExecutors()[0].GetExecutorId() != "e2" {
		t.Fatalf("%v", st.GetExecutors())
	}
}

// An executor that shuts down gets no more tasks, keeps those it has, and is lost
// with its last word, not after its silence.
func TestDrainingAndLeaving(t *testing.T) {
	h := start(t, nil)
	e1 := startExecutor(t, h.s, executorOptions{id: "e1", slots: 8})
	e1.stop() // its own heartbeats would say otherwise
	startExecutor(t, h.s, executorOptions{id: "e2", slots: 1})
	say := func(left bool) bool {
		resp, err := h.s.Heartbeat(t.Context(), &firnpb.HeartbeatRequest{ExecutorId: "e1", Incarnation: e1.incarnation, Draining: true, Left: left})
		must(t, err)
		return resp.GetKnown()
	}
	if !say(false) {
		t.Fatal("a draining executor is forgotten")
	}
	wantState(t, h.run(&firnpb.ExecuteRequest{Sql: insert}), graph.Succeeded, commit.CommitCommitted)
	if len(e1.launched) != 0 || e1.probes.Load() != 0 {
		t.Error("a draining executor was given work")
	}
	if say(true); say(false) {
		t.Error("an executor that has left is still known")
	}
}

// An executor that is to drain gets nothing new, and is drained when its tasks have
// ended and nobody can read what it holds any more.
func TestDrain(t *testing.T) {
	h := start(t, func(c *Config) { c.Speculation = &speculation.Policy{} })
	hold := newStop()
	var e1 *fakeExecutor
	e1 = startExecutor(t, h.s, executorOptions{id: "e1", slots: parts, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		if d.GetTask() == 0 {
			hold.wait()
		}
		return e1.succeed(d, n)
	}})
	id := h.submit(&firnpb.ExecuteRequest{Sql: "INSERT INTO mem.ns.t SELECT 2"})
	receive(t, hold.arrived, "task")
	h.waitUntil(id, func(st *firnpb.JobStatus) bool { return st.GetStages()[0].GetTasksDone() == parts-1 })
	drain := func() *firnpb.ExecutorStatus {
		st, err := h.client.DrainExecutor(t.Context(), &firnpb.DrainExecutorRequest{ExecutorId: "e1"})
		must(t, err)
		return st
	}
	if st := drain(); st.GetState() != "draining" || st.GetRunning() != 1 || !slices.Equal(st.GetHolds(), []string{id}) {
		t.Fatalf("%v", st)
	}
	hb, err := h.s.Heartbeat(t.Context(), &firnpb.HeartbeatRequest{ExecutorId: "e1", Incarnation: e1.incarnation})
	must(t, err)
	if !hb.GetDrain() {
		t.Error("the executor isn't told")
	}
	startExecutor(t, h.s, executorOptions{id: "e2"})
	close(hold.release)
	wantState(t, h.wait(id), graph.Succeeded, commit.CommitCommitted)
	if n := len(e1.launched); n != parts {
		t.Errorf("%d tasks of it ran on the executor that drains", n)
	}
	if st := drain(); st.GetState() != "drained" {
		t.Fatalf("%v", st)
	}
	all, err := h.client.ListExecutors(t.Context(), &firnpb.ListExecutorsRequest{})
	must(t, err)
	if e := all.GetExecutors(); len(e) != 2 || e[0].GetState() != "drained" || e[1].GetState() != "ready" || e[1].GetSlots() != 2 {
		t.Fatalf("%v", e)
	}
	_, err = h.client.DrainExecutor(t.Context(), &firnpb.DrainExecutorRequest{ExecutorId: "e9"})
	wantCode(t, wire.FromStatus(err), commit.CodeExecutorNotFound, "e9")
}

// The rows of a SELECT stay readable until they expire.
func TestDrainWaitsForReaders(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	st := h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1"})
	wantState(t, st, graph.Succeeded, commit.CommitNone)
	e, err := h.client.DrainExecutor(t.Context(), &firnpb.DrainExecutorRequest{ExecutorId: "e1"})
	must(t, err)
	if e.GetState() != "draining" || !slices.Equal(e.GetHolds(), []string{st.GetJobId()}) {
		t.Fatalf("%v", e)
	}
	must(t, h.s.loop.call(t.Context(), func() {
		h.s.expire(h.s.state.jobs[st.GetJobId()])
		delete(h.s.state.jobs, st.GetJobId())
	}))
	if e, err = h.client.DrainExecutor(t.Context(), &firnpb.DrainExecutorRequest{ExecutorId: "e1"}); err != nil || e.GetState() != "drained" {
		t.Fatalf("%v, %v", e, err)
	}
}

// Two processes with one id, as of a copied directory: the later one stays.
func TestAReplacedIncarnationIsRefused(t *testing.T) {
	h := start(t, nil)
	first := startExecutor(t, h.s, executorOptions{id: "e1"})
	second := startExecutor(t, h.s, executorOptions{id: "e1"})
	again := func(e *fakeExecutor) error {
		_, err := e.sched.Register(t.Context(), &firnpb.RegisterRequest{
			ProtocolVersion: wire.ProtocolVersion, ExecutorId: e.id, Incarnation: e.incarnation, ControlAddress: e.addr, FlightAddress: e.addr, Slots: 1,
		})
		return wire.FromStatus(err)
	}
	wantCode(t, again(first), commit.CodeBadRequest, "e1", "another process")
	must(t, again(second))
	wantState(t, h.run(&firnpb.ExecuteRequest{Sql: insert}), graph.Succeeded, commit.CommitCommitted)
	if len(first.launched) != 0 {
		t.Error("the replaced one ran a task")
	}
}

// A restarted executor comes back under its id: what the earlier process ran
// and held is gone, and its late statuses change nothing.
func TestNewIncarnationLosesTheOld(t *testing.T) {
	h := start(t, nil)
	e1 := startExecutor(t, h.s, executorOptions{id: "e1", slots: parts, task: func(*firnpb.TaskDefinition, plan.Node) *firnpb.TaskStatus { return nil }})
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	var old []*firnpb.TaskDefinition
	for range parts {
		old = append(old, receive(t, e1.launched, "task"))
	}
	again := startExecutor(t, h.s, executorOptions{id: "e1", slots: parts})
	st := statusFor(old[0], "succeeded")
	st.Outputs, st.Files, st.RowsOut = []*firnpb.TaskOutput{{Rows: 1}}, 1, 1000
	rep, err := again.sched.ReportStatus(t.Context(), &firnpb.ReportStatusRequest{ExecutorId: "e1", Incarnation: again.incarnation, Statuses: []*firnpb.TaskStatus{st}})
	must(t, err)
	if len(rep.GetAcknowledgedAttempts()) != 1 {
		t.Fatal("not acknowledged")
	}
	end := h.wait(id)
	wantState(t, end, graph.Succeeded, commit.CommitCommitted)
	if end.GetReport().GetRows() != 10*parts {
		t.Fatalf("%v", end.GetReport())
	}
}

// An executor can't speak for an attempt that another one was given.
func TestStatusOfAnotherExecutorsAttempt(t *testing.T) {
	h := start(t, nil)
	hold := newStop()
	var e1 *fakeExecutor
	e1 = startExecutor(t, h.s, executorOptions{id: "e1", slots: parts, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		hold.wait()
		return e1.succeed(d, n)
	}})
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	d := receive(t, e1.launched, "task")
	e2 := startExecutor(t, h.s, executorOptions{id: "e2"})
	_, err := e2.sched.ReportStatus(t.Context(), &firnpb.ReportStatusRequest{
		ExecutorId: "e2", Incarnation: e2.incarnation,
		Statuses: []*firnpb.TaskStatus{fail(d, errors.New("not mine"), wire.ClassNotRetryable)},
	})
	must(t, err)
	close(hold.release)
	wantState(t, h.wait(id), graph.Succeeded, commit.CommitCommitted)
}

// The launch never arrives: the heartbeats don't list the attempt, and it runs
// again under a new id.
func TestLostLaunch(t *testing.T) {
	h := start(t, nil)
	var dropped atomic.Bool
	var e *fakeExecutor
	e = startExecutor(t, h.s, executorOptions{id: "e1", task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		if dropped.CompareAndSwap(false, true) {
			e.finish(d.GetAttemptId())
			return nil
		}
		return e.succeed(d, n)
	}})
	wantState(t, h.run(&firnpb.ExecuteRequest{Sql: insert}), graph.Succeeded, commit.CommitCommitted)
	if len(e.launched) != parts+1 {
		t.Fatalf("%d launches", len(e.launched))
	}
}

func TestCancelReachesTheExecutors(t *testing.T) {
	h := start(t, nil)
	e := startExecutor(t, h.s, executorOptions{id: "e1", slots: 2, task: func(*firnpb.TaskDefinition, plan.Node) *firnpb.TaskStatus { return nil }})
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	a, b := receive(t, e.launched, "task"), receive(t, e.launched, "task")
	resp, err := h.client.CancelJob(t.Context(), &firnpb.JobRequest{JobId: id})
	must(t, err)
	if resp.GetAnswer() != graph.AnswerCancelled {
		t.Fatal(resp.GetAnswer())
	}
	// A heartbeat that crosses the cancel says it once more.
	for want := map[string]bool{a.GetAttemptId(): true, b.GetAttemptId(): true}; len(want) > 0; {
		got := receive(t, e.cancelled, "cancel")
		if got != a.GetAttemptId() && got != b.GetAttemptId() {
			t.Fatalf("cancelled %s", got)
		}
		delete(want, got)
	}
	if f := receive(t, e.freed, "free"); f.GetJobId() != id {
		t.Fatalf("%v", f)
	}
	if len(e.launched) != 0 {
		t.Fatal("the third task was launched")
	}
	wantState(t, h.get(id), graph.Cancelled, commit.CommitNone)
}

func TestCancelWhilePlanning(t *testing.T) {
	h := start(t, nil)
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert}) // no executor: it waits for one
	h.waitUntil(id, func(st *firnpb.JobStatus) bool { return st.GetState() == "planning" })
	resp, err := h.client.CancelJob(t.Context(), &firnpb.JobRequest{JobId: id})
	must(t, err)
	wantState(t, resp.GetJob(), graph.Cancelled, commit.CommitNone)
}

func TestNoExecutor(t *testing.T) {
	h := start(t, func(c *Config) { c.ExecutorWait = 50 * time.Millisecond })
	st := h.run(&firnpb.ExecuteRequest{Sql: insert})
	wantState(t, st, graph.JobFailed, commit.CommitNone)
	if st.GetError().GetCode() != string(commit.CodeNoExecutors) || !strings.Contains(st.GetError().GetHint(), h.s.Addr()) || !strings.Contains(st.GetError().GetCause(), "takes tasks") {
		t.Fatalf("%v", st.GetError())
	}
}

// A statement says that it waits for executors while it does.
func TestWaitsForAnExecutor(t *testing.T) {
	h := start(t, nil)
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	if st := h.get(id); !strings.Contains(st.GetWaitsFor(), "executor") || st.GetTable() == "" || st.GetReport() != nil {
		t.Errorf("%v", st)
	}
	startExecutor(t, h.s, executorOptions{id: "e1"})
	if st := h.wait(id); st.GetWaitsFor() != "" || st.GetCommit() != string(commit.CommitCommitted) {
		t.Errorf("%v", st)
	}
}

func TestTaskFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		class    string
		launches int // of the one task that fails
	}{
		"retryable":     {wire.ClassRetryable, 4},
		"not retryable": {wire.ClassNotRetryable, 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, nil)
			var tries atomic.Int32
			var e *fakeExecutor
			e = startExecutor(t, h.s, executorOptions{id: "e1", task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
				if d.GetTask() != 1 {
					return e.succeed(d, n)
				}
				tries.Add(1)
				return fail(d, errors.New("disk on fire"), tt.class)
			}})
			st := h.run(&firnpb.ExecuteRequest{Sql: insert})
			wantState(t, st, graph.JobFailed, commit.CommitNone)
			if !strings.Contains(wire.ErrorFromProto(st.GetError()).Error(), "disk on fire") {
				t.Fatalf("%v", st.GetError())
			}
			if int(tries.Load()) != tt.launches {
				t.Fatalf("%d tries, want %d", tries.Load(), tt.launches)
			}
		})
	}
}

// A launch that is still on its way isn't a lost one, however many heartbeats come
// in before it: the task is tried once.
func TestHeartbeatsBeforeTheLaunch(t *testing.T) {
	h := start(t, nil)
	hold := newStop()
	e := startExecutor(t, h.s, executorOptions{id: "e1", slots: parts, onLaunch: hold.wait})
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	receive(t, hold.arrived, "launch")
	for range 3 * maxMissed {
		must(t, h.s.loop.call(t.Context(), func() { h.s.heartbeat(h.s.state.executors["e1"], nil) }))
	}
	close(hold.release)
	wantState(t, h.wait(id), graph.Succeeded, commit.CommitCommitted)
	if len(e.launched) != parts {
		t.Errorf("%d attempts were started for %d tasks", len(e.launched), parts)
	}
}

// Under pull dispatch an executor that asks again has got the answers before, or
// never will: then its heartbeats count.
func TestHeartbeatsUnderPull(t *testing.T) {
	h := start(t, nil)
	e := &executor{running: map[string]*attempt{}}
	a := &attempt{id: "a-1", job: newJob(submission{}, time.Now()), executor: e, handed: true}
	e.running[a.id] = a
	must(t, h.s.loop.call(t.Context(), func() {
		for range 3 * maxMissed {
			h.s.heartbeat(e, nil)
		}
		if a.missed > 0 {
			t.Error("an answer to a poll that is on its way counts as lost")
		}
		e.asksAgain()
		h.s.heartbeat(e, nil)
		if a.missed != 1 {
			t.Error("an answer that was lost isn't missed")
		}
	}))
}

// An executor that names files outside of the job's prefix, or of another
// attempt, loses its job and nothing else.
func TestHostileManifests(t *testing.T) {
	for name, edit := range map[string]func(f *commit.File){
		"outside":       func(f *commit.File) { f.Path = "mem://t/data/j-other/0-0-" + f.Attempt + "-0.parquet" },
		"dots":          func(f *commit.File) { f.Path = strings.Replace(f.Path, "/0-", "/../0-", 1) },
		"other attempt": func(f *commit.File) { f.Attempt = "a-other" },
		"more rows":     func(f *commit.File) { f.Rows = 1 << 40 },
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, nil)
			var e *fakeExecutor
			e = startExecutor(t, h.s, executorOptions{id: "e1", task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
				st := e.succeed(d, n)
				f := commit.File{
					Path: fmt.Sprintf("%s0-%d-%s-0.parquet", n.(*plan.Write).Context.Prefix, d.GetTask(), d.GetAttemptId()), Format: "PARQUET",
					Attempt: d.GetAttemptId(), Rows: 10, Size: 1000,
				}
				edit(&f)
				e.keepManifest(d, f)
				return st
			}})
			st := h.run(&firnpb.ExecuteRequest{Sql: insert})
			wantState(t, st, graph.JobFailed, commit.CommitRefused)
			if h.catalogs.table.Sends() != 0 {
				t.Fatal("a commit was sent")
			}
		})
	}
}

func TestManifestThatIsShort(t *testing.T) {
	h := start(t, nil)
	var e *fakeExecutor
	e = startExecutor(t, h.s, executorOptions{id: "e1", task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		st := e.succeed(d, n)
		if d.GetTask() == 1 {
			e.keepManifest(d)
		}
		return st
	}})
	st := h.run(&firnpb.ExecuteRequest{Sql: insert})
	if st.GetState() != string(graph.JobFailed) || h.catalogs.table.Sends() != 0 {
		t.Fatalf("%v", st)
	}
	if !strings.Contains(wire.ErrorFromProto(st.GetError()).Error(), "0 rows; its attempt reported 1") {
		t.Fatalf("%v", st.GetError())
	}
}

// startBlocked submits a job that stays in planning: its physical plan asks for
// a table whose catalog doesn't answer.
func startBlocked(t *testing.T, h *harness) string {
	t.Helper()
	must(t, h.s.loop.call(t.Context(), func() {
		for range h.s.line.Places() {
			h.s.line.Enter()
		}
	}))
	return h.submit(&firnpb.ExecuteRequest{Sql: "SELECT 1", IdempotencyKey: "b"})
}
