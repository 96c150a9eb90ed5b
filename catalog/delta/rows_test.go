package delta

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/objstore"
)

// tableRows reads a table as simply as can be, to compare it with others: each row
// is a line, sorted.
func tableRows(t *testing.T, s *Snapshot) []string {
	t.Helper()
	d := s.Definition()
	mapping, err := delta.MappingOf(d.Properties)
	if err != nil {
		t.Fatal(err)
	}
	store := objstore.New(objstore.Config{})
	rows := []string{}
	for a, err := range s.Files(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		uri, err := delta.ResolvePath(s.Log().Root(), a.Path)
		if err != nil {
			t.Fatal(err)
		}
		o, err := store.Open(t.Context(), uri)
		if err != nil {
			t.Fatalf("%s: %v", a.Path, err)
		}
		gone := vectorOf(t, store, s.Log().Root(), a)
		at := int64(0)
		eachBatch(t, o, func(b arrow.RecordBatch) {
			columns := make([]func(int) string, len(d.Schema.Fields))
			for i, f := range d.Schema.Fields {
				physical := s.PhysicalSchema().Fields[i]
				if slices.Contains(d.Partition, f.Name) {
					v, err := delta.DecodePartitionValue(f.Type, a.PartitionValues[physical.Name])
					if err != nil {
						t.Fatal(err)
					}
					columns[i] = func(int) string { return valueText(v) }
					continue
				}
				columns[i] = columnText(b, &physical, mapping)
			}
			for r := range int(b.NumRows()) {
				if gone == nil || !gone.Contains(at) {
					rows = append(rows, rowText(columns, r))
				}
				at++
			}
		})
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(rows)
	return rows
}

func vectorOf(t *testing.T, store objstore.Store, root string, a *Add) *delta.RowSet {
	t.Helper()
	v := a.DeletionVector
	if v == nil {
		return nil
	}
	if v.StorageType == "i" {
		set, err := v.Inline()
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	uri, err := v.File(root)
	if err != nil {
		t.Fatal(err)
	}
	o, err := store.Open(t.Context(), uri)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	frame := make([]byte, v.FrameBytes())
	if _, err := o.ReadAt(frame, v.Start()); err != nil {
		t.Fatal(err)
	}
	set, err := v.Framed(frame)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// expectedRows reads plain Parquet files with the table's columns.
func expectedRows(t *testing.T, schema *delta.Struct, files []string) []string {
	t.Helper()
	rows := []string{}
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		eachBatch(t, localObject{f, st.Size()}, func(b arrow.RecordBatch) {
			columns := make([]func(int) string, len(schema.Fields))
			for i := range schema.Fields {
				columns[i] = columnText(b, &schema.Fields[i], delta.MappingNone)
			}
			for r := range int(b.NumRows()) {
				rows = append(rows, rowText(columns, r))
			}
		})
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(rows)
	return rows
}

func eachBatch(t *testing.T, o objstore.Object, f func(arrow.RecordBatch)) {
	t.Helper()
	r, err := file.NewParquetReader(io.NewSectionReader(o, 0, o.Size()))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ar, err := pqarrow.NewFileReader(r, pqarrow.ArrowReadProperties{BatchSize: 1024}, memory.DefaultAllocator)
	if err != nil {
		t.Fatal(err)
	}
	if r.NumRows() == 0 {
		return
	}
	rr, err := ar.GetRecordReader(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer rr.Release()
	for rr.Next() {
		f(rr.RecordBatch())
	}
	if err := rr.Err(); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

func rowText(columns []func(int) string, row int) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = c(row)
	}
	return strings.Join(parts, " | ")
}

// columnText finds a column by name, or by id; one that the file doesn't have is
// null.
func columnText(b arrow.RecordBatch, f *delta.Field, m delta.Mapping) func(int) string {
	for i, af := range b.Schema().Fields() {
		found := af.Name == f.Name
		if id, ok := f.FieldID(); ok && m == delta.MappingID {
			have, _ := af.Metadata.GetValue("PARQUET:field_id")
			found = have == fmt.Sprint(id)
		}
		if found {
			return func(r int) string { return arrowText(b.Column(i), r, f.Type) }
		}
	}
	return func(int) string { return "null" }
}

func valueText(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("%q", v)
	case []byte:
		return fmt.Sprintf("%x", v)
	case arrow.Date32:
		return fmt.Sprintf("day %d", v)
	case arrow.Timestamp:
		return fmt.Sprintf("µs %d", v)
	}
	return fmt.Sprint(v)
}

func arrowText(a arrow.Array, i int, t delta.Type) string {
	if a.IsNull(i) {
		return "null"
	}
	switch a := a.(type) {
	case *array.Struct:
		s := t.(*delta.Struct)
		parts := make([]string, len(s.Fields))
		for n, f := range s.Fields {
			parts[n] = "null"
			if at, ok := a.DataType().(*arrow.StructType).FieldIdx(f.Name); ok {
				parts[n] = arrowText(a.Field(at), i, f.Type)
			}
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case *array.Map:
		m := t.(*delta.Map)
		var parts []string
		from, to := a.ValueOffsets(i)
		for n := from; n < to; n++ {
			parts = append(parts, arrowText(a.Keys(), int(n), m.Key)+": "+arrowText(a.Items(), int(n), m.Value))
		}
		slices.Sort(parts)
		return "(" + strings.Join(parts, ", ") + ")"
	case array.ListLike:
		var parts []string
		from, to := a.ValueOffsets(i)
		for n := from; n < to; n++ {
			parts = append(parts, arrowText(a.ListValues(), int(n), t.(*delta.Array).Element))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case *array.Timestamp:
		unit := a.DataType().(*arrow.TimestampType).Unit
		return valueText(arrow.Timestamp(a.Value(i).ToTime(unit).UnixMicro()))
	case *array.Date32:
		return valueText(a.Value(i))
	case *array.String:
		return valueText(a.Value(i))
	case *array.Binary:
		return valueText(a.Value(i))
	case *array.Float32:
		return valueText(a.Value(i))
	case *array.Float64:
		return valueText(a.Value(i))
	case *array.Decimal128:
		return valueText(delta.Decimal{Num: a.Value(i), Scale: int(a.DataType().(*arrow.Decimal128Type).Scale)})
	}
	return a.ValueStr(i)
}
