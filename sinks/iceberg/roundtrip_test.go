package iceberg

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/apache/iceberg-go"
)

var p = iceberg.PrimitiveTypes

// allTypes has every type, nested ones included.
func allTypes() *iceberg.Schema {
	return iceberg.NewSchema(7,
		field(1, "b", p.Bool), field(2, "i", p.Int32), required(3, "l", p.Int64),
		field(4, "f", p.Float32), field(5, "d", p.Float64),
		field(6, "d9", iceberg.DecimalTypeOf(9, 2)), field(7, "d18", iceberg.DecimalTypeOf(18, 4)),
		field(8, "d38", iceberg.DecimalTypeOf(38, 10)),
		field(9, "date", p.Date), field(10, "time", p.Time), field(11, "ts", p.Timestamp), field(12, "tz", p.TimestampTz),
		field(13, "s", p.String), field(14, "u", p.UUID), field(15, "fix", iceberg.FixedTypeOf(3)), field(16, "bin", p.Binary),
		field(17, "list", &iceberg.ListType{ElementID: 20, Element: p.Int32}),
		field(18, "map", &iceberg.MapType{KeyID: 21, KeyType: p.String, ValueID: 22, ValueType: p.Float64}),
		field(19, "st", &iceberg.StructType{FieldList: []iceberg.NestedField{
			field(23, "x", p.Int64), required(24, "y", p.String),
			field(25, "deep", &iceberg.ListType{ElementID: 26, Element: &iceberg.StructType{FieldList: []iceberg.NestedField{field(27, "z", p.Date)}}}),
		}}),
	)
}

const allRows = `[
{"b":true,"i":-1,"l":1,"f":1.5,"d":-2.25,"d9":"1234567.89","d18":"-99999999999999.9999","d38":"1234567890123456789012345678.0123456789",
 "date":"1969-12-31","time":"23:59:59.999999","ts":"1969-12-31 23:59:59.999999","tz":"2001-07-01 12:00:00.000001Z","s":"é✓","u":"01234567-89ab-cdef-0123-456789abcdef",
 "fix":"AAEC","bin":"/w==","list":[1,null,3],"map":[{"key":"a","value":1.5},{"key":"b","value":null}],"st":{"x":5,"y":"why","deep":[{"z":"2001-01-01"},null]}},
{"b":null,"i":null,"l":2,"f":null,"d":null,"d9":null,"d18":null,"d38":null,"date":null,"time":null,"ts":null,"tz":null,"s":null,"u":null,"fix":null,"bin":null,"list":null,"map":null,"st":null},
{"b":false,"i":2147483647,"l":-9223372036854775808,"f":0,"d":0,"d9":"0","d18":"0","d38":"0","date":"0001-01-01","time":"00:00:00","ts":"2001-01-01 00:00:00","tz":"1969-12-31 00:00:00Z","s":"","u":"00000000-0000-0000-0000-000000000000",
 "fix":"////","bin":"","list":[],"map":[],"st":{"x":null,"y":"","deep":[]}}
]`

func TestAllTypesRoundTrip(t *testing.T) {
	tb := newTable(t, allTypes(), nil, nil)
	tb.onDisk(t)
	want := tb.batch(t, allRows)
	want.Retain()
	defer want.Release()
	files := tb.write(t, want)
	if len(files) != 1 {
		t.Fatalf("%d files, want 1", len(files))
	}
	f := files[0]
	if f.Rows != 3 || f.SchemaID != 7 || f.SpecID != 3 || f.SortOrderID != 0 || f.Format != "PARQUET" || f.Attempt != "a-1" {
		t.Errorf("the manifest row is wrong: %+v", f)
	}
	if wantPath := tb.opts.Context.Prefix + "2-5-a-1-0.parquet"; f.Path != wantPath {
		t.Errorf("path %s, want %s", f.Path, wantPath)
	}
	tbl := tb.read(t, f)
	defer tbl.Release()
	for i := range int(tbl.NumCols()) {
		got, err := array.Concatenate(tbl.Column(i).Data().Chunks(), mem)
		if err != nil {
			t.Fatal(err)
		}
		if g, w := fmt.Sprint(got), fmt.Sprint(want.Column(i)); g != w {
			t.Errorf("column %s: read %s, wrote %s", want.ColumnName(i), g, w)
		}
		got.Release()
	}
}

// TestParquetSchema reads the file's own schema: readers find columns by field
// id and decide by logical types.
func TestParquetSchema(t *testing.T) {
	tb := newTable(t, allTypes(), nil, nil)
	f := tb.write(t, tb.batch(t, allRows))[0]
	r := tb.openParquet(t, f)
	if v := r.MetaData().KeyValueMetadata().FindValue("iceberg.schema"); v == nil || *v != string(tb.opts.Context.SchemaJSON) {
		t.Errorf("iceberg.schema is %v", v)
	}
	sc := r.MetaData().Schema
	type leaf struct {
		physical parquet.Type
		logical  schema.LogicalType
		length   int
	}
	want := map[int]leaf{
		6:  {parquet.Types.Int32, schema.NewDecimalLogicalType(9, 2), -1},
		7:  {parquet.Types.Int64, schema.NewDecimalLogicalType(18, 4), -1},
		8:  {parquet.Types.FixedLenByteArray, schema.NewDecimalLogicalType(38, 10), 16},
		9:  {parquet.Types.Int32, schema.DateLogicalType{}, -1},
		10: {parquet.Types.Int64, schema.NewTimeLogicalType(false, schema.TimeUnitMicros), -1},
		11: {parquet.Types.Int64, schema.NewTimestampLogicalType(false, schema.TimeUnitMicros), -1},
		12: {parquet.Types.Int64, schema.NewTimestampLogicalType(true, schema.TimeUnitMicros), -1},
		13: {parquet.Types.ByteArray, schema.StringLogicalType{}, -1},
		14: {parquet.Types.FixedLenByteArray, schema.UUIDLogicalType{}, 16},
		15: {parquet.Types.FixedLenByteArray, schema.NoLogicalType{}, 3},
		16: {parquet.Types.ByteArray, schema.NoLogicalType{}, -1},
	}
	seen := map[int]bool{}
	for i := range sc.NumColumns() {
		c := sc.Column(i)
		id := int(c.SchemaNode().FieldID())
		seen[id] = true
		if w, ok := want[id]; ok {
			if c.PhysicalType() != w.physical || !c.LogicalType().Equals(w.logical) || w.length > 0 && c.TypeLength() != w.length {
				t.Errorf("%s is %s %s (%d), want %+v", c.Path(), c.PhysicalType(), c.LogicalType(), c.TypeLength(), w)
			}
		}
	}
	for _, id := range []int{1, 2, 3, 4, 5, 20, 21, 22, 23, 24, 27} {
		if !seen[id] {
			t.Errorf("no column has field id %d", id)
		}
	}
	for name, id := range map[string]int32{"list": 17, "map": 18, "st": 19} {
		n := sc.Root().Field(sc.Root().FieldIndexByName(name))
		if n.FieldID() != id {
			t.Errorf("%s has field id %d, want %d", name, n.FieldID(), id)
		}
	}
}

func TestCountsAndBounds(t *testing.T) {
	tb := newTable(t, allTypes(), nil, nil)
	f := tb.write(t, tb.batch(t, allRows))[0]
	for id := range 16 {
		if f.ValueCounts[id+1] != 3 {
			t.Errorf("field %d: %d values, want 3", id+1, f.ValueCounts[id+1])
		}
	}
	// Two of three lists have elements; an empty and a null list count as one
	// value each, as Parquet counts them.
	for id, want := range map[int]int64{20: 5, 21: 4, 22: 4, 27: 4, 23: 3, 24: 3} {
		if f.ValueCounts[id] != want {
			t.Errorf("field %d: %d values, want %d", id, f.ValueCounts[id], want)
		}
	}
	for id, want := range map[int]int64{1: 1, 3: 0, 13: 1, 23: 2, 24: 1, 20: 3, 22: 3} {
		if f.NullCounts[id] != want {
			t.Errorf("field %d: %d nulls, want %d", id, f.NullCounts[id], want)
		}
	}
	for id, want := range map[int][2][]byte{
		1:  {{0}, {1}},
		13: {{}, []byte("é✓")},
		15: {{0, 1, 2}, {0xff, 0xff, 0xff}},
		16: {{}, {0xff}},
		9:  {{0xc6, 0x06, 0xf5, 0xff}, {0xff, 0xff, 0xff, 0xff}},
		6:  {{0}, {0x07, 0x5b, 0xcd, 0x15}},
		24: {{}, []byte("why")},
	} {
		lower, ok := f.Lower[id]
		if upper := f.Upper[id]; !ok || !bytes.Equal(lower, want[0]) || !bytes.Equal(upper, want[1]) {
			t.Errorf("field %d: bounds %x to %x (%v), want %x to %x", id, lower, upper, ok, want[0], want[1])
		}
	}
	for _, id := range []int{20, 21, 22, 27} {
		if _, ok := f.Lower[id]; ok {
			t.Errorf("field %d is inside a list or map and has a bound", id)
		}
	}
	if len(f.SplitOffsets) != 1 || f.SplitOffsets[0] != 4 {
		t.Errorf("split offsets %v, want the first row group at 4", f.SplitOffsets)
	}
	for id, n := range f.ColumnSizes {
		if n <= 0 || n > f.Size {
			t.Errorf("field %d: column of %d bytes in a file of %d", id, n, f.Size)
		}
	}
}

// TestCasts writes batches as DuckDB and clients give them, in other forms of
// the table's types.
func TestCasts(t *testing.T) {
	schema := iceberg.NewSchema(0, field(1, "i", p.Int32), field(2, "l", p.Int64), field(3, "d", iceberg.DecimalTypeOf(10, 2)),
		field(4, "ts", p.Timestamp), field(5, "tz", p.TimestampTz), field(6, "s", p.String), field(7, "u", p.UUID),
		field(8, "fix", iceberg.FixedTypeOf(2)), field(9, "list", &iceberg.ListType{ElementID: 11, Element: p.Int64}), field(10, "n", p.Float64))
	in := arrow.NewSchema([]arrow.Field{
		{Name: "I", Type: arrow.PrimitiveTypes.Int8, Nullable: true},
		{Name: "l", Type: arrow.PrimitiveTypes.Uint64, Nullable: true},
		{Name: "d", Type: &arrow.Decimal128Type{Precision: 5, Scale: 1}, Nullable: true},
		{Name: "ts", Type: &arrow.TimestampType{Unit: arrow.Millisecond}, Nullable: true},
		{Name: "tz", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "Europe/Berlin"}, Nullable: true},
		{Name: "s", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint8, ValueType: arrow.BinaryTypes.String}, Nullable: true},
		{Name: "u", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "fix", Type: arrow.BinaryTypes.LargeBinary, Nullable: true},
		{Name: "list", Type: arrow.LargeListOf(arrow.PrimitiveTypes.Int16), Nullable: true},
		{Name: "n", Type: arrow.Null, Nullable: true},
	}, nil)
	tb := newTable(t, schema, nil, nil)
	whole := jsonBatch(t, in, `[{"i":9},
	 {"I":-5,"l":7,"d":"12.3","ts":"2001-01-01 00:00:00.001","tz":"2001-01-01 00:00:00Z","s":"red","u":"01234567-89AB-cdef-0123-456789abcdef","fix":"AAE=","list":[1,2],"n":null},
	 {"I":null,"l":null,"d":null,"ts":null,"tz":null,"s":null,"u":null,"fix":null,"list":null,"n":null},
	 {"I":1,"l":1,"d":"0.5","ts":"1969-12-31 23:59:59.999","tz":"1970-01-01 00:00:00Z","s":"red","u":"01234567-89ab-cdef-0123-456789abcdef","fix":"AAE=","list":[3],"n":null}]`)
	defer whole.Release()
	files := tb.write(t, whole.NewSlice(1, 4)) // a slice: offsets must be honoured
	for name, want := range map[string]string{
		"i": "-5 (null) 1", "l": "7 (null) 1", "d": "12.3 (null) 0.5", "s": "red (null) red",
		"ts": "2001-01-01T00:00:00.001 (null) 1969-12-31T23:59:59.999", "tz": "2001-01-01T00:00:00Z (null) 1970-01-01T00:00:00Z",
		"u":    "01234567-89ab-cdef-0123-456789abcdef (null) 01234567-89ab-cdef-0123-456789abcdef",
		"list": "[1,2] (null) [3]", "fix": "AAE= (null) AAE=", "n": "(null) (null) (null)",
	} {
		if got := strings.Join(tb.column(t, name, files...), " "); got != want {
			t.Errorf("column %s: %s, want %s", name, got, want)
		}
	}
}

// TestElementsUnderNullLists: Arrow allows a null list to cover elements, the
// Parquet writer doesn't.
func TestElementsUnderNullLists(t *testing.T) {
	tb := newTable(t, iceberg.NewSchema(0, field(1, "l", &iceberg.ListType{ElementID: 2, Element: p.Int32, ElementRequired: true})), nil, nil)
	whole := jsonBatch(t, arrow.NewSchema([]arrow.Field{{Name: "l", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32), Nullable: true}}, nil), `[{"l":[1]},{"l":[2,null]},{"l":[3,4]}]`)
	defer whole.Release()
	d := whole.Column(0).Data()
	data := array.NewData(d.DataType(), 3, []*memory.Buffer{memory.NewBufferBytes([]byte{0b101}), d.Buffers()[1]}, d.Children(), 1, 0)
	files := tb.write(t, withColumn(whole.Schema(), array.MakeFromData(data)))
	if got := strings.Join(tb.column(t, "l", files...), " "); got != "[1] (null) [3,4]" {
		t.Errorf("read %s", got)
	}
}
