package flightread

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Config tunes a Client. The zero value is good for use.
type Config struct {
	// Retries is how often in a row a read without progress is tried again; 5
	// when zero, none when negative.
	Retries int
	// Backoff is the first wait between two tries, doubled from try to try; 50
	// ms when zero.
	Backoff time.Duration
	// Silence is how long an executor may be silent, also to the question whether it
	// is there, before what it holds is lost; 10 s when zero. One that answers may
	// take its time with rows.
	Silence time.Duration
	// Dial are further gRPC options, after wire.DialOptions.
	Dial []grpc.DialOption
}

// Client reads from any number of executors and keeps one connection to each.
// It is safe for concurrent use. Close ends the connections.
type Client struct {
	cfg Config
	mu  sync.Mutex
	// peers are the connections, by address; nil after Close.
	peers map[string]*peer
}

// New makes a client. It connects when it must.
func New(cfg Config) *Client {
	if cfg.Retries == 0 {
		cfg.Retries = 5
	}
	if cfg.Backoff == 0 {
		cfg.Backoff = 50 * time.Millisecond
	}
	if cfg.Silence == 0 {
		cfg.Silence = 10 * time.Second
	}
	return &Client{cfg: cfg, peers: map[string]*peer{}}
}

// Source is one piece of shuffle output and where it is. Stage, Task, Attempt
// and Executor are only for the error when it is lost.
type Source struct {
	// Address is the executor's Flight address, host:port.
	Address string
	// Ticket is the signed ticket.
	Ticket      []byte
	Stage, Task int
	Attempt     string
	Executor    string
}

// Reader streams the batches of one Source. It is for one goroutine.
type Reader struct {
	client *Client
	src    Source
	// ctx is the life of the reader: streams are opened under it.
	ctx    context.Context //nolint:containedctx // see above
	cancel context.CancelFunc
	// peer is nil before the first connect.
	peer *peer
	// stream is nil when none is open; hangUp ends its call.
	stream *flight.Reader
	hangUp context.CancelFunc
	schema *arrow.Schema
	// delivered is how many batches the caller has.
	delivered int
	done      bool
	// silent: the executor answered nothing any more. The reader has ended.
	silent atomic.Bool
}

// Open makes a reader; nothing is sent yet. The reader lives until ctx ends or
// Close, which must be called.
func (c *Client) Open(ctx context.Context, src Source) *Reader {
	ctx, cancel := context.WithCancel(ctx)
	return &Reader{client: c, src: src, ctx: ctx, cancel: cancel, hangUp: func() {}}
}

// Close ends the stream. It may be called at any time by the reader's
// goroutine, and more than once.
func (r *Reader) Close() {
	r.cancel()
	r.drop()
	if r.peer != nil {
		r.client.giveBack(r.peer)
		r.peer = nil
	}
}

// Schema returns the schema of the output, connecting if needed.
func (r *Reader) Schema() (*arrow.Schema, error) {
	if r.schema != nil {
		return r.schema, nil
	}
	err := r.retry(r.connect)
	return r.schema, err
}

// Next returns the next batch, which the caller releases, or io.EOF after the
// last. The error is a *wire.LostInputError when the output can't be read any
// more, a *commit.Error when the ticket is refused, or the cause for which the context
// ended.
func (r *Reader) Next() (arrow.RecordBatch, error) {
	if r.done {
		return nil, io.EOF
	}
	var batch arrow.RecordBatch
	err := r.retry(func() error {
		if err := r.connect(); err != nil {
			return err
		}
		b, err := r.stream.Read()
		if err != nil {
			return err
		}
		b.Retain()
		batch = b
		return nil
	})
	if err != nil {
		if err == io.EOF { //nolint:errorlint // the stream's own, unwrapped
			r.done = true
			r.drop()
		}
		return nil, err
	}
	r.delivered++
	return batch, nil
}

// retry runs step until it succeeds, ends with io.EOF, or fails for good.
func (r *Reader) retry(step func() error) error {
	defer r.watch()()
	wait := r.client.cfg.Backoff
	for try := 0; ; try++ {
		err := step()
		if err == nil || err == io.EOF { //nolint:errorlint // the stream's own, unwrapped
			return err
		}
		r.drop()
		if cause := wire.Ended(r.ctx); cause != nil {
			return r.ended(cause)
		}
		switch status.Code(err) {
		case codes.NotFound:
			return r.lost(err, false)
		case codes.PermissionDenied, codes.Unauthenticated:
			return &commit.Error{
				Code: commit.CodeTicketRefused, Op: "read shuffle output from", Object: "executor " + r.src.Executor,
				Cause: errors.New(status.Convert(err).Message()),
				Hint:  "Run the statement again; a new attempt gets new tickets.",
			}
		}
		if try >= r.client.cfg.Retries {
			return r.lost(err, status.Code(err) == codes.Unavailable)
		}
		timer := time.NewTimer(wait)
		select {
		case <-r.ctx.Done():
			timer.Stop()
			return r.ended(context.Cause(r.ctx))
		case <-timer.C:
		}
		wait *= 2
	}
}

// ended is the error of a reader whose context has ended.
func (r *Reader) ended(cause error) error {
	if r.silent.Load() {
		return r.lost(fmt.Errorf("nothing came from the executor for %v, nor an answer to whether it is there", r.client.cfg.Silence), true)
	}
	return cause
}

func (r *Reader) lost(err error, unreachable bool) error {
	return &wire.LostInputError{
		Stage: r.src.Stage, Task: r.src.Task, Attempt: r.src.Attempt, Executor: r.src.Executor, Unreachable: unreachable,
		Cause: fmt.Errorf("read from %s: %w", r.src.Address, err),
	}
}

// connect opens the stream, if there is none, and skips what was delivered.
func (r *Reader) connect() error {
	if r.stream != nil {
		return nil
	}
	if err := r.reach(); err != nil {
		return err
	}
	ctx, hangUp := context.WithCancel(r.ctx)
	r.hangUp = hangUp
	get, err := flight.NewFlightServiceClient(r.peer.conn).DoGet(ctx, &flight.Ticket{Ticket: r.src.Ticket})
	if err != nil {
		return err
	}
	stream, err := wire.NewFlightReader(get)
	if err != nil {
		return notEOF(err)
	}
	r.stream, r.schema = stream, stream.Schema()
	for range r.delivered {
		if _, err := stream.Read(); err != nil {
			return notEOF(err)
		}
	}
	return nil
}

// reach takes the connection to the executor.
func (r *Reader) reach() (err error) {
	if r.peer == nil {
		r.peer, err = r.client.take(r.src.Address)
	}
	return err
}

func (r *Reader) drop() {
	r.hangUp()
	if r.stream != nil {
		r.stream.Release()
		r.stream = nil
	}
}

// notEOF is for places where the end of the stream isn't the end of the data.
func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
