package committer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/firn-project/firn/commit"
)

// item is one unit on its way through a committer.
//
// Whether it may still be stopped is decided once, under its lock: leave takes
// it out for good, permit puts it beyond recall, and whichever comes first wins.
// A caller whose leave won returns at once; the owner sees the item gone when it
// next looks, and never sends it. permit looks at the caller's context itself, so
// that a cancel that came before it wins, however late its caller wakes up.
type item struct {
	ctx   context.Context //nolint:containedctx // the caller's, which travels with the unit
	root  Root
	unit  commit.Unit
	owner *owner
	since time.Time           // when it was queued
	done  chan commit.Outcome // buffered: the owner never waits for a caller

	mu struct {
		sync.Mutex
		state itemState
		cause error  // why it left
		drive *drive // since it was taken up
	}
}

type itemState uint8

const (
	itemOpen      itemState = iota
	itemLeft                // taken out by its caller
	itemPermitted           // past the point of no return
)

// leave takes the unit out; false when it may not be stopped any more.
func (it *item) leave(cause error) bool {
	it.mu.Lock()
	if it.mu.state == itemOpen {
		it.mu.state, it.mu.cause = itemLeft, cause
	}
	left, d := it.mu.state == itemLeft, it.mu.drive
	it.mu.Unlock()
	if left {
		it.owner.remove(it)
	}
	if left && d != nil {
		d.lost(it.unit.Token)
	}
	return left
}

// leaveQueue is leave for a unit that the owner hasn't taken up yet.
func (it *item) leaveQueue(cause error) bool {
	it.mu.Lock()
	taken := it.mu.drive != nil
	it.mu.Unlock()
	return !taken && it.leave(cause)
}

// take hands the unit to a drive; false when it has left.
func (it *item) take(d *drive) bool {
	it.mu.Lock()
	defer it.mu.Unlock()
	if it.hasLeft() {
		return false
	}
	it.mu.drive = d
	if len(it.root.Sent) > 0 {
		it.mu.state = itemPermitted // by an earlier run
	}
	return true
}

// permit passes the point of no return; the error is why it couldn't.
func (it *item) permit() error {
	it.mu.Lock()
	defer it.mu.Unlock()
	if it.hasLeft() {
		return it.mu.cause
	}
	it.mu.state = itemPermitted
	return nil
}

// left is why the unit has left, nil when it hasn't.
func (it *item) left() error {
	it.mu.Lock()
	defer it.mu.Unlock()
	if it.hasLeft() {
		return it.mu.cause
	}
	return nil
}

// hasLeft is called under the lock.
func (it *item) hasLeft() bool {
	if it.mu.state == itemOpen {
		cause := context.Cause(it.ctx)
		if it.owner.c.closing.Err() != nil {
			cause = errClosing
		}
		if cause != nil {
			it.mu.state, it.mu.cause = itemLeft, cause
		}
	}
	return it.mu.state == itemLeft
}

// stopped is the outcome of a unit that left. Requests of earlier runs may still
// land, so that a unit with any is unknown.
func (it *item) stopped(cause error) commit.Outcome {
	if len(it.root.Sent) > 0 {
		return it.unsettled(cause)
	}
	m := commit.NewMachine([]commit.Unit{it.unit}, commit.Options{})
	for _, a := range m.Step(commit.Cancel{Token: it.unit.Token, Err: cause}, time.Time{}) {
		if f, ok := a.(commit.Finish); ok {
			return f.Outcome
		}
	}
	return commit.Outcome{State: commit.Refused, Err: cause}
}

func (it *item) unsettled(cause error) commit.Outcome {
	return commit.Outcome{State: commit.Unknown, Err: &commit.Error{
		Code: commit.CodeUnknown, Op: "commit to", Object: it.unit.Table.String(), Cause: cause,
		Tried: "it was stopped before it was known what became of the requests that an earlier run sent; the data files are kept under " + it.unit.Prefix,
		Hint:  "Run the statement again with the same idempotency key: it looks the commit up in the table first.",
	}}
}

// waitedTooLong is the outcome of a unit whose turn didn't come in time.
func (it *item) waitedTooLong(limit time.Duration) commit.Outcome {
	cause := fmt.Errorf("its turn didn't come in %s; it waited for %s", limit, it.owner.explain(it))
	if len(it.root.Sent) > 0 {
		return it.unsettled(cause)
	}
	u := it.unit
	return commit.Outcome{State: commit.Refused, Reason: commit.ReasonBudget, Err: &commit.Error{
		Code: commit.CodeBudget, Op: "commit to", Object: u.Table.String(), Reason: commit.ReasonBudget, Cause: cause,
		Tried: fmt.Sprintf("nothing was sent; the %d data files are kept under %s", u.Files.Len(), u.Prefix),
		Hint:  fmt.Sprintf("`firn commit retry %s [--table NAME]` adopts the files, `firn commit drop %s` deletes them.", u.JobID, u.JobID),
	}}
}
