package executor

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/failpoint"
	"github.com/firn-project/firn/internal/security"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Dispatch of tasks, as the scheduler names it.
const (
	dispatchPush = "push"
	dispatchPull = "pull"
)

const (
	// pollWait is how long one PollWork may wait at the scheduler.
	pollWait = 10 * time.Second
	// callTimeout bounds calls that are answered at once.
	callTimeout      = 10 * time.Second
	defaultHeartbeat = 2 * time.Second
)

// session is the executor's side of its registration.
type session struct {
	rpc   firnpb.SchedulerServiceClient
	hello *firnpb.RegisterRequest
	// holds lists the jobs and uploads of which the executor has data.
	holds func() []string
	// server is the scheduler's address.
	server string
	log    *slog.Logger
	// lost has a token when the scheduler said that it doesn't know us.
	lost chan struct{}
	// draining: heartbeats say that no more tasks are taken.
	draining atomic.Bool
	// known: the last call that says so was answered by a scheduler that knows us.
	known atomic.Bool
	// soon has a token when the next heartbeat is due at once.
	soon chan struct{}
	// registered is told of each registration.
	registered func(*firnpb.RegisterResponse)

	mu sync.Mutex
	// now is the answer to the last registration, nil before the first; changed
	// is closed when there is a newer one.
	now     *firnpb.RegisterResponse
	changed chan struct{}
}

// register asks once.
func (s *session) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	hello := proto.CloneOf(s.hello)
	hello.Holds = s.holds()
	resp, err := s.rpc.Register(ctx, hello)
	if err != nil {
		return err
	}
	if len(resp.GetTicketPublicKey()) != ed25519.PublicKeySize {
		return refused(fmt.Errorf("the scheduler's ticket key has %d bytes, want %d", len(resp.GetTicketPublicKey()), ed25519.PublicKeySize))
	}
	if d := resp.GetDispatch(); d != dispatchPush && d != dispatchPull {
		return refused(fmt.Errorf("the scheduler dispatches by %q, which this release doesn't know", d))
	}
	s.registered(resp)
	s.mu.Lock()
	s.now = resp
	s.known.Store(true)
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	s.log.LogAttrs(ctx, slog.LevelInfo, "registered",
		slog.String("cluster_id", resp.GetClusterId()), slog.String("dispatch", resp.GetDispatch()))
	return nil
}

func refused(err error) error {
	return &commit.Error{
		Code: commit.CodeExecutorVersion, Op: "register at", Object: "the scheduler", Cause: err,
		Hint: "Run the same release of firn on the scheduler and on all executors.",
	}
}

// join registers and tries again while the scheduler can't be reached. A
// refusal is an error.
func (s *session) join(ctx context.Context) error {
	wait := newBackoff(50*time.Millisecond, 2*time.Second)
	var last error
	for {
		err := s.register(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		switch code := status.Code(err); {
		case commit.CodeOf(err) != "":
			return err
		case security.Unreachable(s.server, err) != nil:
			return security.Unreachable(s.server, err)
		case ctx.Err() == nil && code != codes.Unavailable && code != codes.DeadlineExceeded && code != codes.ResourceExhausted:
			return s.explain(err)
		}
		s.log.LogAttrs(ctx, slog.LevelWarn, "scheduler not reached, trying again", slog.Any("error", err))
		if !wait.sleep(ctx, nil) {
			return fmt.Errorf("register at the scheduler: %w (last answer: %w)", ctx.Err(), last)
		}
	}
}

// explain makes a refusal readable; the scheduler's text names both versions.
func (s *session) explain(err error) error {
	if e := wire.FromStatus(err); commit.CodeOf(e) != "" {
		return e
	}
	return refused(fmt.Errorf("this executor speaks protocol version %d: %s", wire.ProtocolVersion, status.Convert(err).Message()))
}

// rejoin registers again until it works or ctx ends.
func (s *session) rejoin(ctx context.Context) {
	wait := newBackoff(100*time.Millisecond, 5*time.Second)
	for {
		err := s.join(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		s.log.LogAttrs(ctx, slog.LevelError, "registration refused", slog.Any("error", err))
		if !wait.sleep(ctx, nil) {
			return
		}
	}
}

// forgotten has the heartbeat register again, which alone does so: two at once
// would only race.
func (s *session) forgotten() {
	select {
	case s.lost <- struct{}{}:
	default:
	}
}

// current is the registration in force and a channel that closes with the next.
func (s *session) current() (*firnpb.RegisterResponse, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.changed
}

// beat sends heartbeats until ctx ends, and registers again when the scheduler
// doesn't know the executor.
func (s *session) beat(ctx context.Context, running func() []string, free func() int, cancel func([]string)) {
	for {
		now, changed := s.current()
		every := time.Duration(now.GetHeartbeatMs()) * time.Millisecond
		if every <= 0 {
			every = defaultHeartbeat
		}
		t := time.NewTimer(every)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-changed:
			t.Stop()
			continue
		case <-s.lost:
			t.Stop()
			s.rejoin(ctx)
			continue
		case <-s.soon:
			t.Stop()
		case <-t.C:
		}
		call, stop := context.WithTimeout(ctx, callTimeout)
		resp, err := s.rpc.Heartbeat(call, &firnpb.HeartbeatRequest{
			ExecutorId: s.hello.GetExecutorId(), Incarnation: s.hello.GetIncarnation(),
			RunningAttempts: running(), FreeSlots: uint32(free()), Draining: s.draining.Load(),
		})
		stop()
		s.known.Store(err == nil && resp.GetKnown())
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.log.LogAttrs(ctx, slog.LevelWarn, "heartbeat failed", slog.Any("error", err))
		case !resp.GetKnown():
			s.rejoin(ctx)
		default:
			cancel(resp.GetCancelAttempts())
			if resp.GetDrain() && !s.draining.Load() {
				s.log.LogAttrs(ctx, slog.LevelInfo, "draining: no more tasks are taken")
				s.drain(ctx)
			}
		}
	}
}

// drain has the next heartbeat say at once, as all after it, that no more tasks
// are taken.
func (s *session) drain(context.Context) {
	s.draining.Store(true)
	select {
	case s.soon <- struct{}{}:
	default:
	}
}

// leave says that the executor has shut down, so that nobody waits for its
// silence. No heartbeat may follow; ctx bounds it.
func (s *session) leave(ctx context.Context) {
	if _, err := s.rpc.Heartbeat(ctx, &firnpb.HeartbeatRequest{
		ExecutorId: s.hello.GetExecutorId(), Incarnation: s.hello.GetIncarnation(), Draining: true, Left: true,
	}); err != nil {
		s.log.LogAttrs(ctx, slog.LevelDebug, "the scheduler didn't take the leave", slog.Any("error", err))
	}
}

// poll asks for work whenever a slot is free, until ctx ends. Under push
// dispatch it only waits for that to change.
func (s *session) poll(ctx context.Context, freed <-chan struct{}, free func() int, launch func([]*firnpb.TaskDefinition)) {
	wait := newBackoff(50*time.Millisecond, 2*time.Second)
	for ctx.Err() == nil {
		now, changed := s.current()
		slots := free()
		if now.GetDispatch() != dispatchPull || slots == 0 {
			select {
			case <-ctx.Done():
			case <-changed:
			case <-freed:
			}
			continue
		}
		asked := time.Now()
		call, stop := context.WithTimeout(ctx, pollWait+callTimeout)
		resp, err := s.rpc.PollWork(call, &firnpb.PollWorkRequest{
			ExecutorId: s.hello.GetExecutorId(), Incarnation: s.hello.GetIncarnation(),
			FreeSlots: uint32(slots), WaitMs: uint32(pollWait.Milliseconds()),
		})
		stop()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			s.log.LogAttrs(ctx, slog.LevelWarn, "asking for work failed", slog.Any("error", err))
			wait.sleep(ctx, changed)
		case !resp.GetKnown():
			s.forgotten()
			wait.sleep(ctx, changed)
		case len(resp.GetTasks()) == 0 && time.Since(asked) < pollWait/100:
			// A scheduler that doesn't wait isn't asked without a pause.
			wait.sleep(ctx, changed)
		default:
			wait.reset()
			launch(resp.GetTasks())
		}
	}
}

// storeKeys asks for keys to an object store.
func (s *session) storeKeys(ctx context.Context, r *firnpb.StoreKeysRequest) (*firnpb.StoreKeysResponse, error) {
	r.ExecutorId, r.Incarnation = s.hello.GetExecutorId(), s.hello.GetIncarnation()
	return s.rpc.StoreKeys(ctx, r)
}

// sourceAccess asks for what reaches a Flight SQL source.
func (s *session) sourceAccess(ctx context.Context, r *firnpb.SourceAccessRequest) (*firnpb.SourceAccessResponse, error) {
	r.ExecutorId, r.Incarnation = s.hello.GetExecutorId(), s.hello.GetIncarnation()
	return s.rpc.SourceAccess(ctx, r)
}

// report sends statuses and gives back which attempts were acknowledged.
func (s *session) report(ctx context.Context, statuses []*firnpb.TaskStatus) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	failpoint.Hit(failpoint.BeforeReport)
	resp, err := s.rpc.ReportStatus(ctx, &firnpb.ReportStatusRequest{
		ExecutorId: s.hello.GetExecutorId(), Incarnation: s.hello.GetIncarnation(), Statuses: statuses,
	})
	if err != nil {
		return nil, err
	}
	if !resp.GetKnown() {
		// What it acknowledges without knowing us wasn't counted.
		s.forgotten()
		return nil, fmt.Errorf("the scheduler doesn't know executor %s", s.hello.GetExecutorId())
	}
	failpoint.HitIf(len(resp.GetAcknowledgedAttempts()) > 0, failpoint.AfterReport)
	return resp.GetAcknowledgedAttempts(), nil
}
