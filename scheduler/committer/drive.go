package committer

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/firn-project/firn/commit"
)

// drive is one unit on its way: the machine, and what its effects need.
type drive struct {
	c     *Committer
	it    *item
	table commit.Table // opened by the first read
	m     *commit.Machine
	// stop ends before the point of no return with the caller's context or
	// with the committer; free has the same values and ends only when the
	// committer's time to close is up.
	stop, free context.Context //nolint:containedctx // the two lives of one call of drive, which made them
	deadline   time.Time
	sent       bool
	outcome    *commit.Outcome
	log        *slog.Logger
}

// drive runs one unit to its outcome. It always returns one, also when the
// driver panics: before a send nothing can have changed, after it nobody knows.
func (c *Committer) drive(it *item) (o commit.Outcome) {
	stop, cancel := context.WithCancelCause(it.ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.closing, func() { cancel(errClosing) })()
	now := c.cfg.Clock()
	free, release := context.WithCancel(context.WithoutCancel(it.ctx))
	defer release()
	defer context.AfterFunc(c.hurry, release)()
	d := &drive{
		c: c, it: it, stop: stop, free: free, deadline: now.Add(c.cfg.Deadline),
		log: c.cfg.Logger.With(slog.String("job_id", it.unit.JobID), slog.String("table", it.unit.Table.String())),
		m: commit.NewMachine([]commit.Unit{it.unit}, commit.Options{
			MaxAttempts: c.cfg.MaxAttempts, Deadline: now.Add(c.cfg.Deadline), Seed: seed(it.unit, now), Sent: it.root.Sent,
		}),
	}
	defer func() {
		if p := recover(); p != nil {
			d.log.LogAttrs(d.free, slog.LevelError, "commit panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			o = d.afterPanic(p)
		}
		d.close(o)
	}()
	d.run()
	return *d.outcome
}

func (d *drive) run() {
	d.it.root.phase(PhaseCommitting)
	actions := d.m.Step(commit.Begin{}, d.now())
	for !d.m.Done() {
		var answer commit.Event
		for _, a := range actions {
			if ev := d.do(a); ev != nil {
				answer = ev
			}
		}
		if err := d.stopped(); err != nil {
			for _, a := range d.m.Step(commit.Cancel{Token: d.it.unit.Token, Err: err}, d.now()) {
				d.do(a)
			}
		}
		if answer == nil && !d.m.Done() {
			panic("the commit machine waits for nothing")
		}
		actions = d.m.Step(answer, d.now())
	}
	for _, a := range actions {
		d.do(a)
	}
}

// do carries out one action; the event is nil for actions without an answer.
func (d *drive) do(a commit.Action) commit.Event {
	switch a := a.(type) {
	case commit.Read:
		return d.read()
	case commit.Build:
		ctx, cancel := d.effect()
		defer cancel()
		r, err := d.table.Build(ctx, a.Base, a.Units)
		return commit.BuildDone{Request: r, Err: err}
	case commit.Permit:
		return d.permit(a)
	case commit.Record:
		ctx, cancel := d.effect()
		defer cancel()
		return commit.RecordDone{Err: d.c.cfg.Recorder.RecordSend(ctx, a.Request)}
	case commit.Send:
		ctx, cancel := d.effect()
		defer cancel()
		d.sent = true
		d.log.LogAttrs(d.free, slog.LevelDebug, "sending commit request", slog.String("request_id", a.Request.ID), slog.Int64("seat", a.Request.Seat.Number))
		answer := d.table.Send(ctx, a.Request)
		d.log.LogAttrs(d.free, slog.LevelDebug, "commit request answered", slog.String("request_id", a.Request.ID), slog.String("answer", string(answer.Class)))
		return commit.SendDone{Answer: answer}
	case commit.Wait:
		d.wait(a.Until)
		return commit.Woke{}
	case commit.Discard:
		ctx, cancel := d.last()
		defer cancel()
		if err := d.table.Discard(ctx, a.Request); err != nil {
			d.log.LogAttrs(d.free, slog.LevelWarn, "discarding a dead commit request left files behind",
				slog.String("request_id", a.Request.ID), slog.String("error", err.Error()))
		}
	case commit.Finish:
		d.outcome = &a.Outcome
	}
	return nil
}

// read opens the table with the first read, so that a table that is gone or a
// catalog that is down meets the machine's rules for a failed read.
func (d *drive) read() commit.Event {
	ctx, cancel := d.effect()
	defer cancel()
	if d.table == nil {
		t, err := d.c.cfg.Open(ctx, d.it.unit.Table)
		if err != nil {
			return commit.ReadDone{Err: err}
		}
		d.table = t
	}
	meta, err := d.table.Read(ctx)
	return commit.ReadDone{Metadata: meta, Err: err}
}

// permit passes the point of no return, or learns that a cancel was first.
func (d *drive) permit(a commit.Permit) commit.Event {
	err := d.stopped()
	if err == nil && d.it.root.BeforeSend != nil {
		err = d.it.root.BeforeSend()
	}
	denied := map[commit.Token]error{}
	if err != nil {
		for _, t := range a.Tokens {
			denied[t] = err
		}
	}
	return commit.Permitted{Denied: denied}
}

// stopped is why the unit should stop, if it may. The committer is asked itself,
// as its end reaches the context a moment later.
func (d *drive) stopped() error {
	if d.c.closing.Err() != nil {
		return errClosing
	}
	return context.Cause(d.stop)
}

// effect is the context of one effect: it ends with the caller's only as long
// as the unit may still be stopped.
func (d *drive) effect() (context.Context, context.CancelFunc) {
	if d.m.Permitted(d.it.unit.Token) {
		return context.WithTimeout(d.free, d.c.cfg.EffectTimeout)
	}
	return context.WithTimeout(d.stop, d.c.cfg.EffectTimeout)
}

// last is the context of what is tidied up at the end, also in a hurry.
func (d *drive) last() (context.Context, context.CancelFunc) {
	limit := d.c.cfg.EffectTimeout
	if d.free.Err() != nil {
		limit = min(limit, hurried)
	}
	return context.WithTimeout(context.WithoutCancel(d.free), limit)
}

// hurried is how long tidying up may take when the committer's time is up.
const hurried = 2 * time.Second

func (d *drive) wait(until time.Time) {
	t := time.NewTimer(until.Sub(d.now()))
	defer t.Stop()
	stop := d.stop.Done()
	if d.m.Permitted(d.it.unit.Token) {
		stop = nil
	}
	select {
	case <-t.C:
	case <-stop:
	case <-d.free.Done():
	}
}

// now is the time as the machine sees it. In a hurry its deadline has passed.
func (d *drive) now() time.Time {
	now := d.c.cfg.Clock()
	if d.free.Err() != nil && now.Before(d.deadline) {
		return d.deadline
	}
	return now
}

func (d *drive) afterPanic(p any) commit.Outcome {
	e := &commit.Error{
		Code: commit.CodeCommitPanic, Op: "commit to", Object: d.it.unit.Table.String(),
		Cause: fmt.Errorf("a defect in Firn: %v", p),
		Hint:  "Report it with the scheduler's log. Running the statement again with the same idempotency key is safe.",
	}
	switch {
	case d.outcome != nil:
		return *d.outcome
	case d.sent:
		e.Code = commit.CodeUnknown
		e.Tried = "a request was sent; the data files are kept under " + d.it.unit.Prefix
		return commit.Outcome{State: commit.Unknown, Err: e}
	default:
		e.Reason = commit.ReasonBudget
		e.Tried = "nothing was sent; the data files are kept under " + d.it.unit.Prefix
		return commit.Outcome{State: commit.Refused, Reason: commit.ReasonBudget, Err: e}
	}
}

// close records the outcome and releases the table.
func (d *drive) close(o commit.Outcome) {
	ctx, cancel := d.last()
	defer cancel()
	if err := d.c.cfg.Recorder.RecordOutcome(ctx, d.it.unit, o); err != nil {
		d.log.LogAttrs(d.free, slog.LevelError, "recording a commit's outcome failed", slog.String("error", err.Error()))
	}
	d.log.LogAttrs(d.free, slog.LevelInfo, "commit unit ended", slog.String("state", string(o.State)), slog.String("reason", string(o.Reason)),
		slog.String("snapshot_id", o.Landed.SnapshotID), slog.Int("attempts", o.Attempts), slog.Int("conflicts", o.Conflicts))
	if d.table != nil {
		d.c.closeTable(d.table)
	}
}
