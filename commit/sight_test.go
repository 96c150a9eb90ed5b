package commit_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
)

// again drives the bench's unit in a new process that has the journal's origin
// and send records.
func (b *bench) again(origin commit.Seat, sent ...commit.Request) *bench {
	r := &bench{c: b.c, d: committest.NewDriver(b.c), u: b.u}
	r.u.Origin = origin
	r.Runner = committest.NewRunner(r.d, commit.NewMachine([]commit.Unit{r.u}, commit.Options{Deadline: committest.Epoch.Add(minute), Sent: sent}))
	return r
}

func read(t *testing.T, c *committest.Catalog) commit.Metadata {
	t.Helper()
	m, err := committest.NewDriver(c).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestA4_ACatalogWithoutHistory(t *testing.T) {
	// The reply is lost, somebody else commits, and only the new head is shown.
	for name, c := range map[string]struct {
		mode committest.Mode
		want commit.State
	}{
		"ledger":    {committest.Mode{HeadsOnly: true}, commit.Committed},
		"no ledger": {committest.Mode{HeadsOnly: true, NoLedger: true}, commit.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.mode, "drop-reply")
			on[commit.Read](b.Runner, 2, func() { b.c.Foreign("main") })
			o := b.run()
			if o.State != c.want || b.c.Landed(b.u.Token) != 1 || b.c.Sends() != 1 {
				t.Errorf("outcome %s after %d sends: %v", committest.OutcomeText(o), b.c.Sends(), o.Err)
			}
			if o.LedgerOnly != (c.want == commit.Committed) || o.OtherSubmission || o.Deduplicated || o.RolledBack {
				t.Errorf("outcome %+v", o)
			}
			if len(b.c.MetadataFiles()) != 1 {
				t.Error("the metadata of a request that may have landed was deleted")
			}
		})
	}
}

func TestA8_ExpiredUnderTheSameKey(t *testing.T) {
	for name, c := range map[string]struct {
		mode  committest.Mode
		reset bool
		want  commit.State
	}{
		"the ledger has it":     {want: commit.Committed},
		"the ledger was reset":  {reset: true, want: commit.Refused},
		"there is no ledger":    {mode: committest.Mode{NoLedger: true}, want: commit.Refused},
		"nor any summary":       {mode: committest.Mode{NoLedger: true, StripTokens: true}, want: commit.Refused},
		"a ledger, no sequence": {mode: committest.Mode{Pointer: true}, want: commit.Committed},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.mode)
			b.c.Foreign("main")
			origin := commit.OriginOf(read(t, b.c))
			b.check(t, b.run(), commit.Committed, "", 1)
			b.c.Foreign("main")
			b.c.Expire()
			if c.reset {
				b.c.SetLedger("")
			}
			r := b.again(origin) // the journal has the origin, the row of the outcome was pruned
			o := r.run()
			if o.State != c.want || r.c.Landed(r.u.Token) != 1 || r.c.Sends() != 1 {
				t.Errorf("outcome %s after %d sends: %v", committest.OutcomeText(o), r.c.Sends(), o.Err)
			}
			if c.want == commit.Refused && (commit.CodeOf(o.Err) != commit.CodeKeyTooOld || o.Reason != commit.ReasonLimit) {
				t.Errorf("outcome %s: %v", committest.OutcomeText(o), o.Err)
			}
		})
	}
}

func TestABlindUnitThatWasSentIsUnknown(t *testing.T) {
	b := newBench(t, committest.Mode{NoLedger: true}, "late")
	b.c.Foreign("main")
	origin := commit.OriginOf(read(t, b.c))
	var sent commit.Request
	b.RecordErr = func(r commit.Record) error { sent = r.Request; return nil }
	for sent.ID == "" {
		b.Step()
	}
	b.Step()
	if b.c.Deliver() != 1 {
		t.Fatal("the late copy didn't land")
	}
	b.c.Foreign("main")
	b.c.Expire()
	r := b.again(origin, sent)
	o := r.run()
	if o.State != commit.Unknown || r.c.Landed(r.u.Token) != 1 || !strings.Contains(o.Err.Error(), "out of sight") {
		t.Errorf("outcome %s: %v", committest.OutcomeText(o), o.Err)
	}
	if len(r.c.MetadataFiles()) != 1 {
		t.Error("the metadata of a commit that landed was deleted")
	}
}

func TestTheOriginIsBeforeEverySend(t *testing.T) {
	// Nobody kept the origin, but the send record says which seat was claimed.
	b := newBench(t, committest.Mode{NoLedger: true})
	b.c.Foreign("main")
	var sent commit.Request
	b.RecordErr = func(r commit.Record) error { sent = r.Request; return nil }
	b.check(t, b.run(), commit.Committed, "", 1)
	b.c.Foreign("main")
	b.c.Expire()
	r := b.again(commit.Seat{}, sent)
	if o := r.run(); o.State != commit.Unknown || r.c.Landed(r.u.Token) != 1 {
		t.Errorf("outcome %s: %v", committest.OutcomeText(o), o.Err)
	}
}

func TestAFreshKeyOnATableThatExpires(t *testing.T) {
	// Every production table has lost snapshots: a key that is accepted now
	// doesn't care, with a ledger or without.
	for _, mode := range []committest.Mode{{}, {NoLedger: true}} {
		b := newBench(t, mode)
		for range 3 {
			b.c.Foreign("main")
		}
		b.c.Expire()
		b.check(t, b.run(), commit.Committed, "", 1)
	}
}

func TestOriginOfAnEmptyTableIsKnown(t *testing.T) {
	c := committest.NewCatalog(committest.Mode{})
	if o := commit.OriginOf(read(t, c)); o == (commit.Seat{}) || o.Number != 0 {
		t.Errorf("origin %+v", o)
	}
}

func TestB2_NullParents(t *testing.T) {
	// The first insert into an empty table is late; it lands after a
	// CREATE OR REPLACE, when the branch has no head again.
	b := newBench(t, committest.Mode{NullParent: true}, "late", "403")
	on[commit.Read](b.Runner, 4, func() { b.c.Foreign("main") })
	o := b.run()
	if o.State == commit.Refused || len(b.c.MetadataFiles()) == 0 {
		t.Errorf("outcome %s, metadata %v: a request without a seat is never dead", committest.OutcomeText(o), b.c.MetadataFiles())
	}
}

func TestOverwritesNeedASeat(t *testing.T) {
	for name, c := range map[string]struct {
		mode  committest.Mode
		first bool
		want  commit.State
	}{
		"no seats":          {mode: committest.Mode{NoSeat: true}, first: true, want: commit.Refused},
		"null parent":       {mode: committest.Mode{NullParent: true}, want: commit.Refused},
		"parent":            {mode: committest.Mode{NullParent: true}, first: true, want: commit.Committed},
		"seats":             {want: commit.Committed},
		"pointer, no seats": {mode: committest.Mode{NoSeat: true, Pointer: true}, want: commit.Committed},
	} {
		b := newBench(t, c.mode)
		if c.first {
			b.c.Foreign("main")
		}
		u := b.u
		u.Operation = commit.OperationOverwrite
		o := committest.Drive(b.d, []commit.Unit{u}, commit.Options{})[u.Token]
		if o.State != c.want {
			t.Errorf("%s: outcome %s: %v", name, committest.OutcomeText(o), o.Err)
		}
		var e *commit.Error
		if c.want == commit.Refused && (!errors.As(o.Err, &e) || e.Code != commit.CodeNoSeat || !strings.Contains(e.Hint, "pgrade") || b.c.Sends() != 0) {
			t.Errorf("%s: %v after %d sends", name, o.Err, b.c.Sends())
		}
	}
}

func TestNoSeatEndsCommittedOrUnknown(t *testing.T) {
	for _, fault := range []string{"late", "drop-request", "500", "502"} {
		b := newBench(t, committest.Mode{NoSeat: true}, fault, "403")
		b.c.Foreign("main")
		on[commit.Read](b.Runner, 3, func() { b.c.Foreign("main") })
		on[commit.Read](b.Runner, 4, func() { b.c.DropColumn() })
		if o := b.run(); o.State == commit.Refused {
			t.Errorf("%s: outcome %s", fault, committest.OutcomeText(o))
		}
	}
}

func TestAdmitKey(t *testing.T) {
	// Seat n is taken n seconds after 1970 began.
	const old = "00000000-0000-7000-8000-000000000000"   // made in 1970
	const later = "00000005-7e40-7000-8000-000000000000" // 360 s later
	c := committest.NewCatalog(committest.Mode{NoLedger: true})
	for range 3 {
		c.Foreign("main")
	}
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	admit := func(key string, since time.Time) (commit.Seat, error) {
		return commit.AdmitKey(read(t, c), key, since, time.Time{})
	}

	if o, err := admit(old, since); err != nil || o.Number != 0 {
		t.Errorf("all seats are shown: %+v, %v", o, err)
	}
	if o, err := admit("nightly", since); err != nil || o.Number != 3 {
		t.Errorf("a plain key is taken to be new: %+v, %v", o, err)
	}
	c.Expire()
	if _, err := admit(old, since); commit.CodeOf(err) != commit.CodeKeyTooOld || commit.ReasonOf(err) != commit.ReasonLimit {
		t.Errorf("a key that nobody remembers: %v", err)
	}
	if o, err := commit.AdmitKey(read(t, c), old, since, time.Unix(299, 0)); err != nil || o.Number != 3 {
		t.Errorf("a key that was made for the request: %+v, %v", o, err)
	}
	if _, err := commit.AdmitKey(read(t, c), old, since, time.Unix(301, 0)); commit.CodeOf(err) != commit.CodeKeyTooOld {
		t.Errorf("a key that was made for a request of long ago: %v", err)
	}
	if o, err := admit(later, since); err != nil || o.Number != 3 {
		t.Errorf("a key younger than all that isn't shown: %+v, %v", o, err)
	}
	if o, err := admit(old, time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil || o.Number != 3 {
		t.Errorf("the journal would remember it: %+v, %v", o, err)
	}
	if _, err := admit(old, time.Unix(-60, 0)); commit.CodeOf(err) != commit.CodeKeyTooOld {
		t.Errorf("the client's clock may be a minute ahead of the journal's: %v", err)
	}
	if _, ok := commit.KeyTime("00000000-0000-4000-8000-000000000000"); ok {
		t.Error("a UUIDv4 has no time")
	}
}

func TestA13_AJournalThatLostItsSends(t *testing.T) {
	for name, mode := range map[string]committest.Mode{"seats": {}, "pointer": {Pointer: true}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, mode, "late")
			b.c.Foreign("main")
			on[commit.Read](b.Runner, 2, func() {}) // R1 is under way, and the process ends
			for range 6 {
				b.Step()
			}
			if b.c.Sends() != 1 {
				t.Fatalf("%d sends", b.c.Sends())
			}
			m := read(t, b.c)
			lost := commit.LostSends(m, "main", b.u.Token)
			// Another journal is restored without a row of it. The same key comes.
			r := b.again(commit.OriginOf(m), lost)
			r.Machine.Step(commit.Cancel{Token: r.u.Token}, r.Now)
			on[commit.Read](r.Runner, 1, func() { r.c.DropColumn() })
			on[commit.Send](r.Runner, 1, func() { t.Error("it was sent") })
			done := false
			on[commit.Read](r.Runner, 3, func() {
				done = len(r.Outcomes) > 0
				if mode.Pointer {
					return // dropping the column moved the pointer already
				}
				r.c.Foreign("main")
			})
			o := r.run()
			if o.State != commit.Refused || o.Reason != commit.ReasonTableChanged || done || r.c.Deliver() != 0 {
				t.Errorf("outcome %s, before the seat was taken: %v\n%s", committest.OutcomeText(o), done, strings.Join(r.Trace, "\n"))
			}
		})
	}
	// Without seats nothing ever makes it sure.
	b := newBench(t, committest.Mode{NoSeat: true})
	b.c.Foreign("main")
	if lost := commit.LostSends(read(t, b.c), "main", b.u.Token); lost.Seat != (commit.Seat{}) {
		t.Errorf("the lost requests claim %+v", lost.Seat)
	}
}
