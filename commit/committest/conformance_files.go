package committest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/firn-project/firn/commit"
)

// filesLister is what deleting the losers' files of a committed unit needs of a
// driver; its consumer declares it.
type filesLister interface {
	AddedFiles(ctx context.Context, m commit.Metadata, snapshotID string, each func(path string) error) error
}

// AddedFiles calls each with the path of every file that a snapshot added.
func (d *Driver) AddedFiles(_ context.Context, m commit.Metadata, snapshotID string, each func(path string) error) error {
	base, ok := m.(metadata)
	if !ok {
		return errors.New("the metadata is not of this driver")
	}
	s, ok := base.snapshots[snapshotID]
	if !ok {
		return fmt.Errorf("no snapshot %s", snapshotID)
	}
	for _, f := range s.files {
		if err := each(f.Path); err != nil {
			return err
		}
	}
	return nil
}

// testAddedFiles: a snapshot lists the files of the units that it committed, of
// each of them and of no other, also when others have come after it.
func testAddedFiles(t *testing.T, h Harness) {
	table := openTable(t, h)
	lister, ok := table.(filesLister)
	if !ok {
		t.Fatal("the driver doesn't list what a snapshot added")
	}
	mustCommit(t, table, h.Unit(t, "before", 2, 1))
	units := []commit.Unit{h.Unit(t, "one", 3, 1), h.Unit(t, "two", 1, 1)}
	Drive(table, units, opts())
	h.Foreign(t)
	mustCommit(t, table, h.Unit(t, "after", 1, 1))
	m := read(t, table)
	var want []string
	snapshot := ""
	for _, u := range units {
		l, ok := m.Find(commit.MainBranch, u.Token)
		if !ok || snapshot != "" && l.SnapshotID != snapshot {
			t.Fatalf("unit %s is in snapshot %q", u.Key, l.SnapshotID)
		}
		snapshot = l.SnapshotID
		for _, f := range u.Files.All() {
			want = append(want, f.Path)
		}
	}
	var got []string
	if err := lister.AddedFiles(t.Context(), m, snapshot, func(p string) error { got = append(got, p); return nil }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("lists %v, want %v", got, want)
	}
	stop := errors.New("stop")
	if err := lister.AddedFiles(t.Context(), m, snapshot, func(string) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the caller's error became %v", err)
	}
	if err := lister.AddedFiles(t.Context(), m, "1", func(string) error { return nil }); err == nil {
		t.Error("a snapshot that isn't there has files")
	}
}
