package cleanup_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/cleanup"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/journal/journaltest"
)

func prefix(id string) string { return "file:///w/data/" + id + "/" }

// world is a store, a table and jobs, beside the journal that is told of them.
// Each job has three files of its own, three of losers, and something unfinished.
type world struct {
	journal *journal.SQLite
	ids     []string
	files   map[string]bool
	// half are unfinished files, which no listing shows.
	half map[string]bool
	// snapshots are what the table shows of each token's commit; shown says whether
	// its snapshot is still there.
	snapshots map[string][]string
	expired   map[string]bool
	// needed are the files that a table has or may get, or that may be sealed yet.
	needed  map[string]string
	running map[string]bool
	// breaches are those of the theorem.
	breaches []string
}

var errFault = errors.New("a fault")

func newWorld(t *rapid.T) *world {
	j, err := journal.OpenMemory(context.Background())
	must(t, err)
	w := &world{
		journal: j, files: map[string]bool{}, half: map[string]bool{}, snapshots: map[string][]string{}, expired: map[string]bool{},
		needed: map[string]string{}, running: map[string]bool{},
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "jobs") {
		w.addJob(t, fmt.Sprintf("j-%d", i))
	}
	return w
}

func (w *world) close(t *rapid.T) { must(t, w.journal.Close()) }

func filesOf(id string) (own, losers []string) {
	for k := range 3 {
		own = append(own, fmt.Sprintf("%s0-%d-a-%d-0.parquet", prefix(id), k, k))
		losers = append(losers, fmt.Sprintf("%s0-%d-b-%d-0.parquet", prefix(id), k, k))
	}
	return own, losers
}

func (w *world) need(why string, paths ...string) {
	for _, p := range paths {
		w.needed[p] = why
	}
}

// addJob makes a job in one of the states that a job can be in.
func (w *world) addJob(t *rapid.T, id string) {
	ctx := context.Background()
	w.ids = append(w.ids, id)
	own, losers := filesOf(id)
	for _, p := range slices.Concat(own, losers) {
		w.files[p] = true
	}
	w.half[prefix(id)+".x.firn-tmp"] = true
	job := journaltest.Job(id, id)
	must(t, w.journal.PutJob(ctx, job))
	must(t, w.journal.Write(ctx, journal.Batch{Started: []journal.Attempt{{ID: "a-" + id, JobID: id, Prefix: prefix(id), Started: time.Now()}}}))
	u := journaltest.Unit(id, id)
	if w.running[id] = rapid.IntRange(0, 3).Draw(t, "runs") == 3; w.running[id] {
		w.need("the job runs", slices.Concat(own, losers, []string{prefix(id) + ".x.firn-tmp"})...)
	}
	if sealed := rapid.Bool().Draw(t, "sealed"); sealed {
		must(t, w.journal.Seal(ctx, u, journaltest.Body([]byte(id))))
		w.endUnit(t, u, own)
	}
	if !w.running[id] {
		job.Ended = job.Submitted.Add(time.Second)
		must(t, w.journal.PutJob(ctx, job))
	}
}

// endUnit gives a sealed unit one of the ends that there are.
func (w *world) endUnit(t *rapid.T, u journal.Unit, own []string) {
	ctx, id := context.Background(), u.JobID
	if rapid.Bool().Draw(t, "sent") {
		must(t, w.journal.Send(ctx, journaltest.Send("r-"+id, u)))
	}
	o := rapid.SampledFrom([]journal.Outcome{
		{},
		{State: commit.Unknown},
		{State: commit.Committed},
		{State: commit.Committed, Other: true},
		{State: commit.Refused},
		{State: commit.Refused, Reason: commit.ReasonValidation},
		{State: commit.Refused, Reason: commit.ReasonConflict},
		{State: commit.Refused, Reason: commit.ReasonValidation, Quarantine: true},
	}).Draw(t, "outcome")
	if o.State != "" {
		must(t, w.journal.Outcome(ctx, id, o))
	}
	switch {
	case o.State == commit.Committed && o.Other:
		w.snapshots[id] = []string{"file:///w/data/j-other/1.parquet"}
	case o.State == commit.Committed:
		w.snapshots[id] = own
		w.need("it is in the table", own...)
	case o.State == commit.Refused && !o.Quarantine && !o.Reason.Parks():
	case o.State == commit.Refused && !o.Quarantine && !w.running[id] && rapid.Bool().Draw(t, "dropped"):
		must(t, w.journal.Drop(ctx, id))
	default:
		w.need("its unit may land", own...)
	}
	w.expired[id] = rapid.IntRange(0, 4).Draw(t, "expired") == 4
}

// faulty is the process's view of the world: every effect may fail, and the
// process may be deposed or die before any of them.
type faulty struct {
	*world
	journal.Journal
	t *rapid.T
	// dead: it was killed. deposed: another one has taken the journal over, which
	// this one doesn't know.
	dead, deposed bool
	// calm: nothing fails.
	calm bool
}

// step stands before each effect.
func (f *faulty) step(what string) error {
	if f.dead {
		return errFault
	}
	if f.calm {
		return nil
	}
	// Small numbers are drawn more often.
	switch rapid.IntRange(0, 99).Draw(f.t, what) {
	case 97:
		f.dead = true // killed: nothing happens from here on
		return errFault
	case 98:
		return errFault
	case 99:
		f.deposed = true
	}
	return nil
}

// Deleting implements journal.Journal.
func (f *faulty) Deleting(ctx context.Context, id string, paths []string, loser bool) error {
	if err := f.step("record"); err != nil {
		return err
	}
	if f.deposed { // as each journal does: see its conformance suite
		return journal.ErrDeposed
	}
	return f.Journal.Deleting(ctx, id, paths, loser)
}

// Unit implements journal.Journal.
func (f *faulty) Unit(ctx context.Context, id string) (journal.Unit, error) {
	if err := f.step("read the unit"); err != nil {
		return journal.Unit{}, err
	}
	return f.Journal.Unit(ctx, id)
}

func (f *faulty) store() cleanup.Store {
	return cleanup.Store{
		Delete: func(ctx context.Context, p string) error {
			if err := f.step("delete"); err != nil {
				return err
			}
			f.gone(ctx, p)
			delete(f.files, p)
			return nil
		},
		List: func(_ context.Context, prefix string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				for _, p := range slices.Sorted(maps.Keys(f.files)) {
					if err := f.step("list"); err != nil {
						yield("", err)
						return
					}
					if strings.HasPrefix(p, prefix) && !yield(p, nil) {
						return
					}
				}
			}
		},
		Tidy: func(_ context.Context, prefix string) error {
			if err := f.step("tidy"); err != nil {
				return err
			}
			for p := range f.half {
				if strings.HasPrefix(p, prefix) {
					if why := f.needed[p]; why != "" {
						f.blame("%s: it was removed, and %s", p, why)
					}
					delete(f.half, p)
				}
			}
			return nil
		},
	}
}

func (w *world) blame(format string, args ...any) {
	w.breaches = append(w.breaches, fmt.Sprintf(format, args...))
}

// gone judges a deletion.
func (f *faulty) gone(ctx context.Context, p string) {
	if why := f.needed[p]; why != "" {
		f.blame("%s was deleted, and %s", p, why)
	}
	for _, id := range f.ids {
		if !strings.HasPrefix(p, prefix(id)) {
			continue
		}
		if recorded, err := f.journal.Deleted(ctx, id); err != nil || !slices.Contains(recorded, p) {
			f.blame("%s was deleted without a record of it (%v)", p, err)
		}
	}
}

// committed is the table's answer: right, or an error, or cut short.
func (f *faulty) committed(id string) cleanup.Committed {
	return func(_ context.Context, each func(string) error) (bool, error) {
		if err := f.step("ask the table"); err != nil {
			return false, err
		}
		if f.expired[id] {
			return false, cleanup.ErrUnclear
		}
		files := f.snapshots[id]
		if !f.calm && rapid.IntRange(0, 5).Draw(f.t, "cut") == 5 {
			files = files[:len(files)-1]
		}
		for _, p := range files {
			if err := each(p); err != nil {
				return false, err
			}
		}
		return len(files) > 0 && !strings.HasPrefix(files[0], prefix(id)), nil
	}
}

// run sweeps jobs, with faults. A process that died is followed by another.
func (w *world) run(t *rapid.T, ablate func(*cleanup.Cleaner)) {
	f := &faulty{world: w, Journal: w.journal, t: t}
	for range rapid.IntRange(1, 5).Draw(t, "sweeps") {
		if f.dead || f.deposed && rapid.Bool().Draw(t, "notices") {
			f = &faulty{world: w, Journal: w.journal, t: t}
		}
		w.sweep(f, rapid.SampledFrom(w.ids).Draw(t, "job"), ablate)
	}
}

func (w *world) sweep(f *faulty, id string, ablate func(*cleanup.Cleaner)) {
	c := cleanup.Cleaner{Journal: f, Logger: slog.New(slog.DiscardHandler)}
	cleanup.InOrder(&c)
	if ablate != nil {
		ablate(&c)
	}
	own, _ := filesOf(id)
	job := cleanup.Job{ID: id, Prefix: prefix(id), Committed: f.committed(id)}
	// A manifest that lies names files of others too.
	job.Named = append(own, slices.Sorted(maps.Keys(w.files))...)
	if len(w.snapshots[id]) > 0 {
		job.Named = own
	}
	// What goes wrong is left to the next sweep.
	_, _ = c.Clean(context.Background(), job, f.store())
}

// settle sweeps everything without a fault: what nobody needs is gone, but for a
// committed unit whose snapshot isn't shown any more.
func (w *world) settle(t *rapid.T) {
	f := &faulty{world: w, Journal: w.journal, t: t, calm: true}
	for _, id := range w.ids {
		w.sweep(f, id, nil)
		u, err := w.journal.Unit(context.Background(), id)
		sealed := !errors.Is(err, journal.ErrNotFound)
		if w.running[id] || sealed && (u.Waits() || u.Quarantine || u.State == journal.UnitCommitted && w.expired[id]) {
			continue
		}
		for p := range w.files {
			if strings.HasPrefix(p, prefix(id)) && w.needed[p] == "" {
				t.Fatalf("%s is of no use and stays", p)
			}
		}
		if w.half[prefix(id)+".x.firn-tmp"] {
			t.Fatalf("what job %s didn't finish stays", id)
		}
	}
}
