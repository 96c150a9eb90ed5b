package commit_test

import (
	"errors"
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
	t.Run("well, and no request can be recorded", func(t *testing.T) {
		full := errors.New("no space left")
		b := newBench(t, committest.Mode{})
		b.RecordErr = func(commit.Record) error { return full }
		// Without a deadline: the number of tries ends it.
		b.Machine = commit.NewMachine([]commit.Unit{b.u}, commit.Options{MaxAttempts: 7})
		o := b.run()
		b.check(t, o, commit.Refused, commit.ReasonBudget, 0)
		if !errors.Is(o.Err, full) {
			t.Errorf("the cause is missing in %v", o.Err)
		}
	})
	t.Run("well, and no request can be built", func(t *testing.T) {
		damaged := errors.New("manifest list is damaged")
		b := newBench(t, committest.Mode{})
		builds := 0
		b.BuildErr = func(commit.Build) error { builds++; return damaged }
		b.Machine = commit.NewMachine([]commit.Unit{b.u}, commit.Options{MaxAttempts: 7})
		o := b.run()
		b.check(t, o, commit.Refused, commit.ReasonBudget, 0)
		if !errors.Is(o.Err, damaged) || builds != 7 {
			t.Errorf("%d builds, %v", builds, o.Err)
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
		commit.Begin{},
		commit.SendDone{},
		commit.RecordDone{},
		commit.Permitted{},
		commit.Woke{},
		commit.ReadDone{Err: errors.New("late")},
		commit.Cancel{Token: commit.Token{1}},
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

func TestA7_OneTokenStandsInARequestOnce(t *testing.T) {
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
