package answers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
)

// DefaultManifests is how many bytes the file manifests of all jobs may take by
// default, about; those of one job get half: enough for a million files with ten
// columns, or a hundred thousand with a hundred.
const DefaultManifests = 1 << 30

// Manifests takes the file manifests of one job in. It is for one goroutine.
type Manifests struct {
	Share *Share
	Into  *commit.Packer
}

// Collect takes the batches that next gives until io.EOF; rows is what the attempt has
// reported, below 0 when that isn't known. It stops with the first batch that is too
// much, whatever would come after it, and then nothing of this manifest is left in Into.
// While others have the memory it waits, and w doesn't count that.
func (m *Manifests) Collect(ctx context.Context, w *Wait, attempt string, rows int64, next func() (arrow.RecordBatch, error)) (err error) {
	first := m.Into.Len()
	defer func() {
		if err != nil {
			m.Into.Cut(first)
		}
	}()
	for {
		b, err := next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		err = m.take(ctx, w, attempt, rows, first, b)
		b.Release()
		if err != nil {
			return err
		}
	}
}

// take takes one batch in. Packed files are smaller than their batch, which is there
// until they are.
func (m *Manifests) take(ctx context.Context, w *Wait, attempt string, rows int64, first int, b arrow.RecordBatch) error {
	if n := int64(m.Into.Len()-first) + b.NumRows(); rows >= 0 && n > rows {
		return BadManifest(attempt, "a manifest has as many rows as its attempt reported", fmt.Sprintf("it has %d rows and more; its attempt reported %d", n, rows))
	}
	size := b.NumRows() * perFile
	for _, c := range b.Columns() {
		size += int64(c.Data().SizeInBytes()) //nolint:gosec // less than a message
	}
	hold := func(n int64) error {
		defer w.Pause()()
		err := m.Share.Hold(ctx, n)
		if errors.Is(err, errFull) {
			return m.Share.pool.tooMuch(attempt)
		}
		return err
	}
	if err := hold(m.Into.Bytes() + size); err != nil {
		return err
	}
	if err := wire.EachFile(b, func(f commit.File) error {
		m.Into.Add(f)
		return nil
	}); err != nil {
		return err
	}
	return hold(m.Into.Bytes())
}

// perFile is what a file takes packed, besides the values of its columns.
const perFile = 128

// BadManifest is the error of a manifest that breaks a rule as a whole.
func BadManifest(attempt, rule, why string) error {
	return &commit.Error{
		Code: commit.CodeVerification, Op: "read the file manifest of", Object: "attempt " + attempt, Reason: commit.ReasonValidation,
		Cause: errors.New(why + " (rule: " + rule + ")"), Tried: "nothing was committed",
	}
}

// inAll is how many times the stall one answer may take in all.
const inAll = 10

// Wait bounds how long an executor may take over one answer: stall without progress,
// and inAll times that altogether. Who waits under its context doesn't wait for an
// executor that holds its word back. It is safe for concurrent use.
type Wait struct {
	stall      time.Duration
	timer, all *time.Timer
	cancel     context.CancelCauseFunc

	mu    sync.Mutex
	began time.Time
	left  time.Duration
}

// NewWait begins to wait. The context ends with the wait, and its cause says why.
func NewWait(ctx context.Context, stall time.Duration) (context.Context, *Wait) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &Wait{stall: stall, cancel: cancel, began: time.Now(), left: inAll * stall}
	w.timer = time.AfterFunc(stall, func() { cancel(fmt.Errorf("nothing came from the executor for %v", stall)) })
	w.all = time.AfterFunc(w.left, func() { cancel(fmt.Errorf("the executor took more than %v over its answer", inAll*stall)) })
	return ctx, w
}

// Progress says that something came.
func (w *Wait) Progress() { w.timer.Reset(w.stall) }

// Pause stops the time until the returned function is called: it isn't the executor
// that is waited for. A nil Wait has no time.
func (w *Wait) Pause() (resume func()) {
	if w == nil {
		return func() {}
	}
	w.mu.Lock()
	w.timer.Stop()
	w.all.Stop()
	w.left -= time.Since(w.began)
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.began = time.Now()
		w.timer.Reset(w.stall)
		w.all.Reset(max(0, w.left))
	}
}

// End ends the wait, and its context. It must be called.
func (w *Wait) End() {
	w.timer.Stop()
	w.all.Stop()
	w.cancel(nil)
}
