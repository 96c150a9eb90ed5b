package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/journal/journaltest"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

// openDir opens a journal in a directory, with open writes in it. files names the
// manifests that lie in files.
func openDir(t *testing.T, writes ...string) (j *journal.SQLite, dir string, files func() []string) {
	t.Helper()
	dir = t.TempDir()
	j, err := journal.Open(t.Context(), dir)
	must(t, err)
	t.Cleanup(func() { closeIt(t, j) })
	for _, id := range writes {
		now := time.Now()
		must(t, j.Write(t.Context(), journal.Batch{
			Jobs:   []journal.Job{journaltest.Job(id, id)},
			Writes: []lifecycle.State{{WriteID: id, Phase: lifecycle.Open, TTL: time.Hour, Expires: now.Add(time.Hour), MaxExpires: now.Add(2 * time.Hour)}},
		}))
	}
	return j, dir, func() (names []string) {
		found, err := os.ReadDir(filepath.Join(dir, "manifests"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, f := range found {
			names = append(names, f.Name())
		}
		return names
	}
}

// size is what the journal takes of the disk.
func size(t *testing.T, dir string) (n int64) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	}))
	return n
}

// large is a manifest that is too large for a row.
func large(content string) []byte { return bytes.Repeat([]byte(content), 2<<20) }

func handIn(attempt, content string) lifecycle.Put {
	return lifecycle.Put{Manifest: lifecycle.Manifest{Attempt: attempt, Digest: strings.Repeat(content, 64), Files: 1, Rows: 1, Size: 1, Bytes: 2 << 20}}
}

func wantVerdict(t *testing.T, j *journal.SQLite, id string, ev lifecycle.Event, body []byte, want lifecycle.Verdict) {
	t.Helper()
	if _, a, err := j.StepWrite(t.Context(), id, ev, body); err != nil || a.Verdict != want {
		t.Errorf("%s: %+v, %v; want %s", id, a, err, want)
	}
}

// What isn't kept of a write's manifests takes nothing of the disk, however often it
// comes: not for a moment even, so that it's told why when there's no room.
func TestRefusedManifestTakesNothing(t *testing.T) {
	j, dir, files := openDir(t, "j-1", "j-2", "j-3")
	wantVerdict(t, j, "j-1", handIn("a", "a"), large("a"), lifecycle.Kept)
	wantVerdict(t, j, "j-2", lifecycle.Abort{}, nil, lifecycle.NowEnded)
	ended := journaltest.Job("j-3", "j-3")
	ended.Ended = ended.Submitted.Add(time.Second)
	must(t, j.PutJob(t.Context(), ended))
	over := handIn("b", "b")
	over.Limits.Bytes = 3 << 20
	// No file can be made, and the reserve is spent and can't be made again.
	manifests, aside, reserve := filepath.Join(dir, "manifests"), filepath.Join(dir, "aside"), filepath.Join(dir, "reserve")
	must(t, errors.Join(os.Rename(manifests, aside), os.WriteFile(manifests, nil, 0o600), os.Remove(reserve), os.MkdirAll(filepath.Join(reserve, "taken"), 0o700)))
	before := size(t, dir)
	for range 20 {
		wantVerdict(t, j, "j-1", handIn("a", "a"), large("a"), lifecycle.Known)
		wantVerdict(t, j, "j-1", handIn("a", "b"), large("b"), lifecycle.OtherContent)
		wantVerdict(t, j, "j-1", over, large("b"), lifecycle.OverLimit)
		wantVerdict(t, j, "j-2", handIn("a", "b"), large("b"), lifecycle.NotOpen)
		wantVerdict(t, j, "j-3", handIn("a", "b"), large("b"), lifecycle.NotOpen)
		wantVerdict(t, j, "j-1", lifecycle.Expire{Now: time.Now()}, nil, lifecycle.NotDue)
	}
	if after := size(t, dir); after != before {
		t.Errorf("%d bytes, were %d", after, before)
	}
	must(t, errors.Join(os.Remove(manifests), os.Rename(aside, manifests)))
	if len(files()) != 1 {
		t.Errorf("files %v", files())
	}
}

// Of manifests that come at the same time only those stay that are kept.
func TestManifestsThatRace(t *testing.T) {
	j, _, files := openDir(t, "j-1", "j-2")
	const n = 8
	var wg sync.WaitGroup
	verdicts := make([]lifecycle.Verdict, 2*n)
	errs := make([]error, 2*n)
	for i := range n {
		one := handIn(fmt.Sprint("a", i), "a")
		one.Limits.Manifests = 1
		for k, id := range []string{"j-1", "j-2"} {
			wg.Go(func() {
				// The two writes have the same content, and so the same file.
				_, a, err := j.StepWrite(t.Context(), id, one, large(string(rune('a'+i))))
				verdicts[2*i+k], errs[2*i+k] = a.Verdict, err
			})
		}
	}
	wg.Wait()
	must(t, errors.Join(errs...))
	named := map[string]bool{}
	for _, id := range []string{"j-1", "j-2"} {
		all, err := j.WriteManifests(t.Context(), id)
		must(t, err)
		if len(all) != 1 {
			t.Fatalf("%s has %+v; %v", id, all, verdicts)
		}
		body, err := j.WriteManifest(t.Context(), id, all[0].Attempt)
		must(t, err)
		named[string(body[:1])] = true
	}
	if len(files()) != len(named) {
		t.Errorf("files %v of the manifests %v", files(), named)
	}
}

// With the end of its job a write's manifests go, but not those that another one has
// too.
func TestManifestsGoWithTheirWrite(t *testing.T) {
	j, _, files := openDir(t, "j-1", "j-2")
	wantVerdict(t, j, "j-1", handIn("a", "a"), large("a"), lifecycle.Kept)
	wantVerdict(t, j, "j-1", handIn("b", "b"), large("b"), lifecycle.Kept)
	wantVerdict(t, j, "j-2", handIn("a", "a"), large("a"), lifecycle.Kept)
	for _, end := range []struct {
		id   string
		left int
	}{{"j-1", 1}, {"j-2", 0}} {
		ended := journaltest.Job(end.id, end.id)
		ended.Ended = ended.Submitted.Add(time.Second)
		must(t, j.PutJob(t.Context(), ended))
		if n := len(files()); n != end.left {
			t.Errorf("after the end of %s there are %d files, want %d", end.id, n, end.left)
		}
		if end.left > 0 {
			body, err := j.WriteManifest(t.Context(), "j-2", "a")
			if err != nil || !bytes.Equal(body, large("a")) {
				t.Errorf("%d bytes, %v", len(body), err)
			}
		}
	}
}

// A unit's manifest that isn't sealed is as if it had never been.
func TestRefusedSealLeavesNoFile(t *testing.T) {
	j, _, files := openDir(t, "j-1")
	seal := func(content string) error {
		return j.Seal(t.Context(), journaltest.Unit("j-1", "k"), journaltest.Body(large(content)))
	}
	must(t, seal("a"))
	must(t, seal("a"))
	other := journaltest.Unit("j-1", "k")
	other.Digest[0]++
	err := j.Seal(t.Context(), other, journaltest.Body(large("b")))
	if !errors.Is(err, journal.ErrSealed) {
		t.Errorf("%v", err)
	}
	journal.FailNext(j, 2)
	if err := j.Seal(t.Context(), journaltest.Unit("j-2", "k2"), journaltest.Body(large("c"))); commit.CodeOf(err) != commit.CodeJournalFull {
		t.Errorf("%v", err)
	}
	if n := len(files()); n != 1 {
		t.Errorf("%d files", n)
	}
	if body, err := journaltest.Manifest(t.Context(), j, "j-1"); err != nil || !bytes.Equal(body, large("a")) {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}

// With what is sealed in its place, a unit's manifest goes.
func TestReplacedSealLeavesNoFile(t *testing.T) {
	j, _, files := openDir(t, "j-1", "j-2")
	u := journaltest.Unit("j-1", "k")
	for _, content := range []string{"a", "b"} {
		u.Token[15]++ // of another table
		must(t, j.Seal(t.Context(), u, journaltest.Body(large(content))))
		if body, err := journaltest.Manifest(t.Context(), j, "j-1"); err != nil || !bytes.Equal(body, large(content)) || len(files()) != 1 {
			t.Errorf("%d bytes, %v; files %v", len(body), err, files())
		}
	}
	// Unless it is somebody else's, too.
	wantVerdict(t, j, "j-2", handIn("a", "b"), large("b"), lifecycle.Kept)
	u.Token[15]++
	must(t, j.Seal(t.Context(), u, journaltest.Body(large("c"))))
	if body, err := j.WriteManifest(t.Context(), "j-2", "a"); err != nil || !bytes.Equal(body, large("b")) {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}
