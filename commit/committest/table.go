package committest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/firn-project/firn/commit"
)

// snapshot is one table version.
type snapshot struct {
	id, parent string
	seat       int64
	tokens     map[commit.Token]commit.Landed
	files      []commit.File
	removed    []string
	rows       int64
	// marked: a compaction that the catalog may remove again (Mode.TakesBack).
	marked bool
}

// version is everything that stands in a table at one moment. It is changed
// only by who has just cloned it.
type version struct {
	uuid       string
	exists     bool
	clock      int64
	pointer    string
	heads      map[string]string
	snapshots  map[string]snapshot
	schemaID   int
	specID     int
	schemas    map[int][]int // field ids
	specs      map[int]bool
	ledgerText string
}

func newVersion(uuid string) version {
	return version{
		uuid: uuid, exists: true, heads: map[string]string{}, snapshots: map[string]snapshot{},
		schemas: map[int][]int{0: {1, 2}}, specs: map[int]bool{0: true},
	}
}

func (v version) clone() version {
	v.heads = maps.Clone(v.heads)
	v.snapshots = maps.Clone(v.snapshots)
	v.schemas = maps.Clone(v.schemas)
	v.specs = maps.Clone(v.specs)
	return v
}

func (v *version) foreign(branch, id string) {
	v.clock++
	v.snapshots[id] = snapshot{id: id, parent: v.heads[branch], seat: v.clock, rows: 1}
	v.heads[branch] = id
}

// compaction is somebody else's rewrite of files. A catalog of Mode.TakesBack may
// remove it.
func (v *version) compaction(branch, id string) {
	v.foreign(branch, id)
	s := v.snapshots[id]
	s.rows, s.marked = 0, true
	v.snapshots[id] = s
}

// takenBack is the version without the compactions that stand between a branch's
// head and the one that a request asserts, with the clock set back; ok is false
// when anything else stands there.
func (v version) takenBack(branch, head string) (version, bool) {
	n := v.clone()
	at := n.heads[branch]
	for at != head && n.snapshots[at].marked {
		parent := n.snapshots[at].parent
		delete(n.snapshots, at)
		at = parent
	}
	if at != head || head == "" {
		return v, false
	}
	n.setHead(branch, head)
	n.clock = 0
	for _, s := range n.snapshots {
		n.clock = max(n.clock, s.seat)
	}
	return n, true
}

func (v *version) setHead(branch, id string) {
	if v.heads[branch] = id; id == "" {
		delete(v.heads, branch)
	}
}

func (v *version) addColumn() {
	fields := slices.Clone(v.schemas[v.schemaID])
	v.schemaID++
	v.schemas[v.schemaID] = append(fields, 100+v.schemaID)
}

func (v *version) dropColumn() {
	v.schemaID++
	v.schemas[v.schemaID] = []int{1}
}

func (v *version) expire() {
	keep := map[string]bool{}
	for _, id := range v.heads {
		keep[id] = true
	}
	maps.DeleteFunc(v.snapshots, func(id string, _ snapshot) bool { return !keep[id] })
}

func (v *version) setLedger(text string) { v.ledgerText = text }

func (v *version) times(t commit.Token) (n int) {
	for _, s := range v.snapshots {
		if _, ok := s.tokens[t]; ok {
			n++
		}
	}
	return n
}

// inHistory says whether a snapshot is in the history of a branch's head, as
// far as that is shown.
func (v *version) inHistory(branch, id string) bool {
	for at := v.heads[branch]; at != ""; at = v.snapshots[at].parent {
		if at == id {
			return true
		}
	}
	return false
}

// payload is what a request asserts and adds.
type payload struct {
	uuid, head, branch, snapshot, pointer string
	seat                                  int64
	schemaID, specID                      int
	units                                 []commit.Unit
	ledger                                string
}

// apply is the catalog's side of a commit: all assertions or nothing. It gives
// the version after it and how many units it has no place for.
func (v version) apply(mode Mode, p *payload) (next version, misfits int, a commit.Answer) {
	if mode.TakesBack && v.exists && v.heads[p.branch] != p.head {
		if back, ok := v.takenBack(p.branch, p.head); ok {
			if _, _, why := back.refuses(mode, p); why == "" {
				return back.apply(mode, p)
			}
		}
	}
	if class, status, why := v.refuses(mode, p); why != "" {
		return v, 0, commit.Answer{Class: class, Status: status, Err: errors.New(why)}
	}
	for _, u := range p.units {
		if u.Operation != commit.OperationFence && v.checkUnit(u) != nil {
			misfits++
		}
	}
	n := v.clone()
	s := snapshot{id: p.snapshot, parent: p.head, seat: p.seat, tokens: map[commit.Token]commit.Landed{}}
	for _, u := range p.units {
		s.rows += u.Rows
		for _, f := range u.Files.All() {
			s.files = append(s.files, f)
		}
		if u.Claim != nil {
			s.removed = append(s.removed, u.Claim.Replaced...)
		}
		s.tokens[u.Token] = commit.Landed{
			Token: u.Token, Digest: u.Digest, SnapshotID: p.snapshot, Seat: commit.Seat{Number: p.seat},
			Rows: u.Rows, Files: int64(u.Files.Len()), Bytes: u.Bytes, CommittedAt: time.Unix(p.seat, 0),
		}
	}
	n.snapshots[s.id] = s
	n.heads[p.branch] = s.id
	n.clock = max(v.clock, p.seat)
	if p.ledger != "" {
		n.setLedger(p.ledger)
	}
	return n, misfits, commit.Answer{Class: commit.AnswerOK, Status: 200}
}

// refuses is why a request isn't applied; empty when it is.
func (v version) refuses(mode Mode, p *payload) (commit.AnswerClass, int, string) {
	seatless := mode.NoSeat || mode.Overlook || mode.NullParent && p.head == ""
	switch {
	case !v.exists:
		return commit.AnswerRejected, 404, "no such table"
	case v.uuid != p.uuid:
		return commit.AnswerConflict, 409, "table UUID differs"
	case v.heads[p.branch] != p.head && !mode.NoRef:
		return commit.AnswerConflict, 409, "branch has moved"
	case (v.schemaID != p.schemaID || v.specID != p.specID) && !mode.NoSchema:
		return commit.AnswerConflict, 409, "schema or spec has changed"
	case p.pointer != "" && p.pointer != v.pointer:
		return commit.AnswerConflict, 409, "pointer has moved"
	case v.snapshots[p.snapshot].id != "":
		return commit.AnswerRejected, 400, "snapshot id exists"
	case !seatless && p.seat <= v.clock && mode.StaleSeat400:
		return commit.AnswerRejected, 400, "sequence number is taken"
	case !seatless && p.seat <= v.clock:
		return commit.AnswerConflict, 409, "sequence number is taken"
	}
	return "", 0, ""
}

// checkUnit says why a unit has no place in the table.
func (v *version) checkUnit(u commit.Unit) error {
	refuse := func(why string) error {
		return &commit.Error{Op: "check", Object: Name.String(), Reason: commit.ReasonTableChanged, Cause: errors.New(why)}
	}
	if !v.specs[u.SpecID] {
		return refuse("the partition spec is gone")
	}
	for _, f := range v.schemas[u.SchemaID] {
		if !slices.Contains(v.schemas[v.schemaID], f) {
			return refuse(fmt.Sprintf("field %d is gone", f))
		}
	}
	return nil
}

// metadata is one read.
type metadata struct {
	version
	mode   Mode
	ledger commit.Ledger
	window int64
}

var (
	_ commit.Sight    = metadata{}
	_ commit.Unseated = metadata{}
	_ commit.Shaky    = metadata{}
)

// read is what a read shows of the version.
func (v version) read(mode Mode) metadata {
	if mode.HeadsOnly {
		shown := map[string]snapshot{}
		for _, id := range v.heads {
			s := v.snapshots[id]
			s.parent = ""
			shown[id] = s
		}
		v.snapshots = shown
	}
	m := metadata{version: v, mode: mode, ledger: commit.LedgerOf(v.ledgerText, v.clock)}
	seats := map[int64]bool{}
	for _, s := range v.snapshots {
		seats[s.seat] = true
	}
	for m.window = v.clock; m.window > 0 && seats[m.window]; {
		m.window--
	}
	return m
}

// build makes a request of the number given.
func (m metadata) build(number string, units []commit.Unit) commit.Request {
	branch := units[0].Branch
	p := &payload{
		uuid: m.uuid, head: m.heads[branch], branch: branch, snapshot: "s" + number,
		seat: m.clock + 1, schemaID: m.schemaID, specID: m.specID, units: units,
	}
	if !m.mode.NoLedger {
		p.ledger = commit.NextLedger(m, units, p.seat, commit.LedgerKeep{Tokens: ledgerTokens}).String()
	}
	r := commit.Request{
		ID: "r" + number, SnapshotID: p.snapshot, Head: p.head, Branch: branch,
		MetadataFiles: []string{"metadata/" + p.snapshot + ".avro"}, Payload: p,
	}
	if m.NoSeat(branch) == "" {
		r.Seat.Number = p.seat
	}
	if m.mode.Pointer {
		p.pointer = m.pointer
		r.Seat.Pointer = m.pointer
	}
	for _, u := range units {
		r.Tokens = append(r.Tokens, u.Token)
	}
	return r
}

// changes are what others did to the branch since a seat. When the version of
// that seat isn't in the branch's history any more, nobody can tell.
func (m metadata) changes(branch string, since int64) (out []commit.Change) {
	at := m.heads[branch]
	for at != "" && m.snapshots[at].seat > since {
		s := m.snapshots[at]
		out = append(out, commit.Change{Seat: commit.Seat{Number: s.seat}, SnapshotID: s.id, Added: s.files, Removed: s.removed})
		if s.seat > 0 && len(s.tokens) == 0 { // another engine's: a row of no known place
			out[len(out)-1].Added = []commit.File{{Path: "foreign-" + s.id}}
		}
		at = s.parent
	}
	if since > 0 && (at == "" || m.snapshots[at].seat != since) {
		out = append(out, commit.Change{SnapshotID: m.heads[branch], Opaque: true})
	}
	slices.Reverse(out)
	return out
}

// ledgerTokens is how many tokens the in-memory table's ledger keeps: few, so
// that tests see it trimmed.
const ledgerTokens = 8

func (m metadata) UUID() string     { return m.uuid }
func (m metadata) Location() string { return "mem://t" }
func (m metadata) Clock() commit.Seat {
	s := commit.Seat{Number: m.clock}
	if m.mode.Pointer {
		s.Pointer = m.pointer
	}
	return s
}
func (m metadata) Head(branch string) string  { return m.heads[branch] }
func (m metadata) SchemaID() int              { return m.schemaID }
func (m metadata) SpecID() int                { return m.specID }
func (m metadata) HasSnapshot(id string) bool { _, ok := m.snapshots[id]; return ok }

// Find implements commit.Metadata.
func (m metadata) Find(branch string, t commit.Token) (commit.Landed, bool) {
	if m.mode.StripTokens {
		return commit.Landed{}, false
	}
	var first commit.Landed
	for _, s := range m.snapshots {
		l, ok := s.tokens[t]
		if ok && (first.SnapshotID == "" || l.Seat.Number < first.Seat.Number || l.Seat == first.Seat && s.id < first.SnapshotID) {
			first = l
		}
	}
	first.InHead = first.SnapshotID != "" && m.inHistory(branch, first.SnapshotID)
	return first, first.SnapshotID != ""
}

// CheckUnit implements commit.Metadata.
func (m metadata) CheckUnit(u commit.Unit) error { return m.checkUnit(u) }

// Window implements commit.Sight.
func (m metadata) Window() int64 { return m.window }

// Ledger implements commit.Sight.
func (m metadata) Ledger() commit.Ledger { return m.ledger }

// SeatAt implements commit.Sight: seat n was taken n seconds after 1970 began.
func (m metadata) SeatAt(t time.Time) (seat int64) {
	for _, s := range m.snapshots {
		if !time.Unix(s.seat, 0).After(t) {
			seat = max(seat, s.seat)
		}
	}
	return seat
}

// Firm implements commit.Shaky: while a compaction is shown that can be removed,
// only the seats of other snapshots are taken for good.
func (m metadata) Firm() int64 {
	var firm int64
	shaky := false
	for _, s := range m.snapshots {
		if shaky = shaky || m.mode.TakesBack && s.marked; !s.marked {
			firm = max(firm, s.seat)
		}
	}
	if !shaky {
		return m.clock
	}
	return firm
}

// NoSeat implements commit.Unseated.
func (m metadata) NoSeat(branch string) string {
	switch {
	case m.mode.Pointer:
		return ""
	case m.mode.NoSeat:
		return "the table accepts any sequence number"
	case m.mode.NullParent && strings.TrimSpace(m.heads[branch]) == "":
		return "the branch has no snapshot yet"
	}
	return ""
}
