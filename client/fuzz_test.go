package client

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/firn-project/firn/internal/wire"
)

// FuzzReadStream: rows that a server sends can't end the client.
func FuzzReadStream(f *testing.F) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.BinaryTypes.String}, {Name: "b", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	b.Field(0).(*array.StringBuilder).Append("x")
	b.Field(1).(*array.ListBuilder).AppendNull()
	rec := b.NewRecordBatch()
	raw, err := wire.EncodeIPC(schema, rec)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		schema, batches, err := readStream(raw)
		if err != nil {
			return
		}
		for _, b := range batches {
			for i, c := range b.Columns() {
				if c.Len() > 0 && !arrow.TypeEqual(c.DataType(), schema.Field(i).Type) {
					t.Errorf("column %d isn't of its schema's type", i)
				}
				for j := range min(c.Len(), 100) {
					_ = c.ValueStr(j)
				}
			}
			b.Release()
		}
	})
}
