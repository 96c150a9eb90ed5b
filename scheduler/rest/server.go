package rest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/httpserve"
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
	// SendTime bounds one write to a stream: who reads slower is left (10 s).
	SendTime time.Duration
	// Dial are further gRPC options for connections to executors.
	Dial   []grpc.DialOption
	Logger *slog.Logger
}

func (c Config) sendTime() time.Duration {
	if c.SendTime > 0 {
		return c.SendTime
	}
	return sendTime
}

// Server serves until Close.
type Server struct {
	*httpserve.Server
	cfg Config
	// flight reads rows from executors, for those who have one of rowSlots.
	flight   *flightread.Client
	rowSlots chan struct{}
}

func newServer(cfg Config) *Server {
	if cfg.MinExecutors == 0 {
		cfg.MinExecutors = 1
	}
	return &Server{cfg: cfg, flight: flightread.New(flightread.Config{Dial: cfg.Dial}), rowSlots: make(chan struct{}, rowReaders)}
}

// Start listens and serves. ctx bounds the start only. The caller closes the
// server.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	s := newServer(cfg)
	var err error
	s.Server, err = httpserve.Start(ctx, cfg.Listen, cfg.TLS, s.handler(), cfg.Logger)
	if err != nil {
		return nil, errors.Join(err, s.flight.Close())
	}
	return s, nil
}

// Close ends streams, lets other requests finish until ctx ends, and waits for the
// listener.
func (s *Server) Close(ctx context.Context) error {
	return errors.Join(s.Server.Close(ctx), s.flight.Close())
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
	mux.Handle("/", s.letIn(http.NewCrossOriginProtection().Handler(known(inside))))
	if s.cfg.LocalOnly {
		return s.recovered(httpserve.OwnNames(mux, writeProblem))
	}
	return s.recovered(mux)
}

// known answers for paths and methods that mux doesn't have as for other errors.
func known(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		was := &unanswered{header: http.Header{}}
		h.ServeHTTP(was, r)
		switch was.status {
		case http.StatusNotFound:
			writeProblem(w, &problem{
				Type: "about:blank", Title: http.StatusText(was.status), Status: was.status, Code: string(commit.CodeBadRequest),
				Detail: "nothing is at " + r.URL.Path, Hint: "GET /openapi.yaml lists what there is.",
			})
		case http.StatusMethodNotAllowed:
			allow := was.header.Get("Allow")
			w.Header().Set("Allow", allow)
			writeProblem(w, &problem{
				Type: "about:blank", Title: http.StatusText(was.status), Status: was.status, Code: string(commit.CodeBadRequest),
				Detail: r.Method + " isn't for " + r.URL.Path, Hint: "It takes " + allow + ".",
			})
		default: // such as the way to the same path without a doubled slash
			h.ServeHTTP(w, r)
		}
	})
}

// unanswered is how a request would be answered.
type unanswered struct {
	header http.Header
	status int
}

func (u *unanswered) Header() http.Header         { return u.header }
func (u *unanswered) Write(b []byte) (int, error) { return len(b), nil }
func (u *unanswered) WriteHeader(status int)      { u.status = status }

// recovered makes a panic in a request its answer.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
				panic(p) // an answer that is broken off on purpose
			}
			s.cfg.Logger.LogAttrs(r.Context(), slog.LevelError, "panic recovered",
				slog.String("in", r.Method+" "+r.URL.Path), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			writeProblem(w, fmt.Errorf("internal fault: %v", p))
		}()
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
