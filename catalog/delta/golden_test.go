package delta

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/catalog/delta/deltatest"
	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/objstore"
)

var update = flag.Bool("update", false, "write testdata/golden.txt anew")

// goldenTables gives the directories of tables that other systems wrote, by name:
// those in testdata, and more where FIRN_TESTDATA has them.
func goldenTables(t *testing.T) map[string]string {
	t.Helper()
	tables := map[string]string{}
	dir := t.TempDir()
	deltatest.Unpack(t, filepath.Join("testdata", "kernel"), filepath.Join(dir, "kernel"))
	findTables(t, dir, tables)
	if data := os.Getenv("FIRN_TESTDATA"); data != "" {
		findTables(t, filepath.Join(data, "golden", "delta"), tables)
	}
	return tables
}

// findTables names a table by its directory, less the last part where that is
// "delta", as in the archives.
func findTables(t *testing.T, root string, tables map[string]string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || d.Name() != logDir {
			return err
		}
		dir := filepath.Dir(path)
		name, err := filepath.Rel(root, dir)
		if err != nil {
			return err
		}
		tables[strings.TrimSuffix(name, "/delta")] = dir
		return fs.SkipDir
	})
	if err != nil {
		t.Fatal(err)
	}
}

func localLog(dir string) *Log { return NewLog(objstore.New(objstore.Config{}), dir) }

// describe is one line about what is read of a table.
func describe(t *testing.T, l *Log) string {
	t.Helper()
	s, err := l.Snapshot(t.Context(), Latest)
	if err != nil {
		return "error: " + strings.ReplaceAll(err.Error(), l.Root(), "TABLE")
	}
	d := s.Definition()
	features := append(slices.Clone(d.Protocol.WriterFeatures), "")
	slices.Sort(features)
	files, size, stats, vectors := 0, int64(0), 0, 0
	for a, err := range s.Files(t.Context()) {
		if err != nil {
			return "error: " + strings.ReplaceAll(err.Error(), l.Root(), "TABLE")
		}
		files++
		size += a.Size
		if a.Stats != "" {
			if _, err := delta.ParseStats(s.PhysicalSchema(), a.Stats); err != nil {
				t.Errorf("%s: %s: %v", l.Root(), a.Path, err)
			}
			stats++
		}
		if a.DeletionVector != nil {
			vectors++
		}
	}
	return fmt.Sprintf("version %d, protocol %d/%d%s, columns %s, partition %v, files %d (%d bytes, %d stats, %d vectors), txn %v, domains %v",
		s.Version(), d.Protocol.MinReaderVersion, d.Protocol.MinWriterVersion, strings.Join(features, " "), d.Schema, d.Partition,
		files, size, stats, vectors, slices.Sorted(maps.Keys(s.txns)), slices.Sorted(maps.Keys(s.domains)))
}

// TestGoldenTables: protocol, schema and live files of every table that other
// systems wrote, and a clear error for those that are broken.
func TestGoldenTables(t *testing.T) {
	const path = "testdata/golden.txt"
	want := map[string]string{}
	b, err := os.ReadFile(path)
	if err != nil && !*update {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		name, text, _ := strings.Cut(s.Text(), ": ")
		want[name] = text
	}
	tables := goldenTables(t)
	got := map[string]string{}
	for name, dir := range tables {
		got[name] = describe(t, localLog(dir))
		if text, ok := want[name]; !*update && (!ok || text != got[name]) {
			t.Errorf("%s:\n%s", name, cmp.Diff(text, got[name]))
		}
	}
	if !*update {
		return
	}
	maps.Copy(want, got) // tables that aren't here keep their line
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(want)) {
		fmt.Fprintf(&out, "%s: %s\n", name, want[name])
	}
	if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestGoldenRows: every table that comes with its rows gives them.
func TestGoldenRows(t *testing.T) {
	compared := 0
	for name, dir := range goldenTables(t) {
		files, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "expected", "*.parquet"))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 0 || filepath.Base(dir) != "delta" {
			continue
		}
		s, err := localLog(dir).Snapshot(t.Context(), Latest)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := expectedRows(t, s.Definition().Schema, files)
		got := tableRows(t, s)
		compared++
		if name == "kernel/data-reader-partition-values" {
			// Its timestamps have no zone. Whoever wrote down the rows took them for
			// California's time, nobody can know that, and here they are UTC.
			for i := range want {
				want[i] = strings.ReplaceAll(want[i], "µs 1631124671000000", "µs 1631099471000000")
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if compared != 33 {
		t.Errorf("%d tables were compared, want 33", compared)
	}
}

// TestClusteredTable: the columns that a table is clustered by have statistics,
// whatever its properties say.
func TestClusteredTable(t *testing.T) {
	tt := newTestTable(t, nil)
	m := tt.snapshot(0).Metadata()
	m.Configuration = map[string]string{delta.PropertyIndexedColumns: "0"}
	tt.put(1, Commit{Metadata: &m})
	if l, err := tt.snapshot(1).IndexedLeaves(); err != nil || len(l) != 0 {
		t.Errorf("without clustering: %v, %v", l, err)
	}
	tt.put(2, Commit{Domains: []DomainMetadata{{Domain: delta.ClusteringDomain, Configuration: `{"clusteringColumns":[["v"]],"domainName":"delta.clustering"}`}}})
	if l, err := tt.snapshot(2).IndexedLeaves(); err != nil || len(l) != 1 || l[0].Path[0] != "v" {
		t.Errorf("clustered by v: %v, %v", l, err)
	}
	tt.put(3, Commit{Domains: []DomainMetadata{{Domain: delta.ClusteringDomain, Configuration: `[`}}})
	if l, err := tt.snapshot(3).IndexedLeaves(); err == nil {
		t.Errorf("with rubbish: %v", l)
	}
}

// TestGoldenCounts: the number of rows that another implementation counted. The
// list is in FIRN_TESTDATA, with the tables.
func TestGoldenCounts(t *testing.T) {
	root := filepath.Join(os.Getenv("FIRN_TESTDATA"), "golden", "delta")
	b, err := os.ReadFile(filepath.Join(root, "INDEX.md"))
	if err != nil {
		t.Skip("FIRN_TESTDATA has no golden/delta/INDEX.md")
	}
	line := regexp.MustCompile(`(?m)^\| (\S+) \|.*\| (\d+) \| \d+ \|$`)
	compared := 0
	for _, m := range line.FindAllStringSubmatch(string(b), -1) {
		dir := filepath.Join(root, strings.Replace(m[1], "kernel-rs/data", "kernel", 1))
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		s, err := localLog(dir).Snapshot(t.Context(), Latest)
		if err != nil {
			t.Errorf("%s: %v", m[1], err)
			continue
		}
		want, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		compared++
		if got := len(tableRows(t, s)); got != want {
			t.Errorf("%s: %d rows, want %d", m[1], got, want)
		}
	}
	if compared < 50 {
		t.Errorf("only %d tables were compared", compared)
	}
}
