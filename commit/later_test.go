package commit_test

import (
	"slices"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
)

// lost runs a unit of which one copy is under way when its deadline has passed, and
// no other arrives, and gives the send records.
func lost(t *testing.T) (b *bench, sent []commit.Request) {
	t.Helper()
	b = newBench(t, committest.Mode{}, append([]string{"late"}, slices.Repeat([]string{"drop-request"}, 20)...)...)
	b.c.Foreign("main")
	b.RecordErr = func(r commit.Record) error { sent = append(sent, r.Request); return nil }
	b.check(t, b.run(), commit.Unknown, "", 0)
	return b, sent
}

// later is the machine of whoever looks for a unit past its deadline, as the
// scheduler's resolver does.
func later(b *bench, sent []commit.Request) *committest.Runner {
	return committest.NewRunner(committest.NewDriver(b.c),
		commit.NewMachine([]commit.Unit{b.u}, commit.Options{Deadline: committest.Epoch, Sent: sent}))
}

// Another engine's REPLACE takes an acknowledged commit out of the branch. The same
// unit is told so, and isn't applied again.
func TestB7_ReplacedByOthersIsNotAppliedAgain(t *testing.T) {
	b := newBench(t, committest.Mode{})
	b.check(t, b.run(), commit.Committed, "", 1)
	b.c.SetHead("main", "")
	b.c.Foreign("main")
	sends := b.c.Sends()
	o := committest.Drive(committest.NewDriver(b.c), []commit.Unit{b.u}, commit.Options{})[b.u.Token]
	if o.State != commit.Committed || !o.RolledBack || !o.Deduplicated || b.c.Sends() != sends || b.c.Landed(b.u.Token) != 1 {
		t.Errorf("outcome %s after %d more sends, landed %d times", committest.OutcomeText(o), b.c.Sends()-sends, b.c.Landed(b.u.Token))
	}
}

// A unit that is unknown holds nobody up: another one passes it, and that settles it.
func TestC5_AParkedUnitIsPassedAndSettled(t *testing.T) {
	b, sent := lost(t)
	other := committest.NewUnit(b.c, "other", "j-other", 1, 1)
	if o := committest.Drive(committest.NewDriver(b.c), []commit.Unit{other}, commit.Options{})[other.Token]; o.State != commit.Committed || o.Attempts != 1 {
		t.Fatalf("the other unit: %s", committest.OutcomeText(o))
	}
	r := later(b, sent)
	for r.Step() {
	}
	if o := r.Outcomes[b.u.Token]; o.State != commit.Refused || o.Quarantine {
		t.Errorf("outcome %s, want refused for good", committest.OutcomeText(o))
	}
	if b.c.Deliver() != 0 {
		t.Error("a refused unit landed")
	}
}

// Past the deadline nothing is built and nothing sent, whatever a read shows.
func TestC6_PastTheDeadlineItOnlyFindsOut(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*committest.Catalog)
		want   commit.State
	}{
		"nothing moved": {func(*committest.Catalog) {}, commit.Unknown},
		"it landed":     {func(c *committest.Catalog) { c.Deliver() }, commit.Committed},
		"seat taken":    {func(c *committest.Catalog) { c.Foreign("main") }, commit.Refused},
		"head moved":    {func(c *committest.Catalog) { c.SetHead("main", "") }, commit.Unknown},
	} {
		b, sent := lost(t)
		sends := b.c.Sends()
		c.before(b.c)
		r := later(b, sent)
		r.Each = func(a commit.Action) []commit.Event {
			switch a.(type) {
			case commit.Build, commit.Permit, commit.Record, commit.Send:
				t.Errorf("%s: it asks for %T", name, a)
			}
			return nil
		}
		for r.Step() && len(r.Outcomes) == 0 {
		}
		if o := r.Outcomes[b.u.Token]; o.State != c.want || b.c.Sends() != sends {
			t.Errorf("%s: outcome %s after %d more sends, want %s", name, committest.OutcomeText(o), b.c.Sends()-sends, c.want)
		}
	}
}
