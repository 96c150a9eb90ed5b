package delta

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/format/footer"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/sinks"
)

const manyTypes = `{"type":"struct","fields":[
	{"name":"p","type":"string","nullable":true,"metadata":{}},
	{"name":"day","type":"date","nullable":true,"metadata":{}},
	{"name":"id","type":"long","nullable":false,"metadata":{}},
	{"name":"b","type":"boolean","nullable":true,"metadata":{}},
	{"name":"tiny","type":"byte","nullable":true,"metadata":{}},
	{"name":"small","type":"short","nullable":true,"metadata":{}},
	{"name":"i","type":"integer","nullable":true,"metadata":{}},
	{"name":"f","type":"float","nullable":true,"metadata":{}},
	{"name":"d","type":"double","nullable":true,"metadata":{}},
	{"name":"dec","type":"decimal(38,10)","nullable":true,"metadata":{}},
	{"name":"small_dec","type":"decimal(9,2)","nullable":true,"metadata":{}},
	{"name":"s","type":"string","nullable":true,"metadata":{}},
	{"name":"bin","type":"binary","nullable":true,"metadata":{}},
	{"name":"at","type":"timestamp","nullable":true,"metadata":{}},
	{"name":"local","type":"timestamp_ntz","nullable":true,"metadata":{}},
	{"name":"st","type":{"type":"struct","fields":[{"name":"n","type":"integer","nullable":true,"metadata":{}},{"name":"t","type":"string","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}},
	{"name":"list","type":{"type":"array","elementType":"long","containsNull":true},"nullable":true,"metadata":{}},
	{"name":"m","type":{"type":"map","keyType":"string","valueType":"long","valueContainsNull":true},"nullable":true,"metadata":{}}]}`

// appendRandom appends a value of the column's type, sometimes null.
func appendRandom(rt *rapid.T, b array.Builder, nullable bool) {
	if nullable && rapid.IntRange(0, 4).Draw(rt, "null") == 0 {
		b.AppendNull()
		return
	}
	n := rapid.SampledFrom([]int64{-1, 0, 1, 77, 1000, -86_400_000_001, 3_600_000_123}).Draw(rt, "n")
	text := rapid.SampledFrom([]string{"a", "a/b", "null", "é✓", strings.Repeat("x", 40), strings.Repeat("日本語", 20)}).Draw(rt, "s")
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(n > 0)
	case *array.Int8Builder:
		b.Append(int8(n % 100))
	case *array.Int16Builder:
		b.Append(int16(n % 1000))
	case *array.Int32Builder:
		b.Append(int32(n % 100_000))
	case *array.Int64Builder:
		b.Append(n * 1_000_003)
	case *array.Float32Builder:
		b.Append(rapid.SampledFrom([]float32{-1.5, 0, 2.5, float32(math.NaN())}).Draw(rt, "f"))
	case *array.Float64Builder:
		b.Append(rapid.SampledFrom([]float64{-1.5, 0, 2.5, math.NaN()}).Draw(rt, "d"))
	case *array.Decimal128Builder:
		b.Append(decimal128.FromI64(n % 100_000))
	case *array.Date32Builder:
		b.Append(arrow.Date32(n % 40_000))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(n * 7))
	case *array.StringBuilder:
		b.Append(text)
	case *array.BinaryBuilder:
		b.Append([]byte(text + "\xff"))
	case *array.ListBuilder:
		b.Append(true)
		appendRandom(rt, b.ValueBuilder(), true)
	case *array.MapBuilder:
		b.Append(true)
		appendRandom(rt, b.KeyBuilder(), false)
		appendRandom(rt, b.ItemBuilder(), true)
	case *array.StructBuilder:
		b.Append(true)
		for i := range b.NumField() {
			appendRandom(rt, b.FieldBuilder(i), true)
		}
	default:
		rt.Fatalf("no random values for %T", b)
	}
}

// What is derived from the footer of any file that the sink writes is what the sink
// reported of it, as far as a footer goes: it doesn't tell NaNs, so that a float has
// no upper bound, nor how many lists and maps are null.
func TestDerivedFilesAreTheSinks(t *testing.T) {
	schema, err := format.ParseSchema(manyTypes)
	if err != nil {
		t.Fatal(err)
	}
	columns, err := format.ArrowSchema(schema)
	if err != nil {
		t.Fatal(err)
	}
	var numbers []string
	for _, l := range format.FileLeaves(schema, []string{"p", "day"}) {
		numbers = append(numbers, strings.Join(l.Path, "."))
	}
	at := func(name string) int { return slices.Index(numbers, name) + 1 }
	rapid.Check(t, func(rt *rapid.T) {
		props := rapid.SampledFrom([]map[string]string{
			nil, {format.PropertyIndexedColumns: "4"}, {format.PropertyStatsColumns: "s, st", format.PropertyStringPrefix: "3"}, {format.PropertyIndexedColumns: "0"},
		}).Draw(rt, "properties")
		b := array.NewRecordBuilder(memory.DefaultAllocator, columns)
		defer b.Release()
		for range rapid.IntRange(1, 10).Draw(rt, "rows") {
			for i, f := range columns.Fields() {
				appendRandom(rt, b.Field(i), f.Nullable)
			}
		}
		for _, reported := range sinkFiles(t, rt, b.NewRecordBatch(), props) {
			d, err := format.NewDeriver(manyTypes, []string{"p", "day"}, props, nil)
			if err != nil {
				rt.Fatal(err)
			}
			claim := footer.Claim{Rows: reported.Rows, Size: reported.Size, Partition: map[string]*string{"p": nil, "day": nil}}
			for i, name := range []string{"p", "day"} {
				if v := reported.Partition[i]; !v.Null {
					text := string(v.Value)
					claim.Partition[name] = &text
				}
			}
			got, err := d.File(footerOf(rt, reported.Path), claim)
			if err != nil {
				rt.Fatal(err)
			}
			for _, name := range []string{"f", "d"} {
				delete(reported.Upper, at(name))
				if _, ok := got.Lower[at(name)]; !ok { // a row group of NaNs
					delete(reported.Lower, at(name))
				}
			}
			for _, name := range []string{"list", "m"} {
				delete(reported.NullCounts, at(name))
			}
			got.Path, got.Attempt = reported.Path, reported.Attempt
			if g, w := shownFile(got), shownFile(reported); g != w {
				rt.Fatalf("derived\n%s\nreported\n%s", g, w)
			}
			if _, err := format.FileStats(schema, []string{"p", "day"}, got); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

func sinkFiles(t *testing.T, rt *rapid.T, batch arrow.RecordBatch, props map[string]string) []commit.File {
	defer batch.Release()
	w, err := sinks.Open(t.Context(), New(), sinks.Options{
		Context: sinks.Context{
			Table: commit.TableName{Catalog: "lake", Name: "t"}, SchemaJSON: []byte(manyTypes), SpecJSON: []byte(`["p","day"]`),
			Properties: props, Prefix: "file://" + t.TempDir() + "/j-1/",
		},
		Attempt: "attempt", Store: objstore.New(objstore.Config{}), SpillDir: t.TempDir(),
	})
	if err != nil {
		rt.Fatal(err)
	}
	if err := w.Write(t.Context(), batch); err != nil {
		rt.Fatal(err)
	}
	files, err := w.Close(t.Context())
	if err != nil {
		rt.Fatal(err)
	}
	return files
}

func footerOf(rt *rapid.T, path string) *footer.Footer {
	raw, err := os.ReadFile(strings.TrimPrefix(path, "file://"))
	if err != nil {
		rt.Fatal(err)
	}
	n, why := footer.Length(raw, int64(len(raw)))
	if why != nil {
		rt.Fatal(why)
	}
	end := int64(len(raw)) - footer.Trailer
	f, err := footer.Parse(raw[end-n:end], int64(len(raw)))
	if err != nil {
		rt.Fatal(err)
	}
	return f
}

func shownFile(f commit.File) string {
	var b bytes.Buffer
	for _, m := range []map[int][]byte{f.Lower, f.Upper} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(&b, " %d=%s", k, m[k])
		}
		b.WriteByte('\n')
	}
	f.Lower, f.Upper = nil, nil
	return fmt.Sprintf("%+v\n%s", f, b.String())
}
