package scheduler

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/admission"
	"github.com/firn-project/firn/scheduler/answers"
	"github.com/firn-project/firn/scheduler/cached"
	"github.com/firn-project/firn/scheduler/committer"
	"github.com/firn-project/firn/scheduler/eventlog"
	"github.com/firn-project/firn/scheduler/footers"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/placement"
	"github.com/firn-project/firn/scheduler/stripped"
	"github.com/firn-project/firn/scheduler/writes"
	"github.com/firn-project/firn/sql"
)

// Committer runs commit operators; the implementation is package
// scheduler/committer's.
type Committer interface {
	Run(ctx context.Context, r committer.Root) (commit.Report, error)
	// Waits says what each commit that isn't through waits for, WaitsFor what that
	// of one job does.
	Waits() []committer.Waiting
	WaitsFor(jobID string) string
	Close(ctx context.Context)
}

// Scheduler is the service. Start serves until Close.
type Scheduler struct {
	firnpb.UnimplementedClientServiceServer
	firnpb.UnimplementedSchedulerServiceServer

	cfg Config
	log *slog.Logger

	journal   journal.Journal
	signer    *wire.Signer
	public    ed25519.PublicKey
	flight    *flightread.Client
	committer Committer
	analyzer  sql.Analyzer

	// loop is the event loop: only functions that it runs touch state.
	loop  *mailbox
	state state
	// placement knows which executors fail tasks. It belongs to the event loop.
	placement *placement.Board
	// events logs what happens to jobs; nil when nobody asked for it.
	events *eventlog.Log
	// writes serves those who write by themselves.
	writes *writes.Service
	// admitting lets one write at a time in, so that they can be counted.
	admitting sync.Mutex
	// scribe writes the journal's job records, in the order of the events.
	scribe *scribe
	// sweeper deletes what ended jobs left.
	sweeper *sweeper
	// stripped are the tables to which nothing is committed.
	stripped *stripped.Tables
	// mark is in the names of the files that this process writes for requests;
	// builds are the directories for which that is on record.
	mark   string
	builds sync.Map

	keys keyLocks
	// targets are the commit operators that run, by job, for the recorder, and
	// running the roots that do.
	targets, running sync.Map
	// settling are the jobs whose unknown commits are driven by policy.
	settling sync.Map
	// manifests bounds the memory of file manifests.
	manifests *answers.Pool
	// line is where jobs wait to be planned.
	line      *admission.Line
	rootSlots chan struct{}

	lis    net.Listener
	server *grpc.Server
	// life ends when Close has nothing left to finish.
	life context.Context //nolint:containedctx // the life of the service
	end  context.CancelFunc
	// roots are the goroutines that run roots, wg all others.
	roots, wg sync.WaitGroup
	// leave is closed when clients are to leave and ask again.
	leave chan struct{}
}

// state is what the event loop owns.
type state struct {
	jobs map[string]*job
	// byKey are the jobs that have not ended, by namespace and key.
	byKey map[string]*job
	// cached are the succeeded jobs of mode cached, by fingerprint.
	cached map[string]*job
	// frames are the cached frames.
	frames    frames
	executors map[string]*executor
	// replaced are earlier incarnations of executors, by executor.
	replaced map[string][]string
	attempts map[string]*attempt
	uploads  map[string]*upload
	// results are the rows of SELECTs that ended under an earlier process, and until
	// when they can be read.
	results map[string]time.Time
	// ready are the jobs with tasks to dispatch, in turn.
	ready []*job
	// deserted is since when there's no executor; zero while there is one.
	deserted time.Time
	// polls are the executors that wait for work under pull dispatch.
	polls []*poll
	// arrived is closed and replaced when an executor registers.
	arrived chan struct{}
	closing bool
	// pending is what the event that is being handled has to write.
	pending pending
}

// New checks the configuration. Nothing runs before Start.
func New(cfg Config) (*Scheduler, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Scheduler{
		cfg: cfg, log: cfg.Logger, placement: placement.New(), leave: make(chan struct{}), mark: uuid.NewString()[len("00000000-0000-4000-"):],
		manifests: answers.NewPool(cfg.ManifestMemory),
		line:      admission.New(cfg.PlanSlots, cfg.MaxQueued), rootSlots: make(chan struct{}, cfg.RootSlots),
		state: state{
			jobs: map[string]*job{}, byKey: map[string]*job{}, cached: map[string]*job{}, frames: newFrames(cfg),
			executors: map[string]*executor{}, replaced: map[string][]string{}, attempts: map[string]*attempt{}, uploads: map[string]*upload{}, results: map[string]time.Time{},
			arrived: make(chan struct{}),
		},
	}, nil
}

// Start opens the journal, takes up the jobs that an earlier process left
// running, and serves until Close. ctx bounds the start only. After an error
// there's nothing to close.
func (s *Scheduler) Start(ctx context.Context) (err error) {
	db, err := s.cfg.openJournal(ctx, s.cfg.Dir)
	if err != nil {
		return err
	}
	s.journal = db
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	if s.stripped, err = stripped.Load(ctx, db, s.log); err != nil {
		return err
	}
	key, err := ticketKey(s.cfg.Dir)
	if err != nil {
		return err
	}
	if s.cfg.EventDir != "" {
		if s.events, err = eventlog.Open(s.cfg.EventDir, s.log); err != nil {
			return &commit.Error{Code: commit.CodeCluster, Op: "make directory", Object: s.cfg.EventDir, Cause: err}
		}
		defer func() {
			if err != nil {
				s.events.Close()
			}
		}()
	}
	s.signer, s.public = wire.NewSigner(key), key.Public().(ed25519.PublicKey)
	s.lis, err = (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return &commit.Error{Code: commit.CodeCluster, Op: "listen on", Object: s.cfg.Listen, Cause: err, Hint: "Choose a free address with --listen HOST:PORT; port 0 takes any."}
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.flight = flightread.New(flightread.Config{Dial: s.cfg.Dial, Silence: s.cfg.readSilence})
	looks := footers.New(s.cfg.CheckAllFiles, storeWait)
	if s.cfg.newCommitter != nil {
		s.committer = s.cfg.newCommitter(s.cfg)
	} else {
		s.committer = committer.New(committer.Config{
			Open: s.openMarked, Recorder: recorder{s}, Stripped: s.stripped, Logger: s.log, Deadline: s.cfg.CommitDeadline, CheckFiles: s.checkFiles(looks),
		})
	}
	s.analyzer = sql.Analyzer{Catalogs: s.cfg.Catalogs, Parser: s.cfg.Parser}
	if s.cfg.Flight != nil {
		s.analyzer.Flight = s.cfg.Flight
	}
	s.loop = newMailbox(s.afterEvent)
	s.scribe = newScribe(s.journal.Write)
	s.sweeper = newSweeper(s)
	if err := s.recoverJobs(ctx); err != nil {
		s.end()
		s.loop.close()
		s.roots.Wait()
		s.wg.Wait()
		s.scribe.close()
		return errors.Join(err, s.lis.Close(), s.flight.Close())
	}
	s.writes = writes.New(writes.Parts{
		Config: s.cfg.Writes, Host: writeHost{s}, Journal: s.journal, Signer: s.signer, Verifier: wire.NewVerifier(s.public), Deriver: looks, Logger: s.log,
	})
	s.wg.Go(func() { s.writes.Run(s.life) })
	s.cfg.Metrics.Watch(s.now)
	s.wg.Go(s.ticks)
	s.wg.Go(s.tidy)
	s.wg.Go(s.sweeper.run)
	s.server = grpc.NewServer(slices.Concat(wire.ServerOptions(), wire.SchedulerOptions(), s.cfg.ServerOptions, s.interceptors())...)
	firnpb.RegisterClientServiceServer(s.server, s)
	firnpb.RegisterSchedulerServiceServer(s.server, s)
	flight.RegisterFlightServiceServer(s.server, s.writes)
	s.wg.Go(func() {
		if err := s.server.Serve(s.lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.log.Error("listener ended", slog.Any("error", err))
		}
	})
	s.log.Info("scheduler ready", slog.String("address", s.Addr()), slog.String("dispatch", s.cfg.Dispatch))
	return nil
}

// Addr is the address that the scheduler listens on, host:port. It is known
// after Start.
func (s *Scheduler) Addr() string { return s.lis.Addr().String() }

// Close takes no new work, finishes the commits that are sealed, and leaves the
// other jobs as they are on record: the next process takes them up, as after a
// kill, and the clients that wait for them are told to ask again. With
// Config.EndJobs they fail instead. It waits for all goroutines. When ctx ends, or
// after Config.CloseTimeout, it waits no longer for commits: the next process goes
// on with those as well.
func (s *Scheduler) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CloseTimeout)
	defer cancel()
	var open []*job
	if s.loop.call(ctx, func() {
		s.state.closing = true
		for _, j := range s.state.byKey {
			if s.cfg.EndJobs {
				s.failJob(j, errClosing())
			} else if !j.hasEnded() && (j.graph == nil || !j.graph.Sealed()) {
				j.cancelPlan()
				j.stopRoot()
				continue
			}
			open = append(open, j)
		}
		s.releasePolls()
	}) == nil {
		for _, j := range open {
			s.awaitSettled(ctx, j)
		}
		s.tellLeft(ctx, open)
	}
	close(s.leave)
	stopped := make(chan struct{})
	go func() { s.server.GracefulStop(); close(stopped) }()
	grace, stopGrace := context.WithTimeout(ctx, closeGrace)
	defer stopGrace()
	select {
	case <-stopped:
	case <-grace.Done():
		s.server.Stop()
		<-stopped
	}
	s.end()
	s.committer.Close(ctx)
	s.roots.Wait()
	_ = s.loop.call(context.WithoutCancel(ctx), func() {
		for _, e := range s.state.executors {
			s.dropExecutor(e, closeGrace)
		}
	})
	s.loop.close()
	s.wg.Wait()
	s.scribe.close()
	s.events.Close()
	return errors.Join(s.flight.Close(), s.journal.Close())
}

// handsOver says whether the scheduler is shutting down and leaves the job to the
// next process: what happens to it from now on, because it is shut down, isn't
// what becomes of it. It is called in the event loop.
func (s *Scheduler) handsOver(j *job) bool {
	return s.state.closing && !s.cfg.EndJobs && !j.hasEnded()
}

// awaitSettled waits until the job's end is on record, or until its commit is
// unknown: nobody finds that out before the scheduler starts again.
func (s *Scheduler) awaitSettled(ctx context.Context, j *job) {
	for {
		var changed chan struct{}
		unknown := false
		if s.loop.call(ctx, func() { changed, unknown = j.changed, j.commitState() == commit.CommitUnknown }) != nil || unknown {
			return
		}
		select {
		case <-j.published:
			return
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// tellLeft says which jobs a Close that was cut short leaves in the middle of their
// commit.
func (s *Scheduler) tellLeft(ctx context.Context, jobs []*job) {
	if ctx.Err() == nil {
		return
	}
	_ = s.loop.call(context.WithoutCancel(ctx), func() {
		for _, j := range jobs {
			if !j.isPublished() {
				s.log.Warn("commit left to the next process", slog.String("job_id", j.id), slog.String("table", j.table), slog.String("commit", string(j.commitState())))
			}
		}
	})
}

// closeGrace is how long Close waits for peers to end their calls.
const closeGrace = time.Second

// ticks lets the event loop look at the time.
func (s *Scheduler) ticks() {
	t := time.NewTicker(min(s.cfg.HeartbeatInterval, s.cfg.ResultTTL, s.cfg.UploadTTL, s.cfg.FrameTTL) / 2)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			s.loop.put(func() { s.tick(now) })
		case <-s.life.Done():
			return
		}
	}
}

func (s *Scheduler) tick(now time.Time) {
	for _, e := range s.state.executors {
		if now.Sub(e.seen) > s.cfg.ExecutorTimeout {
			s.loseExecutor(e, "no heartbeat")
		}
	}
	s.failDeserted(now)
	s.speculate(now)
	for id, j := range s.state.jobs {
		if j.isPublished() && now.After(j.expires) {
			s.expire(j)
			delete(s.state.jobs, id)
		}
	}
	_ = s.frameEvent(cached.Tick{})
	for id, u := range s.state.uploads {
		if now.After(u.expires) && u.users == 0 {
			s.freeUpload(id)
		}
	}
	for id, until := range s.state.results {
		if now.After(until) {
			delete(s.state.results, id)
			s.freeData(id, nil)
		}
	}
}

// ticketKey reads the key that signs tickets, or makes it. It is kept so that
// tickets outlive a restart of the scheduler.
func ticketKey(dir string) (ed25519.PrivateKey, error) {
	path := filepath.Join(dir, "ticket.key")
	raw, err := os.ReadFile(path)
	if err == nil {
		block, _ := pem.Decode(raw)
		if block == nil || len(block.Bytes) != ed25519.SeedSize {
			return nil, &commit.Error{Code: commit.CodeJournal, Op: "read", Object: path, Cause: errors.New("it holds no key"), Hint: "Delete the file; a new key is made."}
		}
		return ed25519.NewKeyFromSeed(block.Bytes), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, &commit.Error{Code: commit.CodeJournal, Op: "read", Object: path, Cause: err}
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key for tickets: %w", err)
	}
	raw = pem.EncodeToMemory(&pem.Block{Type: "FIRN TICKET KEY", Bytes: key.Seed()})
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return nil, &commit.Error{Code: commit.CodeJournal, Op: "write", Object: path, Cause: err}
	}
	return key, nil
}

// interceptors ask who calls, turn errors into statuses that keep them, and a panic in a
// handler into an error: nothing that a peer sends ends the process.
func (s *Scheduler) interceptors() []grpc.ServerOption {
	recovered := func(ctx context.Context, method string, err *error) {
		if p := recover(); p != nil {
			s.logPanic(ctx, method, p)
			*err = fmt.Errorf("%s: internal fault: %v", method, p)
		}
		*err = wire.ToStatus(*err)
	}
	return []grpc.ServerOption{
		// Before anything of the message is read.
		grpc.InTapHandle(func(ctx context.Context, call *tap.Info) (context.Context, error) {
			if ours, err := s.writes.Authenticate(ctx, call.FullMethodName, s.cfg.Authenticate); ours {
				return ctx, err
			}
			return ctx, wire.ToStatus(s.cfg.Authenticate(ctx, call.FullMethodName))
		}),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (resp any, err error) {
			defer recovered(ctx, info.FullMethod, &err)
			return h(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
			defer recovered(ss.Context(), info.FullMethod, &err)
			return h(srv, ss)
		}),
	}
}

func newID(prefix string) string { return prefix + uuid.Must(uuid.NewV7()).String() }

func errClosing() error {
	return &commit.Error{
		Code: commit.CodeSchedulerClosing, Op: "run job", Cause: errors.New("the scheduler is shutting down"),
		Hint: "Jobs that run go on when the scheduler is back: wait for them, or send the statement again with the same idempotency key.",
	}
}
