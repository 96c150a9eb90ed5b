package rest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/jobview"
)

// Scheduler is what the interface shows and calls; *scheduler.Scheduler is one.
type Scheduler interface {
	firnpb.ClientServiceServer
	// Tasks are the attempts of a job, by the ids of their stages.
	Tasks(ctx context.Context, jobID string) (map[string][]jobview.Task, error)
	// Ready says how many executors take tasks, and what keeps the scheduler from
	// working.
	Ready(ctx context.Context) (executors int, err error)
}

// Config says how the interface is served. Scheduler, Metrics and Authenticate must
// be set.
type Config struct {
	// Listen is HOST:PORT; port 0 takes a free one.
	Listen    string
	Scheduler Scheduler
	// Metrics answers /metrics.
	Metrics http.Handler
	// Authenticate decides about each call, by the gRPC method that it stands for:
	// see scheduler.Config. /healthz and /readyz are for everybody.
	Authenticate func(ctx context.Context, method string) error
	// TLS is nil for plaintext.
	TLS *tls.Config
	// LocalOnly answers only requests for this machine's own names, so that a web
	// page somewhere can't have a browser ask in its name (DNS rebinding).
	LocalOnly bool
	// MinExecutors is how many executors /readyz wants (1).
	MinExecutors int
	Logger       *slog.Logger
}

// Server serves until Close.
type Server struct {
	cfg    Config
	lis    net.Listener
	http   *http.Server
	end    context.CancelFunc
	served chan struct{}
}

// Start listens and serves. ctx bounds the start only. The caller closes the
// server.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.MinExecutors == 0 {
		cfg.MinExecutors = 1
	}
	lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, &commit.Error{
			Code: commit.CodeCluster, Op: "listen on", Object: cfg.Listen, Cause: err,
			Hint: "Choose a free address with --http-listen HOST:PORT; port 0 takes any.",
		}
	}
	s := &Server{cfg: cfg, lis: lis, served: make(chan struct{})}
	if cfg.TLS != nil {
		c := cfg.TLS.Clone()
		c.NextProtos = []string{"h2", "http/1.1"}
		s.lis = tls.NewListener(lis, c)
	}
	var base context.Context
	base, s.end = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler: s.handler(), BaseContext: func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(s.served)
		if err := s.http.Serve(s.lis); err != nil && !errors.Is(err, http.ErrServerClosed) {
			cfg.Logger.Error("HTTP listener ended", slog.Any("error", err))
		}
	}()
	return s, nil
}

// Addr is where the server listens, host:port.
func (s *Server) Addr() string { return s.lis.Addr().String() }

// Close ends streams, lets other requests finish until ctx ends, and waits for the
// listener.
func (s *Server) Close(ctx context.Context) error {
	s.end()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	<-s.served
	return err
}

// handler is all of the interface.
func (s *Server) handler() http.Handler {
	inside := http.NewServeMux()
	s.api(inside)
	inside.Handle("GET /metrics", s.cfg.Metrics)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.health)
	mux.HandleFunc("GET /readyz", s.ready)
	// A page of another site can't have a browser send anything but GETs.
	mux.Handle("/", s.letIn(http.NewCrossOriginProtection().Handler(inside)))
	return s.recovered(s.ownNames(mux))
}

// recovered makes a panic in a request its answer.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			s.cfg.Logger.LogAttrs(r.Context(), slog.LevelError, "panic recovered",
				slog.String("in", r.Method+" "+r.URL.Path), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			writeProblem(w, fmt.Errorf("internal fault: %v", p))
		}()
		next.ServeHTTP(w, r)
	})
}

// ownNames refuses requests for other names than this machine's.
func (s *Server) ownNames(next http.Handler) http.Handler {
	if !s.cfg.LocalOnly {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			writeProblem(w, &commit.Error{
				Code: commit.CodeUnauthenticated, Op: "let in", Object: "a request for " + host,
				Cause: errors.New("this address is for this machine only"), Hint: "Ask for 127.0.0.1 or localhost.",
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// letIn asks who calls, as the gRPC service for clients does.
func (s *Server) letIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if values := r.Header.Values("Authorization"); len(values) > 0 {
			ctx = metadata.NewIncomingContext(ctx, metadata.MD{"authorization": values})
		}
		p := &peer.Peer{}
		if r.TLS != nil {
			p.AuthInfo = credentials.TLSInfo{State: *r.TLS}
		}
		if err := s.cfg.Authenticate(peer.NewContext(ctx, p), firnpb.ClientService_GetJob_FullMethodName); err != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeProblem(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}
