package committest

import (
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
)

// sightOf reads the table; the test is skipped when the driver has no sight.
func sightOf(t *testing.T, table commit.Table) (commit.Metadata, commit.Sight) {
	t.Helper()
	m := read(t, table)
	s, ok := m.(commit.Sight)
	if !ok {
		t.Skip("the driver doesn't tell how far its reads reach back")
	}
	return m, s
}

func testSight(t *testing.T, h Harness) {
	table := openTable(t, h)
	h.Foreign(t)
	before, s := sightOf(t, table)
	clock := before.Clock().Number
	if s.Window() > clock || s.Window() < 0 {
		t.Errorf("the window begins at %d, the clock is at %d", s.Window(), clock)
	}
	if l := s.Ledger(); l.Horizon > clock {
		t.Errorf("the ledger %s begins after the clock, %d", l, clock)
	}
	u := h.Unit(t, "k", 1, 2)
	o := mustCommit(t, table, u)
	h.Foreign(t)
	for _, again := range []commit.Table{table, openTable(t, h)} { // also for who has seen nothing before
		after, s := sightOf(t, again)
		if !commit.Sees(after, clock) {
			t.Errorf("window %d, ledger %s: the read doesn't reach back to %d", s.Window(), s.Ledger(), clock)
		}
		if seat, ok := s.Ledger().Find(u.Token); clock > 0 && (!ok || seat != o.Landed.Seat.Number) {
			t.Errorf("ledger %s, want the token at %d", s.Ledger(), o.Landed.Seat.Number)
		}
		if s.Ledger().Horizon > clock {
			t.Errorf("the ledger %s begins after the read that its first commit was built from, %d", s.Ledger(), clock)
		}
		if at := s.SeatAt(time.Now().Add(time.Hour)); at > after.Clock().Number {
			t.Errorf("seat %d in an hour, and the clock is at %d", at, after.Clock().Number)
		}
		if at := s.SeatAt(time.Unix(0, 0).Add(-time.Hour)); at != 0 {
			t.Errorf("seat %d before 1970", at)
		}
	}
}

func testLedger(t *testing.T, h Harness) {
	table := openTable(t, h)
	h.Foreign(t)
	m, before := sightOf(t, table)
	if m.Clock().Number == 0 {
		t.Skip("the table has no numbers")
	}
	a, b, c := h.Unit(t, "a", 1, 1), h.Unit(t, "b", 1, 1), h.Unit(t, "c", 1, 1)
	out := Drive(table, []commit.Unit{a, b}, opts())
	o := mustCommit(t, table, c)
	_, s := sightOf(t, table)
	for u, want := range map[commit.Token]int64{
		a.Token: out[a.Token].Landed.Seat.Number, b.Token: out[b.Token].Landed.Seat.Number, c.Token: o.Landed.Seat.Number,
	} {
		if seat, ok := s.Ledger().Find(u); !ok || seat != want {
			t.Errorf("ledger %s, want %s at %d", s.Ledger(), u, want)
		}
	}
	if n := len(s.Ledger().Entries()) - len(before.Ledger().Entries()); n != 3 {
		t.Errorf("the ledger has %d tokens more, want 3", n)
	}
}
