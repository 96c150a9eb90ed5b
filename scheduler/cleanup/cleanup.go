package cleanup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/firn-project/firn/scheduler/journal"
)

// Store is what deleting needs of the store that holds a table's files.
type Store struct {
	// Delete deletes one file; a missing one is no error.
	Delete func(ctx context.Context, uri string) error
	// List lists the files under a prefix; nil when that can't be had.
	List func(ctx context.Context, prefix string) ([]string, error)
}

// Job is a job whose files may go.
type Job struct {
	ID string
	// Prefix is where its files lie; nothing else is ever touched. It ends in a
	// slash.
	Prefix string
	// Named are the files that a manifest of the job names.
	Named []string
	// Committed says which of the job's files the table holds, as read after the
	// job's token was found there. It is asked only for a unit that was committed;
	// nil keeps all files of such a unit.
	Committed func(ctx context.Context) (map[string]bool, error)
}

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
// A unit that is sealed, sent or unknown keeps its files for ever, and so does a
// parked one until it is dropped. A process that was deposed can't write the
// record, and so deletes nothing.
//
// # Whose files
//
// Paths come from the record: those that a manifest of the job names, all below
// the job's own prefix, which holds its random id and was journaled with each
// attempt before it started. The prefix is listed only when the unit has no
// send record: then every file below it is a loser. It never is the difference
// of a listing and a table, which would take in what others are writing.
type Cleaner struct {
	Journal journal.Journal
	Logger  *slog.Logger
}

// Plan says which files of a job Clean would delete. The error wraps
// journal.ErrNotDroppable when its files must stay.
func (c Cleaner) Plan(ctx context.Context, j Job, s Store) ([]string, error) {
	paths, loser, err := c.candidates(ctx, j, s)
	if err != nil {
		return nil, err
	}
	return paths, c.check(ctx, j, loser)
}

// Clean deletes the files of a job that no table can have. It returns those that
// are gone, and an error for those that could not be deleted; doing it again
// deletes the rest.
func (c Cleaner) Clean(ctx context.Context, j Job, s Store) ([]string, error) {
	paths, loser, err := c.candidates(ctx, j, s)
	if err != nil || len(paths) == 0 {
		return nil, err
	}
	if err := c.Journal.Deleting(ctx, j.ID, paths, loser); err != nil {
		return nil, err
	}
	var gone []string
	var failed []error
	for _, p := range paths {
		if err := s.Delete(ctx, p); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", p, err))
			continue
		}
		gone = append(gone, p)
	}
	c.Logger.LogAttrs(ctx, slog.LevelInfo, "files deleted", slog.String("job_id", j.ID), slog.String("prefix", j.Prefix),
		slog.Int("files", len(gone)), slog.Int("failed", len(failed)))
	return gone, errors.Join(failed...)
}

// check is Journal.Deleting for a plan: it records no path.
func (c Cleaner) check(ctx context.Context, j Job, loser bool) error {
	return c.Journal.Deleting(ctx, j.ID, nil, loser)
}

// candidates are the files that may go if the journal agrees. loser says that
// they were compared with what the table holds.
func (c Cleaner) candidates(ctx context.Context, j Job, s Store) (paths []string, loser bool, err error) {
	if !strings.HasSuffix(j.Prefix, "/") || !strings.Contains(j.Prefix, j.ID) {
		return nil, false, fmt.Errorf("files of job %s: %q isn't its own prefix: %w", j.ID, j.Prefix, journal.ErrNotDroppable)
	}
	u, err := c.Journal.Unit(ctx, j.ID)
	sealed := err == nil
	if err != nil && !errors.Is(err, journal.ErrNotFound) {
		return nil, false, err
	}
	all := slices.Clone(j.Named)
	if (!sealed || u.Sends == 0) && s.List != nil {
		listed, err := s.List(ctx, j.Prefix)
		if err != nil {
			return nil, false, fmt.Errorf("list %s: %w", j.Prefix, err)
		}
		all = append(all, listed...)
	}
	var committed map[string]bool
	if sealed && u.State == journal.UnitCommitted {
		if j.Committed == nil {
			return nil, false, nil
		}
		if committed, err = j.Committed(ctx); err != nil {
			return nil, false, err
		}
		loser = true
	}
	slices.Sort(all)
	for _, p := range slices.Compact(all) {
		if strings.HasPrefix(p, j.Prefix) && !strings.Contains(p, "/../") && !committed[p] {
			paths = append(paths, p)
		}
	}
	return paths, loser, nil
}
