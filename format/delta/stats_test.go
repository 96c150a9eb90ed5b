package delta

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func one(name string, t Type) *Struct {
	return &Struct{Fields: []Field{{Name: name, Type: t, Nullable: true}}}
}

// statsText is the text for one column with bounds.
func statsText(t testing.TB, typ Type, lower, upper any) string {
	t.Helper()
	s, err := Stats{Rows: 3, Columns: []ColumnStats{{Path: []string{"c"}, Type: typ, Nulls: 1, Min: lower, Max: upper}}}.JSON(0)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid([]byte(s)) {
		t.Errorf("%s isn't JSON", s)
	}
	return s
}

func TestStatsBounds(t *testing.T) {
	nines := decimalOf(t, strings.Repeat("9", 38), 0)
	long := strings.Repeat("x", 40)
	for name, c := range map[string]struct {
		t            Type
		lower, upper any
		want         string // what stands between numRecords and nullCount
	}{
		"long":            {Long, int64(-9007199254740993), int64(math.MaxInt64), `"minValues":{"c":-9007199254740993},"maxValues":{"c":9223372036854775807}`},
		"decimal":         {DecimalType{38, 0}, decimalOf(t, "-1", 0), nines, `"minValues":{"c":-1},"maxValues":{"c":` + nines.String() + `}`},
		"decimal scale":   {DecimalType{18, 3}, decimalOf(t, "-999999999999999999", 3), decimalOf(t, "999999999999999999", 3), `"minValues":{"c":-999999999999999.999},"maxValues":{"c":999999999999999.999}`},
		"float":           {Float, float32(0.1), float32(1e10), `"minValues":{"c":0.1},"maxValues":{"c":1.0E10}`},
		"zeros":           {Double, 0.0, math.Copysign(0, -1), `"minValues":{"c":-0.0},"maxValues":{"c":0.0}`},
		"infinite":        {Double, math.Inf(-1), math.Inf(1), `"minValues":{},"maxValues":{}`},
		"NaN":             {Double, math.NaN(), math.NaN(), `"minValues":{},"maxValues":{}`},
		"date":            {Date, arrow.Date32(-1), arrow.Date32(19723), `"minValues":{"c":"1969-12-31"},"maxValues":{"c":"2024-01-01"}`},
		"far date":        {Date, arrow.Date32(-800000), arrow.Date32(2932897), `"minValues":{},"maxValues":{}`},
		"timestamp":       {Timestamp, micros(t, "2023-06-15 12:30:00.123456"), micros(t, "2023-06-15 12:30:00.123456"), `"minValues":{"c":"2023-06-15T12:30:00.123Z"},"maxValues":{"c":"2023-06-15T12:30:00.124Z"}`},
		"timestamp exact": {Timestamp, micros(t, "2023-06-15 12:30:00.123"), micros(t, "2023-06-15 12:30:00.123"), `"minValues":{"c":"2023-06-15T12:30:00.123Z"},"maxValues":{"c":"2023-06-15T12:30:00.123Z"}`},
		"before 1970":     {Timestamp, arrow.Timestamp(-1), arrow.Timestamp(-1), `"minValues":{"c":"1969-12-31T23:59:59.999Z"},"maxValues":{"c":"1970-01-01T00:00:00.000Z"}`},
		"zoneless":        {TimestampNTZ, micros(t, "2021-11-18 02:30:00.1234"), micros(t, "2021-11-18 02:30:00.1234"), `"minValues":{"c":"2021-11-18T02:30:00.123"},"maxValues":{"c":"2021-11-18T02:30:00.124"}`},
		"text":            {String, "", `a"<b>`, `"minValues":{"c":""},"maxValues":{"c":"a\"<b>"}`},
		"long text":       {String, long, long, `"minValues":{"c":"` + long[:32] + `"},"maxValues":{"c":"` + long[:32] + "\x7f" + `"}`},
		"exactly 32":      {String, long[:32], long[:32], `"minValues":{"c":"` + long[:32] + `"},"maxValues":{"c":"` + long[:32] + `"}`},
		"not UTF-8":       {String, "\xff", "\xff", `"minValues":{},"maxValues":{}`},
		"binary":          {Binary, []byte("a"), []byte("b"), `"minValues":{},"maxValues":{}`},
		"boolean":         {Boolean, false, true, `"minValues":{},"maxValues":{}`},
		"no bounds":       {Long, nil, nil, `"minValues":{},"maxValues":{}`},
	} {
		want := `{"numRecords":3,` + c.want + `,"nullCount":{"c":1}}`
		if diff := cmp.Diff(want, statsText(t, c.t, c.lower, c.upper)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestUpperBoundOfText(t *testing.T) {
	high := string(utf8.MaxRune)
	x := strings.Repeat("x", 32)
	for name, c := range map[string]struct {
		in, want string
		ok       bool
	}{
		"ASCII is cut":          {x + "yz", x + "\x7f", true},
		"DEL is cut":            {x + "\x7fz", x + high, true},
		"a letter is cut":       {x + "ü", x + high, true},
		"the highest letter":    {x + high, x + high, true},
		"highest, then another": {x + high + "a", x + high + "\x7f", true},
		"highest without end":   {x + strings.Repeat(high, 40), "", false},
		"short":                 {"abc", "abc", true},
		"counted in letters":    {strings.Repeat("ü", 32), strings.Repeat("ü", 32), true},
	} {
		got, ok := cutUpper(c.in, 0)
		if got != c.want || ok != c.ok {
			t.Errorf("%s: %q, %t, want %q, %t", name, got, ok, c.want, c.ok)
		}
	}
}

// TestBoundsHold: whatever the text, the bounds that other readers see lie around
// it, in the order of bytes.
func TestBoundsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.SampledFrom([]rune{'a', 'z', '\x7f', 'ü', '\u07ff', '\uffff', utf8.MaxRune, utf8.MaxRune, 0})
		s := string(rapid.SliceOfN(letters, 0, 80).Draw(t, "text"))
		prefix := rapid.IntRange(0, 40).Draw(t, "prefix")
		if lower, ok := cutLower(s, prefix); !ok || lower > s {
			t.Fatalf("lower bound %q of %q", lower, s)
		}
		if upper, ok := cutUpper(s, prefix); ok && (upper < s || !utf8.ValidString(upper)) {
			t.Fatalf("upper bound %q of %q", upper, s)
		}
	})
}

func TestStatsReadBack(t *testing.T) {
	tight := true
	schema := &Struct{Fields: []Field{
		{Name: "a", Type: Long},
		{Name: "s", Type: &Struct{Fields: []Field{{Name: "b", Type: String}, {Name: "l", Type: &Array{Element: Long}}}}},
		{Name: "t", Type: Timestamp},
		{Name: "d", Type: DecimalType{20, 2}},
	}}
	at := micros(t, "2023-06-15 12:30:00")
	in := Stats{Rows: 10, TightBounds: &tight, Columns: []ColumnStats{
		{Path: []string{"a"}, Type: Long, Nulls: 0, Min: int64(1), Max: int64(1 << 60)},
		{Path: []string{"s", "b"}, Type: String, Nulls: 3, Min: "a", Max: "b"},
		{Path: []string{"s", "l"}, Type: &Array{Element: Long}, Nulls: 4},
		{Path: []string{"t"}, Type: Timestamp, Nulls: 0, Min: at, Max: at},
		{Path: []string{"d"}, Type: DecimalType{20, 2}, Nulls: 0, Min: decimalOf(t, "-1", 2), Max: decimalOf(t, "99999999999999999999", 2)},
	}}
	text, err := in.JSON(0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseStats(schema, text)
	if err != nil {
		t.Fatal(err)
	}
	in.Columns[3].Max = at + 999 // a reader can't know that nothing was cut off
	if !reflect.DeepEqual(in, got) {
		t.Errorf("read %+v\nof %s\nwant %+v", got, text, in)
	}
}

// TestStatsOfOthers: what doesn't fit the schema says nothing.
func TestStatsOfOthers(t *testing.T) {
	for text, want := range map[string]Stats{
		`{}`:                                  {Rows: -1},
		`{"numRecords":"3"}`:                  {Rows: -1},
		`{"stats_json":"{\"numRecords\":3}"}`: {Rows: -1},
		`{"numRecords":-3}`:                   {Rows: -1},
		`{"numRecords":3,"minValues":{"c":"x"},"maxValues":{"c":1e99},"nullCount":{"c":1.5}}`: {Rows: 3},
		`{"numRecords":3,"minValues":[1],"maxValues":5,"nullCount":null}`:                     {Rows: 3},
		`{"numRecords":3,"minValues":{"c":"7"},"maxValues":{"other":1}}`:                      {Rows: 3, Columns: []ColumnStats{{Path: []string{"c"}, Type: Long, Nulls: -1, Min: int64(7)}}},
	} {
		got, err := ParseStats(one("c", Long), text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	if _, err := ParseStats(one("c", Long), "{"); err == nil {
		t.Error("half an object was read")
	}
}

func TestIndexedLeaves(t *testing.T) {
	schema := &Struct{}
	for i := range 36 {
		schema.Fields = append(schema.Fields, Field{Name: fmt.Sprintf("c%02d", i), Type: Long})
	}
	schema.Fields[1].Type = &Struct{Fields: []Field{{Name: "x", Type: Long}, {Name: "y.z", Type: String}}}
	names := func(properties map[string]string, also ...[]string) string {
		t.Helper()
		l, err := IndexedLeaves(schema, []string{"C00"}, properties, also...)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, x := range l {
			out = append(out, strings.Join(x.Path, "/"))
		}
		return strings.Join(out, " ")
	}
	if got := names(nil); len(strings.Fields(got)) != 32 || !strings.HasPrefix(got, "c01/x c01/y.z c02 ") {
		t.Errorf("by default: %s", got)
	}
	if got := names(map[string]string{PropertyIndexedColumns: "-1"}); len(strings.Fields(got)) != 36 {
		t.Errorf("all: %s", got)
	}
	if got := names(map[string]string{PropertyIndexedColumns: "0"}, []string{"c35"}); got != "c35" {
		t.Errorf("none but a clustering column: %s", got)
	}
	if got, want := names(map[string]string{PropertyStatsColumns: "c01.`y.z`, C03", PropertyIndexedColumns: "0"}), "c01/y.z c03"; got != want {
		t.Errorf("listed: %s, want %s", got, want)
	}
	for _, p := range []map[string]string{{PropertyIndexedColumns: "some"}, {PropertyIndexedColumns: "-2"}, {PropertyStatsColumns: "a,,b"}, {PropertyStatsColumns: "`a"}} {
		if _, err := IndexedLeaves(schema, nil, p); err == nil {
			t.Errorf("%v was accepted", p)
		}
	}
}

// batchOf makes a batch of a nullable double, a text and a struct of a long and
// a list.
func batchOf(t *testing.T, floats []float64, texts []string, longs []int64) (*Struct, arrow.RecordBatch) {
	t.Helper()
	schema := &Struct{Fields: []Field{
		{Name: "f", Type: Double, Nullable: true},
		{Name: "s", Type: String, Nullable: true},
		{Name: "o", Type: &Struct{Fields: []Field{{Name: "n", Type: Long, Nullable: true}, {Name: "l", Type: &Array{Element: Long, ContainsNull: true}, Nullable: true}}}, Nullable: true},
		{Name: "d", Type: DecimalType{10, 2}, Nullable: true},
	}}
	as, err := ArrowSchema(schema)
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, as)
	defer b.Release()
	o := b.Field(2).(*array.StructBuilder)
	for i := range floats {
		b.Field(0).(*array.Float64Builder).Append(floats[i])
		if texts[i] == "null" {
			b.Field(1).AppendNull()
			o.AppendNull()
			b.Field(3).AppendNull()
			continue
		}
		b.Field(1).(*array.StringBuilder).Append(texts[i])
		o.Append(true)
		o.FieldBuilder(0).(*array.Int64Builder).Append(longs[i])
		o.FieldBuilder(1).AppendNull()
		b.Field(3).(*array.Decimal128Builder).Append(decimal128.FromI64(longs[i]))
	}
	return schema, b.NewRecordBatch()
}

func TestStatsBuilder(t *testing.T) {
	schema, first := batchOf(t, []float64{1, math.NaN(), -2}, []string{"b", "null", "a"}, []int64{5, 0, 7})
	defer first.Release()
	_, second := batchOf(t, []float64{0}, []string{"c"}, []int64{-5})
	defer second.Release()
	b := NewStatsBuilder(Leaves(schema))
	for _, batch := range []arrow.RecordBatch{first, second} {
		if err := b.Add(batch); err != nil {
			t.Fatal(err)
		}
	}
	text, err := b.Stats().JSON(0)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"numRecords":4,"minValues":{"f":-2.0,"s":"a","o":{"n":-5},"d":-0.05},` +
		`"maxValues":{"s":"c","o":{"n":7},"d":0.07},"nullCount":{"f":0,"s":1,"o":{"n":1,"l":4},"d":1}}`
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("statistics (-want +got):\n%s", diff)
	}
	if err := NewStatsBuilder([]Leaf{{Path: []string{"f"}, Type: Long}}).Add(first); err == nil {
		t.Error("a column of another type was taken")
	}
	if err := NewStatsBuilder([]Leaf{{Path: []string{"none"}, Type: Long}}).Add(first); err == nil {
		t.Error("a missing column was passed over")
	}
}

func FuzzStats(f *testing.F) {
	f.Add(`{"numRecords":3,"minValues":{"c":1,"s":{"t":"2023-06-15T12:30:00.123Z"}},"maxValues":{"c":2},"nullCount":{"c":0}}`)
	schema := &Struct{Fields: []Field{
		{Name: "c", Type: Long},
		{Name: "f", Type: Double},
		{Name: "x", Type: String},
		{Name: "d", Type: DecimalType{38, 10}},
		{Name: "e", Type: Date},
		{Name: "s", Type: &Struct{Fields: []Field{{Name: "t", Type: Timestamp}, {Name: "n", Type: TimestampNTZ}}}},
	}}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseStats(schema, text)
		if err != nil || s.Rows < 0 {
			return
		}
		out, err := s.JSON(0)
		if err != nil || !json.Valid([]byte(out)) {
			t.Fatalf("%s: %v", out, err)
		}
		if _, err := ParseStats(schema, out); err != nil {
			t.Fatal(err)
		}
	})
}
