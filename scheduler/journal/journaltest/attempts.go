package journaltest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/journal"
)

func attempt(id string, task int) journal.Attempt {
	return journal.Attempt{
		ID: id, JobID: "j-1", Stage: 1, Task: task, StageAttempt: 2, Executor: "e-1", Incarnation: "i", Prefix: "file:///w/j-1/", Started: at,
	}
}

// testBatch: attempts from their start to their end.
func testBatch(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	must(t, j.Write(ctx, journal.Batch{}))
	job := Job("j-1", "k")
	job.Submission = []byte("submitted")
	must(t, j.Write(ctx, journal.Batch{Jobs: []journal.Job{job}}))
	if _, err := j.Plan(ctx, "j-1"); !errors.Is(err, journal.ErrNotFound) {
		t.Fatalf("a plan before there is one: %v", err)
	}
	must(t, j.Write(ctx, journal.Batch{
		Jobs: []journal.Job{Job("j-1", "k")}, Plans: []journal.Plan{{JobID: "j-1", Body: []byte("plan")}},
		Started:  []journal.Attempt{attempt("a-1", 0), attempt("a-2", 1), attempt("a-3", 2)},
		Accepted: []journal.Accepted{{ID: "a-1", Status: []byte("one")}},
	}))
	must(t, j.Write(ctx, journal.Batch{Accepted: []journal.Accepted{{ID: "a-2", Status: []byte("two")}}, Ended: []string{"a-1"}}))
	want := []journal.Attempt{attempt("a-1", 0), attempt("a-2", 1), attempt("a-3", 2)}
	want[0].State, want[1].State, want[2].State = journal.AttemptEnded, journal.AttemptAccepted, journal.AttemptStarted
	want[1].Status = []byte("two")
	got, err := j.Attempts(ctx, "j-1")
	must(t, err)
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	if body, err := j.Plan(ctx, "j-1"); err != nil || string(body) != "plan" {
		t.Fatalf("plan %q, %v", body, err)
	}
	// A later record of the job leaves what it was submitted with.
	if body, err := j.Submission(ctx, "j-1"); err != nil || string(body) != "submitted" {
		t.Fatalf("submission %q, %v", body, err)
	}
	if got, err := j.Attempts(ctx, "j-2"); err != nil || len(got) > 0 {
		t.Fatalf("%v, %v", got, err)
	}
}

// testBatchIsAtomic: one record that can't be written keeps all others out.
func testBatchIsAtomic(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	must(t, j.Write(ctx, journal.Batch{Started: []journal.Attempt{attempt("a-1", 0)}}))
	must(t, j.Write(ctx, journal.Batch{Ended: []string{"a-1"}}))
	err := j.Write(ctx, journal.Batch{
		Jobs: []journal.Job{Job("j-1", "k")}, Started: []journal.Attempt{attempt("a-2", 1)},
		Accepted: []journal.Accepted{{ID: "a-1", Status: []byte("late")}},
	})
	if err == nil {
		t.Fatal("an attempt that had ended was accepted")
	}
	if _, err := j.Job(ctx, "j-1"); !errors.Is(err, journal.ErrNotFound) {
		t.Fatalf("half a batch was written: %v", err)
	}
	if got, _ := j.Attempts(ctx, "j-1"); len(got) != 1 || got[0].State != journal.AttemptEnded {
		t.Fatalf("half a batch was written: %+v", got)
	}
}

func testExecutors(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	first := journal.Executor{ID: "e-1", Incarnation: "i-1", Control: "h:1", Flight: "h:2", Slots: 4, Memory: 1 << 30}
	again := first
	again.Incarnation, again.Control = "i-2", "h:3"
	other := journal.Executor{ID: "e-2", Incarnation: "i", Slots: 1}
	must(t, j.Write(ctx, journal.Batch{Executors: []journal.Executor{first, other}}))
	// It starts again: the old incarnation is lost, in whatever order the two are told.
	must(t, j.Write(ctx, journal.Batch{Executors: []journal.Executor{again}}))
	must(t, j.Write(ctx, journal.Batch{Gone: []journal.Executor{first}}))
	must(t, j.Write(ctx, journal.Batch{Gone: []journal.Executor{other}}))
	got, err := j.Executors(ctx)
	must(t, err)
	if d := cmp.Diff([]journal.Executor{again}, got); d != "" {
		t.Fatal(d)
	}
}

// testOrigin: the first one counts, and those of units that may be driven again
// are known.
func testOrigin(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	u := Unit("j-1", "k")
	if _, err := j.Origin(ctx, u.Token); !errors.Is(err, journal.ErrNotFound) {
		t.Fatalf("of a token that nobody accepted: %v", err)
	}
	want := commit.Seat{Number: 7, Pointer: "p"}
	for _, seat := range []commit.Seat{want, {Number: 9}, {}} {
		must(t, j.Write(ctx, journal.Batch{Origins: []journal.Origin{{Token: u.Token, Seat: seat}}}))
		if got, err := j.Origin(ctx, u.Token); err != nil || got != want {
			t.Fatalf("origin %+v, %v; want the first one, %+v", got, err, want)
		}
	}
	lowest := func(when, table, except string, want int64) {
		t.Helper()
		got, err := j.LowestOrigin(ctx, table, except)
		must(t, err)
		if want == 0 && got != nil || want > 0 && (got == nil || got.Number != want) {
			t.Errorf("%s: lowest origin %v, want %d", when, got, want)
		}
	}
	lowest("no unit", "uuid", "", 0)
	for id, seat := range map[string]int64{"j-1": 5, "j-2": 3, "j-3": 4} {
		v := Unit(id, id)
		v.Origin = commit.Seat{Number: seat}
		must(t, j.Seal(ctx, v, Body(nil)))
	}
	lowest("all sealed", "uuid", "", 3)
	lowest("of another table", "other", "", 0)
	lowest("without the lowest's own", "uuid", "j-2", 4)
	must(t, j.Outcome(ctx, "j-2", journal.Outcome{State: commit.Refused, Reason: commit.ReasonConflict}))
	lowest("parked", "uuid", "", 3)
	must(t, j.Outcome(ctx, "j-2", journal.Outcome{State: commit.Refused, Reason: commit.ReasonValidation}))
	lowest("refused for good", "uuid", "", 4)
	must(t, j.Outcome(ctx, "j-3", journal.Outcome{State: commit.Committed}))
	must(t, j.Outcome(ctx, "j-1", journal.Outcome{State: commit.Unknown}))
	lowest("unknown", "uuid", "", 5)
}

// testSeal: the row that a unit's content, a cancel and a root that starts again
// all go through.
func testSeal(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	other := func(u journal.Unit) journal.Unit { u.Digest[0]++; u.Rows++; return u }
	wantRows := func(when string, u journal.Unit, manifest string) {
		t.Helper()
		got, err := j.Unit(ctx, u.JobID)
		must(t, err)
		m, err := Manifest(ctx, j, u.JobID)
		must(t, err)
		if got.Rows != u.Rows || got.Digest != u.Digest || string(m) != manifest {
			t.Fatalf("%s: %d rows, manifest %q", when, got.Rows, m)
		}
	}
	u := Unit("j-1", "k")
	must(t, j.Seal(ctx, u, Body([]byte("m"))))
	// What is sealed is fixed, also before anything was sent.
	if err := j.Seal(ctx, other(u), Body([]byte("m2"))); !errors.Is(err, journal.ErrSealed) {
		t.Fatalf("other content was sealed before a send: %v", err)
	}
	wantRows("never sent", u, "m")
	// Its files may go into another table then.
	u = other(u)
	u.Token[15]++
	u.TableUUID = "uuid-2"
	must(t, j.Seal(ctx, u, Body([]byte("m2"))))
	wantRows("adopted", u, "m2")
	must(t, j.Send(ctx, Send("r-1", u)))
	must(t, j.Seal(ctx, u, Body([]byte("m2"))))
	if got, _ := j.Unit(ctx, "j-1"); got.State != journal.UnitSent {
		t.Fatalf("sealing the same again made it %s", got.State)
	}
	for _, o := range []commit.State{"", commit.Unknown, commit.Committed} {
		if o != "" {
			must(t, j.Outcome(ctx, "j-1", journal.Outcome{State: o}))
		}
		if err := j.Seal(ctx, other(u), Body([]byte("m3"))); !errors.Is(err, journal.ErrSealed) {
			t.Fatalf("%q: other content was sealed: %v", o, err)
		}
		wantRows(string(o), u, "m2")
	}
	// A refusal is final, so other content may follow it, unless a request may
	// still be on its way.
	v := Unit("j-2", "k2")
	must(t, j.Seal(ctx, v, Body(nil)))
	must(t, j.Send(ctx, Send("r-2", v)))
	must(t, j.Outcome(ctx, "j-2", journal.Outcome{State: commit.Refused, Reason: commit.ReasonPermission, Quarantine: true}))
	if err := j.Seal(ctx, other(v), Body(nil)); !errors.Is(err, journal.ErrSealed) {
		t.Fatalf("other content in place of one in question: %v", err)
	}
	must(t, j.Seal(ctx, v, Body(nil)))
	must(t, j.Outcome(ctx, "j-2", journal.Outcome{State: commit.Refused, Reason: commit.ReasonConflict}))
	must(t, j.Seal(ctx, other(v), Body([]byte("m4"))))
	wantRows("after a refusal", other(v), "m4")
}

// testLargeManifest: one above what goes into a row.
func testLargeManifest(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	for i, size := range []int{0, 1 << 20, 1<<20 + 1, 3 << 20} {
		id := fmt.Sprint("j-", i)
		body := bytes.Repeat([]byte{byte(i + 1)}, size)
		must(t, j.Seal(ctx, Unit(id, id), Body(body)))
		got, err := Manifest(ctx, j, id)
		must(t, err)
		if !bytes.Equal(got, body) {
			t.Fatalf("a manifest of %d bytes came back with %d", size, len(got))
		}
	}
}

// testParallel: writers at the same time lose nothing.
func testParallel(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	var wg sync.WaitGroup
	errs := make(chan error, 64)
	for i := range 8 {
		wg.Go(func() {
			for k := range 8 {
				id := fmt.Sprintf("j-%d-%d", i, k)
				u := Unit(id, id)
				errs <- errors.Join(j.PutJob(ctx, Job(id, id)), j.Seal(ctx, u, Body([]byte(id))), j.Send(ctx, Send("r-"+id, u)),
					j.Outcome(ctx, id, journal.Outcome{State: commit.Committed}))
			}
		})
	}
	wg.Wait()
	for range 64 {
		must(t, <-errs)
	}
	units, err := j.Units(ctx, true)
	must(t, err)
	for _, u := range units {
		if u.State != journal.UnitCommitted || u.Sends != 1 {
			t.Errorf("%s is %s after %d sends", u.JobID, u.State, u.Sends)
		}
	}
	if len(units) != 64 {
		t.Errorf("%d units", len(units))
	}
}

// testTakenOver: a process that was stalled while another one took the journal
// over changes nothing any more.
func testTakenOver(t *testing.T, o Opener) {
	ctx := t.Context()
	old := open(t, o)
	u := Unit("j-1", "k")
	must(t, old.PutJob(ctx, Job("j-1", "k")))
	must(t, old.Seal(ctx, u, Body([]byte("m"))))
	now := open(t, o)
	if now.Epoch() <= old.Epoch() || now.Incarnation() != old.Incarnation() {
		t.Fatalf("epoch %d after %d, incarnation %q after %q", now.Epoch(), old.Epoch(), now.Incarnation(), old.Incarnation())
	}
	for name, err := range map[string]error{
		"job":      old.PutJob(ctx, ended("j-1", "k")),
		"seal":     old.Seal(ctx, Unit("j-2", "k2"), Body(nil)),
		"send":     old.Send(ctx, Send("r-1", u)),
		"outcome":  old.Outcome(ctx, "j-1", journal.Outcome{State: commit.Refused}),
		"drop":     old.Drop(ctx, "j-1"),
		"deleting": old.Deleting(ctx, "j-1", []string{"p"}, true),
		"attempt":  old.Write(ctx, journal.Batch{Started: []journal.Attempt{attempt("a-1", 0)}}),
	} {
		if !errors.Is(err, journal.ErrDeposed) || commit.CodeOf(err) != commit.CodeJournalDeposed {
			t.Errorf("%s by the old process: %v", name, err)
		}
	}
	for leads, j := range map[bool]journal.Journal{false: old, true: now} {
		if got, err := j.Leads(ctx); err != nil || got != leads {
			t.Errorf("epoch %d leads: %v, %v", j.Epoch(), got, err)
		}
	}
	if _, err := old.Prune(ctx, at.AddDate(1, 0, 0)); !errors.Is(err, journal.ErrDeposed) {
		t.Errorf("prune by the old process: %v", err)
	}
	if err := old.Write(ctx, journal.Batch{Origins: []journal.Origin{{Token: u.Token}}}); !errors.Is(err, journal.ErrDeposed) {
		t.Errorf("origin by the old process: %v", err)
	}
	if got, err := now.Unit(ctx, "j-1"); err != nil || got.State != journal.UnitSealed || got.Sends != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	must(t, now.Send(ctx, Send("r-2", u)))
}
