package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/firn-project/firn/catalog"
	"github.com/firn-project/firn/internal/config"
)

// NoExecutors is the Config.Executors of a cluster that only answers questions
// about tables and jobs.
const NoExecutors = -1

// Config says what the cluster is made of. Dir must be set; the zero value of
// everything else has a default.
type Config struct {
	// Dir holds everything: the scheduler's state, the executors' scratch, and
	// the default catalog with its warehouse. One process at a time uses it.
	Dir string
	// Listen is the scheduler's address, 127.0.0.1:0 by default.
	Listen string
	// FlightSQL is the address for Flight SQL clients; empty for none.
	FlightSQL string
	// Executors is how many there are, 1 by default; NoExecutors for none.
	Executors int
	// SlotsPerExecutor is how many tasks an executor runs at a time. By default
	// the processors are divided among the executors.
	SlotsPerExecutor int
	// Memory is each executor's, in bytes; by default DefaultMemory is divided
	// among them.
	Memory int64
	// Dispatch is push (the default) or pull.
	Dispatch string
	// Planning is adaptive (the default) or static.
	Planning string
	// Catalogs default to DefaultCatalogs(Dir).
	Catalogs []catalog.Config
	// CommitDeadline is how long one commit is tried; by default as long as in any
	// scheduler.
	CommitDeadline time.Duration
	// CheckAllFiles looks at every file before it is committed, and not only at a
	// sample of those of very large jobs. Tests set it.
	CheckAllFiles bool
	// Logger defaults to none.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("cluster: Dir is empty")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, err
	}
	c.Dir = dir
	switch {
	case c.Executors == 0:
		c.Executors = 1
	case c.Executors == NoExecutors:
		c.Executors = 0
	case c.Executors < 0 || c.Executors > 64:
		return c, fmt.Errorf("cluster: Executors is %d; want 1 to 64", c.Executors)
	}
	share := max(1, c.Executors)
	if c.SlotsPerExecutor == 0 {
		c.SlotsPerExecutor = max(1, runtime.NumCPU()/share)
	}
	if c.Memory == 0 {
		c.Memory = DefaultMemory() / int64(share)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Cluster is a running cluster. It is closed by Close.
type Cluster struct {
	cfg       Config
	scheduler *Scheduler
	// token is the one of this process's own.
	token     string
	executors []*Executor
	// closing silences the executors' logs.
	closing atomic.Bool
}

// DefaultCatalogs is the catalog of a directory that has no configuration: SQLite
// beside a warehouse on local disk.
func DefaultCatalogs(dir string) ([]catalog.Config, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return []catalog.Config{{
		Name:      "lake",
		Type:      "sql",
		URI:       "sqlite://" + filepath.Join(abs, "catalog.db"),
		Warehouse: filepath.Join(abs, "warehouse"),
	}}, nil
}

// Start builds the cluster and returns when every executor is registered. ctx
// bounds the start only. The caller closes the cluster.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cluster{cfg: cfg, token: rand.Text()}
	c.scheduler, err = StartScheduler(ctx, SchedulerConfig{
		Dir: cfg.Dir, Listen: cfg.Listen, Dispatch: cfg.Dispatch, Planning: cfg.Planning, Catalogs: cfg.Catalogs, OwnToken: c.token,
		CommitDeadline: cfg.CommitDeadline, CheckAllFiles: cfg.CheckAllFiles, FlightSQL: config.FlightSQL{Listen: cfg.FlightSQL},
		// The whole disk: the user who runs this process can read it anyway.
		LocalAllow: []string{"/"}, EndJobs: true, AnyCatalog: true, Logger: cfg.Logger.With(slog.String("role", "scheduler")),
	})
	if err != nil {
		return nil, err
	}
	if err := c.startExecutors(ctx); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return c, nil
}

// startExecutors starts all at once: each opens DuckDB instances.
func (c *Cluster) startExecutors(ctx context.Context) error {
	c.executors = make([]*Executor, c.cfg.Executors)
	errs := make([]error, c.cfg.Executors)
	var wg sync.WaitGroup
	for i := range c.executors {
		wg.Go(func() { c.executors[i], errs[i] = c.startExecutor(ctx, i+1) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *Cluster) startExecutor(ctx context.Context, n int) (*Executor, error) {
	name := fmt.Sprintf("executor-%d", n)
	return StartExecutor(ctx, name, config.Executor{
		Server: c.Addr(), Listen: "127.0.0.1:0", Dir: filepath.Join(c.cfg.Dir, name),
		Slots: c.cfg.SlotsPerExecutor, Memory: c.cfg.Memory, Token: c.token,
	}, slog.New(quiet{c.cfg.Logger.Handler(), &c.closing}).With(slog.String("role", name)))
}

// Addr is the scheduler's address, host:port.
func (c *Cluster) Addr() string { return c.scheduler.Addr() }

// FlightSQLAddr is where Flight SQL clients connect, host:port; empty when it isn't
// served.
func (c *Cluster) FlightSQLAddr() string { return c.scheduler.FlightSQLAddr() }

// Token lets this process's own clients in, also where others need one of
// `firn token create`.
func (c *Cluster) Token() string { return c.token }

// ExecutorAddrs are the executors' addresses, in order.
func (c *Cluster) ExecutorAddrs() []string {
	addrs := make([]string, len(c.executors))
	for i, ex := range c.executors {
		addrs[i] = ex.Addr()
	}
	return addrs
}

// Close stops the scheduler, which finishes sealed commits and fails what else
// runs, and then the executors: a root that is reading manifests still needs
// them. What tasks are left then can't count any more and are cancelled. ctx
// bounds the wait.
func (c *Cluster) Close(ctx context.Context) error {
	errs := make([]error, len(c.executors), len(c.executors)+1)
	c.closing.Store(true)
	schedulerErr := c.scheduler.Close(ctx)
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	var wg sync.WaitGroup
	for i, ex := range c.executors {
		if ex != nil {
			wg.Go(func() { errs[i] = ex.Close(ctx) })
		}
	}
	wg.Wait()
	return errors.Join(append(errs, schedulerErr)...)
}
