package iceberg_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ice "github.com/apache/iceberg-go"
	iceio "github.com/apache/iceberg-go/io"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/commit"
)

// The traps are those of iceberg-go v0.7.0 that a commit meets; each test says
// what the library does on its own.

// The bound of an empty string is written as null, and every reader then prunes
// the whole manifest.
func TestTrapB1b_EmptyStringPartition(t *testing.T) {
	f := newFixture(t, idKV(), byK(), nil)
	f.append(f.unit("a", f.file(true, rows(new(""), 1)), f.file(true, rows(new("a"), 2)), f.file(true, rows(nil, 3)), f.file(true, rows(new("null"), 4))))
	f.append(f.unit("b", f.file(true, rows(new(""), 5))))
	for name, c := range map[string]struct {
		filter ice.BooleanExpression
		want   []int64
	}{
		"empty":        {ice.EqualTo(ice.Reference("k"), ""), []int64{1, 5}},
		"a":            {ice.EqualTo(ice.Reference("k"), "a"), []int64{2}},
		"null":         {ice.IsNull(ice.Reference("k")), []int64{3}},
		"text null":    {ice.EqualTo(ice.Reference("k"), "null"), []int64{4}},
		"less than a":  {ice.LessThan(ice.Reference("k"), "a"), []int64{1, 5}},
		"all not null": {ice.NotNull(ice.Reference("k")), []int64{1, 2, 4, 5}},
	} {
		sameIDs(t, name, f.ids(c.filter), c.want...)
	}
	for _, m := range f.manifests() {
		s := m.Partitions()[0]
		if s.LowerBound == nil || *s.LowerBound == nil || len(*s.LowerBound) != 0 {
			t.Errorf("manifest %s: lower bound %v, want a present, empty one", m.FilePath(), s.LowerBound)
		}
		if wantNull := m.AddedDataFiles() == 4; s.ContainsNull != wantNull {
			t.Errorf("manifest %s: contains_null %t", m.FilePath(), s.ContainsNull)
		}
		if s.UpperBound == nil || *s.UpperBound == nil {
			t.Errorf("manifest %s: no upper bound", m.FilePath())
		}
	}
}

// Names of partition fields become names of Avro fields, and the library takes
// those that Avro doesn't know as they are: then it can't write the manifest.
func TestTrap_PartitionNamesThatAvroDoesNotTake(t *testing.T) {
	for _, names := range [][]string{{"k"}, {"_k9"}, {"9k"}, {"größe"}, {"a b"}, {"日本.x"}, {"a b", "a_x20b"}, {"9", "_9"}, {"🎉", "k_1000"}} {
		var fields []ice.PartitionField
		for i, name := range names {
			fields = append(fields, ice.PartitionField{SourceIDs: []int{2}, FieldID: 1000 + i, Name: name, Transform: ice.IdentityTransform{}})
		}
		// Two identity fields of one column aren't allowed by the metadata builder,
		// so the second is a truncation.
		if len(fields) == 2 {
			fields[1].Transform = ice.TruncateTransform{Width: 1}
		}
		spec := ice.NewPartitionSpec(fields...)
		f := newFixture(t, idKV(), &spec, nil)
		file := func(k *string, id int64) commit.File {
			out := f.file(true, rows(k, id))
			for i := 1; i < len(names); i++ {
				v := out.Partition[0]
				v.FieldID = 1000 + i
				out.Partition = append(out.Partition, v)
			}
			return out
		}
		f.append(f.unit("a", file(new("x"), 1), file(nil, 2)))
		f.append(f.unit("b", file(new("y"), 3)))
		sameIDs(t, names[0], f.ids(ice.EqualTo(ice.Reference("k"), "x")), 1)
		sameIDs(t, names[0], f.ids(all()), 1, 2, 3)
		if got := f.meta().PartitionSpec(); got.Field(0).Name != names[0] {
			t.Errorf("the table's own spec has the name %q, want %q", got.Field(0).Name, names[0])
		}
	}
}

// NaN partitions are in no bound and have a flag of their own.
func TestTrapB1b_NaNPartition(t *testing.T) {
	spec := ice.NewPartitionSpec(ice.PartitionField{SourceIDs: []int{3}, FieldID: 1000, Name: "v", Transform: ice.IdentityTransform{}})
	f := newFixture(t, idKV(), &spec, nil)
	file := func(v float64, id int64) commit.File {
		c := f.file(false, []row{{id: id, v: &v}})
		var b [8]byte
		for i := range b {
			b[i] = byte(math.Float64bits(v) >> (8 * i))
		}
		c.Partition = []commit.PartitionValue{{FieldID: 1000, Value: b[:]}}
		return c
	}
	f.append(f.unit("a", file(math.NaN(), 1), file(-1, 2)))
	s := f.manifests()[0].Partitions()[0]
	if s.ContainsNaN == nil || !*s.ContainsNaN || s.ContainsNull {
		t.Errorf("summary %+v", s)
	}
	sameIDs(t, "v = -1", f.ids(ice.EqualTo(ice.Reference("v"), -1.0)), 2)
	sameIDs(t, "v is NaN", f.ids(ice.IsNaN(ice.Reference("v"))), 1)
}

// The library's catalogs report a stale base as a plain error, which nobody can
// tell from a broken one.
func TestTrapB5_StaleBaseIsAConflict(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	r := f.build(f.unit("a", f.file(false, rows(nil, 1))))
	f.foreign()
	if a := f.driver.Send(t.Context(), r); a.Class != commit.AnswerConflict {
		t.Errorf("%+v", a)
	}
}

// A lost answer leaves the library's caller with a raw error. Here Send claims
// nothing, and the next Read shows what happened.
func TestTrapB6_ALostAnswerIsResolvedByReading(t *testing.T) {
	for _, landed := range []bool{false, true} {
		f := newFixture(t, idKV(), nil, nil)
		u := f.unit("a", f.file(false, rows(nil, 1)))
		r := f.build(u)
		f.cat.answer = &commit.Answer{Class: commit.AnswerAmbiguous, Err: fmt.Errorf("connection reset")}
		f.cat.drop = !landed
		f.driver.Send(t.Context(), r)
		m := f.read()
		if _, ok := m.Find(commit.MainBranch, u.Token); ok != landed {
			t.Errorf("landed %t, found %t", landed, ok)
		}
		if m.HasSnapshot(r.SnapshotID) != landed {
			t.Errorf("landed %t: snapshot shown %t", landed, !landed)
		}
	}
}

// The library writes all files of a commit into one manifest.
func TestTrapB9_ManifestsAreRolled(t *testing.T) {
	f := newFixture(t, idKV(), nil, map[string]string{"commit.manifest.target-size-bytes": "8000"})
	base := f.file(false, rows(nil, 1))
	var files []commit.File
	for i := range 3000 {
		c := base
		c.Path = fmt.Sprintf("%s.%05d-%x", base.Path, i, i*7919)
		c.Lower = map[int][]byte{1: {byte(i), byte(i >> 8), 3, 4, 5, 6, 7, 8}}
		files = append(files, c)
	}
	f.append(f.unit("a", files...))
	ms := f.manifests()
	if len(ms) < 3 {
		t.Fatalf("%d manifests", len(ms))
	}
	seen := map[string]bool{}
	for _, m := range ms {
		st, err := os.Stat(strings.TrimPrefix(m.FilePath(), "file://"))
		if err != nil {
			t.Fatal(err)
		}
		if st.Size() != m.Length() {
			t.Errorf("manifest %s has %d bytes, and the list says %d", m.FilePath(), st.Size(), m.Length())
		}
		if m.Length() > 20000 {
			t.Errorf("manifest %s has %d bytes", m.FilePath(), m.Length())
		}
		for e, err := range m.Entries(iceio.LocalFS{}, true) {
			if err != nil {
				t.Fatal(err)
			}
			seen[e.DataFile().FilePath()] = true
		}
	}
	if len(seen) != len(files) {
		t.Errorf("%d files are listed, want %d", len(seen), len(files))
	}
}

// Many files are described by several writers at once; each file still stands in
// exactly one manifest, and no name is used twice.
func TestTrapB9_ManyFilesInParallel(t *testing.T) {
	if testing.Short() {
		t.Skip("20,001 files")
	}
	f := newFixture(t, idKV(), byK(), nil)
	base := f.file(true, rows(new("x"), 1))
	files := make([]commit.File, 20_001)
	for i := range files {
		files[i] = base
		files[i].Path = fmt.Sprintf("%s.%06d", base.Path, i)
	}
	f.append(f.unit("a", files...))
	seen, names := map[string]int{}, map[string]bool{}
	for _, m := range f.manifests() {
		if names[m.FilePath()] {
			t.Errorf("%s stands twice", m.FilePath())
		}
		names[m.FilePath()] = true
		for e, err := range m.Entries(iceio.LocalFS{}, true) {
			if err != nil {
				t.Fatal(err)
			}
			seen[e.DataFile().FilePath()]++
		}
	}
	for _, c := range files {
		if seen[c.Path] != 1 {
			t.Fatalf("%s stands %d times", c.Path, seen[c.Path])
		}
	}
	if got := number(t, f.summary(), "total-data-files"); got != int64(len(files)) {
		t.Errorf("total-data-files = %d", got)
	}
}

// The library's merge leaves manifests of failed attempts behind, and its failed
// commits their files.
func TestTrapB11_ADiscardedRequestLeavesNothing(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	before := f.metadataFiles()
	r := f.build(f.unit("a", f.file(false, rows(nil, 1))))
	if n := len(f.metadataFiles()) - len(before); n != len(r.MetadataFiles) {
		t.Errorf("Build wrote %d files and names %d", n, len(r.MetadataFiles))
	}
	if err := f.driver.Discard(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if after := f.metadataFiles(); !slices.Equal(before, after) {
		t.Errorf("left: %v", after)
	}
	sameIDs(t, "data files", nil)
	if _, err := os.Stat(filepath.Join(f.dir, "data", "0001.parquet")); err != nil {
		t.Errorf("Discard touched a data file: %v", err)
	}
}

// NaN counts and sort order ids are lost on the library's way.
func TestTrapB12_MetricsSurvive(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	c := f.file(false, rows(new(""), 1, 2))
	c.SortOrderID = 3
	c.ColumnSizes = map[int]int64{1: 11}
	c.NullCounts, c.NaNCounts = map[int]int64{1: 0, 2: 1}, map[int]int64{3: 1}
	c.Lower, c.Upper = map[int][]byte{2: {}}, map[int][]byte{2: []byte("z")}
	c.SplitOffsets = []int64{4, 100}
	f.append(f.unit("a", c))
	for e, err := range f.manifests()[0].Entries(iceio.LocalFS{}, true) {
		if err != nil {
			t.Fatal(err)
		}
		d := e.DataFile()
		if d.SortOrderID() == nil || *d.SortOrderID() != 3 || !slices.Equal(d.SplitOffsets(), c.SplitOffsets) {
			t.Errorf("sort order %v, split offsets %v", d.SortOrderID(), d.SplitOffsets())
		}
		if d.NaNValueCounts()[3] != 1 || d.NullValueCounts()[2] != 1 || d.ColumnSizes()[1] != 11 || d.ValueCounts()[1] != 2 {
			t.Errorf("counts %v %v %v %v", d.NaNValueCounts(), d.NullValueCounts(), d.ColumnSizes(), d.ValueCounts())
		}
		if lo, ok := d.LowerBoundValues()[2]; !ok || lo == nil || len(lo) != 0 || string(d.UpperBoundValues()[2]) != "z" {
			t.Errorf("bounds %v %v", d.LowerBoundValues(), d.UpperBoundValues())
		}
	}
}

// The library lets a caller's summary keys replace its counters.
func TestTrapB19_NothingReplacesCounters(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	u := f.unit("total-records", f.file(false, rows(nil, 1)))
	u.JobID = "x/1/1/1,total-records=9"
	f.append(u)
	if n := number(t, f.summary(), "total-records"); n != 1 {
		t.Errorf("total-records = %d", n)
	}
	for key := range f.summary() {
		if strings.HasPrefix(key, "firn.") && key != "firn.tokens" && key != "firn.units" {
			t.Errorf("summary key %s", key)
		}
	}
	if l, ok := f.read().Find("main", u.Token); !ok || l.Rows != 1 {
		t.Errorf("%+v", l)
	}
}

// A clock behind the table's makes the library refuse the snapshot.
func TestTrapB20_ClockBehindTheTable(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	start := f.now
	f.now = start.Add(time.Hour)
	f.append(f.unit("a", f.file(false, rows(nil, 1))))
	f.now = start.Add(-time.Hour)
	f.append(f.unit("b", f.file(false, rows(nil, 2))))
	s := f.meta().Snapshots()
	if s[1].TimestampMs < s[0].TimestampMs {
		t.Errorf("time goes back from %d to %d", s[0].TimestampMs, s[1].TimestampMs)
	}
	if f.meta().LastUpdatedMillis() < s[1].TimestampMs {
		t.Error("last-updated-ms is before the last snapshot")
	}
	sameIDs(t, "all", f.ids(all()), 1, 2)
}

// However far this machine's clock or another writer's is ahead or behind,
// timestamps don't go back, so that catalogs which refuse those of more than a
// minute ago, as the library does, take them.
func TestTimestampsUnderClockSkew(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	start := f.now
	for i, skew := range []time.Duration{0, 30 * 24 * time.Hour, -time.Hour, time.Minute, 60 * 24 * time.Hour, 0} {
		f.now = start.Add(skew)
		if i == 0 { // another writer changes a property: no snapshot
			f.foreign(table.NewSetPropertiesUpdate(ice.Properties{"owner": "else"}))
		}
		before := f.meta()
		f.append(f.unit(fmt.Sprint(i), f.file(false, rows(nil, int64(i)))))
		now := f.meta()
		s := now.CurrentSnapshot()
		if s.TimestampMs < before.LastUpdatedMillis() || now.LastUpdatedMillis() < before.LastUpdatedMillis() {
			t.Errorf("skew %s: the snapshot is of %d, the table was of %d and is of %d", skew, s.TimestampMs, before.LastUpdatedMillis(), now.LastUpdatedMillis())
		}
		if p := before.CurrentSnapshot(); p != nil && s.TimestampMs < p.TimestampMs {
			t.Errorf("skew %s: %d after %d", skew, s.TimestampMs, p.TimestampMs)
		}
	}
}

// The library's own commit is called nowhere: it retries below us, and its
// request isn't made from one read (traps B5, B6, B9 to B11 at once).
func TestTrapB10_TheLibraryCommitsNowhere(t *testing.T) {
	forbidden := []string{
		"NewTransaction", "NewTransactionOnBranch", "AddDataFiles", "AddFiles", "NewRowDelta", "NewRewrite",
		"ReplaceDataFilesWithDataFiles", "CommitTable", "CommitTransaction", "WithStagedUpdates",
	}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || slices.Contains([]string{"integration", "catalogtest", "testdata"}, d.Name())) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return nil //nolint:nilerr // half-written files of a working tree are the compiler's business
		}
		if !importsIceberg(file) {
			return nil
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
				if slices.Contains(forbidden, sel.Sel.Name) {
					t.Errorf("%s calls %s, which is the library's way to commit", path, sel.Sel.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func importsIceberg(f *ast.File) bool {
	return slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool {
		return strings.Contains(i.Path.Value, "apache/iceberg-go")
	})
}

// The library gives the type of every decimal partition the name "fixed", so two
// of them, as two uuids or two fixed of one length, make a schema that Avro
// refuses; and it leaves out a scale of 0, without which PyIceberg can't read the
// manifest.
func TestTrap_PartitionsOfNamedTypes(t *testing.T) {
	schema := ice.NewSchema(0,
		ice.NestedField{ID: 1, Name: "d0", Type: ice.DecimalTypeOf(18, 0)}, ice.NestedField{ID: 2, Name: "d1", Type: ice.DecimalTypeOf(4, 1)},
		ice.NestedField{ID: 3, Name: "u0", Type: ice.PrimitiveTypes.UUID}, ice.NestedField{ID: 4, Name: "u1", Type: ice.PrimitiveTypes.UUID},
		ice.NestedField{ID: 5, Name: "f0", Type: ice.FixedTypeOf(3)}, ice.NestedField{ID: 6, Name: "f1", Type: ice.FixedTypeOf(3)},
		ice.NestedField{ID: 7, Name: "d2", Type: ice.DecimalTypeOf(38, 0)},
	)
	var fields []ice.PartitionField
	for i, f := range schema.Fields() {
		fields = append(fields, ice.PartitionField{SourceIDs: []int{f.ID}, FieldID: 1000 + i, Name: f.Name, Transform: ice.IdentityTransform{}})
	}
	spec := ice.NewPartitionSpec(fields...)
	f := newFixture(t, schema, &spec, nil)
	u := func(last byte) []byte { return append(make([]byte, 15), last) }
	tuples := [][][]byte{
		{{0x0d, 0xe0, 0xb6, 0xb3, 0xa7, 0x63, 0xff, 0xff}, {0xff}, u(1), u(2), {1, 2, 3}, {4, 5, 6}, {0x80}},
		{{0xf2, 0x1f, 0x49, 0x4c, 0x58, 0x9c, 0x00, 0x01}, {0x27, 0x0f}, u(3), nil, {0, 0, 0}, nil, {0x00, 0x80}},
	}
	var files []commit.File
	for i, tuple := range tuples {
		file := commit.File{Path: fmt.Sprintf("file://%s/data/%d.parquet", f.dir, i), Format: "PARQUET", Rows: 1, Size: 100}
		for j, v := range tuple {
			file.Partition = append(file.Partition, commit.PartitionValue{FieldID: 1000 + j, Null: v == nil, Value: v})
		}
		files = append(files, file)
	}
	f.append(f.unit("a", files...))
	store := iceio.LocalFS{}
	manifests, err := f.meta().CurrentSnapshot().Manifests(store)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range manifests {
		raw, err := os.ReadFile(strings.TrimPrefix(m.FilePath(), "file://"))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(raw), `"scale":0`); n != 2 {
			t.Errorf("the manifest's schema names a scale of 0 %d times, want 2", n)
		}
		for e, err := range m.Entries(store, false) {
			if err != nil {
				t.Fatal(err)
			}
			p := e.DataFile().Partition()
			got = append(got, fmt.Sprint(p[1000], " ", p[1001], " ", p[1002], " ", p[1003], " ", p[1004], " ", p[1005], " ", p[1006]))
		}
		if s := m.Partitions()[1]; s.ContainsNull || string(*s.LowerBound) != "\xff" || string(*s.UpperBound) != "\x27\x0f" {
			t.Errorf("summary of d1: %+v", s)
		}
		if s := m.Partitions()[3]; !s.ContainsNull || string(*s.LowerBound) != string(u(2)) {
			t.Errorf("summary of u1: %+v", s)
		}
	}
	want := []string{
		"999999999999999999 -0.1 00000000-0000-0000-0000-000000000001 00000000-0000-0000-0000-000000000002 [1 2 3] [4 5 6] -128",
		"-999999999999999999 999.9 00000000-0000-0000-0000-000000000003 <nil> [0 0 0] <nil> 128",
	}
	if !slices.Equal(got, want) {
		t.Errorf("partitions\n%q, want\n%q", got, want)
	}
}
