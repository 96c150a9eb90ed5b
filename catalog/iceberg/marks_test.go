package iceberg_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/firn-project/firn/catalog/iceberg"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

const mark = "9abc-0123456789ab"

// marked are the files with a mark that the table doesn't refer to.
func marked(t *testing.T, f *fixture, mark string) map[string]bool {
	t.Helper()
	paths := map[string]bool{}
	if err := f.driver.MarkedFiles(t.Context(), "file://"+f.dir+"/metadata", mark, func(m commit.MarkedFile) error {
		if !strings.HasSuffix(m.RequestID, "-"+mark) || m.Made.Sub(f.now).Abs().Hours() > 1 || !strings.Contains(m.Path, m.RequestID) {
			t.Errorf("%+v", m)
		}
		paths[m.Path] = true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.driver.Unreferenced(t.Context(), f.read(), paths); err != nil {
		t.Fatal(err)
	}
	return paths
}

// What a request wrote is found by its mark when nobody has sent it, and isn't
// when the table refers to it; nothing is written before the mark is on record.
func TestMarkedFiles(t *testing.T) {
	f := newFixture(t, idKV(), byK(), nil)
	begun := 0
	var refuse error
	f.driver.Mark(mark, func(_ context.Context, uuid, dir string) error {
		begun++
		if uuid != f.read().UUID() || dir != "file://"+f.dir+"/metadata" {
			t.Errorf("begins with %s, %s", uuid, dir)
		}
		return refuse
	})
	unit := func(n int64) commit.Unit { return f.unit(fmt.Sprint(n), f.file(true, rows(new("a"), n))) }
	for n := range int64(3) {
		f.append(unit(n))
	}
	if left := marked(t, f, mark); len(left) > 0 {
		t.Errorf("the table refers to %v", left)
	}
	m := f.read()
	r, err := f.driver.Build(t.Context(), m, []commit.Unit{unit(9)})
	if err != nil {
		t.Fatal(err)
	}
	left := marked(t, f, mark)
	if len(left) != len(r.MetadataFiles) || len(left) != 3 {
		t.Errorf("found %v of %v", left, r.MetadataFiles)
	}
	for _, p := range r.MetadataFiles {
		if !left[p] {
			t.Errorf("%s isn't found", p)
		}
	}
	// A process that dies while it writes one leaves it under a name of its own.
	list := slices.MaxFunc(r.MetadataFiles, func(a, b string) int { return len(a) - len(b) })
	half, err := objstore.New(objstore.Config{}).Create(t.Context(), list+"x")
	if err != nil {
		t.Fatal(err)
	}
	left = marked(t, f, mark)
	maps.DeleteFunc(left, func(p string, _ bool) bool { return slices.Contains(r.MetadataFiles, p) })
	if len(left) != 1 {
		t.Errorf("found %v besides, want the temporary file of %s", left, list)
	}
	if err := f.driver.Discard(t.Context(), commit.Request{MetadataFiles: slices.Collect(maps.Keys(left))}); err != nil {
		t.Error(err)
	}
	half.Abort()
	if left = marked(t, f, mark); len(left) != 3 {
		t.Errorf("after the temporary file was deleted: %v", left)
	}
	if other := marked(t, f, "9abc-0123456789ac"); len(other) > 0 {
		t.Errorf("another's mark: %v", other)
	}
	before, _ := filepath.Glob(f.dir + "/metadata/*")
	refuse = errors.New("the journal is full")
	if _, err := f.driver.Build(t.Context(), m, []commit.Unit{unit(9)}); !errors.Is(err, refuse) {
		t.Errorf("%v", err)
	}
	if after, _ := filepath.Glob(f.dir + "/metadata/*"); len(after) != len(before) || begun != 5 {
		t.Errorf("%d files became %d, begun %d times", len(before), len(after), begun)
	}
}

// A merged manifest that nobody took is found by the mark too; one that the table
// has isn't.
func TestMarkedMerges(t *testing.T) {
	f := newFixture(t, idKV(), byK(), merging("2"))
	f.driver.Mark(mark, func(context.Context, string, string) error { return nil })
	n := int64(0)
	add := func() {
		n++
		f.append(f.unit(fmt.Sprint(n), f.file(true, rows(new("a"), n))))
		iceberg.WaitForMerge(f.driver)
	}
	for len(iceberg.ReadyMerges(f.driver)) == 0 && n < 100 {
		add()
	}
	ready := iceberg.ReadyMerges(f.driver)
	if left := marked(t, f, mark); len(left) != 1 || !left[ready[0]] {
		t.Errorf("found %v, want %v", left, ready)
	}
	add()
	if left := marked(t, f, mark); left[ready[0]] {
		t.Errorf("the table refers to %v", ready)
	}
}
