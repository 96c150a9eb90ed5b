package bench

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/firn-project/firn/executor/shuffle"
	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

const (
	shuffleBatches = 256
	shuffleRows    = 32 << 10 // a batch of a megabyte
)

// BenchmarkSmokeShuffle reads one shuffle output from another executor, and the
// same batches by a bare DoGet of arrow-go that has them in memory, over loopback
// with the same codec. They take turns; medians and their ratio are printed.
func BenchmarkSmokeShuffle(b *testing.B) {
	batches := shuffleInput()
	for _, codec := range []string{"none", "lz4"} {
		b.Run(codec, func(b *testing.B) {
			sides := []func() int64{shuffleRead(b, batches, codec == "lz4"), bareDoGet(b, batches, codec == "lz4")}
			for b.Loop() {
				costs := make([][]cost, len(sides))
				for round := range 2*rounds + 1 {
					for turn := range sides {
						i := (turn + round) % len(sides)
						began := time.Now()
						if rows := sides[i](); rows != shuffleBatches*shuffleRows {
							b.Fatalf("%d rows were read", rows)
						}
						if round > 0 {
							costs[i] = append(costs[i], cost{wall: time.Since(began)})
						}
					}
				}
				wall := func(c cost) time.Duration { return c.wall }
				firn, bare := median(costs[0], wall), median(costs[1], wall)
				fmt.Printf("\nshuffle read, codec %s: %.0f MB/s, bare DoGet %.0f MB/s, ratio %.2f (goal 0.70)\n",
					codec, shuffleBatches/firn, shuffleBatches/bare, bare/firn)
				b.ReportMetric(bare/firn, "speed/bare")
			}
		})
	}
}

// shuffleInput is 256 batches of a megabyte: ids, prices and few different texts.
func shuffleInput() []arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "price", Type: arrow.PrimitiveTypes.Float64}, {Name: "text", Type: arrow.BinaryTypes.String},
	}, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	build := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer build.Release()
	all := make([]arrow.RecordBatch, shuffleBatches)
	for i := range all {
		for row := range shuffleRows {
			build.Field(0).(*array.Int64Builder).Append(int64(i*shuffleRows + row))
			build.Field(1).(*array.Float64Builder).Append(rng.Float64())
			build.Field(2).(*array.StringBuilder).Append(fmt.Sprintf("carrier %04d", rng.IntN(5000)))
		}
		all[i] = build.NewRecordBatch()
	}
	return all
}

// serveFlight serves on loopback until the benchmark ends.
func serveFlight(b *testing.B, service flight.FlightServer, opts ...grpc.ServerOption) (address string) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer(opts...)
	flight.RegisterFlightServiceServer(server, service)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	b.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			b.Error(err)
		}
	})
	return l.Addr().String()
}

// shuffleRead is Firn's side: files of an executor, a signed ticket, a reader.
func shuffleRead(b *testing.B, batches []arrow.RecordBatch, compress bool) func() int64 {
	b.Helper()
	pub, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		b.Fatal(err)
	}
	store := shuffle.NewStore(b.TempDir(), 0)
	server := shuffle.NewServer(store, "e-1", compress, slog.New(slog.DiscardHandler))
	server.SetVerifier(wire.NewVerifier(pub))
	w, err := store.NewWriter(shuffle.Attempt{Job: "j-1", ID: "a-1"}, batches[0].Schema(), shuffle.WriterOptions{Compress: compress})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Abort()
	for _, batch := range batches {
		if err := w.Write(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := w.Commit(b.Context()); err != nil {
		b.Fatal(err)
	}
	remote := flightread.New(flightread.Config{})
	b.Cleanup(func() { _ = remote.Close() }) // nothing is read any more
	source := &shuffle.Source{Store: shuffle.NewStore(b.TempDir(), 0), Executor: "e-2", Remote: remote}
	at := plan.ShuffleLocation{
		Job: "j-1", Attempt: "a-1", Executor: "e-1", Address: serveFlight(b, server, wire.ServerOptions()...),
		Ticket: wire.NewSigner(priv).Sign(&firnpb.Ticket{
			Purpose: wire.PurposeRead, JobId: "j-1", AttemptId: "a-1", ExecutorId: "e-1", ExpiresUnixMs: time.Now().Add(time.Hour).UnixMilli(),
		}),
	}
	return func() int64 {
		r := source.Read(b.Context(), []plan.ShuffleLocation{at})
		defer r.Close()
		return count(b, func() (arrow.RecordBatch, error) { return r.Next(b.Context()) })
	}
}

// bareServer gives its batches to whoever asks.
type bareServer struct {
	flight.BaseFlightServer
	batches []arrow.RecordBatch
	opts    []ipc.Option
}

// DoGet implements flight.FlightServer.
func (s *bareServer) DoGet(_ *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	w := flight.NewRecordWriter(stream, s.opts...)
	for _, batch := range s.batches {
		if err := w.Write(batch); err != nil {
			return err
		}
	}
	return w.Close()
}

// bareDoGet is the library's side.
func bareDoGet(b *testing.B, batches []arrow.RecordBatch, compress bool) func() int64 {
	b.Helper()
	opts := []ipc.Option{ipc.WithSchema(batches[0].Schema())}
	if compress {
		opts = append(opts, ipc.WithLZ4())
	}
	address := serveFlight(b, &bareServer{batches: batches, opts: opts})
	client, err := flight.NewClientWithMiddleware(address, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Close() }) // nothing is read any more
	return func() int64 {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		stream, err := client.DoGet(ctx, &flight.Ticket{})
		if err != nil {
			b.Fatal(err)
		}
		r, err := flight.NewRecordReader(stream)
		if err != nil {
			b.Fatal(err)
		}
		defer r.Release()
		return count(b, func() (arrow.RecordBatch, error) {
			batch, err := r.Read()
			if err == nil {
				batch.Retain()
			}
			return batch, err
		})
	}
}

// count reads to the end.
func count(b *testing.B, next func() (arrow.RecordBatch, error)) (rows int64) {
	b.Helper()
	for {
		batch, err := next()
		if errors.Is(err, io.EOF) {
			return rows
		}
		if err != nil {
			b.Fatal(err)
		}
		rows += batch.NumRows()
		batch.Release()
	}
}
