package cleanup_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/cleanup"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/journal/journaltest"
)

func must(t interface{ Fatal(...any) }, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// world is a store and a table, beside the journal that is told of them.
type world struct {
	journal *journal.SQLite
	files   map[string]bool
	// table is what the table refers to; pending what a request that may land
	// would add.
	table, pending map[string]bool
	running        map[string]bool
	open           map[string]bool // sealed, and nothing more is known
}

func (w *world) store() cleanup.Store {
	return cleanup.Store{
		Delete: func(_ context.Context, p string) error { delete(w.files, p); return nil },
		List: func(_ context.Context, prefix string) ([]string, error) {
			var found []string
			for p := range w.files {
				if strings.HasPrefix(p, prefix) {
					found = append(found, p)
				}
			}
			return found, nil
		},
	}
}

func prefix(id string) string { return "file:///w/data/" + id + "/" }

// TestNoNeededFileIsDeleted: jobs in any state, cleaned at any time and as often
// as you like: no file that a table has, or may still get, or that belongs to a
// running job is ever deleted; and what is refused or never sealed goes whole.
func TestNoNeededFileIsDeleted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j, err := journal.OpenMemory(context.Background())
		must(t, err)
		defer func() { must(t, j.Close()) }()
		w := &world{journal: j, files: map[string]bool{}, table: map[string]bool{}, pending: map[string]bool{}, running: map[string]bool{}, open: map[string]bool{}}
		n := rapid.IntRange(1, 4).Draw(t, "jobs")
		for i := range n {
			w.addJob(t, fmt.Sprintf("j-%d", i))
		}
		c := cleanup.Cleaner{Journal: j, Logger: slog.New(slog.DiscardHandler)}
		for range rapid.IntRange(1, 6).Draw(t, "cleanings") {
			id := fmt.Sprintf("j-%d", rapid.IntRange(0, n-1).Draw(t, "job"))
			w.clean(t, c, id)
			for p := range w.table {
				if !w.files[p] {
					t.Fatalf("%s is in the table and was deleted", p)
				}
			}
			for p := range w.pending {
				if !w.files[p] {
					t.Fatalf("%s may get into the table and was deleted", p)
				}
			}
		}
	})
}

// addJob makes a job in one of the states that a job can be in.
func (w *world) addJob(t *rapid.T, id string) {
	ctx := context.Background()
	var own, losers []string
	for k := range 3 {
		own = append(own, fmt.Sprintf("%s0-%d-a-%d-0.parquet", prefix(id), k, k))
		losers = append(losers, fmt.Sprintf("%s0-%d-b-%d-0.parquet", prefix(id), k, k))
	}
	for _, p := range slices.Concat(own, losers) {
		w.files[p] = true
	}
	keep := func(m map[string]bool, paths []string) {
		for _, p := range paths {
			m[p] = true
		}
	}
	job := journaltest.Job(id, id)
	if rapid.Bool().Draw(t, "runs") {
		w.running[id] = true
		keep(w.pending, slices.Concat(own, losers))
	} else {
		job.Ended = job.Submitted.Add(time.Second)
	}
	must(t, w.journal.PutJob(ctx, job))
	if rapid.Bool().Draw(t, "unsealed") {
		return
	}
	u := journaltest.Unit(id, id)
	must(t, w.journal.Seal(ctx, u, []byte(id)))
	if rapid.Bool().Draw(t, "sent") {
		must(t, w.journal.Send(ctx, journaltest.Send("r-"+id, u)))
	}
	outcomes := []journal.Outcome{
		{},
		{State: commit.Unknown},
		{State: commit.Committed},
		{State: commit.Refused},
		{State: commit.Refused, Reason: commit.ReasonValidation},
		{State: commit.Refused, Reason: commit.ReasonConflict},
		{State: commit.Refused, Reason: commit.ReasonValidation, Quarantine: true},
	}
	o := rapid.SampledFrom(outcomes).Draw(t, "outcome")
	if o.State != "" {
		must(t, w.journal.Outcome(ctx, id, o))
	}
	switch {
	case o.State == commit.Committed:
		keep(w.table, own)
	case o.State == commit.Refused && !o.Quarantine && !o.Reason.Parks():
	case o.State == commit.Refused && !o.Quarantine && rapid.Bool().Draw(t, "dropped"):
		must(t, w.journal.Drop(ctx, id))
	default:
		keep(w.pending, own)
	}
}

func (w *world) clean(t *rapid.T, c cleanup.Cleaner, id string) {
	job := cleanup.Job{ID: id, Prefix: prefix(id)}
	for p := range w.files {
		// A manifest that lies names files of others too.
		job.Named = append(job.Named, p)
	}
	if rapid.Bool().Draw(t, "asks the table") {
		job.Committed = func(context.Context) (map[string]bool, error) { return w.table, nil }
	}
	gone, err := c.Clean(context.Background(), job, w.store())
	if err != nil && !errors.Is(err, journal.ErrNotDroppable) {
		t.Fatal(err)
	}
	for _, p := range gone {
		if !strings.HasPrefix(p, prefix(id)) {
			t.Fatalf("cleaning %s deleted %s", id, p)
		}
	}
	u, uerr := w.journal.Unit(context.Background(), id)
	final := errors.Is(uerr, journal.ErrNotFound) || u.State == journal.UnitDropped ||
		u.State == journal.UnitRefused && !u.Quarantine && !u.Reason.Parks()
	if !w.running[id] && final {
		for p := range w.files {
			if strings.HasPrefix(p, prefix(id)) {
				t.Fatalf("%s is of no use and stays", p)
			}
		}
	}
}

// A deposed process deletes nothing: the record comes first.
func TestNothingIsDeletedWithoutARecord(t *testing.T) {
	j, err := journal.OpenMemory(t.Context())
	must(t, err)
	job := journaltest.Job("j-1", "k")
	job.Ended = job.Submitted.Add(time.Second)
	must(t, j.PutJob(t.Context(), job))
	must(t, j.Close())
	c := cleanup.Cleaner{Journal: j, Logger: slog.New(slog.DiscardHandler)}
	deleted := 0
	_, err = c.Clean(t.Context(), cleanup.Job{ID: "j-1", Prefix: prefix("j-1"), Named: []string{prefix("j-1") + "f"}}, cleanup.Store{
		Delete: func(context.Context, string) error { deleted++; return nil },
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
	job.Ended = job.Submitted.Add(time.Second)
	must(t, j.PutJob(t.Context(), job))
	c := cleanup.Cleaner{Journal: j, Logger: slog.New(slog.DiscardHandler)}
	store := cleanup.Store{Delete: func(_ context.Context, p string) error { return nil }}
	own := prefix("j-1") + "a.parquet"
	got, err := c.Plan(t.Context(), cleanup.Job{ID: "j-1", Prefix: prefix("j-1"), Named: []string{
		own, own, prefix("j-2") + "a.parquet", prefix("j-1") + "x/../../j-2/a.parquet", "file:///w/metadata/v1.json",
	}}, store)
	if err != nil || !slices.Equal(got, []string{own}) {
		t.Fatalf("%v, %v", got, err)
	}
	for _, p := range []string{"", "/", "file:///w/data/", "file:///w/data/j-1", "file:///w/data/j-2/"} {
		if _, err := c.Clean(t.Context(), cleanup.Job{ID: "j-1", Prefix: p, Named: []string{own}}, store); !errors.Is(err, journal.ErrNotDroppable) {
			t.Errorf("prefix %q: %v", p, err)
		}
	}
}
