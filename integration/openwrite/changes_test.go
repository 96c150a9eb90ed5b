package openwrite_test

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
)

// What happens to a file between its manifest and the commit is found out before
// anything is committed, and the error names the file.
func TestFilesThatChangeAfterTheirManifest(t *testing.T) {
	for format := range formats {
		t.Run(format, func(t *testing.T) {
			s := start(t, format)
			for name, c := range map[string]struct {
				change func(wc client.WriteContext, a attempt)
				want   string
			}{
				"deleted": {func(_ client.WriteContext, a attempt) { remove(t, a.path) }, "no such file"},
				"cut": {func(_ client.WriteContext, a attempt) {
					if err := os.Truncate(strings.TrimPrefix(a.path, "file://"), 10); err != nil {
						t.Fatal(err)
					}
				}, "10 bytes instead of"},
				"other rows":  {func(wc client.WriteContext, a attempt) { s.put(wc, a.path, append(a.rows, 1<<40), "x") }, "instead of"},
				"a directory": {func(_ client.WriteContext, a attempt) { remove(t, a.path); mkdir(t, a.path) }, "no such file"},
				"rubbish": {func(_ client.WriteContext, a attempt) {
					path := strings.TrimPrefix(a.path, "file://")
					st, err := os.Stat(path)
					if err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, make([]byte, st.Size()), 0o600); err != nil {
						t.Fatal(err)
					}
				}, "doesn't end like one"},
			} {
				w, wc := s.begin(client.WriteOptions{})
				good, bad := s.taken(w, wc, 2), s.taken(w, wc, 2)
				c.change(wc, bad)
				rep, err := w.Commit(t.Context(), []client.Handle{good.handle, bad.handle})
				if err == nil || rep.State == commit.CommitCommitted || rep.State == commit.CommitUnknown || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), bad.path) {
					t.Errorf("%s: %+v, %v; want %q and the file", name, rep, err, c.want)
				}
			}
			// The table goes on.
			e := newExpected()
			w, wc := s.begin(client.WriteOptions{})
			a := s.taken(w, wc, 2)
			e.add(a)
			if rep, err := w.Commit(t.Context(), []client.Handle{a.handle}); err != nil || rep.Rows != 2 {
				t.Fatalf("%+v, %v", rep, err)
			}
			s.judge(e)
		})
	}
}

func remove(t *testing.T, uri string) {
	t.Helper()
	if err := os.Remove(strings.TrimPrefix(uri, "file://")); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, uri string) {
	t.Helper()
	if err := os.Mkdir(strings.TrimPrefix(uri, "file://"), 0o750); err != nil {
		t.Fatal(err)
	}
}

// A table that is dropped, or made again under its name, gets nothing of a write
// that began before. The write ends refused, with a reason, or fails.
func TestTablesThatChangeMeanwhile(t *testing.T) {
	for format, using := range formats {
		t.Run(format, func(t *testing.T) {
			for name, statements := range map[string][]string{
				"dropped":         {"DROP TABLE lake.w.t"},
				"made again":      {"DROP TABLE lake.w.t", "CREATE TABLE lake.w.t (id BIGINT NOT NULL, p VARCHAR)" + using + " PARTITIONED BY (p)"},
				"of other fields": {"DROP TABLE lake.w.t", "CREATE TABLE lake.w.t (id VARCHAR)" + using},
			} {
				s := start(t, format)
				w, wc := s.begin(client.WriteOptions{Key: "k"})
				a := s.taken(w, wc, 2)
				s.must(statements...)
				rep, err := w.Commit(t.Context(), []client.Handle{a.handle})
				if err == nil || rep.State != commit.CommitRefused && rep.State != commit.CommitNone {
					t.Errorf("%s: %+v, %v", name, rep, err)
				}
				if e, ok := err.(*commit.Error); rep.State == commit.CommitRefused && (!ok || e.Reason != commit.ReasonTableChanged) { //nolint:errorlint // as it came
					t.Errorf("%s: refused for %v", name, err)
				}
				if name != "dropped" {
					if n := len(s.rowsOf("lake.w.t")); n != 0 {
						t.Errorf("%s: the new table has %d rows", name, n)
					}
				}
			}
		})
	}
}

// Complete manifests are held against what the table wants, as those of paths are.
func TestCompleteManifestsThatLie(t *testing.T) {
	s := start(t, "iceberg")
	w, wc := s.begin(client.WriteOptions{})
	a := s.write(wc, 2)
	st, err := os.Stat(strings.TrimPrefix(a.path, "file://"))
	if err != nil {
		t.Fatal(err)
	}
	le := func(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }
	whole := func() commit.File {
		return commit.File{
			Path: a.path, SchemaID: wc.SchemaID, SpecID: wc.SpecID, Rows: 2, Size: st.Size(),
			Partition:   []commit.PartitionValue{{FieldID: wc.Partition[0].FieldID, Value: []byte("x")}},
			ValueCounts: map[int]int64{1: 2, 2: 2}, NullCounts: map[int]int64{1: 0, 2: 0}, Lower: map[int][]byte{1: le(a.rows[0])}, Upper: map[int][]byte{1: le(a.rows[1])},
		}
	}
	for name, change := range map[string]func(*commit.File){
		"nulls in a required column": func(f *commit.File) { f.NullCounts[1] = 1 },
		"another partition field":    func(f *commit.File) { f.Partition[0].FieldID = 7 },
		"no partition":               func(f *commit.File) { f.Partition = nil },
		"a null partition": func(f *commit.File) {
			f.Partition[0] = commit.PartitionValue{FieldID: f.Partition[0].FieldID, Null: true}
		},
		"bounds the wrong way":  func(f *commit.File) { f.Lower[1], f.Upper[1] = f.Upper[1], f.Lower[1] },
		"another column":        func(f *commit.File) { f.NullCounts[99] = 0 },
		"more rows than values": func(f *commit.File) { f.ValueCounts[1] = 1 },
		"another schema":        func(f *commit.File) { f.SchemaID++ },
	} {
		f := whole()
		change(&f)
		if _, err := w.HandIn(t.Context(), a.id, []commit.File{f}); commit.CodeOf(err) != commit.CodeManifestRefused {
			t.Errorf("%s: %v", name, err)
		}
	}
	h, err := w.HandIn(t.Context(), a.id, []commit.File{whole()})
	if err != nil {
		t.Fatal(err)
	}
	if rep, err := w.Commit(t.Context(), []client.Handle{h}); err != nil || rep.Rows != 2 {
		t.Fatalf("%+v, %v", rep, err)
	}
	e := newExpected()
	e.add(a)
	s.judge(e)
}

// Files that are refused by their footers, over the wire: the error says what to do.
func TestFilesThatAreRefusedAtOnce(t *testing.T) {
	s := start(t, "iceberg")
	w, wc := s.begin(client.WriteOptions{})
	x, y := "x", "y"
	a := s.write(wc, 2)
	for name, c := range map[string]struct {
		file client.WrittenFile
		want string
	}{
		"not there":         {client.WrittenFile{Path: wc.Prefix + a.id + "-9.parquet", Size: -1, Rows: -1}, "no such file"},
		"other rows":        {client.WrittenFile{Path: a.path, Size: -1, Rows: 3}, "it has 2 rows, and the manifest says 3"},
		"other size":        {client.WrittenFile{Path: a.path, Size: 3, Rows: -1}, "bytes, and the manifest says 3"},
		"another partition": {client.WrittenFile{Path: a.path, Size: -1, Rows: -1, Partition: map[string]*string{"p": &y}}, "the manifest says y, and the file has x"},
		"outside":           {client.WrittenFile{Path: "file:///etc/" + a.id + "-0.parquet", Size: -1, Rows: -1, Partition: map[string]*string{"p": &x}}, "prefix"},
	} {
		_, err := w.HandInFiles(t.Context(), a.id, []client.WrittenFile{c.file})
		if commit.CodeOf(err) != commit.CodeManifestRefused || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	// Without a partition in the manifest the footer tells it.
	h, err := w.HandInFiles(t.Context(), a.id, []client.WrittenFile{{Path: a.path, Size: -1, Rows: -1}})
	if err != nil {
		t.Fatal(err)
	}
	if rep, err := w.Commit(t.Context(), []client.Handle{h}); err != nil || rep.Rows != 2 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if n := len(s.rowsOf("lake.w.t WHERE p = 'x'")); n != 2 {
		t.Errorf("%d rows in the partition", n)
	}
}
