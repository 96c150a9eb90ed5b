package cluster

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// quiet drops what is logged after its switch was turned: executors whose
// scheduler is being closed complain that they can't reach it, which nobody needs
// to know.
type quiet struct {
	slog.Handler
	off *atomic.Bool
}

// Enabled implements slog.Handler.
func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return !q.off.Load() && q.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quiet{q.Handler.WithAttrs(attrs), q.off}
}

// WithGroup implements slog.Handler.
func (q quiet) WithGroup(name string) slog.Handler {
	return quiet{q.Handler.WithGroup(name), q.off}
}
