package render

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"
)

// column builds a column of one type.
func column(t *testing.T, typ arrow.DataType, fill func(array.Builder)) arrow.Array {
	t.Helper()
	b := array.NewBuilder(memory.DefaultAllocator, typ)
	defer b.Release()
	fill(b)
	return b.NewArray()
}

func one(batches ...arrow.RecordBatch) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		for _, b := range batches {
			if !yield(b, nil) {
				return
			}
		}
	}
}

func batch(names []string, cols ...arrow.Array) arrow.RecordBatch {
	fields := make([]arrow.Field, len(cols))
	for i, c := range cols {
		fields[i] = arrow.Field{Name: names[i], Type: c.DataType(), Nullable: true}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, int64(cols[0].Len()))
}

func show(t *testing.T, f Format, schema *arrow.Schema, rows iter.Seq2[arrow.RecordBatch, error]) string {
	t.Helper()
	var b strings.Builder
	if _, err := Rows(&b, f, schema, rows); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestValuesAsJSON(t *testing.T) {
	day := int64(24 * time.Hour / time.Microsecond)
	for name, tc := range map[string]struct {
		typ  arrow.DataType
		fill func(array.Builder)
		want string
	}{
		"bool":        {arrow.FixedWidthTypes.Boolean, func(b array.Builder) { b.(*array.BooleanBuilder).Append(true) }, `true`},
		"null":        {arrow.PrimitiveTypes.Int64, func(b array.Builder) { b.AppendNull() }, `null`},
		"int 2^53":    {arrow.PrimitiveTypes.Int64, func(b array.Builder) { b.(*array.Int64Builder).Append(1 << 53) }, `9007199254740992`},
		"int 2^53+1":  {arrow.PrimitiveTypes.Int64, func(b array.Builder) { b.(*array.Int64Builder).Append(1<<53 + 1) }, `"9007199254740993"`},
		"int -2^53-1": {arrow.PrimitiveTypes.Int64, func(b array.Builder) { b.(*array.Int64Builder).Append(-1<<53 - 1) }, `"-9007199254740993"`},
		"uint max":    {arrow.PrimitiveTypes.Uint64, func(b array.Builder) { b.(*array.Uint64Builder).Append(math.MaxUint64) }, `"18446744073709551615"`},
		"float":       {arrow.PrimitiveTypes.Float64, func(b array.Builder) { b.(*array.Float64Builder).Append(0.1) }, `0.1`},
		"float32":     {arrow.PrimitiveTypes.Float32, func(b array.Builder) { b.(*array.Float32Builder).Append(0.1) }, `0.1`},
		"large float": {arrow.PrimitiveTypes.Float64, func(b array.Builder) { b.(*array.Float64Builder).Append(1e300) }, `1e+300`},
		"NaN":         {arrow.PrimitiveTypes.Float64, func(b array.Builder) { b.(*array.Float64Builder).Append(math.NaN()) }, `"NaN"`},
		"-Infinity":   {arrow.PrimitiveTypes.Float32, func(b array.Builder) { b.(*array.Float32Builder).Append(float32(math.Inf(-1))) }, `"-Infinity"`},
		"small decimal": {&arrow.Decimal128Type{Precision: 38}, func(b array.Builder) {
			b.(*array.Decimal128Builder).Append(decimal128.FromI64(2194861208))
		}, `2194861208`},
		"decimal of 15 digits": {&arrow.Decimal128Type{Precision: 38, Scale: 2}, func(b array.Builder) {
			b.(*array.Decimal128Builder).Append(decimal128.FromI64(-123456789012345))
		}, `-1234567890123.45`},
		"decimal of 16 digits": {&arrow.Decimal128Type{Precision: 38, Scale: 2}, func(b array.Builder) {
			b.(*array.Decimal128Builder).Append(decimal128.FromI64(1234567890123456))
		}, `"12345678901234.56"`},
		"small fraction": {&arrow.Decimal128Type{Precision: 38, Scale: 20}, func(b array.Builder) {
			b.(*array.Decimal128Builder).Append(decimal128.FromI64(5))
		}, `0.00000000000000000005`},
		"text":            {arrow.BinaryTypes.String, func(b array.Builder) { b.(*array.StringBuilder).Append("a\"b\n<é>\x01") }, `"a\"b\n<é>\u0001"`},
		"binary":          {arrow.BinaryTypes.Binary, func(b array.Builder) { b.(*array.BinaryBuilder).Append([]byte{0, 255}) }, `"AP8="`},
		"date":            {arrow.FixedWidthTypes.Date32, func(b array.Builder) { b.(*array.Date32Builder).Append(-1) }, `"1969-12-31"`},
		"far date":        {arrow.FixedWidthTypes.Date32, func(b array.Builder) { b.(*array.Date32Builder).Append(10_000_000) }, `"29349-01-26"`},
		"infinite date":   {arrow.FixedWidthTypes.Date32, func(b array.Builder) { b.(*array.Date32Builder).Append(math.MaxInt32) }, `"infinity"`},
		"time":            {arrow.FixedWidthTypes.Time64us, func(b array.Builder) { b.(*array.Time64Builder).Append(3723_000_500) }, `"01:02:03.0005"`},
		"timestamp":       {&arrow.TimestampType{Unit: arrow.Microsecond}, func(b array.Builder) { b.(*array.TimestampBuilder).Append(arrow.Timestamp(-1)) }, `"1969-12-31T23:59:59.999999"`},
		"timestamptz":     {&arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "Europe/Vienna"}, func(b array.Builder) { b.(*array.TimestampBuilder).Append(arrow.Timestamp(day)) }, `"1970-01-02T00:00:00Z"`},
		"timestamp in ns": {&arrow.TimestampType{Unit: arrow.Nanosecond}, func(b array.Builder) { b.(*array.TimestampBuilder).Append(1) }, `"1970-01-01T00:00:00.000000001"`},
		"uuid": {extensions.NewUUIDType(), func(b array.Builder) {
			b.(*extensions.UUIDBuilder).Append(uuid.MustParse("00112233-4455-6677-8899-aabbccddeeff"))
		}, `"00112233-4455-6677-8899-aabbccddeeff"`},
		"list": {arrow.ListOf(arrow.PrimitiveTypes.Int64), func(b array.Builder) {
			l := b.(*array.ListBuilder)
			l.Append(true)
			l.ValueBuilder().(*array.Int64Builder).AppendValues([]int64{1, 1<<53 + 1}, nil)
			l.ValueBuilder().AppendNull()
		}, `[1,"9007199254740993",null]`},
		"empty list": {arrow.ListOf(arrow.PrimitiveTypes.Int64), func(b array.Builder) { b.(*array.ListBuilder).Append(true) }, `[]`},
		"struct": {arrow.StructOf(arrow.Field{Name: "a\"", Type: arrow.PrimitiveTypes.Int32, Nullable: true}, arrow.Field{Name: "b", Type: arrow.BinaryTypes.String, Nullable: true}), func(b array.Builder) {
			s := b.(*array.StructBuilder)
			s.Append(true)
			s.FieldBuilder(0).(*array.Int32Builder).Append(7)
			s.FieldBuilder(1).AppendNull()
		}, `{"a\"":7,"b":null}`},
		"map of text": {arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32), func(b array.Builder) {
			m := b.(*array.MapBuilder)
			m.Append(true)
			m.KeyBuilder().(*array.StringBuilder).Append("k")
			m.ItemBuilder().(*array.Int32Builder).Append(1)
		}, `{"k":1}`},
		"map of numbers": {arrow.MapOf(arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int32), func(b array.Builder) {
			m := b.(*array.MapBuilder)
			m.Append(true)
			m.KeyBuilder().(*array.Int32Builder).Append(5)
			m.ItemBuilder().(*array.Int32Builder).Append(1)
		}, `[{"key":5,"value":1}]`},
	} {
		t.Run(name, func(t *testing.T) {
			// The value stands behind another one and in a slice, so that offsets count.
			b := array.NewBuilder(memory.DefaultAllocator, tc.typ)
			b.AppendNull()
			tc.fill(b)
			all := b.NewArray()
			got := show(t, JSON, nil, one(batch([]string{"v"}, array.NewSlice(all, 1, 2))))
			if want := `[{"v":` + tc.want + "}]\n"; got != want {
				t.Errorf("got %s want %s", got, want)
			}
			if !json.Valid([]byte(got)) {
				t.Errorf("not JSON: %s", got)
			}
		})
	}
}

func example(t *testing.T) arrow.RecordBatch {
	t.Helper()
	n := column(t, arrow.PrimitiveTypes.Int64, func(b array.Builder) {
		b.(*array.Int64Builder).AppendValues([]int64{1, 0, 300}, []bool{true, false, true})
	})
	s := column(t, arrow.BinaryTypes.String, func(b array.Builder) {
		b.(*array.StringBuilder).AppendValues([]string{"", "é,\"x\"", "two\nlines"}, nil)
	})
	return batch([]string{"n", "s"}, n, s)
}

func TestFormats(t *testing.T) {
	b := example(t)
	for f, want := range map[Format]string{
		JSON:  `[{"n":1,"s":""},{"n":null,"s":"é,\"x\""},{"n":300,"s":"two\nlines"}]` + "\n",
		JSONL: `{"n":1,"s":""}` + "\n" + `{"n":null,"s":"é,\"x\""}` + "\n" + `{"n":300,"s":"two\nlines"}` + "\n",
		CSV:   "n,s\n1,\"\"\n,\"é,\"\"x\"\"\"\n300,\"two\nlines\"\n",
		Text:  "   n  s\n----  ----------\n   1\nNULL  é,\"x\"\n 300  two\\nlines\n",
	} {
		if got := show(t, f, nil, one(b)); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", f, got, want)
		}
	}
	if rows, err := csv.NewReader(strings.NewReader(show(t, CSV, nil, one(b)))).ReadAll(); err != nil || len(rows) != 4 || rows[2][1] != `é,"x"` {
		t.Errorf("another CSV reader sees %v, %v", rows, err)
	}
}

func TestNoRows(t *testing.T) {
	schema := example(t).Schema()
	for f, want := range map[Format]string{JSON: "[]\n", JSONL: "", CSV: "n,s\n", Text: "n  s\n-  -\n"} {
		if got := show(t, f, schema, one()); got != want {
			t.Errorf("%s: got %q want %q", f, got, want)
		}
	}
}

func TestEqualNamesStayApart(t *testing.T) {
	b := example(t)
	n := b.Column(0)
	got := show(t, JSONL, nil, one(batch([]string{"a", "a", "a_1", "a"}, n, n, n, n).NewSlice(0, 1)))
	if want := `{"a":1,"a_2":1,"a_1":1,"a_3":1}` + "\n"; got != want {
		t.Errorf("got %s want %s", got, want)
	}
}

func TestSeveralBatchesAreOneResult(t *testing.T) {
	b := example(t).NewSlice(0, 1)
	if got, want := show(t, JSON, nil, one(b, b)), `[{"n":1,"s":""},{"n":1,"s":""}]`+"\n"; got != want {
		t.Errorf("got %s want %s", got, want)
	}
	many := make([]arrow.RecordBatch, 2*sample)
	for i := range many {
		many[i] = b
	}
	if got := strings.Count(show(t, Text, nil, one(many...)), "\n"); got != 2*sample+2 {
		t.Errorf("%d lines", got)
	}
}

func TestAnErrorEndsTheRowsAndIsTold(t *testing.T) {
	broken := errors.New("lost")
	var b strings.Builder
	n, err := Rows(&b, JSONL, nil, func(yield func(arrow.RecordBatch, error) bool) {
		_ = yield(example(t), nil) && yield(nil, broken)
	})
	if n != 3 || !errors.Is(err, broken) || strings.Count(b.String(), "\n") != 3 {
		t.Errorf("got %d, %v, %q", n, err, b.String())
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestAFailedWriteIsTold(t *testing.T) {
	for _, f := range []Format{Text, JSON, JSONL, CSV} {
		if _, err := Rows(fullDisk{}, f, nil, one(example(t))); err == nil {
			t.Errorf("%s: want an error", f)
		}
		if err := List(fullDisk{}, f, []string{"a"}, []string{"x"}, func(s string) []string { return []string{s} }); err == nil {
			t.Errorf("%s: want an error of List", f)
		}
	}
}

func TestList(t *testing.T) {
	type item struct {
		A string `json:"a"`
	}
	cells := func(i item) []string { return []string{i.A, "x"} }
	items := []item{{"<é>"}, {"b\tc"}}
	for f, want := range map[Format]string{
		JSON:  `[{"a":"<é>"},{"a":"b\tc"}]` + "\n",
		JSONL: `{"a":"<é>"}` + "\n" + `{"a":"b\tc"}` + "\n",
		CSV:   "h1,h2\n<é>,x\nb\tc,x\n",
		Text:  "h1    h2\n----  --\n<é>   x\nb\\tc  x\n",
	} {
		var b strings.Builder
		if err := List(&b, f, []string{"h1", "h2"}, items, cells); err != nil || b.String() != want {
			t.Errorf("%s: got %v\n%q\nwant\n%q", f, err, b.String(), want)
		}
	}
	var b strings.Builder
	if err := List(&b, JSON, nil, nil, cells); err != nil || b.String() != "[]\n" {
		t.Errorf("no items: %q", b.String())
	}
}
