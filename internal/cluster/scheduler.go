package cluster

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/firn-project/firn/catalog"
	"github.com/firn-project/firn/catalog/delta"
	"github.com/firn-project/firn/catalog/deltatables"
	"github.com/firn-project/firn/catalog/iceberg"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/binder"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/scheduler"
	"github.com/firn-project/firn/scheduler/cleanup"
	"github.com/firn-project/firn/scheduler/flightsqlserver"
	"github.com/firn-project/firn/scheduler/metrics"
	"github.com/firn-project/firn/scheduler/rest"
	"github.com/firn-project/firn/scheduler/speculation"
	"github.com/firn-project/firn/scheduler/writes"
	"github.com/firn-project/firn/sql"
)

// SchedulerConfig says what a scheduler is made of. Dir must be set.
type SchedulerConfig struct {
	// Dir holds the scheduler's state and the default catalog. One process at a
	// time uses it.
	Dir      string
	Listen   string
	Dispatch string
	// Planning is adaptive (the default) or static.
	Planning string
	// Catalogs default to DefaultCatalogs(Dir).
	Catalogs []catalog.Config
	// CreateCatalog says what statements may do about catalogs; AnyCatalog
	// allows everything.
	CreateCatalog config.CreateCatalog
	AnyCatalog    bool
	// LocalAllow are the directories that executors may read sources from.
	LocalAllow []string
	// SourceStores say how the objects are read that statements name.
	SourceStores []config.SourceStore
	// FlightSources are the Flight SQL engines that statements may name; with
	// AnyCatalog they may name every other one too.
	FlightSources map[string]config.FlightSource
	// DeltaPaths are where statements may name Delta tables by path.
	DeltaPaths []config.SourceStore
	// Executors says how executors are waited for; zero values stand for the
	// scheduler's defaults.
	Executors   config.Executors
	Speculation config.Speculation
	Results     config.Results
	Jobs        config.Jobs
	// Cache bounds cached frames.
	Cache config.Cache
	// ParkedRetention, JournalRetention and SweepDelay are scheduler.Config's.
	ParkedRetention, JournalRetention, SweepDelay time.Duration
	// CommitDeadline and CheckAllFiles are scheduler.Config's too.
	CommitDeadline time.Duration
	CheckAllFiles  bool
	// Writes bounds the open writes of others.
	Writes config.Writes
	// ManifestMemory is scheduler.Config's; 0 for the default.
	ManifestMemory int64
	// TLS, AllowPlaintext and AllowAnonymous are as in config.Scheduler.
	TLS                            config.TLS
	AllowPlaintext, AllowAnonymous bool
	// Helper is the command of the process in which queries are parsed and bound;
	// see package binder. Empty: they are in this one, which is for modes that have
	// everything in one process.
	Helper []string
	// OwnToken is one that is good for every role, of a process that holds other
	// parts too; empty for none.
	OwnToken string
	// EndJobs is the scheduler's: the jobs end with the process.
	EndJobs bool
	// HTTP says where the scheduler is served over HTTP, beside gRPC; nowhere when
	// its address is empty.
	HTTP config.HTTP
	// FlightSQL says where Flight SQL clients connect; nowhere when its address is empty.
	FlightSQL config.FlightSQL
	// EventLog writes what happens to jobs below Dir, see package eventlog.
	EventLog bool
	Logger   *slog.Logger
}

// Scheduler is a running scheduler with what it was built from: the locked
// directory, the catalogs and DuckDB's parser.
type Scheduler struct {
	*scheduler.Scheduler
	http    *rest.Server
	sql     *flightsqlserver.Server
	release []func() error
}

// StartScheduler builds a scheduler and starts it. ctx bounds the start only.
// The caller closes it.
func StartScheduler(ctx context.Context, cfg SchedulerConfig) (_ *Scheduler, err error) {
	s := &Scheduler{}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.releaseAll())
		}
	}()
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, failed("make directory", cfg.Dir, err)
	}
	sec, err := secureScheduler(cfg)
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s.release = append(s.release, lock.Close)
	if len(cfg.Catalogs) == 0 {
		if cfg.Catalogs, err = DefaultCatalogs(cfg.Dir); err != nil {
			return nil, failed("find directory", cfg.Dir, err)
		}
	}
	counts, events := metrics.New(cfg.Logger), ""
	options := cfg.catalogs()
	options.Observe = func(c catalog.Call) { counts.Catalog(c.Catalog, c.Method, c.Code, c.Took) }
	if options.Names, err = deltatables.OpenSQLite(ctx, filepath.Join(cfg.Dir, "tables.db")); err != nil {
		return nil, err
	}
	warnUnscoped(cfg)
	catalogs, err := catalog.OpenWith(ctx, options)
	if err != nil {
		return nil, err
	}
	s.release = append(s.release, catalogs.Close)
	parser, binds, err := s.openParser(cfg)
	if err != nil {
		return nil, failed("open", "DuckDB's parser", err)
	}
	flight, err := openFlightSources(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.EventLog {
		events = filepath.Join(cfg.Dir, "events")
	}
	s.Scheduler, err = scheduler.New(scheduler.Config{
		FrameTTL: cfg.Cache.TTL, MaxFrames: cfg.Cache.Frames, MaxFrameBytes: int64(cfg.Cache.Bytes),
		Listen: cfg.Listen, Dir: filepath.Join(cfg.Dir, "scheduler"), Catalogs: catalogs, Parser: parser, Binder: binds,
		Dispatch: cfg.Dispatch, Planning: cfg.Planning, LocalAllow: cfg.LocalAllow, ReachSource: sourceStores(cfg.SourceStores).reach, EndJobs: cfg.EndJobs,
		Flight:            flight,
		StoreKeys:         storeKeys{catalogs, cfg.SourceStores, cfg.AnyCatalog},
		HeartbeatInterval: cfg.Executors.Heartbeat, ExecutorTimeout: cfg.Executors.Timeout, ExecutorWait: cfg.Executors.Wait, ExecutorReturn: cfg.Executors.Return,
		Speculation: speculationOf(cfg.Speculation), ResultTTL: cfg.Results.Keep,
		PlanSlots: cfg.Jobs.PlannedAtOnce, MaxQueued: cfg.Jobs.MaxQueued,
		ParkedRetention: cfg.ParkedRetention, JournalRetention: cfg.JournalRetention, SweepDelay: cfg.SweepDelay,
		CommitDeadline: cfg.CommitDeadline, CheckAllFiles: cfg.CheckAllFiles, ManifestMemory: cfg.ManifestMemory,
		Dial: sec.dial, ServerOptions: sec.server, Authenticate: sec.gate.Check,
		DeleteFile: deleteFile, StatFile: statFile, ListPrefix: listPrefix, TidyPrefix: tidyPrefix, OpenStore: openStore, Logger: cfg.Logger,
		Metrics: counts, EventDir: events, Writes: writesOf(cfg.Writes),
	})
	if err != nil {
		return nil, failed("configure", "the scheduler", err)
	}
	if err := s.Start(ctx); err != nil {
		return nil, failed("start", "the scheduler", err)
	}
	if err := s.startHTTP(ctx, cfg, sec.gate, sec.dial, counts.Handler()); err != nil {
		return nil, errors.Join(failed("start", "HTTP", err), s.Scheduler.Close(ctx))
	}
	if err := s.startFlightSQL(ctx, cfg, sec.gate, sec.dial); err != nil {
		return nil, errors.Join(failed("start", "Flight SQL", err), s.closeHTTP(ctx), s.Scheduler.Close(ctx))
	}
	return s, nil
}

// speculationOf fills in what isn't set.
func speculationOf(s config.Speculation) *speculation.Policy {
	p := speculation.Default
	p.Done, p.Slower, p.AtLeast = cmp.Or(s.Done, p.Done), cmp.Or(s.Slower, p.Slower), cmp.Or(s.AtLeast, p.AtLeast)
	if s.Enabled != nil && !*s.Enabled {
		p = speculation.Policy{}
	}
	return &p
}

func writesOf(w config.Writes) writes.Config {
	return writes.Config{
		TTL: w.TTL, MaxAge: w.MaxAge, MaxOpen: w.MaxOpen, MaxOpenPrincipal: w.MaxOpenPrincipal,
		MaxManifest: int64(w.MaxManifest), MaxManifests: w.MaxManifests, MaxFiles: w.MaxFiles, MaxBytes: int64(w.MaxBytes),
	}
}

// openParser gives what parses queries, and what binds those that look at no file,
// which is nil where executors bind them.
func (s *Scheduler) openParser(cfg SchedulerConfig) (sql.TreeParser, sql.Binder, error) {
	if len(cfg.Helper) > 0 {
		pool, err := binder.NewPool(binder.Config{Command: cfg.Helper, Logger: cfg.Logger})
		if err != nil {
			return nil, nil, err
		}
		s.release = append(s.release, pool.Close)
		return pool, pool, nil
	}
	parser, err := duckdb.NewParser()
	if err != nil {
		return nil, nil, err
	}
	s.release = append(s.release, func() error { parser.Close(); return nil })
	return parser, nil, nil
}

// catalogs are the options of the catalogs.
func (c SchedulerConfig) catalogs() catalog.Options {
	o := catalog.Options{
		Configs: c.Catalogs, State: filepath.Join(c.Dir, "catalogs.json"), CreateTypes: c.CreateCatalog.Types, AllowUnscoped: c.AnyCatalog,
		DeltaPaths: slices.Clone(c.DeltaPaths),
		Secrets: config.SecretSources{
			Getenv: os.LookupEnv, Any: c.AnyCatalog,
			Env: c.CreateCatalog.Secrets.Env, Files: c.CreateCatalog.Secrets.Files, Commands: c.CreateCatalog.Secrets.Commands,
		},
	}
	if c.AnyCatalog {
		o.DeltaPaths = append(o.DeltaPaths, config.SourceStore{Location: "/"})
		o.CreateTypes = []string{"sql", "rest"}
	}
	return o
}

// Close stops the scheduler and then releases what it was built from. ctx bounds
// how long commits in flight are waited for.
func (s *Scheduler) Close(ctx context.Context) error {
	return errors.Join(s.closeFlightSQL(ctx), s.closeHTTP(ctx), s.Scheduler.Close(ctx), s.releaseAll())
}

// releaseAll releases in the reverse order of opening.
func (s *Scheduler) releaseAll() error {
	var errs []error
	for _, v := range slices.Backward(s.release) {
		errs = append(errs, v())
	}
	s.release = nil
	return errors.Join(errs...)
}

func openStore(storage map[string]string) objstore.Store {
	return objstore.New(objstore.FromStorage(storage))
}

// A sweep needs the driver to list what a snapshot added.
var (
	_ cleanup.Snapshots = (*iceberg.Table)(nil)
	_ cleanup.Snapshots = (*delta.Table)(nil)
)

func deleteFile(ctx context.Context, storage map[string]string, uri string) error {
	return objstore.New(objstore.FromStorage(storage)).Delete(ctx, uri)
}

func statFile(ctx context.Context, storage map[string]string, uri string) (int64, error) {
	return objstore.New(objstore.FromStorage(storage)).Stat(ctx, uri)
}

func listPrefix(ctx context.Context, storage map[string]string, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for info, err := range objstore.New(objstore.FromStorage(storage)).List(ctx, prefix) {
			if !yield(info.URI, err) || err != nil {
				return
			}
		}
	}
}

func tidyPrefix(ctx context.Context, storage map[string]string, prefix string) error {
	_, err := objstore.New(objstore.FromStorage(storage)).RemoveUnfinished(ctx, prefix)
	return err
}

// failed names the part that didn't start, unless the part's own error says it
// well enough.
func failed(op, object string, err error) error {
	if _, ok := errors.AsType[*commit.Error](err); ok {
		return err
	}
	return &commit.Error{Code: commit.CodeCluster, Op: op, Object: object, Cause: err}
}
