package executor

import (
	"errors"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/executor/shuffle"
	"github.com/firn-project/firn/format/delta"
	format "github.com/firn-project/firn/format/iceberg"
	"github.com/firn-project/firn/plan"
)

// layoutHash hashes rows by the table partition that they belong to.
func layoutHash(l *plan.Layout) (shuffle.HashFunc, error) {
	if l == nil {
		return nil, errors.New("a hash exchange without a layout")
	}
	switch l.Format {
	case "delta":
		return deltaHash(l)
	default:
		return icebergHash(l)
	}
}

func deltaHash(l *plan.Layout) (shuffle.HashFunc, error) {
	schema, err := delta.ParseSchema(string(l.SchemaJSON))
	if err != nil {
		return nil, err
	}
	partition, err := delta.ParsePartition(l.SpecJSON)
	if err != nil {
		return nil, err
	}
	p, err := delta.NewPartitioner(schema, partition)
	if err != nil {
		return nil, err
	}
	return func(b arrow.RecordBatch) (func(int) uint64, error) {
		keys, err := p.Apply(b)
		if err != nil {
			return nil, &commit.Error{Code: commit.CodeShuffleColumns, Op: "partition rows", Cause: err}
		}
		return keys.Hash, nil
	}, nil
}

func icebergHash(l *plan.Layout) (shuffle.HashFunc, error) {
	schema, err := format.ParseSchema(l.SchemaJSON)
	if err != nil {
		return nil, err
	}
	spec, err := format.ParseSpec(l.SpecJSON, schema)
	if err != nil {
		return nil, err
	}
	p, err := format.NewPartitioner(schema, spec)
	if err != nil {
		return nil, err
	}
	table, err := format.ArrowSchema(schema)
	if err != nil {
		return nil, err
	}
	return func(b arrow.RecordBatch) (func(int) uint64, error) {
		// The keys need the batch as long as they are used, which only the
		// collector sees the end of: its memory is Go's.
		keys, err := p.Apply(conform(b, table))
		if err != nil {
			return nil, &commit.Error{Code: commit.CodeShuffleColumns, Op: "partition rows", Cause: err}
		}
		return keys.Hash, nil
	}, nil
}

// conform gives the columns that DuckDB has no type of its own for, or another
// Arrow type, the table's type: UUIDs come as text and fixed-length values as
// binary ones. It is for hashing only: a value that doesn't fit becomes null
// here, and the writer that gets its row refuses it.
func conform(b arrow.RecordBatch, table *arrow.Schema) arrow.RecordBatch {
	if int(b.NumCols()) != table.NumFields() {
		return b
	}
	cols := append([]arrow.Array(nil), b.Columns()...)
	for i, f := range table.Fields() {
		switch t := f.Type.(type) {
		case *extensions.UUIDType:
			if text, ok := cols[i].(*array.String); ok {
				fixed := fixedArray(text, &arrow.FixedSizeBinaryType{ByteWidth: len(uuid.UUID{})}, func(row int) []byte {
					u, err := uuid.Parse(text.Value(row))
					if err != nil {
						return nil
					}
					return u[:]
				})
				cols[i] = array.NewExtensionArrayWithStorage(t, fixed)
			}
		case *arrow.FixedSizeBinaryType:
			if raw, ok := cols[i].(*array.Binary); ok {
				cols[i] = fixedArray(raw, t, raw.Value)
			}
		}
	}
	fields := table.Fields()
	for i := range fields {
		fields[i].Type = cols[i].DataType()
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, b.NumRows())
}

func fixedArray(a arrow.Array, t *arrow.FixedSizeBinaryType, value func(int) []byte) arrow.Array {
	b := array.NewFixedSizeBinaryBuilder(memory.DefaultAllocator, t)
	defer b.Release()
	for row := range a.Len() {
		var v []byte
		if a.IsValid(row) {
			v = value(row)
		}
		if len(v) == t.ByteWidth {
			b.Append(v)
		} else {
			b.AppendNull()
		}
	}
	return b.NewArray()
}
