package iceberg

import (
	"math"
	"time"

	"github.com/firn-project/firn/commit"
)

// KeyLedger is the table property that keeps the ledger.
const KeyLedger = "firn.ledger"

var (
	_ commit.Sight    = (*Metadata)(nil)
	_ commit.Unseated = (*Metadata)(nil)
)

// Window implements commit.Sight. The snapshots' sequence numbers are the seats:
// nothing else takes one. A version 1 table has none, and shows everything as
// long as no snapshot's parent is missing.
func (m *Metadata) Window() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.lookup()
	if m.meta.Version() == 1 {
		return x.brokenChain()
	}
	return x.window(m.meta.LastSequenceNumber())
}

// Ledger implements commit.Sight.
func (m *Metadata) Ledger() commit.Ledger {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ledger == nil {
		l := commit.LedgerOf(m.meta.Properties()[KeyLedger], m.meta.LastSequenceNumber())
		m.ledger = &l
	}
	return *m.ledger
}

// SeatAt implements commit.Sight. Writers' clocks differ, so that a higher seat
// may bear an earlier time: every seat above one that was taken later counts as
// later.
func (m *Metadata) SeatAt(t time.Time) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var taken int64
	later := int64(math.MaxInt64)
	for _, s := range m.lookup().seats {
		if s.ms > t.UnixMilli() {
			later = min(later, s.number)
		} else {
			taken = max(taken, s.number)
		}
	}
	return max(min(taken, later-1), 0)
}

// NoSeat implements commit.Unseated. Where the catalog swaps a pointer, that is a
// seat. Elsewhere only the check of the sequence number makes an old request
// fail, and below version 3 catalogs leave that check out for a snapshot without
// a parent: such a request can land whenever the branch has no head, however many
// numbers were taken since (commit protocol B2).
func (m *Metadata) NoSeat(branch string) string {
	switch v := m.meta.Version(); {
	case m.swaps:
		return ""
	case v == 1:
		return "a table of format version 1 has no sequence numbers"
	case v == 2 && m.meta.SnapshotByName(branch) == nil && m.meta.CurrentSnapshot() == nil:
		return "catalogs don't check the sequence number of the first snapshot of a table of format version 2"
	}
	return ""
}

// seatOf is a snapshot's sequence number and time.
type seatOf struct{ number, ms int64 }

// window is the lowest number above which each one up to clock has a snapshot.
// The run of numbers that was found last is kept and extended by add.
func (x *index) window(clock int64) int64 {
	if x.high != clock || clock == 0 {
		taken := make(map[int64]bool, len(x.seats))
		for _, s := range x.seats {
			taken[s.number] = true
		}
		x.high = clock
		for x.low = clock; x.low > 0 && taken[x.low]; {
			x.low--
		}
	}
	return x.low
}

// brokenChain is 1 when a snapshot's parent isn't shown, else 0.
func (x *index) brokenChain() int64 {
	for _, p := range x.parents {
		if _, ok := x.parents[p]; p != -1 && !ok {
			return 1
		}
	}
	return 0
}
