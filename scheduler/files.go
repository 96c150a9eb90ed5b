package scheduler

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
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
		j.Committed = s.committedFiles(u)
		files, share, err := s.filesOf(ctx, u)
		if err != nil {
			return j, table, false, err
		}
		defer share.Leave()
		for i := range files.Len() {
			j.Named = append(j.Named, files.Path(i))
		}
		return j, table, true, nil
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

// checkFiles is what looks at files before they are committed; nil for none. The plan
// of a job that another process has sealed is the journal's, which doesn't say how
// stores are reached.
func (s *Scheduler) checkFiles(c *footers.Checker) func(context.Context, map[string]string, commit.Unit) error {
	if s.cfg.OpenStore == nil {
		return nil
	}
	return func(ctx context.Context, storage map[string]string, u commit.Unit) error {
		store, err := s.openStore(ctx, storage, u.Prefix, u.Table)
		if err != nil {
			return err
		}
		return c.Check(ctx, store, u)
	}
}

// openStore reaches a table's files, with what a plan says of their store. The catalog
// is asked when it says nothing, and for keys of a session, which may have ended since.
func (s *Scheduler) openStore(ctx context.Context, storage map[string]string, prefix string, table commit.TableName) (objstore.Store, error) {
	if objstore.Remote(prefix) && (len(storage) == 0 || storage[objstore.KeySessionToken] != "") {
		pinned, err := s.cfg.Catalogs.Pin(ctx, table)
		if err != nil {
			return nil, err
		}
		storage = pinned.Storage
	}
	return s.cfg.OpenStore(storage), nil
}

// storeWait is how long a store that can't be reached is asked before a commit.
const storeWait = 2 * time.Minute

// committedFiles asks the unit's table which files the snapshot with its token
// added.
func (s *Scheduler) committedFiles(u journal.Unit) cleanup.Committed {
	unclear := func(why string, args ...any) error {
		return fmt.Errorf("%s of table %s: %w", fmt.Sprintf(why, args...), u.Table, cleanup.ErrUnclear)
	}
	return func(ctx context.Context, each func(string) error) (other bool, err error) {
		table, err := s.cfg.Catalogs.OpenTable(ctx, u.Table)
		if err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, table.Close()) }()
		lister, ok := table.(cleanup.Snapshots)
		if !ok {
			return false, unclear("nothing lists the snapshots")
		}
		m, err := table.Read(ctx)
		switch {
		case err != nil:
			return false, err
		case m.UUID() != u.TableUUID:
			return false, unclear("the table was replaced: %s is the UUID now", m.UUID())
		}
		landed, snapshots, err := s.landed(ctx, m, u)
		if err != nil {
			return false, err
		}
		other = u.Other
		if landed.Digest != (commit.Digest{}) {
			other = landed.Digest != u.Digest
		}
		err = unclear("the snapshot with the job's commit isn't shown any more; it may have expired. It isn't among those")
		for _, id := range snapshots {
			aerr := lister.AddedFiles(ctx, m, id, each)
			if aerr == nil {
				return other, nil
			}
			err = fmt.Errorf("%w: %w", unclear("snapshot %s can't be read", id), aerr)
			if commit.CodeOf(aerr) != commit.CodeSnapshotNotFound {
				break
			}
		}
		return false, err
	}
}

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
		st.List = func(ctx context.Context, prefix string) iter.Seq2[string, error] {
			return s.cfg.ListPrefix(ctx, storage, prefix)
		}
	}
	if s.cfg.TidyPrefix != nil {
		st.Tidy = func(ctx context.Context, prefix string) error { return s.cfg.TidyPrefix(ctx, storage, prefix) }
	}
	return st
}

func (s *Scheduler) cleaner() cleanup.Cleaner {
	return cleanup.Cleaner{Journal: s.journal, Logger: s.log}
}

// cleanJob deletes the files of an ended job that no table can have. The error
// wraps journal.ErrNotDroppable when the record says that they must stay.
func (s *Scheduler) cleanJob(ctx context.Context, id string) error {
	if s.cfg.DeleteFile == nil {
		return nil
	}
	j, table, ok, err := s.jobFiles(ctx, id)
	if err != nil || !ok {
		return err
	}
	_, err = s.cleaner().Clean(ctx, j, s.store(s.storage(ctx, table)))
	return err
}

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
	if err := s.cleanJob(ctx, u.JobID); !errors.Is(err, journal.ErrNotDroppable) {
		return err
	}
	return nil
}

const (
	// sweepEvery is how often the record is looked through for sweeps without
	// being asked to.
	sweepEvery = 15 * time.Second
	// sweepTime bounds one sweep; what it leaves is left for the next.
	sweepTime = time.Minute
	// lastSweeps bounds the sweeps at the end of the scheduler.
	lastSweeps = 5 * time.Second
	// sweepsAtOnce is how many jobs are swept at the same time.
	sweepsAtOnce = 4
)

// sweeper deletes what ended jobs left; package cleanup says what may go.
//
// Each job is swept twice (journal.Sweep): when its end is on record, and when
// nobody can write below its prefix any more. For the latter, every executor was
// heard of or lost since the job ended (ExecutorTimeout after its end, or after
// this process has started, if that is later), and the credentials to write have
// expired, for which SweepDelay stands. An executor that comes back after that
// with a file of its own leaves it to `firn table orphans`.
type sweeper struct {
	s     *Scheduler
	began time.Time
	wake  chan struct{} // buffered: somebody wants a round

	mu sync.Mutex
	// round is closed and replaced after each round.
	round chan struct{}
	// kept says why the files of a job, or of requests, stayed at the last sweep.
	kept map[string]error
	// first are the builds that this process has swept once.
	first map[string]bool
}

func newSweeper(s *Scheduler) *sweeper {
	return &sweeper{s: s, began: time.Now(), wake: make(chan struct{}, 1), round: make(chan struct{}), kept: map[string]error{}, first: map[string]bool{}}
}

// soon asks for a round.
func (w *sweeper) soon() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run makes rounds until the scheduler ends, and then a last one for what has
// just ended.
func (w *sweeper) run() {
	for {
		pause := w.sweep(w.s.life, false)
		t := time.NewTimer(pause)
		select {
		case <-w.wake:
			t.Stop()
		case <-t.C:
		case <-w.s.life.Done():
			t.Stop()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(w.s.life), lastSweeps)
			defer cancel()
			w.sweep(ctx, true)
			return
		}
	}
}

// sweep makes one round: it sweeps the jobs that are due, and returns when the
// next round is. With closing it leaves those alone that were tried before.
func (w *sweeper) sweep(ctx context.Context, closing bool) time.Duration {
	next := sweepEvery
	jobs, err := w.s.journal.Sweeps(ctx)
	if err != nil {
		w.s.log.Warn("sweeps not listed", slog.Any("error", err))
		return next
	}
	var g errgroup.Group
	g.SetLimit(sweepsAtOnce)
	for _, job := range jobs {
		left := time.Until(w.over(job))
		if left > 0 {
			next = min(next, left)
		}
		if job.Again && left > 0 || closing && (job.Again || w.why(job.JobID) != nil) || ctx.Err() != nil {
			continue
		}
		g.Go(func() error {
			w.one(ctx, job, left <= 0)
			return nil
		})
	}
	_ = g.Wait()
	next = min(next, w.requests(ctx, closing))
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.round)
	w.round = make(chan struct{})
	return next
}

// over is when nobody can write below the job's prefix any more.
func (w *sweeper) over(job journal.Sweep) time.Time {
	timeout := w.s.cfg.ExecutorTimeout
	over, heard := job.Ended.Add(timeout+w.s.cfg.SweepDelay), w.began.Add(timeout)
	if heard.After(over) {
		return heard
	}
	return over
}

func (w *sweeper) one(ctx context.Context, job journal.Sweep, last bool) {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	log := w.s.log.With(slog.String("job_id", job.JobID), slog.String("table", job.Table))
	err := w.s.cleanJob(ctx, job.JobID)
	switch {
	case errors.Is(err, journal.ErrNotDroppable):
		return // it changed since it was listed
	case err == nil:
	case errors.Is(ctx.Err(), context.Canceled):
		return // the scheduler stops; its next process goes on
	case time.Since(job.Ended) > w.s.cfg.JournalRetention && (errors.Is(err, cleanup.ErrUnclear) || errors.Is(err, commit.ErrTableNotFound)):
		log.Warn("files of a job stay for good", slog.Any("error", err))
	default:
		if old := w.why(job.JobID); old == nil || old.Error() != err.Error() {
			log.Warn("files of a job stay for now", slog.Any("error", err))
		}
		w.note(job.JobID, err)
		return
	}
	if err := w.s.journal.Swept(ctx, job.JobID, last); err != nil {
		log.Warn("sweep not recorded", slog.Any("error", err))
		return
	}
	w.note(job.JobID, nil)
}

// requests sweeps the files that earlier processes wrote for requests: when this
// one begins, and once more, for the last time, when one that was only stalled
// can't write any more. It returns when that is.
func (w *sweeper) requests(ctx context.Context, closing bool) time.Duration {
	if w.s.cfg.DeleteFile == nil || closing {
		return sweepEvery
	}
	builds, err := w.s.journal.Builds(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.s.log.Warn("files of requests not listed", slog.Any("error", err))
		}
		return sweepEvery
	}
	left := time.Until(w.began.Add(w.s.cfg.SweepDelay))
	next := sweepEvery
	for _, b := range builds {
		id := buildKey(b)
		if b.Epoch == w.s.journal.Epoch() || ctx.Err() != nil {
			continue
		}
		if left > 0 {
			next = min(next, left)
		}
		if !w.tried(id) || left <= 0 || w.why(id) != nil {
			w.oneRequests(ctx, b, left <= 0)
		}
	}
	return next
}

func (w *sweeper) oneRequests(ctx context.Context, b journal.Build, last bool) {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	id := buildKey(b)
	log := w.s.log.With(slog.String("table", b.Table.String()), slog.String("mark", b.Mark))
	err := w.s.withMarked(ctx, b.Table, func(t commit.Marked) error {
		_, err := w.s.cleaner().CleanRequests(ctx, b, t)
		return err
	})
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return // the scheduler stops; its next process goes on
	}
	if err != nil && time.Since(b.At) > w.s.cfg.JournalRetention &&
		(errors.Is(err, cleanup.ErrUnclear) || errors.Is(err, journal.ErrNotDroppable) || errors.Is(err, commit.ErrTableNotFound)) {
		log.Warn("files of requests stay for good", slog.Any("error", err))
		err, last = nil, true
	}
	if err == nil && last {
		err = w.s.journal.BuildSwept(ctx, b)
	}
	if old := w.why(id); err != nil && (old == nil || old.Error() != err.Error()) {
		log.Warn("files of requests stay for now", slog.Any("error", err))
	}
	w.note(id, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.first[id] = true
}

func buildKey(b journal.Build) string { return b.Mark + " " + b.TableUUID + " " + b.Dir }

// tried says whether this process has swept the files of requests before.
func (w *sweeper) tried(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.first[id]
}

func (w *sweeper) note(jobID string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		delete(w.kept, jobID)
		return
	}
	w.kept[jobID] = err
}

// why says why the files of a job stayed at its last sweep, nil when nothing did.
func (w *sweeper) why(jobID string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kept[jobID]
}

// settled waits until nothing is left to sweep for a table, except for what the
// table doesn't tell and what must stay by the record. Which that is, the second
// round from now on says: one that is under way may have found out before.
func (w *sweeper) settled(ctx context.Context, table string) error {
	w.s.resolveUnits(ctx)
	for round := 0; ; round++ {
		w.mu.Lock()
		done := w.round
		w.mu.Unlock()
		stays := func(id string) bool {
			why := w.why(id)
			return round >= 2 && (errors.Is(why, cleanup.ErrUnclear) || errors.Is(why, journal.ErrNotDroppable))
		}
		jobs, err := w.s.journal.Sweeps(ctx)
		if err != nil {
			return err
		}
		open := false
		for _, job := range jobs {
			open = open || job.Table == table && !stays(job.JobID)
		}
		builds, err := w.s.journal.Builds(ctx)
		if err != nil {
			return err
		}
		for _, b := range builds {
			open = open || b.Table.String() == table && b.Epoch != w.s.journal.Epoch() && !stays(buildKey(b))
		}
		if !open {
			return nil
		}
		if round < 2 {
			w.soon()
		}
		select {
		case <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.s.life.Done():
			return errClosing()
		}
	}
}
