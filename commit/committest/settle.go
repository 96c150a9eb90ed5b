package committest

import (
	"fmt"

	"github.com/firn-project/firn/commit"
)

// settles checks that nothing is unknown for ever (I3, I11): from here on, when
// the catalog answers and a new scheduler takes over, every unit comes to a
// definite outcome, at the latest when somebody else has committed. It says what
// is wrong; empty when nothing is.
//
// It takes a whole run to find out, so it's asked of a sample of the states.
//
// Tables without seats are left out: a unit may stay unknown there for ever.
func (x *explorer) settles(w *world) string {
	if x.Mode.seatless() {
		return ""
	}
	c := w.clone()
	c.late = false
	c.epoch++
	p := int(c.epoch-1) % len(c.procs)
	c.procs[p] = proc{epoch: c.epoch}
	c.faults = uint8(x.Faults) //nolint:gosec // no more of them
	for round := range 2 {
		if round == 1 {
			c.events++ // it names the snapshot
			x.event(c, "append")
		}
		for range 60 {
			var next *world
			x.procMoves(c, p, func(_ string, n *world) {
				if next == nil {
					next = n
				}
			})
			if next == nil {
				break
			}
			if c = next; c.broke != "" {
				return c.broke
			}
		}
		if !x.open(c) {
			return ""
		}
	}
	for j := range x.rows() {
		r := c.rows[j]
		if r.state != rowEnded && (r.told != commit.Unknown || !x.forgets(c)) {
			return fmt.Sprintf("I3: job %d is %s and stays it, though everything works and somebody else has committed", j, r.text())
		}
	}
	return ""
}

// forgets: the table may have lost sight of a commit for good.
func (x *explorer) forgets(w *world) bool {
	return x.Mode.HeadsOnly || w.expired
}
