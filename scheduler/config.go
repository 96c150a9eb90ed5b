package scheduler

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/answers"
	"github.com/firn-project/firn/scheduler/flightsource"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/metrics"
	"github.com/firn-project/firn/scheduler/planner"
	"github.com/firn-project/firn/scheduler/speculation"
	"github.com/firn-project/firn/scheduler/storekeys"
	"github.com/firn-project/firn/scheduler/writes"
	"github.com/firn-project/firn/sql"
)

// Catalogs is what a scheduler needs of the catalogs. The implementation is
// package catalog's Set.
type Catalogs interface {
	sql.Catalogs
	// OpenTable opens a table for a commit. The caller closes it.
	OpenTable(ctx context.Context, name commit.TableName) (commit.Table, error)
}

// Ways of planning: see planner.Options.
const (
	PlanningAdaptive = "adaptive"
	PlanningStatic   = "static"
)

// Ways of dispatch.
const (
	DispatchPush = "push"
	DispatchPull = "pull"
)

// Config says how a scheduler works. Catalogs, Parser and Dir must be set; the
// zero value of everything else has a default.
type Config struct {
	// Listen is the address of the gRPC listener, host:port; port 0 takes a free
	// one. Default 127.0.0.1:0.
	Listen string
	// Dir holds the journal and the key that signs tickets. One scheduler at a
	// time works in it.
	Dir string
	// Catalogs are not closed by the scheduler.
	Catalogs Catalogs
	Parser   sql.TreeParser
	// Binder binds the queries that look at no files, outside of this process. Nil:
	// executors bind those too.
	Binder sql.Binder
	// Planning is PlanningAdaptive (default) or PlanningStatic.
	Planning string
	// Dispatch is DispatchPush (default) or DispatchPull.
	Dispatch string
	// Root picks the root operators that run on the scheduler. Nil stands for
	// planner.DefaultRoot; NoRoot switches roots off.
	Root   func(plan.Node) bool
	NoRoot bool
	// ReachSource gives the settings of the store in which a statement may read
	// the object at a location; nil settings for none. Nil: objects are read
	// anonymously.
	ReachSource func(ctx context.Context, uri string) (map[string]string, error)
	// StoreKeys makes the keys to object stores that executors get. Nil: they get
	// none.
	StoreKeys storekeys.Minter
	// Flight are the Flight SQL engines that are sources. Nil: there are none.
	Flight *flightsource.Registry
	// LocalAllow are the directories that executors may read sources from,
	// unless they have a setting of their own. Empty: none.
	LocalAllow []string
	// DeleteFile deletes one data file, for `commit drop` and for files that
	// no table can have any more. storage is that of plan.Pinned. Nil: files
	// stay.
	DeleteFile func(ctx context.Context, storage map[string]string, uri string) error
	// StatFile gives a data file's size; it is asked before a parked unit is
	// committed again. Nil: not asked.
	StatFile func(ctx context.Context, storage map[string]string, uri string) (int64, error)
	// OpenStore reaches the files of a table with the scheduler's own access, to
	// look at what executors wrote before it is committed. Nil: they are taken as
	// described.
	OpenStore func(storage map[string]string) objstore.Store
	// CheckAllFiles looks at every file, and not only at a sample of those of a job
	// with more than footers.Always.
	CheckAllFiles bool

	// Writes bounds the open writes of others.
	Writes writes.Config

	// HeartbeatInterval is how often executors report (default 2 s); one that
	// is silent for ExecutorTimeout (default 20 s) is lost.
	HeartbeatInterval, ExecutorTimeout time.Duration
	// ProbeTimeout is how long an executor may look at a statement's sources (3 min:
	// longer than executors themselves take at most).
	ProbeTimeout time.Duration
	// ExecutorWait is how long a statement waits for a first executor (30 s).
	ExecutorWait time.Duration
	// ExecutorReturn is how long a job with tasks to run waits for an executor when
	// none is left (5 min). A job that commits needs none.
	ExecutorReturn time.Duration
	// Speculation says which tasks get a second attempt; nil for
	// speculation.Default, its zero value for none.
	Speculation *speculation.Policy
	// ResultTTL is how long the rows of a SELECT can be read (300 s),
	// UploadTTL how long an upload that no job has used yet is kept (1 h).
	ResultTTL, UploadTTL time.Duration
	// FrameTTL is how long a cached frame is kept without being used, unless it says
	// otherwise (1 h). MaxFrames and MaxFrameBytes bound what one principal has of
	// them (100, and 64 GiB); less than 0: they don't.
	FrameTTL      time.Duration
	MaxFrames     int
	MaxFrameBytes int64
	// CloseTimeout bounds how long Close waits for commits in flight (20 s:
	// less than those who stop processes usually wait before they kill).
	CloseTimeout time.Duration
	// EndJobs: Close fails the jobs that have not sealed their commit, instead of
	// leaving them to the next process. For clusters that end with their client.
	EndJobs bool
	// PlanSlots and RootSlots bound how many jobs plan and how many roots run at
	// the same time (8 and 16). A root that waits for its table counts only if its
	// manifest is large.
	PlanSlots, RootSlots int
	// MaxQueued bounds how many jobs wait to be planned (10,000). A statement that
	// would be one more is refused, unless its key stands for a job.
	MaxQueued int
	// ManifestMemory bounds the memory that file manifests take in all, in bytes (1
	// GiB); those of one job get half. A root whose manifests find no room waits.
	ManifestMemory int64
	// MaxResult bounds the inline result of a root in bytes (16 MiB). It is
	// checked before the commit, never after.
	MaxResult int

	// Dial and ServerOptions are further gRPC options for connections to executors
	// and for the listener, such as TLS.
	Dial          []grpc.DialOption
	ServerOptions []grpc.ServerOption
	// Authenticate decides about each call, by its gRPC method; nil lets everybody
	// in.
	Authenticate func(ctx context.Context, method string) error

	Logger *slog.Logger
	// EventDir is where what happens to jobs is logged, see package eventlog. Empty:
	// it isn't.
	EventDir string
	// Metrics counts what the scheduler does. Nil: nobody looks.
	Metrics *metrics.Metrics

	// JournalRetention is how long an ended job is remembered (7 days). A key
	// is deduplicated for at least as long.
	JournalRetention time.Duration
	// CommitDeadline is how long one commit is tried before it is told as it stands
	// (10 min): unknown, when a request of it may still land.
	CommitDeadline time.Duration
	// ParkedRetention is how long the files of a parked unit are kept (24 h).
	// Those of a unit whose outcome isn't known are kept for ever.
	ParkedRetention time.Duration
	// SweepDelay is how long after a job's end its executors' rights to write
	// below its prefix may last (15 min); its files are swept once more then.
	SweepDelay time.Duration
	// ListPrefix lists the files under a job's prefix; see package cleanup. Nil:
	// only files that a manifest names are ever deleted.
	ListPrefix func(ctx context.Context, storage map[string]string, prefix string) iter.Seq2[string, error]
	// TidyPrefix removes what ListPrefix doesn't show: what unfinished writers left,
	// and empty directories. Nil: that stays.
	TidyPrefix func(ctx context.Context, storage map[string]string, prefix string) error

	// newCommitter and bindStatement replace the committer and the analyzer in
	// tests.
	newCommitter  func(Config) Committer
	bindStatement func(context.Context, sql.Statement, plan.Session, sql.BindOptions) (plan.Node, error)
	// readSilence replaces how long an executor may be silent to who reads from it.
	readSilence time.Duration
	// openJournal replaces the journal in tests.
	openJournal func(context.Context, string) (journal.Journal, error)
}

func (c Config) withDefaults() Config {
	str := func(v *string, def string) {
		if *v == "" {
			*v = def
		}
	}
	dur := func(v *time.Duration, def time.Duration) {
		if *v == 0 {
			*v = def
		}
	}
	num := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	str(&c.Listen, "127.0.0.1:0")
	str(&c.Dispatch, DispatchPush)
	str(&c.Planning, PlanningAdaptive)
	dur(&c.HeartbeatInterval, 2*time.Second)
	dur(&c.ExecutorTimeout, 20*time.Second)
	dur(&c.ProbeTimeout, 3*time.Minute)
	dur(&c.ExecutorWait, 30*time.Second)
	dur(&c.ExecutorReturn, 5*time.Minute)
	dur(&c.ResultTTL, 300*time.Second)
	dur(&c.UploadTTL, time.Hour)
	dur(&c.FrameTTL, time.Hour)
	dur(&c.CloseTimeout, 20*time.Second)
	dur(&c.JournalRetention, 7*24*time.Hour)
	dur(&c.ParkedRetention, 24*time.Hour)
	dur(&c.SweepDelay, 15*time.Minute)
	dur(&c.CommitDeadline, 10*time.Minute)
	c.Writes = c.Writes.WithDefaults()
	num(&c.PlanSlots, 8)
	num(&c.RootSlots, 16)
	num(&c.MaxQueued, 10_000)
	num(&c.MaxResult, 16<<20)
	num(&c.MaxFrames, 100)
	if c.MaxFrameBytes == 0 {
		c.MaxFrameBytes = 64 << 30
	}
	if c.ManifestMemory == 0 {
		c.ManifestMemory = answers.DefaultManifests
	}
	if c.Root == nil && !c.NoRoot {
		c.Root = planner.DefaultRoot
	}
	if c.NoRoot {
		c.Root = nil
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = metrics.New(c.Logger)
	}
	if c.Speculation == nil {
		c.Speculation = &speculation.Default
	}
	if c.Authenticate == nil {
		c.Authenticate = func(context.Context, string) error { return nil }
	}
	if c.openJournal == nil {
		c.openJournal = func(ctx context.Context, dir string) (journal.Journal, error) { return journal.Open(ctx, dir) }
	}
	return c
}

// minManifestMemory is the least memory for file manifests.
const minManifestMemory = 4 << 20

// validate names the field, its value and what is allowed.
func (c Config) validate() error {
	switch {
	case c.Dir == "":
		return errors.New("scheduler: Dir is empty; want the directory of the journal")
	case c.Catalogs == nil:
		return errors.New("scheduler: Catalogs is nil")
	case c.Planning != PlanningAdaptive && c.Planning != PlanningStatic:
		return fmt.Errorf("scheduler: Planning is %q; want %q or %q", c.Planning, PlanningAdaptive, PlanningStatic)
	case c.Dispatch != DispatchPush && c.Dispatch != DispatchPull:
		return fmt.Errorf("scheduler: Dispatch is %q; want %q or %q", c.Dispatch, DispatchPush, DispatchPull)
	case c.ExecutorTimeout <= c.HeartbeatInterval:
		return fmt.Errorf("scheduler: ExecutorTimeout is %v; want more than HeartbeatInterval, %v", c.ExecutorTimeout, c.HeartbeatInterval)
	case c.JournalRetention < 0 || c.ParkedRetention < 0 || c.SweepDelay < 0:
		return fmt.Errorf("scheduler: JournalRetention is %v, ParkedRetention %v and SweepDelay %v; want more than 0", c.JournalRetention, c.ParkedRetention, c.SweepDelay)
	case c.ExecutorReturn < 0:
		return fmt.Errorf("scheduler: ExecutorReturn is %v; want more than 0", c.ExecutorReturn)
	case c.FrameTTL < 0:
		return fmt.Errorf("scheduler: FrameTTL is %v; want more than 0", c.FrameTTL)
	case c.CommitDeadline < 0:
		return fmt.Errorf("scheduler: CommitDeadline is %v; want more than 0", c.CommitDeadline)
	case c.ManifestMemory < minManifestMemory:
		return fmt.Errorf("scheduler: ManifestMemory is %d; want %d or more", c.ManifestMemory, minManifestMemory)
	case c.PlanSlots < 1 || c.RootSlots < 1 || c.MaxQueued < 1:
		return fmt.Errorf("scheduler: PlanSlots is %d, RootSlots %d and MaxQueued %d; want 1 or more", c.PlanSlots, c.RootSlots, c.MaxQueued)
	}
	return c.Writes.Validate()
}
