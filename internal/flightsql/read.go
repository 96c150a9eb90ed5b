package flightsql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightsql/location"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

const (
	// goneTries is how often a ticket is shown that the engine says it doesn't know,
	// openTries how often one is for which it can't be reached: about six seconds.
	goneTries = 3
	openTries = 6
)

// What to do about what is too large.
const (
	smallerBatches = "Have the engine send smaller batches."
	orPlainOnes    = smallerBatches + " Cast columns with dictionaries to plain types in its query."
)

var errIdle = errors.New("the stream gave nothing")

// ErrUnauthenticated says that the engine doesn't know who asks: the Access may have
// ended, and another one help.
var ErrUnauthenticated = errors.New("the engine doesn't know who asks")

// Stream is one endpoint's rows, in columns that DuckDB takes. It is for one
// goroutine, and must be closed.
type Stream struct {
	engine *Engine
	file   plan.SourceFile
	// places are those of the endpoint, place the one that gives the stream.
	places *places
	place  *place
	schema *arrow.Schema
	rd     *flight.Reader
	ctx    context.Context //nolint:containedctx // the stream's call
	cancel context.CancelCauseFunc
	idle   *time.Timer
	wait   time.Duration
}

// Read opens an endpoint at one of its locations and checks that its columns are the
// ones wanted. before are the streams that broke off in earlier attempts. fresh says
// that the Access was made for this very call: an engine that doesn't know it doesn't
// know the ticket. Otherwise the error is ErrUnauthenticated.
//
// An error with the code CodeFlightLost says that the endpoint can't be read any
// more: its query has to run again.
func (e *Engine) Read(ctx context.Context, f plan.SourceFile, want []plan.Column, before []*firnpb.SourceBreak, fresh bool) (*Stream, error) {
	if f.Endpoint == nil {
		return nil, fmt.Errorf("flightsql: %s is no endpoint", f.Path)
	}
	ps, err := e.placesOf(f, before)
	if err != nil {
		return nil, err
	}
	wait := e.pause
	for try := 1; ; try++ {
		if s, err := ps.round(ctx, f, want, fresh); s != nil || err != nil {
			return s, err
		}
		if err := ps.verdict(f, try); err != nil {
			return nil, err
		}
		if !sleep(ctx, wait) {
			return nil, context.Cause(ctx)
		}
		wait *= 2
	}
}

// open begins a stream and reads its schema.
func (e *Engine) open(ctx context.Context, at location.Location, f plan.SourceFile) (_ *Stream, err error) {
	svc, err := e.at(at)
	if err != nil {
		return nil, err
	}
	s := &Stream{engine: e, file: f, wait: e.access.ReadTimeout}
	if s.wait <= 0 {
		s.wait = DefaultReadTimeout
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.idle = time.AfterFunc(s.wait, func() { s.cancel(errIdle) })
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its first message isn't an Arrow schema: %v", p)
		}
		s.idle.Stop()
		if err != nil {
			err = s.why(err)
			s.Close()
		}
	}()
	get, err := svc.DoGet(e.show(s.ctx), &flight.Ticket{Ticket: f.Endpoint.Ticket})
	if err != nil {
		return nil, err
	}
	rd, err := wire.NewFlightReader(get)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = status.Error(codes.Internal, "the stream ended before its schema")
		}
		return nil, err
	}
	s.rd = rd
	return s, nil
}

// why gives the reason for which the stream's call was ended, if it was.
func (s *Stream) why(err error) error {
	if errors.Is(context.Cause(s.ctx), errIdle) {
		return status.Errorf(codes.DeadlineExceeded, "%v for %s", errIdle, s.wait)
	}
	return err
}

// check compares the stream's columns with those that the query was bound with.
func (s *Stream) check(want []plan.Column) error {
	got, err := s.engine.access.columns(s.rd.Schema())
	if err == nil {
		err = SameColumns(s.engine.access.Name+", "+s.file.Path, want, got)
	}
	if err == nil {
		s.schema, err = plainSchema(s.rd.Schema())
	}
	if err != nil {
		s.Close()
	}
	return err
}

// SameColumns says in an error that a source doesn't give the columns that its query
// was bound with.
func SameColumns(source string, want, got []plan.Column) error {
	differ := func(format string, args ...any) error {
		return &commit.Error{
			Code: commit.CodeFlightSchema, Op: "read", Object: "source " + source, Cause: fmt.Errorf(format, args...),
			Hint: "Name and cast the columns in the engine's query.",
		}
	}
	if len(got) != len(want) {
		return differ("it gives %d columns; %d were announced", len(got), len(want))
	}
	for i, w := range want {
		if g := got[i]; g.Name != w.Name || g.Type != w.Type {
			return differ("its column %d is %s %s; %s %s was announced", i+1, g.Name, g.Type, w.Name, w.Type)
		}
	}
	return nil
}

// Schema is that of the batches.
func (s *Stream) Schema() *arrow.Schema { return s.schema }

// Next gives the next batch, which the caller releases, or io.EOF after the last. Its
// buffers are Go's.
func (s *Stream) Next(ctx context.Context) (_ arrow.RecordBatch, err error) {
	stop := context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })
	defer stop()
	s.idle.Reset(s.wait)
	defer s.idle.Stop()
	defer func() {
		if p := recover(); p != nil { // the library, on bytes that aren't what they say
			err = fmt.Errorf("the batch isn't what Arrow says: %v", p)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			err = s.broke(ctx, err)
		}
	}()
	for {
		b, err := s.rd.Read()
		if err != nil {
			return nil, err
		}
		if b.NumRows() > 0 {
			return s.engine.access.plainBatch(s.schema, b)
		}
		s.idle.Reset(s.wait)
	}
}

// broke tells of the end of a stream that isn't its rows' end.
func (s *Stream) broke(ctx context.Context, err error) error {
	if cause := wire.Ended(s.ctx); cause != nil && !errors.Is(cause, errIdle) {
		return cause
	}
	if cause := wire.Ended(ctx); cause != nil {
		return cause
	}
	var code commit.Code
	hint := hintOf(err)
	switch {
	case tooLarge(err):
		code, hint = commit.CodeFlightTooLarge, smallerBatches
	case errors.Is(err, wire.ErrTooLarge):
		code, hint = commit.CodeFlightTooLarge, orPlainOnes
	case commit.CodeOf(err) != "" && wire.Class(err) == wire.ClassNotRetryable:
		code = commit.CodeOf(err)
	}
	return s.places.broken(s.file, s.place, s.why(err), code, hint)
}

// Close ends the call.
func (s *Stream) Close() {
	s.idle.Stop()
	s.cancel(nil)
	if s.rd != nil {
		s.rd.Release()
		s.rd = nil
	}
}

// streamSchema opens an endpoint for its columns alone.
func (e *Engine) streamSchema(ctx context.Context, f plan.SourceFile) (*arrow.Schema, error) {
	ps, err := e.placesOf(f, nil)
	if err != nil {
		return nil, err
	}
	for _, p := range ps.list {
		s, err := e.open(ctx, p.at, f)
		if err == nil {
			defer s.Close()
			return s.rd.Schema(), nil
		}
		p.answer, p.said, p.err = away, said(err).Error(), err
	}
	// One that doesn't know who asks may know somebody else.
	last := ps.list[len(ps.list)-1]
	for _, p := range ps.list {
		if status.Code(p.err) == codes.Unauthenticated {
			last = p
		}
	}
	err = e.asking(ctx, "ask for the columns of", last.err)
	if told, ok := errors.AsType[*commit.Error](err); ok && len(ps.list) > 1 {
		told.Cause = errors.New(ps.all())
	}
	return nil, err
}
