package committest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

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
	// NullParent: the seat of a request without a parent isn't checked, as in
	// Iceberg below version 3.
	NullParent bool
	// NoLedger: the table keeps no ledger.
	NoLedger bool
	// Overlook: the table checks no seats, though the driver believes that it
	// does. No driver may be used with such a table; it is for showing why.
	Overlook bool
	// NoRef and NoSchema: requests don't assert the branch's head, or schema
	// and spec. No driver may leave that out either.
	NoRef, NoSchema bool
	// TakesBack: the catalog removes compactions of others, and gives their seats
	// away again, to let a request land that was built before them.
	TakesBack bool
	// HeadsOnly: a read shows the current snapshots only, without parents.
	HeadsOnly bool
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
	landed  map[commit.Token]int
	// landedBy is the request that put each there, the last one if there are several.
	landedBy map[commit.Token]string
}

// NewCatalog returns a catalog with one empty table of schema 0 (fields 1 and
// 2) and spec 0.
func NewCatalog(mode Mode) *Catalog {
	c := &Catalog{mode: mode, files: map[string]bool{}, landed: map[commit.Token]int{}, landedBy: map[commit.Token]string{}}
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
		c.change(func(v *version) { *v = newVersion(fmt.Sprintf("uuid-%d", c.next)) })
	})
}

// Drop removes the table.
func (c *Catalog) Drop() { c.locked(func() { c.change(func(v *version) { v.exists = false }) }) }

// Foreign commits somebody else's append to a branch.
func (c *Catalog) Foreign(branch string) {
	c.locked(func() {
		c.change(func(v *version) {
			c.next++
			v.foreign(branch, "f"+strconv.Itoa(c.next))
		})
	})
}

// Compact commits somebody else's compaction, which a catalog of Mode.TakesBack
// may remove again.
func (c *Catalog) Compact(branch string) {
	c.locked(func() {
		c.change(func(v *version) {
			c.next++
			v.compaction(branch, "c"+strconv.Itoa(c.next))
		})
	})
}

// SetHead moves a branch to a snapshot, as a rollback does. It takes no seat.
func (c *Catalog) SetHead(branch, id string) {
	c.locked(func() {
		c.change(func(v *version) { v.setHead(branch, id) })
	})
}

// AddColumn makes a new current schema with one more field.
func (c *Catalog) AddColumn() {
	c.locked(func() {
		c.change(func(v *version) { v.addColumn() })
	})
}

// DropColumn makes a new current schema without field 2.
func (c *Catalog) DropColumn() {
	c.locked(func() {
		c.change(func(v *version) { v.dropColumn() })
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

// Expire removes every snapshot that is no branch's head.
func (c *Catalog) Expire() { c.locked(func() { c.change((*version).expire) }) }

// SetLedger replaces the text of the table's ledger, as a tool that sets
// properties can; empty removes it.
func (c *Catalog) SetLedger(text string) {
	c.locked(func() { c.change(func(v *version) { v.setLedger(text) }) })
}

// Ledger is the text of the table's ledger.
func (c *Catalog) Ledger() (text string) {
	c.locked(func() { text = c.now.ledgerText })
	return text
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

// Landed is how often the token landed since the catalog was made, also in
// snapshots that have expired.
func (c *Catalog) Landed(t commit.Token) (n int) {
	c.locked(func() { n = c.landed[t] })
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

// apply lets a copy reach the table. Callers hold mu.
func (c *Catalog) apply(p *payload) commit.Answer {
	next, misfits, ans := c.now.apply(c.mode, p)
	if ans.Class != commit.AnswerOK {
		return ans
	}
	c.applied++
	c.misfits += misfits
	for _, u := range p.units {
		c.landed[u.Token]++
		c.landedBy[u.Token] = "r" + strings.TrimPrefix(p.snapshot, "s")
	}
	c.change(func(v *version) { *v = next })
	return ans
}

// Snapshots are the ids of all snapshots, sorted.
func (c *Catalog) Snapshots() (ids []string) {
	c.locked(func() { ids = slices.Sorted(maps.Keys(c.now.snapshots)) })
	return ids
}

// LandedBy is the id of the request that put the token into the table, also in a
// snapshot that has expired since.
func (c *Catalog) LandedBy(t commit.Token) (request string) {
	c.locked(func() { request = c.landedBy[t] })
	return request
}
