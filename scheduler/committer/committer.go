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
// that it guards, never a commit that is already under way.
type Recorder interface {
	// RecordSeal fixes a unit for ever, before it is queued.
	RecordSeal(ctx context.Context, u commit.Unit) error
	// RecordSend names a request before its one copy is sent.
	RecordSend(ctx context.Context, r commit.Request) error
	// RecordOutcome keeps how a unit ended. The outcome stands even if this
	// fails.
	RecordOutcome(ctx context.Context, u commit.Unit, o commit.Outcome) error
}

// Config is what a Committer needs. Only Open is required.
type Config struct {
	Open     Opener
	Recorder Recorder
	Logger   *slog.Logger
	// Clock gives the time; time.Now when nil.
	Clock func() time.Time
	// Deadline bounds one unit from the moment that its table's owner takes it
	// up (default 10 minutes); after it the unit is refused when nothing of it
	// can land any more, else unknown.
	Deadline time.Duration
	// EffectTimeout bounds one read, build or send (default 2 minutes).
	EffectTimeout time.Duration
	// MaxAttempts bounds the requests sent for one unit (default 20).
	MaxAttempts int
}

// Committer runs commits, one at a time for each table. It is safe for
// concurrent use.
//
// A table that has work has one owner, a goroutine that drives one unit after
// the other in the order of arrival and ends when its queue is empty. Requests
// of this process therefore never compete with each other for a table's seat;
// they compete with other processes only.
type Committer struct {
	cfg Config
	// closing is done when Close was called, hurry when its time was up.
	closing, hurry context.Context //nolint:containedctx // the committer's own life
	stop, giveUp   context.CancelFunc
	owners         sync.WaitGroup

	mu struct {
		sync.Mutex
		queues map[string][]*item // by table name; present while an owner runs
		closed bool
	}
}

// item is one unit in the queue of its table.
type item struct {
	ctx  context.Context //nolint:containedctx // the caller's, which travels with the unit to its owner
	root Root
	unit commit.Unit
	done chan commit.Outcome // buffered: the owner never waits for a caller
}

// errClosing stops the units that have sent nothing when the committer closes.
var errClosing = errors.New("the scheduler is shutting down")

// New returns a Committer. Close it.
func New(cfg Config) *Committer {
	if cfg.Recorder == nil {
		cfg.Recorder = noRecorder{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Deadline <= 0 {
		cfg.Deadline = 10 * time.Minute
	}
	if cfg.EffectTimeout <= 0 {
		cfg.EffectTimeout = 2 * time.Minute
	}
	c := &Committer{cfg: cfg}
	c.closing, c.stop = context.WithCancel(context.Background())
	c.hurry, c.giveUp = context.WithCancel(context.Background())
	c.mu.queues = map[string][]*item{}
	return c
}

// Close takes no more units, stops those that have sent nothing, and returns
// when those that have are settled. When ctx ends first, their time is up as if
// their deadline had passed: what isn't proven by then is unknown, and the
// journal has its send records.
func (c *Committer) Close(ctx context.Context) {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.stop()
	defer c.giveUp()
	defer context.AfterFunc(ctx, c.giveUp)()
	c.owners.Wait()
}

// Lookup looks a token up in the table's main branch.
func (c *Committer) Lookup(ctx context.Context, name commit.TableName, token commit.Token) (commit.Landed, bool, error) {
	table, err := c.cfg.Open(ctx, name)
	if err != nil {
		return commit.Landed{}, false, err
	}
	defer c.closeTable(table)
	meta, err := table.Read(ctx)
	if err != nil {
		return commit.Landed{}, false, err
	}
	landed, ok := meta.Find(commit.MainBranch, token)
	return landed, ok, nil
}

// submit queues the unit at its table's owner and waits for the outcome. A
// unit that still waits in the queue when ctx ends leaves it at once.
func (c *Committer) submit(ctx context.Context, r Root, u commit.Unit) commit.Outcome {
	it := &item{ctx: ctx, root: r, unit: u, done: make(chan commit.Outcome, 1)}
	key := u.Table.String()
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return stopped(u, errClosing)
	}
	queue, running := c.mu.queues[key]
	c.mu.queues[key] = append(queue, it)
	if !running {
		c.owners.Go(func() { c.own(key) })
	}
	c.mu.Unlock()

	select {
	case o := <-it.done:
		return o
	case <-ctx.Done():
		if c.leave(key, it) {
			return stopped(u, context.Cause(ctx))
		}
		return <-it.done
	}
}

// leave takes an item out of the queue; false when its owner has it already.
func (c *Committer) leave(key string, it *item) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, q := range c.mu.queues[key] {
		if q == it {
			c.mu.queues[key] = append(c.mu.queues[key][:i:i], c.mu.queues[key][i+1:]...)
			return true
		}
	}
	return false
}

// take gives the owner its next unit. Group commit will take several here: the
// machine takes a batch already.
func (c *Committer) take(key string) *item {
	c.mu.Lock()
	defer c.mu.Unlock()
	queue := c.mu.queues[key]
	if len(queue) == 0 {
		delete(c.mu.queues, key)
		return nil
	}
	c.mu.queues[key] = queue[1:]
	return queue[0]
}

// own is the owner of one table.
func (c *Committer) own(key string) {
	for it := c.take(key); it != nil; it = c.take(key) {
		it.done <- c.drive(it)
	}
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

// stopped is the outcome of a unit that left before its owner took it up.
func stopped(u commit.Unit, cause error) commit.Outcome {
	m := commit.NewMachine([]commit.Unit{u}, commit.Options{})
	for _, a := range m.Step(commit.Cancel{Token: u.Token, Err: cause}, time.Time{}) {
		if f, ok := a.(commit.Finish); ok {
			return f.Outcome
		}
	}
	return commit.Outcome{State: commit.Refused, Err: cause}
}

type noRecorder struct{}

func (noRecorder) RecordSeal(context.Context, commit.Unit) error                    { return nil }
func (noRecorder) RecordSend(context.Context, commit.Request) error                 { return nil }
func (noRecorder) RecordOutcome(context.Context, commit.Unit, commit.Outcome) error { return nil }
