package committer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
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
	// RecordOutcome keeps how a unit ended.
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
	// EffectTimeout bounds one read, build or send (default 1 minute).
	EffectTimeout time.Duration
	// MaxAttempts bounds the requests sent for one unit (default 20).
	MaxAttempts int
}

// Root is one commit operator to run.
type Root struct {
	JobID string
	// Key is the job's idempotency key, Namespace that of its principal.
	Key       string
	Namespace string
	Plan      *plan.Commit
	// Tasks is the number of tasks of the final stage.
	Tasks int
	// Attempts are the final stage's accepted attempts, one for each task; nil
	// when they aren't known here. Files of any other attempt are refused.
	Attempts []string
	// Read streams the file manifests. It must have read everything before it
	// returns nil; its error is returned by Run as it is (wrapped).
	Read func(ctx context.Context, each func([]commit.File) error) error
	// BeforeSend is called once, before the first request is sent: the point
	// of no return. Its error stops the unit.
	BeforeSend func() error
	// OnPhase hears of phases: "reading", "verifying", "queued", "committing".
	OnPhase func(phase string)
}

// Committer runs commits, one at a time for each table. It is safe for
// concurrent use.
type Committer struct {
	cfg Config

	mu struct {
		sync.Mutex
		owners map[string]*owner
		closed bool
	}
	stop context.CancelFunc
	done context.Context
	wg   sync.WaitGroup
}

type owner struct{}

// New returns a Committer. Close it.
func New(cfg Config) *Committer {
	c := &Committer{cfg: cfg}
	c.done, c.stop = context.WithCancel(context.Background())
	return c
}

// Close takes no more units, stops those that have sent nothing, and returns
// when those that have are settled.
func (c *Committer) Close() {
	c.stop()
	c.wg.Wait()
}

// Run runs one commit operator to its end. The report tells what is known of
// the table also when the error isn't nil; the error is a *commit.Error.
func (c *Committer) Run(ctx context.Context, r Root) (commit.Report, error) {
	return commit.Report{}, ctx.Err()
}

// Lookup looks a token up in the table's main branch.
func (c *Committer) Lookup(ctx context.Context, name commit.TableName, token commit.Token) (commit.Landed, bool, error) {
	return commit.Landed{}, false, ctx.Err()
}
