package executor

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/executor/shuffle"
	"github.com/firn-project/firn/internal/failpoint"
	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/flightsql"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/google/uuid"
	"google.golang.org/grpc"
)

// lastReports is how long Close goes on reporting after its context has ended.
const lastReports = time.Second

// Executor is one executor. New and Start are called once each, then Close, which
// does nothing more after the first time or after a Start that failed.
type Executor struct {
	cfg Config
	log *slog.Logger

	lock     *os.File
	listener net.Listener
	server   *grpc.Server
	conn     *grpc.ClientConn
	store    *shuffle.Store
	flight   *shuffle.Server
	remote   *flightread.Client
	source   *shuffle.Source
	session  *session
	reporter *reporter
	runner   *runner
	keys     *keyring
	sources  *sourcesAccess

	// bg are the goroutines that live until their stop is called; taking is
	// stopped first, the others last.
	bg                 sync.WaitGroup
	stopTaking, stopBG context.CancelFunc
	closing            sync.Once
	closed             error

	mu sync.Mutex
	// allow is the setting in force for local sources.
	allow []string
	// freed are jobs whose data was freed as a whole while attempts of theirs
	// ran: what those leave is freed when they end.
	freed map[string]bool
}

// New checks the configuration. It touches nothing.
func New(cfg Config) (*Executor, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, dirError(cfg.Dir, err)
	}
	return &Executor{
		cfg: cfg, allow: cfg.LocalAllow, freed: map[string]bool{},
		stopTaking: func() {}, stopBG: func() {},
	}, nil
}

// Start takes the directory, listens, registers at the scheduler and returns
// when the executor is ready for work. It goes on trying to reach the scheduler
// until ctx ends, but a refusal (as of another protocol version) is an error at
// once. ctx isn't used after Start has returned.
func (e *Executor) Start(ctx context.Context) error {
	err := e.start(ctx)
	if err != nil {
		gone, cancel := context.WithCancel(ctx)
		cancel()
		err = errors.Join(err, e.Close(gone))
	}
	return err
}

func (e *Executor) start(ctx context.Context) error {
	if err := e.takeDir(); err != nil {
		return err
	}
	var err error
	if e.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", e.cfg.Listen); err != nil {
		return &commit.Error{
			Code: commit.CodeExecutorConfig, Op: "listen on", Object: e.cfg.Listen, Cause: err,
			Hint: "Choose another address with --listen; port 0 takes a free one.",
		}
	}
	if e.conn, err = grpc.NewClient("passthrough:///"+e.cfg.Server, slices.Concat(wire.DialOptions(), e.cfg.DialPeers, e.cfg.DialScheduler)...); err != nil {
		return fmt.Errorf("connect to the scheduler at %s: %w", e.cfg.Server, err)
	}
	e.assemble()
	// Calls may come as soon as the scheduler knows the executor.
	e.bg.Go(func() {
		if err := e.server.Serve(e.listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			e.log.Error("serving ended", slog.Any("error", err))
		}
	})
	bg, stop := context.WithCancel(context.Background())
	e.stopBG = stop
	e.bg.Go(func() { e.reporter.run(bg) })
	if err := e.session.join(ctx); err != nil {
		return err
	}
	e.bg.Go(func() { e.session.beat(bg, e.runner.running, e.runner.free, e.runner.cancel) })
	taking, stop := context.WithCancel(bg)
	e.stopTaking = stop
	e.bg.Go(func() { e.session.poll(taking, e.runner.freed, e.runner.free, e.takeWork) })
	return nil
}

// takeDir locks the directory, removes what an earlier incarnation left and
// finds out the executor's id.
func (e *Executor) takeDir() error {
	var err error
	if e.lock, err = lockDir(e.cfg.Dir); err != nil {
		return err
	}
	if e.cfg.ID == "" {
		if e.cfg.ID, err = identity(e.cfg.Dir); err != nil {
			return err
		}
	}
	e.log = e.cfg.Logger.With(slog.String("executor_id", e.cfg.ID))
	e.cfg.Logger = e.log
	e.store = shuffle.NewStore(e.cfg.Dir, e.cfg.ShuffleDisk)
	e.store.SetMeter(e.cfg.Metrics)
	slots := filepath.Join(e.cfg.Dir, slotsName)
	if err := errors.Join(e.store.Clear(), os.RemoveAll(slots), os.MkdirAll(slots, 0o700)); err != nil {
		return dirError(e.cfg.Dir, err)
	}
	return nil
}

// assemble makes the parts; nothing runs yet.
func (e *Executor) assemble() {
	e.flight = shuffle.NewServer(e.store, e.cfg.ID, e.cfg.Compress, e.log)
	dial := e.cfg.DialPeers
	if d := failpoint.PeerDialer(); d != nil {
		dial = append(slices.Clip(dial), grpc.WithContextDialer(d))
	}
	e.remote = flightread.New(flightread.Config{Dial: dial})
	e.source = &shuffle.Source{Store: e.store, Executor: e.cfg.ID, Remote: e.remote, AlwaysRemote: e.cfg.AlwaysRemote}
	e.session = &session{
		rpc: firnpb.NewSchedulerServiceClient(e.conn), server: e.cfg.Server, log: e.log,
		lost: make(chan struct{}, 1), soon: make(chan struct{}, 1), registered: e.registered, holds: e.store.Jobs, changed: make(chan struct{}),
		hello: &firnpb.RegisterRequest{
			ProtocolVersion: wire.ProtocolVersion, ExecutorId: e.cfg.ID, Incarnation: uuid.NewString(),
			ControlAddress: e.Addr(), FlightAddress: e.Addr(),
			Slots: uint32(e.cfg.Slots), MemoryBytes: e.cfg.Memory, Build: e.cfg.Build,
		},
	}
	e.reporter = newReporter(e.session.report, e.log)
	e.keys = newKeyring(e.storeKeys)
	e.sources = newSourcesAccess(e.session.sourceAccess)
	e.runner = newRunner(e.cfg, e.reporter, e.runTask, e.attemptEnded)
	e.server = grpc.NewServer(append(slices.Concat(wire.ServerOptions(), e.cfg.ServerOptions), grpc.UnaryInterceptor(e.guard))...)
	firnpb.RegisterExecutorServiceServer(e.server, &control{e: e})
	flight.RegisterFlightServiceServer(e.server, e.flight)
	e.cfg.Metrics.Watch(e.now)
}

// registered takes over what the scheduler said.
func (e *Executor) registered(r *firnpb.RegisterResponse) {
	e.flight.SetVerifier(wire.NewVerifier(ed25519.PublicKey(r.GetTicketPublicKey())))
	if e.cfg.LocalAllow == nil {
		e.mu.Lock()
		e.allow = r.GetLocalAllow()
		e.mu.Unlock()
	}
	for _, job := range r.GetFree() {
		if err := e.free(job, nil); err != nil {
			e.log.Warn("freeing shuffle data failed", slog.String("job_id", job), slog.Any("error", err))
		}
	}
	e.reporter.kick()
}

func (e *Executor) localAllow() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.allow)
}

// Addr is where control and Flight are served, host:port. It is known after
// Start.
func (e *Executor) Addr() string {
	if e.listener == nil {
		return ""
	}
	return e.listener.Addr().String()
}

// ID is the executor's id. Unless it was given, it is known after Start.
func (e *Executor) ID() string { return e.cfg.ID }

// FlightReads is how many shuffle outputs were asked for over Flight.
func (e *Executor) FlightReads() int64 { return e.flight.Reads() }

// takeWork launches what a poll brought.
func (e *Executor) takeWork(tasks []*firnpb.TaskDefinition) {
	for _, t := range tasks {
		if err := e.runner.launch(t); err != nil {
			// The scheduler has counted the attempt as handed out.
			e.reporter.report(failedStatus(t, err))
		}
	}
}

// free removes shuffle data. When a job is freed as a whole, its attempts that
// still run are of no use to anybody.
func (e *Executor) free(job string, stages []int) error {
	if len(stages) == 0 {
		e.runner.cancelJob(job)
		if e.runner.has(job) {
			e.mu.Lock()
			e.freed[job] = true
			e.mu.Unlock()
		}
	}
	return e.store.Free(job, stages...)
}

// attemptEnded forgets the keys of a job of which nothing runs here any more, and
// removes what the attempt left if the job was freed while it ran.
func (e *Executor) attemptEnded(job string) {
	var unused []*flightsql.Engine
	e.runner.ifIdle(job, func() {
		e.keys.drop(job)
		unused = e.sources.drop(job)
	})
	for _, engine := range unused {
		_ = engine.Close() // nothing is expected of it any more
	}
	e.mu.Lock()
	freed := e.freed[job]
	e.mu.Unlock()
	if !freed {
		return
	}
	if err := e.store.Free(job); err != nil {
		e.log.Warn("freeing shuffle data failed", slog.String("job_id", job), slog.Any("error", err))
	}
	if !e.runner.has(job) {
		e.mu.Lock()
		delete(e.freed, job)
		e.mu.Unlock()
	}
}

// Close takes no more tasks, waits for those that run until ctx ends, cancels
// them then, reports how they ended, and stops. The scheduler is told
// both: at once that no more is taken, and at the end that the shuffle data is gone.
func (e *Executor) Close(ctx context.Context) error {
	e.closing.Do(func() { e.closed = e.close(ctx) })
	return e.closed
}

func (e *Executor) close(ctx context.Context) error {
	e.stopTaking()
	var errs []error
	if e.runner != nil {
		e.tell(ctx, e.session.drain)
		e.runner.stop(ctx)
		e.tell(ctx, func(ctx context.Context) { e.reporter.flush(ctx) })
	}
	e.stopBG()
	if e.server != nil {
		e.server.Stop()
	} else if e.listener != nil {
		errs = append(errs, e.listener.Close())
	}
	e.bg.Wait()
	if e.runner != nil {
		e.tell(ctx, e.session.leave)
		errs = append(errs, e.runner.closeSlots(), e.remote.Close())
	}
	if e.conn != nil {
		errs = append(errs, e.conn.Close())
	}
	if e.lock != nil {
		errs = append(errs, e.store.Clear(), os.RemoveAll(filepath.Join(e.cfg.Dir, slotsName)), e.lock.Close())
	}
	return errors.Join(errs...)
}

// tell makes one of the last calls to the scheduler, if it ever knew us.
func (e *Executor) tell(ctx context.Context, call func(context.Context)) {
	if now, _ := e.session.current(); now == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastReports)
	defer cancel()
	call(ctx)
}
