package iceberg_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/catalog/iceberg"
	"github.com/firn-project/firn/commit"
)

// Every commit writes its tokens into the table's ledger, so that they are found
// when their snapshots are gone.
func TestTheLedgerOutlivesSnapshots(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	f.foreign(table.NewSetPropertiesUpdate(map[string]string{"owner": "x"}))
	var units []commit.Unit
	for n := range 3 {
		u := f.unit(fmt.Sprint("k", n), f.file(false, rows(nil, int64(n))))
		f.append(u)
		units = append(units, u)
	}
	m := f.read()
	if m.Window() != 0 || m.Ledger().Horizon != 0 || len(m.Ledger().Entries()) != 3 {
		t.Errorf("window %d, ledger %s", m.Window(), m.Ledger())
	}
	if got := f.meta().Properties(); got[iceberg.KeyLedger] != m.Ledger().String() || got["owner"] != "x" {
		t.Errorf("properties %v", got)
	}
	if p, err := m.Pin(nil); err != nil || p.Properties[iceberg.KeyLedger] != "" || p.Properties["owner"] != "x" {
		t.Errorf("plans get the properties %v, %v", p.Properties, err)
	}

	// The first two snapshots expire.
	ids := []int64{f.meta().Snapshots()[0].SnapshotID, f.meta().Snapshots()[1].SnapshotID}
	f.foreign(table.NewRemoveSnapshotsUpdate(ids, false))
	f.reopen()
	m = f.read()
	if m.Window() != 2 {
		t.Errorf("window %d", m.Window())
	}
	for n, u := range units {
		landed, ok := commit.FindToken(m, commit.MainBranch, u.Token)
		if !ok || landed.Seat.Number != int64(n+1) || (landed.SnapshotID == "") != (n < 2) {
			t.Errorf("unit %d: %+v %v", n, landed, ok)
		}
	}
	if !commit.Sees(m, 0) {
		t.Error("the ledger reaches back to the beginning")
	}

	// A tool drops the property: the ledger begins anew, and says so.
	f.foreign(table.NewRemovePropertiesUpdate([]string{iceberg.KeyLedger}))
	f.reopen()
	if m = f.read(); commit.Sees(m, 0) || !commit.Sees(m, 2) || m.Ledger().Horizon != 3 {
		t.Errorf("ledger %s, window %d", m.Ledger(), m.Window())
	}
	f.append(f.unit("k3", f.file(false, rows(nil, 3))))
	if m = f.read(); m.Ledger().Horizon != 3 || len(m.Ledger().Entries()) != 1 || m.Window() != 2 {
		t.Errorf("ledger %s, window %d", m.Ledger(), m.Window())
	}
}

// A rolled back head takes no seat back, and a snapshot on another branch has one.
func TestTheWindowCountsSeats(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	f.append(f.unit("a", f.file(false, rows(nil, 1))))
	first := f.meta().CurrentSnapshot().SnapshotID
	f.append(f.unit("b", f.file(false, rows(nil, 2))))
	f.foreign(table.NewSetSnapshotRefUpdate("main", first, table.BranchRef, 0, 0, 0))
	u := f.unit("c", f.file(false, rows(nil, 3)))
	u.Branch = "audit"
	f.append(u)
	m := f.read()
	if m.Window() != 0 || m.Clock().Number != 3 {
		t.Errorf("window %d of %d", m.Window(), m.Clock().Number)
	}
	f.foreign(table.NewRemoveSnapshotRefUpdate("audit"), table.NewRemoveSnapshotsUpdate([]int64{f.meta().Snapshots()[2].SnapshotID}, false))
	f.reopen()
	if m = f.read(); m.Window() != 3 {
		t.Errorf("window %d, though the last seat's snapshot isn't shown", m.Window())
	}
}

func TestSeatAtErrsToLowerSeats(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	start := f.now
	for n := range 3 {
		f.now = start.Add(time.Duration(n+1) * time.Hour)
		f.append(f.unit(fmt.Sprint(n), f.file(false, rows(nil, int64(n)))))
	}
	m := f.read()
	for after, want := range map[time.Duration]int64{0: 0, time.Hour: 1, 90 * time.Minute: 1, 2 * time.Hour: 2, 9 * time.Hour: 3} {
		if got := m.SeatAt(start.Add(after)); got != want {
			t.Errorf("after %s: seat %d, want %d", after, got, want)
		}
	}
}

func TestWhichRequestsHaveNoSeat(t *testing.T) {
	for _, c := range []struct {
		version        string
		compares       bool
		before, behind bool
	}{
		{"1", false, false, false},
		{"2", false, false, false},
		{"1", true, true, true},
		{"2", true, true, false},
		{"3", true, false, false},
	} {
		f := newFixture(t, idKV(), nil, map[string]string{table.PropertyFormatVersion: c.version})
		f.cat.compares = c.compares
		f.reopen()
		check := func(want bool) {
			t.Helper()
			m := f.read()
			r := f.build(f.unit("x", f.file(false, rows(nil, 1))))
			if got := m.NoSeat("main") != ""; got != want || (r.Seat == commit.Seat{}) != want {
				t.Errorf("%+v: no seat %v (%q), request %+v", c, got, m.NoSeat("main"), r.Seat)
			}
		}
		check(c.before)
		f.cat.compares = false
		f.reopen()
		f.append(f.unit("a", f.file(false, rows(nil, 1))))
		f.cat.compares = c.compares
		f.reopen()
		check(c.behind)
	}
}

// Table properties say how much the ledger keeps, within bounds; what an open unit
// needs is kept all the same.
func TestLedgerProperties(t *testing.T) {
	f := newFixture(t, idKV(), nil, map[string]string{iceberg.KeyLedgerTokens: "1"}) // the least is 100
	var first commit.Unit
	for n := range 103 {
		u := f.unit(fmt.Sprint(n), f.file(false, rows(nil, int64(n))))
		if n == 0 {
			first = u
		}
		f.append(u)
	}
	l := f.read().Ledger()
	if n := len(l.Entries()); n != 100 || l.Horizon != 3 {
		t.Errorf("%d tokens above %d, want 100 above 3", n, l.Horizon)
	}
	if _, ok := l.Find(first.Token); ok {
		t.Error("the oldest token is kept")
	}

	start := f.now
	f.foreign(table.NewSetPropertiesUpdate(map[string]string{iceberg.KeyLedgerDays: "7", iceberg.KeyLedgerTokens: "many"}))
	f.reopen()
	f.now = start.AddDate(0, 0, 8)
	held := f.unit("held", f.file(false, rows(nil, 200)))
	held.Origin = commit.Seat{Number: 50}
	f.append(held)
	if l = f.read().Ledger(); l.Horizon != 50 {
		t.Errorf("the horizon is at %d, past the origin of a sealed unit at 50, or before it", l.Horizon)
	}
	f.append(f.unit("next", f.file(false, rows(nil, 201))))
	if l = f.read().Ledger(); l.Horizon != 103 || len(l.Entries()) != 2 {
		t.Errorf("after a week the ledger has %d tokens above %d", len(l.Entries()), l.Horizon)
	}
}

// B1: Polaris may take the seat of a marked compaction back, so that it counts only
// once something else has been committed after it.
func TestB1_SeatsThatAreTakenBack(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	f.append(f.unit("a", f.file(false, rows(nil, 1))))
	f.cat.compares = true
	f.reopen()
	compaction := func(marked string) {
		s := *f.meta().CurrentSnapshot()
		parent := s.SnapshotID
		s.SnapshotID, s.ParentSnapshotID, s.SequenceNumber = parent+1, &parent, s.SequenceNumber+1
		s.Summary = &table.Summary{Operation: table.OpReplace, Properties: map[string]string{
			"polaris.internal.conflict-resolution.by-operation-type.replace": marked,
		}}
		f.foreign(table.NewAddSnapshotUpdate(&s), table.NewSetSnapshotRefUpdate("main", s.SnapshotID, table.BranchRef, 0, 0, 0))
		f.reopen()
	}
	for _, step := range []struct {
		marked      string
		clock, firm int64
	}{{"rollback", 2, 1}, {"rollback", 3, 1}, {"no", 4, 4}, {"rollback", 5, 4}} {
		compaction(step.marked)
		if m := f.read(); m.Clock().Number != step.clock || m.Firm() != step.firm {
			t.Errorf("clock %d, firm %d, want %+v", m.Clock().Number, m.Firm(), step)
		}
	}
}
