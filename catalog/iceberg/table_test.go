package iceberg_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
)

func TestAppendIsReadByTheLibrary(t *testing.T) {
	for _, version := range []string{"1", "2", "3"} {
		for _, spec := range []*ice.PartitionSpec{nil, byK()} {
			t.Run(fmt.Sprintf("v%s partitioned=%t", version, spec != nil), func(t *testing.T) {
				f := newFixture(t, idKV(), spec, map[string]string{"format-version": version})
				p := spec != nil
				r := f.append(
					f.unit("a", f.file(p, rows(new("x"), 1, 2)), f.file(p, rows(new("y"), 3))),
					f.unit("b", f.file(p, rows(new("x"), 4))),
				)
				sameIDs(t, "after one request", f.ids(all()), 1, 2, 3, 4)
				f.append(f.unit("c", f.file(p, rows(nil, 5))))
				sameIDs(t, "after two", f.ids(all()), 1, 2, 3, 4, 5)
				sameIDs(t, "k = x", f.ids(ice.EqualTo(ice.Reference("k"), "x")), 1, 2, 4)
				sameIDs(t, "k is null", f.ids(ice.IsNull(ice.Reference("k"))), 5)

				m := f.meta()
				if n := len(m.Snapshots()); n != 2 {
					t.Errorf("%d snapshots, want 2", n)
				}
				head := m.CurrentSnapshot()
				if head.ParentSnapshotID == nil || fmt.Sprint(*head.ParentSnapshotID) != r.SnapshotID {
					t.Errorf("parent %v, want %s", head.ParentSnapshotID, r.SnapshotID)
				}
				wantSeq := int64(2)
				if version == "1" {
					wantSeq = 0
				}
				if head.SequenceNumber != wantSeq || m.LastSequenceNumber() != wantSeq {
					t.Errorf("sequence number %d, last %d; want %d", head.SequenceNumber, m.LastSequenceNumber(), wantSeq)
				}
				if version == "3" && (*head.FirstRowID != 4 || *head.AddedRows != 1 || m.NextRowID() != 5) {
					t.Errorf("first row %d, added %d, next %d; want 4, 1, 5", *head.FirstRowID, *head.AddedRows, m.NextRowID())
				}
				if name := path.Base(f.cat.pointer); !strings.HasPrefix(name, "00002-") || !strings.HasSuffix(name, ".metadata.json") {
					t.Errorf("metadata file %s", name)
				}
				if n := len(f.raw()["metadata-log"].([]any)); n != 2 {
					t.Errorf("%d entries in the metadata log, want 2", n)
				}
				if n := len(f.raw()["snapshot-log"].([]any)); n != 2 {
					t.Errorf("%d entries in the snapshot log, want 2", n)
				}
			})
		}
	}
}

func TestSummary(t *testing.T) {
	f := newFixture(t, idKV(), byK(), nil)
	a := f.file(true, rows(new("x"), 1, 2))
	b := f.file(true, rows(nil, 3))
	f.append(f.unit("one", a, b))
	c := f.file(true, rows(new(""), 4))
	f.append(f.unit("two", c))
	s := f.summary()
	for key, want := range map[string]int64{
		"added-data-files": 1, "added-records": 1, "added-files-size": c.Size, "changed-partition-count": 1,
		"total-data-files": 3, "total-records": 4, "total-files-size": a.Size + b.Size + c.Size,
		"total-delete-files": 0, "total-position-deletes": 0, "total-equality-deletes": 0,
	} {
		if got := number(t, s, key); got != want {
			t.Errorf("%s = %d, want %d", key, got, want)
		}
	}
	if s["engine-name"] != "firn" || s["engine-version"] == "" {
		t.Errorf("engine %q %q", s["engine-name"], s["engine-version"])
	}
	if op := f.meta().CurrentSnapshot().Summary.Operation; op != table.OpAppend {
		t.Errorf("operation %s", op)
	}
}

// A parent whose summary lacks a total must not make the next one wrong.
func TestTotalsWhenTheParentLacksThem(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	a, b := f.file(false, rows(nil, 1, 2, 3)), f.file(false, rows(nil, 4))
	f.append(f.unit("one", a))
	m := f.meta()
	s := *m.CurrentSnapshot()
	delete(s.Summary.Properties, "total-files-size")
	s.Summary.Properties["total-records"] = "77"
	s.SnapshotID, s.ParentSnapshotID, s.SequenceNumber = 4711, &m.CurrentSnapshot().SnapshotID, 2
	f.foreign(table.NewAddSnapshotUpdate(&s), table.NewSetSnapshotRefUpdate("main", 4711, table.BranchRef, 0, 0, 0))
	f.append(f.unit("two", b))
	if got := number(t, f.summary(), "total-files-size"); got != a.Size+b.Size {
		t.Errorf("total-files-size = %d, want %d", got, a.Size+b.Size)
	}
	if got := number(t, f.summary(), "total-records"); got != 4 {
		t.Errorf("total-records = %d, want 4", got)
	}
}

// A request built before somebody else's commit is refused by the pointer, and
// leaves nothing when it is discarded. Built again, it lands beside the other.
func TestConflict(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	u := f.unit("ours", f.file(false, rows(nil, 1)))
	stale := f.build(u)
	other := *f
	other.reopen()
	other.append(other.unit("theirs", other.file(false, rows(nil, 2))))
	before := f.cat.pointer
	if a := f.driver.Send(t.Context(), stale); a.Class != commit.AnswerConflict || a.Err == nil {
		t.Fatalf("send: %+v", a)
	}
	if f.cat.pointer != before {
		t.Fatal("the refused request moved the pointer")
	}
	m := f.read()
	if _, ok := m.Find(commit.MainBranch, u.Token); ok {
		t.Error("the refused token is found")
	}
	if m.Clock().Number < stale.Seat.Number || m.Clock().Pointer == stale.Seat.Pointer {
		t.Errorf("the clock %+v has not passed the seat %+v", m.Clock(), stale.Seat)
	}
	have := f.metadataFiles()
	if err := f.driver.Discard(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	for _, p := range stale.MetadataFiles {
		if !slices.Contains(have, path.Base(p)) {
			t.Errorf("%s was never there", p)
		}
		if slices.Contains(f.metadataFiles(), path.Base(p)) {
			t.Errorf("%s is still there", p)
		}
	}
	if n := len(have) - len(f.metadataFiles()); n != len(stale.MetadataFiles) {
		t.Errorf("Discard deleted %d files, want %d", n, len(stale.MetadataFiles))
	}
	f.append(u)
	sameIDs(t, "after both", f.ids(all()), 1, 2)
}

// A stale request must not land even when the head comes back to what it was.
func TestRolledBackHeadDoesNotReviveARequest(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	first := f.append(f.unit("first", f.file(false, rows(nil, 1))))
	u := f.unit("ours", f.file(false, rows(nil, 2)))
	stale := f.build(u)
	f.append(f.unit("theirs", f.file(false, rows(nil, 3))))
	id := f.meta().Snapshots()[0].SnapshotID
	if fmt.Sprint(id) != first.SnapshotID {
		t.Fatal("the first snapshot isn't first")
	}
	f.foreign(table.NewSetSnapshotRefUpdate("main", id, table.BranchRef, 0, 0, 0))
	if got := f.read().Head("main"); got != stale.Head {
		t.Fatalf("head %s, want %s again", got, stale.Head)
	}
	if a := f.driver.Send(t.Context(), stale); a.Class != commit.AnswerConflict {
		t.Errorf("send: %+v", a)
	}
	sameIDs(t, "after", f.ids(all()), 1)
}

// Catalogs don't check the sequence number of a snapshot without a parent below
// version 3, so that such a request has no seat that could be taken: it may land
// after all whenever the branch has no head (commit protocol B2). A pointer that
// is swapped is a seat of its own, and version 3 has its row ids.
func TestSeatWithoutAParent(t *testing.T) {
	for name, c := range map[string]struct {
		version string
		swaps   bool
		first   bool
		want    int64
	}{
		"v2 first":            {"2", false, true, 0},
		"v2 second":           {"2", false, false, 2},
		"v2 first, swapped":   {"2", true, true, 1},
		"v2 second, swapped":  {"2", true, false, 2},
		"v3 first":            {"3", false, true, 1},
		"v1 first":            {"1", false, true, 0},
		"v1 second, compares": {"1", false, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, idKV(), nil, map[string]string{"format-version": c.version})
			if !c.first {
				f.append(f.unit("a", f.file(false, rows(nil, 1))))
			}
			f.cat.compares = !c.swaps
			f.reopen()
			seat := f.build(f.unit("b", f.file(false, rows(nil, 2)))).Seat
			if seat.Number != c.want || (seat.Pointer != "") != c.swaps {
				t.Errorf("seat %+v, want number %d, pointer %t", seat, c.want, c.swaps)
			}
		})
	}
}

func TestFind(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	u := f.unit("a,b/c=d", f.file(false, rows(nil, 1, 2)))
	u.JobID = "job,with/odd=text"
	f.now = time.UnixMilli(f.meta().LastUpdatedMillis() + 5)
	r := f.append(u, f.unit("other", f.file(false, rows(nil, 3))))
	for _, reopened := range []bool{false, true} {
		if reopened {
			f.reopen()
		}
		l, ok := f.read().Find("main", u.Token)
		if !ok {
			t.Fatal("not found")
		}
		want := commit.Landed{
			Token: u.Token, Digest: u.Digest, SnapshotID: r.SnapshotID, Seat: commit.Seat{Number: 1}, InHead: true,
			Rows: 2, Files: 1, Bytes: u.Bytes, CommittedAt: f.now.UTC(),
		}
		if l != want {
			t.Errorf("found %+v\nwant  %+v", l, want)
		}
		if _, ok := f.read().Find("main", commit.Token{1}); ok {
			t.Error("found a token that nobody committed")
		}
		if !f.read().HasSnapshot(r.SnapshotID) || f.read().HasSnapshot("17") || f.read().HasSnapshot("x") {
			t.Error("HasSnapshot is wrong")
		}
	}
}

// Rolled back, the token is still found, and it is told that main doesn't have
// it; the same for a token on another branch, and one that was cherry-picked.
func TestFindOutsideTheHead(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	first := f.append(f.unit("first", f.file(false, rows(nil, 1))))
	u := f.unit("ours", f.file(false, rows(nil, 2)))
	r := f.append(u)
	base := f.meta().Snapshots()[0].SnapshotID
	f.foreign(table.NewSetSnapshotRefUpdate("main", base, table.BranchRef, 0, 0, 0))
	m := f.read()
	if m.Head("main") != first.SnapshotID {
		t.Fatal("not rolled back")
	}
	if l, ok := m.Find("main", u.Token); !ok || l.InHead || l.SnapshotID != r.SnapshotID {
		t.Errorf("rolled back: found %t %+v", ok, l)
	}
	s := f.meta().Snapshots()[1]
	f.foreign(table.NewSetSnapshotRefUpdate("audit", s.SnapshotID, table.BranchRef, 0, 0, 0))
	if l, _ := f.read().Find("audit", u.Token); !l.InHead {
		t.Error("on branch audit: not in its head")
	}
	if l, _ := f.read().Find("main", u.Token); l.InHead {
		t.Error("on branch audit: in the head of main")
	}
	pick := s
	pick.SnapshotID, pick.ParentSnapshotID, pick.SequenceNumber = 99, &base, 3
	pick.Summary = &table.Summary{Operation: table.OpAppend, Properties: map[string]string{"source-snapshot-id": r.SnapshotID}}
	f.foreign(table.NewAddSnapshotUpdate(&pick), table.NewSetSnapshotRefUpdate("main", 99, table.BranchRef, 0, 0, 0))
	if l, ok := f.read().Find("main", u.Token); !ok || !l.InHead {
		t.Errorf("cherry-picked: found %t, in head %t", ok, l.InHead)
	}
}

func TestBranch(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	f.append(f.unit("main", f.file(false, rows(nil, 1))))
	u := f.unit("audit", f.file(false, rows(nil, 2)))
	u.Branch = "audit"
	r := f.append(u)
	if r.Head != "" || r.Branch != "audit" {
		t.Errorf("the request asserts %q of %q", r.Head, r.Branch)
	}
	sameIDs(t, "main", f.ids(all()), 1)
	if n := number(t, f.meta().SnapshotByName("audit").Summary.Properties, "total-records"); n != 2 {
		t.Errorf("the branch starts without main's rows: %d", n)
	}
	f.foreign(table.NewSetSnapshotRefUpdate("v1", f.meta().CurrentSnapshot().SnapshotID, table.TagRef, 0, 0, 0))
	u = f.unit("tag", f.file(false, rows(nil, 3)))
	u.Branch = "v1"
	if _, err := f.driver.Build(t.Context(), f.read(), []commit.Unit{u}); err == nil || !strings.Contains(err.Error(), "tag") {
		t.Errorf("writing a tag: %v", err)
	}
}

// The retention that somebody set on a branch survives our commit.
func TestBranchRetentionSurvives(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	f.append(f.unit("a", f.file(false, rows(nil, 1))))
	f.foreign(table.NewSetSnapshotRefUpdate("main", f.meta().CurrentSnapshot().SnapshotID, table.BranchRef, 0, 86400000, 7))
	f.append(f.unit("b", f.file(false, rows(nil, 2))))
	for name, ref := range f.meta().Refs() {
		if name == "main" && (ref.MinSnapshotsToKeep == nil || *ref.MinSnapshotsToKeep != 7 || ref.MaxSnapshotAgeMs == nil || *ref.MaxSnapshotAgeMs != 86400000) {
			t.Errorf("retention is now %+v", ref)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	f := newFixture(t, idKV(), byK(), nil)
	good := f.unit("good", f.file(true, rows(new("x"), 1)))
	bad := func(change func(*commit.Unit)) []commit.Unit {
		u := good
		change(&u)
		return []commit.Unit{u}
	}
	file := func(change func(*commit.File)) []commit.Unit {
		return bad(func(u *commit.Unit) { committest.EditFile(u, 0, change) })
	}
	before := f.metadataFiles()
	for name, units := range map[string][]commit.Unit{
		"none":         nil,
		"twice":        {good, good},
		"uuid":         bad(func(u *commit.Unit) { u.TableUUID = "other" }),
		"overwrite":    bad(func(u *commit.Unit) { u.Operation = "overwrite" }),
		"mixed specs":  append([]commit.Unit{good}, bad(func(u *commit.Unit) { u.SpecID, u.Token = 9, commit.Token{9} })...),
		"file's spec":  file(func(f *commit.File) { f.SpecID = 3 }),
		"no partition": file(func(f *commit.File) { f.Partition = nil }),
		"other field":  file(func(f *commit.File) { f.Partition = []commit.PartitionValue{{FieldID: 1001}} }),
		"bad UTF-8": file(func(f *commit.File) {
			f.Partition = []commit.PartitionValue{{FieldID: 1000, Value: []byte{0xff}}}
		}),
		"ORC":              file(func(f *commit.File) { f.Format = "ORC" }),
		"negative rows":    file(func(f *commit.File) { f.Rows = -1 }),
		"path that's void": file(func(f *commit.File) { f.Path = "" }),
	} {
		if _, err := f.driver.Build(t.Context(), f.read(), units); err == nil {
			t.Errorf("%s: built", name)
		}
		if after := f.metadataFiles(); !slices.Equal(before, after) {
			t.Errorf("%s: left %v", name, after)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	m := f.read()
	cancel()
	if _, err := f.driver.Build(ctx, m, []commit.Unit{good}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if after := f.metadataFiles(); !slices.Equal(before, after) {
		t.Errorf("cancelled: left %v", after)
	}
}

func TestDroppedAndMadeAgain(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	u := f.unit("old", f.file(false, rows(nil, 1)))
	stale := f.build(u)
	f.cat.pointer = ""
	if _, err := f.driver.Read(t.Context()); !errors.Is(err, commit.ErrTableNotFound) || commit.KindOf(err) != commit.KindNotFound {
		t.Errorf("Read of a dropped table: %v", err)
	}
	if a := f.driver.Send(t.Context(), stale); a.Class != commit.AnswerConflict {
		t.Errorf("send to a dropped table: %+v", a)
	}
	meta, err := table.NewMetadata(idKV(), nil, table.UnsortedSortOrder, "file://"+f.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.publish(meta)
	if err := f.read().CheckUnit(u); commit.ReasonOf(err) != commit.ReasonTableChanged {
		t.Errorf("CheckUnit: %v", err)
	}
	if a := f.driver.Send(t.Context(), stale); a.Class != commit.AnswerConflict {
		t.Errorf("send to the new table: %+v", a)
	}
}

// A read parses a metadata file once, and none after our own commit.
func TestReadParsesOnlyWhatIsNew(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	one := f.read()
	if f.read() != one {
		t.Error("the same pointer was parsed twice")
	}
	u := f.unit("a", f.file(false, rows(nil, 1)))
	if _, found := one.Find("main", u.Token); found {
		t.Error("found before it was committed")
	}
	r := f.append(u)
	two := f.read()
	// What was looked up before is taken over, with the new snapshot added.
	if _, found := two.Find("main", u.Token); !found || !two.HasSnapshot(r.SnapshotID) {
		t.Error("our own commit isn't found")
	}
	if _, found := one.Find("main", u.Token); found || one.HasSnapshot(r.SnapshotID) {
		t.Error("a read shows what was committed after it")
	}
	f.reopen()
	three := f.read()
	if two.Head("main") != three.Head("main") || two.Clock() != three.Clock() || two.UUID() != three.UUID() {
		t.Error("what was built differs from what is read")
	}
}

func TestMetadataFilesAreTrimmed(t *testing.T) {
	f := newFixture(t, idKV(), nil, map[string]string{
		"write.metadata.previous-versions-max": "2", "write.metadata.delete-after-commit.enabled": "true",
	})
	for i := range 5 {
		f.append(f.unit(fmt.Sprint(i), f.file(false, rows(nil, int64(i)))))
	}
	if n := len(f.raw()["metadata-log"].([]any)); n != 2 {
		t.Errorf("%d entries in the log, want 2", n)
	}
	n := 0
	for _, name := range f.metadataFiles() {
		if strings.HasSuffix(name, ".metadata.json") {
			n++
		}
	}
	if n != 3 {
		t.Errorf("%d metadata files are left, want the current one and 2", n)
	}
	sameIDs(t, "all", f.ids(all()), 0, 1, 2, 3, 4)
}

// While the outcome of a commit isn't known, no metadata file goes: the pointer may
// still be the old one, or the new one.
func TestMetadataFilesStayWhileTheAnswerIsMissing(t *testing.T) {
	for _, landed := range []bool{false, true} {
		f := newFixture(t, idKV(), nil, map[string]string{
			"write.metadata.previous-versions-max": "1", "write.metadata.delete-after-commit.enabled": "true",
		})
		for i := range 3 {
			f.append(f.unit(fmt.Sprint(i), f.file(false, rows(nil, int64(i)))))
		}
		before := f.metadataFiles()
		f.cat.answer, f.cat.drop = &commit.Answer{Class: commit.AnswerAmbiguous, Err: errors.New("no answer")}, !landed
		r, err := f.driver.Build(t.Context(), f.read(), []commit.Unit{f.unit("late", f.file(false, rows(nil, 9)))})
		if err != nil {
			t.Fatal(err)
		}
		if a := f.driver.Send(t.Context(), r); a.Class != commit.AnswerAmbiguous {
			t.Fatalf("%+v", a)
		}
		after := f.metadataFiles()
		for _, name := range before {
			if !slices.Contains(after, name) {
				t.Errorf("landed %t: %s was deleted before the outcome was known", landed, name)
			}
		}
	}
}

func TestCompressedMetadataAndOwnDirectory(t *testing.T) {
	dir := t.TempDir()
	f := newFixture(t, idKV(), nil, map[string]string{"write.metadata.compression-codec": "gzip", "write.metadata.path": "file://" + dir + "/"})
	f.append(f.unit("a", f.file(false, rows(nil, 1))))
	if !strings.HasPrefix(f.cat.pointer, "file://"+dir+"/00001-") || !strings.HasSuffix(f.cat.pointer, ".gz.metadata.json") {
		t.Errorf("metadata file %s", f.cat.pointer)
	}
	f.reopen()
	if got := f.read().Head("main"); got == "" {
		t.Error("no head after reading the compressed file")
	}
}
