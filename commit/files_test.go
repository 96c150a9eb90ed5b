package commit_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/firn-project/firn/commit"
)

func anyFile() *rapid.Generator[commit.File] {
	bytes := rapid.OneOf(rapid.Just([]byte(nil)), rapid.Just([]byte{}), rapid.SliceOfN(rapid.Byte(), 0, 40))
	key := rapid.IntRange(math.MinInt32, math.MaxInt32)
	num := rapid.Int64()
	return rapid.Custom(func(t *rapid.T) commit.File {
		f := commit.File{
			Path: rapid.String().Draw(t, "path"), Format: rapid.String().Draw(t, "format"), Attempt: rapid.String().Draw(t, "attempt"),
			SchemaID: key.Draw(t, "schema"), SpecID: key.Draw(t, "spec"), SortOrderID: key.Draw(t, "order"), Rows: num.Draw(t, "rows"), Size: num.Draw(t, "size"),
		}
		if rapid.Bool().Draw(t, "parts") {
			f.Partition = rapid.SliceOf(rapid.Custom(func(t *rapid.T) commit.PartitionValue {
				return commit.PartitionValue{FieldID: key.Draw(t, "id"), Null: rapid.Bool().Draw(t, "null"), Value: bytes.Draw(t, "value")}
			})).Draw(t, "partition")
		}
		for _, m := range []*map[int]int64{&f.ColumnSizes, &f.ValueCounts, &f.NullCounts, &f.NaNCounts} {
			if rapid.Bool().Draw(t, "has") {
				*m = rapid.MapOf(key, num).Draw(t, "counts")
			}
		}
		for _, m := range []*map[int][]byte{&f.Lower, &f.Upper} {
			if rapid.Bool().Draw(t, "has") {
				*m = rapid.MapOf(key, bytes).Draw(t, "bounds")
			}
		}
		if rapid.Bool().Draw(t, "has") {
			f.SplitOffsets = rapid.SliceOf(num).Draw(t, "offsets")
		}
		return f
	})
}

// Nothing of a file is lost by packing it: what is empty stays apart from what isn't
// there.
func TestPackedFilesAreTheFiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		files := rapid.SliceOfN(anyFile(), 0, 20).Draw(t, "files")
		packed := commit.PackFiles(files...)
		slices.SortStableFunc(files, func(a, b commit.File) int { return strings.Compare(a.Path, b.Path) })
		var got []commit.File
		for i, f := range packed.All() {
			if packed.Path(i) != f.Path {
				t.Fatalf("%q, %q", packed.Path(i), f.Path)
			}
			got = append(got, f)
		}
		if d := cmp.Diff(files, got, cmp.Transformer("nil", func(b []byte) any {
			if b == nil {
				return nil
			}
			return string(b)
		})); d != "" && len(files) > 0 {
			t.Fatal(d)
		}
		if packed.Len() != len(files) {
			t.Fatalf("%d files, want %d", packed.Len(), len(files))
		}
	})
}

func TestPackerCuts(t *testing.T) {
	var p commit.Packer
	add := func(paths ...string) {
		for _, path := range paths {
			p.Add(commit.File{Path: path, Attempt: strings.Repeat("a", 100_000)})
		}
	}
	add("b", "d")
	before := p.Bytes()
	add("c", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o")
	p.Cut(2)
	if p.Bytes() != before || p.Len() != 2 {
		t.Errorf("%d files of %d bytes, before %d bytes", p.Len(), p.Bytes(), before)
	}
	add("a")
	files := p.Files()
	var got string
	for i := range files.Len() {
		if got += files.Path(i); len(files.At(i).Attempt) != 100_000 {
			t.Error("another file")
		}
	}
	if got != "abd" || p.Len() != 0 || p.Bytes() != 0 {
		t.Errorf("%s, and %d are left", got, p.Len())
	}
}

// What a packed file takes.
func TestPackedFilesAreSmall(t *testing.T) {
	f := commit.File{Path: "s3://warehouse/lake/air/flights/data/j-0198f2c1-aaaa-bbbb-cccc-0123456789ab/year=2026/00042-7-a-0198f2c1-aaaa-bbbb-cccc-0123456789ab-1.parquet", Format: "PARQUET", Attempt: "a-0198f2c1-aaaa-bbbb-cccc-0123456789ab", Rows: 1_000_000, Size: 100 << 20}
	f.ColumnSizes, f.ValueCounts, f.NullCounts, f.Lower, f.Upper = map[int]int64{}, map[int]int64{}, map[int]int64{}, map[int][]byte{}, map[int][]byte{}
	for c := 1; c <= 10; c++ {
		f.ColumnSizes[c], f.ValueCounts[c], f.NullCounts[c], f.Lower[c], f.Upper[c] = 10<<20, 1_000_000, 1000, make([]byte, 8), make([]byte, 8)
	}
	var p commit.Packer
	p.Add(f)
	if p.Bytes() > 700 {
		t.Errorf("a file of ten columns takes %d bytes", p.Bytes())
	}
}
