package committest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/firn-project/firn/commit"
)

// emit takes one step that is possible and the world after it.
type emit func(step string, n *world)

// moves lists everything that can happen next.
func (x *explorer) moves(w *world, out emit) {
	for p := range w.procs {
		x.procMoves(w, p, out)
	}
	for i, n := range w.air {
		if i > 0 && w.air[i-1] == n {
			continue // copies of one request are alike
		}
		c := w.clone()
		c.air = slices.Delete(slices.Clone(w.air), i, i+1)
		a := x.arrive(c, n)
		out(fmt.Sprintf("a late copy of request %d arrives: %s", n, a.Class), c)
	}
	if int(w.takeovers) < x.Takeovers && x.open(w) {
		c := w.clone()
		c.takeovers++
		c.epoch++
		to := int(c.epoch-1) % len(c.procs)
		c.procs[to] = proc{epoch: c.epoch}
		out(fmt.Sprintf("scheduler %c takes over", 'A'+to), c)
	}
	if x.Deadline && !w.late {
		c := w.clone()
		c.late = true
		out("the deadline passes", c)
	}
	x.cancels(w, out)
	x.foreign(w, out)
}

// open: some unit isn't settled.
func (x *explorer) open(w *world) bool {
	return slices.ContainsFunc(w.rows[:x.rows()], func(r row) bool { return r.state != rowEnded })
}

// cancels: one compare-and-set on the unit's row decides, and the machine is told.
func (x *explorer) cancels(w *world, out emit) {
	if !x.Cancel {
		return
	}
	for j := range x.rows() {
		r := w.rows[j]
		if r.state == rowEnded || r.state == rowSending && r.told == commit.Unknown {
			continue
		}
		c := w.clone()
		if r.state != rowSending || x.Break.Permit {
			c.rows[j] = row{state: rowEnded, attempt: r.attempt, told: commit.Refused, cancelled: true}
			c.goneData |= fileBit(j, 0) | fileBit(j, 1)
		}
		for p := range c.procs {
			pr := &c.procs[p]
			if pr.epoch != c.epoch || pr.machine == nil {
				continue
			}
			pr.machine = pr.machine.Clone()
			acts := pr.machine.Step(commit.Cancel{Token: x.units[j][0].Token, Err: errors.New("cancelled")}, c.now())
			for _, a := range acts {
				if f, ok := a.(commit.Finish); ok {
					x.tell(c, f)
				}
			}
		}
		if r.state != rowSending || c.rows[j] != r {
			out(fmt.Sprintf("job %d is cancelled", j), c)
		}
	}
}

// foreign is what others do to the table.
func (x *explorer) foreign(w *world, out emit) {
	if int(w.events) >= x.Events {
		return
	}
	for _, name := range x.Foreign {
		c := w.clone()
		c.events++
		if x.event(c, name) {
			out("others: "+name, c)
		}
	}
}

// event carries out one change by others; false when it would change nothing.
func (x *explorer) event(c *world, name string) bool {
	const main = commit.MainBranch
	id := fmt.Sprintf("f%d", c.events)
	head := c.table.heads[main]
	switch name {
	case "append":
		x.change(c, func(v *version) { v.foreign(main, id) })
	case "compaction":
		x.change(c, func(v *version) { v.compaction(main, "c"+id) })
	case "other branch":
		x.change(c, func(v *version) { v.foreign("other", id) })
	case "rollback":
		s, shown := c.table.full.snapshots[head]
		if !shown {
			return false
		}
		x.change(c, func(v *version) { v.setHead(main, s.parent) })
		c.rolledBack = true
	case "newest": // set_current_snapshot
		newest := head
		for id, s := range c.table.full.snapshots {
			if at := c.table.full.snapshots[newest].seat; s.seat > at || s.seat == at && id > newest {
				newest = id
			}
		}
		if newest == head {
			return false
		}
		x.change(c, func(v *version) { v.setHead(main, newest) })
		c.rolledBack = true
	case "replace": // other rows under a new schema, without a parent
		x.change(c, func(v *version) {
			v.setHead(main, "")
			v.foreign(main, id)
			v.addColumn()
		})
		c.rolledBack = true
	case "truncate": // CREATE OR REPLACE without rows
		x.change(c, func(v *version) { v.setHead(main, "") })
		c.rolledBack = true
	case "expire":
		if len(c.table.full.snapshots) <= len(c.table.heads) {
			return false
		}
		x.change(c, (*version).expire)
		c.expired = true
	case "add column":
		x.change(c, (*version).addColumn)
	case "drop column":
		x.change(c, (*version).dropColumn)
		c.dropped = true
	case "reset ledger":
		if c.table.ledgerText == "" {
			return false
		}
		x.change(c, func(v *version) { v.setLedger("") })
	default:
		panic("no event " + name)
	}
	return true
}

// starts seals what isn't sealed, over each choice of attempts, and starts the
// scheduler's machine over every unit that isn't settled.
func (x *explorer) starts(w *world, p int, out emit) {
	if w.procs[p].epoch != w.epoch {
		return
	}
	for choice := range 1 << x.Jobs {
		c := w.clone()
		var units []commit.Unit
		used := 0
		for j := range x.Jobs {
			r := &c.rows[j]
			if r.state == rowEnded {
				continue
			}
			a := choice >> j & 1
			if a >= x.Attempts {
				used = -1
				break
			}
			if r.state == rowOpen || x.Break.Seal {
				r.attempt = uint8(a) //nolint:gosec // 0 or 1
				r.state = max(r.state, rowSealed)
				if x.Attempts > 1 {
					c.goneData |= fileBit(j, 1-a) // the loser's
				}
			} else if a != 0 {
				used = -1 // no choice is left
				break
			}
			u := x.units[j][r.attempt]
			u.Origin = commit.Seat{Number: x.firstClock(), Pointer: "first"}
			units = append(units, u)
			used++
		}
		if used <= 0 {
			continue
		}
		var sent []commit.Request
		for _, n := range c.sends {
			if r := c.requests[n-1].Request; !r.Fence {
				sent = append(sent, r)
			}
		}
		if x.Fence && x.allSent(c) {
			f := c.clone()
			fence := commit.NewFence(units[0], strconv.Itoa(int(f.epoch)))
			pr := &f.procs[p]
			pr.machine = x.New(units, commit.Options{MaxAttempts: x.MaxAttempts, Sent: sent, Fence: &fence})
			pr.todo = pr.machine.Step(commit.Begin{}, f.now())
			out(fmt.Sprintf("%c starts with a fence", 'A'+p), f)
		}
		pr := &c.procs[p]
		pr.machine = x.New(units, commit.Options{MaxAttempts: x.MaxAttempts, Deadline: deadline, Sent: sent})
		pr.todo = pr.machine.Step(commit.Begin{}, c.now())
		out(fmt.Sprintf("%c starts with attempts %b", 'A'+p, choice), c)
	}
}

// allSent: every unit that isn't settled is past its point of no return.
func (x *explorer) allSent(w *world) bool {
	return !slices.ContainsFunc(w.rows[:x.rows()], func(r row) bool { return r.state < rowSending })
}

func (x *explorer) firstClock() int64 {
	if x.Empty {
		return 0
	}
	return 1
}

// procMoves is what one scheduler can do next.
func (x *explorer) procMoves(w *world, p int, out emit) {
	pr := &w.procs[p]
	switch {
	case pr.epoch == 0:
		return
	case pr.machine == nil:
		x.starts(w, p, out)
		return
	case len(pr.todo) == 0:
		return
	}
	do := func(step string, f func(c *world) commit.Event) {
		c := w.clone()
		ev := f(c)
		c.procs[p].checked = false
		x.step(c, p, ev)
		out(fmt.Sprintf("%c: %s", 'A'+p, step), c)
	}
	switch a := pr.todo[0].(type) {
	case commit.Read:
		x.reads(w, do)
	case commit.Permit:
		x.journaled(w, p, "permit", out, do, func(c *world) commit.Event { return x.permit(c, a) })
	case commit.Record:
		x.journaled(w, p, "record "+a.Request.ID, out, do, func(c *world) commit.Event { return x.record(c, a) })
	case commit.Finish:
		x.journaled(w, p, fmt.Sprintf("job %d is %s (-1: the fence)", x.job(a.Token), OutcomeText(a.Outcome)), out, do, func(c *world) commit.Event {
			x.tell(c, a)
			return nil
		})
	case commit.Send:
		x.sendMoves(w, number(a.Request.ID), do)
	default:
		panic(fmt.Sprintf("action %T isn't known here", a))
	}
}

// step takes the first action off the list, feeds its answer to the machine and
// carries out at once what nobody else can see.
func (x *explorer) step(c *world, p int, ev commit.Event) {
	pr := &c.procs[p]
	if pr.epoch == 0 {
		return // it has found out that it isn't in charge, and ended
	}
	pr.todo = pr.todo[1:]
	if ev == nil {
		return
	}
	pr.machine = pr.machine.Clone()
	pr.todo = pr.machine.Step(ev, c.now())
	for i := 0; i < len(pr.todo); i++ {
		switch a := pr.todo[i].(type) {
		case commit.Discard:
			c.goneMeta |= 1 << number(a.Request.ID)
			pr.todo = slices.Delete(slices.Clone(pr.todo), i, i+1)
			i--
		case commit.Build:
			rest := slices.Clone(pr.todo[:i])
			pr.todo = append(rest, pr.machine.Step(x.build(c, a), c.now())...)
			i--
		case commit.Wait: // the read after it may come at any time
			rest := slices.Clone(pr.todo[:i])
			pr.todo = append(rest, pr.machine.Step(commit.Woke{}, c.now())...)
			i--
		}
	}
}

// reads are those that one read may show.
func (x *explorer) reads(w *world, do func(string, func(*world) commit.Event)) {
	do(fmt.Sprintf("read: head %s, clock %d", orNone(w.table.heads[commit.MainBranch]), w.table.clock), func(c *world) commit.Event {
		return commit.ReadDone{Metadata: c.table}
	})
	if int(w.faults) >= x.Faults {
		return
	}
	do("read fails", func(c *world) commit.Event {
		c.faults++
		return commit.ReadDone{Err: errors.New("down")}
	})
	if x.showsPast(w) {
		do("read the past", func(c *world) commit.Event {
			c.faults++
			return commit.ReadDone{Metadata: c.prior}
		})
	}
}

// showsPast: a read may show the table as it was before its last change.
func (x *explorer) showsPast(w *world) bool {
	return w.prior != nil && int(w.faults) < x.Faults && !x.Mode.Pointer && !x.Fresh
}

// sendMoves are what may become of one copy.
func (x *explorer) sendMoves(w *world, n uint8, do func(string, func(*world) commit.Event)) {
	type fault struct {
		name              string
		apply, fly        bool
		class             commit.AnswerClass
		status            int
		permissionRefused bool
	}
	do(fmt.Sprintf("send %d", n), func(c *world) commit.Event { return commit.SendDone{Answer: x.arrive(c, n)} })
	if int(w.faults) >= x.Faults {
		return
	}
	for _, f := range []fault{
		{"is under way, timeout", false, true, commit.AnswerAmbiguous, 0, false},
		{"applied, the answer is lost", true, false, commit.AnswerAmbiguous, 0, false},
		{"answered 403", false, false, commit.AnswerPermission, 403, true},
		{"answered 409 for nothing", false, false, commit.AnswerConflict, 409, false},
		{"doubled, one is under way", true, true, "", 0, false},
	} {
		do(fmt.Sprintf("send %d: %s", n, f.name), func(c *world) commit.Event {
			c.faults++
			c.denied = c.denied || f.permissionRefused
			ans := commit.Answer{Class: f.class, Status: f.status}
			if f.apply {
				if a := x.arrive(c, n); f.class == "" {
					ans = a
				}
			}
			if f.fly {
				c.fly(n)
			}
			return commit.SendDone{Answer: ans}
		})
	}
}
