package wire

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
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

// EncodeManifest makes the file manifest of files, in their order. The caller
// releases the batch. The maps of a file are written in the order of their
// keys, so that equal files have equal bytes.
func EncodeManifest(mem memory.Allocator, files []commit.File) (arrow.RecordBatch, error) {
	b := array.NewRecordBuilder(mem, ManifestSchema())
	defer b.Release()
	for i := range files {
		if err := appendFile(b, &files[i]); err != nil {
			return nil, fmt.Errorf("file manifest: %s: %w", files[i].Path, err)
		}
	}
	return b.NewRecordBatch(), nil
}

func appendFile(b *array.RecordBuilder, f *commit.File) error {
	str := func(i int, s string) { b.Field(i).(*array.StringBuilder).Append(s) }
	i64 := func(i int, v int64) { b.Field(i).(*array.Int64Builder).Append(v) }
	str(colPath, f.Path)
	str(colFormat, f.Format)
	str(colAttempt, f.Attempt)
	i64(colRows, f.Rows)
	i64(colSize, f.Size)
	for i, v := range map[int]int{colSchemaID: f.SchemaID, colSpecID: f.SpecID, colSortOrderID: f.SortOrderID} {
		if err := appendInt32(b.Field(i), v); err != nil {
			return err
		}
	}
	if err := appendPartition(b.Field(colPartition).(*array.ListBuilder), f.Partition); err != nil {
		return err
	}
	for i, m := range map[int]map[int]int64{
		colColumnSizes: f.ColumnSizes, colValueCounts: f.ValueCounts,
		colNullCounts: f.NullCounts, colNaNCounts: f.NaNCounts,
	} {
		if err := appendMap(b.Field(i), m, (*array.Int64Builder).Append); err != nil {
			return err
		}
	}
	for i, m := range map[int]map[int][]byte{colLower: f.Lower, colUpper: f.Upper} {
		if err := appendMap(b.Field(i), m, (*array.BinaryBuilder).Append); err != nil {
			return err
		}
	}
	offsets := b.Field(colSplitOffsets).(*array.ListBuilder)
	offsets.Append(true)
	offsets.ValueBuilder().(*array.Int64Builder).AppendValues(f.SplitOffsets, nil)
	return nil
}

func appendPartition(b *array.ListBuilder, values []commit.PartitionValue) error {
	b.Append(true)
	row := b.ValueBuilder().(*array.StructBuilder)
	for _, v := range values {
		row.Append(true)
		if err := appendInt32(row.FieldBuilder(0), v.FieldID); err != nil {
			return err
		}
		row.FieldBuilder(1).(*array.BooleanBuilder).Append(v.Null)
		row.FieldBuilder(2).(*array.BinaryBuilder).Append(v.Value)
	}
	return nil
}

func appendMap[V any, B array.Builder](b array.Builder, m map[int]V, add func(B, V)) error {
	mb := b.(*array.MapBuilder)
	mb.Append(true)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if err := appendInt32(mb.KeyBuilder(), k); err != nil {
			return err
		}
		add(mb.ItemBuilder().(B), m[k])
	}
	return nil
}

func appendInt32(b array.Builder, v int) error {
	if int(int32(v)) != v {
		return fmt.Errorf("%d isn't a 32-bit number", v)
	}
	b.(*array.Int32Builder).Append(int32(v))
	return nil
}
