package committer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/firn-project/firn/commit"
)

// owner is the owner of one table: its queue, and the goroutine that drives what
// is in it. It keeps the table open, with what the driver has parsed of it, until
// it has been idle for a while.
type owner struct {
	c    *Committer
	name commit.TableName
	// table is opened by the first read; nil before, and after a driver broke.
	table commit.Table
	// parked are the drives that have nothing more to send and wait until what
	// they sent is dead or their deadline passes. Others may pass them: each
	// commit takes a seat, which is what settles them.
	parked []*drive

	mu struct {
		sync.Mutex
		queue []*item
		// live are the items without an outcome: queued, driven or parked.
		live map[*item]bool
		// doing is what the owner is at, for people; since when; with how many
		// units, of which it holds the items.
		doing string
		since time.Time
		batch int
	}
	wake chan struct{} // buffered: something was queued
}

func newOwner(c *Committer, name commit.TableName) *owner {
	o := &owner{c: c, name: name, wake: make(chan struct{}, 1)}
	o.mu.live = map[*item]bool{}
	return o
}

func (o *owner) add(it *item) {
	o.mu.Lock()
	o.mu.queue = append(o.mu.queue, it)
	o.mu.live[it] = true
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// remove takes an item that left out of the queue.
func (o *owner) remove(it *item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.queue = slices.DeleteFunc(o.mu.queue, func(q *item) bool { return q == it })
}

// forget is called when an item has its outcome.
func (o *owner) forget(it *item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.mu.live, it)
}

func (o *owner) items() []*item {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.mu.live))
}

// lowestOrigin is the lowest origin of the units that wait here, nil when none is
// known: the table's ledger must reach back to it for as long as they do.
func (o *owner) lowestOrigin() *commit.Seat {
	var lowest *commit.Seat
	for _, it := range o.items() {
		if origin := it.unit.Origin; origin != (commit.Seat{}) && (lowest == nil || origin.Number < lowest.Number) {
			lowest = &origin
		}
	}
	return lowest
}

// take gives the units of the next request, nil when none waits. The oldest one
// decides which others may go with it: appends of one branch, schema and spec.
// They go in rounds, one unit of each job in a round, so that a job with many
// units doesn't fill every request; the oldest unit is in the first round, so
// that none waits for ever. What replaces or deletes goes alone, in its turn,
// and so does a unit that was sent before. A token that is in the batch already
// waits for the next: one of the two will be found in the table then.
func (o *owner) take() []*item {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.mu.queue) == 0 {
		return nil
	}
	first := o.mu.queue[0]
	batch := []*item{first}
	if groups(first) {
		tokens := map[commit.Token]bool{first.unit.Token: true}
		for _, it := range byRounds(o.mu.queue) {
			if len(batch) == o.c.cfg.MaxBatch {
				break
			}
			if it != first && groups(it) && sameShape(first.unit, it.unit) && !tokens[it.unit.Token] {
				tokens[it.unit.Token] = true
				batch = append(batch, it)
			}
		}
	}
	taken := make(map[*item]bool, len(batch))
	for _, it := range batch {
		taken[it] = true
	}
	o.mu.queue = slices.DeleteFunc(o.mu.queue, func(it *item) bool { return taken[it] })
	return batch
}

// groups says whether the unit may share a request at all.
func groups(it *item) bool {
	return it.unit.Operation == commit.OperationAppend && len(it.root.Sent) == 0 && !it.root.FindOut && !it.root.Fence
}

func sameShape(a, b commit.Unit) bool {
	return a.TableUUID == b.TableUUID && a.Branch == b.Branch && a.SchemaID == b.SchemaID && a.SpecID == b.SpecID
}

// byRounds orders a queue by the position that each item has among those of its
// job, and by age within a round.
func byRounds(queue []*item) []*item {
	before := map[string]int{}
	round := make(map[*item]int, len(queue))
	for _, it := range queue {
		round[it] = before[it.unit.JobID]
		before[it.unit.JobID]++
	}
	out := slices.Clone(queue)
	slices.SortStableFunc(out, func(a, b *item) int { return round[a] - round[b] })
	return out
}

// run is the owner's goroutine.
func (o *owner) run() {
	defer o.closeTable()
	for {
		if batch := o.take(); len(batch) > 0 {
			began := o.c.cfg.Clock()
			o.advance(newDrive(o, batch))
			o.gather(len(batch), o.c.cfg.Clock().Sub(began)/gatherPart)
			o.resume(func(*drive) bool { return true })
			continue
		}
		if o.wait() {
			return
		}
		o.resume(func(d *drive) bool { return !d.now().Before(d.until) })
	}
}

// gatherPart: the next request may wait for a quarter of the time that the last one
// took.
const gatherPart = 4

// gather waits a little for as many units as the last request had. Writers that
// hand in one file after the other are told together and come back together:
// without a pause the first of them would go alone, and all others wait for it.
func (o *owner) gather(units int, atMost time.Duration) {
	if units < 2 {
		return
	}
	t := time.NewTimer(atMost)
	defer t.Stop()
	for o.queued() < units {
		select {
		case <-o.wake:
		case <-t.C:
			return
		case <-o.c.closing.Done():
			return
		}
	}
}

func (o *owner) queued() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.mu.queue)
}

// advance runs a drive until it ends or has nothing more to send.
func (o *owner) advance(d *drive) {
	if !d.run() {
		o.parked = append(o.parked, d)
	}
}

// resume lets parked drives look at the table again.
func (o *owner) resume(due func(*drive) bool) {
	parked := o.parked
	o.parked = nil
	for _, d := range parked {
		if due(d) {
			o.advance(d)
		} else {
			o.parked = append(o.parked, d)
		}
	}
}

// wait waits for something to do; true ends the owner.
func (o *owner) wait() bool {
	o.doingNow("", 0)
	pause := o.c.cfg.IdleClose
	closing := o.c.closing.Done()
	if len(o.parked) > 0 {
		closing = nil // what was sent is settled first
		first := slices.MinFunc(o.parked, func(a, b *drive) int { return a.until.Compare(b.until) })
		pause = first.until.Sub(o.c.cfg.Clock())
	}
	t := time.NewTimer(max(pause, 0))
	defer t.Stop()
	select {
	case <-o.wake:
		return false
	case <-t.C:
	case <-closing:
	case <-o.c.hurry.Done():
	}
	return len(o.parked) == 0 && o.retire()
}

// retire ends the owner unless something was queued meanwhile.
func (o *owner) retire() bool {
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.mu.queue) > 0 {
		return false
	}
	delete(o.c.mu.owners, o.name.String())
	return true
}

// closeTable closes the table, if it is open. The next read opens it anew.
func (o *owner) closeTable() {
	if o.table != nil {
		o.c.closeTable(o.table)
		o.table = nil
	}
}

// doingNow notes what the owner is at.
func (o *owner) doingNow(what string, units int) {
	o.mu.Lock()
	o.mu.doing, o.mu.since, o.mu.batch = what, o.c.cfg.Clock(), units
	o.mu.Unlock()
}

// explain says in words what an item waits for.
func (o *owner) explain(it *item) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	doing := "its turn"
	if o.mu.doing != "" {
		doing = fmt.Sprintf("%s (%d units, for %s)", o.mu.doing, o.mu.batch, o.c.cfg.Clock().Sub(o.mu.since).Round(time.Millisecond))
	}
	if i := slices.Index(o.mu.queue, it); i >= 0 {
		return fmt.Sprintf("another commit to the table, which waits for %s; %d units are ahead in the queue", doing, i)
	}
	it.mu.Lock()
	d := it.mu.drive
	it.mu.Unlock()
	if d != nil && d.isParked() {
		return "proof that the requests sent for it can't land any more: the next commit to the table gives it"
	}
	return doing
}

// Waiting is a commit unit that has no outcome yet.
type Waiting struct {
	Table commit.TableName
	JobID string
	// Format is the table's.
	Format string
	// Since is when it was queued.
	Since time.Time
	// For is what it waits for, in words.
	For string
}

// WaitsFor says what the commit of a job waits for, in words; empty when it has
// none here.
func (c *Committer) WaitsFor(jobID string) string {
	c.mu.Lock()
	var found *item
	for _, o := range c.mu.owners {
		for _, it := range o.items() {
			if it.unit.JobID == jobID {
				found = it
			}
		}
	}
	c.mu.Unlock()
	if found == nil {
		return ""
	}
	return found.owner.explain(found)
}

// Waits says what each commit that isn't through waits for, oldest first.
func (c *Committer) Waits() []Waiting {
	c.mu.Lock()
	var items []*item
	for _, o := range c.mu.owners {
		items = append(items, o.items()...)
	}
	c.mu.Unlock()
	var out []Waiting
	for _, it := range items {
		out = append(out, Waiting{Table: it.unit.Table, JobID: it.unit.JobID, Format: it.root.Plan.Target.Format, Since: it.since, For: it.owner.explain(it)})
	}
	slices.SortFunc(out, func(a, b Waiting) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.JobID, b.JobID)) })
	return out
}
