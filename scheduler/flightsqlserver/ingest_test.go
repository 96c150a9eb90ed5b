package flightsqlserver

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-project/firn/commit"
)

// nowhere takes what is put.
type nowhere struct {
	flight.FlightService_DoPutClient
}

func (nowhere) Send(*flight.FlightData) error { return nil }

// puts are the messages of a stream.
type puts struct {
	flight.MessageReader
	rows array.RecordReader
	err  error
}

func (p puts) Next() bool                     { return p.rows.Next() }
func (p puts) RecordBatch() arrow.RecordBatch { return p.rows.RecordBatch() }
func (p puts) Schema() *arrow.Schema          { return p.rows.Schema() }
func (p puts) Err() error                     { return p.err }

// TestRowsThatAreNotTaken: it is the rows' fault, and sending them again doesn't help.
func TestRowsThatAreNotTaken(t *testing.T) {
	b := array.NewDictionaryBuilder(memory.DefaultAllocator, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String})
	defer b.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: b.Type()}}, nil)
	b.AppendNull()
	column := b.NewArray()
	for _, c := range []struct {
		batches []arrow.RecordBatch
		err     error
		want    string
	}{
		{[]arrow.RecordBatch{array.NewRecordBatch(schema, []arrow.Array{column}, 1)}, nil, "Cast"},
		{nil, io.ErrUnexpectedEOF, "See the cause."},
	} {
		rows, err := array.NewRecordReader(schema, c.batches)
		if err != nil {
			t.Fatal(err)
		}
		err = uploadFailed(relay(nowhere{}, nil, puts{rows: rows, err: c.err}))
		e, ok := errors.AsType[*commit.Error](err)
		if !ok || e.Code != commit.CodeBadRequest || !strings.Contains(e.Hint, c.want) || e.Tried == "" {
			t.Errorf("%v", err)
		}
	}
}

// TestHintsOfIngest: who ingests rows wrote no statement, so that it can't be changed.
func TestHintsOfIngest(t *testing.T) {
	for code, want := range map[commit.Code]string{
		commit.CodeSQLTypeMismatch: "before the rows are sent",
		commit.CodeKeyReused:       "firn job describe",
		commit.CodeTableNotFound:   "as it was",
	} {
		err := forIngest(&commit.Error{Code: code, Op: "insert", Cause: errors.New("the cause"), Hint: "as it was"})
		e, ok := errors.AsType[*commit.Error](err)
		if !ok || e.Code != code || !strings.Contains(e.Hint, want) || !strings.Contains(e.Error(), "the cause") {
			t.Errorf("%s: %v", code, err)
		}
	}
	if err := errors.New("of another kind"); !errors.Is(forIngest(err), err) {
		t.Error("another kind of error")
	}
	if forIngest(nil) != nil {
		t.Error("no error")
	}
}
