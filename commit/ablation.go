package commit

// ablation breaks parts of the protocol, one at a time. Only tests can set it: they
// show that the exploration of committest finds what each part prevents. The
// zero value is the protocol.
type ablation struct {
	// headOnly looks for tokens in the history of the branch's head only.
	headOnly bool
	// noSnapshotIDs doesn't look for the snapshots of the machine's own requests.
	noSnapshotIDs bool
	// noLedger doesn't look into the ledger, though its horizon is believed.
	noLedger bool
	// noOrigin takes every read to show everything.
	noOrigin bool
	// noRecord sends without a send record.
	noRecord bool
	// lateCancel lets a cancel win after the point of no return.
	lateCancel bool
	// movedIsDead takes a request for dead when the branch has moved.
	movedIsDead bool
	// notDead tells a refusal as soon as it is wanted.
	notDead bool
	// anyAnswer takes a 4xx to one copy for an answer to all of the unit's.
	anyAnswer bool
	// conflictSpeaks takes a 409 for an answer to the only copy.
	conflictSpeaks bool
	// noSplit takes the refusal of a batch for that of each of its units.
	noSplit bool
	// twins lets one token stand twice in a request.
	twins bool
	// noSeatNeeded lets an overwrite go to a table without seats.
	noSeatNeeded bool
	// fenceSpeaks takes every request for dead once a fence was sent, whether its
	// seat is seen to be taken or not.
	fenceSpeaks bool
	// shakySeats counts seats as taken for good that the catalog may take back.
	shakySeats bool
}

func (m *Machine) killAll() {
	for _, s := range m.sent {
		s.passed, s.dead = true, true
	}
}
