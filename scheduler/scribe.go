package scheduler

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/firn-project/firn/scheduler/journal"
)

// scribe writes the event loop's records into the journal, in the order of the
// events. What comes while a transaction is under way goes into the next one
// together, so that many statuses cost one write to the disk.
type scribe struct {
	write func(context.Context, journal.Batch) error

	mu     sync.Mutex
	queue  []note
	closed bool
	wake   chan struct{}
	done   chan struct{}
}

// note is what one event has to write, and who hears when it is durable.
type note struct {
	batch journal.Batch
	// after hears nil when the batch is durable, or why it isn't.
	after []func(error)
}

func newScribe(write func(context.Context, journal.Batch) error) *scribe {
	w := &scribe{write: write, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w
}

// put queues a note. It never blocks. After close nothing is written any more,
// and after hears so.
func (w *scribe) put(n note) {
	w.mu.Lock()
	closed := w.closed
	if !closed {
		w.queue = append(w.queue, n)
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	w.mu.Unlock()
	if closed {
		n.tell(errClosing())
	}
}

// record writes one batch and waits until it is durable.
func (w *scribe) record(ctx context.Context, b journal.Batch) error {
	done := make(chan error, 1)
	w.put(note{batch: b, after: []func(error){func(err error) { done <- err }}})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the journal: %w", context.Cause(ctx))
	}
}

// close writes what is queued and waits for it.
func (w *scribe) close() {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.wake)
	}
	w.mu.Unlock()
	<-w.done
}

func (w *scribe) run() {
	defer close(w.done)
	for {
		// As the journal's leader does: who is ready to run may have a note.
		runtime.Gosched()
		w.mu.Lock()
		notes, closed := w.queue, w.closed
		w.queue = nil
		w.mu.Unlock()
		if len(notes) > 0 {
			w.writeAll(notes)
			continue
		}
		if closed {
			return
		}
		<-w.wake
	}
}

// writeAll writes the notes in one transaction. When that fails each is tried by
// itself: one that can't be written must not take the others along.
func (w *scribe) writeAll(notes []note) {
	var all journal.Batch
	for _, n := range notes {
		all.Add(n.batch)
	}
	err := w.write(context.Background(), all)
	if err == nil || len(notes) == 1 {
		for _, n := range notes {
			n.tell(err)
		}
		return
	}
	for _, n := range notes {
		n.tell(w.write(context.Background(), n.batch))
	}
}

func (n note) tell(err error) {
	for _, f := range n.after {
		f(err)
	}
}
