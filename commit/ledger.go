package commit

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Ledger is the list of tokens that a table keeps beside its snapshots, so that
// a token is still found when the snapshot that it landed in has expired or
// when a catalog doesn't show it. It is a value: no method changes it.
//
// # Why it can be trusted
//
// The ledger is written in the same request as the commit, from the read that
// the request is built from. Between that read and the landing nobody took a
// seat, as the request claims the next one, so no token landed in between: what
// is written is the old ledger and the request's own tokens, and nothing is
// missing. A tool that removes or resets the property takes no token away that
// snapshots still show; what is gone for good is said by the horizon: a table
// without a ledger, or with one that can't be read, has one that begins now.
//
// So each token that landed at a seat above the horizon stands in the ledger,
// and a token that doesn't stand in it, whose origin isn't before the horizon,
// never landed.
//
// Two tables can't confuse their ledgers, should a tool copy one: a token is
// made from the table's UUID.
type Ledger struct {
	// Horizon is the seat up to which tokens may be missing.
	Horizon int64
	// entries are in ascending order of seats.
	entries []LedgerEntry
}

// LedgerEntry is one token and the seat that it landed at.
type LedgerEntry struct {
	Token Token
	Seat  int64
}

// ledgerVersion is the form that Ledger.String writes.
const ledgerVersion = "1"

// LedgerKeep is how much a ledger keeps.
type LedgerKeep struct {
	// Tokens is how many are kept at least; 1000 when 0.
	Tokens int
	// After is the seat that the table was at D days ago, for tables that keep
	// no token longer than that; 0 for no such limit.
	After int64
}

// NewLedger is the ledger of a table that has none: it begins at the clock.
func NewLedger(clock int64) Ledger { return Ledger{Horizon: clock} }

// LedgerOf reads the ledger of a table whose clock is given. When the text is
// empty or can't be read, or names seats that the table hasn't reached, that is
// one that begins now.
func LedgerOf(text string, clock int64) Ledger {
	l, err := ParseLedger(text)
	if err != nil || l.last() > clock {
		return NewLedger(clock)
	}
	return l
}

// ParseLedger reads what String wrote: "1; horizon=<seat>; <token>=<seat> …".
// The text comes from a place that anybody who may change the table can write
// to; whatever isn't exactly of that form is an error.
func ParseLedger(text string) (Ledger, error) {
	parts := strings.SplitN(text, ";", 3)
	if len(parts) != 3 || parts[0] != ledgerVersion {
		return Ledger{}, fmt.Errorf("ledger: not of version %s", ledgerVersion)
	}
	horizon, ok := strings.CutPrefix(strings.TrimSpace(parts[1]), "horizon=")
	if !ok {
		return Ledger{}, errors.New("ledger: no horizon")
	}
	var l Ledger
	var err error
	if l.Horizon, err = parseSeat(horizon); err != nil {
		return Ledger{}, fmt.Errorf("ledger: horizon: %w", err)
	}
	seen := map[Token]bool{}
	for field := range strings.FieldsSeq(parts[2]) {
		name, seat, _ := strings.Cut(field, "=")
		t, err := ParseToken(name)
		if err != nil {
			return Ledger{}, fmt.Errorf("ledger: %w", err)
		}
		n, err := parseSeat(seat)
		if err != nil {
			return Ledger{}, fmt.Errorf("ledger: token %s: %w", t, err)
		}
		if n <= l.Horizon || n < l.last() || seen[t] {
			return Ledger{}, fmt.Errorf("ledger: token %s stands twice or out of order", t)
		}
		seen[t] = true
		l.entries = append(l.entries, LedgerEntry{t, n})
	}
	return l, nil
}

func parseSeat(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n == math.MaxInt64 {
		return 0, fmt.Errorf("%q is no seat", s)
	}
	return n, nil
}

// String is the text that the table keeps.
func (l Ledger) String() string {
	b := make([]byte, 0, 32+48*len(l.entries))
	b = fmt.Appendf(b, "%s; horizon=%d;", ledgerVersion, l.Horizon)
	for _, e := range l.entries {
		b = append(e.Token.appendTo(append(b, ' ')), '=')
		b = strconv.AppendInt(b, e.Seat, 10)
	}
	return string(b)
}

// Find is the seat that a token landed at.
func (l Ledger) Find(t Token) (int64, bool) {
	i := slices.IndexFunc(l.entries, func(e LedgerEntry) bool { return e.Token == t })
	if i < 0 {
		return 0, false
	}
	return l.entries[i].Seat, true
}

// Entries lists the tokens, in ascending order of seats.
func (l Ledger) Entries() []LedgerEntry { return slices.Clone(l.entries) }

func (l Ledger) last() int64 {
	if len(l.entries) == 0 {
		return l.Horizon
	}
	return l.entries[len(l.entries)-1].Seat
}

// add is the ledger with tokens that take a seat above all others. The tokens
// of one seat stand or fall together when it is trimmed.
func (l Ledger) add(tokens []Token, seat int64) Ledger {
	l.entries = slices.Clip(l.entries)
	for _, t := range tokens {
		l.entries = append(l.entries, LedgerEntry{t, seat})
	}
	return l
}

// trim drops the oldest entries beyond what is to be kept. The horizon moves up
// to the last seat that is dropped and never past floor, so that units whose
// origin is at floor or after it can still be decided by the ledger.
func (l Ledger) trim(keep LedgerKeep, floor int64) Ledger {
	if keep.Tokens <= 0 {
		keep.Tokens = 1000
	}
	horizon := max(l.Horizon, keep.After)
	if n := len(l.entries); n > keep.Tokens {
		horizon = max(horizon, l.entries[n-keep.Tokens-1].Seat)
	}
	horizon = max(l.Horizon, min(horizon, floor))
	first, _ := slices.BinarySearchFunc(l.entries, horizon, func(e LedgerEntry, h int64) int {
		if e.Seat <= h {
			return -1
		}
		return 1
	})
	return Ledger{Horizon: horizon, entries: l.entries[first:]}
}

// NextLedger is the ledger that a request for the units must write: that of the
// read it is built from, with the units' tokens at the seat that it claims.
// Every Build of a driver that keeps a ledger writes it, in the same request.
//
// It is trimmed no further than to the origin of the oldest unit that is sealed
// and open, as far as the units know (Unit.Origin, Unit.LedgerFloor).
func NextLedger(m Metadata, units []Unit, seat int64, keep LedgerKeep) Ledger {
	l := NewLedger(m.Clock().Number)
	if s, ok := m.(Sight); ok {
		l = s.Ledger()
	}
	tokens := make([]Token, len(units))
	floor := m.Clock().Number
	for i, u := range units {
		tokens[i] = u.Token
		if u.Origin != (Seat{}) {
			floor = min(floor, u.Origin.Number)
		}
		if u.LedgerFloor != nil {
			floor = min(floor, u.LedgerFloor.Number)
		}
	}
	return l.add(tokens, seat).trim(keep, floor)
}
