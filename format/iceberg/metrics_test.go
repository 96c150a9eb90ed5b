package iceberg

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/iceberg-go"
	"pgregory.net/rapid"

	"github.com/firn-project/firn/commit"
)

func TestMetricsModes(t *testing.T) {
	schema := iceberg.NewSchema(0, column(1, "a", pt.String), column(2, "b", &iceberg.StructType{FieldList: []iceberg.NestedField{column(3, "c", pt.Int32)}}), column(4, "d", &iceberg.ListType{ElementID: 5, Element: pt.Int32}))
	def := MetricsMode{Counts: true, Bounds: true, Length: 16}
	for _, c := range []struct {
		props map[string]string
		want  map[int]MetricsMode
	}{
		{nil, map[int]MetricsMode{1: def, 3: def, 5: def}},
		{
			map[string]string{"write.metadata.metrics.default": "Counts", "write.metadata.metrics.column.b.c": "full", "write.metadata.metrics.column.d.element": "none"},
			map[int]MetricsMode{1: {Counts: true}, 3: {Counts: true, Bounds: true}, 5: {}},
		},
		{
			map[string]string{"write.metadata.metrics.max-inferred-column-defaults": "1", "write.metadata.metrics.column.d.element": "truncate(2)"},
			map[int]MetricsMode{1: def, 3: {}, 5: {Counts: true, Bounds: true, Length: 2}},
		},
		{
			map[string]string{"write.metadata.metrics.max-inferred-column-defaults": "1", "write.metadata.metrics.default": "counts"},
			map[int]MetricsMode{1: {Counts: true}, 3: {Counts: true}, 5: {Counts: true}},
		},
	} {
		got, err := MetricsModes(schema, c.props)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%v: %v (%v), want %v", c.props, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "truncate", "truncate()", "truncate(-1)", "truncate(1", "all"} {
		if _, err := ParseMetricsMode(bad); err == nil {
			t.Errorf("the mode %q is read", bad)
		}
	}
}

func TestTruncatedBounds(t *testing.T) {
	for _, c := range []struct {
		v            string
		n            int
		lower, upper string
		none         bool
	}{
		{"abcdef", 3, "abc", "abd", false},
		{"abc", 3, "abc", "abc", false},
		{"", 3, "", "", false},
		{"abcdef", 0, "abcdef", "abcdef", false},
		{"日本語です", 2, "日本", "日札", false},
		{"ab\U0010ffffd", 3, "ab\U0010ffff", "ac", false},
		{"\U0010ffff\U0010ffff\U0010ffff", 2, "\U0010ffff\U0010ffff", "", true},
		{"a\ud7ffz", 2, "a\ud7ff", "a\ue000", false},
		{"a\x7fz", 2, "a\x7f", "a\u0080", false},
	} {
		lower, upper := truncateLowerString([]byte(c.v), c.n), truncateUpperString([]byte(c.v), c.n)
		if string(lower) != c.lower || (upper == nil) != c.none || !c.none && string(upper) != c.upper {
			t.Errorf("%q to %d: %q to %q, want %q to %q", c.v, c.n, lower, upper, c.lower, c.upper)
		}
	}
	if b := truncateUpperBytes([]byte{1, 0xff, 0xff, 9}, 3); !bytes.Equal(b, []byte{2}) {
		t.Errorf("bytes: %x", b)
	}
	if b := truncateUpperBytes([]byte{0xff, 0xff, 9}, 2); b != nil {
		t.Errorf("no bound of two bytes is above, got %x", b)
	}
}

// TestBoundsHold: lower ≤ every value ≤ upper, whatever the type and the mode.
func TestBoundsHold(t *testing.T) {
	schema := iceberg.NewSchema(0, column(1, "s", pt.String), column(2, "b", pt.Binary), column(3, "f", pt.Float64), column(4, "l", pt.Int64),
		column(5, "st", &iceberg.StructType{FieldList: []iceberg.NestedField{column(6, "g", pt.Float32)}}))
	as, err := ArrowSchema(schema)
	if err != nil {
		t.Fatal(err)
	}
	texts := rapid.OneOf(rapid.String(), rapid.StringOfN(rapid.SampledFrom([]rune{'a', 0x7f, 0xd7ff, 0xffff, 0x10ffff}), 0, 6, -1))
	rapid.Check(t, func(t *rapid.T) {
		mode := MetricsMode{Counts: true, Bounds: true, Length: rapid.IntRange(0, 4).Draw(t, "length")}
		m := NewMetrics(schema, map[int]MetricsMode{1: mode, 2: mode, 3: mode, 4: mode, 6: mode})
		rows := int64(0)
		values := map[int][]any{}
		for range rapid.IntRange(1, 3).Draw(t, "batches") {
			rb := array.NewRecordBuilder(mem, as)
			n := rapid.IntRange(0, 5).Draw(t, "rows")
			for range n {
				s, b := texts.Draw(t, "s"), rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0xfe, 0xff}), 0, 6).Draw(t, "b")
				f, l := rapid.Float64().Draw(t, "f"), rapid.Int64().Draw(t, "l")
				null := rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "null")
				st := rb.Field(4).(*array.StructBuilder)
				if null == 1 {
					for i := range 5 {
						rb.Field(i).AppendNull()
					}
					continue
				}
				rb.Field(0).(*array.StringBuilder).Append(s)
				rb.Field(1).(*array.BinaryBuilder).Append(b)
				rb.Field(2).(*array.Float64Builder).Append(f)
				rb.Field(3).(*array.Int64Builder).Append(l)
				st.Append(true)
				st.FieldBuilder(0).(*array.Float32Builder).Append(float32(f))
				values[1], values[2], values[3], values[4] = append(values[1], s), append(values[2], b), append(values[3], f), append(values[4], l)
				values[6] = append(values[6], float32(f))
			}
			batch := rb.NewRecordBatch()
			if err := m.Add(batch); err != nil {
				t.Fatal(err)
			}
			rows += int64(n)
			batch.Release()
			rb.Release()
		}
		f := commit.File{Rows: rows}
		if err := m.Fill(&f); err != nil {
			t.Fatal(err)
		}
		if err := CheckBounds(schema, f); err != nil {
			t.Fatal(err)
		}
		for id, vs := range values {
			typ, _ := schema.FindTypeByID(id)
			if f.ValueCounts[id] != rows || f.NullCounts[id] != rows-int64(len(vs)) {
				t.Fatalf("field %d: %d values, %d nulls in %d rows with %d values", id, f.ValueCounts[id], f.NullCounts[id], rows, len(vs))
			}
			nans := int64(0)
			for _, v := range vs {
				if isNaN(v) {
					nans++
					continue
				}
				within(t, typ, v, f.Lower[id], f.Upper[id])
			}
			if f.NaNCounts[id] != nans {
				t.Fatalf("field %d: %d NaNs, want %d", id, f.NaNCounts[id], nans)
			}
		}
		if u := f.Upper[1]; !utf8.Valid(u) {
			t.Fatalf("the upper bound %x isn't UTF-8", u)
		}
	})
}

func within(t *rapid.T, typ iceberg.Type, v any, lower, upper []byte) {
	lo, err := DecodeValue(typ, lower)
	if err != nil {
		t.Fatalf("lower bound: %v", err)
	}
	if n, err := CompareValues(lo, v); err != nil || n > 0 {
		t.Fatalf("%v is below the lower bound %v (%v)", v, lo, err)
	}
	if upper == nil {
		return
	}
	hi, err := DecodeValue(typ, upper)
	if err != nil {
		t.Fatalf("upper bound: %v", err)
	}
	if n, err := CompareValues(v, hi); err != nil || n > 0 {
		t.Fatalf("%v is above the upper bound %v (%v)", v, hi, err)
	}
}

func TestCheckBounds(t *testing.T) {
	schema := iceberg.NewSchema(0, column(1, "i", pt.Int32), column(2, "s", pt.String), column(3, "f", pt.Float64), column(4, "l", &iceberg.ListType{ElementID: 5, Element: pt.Int32}),
		iceberg.NestedField{ID: 6, Name: "r", Type: pt.Int32, Required: true},
		column(7, "o", &iceberg.StructType{FieldList: []iceberg.NestedField{{ID: 8, Name: "x", Type: pt.Int32, Required: true}}}), column(9, "w", pt.Int64))
	good := func() commit.File {
		return commit.File{
			Rows:        3,
			ColumnSizes: map[int]int64{1: 10, 5: 9}, ValueCounts: map[int]int64{1: 3, 2: 3, 3: 3, 5: 40}, NullCounts: map[int]int64{1: 1, 2: 0, 3: 1, 5: 2, 6: 0, 8: 3}, NaNCounts: map[int]int64{3: 1},
			Lower: map[int][]byte{1: le32(1), 2: {}, 3: le64(0)}, Upper: map[int][]byte{1: le32(2), 2: []byte("é"), 3: le64(0)},
		}
	}
	if err := CheckBounds(schema, good()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*commit.File)
		says   string
	}{
		"swapped bounds":       {func(f *commit.File) { f.Lower[1], f.Upper[1] = f.Upper[1], f.Lower[1] }, "column i"},
		"bounds as unsigned":   {func(f *commit.File) { f.Lower[1] = le32(1); f.Upper[1] = le32(0xffffffff) }, "column i"},
		"bound of other type":  {func(f *commit.File) { f.Lower[1] = le64(1) }, "column i"},
		"bound of an int":      {func(f *commit.File) { f.Lower[9] = le32(1) }, "column w: 4 bytes aren't a value of long"},
		"bound of a float":     {func(f *commit.File) { f.Lower[3] = le32(0) }, "column f: 4 bytes aren't a value of double"},
		"bound that is NaN":    {func(f *commit.File) { f.Upper[3] = le64(canonicalNaN) }, "NaN"},
		"bound not UTF-8":      {func(f *commit.File) { f.Upper[2] = []byte{0xff} }, "column s"},
		"bound of no field":    {func(f *commit.File) { f.Lower[99] = le32(1) }, "99"},
		"bound of a list":      {func(f *commit.File) { f.Upper[4] = le32(1) }, "field 4"},
		"count of no field":    {func(f *commit.File) { f.NullCounts[99] = 0 }, "99"},
		"negative count":       {func(f *commit.File) { f.NullCounts[1] = -1 }, "-1"},
		"more nulls than rows": {func(f *commit.File) { f.NullCounts[1] = 4 }, "column i"},
		"nulls and NaNs":       {func(f *commit.File) { f.NaNCounts[3] = 3 }, "column f"},
		"NaNs of a string":     {func(f *commit.File) { f.NaNCounts[2] = 1 }, "column s"},
		"values and rows":      {func(f *commit.File) { f.ValueCounts[1] = 2 }, "column i"},
		"nulls where none are": {func(f *commit.File) { f.NullCounts[6] = 1 }, "column r: 1 nulls in a column that may not be null"},
		"nulls uncounted":      {func(f *commit.File) { delete(f.ValueCounts, 1); f.NullCounts[1] = 4 }, "column i"},
	} {
		f := good()
		c.change(&f)
		if err := CheckBounds(schema, f); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: want an error that says %q: %v", name, c.says, err)
		}
	}
}

func TestCheckPartition(t *testing.T) {
	ts := func(s string) []byte { return le64(uint64(micros(s))) }
	month := int32(31*12 + 6) // July 2001
	cases := []struct {
		name      string
		transform iceberg.Transform
		typ       iceberg.Type
		value     any
		change    func(*commit.File)
		says      string
	}{
		{"month", iceberg.MonthTransform{}, pt.Timestamp, month, func(f *commit.File) { f.Lower[1], f.Upper[1] = ts("2001-07-01T00:00:00"), ts("2001-07-31T23:59:59") }, ""},
		{"month of a row above", iceberg.MonthTransform{}, pt.Timestamp, month, func(f *commit.File) { f.Lower[1], f.Upper[1] = ts("2001-07-01T00:00:00"), ts("2001-08-01T00:00:00") }, "p0"},
		{"month of a row below", iceberg.MonthTransform{}, pt.Timestamp, month, func(f *commit.File) { f.Lower[1], f.Upper[1] = ts("2001-06-30T23:59:59"), ts("2001-07-31T23:59:59") }, "p0"},
		{"month that lies", iceberg.MonthTransform{}, pt.Timestamp, month + 1, func(f *commit.File) { f.Lower[1], f.Upper[1] = ts("2001-07-01T00:00:00"), ts("2001-07-31T23:59:59") }, "p0"},
		{"month without bounds", iceberg.MonthTransform{}, pt.Timestamp, month, func(*commit.File) {}, ""},
		{"null", iceberg.IdentityTransform{}, pt.Int32, nil, func(f *commit.File) { f.NullCounts[1] = 2 }, ""},
		{"null with values", iceberg.IdentityTransform{}, pt.Int32, nil, func(f *commit.File) { f.NullCounts[1] = 1 }, "null"},
		{"null with bounds", iceberg.IdentityTransform{}, pt.Int32, nil, func(f *commit.File) { delete(f.NullCounts, 1); f.Lower[1] = le32(1) }, "null"},
		{"value with nulls", iceberg.IdentityTransform{}, pt.Int32, int32(1), func(f *commit.File) { f.NullCounts[1] = 1 }, "null"},
		{"bucket", iceberg.BucketTransform{NumBuckets: 16}, pt.Int32, int32(3), func(f *commit.File) { f.Lower[1], f.Upper[1] = le32(34), le32(34) }, ""},
		{"bucket that lies", iceberg.BucketTransform{NumBuckets: 16}, pt.Int32, int32(4), func(f *commit.File) { f.Lower[1], f.Upper[1] = le32(34), le32(34) }, "4"},
		{"bucket out of range", iceberg.BucketTransform{NumBuckets: 16}, pt.Int32, int32(16), func(*commit.File) {}, "16"},
		{"bucket of several values", iceberg.BucketTransform{NumBuckets: 16}, pt.Int32, int32(4), func(f *commit.File) { f.Lower[1], f.Upper[1] = le32(34), le32(35) }, ""},
		{"text with cut bounds", iceberg.IdentityTransform{}, pt.String, "abcdefghijklmnopqrstuvw", func(f *commit.File) { f.Lower[1], f.Upper[1] = []byte("abcdefghijklmnop"), []byte("abcdefghijklmnoq") }, ""},
		{"text above its bounds", iceberg.IdentityTransform{}, pt.String, "b", func(f *commit.File) { f.Lower[1], f.Upper[1] = []byte("a"), []byte("a") }, "p0"},
		{"empty text", iceberg.IdentityTransform{}, pt.String, "", func(f *commit.File) { f.Lower[1], f.Upper[1] = []byte{}, []byte{} }, ""},
		{"NaN", iceberg.IdentityTransform{}, pt.Float64, nan(), func(f *commit.File) { f.NaNCounts[1] = 2 }, ""},
		{"NaN with values", iceberg.IdentityTransform{}, pt.Float64, nan(), func(f *commit.File) { f.NaNCounts[1] = 1 }, "NaN"},
		{"zero", iceberg.IdentityTransform{}, pt.Float64, 0.0, func(f *commit.File) { f.Lower[1], f.Upper[1] = le64(1<<63), le64(0) }, ""},
		{"void", iceberg.VoidTransform{}, pt.Int32, nil, func(f *commit.File) { f.Lower[1], f.Upper[1] = le32(1), le32(2) }, ""},
		{"void with a value", iceberg.VoidTransform{}, pt.Int32, int32(1), func(*commit.File) {}, "void"},
		{"value of another field", iceberg.IdentityTransform{}, pt.Int32, int32(1), func(f *commit.File) { f.Partition[0].FieldID = 7 }, "7"},
		{"value of another type", iceberg.IdentityTransform{}, pt.Int32, int32(1), func(f *commit.File) { f.Partition[0].Value = le64(1) }, "8 bytes"},
		{"value of before a promotion", iceberg.IdentityTransform{}, pt.Int64, int64(1), func(f *commit.File) { f.Partition[0].Value = le32(1) }, "4 bytes"},
		{"too few values", iceberg.IdentityTransform{}, pt.Int32, int32(1), func(f *commit.File) { f.Partition = nil }, "0 partition values"},
		{"another spec", iceberg.IdentityTransform{}, pt.Int32, int32(1), func(f *commit.File) { f.SpecID = 9 }, "spec 9"},
	}
	for _, c := range cases {
		schema := iceberg.NewSchema(0, column(1, "c", c.typ))
		spec := specOf(schema, c.transform)
		v := commit.PartitionValue{FieldID: 1000, Null: true}
		if c.value != nil {
			v = value(t, c.transform.ResultType(c.typ), c.value)
		}
		f := commit.File{Rows: 2, SpecID: 4, Partition: []commit.PartitionValue{v}, NullCounts: map[int]int64{}, NaNCounts: map[int]int64{}, Lower: map[int][]byte{}, Upper: map[int][]byte{}}
		c.change(&f)
		err := CheckPartition(schema, spec, f)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: want %q, got %v", c.name, c.says, err)
		}
	}
}

func nan() float64 { z := 0.0; return z / z }
