package commit

import (
	"errors"
	"slices"
	"time"
)

// Machine drives a batch of commit units for one table to their outcomes. It
// is pure: it asks for effects (Action), is told what they came back with
// (Event), and never acts itself. Whoever runs it carries out the actions in
// order and feeds back each answer; killing it at any point loses nothing but
// its time, as all it needs to know stands in the table and in the send
// records (Options.Sent).
//
// # Why a unit lands at most once
//
// A request is built in one place (build), from one value of type look. A look
// is made in one place (lookAt), from one read of the table, and holds exactly
// the units whose tokens that read doesn't show anywhere: in any snapshot, on
// any branch, rolled back or staged, nor in a snapshot that a request of ours
// would have added. So there is no request for a token without that token
// having been looked for in the read that the request is built from.
//
// The request claims the seat that follows that read, and the table gives each
// seat away once, for ever. Take two requests that both carry token T, whoever
// built them: this machine, a restarted one, or one in another process that
// was thought dead. If they claim the same seat, at most one gets it. If one
// claims a higher seat, it was built from a read that showed the lower seat
// taken, by something without T; so the lower request can't land any more.
// Either way only one of them lands, however late its copy arrives. Nothing
// here rests on a lease, a clock, a lock, or on the answers of the catalog.
//
// "Doesn't show" is taken literally only as far as the read reaches back: to
// the origin of the unit, the seat at which its key was first accepted, by
// snapshots or by the table's ledger (Sees). A unit that the read doesn't show
// and whose origin lies further back is blind: it may have landed and be out of
// sight. A look leaves it out, so no request is built for it, and it is told
// neither as committed nor, once it was sent, as refused. If it never was, the
// key is refused as too old: that says nothing about what an earlier submission
// of the key did, and the error says so.
//
// # Why refused means refused
//
// The branch's head proves nothing about an old request: heads come back after
// a rollback. A request can't land any more when it is dead, that is when a
// read shows its seat taken and who took it; and if that read shows neither its
// tokens nor its snapshot, it never did land. A refusal that this machine wants is therefore
// held back while any request of the unit is alive, and told when all are dead.
// Until then the unit is unknown, and unknown is what it ends as when the
// deadline passes first.
//
// One exception is made for people who wait: when the catalog has answered the
// only copy with a 4xx and nothing moved, that is told at once, marked
// Quarantine: the files stay until the request is dead. An answer to a batch
// is nobody's refusal; the batch is split until it is one unit's.
//
// # What every answer leads to
//
// After a send the table is read again, whatever the answer was: the answer
// only chooses what happens when that read shows that nothing moved. A 409 and
// a 200 are treated alike when the table says that the seat went to somebody
// else, or that it is ours.
//
// # Tables without seats
//
// A request that claims no seat (see Request.Seat) never is dead by these rules,
// so nothing of the above needs to know of such tables: a unit with such a
// request that wasn't answered ends as committed or as unknown, never as
// refused, and its files stay. What is lost there is only "in the table's life": the
// token lands at most once in one history of the branch. That isn't enough for
// operations that remove anything, so those are refused there.
//
// A Machine is used by one goroutine.
type Machine struct {
	opts  Options
	units []*unitRun
	// groups are the units still to be sent, by the batches that they go out
	// in, next first.
	groups [][]*unitRun
	sent   []*sentRun
	state  state
	// current is the request that is built, recorded or sent; fresh is set
	// from its answer until the read after it.
	current *sentRun
	fresh   *sentRun
	// last is the latest read.
	last Metadata
	// failures counts reads, builds and records that failed since a request was
	// last recorded: a table that can be read but not built on is given up, too.
	failures int
	lastErr  error
	// unsent is why the latest request couldn't be made, for the message only.
	unsent error
	// pause asks for a wait before the next request, with retries scaling it.
	pause   bool
	retries int
	rng     uint64
	now     time.Time
	out     []Action
}

// Options of a Machine.
type Options struct {
	// MaxAttempts bounds the requests sent for one unit; 20 when 0.
	MaxAttempts int
	// Deadline is when the machine stops trying; no limit when zero.
	Deadline time.Time
	// MinWait and MaxWait bound the pauses between attempts, which double from
	// the one to the other with jitter; 50 ms and 5 s when 0.
	MinWait, MaxWait time.Duration
	// Seed is where the jitter comes from. Machines that compete for a table
	// must not share it.
	Seed uint64
	// Sent are the send records of earlier runs of these units. Each counts as
	// possibly under way, until it's dead.
	Sent []Request
	// Fence is the unit of an empty commit (NewFence), nil for none. With it the
	// machine builds and sends nothing for its other units. When a read proves
	// nothing of one of them, the fence goes out as a request like any other, and
	// once the table shows that its seat is taken, by the fence or by somebody
	// else's commit, their requests are dead. It is dropped when nothing is left
	// that needs it. Its outcome is told like that of any unit.
	Fence *Unit

	ablate ablation // set by tests only
}

type state uint8

const (
	stateIdle state = iota
	stateReading
	stateBuilding
	statePermitting
	stateRecording
	stateSending
	stateWaiting
	stateDone
)

// unitRun is one unit on its way.
type unitRun struct {
	unit      Unit
	done      bool
	permitted bool
	// wanted is the refusal that will be told once it is final.
	wanted    *refusal
	attempts  int
	conflicts int
	// sentBefore: a request of an earlier run named it.
	sentBefore bool
	// elsewhere: the last read showed another table of the name, or none.
	elsewhere bool
	// blind: the last read doesn't reach back to the unit's origin.
	blind bool
	// fence: it is Options.Fence.
	fence bool
}

type refusal struct {
	reason Reason
	err    error
}

// sentRun is a request that may be on its way to the table.
type sentRun struct {
	request Request
	base    Metadata
	units   []*unitRun
	answer  Answer
	// passed: its seat was taken, so it can't land any more. dead: and not by
	// itself. Both stay so.
	passed, dead bool
}

// NewMachine returns a machine for the units, which belong to one table and
// have different tokens. Those of one branch, schema, spec and operation go out
// together.
func NewMachine(units []Unit, opts Options) *Machine {
	if opts.MaxAttempts <= 0 {
		opts.MaxAttempts = 20
	}
	if opts.MinWait <= 0 {
		opts.MinWait = 50 * time.Millisecond
	}
	if opts.MaxWait <= 0 {
		opts.MaxWait = 5 * time.Second
	}
	m := &Machine{opts: opts, rng: opts.Seed}
	byToken := map[Token]*unitRun{}
	for _, u := range units {
		if byToken[u.Token] != nil && !opts.ablate.twins {
			continue // one token is one unit
		}
		r := &unitRun{unit: u}
		byToken[u.Token] = r
		m.units = append(m.units, r)
	}
	if f := opts.Fence; f != nil {
		for _, u := range m.units {
			m.want(u, ReasonBudget, errFenced)
		}
		m.units = append(m.units, &unitRun{unit: *f, fence: true})
	}
	m.groups = [][]*unitRun{slices.Clone(m.units)}
	for _, r := range opts.Sent {
		s := &sentRun{request: r, answer: Answer{Class: AnswerAmbiguous}}
		for _, t := range r.Tokens {
			if u := byToken[t]; u != nil {
				u.permitted, u.sentBefore = true, true
				u.origin(r.Seat)
				s.units = append(s.units, u)
			}
		}
		m.sent = append(m.sent, s)
	}
	return m
}

// Done says whether every unit has its outcome and no answer is awaited.
func (m *Machine) Done() bool { return m.state == stateDone }

// Permitted says whether the unit has passed its point of no return.
func (m *Machine) Permitted(t Token) bool {
	for _, u := range m.units {
		if u.unit.Token == t {
			return u.permitted
		}
	}
	return false
}

// Step takes in one event and returns what to do, in order. An event that
// answers no action that is awaited changes nothing.
func (m *Machine) Step(ev Event, now time.Time) []Action {
	m.now, m.out = now, nil
	switch ev := ev.(type) {
	case Begin:
		if m.await(stateIdle) {
			m.read()
		}
	case ReadDone:
		if m.await(stateReading) {
			m.readDone(ev)
		}
	case BuildDone:
		if m.await(stateBuilding) {
			m.buildDone(ev)
		}
	case Permitted:
		if m.await(statePermitting) {
			m.permitDone(ev)
		}
	case RecordDone:
		if m.await(stateRecording) {
			m.recordDone(ev)
		}
	case SendDone:
		if m.await(stateSending) {
			m.current.answer = ev.Answer
			m.fresh, m.current = m.current, nil
			m.read()
		}
	case Woke:
		if m.await(stateWaiting) {
			m.read()
		}
	case Cancel:
		m.cancel(ev)
	}
	out := m.out
	m.out = nil
	return out
}

func (m *Machine) await(s state) bool { return m.state == s }

func (m *Machine) emit(a Action) { m.out = append(m.out, a) }

func (m *Machine) read() {
	if m.allDone() {
		m.state = stateDone
		return
	}
	m.state = stateReading
	m.emit(Read{})
}

func (m *Machine) allDone() bool {
	return !slices.ContainsFunc(m.units, func(u *unitRun) bool { return !u.done })
}

// cancel stops a unit that may still be stopped. A request that was built for
// it is thrown away when the awaited answer is in.
func (m *Machine) cancel(ev Cancel) {
	for _, u := range m.units {
		if u.unit.Token == ev.Token && !u.done && (!u.permitted || m.opts.ablate.lateCancel) {
			m.stop(u, ev.Err)
		}
	}
	if (m.state == stateIdle || m.state == stateWaiting || m.state == stateReading) && m.allDone() {
		m.state = stateDone
	}
}

func (m *Machine) stop(u *unitRun, cause error) {
	m.finish(u, Outcome{State: Refused, Err: errStopped(u.unit, cause)})
}

// build asks for one request for units of the look. It is the only place that
// does; see the argument on the type.
func (m *Machine) build(l look, units []*unitRun) {
	m.current = &sentRun{base: l.meta, units: units}
	b := Build{Base: l.meta}
	floor := m.ledgerFloor()
	for _, u := range units {
		unit := u.unit
		unit.LedgerFloor = &floor
		b.Units = append(b.Units, unit)
	}
	m.state = stateBuilding
	m.emit(b)
}

// ledgerFloor is the lowest origin of all units that aren't done.
func (m *Machine) ledgerFloor() Seat {
	var floor Seat
	for i, u := range m.open() {
		if i == 0 || u.unit.Origin.Number < floor.Number {
			floor = u.unit.Origin
		}
		if f := u.unit.LedgerFloor; f != nil && f.Number < floor.Number {
			floor = *f
		}
	}
	return floor
}

// origin makes the most of a unit whose origin isn't known: it is before the
// seat of every request that was sent for it.
func (u *unitRun) origin(sent Seat) {
	if n := sent.Number - 1; n >= 0 && (u.unit.Origin == (Seat{}) || n < u.unit.Origin.Number) {
		u.unit.Origin = Seat{Number: n, Pointer: "sent"}
	}
}

func (m *Machine) buildDone(ev BuildDone) {
	s := m.current
	if ev.Err != nil {
		m.current = nil
		m.buildFailed(s, ev.Err)
		return
	}
	s.request = ev.Request
	s.request.Fence = s.units[0].fence
	if m.dropIfStopped() {
		return
	}
	var ask []Token
	for _, u := range s.units {
		if !u.permitted {
			ask = append(ask, u.unit.Token)
		}
	}
	if len(ask) == 0 {
		m.record()
		return
	}
	m.state = statePermitting
	m.emit(Permit{Tokens: ask})
}

// buildFailed refuses the unit when the error gives a reason to, and tries
// again otherwise.
func (m *Machine) buildFailed(s *sentRun, err error) {
	reason := ReasonOf(err)
	switch {
	case reason == "":
		m.failed(err)
		return
	case len(s.units) > 1:
		m.split(s.units)
	default:
		m.want(s.units[0], reason, err)
	}
	m.read()
}

func (m *Machine) permitDone(ev Permitted) {
	for _, u := range m.current.units {
		if err, denied := ev.Denied[u.unit.Token]; denied {
			if !u.permitted && !u.done {
				m.stop(u, err)
			}
			continue
		}
		u.permitted = true
	}
	if !m.dropIfStopped() {
		m.record()
	}
}

// dropIfStopped throws the built request away when a unit in it was stopped:
// a request carries all of its units or isn't sent.
func (m *Machine) dropIfStopped() bool {
	if !slices.ContainsFunc(m.current.units, func(u *unitRun) bool { return u.done }) {
		return false
	}
	m.emit(Discard{m.current.request})
	m.current = nil
	m.read()
	return true
}

func (m *Machine) record() {
	if m.opts.ablate.noRecord {
		m.recordDone(RecordDone{})
		return
	}
	m.state = stateRecording
	m.emit(Record{m.current.request})
}

func (m *Machine) recordDone(ev RecordDone) {
	s := m.current
	if ev.Err != nil {
		m.current = nil
		m.emit(Discard{s.request})
		m.failed(ev.Err)
		return
	}
	m.failures = 0
	for _, u := range s.units {
		u.attempts++
	}
	m.sent = append(m.sent, s)
	m.state = stateSending
	m.emit(Send{s.request})
}

// failed handles an effect that failed without having changed anything: try
// again later, as long as the budget lasts.
func (m *Machine) failed(err error) {
	m.failures++
	m.lastErr, m.unsent = err, err
	for _, u := range m.open() {
		// What was sent may have landed: only the deadline ends the asking.
		if m.overdue() || (m.failures >= m.opts.MaxAttempts && len(m.live(u)) == 0) {
			m.want(u, ReasonBudget, err)
		}
	}
	m.tellFinal()
	m.retries++
	m.wait()
}

func (m *Machine) overdue() bool {
	return !m.opts.Deadline.IsZero() && !m.now.Before(m.opts.Deadline)
}

func (m *Machine) open() []*unitRun {
	var open []*unitRun
	for _, u := range m.units {
		if !u.done {
			open = append(open, u)
		}
	}
	return open
}

// errStale: a read older than what this machine has seen before it sent.
var errStale = errors.New("the catalog answered with an older state of the table than before")
