package journal

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"sync"
)

// group makes the writes that come while one is being made durable durable
// together: they share the next transaction and its fsync, each in a savepoint of
// its own, so that one that fails takes no other with it. A caller leads for one
// transaction and hands over, so nobody works for others for long.
type group struct {
	mu      sync.Mutex
	queue   []*write
	leading bool
}

// write is one caller's transaction.
type write struct {
	ctx  context.Context //nolint:containedctx // the caller's, for as long as it waits
	f    func(*sql.Tx) error
	err  error
	done chan struct{}
	lead chan struct{}
}

// tx runs f in one transaction that writes, under this process's epoch, and
// returns when it is durable. f may run more than once; only one run counts.
func (j *SQLite) tx(ctx context.Context, f func(*sql.Tx) error) error {
	w := &write{ctx: ctx, f: f, done: make(chan struct{}), lead: make(chan struct{}, 1)}
	g := &j.group
	g.mu.Lock()
	g.queue = append(g.queue, w)
	if !g.leading {
		g.leading = true
		w.lead <- struct{}{}
	}
	g.mu.Unlock()
	select {
	case <-w.lead:
		j.leadOnce()
	case <-w.done:
	}
	<-w.done
	return w.err
}

// leadOnce makes everything that waits durable and hands over.
//
// It lets who is ready to run go first: on a busy machine they often have a write
// of their own, which then costs no transaction. On an idle one it returns at once.
func (j *SQLite) leadOnce() {
	runtime.Gosched()
	g := &j.group
	g.mu.Lock()
	batch := g.queue
	g.queue = nil
	g.mu.Unlock()
	shared := len(batch) > 1 && j.together(batch) == nil
	for _, w := range batch {
		if !shared || isFull(w.err) {
			w.err = j.alone(w.ctx, w.f)
		}
		close(w.done)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) > 0 {
		g.queue[0].lead <- struct{}{}
		return
	}
	g.leading = false
}

// together runs a batch in one transaction. An error means that nothing of it was
// made durable; that of a single write is in the write.
func (j *SQLite) together(batch []*write) error {
	// The end of one caller's context must not end the others' transaction.
	ctx := context.WithoutCancel(batch[0].ctx)
	return j.txOnce(ctx, func(tx *sql.Tx) error {
		for _, w := range batch {
			if w.err = w.ctx.Err(); w.err != nil {
				continue
			}
			if _, err := tx.ExecContext(ctx, "SAVEPOINT one"); err != nil {
				return err
			}
			if w.err = w.run(tx); w.err != nil {
				if _, err := tx.ExecContext(ctx, "ROLLBACK TO one"); err != nil {
					return err
				}
			}
			if _, err := tx.ExecContext(ctx, "RELEASE one"); err != nil {
				return err
			}
		}
		return nil
	})
}

// run makes a panic the error of its own write.
func (w *write) run(tx *sql.Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal fault: %v", p)
		}
	}()
	return w.f(tx)
}

// alone runs f in a transaction of its own. When the disk is full it gives up the
// reserve and tries once more, so that commits in flight can be finished.
func (j *SQLite) alone(ctx context.Context, f func(*sql.Tx) error) error {
	err := j.txOnce(ctx, f)
	if isFull(err) && j.spendReserve() {
		err = j.txOnce(ctx, f)
	}
	return err
}
