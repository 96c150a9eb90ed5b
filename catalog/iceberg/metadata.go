package iceberg

import (
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/commit"
)

// Keys of a snapshot's summary that are Firn's own.
const (
	// KeyTokens holds token=digest, … of the commit units in the snapshot.
	KeyTokens = "firn.tokens"
	// KeyUnits holds rows/files/bytes/job id of the same units in the same
	// order.
	KeyUnits = "firn.units"
	// keySource is what engines write when they cherry-pick a snapshot.
	keySource = "source-snapshot-id"
)

// Metadata is one read of an Iceberg table. It implements commit.Metadata and is
// immutable; what it looks up is indexed once.
type Metadata struct {
	name    commit.TableName
	meta    table.Metadata
	pointer string
	swaps   bool
	noSeat  func() string
	// base and added are set in metadata that was built here: base with one
	// more snapshot.
	base  *Metadata
	added *table.Snapshot

	mu     sync.Mutex
	index  *index
	ledger *commit.Ledger
	// snapshots is their JSON, separated by commas; nil until it's needed.
	snapshots []byte
}

var _ commit.Metadata = (*Metadata)(nil)

// index is what Find needs of all snapshots.
type index struct {
	tokens map[commit.Token]commit.Landed
	// parents maps each visible snapshot to its parent, -1 for none.
	parents map[int64]int64
	// sources maps a cherry-picked snapshot to the one that holds its files.
	sources map[int64][]int64
	// seats are the numbers of all visible snapshots; those above low, up to
	// high, are all taken by one.
	seats     []seatOf
	low, high int64
	// shaky: there's a seat that may be taken back.
	shaky bool
}

func newMetadata(name commit.TableName, meta table.Metadata, pointer string, swaps bool) *Metadata {
	return &Metadata{name: name, meta: meta, pointer: pointer, swaps: swaps}
}

// Table gives the library's view, for planning.
func (m *Metadata) Table() table.Metadata { return m.meta }

// Pointer is the location of the metadata file that was read.
func (m *Metadata) Pointer() string { return m.pointer }

// UUID implements commit.Metadata.
func (m *Metadata) UUID() string { return m.meta.TableUUID().String() }

// Location implements commit.Metadata.
func (m *Metadata) Location() string { return strings.TrimRight(m.meta.Location(), "/") }

// Clock implements commit.Metadata. A version 1 table has no sequence numbers,
// so that only the pointer is a seat there.
func (m *Metadata) Clock() commit.Seat {
	s := commit.Seat{Number: m.meta.LastSequenceNumber()}
	if m.swaps {
		s.Pointer = m.pointer
	}
	return s
}

// Head implements commit.Metadata.
func (m *Metadata) Head(branch string) string {
	if s := m.meta.SnapshotByName(branch); s != nil {
		return strconv.FormatInt(s.SnapshotID, 10)
	}
	return ""
}

// SchemaID implements commit.Metadata.
func (m *Metadata) SchemaID() int { return m.meta.CurrentSchema().ID }

// SpecID implements commit.Metadata.
func (m *Metadata) SpecID() int { return m.meta.DefaultPartitionSpec() }

// HasSnapshot implements commit.Metadata. A snapshot that was cherry-picked is
// shown even when only the copy is left.
func (m *Metadata) HasSnapshot(id string) bool {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.lookup()
	if _, ok := x.parents[n]; ok {
		return true
	}
	return len(x.sources[n]) > 0
}

// Find implements commit.Metadata.
func (m *Metadata) Find(branch string, t commit.Token) (commit.Landed, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.lookup()
	l, ok := x.tokens[t]
	if !ok {
		return commit.Landed{}, false
	}
	if head := m.meta.SnapshotByName(branch); head != nil {
		id, err := strconv.ParseInt(l.SnapshotID, 10, 64)
		l.InHead = err == nil && x.reaches(head.SnapshotID, id)
	}
	return l, true
}

// reaches says whether id, or a cherry-picked copy of it, is head or one of its
// visible ancestors.
func (x *index) reaches(head, id int64) bool {
	want := map[int64]bool{id: true}
	for _, c := range x.sources[id] {
		want[c] = true
	}
	for at, steps := head, 0; steps <= len(x.parents); steps++ {
		if want[at] {
			return true
		}
		parent, ok := x.parents[at]
		if !ok || parent == -1 {
			return false
		}
		at = parent
	}
	return false
}

// lookup is called under the lock, and what it returns is used under it.
func (m *Metadata) lookup() *index {
	if m.index == nil {
		m.index = &index{tokens: map[commit.Token]commit.Landed{}, parents: map[int64]int64{}, sources: map[int64][]int64{}}
		for _, s := range m.meta.Snapshots() {
			m.index.add(&s)
		}
	}
	return m.index
}

// inherit takes over the index of the metadata that m was built from, so that
// the work for one commit doesn't grow with the table's history. It is called
// when m turned out to be what the table is; the first call counts. The parent
// indexes itself again should anybody still ask it.
func (m *Metadata) inherit() {
	m.mu.Lock()
	defer m.mu.Unlock()
	base := m.base
	m.base = nil
	if base == nil || m.index != nil {
		return
	}
	base.mu.Lock()
	x := base.index
	base.index = nil
	base.mu.Unlock()
	if x != nil {
		x.add(m.added)
		m.index = x
	}
}

func (x *index) add(s *table.Snapshot) {
	shaky := s.Summary != nil && s.Summary.Properties[keyTakenBack] == valueTakenBack
	x.seats, x.shaky = append(x.seats, seatOf{s.SequenceNumber, s.TimestampMs, shaky}), x.shaky || shaky
	if x.high > 0 && s.SequenceNumber == x.high+1 {
		x.high++
	}
	x.parents[s.SnapshotID] = -1
	if s.ParentSnapshotID != nil {
		x.parents[s.SnapshotID] = *s.ParentSnapshotID
	}
	if s.Summary == nil {
		return
	}
	if src, err := strconv.ParseInt(s.Summary.Properties[keySource], 10, 64); err == nil {
		x.sources[src] = append(x.sources[src], s.SnapshotID)
	}
	for _, l := range parseUnits(s.Summary.Properties[KeyTokens], s.Summary.Properties[KeyUnits]) {
		// The first snapshot that shows a token is the one that it landed in;
		// a copy that an engine made with all summary keys comes later.
		if first, dup := x.tokens[l.Token]; dup {
			if id, err := strconv.ParseInt(first.SnapshotID, 10, 64); err == nil {
				x.sources[id] = append(x.sources[id], s.SnapshotID)
			}
			continue
		}
		l.SnapshotID = strconv.FormatInt(s.SnapshotID, 10)
		l.Seat = commit.Seat{Number: s.SequenceNumber}
		l.CommittedAt = time.UnixMilli(s.TimestampMs).UTC()
		x.tokens[l.Token] = l
	}
}

// formatUnits writes the two summary values.
func formatUnits(units []commit.Unit) (tokens, counts string) {
	var t, c []string
	for _, u := range units {
		t = append(t, u.Token.String()+"="+u.Digest.String())
		c = append(c, strings.Join([]string{
			strconv.FormatInt(u.Rows, 10), strconv.Itoa(u.Files.Len()), strconv.FormatInt(u.Bytes, 10), url.QueryEscape(u.JobID),
		}, "/"))
	}
	return strings.Join(t, ","), strings.Join(c, ",")
}

// parseUnits reads what formatUnits wrote. Parts that are not of that form are
// left out: the summary is written by whoever may commit to the table.
func parseUnits(tokens, counts string) []commit.Landed {
	if tokens == "" {
		return nil
	}
	ts, cs := strings.Split(tokens, ","), strings.Split(counts, ",")
	var out []commit.Landed
	for i, s := range ts {
		name, digest, _ := strings.Cut(s, "=")
		token, err := commit.ParseToken(name)
		if err != nil {
			continue
		}
		l := commit.Landed{Token: token}
		if d, err := commit.ParseDigest(digest); err == nil {
			l.Digest = d
		}
		if len(cs) == len(ts) {
			if n := strings.SplitN(cs[i], "/", 4); len(n) == 4 {
				l.Rows, _ = strconv.ParseInt(n[0], 10, 64)
				l.Files, _ = strconv.ParseInt(n[1], 10, 64)
				l.Bytes, _ = strconv.ParseInt(n[2], 10, 64)
			}
		}
		out = append(out, l)
	}
	return out
}
