package iceberg

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/iceberg-go"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/firn-project/firn/commit"
)

func column(id int, name string, t iceberg.Type) iceberg.NestedField {
	return iceberg.NestedField{ID: id, Name: name, Type: t}
}

func specOf(schema *iceberg.Schema, transforms ...iceberg.Transform) iceberg.PartitionSpec {
	var fields []iceberg.PartitionField
	for i, tr := range transforms {
		fields = append(fields, iceberg.PartitionField{SourceIDs: []int{schema.Field(i).ID}, FieldID: 1000 + i, Name: fmt.Sprintf("p%d", i), Transform: tr})
	}
	return iceberg.NewPartitionSpecID(4, fields...)
}

func partitioner(t *testing.T, schema *iceberg.Schema, spec iceberg.PartitionSpec) *Partitioner {
	t.Helper()
	p, err := NewPartitioner(schema, spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestGroup(t *testing.T) {
	schema := iceberg.NewSchema(0, column(1, "a", pt.String), column(2, "b", pt.String))
	p := partitioner(t, schema, specOf(schema, iceberg.IdentityTransform{}, iceberg.IdentityTransform{}))
	// Tuples whose parts run together the same way are different ones.
	b := record(t, schema, `[{"a":"x","b":"yz"},{"a":"xy","b":"z"},{"a":null,"b":"null"},{"a":"null","b":null},{"a":"","b":null},{"a":null,"b":""},{"a":"x","b":"yz"}]`)
	defer b.Release()
	keys, err := p.Apply(b)
	if err != nil {
		t.Fatal(err)
	}
	groups := keys.Group()
	if len(groups) != 6 {
		t.Fatalf("%d groups, want 6", len(groups))
	}
	if fmt.Sprint(groups[0].Rows) != "[0 6]" {
		t.Errorf("rows of the first group: %v", groups[0].Rows)
	}
	if keys.Hash(0) != keys.Hash(6) || keys.Hash(0) == keys.Hash(1) || keys.Hash(2) == keys.Hash(3) {
		t.Error("hashes don't follow the tuples")
	}
	if v := groups[4].Values; v[0].Null || v[0].Value == nil || !v[1].Null || v[0].FieldID != 1000 || v[1].FieldID != 1001 {
		t.Errorf("the tuple ('', NULL) is %+v", v)
	}
}

// TestHashIsStable: tasks of one stage may run different releases.
func TestHashIsStable(t *testing.T) {
	schema := iceberg.NewSchema(0, column(1, "a", pt.String), column(2, "n", pt.Int32))
	keys, err := partitioner(t, schema, specOf(schema, iceberg.IdentityTransform{}, iceberg.BucketTransform{NumBuckets: 7})).Apply(record(t, schema, `[{"a":"firn","n":34},{"a":null,"n":null}]`))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := keys.Hash(0), keys.Hash(1); a != wantHash[0] || b != wantHash[1] {
		t.Errorf("hashes %#x, %#x, were %#x, %#x", a, b, wantHash[0], wantHash[1])
	}
}

var wantHash = [2]uint64{0x592f2b6a8fea2792, 0x7bc210046bd616cc}

func TestNaNsAreOnePartition(t *testing.T) {
	schema := iceberg.NewSchema(0, column(1, "f", pt.Float64))
	b := array.NewFloat64Builder(mem)
	defer b.Release()
	b.AppendValues([]float64{math.NaN(), math.Float64frombits(0xfff8000000000001), 1, math.Copysign(0, -1), 0}, nil)
	as, err := ArrowSchema(schema)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := partitioner(t, schema, specOf(schema, iceberg.IdentityTransform{})).Apply(array.NewRecordBatch(as, []arrow.Array{b.NewArray()}, 5))
	if err != nil {
		t.Fatal(err)
	}
	groups := keys.Group()
	if len(groups) != 4 || fmt.Sprint(groups[0].Rows) != "[0 1]" || fmt.Sprintf("%x", groups[0].Values[0].Value) != "000000000000f87f" {
		t.Errorf("groups %+v", groups)
	}
}

func TestNestedSource(t *testing.T) {
	schema := iceberg.NewSchema(0, column(1, "s", &iceberg.StructType{FieldList: []iceberg.NestedField{column(2, "x", pt.Int32), column(3, "in", &iceberg.StructType{FieldList: []iceberg.NestedField{column(4, "y", pt.Date)}})}}))
	spec := iceberg.NewPartitionSpecID(0, iceberg.PartitionField{SourceIDs: []int{4}, FieldID: 1000, Name: "y_year", Transform: iceberg.YearTransform{}})
	keys, err := partitioner(t, schema, spec).Apply(record(t, schema, `[{"s":{"x":1,"in":{"y":"1969-01-01"}}},{"s":null},{"s":{"x":1,"in":null}},{"s":{"x":2,"in":{"y":null}}}]`))
	if err != nil {
		t.Fatal(err)
	}
	groups := keys.Group()
	if len(groups) != 2 || !groups[1].Values[0].Null || len(groups[1].Rows) != 3 {
		t.Errorf("groups %+v", groups)
	}
}

func TestVoidAndUnpartitioned(t *testing.T) {
	schema := iceberg.NewSchema(0, column(1, "a", pt.String))
	if p := partitioner(t, schema, specOf(schema)); !p.Unpartitioned() {
		t.Error("a spec without fields isn't unpartitioned")
	}
	p := partitioner(t, schema, specOf(schema, iceberg.VoidTransform{}))
	keys, err := p.Apply(record(t, schema, `[{"a":"x"},{"a":"y"}]`))
	if err != nil || !p.Unpartitioned() {
		t.Fatal(err)
	}
	if g := keys.Group(); len(g) != 1 || !g[0].Values[0].Null {
		t.Errorf("groups %+v", g)
	}
}

// TestKeysAreTuples: two rows share a group exactly when their values are equal.
func TestKeysAreTuples(t *testing.T) {
	schema := iceberg.NewSchema(0, column(1, "a", pt.String), column(2, "b", pt.Int64), column(3, "c", pt.Binary))
	p := partitioner(t, schema, specOf(schema, iceberg.IdentityTransform{}, iceberg.TruncateTransform{Width: 3}, iceberg.TruncateTransform{Width: 1}))
	as, err := ArrowSchema(schema)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "rows")
		rb := array.NewRecordBuilder(mem, as)
		defer rb.Release()
		for range n {
			rb.Field(0).(*array.StringBuilder).Append(rapid.SampledFrom([]string{"", "null", "a", "ab"}).Draw(t, "a"))
			if rapid.Bool().Draw(t, "null") {
				rb.Field(0).(*array.StringBuilder).SetNull(rb.Field(0).Len() - 1)
			}
			rb.Field(1).(*array.Int64Builder).Append(int64(rapid.IntRange(-5, 5).Draw(t, "b")))
			rb.Field(2).(*array.BinaryBuilder).Append(rapid.SliceOfN(rapid.ByteRange(0, 2), 0, 2).Draw(t, "c"))
		}
		b := rb.NewRecordBatch()
		defer b.Release()
		keys, err := p.Apply(b)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]string{}
		rows := 0
		for _, g := range keys.Group() {
			rows += len(g.Rows)
			for _, r := range g.Rows {
				if text := fmt.Sprint(keys.Values(int(r))); text != fmt.Sprint(g.Values) {
					t.Fatalf("row %d has %s, its group %v", r, text, g.Values)
				}
			}
			if other, dup := seen[fmt.Sprint(g.Values)]; dup {
				t.Fatalf("groups %q and %q have the same tuple", other, g.Key)
			}
			seen[fmt.Sprint(g.Values)] = g.Key
		}
		if rows != n {
			t.Fatalf("%d rows in groups, want %d", rows, n)
		}
	})
}

func value(t *testing.T, typ iceberg.Type, v any) commit.PartitionValue {
	t.Helper()
	b, err := EncodeValue(typ, v)
	if err != nil {
		t.Fatal(err)
	}
	return commit.PartitionValue{FieldID: 1000, Value: b}
}

func TestPartitionPath(t *testing.T) {
	identity := iceberg.IdentityTransform{}
	cases := []struct {
		transform iceberg.Transform
		typ       iceberg.Type
		v         any
		want      string
	}{
		{iceberg.YearTransform{}, pt.Date, int32(-1), "1969"},
		{iceberg.MonthTransform{}, pt.Date, int32(372), "2001-01"},
		{iceberg.MonthTransform{}, pt.Date, int32(-1), "1969-12"},
		{iceberg.DayTransform{}, pt.Date, date("2001-01-01"), "2001-01-01"},
		{iceberg.DayTransform{}, pt.Date, iceberg.Date(-1), "1969-12-31"},
		{iceberg.HourTransform{}, pt.Timestamp, int32(419686), "2017-11-16-22"},
		{iceberg.HourTransform{}, pt.Timestamp, int32(-1), "1969-12-31-23"},
		{iceberg.BucketTransform{NumBuckets: 8}, pt.String, int32(7), "7"},
		{identity, pt.String, "a/b=c d%é*.-_~+", "a%2Fb%3Dc+d%25%C3%A9*.-_%7E%2B"},
		{identity, pt.String, "", ""},
		{identity, pt.String, "null", "null"},
		{identity, pt.String, nil, "null"},
		{identity, pt.Binary, []byte{0xfb, 0xff}, "%2B%2F8%3D"},
		{identity, pt.Bool, true, "true"},
		{identity, pt.Int64, int64(-5), "-5"},
		{identity, pt.Float64, 1.0, "1.0"},
		{identity, pt.Float64, 1e10, "1.0E10"},
		{identity, pt.Float32, float32(0.1), "0.1"},
		{identity, pt.Float64, math.Inf(-1), "-Infinity"},
		{identity, pt.Float64, math.NaN(), "NaN"},
		{identity, iceberg.DecimalTypeOf(4, 2), dec("-1.50", 4, 2), "-1.50"},
		{identity, pt.Time, iceberg.Time(36000e6), "10%3A00"},
		{identity, pt.Time, iceberg.Time(1500), "00%3A00%3A00.001500"},
		{identity, pt.Timestamp, micros("2001-01-01T00:00:00.5"), "2001-01-01T00%3A00%3A00.5"},
		{identity, pt.TimestampTz, micros("1969-12-31T23:59:59"), "1969-12-31T23%3A59%3A59%2B00%3A00"},
		{identity, pt.UUID, uuid.MustParse("f79c3e09-677c-4bbd-a479-3f349cb785e7"), "f79c3e09-677c-4bbd-a479-3f349cb785e7"},
	}
	for _, c := range cases {
		schema := iceberg.NewSchema(0, column(1, "c", c.typ))
		spec := specOf(schema, c.transform)
		v := commit.PartitionValue{FieldID: 1000, Null: true}
		if c.v != nil {
			v = value(t, c.transform.ResultType(c.typ), c.v)
		}
		if got := PartitionPath(spec, schema, []commit.PartitionValue{v}); got != "p0="+c.want {
			t.Errorf("%s of %s %v: %s, want p0=%s", c.transform, c.typ, c.v, got, c.want)
		}
	}
}

func TestLongPathsAreCut(t *testing.T) {
	schema := iceberg.NewSchema(0, column(1, "c", pt.String), column(2, "d", pt.Int32))
	spec := specOf(schema, iceberg.IdentityTransform{}, iceberg.IdentityTransform{})
	path := func(s string) string {
		d := value(t, pt.Int32, int32(1))
		return PartitionPath(spec, schema, []commit.PartitionValue{value(t, pt.String, s), d})
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringN(0, 400, -1).Draw(t, "s")
		for part := range strings.SplitSeq(path(s), "/") {
			if len(part) > 200 {
				t.Fatalf("a directory of %d bytes", len(part))
			}
			for i, rest := range strings.Split(part, "%") {
				if i > 0 && (len(rest) < 2 || strings.ToUpper(rest[:2]) != rest[:2]) {
					t.Fatalf("%s was cut in an escape", part)
				}
			}
		}
	})
	long := strings.Repeat("ü", 300)
	if path(long+"a") == path(long+"b") {
		t.Error("two long values share a directory name")
	}
}
