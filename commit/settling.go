package commit

import "errors"

// NewFence makes the unit of an empty commit for a table and branch. name tells
// it from every other one, for ever: a key can't be that of a job.
func NewFence(like Unit, name string) Unit {
	u := NewUnit(UnitSpec{
		Namespace: "firn", Key: "fence " + name, Number: -1, JobID: like.JobID, Table: like.Table, TableUUID: like.TableUUID,
		Branch: like.Branch, Operation: OperationFence, SchemaID: like.SchemaID, SpecID: like.SpecID,
	})
	u.LedgerFloor = &like.Origin
	return u
}

// errFenced is why a unit is refused whose requests were all shown dead.
var errFenced = errors.New("its requests can't land any more, and none has landed")

// dropFence ends the fence when nothing needs it any more. Whether a request of
// it may still land doesn't matter to anybody: it changes no row.
func (m *Machine) dropFence() {
	for _, u := range m.open() {
		if u.fence && len(m.open()) == 1 {
			o := Outcome{State: Refused}
			if len(m.live(u)) > 0 {
				o.State = Unknown
			}
			m.finish(u, o)
		}
	}
}

// unfenced ends the units that a fence was asked for, as it can't be had.
func (m *Machine) unfenced(cause error) {
	for _, u := range m.open() {
		if s := m.lastSent(u); s != nil {
			m.finish(u, Outcome{State: Unknown, Err: errUnfenced(u, s, cause)})
		} else {
			m.finish(u, Outcome{State: Refused, Reason: u.wanted.reason, Err: errRefused(u, u.wanted)})
		}
	}
}

// Settling says whether the machine has nothing left to send: each unit without
// an outcome waits for its requests to be dead, or for the deadline. Whoever runs
// it may then let other commits pass, which is what settles it: every commit
// takes a seat.
func (m *Machine) Settling() bool {
	open := m.open()
	for _, u := range open {
		if u.wanted == nil && !u.blind {
			return false
		}
	}
	return len(open) > 0
}
