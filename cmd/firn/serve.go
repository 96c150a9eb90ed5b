package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/firn-project/firn/catalog"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/render"
	"github.com/firn-project/firn/internal/security"
	"github.com/spf13/cobra"
)

// defaultListen is where a scheduler listens unless told otherwise.
const defaultListen = "127.0.0.1:7350"

func (a *app) schedulerCommand() *cobra.Command {
	var cfg cluster.SchedulerConfig
	cmd := &cobra.Command{
		Use:   "scheduler --listen HOST:PORT --dir DIR [--config FILE]",
		Short: "Run a scheduler: the only process that holds the catalogs' credentials",
		Long: `Runs a scheduler until SIGTERM or SIGINT, which takes no new statements and finishes the
commits that are sealed. Other jobs stay on record and go on when the scheduler is started
again; clients that wait for them ask again meanwhile. A second signal ends it at once.

When it is ready it prints one line of JSON to stdout: {"role":"scheduler","address":…,"dir":…}.
Without catalogs in the configuration file there is one called lake, in SQLite under --dir.`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runScheduler(cmd, cfg) },
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Listen, "listen", defaultListen, "`HOST:PORT` to listen on; port 0 takes a free one")
	f.StringVar(&cfg.HTTP.Listen, "http-listen", "", "`HOST:PORT` of the REST interface, health checks and metrics; port 0 takes a free one, and empty has none")
	f.StringVar(&cfg.FlightSQL.Listen, "flight-sql-listen", "", "`HOST:PORT` for Flight SQL clients; port 0 takes a free one, and empty has none")
	f.StringVar(&cfg.Dir, "dir", "", "`directory` of the scheduler's state")
	f.StringVar(&cfg.Dispatch, "dispatch", config.DispatchPush, "how executors get tasks: `push` or pull")
	f.DurationVar(&cfg.ParkedRetention, "parked-retention", config.DefaultParkedRetention, "how long the files of a commit that was refused and may be driven again are kept")
	f.DurationVar(&cfg.JournalRetention, "journal-retention", config.DefaultJournalRetention, "how long an ended job and its key are remembered")
	f.DurationVar(&cfg.SweepDelay, "sweep-delay", config.DefaultSweepDelay, "how long after a job's end its executors may still write; what it left is deleted once more then")
	f.DurationVar(&cfg.CommitDeadline, "commit-deadline", config.DefaultCommitDeadline, "how long a commit is tried before it is told as it stands: unknown, when a request of it may still land")
	f.BoolVar(&cfg.CheckAllFiles, "check-all-files", false, "look at every file before it is committed; otherwise at 1,000 of a job and one in a hundred of its others")
	f.String("config", "", "YAML `file` with catalogs and settings")
	serverTLS(cmd, &cfg.TLS, &cfg.AllowPlaintext)
	f.BoolVar(&cfg.TLS.RequireClientCert, "tls-require-client-cert", false, "refuse connections that show no certificate")
	f.BoolVar(&cfg.AllowAnonymous, "allow-anonymous", false, "let everybody in who reaches the address, as long as there are no tokens")
	logFlags(cmd, "info", "json")
	return cmd
}

func (a *app) runScheduler(cmd *cobra.Command, cfg cluster.SchedulerConfig) error {
	if cfg.Dir == "" {
		return usage(cmd, "--dir is missing")
	}
	if err := config.CheckAddress(cfg.Listen); err != nil {
		return usage(cmd, "--listen %s", err)
	}
	if err := config.CheckAddress(cfg.HTTP.Listen); cfg.HTTP.Listen != "" && err != nil {
		return usage(cmd, "--http-listen %s", err)
	}
	if err := config.CheckAddress(cfg.FlightSQL.Listen); cfg.FlightSQL.Listen != "" && err != nil {
		return usage(cmd, "--flight-sql-listen %s", err)
	}
	if err := config.CheckDispatch(cfg.Dispatch); err != nil {
		return usage(cmd, "--dispatch %s", err)
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"parked-retention", cfg.ParkedRetention}, {"journal-retention", cfg.JournalRetention}, {"sweep-delay", cfg.SweepDelay}, {"commit-deadline", cfg.CommitDeadline}} {
		if err := config.CheckPositive(d.value); err != nil {
			return usage(cmd, "--%s %s", d.flag, err)
		}
	}
	var err error
	if cfg.Logger, err = a.logger(cmd); err != nil {
		return err
	}
	cfg.EventLog, cfg.HTTP.MinExecutors = true, a.file.HTTP.MinExecutors
	cfg.ManifestMemory = int64(a.file.Commit.ManifestMemory)
	cfg.SourceStores = a.file.Sources.Stores
	cfg.DeltaPaths = a.file.Delta.Paths
	cfg.Planning, cfg.Cache, cfg.Writes = a.file.Planning, a.file.Cache, a.file.Writes
	cfg.FlightSources = a.file.Sources.FlightSQL
	cfg.Speculation, cfg.Results, cfg.Jobs = a.file.Speculation, a.file.Results, a.file.Jobs
	cfg.LocalAllow, cfg.Executors, cfg.CreateCatalog = a.file.Sources.Local.Allow, a.file.Executors, a.file.CreateCatalog
	for name, c := range a.file.Catalogs {
		cfg.Catalogs = append(cfg.Catalogs, catalog.Config{
			Name: name, Type: c.Type, URI: c.URI, Warehouse: c.Warehouse, Properties: c.Properties,
		})
	}
	if cfg.Helper, err = helperCommand(); err != nil {
		return startError(cmd.Context(), "scheduler", err)
	}
	s, err := cluster.StartScheduler(cmd.Context(), cfg)
	if err != nil {
		return startError(cmd.Context(), "scheduler", err)
	}
	ready := map[string]string{"role": "scheduler", "address": s.Addr(), "dir": absolute(cfg.Dir)}
	if s.HTTPAddr() != "" {
		ready["http"] = s.HTTPAddr()
	}
	if s.FlightSQLAddr() != "" {
		ready["flight_sql"] = s.FlightSQLAddr()
	}
	return a.serve(cmd.Context(), cfg.Logger, "scheduler", ready, s.Close)
}

func (a *app) executorCommand() *cobra.Command {
	var cfg config.Executor
	var sizes executorSizes
	var tokenFile string
	cmd := &cobra.Command{
		Use:   "executor --server HOST:PORT --dir DIR [--slots N] [--memory SIZE]",
		Short: "Run an executor: it reads, computes and writes data files",
		Long: `Runs an executor until SIGTERM or SIGINT, which lets running tasks end. A second signal gives
up and says what was left.

When it has registered it prints one line of JSON to stdout:
{"role":"executor","id":…,"address":…,"scheduler":…}. An executor needs and takes nothing of a catalog.`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cfg.Token, err = a.token(tokenFile); err != nil {
				return err
			}
			return a.runExecutor(cmd, cfg, sizes)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Server, "server", "", "the scheduler's `HOST:PORT`")
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:0", "`HOST:PORT` to listen on; port 0 takes a free one")
	f.StringVar(&cfg.HTTP, "http-listen", "", "`HOST:PORT` of health checks and metrics; port 0 takes a free one, and empty has none")
	f.StringVar(&cfg.Dir, "dir", "", "`directory` for shuffle and spill files")
	f.IntVar(&cfg.Slots, "slots", 2, "how many tasks run at a time")
	f.StringVar(&sizes.memory, "memory", "", "memory for all slots together, such as 4GiB, of which each task gets one slot's share; default half of the machine's")
	f.StringVar(&sizes.objects, "object-cache", "", "disk for all slots together to keep parts of objects while they are read, such as 20GiB; default what there is")
	f.StringVar(&sizes.shuffle, "shuffle-disk", "", "disk for shuffle files and uploads, such as 100GiB; a task that needs more fails; default what there is")
	f.StringArrayVar(&cfg.LocalAllow, "sources-local-allow", nil, "`directory` below which sources may be read; overrides what the scheduler says (repeatable)")
	serverTLS(cmd, &cfg.TLS, &cfg.AllowPlaintext)
	tokenFlag(cmd, &tokenFile)
	logFlags(cmd, "info", "json")
	cmd.AddCommand(a.executorListCommand(), a.executorDrainCommand())
	return cmd
}

// executorSizes are an executor's flags of bytes, as they were typed; empty for
// the default.
type executorSizes struct{ memory, objects, shuffle string }

func (a *app) runExecutor(cmd *cobra.Command, cfg config.Executor, sizes executorSizes) error {
	cfg.Memory = cluster.DefaultMemory()
	for _, size := range []struct {
		flag, text string
		bytes      *int64
	}{{"memory", sizes.memory, &cfg.Memory}, {"object-cache", sizes.objects, &cfg.ObjectCache}, {"shuffle-disk", sizes.shuffle, &cfg.ShuffleDisk}} {
		if size.text == "" {
			continue
		}
		var err error
		if *size.bytes, err = config.ParseSize(size.text); err != nil {
			return usage(cmd, "--%s %s", size.flag, err)
		}
	}
	if err := cfg.Validate(); err != nil {
		return usage(cmd, "--%s", err)
	}
	logger, err := a.logger(cmd)
	if err != nil {
		return err
	}
	ex, err := cluster.StartExecutor(cmd.Context(), "", cfg, logger)
	if err != nil {
		return startError(cmd.Context(), "executor", err)
	}
	ready := map[string]string{"role": "executor", "id": ex.ID(), "address": ex.Addr(), "scheduler": cfg.Server}
	if ex.HTTPAddr() != "" {
		ready["http"] = ex.HTTPAddr()
	}
	return a.serve(cmd.Context(), logger, "executor", ready, ex.Close)
}

func (a *app) devCommand() *cobra.Command {
	cfg := cluster.Config{Executors: 2}
	cmd := &cobra.Command{
		Use:   "dev [--dir DIR]",
		Short: "Run a scheduler, two executors, a catalog and a warehouse in one process",
		Long: `Runs everything in one process, to try Firn out. One process has no credential boundary:
its executors could read the catalog's secrets. Run firn scheduler and firn executor for that.`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runDev(cmd, cfg) },
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Dir, "dir", defaultDir, "`directory` of everything")
	f.StringVar(&cfg.Listen, "listen", defaultListen, "`HOST:PORT` to listen on; port 0 takes a free one")
	f.StringVar(&cfg.FlightSQL, "flight-sql-listen", "127.0.0.1:0", "`HOST:PORT` for Flight SQL clients; port 0 takes a free one")
	f.StringVar(&cfg.Dispatch, "dispatch", config.DispatchPush, "how executors get tasks: `push` or pull")
	a.outputFlag(cmd)
	logFlags(cmd, "warn", "text")
	return cmd
}

func (a *app) runDev(cmd *cobra.Command, cfg cluster.Config) error {
	format, err := a.format()
	if err != nil {
		return err
	}
	for flag, address := range map[string]string{"listen": cfg.Listen, "flight-sql-listen": cfg.FlightSQL} {
		if err := config.CheckAddress(address); err != nil {
			return usage(cmd, "--%s %s", flag, err)
		}
		if security.Loopback(address) {
			continue
		}
		return usage(cmd, "--%s %q: dev speaks plaintext and listens on this machine only, such as 127.0.0.1:7350; run firn scheduler and firn executor for others", flag, address)
	}
	if err := config.CheckDispatch(cfg.Dispatch); err != nil {
		return usage(cmd, "--dispatch %s", err)
	}
	if cfg.Logger, err = a.logger(cmd); err != nil {
		return err
	}
	c, err := cluster.Start(cmd.Context(), cfg)
	if err != nil {
		return startError(cmd.Context(), "cluster", err)
	}
	statement := `firn sql --server ` + c.Addr() + ` -c "CREATE NAMESPACE IF NOT EXISTS lake.demo; ` +
		`CREATE TABLE IF NOT EXISTS lake.demo.snow (day DATE, depth_cm INTEGER); ` +
		`INSERT INTO lake.demo.snow VALUES (DATE '2026-01-31', 42); SELECT * FROM lake.demo.snow"`
	var ready any = map[string]any{
		"role": "dev", "address": c.Addr(), "flight_sql": c.FlightSQLAddr(), "executors": c.ExecutorAddrs(), "dir": absolute(cfg.Dir), "statement": statement,
	}
	if format == render.Text {
		ready = fmt.Sprintf(`scheduler  %s
flight sql %s
executors  %s
catalog    lake, in %s
try        %s
stop       Ctrl-C
note       one process has no credential boundary: executors could read the catalog's secrets
`, c.Addr(), c.FlightSQLAddr(), strings.Join(c.ExecutorAddrs(), ", "), absolute(cfg.Dir), statement)
	}
	return a.serve(cmd.Context(), cfg.Logger, "cluster", ready, c.Close)
}

// serve says that a service is ready, waits for a signal and closes the service.
// ready is text or becomes one line of JSON.
func (a *app) serve(ctx context.Context, logger *slog.Logger, role string, ready any, shut func(context.Context) error) error {
	var err error
	if text, ok := ready.(string); ok {
		_, err = fmt.Fprint(a.stdout, text)
	} else {
		err = render.Object(a.stdout, ready)
	}
	if err != nil {
		return errors.Join(err, shut(a.giveUp))
	}
	<-ctx.Done()
	logger.LogAttrs(a.giveUp, slog.LevelInfo, "stopping", slog.String("role", role))
	if err := shut(a.giveUp); err != nil {
		return &commit.Error{
			Code: commit.CodeCluster, Op: "stop", Object: role, Cause: err,
			Hint: "Start it again in the same directory: it goes on with what was left.",
		}
	}
	return nil
}

// startError tells a signal during the start from a failed start.
func startError(ctx context.Context, role string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, ok := errors.AsType[*commit.Error](err); ok {
		return err
	}
	return &commit.Error{Code: commit.CodeCluster, Op: "start", Object: role, Cause: err}
}

func absolute(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}
