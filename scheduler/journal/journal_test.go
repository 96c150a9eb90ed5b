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

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// each runs a test of the contract on every implementation.
func each(t *testing.T, f func(t *testing.T, j journal.Journal)) {
	open := map[string]func(context.Context) (*journal.SQLite, error){
		"sqlite": func(ctx context.Context) (*journal.SQLite, error) { return journal.Open(ctx, t.TempDir()) },
		"memory": journal.OpenMemory,
	}
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			j, err := open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer closeIt(t, j)
			f(t, j)
		})
	}
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

var at = time.Date(2025, 1, 2, 3, 4, 5, 6e6, time.UTC)

func job(id, key string) journal.Job {
	return journal.Job{
		ID: id, Namespace: "default", Key: key, Fingerprint: "f", Statement: "INSERT", SQL: "INSERT …",
		Table: "lake.air.t", State: "queued", Commit: commit.CommitNone, Status: []byte("status"), Submitted: at,
	}
}

func TestJobs(t *testing.T) {
	each(t, func(t *testing.T, j journal.Journal) {
		ctx := t.Context()
		if _, err := j.Job(ctx, "j-1"); !errors.Is(err, journal.ErrNotFound) {
			t.Fatalf("no such job: %v", err)
		}
		must(t, j.PutJob(ctx, job("j-1", "k")))
		must(t, j.PutJob(ctx, job("j-2", "other")))
		done := job("j-1", "k")
		done.State, done.Commit, done.Error, done.Status, done.Ended = "failed", commit.CommitRefused, "why", []byte("later"), at.Add(time.Second)
		must(t, j.PutJob(ctx, done))
		got, err := j.Job(ctx, "j-1")
		must(t, err)
		if d := cmp.Diff(done, got); d != "" {
			t.Fatal(d)
		}
		must(t, j.PutJob(ctx, job("j-3", "k")))
		if got, err := j.JobByKey(ctx, "default", "k"); err != nil || got.ID != "j-3" {
			t.Fatalf("newest job of the key: %v, %v", got.ID, err)
		}
		if _, err := j.JobByKey(ctx, "somebody", "k"); !errors.Is(err, journal.ErrNotFound) {
			t.Fatalf("another principal's key: %v", err)
		}
		for _, tt := range []struct {
			filter journal.Filter
			want   string
		}{
			{journal.Filter{}, "j-3 j-2 j-1"},
			{journal.Filter{Limit: 2}, "j-3 j-2"},
			{journal.Filter{State: "failed"}, "j-1"},
			{journal.Filter{Running: true}, "j-3 j-2"},
			{journal.Filter{State: "succeeded"}, ""},
		} {
			jobs, err := j.Jobs(ctx, tt.filter)
			must(t, err)
			var ids []string
			for _, job := range jobs {
				ids = append(ids, job.ID)
			}
			if got := strings.Join(ids, " "); got != tt.want {
				t.Errorf("%+v: %q, want %q", tt.filter, got, tt.want)
			}
		}
	})
}

func unit(jobID, key string) journal.Unit {
	u := journal.Unit{
		JobID: jobID, Namespace: "default", Key: key, Table: commit.TableName{Catalog: "lake", Namespace: []string{"a", "b"}, Name: "t"},
		TableUUID: "uuid", Branch: "main", Operation: commit.OperationAppend, SchemaID: 1, SpecID: 2, SchemaJSON: []byte(`{}`), SpecJSON: []byte(`[]`),
		Prefix: "file:///w/data/" + jobID + "/", Files: 3, Rows: 30, Bytes: 300, Tasks: 2, Sealed: at,
	}
	u.Token = commit.NewToken(commit.TokenInput{Namespace: "default", Key: key, TableUUID: "uuid", Branch: "main"})
	u.Digest[0] = 7
	return u
}

func send(id string, units ...journal.Unit) journal.Send {
	s := journal.Send{
		RequestID: id, SnapshotID: "9223372036854775807", Head: "1", Seat: commit.Seat{Number: 4, Pointer: "p"},
		MetadataFiles: []string{"m"}, At: at,
	}
	for _, u := range units {
		s.Tokens = append(s.Tokens, u.Token)
	}
	return s
}

func TestUnitFromSealToOutcome(t *testing.T) {
	each(t, func(t *testing.T, j journal.Journal) {
		ctx := t.Context()
		u := unit("j-1", "k")
		if err := j.Send(ctx, send("r-0", u)); !errors.Is(err, journal.ErrNotFound) {
			t.Fatalf("a send without a seal: %v", err)
		}
		must(t, j.Seal(ctx, u, []byte("manifest")))
		u.State = journal.UnitSealed
		got, err := j.Unit(ctx, "j-1")
		must(t, err)
		if d := cmp.Diff(u, got); d != "" {
			t.Fatal(d)
		}
		must(t, j.Send(ctx, send("r-1", u)))
		must(t, j.Send(ctx, send("r-2", u)))
		if got, _ := j.Unit(ctx, "j-1"); got.State != journal.UnitSent || got.Sends != 2 {
			t.Fatalf("after two sends: %+v", got)
		}
		sends, err := j.Sends(ctx, u.Token)
		must(t, err)
		if d := cmp.Diff([]journal.Send{send("r-1", u), send("r-2", u)}, sends); d != "" {
			t.Fatal(d)
		}
		must(t, j.Outcome(ctx, "j-1", journal.Outcome{State: commit.Refused, Reason: commit.ReasonConflict, Cause: "lost"}))
		if got, _ := j.Unit(ctx, "j-1"); got.State != journal.UnitRefused || got.Reason != commit.ReasonConflict || got.Cause != "lost" {
			t.Fatalf("after a refusal: %+v", got)
		}
		if err := j.Send(ctx, send("r-3", u)); !errors.Is(err, journal.ErrNotFound) {
			t.Fatalf("a refused unit was sent: %v", err)
		}
		must(t, j.Seal(ctx, u, []byte("manifest")))
		must(t, j.Send(ctx, send("r-4", u)))
		must(t, j.Outcome(ctx, "j-1", journal.Outcome{State: commit.Committed}))
		if err := j.Outcome(ctx, "j-1", journal.Outcome{State: commit.Unknown}); !errors.Is(err, journal.ErrNotFound) {
			t.Fatalf("committed was taken back: %v", err)
		}
		if m, err := j.Manifest(ctx, "j-1"); err != nil || string(m) != "manifest" {
			t.Fatalf("manifest %q, %v", m, err)
		}
	})
}

// A request that names a unit nobody sealed leaves no record at all.
func TestSendIsAtomic(t *testing.T) {
	each(t, func(t *testing.T, j journal.Journal) {
		ctx := t.Context()
		sealed, other := unit("j-1", "k"), unit("j-2", "k2")
		must(t, j.Seal(ctx, sealed, nil))
		if err := j.Send(ctx, send("r-1", sealed, other)); !errors.Is(err, journal.ErrNotFound) {
			t.Fatal(err)
		}
		if got, _ := j.Unit(ctx, "j-1"); got.State != journal.UnitSealed || got.Sends != 0 {
			t.Fatalf("half a send was recorded: %+v", got)
		}
	})
}

// A key that runs again seals the same token for another job; the send is that
// job's.
func TestSendNamesTheLastSeal(t *testing.T) {
	each(t, func(t *testing.T, j journal.Journal) {
		ctx := t.Context()
		first, second := unit("j-1", "k"), unit("j-2", "k")
		must(t, j.Seal(ctx, first, nil))
		must(t, j.Seal(ctx, second, nil))
		must(t, j.Send(ctx, send("r-1", second)))
		a, _ := j.Unit(ctx, "j-1")
		b, _ := j.Unit(ctx, "j-2")
		if a.State != journal.UnitSealed || b.State != journal.UnitSent {
			t.Fatalf("states %s and %s", a.State, b.State)
		}
	})
}

func TestUnitsThatWait(t *testing.T) {
	each(t, func(t *testing.T, j journal.Journal) {
		ctx := t.Context()
		for id, o := range map[string]journal.Outcome{
			"j-1": {State: commit.Committed},
			"j-2": {State: commit.Refused, Reason: commit.ReasonTableChanged},
			"j-3": {State: commit.Refused, Reason: commit.ReasonValidation},
			"j-4": {State: commit.Unknown},
		} {
			must(t, j.Seal(ctx, unit(id, id), nil))
			must(t, j.Outcome(ctx, id, o))
		}
		ids := func(all bool) string {
			units, err := j.Units(ctx, all)
			must(t, err)
			var ids []string
			for _, u := range units {
				ids = append(ids, u.JobID)
			}
			return strings.Join(ids, " ")
		}
		if got := ids(false); got != "j-2 j-4" {
			t.Errorf("waiting: %q", got)
		}
		if got := ids(true); got != "j-1 j-2 j-3 j-4" {
			t.Errorf("all: %q", got)
		}
	})
}

func TestUnresolved(t *testing.T) {
	each(t, func(t *testing.T, j journal.Journal) {
		ctx := t.Context()
		u := unit("j-1", "k")
		want := func(when, id string) {
			t.Helper()
			if got, err := j.Unresolved(ctx, u.Token); err != nil || got != id {
				t.Errorf("%s: %q, %v; want %q", when, got, err, id)
			}
		}
		want("nothing sealed", "")
		must(t, j.Seal(ctx, u, nil))
		want("sealed", "")
		must(t, j.Send(ctx, journal.Send{RequestID: "r-1", Tokens: []commit.Token{u.Token}}))
		want("sent", "j-1")
		must(t, j.Outcome(ctx, "j-1", journal.Outcome{State: commit.Unknown}))
		want("unknown", "j-1")
		for _, o := range []journal.Outcome{{State: commit.Refused, Reason: commit.ReasonConflict}, {State: commit.Committed}} {
			must(t, j.Outcome(ctx, "j-1", o))
			want(string(o.State), "")
		}
	})
}

func TestDrop(t *testing.T) {
	for name, tt := range map[string]struct {
		sent    bool
		outcome journal.Outcome
		ok      bool
	}{
		"sealed only":         {ok: true},
		"refused":             {true, journal.Outcome{State: commit.Refused, Reason: commit.ReasonConflict}, true},
		"refused, never sent": {false, journal.Outcome{State: commit.Refused, Reason: commit.ReasonTableChanged}, true},
		"sent":                {sent: true},
		"unknown":             {true, journal.Outcome{State: commit.Unknown}, false},
		"committed":           {true, journal.Outcome{State: commit.Committed}, false},
		"committed, not sent": {false, journal.Outcome{State: commit.Committed}, false},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, j journal.Journal) {
				ctx := t.Context()
				u := unit("j-1", "k")
				must(t, j.Seal(ctx, u, nil))
				if tt.sent {
					must(t, j.Send(ctx, send("r-1", u)))
				}
				if tt.outcome.State != "" {
					must(t, j.Outcome(ctx, "j-1", tt.outcome))
				}
				before, _ := j.Unit(ctx, "j-1")
				err := j.Drop(ctx, "j-1")
				after, _ := j.Unit(ctx, "j-1")
				switch {
				case tt.ok && (err != nil || after.State != journal.UnitDropped || after.Waits()):
					t.Fatalf("%v, %+v", err, after)
				case !tt.ok && (!errors.Is(err, journal.ErrNotDroppable) || after.State != before.State):
					t.Fatalf("%v, %+v", err, after)
				}
			})
		})
	}
	each(t, func(t *testing.T, j journal.Journal) {
		if err := j.Drop(t.Context(), "j-9"); !errors.Is(err, journal.ErrNotFound) {
			t.Fatal(err)
		}
	})
}

func TestSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(t.Context(), dir)
	must(t, err)
	must(t, j.PutJob(t.Context(), job("j-1", "k")))
	must(t, j.Seal(t.Context(), unit("j-1", "k"), []byte("m")))
	first := j.Incarnation()
	closeIt(t, j)

	j, err = journal.Open(t.Context(), dir)
	must(t, err)
	defer closeIt(t, j)
	if got, err := j.Job(t.Context(), "j-1"); err != nil || got.Key != "k" {
		t.Fatalf("%+v, %v", got, err)
	}
	if m, err := j.Manifest(t.Context(), "j-1"); err != nil || string(m) != "m" {
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
