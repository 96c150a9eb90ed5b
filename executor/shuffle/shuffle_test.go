package shuffle_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/executor/shuffle"
	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var schema = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64},
	{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "l", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32), Nullable: true},
	{Name: "st", Type: arrow.StructOf(arrow.Field{Name: "m", Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Float64), Nullable: true}), Nullable: true},
}, nil)

// batch has rows with the ids from ≤ id < to, with nulls and nested values.
func batch(tb testing.TB, from, to int) arrow.RecordBatch {
	tb.Helper()
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for id := from; id < to; id++ {
		row := fmt.Sprintf(`{"id":%d,"s":"row %d","l":[%d,null],"st":{"m":[{"key":"k%d","value":%d}]}}`, id, id, id, id, id)
		if id%3 == 0 {
			row = fmt.Sprintf(`{"id":%d,"s":null,"l":null,"st":null}`, id)
		}
		if err := b.UnmarshalJSON([]byte(row)); err != nil {
			tb.Fatal(err)
		}
	}
	out := b.NewRecordBatch()
	tb.Cleanup(out.Release)
	return out
}

// rows gives each row of a batch as JSON.
func rows(tb testing.TB, b arrow.RecordBatch) []string {
	tb.Helper()
	raw, err := b.MarshalJSON()
	if err != nil {
		tb.Fatal(err)
	}
	var out []json.RawMessage
	if err := json.Unmarshal(raw, &out); err != nil {
		tb.Fatal(err)
	}
	s := make([]string, len(out))
	for i := range out {
		s[i] = string(out[i])
	}
	return s
}

func ids(tb testing.TB, b arrow.RecordBatch) []int64 {
	tb.Helper()
	return slices.Clone(b.Column(0).(*array.Int64).Int64Values())
}

var attempt = shuffle.Attempt{Job: "j-1", Stage: 2, Task: 3, ID: "a-1"}

// executor is an executor's half of the shuffle, served on loopback.
type executor struct {
	store    *shuffle.Store
	server   *shuffle.Server
	grpc     *grpc.Server
	signer   *wire.Signer
	verifier *wire.Verifier
	source   *shuffle.Source
	addr     string
	dir      string
	id       string
}

func newExecutor(t *testing.T, id string) *executor {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	e := &executor{dir: t.TempDir(), id: id, signer: wire.NewSigner(priv), verifier: wire.NewVerifier(pub)}
	e.store = shuffle.NewStore(e.dir, 0)
	e.server = shuffle.NewServer(e.store, id, false, slog.New(slog.DiscardHandler))
	e.server.SetVerifier(e.verifier)
	e.grpc = grpc.NewServer(wire.ServerOptions()...)
	flight.RegisterFlightServiceServer(e.grpc, e.server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e.addr = l.Addr().String()
	done := make(chan error, 1)
	go func() { done <- e.grpc.Serve(l) }()
	t.Cleanup(func() {
		e.grpc.Stop()
		// A short test may stop the server before it serves.
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	remote := flightread.New(flightread.Config{Backoff: time.Millisecond})
	t.Cleanup(func() {
		if err := remote.Close(); err != nil {
			t.Error(err)
		}
	})
	e.source = &shuffle.Source{Store: e.store, Executor: id, Remote: remote}
	return e
}

func (e *executor) ticket(change func(*firnpb.Ticket)) []byte {
	tk := &firnpb.Ticket{
		Purpose: wire.PurposeRead, JobId: attempt.Job, Stage: uint32(attempt.Stage), Task: uint32(attempt.Task),
		AttemptId: attempt.ID, ExecutorId: e.id, ExpiresUnixMs: time.Now().Add(time.Hour).UnixMilli(),
	}
	if change != nil {
		change(tk)
	}
	return e.signer.Sign(tk)
}

func (e *executor) location(output int) plan.ShuffleLocation {
	return plan.ShuffleLocation{
		Job: attempt.Job, Stage: attempt.Stage, Task: attempt.Task, Attempt: attempt.ID, Output: output, Executor: e.id, Address: e.addr,
		Ticket: e.ticket(func(tk *firnpb.Ticket) { tk.Output = uint32(output) }),
	}
}

// write writes batches as the attempt's output.
func (e *executor) write(tb testing.TB, opts shuffle.WriterOptions, batches ...arrow.RecordBatch) []shuffle.Output {
	tb.Helper()
	w, err := e.store.NewWriter(attempt, schema, opts)
	if err != nil {
		tb.Fatal(err)
	}
	defer w.Abort()
	for _, b := range batches {
		if err := w.Write(tb.Context(), b); err != nil {
			tb.Fatal(err)
		}
	}
	out, err := w.Commit(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// read reads locations whole: rows, and the number of batches.
func read(tb testing.TB, s *shuffle.Source, locations ...plan.ShuffleLocation) (out []string, batches int, err error) {
	tb.Helper()
	r := s.Read(tb.Context(), locations)
	defer r.Close()
	for {
		b, err := r.Next(tb.Context())
		if errors.Is(err, io.EOF) {
			return out, batches, nil
		}
		if err != nil {
			return out, batches, err
		}
		out = append(out, rows(tb, b)...)
		batches++
		b.Release()
	}
}

func TestLocalAndRemoteReadTheSame(t *testing.T) {
	e := newExecutor(t, "e-1")
	in := []arrow.RecordBatch{batch(t, 0, 10), batch(t, 10, 10), batch(t, 10, 25)}
	out := e.write(t, shuffle.WriterOptions{}, in...)
	if len(out) != 1 || out[0].Rows != 25 {
		t.Fatalf("outputs are %+v", out)
	}
	want := append(rows(t, in[0]), rows(t, in[2])...)
	for _, always := range []bool{false, true} {
		e.source.AlwaysRemote = always
		got, batches, err := read(t, e.source, e.location(0))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("remote %v: got %d rows, %v", always, len(got), err)
		}
		if batches != 1 {
			t.Errorf("remote %v: small batches weren't joined: %d", always, batches)
		}
	}
	if n := e.server.Reads(); n != 1 {
		t.Errorf("%d reads over Flight, want only the remote one", n)
	}
}

func TestOutputsKeepTheOrderOfLocations(t *testing.T) {
	e := newExecutor(t, "e-1")
	rr := shuffle.NewRoundRobin(3, 0)
	e.write(t, shuffle.WriterOptions{Outputs: 3, Partition: rr}, batch(t, 0, 5000))
	for _, always := range []bool{false, true} {
		e.source.AlwaysRemote = always
		var got []int64
		r := e.source.Read(t.Context(), []plan.ShuffleLocation{e.location(1), e.location(0), e.location(2)})
		for {
			b, err := r.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, ids(t, b)...)
			b.Release()
		}
		r.Close()
		if len(got) != 5000 || got[0] != 2048 || got[2048] != 0 || got[4096] != 4096 {
			t.Errorf("remote %v: %d rows in another order", always, len(got))
		}
	}
}

func TestEmptyOutputsHaveTheirSchema(t *testing.T) {
	e := newExecutor(t, "e-1")
	out := e.write(t, shuffle.WriterOptions{Outputs: 2})
	if len(out) != 2 || out[0].Rows != 0 || out[1].Rows != 0 {
		t.Fatalf("outputs are %+v", out)
	}
	for _, always := range []bool{false, true} {
		e.source.AlwaysRemote = always
		r := e.source.Read(t.Context(), []plan.ShuffleLocation{e.location(1), e.location(0)})
		s, err := r.Schema(t.Context())
		if err != nil || !s.Equal(schema) {
			t.Errorf("remote %v: schema is %v, %v", always, s, err)
		}
		if _, err := r.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("remote %v: %v, want the end", always, err)
		}
		r.Close()
	}
}

func TestLargeBatchesAreSplit(t *testing.T) {
	e := newExecutor(t, "e-1")
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	const n = 200_000
	for i := range n {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.StringBuilder).Append("some text that takes room")
		b.Field(2).AppendNull()
		b.Field(3).AppendNull()
	}
	big := b.NewRecordBatch()
	defer big.Release()
	e.write(t, shuffle.WriterOptions{}, big)
	r := e.source.Read(t.Context(), []plan.ShuffleLocation{e.location(0)})
	defer r.Close()
	next, batches := int64(0), 0
	for {
		part, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got := ids(t, part)
		part.Release()
		if got[0] != next {
			t.Fatalf("batch begins with %d, want %d", got[0], next)
		}
		next += int64(len(got))
		batches++
	}
	// About 9 MB of rows.
	if next != n || batches < 6 || batches > 12 {
		t.Errorf("%d rows in %d batches", next, batches)
	}
}

func TestMemoryBoundFlushesEarly(t *testing.T) {
	e := newExecutor(t, "e-1")
	p := shuffle.NewHash(4, func(b arrow.RecordBatch) (func(int) uint64, error) {
		return func(row int) uint64 { return uint64(b.Column(0).(*array.Int64).Value(row)) }, nil
	})
	var in []arrow.RecordBatch
	for i := range 20 {
		in = append(in, batch(t, i*100, i*100+100))
	}
	out := e.write(t, shuffle.WriterOptions{Outputs: 4, Partition: p, Memory: 1}, in...)
	total := int64(0)
	for i, o := range out {
		total += o.Rows
		_, batches, err := read(t, e.source, e.location(i))
		if err != nil || o.Rows > 0 && batches < 10 {
			t.Errorf("output %d: %d batches, %v; want many small ones", i, batches, err)
		}
	}
	if total != 2000 {
		t.Errorf("%d rows, want 2000", total)
	}
}

func TestCompressedOutput(t *testing.T) {
	e := newExecutor(t, "e-1")
	in := batch(t, 0, 3000)
	plain := e.write(t, shuffle.WriterOptions{}, in)
	if err := e.store.Free(attempt.Job); err != nil {
		t.Fatal(err)
	}
	small := e.write(t, shuffle.WriterOptions{Compress: true}, in)
	if small[0].Bytes >= plain[0].Bytes {
		t.Errorf("lz4 takes %d bytes, plain %d", small[0].Bytes, plain[0].Bytes)
	}
	e.source.AlwaysRemote = true
	if got, _, err := read(t, e.source, e.location(0)); err != nil || !slices.Equal(got, rows(t, in)) {
		t.Errorf("%d rows, %v", len(got), err)
	}
}

func TestNothingShowsBeforeCommit(t *testing.T) {
	e := newExecutor(t, "e-1")
	w, err := e.store.NewWriter(attempt, schema, shuffle.WriterOptions{Memory: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), batch(t, 0, 3000)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := read(t, e.source, e.location(0)); !isLost(err) {
		t.Errorf("an unfinished output was read: %v", err)
	}
	// A second writer of the same attempt would mix with the first.
	if _, err := e.store.NewWriter(attempt, schema, shuffle.WriterOptions{}); err == nil {
		t.Error("two writers of one attempt")
	}
	w.Abort()
	w.Abort()
	left, err := filepath.Glob(filepath.Join(e.dir, "shuffle/j-1/.*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := w.Commit(t.Context()); err == nil {
		t.Error("committed after Abort")
	}
}

func isLost(err error) bool {
	lost, ok := errors.AsType[*wire.LostInputError](err)
	return ok && lost.Stage == attempt.Stage && lost.Task == attempt.Task && lost.Attempt == attempt.ID && lost.Executor != ""
}

func TestWriterRefuses(t *testing.T) {
	e := newExecutor(t, "e-1")
	for _, a := range []shuffle.Attempt{
		{Job: "../x", ID: "a"}, {Job: "j", ID: "a/b"}, {Job: "", ID: "a"}, {Job: "j", ID: ".hidden"}, {Job: "j", ID: "a", Stage: -1}, {Job: "j", ID: "a\x00"},
	} {
		if _, err := e.store.NewWriter(a, schema, shuffle.WriterOptions{}); err == nil {
			t.Errorf("%s became a path", a)
		}
	}
	w, err := e.store.NewWriter(attempt, schema, shuffle.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	other := array.NewRecordBatch(arrow.NewSchema(schema.Fields()[:1], nil), batch(t, 0, 1).Columns()[:1], 1)
	defer other.Release()
	if err := w.Write(t.Context(), other); commit.CodeOf(err) != commit.CodeShuffleColumns {
		t.Errorf("a batch of other columns: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Write(ctx, batch(t, 0, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled write: %v", err)
	}
}

func TestReaderEndsWithItsContext(t *testing.T) {
	e := newExecutor(t, "e-1")
	var in []arrow.RecordBatch
	for i := range 40 {
		in = append(in, batch(t, i, i+1))
	}
	e.write(t, shuffle.WriterOptions{Memory: 1}, in...)
	for _, always := range []bool{false, true} {
		e.source.AlwaysRemote = always
		ctx, cancel := context.WithCancel(t.Context())
		r := e.source.Read(ctx, []plan.ShuffleLocation{e.location(0)})
		b, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
		cancel()
		batches := 1
		for err == nil {
			if b, err = r.Next(t.Context()); err == nil {
				b.Release()
				batches++
			}
		}
		// Cut short is never the same as read to the end.
		if errors.Is(err, io.EOF) && batches != 40 {
			t.Errorf("remote %v: the end after %d of 40 batches", always, batches)
		} else if !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
			t.Errorf("remote %v: ended with %v", always, err)
		}
		r.Close()
		if _, err := r.Next(t.Context()); err == nil {
			t.Errorf("remote %v: a batch after Close", always)
		}
	}
}

// TestSlices: pieces of an output cover it, read from the own disk and over Flight.
func TestSlices(t *testing.T) {
	e := newExecutor(t, "e-1")
	e.write(t, shuffle.WriterOptions{Memory: 1}, batch(t, 0, 7), batch(t, 7, 8), batch(t, 8, 30))
	slice := func(first, end int64) plan.ShuffleLocation {
		l := e.location(0)
		l.First, l.End = first, end
		l.Ticket = e.ticket(func(tk *firnpb.Ticket) { tk.FirstRow, tk.EndRow = first, end })
		return l
	}
	want := rows(t, batch(t, 0, 30))
	for _, always := range []bool{false, true} {
		e.source.AlwaysRemote = always
		if _, batches, err := read(t, e.source, e.location(0)); err != nil || batches < 3 {
			t.Fatalf("remote %v: %d batches, %v", always, batches, err)
		}
		for _, cuts := range [][]int64{{0, 30}, {0, 1, 30}, {0, 7, 8, 30}, {0, 5, 6, 29, 30}, {0, 10, 20, 30}} {
			var all []plan.ShuffleLocation
			for i := 1; i < len(cuts); i++ {
				all = append(all, slice(cuts[i-1], cuts[i]))
			}
			if got, _, err := read(t, e.source, all...); err != nil || !slices.Equal(got, want) {
				t.Errorf("remote %v, cut at %v: %d rows, %v", always, cuts, len(got), err)
			}
		}
		if _, _, err := read(t, e.source, slice(20, 31)); err == nil {
			t.Errorf("remote %v: more rows than there are were read", always)
		}
	}
}
