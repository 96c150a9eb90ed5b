package cleanup_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
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

const (
	metadata = "file:///w/metadata"
	gone     = "8000-00000000000a" // the mark of the process that is gone
	runs     = "8000-00000000000b" // the mark of the one that runs
)

// requests is a table with the metadata files of two processes, one of which is
// gone, beside the journal that both had.
type requests struct {
	t       *rapid.T
	journal *journal.SQLite
	clock   int64
	// files are what is there, with when each was made.
	files map[string]time.Time
	held  map[string]bool
	// needed are the files that the table holds or may come to hold, and those of
	// the process that runs.
	needed map[string]string
	// inFlight land when somebody looks away: each names the files that the table
	// holds then.
	inFlight [][]string
	uuid     string
	breaches []string
	// fail is the number of the effect that fails, 0 for none.
	fail, effects int
}

func (r *requests) step() error {
	if r.effects++; r.effects == r.fail {
		return errFault
	}
	return nil
}

func (r *requests) file(request, mark, name, why string, made time.Time) string {
	p := fmt.Sprintf("%s/%s-%s-%s.avro", metadata, name, request, mark)
	r.files[p] = made
	if why != "" {
		r.needed[p] = why
	}
	return p
}

// newRequests draws a history: what a process built, recorded and sent before it
// ended, what became of it, and what the journal has kept. place is an empty
// directory.
func newRequests(t *rapid.T, place string) *requests {
	ctx := context.Background()
	r := &requests{t: t, clock: 10, uuid: "uuid", files: map[string]time.Time{}, held: map[string]bool{}, needed: map[string]string{}}
	first, err := journal.Open(ctx, filepath.Join(place, "first"))
	must(t, err)
	b := journal.Build{Mark: gone, Table: commit.TableName{Catalog: "lake", Name: "t"}, TableUUID: "uuid", Dir: metadata}
	must(t, first.Building(ctx, b))
	u := journaltest.Unit("j-1", "k")
	must(t, first.PutJob(ctx, journaltest.Job("j-1", "k")))
	must(t, first.Seal(ctx, u, journaltest.Body(nil)))
	next := "first"
	if rapid.IntRange(0, 4).Draw(t, "copied") == 4 {
		next = "copy" // without what is recorded from now on
		must(t, os.CopyFS(filepath.Join(place, next), os.DirFS(filepath.Join(place, "first"))))
		must(t, os.Remove(filepath.Join(place, next, "scheduler.lock")))
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "requests") {
		r.request(first, u, fmt.Sprintf("r%d", i))
	}
	must(t, first.Close())
	r.journal, err = journal.Open(ctx, filepath.Join(place, next))
	must(t, err)
	now := time.Now()
	b.Mark = runs
	must(t, r.journal.Building(ctx, b))
	r.file("x1", runs, "m", "its process runs", now)
	r.needed[metadata+"/v1.metadata.json"] = "it is somebody else's"
	r.files[metadata+"/v1.metadata.json"] = now
	if rapid.IntRange(0, 4).Draw(t, "replaced") == 4 {
		r.uuid = "another"
	}
	return r
}

// request is one that the process has built, and what became of it.
func (r *requests) request(j *journal.SQLite, u journal.Unit, id string) {
	ctx, now := context.Background(), time.Now()
	fate := rapid.SampledFrom([]string{"never sent", "landed", "in flight", "dead", "forgotten"}).Draw(r.t, "fate")
	made := now
	send := journaltest.Send(id+"-"+gone, u)
	send.Seat = commit.Seat{Number: r.clock}
	why := ""
	switch fate {
	case "landed":
		why = "it is in the table"
	case "dead":
		why = "only its own rules say when it goes"
	case "in flight":
		why, send.Seat.Number = "its request may land", r.clock+1
	case "forgotten": // a fence of long ago, which no unit keeps on record
		why, send.Seat.Number = "its request may land", r.clock+1
		send.Tokens, made, send.At = nil, now.Add(-48*time.Hour), now.Add(-48*time.Hour)
	}
	own := []string{r.file(id, gone, "m", why, made)}
	if rapid.Bool().Draw(r.t, "merged") { // ahead, under an id of its own
		own = append(own, r.file(id+"-merged", gone, "m", why, made))
	}
	if fate != "never sent" {
		must(r.t, j.Send(ctx, send))
	}
	switch fate {
	case "landed":
		for _, p := range own {
			r.held[p] = true
		}
	case "in flight":
		r.inFlight = append(r.inFlight, own)
	case "dead":
		for _, p := range own[1:] {
			delete(r.needed, p) // nobody can come to refer to it any more
		}
	case "forgotten":
		r.inFlight = append(r.inFlight, own)
		old := journaltest.Job("j-old-"+id, id)
		old.Ended = old.Submitted.Add(time.Second)
		old.Table = ""
		must(r.t, j.PutJob(ctx, old))
		_, err := j.Prune(ctx, now.Add(time.Second)) // later than its process began, in milliseconds too
		must(r.t, err)
	}
}

// look is a read of the table: it is consistent, and old at once.
type look struct {
	commit.Metadata
	uuid  string
	clock int64
	held  map[string]bool
}

func (l look) UUID() string       { return l.uuid }
func (l look) Clock() commit.Seat { return commit.Seat{Number: l.clock} }

// marked is the driver, whose effects may fail.
type marked struct {
	commit.Marked
	*requests
}

func (m marked) Read(context.Context) (commit.Metadata, error) {
	if err := m.step(); err != nil {
		return nil, err
	}
	l := look{uuid: m.uuid, clock: m.clock, held: maps.Clone(m.held)}
	if len(m.inFlight) > 0 && rapid.Bool().Draw(m.t, "lands") {
		for _, p := range m.inFlight[0] {
			m.held[p] = true
		}
		for _, own := range m.inFlight[1:] {
			for _, p := range own[1:] {
				delete(m.needed, p) // those requests are dead now, and nobody can come to refer to it
			}
		}
		m.clock++
		m.inFlight = nil // the seat is taken
	}
	return l, nil
}

func (m marked) MarkedFiles(_ context.Context, dir, mark string, each func(commit.MarkedFile) error) error {
	for _, p := range slices.Sorted(maps.Keys(m.files)) {
		if err := m.step(); err != nil {
			return err
		}
		id, ok := strings.CutSuffix(p, "-"+mark+".avro")
		if !ok || !strings.HasPrefix(p, dir+"/") {
			continue
		}
		_, id, _ = strings.Cut(strings.TrimPrefix(id, dir+"/"), "-")
		if err := each(commit.MarkedFile{Path: p, RequestID: id + "-" + mark, Made: m.files[p]}); err != nil {
			return err
		}
	}
	return nil
}

func (m marked) Unreferenced(_ context.Context, meta commit.Metadata, paths map[string]bool) error {
	if err := m.step(); err != nil {
		return err
	}
	maps.DeleteFunc(paths, func(p string, _ bool) bool { return meta.(look).held[p] })
	return nil
}

func (m marked) Discard(ctx context.Context, r commit.Request) error {
	for _, p := range r.MetadataFiles {
		if err := m.step(); err != nil {
			return err
		}
		if why := m.needed[p]; why != "" || m.held[p] {
			m.breaches = append(m.breaches, fmt.Sprintf("%s was deleted, and %s", p, why))
		}
		if recorded, err := m.journal.Deleted(ctx, gone); err != nil || !slices.Contains(recorded, p) {
			m.breaches = append(m.breaches, fmt.Sprintf("%s was deleted without a record of it (%v)", p, err))
		}
		delete(m.files, p)
	}
	return nil
}

// sweep cleans what either process built, a few times.
func (r *requests) sweep(sweeps int, ablate func(*cleanup.Cleaner)) {
	c := cleanup.Cleaner{Journal: r.journal, Logger: slog.New(slog.DiscardHandler)}
	if ablate != nil {
		ablate(&c)
	}
	for range sweeps {
		builds, err := r.journal.Builds(context.Background())
		must(r.t, err)
		for _, b := range builds {
			// What goes wrong is left to the next sweep.
			_, _ = c.CleanRequests(context.Background(), b, marked{requests: r})
		}
	}
}

// TestNoNeededMetadataFileIsDeleted: whatever a process built, recorded and sent
// before it ended, and whenever requests land and effects fail, no file that the table holds or
// may come to hold is deleted, nor one of a process that runs. When nothing is under
// way any more, those that were never sent are gone.
func TestNoNeededMetadataFileIsDeleted(t *testing.T) {
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		r := newRequests(rt, filepath.Join(t.TempDir(), fmt.Sprint(n)))
		defer func() { must(rt, r.journal.Close()) }()
		r.fail = rapid.IntRange(0, 20).Draw(rt, "fail")
		r.sweep(rapid.IntRange(1, 3).Draw(rt, "sweeps"), nil)
		open := len(r.inFlight) > 0
		r.fail = 0
		r.sweep(1, nil)
		for _, b := range r.breaches {
			rt.Error(b)
		}
		builds, err := r.journal.Builds(context.Background())
		must(rt, err)
		if open || r.uuid != "uuid" || builds[0].Incarnation != r.journal.Incarnation() {
			return
		}
		for p, made := range r.files {
			if r.needed[p] == "" && !r.held[p] && time.Since(made) < time.Hour && !r.forgets() {
				rt.Errorf("%s is of no use and stays", p)
			}
		}
	})
}

// forgets: the journal has forgotten send records of the time when the files were
// made, as far as clocks can tell.
func (r *requests) forgets() bool {
	builds, err := r.journal.Builds(context.Background())
	must(r.t, err)
	since, err := r.journal.Remembers(context.Background())
	must(r.t, err)
	return builds[0].At.Before(since)
}

// TestAblationsOfRequests: without any one part, some history loses a file that is
// needed.
func TestAblationsOfRequests(t *testing.T) {
	for name, a := range map[string]struct {
		ablate func(*cleanup.Cleaner)
		want   string
	}{
		"whatever was sent":                   {cleanup.AnyState, "only its own rules"},
		"whatever may land":                   {cleanup.AnyState, "its request may land"},
		"whoever runs":                        {cleanup.AnyState, "its process runs"},
		"nothing is looked for in the table":  {cleanup.Guess, "it is in the table"},
		"deleted without a record before":     {cleanup.NoRecord, "without a record"},
		"also of what the journal has forgot": {cleanup.AnyAge, "its request may land"},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range 200 {
				var found []string
				rapid.Custom(func(rt *rapid.T) bool {
					r := newRequests(rt, filepath.Join(t.TempDir(), fmt.Sprint(seed)))
					defer func() { must(rt, r.journal.Close()) }()
					r.sweep(1, a.ablate)
					found = r.breaches
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
