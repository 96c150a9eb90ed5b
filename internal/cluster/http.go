package cluster

import (
	"context"
	"crypto/tls"
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
	door, err := cfg.door(cfg.HTTP.Listen, gate)
	if err != nil {
		return err
	}
	c := rest.Config{
		Listen: cfg.HTTP.Listen, Scheduler: s.Scheduler, Metrics: metrics, Authenticate: door.gate.Check,
		TLS: door.tls, LocalOnly: door.local, MinExecutors: cfg.HTTP.MinExecutors, Dial: dial, Logger: cfg.Logger,
	}
	if s.http, err = rest.Start(ctx, c); err != nil {
		return err
	}
	cfg.Logger.Info("HTTP ready", slog.String("address", s.http.Addr()))
	return nil
}

// door is who is let in at an address beside the scheduler's own, and how.
type door struct {
	gate  *security.Gate
	tls   *tls.Config // nil for plaintext
	local bool
}

// door holds the rules of the scheduler's own address against another one.
func (c SchedulerConfig) door(listen string, gate *security.Gate) (door, error) {
	warning, err := security.CheckListen(listen, c.TLS != (config.TLS{}), c.AllowPlaintext)
	if err != nil {
		return door{}, err
	}
	if warning != "" {
		warn(c.Logger, listen, warning)
	}
	d := door{local: security.Loopback(listen)}
	d.gate = &security.Gate{Tokens: gate.Tokens, Own: gate.Own, Anonymous: d.local || c.AllowAnonymous}
	if c.TLS != (config.TLS{}) {
		files := security.Files{Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.CA}
		d.tls, err = files.Server(c.TLS.RequireClientCert)
	}
	return d, err
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
