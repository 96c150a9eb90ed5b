package scheduler

import (
	"context"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
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
	var outbox *mailbox
	must(t, h.s.loop.call(t.Context(), func() { outbox = h.s.state.executors["e1"].outbox }))
	must(t, outbox.call(t.Context(), func() {}))
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
