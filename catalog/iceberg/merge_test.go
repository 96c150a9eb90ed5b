package iceberg_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/catalog/iceberg"
	"github.com/firn-project/firn/commit"
)

func merging(version string) map[string]string {
	return map[string]string{table.PropertyFormatVersion: version, table.ManifestMinMergeCountKey: "4"}
}

// Manifests are merged beside the commits; readers see the same rows, under any
// filter, and nothing stays behind.
func TestManifestsAreMerged(t *testing.T) {
	for _, version := range []string{"2", "3"} {
		t.Run("v"+version, func(t *testing.T) {
			f := newFixture(t, idKV(), byK(), merging(version))
			var want []int64
			keys := []*string{new(string), nil, new("a"), new("zz")}
			for n := range 14 {
				f.append(f.unit(fmt.Sprint(n), f.file(true, rows(keys[n%4], int64(n)))))
				want = append(want, int64(n))
				iceberg.WaitForMerge(f.driver)
			}
			if n := len(f.manifests()); n > 6 {
				t.Errorf("%d manifests after 14 commits", n)
			}
			sameIDs(t, "all", f.ids(all()), want...)
			sameIDs(t, "empty string", f.ids(ice.EqualTo(ice.Reference("k"), "")), 0, 4, 8, 12)
			sameIDs(t, "null", f.ids(ice.IsNull(ice.Reference("k"))), 1, 5, 9, 13)
			sameIDs(t, "zz", f.ids(ice.EqualTo(ice.Reference("k"), "zz")), 3, 7, 11)
			sameIDs(t, "none", f.ids(ice.EqualTo(ice.Reference("k"), "b")))
			if s := f.summary(); number(t, s, "total-data-files") != 14 || number(t, s, "total-records") != 14 {
				t.Errorf("summary %v", s)
			}
			// Each file has the snapshot and the sequence number that it came with.
			seqs := map[int64]bool{}
			for _, mf := range f.manifests() {
				file, err := os.Open(strings.TrimPrefix(mf.FilePath(), "file://"))
				if err != nil {
					t.Fatal(err)
				}
				entries, err := ice.ReadManifest(mf, file, true)
				file.Close()
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					seqs[e.SequenceNum()] = true
					if s := f.meta().SnapshotByID(e.SnapshotID()); s == nil || s.SequenceNumber != e.SequenceNum() {
						t.Errorf("%s has the sequence number %d and the snapshot %d", e.DataFile().FilePath(), e.SequenceNum(), e.SnapshotID())
					}
				}
			}
			if len(seqs) != 14 {
				t.Errorf("sequence numbers %v", seqs)
			}
			f.close()
			f.noOrphans()
		})
	}
}

func TestMergingCanBeSwitchedOff(t *testing.T) {
	props := merging("2")
	props[table.ManifestMergeEnabledKey] = "false"
	f := newFixture(t, idKV(), nil, props)
	for n := range 6 {
		f.append(f.unit(fmt.Sprint(n), f.file(false, rows(nil, int64(n)))))
		iceberg.WaitForMerge(f.driver)
	}
	if n := len(f.manifests()); n != 6 {
		t.Errorf("%d manifests", n)
	}
}

// A merged manifest outlives the requests that didn't land with it, and never
// one that may have.
func TestAMergedManifestIsDeletedWhenNothingNeedsIt(t *testing.T) {
	merged := func(f *fixture) string {
		f.t.Helper()
		for n := range 4 {
			f.append(f.unit(fmt.Sprint("base", n), f.file(false, rows(nil, int64(n)))))
			iceberg.WaitForMerge(f.driver)
		}
		paths := iceberg.ReadyMerges(f.driver)
		if len(paths) != 1 {
			f.t.Fatalf("ready: %v", paths)
		}
		return strings.TrimPrefix(paths[0], "file://")
	}
	exists := func(path string) bool { _, err := os.Stat(path); return err == nil }
	t.Run("a lost request", func(t *testing.T) {
		f := newFixture(t, idKV(), nil, merging("2"))
		path := merged(f)
		lost := f.build(f.unit("lost", f.file(false, rows(nil, 9))))
		landed := f.build(f.unit("landed", f.file(false, rows(nil, 10))))
		f.send(landed)
		if slices.Contains(lost.MetadataFiles, "file://"+path) {
			t.Error("the request claims the merged manifest for itself")
		}
		if err := f.driver.Discard(t.Context(), lost); err != nil {
			t.Fatal(err)
		}
		f.close()
		if !exists(path) {
			t.Error("the manifest that the table uses was deleted")
		}
		sameIDs(t, "rows", f.ids(all()), 0, 1, 2, 3, 10)
		f.noOrphans()
	})
	t.Run("no request lands", func(t *testing.T) {
		f := newFixture(t, idKV(), nil, merging("2"))
		path := merged(f)
		r := f.build(f.unit("x", f.file(false, rows(nil, 9))))
		if err := f.driver.Discard(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if !exists(path) {
			t.Error("the next request needs it")
		}
		f.close()
		if exists(path) {
			t.Error("it stayed behind")
		}
		f.noOrphans()
	})
	t.Run("a request may land later", func(t *testing.T) {
		f := newFixture(t, idKV(), nil, merging("2"))
		path := merged(f)
		f.build(f.unit("x", f.file(false, rows(nil, 9))))
		f.close()
		if !exists(path) {
			t.Error("a request that may land refers to a manifest that is gone")
		}
	})
}

func (f *fixture) send(r commit.Request) {
	f.t.Helper()
	if a := f.driver.Send(f.t.Context(), r); a.Class != commit.AnswerOK {
		f.t.Fatalf("send: %+v", a)
	}
}

func (f *fixture) close() {
	f.t.Helper()
	if err := f.driver.Close(); err != nil {
		f.t.Fatal(err)
	}
}

// noOrphans: each manifest in the table's directory is in some snapshot.
func (f *fixture) noOrphans() {
	f.t.Helper()
	known := map[string]bool{}
	for _, s := range f.meta().Snapshots() {
		raw, err := os.Open(strings.TrimPrefix(s.ManifestList, "file://"))
		if err != nil {
			f.t.Fatal(err)
		}
		ms, err := ice.ReadManifestList(raw)
		raw.Close()
		if err != nil {
			f.t.Fatal(err)
		}
		known[filepath.Base(s.ManifestList)] = true
		for _, mf := range ms {
			known[filepath.Base(mf.FilePath())] = true
		}
	}
	for _, name := range f.metadataFiles() {
		if strings.HasSuffix(name, ".avro") && !known[name] {
			f.t.Errorf("%s is in no snapshot", name)
		}
	}
}

// Every type of partition value survives being copied.
func TestMergedPartitionValues(t *testing.T) {
	var fields []ice.NestedField
	var parts []ice.PartitionField
	values := [][]byte{}
	for i, c := range []struct {
		typ   ice.Type
		value []byte
	}{
		{ice.PrimitiveTypes.Bool, []byte{1}},
		{ice.PrimitiveTypes.Int32, []byte{1, 2, 3, 0xff}},
		{ice.PrimitiveTypes.Int64, []byte{1, 2, 3, 4, 5, 6, 7, 0x88}},
		{ice.PrimitiveTypes.Date, []byte{9, 9, 0, 0}},
		{ice.PrimitiveTypes.Time, []byte{9, 9, 0, 0, 1, 0, 0, 0}},
		{ice.PrimitiveTypes.Timestamp, []byte{9, 9, 0, 0, 1, 0, 0, 0}},
		{ice.PrimitiveTypes.TimestampTz, []byte{9, 9, 0, 0, 1, 0, 0, 0}},
		{ice.PrimitiveTypes.String, []byte("größe")},
		{ice.PrimitiveTypes.UUID, []byte("0123456789abcdef")},
		{ice.FixedTypeOf(3), []byte{0, 1, 0xff}},
		{ice.PrimitiveTypes.Binary, []byte{0, 0xff}},
		{ice.DecimalTypeOf(20, 3), []byte{0xff, 0x01}},
	} {
		fields = append(fields, ice.NestedField{ID: i + 1, Name: fmt.Sprint("c", i), Type: c.typ})
		parts = append(parts, ice.PartitionField{SourceIDs: []int{i + 1}, FieldID: 1000 + i, Name: fmt.Sprint("c", i), Transform: ice.IdentityTransform{}})
		values = append(values, c.value)
	}
	spec := ice.NewPartitionSpec(parts...)
	f := newFixture(t, ice.NewSchema(0, fields...), &spec, merging("2"))
	read := func() map[string]string {
		out := map[string]string{}
		for _, mf := range f.manifests() {
			file, err := os.Open(strings.TrimPrefix(mf.FilePath(), "file://"))
			if err != nil {
				t.Fatal(err)
			}
			entries, err := ice.ReadManifest(mf, file, true)
			file.Close()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				d := e.DataFile()
				out[d.FilePath()] = fmt.Sprintln(d.Partition(), d.Count(), d.FileSizeBytes(), d.ValueCounts(), d.NullValueCounts(),
					d.LowerBoundValues(), d.UpperBoundValues(), d.SplitOffsets(), *d.SortOrderID(), e.SnapshotID(), e.SequenceNum(), *e.FileSequenceNum())
			}
		}
		return out
	}
	add := func(n int) {
		file := commit.File{
			Path: fmt.Sprintf("file://%s/data/%d.parquet", f.dir, n), Format: "PARQUET", Rows: int64(n + 1), Size: 10, ValueCounts: map[int]int64{1: 3},
			NullCounts: map[int]int64{2: 1}, Lower: map[int][]byte{8: {}}, Upper: map[int][]byte{8: []byte("z")}, SplitOffsets: []int64{4},
		}
		for i, v := range values {
			file.Partition = append(file.Partition, commit.PartitionValue{FieldID: 1000 + i, Null: n == 1, Value: v})
		}
		f.append(f.unit(fmt.Sprint(n), file))
		iceberg.WaitForMerge(f.driver)
	}
	for n := range 4 {
		add(n)
	}
	want := read()
	if len(want) != 4 || len(iceberg.ReadyMerges(f.driver)) != 1 {
		t.Fatalf("%d files, ready %v", len(want), iceberg.ReadyMerges(f.driver))
	}
	add(4)
	if n := len(f.manifests()); n != 2 {
		t.Errorf("%d manifests", n)
	}
	got := read()
	for path, w := range want {
		if got[path] != w {
			t.Errorf("%s:\n%s\nwant\n%s", path, got[path], w)
		}
	}
	for _, mf := range f.manifests() {
		for i, p := range mf.Partitions() {
			if mf.ExistingDataFiles() == 4 && (!p.ContainsNull || p.LowerBound == nil || string(*p.LowerBound) != string(values[i]) || string(*p.UpperBound) != string(values[i])) {
				t.Errorf("summary of field %d: %+v", i, p)
			}
		}
	}
}
