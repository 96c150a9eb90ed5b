package flightread_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var schema = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)

// server serves batches that hold one number each, 0 to total-1. fail says how a
// call ends: after how many batches, and with what.
type server struct {
	flight.BaseFlightServer
	total int

	mu    sync.Mutex
	calls int
	fail  func(call int) (after int, err error)
	// hang, when set, blocks a call after its batches until the client goes.
	hang bool
}

func (s *server) DoGet(t *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	s.mu.Lock()
	call := s.calls
	s.calls++
	s.mu.Unlock()
	if string(t.GetTicket()) != "ticket" {
		return status.Error(codes.PermissionDenied, "the ticket isn't valid")
	}
	after, err := s.total, error(nil)
	if s.fail != nil {
		after, err = s.fail(call)
	}
	if after < 0 {
		return err
	}
	w := flight.NewRecordWriter(stream, ipc.WithSchema(schema))
	for i := range min(after, s.total) {
		b := array.NewInt64Builder(memory.DefaultAllocator)
		b.Append(int64(i))
		a := b.NewArray()
		rec := array.NewRecordBatch(schema, []arrow.Array{a}, 1)
		werr := w.Write(rec)
		rec.Release()
		a.Release()
		b.Release()
		if werr != nil {
			return werr
		}
	}
	if s.hang {
		<-stream.Context().Done()
	}
	if err != nil {
		return err
	}
	return w.Close()
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func serve(t *testing.T, s *server, opts ...grpc.ServerOption) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(append(wire.ServerOptions(), opts...)...)
	flight.RegisterFlightServiceServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		<-done
	})
	return l.Addr().String()
}

func client(t *testing.T, cfg flightread.Config) *flightread.Client {
	t.Helper()
	if cfg.Backoff == 0 {
		cfg.Backoff = time.Millisecond
	}
	c := flightread.New(cfg)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func source(addr string) flightread.Source {
	return flightread.Source{Address: addr, Ticket: []byte("ticket"), Stage: 1, Task: 2, Attempt: "a-1", Executor: "e-1"}
}

// all reads to the end.
func all(t *testing.T, r *flightread.Reader) (got []int64, err error) {
	t.Helper()
	defer r.Close()
	for {
		b, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got = append(got, b.Column(0).(*array.Int64).Value(0))
		b.Release()
	}
}

func upTo(n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(i)
	}
	return out
}

func TestReadsAll(t *testing.T) {
	s := &server{total: 20}
	r := client(t, flightread.Config{}).Open(t.Context(), source(serve(t, s)))
	got, err := all(t, r)
	if err != nil || !slices.Equal(got, upTo(20)) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestSchemaOfAnEmptyOutput(t *testing.T) {
	s := &server{}
	r := client(t, flightread.Config{}).Open(t.Context(), source(serve(t, s)))
	defer r.Close()
	got, err := r.Schema()
	if err != nil || !got.Equal(schema) {
		t.Errorf("got %v, %v", got, err)
	}
	for range 2 {
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("got %v", err)
		}
	}
	if s.count() != 1 {
		t.Errorf("%d calls, want 1", s.count())
	}
}

// Each call breaks one batch later than the one before: what was delivered is
// skipped, and progress gives new tries, so that all arrives once, in order.
func TestResumes(t *testing.T) {
	s := &server{total: 12}
	s.fail = func(call int) (int, error) {
		if call <= s.total {
			return call, status.Error(codes.Unavailable, "broken off")
		}
		return s.total, nil
	}
	r := client(t, flightread.Config{Retries: 2}).Open(t.Context(), source(serve(t, s)))
	got, err := all(t, r)
	if err != nil || !slices.Equal(got, upTo(12)) {
		t.Errorf("got %v, %v", got, err)
	}
	if s.count() < 12 {
		t.Errorf("only %d calls", s.count())
	}
}

// An output that got shorter isn't the same output.
func TestShorterOutputIsLost(t *testing.T) {
	s := &server{total: 12}
	s.fail = func(call int) (int, error) {
		if call == 0 {
			return 5, status.Error(codes.Unavailable, "broken off")
		}
		return 3, nil
	}
	r := client(t, flightread.Config{Retries: 2}).Open(t.Context(), source(serve(t, s)))
	got, err := all(t, r)
	if !isLost(err) || len(got) != 5 {
		t.Errorf("got %v, %v", got, err)
	}
}

func isLost(err error) bool {
	lost, ok := errors.AsType[*wire.LostInputError](err)
	return ok && lost.Stage == 1 && lost.Task == 2 && lost.Attempt == "a-1" && lost.Executor == "e-1" && lost.Cause != nil
}

func TestGivesUp(t *testing.T) {
	s := &server{total: 3, fail: func(int) (int, error) { return 1, status.Error(codes.Unavailable, "broken off") }}
	r := client(t, flightread.Config{Retries: 3}).Open(t.Context(), source(serve(t, s)))
	got, err := all(t, r)
	if !isLost(err) || !slices.Equal(got, []int64{0}) {
		t.Errorf("got %v, %v", got, err)
	}
	if s.count() != 4 {
		t.Errorf("%d calls, want 1 and 3 more", s.count())
	}
}

func TestMissingOutputIsLostAtOnce(t *testing.T) {
	s := &server{fail: func(int) (int, error) { return -1, status.Error(codes.NotFound, "gone") }}
	r := client(t, flightread.Config{}).Open(t.Context(), source(serve(t, s)))
	if _, err := all(t, r); !isLost(err) {
		t.Errorf("got %v", err)
	}
	if s.count() != 1 {
		t.Errorf("%d calls for what isn't there", s.count())
	}
}

func TestRefusedTicketIsNotLost(t *testing.T) {
	s := &server{}
	src := source(serve(t, s))
	src.Ticket = []byte("forged")
	_, err := all(t, client(t, flightread.Config{}).Open(t.Context(), src))
	if commit.CodeOf(err) != commit.CodeTicketRefused || isLost(err) {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(err.Error(), "e-1") {
		t.Errorf("it doesn't name the executor: %v", err)
	}
}

func TestUnreachableExecutorIsLost(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := all(t, client(t, flightread.Config{Retries: 2}).Open(t.Context(), source(addr))); !isLost(err) {
		t.Errorf("got %v", err)
	}
}

func TestCancelled(t *testing.T) {
	s := &server{total: 1, hang: true}
	ctx, cancel := context.WithCancel(t.Context())
	r := client(t, flightread.Config{}).Open(ctx, source(serve(t, s)))
	defer r.Close()
	b, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	cancel()
	if _, err := r.Next(); !errors.Is(err, context.Canceled) || isLost(err) {
		t.Errorf("got %v", err)
	}
}

func TestClosed(t *testing.T) {
	s := &server{total: 3}
	c := client(t, flightread.Config{Retries: -1})
	r := c.Open(t.Context(), source(serve(t, s)))
	r.Close()
	r.Close()
	if _, err := r.Next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a closed reader gives %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := all(t, c.Open(t.Context(), source("127.0.0.1:1"))); err == nil {
		t.Error("a closed client reads")
	}
}
