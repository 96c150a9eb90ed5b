package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/cleanup"
	"github.com/firn-project/firn/scheduler/footers"
	"github.com/firn-project/firn/scheduler/journal"
)

// jobFiles is what cleanup needs to know of a job. ok is false when it wrote no
// files.
func (s *Scheduler) jobFiles(ctx context.Context, id string) (j cleanup.Job, table commit.TableName, ok bool, err error) {
	j.ID = id
	u, err := s.journal.Unit(ctx, id)
	switch {
	case err == nil:
		j.Prefix, table = u.Prefix, u.Table
		raw, err := s.journal.Manifest(ctx, id)
		if err != nil {
			return j, table, false, err
		}
		err = readManifest(raw, u.Files, func(files []commit.File) error {
			for _, f := range files {
				j.Named = append(j.Named, f.Path)
			}
			return nil
		})
		return j, table, true, err
	case !errors.Is(err, journal.ErrNotFound):
		return j, table, false, err
	}
	attempts, err := s.journal.Attempts(ctx, id)
	if err != nil {
		return j, table, false, err
	}
	for _, a := range attempts {
		if a.Prefix != "" {
			j.Prefix = a.Prefix
		}
	}
	if j.Prefix == "" {
		return j, table, false, nil
	}
	raw, err := s.journal.Submission(ctx, id)
	if err != nil {
		return j, table, false, err
	}
	sub, err := jobOf(journal.Job{ID: id}, raw)
	if err != nil {
		return j, table, false, err
	}
	return j, sub.target, true, nil
}

// checkFiles is what looks at files before they are committed; nil for none.
func (s *Scheduler) checkFiles() func(context.Context, map[string]string, commit.Unit) error {
	if s.cfg.OpenStore == nil {
		return nil
	}
	c := &footers.Checker{All: s.cfg.CheckAllFiles, Wait: storeWait}
	return func(ctx context.Context, storage map[string]string, u commit.Unit) error {
		return c.Check(ctx, s.cfg.OpenStore(storage), u)
	}
}

// storeWait is how long a store that can't be reached is asked before a commit.
const storeWait = 2 * time.Minute

// storage says how the files of a table are reached, nil when the table is gone.
func (s *Scheduler) storage(ctx context.Context, name commit.TableName) map[string]string {
	target, err := s.cfg.Catalogs.Pin(ctx, name)
	if err != nil {
		return nil
	}
	return target.Storage
}

// store reaches the files of a table.
func (s *Scheduler) store(storage map[string]string) cleanup.Store {
	st := cleanup.Store{Delete: func(ctx context.Context, uri string) error { return s.cfg.DeleteFile(ctx, storage, uri) }}
	if s.cfg.ListPrefix != nil {
		st.List = func(ctx context.Context, prefix string) ([]string, error) {
			return s.cfg.ListPrefix(ctx, storage, prefix)
		}
	}
	return st
}

func (s *Scheduler) cleaner() cleanup.Cleaner {
	return cleanup.Cleaner{Journal: s.journal, Logger: s.log}
}

// cleanJob deletes the files of a job that has ended and committed nothing, once
// its end is on record. Files that must stay do: the journal says which.
func (s *Scheduler) cleanJob(ctx context.Context, id string) error {
	if s.cfg.DeleteFile == nil {
		return nil
	}
	j, table, ok, err := s.jobFiles(ctx, id)
	if err != nil || !ok {
		return err
	}
	_, err = s.cleaner().Clean(ctx, j, s.store(s.storage(ctx, table)))
	if errors.Is(err, journal.ErrNotDroppable) {
		return nil
	}
	return err
}

// cleanSoon is cleanJob after a job's end, on a goroutine of its own. What fails
// is found by `firn table orphans`.
func (s *Scheduler) cleanSoon(id string) {
	s.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), cleanTime)
		defer cancel()
		// What was parked is kept, and what was dropped is whose who dropped it.
		if u, err := s.journal.Unit(ctx, id); err == nil && (u.Waits() || u.State == journal.UnitDropped) {
			return
		}
		if err := s.cleanJob(ctx, id); err != nil {
			s.log.Warn("files of a job stay", slog.String("job_id", id), slog.Any("error", err))
		}
	})
}

const cleanTime = time.Minute

// dropParked gives up the units that have been parked for longer than
// ParkedRetention.
func (s *Scheduler) dropParked(ctx context.Context) {
	units, err := s.journal.Units(ctx, false)
	if err != nil {
		s.log.Warn("units not listed", slog.Any("error", err))
		return
	}
	for _, u := range units {
		if ctx.Err() != nil {
			return
		}
		if u.State != journal.UnitRefused || u.Quarantine || time.Since(u.Since) < s.cfg.ParkedRetention {
			continue
		}
		if err := s.giveUp(ctx, u); err != nil {
			s.log.Warn("parked unit not given up", slog.String("job_id", u.JobID), slog.Any("error", err))
		}
	}
}

// giveUp drops one parked unit, unless its key is in use.
func (s *Scheduler) giveUp(ctx context.Context, u journal.Unit) error {
	unlock, err := s.keys.lock(ctx, u.Namespace+"\x00"+u.Key)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.journal.Drop(ctx, u.JobID); err != nil {
		return fmt.Errorf("give up: %w", err)
	}
	return s.cleanJob(ctx, u.JobID)
}
