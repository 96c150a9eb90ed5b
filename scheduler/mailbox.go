package scheduler

import (
	"context"
	"sync"
)

// mailbox runs functions one after the other on one goroutine, in the order in
// which they were put. Putting never blocks, so a function may put others, also
// into the mailbox that runs it.
//
// The event loop is a mailbox; the calls to each executor are two more.
type mailbox struct {
	mu     sync.Mutex
	queue  []func()
	closed bool
	wake   chan struct{}
	done   chan struct{}
	// after runs after each function, on the same goroutine.
	after func()
}

// newMailbox starts a mailbox. Close it.
func newMailbox(after func()) *mailbox {
	m := &mailbox{wake: make(chan struct{}, 1), done: make(chan struct{}), after: after}
	go m.run()
	return m
}

// put queues f. It returns false, and drops f, once close was called.
func (m *mailbox) put(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.queue = append(m.queue, f)
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return true
}

// call queues f and waits until it has run. When it returns an error f may
// still run, so the caller then leaves alone what f writes.
func (m *mailbox) call(ctx context.Context, f func()) error {
	ran := make(chan struct{})
	if !m.put(func() { defer close(ran); f() }) {
		return errClosing()
	}
	select {
	case <-ran:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close runs what is queued and then ends the goroutine; it waits for that.
func (m *mailbox) close() {
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		close(m.wake)
	}
	m.mu.Unlock()
	<-m.done
}

func (m *mailbox) run() {
	defer close(m.done)
	for {
		m.mu.Lock()
		batch, closed := m.queue, m.closed
		m.queue = nil
		m.mu.Unlock()
		for _, f := range batch {
			f()
			if m.after != nil {
				m.after()
			}
		}
		if len(batch) > 0 {
			continue
		}
		if closed {
			return
		}
		<-m.wake
	}
}
