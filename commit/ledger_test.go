package commit_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
)

func tok(n int) commit.Token {
	return commit.NewToken(commit.TokenInput{Key: fmt.Sprint(n)})
}

func TestLedgerText(t *testing.T) {
	text := fmt.Sprintf("1; horizon=7; %s=8 %s=8 %s=12", tok(1), tok(2), tok(3))
	l, err := commit.ParseLedger(text)
	if err != nil || l.String() != text || l.Horizon != 7 || len(l.Entries()) != 3 {
		t.Fatalf("%v, %v", l, err)
	}
	if seat, ok := l.Find(tok(2)); !ok || seat != 8 {
		t.Errorf("token 2 at %d, %v", seat, ok)
	}
	if _, ok := l.Find(tok(9)); ok {
		t.Error("a token that isn't there is found")
	}
	if l, err := commit.ParseLedger("1; horizon=0;"); err != nil || l.String() != "1; horizon=0;" {
		t.Errorf("an empty ledger: %v, %v", l, err)
	}
}

func TestLedgerThatCannotBeReadBeginsNow(t *testing.T) {
	a, b := tok(1).String(), tok(2).String()
	for _, text := range []string{
		"", "x", "1", "1;", "1; horizon=3", "2; horizon=3;", "1; horizon=-1;", "1; horizon=x;", "1; horizon=;", "1; horizon=9223372036854775807;",
		"1; seat=3;", "1; horizon=3; " + a, "1; horizon=3; " + a + "=", "1; horizon=3; " + a + "=3", "1; horizon=3; " + a + "=-4",
		"1; horizon=3; x=4", "1; horizon=3; " + a + "=5 " + b + "=4", "1; horizon=3; " + a + "=4 " + a + "=5",
		"1; horizon=3; " + a + "=4,", "1; horizon=3; " + a + "=4; more",
		"1; horizon=3; " + a + "=21", // a seat that the table hasn't reached
		"1; horizon=30;",
	} {
		if l := commit.LedgerOf(text, 20); l.Horizon != 20 || len(l.Entries()) != 0 {
			t.Errorf("%q is read as %s", text, l)
		}
	}
}

func FuzzParseLedger(f *testing.F) {
	f.Add("1; horizon=7; " + tok(1).String() + "=8")
	f.Add("1; horizon=0;")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := commit.ParseLedger(text)
		if err != nil {
			return
		}
		again, err := commit.ParseLedger(l.String())
		if err != nil || again.String() != l.String() {
			t.Errorf("%q: %s is read as %s, %v", text, l, again, err)
		}
	})
}

// ledgerRead is a read of a table with a ledger.
type ledgerRead struct {
	commit.Metadata
	commit.Sight
	clock  int64
	ledger commit.Ledger
}

func (m ledgerRead) Clock() commit.Seat    { return commit.Seat{Number: m.clock} }
func (m ledgerRead) Ledger() commit.Ledger { return m.ledger }
func (m ledgerRead) Window() int64         { return m.clock }

func TestLedgerIsTrimmedByCommits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		keep := commit.LedgerKeep{Tokens: rapid.IntRange(1, 5).Draw(rt, "keep")}
		m := ledgerRead{clock: int64(rapid.IntRange(0, 3).Draw(rt, "clock"))}
		m.ledger = commit.NewLedger(m.clock)
		landed := map[commit.Token]int64{}
		n := 0
		for range rapid.IntRange(1, 12).Draw(rt, "commits") {
			m.clock += int64(rapid.IntRange(0, 2).Draw(rt, "foreign"))
			keep.After = int64(rapid.IntRange(0, int(m.clock)).Draw(rt, "after"))
			var units []commit.Unit
			floor := m.clock
			for range rapid.IntRange(1, 3).Draw(rt, "units") {
				n++
				u := commit.Unit{Token: tok(n), Origin: commit.Seat{Number: int64(rapid.IntRange(0, int(m.clock)).Draw(rt, "origin")), Pointer: "p"}}
				floor = min(floor, u.Origin.Number)
				if rapid.Bool().Draw(rt, "sealed") {
					other := commit.Seat{Number: int64(rapid.IntRange(0, int(m.clock)).Draw(rt, "floor"))}
					u.LedgerFloor = &other
					floor = min(floor, other.Number)
				}
				units = append(units, u)
			}
			before := m.ledger
			seat := m.clock + 1
			m.ledger = commit.NextLedger(m, units, seat, keep)
			m.clock = seat
			for _, u := range units {
				landed[u.Token] = seat
			}
			if m.ledger.Horizon < before.Horizon || m.ledger.Horizon > max(before.Horizon, floor) {
				rt.Fatalf("horizon %d after %d, floor %d", m.ledger.Horizon, before.Horizon, floor)
			}
			for u, at := range landed {
				if got, ok := m.ledger.Find(u); ok != (at > m.ledger.Horizon) || ok && got != at {
					rt.Fatalf("token of seat %d is found: %v; %s", at, ok, m.ledger)
				}
			}
			if l, err := commit.ParseLedger(m.ledger.String()); err != nil || l.String() != m.ledger.String() {
				rt.Fatalf("%s is read as %s, %v", m.ledger, l, err)
			}
			if over := len(m.ledger.Entries()) - keep.Tokens; over > 0 && m.ledger.Horizon < floor {
				// Only tokens that share their seat with one that stays may be too many.
				if first := m.ledger.Entries()[0].Seat; first != m.ledger.Entries()[over].Seat {
					rt.Fatalf("%d tokens are kept, %d allowed: %s", len(m.ledger.Entries()), keep.Tokens, m.ledger)
				}
			}
		}
	})
}

func TestLedgerBeginsWithTheFirstCommit(t *testing.T) {
	b := newBench(t, committest.Mode{})
	b.c.Foreign("main")
	b.check(t, b.run(), commit.Committed, "", 1)
	if want := fmt.Sprintf("1; horizon=1; %s=2", b.u.Token); b.c.Ledger() != want {
		t.Errorf("ledger %q, want %q", b.c.Ledger(), want)
	}
}

func TestC10_ALedgerThatIsResetBeginsAgain(t *testing.T) {
	b := newBench(t, committest.Mode{})
	b.check(t, b.run(), commit.Committed, "", 1)
	b.c.SetLedger("")
	other := committest.NewUnit(b.c, "k2", "j2", 1, 1)
	committest.Drive(b.d, []commit.Unit{other}, commit.Options{})
	if l := b.c.Ledger(); !strings.HasPrefix(l, "1; horizon=1; ") || strings.Contains(l, b.u.Token.String()) {
		t.Errorf("ledger %q", l)
	}
	// The first commit's token is out of the ledger, not out of sight.
	r := &bench{c: b.c, d: b.d, u: b.u}
	r.Runner = committest.NewRunner(r.d, commit.NewMachine([]commit.Unit{b.u}, commit.Options{}))
	if o := r.run(); !o.Deduplicated || o.State != commit.Committed {
		t.Errorf("outcome %s", committest.OutcomeText(o))
	}
}
