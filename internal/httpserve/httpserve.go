package httpserve

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/security"
)

// Server serves until Close.
type Server struct {
	lis    net.Listener
	http   *http.Server
	end    context.CancelFunc
	served chan struct{}
}

// answerTime is how long a request and its answer may take: who reads slowly must not
// hold a connection without end. Streams set deadlines of their own.
const answerTime = 2 * time.Minute

// Start listens on an address and serves. t is nil for plaintext. ctx bounds the
// start only. The caller closes the server.
func Start(ctx context.Context, address string, t *tls.Config, h http.Handler, log *slog.Logger) (*Server, error) {
	lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, &commit.Error{
			Code: commit.CodeCluster, Op: "listen on", Object: address, Cause: err,
			Hint: "Choose a free address with --http-listen HOST:PORT; port 0 takes any.",
		}
	}
	s := &Server{lis: lis, served: make(chan struct{})}
	if t != nil {
		c := t.Clone()
		c.NextProtos = []string{"h2", "http/1.1"}
		s.lis = tls.NewListener(lis, c)
	}
	var base context.Context
	base, s.end = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler: h, BaseContext: func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: answerTime, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(s.served)
		if err := s.http.Serve(s.lis); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error("HTTP listener ended", slog.Any("error", err))
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

// OwnNames has refuse answer requests for other names than this machine's: so that a
// web page somewhere can't have a browser ask in its name (DNS rebinding).
func OwnNames(next http.Handler, refuse func(http.ResponseWriter, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if !security.LoopbackHost(host) {
			refuse(w, &commit.Error{
				Code: commit.CodeUnauthenticated, Op: "let in", Object: "a request for " + host,
				Cause: errors.New("this address is for this machine only"), Hint: "Ask for 127.0.0.1 or localhost.",
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// JSON answers.
func JSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller may have gone
}
