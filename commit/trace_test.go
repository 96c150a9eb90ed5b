package commit_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
)

// The tests here are the traces of faults that broke earlier versions of the
// protocol, by the numbers they have there.

func TestA1_A4xxSpeaksForOneCopy(t *testing.T) {
	// The first copy is under way when the second is answered 403.
	b := newBench(t, committest.Mode{}, "late", "403")
	o := b.run()
	b.check(t, o, commit.Unknown, "", 0)
	if commit.CodeOf(o.Err) != commit.CodeUnknown {
		t.Errorf("code %s", commit.CodeOf(o.Err))
	}
	if n := b.c.Deliver(); n != 1 {
		t.Errorf("%d late copies landed; the trace needs one", n)
	}

	// The late copy lands while the machine waits: committed.
	b = newBench(t, committest.Mode{}, "late", "403")
	on[commit.Read](b.Runner, 4, func() { b.c.Deliver() })
	b.check(t, b.run(), commit.Committed, "", 1)

	// Somebody else takes the seat: refused for good.
	b = newBench(t, committest.Mode{}, "late", "403")
	on[commit.Read](b.Runner, 5, func() { b.c.Foreign("main") })
	b.check(t, b.run(), commit.Refused, commit.ReasonPermission, 0)
	if b.c.Deliver() != 0 {
		t.Error("a refused unit landed")
	}
}

func TestA1_A4xxToTheOnlyCopyIsToldAtOnce(t *testing.T) {
	for fault, want := range map[string]commit.Reason{
		"403": commit.ReasonPermission, "400": commit.ReasonValidation, "422": commit.ReasonValidation,
		"413": commit.ReasonLimit, "404": commit.ReasonTableChanged,
	} {
		b := newBench(t, committest.Mode{}, fault)
		o := b.run()
		b.check(t, o, commit.Refused, want, 0)
		if !o.Quarantine || o.Attempts != 1 {
			t.Errorf("%s: %s, want one attempt and quarantine: the request isn't dead", fault, committest.OutcomeText(o))
		}
		if len(b.c.MetadataFiles()) != 1 {
			t.Errorf("%s: the files of a request that may still land were deleted", fault)
		}
	}
}

func TestA2_LandedThenRolledBackIsCommitted(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		b := newBench(t, committest.Mode{}, "drop-reply")
		b.c.Foreign("main")
		old := b.c.Head("main")
		on[commit.Read](b.Runner, 2, func() {
			b.c.SetHead("main", old)
			if foreign {
				b.c.Foreign("main")
			}
		})
		o := b.run()
		b.check(t, o, commit.Committed, "", 1)
		if !o.RolledBack || o.Deduplicated || o.Attempts != 1 {
			t.Errorf("outcome %s, want one attempt, rolled back", committest.OutcomeText(o))
		}
	}
}

func TestA3_HeadsComeBack(t *testing.T) {
	b := newBench(t, committest.Mode{}, "late")
	b.c.Foreign("main")
	s0 := b.c.Head("main")
	b.c.Foreign("main")
	s1 := b.c.Head("main")
	on[commit.Read](b.Runner, 2, func() { b.c.SetHead("main", s0) }) // the head moved, no seat was taken
	on[commit.Send](b.Runner, 2, func() { b.c.SetHead("main", s1); b.c.Deliver() })
	b.check(t, b.run(), commit.Committed, "", 1)
	b.c.SetHead("main", s1)
	if b.c.Deliver() != 0 || b.c.Times(b.u.Token) != 1 {
		t.Error("the unit landed twice")
	}
}

func TestA3_AMovedHeadDoesNotMakeARefusalFinal(t *testing.T) {
	b := newBench(t, committest.Mode{}, "late", "403")
	b.c.Foreign("main")
	s0 := b.c.Head("main")
	b.c.Foreign("main")
	on[commit.Read](b.Runner, 3, func() { b.c.SetHead("main", s0) })
	o := b.run()
	if o.State == commit.Refused {
		t.Errorf("outcome %s while the first copy can land as soon as the head comes back", committest.OutcomeText(o))
	}
}

func TestA5_StrippedTokensAreFoundBySnapshot(t *testing.T) {
	b := newBench(t, committest.Mode{StripTokens: true})
	o := b.run()
	b.check(t, o, commit.Committed, "", 1)
	if !o.TokenStripped || o.Attempts != 1 || b.c.Sends() != 1 {
		t.Errorf("outcome %s after %d sends", committest.OutcomeText(o), b.c.Sends())
	}
}

func TestA6_RecordedSendsCountAsUnderWay(t *testing.T) {
	b := newBench(t, committest.Mode{}, "late")
	var sent commit.Request
	b.RecordErr = func(r commit.Record) error { sent = r.Request; return nil }
	for sent.ID == "" { // then the process dies, with the copy under way
		b.Step()
	}
	b.Step()

	// The table doesn't take the unit any more: refused only once it's safe.
	restart := func(change func()) (*bench, commit.Outcome) {
		r := &bench{c: b.c, d: committest.NewDriver(b.c), u: b.u}
		r.Runner = committest.NewRunner(r.d, commit.NewMachine([]commit.Unit{b.u}, commit.Options{
			Deadline: committest.Epoch.Add(minute), Sent: []commit.Request{sent},
		}))
		change()
		return r, r.run()
	}
	r, o := restart(b.c.DropColumn)
	r.check(t, o, commit.Unknown, "", 0)
	r, o = restart(func() { b.c.Foreign("main") })
	r.check(t, o, commit.Refused, commit.ReasonTableChanged, 0)
	if b.c.Deliver() != 0 {
		t.Error("a refused unit landed")
	}
}

func TestA6_ACancelDoesNotStopARecordedUnit(t *testing.T) {
	c := committest.NewCatalog(committest.Mode{})
	u := committest.NewUnit(c, "k", "j1", 1, 1)
	m := commit.NewMachine([]commit.Unit{u}, commit.Options{Sent: []commit.Request{{ID: "r", SnapshotID: "s", Seat: commit.Seat{Number: 1}, Tokens: []commit.Token{u.Token}}}})
	if acts := m.Step(commit.Cancel{Token: u.Token}, committest.Epoch); len(acts) != 0 {
		t.Errorf("a unit with a send record was stopped: %v", acts)
	}
}

func TestA9_AnotherSubmissionOfTheKey(t *testing.T) {
	b := newBench(t, committest.Mode{})
	other := committest.NewUnit(b.c, "k", "other", 3, 5)
	committest.Drive(committest.NewDriver(b.c), []commit.Unit{other}, commit.Options{})
	o := b.run()
	b.check(t, o, commit.Committed, "", 1)
	if !o.OtherSubmission || !o.Deduplicated || o.Landed.Rows != 15 || b.c.Applied() != 1 {
		t.Errorf("outcome %s with %d rows", committest.OutcomeText(o), o.Landed.Rows)
	}
}

func TestA11_EachRequestAssertsSchemaAndSpec(t *testing.T) {
	for name, change := range map[string]func(*committest.Catalog){
		"schema": (*committest.Catalog).AddColumn, "spec": (*committest.Catalog).ChangeSpec,
	} {
		b := newBench(t, committest.Mode{})
		on[commit.Send](b.Runner, 1, func() { change(b.c) })
		o := b.run()
		b.check(t, o, commit.Committed, "", 1)
		if o.Attempts != 2 {
			t.Errorf("%s: outcome %s, want a second request", name, committest.OutcomeText(o))
		}
	}
	b := newBench(t, committest.Mode{})
	on[commit.Send](b.Runner, 1, func() { b.c.DropColumn() })
	// A 409 doesn't speak for the copy, and the column may come back: the
	// refusal waits for the seat to be taken.
	on[commit.Read](b.Runner, 5, func() { b.c.Foreign("main") })
	b.check(t, b.run(), commit.Refused, commit.ReasonTableChanged, 0)
}

func TestB2_NoSeatIsNeverRefusedAfterSilence(t *testing.T) {
	b := newBench(t, committest.Mode{NoSeat: true}, "late", "403")
	on[commit.Read](b.Runner, 5, func() { b.c.Foreign("main") })
	b.check(t, b.run(), commit.Unknown, "", 0)
}

func TestB4_ThePointerIsTheSeat(t *testing.T) {
	b := newBench(t, committest.Mode{Pointer: true}, "late", "403")
	// A schema change takes no sequence number, but it moves the pointer.
	on[commit.Read](b.Runner, 5, func() { b.c.AddColumn() })
	b.check(t, b.run(), commit.Refused, commit.ReasonPermission, 0)
	if b.c.Deliver() != 0 {
		t.Error("a refused unit landed")
	}
}

func TestC1_NoFalseRefusals(t *testing.T) {
	// A commit on another branch takes the sequence number: 400 from some.
	for _, mode := range []committest.Mode{{}, {StaleSeat400: true}} {
		b := newBench(t, mode)
		on[commit.Send](b.Runner, 1, func() { b.c.Foreign("other") })
		o := b.run()
		b.check(t, o, commit.Committed, "", 1)
		if o.Attempts != 2 || o.Conflicts != 1 {
			t.Errorf("outcome %s", committest.OutcomeText(o))
		}
	}
	for _, fault := range []string{"401", "429", "500", "502", "503", "drop-request", "lie"} {
		b := newBench(t, committest.Mode{}, fault)
		o := b.run()
		b.check(t, o, commit.Committed, "", 1)
		if o.Attempts != 2 || o.Conflicts != 0 {
			t.Errorf("%s: outcome %s", fault, committest.OutcomeText(o))
		}
	}
}

func TestC2_A409WithTheHeadStillThereIsNoConflict(t *testing.T) {
	b := newBench(t, committest.Mode{}, "409", "409")
	o := b.run()
	b.check(t, o, commit.Committed, "", 1)
	if o.Conflicts != 0 || o.Attempts != 3 {
		t.Errorf("outcome %s", committest.OutcomeText(o))
	}
	for _, fault := range []string{"409-applied", "500-applied", "drop-reply", "replay"} {
		b := newBench(t, committest.Mode{}, fault)
		o := b.run()
		b.check(t, o, commit.Committed, "", 1)
		if o.Attempts != 1 || o.Deduplicated || b.c.Sends() != 1 {
			t.Errorf("%s: outcome %s", fault, committest.OutcomeText(o))
		}
	}
}

func TestC3_OnePoisonedUnitRefusesItselfOnly(t *testing.T) {
	for poisoned := range 5 {
		c := committest.NewCatalog(committest.Mode{})
		d := committest.NewDriver(c)
		var units []commit.Unit
		for i := range 5 {
			units = append(units, committest.NewUnit(c, fmt.Sprintf("k%d", i), fmt.Sprintf("j%d", i), 1, 1))
		}
		d.Poison = map[string]bool{units[poisoned].Files.Path(0): true}
		out := committest.Drive(d, units, commit.Options{Deadline: committest.Epoch.Add(minute)})
		for i, u := range units {
			want := commit.Committed
			if i == poisoned {
				want = commit.Refused
			}
			if o := out[u.Token]; o.State != want {
				t.Errorf("poison in %d: unit %d is %s (%v)", poisoned, i, committest.OutcomeText(o), o.Err)
			}
		}
	}
}

func TestC7_ACancelWinsUntilThePointOfNoReturn(t *testing.T) {
	cause := errors.New("stop it")
	for name, at := range map[string]func(commit.Action) bool{
		"read":   func(a commit.Action) bool { _, ok := a.(commit.Read); return ok },
		"build":  func(a commit.Action) bool { _, ok := a.(commit.Build); return ok },
		"permit": func(a commit.Action) bool { _, ok := a.(commit.Permit); return ok },
	} {
		b := newBench(t, committest.Mode{})
		b.Each = func(a commit.Action) []commit.Event {
			if at(a) {
				return []commit.Event{commit.Cancel{Token: b.u.Token, Err: cause}}
			}
			return nil
		}
		o := b.run()
		b.check(t, o, commit.Refused, "", 0)
		if !errors.Is(o.Err, cause) || commit.KindOf(o.Err) != commit.KindCancelled || b.c.Sends() != 0 {
			t.Errorf("cancel at %s: %v after %d sends", name, o.Err, b.c.Sends())
		}
		if files := b.c.MetadataFiles(); len(files) != 0 || !b.Machine.Done() {
			t.Errorf("cancel at %s left %v behind, done %v", name, files, b.Machine.Done())
		}
	}
	for name, at := range map[string]func(commit.Action) bool{
		"record": func(a commit.Action) bool { _, ok := a.(commit.Record); return ok },
		"send":   func(a commit.Action) bool { _, ok := a.(commit.Send); return ok },
	} {
		b := newBench(t, committest.Mode{})
		b.Each = func(a commit.Action) []commit.Event {
			if at(a) {
				return []commit.Event{commit.Cancel{Token: b.u.Token, Err: cause}}
			}
			return nil
		}
		if o := b.run(); o.State != commit.Committed {
			t.Errorf("cancel at %s: %s", name, committest.OutcomeText(o))
		}
	}
}

func TestC7_ADeniedUnitLeavesTheBatch(t *testing.T) {
	c := committest.NewCatalog(committest.Mode{})
	a, b := committest.NewUnit(c, "a", "ja", 1, 1), committest.NewUnit(c, "b", "jb", 1, 1)
	r := committest.NewRunner(committest.NewDriver(c), commit.NewMachine([]commit.Unit{a, b}, commit.Options{}))
	asked := map[commit.Token]int{}
	r.Deny = func(p commit.Permit) map[commit.Token]error {
		for _, tok := range p.Tokens {
			asked[tok]++
		}
		return map[commit.Token]error{a.Token: errors.New("cancelled")}
	}
	for r.Step() {
	}
	if r.Outcomes[a.Token].State != commit.Refused || r.Outcomes[b.Token].State != commit.Committed {
		t.Errorf("outcomes %v", r.Trace)
	}
	if c.Times(a.Token) != 0 || c.Times(b.Token) != 1 || c.Sends() != 1 {
		t.Errorf("the denied unit was sent: %v", r.Trace)
	}
	if asked[a.Token] != 1 || asked[b.Token] != 1 {
		t.Errorf("asked %v times, want once each", asked)
	}
	if len(c.MetadataFiles()) != 1 {
		t.Errorf("metadata files %v, want those of the commit only", c.MetadataFiles())
	}
}

func TestC8_BudgetSpent(t *testing.T) {
	// Every seat went to somebody else: proven, so refused.
	b := newBench(t, committest.Mode{})
	b.Each = func(a commit.Action) []commit.Event {
		if _, ok := a.(commit.Send); ok {
			b.c.Foreign("main")
		}
		return nil
	}
	o := b.run()
	b.check(t, o, commit.Refused, commit.ReasonBudget, 0)
	if o.Attempts != 20 || o.Conflicts != 20 || o.Quarantine || commit.CodeOf(o.Err) != commit.CodeConflict {
		t.Errorf("outcome %s %v", committest.OutcomeText(o), o.Err)
	}
	if files := b.c.MetadataFiles(); len(files) != 0 {
		t.Errorf("dead requests left %d metadata files", len(files))
	}

	// Silence to the end: not proven.
	var silence []string
	for range 30 {
		silence = append(silence, "drop-request")
	}
	b = newBench(t, committest.Mode{}, silence...)
	o = b.run()
	b.check(t, o, commit.Unknown, "", 0)
	if o.Attempts > 20 || b.Now.Before(committest.Epoch.Add(minute)) {
		t.Errorf("outcome %s at %s: it may wait until the deadline, and not send more than allowed", committest.OutcomeText(o), b.Now)
	}
}

// A catalog that takes back the seats of compactions: while only such a one stands
// above the request's base, the request may still land.
func TestB1_ATakenBackSeatMakesNothingFinal(t *testing.T) {
	b := newBench(t, committest.Mode{TakesBack: true}, "late", "403")
	b.c.Foreign("main")
	on[commit.Read](b.Runner, 2, func() { b.c.Compact("main") })
	o := b.run()
	if o.State == commit.Refused {
		t.Errorf("outcome %s, while the seat may be taken back", committest.OutcomeText(o))
	}
	b.c.Deliver()
	if n := b.c.Landed(b.u.Token); n > 1 {
		t.Errorf("it landed %d times", n)
	}

	// What takes a seat for good kills it.
	b = newBench(t, committest.Mode{TakesBack: true}, "late", "403")
	b.c.Foreign("main")
	on[commit.Read](b.Runner, 5, func() { b.c.Compact("main"); b.c.Foreign("main") })
	b.check(t, b.run(), commit.Refused, commit.ReasonPermission, 0)
	if b.c.Deliver() != 0 {
		t.Error("a refused unit landed")
	}
}
