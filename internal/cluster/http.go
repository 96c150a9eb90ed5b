package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc"

	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/security"
	"github.com/firn-project/firn/scheduler"
	"github.com/firn-project/firn/scheduler/rest"
)

// httpGrace is how long requests may take to end when the scheduler stops.
const httpGrace = 2 * time.Second

// startHTTP serves the scheduler over HTTP where the configuration asks for it. The
// rules for who is let in are those of the other address, held against this one.
func (s *Scheduler) startHTTP(ctx context.Context, cfg SchedulerConfig, gate *security.Gate, dial []grpc.DialOption, metrics http.Handler) error {
	if cfg.HTTP.Listen == "" {
		return nil
	}
	warning, err := security.CheckListen(cfg.HTTP.Listen, cfg.TLS != (config.TLS{}), cfg.AllowPlaintext)
	if err != nil {
		return err
	}
	if warning != "" {
		warn(cfg.Logger, cfg.HTTP.Listen, warning)
	}
	local := security.Loopback(cfg.HTTP.Listen)
	own := &security.Gate{Tokens: gate.Tokens, Own: gate.Own, Anonymous: local || cfg.AllowAnonymous}
	c := rest.Config{
		Listen: cfg.HTTP.Listen, Scheduler: s.Scheduler, Metrics: metrics, Authenticate: own.Check,
		LocalOnly: local, MinExecutors: cfg.HTTP.MinExecutors, Dial: dial, Logger: cfg.Logger,
	}
	if cfg.TLS != (config.TLS{}) {
		files := security.Files{Cert: cfg.TLS.Cert, Key: cfg.TLS.Key, CA: cfg.TLS.CA}
		if c.TLS, err = files.Server(cfg.TLS.RequireClientCert); err != nil {
			return err
		}
	}
	if s.http, err = rest.Start(ctx, c); err != nil {
		return err
	}
	cfg.Logger.Info("HTTP ready", slog.String("address", s.http.Addr()))
	return nil
}

// HTTPAddr is where the scheduler is served over HTTP, host:port; empty when it
// isn't.
func (s *Scheduler) HTTPAddr() string {
	if s.http == nil {
		return ""
	}
	return s.http.Addr()
}

// closeHTTP ends HTTP before what it shows.
func (s *Scheduler) closeHTTP(ctx context.Context) error {
	if s.http == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, httpGrace)
	defer cancel()
	return ended(s.http.Close(ctx))
}

// ended leaves out that requests were cut short.
func ended(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

var _ rest.Scheduler = (*scheduler.Scheduler)(nil)
