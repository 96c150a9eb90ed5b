package cleanup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/failpoint"
	"github.com/firn-project/firn/scheduler/journal"
)

// Snapshots is a driver's table that can tell what a snapshot added. A commit.Table
// that isn't one keeps the files of its committed units.
type Snapshots interface {
	// AddedFiles calls each with the path of every file that the snapshot added, in
	// bounded memory. m is a read of the same table that shows the snapshot.
	AddedFiles(ctx context.Context, m commit.Metadata, snapshotID string, each func(path string) error) error
}

// Store is what deleting needs of the store that holds a table's files.
type Store struct {
	// Delete deletes one file; a missing one is no error.
	Delete func(ctx context.Context, uri string) error
	// List lists the files under a prefix; nil when that can't be had.
	List func(ctx context.Context, prefix string) iter.Seq2[string, error]
	// Tidy removes what List doesn't show: temporary files, unfinished uploads and
	// empty directories. Nil when there is no such thing.
	Tidy func(ctx context.Context, prefix string) error
}

// Job is a job whose files may go.
type Job struct {
	ID string
	// Prefix is where its files lie; nothing else is ever touched. It ends in a
	// slash.
	Prefix string
	// Named are the files that a manifest of the job names.
	Named []string
	// Committed says which files the table holds, as read after the job's token
	// was found there. It is asked only for a unit that was committed; nil keeps
	// all files of such a unit.
	Committed Committed
}

// Committed calls each with the path of every data file that the snapshot with
// the job's token added; other says that it holds another submission of the key,
// not this job's unit. The error says why that can't be known.
type Committed func(ctx context.Context, each func(path string) error) (other bool, err error)

// ErrUnclear is wrapped when the table doesn't prove which files of a committed
// unit it holds. They all stay.
var ErrUnclear = errors.New("the table doesn't show which of the files it holds")

// Cleaner deletes.
//
// # What is deleted, and why nothing that is needed
//
// A file is deleted only after Journal.Deleting has put its path on record, in
// one transaction, under the epoch of this process, that also looks at the
// job and its unit. So at that moment, and by what was durable then:
//
//   - the job has ended: no attempt of it is accepted any more, so no file of its
//     is sealed after this. The files of a running job are never touched, however
//     long it runs;
//   - and one of these holds:
//     there is no seal, so that no send record can name the unit: nothing of it
//     was ever sent, and nothing will be, as sealing is left to running jobs;
//     or the unit's final refusal is on record: each of its requests was seen
//     dead and absent (a refusal told on the catalog's word alone is not final);
//     or somebody gave the unit up (Journal.Drop), which asks for the same;
//     or the unit is committed, and the file isn't in the committed set: not
//     guessed from the unit, but compared with the files that the table itself
//     lists for the snapshot that holds the token.
//
// Each of these, once true, stays true: an ended job doesn't run again, and what
// is committed, dropped or refused for good is never sealed or sent again. So it
// doesn't matter how long after the record a file goes, nor whether another
// process has taken the journal over in between; and after a crash the same
// deletions may be done again, or left to who comes next. A process that was
// deposed before can't write the record, and so deletes nothing.
//
// A unit that is sealed, sent or unknown keeps its files for ever, and so does a
// parked one until it is dropped.
//
// # The committed set
//
// A snapshot's files never change, so a read that shows the snapshot is as good
// as any other, however old it is. Two numbers must agree before anything is
// concluded from it: a snapshot with this unit lists all of the unit's files, by
// the paths that they were sealed with, and one with another submission lists none
// below this job's prefix. If they don't (paths were rewritten, the listing is
// cut), if the snapshot has expired or can't be read, everything stays. The
// unit's own files are no candidates at all.
//
// # Whose files
//
// A prefix is the job's own: it holds the job's random id, and was journaled with
// each attempt before that started. So whatever is found below it was written by
// attempts of this job, also by those that nobody knows any more, and two
// schedulers with two journals never delete each other's. It never is the
// difference of a listing and a table, which would take in what others are
// writing.
//
// # Files of requests
//
// Before a process writes the first file for a request to a table (Iceberg's
// manifests, manifest lists and metadata files), its mark is on record with the
// directory, and each file bears the mark and the id of its request in its name.
// A request that is on record as sent has its own rules, which say when its files
// are discarded. What CleanRequests deletes is the rest, when that process is
// gone: a file whose mark is that of an earlier epoch of this journal, whose id no
// send record has, and which the table doesn't refer to, once each request that
// was sent with the mark is dead by the clock of a read of the table.
//
// That is proof, since records with the mark ended with its epoch: what isn't on
// record as sent never was and never will be, and only a request of that process
// could name a manifest that it had merged ahead; those have landed, in which case
// the read shows what they refer to, or can't any more. Send records are forgotten
// in time, so a file from before the time that the journal remembers is left
// alone, and a copy of a journal decides about none that were written before the
// copy was made. The process itself may still be at work, having been stalled: it
// loses files that it couldn't have sent.
//
// # What no listing shows
//
// Temporary files, unfinished uploads and empty directories below the prefix have
// no name that a manifest could hold. They go with the files, under the same
// check: the job has ended, so that a writer which loses its file was writing for
// nothing.
type Cleaner struct {
	Journal journal.Journal
	Logger  *slog.Logger
	// broken is set by tests that show what each part is for.
	broken ablation
	// atOnce is how many files are deleted at a time: 8 when 0. A request to a
	// remote store costs more time than work.
	atOnce int
}

// ablation leaves out parts of the theorem. The zero value is the theorem.
type ablation struct {
	// anyState deletes whatever the journal has of the job and its unit, or of the
	// requests.
	anyState bool
	// guess takes no file for committed.
	guess bool
	// anyCount takes the unit's own files for candidates, and believes a committed
	// set that doesn't add up: either alone keeps them.
	anyCount bool
	// noRecord deletes without a record.
	noRecord bool
	// anyAge takes files for unsent also from a time of which send records were
	// forgotten.
	anyAge bool
}

// Plan is what Clean would do.
type Plan struct {
	// Delete are files that may go, and Why says so in half a sentence.
	Delete []string
	Why    string
	// Keep are the files of a job all of whose files stay. Because says why.
	Keep    []string
	Because error
	// More files are there than those that are listed here.
	More int
}

// maxListed bounds the files that a Plan lists, and those that one record names.
const maxListed = 10_000

// Plan says what would become of a job's files. The error is that of finding out.
func (c Cleaner) Plan(ctx context.Context, j Job, s Store) (p Plan, err error) {
	add := func(to *[]string, path string) {
		if len(*to) == maxListed {
			p.More++
			return
		}
		*to = append(*to, path)
	}
	ground, err := c.ground(ctx, j)
	if err == nil {
		p.Why = ground.why
		err = c.candidates(ctx, j, s, ground, func(paths []string) error {
			for _, path := range paths {
				add(&p.Delete, path)
			}
			return nil
		})
	}
	if !errors.Is(err, journal.ErrNotDroppable) && !errors.Is(err, ErrUnclear) {
		return p, err
	}
	p = Plan{Because: err}
	err = c.listed(ctx, j, s, func(path string) error {
		add(&p.Keep, path)
		return nil
	})
	return p, err
}

// Clean deletes the files of a job that no table can have, and returns how many.
// The error says which could not be deleted, or why none may be: doing it again
// deletes the rest.
func (c Cleaner) Clean(ctx context.Context, j Job, s Store) (int, error) {
	g, err := c.ground(ctx, j)
	if err != nil {
		return 0, err
	}
	gone := 0
	var failed []error
	err = c.candidates(ctx, j, s, g, func(paths []string) error {
		if err := c.record(ctx, j, paths, g); err != nil {
			return err
		}
		n, errs := c.deleteAll(ctx, s, paths)
		gone, failed = gone+n, append(failed, errs...)
		return ctx.Err()
	})
	if err == nil && s.Tidy != nil {
		if err = c.record(ctx, j, nil, g); err == nil {
			err = s.Tidy(ctx, j.Prefix)
		}
	}
	if gone+len(failed) > 0 {
		c.Logger.LogAttrs(ctx, slog.LevelInfo, "files deleted", slog.String("job_id", j.ID), slog.String("prefix", j.Prefix), slog.String("why", g.why),
			slog.Int("files", gone), slog.Int("failed", len(failed)))
	}
	return gone, errors.Join(append(failed, err)...)
}

// deleteAll deletes several files at a time.
func (c Cleaner) deleteAll(ctx context.Context, s Store, paths []string) (gone int, failed []error) {
	const shown = 10
	errs := make([]error, len(paths))
	var g errgroup.Group
	g.SetLimit(cmp.Or(c.atOnce, 8))
	for i, p := range paths {
		g.Go(func() error {
			errs[i] = s.Delete(ctx, p)
			failpoint.HitIf(errs[i] == nil, failpoint.AfterDelete)
			return nil
		})
	}
	_ = g.Wait()
	for i, err := range errs {
		switch {
		case err == nil:
			gone++
		case len(failed) < shown:
			failed = append(failed, fmt.Errorf("%s: %w", paths[i], err))
		case len(failed) == shown:
			failed = append(failed, errors.New("and others"))
		}
	}
	return gone, failed
}

func (c Cleaner) record(ctx context.Context, j Job, paths []string, g ground) error {
	if c.broken.noRecord {
		paths = nil
	}
	err := c.Journal.Deleting(ctx, j.ID, paths, g.committed)
	if c.broken.anyState && errors.Is(err, journal.ErrNotDroppable) {
		return nil
	}
	return err
}

// ground is why files of a job may go.
type ground struct {
	why string
	// committed: only those that the table doesn't hold. sealed is how many it
	// must list then, and other says that it must list none of this job.
	committed, other bool
	sealed           int64
}

// ground finds out what the journal has of a job. The error wraps
// journal.ErrNotDroppable when all of its files must stay.
func (c Cleaner) ground(ctx context.Context, j Job) (ground, error) {
	if !j.owns(j.Prefix + "x") {
		return ground{}, fmt.Errorf("files of job %s: %q isn't its own prefix: %w", j.ID, j.Prefix, journal.ErrNotDroppable)
	}
	u, err := c.Journal.Unit(ctx, j.ID)
	g := ground{why: "the job ended before anything of it was sealed"}
	switch {
	case errors.Is(err, journal.ErrNotFound):
	case err != nil:
		return ground{}, err
	case u.State == journal.UnitCommitted:
		g = ground{why: "the snapshot that the job committed doesn't have it", committed: true, other: u.Other, sealed: u.Files}
		if u.Other {
			g.why = "another submission of the key was committed"
		}
	case u.State == journal.UnitDropped:
		g.why = "the job's commit was refused and then given up"
	default:
		g.why = "the job's commit was refused for good"
	}
	// The journal decides; with what is recorded it does so once more.
	return g, c.record(ctx, j, nil, g)
}

// candidates hands on the files that may go if the journal agrees, in bounded
// parts.
func (c Cleaner) candidates(ctx context.Context, j Job, s Store, g ground, each func([]string) error) error {
	if g.committed && j.Committed == nil {
		return fmt.Errorf("files of job %s: nobody can tell: %w", j.ID, ErrUnclear)
	}
	own := map[string]bool{}
	if g.committed && !g.other && !c.broken.guess && !c.broken.anyCount {
		for _, p := range j.Named {
			own[p] = true
		}
	}
	part := map[string]bool{}
	flush := func() error {
		if len(part) == 0 {
			return nil
		}
		if g.committed {
			if err := c.compare(ctx, j, g, part); err != nil {
				return err
			}
		}
		paths := make([]string, 0, len(part))
		for p := range part {
			paths = append(paths, p)
		}
		clear(part)
		if len(paths) == 0 {
			return nil
		}
		return each(paths)
	}
	err := c.listed(ctx, j, s, func(path string) error {
		if own[path] {
			return nil
		}
		part[path] = true
		if len(part) < maxListed {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// compare takes the files that the table holds out of a part.
func (c Cleaner) compare(ctx context.Context, j Job, g ground, part map[string]bool) error {
	if c.broken.guess {
		return nil
	}
	held := int64(0)
	other, err := j.Committed(ctx, func(path string) error {
		if strings.HasPrefix(path, j.Prefix) {
			held++
		}
		delete(part, path)
		return nil
	})
	if err != nil {
		return err
	}
	want := g.sealed
	if g.other {
		want = 0
	}
	if (other != g.other || held != want) && !c.broken.anyCount {
		return fmt.Errorf("files of job %s: the table's snapshot lists %d files of its %d under %s: %w", j.ID, held, want, j.Prefix, ErrUnclear)
	}
	return nil
}

// listed calls each with every file of the job's own: those that the store lists
// below its prefix or, where it can't, those that a manifest names there.
func (c Cleaner) listed(ctx context.Context, j Job, s Store, each func(string) error) error {
	if !j.owns(j.Prefix + "x") {
		return nil
	}
	found := func(yield func(string, error) bool) {
		for _, p := range j.Named {
			if !yield(p, nil) {
				return
			}
		}
	}
	if s.List != nil {
		found = s.List(ctx, j.Prefix)
	}
	for p, err := range found {
		if err != nil {
			return fmt.Errorf("list %s: %w", j.Prefix, err)
		}
		if !j.owns(p) {
			continue
		}
		if err := each(p); err != nil {
			return err
		}
	}
	return nil
}

// owns says whether a path lies below the job's prefix, and that prefix is one of
// this job and no other.
func (j Job) owns(path string) bool {
	return strings.HasSuffix(j.Prefix, "/") && strings.Contains(j.Prefix, "/"+j.ID+"/") && strings.HasPrefix(path, j.Prefix) && !strings.Contains(path, "/../")
}
