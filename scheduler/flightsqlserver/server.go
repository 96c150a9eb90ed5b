package flightsqlserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/tap"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

// Config says how Flight SQL is served. Scheduler, Authenticate and Logger must be
// set.
type Config struct {
	// Listen is HOST:PORT; port 0 takes a free one.
	Listen    string
	Scheduler firnpb.ClientServiceServer
	// Authenticate decides about each call, by its gRPC method: see scheduler.Config.
	Authenticate func(ctx context.Context, method string) error
	// TLS is nil for plaintext.
	TLS *tls.Config
	// Keep is how long rows can be read again: see scheduler.Config.ResultTTL (5
	// min). So long is also waited for a client that reads no further.
	Keep time.Duration
	// Readers is how many may read rows at a time (16), and ReaderWait how long
	// another one waits for its turn (10 s).
	Readers    int
	ReaderWait time.Duration
	// Dial are further gRPC options for connections to executors.
	Dial   []grpc.DialOption
	Logger *slog.Logger
}

// gone is how long a connection that says nothing may leave a ping unanswered, and how
// often it is asked.
const gone = 30 * time.Second

// Server serves until Close.
type Server struct {
	lis     net.Listener
	grpc    *grpc.Server
	service *service
	served  sync.WaitGroup
}

// Start listens and serves. ctx bounds the start only. The caller closes the server.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Keep <= 0 {
		cfg.Keep = 5 * time.Minute
	}
	if cfg.Readers <= 0 {
		cfg.Readers = 16
	}
	if cfg.ReaderWait <= 0 {
		cfg.ReaderWait = 10 * time.Second
	}
	life, end := context.WithCancelCause(context.Background())
	svc := &service{
		cfg: cfg, flight: flightread.New(flightread.Config{Dial: cfg.Dial}),
		life: life, end: end, answers: answers{keep: cfg.Keep}, readers: make(chan struct{}, cfg.Readers),
	}
	svc.Alloc = memory.DefaultAllocator
	if err := svc.registerInfo(); err != nil {
		return nil, err
	}
	lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, &commit.Error{
			Code: commit.CodeCluster, Op: "listen on", Object: cfg.Listen, Cause: err,
			Hint: "Choose a free address with --flight-sql-listen HOST:PORT; port 0 takes any.",
		}
	}
	opts := slices.Concat(wire.ServerOptions(), wire.SchedulerOptions(), svc.interceptors(), []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: gone, Timeout: gone}),
	})
	if cfg.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(cfg.TLS)))
	}
	s := &Server{lis: lis, grpc: grpc.NewServer(opts...), service: svc}
	flight.RegisterFlightServiceServer(s.grpc, guarded{flightsql.NewFlightServerWithAllocator(svc, wire.NewLimitedAllocator()), life})
	s.served.Go(func() {
		if err := s.grpc.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			cfg.Logger.Error("Flight SQL listener ended", slog.Any("error", err))
		}
	})
	return s, nil
}

// Addr is where the server listens, host:port.
func (s *Server) Addr() string { return s.lis.Addr().String() }

// errLeaving is told to those who wait for a job.
var errLeaving = &commit.Error{
	Code: commit.CodeSchedulerClosing, Op: "wait for job", Cause: errors.New("the scheduler is shutting down"),
	Hint: "Jobs of INSERTs and of keys go on when the scheduler is back. Send a SELECT again then.",
}

// Close tells those who wait for jobs that it leaves, lets other calls finish until
// ctx ends, and waits for the listener. Jobs go on.
func (s *Server) Close(ctx context.Context) error {
	s.service.end(errLeaving)
	stopped := make(chan struct{})
	go func() { s.grpc.GracefulStop(); close(stopped) }()
	select {
	case <-stopped:
	case <-ctx.Done():
		s.grpc.Stop()
		<-stopped
	}
	s.served.Wait()
	return s.service.flight.Close()
}

// interceptors let callers in, make panics errors, and tell errors as clients of
// others read them.
func (s *service) interceptors() []grpc.ServerOption {
	recovered := func(ctx context.Context, method string, err *error) {
		if p := recover(); p != nil {
			s.cfg.Logger.LogAttrs(ctx, slog.LevelError, "panic recovered",
				slog.String("in", method), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			*err = fmt.Errorf("%s: internal fault: %v", method, p)
		}
		*err = told(*err)
	}
	return []grpc.ServerOption{
		// Before anything of the message is read.
		grpc.InTapHandle(func(ctx context.Context, call *tap.Info) (context.Context, error) {
			ctx = passwordAsToken(ctx)
			return ctx, told(s.cfg.Authenticate(ctx, call.FullMethodName))
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
