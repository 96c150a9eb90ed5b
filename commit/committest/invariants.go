package committest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/firn-project/firn/commit"
)

// journaled is one write to the journal: the epoch is compared in the same
// transaction, and who finds another one ends. With Break.Epoch it is compared in one
// step and written in another.
func (x *explorer) journaled(w *world, p int, step string, out emit, do func(string, func(*world) commit.Event), write func(*world) commit.Event) {
	pr := w.procs[p]
	current := pr.epoch == w.epoch
	switch {
	case x.Break.Epoch && !pr.checked && current:
		c := w.clone()
		c.procs[p].checked = true
		out(fmt.Sprintf("%c: its epoch is current", 'A'+p), c)
	case current, x.Break.Epoch && pr.checked:
		do(step, write)
	default:
		c := w.clone()
		c.procs[p] = proc{}
		out(fmt.Sprintf("%c: isn't in charge, ends", 'A'+p), c)
	}
}

// permit is the point of no return: the row goes from sealed to sending, unless
// a cancel was first.
func (x *explorer) permit(c *world, a commit.Permit) commit.Event {
	denied := map[commit.Token]error{}
	for _, t := range a.Tokens {
		if x.job(t) < 0 {
			continue
		}
		r := &c.rows[x.job(t)]
		if r.state == rowEnded {
			denied[t] = errors.New("cancelled")
			continue
		}
		r.state = rowSending
	}
	return commit.Permitted{Denied: denied}
}

// record makes a send record, if every unit is still in flight.
func (x *explorer) record(c *world, a commit.Record) commit.Event {
	for _, t := range a.Request.Tokens {
		if x.job(t) < 0 {
			continue
		}
		if c.rows[x.job(t)].state != rowSending && !x.Break.Permit {
			return commit.RecordDone{Err: errors.New("the unit isn't being sent")}
		}
	}
	c.sends = append(slices.Clip(c.sends), number(a.Request.ID))
	return commit.RecordDone{}
}

// tell journals an outcome and deletes what may be deleted by it, at once: a
// shell that deletes later deletes no more than this.
func (x *explorer) tell(c *world, f commit.Finish) {
	j, o := x.job(f.Token), f.Outcome
	if j < 0 {
		return // nobody waits for a fence
	}
	r := &c.rows[j]
	if r.state == rowEnded && r.cancelled && o.State == commit.Refused {
		return // the cancel's own echo
	}
	if r.state == rowEnded && r.told != o.State && !x.SameKey {
		c.broke = fmt.Sprintf("I3: job %d was told %s and is told %s now", j, r.told, o.State)
		return
	}
	if v := x.falseRefusal(c, j, o); v != "" {
		c.broke = v
	}
	r.told, r.reason, r.quarantine = o.State, o.Reason, o.Quarantine
	r.tooOld = commit.CodeOf(o.Err) == commit.CodeKeyTooOld
	if o.State != commit.Unknown {
		r.state = rowEnded
	}
	if o.State == commit.Refused && !o.Quarantine || x.Break.Delete && o.State != commit.Committed {
		c.goneData |= fileBit(j, int(r.attempt))
	}
}

// falseRefusal: a refusal for a reason that this world doesn't give.
func (x *explorer) falseRefusal(c *world, j int, o commit.Outcome) string {
	if o.State != commit.Refused {
		return ""
	}
	given := true
	switch o.Reason {
	case commit.ReasonValidation:
		given = x.Poison == j+1 || x.Mode.seatless() && x.Operation != commit.OperationAppend
	case commit.ReasonPermission:
		given = c.denied
	case commit.ReasonTableChanged:
		given = c.dropped
	case commit.ReasonLimit:
		given = c.expired || x.Mode.HeadsOnly
	case "", commit.ReasonConflict, commit.ReasonBudget:
	}
	if given {
		return ""
	}
	return fmt.Sprintf("C1: job %d is refused (%s) for no reason of its own", j, o.Reason)
}

// broken is the invariant that doesn't hold in a state; empty when all do. The
// numbers are those of docs/explanation/proven.md: I1 what is acknowledged is
// there, once; I2 what is refused never lands; I3 what was told stays; I4 no
// file in use is deleted; I6 a token lands at most once in the table's life; I7
// a scheduler with an old epoch changes nothing; I8 other people's commits stay;
// I12 no unit is put into a table that it doesn't fit.
func (x *explorer) broken(w *world) string {
	if w.broke != "" {
		return w.broke
	}
	if w.misfits > 0 {
		return "I12: a unit was applied to a table that has no place for it"
	}
	if w.landed&w.goneMeta != 0 {
		return "I4: the metadata files of a request that landed were deleted"
	}
	var data uint8
	for i, q := range w.requests {
		if w.landed>>(i+1)&1 == 1 {
			data |= q.files
		}
	}
	if data&w.goneData != 0 {
		return "I4: data files of a commit that landed were deleted"
	}
	for j := range x.rows() {
		r := w.rows[j]
		switch {
		case w.times[j] > 1 && (!x.Mode.seatless() || x.Operation != commit.OperationAppend):
			return fmt.Sprintf("I6: job %d landed %d times", j, w.times[j])
		case w.times[j] > 1 && x.inHistory(w, j) > 1:
			return fmt.Sprintf("I6: job %d is %d times in one history", j, w.times[j])
		case r.told == commit.Refused && !r.tooOld && w.times[j] > 0:
			return fmt.Sprintf("I2: job %d was told %s and landed", j, r.text())
		case r.told == commit.Committed && w.times[j] == 0:
			return fmt.Sprintf("I1: job %d was told committed and didn't land", j)
		case r.told == commit.Committed && !w.rolledBack && !w.expired && x.inHistory(w, j) != 1:
			return fmt.Sprintf("I1: job %d was told committed and isn't in the branch, and nobody took it away", j)
		}
	}
	return ""
}

// seatless: a token lands at most once in one history there, no more.
func (m Mode) seatless() bool { return m.NoSeat || m.NullParent }

// inHistory counts the snapshots of the branch that hold the job's token.
func (x *explorer) inHistory(w *world, j int) (n int) {
	for at := w.table.heads[commit.MainBranch]; at != ""; at = w.table.full.snapshots[at].parent {
		if _, ok := w.table.full.snapshots[at].tokens[x.units[j][0].Token]; ok {
			n++
		}
	}
	return n
}
