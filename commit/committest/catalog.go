package committest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/firn-project/firn/commit"
)

// Name is the name of the in-memory table.
var Name = commit.TableName{Catalog: "mem", Namespace: []string{"ns"}, Name: "t"}

// Mode is how the in-memory catalog differs from a good one.
type Mode struct {
	// Pointer: the seat is also a pointer that is swapped, as in the SQL
	// catalog.
	Pointer bool
	// NoSeat: any sequence number is accepted (format version 1).
	NoSeat bool
	// StripTokens: what Firn writes into a summary gets lost.
	StripTokens bool
	// StaleSeat400: a taken seat is answered 400 instead of 409.
	StaleSeat400 bool
}

// snapshot is one table version.
type snapshot struct {
	id, parent string
	seat       int64
	tokens     map[commit.Token]commit.Landed
	files      []string
	rows       int64
}

// version is everything a read shows. It is never changed.
type version struct {
	uuid      string
	exists    bool
	clock     int64
	pointer   string
	heads     map[string]string
	snapshots map[string]snapshot
	schemaID  int
	specID    int
	schemas   map[int][]int // field ids
	specs     map[int]bool
}

func (v version) clone() version {
	v.heads = maps.Clone(v.heads)
	v.snapshots = maps.Clone(v.snapshots)
	v.schemas = maps.Clone(v.schemas)
	v.specs = maps.Clone(v.specs)
	return v
}

// Catalog holds one table in memory. It is safe for concurrent use, by several
// drivers too.
type Catalog struct {
	mode Mode

	mu      sync.Mutex
	now     version
	history []version
	next    int
	late    []*payload
	files   map[string]bool // metadata files
	sends   int
	applied int
	misfits int
}

// NewCatalog returns a catalog with one empty table of schema 0 (fields 1 and
// 2) and spec 0.
func NewCatalog(mode Mode) *Catalog {
	c := &Catalog{mode: mode, files: map[string]bool{}}
	c.Recreate()
	return c
}

// change makes a new version. Callers hold mu.
func (c *Catalog) change(f func(v *version)) {
	v := c.now.clone()
	f(&v)
	c.next++
	v.pointer = "v" + strconv.Itoa(c.next) + ".json"
	c.history = append(c.history, c.now)
	c.now = v
}

func (c *Catalog) locked(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// Recreate makes a new, empty table of the same name.
func (c *Catalog) Recreate() {
	c.locked(func() {
		c.change(func(v *version) {
			*v = version{
				uuid: fmt.Sprintf("uuid-%d", c.next), exists: true,
				heads: map[string]string{}, snapshots: map[string]snapshot{},
				schemas: map[int][]int{0: {1, 2}}, specs: map[int]bool{0: true},
			}
		})
	})
}

// Drop removes the table.
func (c *Catalog) Drop() { c.locked(func() { c.change(func(v *version) { v.exists = false }) }) }

// Foreign commits somebody else's append to a branch.
func (c *Catalog) Foreign(branch string) {
	c.locked(func() {
		c.change(func(v *version) {
			c.next++
			id := "f" + strconv.Itoa(c.next)
			v.clock++
			v.snapshots[id] = snapshot{id: id, parent: v.heads[branch], seat: v.clock, rows: 1}
			v.heads[branch] = id
		})
	})
}

// SetHead moves a branch to a snapshot, as a rollback does. It takes no seat.
func (c *Catalog) SetHead(branch, id string) {
	c.locked(func() {
		c.change(func(v *version) {
			if v.heads[branch] = id; id == "" {
				delete(v.heads, branch)
			}
		})
	})
}

// AddColumn makes a new current schema with one more field.
func (c *Catalog) AddColumn() {
	c.locked(func() {
		c.change(func(v *version) {
			fields := slices.Clone(v.schemas[v.schemaID])
			v.schemaID++
			v.schemas[v.schemaID] = append(fields, 100+v.schemaID)
		})
	})
}

// DropColumn makes a new current schema without field 2.
func (c *Catalog) DropColumn() {
	c.locked(func() {
		c.change(func(v *version) {
			v.schemaID++
			v.schemas[v.schemaID] = []int{1}
		})
	})
}

// ChangeSpec makes a new default partition spec; the old one stays.
func (c *Catalog) ChangeSpec() {
	c.locked(func() {
		c.change(func(v *version) {
			v.specID++
			v.specs[v.specID] = true
		})
	})
}

// Deliver lets the copies arrive that were held back, and says how many of
// them changed the table.
func (c *Catalog) Deliver() int {
	landed := 0
	c.locked(func() {
		late := c.late
		c.late = nil
		for _, p := range late {
			if c.apply(p).Class == commit.AnswerOK {
				landed++
			}
		}
	})
	return landed
}

// UUID of the table.
func (c *Catalog) UUID() (id string) { c.locked(func() { id = c.now.uuid }); return id }

// Head is the current snapshot of a branch.
func (c *Catalog) Head(branch string) (id string) {
	c.locked(func() { id = c.now.heads[branch] })
	return id
}

// Times is how many snapshots of the table, in any state, hold the token's
// files: more than 1 is what must never be.
func (c *Catalog) Times(t commit.Token) (n int) {
	c.locked(func() { n = c.now.times(t) })
	return n
}

func (v version) times(t commit.Token) (n int) {
	for _, s := range v.snapshots {
		if _, ok := s.tokens[t]; ok {
			n++
		}
	}
	return n
}

// Sends is how many copies were sent, Applied how many changed the table.
func (c *Catalog) Sends() (n int) { c.locked(func() { n = c.sends }); return n }

// Applied is how many requests changed the table.
func (c *Catalog) Applied() (n int) { c.locked(func() { n = c.applied }); return n }

// Misfits is how many units were applied that the table had no place for.
func (c *Catalog) Misfits() (n int) { c.locked(func() { n = c.misfits }); return n }

// Rows is the number of rows in the history of a branch's head.
func (c *Catalog) Rows(branch string) (rows int64) {
	c.locked(func() {
		for id := c.now.heads[branch]; id != ""; id = c.now.snapshots[id].parent {
			rows += c.now.snapshots[id].rows
		}
	})
	return rows
}

// MetadataFiles are those that Build wrote and nobody deleted.
func (c *Catalog) MetadataFiles() (files []string) {
	c.locked(func() { files = slices.Sorted(maps.Keys(c.files)) })
	return files
}

// Seat is the seat of a snapshot, 0 when there is none.
func (c *Catalog) Seat(id string) (seat int64) {
	c.locked(func() { seat = c.now.snapshots[id].seat })
	return seat
}

// payload is what a request asserts and adds.
type payload struct {
	uuid, head, branch, snapshot, pointer string
	seat                                  int64
	schemaID, specID                      int
	units                                 []commit.Unit
}

// apply is the catalog's side of a commit: all assertions or nothing. Callers
// hold mu.
func (c *Catalog) apply(p *payload) commit.Answer {
	v := c.now
	refuse := func(class commit.AnswerClass, status int, why string) commit.Answer {
		return commit.Answer{Class: class, Status: status, Err: fmt.Errorf("%s", why)}
	}
	switch {
	case !v.exists:
		return refuse(commit.AnswerRejected, 404, "no such table")
	case v.uuid != p.uuid:
		return refuse(commit.AnswerConflict, 409, "table UUID differs")
	case v.heads[p.branch] != p.head:
		return refuse(commit.AnswerConflict, 409, "branch has moved")
	case v.schemaID != p.schemaID || v.specID != p.specID:
		return refuse(commit.AnswerConflict, 409, "schema or spec has changed")
	case p.pointer != "" && p.pointer != v.pointer:
		return refuse(commit.AnswerConflict, 409, "pointer has moved")
	case v.snapshots[p.snapshot].id != "":
		return refuse(commit.AnswerRejected, 400, "snapshot id exists")
	case !c.mode.NoSeat && p.seat <= v.clock && c.mode.StaleSeat400:
		return refuse(commit.AnswerRejected, 400, "sequence number is taken")
	case !c.mode.NoSeat && p.seat <= v.clock:
		return refuse(commit.AnswerConflict, 409, "sequence number is taken")
	}
	c.applied++
	for _, u := range p.units {
		if (metadata{v, c.mode}).CheckUnit(u) != nil {
			c.misfits++
		}
	}
	c.change(func(v *version) {
		s := snapshot{id: p.snapshot, parent: p.head, seat: p.seat, tokens: map[commit.Token]commit.Landed{}}
		for _, u := range p.units {
			s.rows += u.Rows
			for _, f := range u.Files {
				s.files = append(s.files, f.Path)
			}
			s.tokens[u.Token] = commit.Landed{
				Token: u.Token, Digest: u.Digest, SnapshotID: p.snapshot, Seat: commit.Seat{Number: p.seat},
				Rows: u.Rows, Files: int64(len(u.Files)), Bytes: u.Bytes, CommittedAt: time.Unix(p.seat, 0),
			}
		}
		v.snapshots[s.id] = s
		v.heads[p.branch] = s.id
		v.clock = max(v.clock, p.seat)
	})
	return commit.Answer{Class: commit.AnswerOK, Status: 200}
}

// Snapshots are the ids of all snapshots, sorted.
func (c *Catalog) Snapshots() (ids []string) {
	c.locked(func() { ids = slices.Sorted(maps.Keys(c.now.snapshots)) })
	return ids
}

// LandedBy is the id of the request that put the token into the table.
func (c *Catalog) LandedBy(t commit.Token) (request string) {
	c.locked(func() {
		for id, s := range c.now.snapshots {
			if _, ok := s.tokens[t]; ok {
				request = "r" + strings.TrimPrefix(id, "s")
			}
		}
	})
	return request
}
