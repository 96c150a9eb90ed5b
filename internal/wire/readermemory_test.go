package wire_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-project/firn/internal/wire"
)

var words = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.PrimitiveTypes.Int64}

// sent has what is written to a stream.
type sent []*flight.FlightData

func (s *sent) Send(d *flight.FlightData) error {
	*s = append(*s, &flight.FlightData{DataHeader: bytes.Clone(d.GetDataHeader()), DataBody: bytes.Clone(d.GetDataBody())})
	return nil
}

// messagesOfWords are those of a schema, a dictionary of as many words, a batch, a delta
// of the dictionary with as many words, and a batch.
func messagesOfWords(t *testing.T, n int, opts ...ipc.Option) sent {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: words}}, nil)
	var out sent
	w := flight.NewRecordWriter(&out, append(opts, ipc.WithSchema(schema), ipc.WithDictionaryDeltas(true))...)
	index := array.NewInt8Builder(memory.DefaultAllocator)
	index.Append(0)
	one := index.NewInt8Array()
	for _, n := range []int{n, 2 * n} {
		values := array.NewInt64Builder(memory.DefaultAllocator)
		values.AppendValues(make([]int64, n), nil)
		b := array.NewRecordBatch(schema, []arrow.Array{array.NewDictionaryArray(words, one, values.NewInt64Array())}, 1)
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if len(out) != 5 {
		t.Fatalf("%d messages", len(out))
	}
	return out
}

// stream gives messages: first the one, then the others again and again.
type stream struct {
	first, again sent
	given, most  int
}

func (s *stream) Recv() (*flight.FlightData, error) {
	n := s.given
	if s.given++; n < len(s.first) {
		return s.first[n], nil
	}
	if s.given > s.most {
		return nil, io.EOF
	}
	return s.again[(n-len(s.first))%len(s.again)], nil
}

// readFlight reads a stream to its end, and says how many batches there were.
func readFlight(s *stream) (batches int, err error) {
	r, err := wire.NewFlightReader(s)
	if err != nil {
		return 0, err
	}
	defer r.Release()
	for {
		if _, err := r.Read(); errors.Is(err, io.EOF) {
			return batches, nil
		} else if err != nil {
			return batches, err
		}
		batches++
	}
}

// TestDictionariesWithoutEnd: what the dictionaries of a stream take in a reader is
// bounded, however they come.
func TestDictionariesWithoutEnd(t *testing.T) {
	small := messagesOfWords(t, 1)
	packed := messagesOfWords(t, wire.MaxMessage/8*5/9, ipc.WithZstd())
	const large = wire.MaxMessage / 3
	with := func(d *flight.FlightData) *flight.FlightData { // the header says nothing of it
		return &flight.FlightData{DataHeader: d.GetDataHeader(), DataBody: make([]byte, large)}
	}
	for name, s := range map[string]*stream{
		"large deltas":      {first: small[:3], again: sent{with(small[3])}, most: 10},
		"small deltas":      {first: small[:3], again: small[3:4], most: 1 << 20},
		"replacements":      {first: small[:3], again: small[1:2], most: 1 << 20},
		"compressed deltas": {first: packed[:2], again: packed[3:4], most: 10},
	} {
		if _, err := readFlight(s); !errors.Is(err, wire.ErrTooLarge) || s.given >= s.most {
			t.Errorf("%s: %v after %d messages", name, err, s.given)
		}
	}
	// What is replaced is gone.
	s := &stream{first: small[:1], again: sent{with(small[1]), small[2]}, most: 21}
	if n, err := readFlight(s); n != 10 || err != nil {
		t.Errorf("replacements with batches: %d, %v", n, err)
	}
	// With a batch, parts of a dictionary become one.
	var c wire.Checker
	for i := range 1 << 19 {
		for _, m := range small[min(i, 1)*3:] {
			_, err := c.CheckMessage(m.GetDataHeader())
			if err = errors.Join(err, c.CheckBody(m.GetDataBody())); err != nil {
				t.Fatalf("deltas with batches: %v after %d", err, i)
			}
		}
	}
}

// TestSmallCompressedBatch: a few bytes that say that they are many are refused for all
// columns of a batch together.
func TestSmallCompressedBatch(t *testing.T) {
	values := array.NewInt64Builder(memory.DefaultAllocator)
	values.AppendValues(make([]int64, wire.MaxMessage/8/4), nil)
	column := values.NewInt64Array()
	for columns, want := range map[int]error{3: nil, 5: wire.ErrTooLarge} {
		var fields []arrow.Field
		var all []arrow.Array
		for range columns {
			fields, all = append(fields, arrow.Field{Name: "c", Type: column.DataType()}), append(all, column)
		}
		schema := arrow.NewSchema(fields, nil)
		var out sent
		w := flight.NewRecordWriter(&out, ipc.WithSchema(schema), ipc.WithZstd())
		if err := errors.Join(w.Write(array.NewRecordBatch(schema, all, int64(column.Len()))), w.Close()); err != nil {
			t.Fatal(err)
		}
		n, err := readFlight(&stream{first: out, again: out[1:], most: 2})
		if !errors.Is(err, want) || want == nil && n != 1 {
			t.Errorf("%d columns in %d bytes: %v", columns, len(out[1].GetDataBody()), err)
		}
	}
}
