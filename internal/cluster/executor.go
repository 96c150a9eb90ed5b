package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"

	"github.com/firn-project/firn/executor"
	"github.com/firn-project/firn/executor/metrics"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/httpserve"
	"github.com/firn-project/firn/internal/security"
	"github.com/firn-project/firn/sinks"
	"github.com/firn-project/firn/sinks/delta"
	"github.com/firn-project/firn/sinks/iceberg"
)

// Executor is a running executor with its HTTP listener.
type Executor struct {
	*executor.Executor
	http *httpserve.Server
}

// StartExecutor builds an executor with the drivers of all table formats and
// starts it; it returns when the executor is registered. id may be empty: the
// executor then keeps one in its directory. ctx bounds the start only. The caller
// closes it.
func StartExecutor(ctx context.Context, id string, cfg config.Executor, logger *slog.Logger) (*Executor, error) {
	sec, err := secureExecutor(cfg, logger)
	if err != nil {
		return nil, err
	}
	counts := metrics.New(logger)
	ex, err := executor.New(executor.Config{
		ID: id, Server: cfg.Server, Listen: cfg.Listen, Dir: cfg.Dir, Slots: cfg.Slots, Memory: cfg.Memory, ObjectCache: cfg.ObjectCache, ShuffleDisk: cfg.ShuffleDisk,
		LocalAllow: cfg.LocalAllow, Metrics: counts, Logger: logger,
		DialPeers: sec.dial, DialScheduler: security.DialToken(cfg.Token), ServerOptions: sec.server,
		Sinks: map[string]sinks.Driver{"iceberg": iceberg.New(), "delta": delta.New()},
	})
	if err != nil {
		return nil, failed("configure", "executor", err)
	}
	if err := ex.Start(ctx); err != nil {
		return nil, errors.Join(failed("start", "executor", err), ex.Close(ctx))
	}
	e := &Executor{Executor: ex}
	if err := e.startHTTP(ctx, cfg, counts.Handler(), logger); err != nil {
		return nil, errors.Join(failed("start", "HTTP", err), ex.Close(ctx))
	}
	return e, nil
}

// startHTTP serves health checks and metrics where the configuration asks for it.
// They are for everybody who reaches the address, as they hold nothing of a table or
// a job; with TLS the certificate is that of the other address.
func (e *Executor) startHTTP(ctx context.Context, cfg config.Executor, counts http.Handler, logger *slog.Logger) error {
	if cfg.HTTP == "" {
		return nil
	}
	warning, err := security.CheckListen(cfg.HTTP, cfg.TLS != (config.TLS{}), cfg.AllowPlaintext)
	if err != nil {
		return err
	}
	if warning != "" {
		warn(logger, cfg.HTTP, warning)
	}
	var secure *tls.Config
	if cfg.TLS != (config.TLS{}) {
		files := security.Files{Cert: cfg.TLS.Cert, Key: cfg.TLS.Key, CA: cfg.TLS.CA}
		if secure, err = files.Server(cfg.TLS.RequireClientCert); err != nil {
			return err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", counts)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		httpserve.JSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", e.readyz)
	var h http.Handler = mux
	if security.Loopback(cfg.HTTP) {
		h = httpserve.OwnNames(mux, func(w http.ResponseWriter, err error) { http.Error(w, err.Error(), http.StatusForbidden) })
	}
	e.http, err = httpserve.Start(ctx, cfg.HTTP, secure, h, logger)
	return err
}

func (e *Executor) readyz(w http.ResponseWriter, _ *http.Request) {
	status, check := http.StatusOK, "ok"
	if err := e.Ready(); err != nil {
		status, check = http.StatusServiceUnavailable, err.Error()
	}
	httpserve.JSON(w, status, map[string]any{"ready": status == http.StatusOK, "checks": map[string]string{"executor": check}})
}

// HTTPAddr is where health checks and metrics are served, host:port; empty when they
// aren't.
func (e *Executor) HTTPAddr() string {
	if e.http == nil {
		return ""
	}
	return e.http.Addr()
}

// Close stops the executor and then its HTTP listener, which tells meanwhile that no
// tasks are taken. ctx bounds the wait for running tasks.
func (e *Executor) Close(ctx context.Context) error {
	err := e.Executor.Close(ctx)
	if e.http == nil {
		return err
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpGrace)
	defer cancel()
	return errors.Join(err, ended(e.http.Close(grace)))
}
