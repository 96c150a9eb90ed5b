package scheduler

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/answers"
	"github.com/firn-project/firn/scheduler/committer"
	"github.com/firn-project/firn/scheduler/graph"
)

func TestRoot23_PipelinedInsertRefused(t *testing.T) { testModeRefused(t, "pipelined") }
func TestRoot24_CachedInsertRefused(t *testing.T)    { testModeRefused(t, "cached") }

func testModeRefused(t *testing.T, mode string) {
	h := start(t, nil)
	e := startExecutor(t, h.s, executorOptions{id: "e1"})
	st := h.run(&firnpb.ExecuteRequest{Sql: insert, Mode: mode})
	wantState(t, st, graph.JobFailed, commit.CommitNone)
	text := wire.ErrorFromProto(st.GetError()).Error()
	if st.GetError().GetCode() != string(commit.CodeModeRefused) || !strings.Contains(text, st.GetJobId()) || !strings.Contains(text, mode) || st.GetError().GetHint() == "" {
		t.Fatalf("error = %v", st.GetError())
	}
	if len(e.launched) != 0 {
		t.Fatal("a task was launched")
	}
	st = h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1", Mode: mode})
	wantState(t, st, graph.Succeeded, commit.CommitNone)
	if len(st.GetPartitions()) != parts {
		t.Fatalf("%d partitions", len(st.GetPartitions()))
	}
}

func TestRoot25_ReportBoundedBeforeTheCommit(t *testing.T) {
	h := start(t, func(c *Config) { c.MaxResult = 100 })
	startExecutor(t, h.s, executorOptions{id: "e1"})
	st := h.run(&firnpb.ExecuteRequest{Sql: insert})
	wantState(t, st, graph.JobFailed, commit.CommitNone)
	if st.GetError().GetCode() != string(commit.CodeReportTooLarge) {
		t.Fatalf("%v", st.GetError())
	}
	if h.catalogs.table.Sends() != 0 {
		t.Fatal("a commit was sent")
	}
}

// slowCommitter takes its time before it looks at anything.
type slowCommitter struct {
	Committer
	hold *stop
}

func (c slowCommitter) Run(ctx context.Context, r committer.Root) (commit.Report, error) {
	c.hold.wait()
	return c.Committer.Run(ctx, r)
}

func TestRoot29_CancelledJobFreedAfterTheRootStopped(t *testing.T) {
	hold := newStop()
	h := start(t, func(c *Config) {
		c.newCommitter = func(c Config) Committer {
			return slowCommitter{committer.New(committer.Config{Open: c.Catalogs.OpenTable}), hold}
		}
	})
	e := startExecutor(t, h.s, executorOptions{id: "e1"})
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	receive(t, hold.arrived, "root")
	resp, err := h.client.CancelJob(t.Context(), &firnpb.JobRequest{JobId: id})
	must(t, err)
	wantState(t, resp.GetJob(), graph.Cancelled, commit.CommitNone)
	// Whatever was sent to the executor has arrived when its outbox is empty.
	var o *outbox
	must(t, h.s.loop.call(t.Context(), func() { o = h.s.state.executors["e1"].outbox }))
	must(t, o.calls.call(t.Context(), func() {}))
	must(t, o.frees.call(t.Context(), func() {}))
	if len(e.freed) != 0 {
		t.Fatalf("freed %v while the root may read it", <-e.freed)
	}
	close(hold.release)
	f := receive(t, e.freed, "free")
	if f.GetJobId() != id || len(f.GetStages()) != 0 {
		t.Fatalf("freed %v, want the whole job", f)
	}
	wantState(t, h.get(id), graph.Cancelled, commit.CommitNone)
}

// A root whose unit is sealed waits for its table without a place in the pool:
// one that can't be reached must not hold up the roots of all others.
func TestWaitingForTheTableTakesNoPlace(t *testing.T) {
	h := start(t, func(c *Config) { c.RootSlots = 1 })
	startExecutor(t, h.s, executorOptions{id: "e1"})
	hold := newStop()
	h.catalogs.set(func() { h.catalogs.send = hold.wait })
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	receive(t, hold.arrived, "send")
	if n := len(h.s.rootSlots); n != 0 {
		t.Fatalf("a commit under way takes %d places", n)
	}
	close(hold.release)
	wantState(t, h.wait(id), graph.Succeeded, commit.CommitCommitted)
	h.s.roots.Wait()
	if n := len(h.s.rootSlots); n != 0 {
		t.Fatalf("%d places are taken by nobody", n)
	}
}

// countedCommitter counts the roots that got as far as the committer.
type countedCommitter struct {
	Committer
	runs *atomic.Int32
}

func (c countedCommitter) Run(ctx context.Context, r committer.Root) (commit.Report, error) {
	c.runs.Add(1)
	return c.Committer.Run(ctx, r)
}

// The graph is asked right before the root starts, and its no is final, also for a
// root that nobody has stopped.
func TestRoot14_TheGraphsNoIsFinal(t *testing.T) {
	var runs atomic.Int32
	h := start(t, func(c *Config) {
		c.newCommitter = func(c Config) Committer {
			return countedCommitter{committer.New(committer.Config{Open: c.Catalogs.OpenTable}), &runs}
		}
	})
	startExecutor(t, h.s, executorOptions{id: "e1"})
	id := h.run(&firnpb.ExecuteRequest{Sql: insert}).GetJobId()
	must(t, h.s.loop.call(t.Context(), func() { h.s.startRoot(h.s.state.jobs[id], graph.RunSchedulerRoot{Epoch: 1}) }))
	h.s.roots.Wait()
	if n := runs.Load(); n != 1 {
		t.Fatalf("%d roots ran, want the first one only", n)
	}
}

// panickingCommitter breaks before anything of a commit has begun.
type panickingCommitter struct{ Committer }

func (panickingCommitter) Run(context.Context, committer.Root) (commit.Report, error) { panic("bang") }

// The committer catches panics of drivers; the root's own are caught here.
func TestRoot17_PanicOutsideTheCommitterFailsTheJob(t *testing.T) {
	h := start(t, func(c *Config) {
		c.newCommitter = func(c Config) Committer {
			return panickingCommitter{committer.New(committer.Config{Open: c.Catalogs.OpenTable})}
		}
	})
	startExecutor(t, h.s, executorOptions{id: "e1"})
	st := h.run(&firnpb.ExecuteRequest{Sql: insert})
	wantState(t, st, graph.JobFailed, commit.CommitNone)
	if text := wire.ErrorFromProto(st.GetError()).Error(); !strings.HasPrefix(text, rootPrefix) || !strings.Contains(text, "bang") {
		t.Fatalf("error = %s", text)
	}
	wantState(t, h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1"}), graph.Succeeded, commit.CommitNone)
}

func TestRoot19_InlineResultIsAnArrowStream(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	st := h.run(&firnpb.ExecuteRequest{Sql: insert})
	schema, rows := readRows(t, st.GetInlineResult())
	if !schema.Equal(wire.ReportSchema()) || len(rows) != 1 {
		t.Fatalf("%d rows of %s", len(rows), schema)
	}
	if len(st.GetPartitions()) != 0 || len(st.GetResultSchema()) != 0 {
		t.Fatal("the result is told twice")
	}
}

func TestRoot21_ClientFetchesNothing(t *testing.T) {
	h := start(t, nil)
	e := startExecutor(t, h.s, executorOptions{id: "e1"})
	st := h.run(&firnpb.ExecuteRequest{Sql: insert})
	h.get(st.GetJobId())
	if n := e.gets.Load(); n != parts { // the root's own
		t.Fatalf("%d reads over Flight, want the root's %d", n, parts)
	}
	for _, s := range []*firnpb.JobStatus{st, h.get(st.GetJobId())} {
		if len(s.GetPartitions()) != 0 {
			t.Fatal("the client was given something to fetch")
		}
	}
}

func TestRoot27_MessagesSayJobReasonAndWayOut(t *testing.T) {
	h := start(t, func(c *Config) { c.MaxResult = 100 })
	startExecutor(t, h.s, executorOptions{id: "e1"})
	for _, req := range []*firnpb.ExecuteRequest{{Sql: insert}, {Sql: insert, Mode: "cached"}, {Sql: insert, Mode: "pipelined"}} {
		st := h.run(req)
		text := wire.ErrorFromProto(st.GetError()).Error()
		if !strings.Contains(text, st.GetJobId()) || st.GetError().GetCause() == "" || st.GetError().GetHint() == "" || st.GetError().GetCode() == "" {
			t.Errorf("mode %q: %v", req.GetMode(), st.GetError())
		}
	}
}

func TestRoot28_WholeJobFreedAtSuccess(t *testing.T) {
	h := start(t, nil)
	e := startExecutor(t, h.s, executorOptions{id: "e1"})
	id := h.run(&firnpb.ExecuteRequest{Sql: "INSERT INTO mem.ns.t SELECT 2"}).GetJobId()
	f := receive(t, e.freed, "free")
	if f.GetJobId() != id || len(f.GetStages()) != 0 {
		t.Fatalf("freed %v, want the whole job", f)
	}
	// The rows of a SELECT stay until their time to live ends, and go then.
	h.close()
	h = start(t, func(c *Config) { c.ResultTTL = 300 * time.Millisecond })
	e = startExecutor(t, h.s, executorOptions{id: "e1"})
	st := h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1"})
	if len(e.freed) != 0 {
		t.Fatalf("freed %v at once", <-e.freed)
	}
	f = receive(t, e.freed, "free")
	if f.GetJobId() != st.GetJobId() || len(f.GetStages()) != 1 || f.GetStages()[0] != 0 {
		t.Fatalf("freed %v, want the final stage", f)
	}
}

func TestRoot34_StageListEndsWithTheScheduler(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	st := h.run(&firnpb.ExecuteRequest{Sql: "INSERT INTO mem.ns.t SELECT 2"})
	var got []string
	for _, s := range st.GetStages() {
		got = append(got, s.GetId()+" "+s.GetState())
	}
	if s := strings.Join(got, ", "); s != "0 succeeded, 1 succeeded, scheduler succeeded" {
		t.Fatal(s)
	}
	root := st.GetStages()[2]
	if root.GetTasks() != 0 || root.GetAttempts() != 1 || root.GetRows() != 20 || root.GetFiles() != 2 || root.GetBytes() != 2000 ||
		root.GetSnapshotId() == "" || root.GetStartedUnixMs() == 0 || root.GetEndedUnixMs() == 0 {
		t.Fatalf("%v", root)
	}
	if !strings.HasPrefix(st.GetPlanText(), "scheduler root: commit append to mem.ns.t") {
		t.Fatalf("plan:\n%s", st.GetPlanText())
	}
	if st.GetTasks() != parts+2 {
		t.Fatalf("%d tasks", st.GetTasks())
	}
}

// TestKeptManifestsAskForMemoryFirst: a manifest that is read from the journal, or a
// copy, is refused before all of it is in memory, if it takes more than one job gets.
func TestKeptManifestsAskForMemoryFirst(t *testing.T) {
	files := make([]commit.File, 3000)
	for i := range files {
		files[i] = commit.File{Path: fmt.Sprintf("file:///w/%d-%s.parquet", i, strings.Repeat("x", 2000)), Format: "parquet", Rows: 1, Size: 1}
	}
	b, err := wire.EncodeManifest(files)
	must(t, err)
	raw, err := wire.EncodeManifestIPC(b)
	must(t, err)
	const half = 2 << 20
	for limit, code := range map[int64]commit.Code{2 * half: commit.CodeVerification, 100 * half: ""} {
		var into commit.Packer
		share := answers.NewPool(limit).Join()
		err := readManifest(t.Context(), bytes.NewReader(raw), "a-1", int64(len(files)), share, &into)
		if commit.CodeOf(err) != code {
			t.Fatalf("%v", err)
		}
		if into.Bytes() > half+2*askedAfter && code != "" {
			t.Errorf("%d bytes were taken, and %d may be", into.Bytes(), half)
		}
		share.Leave()
	}
}
