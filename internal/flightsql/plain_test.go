package flightsql

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/internal/wire"
)

// of reads a column from JSON.
func of(t testing.TB, typ arrow.DataType, json string) arrow.Array {
	t.Helper()
	a, _, err := array.FromJSON(memory.DefaultAllocator, typ, strings.NewReader(json))
	if err != nil {
		t.Fatalf("%s: %v", typ, err)
	}
	return a
}

func dictionary(t testing.TB, words arrow.Array, indices string) arrow.Array {
	t.Helper()
	i := of(t, arrow.PrimitiveTypes.Int8, indices)
	return array.NewDictionaryArray(&arrow.DictionaryType{IndexType: i.DataType(), ValueType: words.DataType()}, i, words)
}

func runs(t testing.TB, values arrow.Array, ends string, n, offset int) arrow.Array {
	t.Helper()
	return array.NewRunEndEncodedArray(of(t, arrow.PrimitiveTypes.Int32, ends), values, n, offset)
}

func uuids(t testing.TB) arrow.Array {
	t.Helper()
	b := extensions.NewUUIDBuilder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendNull()
	if err := b.AppendValueFromString("00112233-4455-6677-8899-aabbccddeeff"); err != nil {
		t.Fatal(err)
	}
	return b.NewArray()
}

func wide(t testing.TB, p int32, values ...string) arrow.Array {
	t.Helper()
	b := array.NewDecimal256Builder(memory.DefaultAllocator, &arrow.Decimal256Type{Precision: p, Scale: 2})
	defer b.Release()
	for _, v := range values {
		n, err := decimal256.FromString(v, 76, 2)
		if err != nil {
			t.Fatal(err)
		}
		b.Append(n)
	}
	return b.NewArray()
}

func small(v decimal.Decimal32) arrow.Array {
	b := array.NewDecimal32Builder(memory.DefaultAllocator, &arrow.Decimal32Type{Precision: 9, Scale: 2})
	defer b.Release()
	b.Append(v)
	return b.NewArray()
}

func halves() arrow.Array {
	b := array.NewFloat16Builder(memory.DefaultAllocator)
	defer b.Release()
	_ = b.AppendValueFromString("1.5") // it is a number
	b.AppendNull()
	return b.NewArray()
}

// TestColumns: what each Arrow type becomes in DuckDB, with the values as DuckDB reads
// them, or why it is refused.
func TestColumns(t *testing.T) {
	words := of(t, arrow.BinaryTypes.String, `["a", null, "c"]`)
	ns := &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "Europe/Berlin"}
	views := of(t, arrow.BinaryTypes.StringView, `["short", null, "a text that is longer than twelve bytes"]`)
	for name, c := range map[string]struct {
		column arrow.Array
		typ    string // empty: refused
		want   string // the values, or what the refusal says
	}{
		"int8":               {of(t, arrow.PrimitiveTypes.Int8, `[-128, null]`), "TINYINT", "-128,NULL"},
		"uint64":             {of(t, arrow.PrimitiveTypes.Uint64, `[18446744073709551615]`), "UBIGINT", "18446744073709551615"},
		"float16":            {halves(), "FLOAT", "1.5,NULL"},
		"bool":               {of(t, arrow.FixedWidthTypes.Boolean, `[true, null, false]`), "BOOLEAN", "true,NULL,false"},
		"null":               {array.NewNull(2), "INTEGER", "NULL,NULL"},
		"large string":       {of(t, arrow.BinaryTypes.LargeString, `["x"]`), "VARCHAR", "x"},
		"string view":        {views, "VARCHAR", "short,NULL,a text that is longer than twelve bytes"},
		"binary view":        {of(t, arrow.BinaryTypes.BinaryView, `["AAE="]`), "BLOB", `\x00\x01`},
		"fixed size binary":  {of(t, &arrow.FixedSizeBinaryType{ByteWidth: 2}, `["AAE="]`), "BLOB", `\x00\x01`},
		"decimal32":          {small(-1234), "DECIMAL(9,2)", "-12.34"},
		"decimal128":         {of(t, &arrow.Decimal128Type{Precision: 38, Scale: 2}, `["1.25", null]`), "DECIMAL(38,2)", "1.25,NULL"},
		"decimal256":         {wide(t, 38, "1.25", "-99999999999999999999999999999999999.99"), "DECIMAL(38,2)", "1.25,-99999999999999999999999999999999999.99"},
		"a wide decimal256":  {wide(t, 40, "1.25"), "", "38 digits"},
		"a false decimal256": {wide(t, 38, "1"+strings.Repeat("0", 60)), "", "more than 38 digits"},
		"date32":             {of(t, arrow.FixedWidthTypes.Date32, `["2024-02-29"]`), "DATE", "2024-02-29"},
		"date64":             {of(t, arrow.FixedWidthTypes.Date64, `["2024-02-29"]`), "DATE", "2024-02-29"},
		"time32":             {of(t, arrow.FixedWidthTypes.Time32ms, `["01:02:03.004"]`), "TIME", "01:02:03.004"},
		"timestamp":          {of(t, &arrow.TimestampType{Unit: arrow.Microsecond}, `["2024-02-29 01:02:03.000004"]`), "TIMESTAMP", "2024-02-29 01:02:03.000004"},
		"timestamp ns":       {of(t, &arrow.TimestampType{Unit: arrow.Nanosecond}, `["2024-02-29 01:02:03.000000004"]`), "TIMESTAMP_NS", "2024-02-29 01:02:03.000000004"},
		"moment s":           {of(t, &arrow.TimestampType{Unit: arrow.Second, TimeZone: "UTC"}, `[1709168523]`), "TIMESTAMP WITH TIME ZONE", "2024-02-29 01:02:03+00"},
		"moment ns":          {of(t, ns, `[1000, null]`), "TIMESTAMP WITH TIME ZONE", "1970-01-01 00:00:00.000001+00,NULL"},
		"a finer moment":     {of(t, ns, `[1001]`), "", "nanoseconds"},
		"a far moment":       {of(t, &arrow.TimestampType{Unit: arrow.Second, TimeZone: "UTC"}, fmt.Sprintf(`[%d]`, int64(math.MaxInt64/2))), "", "too far"},
		"dictionary":         {dictionary(t, words, `[2, 0, null, 1]`), "VARCHAR", "c,a,NULL,NULL"},
		"empty dictionary":   {dictionary(t, of(t, arrow.BinaryTypes.String, `[]`), `[null]`), "VARCHAR", "NULL"},
		"dictionary of views": {
			dictionary(t, views, `[2, 0]`), "VARCHAR", "a text that is longer than twelve bytes,short",
		},
		"runs":            {runs(t, words, `[2, 3, 5]`, 5, 0), "VARCHAR", "a,a,NULL,c,c"},
		"a slice of runs": {runs(t, words, `[2, 3, 5]`, 3, 1), "VARCHAR", "a,NULL,c"},
		"uuid":            {uuids(t), "VARCHAR", "NULL,00112233-4455-6677-8899-aabbccddeeff"},
		"list":            {of(t, arrow.ListOf(arrow.PrimitiveTypes.Int32), `[[1, null], null, []]`), "INTEGER[]", "[1, NULL],NULL,[]"},
		"list of views":   {of(t, arrow.ListOf(arrow.BinaryTypes.StringView), `[["a", null], null, []]`), "VARCHAR[]", "[a, NULL],NULL,[]"},
		"large list":      {of(t, arrow.LargeListOf(arrow.PrimitiveTypes.Int32), `[[1]]`), "INTEGER[]", "[1]"},
		"fixed size list": {of(t, arrow.FixedSizeListOf(2, arrow.BinaryTypes.StringView), `[["1", "2"], null]`), "VARCHAR[2]", "[1, 2],NULL"},
		"struct":          {of(t, arrow.StructOf(arrow.Field{Name: "a b", Type: arrow.BinaryTypes.StringView, Nullable: true}), `[{"a b": "x"}, null]`), `STRUCT("a b" VARCHAR)`, `{'a b': x},NULL`},
		"map":             {of(t, arrow.MapOf(arrow.BinaryTypes.String, arrow.BinaryTypes.StringView), `[[{"key": "k", "value": "v"}], null]`), "MAP(VARCHAR, VARCHAR)", "{k=v},NULL"},
		"duration":        {of(t, arrow.FixedWidthTypes.Duration_s, `[1]`), "", "isn't taken"},
		"interval":        {of(t, arrow.FixedWidthTypes.MonthInterval, `[{"months": 1}]`), "", "isn't taken"},
		"list view":       {array.MakeArrayOfNull(memory.DefaultAllocator, arrow.ListViewOf(arrow.PrimitiveTypes.Int32), 1), "", "isn't taken"},
		"union":           {array.MakeArrayOfNull(memory.DefaultAllocator, arrow.SparseUnionOf([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int32, Nullable: true}}, []arrow.UnionTypeCode{0}), 1), "", "isn't taken"},
	} {
		t.Run(name, func(t *testing.T) {
			typ, values, err := throughDuckDB(t, c.column)
			if c.typ == "" {
				if commit.CodeOf(err) != commit.CodeFlightType || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "column c ") {
					t.Errorf("got %s %s, %v; want a refusal with %q", typ, values, err, c.want)
				}
				return
			}
			if err != nil || typ != c.typ || values != c.want {
				t.Errorf("got %s: %s, %v; want %s: %s", typ, values, err, c.typ, c.want)
			}
		})
	}
}

// throughDuckDB gives the type and the values of a column as DuckDB has them.
func throughDuckDB(t *testing.T, c arrow.Array) (typ, values string, err error) {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: c.DataType(), Nullable: true}}, nil)
	a := Access{Name: "e"}
	cols, err := a.columns(schema)
	if err != nil {
		return "", "", err
	}
	own, err := plainSchema(schema)
	if err != nil {
		return "", "", err
	}
	b, err := a.plainBatch(own, array.NewRecordBatch(schema, []arrow.Array{c}, int64(c.Len())))
	if err != nil {
		return "", "", err
	}
	db, err := duckdb.Open(t.Context(), duckdb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r, err := array.NewRecordReader(own, []arrow.RecordBatch{b})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	if err := db.Exec(t.Context(), "CREATE TABLE t (c "+cols[0].Type+")"); err != nil {
		t.Fatal(err)
	}
	if err := db.Append(t.Context(), "t", own, r); err != nil {
		return cols[0].Type, "", err
	}
	rows, err := db.Strings(t.Context(), "SELECT coalesce(c::VARCHAR, 'NULL') FROM t")
	if err != nil {
		return cols[0].Type, "", err
	}
	var out []string
	for _, row := range rows {
		out = append(out, row[0])
	}
	return cols[0].Type, strings.Join(out, ","), nil
}

// TestNames: columns that DuckDB can't tell apart are refused.
func TestNames(t *testing.T) {
	for _, names := range [][]string{{""}, {"a", "A"}, {}} {
		var fields []arrow.Field
		for _, n := range names {
			fields = append(fields, arrow.Field{Name: n, Type: arrow.PrimitiveTypes.Int32})
		}
		if _, err := (Access{Name: "e"}).columns(arrow.NewSchema(fields, nil)); commit.CodeOf(err) != commit.CodeFlightType {
			t.Errorf("%q: %v", names, err)
		}
	}
}

// TestHostileColumns: what leaves its buffers is an error, and nothing else.
func TestHostileColumns(t *testing.T) {
	words := of(t, arrow.BinaryTypes.String, `["a"]`)
	for name, c := range map[string]arrow.Array{
		"an index behind the dictionary": dictionary(t, words, `[0, 5]`),
		"an index before it":             dictionary(t, words, `[-1]`),
		"runs that don't ascend":         runs(t, of(t, arrow.BinaryTypes.String, `["a", "b"]`), `[3, 2]`, 5, 0),
		"runs that end early":            runs(t, words, `[2]`, 5, 0),
	} {
		func() {
			defer func() { _ = recover() }() // Stream.Next makes it an error too
			schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: c.DataType(), Nullable: true}}, nil)
			own, err := plainSchema(schema)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := (Access{}).plainBatch(own, array.NewRecordBatch(schema, []arrow.Array{c}, int64(c.Len()))); err == nil {
				t.Errorf("%s: got %v", name, b)
			}
		}()
	}
}

// TestSmallOnTheWire: few bytes that stand for many are refused before they are
// written out, all columns of a batch together.
func TestSmallOnTheWire(t *testing.T) {
	long, many := strings.Repeat("x", 1<<20), strings.Repeat("0,", 299)+"0"
	word := of(t, arrow.BinaryTypes.String, `["`+long+`"]`)
	fixed := array.NewFixedSizeBinaryBuilder(memory.DefaultAllocator, &arrow.FixedSizeBinaryType{ByteWidth: 1 << 20})
	fixed.Append([]byte(long))
	view := array.NewStringViewBuilder(memory.DefaultAllocator)
	view.Append(long)
	views := picked(view.NewArray(), 300)
	for name, c := range map[string]struct {
		column arrow.Array
		times  int
	}{
		"nulls":                       {array.NewNull(longest), 10},
		"nulls in a struct":           {nullsInside(5), 2},
		"a long word":                 {dictionary(t, word, "["+many+"]"), 1},
		"a long word of few, by many": {dictionary(t, word, "["+strings.Repeat("0,", 29)+"0]"), 10},
		"a large text":                {dictionary(t, of(t, arrow.BinaryTypes.LargeString, `["`+long+`"]`), "["+many+"]"), 1},
		"bytes of one width":          {dictionary(t, fixed.NewArray(), "["+many+"]"), 1},
		"a list":                      {dictionary(t, of(t, arrow.ListOf(arrow.BinaryTypes.String), `[["`+long+`"]]`), "["+many+"]"), 1},
		"a struct":                    {dictionary(t, of(t, arrow.StructOf(arrow.Field{Name: "a", Type: arrow.BinaryTypes.String}), `[{"a": "`+long+`"}]`), "["+many+"]"), 1},
		"a run":                       {runs(t, word, `[300]`, 300, 0), 1},
		"a run of nulls":              {runs(t, of(t, arrow.PrimitiveTypes.Int64, `[null]`), `[16777216]`, longest, 0), 2},
		"no word":                     {dictionary(t, of(t, arrow.FixedSizeListOf(1<<30, arrow.PrimitiveTypes.Int64), `[]`), `[null]`), 1},
		"views of one text":           {views, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var fields []arrow.Field
			var columns []arrow.Array
			for i := range c.times {
				fields, columns = append(fields, arrow.Field{Name: fmt.Sprint("c", i), Type: c.column.DataType(), Nullable: true}), append(columns, c.column)
			}
			schema := arrow.NewSchema(fields, nil)
			own, err := plainSchema(schema)
			if err != nil {
				t.Fatal(err)
			}
			b, err := (Access{}).plainBatch(own, array.NewRecordBatch(schema, columns, int64(c.column.Len())))
			if commit.CodeOf(err) != commit.CodeFlightTooLarge {
				t.Errorf("got %T, %v", b, err)
			}
		})
	}
}

// picked are views, all of them a's first value.
func picked(a arrow.Array, n int) arrow.Array {
	d := a.Data()
	views := memory.NewBufferBytes(bytes.Repeat(d.Buffers()[1].Bytes()[:arrow.ViewHeaderSizeBytes], n))
	return array.MakeFromData(array.NewData(a.DataType(), n, append([]*memory.Buffer{nil, views}, d.Buffers()[2:]...), nil, 0, 0))
}

// nullsInside is a struct of n columns without bytes.
func nullsInside(n int) arrow.Array {
	var fields []arrow.Field
	var children []arrow.ArrayData
	for i := range n {
		fields, children = append(fields, arrow.Field{Name: fmt.Sprint(i), Type: arrow.Null, Nullable: true}), append(children, array.NewNull(longest).Data())
	}
	return array.MakeFromData(array.NewData(arrow.StructOf(fields...), longest, []*memory.Buffer{nil}, children, 0, 0))
}

// FuzzInfo: whatever an engine answers, it ends in an error or in endpoints that may
// be read.
func FuzzInfo(f *testing.F) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32)}}, nil)
	for _, uri := range []string{"grpc://127.0.0.1:1", "grpc+tls://x.example:443", flight.LocationReuseConnection, "file:///x"} {
		raw, err := proto.Marshal(&flight.FlightInfo{
			Schema:   flight.SerializeSchema(schema, memory.DefaultAllocator),
			Endpoint: []*flight.FlightEndpoint{{Ticket: &flight.Ticket{Ticket: []byte("t")}, Location: []*flight.Location{{Uri: uri}}}},
		})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	e := New(Access{Name: "e", URI: "grpc://127.0.0.1:1"})
	f.Fuzz(func(t *testing.T, raw []byte) {
		info := &flight.FlightInfo{}
		if proto.Unmarshal(raw, info) != nil || len(info.GetSchema()) == 0 {
			return
		}
		x, err := e.executed(t.Context(), info, &flight.FlightDescriptor{})
		if err != nil {
			return
		}
		for _, p := range x.Endpoints {
			places, _, err := e.access.places(p.Endpoint.Locations)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range places {
				if l.String() != "grpc://127.0.0.1:1" {
					t.Errorf("it leads to %s", l)
				}
			}
		}
		if len(x.Columns) == 0 {
			t.Error("no columns")
		}
	})
}

// FuzzStream: whatever a stream holds, its batches are errors or within their buffers.
func FuzzStream(f *testing.F) {
	for _, c := range []arrow.Array{
		of(f, arrow.BinaryTypes.StringView, `["short", null, "a text that is longer than twelve bytes"]`),
		dictionary(f, of(f, arrow.BinaryTypes.String, `["a", null]`), `[0, 1, null]`),
		runs(f, of(f, arrow.BinaryTypes.String, `["a", null]`), `[2, 3]`, 3, 0),
		of(f, arrow.ListOf(arrow.BinaryTypes.StringView), `[["a", null], null, []]`),
		wide(f, 38, "1.25"),
	} {
		schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: c.DataType(), Nullable: true}}, nil)
		var buf bytes.Buffer
		w := ipc.NewWriter(&buf, ipc.WithSchema(schema))
		if err := errors.Join(w.Write(array.NewRecordBatch(schema, []arrow.Array{c}, int64(c.Len()))), w.Close()); err != nil {
			f.Fatal(err)
		}
		f.Add(buf.Bytes())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		defer func() { _ = recover() }() // Stream.Next makes it an error
		rd, err := wire.NewIPCReader(raw)
		if err != nil {
			return
		}
		defer rd.Release()
		own, err := plainSchema(rd.Schema())
		if err != nil {
			return
		}
		for {
			b, err := rd.Read()
			if err != nil {
				return
			}
			out, err := (Access{}).plainBatch(own, b)
			if err != nil {
				return
			}
			for _, c := range out.Columns() {
				for i := range min(c.Len(), 1000) {
					_ = c.ValueStr(i)
				}
			}
			out.Release()
		}
	})
}
