package iceberg_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	ice "github.com/apache/iceberg-go"
	iceio "github.com/apache/iceberg-go/io"

	"github.com/firn-project/firn/catalog/iceberg"
)

// zeroCounts writes the head's manifest list again as a writer does that leaves the
// counts of files and rows at zero, and gives the paths in it.
func (f *fixture) zeroCounts() (paths []string) {
	f.t.Helper()
	s := f.meta().CurrentSnapshot()
	var files []ice.ManifestFile
	for _, m := range f.manifests() {
		files = append(files, ice.NewManifestFile(2, m.FilePath(), m.Length(), m.PartitionSpecID(), m.SnapshotID()).
			SequenceNum(m.SequenceNum(), m.MinSequenceNum()).Partitions(m.Partitions()).Build())
		paths = append(paths, m.FilePath())
	}
	var b bytes.Buffer
	if err := ice.WriteManifestList(2, &b, s.SnapshotID, s.ParentSnapshotID, &s.SequenceNumber, 0, files); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(strings.TrimPrefix(s.ManifestList, "file://"), b.Bytes(), 0o600); err != nil {
		f.t.Fatal(err)
	}
	f.reopen()
	return paths
}

// A manifest that another writer listed with counts of zero isn't dropped: its files
// stay in the table, also when manifests are merged.
func TestScenario29_ZeroCountsAreInherited(t *testing.T) {
	for name, props := range map[string]map[string]string{"inherited": nil, "merged": merging("2")} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, idKV(), nil, props)
			f.append(f.unit("a", f.file(false, rows(new("x"), 1, 2))))
			f.append(f.unit("b", f.file(false, rows(new("x"), 3))))
			old := f.zeroCounts()
			if len(old) == 0 || f.manifests()[0].AddedDataFiles() != 0 {
				t.Fatalf("%v, %d files", old, f.manifests()[0].AddedDataFiles())
			}
			const more = 8
			for id := range int64(more) {
				f.append(f.unit(fmt.Sprint(id), f.file(false, rows(new("x"), 10+id))))
				iceberg.WaitForMerge(f.driver)
			}
			var rows int64
			for _, m := range f.manifests() {
				for e, err := range m.Entries(iceio.LocalFS{}, true) {
					if err != nil {
						t.Fatal(err)
					}
					rows += e.DataFile().Count()
				}
			}
			if rows != 3+more {
				t.Errorf("%d rows in %d manifests, want %d", rows, len(f.manifests()), 3+more)
			}
			if props != nil && len(f.manifests()) > more {
				t.Errorf("%d manifests: none were merged", len(f.manifests()))
			}
			if props == nil && !slices.ContainsFunc(f.manifests(), func(m ice.ManifestFile) bool { return m.FilePath() == old[0] }) {
				t.Errorf("manifest %s isn't listed any more", old[0])
			}
		})
	}
}
