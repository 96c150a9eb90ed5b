package journaltest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/journal"
)

// swept are jobs in the states that decide about sweeps, by id.
var swept = map[string]struct {
	running, seal, send bool
	// attempts are accepted ("a") or not ("l").
	attempts string
	outcome  journal.Outcome
}{
	"j-running":   {running: true, attempts: "l"},
	"j-select":    {},
	"j-clean":     {seal: true, send: true, attempts: "a", outcome: journal.Outcome{State: commit.Committed}},
	"j-losers":    {seal: true, send: true, attempts: "al", outcome: journal.Outcome{State: commit.Committed}},
	"j-other":     {seal: true, send: true, attempts: "a", outcome: journal.Outcome{State: commit.Committed, Other: true}},
	"j-failed":    {attempts: "a"},
	"j-refused":   {seal: true, attempts: "a", outcome: journal.Outcome{State: commit.Refused, Reason: commit.ReasonValidation}},
	"j-parked":    {seal: true, attempts: "a", outcome: journal.Outcome{State: commit.Refused, Reason: commit.ReasonConflict}},
	"j-unknown":   {seal: true, send: true, attempts: "l", outcome: journal.Outcome{State: commit.Unknown}},
	"j-on a word": {seal: true, send: true, attempts: "l", outcome: journal.Outcome{State: commit.Refused, Quarantine: true}},
}

// writeSwept puts one of them on record.
func writeSwept(t *testing.T, j journal.Journal, id string) {
	t.Helper()
	ctx, tt := t.Context(), swept[id]
	job := Job(id, id)
	must(t, j.PutJob(ctx, job))
	for _, kind := range tt.attempts {
		a := journal.Attempt{ID: "a-" + id + string(kind), JobID: id, Executor: "e", Incarnation: "i", Prefix: "file:///w/data/" + id + "/", Started: at}
		b := journal.Batch{Started: []journal.Attempt{a}}
		if kind == 'a' {
			b.Accepted = []journal.Accepted{{ID: a.ID, Status: []byte("s")}}
		}
		must(t, j.Write(ctx, b))
	}
	u := Unit(id, id)
	if tt.seal {
		must(t, j.Seal(ctx, u, Body(nil)))
	}
	if tt.send {
		must(t, j.Send(ctx, Send("r-"+id, u)))
	}
	if tt.outcome.State != "" {
		must(t, j.Outcome(ctx, id, tt.outcome))
	}
	if !tt.running {
		job.State, job.Ended = "ended", at.Add(time.Second)
		must(t, j.PutJob(ctx, job))
	}
}

// testSweeps: a job is due with its end unless it committed all that it wrote;
// not while its unit waits; once, and once more; and it isn't forgotten before.
func testSweeps(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	for id := range swept {
		writeSwept(t, j, id)
	}
	due := func(again bool, want ...string) {
		t.Helper()
		all, err := j.Sweeps(ctx)
		must(t, err)
		var ids []string
		for _, w := range all {
			if w.Table != "lake.air.t" || !w.Ended.Equal(at.Add(time.Second).Truncate(time.Millisecond)) {
				t.Errorf("%+v", w)
			}
			if w.Again == again {
				ids = append(ids, w.JobID)
			}
		}
		slices.Sort(ids)
		if !slices.Equal(ids, want) {
			t.Fatalf("due (again %t): %v, want %v", again, ids, want)
		}
	}
	due(false, "j-failed", "j-losers", "j-other", "j-refused")
	must(t, j.Swept(ctx, "j-losers", false))
	must(t, j.Swept(ctx, "j-refused", true))
	due(false, "j-failed", "j-other")
	due(true, "j-losers")
	must(t, j.Drop(ctx, "j-parked"))
	must(t, j.Outcome(ctx, "j-unknown", journal.Outcome{State: commit.Committed}))
	due(false, "j-failed", "j-other", "j-parked", "j-unknown")
	if err := j.Swept(ctx, "j-running", true); !errors.Is(err, journal.ErrNotFound) {
		t.Fatalf("the files of a running job were swept: %v", err)
	}
	// What isn't swept is remembered.
	_, err := j.Prune(ctx, at.Add(time.Hour))
	must(t, err)
	due(false, "j-failed", "j-other", "j-parked", "j-unknown")
	due(true, "j-losers")
	if _, err := j.Job(ctx, "j-refused"); !errors.Is(err, journal.ErrNotFound) {
		t.Fatalf("a job that was swept wasn't forgotten: %v", err)
	}
	// A driven unit's job ends once more, and may have left something again.
	must(t, j.Swept(ctx, "j-losers", true))
	due(true)
	job := Job("j-losers", "j-losers")
	job.Ended = at.Add(time.Second)
	must(t, j.PutJob(ctx, job))
	due(false, "j-failed", "j-losers", "j-other", "j-parked", "j-unknown")
}
