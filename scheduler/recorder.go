package scheduler

import (
	"context"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/journal"
)

// recorder writes what the committer must have on record into the journal.
type recorder struct{ s *Scheduler }

// RecordSeal implements committer.Recorder: the unit and its manifest.
func (r recorder) RecordSeal(ctx context.Context, u commit.Unit) error {
	manifest, err := encodeFiles(u.Files)
	if err != nil {
		return err
	}
	running, _ := r.s.running.Load(u.JobID)
	run, isRun := running.(*rootRun)
	if isRun {
		if run.job.dryRun {
			run.verified = &u
			return errDryRun
		}
		if err := run.seal(ctx); err != nil {
			return err
		}
	}
	sealed := journal.Unit{
		JobID: u.JobID, Namespace: defaultNamespace, Key: u.Key, Token: u.Token, Digest: u.Digest, Table: u.Table,
		TableUUID: u.TableUUID, Branch: u.Branch, Operation: u.Operation, SchemaID: u.SchemaID, SpecID: u.SpecID,
		Prefix: u.Prefix, Files: int64(len(u.Files)), Rows: u.Rows, Bytes: u.Bytes, Tasks: u.Tasks, Sealed: time.Now(),
		Origin: u.Origin,
	}
	if isRun {
		sealed.AfterDeadline = run.job.afterDeadline
	} else if old, err := r.s.journal.Unit(ctx, u.JobID); err == nil {
		sealed.AfterDeadline = old.AfterDeadline
	}
	if c, ok := r.s.targets.Load(u.JobID); ok {
		target := c.(*plan.Commit).Target
		sealed.SchemaJSON, sealed.SpecJSON = target.SchemaJSON, target.SpecJSON
	}
	if err := r.s.journal.Seal(ctx, sealed, manifest); err != nil || !isRun {
		return err
	}
	if len(manifest) <= heldBesides {
		run.leave()
	}
	if run.uncounted == nil {
		return nil
	}
	// What is counted as sent is past its point of no return.
	if err := r.s.journal.Lost(ctx, u.JobID, lostRecord(*run.uncounted)); err != nil {
		return err
	}
	return run.passNoReturn(ctx)
}

// RecordSend implements committer.Recorder.
func (r recorder) RecordSend(ctx context.Context, req commit.Request) error {
	if req.Fence {
		req.Tokens = nil // no unit is in it
	}
	return r.s.journal.Send(ctx, journal.Send{
		RequestID: req.ID, SnapshotID: req.SnapshotID, Head: req.Head, Seat: req.Seat, Tokens: req.Tokens,
		MetadataFiles: req.MetadataFiles, At: time.Now(),
	})
}

// RecordOutcome implements committer.Recorder.
//
// A unit that was stopped because the scheduler shuts down has no outcome: the
// next process goes on with it.
func (r recorder) RecordOutcome(ctx context.Context, u commit.Unit, o commit.Outcome) error {
	if o.State == commit.Unknown || o.State == commit.Refused && o.Reason == "" {
		left := false
		if r.s.loop.call(ctx, func() {
			j := r.s.state.jobs[u.JobID]
			left = j != nil && r.s.handsOver(j)
		}) == nil && left {
			return nil
		}
	}
	return r.s.recordOutcome(ctx, u.JobID, u.TableUUID, o)
}

// openMarked opens a table for the committer. What its driver writes for requests
// bears this process's mark, and that is on record before, once for each directory:
// see cleanup.Cleaner.
func (s *Scheduler) openMarked(ctx context.Context, name commit.TableName) (commit.Table, error) {
	t, err := s.cfg.Catalogs.OpenTable(ctx, name)
	if m, ok := t.(commit.Marked); ok && err == nil {
		m.Mark(s.mark, func(ctx context.Context, uuid, dir string) error {
			type build struct{ uuid, dir string }
			if _, known := s.builds.Load(build{uuid, dir}); known {
				return nil
			}
			if err := s.journal.Building(ctx, journal.Build{Mark: s.mark, Table: name, TableUUID: uuid, Dir: dir}); err != nil {
				return err
			}
			s.builds.Store(build{uuid, dir}, true)
			return nil
		})
	}
	return t, err
}

// encodeFiles writes files as the Arrow IPC stream of a file manifest.
func encodeFiles(files []commit.File) ([]byte, error) {
	rec, err := wire.EncodeManifest(files)
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	return wire.EncodeManifestIPC(rec)
}
