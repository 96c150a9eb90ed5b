package iceberg_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

func (f *fixture) scan(version string) plan.Source {
	f.t.Helper()
	src, err := f.scanErr(version)
	if err != nil {
		f.t.Fatal(err)
	}
	return src
}

func (f *fixture) scanErr(version string) (plan.Source, error) {
	f.t.Helper()
	m := f.read()
	p, err := m.Pin(nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return m.Scan(f.t.Context(), f.store, p, version)
}

func paths(src plan.Source) []string {
	var out []string
	for _, s := range src.Files {
		out = append(out, filepath.Base(s.Path))
	}
	slices.Sort(out)
	return out
}

func TestScan(t *testing.T) {
	f := newFixture(t, idKV(), byK(), nil)
	if src := f.scan(""); len(src.Files) != 0 || len(src.Columns) != 3 || src.Kind != plan.SourceTable {
		t.Errorf("empty table: %+v", src)
	}
	one := f.append(f.unit("a", f.file(true, rows(new("x"), 1, 2))))
	f.append(f.unit("b", f.file(true, rows(new("y"), 3))))
	src := f.scan("")
	if got := paths(src); !slices.Equal(got, []string{"0001.parquet", "0002.parquet"}) {
		t.Errorf("files %v", got)
	}
	for _, s := range src.Files {
		st, err := os.Stat(strings.TrimPrefix(s.Path, "file://"))
		if err != nil || st.Size() != s.Size {
			t.Errorf("%s: size %d, want %d (%v)", s.Path, s.Size, st.Size(), err)
		}
		if want := int64(map[string]int{"0001.parquet": 2, "0002.parquet": 1}[filepath.Base(s.Path)]); s.Rows != want {
			t.Errorf("%s: %d rows, want %d", s.Path, s.Rows, want)
		}
	}
	want := []plan.Column{
		{Name: "id", Type: "BIGINT", FieldID: 1, Required: true}, {Name: "k", Type: "VARCHAR", FieldID: 2}, {Name: "v", Type: "DOUBLE", FieldID: 3},
	}
	if !slices.Equal(src.Columns, want) {
		t.Errorf("columns %+v", src.Columns)
	}
	if !slices.Equal(src.View, []string{"lake", "air", "t"}) {
		t.Errorf("view %v", src.View)
	}
	if got := paths(f.scan(one.SnapshotID)); !slices.Equal(got, []string{"0001.parquet"}) {
		t.Errorf("version %s: %v", one.SnapshotID, got)
	}
	f.foreign(table.NewSetSnapshotRefUpdate("old", f.meta().Snapshots()[0].SnapshotID, table.TagRef, 0, 0, 0))
	if got := paths(f.scan("old")); !slices.Equal(got, []string{"0001.parquet"}) {
		t.Errorf("tag: %v", got)
	}
	_, err := f.scanErr("12345")
	var ce *commit.Error
	if commit.KindOf(err) != commit.KindNotFound || !errorAs(err, &ce) || !strings.Contains(ce.Hint, one.SnapshotID) || !strings.Contains(ce.Hint, "old") {
		t.Errorf("unknown version: %v", err)
	}
}

// A version is read with the schema that it had; the table as it is with its
// current one.
func TestScanSchemas(t *testing.T) {
	f := newFixture(t, idKV(), nil, map[string]string{"format-version": "3"})
	r := f.append(f.unit("a", f.file(false, rows(new("x"), 1))))
	fields := idKV().Fields()
	fields[1].Name = "renamed"
	fields = append(fields, ice.NestedField{ID: 4, Name: "n", Type: ice.PrimitiveTypes.Int32, InitialDefault: int32(7)})
	f.foreign(table.NewAddSchemaUpdate(ice.NewSchema(1, fields...)), table.NewSetCurrentSchemaUpdate(-1))
	now := f.scan("").Columns
	if len(now) != 4 || now[1].Name != "renamed" || now[1].FieldID != 2 || now[3].Default != "CAST('7' AS INTEGER)" {
		t.Errorf("now: %+v", now)
	}
	then := f.scan(r.SnapshotID).Columns
	if len(then) != 3 || then[1].Name != "k" {
		t.Errorf("then: %+v", then)
	}
}

// withDeletes puts a delete manifest into the table as another engine would.
func (f *fixture) withDeletes(seq int64, files ...ice.DataFile) {
	f.t.Helper()
	m := f.meta()
	id := 1000 + seq
	spec := m.PartitionSpec()
	var buf bytes.Buffer
	w, err := ice.NewManifestWriter(m.Version(), &buf, spec, m.CurrentSchema(), id, ice.WithManifestWriterContent(ice.ManifestContentDeletes))
	if err != nil {
		f.t.Fatal(err)
	}
	for _, d := range files {
		var at *int64
		if n, ok := f.seq[d.FilePath()]; ok {
			at = &n
		}
		if err := w.Add(ice.NewManifestEntry(ice.EntryStatusADDED, &id, at, nil, d)); err != nil {
			f.t.Fatal(err)
		}
	}
	path := fmt.Sprintf("file://%s/metadata/deletes-%d.avro", f.dir, seq)
	if err := w.Close(); err != nil {
		f.t.Fatal(err)
	}
	mf, err := w.ToManifestFile(path, int64(buf.Len()))
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.store.PutIfAbsent(f.t.Context(), path, buf.Bytes()); err != nil {
		f.t.Fatal(err)
	}
	var list bytes.Buffer
	parent := m.CurrentSnapshot().SnapshotID
	if err := ice.WriteManifestList(m.Version(), &list, id, &parent, &seq, m.NextRowID(), append([]ice.ManifestFile{mf}, f.manifests()...)); err != nil {
		f.t.Fatal(err)
	}
	listPath := fmt.Sprintf("file://%s/metadata/snap-%d.avro", f.dir, id)
	if err := f.store.PutIfAbsent(f.t.Context(), listPath, list.Bytes()); err != nil {
		f.t.Fatal(err)
	}
	s := table.Snapshot{
		SnapshotID: id, ParentSnapshotID: &parent, SequenceNumber: seq, TimestampMs: m.LastUpdatedMillis(), ManifestList: listPath,
		Summary: &table.Summary{Operation: table.OpDelete},
	}
	if m.Version() == 3 {
		first, none := m.NextRowID(), int64(0)
		s.FirstRowID, s.AddedRows = &first, &none
	}
	f.foreign(table.NewAddSnapshotUpdate(&s), table.NewSetSnapshotRefUpdate("main", id, table.BranchRef, 0, 0, 0))
}

func (f *fixture) deleteFile(content ice.ManifestEntryContent, name string, partition *string, change func(*ice.DataFileBuilder)) ice.DataFile {
	f.t.Helper()
	spec := f.meta().PartitionSpec()
	tuple := map[int]any{}
	if spec.NumFields() > 0 {
		tuple[1000] = nil
		if partition != nil {
			tuple[1000] = *partition
		}
	}
	ff := ice.ParquetFile
	if strings.HasSuffix(name, ".puffin") {
		ff = ice.PuffinFile
	}
	b, err := ice.NewDataFileBuilder(spec, content, name, ff, tuple, nil, nil, 1, 100)
	if err != nil {
		f.t.Fatal(err)
	}
	if change != nil {
		change(b)
	}
	return b.Build()
}

func TestScanDeletes(t *testing.T) {
	// referenced_data_file isn't kept in manifests below version 3.
	f := newFixture(t, idKV(), byK(), map[string]string{"format-version": "3"})
	// Sequence number 1: a file in each of x and null; 3: another in x.
	f.append(f.unit("a", f.file(true, rows(new("x"), 1)), f.file(true, rows(nil, 2))))
	eq := func(b *ice.DataFileBuilder) { b.EqualityFieldIDs([]int{1, 2}) }
	path1 := "file://" + f.dir + "/data/0001.parquet"
	f.withDeletes(2,
		f.deleteFile(ice.EntryContentPosDeletes, "pos-x", new("x"), nil),
		f.deleteFile(ice.EntryContentPosDeletes, "pos-null", nil, nil),
		f.deleteFile(ice.EntryContentPosDeletes, "pos-x-other", new("x"), func(b *ice.DataFileBuilder) { b.ReferencedDataFile("file:///elsewhere") }),
		f.deleteFile(ice.EntryContentPosDeletes, "pos-x-bounds", new("x"), func(b *ice.DataFileBuilder) {
			b.LowerBoundValues(map[int][]byte{2147483546: []byte(path1)}).UpperBoundValues(map[int][]byte{2147483546: []byte(path1)})
		}),
		f.deleteFile(ice.EntryContentPosDeletes, "pos-x-above", new("x"), func(b *ice.DataFileBuilder) {
			b.LowerBoundValues(map[int][]byte{2147483546: []byte(path1 + "z")})
		}),
		f.deleteFile(ice.EntryContentEqDeletes, "eq-x", new("x"), eq),
		f.deleteFile(ice.EntryContentEqDeletes, "eq-y", new("y"), eq),
	)
	f.append(f.unit("b", f.file(true, rows(new("x"), 3))))
	f.withDeletes(4, f.deleteFile(ice.EntryContentPosDeletes, "pos-x-late", new("x"), nil))
	got := map[string]string{}
	for _, s := range f.scan("").Files {
		var eqs []string
		for _, e := range s.EqualityDeletes {
			eqs = append(eqs, fmt.Sprint(e.Path, e.FieldIDs))
		}
		slices.Sort(s.PositionDeletes)
		got[filepath.Base(s.Path)] = strings.Join(s.PositionDeletes, " ") + " | " + strings.Join(eqs, " ")
	}
	for file, want := range map[string]string{
		"0001.parquet": "pos-x pos-x-bounds pos-x-late | eq-x[1 2]",
		"0002.parquet": "pos-null | ",
		"0003.parquet": "pos-x-late | ",
	} {
		if got[file] != want {
			t.Errorf("%s: %q, want %q", file, got[file], want)
		}
	}
	// Our next append inherits the delete manifests and counts on.
	f.append(f.unit("c", f.file(true, rows(new("y"), 4))))
	if n := number(t, f.summary(), "total-delete-files"); n != 8 {
		t.Errorf("total-delete-files = %d, want 8", n)
	}
}

// Equality deletes apply to files that are strictly older, in all partitions
// when their table isn't partitioned; position deletes also to files of their
// own commit.
func TestScanDeleteSequenceNumbers(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	f.append(f.unit("a", f.file(false, rows(nil, 1))))
	// Two of these belong to the commit of the first file.
	f.seq = map[string]int64{"eq-same": 1, "pos-same": 1}
	eq := func(b *ice.DataFileBuilder) { b.EqualityFieldIDs([]int{1}) }
	f.withDeletes(2,
		f.deleteFile(ice.EntryContentEqDeletes, "eq", nil, eq), f.deleteFile(ice.EntryContentEqDeletes, "eq-same", nil, eq),
		f.deleteFile(ice.EntryContentPosDeletes, "pos-same", nil, nil))
	f.append(f.unit("b", f.file(false, rows(nil, 2))))
	for _, s := range f.scan("").Files {
		want := map[string]string{"0001.parquet": "[{eq [1]}] [pos-same]", "0002.parquet": "[] []"}[filepath.Base(s.Path)]
		if got := fmt.Sprint(s.EqualityDeletes, " ", s.PositionDeletes); got != want {
			t.Errorf("%s: %s, want %s", s.Path, got, want)
		}
	}
}

func TestScanRefusesDeletionVectors(t *testing.T) {
	f := newFixture(t, idKV(), nil, map[string]string{"format-version": "3"})
	f.append(f.unit("a", f.file(false, rows(nil, 1))))
	f.withDeletes(2, f.deleteFile(ice.EntryContentPosDeletes, "dv.puffin", nil, func(b *ice.DataFileBuilder) {
		b.ReferencedDataFile("file:///x").ContentOffset(4).ContentSizeInBytes(10)
	}))
	_, err := f.scanErr("")
	if commit.CodeOf(err) != commit.CodeTableUnsupported || !strings.Contains(err.Error(), "lake.air.t") || !strings.Contains(err.Error(), "deletion vectors") {
		t.Errorf("%v", err)
	}
}

func TestDamagedMetadata(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	f.append(f.unit("a", f.file(false, rows(nil, 1))))
	list := strings.TrimPrefix(f.meta().CurrentSnapshot().ManifestList, "file://")
	if err := os.WriteFile(list, []byte("no Avro"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.scanErr(""); commit.CodeOf(err) != commit.CodeMetadataInvalid || !strings.Contains(err.Error(), list) {
		t.Errorf("damaged manifest list: %v", err)
	}
	for name, text := range map[string]string{"garbage": "{", "no schema": `{"format-version":2}`, "version 9": `{"format-version":9}`, "gzip": "\x1f\x8bxx"} {
		p := filepath.Join(f.dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f.cat.pointer = "file://" + p
		if _, err := f.driver.Read(t.Context()); commit.CodeOf(err) != commit.CodeMetadataInvalid || !strings.Contains(err.Error(), p) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.cat.pointer = "file:///nowhere/x.metadata.json"
	if _, err := f.driver.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "/nowhere/x.metadata.json") {
		t.Errorf("missing metadata file: %v", err)
	}
}

func TestPinAndTotals(t *testing.T) {
	f := newFixture(t, idKV(), byK(), map[string]string{"write.data.path": "file:///other/place/"})
	c := f.file(true, rows(new("x"), 1, 2))
	r := f.append(f.unit("a", c))
	m := f.read()
	p, err := m.Pin(map[string]string{"s3.region": "r"})
	if err != nil {
		t.Fatal(err)
	}
	if p.UUID != m.UUID() || p.SnapshotID != r.SnapshotID || p.MetadataLocation != f.cat.pointer || p.FormatVersion != 2 || p.Location != "file://"+f.dir {
		t.Errorf("pinned %+v", p)
	}
	if p.DataLocation != "file:///other/place" || p.Storage["s3.region"] != "r" {
		t.Errorf("data location %s, storage %v", p.DataLocation, p.Storage)
	}
	for part, b := range map[string][]byte{`"schema-id":0`: p.SchemaJSON, `"field-id":1000`: p.SpecJSON, `"order-id":0`: p.SortOrderJSON} {
		if !bytes.Contains(b, []byte(part)) {
			t.Errorf("%s lacks %s", b, part)
		}
	}
	got, err := m.Totals(t.Context(), f.store)
	if err != nil || got.Rows != 2 || got.Files != 1 || got.Bytes != c.Size || got.Snapshots != 1 {
		t.Errorf("totals %+v, %v", got, err)
	}
}

func TestScanGivesTheNameMapping(t *testing.T) {
	f := newFixture(t, idKV(), nil, map[string]string{
		"schema.name-mapping.default": `[{"field-id": 1, "names": ["id", "key"]}, {"names": ["ignored"]}]`,
	})
	if got, want := f.scan("").NameMapping, (map[int][]string{1: {"id", "key"}}); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("mapping %v, want %v", got, want)
	}
}
