package iceberg_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	ice "github.com/apache/iceberg-go"

	"github.com/firn-project/firn/format/footer"
	"github.com/firn-project/firn/format/iceberg"
)

// fileOf writes rows as another program would, and reads the footer.
func fileOf(t testing.TB, schema *arrow.Schema, rows string, opts ...parquet.WriterProperty) *footer.Footer {
	t.Helper()
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	return footerOf(t, b, opts...)
}

func footerOf(t testing.TB, b arrow.RecordBatch, opts ...parquet.WriterProperty) *footer.Footer {
	t.Helper()
	defer b.Release()
	var out bytes.Buffer
	w, err := pqarrow.NewFileWriter(b.Schema(), &out, parquet.NewWriterProperties(opts...), pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	raw := out.Bytes()
	n, why := footer.Length(raw, int64(len(raw)))
	if why != nil {
		t.Fatal(why)
	}
	end := int64(len(raw)) - footer.Trailer
	f, err := footer.Parse(raw[end-n:end], int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func fieldWithID(id int, name string, typ arrow.DataType, nullable bool) arrow.Field {
	return arrow.Field{Name: name, Type: typ, Nullable: nullable, Metadata: arrow.NewMetadata([]string{iceberg.FieldIDKey}, []string{fmt.Sprint(id)})}
}

func said(text string) map[string]*string { return map[string]*string{"p": &text} }

var sayNull = map[string]*string{"p": nil}

// What every transform gives of the rows' bounds, and what is refused.
func TestDerivePartitionOfEachTransform(t *testing.T) {
	ts := &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	str, num := arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64
	for _, c := range []struct {
		name      string
		typ       arrow.DataType
		table     ice.Type
		transform ice.Transform
		rows      string // values of v
		say       map[string]*string
		want      string // as value, "null", or the refusal
	}{
		{"identity", str, ice.PrimitiveTypes.String, ice.IdentityTransform{}, `"a","a"`, nil, "a"},
		{"identity of two", str, ice.PrimitiveTypes.String, ice.IdentityTransform{}, `"a","b"`, nil, `refused: the file spans two partitions: v has a, which gives a, and b, which gives b`},
		{"identity of two, said to be one", str, ice.PrimitiveTypes.String, ice.IdentityTransform{}, `"a","b"`, said("a"), `refused: the file spans two partitions`},
		{"all null", str, ice.PrimitiveTypes.String, ice.IdentityTransform{}, `null,null`, nil, "null"},
		{"all null, and said so", str, ice.PrimitiveTypes.String, ice.IdentityTransform{}, `null,null`, sayNull, "null"},
		{"all null, said to be a", str, ice.PrimitiveTypes.String, ice.IdentityTransform{}, `null,null`, said("a"), "refused: the manifest says a, and the file has null"},
		{"null and a", str, ice.PrimitiveTypes.String, ice.IdentityTransform{}, `null,"a"`, nil, "refused: the file spans two partitions: 1 of its 2 rows have null in v"},
		{"null and a, said to be a", str, ice.PrimitiveTypes.String, ice.IdentityTransform{}, `null,"a"`, said("a"), "refused: the file spans two partitions"},
		{"a, said to be null", str, ice.PrimitiveTypes.String, ice.IdentityTransform{}, `"a"`, sayNull, "refused: the manifest says null"},
		{"a, said to be b", str, ice.PrimitiveTypes.String, ice.IdentityTransform{}, `"a"`, said("b"), "refused: the manifest says b, and the file has a"},
		{"void", str, ice.PrimitiveTypes.String, ice.VoidTransform{}, `"a","b"`, nil, "null"},
		{"void, said to be a", str, ice.PrimitiveTypes.String, ice.VoidTransform{}, `"a"`, said("a"), "refused: the manifest says \"a\": the field is void"},
		{"bucket of one value", num, ice.PrimitiveTypes.Int64, ice.BucketTransform{NumBuckets: 16}, `34,34`, nil, "3"},
		{"bucket of two values, one bucket", num, ice.PrimitiveTypes.Int64, ice.BucketTransform{NumBuckets: 1}, `1,2`, nil, "refused: the statistics of v don't show that all rows have one value of bucket[1]"},
		{"bucket of two values, said", num, ice.PrimitiveTypes.Int64, ice.BucketTransform{NumBuckets: 1}, `1,2`, said("0"), "0"},
		{"bucket of two buckets", num, ice.PrimitiveTypes.Int64, ice.BucketTransform{NumBuckets: 16}, `34,35`, said("3"), "refused: the file spans two partitions: v has 34, which gives 3, and 35, which gives 5"},
		{"bucket of two values in one, said", num, ice.PrimitiveTypes.Int64, ice.BucketTransform{NumBuckets: 2}, `34,35`, said("1"), "1"},
		{"bucket of two values in one, another said", num, ice.PrimitiveTypes.Int64, ice.BucketTransform{NumBuckets: 2}, `34,35`, said("0"), "refused: the manifest says 0, and the file has 1"},
		{"bucket, another said", num, ice.PrimitiveTypes.Int64, ice.BucketTransform{NumBuckets: 16}, `34`, said("4"), "refused: the manifest says 4, and the file has 3"},
		{"bucket that there isn't", num, ice.PrimitiveTypes.Int64, ice.BucketTransform{NumBuckets: 16}, `34`, said("16"), "refused: the manifest says bucket 16 of 16"},
		{"truncated numbers", num, ice.PrimitiveTypes.Int64, ice.TruncateTransform{Width: 10}, `-9,-1,-10`, nil, "-10"},
		{"truncated numbers of two", num, ice.PrimitiveTypes.Int64, ice.TruncateTransform{Width: 10}, `-1,0`, nil, "refused: the file spans two partitions: v has -1, which gives -10, and 0, which gives 0"},
		{"truncated text", str, ice.PrimitiveTypes.String, ice.TruncateTransform{Width: 2}, `"日本語","日本人"`, nil, "日本"},
		{"year", ts, ice.PrimitiveTypes.TimestampTz, ice.YearTransform{}, `"1969-01-01 00:00:00Z","1969-12-31 23:59:59.999999Z"`, nil, "-1"},
		{"two years", ts, ice.PrimitiveTypes.TimestampTz, ice.YearTransform{}, `"1969-12-31 23:59:59.999999Z","1970-01-01 00:00:00Z"`, said("1970"), "refused: the file spans two partitions"},
		{"month", ts, ice.PrimitiveTypes.TimestampTz, ice.MonthTransform{}, `"2020-02-01 00:00:00Z","2020-02-29 23:59:59Z"`, said("2020-02"), "601"},
		{"month, another said", ts, ice.PrimitiveTypes.TimestampTz, ice.MonthTransform{}, `"2020-02-01 00:00:00Z"`, said("2020-03"), "refused: the manifest says 602, and the file has 601"},
		{"month, said as no month", ts, ice.PrimitiveTypes.TimestampTz, ice.MonthTransform{}, `"2020-02-01 00:00:00Z"`, said("2020-02-01"), "refused: the manifest says \"2020-02-01\": it isn't of the form of 2006-01"},
		{"day", ts, ice.PrimitiveTypes.TimestampTz, ice.DayTransform{}, `"1970-01-02 00:00:00Z","1970-01-02 23:00:00Z"`, said("1970-01-02"), "1"},
		{"hour", ts, ice.PrimitiveTypes.TimestampTz, ice.HourTransform{}, `"1970-01-01 05:00:00Z","1970-01-01 05:59:59.999999Z"`, said("1970-01-01-05"), "5"},
		{"two hours", ts, ice.PrimitiveTypes.TimestampTz, ice.HourTransform{}, `"1970-01-01 05:00:00Z","1970-01-01 06:00:00Z"`, nil, "refused: the file spans two partitions"},
		{"float", arrow.PrimitiveTypes.Float64, ice.PrimitiveTypes.Float64, ice.IdentityTransform{}, `1.5,1.5`, nil, "refused: the statistics of v don't show"},
		{"float, said", arrow.PrimitiveTypes.Float64, ice.PrimitiveTypes.Float64, ice.IdentityTransform{}, `1.5,1.5`, said("1.5"), "1.5"},
		{"float, another said", arrow.PrimitiveTypes.Float64, ice.PrimitiveTypes.Float64, ice.IdentityTransform{}, `1.5,1.5`, said("2.5"), "refused: the manifest says 2.5, and the file has 1.5"},
		{"float, said to be NaN", arrow.PrimitiveTypes.Float64, ice.PrimitiveTypes.Float64, ice.IdentityTransform{}, `1.5`, said("NaN"), "refused: the manifest says NaN"},
		{"a zero", arrow.PrimitiveTypes.Float64, ice.PrimitiveTypes.Float64, ice.IdentityTransform{}, `0,0`, said("-0.0"), "-0"},
		{"a field that there isn't", str, ice.PrimitiveTypes.String, ice.IdentityTransform{}, `"a"`, map[string]*string{"q": nil}, `refused: the manifest has a value of the partition field "q"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			schema := ice.NewSchema(0, ice.NestedField{ID: 1, Name: "v", Type: c.table})
			spec := ice.NewPartitionSpecID(1, ice.PartitionField{SourceIDs: []int{1}, FieldID: 1000, Name: "p", Transform: c.transform})
			d, err := iceberg.NewDeriver(schema, spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			var rows []string
			for v := range strings.SplitSeq(c.rows, ",") {
				rows = append(rows, `{"v":`+v+`}`)
			}
			f := fileOf(t, arrow.NewSchema([]arrow.Field{fieldWithID(1, "v", c.typ, true)}, nil), "["+strings.Join(rows, ",")+"]")
			got, err := d.File(f, footer.Claim{Rows: -1, Size: -1, Partition: c.say})
			if why, ok := strings.CutPrefix(c.want, "refused: "); ok {
				e, _ := err.(*footer.Error) //nolint:errorlint // nothing wraps it
				if e == nil || !strings.Contains(e.Why, why) || e.Hint == "" {
					t.Errorf("%v, want %q and a hint", err, why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := valueText(t, schema, spec, got.Partition[0].Null, got.Partition[0].Value); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if err := iceberg.CheckPartition(schema, spec, got); err != nil {
				t.Error(err)
			}
		})
	}
}

func valueText(t *testing.T, schema *ice.Schema, spec ice.PartitionSpec, null bool, raw []byte) string {
	t.Helper()
	if null {
		return "null"
	}
	fields, err := iceberg.PartitionFields(schema, spec)
	if err != nil {
		t.Fatal(err)
	}
	v, err := iceberg.DecodeValue(fields[0].Type, raw)
	if err != nil {
		t.Fatal(err)
	}
	if d, ok := v.(ice.Date); ok {
		return fmt.Sprint(int32(d))
	}
	return fmt.Sprint(v)
}

// Without statistics nothing is derived; what was handed in is taken.
func TestDeriveWithoutStatistics(t *testing.T) {
	schema := ice.NewSchema(0, ice.NestedField{ID: 1, Name: "v", Type: ice.PrimitiveTypes.String})
	spec := ice.NewPartitionSpecID(1, ice.PartitionField{SourceIDs: []int{1}, FieldID: 1000, Name: "p", Transform: ice.IdentityTransform{}})
	d, err := iceberg.NewDeriver(schema, spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := func(nullable bool) *footer.Footer {
		return fileOf(t, arrow.NewSchema([]arrow.Field{fieldWithID(1, "v", arrow.BinaryTypes.String, nullable)}, nil), `[{"v":"a"},{"v":"a"}]`, parquet.WithStats(false))
	}
	if _, err := d.File(file(true), footer.Claim{Rows: -1, Size: -1}); err == nil || !strings.Contains(err.Error(), "doesn't say how many nulls") {
		t.Errorf("nothing said: %v", err)
	}
	if _, err := d.File(file(false), footer.Claim{Rows: -1, Size: -1}); err == nil || !strings.Contains(err.Error(), "don't show that all rows have one value") {
		t.Errorf("nothing said of a required column: %v", err)
	}
	got, err := d.File(file(true), footer.Claim{Rows: 2, Size: -1, Partition: said("a")})
	if err != nil || string(got.Partition[0].Value) != "a" || len(got.Lower)+len(got.Upper)+len(got.NullCounts) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// What a file must have, and may have.
func TestDeriveColumns(t *testing.T) {
	schema := ice.NewSchema(0,
		ice.NestedField{ID: 1, Name: "id", Type: ice.PrimitiveTypes.Int64, Required: true},
		ice.NestedField{ID: 2, Name: "s", Type: ice.PrimitiveTypes.String},
		ice.NestedField{ID: 3, Name: "st", Type: &ice.StructType{FieldList: []ice.NestedField{{ID: 4, Name: "x", Type: ice.PrimitiveTypes.Int32, Required: true}}}},
		ice.NestedField{ID: 5, Name: "list", Type: &ice.ListType{ElementID: 6, Element: ice.PrimitiveTypes.Int32}, Required: false},
	)
	d, err := iceberg.NewDeriver(schema, ice.NewPartitionSpecID(0), nil)
	if err != nil {
		t.Fatal(err)
	}
	i64, i32, str := arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String
	id, s := fieldWithID(1, "id", i64, false), fieldWithID(2, "s", str, true)
	element := func(id int) arrow.DataType { return arrow.ListOfField(fieldWithID(id, "element", i32, true)) }
	for name, c := range map[string]struct {
		fields []arrow.Field
		rows   string
		want   string // "" for taken
	}{
		"all":                        {[]arrow.Field{id, s, fieldWithID(3, "st", arrow.StructOf(fieldWithID(4, "x", i32, false)), true), fieldWithID(5, "list", element(6), true)}, `[{"id":1,"s":"a","st":{"x":1},"list":[1]}]`, ""},
		"an optional one missing":    {[]arrow.Field{id}, `[{"id":1}]`, ""},
		"another order and name":     {[]arrow.Field{fieldWithID(2, "text", str, true), id}, `[{"id":1,"text":"a"}]`, ""},
		"a narrower number":          {[]arrow.Field{fieldWithID(1, "id", i32, false)}, `[{"id":1}]`, ""},
		"optional, without nulls":    {[]arrow.Field{fieldWithID(1, "id", i64, true)}, `[{"id":1}]`, ""},
		"optional, with nulls":       {[]arrow.Field{fieldWithID(1, "id", i64, true)}, `[{"id":1},{"id":null}]`, `column "id" may not be null, and the file has 1 nulls in it`},
		"a required one missing":     {[]arrow.Field{s}, `[{"s":"a"}]`, `column "id" may not be null, and the file doesn't have it`},
		"one that isn't the table's": {[]arrow.Field{id, fieldWithID(77, "more", i64, true)}, `[{"id":1,"more":1}]`, `"more" of the file has the field id 77`},
		"one without an id":          {[]arrow.Field{id, {Name: "s", Type: str, Nullable: true}}, `[{"id":1,"s":"a"}]`, `column "s" of the file has no field id`},
		"two of one id":              {[]arrow.Field{id, s, fieldWithID(2, "s2", str, true)}, `[{"id":1,"s":"a","s2":"b"}]`, `have one field id, 2`},
		"another type":               {[]arrow.Field{fieldWithID(1, "id", str, false)}, `[{"id":"1"}]`, `column "id" is stored as STRING on BYTE_ARRAY: the table has long`},
		"binary for text":            {[]arrow.Field{id, fieldWithID(2, "s", arrow.BinaryTypes.Binary, true)}, `[{"id":1,"s":"aGk="}]`, `column "s" is stored as BYTE_ARRAY: the table has string`},
		"a plain one for a struct":   {[]arrow.Field{id, fieldWithID(3, "st", i32, true)}, `[{"id":1,"st":1}]`, `column "st" is a struct in the table`},
		"a struct for a plain one":   {[]arrow.Field{id, fieldWithID(2, "s", arrow.StructOf(fieldWithID(4, "x", i32, false)), true)}, `[{"id":1,"s":{"x":1}}]`, `column "s" is no struct`},
		"an element of another id":   {[]arrow.Field{id, fieldWithID(5, "list", element(7), true)}, `[{"id":1,"list":[1]}]`, `field id 7 in the file and 6 in the table`},
		"a null struct around it":    {[]arrow.Field{id, fieldWithID(3, "st", arrow.StructOf(fieldWithID(4, "x", i32, false)), true)}, `[{"id":1,"st":null}]`, ""},
		"an optional in a null struct": {
			[]arrow.Field{id, fieldWithID(3, "st", arrow.StructOf(fieldWithID(4, "x", i32, true)), true)},
			`[{"id":1,"st":null}]`,
			`column "st.x" may not be null, and the file counts 1 nulls in it or around it`,
		},
	} {
		_, err := d.File(fileOf(t, arrow.NewSchema(c.fields, nil), c.rows), footer.Claim{Rows: -1, Size: -1})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	one := fileOf(t, arrow.NewSchema([]arrow.Field{id}, nil), `[{"id":1}]`)
	for want, claim := range map[string]footer.Claim{
		"it has 1 rows, and the manifest says 2":          {Rows: 2, Size: -1},
		fmt.Sprintf("it has %d bytes, and the", one.Size): {Rows: 1, Size: 1},
	} {
		if _, err := d.File(one, claim); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Texts of partition values that are none.
func TestPartitionTextsThatAreNone(t *testing.T) {
	p := ice.PrimitiveTypes
	for _, c := range []struct {
		transform ice.Transform
		typ       ice.Type
		text      string
	}{
		{ice.IdentityTransform{}, p.Bool, "TRUE"},
		{ice.IdentityTransform{}, p.Int32, "2147483648"},
		{ice.IdentityTransform{}, p.Int64, "1.0"},
		{ice.IdentityTransform{}, p.Float64, "0x1p3"},
		{ice.IdentityTransform{}, p.Float64, "1e999"},
		{ice.IdentityTransform{}, p.Float64, "nan"},
		{ice.IdentityTransform{}, ice.DecimalTypeOf(5, 2), "1000.00"},
		{ice.IdentityTransform{}, ice.DecimalTypeOf(5, 2), "1.001"},
		{ice.IdentityTransform{}, ice.DecimalTypeOf(5, 2), "1e2"},
		{ice.IdentityTransform{}, ice.DecimalTypeOf(5, 2), ""},
		{ice.IdentityTransform{}, ice.DecimalTypeOf(5, 2), "1-2"},
		{ice.IdentityTransform{}, p.Date, "2020-02-30"},
		{ice.IdentityTransform{}, p.Time, "24:00:00"},
		{ice.IdentityTransform{}, p.Time, "01:00:00.1234567"},
		{ice.IdentityTransform{}, p.Timestamp, "2020-01-01T00:00:00Z"},
		{ice.IdentityTransform{}, p.TimestampTz, "2020-01-01T00:00:00"},
		{ice.IdentityTransform{}, p.Timestamp, "2020-01-01T00:00:00,5"},
		{ice.IdentityTransform{}, p.String, "\xff"},
		{ice.IdentityTransform{}, p.UUID, "0123456789abcdef0123456789abcdef"},
		{ice.IdentityTransform{}, p.Binary, "!"},
		{ice.IdentityTransform{}, ice.FixedTypeOf(3), "aGk="},
		{ice.YearTransform{}, p.Int32, "50"},
		{ice.HourTransform{}, p.Int32, "2020-01-01-24"},
		{ice.BucketTransform{NumBuckets: 3}, p.Int32, "x"},
	} {
		if v, err := iceberg.ParsePartitionText(c.transform, c.typ, c.text); err == nil {
			t.Errorf("%s of %s: %q is %v", c.transform, c.typ, c.text, v)
		}
	}
	if v, err := iceberg.ParsePartitionText(ice.IdentityTransform{}, p.TimestampTz, "2020-01-01T02:00:00.000001+02:00"); err != nil || v != ice.Timestamp(1577836800000001) {
		t.Errorf("%v, %v", v, err)
	}
	if v, err := iceberg.ParsePartitionText(ice.IdentityTransform{}, p.Float64, "NaN"); err != nil || !math.IsNaN(v.(float64)) {
		t.Errorf("%v, %v", v, err)
	}
	if v, err := iceberg.ParsePartitionText(ice.IdentityTransform{}, p.Time, "23:59:59.5"); err != nil || v != ice.Time(86399500000) {
		t.Errorf("%v, %v", v, err)
	}
}
