package wire

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/firn-project/firn/commit"
)

// Positions of the columns of a file manifest.
const (
	colPath = iota
	colFormat
	colAttempt
	colSchemaID
	colSpecID
	colSortOrderID
	colPartition
	colRows
	colSize
	colColumnSizes
	colValueCounts
	colNullCounts
	colNaNCounts
	colLower
	colUpper
	colSplitOffsets
)

// ManifestSchema is the schema of a file manifest: one row a data file, one
// column for each field of commit.File. No value in it is null.
func ManifestSchema() *arrow.Schema { return manifestSchema() }

var manifestSchema = sync.OnceValue(func() *arrow.Schema {
	field := func(name string, t arrow.DataType) arrow.Field { return arrow.Field{Name: name, Type: t} }
	counts := manifestMap(arrow.PrimitiveTypes.Int64)
	bounds := manifestMap(arrow.BinaryTypes.Binary)
	return arrow.NewSchema([]arrow.Field{
		colPath:        field("path", arrow.BinaryTypes.String),
		colFormat:      field("format", arrow.BinaryTypes.String),
		colAttempt:     field("attempt", arrow.BinaryTypes.String),
		colSchemaID:    field("schema_id", arrow.PrimitiveTypes.Int32),
		colSpecID:      field("spec_id", arrow.PrimitiveTypes.Int32),
		colSortOrderID: field("sort_order_id", arrow.PrimitiveTypes.Int32),
		colPartition: field("partition", arrow.ListOfNonNullable(arrow.StructOf(
			field("field_id", arrow.PrimitiveTypes.Int32),
			field("null", arrow.FixedWidthTypes.Boolean),
			field("value", arrow.BinaryTypes.Binary),
		))),
		colRows:         field("rows", arrow.PrimitiveTypes.Int64),
		colSize:         field("size", arrow.PrimitiveTypes.Int64),
		colColumnSizes:  field("column_sizes", counts),
		colValueCounts:  field("value_counts", counts),
		colNullCounts:   field("null_counts", counts),
		colNaNCounts:    field("nan_counts", counts),
		colLower:        field("lower", bounds),
		colUpper:        field("upper", bounds),
		colSplitOffsets: field("split_offsets", arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)),
	}, nil)
})

// manifestMap is the type of a map by field id; its items are never null.
func manifestMap(item arrow.DataType) *arrow.MapType {
	t := arrow.MapOf(arrow.PrimitiveTypes.Int32, item)
	t.SetItemNullable(false)
	return t
}

// EncodeManifest makes the file manifest of files, in their order. Its buffers are
// the collector's. The maps of a file are written in the order of their keys, so
// that equal files have equal bytes.
//
// Most manifests have one row: the library's builders, of which nested columns
// take several each, would take longer than everything else.
func EncodeManifest(files []commit.File) (arrow.RecordBatch, error) {
	schema, n := ManifestSchema(), len(files)
	cols := make([]arrow.ArrayData, schema.NumFields())
	var errs []error
	str := func(col int, get func(*commit.File) string) {
		cols[col] = textData(schema.Field(col).Type, each(files, get), &errs)
	}
	i64 := func(col int, get func(*commit.File) int64) {
		cols[col] = fixedData(schema.Field(col).Type, each(files, get))
	}
	i32 := func(col int, get func(*commit.File) int) {
		cols[col] = fixedData(schema.Field(col).Type, narrow(each(files, get), &errs))
	}
	counts := func(col int, get func(*commit.File) map[int]int64) {
		cols[col] = mapData(schema.Field(col).Type, each(files, get), func(t arrow.DataType, v []int64) arrow.ArrayData { return fixedData(t, v) }, &errs)
	}
	bounds := func(col int, get func(*commit.File) map[int][]byte) {
		cols[col] = mapData(schema.Field(col).Type, each(files, get), func(t arrow.DataType, v [][]byte) arrow.ArrayData { return textData(t, v, &errs) }, &errs)
	}
	str(colPath, func(f *commit.File) string { return f.Path })
	str(colFormat, func(f *commit.File) string { return f.Format })
	str(colAttempt, func(f *commit.File) string { return f.Attempt })
	i32(colSchemaID, func(f *commit.File) int { return f.SchemaID })
	i32(colSpecID, func(f *commit.File) int { return f.SpecID })
	i32(colSortOrderID, func(f *commit.File) int { return f.SortOrderID })
	cols[colPartition] = partitionData(schema.Field(colPartition).Type, files, &errs)
	i64(colRows, func(f *commit.File) int64 { return f.Rows })
	i64(colSize, func(f *commit.File) int64 { return f.Size })
	counts(colColumnSizes, func(f *commit.File) map[int]int64 { return f.ColumnSizes })
	counts(colValueCounts, func(f *commit.File) map[int]int64 { return f.ValueCounts })
	counts(colNullCounts, func(f *commit.File) map[int]int64 { return f.NullCounts })
	counts(colNaNCounts, func(f *commit.File) map[int]int64 { return f.NaNCounts })
	bounds(colLower, func(f *commit.File) map[int][]byte { return f.Lower })
	bounds(colUpper, func(f *commit.File) map[int][]byte { return f.Upper })
	offsets := each(files, func(f *commit.File) []int64 { return f.SplitOffsets })
	cols[colSplitOffsets] = listData(schema.Field(colSplitOffsets).Type, offsets, fixedData(arrow.PrimitiveTypes.Int64, slices.Concat(offsets...)))
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("file manifest: %w", err)
	}
	arrays := make([]arrow.Array, len(cols))
	for i, c := range cols {
		arrays[i] = array.MakeFromData(c)
	}
	return array.NewRecordBatch(schema, arrays, int64(n)), nil
}

func each[V any](files []commit.File, get func(*commit.File) V) []V {
	out := make([]V, len(files))
	for i := range files {
		out[i] = get(&files[i])
	}
	return out
}

// narrow makes numbers of 32 bits.
func narrow(from []int, errs *[]error) []int32 {
	out := make([]int32, len(from))
	for i, v := range from {
		if out[i] = int32(v); int(out[i]) != v {
			*errs = append(*errs, fmt.Errorf("%d isn't a 32-bit number", v))
		}
	}
	return out
}

func fixedData[T arrow.FixedWidthType](t arrow.DataType, v []T) arrow.ArrayData {
	return array.NewData(t, len(v), []*memory.Buffer{nil, memory.NewBufferBytes(arrow.GetBytes(v))}, nil, 0, 0)
}

// textData makes an array of strings or bytes.
func textData[T string | []byte](t arrow.DataType, v []T, errs *[]error) arrow.ArrayData {
	ends := make([]int, 1, len(v)+1)
	var all []byte
	for _, s := range v {
		all = append(all, s...)
		ends = append(ends, len(all))
	}
	return array.NewData(t, len(v), []*memory.Buffer{nil, memory.NewBufferBytes(arrow.GetBytes(narrow(ends, errs))), memory.NewBufferBytes(all)}, nil, 0, 0)
}

// listData makes an array of lists over their items.
func listData[T any](t arrow.DataType, lists [][]T, items arrow.ArrayData) arrow.ArrayData {
	ends := make([]int32, 1, len(lists)+1)
	for _, l := range lists {
		ends = append(ends, ends[len(ends)-1]+int32(len(l)))
	}
	return array.NewData(t, len(lists), []*memory.Buffer{nil, memory.NewBufferBytes(arrow.GetBytes(ends))}, []arrow.ArrayData{items}, 0, 0)
}

func structData(t arrow.DataType, n int, fields ...arrow.ArrayData) arrow.ArrayData {
	return array.NewData(t, n, []*memory.Buffer{nil}, fields, 0, 0)
}

func mapData[V any](t arrow.DataType, from []map[int]V, values func(arrow.DataType, []V) arrow.ArrayData, errs *[]error) arrow.ArrayData {
	m := t.(*arrow.MapType)
	keys, all := make([][]int, len(from)), []V(nil)
	for i, kv := range from {
		keys[i] = slices.Sorted(maps.Keys(kv))
		for _, k := range keys[i] {
			all = append(all, kv[k])
		}
	}
	return listData(t, keys, structData(m.Elem(), len(all), fixedData(m.KeyType(), narrow(slices.Concat(keys...), errs)), values(m.ItemType(), all)))
}

func partitionData(t arrow.DataType, files []commit.File, errs *[]error) arrow.ArrayData {
	lists := each(files, func(f *commit.File) []commit.PartitionValue { return f.Partition })
	all := slices.Concat(lists...)
	ids, values, nulls := make([]int, len(all)), make([][]byte, len(all)), make([]byte, bitutil.BytesForBits(int64(len(all))))
	for i, v := range all {
		ids[i], values[i] = v.FieldID, v.Value
		bitutil.SetBitTo(nulls, i, v.Null)
	}
	row := t.(*arrow.ListType).Elem().(*arrow.StructType)
	return listData(t, lists, structData(row, len(all),
		fixedData(row.Field(0).Type, narrow(ids, errs)),
		array.NewData(row.Field(1).Type, len(all), []*memory.Buffer{nil, memory.NewBufferBytes(nulls)}, nil, 0, 0),
		textData(row.Field(2).Type, values, errs)))
}
