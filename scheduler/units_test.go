package scheduler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/committer"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
)

// park runs an INSERT whose table is replaced while it runs.
func park(t *testing.T, h *harness) string {
	t.Helper()
	hold := newStop()
	e := startExecutor(t, h.s, executorOptions{id: newID("e-"), onGet: hold.wait})
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	receive(t, hold.arrived, "read")
	h.catalogs.table.Recreate()
	close(hold.release)
	st := h.wait(id)
	h.lose(e)
	wantState(t, st, graph.JobFailed, commit.CommitRefused)
	if st.GetError().GetReason() != string(commit.ReasonTableChanged) {
		t.Fatalf("%v", st.GetError())
	}
	return id
}

func units(t *testing.T, h *harness, all bool) []*firnpb.UnitStatus {
	t.Helper()
	resp, err := h.client.ListUnits(t.Context(), &firnpb.ListUnitsRequest{All: all})
	must(t, err)
	return resp.GetUnits()
}

func (h *harness) drive(req *firnpb.DriveUnitRequest) (*firnpb.JobStatus, error) {
	st, err := h.client.DriveUnit(h.t.Context(), req)
	return st, wire.FromStatus(err)
}

func TestParkedUnitIsListedAndAdopted(t *testing.T) {
	h := start(t, nil)
	id := park(t, h)
	all := units(t, h, false)
	if len(all) != 1 {
		t.Fatalf("%v", all)
	}
	u := all[0]
	if u.GetJobId() != id || u.GetState() != "refused" || u.GetReason() != string(commit.ReasonTableChanged) ||
		u.GetFiles() != parts || u.GetRows() != 10*parts || u.GetTable() != "mem.ns.t" || !strings.Contains(u.GetPrefix(), id) || u.GetCause() == "" {
		t.Fatalf("%v", u)
	}
	// Another process can drive it as well.
	h.close()
	h = startIn(t, h.dir, h.catalogs, nil)
	_, err := h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "retry"})
	wantCode(t, err, commit.CodeUnitNotDrivable, "replaced")
	st, err := h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "retry", Table: "mem.ns.t"})
	must(t, err)
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	if st.GetReport().GetRows() != 10*parts || h.catalogs.table.Rows("main") != 10*parts {
		t.Fatalf("%v", st.GetReport())
	}
	st = h.get(id)
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	if root := st.GetStages()[len(st.GetStages())-1]; root.GetState() != "succeeded" || root.GetAttempts() != 1 || root.GetRows() != 10*parts || root.GetError() != "" {
		t.Fatalf("%v", root)
	}
	if len(units(t, h, false)) != 0 || len(units(t, h, true)) != 1 {
		t.Fatal("the unit still waits")
	}
	// Driving it once more changes nothing.
	st, err = h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "retry"})
	must(t, err)
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	_, err = h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "drop"})
	wantCode(t, err, commit.CodeUnitNotDrivable)
	if h.catalogs.table.Applied() != 1 || len(h.catalogs.deleted) != 0 {
		t.Fatal("something changed")
	}
	// The key answers with what was committed.
	resp, err := h.execute(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	must(t, err)
	if !resp.GetJob().GetReport().GetDeduplicated() {
		t.Fatalf("%v", resp.GetJob())
	}
}

// roots keeps what the committer is asked to run.
type roots struct {
	Committer
	seen chan committer.Root
}

func (c roots) Run(ctx context.Context, r committer.Root) (commit.Report, error) {
	c.seen <- r
	return c.Committer.Run(ctx, r)
}

// A unit that is driven again brings its send records along: a request of an
// earlier process may be on its way still, so that a refusal wouldn't be final.
func TestADrivenUnitKnowsItsSends(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	id := h.run(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"}).GetJobId()
	h.close()
	rewind(t, h.dir, id)
	seen := make(chan committer.Root, 1)
	h = startIn(t, h.dir, h.catalogs, func(c *Config) {
		c.newCommitter = func(c Config) Committer {
			return roots{committer.New(committer.Config{Open: c.Catalogs.OpenTable}), seen}
		}
	})
	sends, err := h.s.journal.Sends(t.Context(), unitOf(t, h, id).Token)
	must(t, err)
	if len(sends) != 2 {
		t.Fatalf("%d send records", len(sends))
	}
	root := receive(t, seen, "root")
	if len(root.Sent) != len(sends) {
		t.Fatalf("%d requests of %d", len(root.Sent), len(sends))
	}
	for i, r := range root.Sent {
		s := sends[i]
		if r.ID != s.RequestID || r.SnapshotID != s.SnapshotID || r.Head != s.Head || r.Seat != s.Seat || r.Branch != commit.MainBranch ||
			!slices.Equal(r.Tokens, s.Tokens) || !slices.Equal(r.MetadataFiles, s.MetadataFiles) {
			t.Errorf("request %+v of record %+v", r, s)
		}
	}
	// In another table it is another unit, which nobody has sent.
	u := unitOf(t, h, id)
	sent, err := h.s.sent(t.Context(), u, &plan.Commit{Target: plan.Pinned{UUID: "another"}})
	if must(t, err); len(sent) != 0 {
		t.Errorf("%v", sent)
	}
}

func unitOf(t *testing.T, h *harness, id string) journal.Unit {
	t.Helper()
	u, err := h.s.journal.Unit(t.Context(), id)
	must(t, err)
	return u
}

func TestAdoptingNeedsTheSameColumns(t *testing.T) {
	for name, tt := range map[string]struct{ schema, spec, want string }{
		"other type":      {`{"schema-id":3,"fields":[{"id":1,"name":"a","type":"string"}]}`, `{"spec-id":0,"fields":[]}`, "field 1"},
		"other name":      {`{"schema-id":3,"fields":[{"id":1,"name":"b","type":"long"}]}`, `{"spec-id":0,"fields":[]}`, "field 1"},
		"no such field":   {`{"schema-id":3,"fields":[{"id":2,"name":"b","type":"long"}]}`, `{"spec-id":0,"fields":[]}`, "columns that the table doesn't have"},
		"required":        {`{"schema-id":3,"fields":[{"id":1,"name":"a","type":"long","required":true}]}`, `{"spec-id":0,"fields":[]}`, "required"},
		"more, required":  {`{"schema-id":3,"fields":[{"id":1,"name":"a","type":"long"},{"id":2,"name":"b","type":"long","required":true}]}`, `{"spec-id":0,"fields":[]}`, "required"},
		"other partition": {`{"schema-id":3,"fields":[{"id":1,"name":"a","type":"long"}]}`, `{"spec-id":1,"fields":[{"source-id":1,"field-id":1000,"transform":"identity","name":"a"}]}`, "partitioned"},
		"fits":            {`{"schema-id":3,"fields":[{"id":1,"name":"a","type":"long"},{"id":2,"name":"b","type":"long"}]}`, `{"spec-id":0,"fields":[]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, nil)
			id := park(t, h)
			u, err := h.s.journal.Unit(t.Context(), id)
			must(t, err)
			target, err := h.catalogs.Pin(t.Context(), u.Table)
			must(t, err)
			target.SchemaJSON, target.SpecJSON = []byte(tt.schema), []byte(tt.spec)
			files, err := adopt(u, true, target, commit.PackFiles(commit.File{SchemaID: 0}))
			if tt.want == "" {
				must(t, err)
				if files.At(0).SchemaID != 3 {
					t.Fatalf("%+v", files)
				}
				return
			}
			wantCode(t, err, commit.CodeUnitNotDrivable, tt.want)
		})
	}
}

func TestDropDeletesTheFiles(t *testing.T) {
	h := start(t, nil)
	id := park(t, h)
	st, err := h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "drop"})
	must(t, err)
	if st.GetJobId() != id || len(h.catalogs.deleted) != parts {
		t.Fatalf("%v, deleted %v", st, h.catalogs.deleted)
	}
	for _, f := range h.catalogs.deleted {
		if !strings.Contains(f, id) {
			t.Fatalf("deleted %s", f)
		}
	}
	if len(units(t, h, false)) != 0 {
		t.Fatal("the unit still waits")
	}
	_, err = h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "retry", Table: "mem.ns.t"})
	wantCode(t, err, commit.CodeUnitNotDrivable, "dropped")
	if h.catalogs.table.Applied() != 0 {
		t.Fatal("dropped files were committed")
	}
}

func TestMissingFileStopsARetry(t *testing.T) {
	h := start(t, func(c *Config) {
		c.StatFile = func(_ context.Context, _ map[string]string, uri string) (int64, error) {
			return 0, errors.New("gone")
		}
	})
	id := park(t, h)
	_, err := h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "retry", Table: "mem.ns.t"})
	wantCode(t, err, commit.CodeUnitNotDrivable, "gone", id)
	if h.catalogs.table.Applied() != 0 {
		t.Fatal("a missing file was committed")
	}
}

func TestDriveRefusals(t *testing.T) {
	h := start(t, nil)
	_, err := h.drive(&firnpb.DriveUnitRequest{JobId: "j-9", Action: "retry"})
	wantCode(t, err, commit.CodeUnitNotFound, "j-9")
	id := park(t, h)
	_, err = h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "burn"})
	wantCode(t, err, commit.CodeBadRequest, "burn")
	_, err = h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "retry", Table: "t; DROP TABLE x"})
	wantCode(t, err, commit.CodeOneStatement)

	// A unit whose job runs isn't touched, and isn't listed as waiting.
	startExecutor(t, h.s, executorOptions{id: "e1"})
	hold := newStop()
	h.catalogs.set(func() { h.catalogs.send = hold.wait })
	running := h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k2"})
	receive(t, hold.arrived, "send")
	for _, action := range []string{"retry", "drop"} {
		_, err = h.drive(&firnpb.DriveUnitRequest{JobId: running, Action: action})
		wantCode(t, err, commit.CodeUnitNotDrivable, running)
	}
	for _, u := range units(t, h, false) {
		if u.GetJobId() == running {
			t.Fatal("a running job's unit waits")
		}
	}
	close(hold.release)
	wantState(t, h.wait(running), graph.Succeeded, commit.CommitCommitted)
}
