package executor

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/firn-project/firn/internal/wire/firnpb"
)

const (
	// maxReport is the most statuses in one message.
	maxReport = 64
	// maxUnacknowledged stops new tasks: a scheduler that acknowledges nothing
	// must not fill the memory.
	maxUnacknowledged = 4096
)

// reporter repeats the last status of each attempt until the scheduler has
// acknowledged it. A later status of an attempt replaces an earlier one, and an
// acknowledgement counts only if nothing newer came while it was on its way.
type reporter struct {
	send   func(context.Context, []*firnpb.TaskStatus) (acknowledged []string, err error)
	logger *slog.Logger
	// wake has a token when something new is there.
	wake chan struct{}

	mu sync.Mutex
	// pending is in the order of the first status of each attempt.
	pending []*firnpb.TaskStatus
	// idle is closed when nothing is pending; nil when nobody asked.
	idle chan struct{}
}

func newReporter(send func(context.Context, []*firnpb.TaskStatus) ([]string, error), logger *slog.Logger) *reporter {
	return &reporter{send: send, logger: logger, wake: make(chan struct{}, 1)}
}

// report takes a status. It never blocks.
func (r *reporter) report(s *firnpb.TaskStatus) {
	r.mu.Lock()
	i := slices.IndexFunc(r.pending, func(p *firnpb.TaskStatus) bool { return p.GetAttemptId() == s.GetAttemptId() })
	if i < 0 {
		r.pending = append(r.pending, s)
	} else {
		r.pending[i] = s
	}
	r.mu.Unlock()
	r.kick()
}

// kick sends what is pending without waiting longer.
func (r *reporter) kick() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// full says whether too much waits to be acknowledged.
func (r *reporter) full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending) >= maxUnacknowledged
}

// attempts lists those whose last status isn't acknowledged.
func (r *reporter) attempts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]string, len(r.pending))
	for i, s := range r.pending {
		out[i] = s.GetAttemptId()
	}
	return out
}

// run sends until ctx ends.
func (r *reporter) run(ctx context.Context) {
	wait := newBackoff(20*time.Millisecond, 2*time.Second)
	for {
		r.mu.Lock()
		batch := slices.Clone(r.pending[:min(len(r.pending), maxReport)])
		r.mu.Unlock()
		if len(batch) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-r.wake:
			}
			continue
		}
		acks, err := r.send(ctx, batch)
		if ctx.Err() != nil {
			return
		}
		if r.acknowledge(batch, acks) {
			wait.reset()
			continue
		}
		if err != nil {
			r.logger.LogAttrs(ctx, slog.LevelWarn, "status not delivered, repeating",
				slog.Int("statuses", len(batch)), slog.Any("error", err))
		}
		if !wait.sleep(ctx, r.wake) {
			return
		}
	}
}

// acknowledge drops what was sent, acknowledged and not replaced since. What was
// sent and not acknowledged goes to the end, so that it doesn't hold up others.
func (r *reporter) acknowledge(sent []*firnpb.TaskStatus, acks []string) (progress bool) {
	acked := make(map[string]bool, len(acks))
	for _, a := range acks {
		acked[a] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var first, last []*firnpb.TaskStatus
	for _, p := range r.pending {
		switch {
		case !slices.Contains(sent, p):
			first = append(first, p)
		case acked[p.GetAttemptId()]:
			progress = true
		default:
			last = append(last, p)
		}
	}
	r.pending = append(first, last...)
	if len(r.pending) == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
	return progress
}

// flush waits until all is acknowledged or ctx ends.
func (r *reporter) flush(ctx context.Context) {
	r.mu.Lock()
	if len(r.pending) == 0 {
		r.mu.Unlock()
		return
	}
	if r.idle == nil {
		r.idle = make(chan struct{})
	}
	idle := r.idle
	r.mu.Unlock()
	r.kick()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// backoff waits longer from time to time.
type backoff struct{ first, most, next time.Duration }

func newBackoff(first, most time.Duration) *backoff {
	return &backoff{first: first, most: most, next: first}
}

func (b *backoff) reset() { b.next = b.first }

// sleep waits, less when something comes on early (which may be nil), and says
// whether ctx is still good.
func (b *backoff) sleep(ctx context.Context, early <-chan struct{}) bool {
	t := time.NewTimer(b.next)
	defer t.Stop()
	b.next = min(b.next*2, b.most)
	select {
	case <-ctx.Done():
		return false
	case <-early:
	case <-t.C:
	}
	return ctx.Err() == nil
}
