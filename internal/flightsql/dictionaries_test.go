package flightsql_test

import (
	"net"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightsql"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/plan"
)

// endless is an engine that makes a dictionary longer without end.
type endless struct{ flight.BaseFlightServer }

// DoGet implements flight.FlightServer.
func (*endless) DoGet(_ *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	t := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.PrimitiveTypes.Int64}
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: t, Nullable: true}}, nil)
	last := &keeping{to: stream}
	w := flight.NewRecordWriter(last, ipc.WithSchema(schema), ipc.WithDictionaryDeltas(true))
	for n := range 2 {
		b := array.NewDictionaryBuilder(memory.DefaultAllocator, t).(*array.Int64DictionaryBuilder)
		for v := range int64(n + 1) {
			if err := b.Append(v); err != nil {
				return err
			}
		}
		column := b.NewArray()
		if err := w.Write(array.NewRecordBatch(schema, []arrow.Array{column}, int64(column.Len()))); err != nil {
			return err
		}
	}
	for {
		if err := stream.Send(last.before); err != nil {
			return err
		}
	}
}

// keeping keeps the last message but one, which is that of a delta.
type keeping struct {
	to           flight.FlightService_DoGetServer
	before, last *flight.FlightData
}

func (k *keeping) Send(d *flight.FlightData) error {
	own := &flight.FlightData{DataHeader: append([]byte{}, d.GetDataHeader()...), DataBody: append([]byte{}, d.GetDataBody()...)}
	k.before, k.last = k.last, own
	return k.to.Send(own)
}

// TestDictionaryWithoutEnd: a stream's dictionaries aren't taken into memory without end.
func TestDictionaryWithoutEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(wire.ServerOptions()...)
	flight.RegisterFlightServiceServer(g, &endless{})
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		<-done
	})
	e := flightsql.New(flightsql.Access{Name: "engine", URI: "grpc://" + l.Addr().String()})
	defer e.Close()
	f := plan.SourceFile{Path: "endpoint 0", Endpoint: &plan.FlightEndpoint{Ticket: []byte("t")}}
	s, err := e.Read(t.Context(), f, []plan.Column{{Name: "n", Type: "BIGINT"}}, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rows := int64(0)
	for err == nil {
		var b arrow.RecordBatch
		if b, err = s.Next(t.Context()); err == nil {
			rows += b.NumRows()
			b.Release()
		}
	}
	if commit.CodeOf(err) != commit.CodeFlightTooLarge || !strings.Contains(err.Error(), "dictionaries") || rows != 3 {
		t.Errorf("%d rows, %v", rows, err)
	}
}
