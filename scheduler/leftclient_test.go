package scheduler

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/writes"
)

// leaving is a journal whose clients leave while it writes their jobs.
type leaving struct {
	journal.Journal
	mu    sync.Mutex
	leave func()
}

func (l *leaving) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave = f
}

func (l *leaving) Write(ctx context.Context, b journal.Batch) error {
	l.mu.Lock()
	leave := l.leave
	l.mu.Unlock()
	if len(b.Jobs) > 0 && leave != nil {
		leave()
	}
	return l.Journal.Write(ctx, b)
}

// TestAClientThatLeavesWhileItsJobIsRecorded: the job that is on record is the one that
// runs. Asked again under the key, it is that job, and no restart brings another one
// up that was begun beside it.
func TestAClientThatLeavesWhileItsJobIsRecorded(t *testing.T) {
	l := &leaving{}
	h := start(t, func(c *Config) {
		c.openJournal = func(ctx context.Context, dir string) (journal.Journal, error) {
			var err error
			l.Journal, err = journal.Open(ctx, dir)
			return l, err
		}
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	written := make(chan struct{})
	l.set(func() {
		l.set(nil)
		cancel(errors.New("the connection broke"))
		close(written)
	})
	_, _ = writeHost{h.s}.Begin(ctx, writes.Request{Table: writeTable, Key: "k", KeyIsNew: true}) // nobody hears the answer
	receive(t, written, "record of the job")
	c := h.driver().begin("k")
	jobs, err := h.s.journal.Jobs(t.Context(), journal.Filter{})
	if err != nil || len(jobs) != 1 || jobs[0].ID != c.WriteID {
		t.Errorf("%d jobs on record (%v); the write is %s", len(jobs), err, c.WriteID)
	}
}
