package iceberg

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/iceberg-go"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/footer"
	format "github.com/firn-project/firn/format/iceberg"
)

// appendRandom appends a value of the column's type, sometimes null. There are few
// different ones, so that partitions have several rows.
func appendRandom(rt *rapid.T, b array.Builder, nullable bool) {
	if nullable && rapid.IntRange(0, 5).Draw(rt, "null") == 0 {
		b.AppendNull()
		return
	}
	n := rapid.SampledFrom([]int64{-1, 0, 1, 2, 77, 1000, -86_400_000_001, 3_600_000_000}).Draw(rt, "n")
	text := rapid.SampledFrom([]string{"", "a", "null", "é✓", "a text that is longer than sixteen letters", "\U0010ffff\U0010ffffxxxxxxxxxxxxxxxxxxxxx", "日本語日本語日本語日本語日本語日本語"}).Draw(rt, "s")
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(n > 0)
	case *array.Int32Builder:
		b.Append(int32(n % 1000))
	case *array.Int64Builder:
		b.Append(n * 1_000_003)
	case *array.Float32Builder:
		b.Append(rapid.SampledFrom([]float32{-1.5, 0, float32(math.Copysign(0, -1)), 2.5, float32(math.NaN()), float32(math.Inf(1))}).Draw(rt, "f"))
	case *array.Float64Builder:
		b.Append(rapid.SampledFrom([]float64{-1.5, 0, math.Copysign(0, -1), 2.5, math.NaN(), math.Inf(-1)}).Draw(rt, "d"))
	case *array.Decimal128Builder:
		b.Append(decimal128.FromI64(n % 100_000))
	case *array.Date32Builder:
		b.Append(arrow.Date32(n % 40_000))
	case *array.Time64Builder:
		b.Append(arrow.Time64(max(n, -n) % 86_400_000_000))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(n * 7))
	case *array.StringBuilder:
		b.Append(text)
	case *array.BinaryBuilder:
		b.Append([]byte(text + "\xff"))
	case *array.FixedSizeBinaryBuilder:
		b.Append([]byte{byte(n), 0xff, byte(len(text))})
	case *extensions.UUIDBuilder:
		b.Append(uuid.NewSHA1(uuid.Nil, []byte(text)))
	case *array.ListBuilder:
		b.Append(true)
		for range rapid.IntRange(0, 2).Draw(rt, "len") {
			appendRandom(rt, b.ValueBuilder(), true)
		}
	case *array.MapBuilder:
		b.Append(true)
		if n > 0 {
			appendRandom(rt, b.KeyBuilder(), false)
			appendRandom(rt, b.ItemBuilder(), true)
		}
	case *array.StructBuilder:
		b.Append(true)
		for i := range b.NumField() {
			appendRandom(rt, b.FieldBuilder(i), b.Type().(*arrow.StructType).Field(i).Nullable)
		}
	default:
		rt.Fatalf("no random values for %T", b)
	}
}

// randomSpecs are partition specs over the columns of allTypes.
var randomSpecs = [][]iceberg.PartitionField{
	nil,
	{identity(13, 1000, "s")},
	{identity(8, 1000, "d38"), identity(14, 1001, "u")},
	{transform(12, 1000, "y", iceberg.YearTransform{}), transform(2, 1001, "t", iceberg.TruncateTransform{Width: 10})},
	{transform(11, 1000, "m", iceberg.MonthTransform{}), transform(13, 1001, "t", iceberg.TruncateTransform{Width: 3}), transform(1, 1002, "v", iceberg.VoidTransform{})},
	{transform(12, 1000, "h", iceberg.HourTransform{}), identity(1, 1001, "b")},
	{transform(9, 1000, "d", iceberg.DayTransform{}), transform(23, 1001, "x", iceberg.BucketTransform{NumBuckets: 4})},
	{transform(13, 1000, "b", iceberg.BucketTransform{NumBuckets: 3}), transform(6, 1001, "dt", iceberg.TruncateTransform{Width: 100})},
	{identity(5, 1000, "d"), identity(16, 1001, "bin")},
}

// transformed is a field of a partition spec, with the type of its values.
type transformed struct {
	Name      string
	Transform iceberg.Transform
	Type      iceberg.Type
}

// derivedRun writes random rows with the sink and derives each file from its footer.
// check gets both descriptions.
func derivedRun(t *testing.T, rt *rapid.T, check func(d *format.Deriver, fields []transformed, f *footer.Footer, reported commit.File)) {
	props := rapid.SampledFrom([]map[string]string{
		nil,
		{"write.metadata.metrics.default": "full", "write.metadata.metrics.column.st.x": "none", "write.metadata.metrics.column.s": "truncate(2)"},
		{"write.metadata.metrics.default": "counts"},
		{"write.parquet.row-group-limit": "2"},
	}).Draw(rt, "properties")
	tb := newTable(t, allTypes(), rapid.SampledFrom(randomSpecs).Draw(rt, "spec"), props)
	b := array.NewRecordBuilder(mem, tb.arrow)
	defer b.Release()
	for range rapid.IntRange(1, 12).Draw(rt, "rows") {
		for i, f := range tb.arrow.Fields() {
			appendRandom(rt, b.Field(i), f.Nullable)
		}
	}
	files := tb.write(t, b.NewRecordBatch())
	d, err := format.NewDeriver(tb.schema, tb.spec, props)
	if err != nil {
		rt.Fatal(err)
	}
	typed, err := format.PartitionFields(tb.schema, tb.spec)
	if err != nil {
		rt.Fatal(err)
	}
	fields := make([]transformed, len(typed))
	for i, f := range typed {
		fields[i] = transformed{f.Name, tb.spec.Field(i).Transform, f.Type}
	}
	for _, reported := range files {
		check(d, fields, tb.footer(rt, reported.Path), reported)
	}
}

func (tb *table) footer(rt *rapid.T, path string) *footer.Footer {
	raw := tb.opts.Store.(*memStore).objects[path]
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

// texts are a tuple's values as a manifest of paths has them.
func partitionTexts(rt *rapid.T, fields []transformed, reported commit.File) map[string]*string {
	out := map[string]*string{}
	for i, f := range fields {
		v := reported.Partition[i]
		out[f.Name] = nil
		if v.Null {
			continue
		}
		value, err := format.DecodeValue(f.Type, v.Value)
		if err != nil {
			rt.Fatal(err)
		}
		text := textOf(rt, f, value)
		out[f.Name] = &text
	}
	return out
}

// sameFile compares what a footer gives with what the sink reported. A footer has
// no counts of NaNs, nothing of row groups with nothing else, and the library leaves
// a bound out of it that is the empty text.
func sameFile(derived, reported commit.File) error {
	derived.Path, derived.Attempt = reported.Path, reported.Attempt
	nans := reported.NaNCounts
	reported.NaNCounts = map[int]int64{}
	reported.Lower, reported.Upper = maps.Clone(reported.Lower), maps.Clone(reported.Upper)
	for id, lower := range reported.Lower {
		if len(lower) > 0 && nans[id] == 0 {
			continue
		}
		if _, ok := derived.Lower[id]; !ok {
			delete(reported.Lower, id)
		}
		if _, ok := derived.Upper[id]; !ok {
			delete(reported.Upper, id)
		}
	}
	if got, want := shownFile(derived), shownFile(reported); got != want {
		return fmt.Errorf("derived\n%s\nreported\n%s", got, want)
	}
	return nil
}

func shownFile(f commit.File) string {
	show := func(m map[int][]byte) string {
		var b bytes.Buffer
		for _, k := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(&b, " %d=%x", k, m[k])
		}
		return b.String()
	}
	lower, upper := show(f.Lower), show(f.Upper)
	f.Lower, f.Upper = nil, nil
	return fmt.Sprintf("%+v\nlower%s\nupper%s", f, lower, upper)
}

// What is derived from the footer of any file that the sink writes is what the sink
// reported of it: counts, bounds, offsets and partition.
func TestDerivedFilesAreTheSinks(t *testing.T) {
	derivedWhole, derivedNone := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		derivedRun(t, rt, func(d *format.Deriver, fields []transformed, f *footer.Footer, reported commit.File) {
			claim := footer.Claim{Rows: reported.Rows, Size: reported.Size, Partition: partitionTexts(rt, fields, reported)}
			got, err := d.File(f, claim)
			if err != nil {
				rt.Fatal(err)
			}
			if err := sameFile(got, reported); err != nil {
				rt.Fatal(err)
			}
			// Without values in the manifest the bounds give them, or it is refused.
			if got, err = d.File(f, footer.Claim{Rows: -1, Size: -1}); err != nil {
				derivedNone++
				return
			}
			derivedWhole++
			if err := sameFile(got, reported); err != nil {
				rt.Fatal(err)
			}
		})
	})
	if derivedWhole < derivedNone {
		t.Errorf("%d partitions were derived from bounds alone and %d weren't", derivedWhole, derivedNone)
	}
}

// A manifest that names another partition than the rows' is refused, whatever the
// transform, or the partition can't be told from the footer at all.
func TestOtherPartitionsThanTheRows(t *testing.T) {
	caught, passed := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		derivedRun(t, rt, func(d *format.Deriver, fields []transformed, f *footer.Footer, reported commit.File) {
			if len(fields) == 0 {
				return
			}
			i := rapid.IntRange(0, len(fields)-1).Draw(rt, "field")
			claim := partitionTexts(rt, fields, reported)
			if claim[fields[i].Name] == nil {
				text := textOf(rt, fields[i], otherValue(fields[i].Type, nil))
				claim[fields[i].Name] = &text
			} else if rapid.Bool().Draw(rt, "to null") {
				claim[fields[i].Name] = nil
			} else {
				value, err := format.DecodeValue(fields[i].Type, reported.Partition[i].Value)
				if err != nil {
					rt.Fatal(err)
				}
				text := textOf(rt, fields[i], otherValue(fields[i].Type, value))
				claim[fields[i].Name] = &text
			}
			got, err := d.File(f, footer.Claim{Rows: -1, Size: -1, Partition: claim})
			if err != nil {
				caught++
				return
			}
			// Only a bucket of several values, and what has no bounds, can't be told.
			passed++
			_, bucket := fields[i].Transform.(iceberg.BucketTransform)
			real := reported.Partition[i]
			unbounded := !real.Null && (len(real.Value) == 0 || fields[i].Type == p.Float64 && math.IsNaN(math.Float64frombits(binary.LittleEndian.Uint64(real.Value))))
			if !bucket && !unbounded {
				rt.Fatalf("%s: the manifest says %v, the rows are in %v, and %v came of it", fields[i].Name, claim, reported.Partition, got.Partition)
			}
		})
	})
	if caught < 10*passed || caught == 0 {
		t.Errorf("%d wrong partitions were caught and %d weren't", caught, passed)
	}
}

// otherValue is a value of the type that isn't v.
func otherValue(t iceberg.Type, v any) any {
	switch v := v.(type) {
	case bool:
		return !v
	case int32:
		return (v + 1) % 3
	case int64:
		return v + 1
	case float64:
		return 123.25
	case iceberg.Date:
		return v + 1
	case string:
		return v + "!"
	case uuid.UUID:
		v[0]++
		return v
	case []byte:
		return append(slices.Clone(v), 'x')
	case iceberg.Decimal:
		return iceberg.Decimal{Val: v.Val.Add(decimal128.FromI64(100)), Scale: v.Scale}
	}
	zero := map[string]any{"boolean": true, "int": int32(1), "date": iceberg.Date(1), "double": 1.5, "string": "x", "uuid": uuid.UUID{1}, "binary": []byte("x")}
	if z, ok := zero[t.String()]; ok {
		return z
	}
	return iceberg.Decimal{Val: decimal128.FromI64(100), Scale: t.(iceberg.DecimalType).Scale()}
}

// textOf writes a value as the page of the write protocol has it.
func textOf(rt *rapid.T, f transformed, v any) string {
	at := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	switch f.Transform.(type) {
	case iceberg.YearTransform:
		return fmt.Sprintf("%04d", 1970+v.(int32))
	case iceberg.MonthTransform:
		return at.AddDate(0, int(v.(int32)), 0).Format("2006-01")
	case iceberg.HourTransform:
		return at.Add(time.Duration(v.(int32)) * time.Hour).Format("2006-01-02-15")
	}
	switch v := v.(type) {
	case iceberg.Date:
		return at.AddDate(0, 0, int(v)).Format(time.DateOnly)
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case float64:
		switch {
		case math.IsNaN(v):
			return "NaN"
		case math.IsInf(v, 0):
			return map[bool]string{true: "Infinity", false: "-Infinity"}[v > 0]
		}
		return fmt.Sprint(v)
	case iceberg.Decimal:
		return v.Val.ToString(int32(v.Scale))
	case bool, int32, string, uuid.UUID:
		return fmt.Sprint(v)
	}
	rt.Fatalf("no text of %T", v)
	return ""
}
