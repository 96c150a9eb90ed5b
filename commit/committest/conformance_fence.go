package committest

import (
	"context"
	"testing"

	"github.com/firn-project/firn/commit"
)

func testFence(t *testing.T, h Harness) {
	table := openTable(t, h)
	h.Foreign(t)
	u := h.Unit(t, "k", 1, 2)
	late := build(t, openTable(t, h), u)
	before := read(t, table).Clock()
	o, f := fence(t, table, u, late)
	if m, ok := read(t, table).(commit.Unseated); ok && m.NoSeat(commit.MainBranch) != "" {
		if o.State != commit.Unknown || read(t, table).Clock() != before {
			t.Errorf("outcome %s on a table without seats", OutcomeText(o))
		}
		return
	}
	if o.State != commit.Refused || o.Quarantine || f.State != commit.Committed || f.Landed.Files != 0 || f.Landed.Rows != 0 {
		t.Fatalf("outcome %s (%v), the fence %s (%v)", OutcomeText(o), o.Err, OutcomeText(f), f.Err)
	}
	wantRefusedAnswer(t, table.Send(context.Background(), late))
	wantRows(t, h, 1)
	mustCommit(t, table, u) // the files are as good as before
	wantRows(t, h, 3)
}

func testFenceFinds(t *testing.T, h Harness) {
	table := openTable(t, h)
	u := h.Unit(t, "k", 1, 2)
	r := build(t, table, u)
	if ans := table.Send(context.Background(), r); ans.Class != commit.AnswerOK {
		t.Fatalf("answer %q: %v", ans.Class, ans.Err)
	}
	before := read(t, table).Clock()
	o, _ := fence(t, openTable(t, h), u, r)
	if o.State != commit.Committed || o.Landed.SnapshotID != r.SnapshotID {
		t.Errorf("outcome %s (%v)", OutcomeText(o), o.Err)
	}
	if read(t, table).Clock() != before {
		t.Error("a fence was put on the table for a unit that has landed")
	}
	wantRows(t, h, 2)
}

// fence drives a unit of which a request was sent, with a fence.
func fence(t *testing.T, table commit.Table, u commit.Unit, sent commit.Request) (o, fence commit.Outcome) {
	t.Helper()
	f := commit.NewFence(u, t.Name())
	opts := opts()
	sent.Payload = nil // as from a journal
	opts.Sent, opts.Fence = []commit.Request{sent}, &f
	out := Drive(table, []commit.Unit{u}, opts)
	return out[u.Token], out[f.Token]
}
