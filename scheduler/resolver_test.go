package scheduler

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
)

// leaveUnknown runs an INSERT whose commit's outcome isn't known when its
// deadline has passed. Its one request is on its way still.
func leaveUnknown(t *testing.T) (*harness, string) {
	t.Helper()
	h := start(t, func(c *Config) {
		c.CommitDeadline = 200 * time.Millisecond
	})
	startExecutor(t, h.s, executorOptions{id: "e1"})
	h.catalogs.set(func() {
		h.catalogs.faults = []string{"late", "drop-request", "drop-request", "drop-request", "drop-request", "drop-request"}
	})
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	st := h.waitUntil(id, func(st *firnpb.JobStatus) bool { return st.GetCommit() == string(commit.CommitUnknown) })
	wantState(t, st, graph.Running, commit.CommitUnknown)
	if st.GetError().GetCode() != string(commit.CodeUnknown) || st.GetEndedUnixMs() != 0 {
		t.Fatalf("%v", st)
	}
	return h, id
}

func wantOnce(t *testing.T, h *harness, id string) {
	t.Helper()
	st := h.wait(id)
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	if h.catalogs.table.Applied() != 1 || h.catalogs.table.Rows("main") != 10*parts || st.GetReport().GetRows() != 10*parts || st.GetError() != nil {
		t.Fatalf("%d commits, %d rows, %v", h.catalogs.table.Applied(), h.catalogs.table.Rows("main"), st)
	}
	h.catalogs.set(func() {
		if len(h.catalogs.deleted) > 0 {
			t.Fatalf("deleted %v", h.catalogs.deleted)
		}
	})
}

// Past its deadline the job runs on; it ends when somebody finds out, and a
// request that lands late is found.
func TestUnknownIsFoundOut(t *testing.T) {
	h, id := leaveUnknown(t)
	resp, err := h.client.CancelJob(t.Context(), &firnpb.JobRequest{JobId: id})
	must(t, err)
	if resp.GetAnswer() != graph.AnswerCommitInFlight {
		t.Fatalf("a cancel was answered %q", resp.GetAnswer())
	}
	// Finding out sends nothing, and what isn't proven isn't told.
	st, err := h.client.DriveUnit(t.Context(), &firnpb.DriveUnitRequest{JobId: id, Action: "resolve"})
	must(t, err)
	wantState(t, st, graph.Running, commit.CommitUnknown)
	if h.catalogs.table.Applied() != 0 {
		t.Fatal("something was sent")
	}
	_, err = h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "drop"})
	wantCode(t, err, commit.CodeUnitNotDrivable)
	// The same key joins it.
	if again := h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"}); again != id {
		t.Fatalf("the key ran again as %s", again)
	}
	h.catalogs.table.Deliver()
	h.s.resolveUnits(t.Context())
	wantOnce(t, h, id)
}

// `firn commit retry` drives it to an end, whatever is still on its way.
func TestUnknownIsRetried(t *testing.T) {
	h, id := leaveUnknown(t)
	h.catalogs.set(func() { h.catalogs.faults = nil })
	st, err := h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "retry"})
	must(t, err)
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	h.catalogs.table.Deliver()
	wantOnce(t, h, id)
}

// A scheduler that ends with such a job ends at once, and the next one takes it
// up.
func TestUnknownOutlivesTheScheduler(t *testing.T) {
	h, id := leaveUnknown(t)
	began := time.Now()
	h.close()
	if d := time.Since(began); d > 30*time.Second {
		t.Errorf("closing took %v", d)
	}
	h.catalogs.table.Deliver()
	h.catalogs.set(func() { h.catalogs.faults = nil })
	h = startIn(t, h.dir, h.catalogs, nil)
	wantOnce(t, h, id)
}

// A dry run verifies what it wrote, commits nothing, keeps nothing, and leaves
// its key to the real one.
func TestDryRun(t *testing.T) {
	h := start(t, func(c *Config) {
		c.ListPrefix = finds("0-0-a-0.parquet")
	})
	e := startExecutor(t, h.s, executorOptions{id: "e1"})
	st := h.run(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k", DryRun: true})
	wantState(t, st, graph.Succeeded, commit.CommitNone)
	r := st.GetReport()
	if r.GetRows() != 10*parts || r.GetFiles() != parts || r.GetSnapshotId() != "" || h.catalogs.table.Applied() != 0 {
		t.Fatalf("%v, %d commits", r, h.catalogs.table.Applied())
	}
	h.wantDeleted(st.GetJobId() + "/0-0-a-0.parquet")
	_, err := h.execute(&firnpb.ExecuteRequest{Sql: "SELECT 1", DryRun: true})
	wantCode(t, err, commit.CodeBadRequest, "SELECT")
	wantState(t, h.run(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"}), graph.Succeeded, commit.CommitCommitted)
	// What doesn't hold is told as by a real run.
	e.task = func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		st := e.succeed(d, n)
		st.RowsOut++
		return st
	}
	st = h.run(&firnpb.ExecuteRequest{Sql: insert, DryRun: true})
	wantState(t, st, graph.JobFailed, commit.CommitRefused)
	if code := st.GetError().GetCode(); code != string(commit.CodeVerification) {
		t.Fatalf("%v", wire.ErrorFromProto(st.GetError()))
	}
}

// wantDeleted waits until a file with that end was deleted.
func (h *harness) wantDeleted(end string) {
	h.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		found := false
		h.catalogs.set(func() {
			for _, p := range h.catalogs.deleted {
				found = found || strings.HasSuffix(p, end)
			}
		})
		if found {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%s wasn't deleted", end)
		}
		<-time.After(time.Millisecond)
	}
}

// finds is a store that has one file of this name below every prefix.
func finds(name string) func(context.Context, map[string]string, string) iter.Seq2[string, error] {
	return func(_ context.Context, _ map[string]string, prefix string) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) { yield(prefix+name, nil) }
	}
}

// What jobs that failed left is listed by record, and deleted when asked; what is
// parked, unknown or of a running job stays.
func TestOrphans(t *testing.T) {
	h := start(t, func(c *Config) {
		c.ListPrefix = finds("left.parquet")
	})
	parked := park(t, h)
	startExecutor(t, h.s, executorOptions{id: "e9", slots: parts})
	orphans := func(remove bool) map[string]*firnpb.OrphanFiles {
		resp, err := h.client.Orphans(t.Context(), &firnpb.OrphansRequest{Table: "mem.ns.t", Delete: remove})
		must(t, err)
		all := map[string]*firnpb.OrphanFiles{}
		for _, o := range resp.GetJobs() {
			all[o.GetJobId()] = o
		}
		return all
	}
	dry := h.run(&firnpb.ExecuteRequest{Sql: insert, DryRun: true}).GetJobId()
	h.wantDeleted(dry + "/left.parquet")
	hold := newStop()
	h.catalogs.set(func() { h.catalogs.send, h.catalogs.deleted = hold.wait, nil })
	running := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	receive(t, hold.arrived, "send")
	for _, remove := range []bool{false, true} {
		all := orphans(remove)
		for _, id := range []string{parked, running} {
			if o := all[id]; o.GetKept() == "" || len(o.GetFiles()) != 1 || o.GetWhy() != "" || o.GetDeleted() {
				t.Errorf("%s: %v", id, o)
			}
		}
		if o := all[running]; o.GetState() != "running" || o.GetCommit() != "in_flight" {
			t.Errorf("a committing job is shown as %s %s", o.GetState(), o.GetCommit())
		}
		if o := all[dry]; len(o.GetFiles()) != 1 || o.GetWhy() == "" || o.GetKept() != "" || o.GetDeleted() != remove {
			t.Errorf("the dry run's: %v", o)
		}
	}
	h.catalogs.set(func() {
		if len(h.catalogs.deleted) != 1 || !strings.Contains(h.catalogs.deleted[0], dry) {
			t.Errorf("deleted %v", h.catalogs.deleted)
		}
	})
	close(hold.release)
	wantState(t, h.wait(running), graph.Succeeded, commit.CommitCommitted)
	// Of a job that committed, what the table doesn't hold is an orphan.
	if o := orphans(false)[running]; len(o.GetFiles()) != 1 || o.GetKept() != "" || !strings.Contains(o.GetWhy(), "snapshot") {
		t.Errorf("of a committed job: %v", o)
	}
}

// What a dead request had written goes when it is found dead, also by the look
// that only finds out; and when the key is committed by another job, the files of
// the first one go at once, although its unit was parked.
func TestAParkedUnitLosesItsKey(t *testing.T) {
	h := start(t, func(c *Config) {
		c.ListPrefix = finds("left.parquet")
	})
	startExecutor(t, h.s, executorOptions{id: "e1", slots: parts})
	h.catalogs.set(func() { h.catalogs.faults = []string{"403"} })
	parked := h.run(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	wantState(t, parked, graph.JobFailed, commit.CommitRefused)
	wantState(t, h.run(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "other"}), graph.Succeeded, commit.CommitCommitted)
	if files := h.catalogs.table.MetadataFiles(); len(files) != 2 {
		t.Fatalf("metadata files %v", files)
	}
	h.s.resolveUnits(t.Context())
	if files := h.catalogs.table.MetadataFiles(); len(files) != 1 {
		t.Errorf("the dead request's metadata files stay: %v", files)
	}
	if u := unitOf(t, h, parked.GetJobId()); u.State != journal.UnitRefused || u.Quarantine || !u.Waits() {
		t.Fatalf("%+v", u)
	}
	h.catalogs.set(func() {
		if len(h.catalogs.deleted) > 0 {
			t.Fatalf("deleted %v", h.catalogs.deleted)
		}
	})
	won := h.run(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	wantState(t, won, graph.Succeeded, commit.CommitCommitted)
	if won.GetJobId() == parked.GetJobId() {
		t.Fatal("the parked unit was driven again")
	}
	h.wantDeleted(parked.GetJobId() + "/left.parquet")
	if len(units(t, h, false)) != 0 {
		t.Error("the parked unit still waits")
	}
}
