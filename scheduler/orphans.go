package scheduler

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/cleanup"
	"github.com/firn-project/firn/scheduler/journal"
)

// Orphans implements firnpb.ClientServiceServer. It goes by the record of the
// jobs that wrote to the table: what they left that no table version can have.
// Files that nobody here wrote are none of its business, and neither are those of
// jobs that run.
func (s *Scheduler) Orphans(ctx context.Context, r *firnpb.OrphansRequest) (*firnpb.OrphansResponse, error) {
	name, err := s.tableName(ctx, r.GetTable(), wireSession(r.GetSession()))
	if err != nil {
		return nil, err
	}
	if s.cfg.DeleteFile == nil {
		return nil, badRequest("look for orphans of "+name.String(), errors.New("this scheduler is configured not to delete files"))
	}
	if r.GetWait() {
		if err := s.sweeper.settled(ctx, name.String()); err != nil {
			return nil, err
		}
	}
	jobs, err := s.journal.Jobs(ctx, journal.Filter{Table: name.String()})
	if err != nil {
		return nil, err
	}
	// The record has a running job as it was admitted.
	if err := s.loop.call(ctx, func() {
		for i := range jobs {
			if j := s.state.jobs[jobs[i].ID]; j != nil {
				jobs[i].State, jobs[i].Commit = string(j.state()), j.commitState()
			}
		}
	}); err != nil {
		return nil, err
	}
	storage := s.storage(ctx, name)
	found := make([]*firnpb.OrphanFiles, len(jobs))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(sweepsAtOnce)
	for i, rec := range jobs {
		g.Go(func() error {
			var err error
			found[len(jobs)-1-i], err = s.orphansOf(gctx, rec, storage, r.GetDelete())
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	requests, err := s.requestOrphans(ctx, name, r.GetDelete())
	if err != nil {
		return nil, err
	}
	return &firnpb.OrphansResponse{Jobs: slices.DeleteFunc(append(found, requests...), func(o *firnpb.OrphanFiles) bool { return o == nil })}, nil
}

// requestsID stands where a job's id does for files that a process wrote for
// requests.
func requestsID(b journal.Build) string { return "requests-" + b.Mark }

// withMarked opens a table for what is done with marked files; nothing is when
// its driver marks none.
func (s *Scheduler) withMarked(ctx context.Context, name commit.TableName, f func(commit.Marked) error) (err error) {
	t, err := s.cfg.Catalogs.OpenTable(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if m, ok := t.(commit.Marked); ok {
		return f(m)
	}
	return nil
}

// requestOrphans are the files that processes wrote for requests to a table that
// were never sent: orphans, and those that stay although the table doesn't refer
// to them.
func (s *Scheduler) requestOrphans(ctx context.Context, name commit.TableName, remove bool) ([]*firnpb.OrphanFiles, error) {
	builds, err := s.journal.Builds(ctx)
	if err != nil {
		return nil, err
	}
	var all []*firnpb.OrphanFiles
	for _, b := range builds {
		if b.Table.String() != name.String() {
			continue
		}
		var p cleanup.Plan
		deleted := false
		if err := s.withMarked(ctx, name, func(t commit.Marked) error {
			var err error
			if p, err = s.cleaner().PlanRequests(ctx, b, t); err == nil && remove && len(p.Delete) > 0 {
				_, err = s.cleaner().CleanRequests(ctx, b, t)
				deleted = err == nil
			}
			return err
		}); err != nil {
			return nil, err
		}
		o := &firnpb.OrphanFiles{JobId: requestsID(b), Files: p.Delete, Why: p.Why, Deleted: deleted, More: uint64(p.More)}
		if p.Because != nil {
			o.Files, o.Why, o.Kept = p.Keep, "", p.Because.Error()
		}
		if len(o.Files) > 0 {
			all = append(all, o)
		}
	}
	return all, nil
}

// orphansOf are the orphans of one job, or its files that must stay all the same;
// nil when there is nothing to say.
func (s *Scheduler) orphansOf(ctx context.Context, rec journal.Job, storage map[string]string, remove bool) (*firnpb.OrphanFiles, error) {
	job, _, wrote, err := s.jobFiles(ctx, rec.ID)
	if err != nil || !wrote {
		return nil, err
	}
	store := s.store(storage)
	plan, err := s.cleaner().Plan(ctx, job, store)
	if err != nil {
		return nil, err
	}
	o := &firnpb.OrphanFiles{JobId: rec.ID, State: rec.State, Commit: string(rec.Commit), More: uint64(plan.More)}
	switch {
	case plan.Because != nil:
		o.Files, o.Kept = plan.Keep, s.whyKept(ctx, rec, plan.Because)
		return o, err
	case len(plan.Delete) == 0:
		return nil, err
	case remove:
		_, err = s.cleaner().Clean(ctx, job, store)
		o.Deleted = err == nil
	}
	o.Files, o.Why = plan.Delete, plan.Why
	return o, err
}

// whyKept says why the files of a job stay.
func (s *Scheduler) whyKept(ctx context.Context, rec journal.Job, because error) string {
	if rec.Ended.IsZero() {
		return "the job runs"
	}
	u, err := s.journal.Unit(ctx, rec.ID)
	switch {
	case err != nil:
		return "the record can't be read"
	case errors.Is(because, cleanup.ErrUnclear):
		return "its commit landed, and which of its files that holds can't be compared: " + because.Error()
	case u.State == journal.UnitRefused && !u.Quarantine:
		return "its commit is parked: `firn commit retry` or `firn commit drop` decides"
	default:
		return "it isn't proven that its commit can't land any more"
	}
}

// landed finds a unit that was committed by its token or, where the catalog has
// stripped that, by the snapshots that were sent for it. snapshots are those that can
// be its: a table that remembers no more than the token and its seat (a ledger, a
// Delta table's txn after a checkpoint) may still have the snapshot, one of those that
// were sent for that seat. At most one of them landed, and whoever lists its files
// finds out which: of the others none is found.
func (s *Scheduler) landed(ctx context.Context, m commit.Metadata, u journal.Unit) (l commit.Landed, snapshots []string, err error) {
	l, found := commit.FindToken(m, u.Branch, u.Token)
	if found && m.HasSnapshot(l.SnapshotID) {
		return l, []string{l.SnapshotID}, nil
	}
	sends, err := s.journal.Sends(ctx, u.Token)
	if !found {
		for _, r := range sends {
			if m.HasSnapshot(r.SnapshotID) {
				return commit.Landed{Token: u.Token, SnapshotID: r.SnapshotID}, []string{r.SnapshotID}, nil
			}
		}
		return commit.Landed{}, nil, err
	}
	for _, r := range sends {
		if r.Seat.Number != 0 && r.Seat.Number == l.Seat.Number {
			snapshots = append(snapshots, r.SnapshotID)
		}
	}
	return l, snapshots, err
}
