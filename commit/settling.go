package commit

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
