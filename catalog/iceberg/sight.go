package iceberg

import (
	"math"
	"strconv"
	"time"

	"github.com/firn-project/firn/commit"
)

// KeyLedger is the table property that keeps the ledger.
const KeyLedger = "firn.ledger"

var (
	_ commit.Sight    = (*Metadata)(nil)
	_ commit.Unseated = (*Metadata)(nil)
	_ commit.Shaky    = (*Metadata)(nil)
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

// Table properties that say how much the ledger keeps. Values that can't be used
// count as the nearest that can.
const (
	// KeyLedgerTokens is how many tokens it keeps at least; 1000 by default.
	KeyLedgerTokens = "firn.ledger.tokens"
	// KeyLedgerDays is for how many days it keeps a token at most; for ever by
	// default.
	KeyLedgerDays = "firn.ledger.days"
)

// Bounds of the properties. A token takes some 45 bytes of each metadata file.
const (
	minLedgerTokens, maxLedgerTokens = 100, 20_000
	minLedgerDays, maxLedgerDays     = 1, 3650
)

// ledgerKeep is how much the table's ledger keeps. What units that are sealed and
// open need is kept whatever this says (commit.NextLedger).
func (m *Metadata) ledgerKeep(now time.Time) commit.LedgerKeep {
	var k commit.LedgerKeep
	props := m.meta.Properties()
	if n, err := strconv.Atoi(props[KeyLedgerTokens]); err == nil {
		k.Tokens = min(max(n, minLedgerTokens), maxLedgerTokens)
	}
	if n, err := strconv.Atoi(props[KeyLedgerDays]); err == nil {
		days := min(max(n, minLedgerDays), maxLedgerDays)
		k.After = m.SeatAt(now.AddDate(0, 0, -days))
	}
	return k
}

// keyTakenBack marks snapshots that Polaris removes, when that is switched on, to
// let a commit land that was built before them; it sets the sequence number back.
const (
	keyTakenBack   = "polaris.internal.conflict-resolution.by-operation-type.replace"
	valueTakenBack = "rollback"
)

// Firm implements commit.Shaky.
func (m *Metadata) Firm() int64 {
	clock := m.meta.LastSequenceNumber()
	if m.swaps {
		return clock
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.lookup()
	if !x.shaky {
		return clock
	}
	var firm int64
	for _, s := range x.seats {
		if !s.shaky {
			firm = max(firm, s.number)
		}
	}
	return firm
}

// NoSeat implements commit.Unseated. Where the catalog swaps a pointer, that is a
// seat. Elsewhere only the check of the sequence number makes an old request
// fail, and below version 3 catalogs leave that check out for a snapshot without
// a parent: such a request can land whenever the branch has no head, however many
// numbers were taken since (commit protocol B2).
func (m *Metadata) NoSeat(branch string) string {
	if m.noSeat != nil && !m.swaps {
		if why := m.noSeat(); why != "" {
			return why
		}
	}
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

// seatOf is a snapshot's sequence number and time. A shaky one may be taken back.
type seatOf struct {
	number, ms int64
	shaky      bool
}

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
