package committest

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/firn-project/firn/commit"
)

// Exploration is one small world, in which everything that can happen does
// happen, in every order: schedulers that run the real step function of
// commit.Machine over one table and one journal, of which one is thought dead
// and isn't, copies of requests that arrive late, and other people's commits.
// Its numbers bound how often the world interferes in one run; what is left is
// explored to the end, or to Limit.
type Exploration struct {
	Name string
	// Mode is the kind of catalog.
	Mode Mode
	// Empty starts with a table without snapshots, and not with one.
	Empty bool
	// Jobs is how many commit units there are, 1 or 2. One machine drives both.
	Jobs int
	// Attempts is how many attempts of a job's tasks there are to choose from
	// when its unit is sealed, 1 or 2.
	Attempts int
	// Operation is what the units do; appends when empty.
	Operation commit.Operation
	// Claims: the units have read the whole table at the beginning, and replace a file.
	Claims bool
	// SameKey gives both jobs one key.
	SameKey bool
	// Poison is the number of a job, counted from 1, that the catalog answers 400 to.
	Poison int
	// Faults bounds faults: lost, late and doubled copies, lost answers, 403,
	// reads that fail or show the past.
	Faults int
	// Fresh: no read shows the past. A catalog that says 400 to a seat that is
	// taken and then shows the table as it was before makes Firn refuse for
	// no reason.
	Fresh bool
	// Takeovers bounds how often another scheduler takes over. The one before
	// isn't stopped until a third takes over: it may go on at any time, or never.
	Takeovers int
	// Foreign are the changes by others that may happen, by name, Events how
	// many of them.
	Foreign []string
	Events  int
	// Fence: whoever takes over when all units were sent may start with a fence.
	Fence bool
	// Cancel lets users cancel the jobs, Deadline lets the deadline pass.
	Cancel, Deadline bool
	// MaxAttempts of the machines; 3 when 0.
	MaxAttempts int
	// Limit bounds the states; 50 million when 0.
	Limit int
	// DepthFirst needs little memory for states without number, and a violation
	// that it finds has some trace, not a shortest one.
	DepthFirst bool
	// Plain explores each state as it is, also those that go on like another one
	// (see reduce): for comparing the two.
	Plain bool
	// Break breaks what surrounds the machines.
	Break Break
	// New makes the machines; commit.NewMachine when nil.
	New func([]commit.Unit, commit.Options) *commit.Machine
}

// Break are parts of the shells around the machine that an exploration can do
// without, to show what they are for.
type Break struct {
	// Epoch compares the lease's epoch before a write to the journal, and not
	// in one transaction with it.
	Epoch bool
	// Seal lets a restarted root put another set of attempts in place of the
	// sealed one.
	Seal bool
	// Delete deletes a unit's files when it is told as refused or unknown,
	// whether that is final or not.
	Delete bool
	// Conflicts builds without a look at what others did since a claim's base.
	Conflicts bool
	// Permit lets a cancel win over a unit that may have been sent.
	Permit bool
}

// Explored is what an exploration found.
type Explored struct {
	Name          string
	States, Steps int
	// Deepest is the length of the longest way that was gone.
	Deepest int
	// Complete: no state was left out because of the limit.
	Complete bool
	// Ends counts the outcomes of units in states where nothing more happens.
	Ends map[string]int
	// Violation is the invariant that was found broken first, with the
	// shortest way to it; empty when all hold in every state.
	Violation string
	Trace     []string
}

// String is one line.
func (r Explored) String() string {
	s := fmt.Sprintf("%-34s %10d states %11d steps, depth %3d", r.Name, r.States, r.Steps, r.Deepest)
	if !r.Complete {
		s += ", cut"
	}
	if r.Violation != "" {
		s += "\n  " + r.Violation + "\n    " + strings.Join(r.Trace, "\n    ")
	}
	return s
}

// way is how a state was reached.
type way struct {
	from *way
	step string
	long int
}

func (w *way) trace() (steps []string) {
	for ; w.from != nil; w = w.from {
		steps = append(steps, w.step)
	}
	slices.Reverse(steps)
	return steps
}

type found struct {
	w   *world
	way *way
}

// settleEvery is how many states there are to one that is asked whether it settles.
const settleEvery = 200

// explorer is one run.
type explorer struct {
	Exploration
	units [2][2]commit.Unit
	seed  maphash.Seed
	seen  map[uint64]struct{}
	next  []found
	res   Explored
	buf   []byte
	// whole: nothing is broken on purpose.
	whole bool
}

// Explore explores breadth first, unless told otherwise: the violation that it
// finds has a shortest trace. States are told apart by a hash of 64 bits of
// everything that decides what can happen next.
func Explore(e Exploration) Explored {
	if e.Limit == 0 {
		e.Limit = 50_000_000
	}
	if e.MaxAttempts == 0 {
		e.MaxAttempts = 3
	}
	whole := e.New == nil && e.Break == Break{}
	if e.New == nil {
		e.New = commit.NewMachine
	}
	if e.Operation == "" {
		e.Operation = commit.OperationAppend
	}
	e.Attempts = max(e.Attempts, 1)
	x := &explorer{Exploration: e, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}}
	x.whole = whole
	x.res = Explored{Name: e.Name, Complete: true, Ends: map[string]int{}}
	x.makeUnits()
	x.visit(x.first(), &way{})
	for len(x.next) > 0 && x.res.Violation == "" {
		if x.DepthFirst {
			f := x.next[len(x.next)-1]
			x.next = x.next[:len(x.next)-1]
			x.expand(f)
			continue
		}
		now := x.next
		x.next = nil
		for i := 0; i < len(now) && x.res.Violation == ""; i++ {
			x.expand(now[i])
			now[i] = found{} // its world isn't needed any more
		}
	}
	return x.res
}

func (x *explorer) makeUnits() {
	for j := range x.units {
		key := fmt.Sprintf("key-%d", j)
		if x.SameKey {
			key = "key-0"
		}
		for a := range x.units[j] {
			job := fmt.Sprintf("j%d", j)
			prefix := "mem://t/data/" + job + "/"
			attempt := fmt.Sprintf("a-%d", a)
			var claim *commit.Claim
			if x.Claims {
				claim = &commit.Claim{Base: commit.Seat{Number: x.firstClock()}, Read: commit.Scope{All: true}, Replaced: []string{"old.parquet"}}
			}
			x.units[j][a] = commit.NewUnit(commit.UnitSpec{
				Claim: claim, Key: key, JobID: job, Table: Name, TableUUID: tableUUID, Operation: x.Operation,
				Prefix: prefix, Tasks: 1, Files: []commit.File{{
					Path: prefix + "1-0-" + attempt + "-0.parquet", Format: "PARQUET", Attempt: attempt, Rows: 1, Size: 100,
				}},
			})
		}
	}
}

// rows is how many units the journal tells apart.
func (x *explorer) rows() int {
	if x.SameKey {
		return 1
	}
	return x.Jobs
}

func (x *explorer) expand(f found) {
	moves := 0
	if x.Plain || !x.settled(f.w) {
		x.moves(f.w, func(step string, n *world) {
			moves++
			x.res.Steps++
			if x.res.Violation == "" {
				x.visit(n, &way{f.way, step, f.way.long + 1})
			}
		})
	}
	if moves == 0 && x.res.Violation == "" {
		for j := range x.rows() {
			r := f.w.rows[j]
			x.res.Ends[r.text()]++
			if r.state != rowEnded && r.told != commit.Unknown {
				x.violation("I11: nothing more happens, and job "+x.units[j][0].JobID+" has no outcome", f.way)
			}
		}
	}
}

func (x *explorer) visit(w *world, way *way) {
	if !x.Plain {
		x.reduce(w)
	}
	x.buf = x.encode(w, x.buf[:0])
	h := maphash.Bytes(x.seed, x.buf)
	if _, ok := x.seen[h]; ok {
		return
	}
	if len(x.seen) >= x.Limit {
		x.res.Complete = false
		return
	}
	x.seen[h] = struct{}{}
	x.res.States = len(x.seen)
	v := x.broken(w)
	if v == "" && x.whole && len(x.seen)%settleEvery == 0 {
		v = x.settles(w)
	}
	if v != "" {
		x.violation(v, way)
		return
	}
	x.res.Deepest = max(x.res.Deepest, way.long)
	x.next = append(x.next, found{w, way})
}

func (x *explorer) violation(what string, way *way) {
	x.res.Violation, x.res.Trace = what, way.trace()
}
