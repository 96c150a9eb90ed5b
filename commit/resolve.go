package commit

import (
	"errors"
	"fmt"
	"slices"
)

// look is one read of the table together with the units that it proves not to
// have landed by then. Only lookAt makes one.
type look struct {
	meta   Metadata
	absent []*unitRun
	// blind are the units that the read doesn't show and might not show.
	blind []*unitRun
}

func (m *Machine) readDone(ev ReadDone) {
	switch {
	case errors.Is(ev.Err, ErrTableNotFound):
		m.gone(ev.Err)
	case ev.Err != nil:
		m.readFailed(ev.Err)
	case m.isStale(ev.Metadata):
		m.readFailed(errStale)
	default:
		m.lastErr = nil
		m.last = ev.Metadata
		m.decide(m.lookAt(ev.Metadata))
	}
}

// readFailed refuses at once what hasn't been sent when the catalog gives a
// reason to; otherwise the read is made again.
func (m *Machine) readFailed(err error) {
	if reason := ReasonOf(err); reason != "" {
		for _, u := range m.open() {
			if len(m.live(u)) == 0 {
				m.want(u, reason, err)
			}
		}
	}
	m.failed(err)
}

// isStale: the read is older than one from which a request was sent. Only the
// same table can be older.
func (m *Machine) isStale(meta Metadata) bool {
	return len(m.sent) > 0 && m.last != nil && m.last.UUID() == meta.UUID() &&
		firmClock(meta).Number < firmClock(m.last).Number
}

// gone: there's no table of that name any more, or it is another one.
func (m *Machine) gone(cause error) {
	m.fresh = nil
	for _, u := range m.open() {
		u.elsewhere = true
		m.want(u, ReasonTableChanged, cause)
	}
	m.tellFinal()
	m.retries++
	m.wait()
}

// lookAt looks every open unit up in one read, finishes those that it shows,
// and finds out which requests are dead.
func (m *Machine) lookAt(meta Metadata) look {
	l := look{meta: meta}
	for _, u := range m.open() {
		u.elsewhere = meta.UUID() != u.unit.TableUUID
		if u.elsewhere {
			m.want(u, ReasonTableChanged, fmt.Errorf("the table is another one now: its UUID is %s, not %s", meta.UUID(), u.unit.TableUUID))
			continue
		}
		if u.unit.Origin == (Seat{}) {
			u.unit.Origin = OriginOf(meta)
		}
		if o, ok := m.find(u, meta); ok {
			m.finishLanded(u, o)
			continue
		}
		u.blind = !m.sees(meta, u.unit.Origin.Number)
		if u.blind {
			l.blind = append(l.blind, u)
		} else {
			l.absent = append(l.absent, u)
		}
	}
	for _, s := range m.sent {
		if s.dead || !m.isPassed(s, meta) {
			continue
		}
		// A seat that was taken by something out of sight may have been taken
		// by the request itself. Then it isn't dead, and its unit is never told
		// as refused.
		s.passed = true
		if s.dead = m.sees(meta, max(s.request.Seat.Number-1, 0)); s.dead && !s.landedIn(meta) {
			m.emit(Discard{s.request})
		}
	}
	return l
}

// find looks for a unit everywhere that a read can show it, best evidence
// first, and tells how it was found in the outcome.
func (m *Machine) find(u *unitRun, meta Metadata) (Outcome, bool) {
	if l, ok := meta.Find(u.unit.Branch, u.unit.Token); ok && (l.InHead || !m.opts.ablate.headOnly) {
		return Outcome{Landed: l}, true
	}
	if l, ok := m.bySnapshot(u, meta); ok && !m.opts.ablate.noSnapshotIDs {
		return Outcome{Landed: l, TokenStripped: true}, true
	}
	if l, ok := FindToken(meta, u.unit.Branch, u.unit.Token); ok && l.SnapshotID == "" && !m.opts.ablate.noLedger {
		return Outcome{Landed: l, LedgerOnly: true}, true
	}
	return Outcome{}, false
}

// bySnapshot finds a unit by the snapshot that a request of ours would have
// added: a catalog may drop or cut what stands in a summary.
func (m *Machine) bySnapshot(u *unitRun, meta Metadata) (Landed, bool) {
	for _, s := range m.sent {
		if slices.Contains(s.units, u) && s.request.SnapshotID != "" && meta.HasSnapshot(s.request.SnapshotID) {
			inHead := meta.Head(u.unit.Branch) == s.request.SnapshotID
			if m.opts.ablate.headOnly && !inHead {
				continue
			}
			return Landed{
				Token: u.unit.Token, Digest: u.unit.Digest, SnapshotID: s.request.SnapshotID, Seat: s.request.Seat,
				InHead: inHead, Rows: u.unit.Rows, Files: int64(u.unit.Files.Len()), Bytes: u.unit.Bytes, CommittedAt: m.now,
			}, true
		}
	}
	return Landed{}, false
}

func (m *Machine) sees(meta Metadata, since int64) bool {
	return m.opts.ablate.noOrigin || Sees(meta, since)
}

// isPassed: the seat of the request was taken, so it can't land any more. The
// seat of a request without one never is. A table with another UUID says
// nothing about the seats of the first one.
func (m *Machine) isPassed(s *sentRun, meta Metadata) bool {
	for _, u := range s.units {
		if u.unit.TableUUID != meta.UUID() {
			return false
		}
	}
	seat, clock := s.request.Seat, firmClock(meta)
	if m.opts.ablate.shakySeats {
		clock = meta.Clock()
	}
	if m.opts.ablate.movedIsDead && meta.Head(s.request.Branch) != s.request.Head {
		return true
	}
	return seat.Pointer != "" && clock.Pointer != seat.Pointer || seat.Number > 0 && clock.Number >= seat.Number
}

// landedIn: the read shows the request's snapshot, or its tokens at its seat.
func (s *sentRun) landedIn(meta Metadata) bool {
	if s.request.SnapshotID != "" && meta.HasSnapshot(s.request.SnapshotID) {
		return true
	}
	for _, t := range s.request.Tokens {
		l, ok := FindToken(meta, s.request.Branch, t)
		if ok && (l.SnapshotID == s.request.SnapshotID || l.SnapshotID == "" && l.Seat.Number == s.request.Seat.Number) {
			return true
		}
	}
	return false
}

// decide is what happens after each read that succeeded.
func (m *Machine) decide(l look) {
	if s := m.fresh; s != nil {
		m.fresh = nil
		if m.opts.ablate.fenceSpeaks && s.units[0].fence {
			m.killAll()
		}
		m.answered(s, l.meta)
	}
	for _, u := range l.absent {
		if u.wanted != nil {
			continue
		}
		if err := m.check(u, l.meta); err != nil {
			reason := ReasonOf(err)
			if reason == "" {
				reason = ReasonTableChanged
			}
			m.want(u, reason, err)
			continue
		}
		if u.unit.Files.Len() == 0 && !u.fence {
			m.finishEmpty(u)
			continue
		}
		if u.attempts >= m.opts.MaxAttempts || m.overdue() {
			m.want(m.spent(u))
		}
	}
	for _, u := range l.blind {
		m.giveUp(u)
	}
	m.tellFinal()
	m.dropFence()
	batch := m.nextBatch(l)
	switch {
	case m.allDone():
		m.state = stateDone
	case len(batch) == 0, m.pause: // wait for requests to die, or before the next try
		m.retries++
		m.wait()
	default:
		m.build(l, batch)
	}
}

// check says whether the unit may be committed to the table as it is.
func (m *Machine) check(u *unitRun, meta Metadata) error {
	if n, ok := meta.(Unseated); ok && !u.unit.Operation.commutes() && !m.opts.ablate.noSeatNeeded {
		if why := n.NoSeat(u.unit.Branch); why != "" {
			return errNoSeat(u.unit, why)
		}
	}
	if u.fence {
		return nil // it brings no files
	}
	return meta.CheckUnit(u.unit)
}

// giveUp ends a unit that the read doesn't reach back to, unless a request of
// it may still land and show up. Nothing is built for it meanwhile.
func (m *Machine) giveUp(u *unitRun) {
	under := slices.ContainsFunc(m.live(u), func(s *sentRun) bool { return !s.passed })
	switch {
	case u.unit.Files.Len() == 0:
		m.finishEmpty(u)
	case u.attempts == 0 && !u.sentBefore:
		m.want(u, ReasonLimit, errKeyTooOld(u.unit.Key, errBlind))
	case !under || m.overdue():
		m.finish(u, Outcome{State: Unknown, Err: errUnknown(u, m.lastSent(u), errBlind)})
	}
}

// answered takes in what a send came back with, now that the table was read
// again. The units that landed are finished already.
func (m *Machine) answered(s *sentRun, meta Metadata) {
	var open []*unitRun
	for _, u := range s.units {
		if !u.done {
			open = append(open, u)
		}
	}
	if len(open) == 0 {
		m.retries = 0
		return
	}
	if s.dead {
		for _, u := range open {
			u.conflicts++
		}
	}
	if moved(s.base, meta, s.units[0].unit.Branch) {
		// Somebody else was faster: at once the first time, then with a pause,
		// so that many writers don't march in step.
		m.pause = m.retries > 0
		m.retries = max(m.retries, 1)
		return
	}
	switch s.answer.Class {
	case AnswerPermission, AnswerRejected:
		if len(s.units) > 1 && !m.opts.ablate.noSplit {
			m.split(open)
			return
		}
		for _, u := range open {
			m.want(u, reasonOf(s.answer), answerError(s.answer))
		}
	case AnswerWait:
		m.pause, m.retries = true, max(m.retries, 3)
	default:
		m.pause = true
	}
}

// moved: anything that a request asserts or claims is different.
func moved(base, meta Metadata, branch string) bool {
	return base.UUID() != meta.UUID() || base.Head(branch) != meta.Head(branch) || base.Clock() != meta.Clock() ||
		base.SchemaID() != meta.SchemaID() || base.SpecID() != meta.SpecID()
}

func reasonOf(a Answer) Reason {
	switch {
	case a.Class == AnswerPermission:
		return ReasonPermission
	case a.Status == 404:
		return ReasonTableChanged
	case a.Status == 413:
		return ReasonLimit
	default:
		return ReasonValidation
	}
}

// split puts the units into two batches, which go next.
func (m *Machine) split(units []*unitRun) {
	half := (len(units) + 1) / 2
	for i, g := range m.groups {
		m.groups[i] = slices.DeleteFunc(g, func(u *unitRun) bool { return slices.Contains(units, u) })
	}
	m.groups = slices.Insert(m.groups, 0, slices.Clone(units[:half]), slices.Clone(units[half:]))
}

// nextBatch picks the units for the next request: of the first group that has
// any, those that may share a request with its first one.
func (m *Machine) nextBatch(l look) []*unitRun {
	for len(m.groups) > 0 {
		var batch []*unitRun
		for _, u := range m.groups[0] {
			if u.done || u.wanted != nil || !slices.Contains(l.absent, u) {
				continue
			}
			if len(batch) == 0 || sharesRequest(batch[0].unit, u.unit) {
				batch = append(batch, u)
			}
		}
		if len(batch) > 0 {
			return batch
		}
		if len(m.groups) == 1 {
			return nil
		}
		m.groups = m.groups[1:]
	}
	return nil
}

func sharesRequest(a, b Unit) bool {
	return a.Operation.commutes() && b.Operation.commutes() &&
		a.Branch == b.Branch && a.SchemaID == b.SchemaID && a.SpecID == b.SpecID
}

// live are the requests of a unit that may still land.
func (m *Machine) live(u *unitRun) []*sentRun {
	var live []*sentRun
	for _, s := range m.sent {
		if !s.dead && slices.Contains(s.units, u) {
			live = append(live, s)
		}
	}
	return live
}

// answeredFor: the catalog has answered the copy, and its answer says that it
// didn't apply it and won't. A 409 doesn't say so: some catalogs answer it while
// the same copy, or one that something on the way made of it, is at work.
func answeredFor(s *sentRun) bool {
	switch s.answer.Class {
	case AnswerPermission, AnswerRejected, AnswerAuth:
		return true
	case AnswerWait:
		return s.answer.Status == 429
	default:
		return false
	}
}

// want notes a refusal; the first one counts.
func (m *Machine) want(u *unitRun, reason Reason, cause error) {
	if u.wanted == nil {
		u.wanted = &refusal{reason: reason, err: cause}
	}
}

// tellFinal finishes the units whose refusal is final, and past the deadline
// those that can't be settled as unknown. It must follow a look or a failed
// read, so that live is up to date or errs on the side of alive.
func (m *Machine) tellFinal() {
	for _, u := range m.open() {
		if u.wanted == nil {
			continue
		}
		live := m.live(u)
		switch {
		case u.blind && (u.attempts > 0 || u.sentBefore): // what became of it is out of sight
			m.giveUp(u)
		case m.isTold(u, live):
			m.finish(u, Outcome{
				State: Refused, Reason: u.wanted.reason, Quarantine: len(live) > 0,
				Err: errRefused(u, u.wanted),
			})
		case m.overdue():
			m.finish(u, Outcome{State: Unknown, Err: errUnknown(u, live[len(live)-1], m.lastErr)})
		}
	}
}

// isTold: nothing that may still land speaks against a refusal. When the table
// is another one now, an only copy that was answered 409 doesn't either: it
// asserts the first table's UUID, so it could land only if that table came back
// under its name, and its files are kept for that.
func (m *Machine) isTold(u *unitRun, live []*sentRun) bool {
	if m.opts.ablate.notDead || len(live) == 0 {
		return true
	}
	if m.opts.ablate.anyAnswer {
		return answeredFor(live[len(live)-1])
	}
	if (m.opts.ablate.conflictSpeaks || u.elsewhere) && len(live) == 1 && live[0].answer.Class == AnswerConflict {
		return true
	}
	return !slices.ContainsFunc(live, func(s *sentRun) bool { return !answeredFor(s) })
}

// finishLanded tells a unit as committed. Another digest means that another
// submission of the key put it there; the ledger doesn't keep the digest.
func (m *Machine) finishLanded(u *unitRun, o Outcome) {
	o.State = Committed
	o.OtherSubmission = !o.LedgerOnly && o.Landed.Digest != u.unit.Digest
	o.Deduplicated = o.OtherSubmission || (u.attempts == 0 && !u.sentBefore) || o.LedgerOnly && !m.mayHold(u, o.Landed.Seat)
	o.RolledBack = !o.LedgerOnly && !o.TokenStripped && o.Landed.SnapshotID != "" && !o.Landed.InHead
	m.finish(u, o)
}

// mayHold says whether a request of the unit may have taken the seat. Requests that were
// lost with a journal have one above all that they can have taken.
func (m *Machine) mayHold(u *unitRun, seat Seat) bool {
	return slices.ContainsFunc(m.sent, func(s *sentRun) bool {
		return slices.Contains(s.units, u) && (seat.Number == 0 || s.request.Seat.Number == 0 || s.request.Seat.Number >= seat.Number)
	})
}

// finishEmpty: a statement that selected no rows has nothing to add.
func (m *Machine) finishEmpty(u *unitRun) {
	m.finish(u, Outcome{State: Committed, Landed: Landed{
		Token: u.unit.Token, Digest: u.unit.Digest, InHead: true, CommittedAt: m.now,
	}})
}

func (m *Machine) finish(u *unitRun, o Outcome) {
	u.done = true
	o.Attempts, o.Conflicts = u.attempts, u.conflicts
	m.emit(Finish{Token: u.unit.Token, Outcome: o})
	if u.fence && o.State == Refused && o.Err != nil {
		m.unfenced(o.Err)
	}
}

// spent is the refusal to want when the budget is spent.
func (m *Machine) spent(u *unitRun) (*unitRun, Reason, error) {
	last := m.lastSent(u)
	switch {
	case last == nil && m.unsent != nil:
		return u, ReasonBudget, fmt.Errorf("the time for this commit passed before anything could be sent: %w", m.unsent)
	case last == nil:
		return u, ReasonBudget, errors.New("the time for this commit passed before anything could be sent")
	case last.dead:
		return u, ReasonBudget, errors.New("other commits to the table were always faster")
	case last.answer.Class == AnswerAuth:
		return u, ReasonPermission, answerError(last.answer)
	default:
		return u, ReasonBudget, answerError(last.answer)
	}
}

// lastSent is the latest request that named a unit; nil for none.
func (m *Machine) lastSent(u *unitRun) *sentRun {
	var last *sentRun
	for _, s := range m.sent {
		if slices.Contains(s.units, u) {
			last = s
		}
	}
	return last
}
