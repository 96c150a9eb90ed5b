package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
)

// wantFenced is what a fence leaves on an idle table: one empty commit, and the
// job told as refused, for good.
func wantFenced(t *testing.T, h *harness, id string) {
	t.Helper()
	wantState(t, h.get(id), graph.JobFailed, commit.CommitRefused)
	if n := h.catalogs.table.Applied(); n != 1 || h.catalogs.table.Rows("main") != 0 {
		t.Errorf("%d commits, %d rows; want one commit without rows", n, h.catalogs.table.Rows("main"))
	}
	if n := h.catalogs.table.Deliver(); n != 0 {
		t.Errorf("%d late requests landed after the fence", n)
	}
	u := unitOf(t, h, id)
	if u.State != journal.UnitRefused || u.Quarantine || u.Reason != commit.ReasonBudget {
		t.Errorf("%+v", u)
	}
	if _, err := h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "drop"}); err != nil {
		t.Errorf("its files can't be given up: %v", err)
	}
}

// A fence settles what would be unknown for as long as nobody commits.
func TestFence(t *testing.T) {
	h, id := leaveUnknown(t)
	h.catalogs.set(func() { h.catalogs.faults = nil })
	h.s.resolveUnits(t.Context())
	wantState(t, h.get(id), graph.Running, commit.CommitUnknown)
	st, err := h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "fence"})
	must(t, err)
	wantState(t, st, graph.JobFailed, commit.CommitRefused)
	wantFenced(t, h, id)
}

// The same by another process, hours later.
func TestFenceOfAnotherProcess(t *testing.T) {
	h, id := leaveUnknown(t)
	h.close()
	h.catalogs.set(func() { h.catalogs.faults = nil })
	h = startIn(t, h.dir, h.catalogs, nil)
	h.waitUntil(id, func(st *firnpb.JobStatus) bool { return st.GetCommit() == string(commit.CommitUnknown) })
	if _, err := h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "fence"}); err != nil {
		t.Fatal(err)
	}
	wantFenced(t, h, id)
}

// What has landed meanwhile is found, and no fence is put on the table.
func TestFenceFindsWhatLanded(t *testing.T) {
	h, id := leaveUnknown(t)
	h.catalogs.table.Deliver()
	st, err := h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "fence"})
	must(t, err)
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	wantOnce(t, h, id)
}

// A fence whose own answer is lost is looked up like any commit.
func TestFenceWithoutAnAnswer(t *testing.T) {
	h, id := leaveUnknown(t)
	h.catalogs.set(func() { h.catalogs.faults = []string{"drop-request", "drop-reply"} })
	if _, err := h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "fence"}); err != nil {
		t.Fatal(err)
	}
	wantFenced(t, h, id)
}

// A refusal on the catalog's word becomes final, and stays what it was.
func TestFenceEndsAQuarantine(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1", slots: parts})
	h.catalogs.set(func() { h.catalogs.faults = []string{"403-late"} })
	id := h.run(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"}).GetJobId()
	if u := unitOf(t, h, id); !u.Quarantine {
		t.Fatalf("%+v", u)
	}
	_, err := h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "fence"})
	must(t, err)
	if u := unitOf(t, h, id); u.State != journal.UnitRefused || u.Quarantine || u.Reason != commit.ReasonPermission {
		t.Errorf("%+v", u)
	}
	if h.catalogs.table.Deliver() != 0 {
		t.Error("the late request landed")
	}
}

// Where there are no seats nothing can be fenced, and that is said.
func TestFenceNeedsSeats(t *testing.T) {
	catalogs := &fakeCatalogs{table: committest.NewCatalog(committest.Mode{NoSeat: true})}
	h := startIn(t, t.TempDir(), catalogs, func(c *Config) { c.CommitDeadline = 200 * time.Millisecond })
	startExecutor(t, h.s, executorOptions{id: "e1", slots: parts})
	catalogs.set(func() {
		catalogs.faults = []string{"late", "drop-request", "drop-request", "drop-request", "drop-request"}
	})
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	h.waitUntil(id, func(st *firnpb.JobStatus) bool { return st.GetCommit() == string(commit.CommitUnknown) })
	catalogs.set(func() { catalogs.faults = nil })
	sends := catalogs.table.Sends()
	_, err := h.drive(&firnpb.DriveUnitRequest{JobId: id, Action: "fence"})
	wantCode(t, err, commit.CodeUnknown, "any sequence number")
	if catalogs.table.Sends() != sends {
		t.Error("a fence was sent")
	}
	wantState(t, h.get(id), graph.Running, commit.CommitUnknown)
}

// leaveUnknownWith is leaveUnknown for a job that was submitted with a policy.
func leaveUnknownWith(t *testing.T, policy string) (*harness, string) {
	t.Helper()
	h := start(t, func(c *Config) { c.CommitDeadline = 200 * time.Millisecond })
	startExecutor(t, h.s, executorOptions{id: "e1"})
	h.catalogs.set(func() {
		h.catalogs.faults = []string{"late", "drop-request", "drop-request", "drop-request", "drop-request", "drop-request"}
	})
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k", AfterDeadline: policy})
	h.waitUntil(id, func(st *firnpb.JobStatus) bool { return st.GetCommit() == string(commit.CommitUnknown) })
	h.catalogs.set(func() { h.catalogs.faults = nil })
	return h, id
}

// The policy that a job was submitted with says what the resolver does once the
// outcome was told as unknown, also after a restart. Without one it only looks.
func TestPolicyAfterTheDeadline(t *testing.T) {
	for _, restart := range []bool{false, true} {
		name := map[bool]string{true: "restarted"}[restart]
		again := func(t *testing.T, h *harness) *harness {
			if restart {
				h.close()
				h = startIn(t, h.dir, h.catalogs, nil)
			}
			return h
		}
		t.Run("look "+name, func(t *testing.T) {
			h, id := leaveUnknownWith(t, "")
			sends := h.catalogs.table.Sends()
			h = again(t, h)
			h.waitUntil(id, func(st *firnpb.JobStatus) bool { return st.GetCommit() == string(commit.CommitUnknown) })
			h.s.resolveUnits(t.Context())
			wantState(t, h.get(id), graph.Running, commit.CommitUnknown)
			if h.catalogs.table.Sends() != sends {
				t.Error("something was sent behind the user's back")
			}
		})
		t.Run("fence "+name, func(t *testing.T) {
			h, id := leaveUnknownWith(t, "fence")
			h = again(t, h)
			h.waitUntil(id, func(st *firnpb.JobStatus) bool { return st.GetCommit() == string(commit.CommitUnknown) })
			h.s.resolveUnits(t.Context())
			h.wait(id)
			wantFenced(t, h, id)
		})
		t.Run("retry "+name, func(t *testing.T) {
			h, id := leaveUnknownWith(t, "retry")
			h = again(t, h)
			if !restart {
				h.s.resolveUnits(t.Context())
			}
			h.wait(id)
			h.catalogs.table.Deliver()
			wantOnce(t, h, id)
		})
	}
	h := start(t, nil)
	_, err := h.execute(&firnpb.ExecuteRequest{Sql: insert, AfterDeadline: "never"})
	wantCode(t, err, commit.CodeBadRequest, "never")
}

// A commit that is under way says what it waits for.
func TestStatusSaysWhatACommitWaitsFor(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1", slots: parts})
	hold := newStop()
	h.catalogs.set(func() { h.catalogs.send = hold.wait })
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k", AfterDeadline: "fence"})
	receive(t, hold.arrived, "send")
	if w := h.get(id).GetWaitsFor(); !strings.Contains(w, "the catalog's answer to request") {
		t.Errorf("the job waits for %q", w)
	}
	if u := units(t, h, true); len(u) != 1 || u[0].GetWaitsFor() == "" || u[0].GetAfterDeadline() != "fence" {
		t.Errorf("%v", u)
	}
	close(hold.release)
	h.wait(id)
	if w := h.get(id).GetWaitsFor(); w != "" {
		t.Errorf("an ended job waits for %q", w)
	}
}
