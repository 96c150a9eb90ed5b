package commit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
)

const minute = time.Minute

// bench is one catalog, one driver and one runner over one unit.
type bench struct {
	*committest.Runner
	c *committest.Catalog
	d *committest.Driver
	u commit.Unit
}

func newBench(t *testing.T, mode committest.Mode, faults ...string) *bench {
	t.Helper()
	c := committest.NewCatalog(mode)
	b := &bench{c: c, d: committest.NewDriver(c), u: committest.NewUnit(c, "k", "j1", 1, 2)}
	if err := b.d.Inject(faults...); err != nil {
		t.Fatal(err)
	}
	b.Runner = committest.NewRunner(b.d, commit.NewMachine([]commit.Unit{b.u}, commit.Options{Deadline: committest.Epoch.Add(minute), Seed: 7}))
	return b
}

func (b *bench) run() commit.Outcome {
	for b.Step() {
	}
	return b.Outcomes[b.u.Token]
}

// on calls f before the nth action of the kind of a is carried out.
func on[A commit.Action](r *committest.Runner, n int, f func()) {
	old := r.Each
	r.Each = func(a commit.Action) (evs []commit.Event) {
		if old != nil {
			evs = old(a)
		}
		if _, ok := a.(A); ok {
			if n--; n == 0 {
				f()
			}
		}
		return evs
	}
}

func (b *bench) check(t *testing.T, o commit.Outcome, state commit.State, reason commit.Reason, times int) {
	t.Helper()
	if o.State != state || o.Reason != reason {
		t.Errorf("outcome %s (%v), want %s %s\n%s", committest.OutcomeText(o), o.Err, state, reason, strings.Join(b.Trace, "\n"))
	}
	if n := b.c.Times(b.u.Token); n != times {
		t.Errorf("the token is in the table %d times, want %d\n%s", n, times, strings.Join(b.Trace, "\n"))
	}
}

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
	o := b.run()
	// The first copy was answered 409; it's the only one, so that is told.
	b.check(t, o, commit.Refused, commit.ReasonTableChanged, 0)
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
		d.Poison = map[string]bool{units[poisoned].Files[0].Path: true}
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

func TestReads(t *testing.T) {
	down := errors.New("catalog is down")
	t.Run("failing for a while", func(t *testing.T) {
		b := newBench(t, committest.Mode{})
		b.d.FailReads(3, down)
		b.check(t, b.run(), commit.Committed, "", 1)
	})
	t.Run("failing after a send", func(t *testing.T) {
		b := newBench(t, committest.Mode{}, "drop-reply")
		b.d.PassReads(1)
		b.d.FailReads(5, down)
		o := b.run()
		b.check(t, o, commit.Committed, "", 1)
		if o.Attempts != 1 {
			t.Errorf("outcome %s", committest.OutcomeText(o))
		}
	})
	t.Run("failing for ever", func(t *testing.T) {
		b := newBench(t, committest.Mode{})
		b.d.FailReads(1000, down)
		o := b.run()
		b.check(t, o, commit.Refused, commit.ReasonBudget, 0)
		if !errors.Is(o.Err, down) {
			t.Errorf("the cause is missing in %v", o.Err)
		}
	})
	t.Run("failing for long after a send", func(t *testing.T) {
		b := newBench(t, committest.Mode{}, "drop-request")
		b.d.PassReads(1)
		b.d.FailReads(25, down) // more than there are attempts
		b.Machine = commit.NewMachine([]commit.Unit{b.u}, commit.Options{Deadline: committest.Epoch.Add(10 * minute)})
		o := b.run()
		b.check(t, o, commit.Committed, "", 1)
	})
	t.Run("failing for ever after a send", func(t *testing.T) {
		b := newBench(t, committest.Mode{}, "drop-reply")
		b.d.PassReads(1)
		b.d.FailReads(1000, down)
		o := b.run()
		b.check(t, o, commit.Unknown, "", 1)
		if !errors.Is(o.Err, down) {
			t.Errorf("the cause is missing in %v", o.Err)
		}
	})
	t.Run("not permitted", func(t *testing.T) {
		b := newBench(t, committest.Mode{})
		b.d.FailReads(1000, &commit.Error{Op: "read", Reason: commit.ReasonPermission})
		o := b.run()
		b.check(t, o, commit.Refused, commit.ReasonPermission, 0)
		if commit.KindOf(o.Err) != commit.KindPermission || b.Now != committest.Epoch {
			t.Errorf("%v at %s, want at once", o.Err, b.Now)
		}
	})
	t.Run("stale", func(t *testing.T) {
		for ago := 1; ago <= 3; ago++ {
			b := newBench(t, committest.Mode{}, "drop-reply")
			for range 3 {
				b.c.Foreign("main")
			}
			b.d.PassReads(1)
			b.d.StaleReads(2, ago)
			b.check(t, b.run(), commit.Committed, "", 1)
		}
	})
	t.Run("stale before the send", func(t *testing.T) {
		b := newBench(t, committest.Mode{})
		committest.Drive(committest.NewDriver(b.c), []commit.Unit{b.u}, commit.Options{})
		b.d.StaleReads(1, 1) // doesn't show the token
		o := b.run()
		b.check(t, o, commit.Committed, "", 1)
	})
}

func TestTableGone(t *testing.T) {
	for name, change := range map[string]func(*committest.Catalog){
		"dropped":   (*committest.Catalog).Drop,
		"recreated": (*committest.Catalog).Recreate,
	} {
		for _, at := range []int{0, 1} {
			b := newBench(t, committest.Mode{})
			if at == 0 {
				change(b.c)
			} else {
				on[commit.Send](b.Runner, 1, func() { change(b.c) })
			}
			o := b.run()
			b.check(t, o, commit.Refused, commit.ReasonTableChanged, 0)
			var e *commit.Error
			if !errors.As(o.Err, &e) || e.Code != commit.CodeTableChanged {
				t.Fatalf("%s: %v", name, o.Err)
			}
			for _, want := range []string{"firn commit retry j1 [--table NAME]", "firn commit drop j1"} {
				if !strings.Contains(e.Hint, want) {
					t.Errorf("the hint %q doesn't name %q", e.Hint, want)
				}
			}
			if !strings.Contains(e.Tried, b.u.Prefix) {
				t.Errorf("%q doesn't say where the files are", e.Tried)
			}
		}
	}
	// A copy is under way: the table may come back under its name.
	b := newBench(t, committest.Mode{}, "late")
	on[commit.Read](b.Runner, 2, func() { b.c.Drop() })
	b.check(t, b.run(), commit.Unknown, "", 0)
}

func TestFailedEffectsAreTriedAgain(t *testing.T) {
	b := newBench(t, committest.Mode{})
	n := 0
	b.RecordErr = func(commit.Record) error {
		if n++; n < 3 {
			return errors.New("disk full")
		}
		return nil
	}
	o := b.run()
	b.check(t, o, commit.Committed, "", 1)
	if b.c.Sends() != 1 || len(b.c.MetadataFiles()) != 1 {
		t.Errorf("%d sends, files %v: a request that wasn't recorded is never sent and leaves nothing", b.c.Sends(), b.c.MetadataFiles())
	}
}

func TestMachineIgnoresWhatItDoesNotAwait(t *testing.T) {
	b := newBench(t, committest.Mode{})
	b.Step()
	for _, ev := range []commit.Event{
		commit.Begin{}, commit.SendDone{}, commit.RecordDone{}, commit.Permitted{}, commit.Woke{},
		commit.ReadDone{Err: errors.New("late")}, commit.Cancel{Token: commit.Token{1}},
	} {
		if acts := b.Machine.Step(ev, b.Now); len(acts) != 0 {
			t.Errorf("%T answered by %v", ev, acts)
		}
	}
	b.check(t, b.run(), commit.Committed, "", 1)
	if acts := b.Machine.Step(commit.ReadDone{}, b.Now); len(acts) != 0 {
		t.Errorf("a machine that is done does %v", acts)
	}
}

func TestOneTokenStandsInARequestOnce(t *testing.T) {
	c := committest.NewCatalog(committest.Mode{})
	u, again := committest.NewUnit(c, "k", "j1", 1, 1), committest.NewUnit(c, "k", "j2", 1, 1)
	committest.Drive(committest.NewDriver(c), []commit.Unit{u, again}, commit.Options{})
	if c.Rows("main") != 1 || c.Times(u.Token) != 1 {
		t.Errorf("%d rows", c.Rows("main"))
	}
}

func TestUnitsOfDifferentSchemasGoApart(t *testing.T) {
	c := committest.NewCatalog(committest.Mode{})
	a := committest.NewUnit(c, "a", "ja", 1, 1)
	c.AddColumn()
	b := committest.NewUnit(c, "b", "jb", 1, 1)
	out := committest.Drive(committest.NewDriver(c), []commit.Unit{a, b}, commit.Options{})
	if out[a.Token].State != commit.Committed || out[b.Token].State != commit.Committed || c.Applied() != 2 {
		t.Errorf("outcomes %v in %d versions, want two", out, c.Applied())
	}
}

func TestNoUnitsNoWork(t *testing.T) {
	m := commit.NewMachine(nil, commit.Options{})
	if acts := m.Step(commit.Begin{}, committest.Epoch); len(acts) != 0 || !m.Done() {
		t.Errorf("%v, done %v", acts, m.Done())
	}
}
