package footer_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	ice "github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/format/footer"
	"github.com/firn-project/firn/format/iceberg"
)

// expected is what others derive from the golden files; see testdata/make.py.
type expected struct {
	Schema  json.RawMessage `json:"schema"`
	Iceberg map[string]struct {
		Rows         int64             `json:"rows"`
		ColumnSizes  map[string]int64  `json:"column_sizes"`
		ValueCounts  map[string]int64  `json:"value_counts"`
		NullCounts   map[string]int64  `json:"null_counts"`
		Lower, Upper map[string]string `json:"-"`
		RawLower     map[string]string `json:"lower"`
		RawUpper     map[string]string `json:"upper"`
		SplitOffsets []int64           `json:"split_offsets"`
	} `json:"iceberg"`
	Delta struct {
		Schema string `json:"schema"`
		Stats  struct {
			Rows      int64           `json:"numRecords"`
			MinValues json.RawMessage `json:"minValues"`
			MaxValues json.RawMessage `json:"maxValues"`
			NullCount json.RawMessage `json:"nullCount"`
		} `json:"stats"`
	} `json:"delta"`
}

func golden(t testing.TB) expected {
	t.Helper()
	raw, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var e expected
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// parse reads a golden file's footer.
func parse(t testing.TB, name string) *footer.Footer {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	f, err := parseFile(raw)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return f
}

func parseFile(raw []byte) (*footer.Footer, error) {
	n, why := footer.Length(raw, int64(len(raw)))
	if why != nil {
		return nil, why
	}
	end := int64(len(raw)) - footer.Trailer
	return footer.Parse(raw[end-n:end], int64(len(raw)))
}

func icebergTable(t testing.TB, schema string, spec []ice.PartitionField, props map[string]string) (*iceberg.Deriver, *ice.Schema, ice.PartitionSpec) {
	t.Helper()
	s, err := iceberg.ParseSchema([]byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	sp := ice.NewPartitionSpecID(1, spec...)
	d, err := iceberg.NewDeriver(s, sp, props)
	if err != nil {
		t.Fatal(err)
	}
	return d, s, sp
}

func byID[V any](t testing.TB, m map[string]V) map[int]V {
	t.Helper()
	out := map[int]V{}
	for k, v := range m {
		id, err := strconv.Atoi(k)
		if err != nil {
			t.Fatal(err)
		}
		out[id] = v
	}
	return out
}

func sameBounds(t *testing.T, what string, got map[int][]byte, want map[string]string) {
	t.Helper()
	for id, text := range byID(t, want) {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if b, ok := got[id]; !ok || string(b) != string(raw) {
			t.Errorf("%s bound of field %d is %x, PyIceberg's %x", what, id, b, raw)
		}
	}
	for id, b := range got {
		// PyIceberg has none for fields of structs, 22 and 23 here.
		if _, ok := want[strconv.Itoa(id)]; !ok && id != 22 && id != 23 {
			t.Errorf("%s bound of field %d is %x, and PyIceberg has none", what, id, b)
		}
	}
}

// Files of pyarrow give what PyIceberg derives from them, byte by byte. It differs
// where it is told here.
func TestGoldenIcebergFiles(t *testing.T) {
	e := golden(t)
	d, schema, spec := icebergTable(t, string(e.Schema), nil, nil)
	for name, want := range e.Iceberg {
		t.Run(name, func(t *testing.T) {
			f, err := d.File(parse(t, name), footer.Claim{Rows: -1, Size: -1})
			if err != nil {
				t.Fatal(err)
			}
			if f.Rows != want.Rows || f.Rows != 4 || !slices.Equal(f.SplitOffsets, want.SplitOffsets) {
				t.Errorf("%d rows, offsets %v; want %d and %v", f.Rows, f.SplitOffsets, want.Rows, want.SplitOffsets)
			}
			if w := byID(t, want.ColumnSizes); !maps.Equal(f.ColumnSizes, w) {
				t.Errorf("sizes %v, want %v", f.ColumnSizes, w)
			}
			if w := byID(t, want.ValueCounts); !maps.Equal(f.ValueCounts, w) {
				t.Errorf("values %v, want %v", f.ValueCounts, w)
			}
			nulls := byID(t, want.NullCounts)
			for id := range f.NullCounts {
				// PyIceberg says nothing without statistics; a required column has no
				// nulls all the same.
				if _, ok := nulls[id]; !ok && (id == 3 || id == 19) {
					delete(f.NullCounts, id)
				}
			}
			if name != "pyarrow_nostats.parquet" && !maps.Equal(f.NullCounts, nulls) {
				t.Errorf("nulls %v, want %v", f.NullCounts, nulls)
			}
			sameBounds(t, "lower", f.Lower, want.RawLower)
			sameBounds(t, "upper", f.Upper, want.RawUpper)
			if name != "pyarrow_nostats.parquet" && (string(f.Lower[22])+string(f.Upper[22])+string(f.Upper[23]) != "\xfb\xff\xff\xff\x05\x00\x00\x00z" || f.Lower[23] == nil) {
				t.Errorf("bounds of st: %x to %x, %q to %q", f.Lower[22], f.Upper[22], f.Lower[23], f.Upper[23])
			}
			if err := iceberg.CheckBounds(schema, f); err != nil {
				t.Error(err)
			}
			if err := iceberg.CheckPartition(schema, spec, f); err != nil {
				t.Error(err)
			}
		})
	}
}

// A file of DuckDB holds the same rows, and gives the same bounds for what DuckDB
// keeps statistics of.
func TestGoldenDuckDB(t *testing.T) {
	e := golden(t)
	d, schema, _ := icebergTable(t, string(e.Schema), nil, nil)
	// DuckDB writes every column as optional, and no uuid and fixed here.
	f, err := d.File(parse(t, "duckdb.parquet"), footer.Claim{Rows: 4, Size: -1})
	if err != nil {
		t.Fatal(err)
	}
	want := e.Iceberg["pyarrow.parquet"]
	for _, id := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12} {
		key := strconv.Itoa(id)
		lower, _ := base64.StdEncoding.DecodeString(want.RawLower[key])
		upper, _ := base64.StdEncoding.DecodeString(want.RawUpper[key])
		if b, ok := f.Lower[id]; id != 7 && (!ok || string(b) != string(lower)) {
			t.Errorf("lower bound of field %d is %x, want %x", id, b, lower)
		}
		if b, ok := f.Upper[id]; id != 7 && (!ok || string(b) != string(upper)) {
			t.Errorf("upper bound of field %d is %x, want %x", id, b, upper)
		}
		if f.NullCounts[id] != want.NullCounts[key] {
			t.Errorf("field %d has %d nulls, want %d", id, f.NullCounts[id], want.NullCounts[key])
		}
	}
	if err := iceberg.CheckBounds(schema, f); err != nil {
		t.Error(err)
	}
}

const oneColumn = `{"type":"struct","schema-id":0,"fields":[{"id":1,"name":"%s","required":false,"type":"%s"}]}`

func oneTable(name, typ string) string {
	return strings.Replace(strings.Replace(oneColumn, "%s", name, 1), "%s", typ, 1)
}

// Files that aren't what a table wants are told apart, and why.
func TestGoldenRefusals(t *testing.T) {
	e := golden(t)
	for _, c := range []struct{ file, schema, want, hint string }{
		{"pyarrow_noids.parquet", string(e.Schema), "no field ids", "PARQUET:field_id"},
		{"pyarrow_empty.parquet", string(e.Schema), "no rows", "only files with rows"},
		{"ns.parquet", oneTable("ts", "timestamp"), "TIMESTAMP(NANOS, not UTC) on INT64", "write context"},
		{"ms.parquet", oneTable("ts", "timestamp"), "TIMESTAMP(MILLIS, not UTC) on INT64", "write context"},
		{"int96.parquet", oneTable("ts", "timestamptz"), "spark.sql.parquet.outputTimestampType", "write context"},
		{"uint32.parquet", oneTable("i", "int"), "INTEGER(32, unsigned) on INT32", "write context"},
		{"uint32.parquet", oneTable("i", "long"), "INTEGER(32, unsigned) on INT32", "write context"},
		{"nan.parquet", oneTable("d", "float"), "stored as DOUBLE", "write context"},
		{"polars.parquet", oneTable("i", "long"), "no field ids", "PARQUET:field_id"},
	} {
		d, _, _ := icebergTable(t, c.schema, nil, nil)
		_, err := d.File(parse(t, c.file), footer.Claim{Rows: -1, Size: -1})
		refused(t, c.file, err, c.want, c.hint)
	}
}

// refused wants an error for people, with a hint.
func refused(t testing.TB, name string, err error, want, hint string) {
	t.Helper()
	e, ok := err.(*footer.Error) //nolint:errorlint // nothing wraps it
	if !ok || !strings.Contains(e.Why, want) || !strings.Contains(e.Hint, hint) {
		t.Errorf("%s: %v (%+v), want %q and the hint %q", name, err, e, want, hint)
	}
}

// What statistics can't be relied on for is left out.
func TestGoldenUntrustedStatistics(t *testing.T) {
	// NaNs are in no bound of an Iceberg table, and aren't counted.
	d, _, _ := icebergTable(t, oneTable("d", "double"), nil, nil)
	f, err := d.File(parse(t, "nan.parquet"), footer.Claim{Rows: -1, Size: -1})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(f.Lower[1])+string(f.Upper[1]), "\x00\x00\x00\x00\x00\x00\x00\x80\x00\x00\x00\x00\x00\x00\xf8\x3f"; got != want {
		t.Errorf("bounds %x, want -0.0 and 1.5", got)
	}
	if _, ok := f.NaNCounts[1]; ok {
		t.Error("it counts NaNs, which no footer does")
	}
	// In a Delta table a NaN is above all others: no upper bound.
	dd, err := delta.NewDeriver(`{"type":"struct","fields":[{"name":"d","type":"double","nullable":true,"metadata":{}}]}`, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f, err = dd.File(parse(t, "nan.parquet"), footer.Claim{Rows: -1, Size: -1}); err != nil || len(f.Upper) != 0 || string(f.Lower[1]) != "-0.0" {
		t.Errorf("%v, %v, %v", f.Lower, f.Upper, err)
	}
	// INT96 has no order.
	dd, err = delta.NewDeriver(`{"type":"struct","fields":[{"name":"ts","type":"timestamp","nullable":true,"metadata":{}}]}`, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f, err = dd.File(parse(t, "int96.parquet"), footer.Claim{Rows: -1, Size: -1}); err != nil || len(f.Upper)+len(f.Lower) != 0 || f.NullCounts[1] != 0 {
		t.Errorf("%v, %v", f, err)
	}
}

// A file of delta-rs gives the statistics that its own log has, but for a maximum of
// a float (there may be NaNs) and for decimals, which its log has as floats.
func TestGoldenDelta(t *testing.T) {
	e := golden(t).Delta
	d, err := delta.NewDeriver(e.Schema, []string{"p"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ab := "a/b"
	f, err := d.File(parse(t, "delta_rs.parquet"), footer.Claim{Rows: e.Stats.Rows, Size: -1, Partition: map[string]*string{"p": &ab}})
	if err != nil {
		t.Fatal(err)
	}
	// Leaves: id, tiny, s, dec, date, at, d, st.x, st.y.
	want := commit.File{
		NullCounts: map[int]int64{1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1, 8: 2, 9: 2},
		Lower: map[int][]byte{
			1: []byte("1"), 2: []byte("-1"), 3: []byte(`"b"`), 4: []byte("-1.50"), 5: []byte(`"1960-01-01"`), 6: []byte(`"1969-12-31T23:59:59.999Z"`),
			7: []byte("-2.0"), 8: []byte("1"), 9: []byte(`"q"`),
		},
		Upper: map[int][]byte{
			1: []byte("4"), 2: []byte("3"), 3: []byte(`"` + strings.Repeat("日本語", 6) + "日本誟" + `"`), 4: []byte("999999999999999999.99"), 5: []byte(`"2024-02-29"`),
			6: []byte(`"2020-01-01T00:00:00.124Z"`), 8: []byte("3"), 9: []byte(`"r"`),
		},
	}
	if !maps.Equal(f.NullCounts, want.NullCounts) {
		t.Errorf("nulls %v, want %v", f.NullCounts, want.NullCounts)
	}
	for i := 1; i <= 9; i++ {
		if string(f.Lower[i]) != string(want.Lower[i]) || string(f.Upper[i]) != string(want.Upper[i]) {
			t.Errorf("leaf %d: %s to %s, want %s to %s", i, f.Lower[i], f.Upper[i], want.Lower[i], want.Upper[i])
		}
	}
	if string(f.Partition[0].Value) != "a/b" {
		t.Errorf("partition %v", f.Partition)
	}
	if _, err := d.File(parse(t, "delta_rs.parquet"), footer.Claim{Rows: -1, Size: -1}); err == nil {
		t.Error("a partition column that the file doesn't have was made up")
	}
}

// Columns of files without field ids are found by the table's name mapping.
func TestGoldenNameMapping(t *testing.T) {
	e := golden(t)
	mapping := `[{"field-id":1,"names":["b"]},{"field-id":2,"names":["i","j"]},{"field-id":3,"names":["l"]},{"field-id":4,"names":["f"]},{"field-id":5,"names":["d"]},
		{"field-id":6,"names":["dec"]},{"field-id":7,"names":["big"]},{"field-id":8,"names":["date"]},{"field-id":9,"names":["time"]},{"field-id":10,"names":["ts"]},
		{"field-id":11,"names":["tz"]},{"field-id":12,"names":["s"]},{"field-id":13,"names":["u"]},{"field-id":14,"names":["fix"]},{"field-id":15,"names":["bin"]},
		{"field-id":16,"names":["list"],"fields":[{"field-id":17,"names":["element"]}]},
		{"field-id":18,"names":["map"],"fields":[{"field-id":19,"names":["key"]},{"field-id":20,"names":["value"]}]},
		{"field-id":21,"names":["st"],"fields":[{"field-id":22,"names":["x"]},{"field-id":23,"names":["y"]}]}]`
	d, _, _ := icebergTable(t, string(e.Schema), nil, map[string]string{"schema.name-mapping.default": mapping})
	f, err := d.File(parse(t, "pyarrow_noids.parquet"), footer.Claim{Rows: -1, Size: -1})
	if err != nil {
		t.Fatal(err)
	}
	sameBounds(t, "lower", f.Lower, e.Iceberg["pyarrow.parquet"].RawLower)
	d, _, _ = icebergTable(t, string(e.Schema), nil, map[string]string{"schema.name-mapping.default": `[{"field-id":1,"names":["b"]}]`})
	_, err = d.File(parse(t, "pyarrow_noids.parquet"), footer.Claim{Rows: -1, Size: -1})
	refused(t, "mapping without a column", err, "no field id", "PARQUET:field_id")
}

// deriver is what both formats have.
type deriver interface {
	File(*footer.Footer, footer.Claim) (commit.File, error)
}

// Other writers and types, each in a table of one column.
func TestGoldenOthers(t *testing.T) {
	for _, c := range []struct{ file, name, typ, lower, upper string }{
		{"int8.parquet", "i", "int", "\xff\xff\xff\xff", "\x01\x00\x00\x00"},
		{"legacy_v1.parquet", "i", "int", "\x03\x00\x00\x00", "\x04\x00\x00\x00"},
		{"duckdb_uuid.parquet", "u", "uuid", "\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef", "\xf1\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef"},
		{"duckdb_long.parquet", "s", "string", "", ""}, // DuckDB leaves these out
	} {
		d, _, _ := icebergTable(t, oneTable(c.name, c.typ), nil, nil)
		f, err := d.File(parse(t, c.file), footer.Claim{Rows: 2, Size: -1})
		if err != nil || string(f.Lower[1]) != c.lower || string(f.Upper[1]) != c.upper || f.NullCounts[1] != 0 {
			t.Errorf("%s: %x to %x, %v, %v", c.file, f.Lower[1], f.Upper[1], f.NullCounts, err)
		}
	}
	// Polars doesn't count nulls of lists among those of their elements: no count
	// of theirs says whether a list is null.
	const schema = `{"type":"struct","fields":[{"name":"i","type":"long","nullable":true,"metadata":{}},{"name":"s","type":"string","nullable":true,"metadata":{}},
		{"name":"d","type":"double","nullable":true,"metadata":{}},{"name":"l","type":{"type":"array","elementType":"long","containsNull":true},"nullable":%,"metadata":{}}]}`
	d, err := delta.NewDeriver(strings.Replace(schema, "%", "true", 1), nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.File(parse(t, "polars.parquet"), footer.Claim{Rows: -1, Size: -1})
	if err != nil || !maps.Equal(f.NullCounts, map[int]int64{1: 1, 2: 1, 3: 1}) || string(f.Lower[1])+string(f.Upper[2]) != `1"b"` || len(f.Lower) != 2 {
		t.Errorf("%+v, %v", f, err)
	}
	if d, err = delta.NewDeriver(strings.Replace(schema, "%", "false", 1), nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	_, err = d.File(parse(t, "polars.parquet"), footer.Claim{Rows: -1, Size: -1})
	refused(t, "polars.parquet", err, `"l" may not be null, and the file doesn't say`, "nullable=False")
}
