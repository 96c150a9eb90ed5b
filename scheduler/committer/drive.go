package committer

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/failpoint"
)

// drive is one batch on its way: the machine, and what its effects need. It is
// used by its owner's goroutine, but for what is under the lock.
type drive struct {
	o     *owner
	items map[commit.Token]*item
	m     *commit.Machine
	// answer is what the machine is told when the drive goes on.
	answer   commit.Event
	deadline time.Time
	// until is when a parked drive looks at the table again.
	until time.Time
	// ctx ends when every unit has left before its point of no return, and when
	// the committer's time to close is up.
	ctx    context.Context //nolint:containedctx // the batch's own life
	cancel context.CancelFunc
	unhook func() bool
	sent   bool
	// claimed is the request that the catalog said it has done, until a read shows
	// what it did.
	claimed commit.Request
	// fence is the machine's, zero for none.
	fence commit.Unit
	// ended are outcomes that weren't told yet.
	ended []func()
	log   *slog.Logger

	mu struct {
		sync.Mutex
		// open are the units without an outcome that haven't left.
		open   map[commit.Token]bool
		parked bool
	}
}

// newDrive takes up a batch.
func newDrive(o *owner, batch []*item) *drive {
	c := o.c
	now := c.cfg.Clock()
	d := &drive{o: o, items: map[commit.Token]*item{}, answer: commit.Begin{}, deadline: now.Add(c.cfg.Deadline), log: c.cfg.Logger.With(slog.String("table", o.name.String()))}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.unhook = context.AfterFunc(c.hurry, d.cancel)
	d.mu.open = map[commit.Token]bool{}
	var units []commit.Unit
	var sent []commit.Request
	for _, it := range batch {
		d.items[it.unit.Token] = it
		d.mu.open[it.unit.Token] = true
	}
	floor := o.lowestOrigin()
	for _, it := range batch {
		if !it.take(d) {
			d.lost(it.unit.Token)
			continue
		}
		u := it.unit
		if floor != nil && (u.LedgerFloor == nil || floor.Number < u.LedgerFloor.Number) {
			u.LedgerFloor = floor
		}
		units, sent = append(units, u), append(sent, it.root.Sent...)
	}
	if batch[0].root.FindOut && !batch[0].root.Fence {
		d.deadline = now
	}
	opts := commit.Options{MaxAttempts: c.cfg.MaxAttempts, Deadline: d.deadline, Seed: seed(batch[0].unit, now), Sent: sent}
	if batch[0].root.Fence && len(units) == 1 {
		d.fence = commit.NewFence(units[0], uuid.NewString())
		opts.Fence = &d.fence
	}
	d.m = commit.NewMachine(units, opts)
	return d
}

// stopFence lets the end of the caller's context stop a fence that hasn't been
// sent; what it was for is past its own point of no return.
func (d *drive) stopFence() {
	if d.fence.Token == (commit.Token{}) || d.sent {
		return
	}
	for _, it := range d.items {
		if err := context.Cause(it.ctx); err != nil {
			d.carryOut(d.m.Step(commit.Cancel{Token: d.fence.Token, Err: err}, d.now()))
		}
	}
}

// lost is told that a unit has left: when all have, what is under way for them
// ends.
func (d *drive) lost(t commit.Token) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.open, t)
	if len(d.mu.open) == 0 {
		d.cancel()
	}
}

func (d *drive) isParked() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.parked
}

func (d *drive) park(parked bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.parked = parked
}

// run goes on until every unit has its outcome, or until nothing is left to send
// and only time or other commits can settle the rest: false then. Every unit gets
// an outcome, also when the driver panics: before a send nothing can have changed,
// after it nobody knows.
func (d *drive) run() (ended bool) {
	d.park(false)
	defer func() {
		if p := recover(); p != nil {
			d.log.LogAttrs(context.Background(), slog.LevelError, "commit panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			d.broke(p)
			ended = true
		}
		if ended {
			d.unhook()
			d.cancel()
		} else {
			d.park(true)
		}
	}()
	if _, first := d.answer.(commit.Begin); first {
		for _, it := range d.items {
			if it.left() == nil {
				it.root.phase(PhaseCommitting)
			}
		}
	}
	for !d.m.Done() {
		answer := d.answer
		d.answer = nil
		for _, a := range d.m.Step(answer, d.now()) {
			if w, ok := a.(commit.Wait); ok && d.m.Settling() {
				d.until, d.answer = w.Until, commit.Woke{}
				d.tell()
				return false
			}
			if ev := d.do(a); ev != nil {
				d.answer = ev
			}
		}
		d.dropLeft()
		d.tell()
		if d.answer == nil && !d.m.Done() {
			panic("the commit machine waits for nothing")
		}
	}
	return true
}

// dropLeft takes the units that left out of the batch.
func (d *drive) dropLeft() {
	for t, it := range d.items {
		if cause := it.left(); cause != nil {
			d.carryOut(d.m.Step(commit.Cancel{Token: t, Err: cause}, d.now()))
		}
	}
	d.stopFence()
}

// carryOut does what a cancel leads to, which waits for no answer.
func (d *drive) carryOut(actions []commit.Action) {
	for _, a := range actions {
		d.do(a)
	}
}

// do carries out one action; the event is nil for actions without an answer.
func (d *drive) do(a commit.Action) commit.Event {
	switch a := a.(type) {
	case commit.Read:
		d.o.doingNow("the table's metadata", len(d.items))
		return d.read()
	case commit.Build:
		return d.build(a)
	case commit.Permit:
		return d.permit(a)
	case commit.Record:
		d.o.doingNow("the journal to record request "+a.Request.ID, len(a.Request.Tokens))
		ctx, cancel := d.effect()
		defer cancel()
		return commit.RecordDone{Err: d.o.c.cfg.Recorder.RecordSend(ctx, a.Request)}
	case commit.Send:
		return d.send(a)
	case commit.Wait:
		d.o.doingNow("the next attempt, at "+a.Until.UTC().Format(time.RFC3339), len(d.items))
		d.wait(a.Until)
		return commit.Woke{}
	case commit.Discard:
		ctx, cancel := d.o.c.last(d.ctx)
		defer cancel()
		if err := d.o.table.Discard(ctx, a.Request); err != nil {
			d.log.LogAttrs(ctx, slog.LevelWarn, "discarding a dead commit request left files behind",
				slog.String("request_id", a.Request.ID), slog.String("error", err.Error()))
		}
	case commit.Finish:
		if a.Outcome.TokenStripped {
			d.stripped(a)
		}
		if a.Token == d.fence.Token {
			d.log.LogAttrs(context.Background(), slog.LevelInfo, "fence ended", slog.String("state", string(a.Outcome.State)),
				slog.String("snapshot_id", a.Outcome.Landed.SnapshotID), slog.Any("error", a.Outcome.Err))
		}
		d.finish(a.Token, a.Outcome)
	}
	return nil
}

func (d *drive) build(a commit.Build) commit.Event {
	d.o.doingNow("its request to be built", len(a.Units))
	if err := d.o.c.cfg.Stripped.Check(a.Base.UUID()); err != nil {
		return commit.BuildDone{Err: err}
	}
	ctx, cancel := d.effect()
	defer cancel()
	r, err := d.o.table.Build(ctx, a.Base, a.Units)
	return commit.BuildDone{Request: r, Err: err}
}

// stripped tells of a unit, or of the fence, that landed without its token.
func (d *drive) stripped(f commit.Finish) {
	u := d.fence
	if it := d.items[f.Token]; it != nil {
		u = it.unit
	}
	d.o.c.cfg.Stripped.Found(u, f.Outcome.Landed.SnapshotID)
}

// finish notes a unit's outcome, once; tell tells it.
func (d *drive) finish(t commit.Token, o commit.Outcome) {
	if it := d.items[t]; it != nil {
		delete(d.items, t)
		d.ended = append(d.ended, func() { it.done <- o })
	}
}

// tell tells the outcomes after all that the machine asked for with them was
// done, so that whoever hears of a refusal finds its request's files gone.
func (d *drive) tell() {
	for _, f := range d.ended {
		f()
	}
	d.ended = nil
}

// read opens the table with the first read, so that a table that is gone or a
// catalog that is down meets the machine's rules for a failed read.
func (d *drive) read() commit.Event {
	ctx, cancel := d.effect()
	defer cancel()
	if d.o.table == nil {
		t, err := d.o.c.cfg.Open(ctx, d.o.name)
		if err != nil {
			return commit.ReadDone{Err: err}
		}
		d.o.table = t
	}
	meta, err := d.o.table.Read(ctx)
	if err == nil {
		d.compare(ctx, meta)
	}
	return commit.ReadDone{Metadata: meta, Err: err}
}

// compare reports a commit that the catalog said was done and that the table doesn't
// show. Nothing follows from it but what follows from the read.
func (d *drive) compare(ctx context.Context, m commit.Metadata) {
	r := d.claimed
	d.claimed = commit.Request{}
	if r.ID == "" || m.HasSnapshot(r.SnapshotID) {
		return
	}
	for _, t := range r.Tokens {
		if _, found := m.Find(r.Branch, t); found {
			return
		}
	}
	d.log.LogAttrs(ctx, slog.LevelWarn, "the catalog said that a commit was done, and the table doesn't show it; run firn catalog check",
		slog.String("request_id", r.ID))
}

func (d *drive) send(a commit.Send) commit.Event {
	d.o.doingNow("the catalog's answer to request "+a.Request.ID, len(a.Request.Tokens))
	ctx, cancel := d.effect()
	defer cancel()
	// Who waits is told at the deadline, also by a catalog that never answers.
	ctx, stop := context.WithTimeout(ctx, d.deadline.Sub(d.now()))
	defer stop()
	d.sent = true
	log := d.log.With(slog.String("request_id", a.Request.ID))
	log.LogAttrs(ctx, slog.LevelDebug, "sending commit request", slog.Int64("seat", a.Request.Seat.Number), slog.Int("units", len(a.Request.Tokens)))
	failpoint.Hit(failpoint.BeforeSend)
	answer := d.o.table.Send(ctx, a.Request)
	failpoint.Hit(failpoint.AfterSend)
	log.LogAttrs(ctx, slog.LevelDebug, "commit request answered", slog.String("answer", string(answer.Class)))
	if answer.Class == commit.AnswerOK {
		d.claimed = a.Request
	}
	return commit.SendDone{Answer: answer}
}

// permit passes the point of no return of each unit, or learns that a cancel was
// first.
func (d *drive) permit(a commit.Permit) commit.Event {
	denied := map[commit.Token]error{}
	for _, t := range a.Tokens {
		it := d.items[t]
		if it == nil {
			continue
		}
		err := it.permit()
		if err == nil && it.root.BeforeSend != nil {
			err = it.root.BeforeSend()
		}
		if err != nil {
			denied[t] = err
		}
	}
	return commit.Permitted{Denied: denied}
}

func (d *drive) effect() (context.Context, context.CancelFunc) {
	return context.WithTimeout(d.ctx, d.o.c.cfg.EffectTimeout)
}

func (d *drive) wait(until time.Time) {
	t := time.NewTimer(until.Sub(d.now()))
	defer t.Stop()
	select {
	case <-t.C:
	case <-d.ctx.Done():
	}
}

// now is the time as the machine sees it. In a hurry its deadline has passed.
func (d *drive) now() time.Time {
	now := d.o.c.cfg.Clock()
	if d.o.c.hurry.Err() != nil && now.Before(d.deadline) {
		return d.deadline
	}
	return now
}

// broke ends all units after a panic. The driver may be in any state, so the
// table is opened anew.
func (d *drive) broke(p any) {
	table := d.o.table
	d.o.table = nil
	for t, it := range d.items {
		d.finish(t, it.afterPanic(p, d.sent))
	}
	d.tell()
	if table != nil {
		d.o.c.closeTable(table)
	}
}

func (it *item) afterPanic(p any, sent bool) commit.Outcome {
	e := &commit.Error{
		Code: commit.CodeCommitPanic, Op: "commit to", Object: it.unit.Table.String(),
		Cause: fmt.Errorf("a defect in Firn: %v", p),
		Hint:  "Report it with the scheduler's log. Running the statement again with the same idempotency key is safe.",
	}
	if sent || len(it.root.Sent) > 0 {
		e.Code = commit.CodeUnknown
		e.Tried = "a request was sent; the data files are kept under " + it.unit.Prefix
		return commit.Outcome{State: commit.Unknown, Err: e}
	}
	e.Reason = commit.ReasonBudget
	e.Tried = "nothing was sent; the data files are kept under " + it.unit.Prefix
	return commit.Outcome{State: commit.Refused, Reason: commit.ReasonBudget, Err: e}
}
