package wire_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
)

// full is a file in which every field is set and the values that are easy to
// lose are there: an empty bound, a null and an empty partition value.
func full() commit.File {
	return commit.File{
		Path: "s3://lake/air/flights/data/j-1/month=2001-01/0-3-a-1-0.parquet", Format: "PARQUET", Attempt: "a-1",
		SchemaID: 3, SpecID: 1, SortOrderID: 2,
		Partition: []commit.PartitionValue{
			{FieldID: 1000, Value: []byte{1, 0, 0, 0}},
			{FieldID: 1001, Null: true},
			{FieldID: 1002, Value: []byte{}},
		},
		Rows: 10, Size: 4096,
		ColumnSizes: map[int]int64{1: 100, 2: 200}, ValueCounts: map[int]int64{1: 10, 2: 10},
		NullCounts: map[int]int64{1: 0, 2: 10}, NaNCounts: map[int]int64{2: 0},
		Lower: map[int][]byte{1: {0xff}, 2: {}}, Upper: map[int][]byte{1: {0}, 2: {}},
		SplitOffsets: []int64{4, 2048},
	}
}

func encode(tb testing.TB, files ...commit.File) arrow.RecordBatch {
	tb.Helper()
	b, err := wire.EncodeManifest(files)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Release)
	return b
}

func TestManifestRoundTrip(t *testing.T) {
	bare := commit.File{Path: "file:///x", Format: "PARQUET", Attempt: "a"}
	want := []commit.File{full(), bare, full()}
	got, err := wire.DecodeManifest(encode(t, want...))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("manifest changed (-want +got):\n%s", d)
	}
}

func TestManifestWithoutFiles(t *testing.T) {
	b := encode(t)
	if !b.Schema().Equal(wire.ManifestSchema()) {
		t.Errorf("schema of an empty manifest is %s", b.Schema())
	}
	got, err := wire.DecodeManifest(b)
	if err != nil || len(got) != 0 {
		t.Errorf("got %v, %v; want no files", got, err)
	}
}

// A slice of a batch shares its buffers, so its first offset isn't 0.
func TestManifestSlice(t *testing.T) {
	other := full()
	other.Path, other.Lower = "file:///other", map[int][]byte{7: []byte("seven")}
	b := encode(t, full(), other, full()).NewSlice(1, 2)
	defer b.Release()
	got, err := wire.DecodeManifest(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]commit.File{other}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestManifestIsCanonical(t *testing.T) {
	enc := func() []byte {
		raw, err := wire.EncodeIPC(wire.ManifestSchema(), encode(t, full()))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	first := enc()
	for range 20 {
		if !bytes.Equal(first, enc()) {
			t.Fatal("equal files have different bytes")
		}
	}
}

func TestManifestProperty(t *testing.T) {
	id := rapid.IntRange(-1<<31, 1<<31-1)
	counts := rapid.MapOfN(id, rapid.Int64Min(0), 0, 4)
	bounds := rapid.MapOfN(id, rapid.SliceOfN(rapid.Byte(), 0, 9), 0, 4)
	file := rapid.Custom(func(t *rapid.T) commit.File {
		f := commit.File{
			Path: rapid.String().Draw(t, "path"), Format: rapid.StringN(0, 8, 64).Draw(t, "format"),
			Attempt: rapid.StringN(0, 8, 64).Draw(t, "attempt"), SchemaID: id.Draw(t, "schema"),
			SpecID: id.Draw(t, "spec"), SortOrderID: id.Draw(t, "order"),
			Rows: rapid.Int64Min(0).Draw(t, "rows"), Size: rapid.Int64Min(0).Draw(t, "size"),
			ColumnSizes: counts.Draw(t, "sizes"), ValueCounts: counts.Draw(t, "values"),
			NullCounts: counts.Draw(t, "nulls"), NaNCounts: counts.Draw(t, "nans"),
			Lower: bounds.Draw(t, "lower"), Upper: bounds.Draw(t, "upper"),
		}
		at := int64(0)
		for range rapid.IntRange(0, 3).Draw(t, "groups") {
			at += rapid.Int64Range(1, 1<<40).Draw(t, "offset")
			f.SplitOffsets = append(f.SplitOffsets, at)
		}
		return f
	})
	empty := cmp.FilterValues(func(a, b map[int]int64) bool { return len(a)+len(b) == 0 }, cmp.Ignore())
	emptyB := cmp.FilterValues(func(a, b map[int][]byte) bool { return len(a)+len(b) == 0 }, cmp.Ignore())
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.SliceOfN(file, 0, 4).Draw(rt, "files")
		b, err := wire.EncodeManifest(want)
		if err != nil {
			rt.Fatal(err)
		}
		defer b.Release()
		got, err := wire.DecodeManifest(b)
		if err != nil {
			rt.Fatal(err)
		}
		for i := range want {
			if d := cmp.Diff(want[i], got[i], empty, emptyB); d != "" {
				rt.Fatalf("-want +got:\n%s", d)
			}
		}
	})
}

func TestEncodeManifestRefusesLargeIDs(t *testing.T) {
	f := full()
	f.SchemaID = 1 << 31
	if _, err := wire.EncodeManifest([]commit.File{f}); err == nil {
		t.Error("an id of more than 32 bits was cut")
	}
}

// replace makes a manifest of one file whose column i is another array.
func replace(t *testing.T, b arrow.RecordBatch, i int, a arrow.Array) arrow.RecordBatch {
	t.Helper()
	cols := append([]arrow.Array{}, b.Columns()...)
	cols[i] = a
	fields := b.Schema().Fields()
	fields[i].Type = a.DataType()
	out := array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, b.NumRows())
	t.Cleanup(out.Release)
	return out
}

func fromJSON(t *testing.T, dt arrow.DataType, json string) arrow.Array {
	t.Helper()
	a, _, err := array.FromJSON(memory.DefaultAllocator, dt, strings.NewReader(json))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Release)
	return a
}

func TestDecodeManifestRefuses(t *testing.T) {
	schema := wire.ManifestSchema()
	col := func(name string) int { return schema.FieldIndices(name)[0] }
	good := encode(t, full())
	drop := func(n int) arrow.RecordBatch {
		b := array.NewRecordBatch(arrow.NewSchema(schema.Fields()[:n], nil), good.Columns()[:n], 1)
		t.Cleanup(b.Release)
		return b
	}
	renamed := func() arrow.RecordBatch {
		fields := schema.Fields()
		fields[0].Name = "Path"
		b := array.NewRecordBatch(arrow.NewSchema(fields, nil), good.Columns(), 1)
		t.Cleanup(b.Release)
		return b
	}
	swapped := func() arrow.RecordBatch {
		fields, columns := schema.Fields(), slices.Clone(good.Columns())
		fields[0], fields[1], columns[0], columns[1] = fields[1], fields[0], columns[1], columns[0]
		b := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 1)
		t.Cleanup(b.Release)
		return b
	}
	more := func(name string) arrow.RecordBatch {
		b := array.NewRecordBatch(arrow.NewSchema(append(schema.Fields(), arrow.Field{Name: name, Type: arrow.BinaryTypes.String}), nil), append(slices.Clone(good.Columns()), good.Column(0)), 1)
		t.Cleanup(b.Release)
		return b
	}
	with := func(name, json string) arrow.RecordBatch {
		i := col(name)
		return replace(t, good, i, fromJSON(t, schema.Field(i).Type, json))
	}
	cases := map[string]struct {
		batch arrow.RecordBatch
		want  string
	}{
		"no columns":           {drop(0), `no column "path"`},
		"missing column":       {drop(15), `no column "split_offsets"`},
		"renamed column":       {renamed(), `no column "path"`},
		"other order":          {swapped(), `column 0 is "format", want "path"`},
		"one column more":      {more("note"), `column "note" isn't one`},
		"column twice":         {more("rows"), "17 columns, want 16"},
		"wrong type":           {replace(t, good, col("rows"), fromJSON(t, arrow.PrimitiveTypes.Int32, `[1]`)), "type int32"},
		"null path":            {with("path", `[null]`), "null at 0"},
		"null rows":            {with("rows", `[null]`), "null at 0"},
		"null map":             {with("lower", `[null]`), "null at 0"},
		"null list":            {with("split_offsets", `[null]`), "null at 0"},
		"null inside a list":   {with("split_offsets", `[[null]]`), "null at 0"},
		"null partition field": {with("partition", `[[{"field_id":null,"null":false,"value":""}]]`), "null at 0"},
		"negative rows":        {with("rows", `[-1]`), "-1 rows"},
		"negative size":        {with("size", `[-5]`), "in -5 bytes"},
		"names the file":       {with("rows", `[-1]`), `row 0, of "` + full().Path + `"`},
		"negative count":       {with("null_counts", `[[{"key":1,"value":-1}]]`), "negative count"},
		"field twice":          {with("upper", `[[{"key":1,"value":"AA=="},{"key":1,"value":"AQ=="}]]`), "field 1 twice"},
		"offsets fall":         {with("split_offsets", `[[10,4]]`), "don't ascend"},
		"long path":            {with("path", `["`+strings.Repeat("x", 9000)+`"]`), "9000 bytes"},
		"many partition values": {with("partition", `[[`+strings.Repeat(`{"field_id":1,"null":true,"value":""},`, 1100)+
			`{"field_id":1,"null":true,"value":""}]]`), "1101 partition values"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			files, err := wire.DecodeManifest(c.batch)
			if err == nil || files != nil {
				t.Fatalf("decoded %v", files)
			}
			if !strings.Contains(err.Error(), "malformed file manifest") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %q, want it to say %q", err, c.want)
			}
		})
	}
}

// Text that isn't UTF-8 would break the JSON and Avro that it ends up in.
func TestDecodeManifestRefusesBadText(t *testing.T) {
	sb := array.NewStringBuilder(memory.DefaultAllocator)
	defer sb.Release()
	sb.Append("file:///\xff")
	a := sb.NewArray()
	defer a.Release()
	if _, err := wire.DecodeManifest(replace(t, encode(t, full()), 0, a)); err == nil || !strings.Contains(err.Error(), "isn't UTF-8") {
		t.Errorf("error is %v", err)
	}
}

// Buffers whose offsets leave the data come from a hostile sender only; the
// library doesn't check them.
func TestDecodeManifestRefusesBadOffsets(t *testing.T) {
	good := encode(t, full())
	for name, offsets := range map[string][]int32{"beyond": {0, 1 << 30}, "falling": {8, 4}, "negative": {-8, 4}} {
		t.Run(name, func(t *testing.T) {
			raw := arrow.Int32Traits.CastToBytes(offsets)
			str := array.NewData(arrow.BinaryTypes.String, 1, []*memory.Buffer{nil, memory.NewBufferBytes(raw), memory.NewBufferBytes([]byte("0123456789"))}, nil, 0, 0)
			for _, i := range []int{0, 15} {
				var a arrow.Array
				func() {
					defer func() { _ = recover() }() // the library refuses some itself
					if i == 0 {
						a = array.NewStringData(str)
						return
					}
					child := good.Column(15).(*array.List).ListValues().Data()
					d := array.NewData(good.Column(15).DataType(), 1, []*memory.Buffer{nil, memory.NewBufferBytes(raw)}, []arrow.ArrayData{child}, 0, 0)
					defer d.Release()
					a = array.NewListData(d)
				}()
				if a == nil {
					continue
				}
				t.Cleanup(a.Release)
				if files, err := wire.DecodeManifest(replace(t, good, i, a)); err == nil {
					t.Errorf("column %d: decoded %v", i, files)
				}
			}
		})
	}
}

// FuzzDecodeManifest changes the bytes of a manifest as they travel. Whatever
// they are, the outcome is files or an error.
func FuzzDecodeManifest(f *testing.F) {
	for _, files := range [][]commit.File{nil, {full()}, {full(), {Path: "x"}}} {
		raw, err := wire.EncodeIPC(wire.ManifestSchema(), encode(f, files...))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		files, err := decodeIPC(raw)
		if err != nil && files != nil {
			t.Fatalf("both files and %v", err)
		}
	})
}
