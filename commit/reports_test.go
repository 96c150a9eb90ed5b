package commit_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
)

// The tests here are what went wrong in other systems, by the numbers of
// docs/explanation/proven.md. Each is the scenario of one public report, run over
// the real step functions.

// A copy lands after three reads that didn't show it: nothing is told or deleted
// before that, and it doesn't land twice.
func TestScenario03_LandsAfterThreeReads(t *testing.T) {
	b := newBench(t, committest.Mode{}, "late", "late", "late", "late")
	on[commit.Read](b.Runner, 5, func() {
		if len(b.Outcomes) != 0 {
			t.Errorf("told %v while a copy was under way", b.Outcomes)
		}
		if n := len(b.c.MetadataFiles()); n == 0 {
			t.Error("the files of requests that may land were deleted")
		}
		if n := b.c.Deliver(); n != 1 {
			t.Errorf("%d of the late copies landed, want the first only", n)
		}
	})
	b.check(t, b.run(), commit.Committed, "", 1)
}

// The time is up while a copy is under way: unknown, its files stay, and it can
// still land, once.
func TestScenario03_UnknownKeepsItsFiles(t *testing.T) {
	b := newBench(t, committest.Mode{}, "late", "late", "late", "late", "late", "late", "late", "late", "late", "late",
		"late", "late", "late", "late", "late", "late", "late", "late", "late", "late")
	b.check(t, b.run(), commit.Unknown, "", 0)
	if len(b.c.MetadataFiles()) == 0 {
		t.Error("files of requests that may land were deleted")
	}
	if n := b.c.Deliver(); n != 1 {
		t.Errorf("%d copies landed", n)
	}
	b.Runner = committest.NewRunner(b.d, commit.NewMachine([]commit.Unit{b.u}, commit.Options{}))
	o := b.run()
	b.check(t, o, commit.Committed, "", 1)
	if !o.Deduplicated {
		t.Errorf("outcome %s", committest.OutcomeText(o))
	}
}

// A request of several units whose reply is lost: each is told for itself, and
// what is deleted is nobody's.
func TestScenario04_SeveralUnitsAndALostReply(t *testing.T) {
	for _, fault := range []string{"drop-reply", "drop-request"} {
		c := committest.NewCatalog(committest.Mode{})
		d := committest.NewDriver(c)
		if err := d.Inject(fault); err != nil {
			t.Fatal(err)
		}
		units := []commit.Unit{committest.NewUnit(c, "a", "j1", 2, 3), committest.NewUnit(c, "b", "j2", 1, 4)}
		for tok, o := range committest.Drive(d, units, commit.Options{Deadline: committest.Epoch.Add(minute)}) {
			if o.State != commit.Committed || c.Times(tok) != 1 {
				t.Errorf("%s: %s, %d times in the table", fault, committest.OutcomeText(o), c.Times(tok))
			}
		}
		if rows := c.Rows(commit.MainBranch); rows != 10 {
			t.Errorf("%s: %d rows, want 10", fault, rows)
		}
	}
}

// An unknown outcome is the machine's end: nothing makes it send again.
func TestScenario11_UnknownIsFinalForItsMachine(t *testing.T) {
	b := newBench(t, committest.Mode{}, "500-applied")
	b.d.PassReads(1)
	b.d.FailReads(1000, errors.New("catalog is down"))
	b.check(t, b.run(), commit.Unknown, "", 1)
	sends := b.c.Sends()
	for _, ev := range []commit.Event{commit.Begin{}, commit.Woke{}, commit.SendDone{}, commit.ReadDone{}, commit.Cancel{Token: b.u.Token}} {
		if acts := b.Machine.Step(ev, b.Now.Add(time.Hour)); len(acts) != 0 {
			t.Errorf("%T after the end: %v", ev, acts)
		}
	}
	if b.c.Sends() != sends {
		t.Error("it was sent again")
	}
}

// Two units come after one that isn't known: they go through, they don't take it
// with them, and by taking its seat they settle it.
func TestScenario13_UnitsBehindAnUnknownOne(t *testing.T) {
	b := newBench(t, committest.Mode{}, "late")
	b.d.PassReads(1)
	b.d.FailReads(1000, errors.New("catalog is down"))
	var sent commit.Request
	b.RecordErr = func(r commit.Record) error { sent = r.Request; return nil }
	b.check(t, b.run(), commit.Unknown, "", 0)

	d := committest.NewDriver(b.c)
	later := []commit.Unit{committest.NewUnit(b.c, "k2", "j2", 1, 3), committest.NewUnit(b.c, "k3", "j3", 1, 5)}
	for _, u := range later {
		if o := committest.Drive(d, []commit.Unit{u}, commit.Options{})[u.Token]; o.State != commit.Committed {
			t.Fatalf("a unit behind it: %s", committest.OutcomeText(o))
		}
	}
	if n := b.c.Deliver(); n != 0 {
		t.Errorf("%d copies landed though their seat was taken", n)
	}
	o := committest.Drive(d, []commit.Unit{b.u}, commit.Options{Sent: []commit.Request{sent}})[b.u.Token]
	b.check(t, o, commit.Committed, "", 1)
	if rows := b.c.Rows(commit.MainBranch); rows != 2+3+5 {
		t.Errorf("%d rows, want 10", rows)
	}
}

// The process ends between the catalog's answer and its own record of it: the
// next one finds the unit by its token.
func TestScenario14_EndsBeforeTheOutcomeIsRecorded(t *testing.T) {
	b := newBench(t, committest.Mode{})
	var sent commit.Request
	b.RecordErr = func(r commit.Record) error { sent = r.Request; return nil }
	for b.c.Times(b.u.Token) == 0 {
		b.Step()
	}
	for name, opts := range map[string]commit.Options{"with its record": {Sent: []commit.Request{sent}}, "without": {}} {
		again := committest.NewRunner(committest.NewDriver(b.c), commit.NewMachine([]commit.Unit{b.u}, opts))
		for again.Step() {
		}
		o := again.Outcomes[b.u.Token]
		b.check(t, o, commit.Committed, "", 1)
		if o.Attempts != 0 {
			t.Errorf("%s: %s: it was sent again", name, committest.OutcomeText(o))
		}
	}
}

// What comes after the append fails and is repeated: the append isn't.
func TestScenario16_FinishingIsRepeatedTheAppendIsNot(t *testing.T) {
	b := newBench(t, committest.Mode{})
	b.d.PassReads(1)
	b.d.FailReads(3, errors.New("reading the table failed"))
	o := b.run()
	b.check(t, o, commit.Committed, "", 1)
	if rows := b.c.Rows(commit.MainBranch); rows != 2 || o.Attempts != 1 {
		t.Errorf("%d rows after %s, want 2 after one attempt", rows, committest.OutcomeText(o))
	}
}

// A cancel at each step: cancelled is told only of what never lands.
func TestScenario20_CancelAtEachStep(t *testing.T) {
	for _, fault := range []string{"pass", "drop-reply", "drop-request", "late"} {
		for step := 1; ; step++ {
			b := newBench(t, committest.Mode{}, fault)
			n := 0
			b.Each = func(commit.Action) []commit.Event {
				if n++; n == step {
					return []commit.Event{commit.Cancel{Token: b.u.Token, Err: errors.New("stop it")}}
				}
				return nil
			}
			o := b.run()
			b.c.Deliver()
			times := b.c.Times(b.u.Token)
			switch {
			case o.State == commit.Committed && times == 1:
			case o.State == commit.Refused && commit.KindOf(o.Err) == commit.KindCancelled && times == 0:
			default:
				t.Errorf("%s, cancelled at step %d: %s, and it's %d times in the table", fault, step, committest.OutcomeText(o), times)
			}
			if n < step {
				break
			}
		}
	}
}

// Eight writers with fifty commits each: conflicts lose nothing.
func TestScenario21_WritersLoseNothing(t *testing.T) {
	c := committest.NewCatalog(committest.Mode{})
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			d := committest.NewDriver(c)
			for i := range 50 {
				u := committest.NewUnit(c, fmt.Sprintf("k-%d-%d", w, i), fmt.Sprintf("j-%d-%d", w, i), 1, 1)
				if o := committest.Drive(d, []commit.Unit{u}, commit.Options{MaxAttempts: 10_000, Seed: uint64(w + 1)})[u.Token]; o.State != commit.Committed {
					t.Errorf("writer %d, commit %d: %s", w, i, committest.OutcomeText(o))
				}
			}
		})
	}
	writers.Wait()
	if rows := c.Rows(commit.MainBranch); rows != 400 {
		t.Errorf("%d rows of 400", rows)
	}
}

// A coordinator stalls before its send; another commits the same unit and one
// more. What the first then sends changes nothing, and it tells the truth.
func TestScenario22_ACoordinatorWakesUp(t *testing.T) {
	b := newBench(t, committest.Mode{})
	on[commit.Send](b.Runner, 1, func() {
		d := committest.NewDriver(b.c)
		for _, u := range []commit.Unit{b.u, committest.NewUnit(b.c, "k2", "j2", 1, 3)} {
			if o := committest.Drive(d, []commit.Unit{u}, commit.Options{})[u.Token]; o.State != commit.Committed {
				t.Fatalf("the second coordinator: %s", committest.OutcomeText(o))
			}
		}
	})
	o := b.run()
	b.check(t, o, commit.Committed, "", 1)
	if rows := b.c.Rows(commit.MainBranch); rows != 5 {
		t.Errorf("%d rows, want 5; %s", rows, committest.OutcomeText(o))
	}
}

// Two coordinators have the same unit at once, one ahead of the other by any
// number of steps: it lands once.
func TestScenario23_TwoCoordinators(t *testing.T) {
	for ahead := range 12 {
		b := newBench(t, committest.Mode{})
		other := committest.NewRunner(committest.NewDriver(b.c), commit.NewMachine([]commit.Unit{b.u}, commit.Options{Seed: 2}))
		for range ahead {
			b.Step()
		}
		for one, two := true, true; one || two; {
			one, two = b.Step(), other.Step()
		}
		for _, o := range []commit.Outcome{b.Outcomes[b.u.Token], other.Outcomes[b.u.Token]} {
			b.check(t, o, commit.Committed, "", 1)
		}
	}
}

// A job with two units for one table has two tokens; after a crash between them
// the second is still missing.
func TestScenario31_EachUnitHasItsToken(t *testing.T) {
	in := commit.TokenInput{Key: "k", TableUUID: "t"}
	second := in
	second.Unit = 1
	otherTable := in
	otherTable.TableUUID = "t2"
	otherBranch := in
	otherBranch.Branch = "b"
	for _, o := range []commit.TokenInput{second, otherTable, otherBranch} {
		if commit.NewToken(in) == commit.NewToken(o) {
			t.Errorf("%+v and %+v have one token", in, o)
		}
	}
	if in2 := in; commit.NewToken(in2) != commit.NewToken(in) {
		t.Error("a token isn't the same when it's derived again")
	}
}

// The job runs again after another has committed, or after its commit was rolled
// back: it's answered with what happened and doesn't land again. Another key does.
func TestScenario34_RunAgainAfterOthers(t *testing.T) {
	b := newBench(t, committest.Mode{})
	b.c.Foreign("main")
	before := b.c.Head("main")
	b.check(t, b.run(), commit.Committed, "", 1)
	b.c.Foreign("main")
	again := func(u commit.Unit) commit.Outcome {
		return committest.Drive(committest.NewDriver(b.c), []commit.Unit{u}, commit.Options{})[u.Token]
	}
	o := again(b.u)
	b.check(t, o, commit.Committed, "", 1)
	if !o.Deduplicated || o.RolledBack {
		t.Errorf("after another commit: %s", committest.OutcomeText(o))
	}
	b.c.SetHead("main", before)
	b.c.Foreign("main")
	o = again(b.u)
	b.check(t, o, commit.Committed, "", 1)
	if !o.RolledBack {
		t.Errorf("after a rollback: %s", committest.OutcomeText(o))
	}
	if o := again(committest.NewUnit(b.c, "k2", "j2", 1, 2)); o.State != commit.Committed || o.Deduplicated {
		t.Errorf("another key: %s", committest.OutcomeText(o))
	}
}

// A hundred conflicts leave no files behind.
func TestScenario55_ConflictsLeaveNothing(t *testing.T) {
	b := newBench(t, committest.Mode{})
	b.Runner = committest.NewRunner(b.d, commit.NewMachine([]commit.Unit{b.u}, commit.Options{MaxAttempts: 1000}))
	most := 0
	for i := range 100 {
		on[commit.Send](b.Runner, i+1, func() {
			b.c.Foreign("main")
			most = max(most, len(b.c.MetadataFiles()))
		})
	}
	o := b.run()
	b.check(t, o, commit.Committed, "", 1)
	if o.Conflicts != 100 || most > 2 || len(b.c.MetadataFiles()) != 1 {
		t.Errorf("%s: at most %d metadata files, %d in the end", committest.OutcomeText(o), most, len(b.c.MetadataFiles()))
	}
}

// Thirty-two writers at once: pauses with jitter bound what they send.
func TestScenario75_RetriesWait(t *testing.T) {
	b := newBench(t, committest.Mode{}, "503", "503", "503", "503", "503", "503", "503", "503")
	o := b.run()
	b.check(t, o, commit.Committed, "", 1)
	if waited := b.Now.Sub(committest.Epoch); waited < time.Second {
		t.Errorf("eight times told to wait, and it waited %s", waited)
	}
	pauses := map[time.Duration]bool{}
	for seed := range uint64(32) {
		b := newBench(t, committest.Mode{}, "503")
		b.Runner = committest.NewRunner(b.d, commit.NewMachine([]commit.Unit{b.u}, commit.Options{Seed: seed}))
		b.run()
		pauses[b.Now.Sub(committest.Epoch)] = true
	}
	if len(pauses) < 16 {
		t.Errorf("32 writers pause for %d different times", len(pauses))
	}
}

// A catalog that says 400 for a lost race.
func TestScenario77_A400ForAConflict(t *testing.T) {
	b := newBench(t, committest.Mode{StaleSeat400: true})
	b.d.BeforeSend = func() {
		b.d.BeforeSend = nil
		b.c.Foreign("main")
	}
	o := b.run()
	b.check(t, o, commit.Committed, "", 1)
	if o.Attempts != 2 {
		t.Errorf("outcome %s", committest.OutcomeText(o))
	}
}

// A catalog that answers 500 without having done anything, now and then.
func TestScenario78_500WithoutLanding(t *testing.T) {
	c := committest.NewCatalog(committest.Mode{})
	d := committest.NewDriver(c)
	for i := range 100 {
		if i%20 == 0 {
			if err := d.Inject("500"); err != nil {
				t.Fatal(err)
			}
		}
		u := committest.NewUnit(c, fmt.Sprint(i), fmt.Sprint("j", i), 1, 1)
		if o := committest.Drive(d, []commit.Unit{u}, commit.Options{})[u.Token]; o.State != commit.Committed || c.Times(u.Token) != 1 {
			t.Errorf("unit %d: %s", i, committest.OutcomeText(o))
		}
	}
}
