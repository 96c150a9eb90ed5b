package shuffle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/plan"
)

// Source reads shuffle output, from the executor's own disk or from others over
// Flight. It is safe for concurrent use.
type Source struct {
	// Store and Executor are the executor's own; Remote reaches the others.
	Store    *Store
	Executor string
	Remote   *flightread.Client
	// AlwaysRemote reads the executor's own output over Flight as well.
	AlwaysRemote bool
}

// Reader streams the batches of several pieces of shuffle output, one after the
// other. At most two batches wait for the caller. It is for one goroutine.
type Reader struct {
	cancel context.CancelFunc
	items  chan item
	wg     sync.WaitGroup
	// first is what came before the caller asked for a batch.
	first *item
	err   error
}

// item is a batch, or the schema that comes before all batches, or the end.
type item struct {
	schema *arrow.Schema
	batch  arrow.RecordBatch
	err    error
}

// Read begins to read the locations in their order. The reader lives until ctx
// ends or Close, which must be called.
func (s *Source) Read(ctx context.Context, locations []plan.ShuffleLocation) *Reader {
	ctx, cancel := context.WithCancel(ctx)
	// One item waits in the channel and one in the sender's hand.
	r := &Reader{cancel: cancel, items: make(chan item, 1)}
	send := func(i item) bool {
		select {
		case r.items <- i:
			return true
		case <-ctx.Done():
			if i.batch != nil {
				i.batch.Release()
			}
			return false
		}
	}
	r.wg.Go(func() {
		defer close(r.items)
		for _, l := range locations {
			if err := s.readOne(ctx, l, send); err != nil {
				send(item{err: err})
				return
			}
		}
		// Only this says that all is read: a channel that closes without it was
		// cut short.
		send(item{err: io.EOF})
	})
	return r
}

// errStopped ends a read that was closed or whose context has ended.
var errStopped = fmt.Errorf("reading shuffle data was stopped: %w", context.Canceled)

func (s *Source) readOne(ctx context.Context, l plan.ShuffleLocation, send func(item) bool) error {
	p, err := s.open(ctx, l)
	if err != nil {
		return err
	}
	defer p.Close()
	schema, err := p.Schema()
	if err != nil {
		return err
	}
	if !send(item{schema: schema}) {
		return errStopped
	}
	for {
		b, err := p.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !send(item{batch: b}) {
			return errStopped
		}
	}
}

// piece is one open location.
type piece interface {
	Schema() (*arrow.Schema, error)
	Next() (arrow.RecordBatch, error)
	Close()
}

func (s *Source) open(ctx context.Context, l plan.ShuffleLocation) (piece, error) {
	if l.Executor != s.Executor || s.AlwaysRemote {
		return s.Remote.Open(ctx, flightread.Source{
			Address: l.Address, Ticket: l.Ticket,
			Stage: l.Stage, Task: l.Task, Attempt: l.Attempt, Executor: l.Executor,
		}), nil
	}
	p, err := s.Store.read(ctx, Attempt{Job: l.Job, Stage: l.Stage, Task: l.Task, ID: l.Attempt}, l.Output, part{follow: l.Follow, first: l.First, end: l.End})
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("it isn't on this executor's disk: %w", err)
	}
	if err != nil {
		return nil, lostHere(ctx, l, err)
	}
	return &localPiece{stream: p, ctx: ctx, l: l}, nil
}

// localPiece reads an output of the executor's own. One that can't be read is
// lost: the task that wrote it can write it again.
type localPiece struct {
	stream
	ctx context.Context //nolint:containedctx // of the reader
	l   plan.ShuffleLocation
}

func (p *localPiece) Schema() (*arrow.Schema, error) { return p.stream.Schema(), nil }

func (p *localPiece) Next() (arrow.RecordBatch, error) {
	b, err := p.stream.Next()
	if err != nil && !errors.Is(err, io.EOF) {
		err = lostHere(p.ctx, p.l, err)
	}
	return b, err
}

func lostHere(ctx context.Context, l plan.ShuffleLocation, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &wire.LostInputError{Stage: l.Stage, Task: l.Task, Attempt: l.Attempt, Executor: l.Executor, Cause: err}
}

// Schema waits for the schema of the first location. Without any location it is
// nil.
func (r *Reader) Schema(ctx context.Context) (*arrow.Schema, error) {
	if r.first == nil {
		i, err := r.receive(ctx)
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		r.first = &i
	}
	return r.first.schema, nil
}

// Next returns the next batch, which the caller releases, or io.EOF after the
// last. The error is a *wire.LostInputError when a piece can't be read any more.
func (r *Reader) Next(ctx context.Context) (arrow.RecordBatch, error) {
	for {
		i, err := r.receive(ctx)
		if err != nil {
			return nil, err
		}
		if i.batch != nil {
			return i.batch, nil
		}
		if r.first == nil {
			r.first = &i
		}
	}
}

func (r *Reader) receive(ctx context.Context) (item, error) {
	if r.err != nil {
		return item{}, r.err
	}
	if err := ctx.Err(); err != nil {
		return item{}, err
	}
	select {
	case i, ok := <-r.items:
		if !ok {
			r.err = errStopped
		} else if i.err != nil {
			r.err = i.err
		}
		return i, r.err
	case <-ctx.Done():
		return item{}, ctx.Err()
	}
}

// Close ends the reading and waits until it has ended.
func (r *Reader) Close() {
	r.cancel()
	for i := range r.items {
		if i.batch != nil {
			i.batch.Release()
		}
	}
	r.wg.Wait()
	if r.err == nil {
		r.err = errStopped
	}
}
