package journaltest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/journal"
)

func testDrop(t *testing.T, fresh func(*testing.T) journal.Journal) {
	for name, tt := range map[string]struct {
		sent    bool
		outcome journal.Outcome
		ok      bool
	}{
		"sealed only":          {ok: true},
		"refused":              {true, journal.Outcome{State: commit.Refused, Reason: commit.ReasonConflict}, true},
		"refused, never sent":  {false, journal.Outcome{State: commit.Refused, Reason: commit.ReasonTableChanged}, true},
		"refused, in question": {true, journal.Outcome{State: commit.Refused, Reason: commit.ReasonPermission, Quarantine: true}, false},
		"sent":                 {sent: true},
		"unknown":              {true, journal.Outcome{State: commit.Unknown}, false},
		"unknown, not sent":    {false, journal.Outcome{State: commit.Unknown}, false},
		"committed":            {true, journal.Outcome{State: commit.Committed}, false},
		"committed, not sent":  {false, journal.Outcome{State: commit.Committed}, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, j := t.Context(), fresh(t)
			u := Unit("j-1", "k")
			must(t, j.Seal(ctx, u, Body(nil)))
			if tt.sent {
				must(t, j.Send(ctx, Send("r-1", u)))
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
			if !tt.ok {
				return
			}
			must(t, j.Drop(ctx, "j-1"))
			if err := j.Seal(ctx, u, Body(nil)); !errors.Is(err, journal.ErrSealed) {
				t.Fatalf("a unit without files was sealed: %v", err)
			}
		})
	}
	if err := fresh(t).Drop(t.Context(), "j-9"); !errors.Is(err, journal.ErrNotFound) {
		t.Fatal(err)
	}
}

func ended(id, key string) journal.Job {
	j := Job(id, key)
	j.State, j.Ended = "failed", at.Add(time.Second)
	return j
}

// testDeleting: every state that a unit can be in when somebody wants to delete
// files of its job.
func testDeleting(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	paths := []string{"file:///w/a", "file:///w/b"}
	if err := j.Deleting(ctx, "j-none", paths, true); !errors.Is(err, journal.ErrNotFound) {
		t.Fatalf("files of a job that nobody knows: %v", err)
	}
	refused := func(r commit.Reason) journal.Outcome { return journal.Outcome{State: commit.Refused, Reason: r} }
	for name, tt := range map[string]struct {
		running, sealed, sent bool
		outcome               journal.Outcome
		drop                  bool
		ok, okLoser           bool
	}{
		"running":                     {running: true},
		"no seal":                     {ok: true, okLoser: true},
		"running, sealed":             {running: true, sealed: true},
		"running, refused":            {running: true, sealed: true, outcome: refused(commit.ReasonValidation)},
		"sealed":                      {sealed: true},
		"stopped":                     {sealed: true, outcome: refused(""), ok: true, okLoser: true},
		"sent":                        {sealed: true, sent: true},
		"unknown":                     {sealed: true, sent: true, outcome: journal.Outcome{State: commit.Unknown}},
		"parked":                      {sealed: true, outcome: refused(commit.ReasonConflict)},
		"parked after a send":         {sealed: true, sent: true, outcome: refused(commit.ReasonBudget)},
		"parked and dropped":          {sealed: true, sent: true, outcome: refused(commit.ReasonBudget), drop: true, ok: true, okLoser: true},
		"refused":                     {sealed: true, sent: true, outcome: refused(commit.ReasonValidation), ok: true, okLoser: true},
		"refused on a catalog's word": {sealed: true, sent: true, outcome: journal.Outcome{State: commit.Refused, Reason: commit.ReasonValidation, Quarantine: true}},
		"committed":                   {sealed: true, sent: true, outcome: journal.Outcome{State: commit.Committed}, okLoser: true},
		"in the ledger alone":         {sealed: true, sent: true, outcome: journal.Outcome{State: commit.Committed, LedgerOnly: true}},
	} {
		id := "j-" + name
		u := Unit(id, name)
		job := ended(id, name)
		if tt.running {
			job = Job(id, name)
		}
		must(t, j.PutJob(ctx, job))
		if tt.sealed {
			must(t, j.Seal(ctx, u, Body(nil)))
		}
		if tt.sent {
			must(t, j.Send(ctx, Send("r-"+name, u)))
		}
		if tt.outcome.State != "" {
			must(t, j.Outcome(ctx, id, tt.outcome))
		}
		if tt.drop {
			must(t, j.Drop(ctx, id))
		}
		for loser, ok := range map[bool]bool{false: tt.ok, true: tt.okLoser} {
			before, err := j.Deleted(ctx, id)
			must(t, err)
			err = j.Deleting(ctx, id, paths, loser)
			after, derr := j.Deleted(ctx, id)
			must(t, derr)
			switch {
			case ok && (err != nil || !slices.Equal(after, paths)):
				t.Errorf("%s, loser %t: %v, on record %v", name, loser, err, after)
			case !ok && (!errors.Is(err, journal.ErrNotDroppable) || !slices.Equal(after, before)):
				t.Errorf("%s, loser %t: %v, on record %v", name, loser, err, after)
			}
		}
	}
}

// testPrune: what waits to be driven is kept however old it is, with all that it
// needs; what ended long ago is forgotten, and the journal says so.
func testPrune(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	outcomes := map[string]journal.Outcome{
		"j-committed": {State: commit.Committed}, "j-refused": {State: commit.Refused, Reason: commit.ReasonValidation},
		"j-stopped": {State: commit.Refused}, "j-parked": {State: commit.Refused, Reason: commit.ReasonConflict},
		"j-unknown": {State: commit.Unknown}, "j-sent": {}, "j-doubted": {State: commit.Refused, Reason: commit.ReasonLimit, Quarantine: true},
	}
	for id, o := range outcomes {
		job := ended(id, id)
		job.Submission = []byte("s")
		must(t, j.Write(ctx, journal.Batch{Jobs: []journal.Job{job}, Plans: []journal.Plan{{JobID: id, Body: []byte("p")}}}))
		u := Unit(id, id)
		must(t, j.Seal(ctx, u, Body([]byte("m"))))
		must(t, j.Send(ctx, Send("r-"+id, u)))
		if o.State != "" {
			must(t, j.Outcome(ctx, id, o))
		}
	}
	must(t, j.PutJob(ctx, ended("j-no-unit", "n")))
	must(t, j.PutJob(ctx, Job("j-running", "r")))
	began, err := j.Remembers(ctx)
	must(t, err)
	if n, err := j.Prune(ctx, at); err != nil || n != 0 {
		t.Fatalf("pruned %d jobs that ended later: %v", n, err)
	}
	if now, _ := j.Remembers(ctx); !now.Equal(began) {
		t.Fatalf("nothing was forgotten, and the journal remembers since %v instead of %v", now, began)
	}
	before := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	if n, err := j.Prune(ctx, before); err != nil || n != 4 {
		t.Fatalf("pruned %d: %v", n, err)
	}
	if now, _ := j.Remembers(ctx); !now.Equal(before) {
		t.Fatalf("remembers since %v, want %v", now, before)
	}
	kept := []string{"j-doubted", "j-parked", "j-running", "j-sent", "j-unknown"}
	jobs, err := j.Jobs(ctx, journal.Filter{})
	must(t, err)
	var ids []string
	for _, job := range jobs {
		ids = append(ids, job.ID)
	}
	slices.Sort(ids)
	if d := cmp.Diff(kept, ids); d != "" {
		t.Fatal(d)
	}
	for id := range outcomes {
		_, err := Manifest(ctx, j, id)
		sends, serr := j.Sends(ctx, Unit(id, id).Token)
		must(t, serr)
		if keep := slices.Contains(kept, id); keep != (err == nil) || keep != (len(sends) == 1) {
			t.Errorf("%s: manifest %v, %d send records", id, err, len(sends))
		}
	}
}
