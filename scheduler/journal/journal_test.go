package journal_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/journal/journaltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		journaltest.Run(t, true, func(t *testing.T) journaltest.Opener {
			dir := t.TempDir()
			return func(ctx context.Context) (journal.Journal, error) {
				// Only who removes the lock gets a second process in.
				_ = os.Remove(filepath.Join(dir, "scheduler.lock"))
				return journal.Open(ctx, dir)
			}
		})
	})
	t.Run("memory", func(t *testing.T) {
		journaltest.Run(t, false, func(*testing.T) journaltest.Opener {
			return func(ctx context.Context) (journal.Journal, error) { return journal.OpenMemory(ctx) }
		})
	})
}

func closeIt(t *testing.T, j journal.Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(t.Context(), dir)
	must(t, err)
	must(t, j.PutJob(t.Context(), journaltest.Job("j-1", "k")))
	must(t, j.Seal(t.Context(), journaltest.Unit("j-1", "k"), journaltest.Body([]byte("m"))))
	first := j.Incarnation()
	closeIt(t, j)

	j, err = journal.Open(t.Context(), dir)
	must(t, err)
	defer closeIt(t, j)
	if got, err := j.Job(t.Context(), "j-1"); err != nil || got.Key != "k" {
		t.Fatalf("%+v, %v", got, err)
	}
	if m, err := journaltest.Manifest(t.Context(), j, "j-1"); err != nil || string(m) != "m" {
		t.Fatalf("%q, %v", m, err)
	}
	if first == "" || j.Incarnation() != first {
		t.Fatalf("incarnation %q became %q", first, j.Incarnation())
	}
	other, err := journal.OpenMemory(t.Context())
	must(t, err)
	defer closeIt(t, other)
	if other.Incarnation() == first {
		t.Fatal("a new journal has an incarnation of its own")
	}
}

func TestSecondOpenSaysWhoHoldsIt(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(t.Context(), dir)
	must(t, err)
	_, err = journal.Open(t.Context(), dir)
	if commit.CodeOf(err) != commit.CodeDirectoryHeld || !strings.Contains(err.Error(), "process ") || !strings.Contains(err.Error(), dir) {
		t.Fatalf("error = %v", err)
	}
	closeIt(t, j)
	again, err := journal.Open(t.Context(), dir)
	must(t, err)
	closeIt(t, again)
}

func TestJournalOfALaterVersionRefused(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(t.Context(), dir)
	must(t, err)
	closeIt(t, j)
	db, err := sql.Open("sqlite", filepath.Join(dir, "journal.db"))
	must(t, err)
	_, err = db.ExecContext(t.Context(), "PRAGMA user_version = 99")
	must(t, err)
	must(t, db.Close())
	_, err = journal.Open(t.Context(), dir)
	if commit.CodeOf(err) != commit.CodeJournal || !strings.Contains(err.Error(), "99") {
		t.Fatalf("error = %v", err)
	}
}

func TestDamagedJournal(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "journal.db"), []byte(strings.Repeat("not a database ", 500)), 0o600))
	_, err := journal.Open(t.Context(), dir)
	if commit.CodeOf(err) != commit.CodeJournal {
		t.Fatalf("error = %v", err)
	}
}

// A copy of a journal may have forgotten what the first one wrote since: nothing
// that was sealed before is taken for unsent.
func TestRestoredCopyTrustsNoSeal(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(t.Context(), dir)
	must(t, err)
	must(t, j.PutJob(t.Context(), journaltest.Job("j-1", "k")))
	must(t, j.Seal(t.Context(), journaltest.Unit("j-1", "k"), journaltest.Body([]byte("m"))))
	first := j.Incarnation()
	closeIt(t, j)
	restored := t.TempDir()
	must(t, os.CopyFS(restored, os.DirFS(dir)))
	j, err = journal.Open(t.Context(), restored)
	must(t, err)
	defer closeIt(t, j)
	if j.Incarnation() == first {
		t.Fatal("a copy has the incarnation of the first journal")
	}
	if err := j.Drop(t.Context(), "j-1"); !errors.Is(err, journal.ErrNotDroppable) {
		t.Fatalf("a unit that may have been sent was dropped: %v", err)
	}
	changed := journaltest.Unit("j-1", "k")
	changed.Digest[1]++
	if err := j.Seal(t.Context(), changed, journaltest.Body(nil)); !errors.Is(err, journal.ErrSealed) {
		t.Fatalf("another content took its place: %v", err)
	}
}

// What a copy says of the past may be out of date in every respect: units that
// it has as refused may have been driven since, and jobs that it has as running
// may have been sealed.
func TestRestoredCopyCountsEverythingAsSent(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	j, err := journal.Open(ctx, dir)
	must(t, err)
	for _, id := range []string{"j-refused", "j-running", "j-failed", "j-committed"} {
		must(t, j.PutJob(ctx, journaltest.Job(id, id)))
	}
	for id, o := range map[string]journal.Outcome{
		"j-refused": {State: commit.Refused, Reason: commit.ReasonConflict}, "j-committed": {State: commit.Committed},
	} {
		must(t, j.Seal(ctx, journaltest.Unit(id, id), journaltest.Body([]byte("m"))))
		must(t, j.Outcome(ctx, id, o))
	}
	ended := journaltest.Job("j-failed", "j-failed")
	ended.State, ended.Ended = "failed", time.Now()
	must(t, j.PutJob(ctx, ended))
	closeIt(t, j)
	restored := t.TempDir()
	must(t, os.CopyFS(restored, os.DirFS(dir)))
	j, err = journal.Open(ctx, restored)
	must(t, err)
	defer closeIt(t, j)

	u := journaltest.Unit("j-refused", "j-refused")
	if err := j.Drop(ctx, "j-refused"); !errors.Is(err, journal.ErrNotDroppable) {
		t.Errorf("dropped: %v", err)
	}
	if err := j.Seal(ctx, u, journaltest.Body(nil)); !errors.Is(err, journal.ErrSealed) {
		t.Errorf("sealed again: %v", err)
	}
	if id, err := j.Unresolved(ctx, u.Token); err != nil || id != "j-refused" {
		t.Errorf("unresolved: %q, %v", id, err)
	}
	for id, lost := range map[string]bool{"j-running": true, "j-failed": false} {
		job, err := j.Job(ctx, id)
		must(t, err)
		if job.Lost != lost {
			t.Errorf("%s is lost: %v", id, job.Lost)
		}
		job.Ended = time.Now()
		must(t, j.PutJob(ctx, job))
		if err := j.Deleting(ctx, id, []string{"p"}, false); errors.Is(err, journal.ErrNotDroppable) != lost {
			t.Errorf("delete the files of %s: %v", id, err)
		}
	}

	lost := journaltest.Send("lost-1", u)
	lost.Seat, lost.SnapshotID, lost.MetadataFiles = commit.Seat{Number: 9}, "", nil
	must(t, j.Lost(ctx, "j-refused", lost))
	got, err := j.Unit(ctx, "j-refused")
	must(t, err)
	if got.State != journal.UnitUnknown || got.Incarnation != j.Incarnation() || got.Sends != 1 {
		t.Errorf("after the lost sends are on record: %+v", got)
	}
	if err := j.Drop(ctx, "j-refused"); !errors.Is(err, journal.ErrNotDroppable) {
		t.Errorf("dropped while a lost request may land: %v", err)
	}
	must(t, j.Outcome(ctx, "j-refused", journal.Outcome{State: commit.Refused, Reason: commit.ReasonConflict}))
	must(t, j.Drop(ctx, "j-refused"))
	lost.RequestID = "lost-2"
	must(t, j.Lost(ctx, "j-committed", lost))
	if got, _ := j.Unit(ctx, "j-committed"); got.State != journal.UnitCommitted {
		t.Errorf("what was committed is %s", got.State)
	}
}

// A journal of the first version is migrated with all that it holds.
func TestMigratesTheFirstVersion(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(dir, 0o700))
	raw, err := os.ReadFile(filepath.Join("testdata", "version1.sql"))
	must(t, err)
	db, err := sql.Open("sqlite", filepath.Join(dir, "journal.db"))
	must(t, err)
	_, err = db.ExecContext(t.Context(), string(raw))
	must(t, err)
	must(t, db.Close())
	j, err := journal.Open(t.Context(), dir)
	must(t, err)
	defer closeIt(t, j)
	u, err := j.Unit(t.Context(), "j-1")
	must(t, err)
	if u.State != journal.UnitSent || u.Sends != 1 || u.Incarnation != "inc-1" || j.Incarnation() != "inc-1" || u.Since.IsZero() {
		t.Fatalf("%+v", u)
	}
	if m, err := journaltest.Manifest(t.Context(), j, "j-1"); err != nil || string(m) != "m" {
		t.Fatalf("%q, %v", m, err)
	}
	if since, err := j.Remembers(t.Context()); err != nil || since.UnixMilli() != 1000 {
		t.Fatalf("remembers since %v, %v", since, err)
	}
	must(t, j.Outcome(t.Context(), "j-1", journal.Outcome{State: commit.Committed}))
}

// On a full disk the space kept for them lets commits in flight be recorded, and
// no new job is admitted until there is space again.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(t.Context(), dir)
	must(t, err)
	defer closeIt(t, j)
	admitted := journaltest.Job("j-1", "k")
	admitted.Submission = []byte("s")
	must(t, j.PutJob(t.Context(), admitted))
	u := journaltest.Unit("j-1", "k")
	must(t, j.Seal(t.Context(), u, journaltest.Body(nil)))
	// What a disk says that runs full, once: the reserve makes room.
	full := journal.FailNext(j, 1)
	must(t, j.Send(t.Context(), journaltest.Send("r-1", u)))
	if full() != 0 {
		t.Fatal("the fault didn't fire")
	}
	// The reserve is spent and can't be made again.
	must(t, os.MkdirAll(filepath.Join(dir, "reserve", "taken"), 0o700))
	late := journaltest.Job("j-2", "k2")
	late.Submission = []byte("s")
	if err := j.PutJob(t.Context(), late); commit.CodeOf(err) != commit.CodeJournalFull {
		t.Fatalf("a job was admitted: %v", err)
	}
	up := journal.Batch{Uploads: []journal.Upload{{ID: "u-1"}}}
	if err := j.Write(t.Context(), up); commit.CodeOf(err) != commit.CodeJournalFull {
		t.Fatalf("an upload was admitted: %v", err)
	}
	must(t, j.Outcome(t.Context(), "j-1", journal.Outcome{State: commit.Committed}))
	admitted.State, admitted.Submission = "succeeded", nil
	must(t, j.PutJob(t.Context(), admitted))
	must(t, os.RemoveAll(filepath.Join(dir, "reserve")))
	must(t, j.PutJob(t.Context(), late))
	// Without a reserve the error says what is wrong.
	must(t, os.Remove(filepath.Join(dir, "reserve")))
	journal.FailNext(j, 1)
	if err := j.Seal(t.Context(), journaltest.Unit("j-2", "k2"), journaltest.Body(nil)); commit.CodeOf(err) != commit.CodeJournalFull {
		t.Fatalf("error = %v", err)
	}
}

// Manifests that a process wrote before it ended, and nothing names, go with the
// next start; so does one whose job was pruned.
func TestManifestFilesAreSwept(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(t.Context(), dir)
	must(t, err)
	must(t, j.Seal(t.Context(), journaltest.Unit("j-1", "k"), journaltest.Body(make([]byte, 2<<20))))
	files := func() int {
		found, err := os.ReadDir(filepath.Join(dir, "manifests"))
		must(t, err)
		return len(found)
	}
	must(t, os.WriteFile(filepath.Join(dir, "manifests", ".tmp-1"), []byte("half"), 0o600))
	closeIt(t, j)
	j, err = journal.Open(t.Context(), dir)
	must(t, err)
	defer closeIt(t, j)
	if n := files(); n != 1 {
		t.Fatalf("%d files", n)
	}
	found, err := os.ReadDir(filepath.Join(dir, "manifests"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "manifests", found[0].Name()), make([]byte, 100), 0o600))
	if _, err := journaltest.Manifest(t.Context(), j, "j-1"); commit.CodeOf(err) != commit.CodeJournal {
		t.Fatalf("a manifest that was changed was read: %v", err)
	}
	old := journaltest.Job("j-1", "k")
	old.Ended = old.Submitted
	must(t, j.PutJob(t.Context(), old))
	must(t, j.Outcome(t.Context(), "j-1", journal.Outcome{State: commit.Committed}))
	if n, err := j.Prune(t.Context(), old.Ended.Add(1e9)); err != nil || n != 1 || files() != 0 {
		t.Fatalf("pruned %d, %v; %d files are left", n, err, files())
	}
}
