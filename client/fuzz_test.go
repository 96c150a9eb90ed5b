package client

import (
	"encoding/json"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/openwrite"
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

// FuzzWriteAnswer: what a server answers to a call of the open write protocol can't
// end the client, and what is taken of it is whole.
func FuzzWriteAnswer(f *testing.F) {
	schema, err := wire.EncodeIPC(arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.BinaryTypes.String}}, nil))
	if err != nil {
		f.Fatal(err)
	}
	whole, err := json.Marshal(openwrite.Answer{
		Version: 1, Result: "open", Status: openwrite.Status{WriteID: "w", State: "committed", Report: &openwrite.Report{Table: "a.b.c", Committed: "2026-01-01T00:00:00Z"}, Error: &openwrite.Fault{Code: "FIRN-6041"}},
		Context: &openwrite.Context{WriteID: "w", Prefix: "s3://b/", ArrowSchema: schema},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"version":1,"status":{"write_id":"w","state":"refused","error":{"code":"x","outcome":"none"}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := readAnswer("x", raw)
		if err != nil {
			return
		}
		if s, err := writeStatusOf(a.Status); err == nil {
			if s.ID == "" || (s.outcome() == nil) != (s.State == WriteCommitted || s.State == WriteVerified) || s.report().JobID == "" && s.Report == nil {
				t.Errorf("%+v: %v", s, s.outcome())
			}
		}
		if a.Context == nil {
			return
		}
		w, err := contextOf(a.Context)
		if err != nil {
			return
		}
		again, err := json.Marshal(w)
		if err != nil || w.WriteID == "" || w.Schema.NumFields() == 0 {
			t.Fatalf("%+v: %v", w, err)
		}
		var there WriteContext
		if err := json.Unmarshal(again, &there); err != nil || there.Prefix != w.Prefix {
			t.Errorf("%v", err)
		}
	})
}
