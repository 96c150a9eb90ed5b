package committer

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"github.com/firn-project/firn/commit"
)

// Opener opens a table by name. The error wraps commit.ErrTableNotFound when
// there is none. The committer closes what it opened.
type Opener func(ctx context.Context, name commit.TableName) (commit.Table, error)

// Recorder is the seam for the journal: what must be durable before the next
// step. Each call returns when the record is durable; an error stops the step
// that it guards, never a commit that is already under way. Calls for different
// units may come at the same time.
type Recorder interface {
	// RecordSeal fixes a unit for ever, before it is queued.
	RecordSeal(ctx context.Context, u commit.Unit) error
	// RecordSend names a request before its one copy is sent.
	RecordSend(ctx context.Context, r commit.Request) error
	// RecordOutcome keeps how a unit ended. The outcome stands even if this
	// fails.
	RecordOutcome(ctx context.Context, u commit.Unit, o commit.Outcome) error
}

// Stripped knows the tables that lose the tokens of commits.
type Stripped interface {
	// Check is asked before each request to a table is built. Its error has a
	// reason, for which the units are refused.
	Check(tableUUID string) error
	// Found is told that a unit landed without its token, before anybody hears of
	// its outcome and before the next request is built.
	Found(u commit.Unit, snapshotID string)
}

// Config is what a Committer needs. Only Open is required.
type Config struct {
	Open     Opener
	Recorder Recorder
	// Stripped may be nil: then a table that loses tokens is committed to all the same.
	Stripped Stripped
	Logger   *slog.Logger
	// Clock gives the time; time.Now when nil.
	Clock func() time.Time
	// Deadline bounds one unit from the moment that its table's owner takes it
	// up (default 10 minutes); after it the unit is refused when nothing of it
	// can land any more, else unknown.
	Deadline time.Duration
	// QueueLimit bounds the time in the queue before that (default 10 minutes);
	// after it the unit is refused, as nothing of it was sent.
	QueueLimit time.Duration
	// EffectTimeout bounds one read, build or send (default 2 minutes).
	EffectTimeout time.Duration
	// MaxAttempts bounds the requests sent for one unit (default 20).
	MaxAttempts int
	// MaxBatch bounds the units of one request (default and at most 256).
	MaxBatch int
	// IdleClose is how long a table without work stays open (default 1 minute).
	IdleClose time.Duration
	// CheckFiles looks at the files themselves before a unit is sealed. storage is
	// that of plan.Pinned. An error with a reason refuses the unit, any other one
	// ends the run with nothing committed. Nil: files are taken as described.
	CheckFiles func(ctx context.Context, storage map[string]string, u commit.Unit) error
	// WatchEvery is how often the log says what a commit that waits is waiting
	// for (default 10 s).
	WatchEvery time.Duration
}

func (c Config) withDefaults() Config {
	if c.Recorder == nil {
		c.Recorder = noRecorder{}
	}
	if c.Stripped == nil {
		c.Stripped = noneStripped{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&c.Deadline, 10 * time.Minute},
		{&c.QueueLimit, 10 * time.Minute},
		{&c.EffectTimeout, 2 * time.Minute},
		{&c.IdleClose, time.Minute},
		{&c.WatchEvery, 10 * time.Second},
	} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	if c.MaxBatch <= 0 || c.MaxBatch > maxBatch {
		c.MaxBatch = maxBatch
	}
	return c
}

// maxBatch is the most units that share a request: their tokens stand in one
// summary value.
const maxBatch = 256

// Committer runs commits, one request at a time for each table. It is safe for
// concurrent use.
//
// A table that has work has one owner, a goroutine. While its request is in
// flight, units gather in the queue; when it is answered, those that may share a
// request go out together (see owner.take). Requests of this process therefore
// never compete with each other for a table's seat; they compete with other
// processes only.
type Committer struct {
	cfg Config
	// closing is done when Close was called, hurry when its time was up.
	closing, hurry context.Context //nolint:containedctx // the committer's own life
	stop, giveUp   context.CancelFunc
	running        sync.WaitGroup

	mu struct {
		sync.Mutex
		owners map[string]*owner // by table name; present while one runs
		closed bool
	}
}

// errClosing stops the units that have sent nothing when the committer closes.
var errClosing = errors.New("the scheduler is shutting down")

// New returns a Committer. Close it.
func New(cfg Config) *Committer {
	c := &Committer{cfg: cfg.withDefaults()}
	c.closing, c.stop = context.WithCancel(context.Background())
	c.hurry, c.giveUp = context.WithCancel(context.Background())
	c.mu.owners = map[string]*owner{}
	return c
}

// Close takes no more units, stops those that have sent nothing, and returns
// when those that have are settled and all tables are closed. When ctx ends
// first, their time is up as if their deadline had passed: what isn't proven by
// then is unknown, and the journal has its send records.
func (c *Committer) Close(ctx context.Context) {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.stop()
	defer c.giveUp()
	defer context.AfterFunc(ctx, c.giveUp)()
	c.running.Wait()
}

// submit queues the unit at its table's owner and waits for the outcome.
//
// The end of ctx, of the committer or of the time in the queue takes the unit
// out, at once and wherever it stands, unless it has passed its point of no
// return: item.leave and item.permit decide between the two.
func (c *Committer) submit(ctx context.Context, r Root, u commit.Unit) commit.Outcome {
	it := &item{ctx: ctx, root: r, unit: u, since: c.cfg.Clock(), done: make(chan commit.Outcome, 1)}
	if !c.enqueue(it) {
		return c.end(ctx, it, it.stopped(errClosing))
	}
	defer it.owner.forget(it)
	watch := time.NewTicker(c.cfg.WatchEvery)
	defer watch.Stop()
	limit := time.NewTimer(c.cfg.QueueLimit)
	defer limit.Stop()
	cancelled, closing := ctx.Done(), c.closing.Done()
	for {
		select {
		case o := <-it.done:
			return c.end(ctx, it, o)
		case <-cancelled:
			cancelled = nil
			if cause := context.Cause(ctx); it.leave(cause) {
				return c.end(ctx, it, it.stopped(cause))
			}
		case <-closing:
			closing = nil
			if it.leave(errClosing) {
				return c.end(ctx, it, it.stopped(errClosing))
			}
		case <-limit.C:
			if waited := it.waitedTooLong(c.cfg.QueueLimit); it.leaveQueue(waited.Err) {
				return c.end(ctx, it, waited)
			}
		case <-watch.C:
			c.logger(it).LogAttrs(ctx, slog.LevelWarn, "commit waits",
				slog.String("waits_for", it.owner.explain(it)), slog.Duration("waited", c.cfg.Clock().Sub(it.since)))
		}
	}
}

// enqueue gives the unit to its table's owner, which is started when there is
// none.
func (c *Committer) enqueue(it *item) bool {
	key := it.unit.Table.String()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return false
	}
	o := c.mu.owners[key]
	if o == nil {
		o = newOwner(c, it.unit.Table)
		c.mu.owners[key] = o
		c.running.Go(o.run)
	}
	it.owner = o
	o.add(it)
	return true
}

// end records how a unit ended, in the goroutine of its caller, so that the
// table's owner goes on to the next request and that a journal can make many
// records durable at once.
func (c *Committer) end(ctx context.Context, it *item, o commit.Outcome) commit.Outcome {
	ctx, cancel := c.last(ctx)
	defer cancel()
	log := c.logger(it)
	if err := c.cfg.Recorder.RecordOutcome(ctx, it.unit, o); err != nil {
		log.LogAttrs(ctx, slog.LevelError, "recording a commit's outcome failed", slog.String("error", err.Error()))
	}
	log.LogAttrs(ctx, slog.LevelInfo, "commit unit ended", slog.String("state", string(o.State)), slog.String("reason", string(o.Reason)),
		slog.String("snapshot_id", o.Landed.SnapshotID), slog.Int("attempts", o.Attempts), slog.Int("conflicts", o.Conflicts),
		slog.Duration("took", c.cfg.Clock().Sub(it.since)))
	return o
}

// hurried is how long tidying up may take when the committer's time is up.
const hurried = 2 * time.Second

// last is a context for what is tidied up at the end, also in a hurry.
func (c *Committer) last(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := c.cfg.EffectTimeout
	if c.hurry.Err() != nil {
		limit = min(limit, hurried)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

func (c *Committer) logger(it *item) *slog.Logger {
	return c.cfg.Logger.With(slog.String("job_id", it.unit.JobID), slog.String("table", it.unit.Table.String()))
}

func (c *Committer) closeTable(t commit.Table) {
	if err := t.Close(); err != nil {
		c.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "closing a table failed", slog.String("error", err.Error()))
	}
}

// seed makes machines that compete for one table pause differently.
func seed(u commit.Unit, now time.Time) uint64 {
	h := fnv.New64a()
	h.Write([]byte(u.JobID)) // a hash never fails to take bytes
	h.Write(u.Token[:])
	return h.Sum64() ^ uint64(now.UnixNano())
}

type noneStripped struct{}

func (noneStripped) Check(string) error        { return nil }
func (noneStripped) Found(commit.Unit, string) {}

type noRecorder struct{}

func (noRecorder) RecordSeal(context.Context, commit.Unit) error                    { return nil }
func (noRecorder) RecordSend(context.Context, commit.Request) error                 { return nil }
func (noRecorder) RecordOutcome(context.Context, commit.Unit, commit.Outcome) error { return nil }
