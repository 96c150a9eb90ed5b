package scheduler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/committer"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/jobview"
)

func physical(t testing.TB, h *harness, top plan.Node) []byte {
	t.Helper()
	raw, err := plan.Encode(top)
	must(t, err)
	return raw
}

func (h *harness) physicalInsert() []byte {
	return physical(h.t, h, insertPlan(plan.Pinned{Name: committest.Name}, "", false))
}

// stop lets a test hold something up: it arrives and waits to be let go.
type stop struct{ arrived, release chan struct{} }

func newStop() *stop { return &stop{make(chan struct{}, 100), make(chan struct{})} }

func (s *stop) wait() {
	s.arrived <- struct{}{}
	<-s.release
}

func TestRoot01_ClientCannotChooseTheRoot(t *testing.T) {
	h := start(t, func(c *Config) { c.NoRoot = true })
	startExecutor(t, h.s, executorOptions{id: "e1"})
	for _, mode := range []string{"", "staged", "pipelined", "cached"} {
		st := h.run(&firnpb.ExecuteRequest{Sql: insert, Mode: mode})
		wantState(t, st, graph.JobFailed, commit.CommitNone)
		if st.GetError().GetCode() != string(commit.CodeCommitNeedsRoot) {
			t.Fatalf("mode %q: %v", mode, st.GetError())
		}
	}
	if h.catalogs.table.Sends() != 0 {
		t.Fatal("something was sent")
	}
}

var ids = regexp.MustCompile(`(j-|a-|e-)?[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// Whatever the predicate, a job whose root doesn't match runs the same tasks
// and shows the same: its plan and stages, its page over REST, which is the JSON of its
// view, and its event log.
func TestRoot02_WithoutAMatchNothingChanges(t *testing.T) {
	var want string
	for name, edit := range map[string]func(*Config){
		"default": nil,
		"none":    func(c *Config) { c.NoRoot = true },
		"never":   func(c *Config) { c.Root = func(plan.Node) bool { return false } },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			h := start(t, func(c *Config) {
				if c.EventDir = dir; edit != nil {
					edit(c)
				}
			})
			e := startExecutor(t, h.s, executorOptions{id: "e1", slots: 1})
			st := h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1", IdempotencyKey: "k"})
			wantState(t, st, graph.Succeeded, commit.CommitNone)
			var b strings.Builder
			for range parts {
				task := receive(t, e.launched, "task")
				task.NowUnixUs = 0
				b.WriteString(ids.ReplaceAllString(protojson.Format(task), "ID"))
				b.Write(task.GetFragment())
			}
			for _, s := range st.GetStages() {
				fmt.Fprintln(&b, s.GetId(), s.GetState(), s.GetTasks(), s.GetRows())
			}
			b.WriteString(st.GetPlanText())
			b.WriteString("\n" + shownOf(t, jobview.JobOf(st)))
			events := h.logged(dir, st.GetJobId())
			if len(events) < 2+2*parts {
				t.Fatalf("%d events", len(events))
			}
			for _, ev := range events {
				ev.Time = time.Time{}
				view := ev.View
				ev.View = nil
				raw, err := json.Marshal(ev)
				must(t, err)
				b.WriteString("\n" + ids.ReplaceAllString(string(raw), "ID"))
				if view != nil {
					b.WriteString(shownOf(t, *view))
				}
			}
			got := strings.ReplaceAll(b.String(), " ", "") // protojson's spacing differs on purpose
			if want == "" {
				want = got
			}
			if got != want {
				t.Fatalf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// shownOf is a job's view as JSON, without ids and times, and without how often it was
// told of.
func shownOf(t *testing.T, v jobview.Job) string {
	t.Helper()
	v.Revision = 0
	raw, err := json.Marshal(v)
	must(t, err)
	times := regexp.MustCompile(`"\d{4}-\d\d-\d\dT[0-9:.]+Z"`)
	return ids.ReplaceAllString(times.ReplaceAllString(string(raw), `"TIME"`), "ID")
}

func TestRoot04_RootNeverReachesAnExecutor(t *testing.T) {
	h := start(t, nil)
	e := startExecutor(t, h.s, executorOptions{id: "e1"})
	wantState(t, h.run(&firnpb.ExecuteRequest{Sql: "INSERT INTO mem.ns.t SELECT 2"}), graph.Succeeded, commit.CommitCommitted)
	wantState(t, h.run(&firnpb.ExecuteRequest{Physical: h.physicalInsert()}), graph.Succeeded, commit.CommitCommitted)
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.seen) < 2*(parts+2+parts) {
		t.Fatalf("%d messages", len(e.seen))
	}
	for _, raw := range e.seen {
		if bytes.Contains(raw, []byte(`"`+plan.KindCommit+`"`)) || bytes.Contains(raw, []byte(canary)) {
			t.Fatalf("a task message holds the root: %s", raw)
		}
	}
}

// Requirements 5, 19, 20 and 35: every way in, every way out.
func TestRoot35_InsertCommitsOnce(t *testing.T) {
	for _, dispatch := range []string{DispatchPush, DispatchPull} {
		for _, form := range []string{"logical", "physical"} {
			for _, delivery := range []string{"stream", "poll"} {
				t.Run(dispatch+"/"+form+"/"+delivery, func(t *testing.T) {
					h := start(t, func(c *Config) { c.Dispatch = dispatch })
					e1 := startExecutor(t, h.s, executorOptions{id: "e1"})
					e2 := startExecutor(t, h.s, executorOptions{id: "e2"})
					req := &firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"}
					if form == "physical" {
						req = &firnpb.ExecuteRequest{Physical: h.physicalInsert(), IdempotencyKey: "k"}
					}
					id := h.submit(req)
					st := h.ended(id, delivery)
					wantState(t, st, graph.Succeeded, commit.CommitCommitted)
					if n := h.catalogs.table.Applied(); n != 1 {
						t.Fatalf("%d commits", n)
					}
					r, err := wire.DecodeReport(st.GetInlineResult())
					must(t, err)
					if r.JobID != id || r.Key != "k" || r.Rows != 10*parts || r.Files != parts || r.State != commit.CommitCommitted || r.Deduplicated {
						t.Fatalf("report = %+v", r)
					}
					if len(st.GetPartitions()) != 0 {
						t.Fatal("a client would fetch shuffle data")
					}
					// The root read each manifest once, and nobody else read anything.
					if n := e1.gets.Load() + e2.gets.Load(); n != parts {
						t.Fatalf("%d reads over Flight, want %d", n, parts)
					}
					if len(st.GetExecutors()) != 2 {
						t.Fatalf("tasks ran on %v, want both executors", st.GetExecutors())
					}
				})
			}
		}
	}
}

func TestRoot08_SinglePartitionInput(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	top := insertPlan(plan.Pinned{Name: committest.Name}, "", false).(*plan.Commit)
	q := top.Input.(*plan.Write).Input.(*plan.Query)
	q.Parallel, q.Partitions = false, nil
	st := h.run(&firnpb.ExecuteRequest{Physical: physical(t, h, top)})
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	if st.GetTasks() != 1 || h.catalogs.table.Rows("main") != 10 {
		t.Fatalf("%d tasks, %d rows", st.GetTasks(), h.catalogs.table.Rows("main"))
	}
}

func TestRoot11_RunningUntilTheRootHasFinished(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	hold := newStop()
	h.catalogs.set(func() { h.catalogs.send = hold.wait })
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	receive(t, hold.arrived, "send")
	st := h.get(id)
	wantState(t, st, graph.Running, commit.CommitInFlight)
	if st.GetPhase() != "committing" || st.GetPercentComplete() >= 100 || st.GetEndedUnixMs() != 0 || len(st.GetInlineResult()) != 0 {
		t.Fatalf("status while the root runs: %v", st)
	}
	close(hold.release)
	st = h.wait(id)
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	if st.GetPercentComplete() != 100 || st.GetPhase() != "" {
		t.Fatalf("status after the root: %v", st)
	}
}

func TestRoot12_RootsDontBlockTheLoop(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	hold := newStop()
	h.catalogs.set(func() { h.catalogs.send = hold.wait })
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	receive(t, hold.arrived, "send")
	wantState(t, h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1"}), graph.Succeeded, commit.CommitNone)
	wantState(t, h.get(id), graph.Running, commit.CommitInFlight)
	close(hold.release)
	h.wait(id)
}

// The executor is on the same machine and sent a copy of each manifest along;
// the root reads over Flight all the same.
func TestRoot13_RootAlwaysReadsRemotely(t *testing.T) {
	h := start(t, nil)
	e := startExecutor(t, h.s, executorOptions{id: "e1", copies: true})
	wantState(t, h.run(&firnpb.ExecuteRequest{Sql: insert}), graph.Succeeded, commit.CommitCommitted)
	if n := e.gets.Load(); n != parts {
		t.Fatalf("%d reads over Flight, want %d", n, parts)
	}
}

func TestRoot14_RootOfAnEndedJobNeverRuns(t *testing.T) {
	h := start(t, func(c *Config) { c.RootSlots = 1 })
	e := startExecutor(t, h.s, executorOptions{id: "e1"})
	h.s.rootSlots <- struct{}{}
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	h.waitUntil(id, func(st *firnpb.JobStatus) bool { return st.GetCommit() == string(commit.CommitPreparing) })
	resp, err := h.client.CancelJob(t.Context(), &firnpb.JobRequest{JobId: id})
	must(t, err)
	if resp.GetAnswer() != graph.AnswerCancelled {
		t.Fatal(resp.GetAnswer())
	}
	wantState(t, resp.GetJob(), graph.Cancelled, commit.CommitNone)
	<-h.s.rootSlots
	h.s.roots.Wait()
	if _, err := h.s.journal.Unit(t.Context(), id); err == nil {
		t.Fatal("the cancelled job's root ran")
	}
	if e.gets.Load() != 0 || h.catalogs.table.Applied() != 0 {
		t.Fatal("the cancelled job's root read or wrote something")
	}
}

func TestRoot15_ResultStoredOnSuccess(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	st := h.run(&firnpb.ExecuteRequest{Sql: insert})
	again := h.get(st.GetJobId())
	if len(st.GetInlineResult()) == 0 || !bytes.Equal(again.GetInlineResult(), st.GetInlineResult()) {
		t.Fatal("the result can't be read again")
	}
	if r := st.GetReport(); r.GetTable() != committest.Name.String() || r.GetSnapshotId() == "" || r.GetAttempts() != 1 {
		t.Fatalf("report = %v", r)
	}
}

func TestRoot16_CancelWhileTheRootRuns(t *testing.T) {
	t.Run("before the point of no return", func(t *testing.T) {
		h := start(t, nil)
		startExecutor(t, h.s, executorOptions{id: "e1"})
		hold := newStop()
		h.catalogs.set(func() { h.catalogs.build = hold.wait })
		id := h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
		receive(t, hold.arrived, "build")
		resp, err := h.client.CancelJob(t.Context(), &firnpb.JobRequest{JobId: id})
		must(t, err)
		if resp.GetAnswer() != graph.AnswerCancelled {
			t.Fatal(resp.GetAnswer())
		}
		// Whatever else stops it: the graph gives no leave to send any more.
		var j *job
		must(t, h.s.loop.call(t.Context(), func() { j = h.s.state.jobs[id] }))
		wantCode(t, (&rootRun{s: h.s, job: j, epoch: 1}).passNoReturn(t.Context()), commit.CodeJobCancelled, id)
		close(hold.release)
		st := h.waitUntil(id, func(st *firnpb.JobStatus) bool {
			root := st.GetStages()[len(st.GetStages())-1]
			return st.GetCommit() != string(commit.CommitPreparing) && root.GetEndedUnixMs() != 0 || endedState(st.GetState())
		})
		if st.GetState() != string(graph.Cancelled) || len(st.GetInlineResult()) != 0 {
			t.Fatalf("%v", st)
		}
		if h.catalogs.table.Sends() != 0 || h.catalogs.table.Rows("main") != 0 {
			t.Fatal("a cancelled job changed the table")
		}
		// Nothing was committed, so the key runs again.
		h.catalogs.set(func() { h.catalogs.build = nil })
		wantState(t, h.run(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"}), graph.Succeeded, commit.CommitCommitted)
	})
	t.Run("and finds the commit made", func(t *testing.T) {
		hold := newStop()
		h := start(t, func(c *Config) {
			c.newCommitter = func(c Config) Committer {
				return slowCommitter{committer.New(committer.Config{Open: c.Catalogs.OpenTable}), hold}
			}
		})
		defer close(hold.release)
		startExecutor(t, h.s, executorOptions{id: "e1"})
		id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
		receive(t, hold.arrived, "root")
		_, err := h.client.CancelJob(t.Context(), &firnpb.JobRequest{JobId: id})
		must(t, err)
		report := commit.Report{JobID: id, Key: "k", Table: committest.Name, Operation: commit.OperationAppend, State: commit.CommitCommitted, SnapshotID: "1"}
		must(t, h.s.loop.call(t.Context(), func() {
			(&rootRun{s: h.s, job: h.s.state.jobs[id], epoch: 1}).finished(report, nil)
		}))
		st := h.get(id)
		wantState(t, st, graph.Cancelled, commit.CommitCommitted)
		if len(st.GetInlineResult()) != 0 {
			t.Fatal("a cancelled job has a result")
		}
	})
	t.Run("after it", func(t *testing.T) {
		h := start(t, nil)
		startExecutor(t, h.s, executorOptions{id: "e1"})
		hold := newStop()
		h.catalogs.set(func() { h.catalogs.send = hold.wait })
		id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
		receive(t, hold.arrived, "send")
		resp, err := h.client.CancelJob(t.Context(), &firnpb.JobRequest{JobId: id})
		must(t, err)
		if resp.GetAnswer() != graph.AnswerCommitInFlight {
			t.Fatal(resp.GetAnswer())
		}
		wantState(t, resp.GetJob(), graph.Running, commit.CommitInFlight)
		close(hold.release)
		wantState(t, h.wait(id), graph.Succeeded, commit.CommitCommitted)
		resp, err = h.client.CancelJob(t.Context(), &firnpb.JobRequest{JobId: id})
		must(t, err)
		if resp.GetAnswer() != graph.AnswerAlreadyEnded {
			t.Fatal(resp.GetAnswer())
		}
		wantState(t, resp.GetJob(), graph.Succeeded, commit.CommitCommitted)
	})
}

const rootPrefix = "Error running the job's scheduler root: "

func TestRoot17_FailedRootFailsTheJob(t *testing.T) {
	for name, tt := range map[string]struct {
		hook  func(c *fakeCatalogs)
		cause string
		code  commit.Code
	}{
		"refused": {func(c *fakeCatalogs) { c.faults = []string{"403", "403", "403"} }, "forbidden", ""},
		"panic":   {func(c *fakeCatalogs) { c.build = func() { panic("bang") } }, "bang", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, nil)
			startExecutor(t, h.s, executorOptions{id: "e1"})
			h.catalogs.set(func() { tt.hook(h.catalogs) })
			st := h.run(&firnpb.ExecuteRequest{Sql: insert})
			if st.GetState() != string(graph.JobFailed) {
				t.Fatalf("%v", st)
			}
			text := wire.ErrorFromProto(st.GetError()).Error()
			if !strings.HasPrefix(text, rootPrefix) || !strings.Contains(text, tt.cause) {
				t.Fatalf("error = %s", text)
			}
			root := st.GetStages()[len(st.GetStages())-1]
			if root.GetState() != string(graph.StageFailed) || !strings.Contains(root.GetError(), tt.cause) {
				t.Fatalf("stage = %v", root)
			}
			if h.catalogs.table.Rows("main") != 0 {
				t.Fatal("the table changed")
			}
			// The scheduler lives.
			h.catalogs.set(func() { h.catalogs.build, h.catalogs.faults = nil, nil })
			wantState(t, h.run(&firnpb.ExecuteRequest{Sql: insert}), graph.Succeeded, commit.CommitCommitted)
		})
	}
}

func TestRoot20_StreamAndPollSayTheSame(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	for _, sql := range []string{insert, "SELECT 1", "SELECT 'bad'"} {
		id := h.submit(&firnpb.ExecuteRequest{Sql: sql})
		streamed := h.watch(id)
		last := streamed[len(streamed)-1]
		if a, b := protojson.Format(last), protojson.Format(h.get(id)); strings.ReplaceAll(a, " ", "") != strings.ReplaceAll(b, " ", "") {
			t.Fatalf("stream:\n%s\npoll:\n%s", a, b)
		}
		for i, st := range streamed {
			if i > 0 && st.GetRevision() <= streamed[i-1].GetRevision() {
				t.Fatalf("revision %d after %d", st.GetRevision(), streamed[i-1].GetRevision())
			}
		}
	}
}

// An executor is lost while the root reads: what it held is written again, the
// root starts again, and the table gets one commit of accepted attempts.
func TestRoot26_LostInputReruns(t *testing.T) {
	h := start(t, nil)
	hold := newStop()
	first := startExecutor(t, h.s, executorOptions{id: "e1", slots: parts, onGet: hold.wait})
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	receive(t, hold.arrived, "read")
	second := startExecutor(t, h.s, executorOptions{id: "e2", slots: parts})
	// The server's end ends its calls, also those that hold; none of them
	// succeeds, or the root would have all that it needs.
	go func() { <-first.life.Done(); close(hold.release) }()
	h.lose(first)
	st := h.wait(id)
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	if h.catalogs.table.Applied() != 1 || h.catalogs.table.Rows("main") != 10*parts {
		t.Fatalf("%d commits, %d rows", h.catalogs.table.Applied(), h.catalogs.table.Rows("main"))
	}
	if len(second.launched) == 0 {
		t.Fatal("nothing was run again")
	}
}

// An executor lives and has lost what it held, as one that started again under
// its id: the root finds out by reading, and the task runs again.
func TestRoot26_LostOutputReruns(t *testing.T) {
	h := start(t, nil)
	var e *fakeExecutor
	lose := sync.OnceFunc(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		clear(e.batches)
	})
	ready := make(chan struct{})
	e = startExecutor(t, h.s, executorOptions{id: "e1", slots: parts, onGet: func() { <-ready; lose() }})
	close(ready)
	st := h.run(&firnpb.ExecuteRequest{Sql: insert})
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	if h.catalogs.table.Applied() != 1 || h.catalogs.table.Rows("main") != 10*parts {
		t.Fatalf("%d commits, %d rows", h.catalogs.table.Applied(), h.catalogs.table.Rows("main"))
	}
	if len(e.launched) <= parts {
		t.Fatalf("%d tasks: nothing was run again", len(e.launched))
	}
	if root := st.GetStages()[len(st.GetStages())-1]; root.GetAttempt() < 2 {
		t.Fatalf("the root ran once: %v", root)
	}
}

// The copy that came with the success stands in for an executor that is gone.
func TestRoot26_CopyServesForALostExecutor(t *testing.T) {
	h := start(t, func(c *Config) { c.RootSlots = 1 })
	e1 := startExecutor(t, h.s, executorOptions{id: "e1", slots: parts, copies: true})
	h.s.rootSlots <- struct{}{}
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	h.waitUntil(id, func(st *firnpb.JobStatus) bool { return st.GetCommit() == string(commit.CommitPreparing) })
	h.lose(e1)
	<-h.s.rootSlots
	st := h.wait(id)
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	if h.catalogs.table.Rows("main") != 10*parts {
		t.Fatalf("%d rows", h.catalogs.table.Rows("main"))
	}
}
