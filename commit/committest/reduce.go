package committest

import (
	"slices"

	"github.com/firn-project/firn/commit"
)

// reduce brings a state to the form that stands for all states which go on alike:
// it leaves out what can do nothing any more. Nothing that an invariant speaks of
// is touched.
func (x *explorer) reduce(w *world) {
	for p := range w.procs {
		if x.over(w, w.procs[p]) {
			w.procs[p] = proc{}
		}
	}
	if slices.ContainsFunc(w.air, func(n uint8) bool { return x.tooLate(w, n) }) {
		w.air = slices.DeleteFunc(slices.Clone(w.air), func(n uint8) bool { return x.tooLate(w, n) })
	}
}

// over: the scheduler does nothing more that anybody could see. Either it has
// nothing left to do, or another one has taken over and the next thing that it
// would do is to write to the journal, which ends it.
func (x *explorer) over(w *world, pr proc) bool {
	deposed := pr.epoch != w.epoch
	switch {
	case pr.epoch == 0:
		return false
	case pr.machine == nil:
		return deposed // it never started
	case len(pr.todo) == 0:
		return deposed
	}
	switch pr.todo[0].(type) {
	case commit.Permit, commit.Record, commit.Finish:
		return deposed && !x.Break.Epoch
	}
	return false
}

// tooLate: whatever happens, this copy of a request changes nothing when it
// arrives. The table compares its seat, or its pointer, with one that never goes
// back.
func (x *explorer) tooLate(w *world, n uint8) bool {
	m, p := x.Mode, w.requests[n-1].Payload.(*payload)
	if p.pointer != "" && p.pointer != w.table.pointer {
		return true // it counts up
	}
	unseated := m.NoSeat || m.Overlook || m.TakesBack || m.NullParent && p.head == ""
	return !unseated && p.seat <= w.table.clock
}

// settled: every unit has its outcome, no copy is under way, and no scheduler is
// at work. What others do from here on concerns nobody.
func (x *explorer) settled(w *world) bool {
	return !x.open(w) && len(w.air) == 0 && len(w.procs[0].todo) == 0 && len(w.procs[1].todo) == 0
}
