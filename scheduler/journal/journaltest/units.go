package journaltest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/journal"
)

func testJobs(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	if _, err := j.Job(ctx, "j-1"); !errors.Is(err, journal.ErrNotFound) {
		t.Fatalf("no such job: %v", err)
	}
	must(t, j.PutJob(ctx, Job("j-1", "k")))
	must(t, j.PutJob(ctx, Job("j-2", "other")))
	done := Job("j-1", "k")
	done.State, done.Commit, done.Error, done.Status, done.Ended = "failed", commit.CommitRefused, "why", []byte("later"), at.Add(time.Second)
	must(t, j.PutJob(ctx, done))
	got, err := j.Job(ctx, "j-1")
	must(t, err)
	if done.Seq = got.Seq; done.Seq == 0 {
		t.Error("a job without a place in the order")
	}
	if d := cmp.Diff(done, got); d != "" {
		t.Fatal(d)
	}
	must(t, j.PutJob(ctx, Job("j-3", "k")))
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
		{journal.Filter{Before: done.Seq + 1}, "j-1"},
		{journal.Filter{Before: done.Seq}, ""},
		{journal.Filter{Since: at, Until: at.Add(time.Millisecond)}, "j-3 j-2 j-1"},
		{journal.Filter{Since: at.Add(time.Millisecond)}, ""},
		{journal.Filter{Until: at}, ""},
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
}

func testUnitFromSealToOutcome(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	u := Unit("j-1", "k")
	if err := j.Send(ctx, Send("r-0", u)); !errors.Is(err, journal.ErrNotFound) {
		t.Fatalf("a send without a seal: %v", err)
	}
	must(t, j.Seal(ctx, u, Body([]byte("manifest"))))
	got, err := j.Unit(ctx, "j-1")
	must(t, err)
	if got.Since.IsZero() {
		t.Error("nobody knows since when the unit is sealed")
	}
	u.State, u.Incarnation, u.Since = journal.UnitSealed, j.Incarnation(), got.Since
	if d := cmp.Diff(u, got); d != "" {
		t.Fatal(d)
	}
	must(t, j.Send(ctx, Send("r-1", u)))
	must(t, j.Send(ctx, Send("r-2", u)))
	if got, _ := j.Unit(ctx, "j-1"); got.State != journal.UnitSent || got.Sends != 2 {
		t.Fatalf("after two sends: %+v", got)
	}
	sends, err := j.Sends(ctx, u.Token)
	must(t, err)
	if d := cmp.Diff([]journal.Send{Send("r-1", u), Send("r-2", u)}, sends); d != "" {
		t.Fatal(d)
	}
	must(t, j.Outcome(ctx, "j-1", journal.Outcome{State: commit.Refused, Reason: commit.ReasonConflict, Cause: "lost"}))
	if got, _ := j.Unit(ctx, "j-1"); got.State != journal.UnitRefused || got.Reason != commit.ReasonConflict || got.Cause != "lost" {
		t.Fatalf("after a refusal: %+v", got)
	}
	if err := j.Send(ctx, Send("r-3", u)); !errors.Is(err, journal.ErrNotFound) {
		t.Fatalf("a refused unit was sent: %v", err)
	}
	must(t, j.Seal(ctx, u, Body([]byte("manifest"))))
	must(t, j.Send(ctx, Send("r-4", u)))
	must(t, j.Outcome(ctx, "j-1", journal.Outcome{State: commit.Committed}))
	if err := j.Outcome(ctx, "j-1", journal.Outcome{State: commit.Unknown}); !errors.Is(err, journal.ErrNotFound) {
		t.Fatalf("committed was taken back: %v", err)
	}
	if m, err := Manifest(ctx, j, "j-1"); err != nil || string(m) != "manifest" {
		t.Fatalf("manifest %q, %v", m, err)
	}
}

// A request that names a unit nobody sealed leaves no record at all.
func testSendIsAtomic(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	sealed, other := Unit("j-1", "k"), Unit("j-2", "k2")
	must(t, j.Seal(ctx, sealed, Body(nil)))
	if err := j.Send(ctx, Send("r-1", sealed, other)); !errors.Is(err, journal.ErrNotFound) {
		t.Fatal(err)
	}
	if got, _ := j.Unit(ctx, "j-1"); got.State != journal.UnitSealed || got.Sends != 0 {
		t.Fatalf("half a send was recorded: %+v", got)
	}
}

// A key that runs again seals the same token for another job; the send is that
// job's.
func testSendNamesTheLastSeal(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	first, second := Unit("j-1", "k"), Unit("j-2", "k")
	must(t, j.Seal(ctx, first, Body(nil)))
	must(t, j.Seal(ctx, second, Body(nil)))
	must(t, j.Send(ctx, Send("r-1", second)))
	a, _ := j.Unit(ctx, "j-1")
	b, _ := j.Unit(ctx, "j-2")
	if a.State != journal.UnitSealed || b.State != journal.UnitSent {
		t.Fatalf("states %s and %s", a.State, b.State)
	}
}

func testUnitsThatWait(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	for id, o := range map[string]journal.Outcome{
		"j-1": {State: commit.Committed},
		"j-2": {State: commit.Refused, Reason: commit.ReasonTableChanged},
		"j-3": {State: commit.Refused, Reason: commit.ReasonValidation},
		"j-4": {State: commit.Unknown},
	} {
		must(t, j.Seal(ctx, Unit(id, id), Body(nil)))
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
}

func testUnresolved(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	u := Unit("j-1", "k")
	want := func(when, id string) {
		t.Helper()
		if got, err := j.Unresolved(ctx, u.Token); err != nil || got != id {
			t.Errorf("%s: %q, %v; want %q", when, got, err, id)
		}
	}
	want("nothing sealed", "")
	must(t, j.Seal(ctx, u, Body(nil)))
	want("sealed", "")
	must(t, j.Send(ctx, journal.Send{RequestID: "r-1", Tokens: []commit.Token{u.Token}}))
	want("sent", "j-1")
	must(t, j.Outcome(ctx, "j-1", journal.Outcome{State: commit.Unknown}))
	want("unknown", "j-1")
	for _, o := range []journal.Outcome{{State: commit.Refused, Reason: commit.ReasonConflict}, {State: commit.Committed}} {
		must(t, j.Outcome(ctx, "j-1", o))
		want(string(o.State), "")
	}
}

// testLosersOfAKey: the commit of a key decides about what other jobs sealed under
// it and was refused for good; not about what may still land, is of another table,
// or when nobody can tell which files the commit holds.
func testLosersOfAKey(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	seal := func(id string, token byte, o journal.Outcome) {
		u := Unit(id, "k")
		u.Token, u.Digest = commit.Token{token}, commit.Digest{id[2], id[3]}
		must(t, j.PutJob(ctx, Job(id, "k")))
		must(t, j.Seal(ctx, u, Body(nil)))
		if o.State != "" {
			must(t, j.Outcome(ctx, id, o))
		}
	}
	refused := journal.Outcome{State: commit.Refused, Reason: commit.ReasonPermission}
	onAWord := journal.Outcome{State: commit.Refused, Reason: commit.ReasonPermission, Quarantine: true}
	for _, ledgerOnly := range []bool{true, false} {
		n := byte('0')
		if ledgerOnly {
			n = '1'
		}
		id := func(name string) string { return "j-" + string(n) + name }
		seal(id("a"), n, refused)
		seal(id("b"), n, onAWord)
		seal(id("c"), n, journal.Outcome{State: commit.Unknown})
		seal(id("d"), n+100, refused)
		seal(id("e"), n, journal.Outcome{})
		must(t, j.Outcome(ctx, id("e"), journal.Outcome{State: commit.Committed, LedgerOnly: ledgerOnly}))
		for _, name := range []string{"a", "b", "c", "d"} {
			u, err := j.Unit(ctx, id(name))
			must(t, err)
			if lost := u.State == journal.UnitCommitted && u.Other; lost != (name == "a" && !ledgerOnly) {
				t.Errorf("%s (ledger only %t): %s, other %t", id(name), ledgerOnly, u.State, u.Other)
			}
		}
		if u, err := j.Unit(ctx, id("e")); err != nil || u.State != journal.UnitCommitted || u.Other {
			t.Errorf("the winner: %+v, %v", u, err)
		}
	}
}
