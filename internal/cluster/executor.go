package cluster

import (
	"context"
	"errors"
	"log/slog"

	"github.com/firn-project/firn/executor"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/security"
	"github.com/firn-project/firn/sinks"
	"github.com/firn-project/firn/sinks/delta"
	"github.com/firn-project/firn/sinks/iceberg"
)

// StartExecutor builds an executor with the drivers of all table formats and
// starts it; it returns when the executor is registered. id may be empty: the
// executor then keeps one in its directory. ctx bounds the start only. The caller
// closes it.
func StartExecutor(ctx context.Context, id string, cfg config.Executor, logger *slog.Logger) (*executor.Executor, error) {
	sec, err := secureExecutor(cfg, logger)
	if err != nil {
		return nil, err
	}
	ex, err := executor.New(executor.Config{
		ID: id, Server: cfg.Server, Listen: cfg.Listen, Dir: cfg.Dir, Slots: cfg.Slots, Memory: cfg.Memory, ObjectCache: cfg.ObjectCache, ShuffleDisk: cfg.ShuffleDisk,
		LocalAllow: cfg.LocalAllow, Logger: logger,
		DialPeers: sec.dial, DialScheduler: security.DialToken(cfg.Token), ServerOptions: sec.server,
		Sinks: map[string]sinks.Driver{"iceberg": iceberg.New(), "delta": delta.New()},
	})
	if err != nil {
		return nil, failed("configure", "executor", err)
	}
	if err := ex.Start(ctx); err != nil {
		return nil, errors.Join(failed("start", "executor", err), ex.Close(ctx))
	}
	return ex, nil
}
