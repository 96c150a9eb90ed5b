package placement

import (
	"maps"
	"slices"
	"time"

	"github.com/firn-project/firn/commit"
)

const (
	// faults of its own in a row, without a success between them, make an executor
	// one to pass over: one may be the task's, that needed more than there was.
	faults = 2
	// first is for how long an executor is passed over the first time. It doubles
	// with each further fault, up to most.
	first = 30 * time.Second
	// most is for how long an executor is passed over at most.
	most = 5 * time.Minute
	// patience is how long a task waits for an executor on which it hasn't failed,
	// if where it failed nothing speaks against the executor itself.
	patience = time.Minute
)

// own are the errors that say more about an executor than about the task: it wants
// for something that another executor may have.
var own = []commit.Code{commit.CodeShuffleFull, commit.CodeShuffleIO, commit.CodeSpillFull, commit.CodeSpill, commit.CodeMachineMemory}

// isOwn says whether a task failed for want of something on its executor.
func isOwn(err error) bool { return slices.Contains(own, commit.CodeOf(err)) }

// Board has the executors with faults of their own, and those that tasks of a job
// couldn't read from. It is used by one goroutine.
type Board struct {
	faults map[string]fault
	// unread are the executors from which a task of a job couldn't read, and until
	// when they are passed over for that job. Who said so may be the one to blame, or
	// lie: it is no business of other jobs.
	unread map[pair]time.Time
}

type pair struct{ job, executor string }

type fault struct {
	inARow int
	until  time.Time
}

// New returns a board without a fault.
func New() *Board { return &Board{faults: map[string]fault{}, unread: map[pair]time.Time{}} }

// Unreachable takes in that a task of a job, or its root, couldn't reach an executor
// of those that take tasks. The job's tasks pass that one over for a while, so that
// what was lost isn't made again where it can't be read, unless it is the last one
// that is left: when no two can reach each other, one does it all.
func (b *Board) Unreachable(job, executor string, up []string, now time.Time) {
	if slices.ContainsFunc(up, func(e string) bool { return e != executor && !b.PassedOver(job, e, now) }) {
		b.unread[pair{job, executor}] = now.Add(most)
	}
}

// EndJob drops what is known of a job.
func (b *Board) EndJob(job string) {
	maps.DeleteFunc(b.unread, func(p pair, _ time.Time) bool { return p.job == job })
}

// Failed takes in that a task failed. When that makes the executor one to pass over,
// it says until when; zero otherwise.
func (b *Board) Failed(executor string, err error, now time.Time) (until time.Time) {
	if !isOwn(err) {
		return time.Time{}
	}
	f := b.faults[executor]
	if now.Before(f.until) {
		return time.Time{} // it ran beside the one that made this known
	}
	f.inARow++
	if f.inARow >= faults {
		f.until = now.Add(min(first<<min(f.inARow-faults, 8), most))
		until = f.until
	}
	b.faults[executor] = f
	return until
}

// Succeeded takes in that a task succeeded.
func (b *Board) Succeeded(executor string) { delete(b.faults, executor) }

// Forget drops what is known of an executor that is gone.
func (b *Board) Forget(executor string) {
	delete(b.faults, executor)
	maps.DeleteFunc(b.unread, func(p pair, _ time.Time) bool { return p.executor == executor })
}

// PassedOver says whether an executor is given no tasks of a job while there is
// another one; without a job, of any.
func (b *Board) PassedOver(job, executor string, now time.Time) bool {
	return now.Before(b.faults[executor].until) || now.Before(b.unread[pair{job, executor}])
}

// Fit gives those executors that a task of a job may be given, of those that take
// tasks, as a question. failed are those on which it failed, and waited is how long it waits.
// It may have to wait on: that an executor fits doesn't mean that it has a slot.
func (b *Board) Fit(job string, up, failed []string, waited time.Duration, now time.Time) func(executor string) bool {
	fresh := func(e string) bool { return !slices.Contains(failed, e) }
	if waited > patience {
		fresh = func(e string) bool { return !slices.Contains(failed, e) || b.faults[e].inARow == 0 }
	}
	sound := func(e string) bool { return !b.PassedOver(job, e, now) }
	for _, fits := range []func(string) bool{
		func(e string) bool { return fresh(e) && sound(e) }, fresh, sound,
	} {
		if slices.ContainsFunc(up, fits) {
			return fits
		}
	}
	return func(string) bool { return true }
}
