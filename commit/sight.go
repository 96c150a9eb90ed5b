package commit

import (
	"errors"
	"fmt"
	"time"
)

// Sight is a Metadata that knows how far back it shows the table. A token that
// a read doesn't show has not landed only if the read reaches back to the
// token's origin; without Sight a read is taken to show everything.
//
// A driver implements it on its Metadata, all or nothing, and then writes the
// ledger in every Build (NextLedger).
type Sight interface {
	// Window is the lowest seat above which the read shows everything: for
	// every seat after it, up to the clock, there is a snapshot in the read, on
	// any branch. It is the clock when the last seat's snapshot isn't shown. A
	// snapshot whose parent isn't shown ends nothing by itself: seats count. A table
	// without numbers (format version 1) answers 0 as long as no snapshot's
	// parent is missing, and 1 otherwise.
	Window() int64
	// Ledger is the table's ledger in this read; see LedgerOf.
	Ledger() Ledger
	// SeatAt is the highest seat that the read shows to have been taken at or
	// before a time, 0 when it shows none. It errs to lower seats only.
	SeatAt(t time.Time) int64
}

// Unseated is a Metadata that may have no seat to give. A request without a
// seat is never dead: see Request.Seat.
type Unseated interface {
	// NoSeat says why a request on the branch would claim no seat, in half a
	// sentence; empty when it would.
	NoSeat(branch string) string
}

// Shaky is a Metadata of a catalog that may take seats back: it removes snapshots
// of others to let a request land that was built before them. Such a seat isn't
// taken for good.
type Shaky interface {
	// Firm is the highest seat that the read shows to have been taken for good:
	// neither it nor any seat below it is given away again. It is the clock where
	// nothing can be taken back.
	Firm() int64
}

// firmClock is the clock as far as nobody can set it back.
func firmClock(m Metadata) Seat {
	c := m.Clock()
	if s, ok := m.(Shaky); ok {
		c.Number = min(c.Number, s.Firm())
	}
	return c
}

// FirmClock is the clock of a read as far as nobody can set it back: a request that
// claims a number up to its own, or another pointer, can't land any more.
func FirmClock(m Metadata) Seat { return firmClock(m) }

// Sees says whether a read shows each token that landed at a seat after since:
// in a snapshot or in the ledger. The ledger of a table without numbers finds
// tokens, but proves nothing of those that it doesn't hold.
func Sees(m Metadata, since int64) bool {
	s, ok := m.(Sight)
	if !ok || s.Window() <= since {
		return true
	}
	return m.Clock().Number > 0 && s.Ledger().Horizon <= since
}

// FindToken looks for a token everywhere that a read can show it: in the
// snapshots (Metadata.Find) and in the ledger. What the ledger alone knows has
// neither a snapshot nor numbers (Landed.SnapshotID is empty).
func FindToken(m Metadata, branch string, t Token) (Landed, bool) {
	if l, ok := m.Find(branch, t); ok {
		return l, true
	}
	if s, ok := m.(Sight); ok {
		if seat, ok := s.Ledger().Find(t); ok {
			return Landed{Token: t, Seat: Seat{Number: seat}}, true
		}
	}
	return Landed{}, false
}

// OriginOf is the origin of a key that is accepted with this read: the seat of
// the table, as far as nobody can take it back. It is never the zero Seat, which stands for an unknown origin.
func OriginOf(m Metadata) Seat {
	s := firmClock(m)
	if s == (Seat{}) {
		s.Pointer = "none" // an empty table of a catalog without pointers
	}
	return s
}

// keySkew is how far the clock of a client that stamped a key may be ahead.
const keySkew = 5 * time.Minute

// AdmitKey decides whether a key that has no record may run on a table, and
// with which origin. since is when the journal's memory begins: by its
// retention, or by its loss.
//
// A key of the form of a UUIDv7 carries the time at which it was made, so it
// can't be older than that, and a token made from it can't have landed earlier.
// If the journal would remember it, or if the table shows everything from that
// time on, its token's absence means that it never landed. Otherwise the key is
// known to be older than every record of it, and is refused: running it could
// apply it twice. Any other key is taken to be new: such keys are deduplicated
// for as long as the journal or the ledger reaches back, and no longer.
//
// first is when the key came from a client that says that it made it for that very
// request; the zero time when no client says so. Such a key was never sent before,
// whatever anybody remembers. It is believed for as long as a request may have
// been on its way, as its copy may have come to another scheduler meanwhile.
func AdmitKey(m Metadata, key string, since, first time.Time) (Seat, error) {
	made, ok := KeyTime(key)
	if !ok || made.Add(-keySkew).After(since) || !first.IsZero() && made.Add(keySkew).After(first) {
		return OriginOf(m), nil
	}
	origin := OriginOf(m)
	if s, ok := m.(Sight); ok {
		origin.Number = s.SeatAt(made.Add(-keySkew))
	}
	if Sees(m, origin.Number) {
		return origin, nil
	}
	return Seat{}, errKeyTooOld(key, fmt.Errorf(
		"the key was made at %s, and neither the journal nor the table remembers all commits since then", made.UTC().Format(time.RFC3339)))
}

// KeyTime is the time at which a key of the form of a UUIDv7 was made; ok is
// false for any other key.
func KeyTime(key string) (made time.Time, ok bool) {
	u, err := ParseToken(key)
	if err != nil || u[6]>>4 != 7 || u[8]>>6 != 2 {
		return time.Time{}, false
	}
	var ms int64
	for _, b := range u[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms), true
}

func errKeyTooOld(key string, cause error) error {
	return &Error{
		Code: CodeKeyTooOld, Op: "run under the idempotency key", Object: key, Reason: ReasonLimit, Cause: cause,
		Tried: "nothing was sent",
		Hint:  "Look whether the table has the rows. If it doesn't, run the statement under a new key.",
	}
}

func errNoSeat(u Unit, why string) error {
	if u.Operation == OperationFence {
		return &Error{
			Code: CodeNoSeat, Op: "put an empty commit on", Object: u.Table.String(), Reason: ReasonValidation,
			Cause: fmt.Errorf("%s, so that no commit can prove that an older request won't land any more", why),
			Tried: "nothing was sent",
			Hint:  "`firn commit retry` commits the files that are there; a table of format version 2 or later with a first snapshot has seats.",
		}
	}
	return &Error{
		Code: CodeNoSeat, Op: "commit to", Object: u.Table.String(), Reason: ReasonValidation,
		Cause: fmt.Errorf("%s, and an operation of kind %s needs a seat: it can't be proven which of two copies is applied", why, u.Operation),
		Tried: "nothing was sent",
		Hint:  "Upgrade the table to format version 2 or later, or use INSERT.",
	}
}

// errBlind: the read doesn't reach back to the unit's origin.
var errBlind = errors.New("the table no longer shows all commits since the key was accepted, so the commit may have landed and be out of sight")

// LostSends is a send record in place of those that a journal lost: when its
// incarnation changes (a restore, a promotion), any unit of the earlier one may
// have been sent, and nothing says how. Every request of that time was built
// from a read no newer than m, provided that whoever built them has ended, so
// it claims no higher seat than this record. A unit that is driven with it
// (Options.Sent) can't be cancelled, and is told as refused only when that seat
// has gone to something else.
func LostSends(m Metadata, branch string, tokens ...Token) Request {
	r := Request{ID: "lost with the journal", Head: m.Head(branch), Branch: branch, Tokens: tokens}
	r.Seat.Pointer = m.Clock().Pointer
	if n, ok := m.(Unseated); !ok || n.NoSeat(branch) == "" {
		r.Seat.Number = m.Clock().Number + 1
	}
	return r
}
