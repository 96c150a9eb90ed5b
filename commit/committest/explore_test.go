package committest_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
)

// everything is what others may do to the table.
var everything = []string{"append", "other branch", "rollback", "newest", "replace", "truncate", "expire", "add column", "drop column", "reset ledger"}

// catalogs are the kinds of catalogs that are explored.
var catalogs = []struct {
	name string
	mode committest.Mode
}{
	{"seats", committest.Mode{}},
	{"seats, no ledger", committest.Mode{NoLedger: true}},
	{"stale seats answered 400", committest.Mode{StaleSeat400: true}},
	{"pointer", committest.Mode{Pointer: true}},
	{"tokens stripped", committest.Mode{StripTokens: true}},
	{"only heads shown", committest.Mode{HeadsOnly: true}},
	{"only heads shown, no ledger", committest.Mode{HeadsOnly: true, NoLedger: true}},
	{"null parents unchecked", committest.Mode{NullParent: true}},
	{"no seats", committest.Mode{NoSeat: true}},
}

// small is the setting that runs with every test: each kind of catalog, one
// job, one fault, one takeover and one change by others.
func small() (es []committest.Exploration) {
	for _, c := range catalogs {
		es = append(es, committest.Exploration{
			Name: c.name, Mode: c.mode, Empty: c.mode.NullParent, Fresh: c.mode.StaleSeat400,
			Jobs: 1, Faults: 1, Takeovers: 1, Events: 1, Foreign: everything,
		})
	}
	return append(es,
		committest.Exploration{Name: "cancel and deadline", Jobs: 1, Faults: 1, Takeovers: 1, Cancel: true, Deadline: true},
		committest.Exploration{Name: "fence", Jobs: 1, Faults: 1, Takeovers: 1, Deadline: true, Fence: true, Events: 1, Foreign: []string{"append", "rollback", "drop column"}},
		committest.Exploration{Name: "fence, no seats", Mode: committest.Mode{NoSeat: true}, Jobs: 1, Faults: 1, Takeovers: 1, Deadline: true, Fence: true},
		committest.Exploration{Name: "seats taken back", Mode: committest.Mode{TakesBack: true}, Jobs: 1, Faults: 1, Takeovers: 1, Events: 2, Foreign: []string{"append", "compaction"}},
		committest.Exploration{Name: "two attempts", Jobs: 1, Attempts: 2, Faults: 1, Takeovers: 1},
		committest.Exploration{Name: "two jobs", Jobs: 2, Faults: 1, Takeovers: 1, Events: 1, Foreign: []string{"append"}},
		committest.Exploration{Name: "two jobs, one poisoned", Jobs: 2, Poison: 2, Faults: 1},
		committest.Exploration{Name: "two overwrites of the same", Operation: commit.OperationOverwrite, Claims: true, Jobs: 2, Faults: 1, Events: 1, Foreign: []string{"append", "rollback"}},
		committest.Exploration{Name: "one key twice", Jobs: 2, SameKey: true, Faults: 1, Takeovers: 1},
	)
}

// full is the setting of make explore: each pair of changes by others in each
// kind of catalog, and the other bounds one after the other and together.
func full() []committest.Exploration {
	es := small()
	add := func(e committest.Exploration) {
		e.DepthFirst = true
		es = append(es, e)
	}
	for _, c := range catalogs {
		e := committest.Exploration{Mode: c.mode, Empty: c.mode.NullParent, Fresh: c.mode.StaleSeat400, Jobs: 1, Takeovers: 1, Foreign: everything}
		e.Name, e.Faults, e.Events = c.name+", two changes", 1, 2
		add(e)
		e.Name, e.Faults, e.Events, e.Takeovers = c.name+", two faults", 2, 1, 2
		add(e)
	}
	add(committest.Exploration{Name: "three changes, nobody takes over", Jobs: 1, Faults: 1, Events: 3, Foreign: everything})
	add(committest.Exploration{Name: "cancel, deadline and one change", Jobs: 1, Faults: 1, Takeovers: 1, Cancel: true, Deadline: true, Events: 1, Foreign: everything})
	add(committest.Exploration{Name: "cancel, deadline and two faults", Jobs: 1, Faults: 2, Takeovers: 2, Cancel: true, Deadline: true})
	add(committest.Exploration{Name: "fence, two faults", Jobs: 1, Faults: 2, Takeovers: 2, Deadline: true, Fence: true, Events: 1, Foreign: []string{"append", "rollback"}})
	add(committest.Exploration{Name: "fence, every change", Jobs: 1, Faults: 1, Takeovers: 1, Deadline: true, Fence: true, Events: 1, Foreign: everything})
	add(committest.Exploration{Name: "seats taken back, two changes", Mode: committest.Mode{TakesBack: true}, Jobs: 1, Faults: 1, Takeovers: 1, Events: 2, Foreign: []string{"append", "compaction", "rollback", "expire"}})
	add(committest.Exploration{Name: "two attempts, all bounds", Jobs: 1, Attempts: 2, Faults: 2, Takeovers: 2, Events: 1, Foreign: []string{"append"}})
	add(committest.Exploration{Name: "two jobs, all bounds", Jobs: 2, Attempts: 2, Faults: 2, Takeovers: 2, Events: 1, Foreign: everything})
	add(committest.Exploration{Name: "two jobs, one poisoned, one change", Jobs: 2, Poison: 2, Faults: 1, Takeovers: 1, Events: 1, Foreign: everything})
	add(committest.Exploration{Name: "two overwrites", Operation: commit.OperationOverwrite, Claims: true, Jobs: 2, Faults: 2, Takeovers: 2, Events: 1, Foreign: everything})
	return es
}

// TestExplore explores the small setting, or the full one when FIRN_EXPLORE is
// "full", to the end, and prints its bounds, the number of states and the time.
func TestExplore(t *testing.T) {
	es := small()
	if os.Getenv("FIRN_EXPLORE") == "full" {
		es = full()
	}
	began := time.Now()
	var states, steps atomic.Int64
	t.Run("worlds", func(t *testing.T) {
		for _, e := range es {
			t.Run(strings.ReplaceAll(e.Name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				r := committest.Explore(e)
				t.Logf("%d jobs, %d attempts, %d faults, %d takeovers, %d changes by others of %v\n%s\nends: %v",
					e.Jobs, max(e.Attempts, 1), e.Faults, e.Takeovers, e.Events, e.Foreign, r, r.Ends)
				if r.Violation != "" || !r.Complete {
					t.Error(r)
				}
				states.Add(int64(r.States))
				steps.Add(int64(r.Steps))
			})
		}
	})
	t.Logf("%d worlds to their end, %d states, %d steps; %s of CPU time in %s", len(es), states.Load(), steps.Load(), cpuTime(), time.Since(began).Round(time.Second))
}

// cpuTime is what the process has used.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Round(time.Second)
}

// TestReductionLosesNothing compares explorations with and without the states that
// go on like others: units come to the same ends.
func TestReductionLosesNothing(t *testing.T) {
	for _, e := range []committest.Exploration{
		{Name: "one job", Jobs: 1, Faults: 1, Takeovers: 1, Events: 1, Foreign: everything},
		{Name: "no seats", Mode: committest.Mode{NoSeat: true}, Jobs: 1, Faults: 1, Takeovers: 1, Events: 1, Foreign: []string{"append", "rollback"}},
		{Name: "cancel, deadline, fence", Jobs: 1, Faults: 1, Takeovers: 2, Cancel: true, Deadline: true, Fence: true, Events: 1, Foreign: []string{"drop column"}},
		{Name: "two jobs", Jobs: 2, Attempts: 2, Faults: 1, Takeovers: 1, Events: 1, Foreign: []string{"append"}},
	} {
		reduced := committest.Explore(e)
		e.Plain = true
		plain := committest.Explore(e)
		t.Logf("%s: %d states of %d", e.Name, reduced.States, plain.States)
		have, want := slices.Sorted(maps.Keys(reduced.Ends)), slices.Sorted(maps.Keys(plain.Ends))
		if !slices.Equal(have, want) || reduced.Violation != plain.Violation || reduced.States >= plain.States {
			t.Errorf("%s: ends %v in %d states; without the reduction %v in %d", e.Name, have, reduced.States, want, plain.States)
		}
	}
}
