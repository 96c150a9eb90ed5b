package committest

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/firn-project/firn/commit"
)

const tableUUID = "uuid-explored"

// world is one state of an exploration. It is changed only by who has just
// cloned it; what its slices and pointers lead to is never changed, machines
// apart, which are cloned before each step.
type world struct {
	table, prior *sight // the table now, and before its last change
	rows         [2]row
	procs        [2]proc
	epoch        uint8
	// requests are all that were built, numbered from 1; sends are the send
	// records, air the copies under way, both by number.
	requests   []*built
	sends, air []uint8
	landed     uint32   // requests that landed, a bit each
	times      [2]uint8 // how often each job's token landed
	goneMeta   uint32   // requests whose metadata files were deleted
	goneData   uint8    // data files that were deleted: job*2+attempt
	faults     uint8
	takeovers  uint8
	events     uint8
	late       bool
	rolledBack bool // others took snapshots away from the branch
	expired    bool
	dropped    bool // others dropped a column
	denied     bool // somebody was answered 403
	broke      string
	misfits    uint8
}

// sight is one version of the table: what reads show of it, and all of it.
type sight struct {
	metadata
	full version
	code []byte
}

// built is one request.
type built struct {
	commit.Request
	files uint8 // data files in it, as in goneData
	twice bool  // a token stands in it twice
	code  []byte
}

type rowState uint8

const (
	rowOpen rowState = iota
	rowSealed
	rowSending
	rowEnded
)

// row is the journal's row of a unit.
type row struct {
	state   rowState
	attempt uint8
	told    commit.State
	reason  commit.Reason
	// tooOld: refused because nobody remembers the key.
	tooOld, quarantine, cancelled bool
}

func (r row) text() string {
	switch {
	case r.cancelled:
		return "cancelled"
	case r.quarantine:
		return "refused " + string(r.reason) + " (quarantine)"
	case r.told == commit.Refused:
		return "refused " + string(r.reason)
	case r.told == "":
		return "nothing"
	}
	return string(r.told)
}

// proc is one scheduler. It is idle while epoch is 0.
type proc struct {
	epoch   uint8
	machine *commit.Machine
	todo    []commit.Action
	// checked: it has found its epoch current, for Break.Epoch.
	checked bool
}

func (x *explorer) first() *world {
	v := newVersion(tableUUID)
	if !x.Empty {
		v.foreign(commit.MainBranch, "f0")
	}
	w := &world{epoch: 1, table: x.look(v)}
	w.procs[0].epoch = 1
	return w
}

func (x *explorer) look(v version) *sight {
	s := &sight{metadata: v.read(x.Mode), full: v}
	b := binary.AppendVarint(nil, v.clock)
	b = append(b, v.pointer...)
	for _, k := range slices.Sorted(maps.Keys(v.heads)) {
		b = append(b, "|"+k+"="+v.heads[k]...)
	}
	for _, id := range slices.Sorted(maps.Keys(v.snapshots)) {
		b = append(b, "|"+id+"<"+v.snapshots[id].parent...)
		b = binary.AppendVarint(b, v.snapshots[id].seat)
	}
	b = binary.AppendVarint(b, int64(v.schemaID))
	b = binary.AppendVarint(b, int64(len(v.schemas[v.schemaID])))
	s.code = append(b, v.ledgerText...)
	return s
}

// change puts a new version in place of the table.
func (x *explorer) change(w *world, f func(v *version)) {
	v := w.table.full.clone()
	f(&v)
	if x.Mode.Pointer {
		n, _ := strconv.Atoi(v.pointer)
		v.pointer = strconv.Itoa(n + 1)
	}
	w.prior, w.table = w.table, x.look(v)
}

func (w *world) clone() *world {
	c := *w
	return &c
}

func readCode(b []byte, m commit.Metadata) []byte {
	if s, ok := m.(*sight); ok {
		return append(b, s.code...)
	}
	return b
}

// encode is everything that decides what can happen next.
func (x *explorer) encode(w *world, b []byte) []byte {
	b = append(b, w.table.code...)
	b = append(b, 0xff)
	if x.showsPast(w) {
		b = append(b, w.prior.code...)
	}
	b = append(b, 0xff, w.epoch, w.faults, w.takeovers, w.events, w.times[0], w.times[1], w.goneData, w.misfits,
		bits(w.late, w.rolledBack, w.expired, w.dropped, w.denied))
	b = binary.LittleEndian.AppendUint32(b, w.landed)
	b = binary.LittleEndian.AppendUint32(b, w.goneMeta)
	for _, r := range w.rows {
		b = append(b, byte(r.state), r.attempt, bits(r.tooOld, r.quarantine, r.cancelled))
		b = append(append(append(b, r.told...), ' '), r.reason...)
	}
	for _, q := range w.requests {
		b = append(append(b, 0xff), q.code...)
	}
	b = append(append(b, 0xff), w.sends...)
	b = append(append(b, 0xff), w.air...)
	for _, p := range w.procs {
		b = append(b, 0xff, p.epoch, bits(p.checked, p.machine != nil))
		if len(p.todo) == 0 {
			continue // it is done, or never began
		}
		b = p.machine.AppendState(b, readCode)
		for _, a := range p.todo {
			b = append(b, actionCode(a)...)
		}
	}
	return append(b, w.broke...)
}

func actionCode(a commit.Action) string {
	switch a := a.(type) {
	case commit.Read:
		return "R"
	case commit.Permit:
		return "P"
	case commit.Record:
		return "J" + a.Request.ID
	case commit.Send:
		return "S" + a.Request.ID
	case commit.Finish:
		o := a.Outcome
		o.Attempts, o.Conflicts = 0, 0 // nobody acts on the counts
		return "F" + string(a.Token[:]) + OutcomeText(o) + string(commit.CodeOf(o.Err))
	default:
		return "?"
	}
}

func bits(bs ...bool) (f byte) {
	for i, on := range bs {
		if on {
			f |= 1 << i
		}
	}
	return f
}

// job is the number of the job that a token belongs to, -1 for that of a fence.
func (x *explorer) job(t commit.Token) int {
	for j := range x.Jobs {
		if x.units[j][0].Token == t {
			return j
		}
	}
	return -1
}

func fileBit(job, attempt int) uint8 { return 1 << (job*2 + attempt) }

// dataFiles are the data files of a unit.
func (x *explorer) dataFiles(u commit.Unit) uint8 {
	for j := range x.units {
		for a := range x.units[j] {
			if x.units[j][a].JobID == u.JobID && x.units[j][a].Digest == u.Digest {
				return fileBit(j, a)
			}
		}
	}
	return 0
}

// build carries a Build out.
func (x *explorer) build(w *world, a commit.Build) commit.BuildDone {
	n := len(w.requests) + 1
	base, ok := a.Base.(*sight)
	if !ok {
		w.broke = "a request is built from no read"
		return commit.BuildDone{}
	}
	for _, u := range a.Units {
		if u.Claim == nil || x.Break.Conflicts {
			continue
		}
		if err := commit.CheckConflicts(u, base.changes(u.Branch, u.Claim.Base.Number)); err != nil {
			return commit.BuildDone{Err: err}
		}
	}
	q := &built{Request: base.build(strconv.Itoa(n), a.Units)}
	q.Fence = a.Units[0].Operation == commit.OperationFence
	p := q.Payload.(*payload)
	tokens := map[commit.Token]bool{}
	for _, u := range a.Units {
		q.files |= x.dataFiles(u)
		q.twice = q.twice || tokens[u.Token]
		tokens[u.Token] = true
	}
	q.code = fmt.Appendf(nil, "%s/%d/%d/%d/%s", p.head, p.seat, p.schemaID, q.files, p.ledger)
	w.requests = append(slices.Clip(w.requests), q)
	return commit.BuildDone{Request: q.Request}
}

func number(id string) uint8 {
	n, _ := strconv.Atoi(id[1:])
	return uint8(n) //nolint:gosec // a run builds few requests
}

// arrive lets a copy of a request reach the table.
func (x *explorer) arrive(w *world, n uint8) commit.Answer {
	q := w.requests[n-1]
	p := q.Payload.(*payload)
	for _, u := range p.units {
		if x.Poison > 0 && u.JobID == x.units[x.Poison-1][0].JobID {
			return *answer(commit.AnswerRejected, 400, "poisoned")
		}
	}
	head := w.table.heads[p.branch]
	next, misfits, ans := w.table.full.apply(x.Mode, p)
	if ans.Class != commit.AnswerOK {
		return ans
	}
	if head != p.head && !x.Mode.TakesBack {
		w.broke = "I8: a commit of somebody else was put aside"
	}
	if x.Claims && (head == "" || w.table.full.snapshots[head].seat != x.firstClock()) {
		w.broke = "I8: an overwrite of all that it read left rows beside it that it didn't read"
	}
	if q.twice {
		w.broke = "I1: one snapshot holds a unit twice"
	}
	w.misfits += uint8(misfits) //nolint:gosec // few
	x.change(w, func(v *version) { *v = next })
	w.landed |= 1 << n
	for _, t := range q.Tokens {
		if j := x.job(t); j >= 0 {
			w.times[j]++
		}
	}
	return ans
}

func (w *world) fly(n uint8) {
	w.air = append(slices.Clone(w.air), n)
	slices.Sort(w.air)
}

var (
	beforeDeadline = Epoch
	deadline       = Epoch.Add(time.Hour)
)

func (w *world) now() time.Time {
	if w.late {
		return deadline
	}
	return beforeDeadline
}
