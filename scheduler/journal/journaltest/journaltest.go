package journaltest

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/journal"
)

// Opener opens one journal, empty at first. Calling it again opens the same one
// as another process would: its records are there, and the first opening's
// epoch is over. The suite closes what it opened.
type Opener func(ctx context.Context) (journal.Journal, error)

// Run runs the suite. fresh gives the opener of a journal that no other test
// uses. A journal that can't be opened twice at a time says so by shared=false:
// the tests about two processes are left out then.
func Run(t *testing.T, shared bool, fresh func(t *testing.T) Opener) {
	for name, f := range map[string]func(*testing.T, journal.Journal){
		"Jobs": testJobs, "UnitFromSealToOutcome": testUnitFromSealToOutcome, "SendIsAtomic": testSendIsAtomic,
		"SendNamesTheLastSeal": testSendNamesTheLastSeal, "UnitsThatWait": testUnitsThatWait, "Unresolved": testUnresolved, "LosersOfAKey": testLosersOfAKey, "Builds": testBuilds,
		"Seal": testSeal, "LargeManifest": testLargeManifest, "Origin": testOrigin, "Batch": testBatch, "BatchIsAtomic": testBatchIsAtomic,
		"Executors": testExecutors, "Deleting": testDeleting, "Sweeps": testSweeps, "Prune": testPrune, "Parallel": testParallel,
		"Stripped": testStripped, "Manifests": testManifests, "Uploads": testUploads, "Frames": testFrames,
		"Writes": testWrites, "WriteHasOneSeal": testWriteHasOneSeal, "WriteEndsWithItsJob": testWriteEndsWithItsJob,
	} {
		t.Run(name, func(t *testing.T) { f(t, open(t, fresh(t))) })
	}
	t.Run("Drop", func(t *testing.T) { testDrop(t, func(t *testing.T) journal.Journal { return open(t, fresh(t)) }) })
	if shared {
		t.Run("TakenOver", func(t *testing.T) { testTakenOver(t, fresh(t)) })
		t.Run("WriteTakenOver", func(t *testing.T) { testWriteTakenOver(t, fresh(t)) })
		t.Run("BuildsOfAnEarlierEpoch", func(t *testing.T) { testEarlierBuilds(t, fresh(t)) })
	}
}

// open opens a journal and closes it with the test.
func open(t *testing.T, o Opener) journal.Journal {
	t.Helper()
	j, err := o(t.Context())
	must(t, err)
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// at is when everything happens.
var at = time.Date(2025, 1, 2, 3, 4, 5, 6e6, time.UTC)

// Job is a job that was just admitted.
func Job(id, key string) journal.Job {
	return journal.Job{
		ID: id, Namespace: "default", Key: key, Fingerprint: "f", Statement: "INSERT", SQL: "INSERT …",
		Table: "lake.air.t", State: "queued", Commit: commit.CommitNone, Status: []byte("status"), Submitted: at,
	}
}

// Unit is a unit that may be sealed.
func Unit(jobID, key string) journal.Unit {
	u := journal.Unit{
		JobID: jobID, Namespace: "default", Key: key, Table: commit.TableName{Catalog: "lake", Namespace: []string{"a", "b"}, Name: "t"},
		TableUUID: "uuid", Branch: "main", Operation: commit.OperationAppend, SchemaID: 1, SpecID: 2, SchemaJSON: []byte(`{}`), SpecJSON: []byte(`[]`),
		Prefix: "file:///w/data/" + jobID + "/", Files: 3, Rows: 30, Bytes: 300, Tasks: 2, Sealed: at,
		Origin: commit.Seat{Number: 3, Pointer: "o"},
	}
	u.Token = commit.NewToken(commit.TokenInput{Namespace: "default", Key: key, TableUUID: "uuid", Branch: "main"})
	u.Digest[0] = 7
	return u
}

// Send is a send record that names the units.
func Send(id string, units ...journal.Unit) journal.Send {
	s := journal.Send{
		RequestID: id, SnapshotID: "9223372036854775807", Head: "1", Seat: commit.Seat{Number: 4, Pointer: "p"},
		MetadataFiles: []string{"m"}, At: at,
	}
	for _, u := range units {
		s.Tokens = append(s.Tokens, u.Token)
	}
	return s
}

// Body writes a manifest, for Seal.
func Body(b []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}
}

// Manifest reads the manifest of a job's unit to its end.
func Manifest(ctx context.Context, j journal.Journal, jobID string) ([]byte, error) {
	r, err := j.OpenManifest(ctx, jobID)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(r)
	return body, errors.Join(err, r.Close())
}
