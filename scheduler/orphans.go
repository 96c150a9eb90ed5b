package scheduler

import (
	"context"
	"errors"
	"slices"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
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
	jobs, err := s.journal.Jobs(ctx, journal.Filter{Table: name.String()})
	if err != nil {
		return nil, err
	}
	storage := s.storage(ctx, name)
	resp := &firnpb.OrphansResponse{}
	for _, rec := range slices.Backward(jobs) {
		found, err := s.orphansOf(ctx, rec, storage, r.GetDelete())
		if err != nil {
			return nil, err
		}
		if found != nil {
			resp.Jobs = append(resp.Jobs, found)
		}
	}
	return resp, nil
}

// orphansOf are the orphans of one job, nil when there is nothing to say.
func (s *Scheduler) orphansOf(ctx context.Context, rec journal.Job, storage map[string]string, remove bool) (*firnpb.OrphanFiles, error) {
	if rec.Commit == commit.CommitCommitted {
		return nil, nil
	}
	job, _, wrote, err := s.jobFiles(ctx, rec.ID)
	if err != nil || !wrote {
		return nil, err
	}
	store := s.store(storage)
	o := &firnpb.OrphanFiles{JobId: rec.ID, State: rec.State, Commit: string(rec.Commit)}
	o.Files, err = s.cleaner().Plan(ctx, job, store)
	if errors.Is(err, journal.ErrNotDroppable) {
		o.Files, o.Kept = nil, s.whyKept(ctx, rec)
		return o, nil
	}
	if err == nil {
		o.Files, err = s.stillThere(ctx, rec, storage, o.Files)
	}
	if err != nil || len(o.Files) == 0 {
		return nil, err
	}
	if remove {
		if _, err = s.cleaner().Clean(ctx, job, store); err == nil {
			o.Deleted = true
		}
	}
	return o, err
}

// stillThere leaves out the files that are gone, if that can be found out.
func (s *Scheduler) stillThere(ctx context.Context, rec journal.Job, storage map[string]string, paths []string) ([]string, error) {
	gone, err := s.journal.Deleted(ctx, rec.ID)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(paths, func(p string) bool {
		if !slices.Contains(gone, p) || s.cfg.StatFile == nil {
			return false
		}
		_, err := s.cfg.StatFile(ctx, storage, p)
		return err != nil
	}), nil
}

// whyKept says why the files of a job stay.
func (s *Scheduler) whyKept(ctx context.Context, rec journal.Job) string {
	if rec.Ended.IsZero() {
		return "the job runs"
	}
	u, err := s.journal.Unit(ctx, rec.ID)
	switch {
	case err != nil:
		return "the record can't be read"
	case u.State == journal.UnitRefused && !u.Quarantine:
		return "its commit is parked: `firn commit retry` or `firn commit drop` decides"
	default:
		return "it isn't proven that its commit can't land any more"
	}
}
