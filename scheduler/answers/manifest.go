package answers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
)

// MaxManifests is how many bytes the file manifests of one job may take, about: enough
// for 200,000 files with few columns, or 20,000 with a hundred.
const MaxManifests = 512 << 20

// Decoded, a file takes perFile bytes besides the values of its columns, and these
// perByte times what they take as Arrow batches; measured.
const (
	perFile = 2 << 10
	perByte = 2
)

// Manifests takes the file manifests of one job in. It is for one goroutine.
type Manifests struct{ bytes int64 }

// Collect decodes the batches that next gives until io.EOF; rows is
// what the attempt has reported, below 0 when that isn't known. It stops with the
// first batch that is too much, whatever would come after it.
func (m *Manifests) Collect(attempt string, rows int64, next func() (arrow.RecordBatch, error)) ([]commit.File, error) {
	var files []commit.File
	for {
		b, err := next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		m.bytes += b.NumRows() * perFile
		for _, c := range b.Columns() {
			m.bytes += perByte * int64(c.Data().SizeInBytes()) //nolint:gosec // less than a message
		}
		switch n := int64(len(files)) + b.NumRows(); {
		case rows >= 0 && n > rows:
			err = BadManifest(attempt, "a manifest has as many rows as its attempt reported", fmt.Sprintf("it has %d rows and more; its attempt reported %d", n, rows))
		case m.bytes > MaxManifests:
			err = BadManifest(attempt, fmt.Sprintf("the manifests of a job take at most %d bytes of memory", MaxManifests), fmt.Sprintf("they take %d and more", m.bytes))
		}
		var more []commit.File
		if err == nil {
			more, err = wire.DecodeManifest(b)
		}
		b.Release()
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
}

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
	stall  time.Duration
	timer  *time.Timer
	cancel context.CancelFunc
}

// NewWait begins to wait. The context ends with the wait, and its cause says why.
func NewWait(ctx context.Context, stall time.Duration) (context.Context, *Wait) {
	ctx, late := context.WithTimeoutCause(ctx, inAll*stall, fmt.Errorf("the executor took more than %v over its answer", inAll*stall))
	ctx, cancel := context.WithCancelCause(ctx)
	w := &Wait{stall: stall, cancel: func() { cancel(nil); late() }}
	w.timer = time.AfterFunc(stall, func() { cancel(fmt.Errorf("nothing came from the executor for %v", stall)) })
	return ctx, w
}

// Progress says that something came.
func (w *Wait) Progress() { w.timer.Reset(w.stall) }

// End ends the wait, and its context. It must be called.
func (w *Wait) End() {
	w.timer.Stop()
	w.cancel()
}
