package openwrite_test

import (
	"context"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/openwrite"
)

// Workers of one write that begin to hand manifests in and don't end keep nobody of
// another write from doing so.
func TestSlowWorkersHoldNobodyUp(t *testing.T) {
	s := start(t, "iceberg")
	_, evil := s.begin(client.WriteOptions{})
	conn, err := grpc.NewClient("passthrough:///"+s.addr, wire.DialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+evil.WorkerToken))
	defer cancel()
	for range 100 {
		stream, err := flight.NewClientFromConn(conn, nil).DoPut(ctx)
		if err != nil {
			t.Fatal(err)
		}
		w := flight.NewRecordWriter(stream, ipc.WithSchema(openwrite.PathsSchema()))
		w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{openwrite.DescriptorManifest, evil.WriteID, "a"}})
		rec, err := openwrite.EncodePaths([]openwrite.PathsRow{{Path: evil.Prefix + "a-0.parquet", Size: -1, Rows: -1}})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
		rec.Release()
	}
	e := newExpected()
	for range 5 {
		w, wc := s.begin(client.WriteOptions{})
		a := s.write(wc, 1)
		soon, done := context.WithTimeout(t.Context(), 20*time.Second)
		err := s.handIn(soon, w, &a)
		done()
		if err != nil {
			t.Fatalf("beside 100 streams that don't end: %v", err)
		}
		if _, err := w.Commit(t.Context(), []client.Handle{a.handle}); err != nil {
			t.Fatal(err)
		}
		e.add(a)
	}
	cancel()
	s.judge(e)
}
