package cleanup_test

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/firn-project/firn/scheduler/cleanup"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/journal/journaltest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	if underRace && !asked {
		if err := flag.Set("rapid.checks", "10"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func must(t interface{ Fatal(...any) }, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// TestNoNeededFileIsDeleted: jobs in any state, swept at any time, as often as you
// like, while the journal, the store and the table fail and processes die or are
// deposed at any step: no file that a table has, or may still get, or that belongs
// to a running job is ever deleted. Once nothing fails, all that is of no use is
// gone.
func TestNoNeededFileIsDeleted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		defer w.close(t)
		w.run(t, nil)
		w.settle(t)
		for _, b := range w.breaches {
			t.Error(b)
		}
	})
}

// TestAblations: without any one part of the theorem, some history breaks it, in
// the way that the part prevents.
func TestAblations(t *testing.T) {
	for name, a := range map[string]struct {
		ablate func(*cleanup.Cleaner)
		want   string
	}{
		"whatever the state of the job":   {cleanup.AnyState, "the job runs"},
		"whatever the state of the unit":  {cleanup.AnyState, "its unit may land"},
		"nothing is compared":             {cleanup.Guess, "it is in the table"},
		"a set that is cut is believed":   {cleanup.AnyCount, "it is in the table"},
		"deleted without a record before": {cleanup.NoRecord, "without a record"},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range 1000 {
				var found []string
				rapid.Custom(func(t *rapid.T) bool {
					w := newWorld(t)
					defer w.close(t)
					w.run(t, a.ablate)
					found = w.breaches
					return true
				}).Example(seed)
				for _, b := range found {
					if strings.Contains(b, a.want) {
						t.Logf("history %d: %s", seed, b)
						return
					}
				}
			}
			t.Fatal("no history breaks it: the part is of no use, or the test is")
		})
	}
}

// A process that was deposed deletes nothing: the record comes first.
func TestNothingIsDeletedWithoutARecord(t *testing.T) {
	j, err := journal.OpenMemory(t.Context())
	must(t, err)
	job := journaltest.Job("j-1", "k")
	job.Ended = job.Submitted.Add(1)
	must(t, j.PutJob(t.Context(), job))
	must(t, j.Close())
	c := cleanup.Cleaner{Journal: j, Logger: slog.New(slog.DiscardHandler)}
	deleted := 0
	_, err = c.Clean(t.Context(), cleanup.Job{ID: "j-1", Prefix: prefix("j-1"), Named: []string{prefix("j-1") + "f"}}, cleanup.Store{
		Delete: func(context.Context, string) error { deleted++; return nil },
		Tidy:   func(context.Context, string) error { deleted++; return nil },
	})
	if err == nil || deleted > 0 {
		t.Fatalf("%d files were deleted, %v", deleted, err)
	}
}

// Only what lies below the job's own prefix is ever named, and a prefix that
// isn't the job's is refused.
func TestOnlyTheJobsOwnPrefix(t *testing.T) {
	j, err := journal.OpenMemory(t.Context())
	must(t, err)
	defer func() { must(t, j.Close()) }()
	job := journaltest.Job("j-1", "k")
	job.Ended = job.Submitted.Add(1)
	must(t, j.PutJob(t.Context(), job))
	c := cleanup.Cleaner{Journal: j, Logger: slog.New(slog.DiscardHandler)}
	deleted := 0
	store := cleanup.Store{
		Delete: func(context.Context, string) error { deleted++; return nil },
		Tidy:   func(context.Context, string) error { deleted++; return nil },
	}
	own := prefix("j-1") + "a.parquet"
	got, err := c.Plan(t.Context(), cleanup.Job{ID: "j-1", Prefix: prefix("j-1"), Named: []string{
		own, prefix("j-2") + "a.parquet", prefix("j-1") + "x/../../j-2/a.parquet", "file:///w/metadata/v1.json",
	}}, store)
	if err != nil || !slices.Equal(got.Delete, []string{own}) || got.Why == "" || got.Because != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, p := range []string{"", "/", "file:///w/data/", "file:///w/data/j-1", "file:///w/data/j-2/", "file:///w/data/j-11/", "file:///w/xj-1/"} {
		bad := cleanup.Job{ID: "j-1", Prefix: p, Named: []string{own}}
		if _, err := c.Clean(t.Context(), bad, store); !errors.Is(err, journal.ErrNotDroppable) || deleted > 0 {
			t.Errorf("prefix %q: %v", p, err)
		}
		if got, err := c.Plan(t.Context(), bad, store); err != nil || len(got.Delete)+len(got.Keep) > 0 || got.Because == nil {
			t.Errorf("prefix %q: %+v, %v", p, got, err)
		}
	}
}
