package scheduler

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
)

// copyJournal restores a copy of the journal as it is now.
func (h *harness) copyJournal() string {
	h.t.Helper()
	dir := h.t.TempDir()
	must(h.t, os.CopyFS(dir, os.DirFS(h.dir)))
	// The ticket key goes along, the lock's holder doesn't.
	_ = os.Remove(dir + "/scheduler.lock")
	return dir
}

// sentAfterTheCopy runs an INSERT whose one request is on its way, and gives a
// copy of the journal from before that was sent: when its root read the
// manifests (sealed is false), or when its request was built.
func sentAfterTheCopy(t *testing.T, sealed bool) (catalogs *fakeCatalogs, dir, id string) {
	t.Helper()
	catalogs = &fakeCatalogs{table: committest.NewCatalog(committest.Mode{})}
	h := startIn(t, t.TempDir(), catalogs, func(c *Config) { c.CommitDeadline = 200 * time.Millisecond })
	hold := newStop()
	o := executorOptions{id: "e1", slots: parts}
	if sealed {
		catalogs.set(func() { catalogs.build = hold.wait })
	} else {
		o.onGet = hold.wait
	}
	startExecutor(t, h.s, o)
	catalogs.set(func() {
		catalogs.faults = []string{"late", "drop-request", "drop-request", "drop-request", "drop-request", "drop-request"}
	})
	id = h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	receive(t, hold.arrived, "moment before the send")
	must(t, h.s.scribe.record(t.Context(), journal.Batch{}))
	dir = h.copyJournal()
	close(hold.release)
	h.waitUntil(id, func(st *firnpb.JobStatus) bool { return st.GetCommit() == string(commit.CommitUnknown) })
	h.close()
	catalogs.set(func() { catalogs.build, catalogs.faults = nil, nil })
	return catalogs, dir, id
}

// The journal is restored from a copy that has the unit sealed and not sent. It
// was sent since: no cancel wins, and what lands late is found and kept.
func TestRestoredJournalCountsASealAsSent(t *testing.T) {
	catalogs, dir, id := sentAfterTheCopy(t, true)
	hold := newStop()
	catalogs.set(func() { catalogs.build = hold.wait })
	h := startIn(t, dir, catalogs, nil)
	receive(t, hold.arrived, "build")
	resp, err := h.client.CancelJob(t.Context(), &firnpb.JobRequest{JobId: id})
	must(t, err)
	if resp.GetAnswer() != graph.AnswerCommitInFlight {
		t.Errorf("a cancel was answered %q", resp.GetAnswer())
	}
	catalogs.table.Deliver()
	close(hold.release)
	wantOnce(t, h, id)
}

// The copy has the job running and nothing sealed. The job runs again, and its
// refusal waits for what was lost with the journal.
func TestRestoredJournalCountsARunningJobAsSent(t *testing.T) {
	catalogs, dir, id := sentAfterTheCopy(t, false)
	catalogs.set(func() {
		catalogs.faults = []string{"403", "drop-request", "drop-request", "drop-request", "drop-request"}
	})
	h := startIn(t, dir, catalogs, func(c *Config) { c.CommitDeadline = 200 * time.Millisecond })
	startExecutor(t, h.s, executorOptions{id: "e2", slots: parts})
	st := h.waitUntil(id, func(st *firnpb.JobStatus) bool {
		return st.GetCommit() == string(commit.CommitUnknown) || endedState(st.GetState())
	})
	wantState(t, st, graph.Running, commit.CommitUnknown) // a 403 speaks for its copy only
	if u, err := h.s.journal.Unit(t.Context(), id); err != nil || u.Incarnation != h.s.journal.Incarnation() || u.Sends < 2 {
		t.Errorf("%+v, %v: want the lost request on record", u, err)
	}
	catalogs.table.Deliver()
	h.s.resolveUnits(t.Context())
	st = h.wait(id)
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	if catalogs.table.Applied() != 1 {
		t.Errorf("%d commits, %v", catalogs.table.Applied(), st.GetReport())
	}
	catalogs.set(func() {
		if len(catalogs.deleted) > 0 {
			t.Errorf("deleted %v", catalogs.deleted)
		}
	})
}

// The copy has the unit as refused and parked. It was driven again since: its
// files stay until that is settled.
func TestRestoredJournalTrustsNoRefusal(t *testing.T) {
	h := start(t, func(c *Config) { c.CommitDeadline = 200 * time.Millisecond })
	startExecutor(t, h.s, executorOptions{id: "e1", slots: parts})
	h.catalogs.set(func() { h.catalogs.faults = []string{"403"} })
	id := h.run(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"}).GetJobId()
	h.catalogs.table.Foreign("main") // the refusal is final
	h.s.resolveUnits(t.Context())
	if u := unitOf(t, h, id); u.State != journal.UnitRefused || u.Quarantine {
		t.Fatalf("%+v", u)
	}
	dir := h.copyJournal()
	h.catalogs.set(func() {
		h.catalogs.faults = []string{"late", "drop-request", "drop-request", "drop-request", "drop-request"}
	})
	_, err := h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "retry"})
	wantCode(t, err, commit.CodeUnknown)
	h.close()
	h.catalogs.set(func() { h.catalogs.faults = nil })

	h = startIn(t, dir, h.catalogs, func(c *Config) { c.ParkedRetention = time.Nanosecond })
	if _, err := h.execute(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"}); err == nil {
		st := h.wait(h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"}))
		if st.GetError().GetCode() != string(commit.CodeUnitUnresolved) {
			t.Errorf("the key ran beside what may land: %v", st)
		}
	}
	h.s.dropParked(t.Context())
	_, err = h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "drop"})
	wantCode(t, err, commit.CodeUnitNotDrivable)
	h.s.resolveUnits(t.Context())
	if u := unitOf(t, h, id); u.State != journal.UnitUnknown || u.Incarnation != h.s.journal.Incarnation() {
		t.Errorf("%+v", u)
	}
	if h.catalogs.table.Deliver() != 1 {
		t.Fatal("the late request didn't land")
	}
	h.s.resolveUnits(t.Context())
	if u := unitOf(t, h, id); u.State != journal.UnitCommitted {
		t.Errorf("%+v", u)
	}
	h.catalogs.set(func() {
		if len(h.catalogs.deleted) > 0 {
			t.Errorf("deleted %v", h.catalogs.deleted)
		}
	})
}

// The snapshot of an unknown commit has expired, and the table's ledger still has
// its token. Nobody can tell which files it holds: none is deleted.
func TestKnownToTheLedgerAlone(t *testing.T) {
	h, id := leaveUnknown(t)
	h.catalogs.table.Deliver()
	h.catalogs.table.Foreign("main")
	h.catalogs.table.Expire()
	h.s.resolveUnits(t.Context())
	st := h.wait(id)
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	if r := st.GetReport(); r.GetSnapshotId() != "" || r.GetRolledBack() {
		t.Errorf("%v", r)
	}
	u := unitOf(t, h, id)
	if u.State != journal.UnitCommitted || !u.LedgerOnly || u.Other {
		t.Errorf("%+v", u)
	}
	if err := h.s.journal.Deleting(context.Background(), id, []string{"p"}, true); err == nil {
		t.Error("files that the expired snapshot may hold can be deleted")
	}
	// The key answers from the ledger when the journal is lost, too.
	h.close()
	h = startIn(t, t.TempDir(), h.catalogs, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	st = h.run(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	if r := st.GetReport(); !r.GetDeduplicated() || r.GetRolledBack() {
		t.Errorf("%v", r)
	}
}
