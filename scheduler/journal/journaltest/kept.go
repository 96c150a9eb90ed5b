package journaltest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/journal"
)

func testStripped(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	marked := func(want ...string) []journal.Stripped {
		t.Helper()
		all, err := j.Stripped(ctx)
		must(t, err)
		if len(all) != len(want) {
			t.Fatalf("%+v, want those of %v", all, want)
		}
		for i, s := range all {
			if s.JobID != want[i] || s.At.IsZero() {
				t.Fatalf("%+v, want that of %s", s, want[i])
			}
		}
		return all
	}
	marked()
	s := journal.Stripped{TableUUID: "uuid", Table: commit.TableName{Catalog: "lake", Namespace: []string{"a", "b"}, Name: "t"}, JobID: "j-1", SnapshotID: "9223372036854775807"}
	must(t, j.Strip(ctx, s))
	again := s
	again.JobID = "j-2"
	must(t, j.Strip(ctx, again)) // the first one stays
	if got := marked("j-1")[0]; got.TableUUID != s.TableUUID || got.Table.String() != s.Table.String() || got.SnapshotID != s.SnapshotID {
		t.Fatalf("%+v, want %+v", got, s)
	}
	must(t, j.Unstrip(ctx, "another"))
	marked("j-1")
	must(t, j.Unstrip(ctx, "uuid"))
	marked()
	must(t, j.Strip(ctx, again))
	marked("j-2")
}

func testUploads(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	u := journal.Upload{ID: "u-1", Attempt: "a-1", Executor: "e-1", Incarnation: "i-1", Columns: []byte(`[]`), Expires: at}
	other := u
	other.ID, other.Expires = "u-2", at.Add(time.Hour)
	must(t, j.Write(ctx, journal.Batch{Uploads: []journal.Upload{u, other}}))
	all, err := j.Uploads(ctx)
	must(t, err)
	if len(all) != 2 || all[0].Executor != "e-1" || all[0].Incarnation != "i-1" || all[0].Attempt != "a-1" || string(all[0].Columns) != "[]" ||
		!all[0].Expires.Equal(at) || all[1].ID != "u-2" {
		t.Fatalf("%+v", all)
	}
	must(t, j.Write(ctx, journal.Batch{Freed: []string{"u-1", "nobody's"}}))
	if all, err = j.Uploads(ctx); err != nil || len(all) != 1 || all[0].ID != "u-2" {
		t.Fatalf("%+v, %v", all, err)
	}
}

func testFrames(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	f := journal.Frame{ID: "f-1", Lineage: []byte("l"), Pieces: []byte("p"), Expires: at}
	other := journal.Frame{ID: "f-2", Pieces: []byte("q"), Expires: at}
	want := func(frames ...journal.Frame) {
		t.Helper()
		got, err := j.Frames(ctx)
		must(t, err)
		if len(got) != len(frames) {
			t.Fatalf("%+v, want %+v", got, frames)
		}
		for i, w := range frames {
			if g := got[i]; g.ID != w.ID || string(g.Lineage) != string(w.Lineage) || string(g.Pieces) != string(w.Pieces) || !g.Expires.Equal(w.Expires) {
				t.Fatalf("%+v, want %+v", g, w)
			}
		}
	}
	must(t, j.Write(ctx, journal.Batch{Frames: []journal.Frame{f, other}}))
	want(f, other)
	// What isn't said stays, and an expiry alone makes no frame.
	f.Expires, other.Lineage = at.Add(time.Hour), []byte("m")
	must(t, j.Write(ctx, journal.Batch{Frames: []journal.Frame{{ID: "f-1", Expires: f.Expires}, {ID: "f-2", Lineage: other.Lineage, Expires: at}, {ID: "f-3", Expires: at}}}))
	want(f, other)
	f.Pieces = []byte("p2")
	must(t, j.Write(ctx, journal.Batch{Frames: []journal.Frame{{ID: "f-1", Pieces: f.Pieces, Expires: f.Expires}}, Forgotten: []string{"f-2", "nobody's"}}))
	want(f)
}

// testManifests: a manifest comes back as it was, small or large, whether it was given
// at once or piece by piece, and so does that of a unit that is sealed again.
func testManifests(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	for i, size := range []int{0, 100, 1 << 20, 1<<20 + 1, 5 << 20} {
		body := make([]byte, size)
		for n := range body {
			body[n] = byte(n * (i + 1) >> 8)
		}
		pieces := func(w io.Writer) error {
			for rest := body; len(rest) > 0; {
				n := min(len(rest), 100_000)
				if _, err := w.Write(rest[:n]); err != nil {
					return err
				}
				rest = rest[n:]
			}
			return nil
		}
		for name, seal := range map[string]func(journal.Unit) error{
			"at once": func(u journal.Unit) error { return j.Seal(ctx, u, Body(body)) }, "in pieces": func(u journal.Unit) error { return j.Seal(ctx, u, pieces) },
		} {
			id := fmt.Sprintf("j-%s-%d", name, size)
			must(t, j.PutJob(ctx, Job(id, id)))
			must(t, seal(Unit(id, id)))
			must(t, seal(Unit(id, id)))
			whole, err := Manifest(ctx, j, id)
			must(t, err)
			if !bytes.Equal(whole, body) {
				t.Errorf("%d bytes %s: %d bytes came back, or others", size, name, len(whole))
			}
		}
	}
	must(t, j.PutJob(ctx, Job("j-x", "x")))
	why := errors.New("no")
	for _, before := range []int{0, 2 << 20} {
		if err := j.Seal(ctx, Unit("j-x", "x"), func(w io.Writer) error {
			_, err := w.Write(make([]byte, before))
			return errors.Join(err, why)
		}); !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
	}
	if _, err := j.Unit(ctx, "j-x"); !errors.Is(err, journal.ErrNotFound) {
		t.Errorf("a unit whose manifest failed: %v", err)
	}
	if _, err := j.OpenManifest(ctx, "j-none"); !errors.Is(err, journal.ErrNotFound) {
		t.Errorf("%v", err)
	}
}
