package flightsqlserver

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
)

// written has the messages of a stream.
type written []*flight.FlightData

func (w *written) Send(d *flight.FlightData) error {
	own := &flight.FlightData{DataHeader: append([]byte{}, d.GetDataHeader()...), DataBody: append([]byte{}, d.GetDataBody()...)}
	*w = append(*w, own)
	return nil
}

// queued gives them.
type queued struct {
	flight.FlightService_DoPutServer
	messages written
}

func (q *queued) Recv() (*flight.FlightData, error) {
	if len(q.messages) == 0 {
		return nil, io.EOF
	}
	d := q.messages[0]
	q.messages = q.messages[1:]
	return d, nil
}

// TestPutOfASmallCompressedBatch: what is put is looked at before the library takes
// memory for it.
func TestPutOfASmallCompressedBatch(t *testing.T) {
	const columns = 5
	b := array.NewInt64Builder(memory.DefaultAllocator)
	b.AppendValues(make([]int64, wire.MaxMessage/8/(columns-1)), nil)
	column := b.NewInt64Array()
	var fields []arrow.Field
	var all []arrow.Array
	for range columns {
		fields, all = append(fields, arrow.Field{Name: "c", Type: column.DataType()}), append(all, column)
	}
	schema, in := arrow.NewSchema(fields, nil), written(nil)
	w := flight.NewRecordWriter(&in, ipc.WithSchema(schema), ipc.WithZstd())
	if err := errors.Join(w.Write(array.NewRecordBatch(schema, all, int64(column.Len()))), w.Close()); err != nil {
		t.Fatal(err)
	}
	in[0].FlightDescriptor = &flight.FlightDescriptor{}
	p := &putStream{FlightService_DoPutServer: &queued{messages: in}, life: t.Context()}
	if _, err := p.Recv(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Recv(); commit.CodeOf(err) != commit.CodeBadRequest || !strings.Contains(err.Error(), "decompressed") {
		t.Errorf("%v", err)
	}
}
