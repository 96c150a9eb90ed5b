package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/adoption"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
)

// resolveEvery is how often units whose outcome isn't known are looked up.
const resolveEvery = 15 * time.Second

// tidy runs what has time: it finds out what became of units, gives up the files
// of those that were parked for long, and forgets old jobs.
func (s *Scheduler) tidy() {
	t := time.NewTicker(min(resolveEvery, max(s.cfg.ParkedRetention/4, time.Second)))
	defer t.Stop()
	var pruned time.Time
	for {
		select {
		case <-t.C:
		case <-s.life.Done():
			return
		}
		s.resolveUnits(s.life)
		s.dropParked(s.life)
		if now := time.Now(); now.Sub(pruned) > min(time.Hour, s.cfg.JournalRetention/4) {
			pruned = now
			if n, err := s.journal.Prune(s.life, now.Add(-s.cfg.JournalRetention)); err != nil {
				s.log.Warn("journal not pruned", slog.Any("error", err))
			} else if n > 0 {
				s.log.Info("journal pruned", slog.Int("jobs", n))
			}
			if err := s.events.Prune(s.life, now.Add(-s.cfg.JournalRetention)); err != nil {
				s.log.Warn("event log not pruned", slog.Any("error", err))
			}
		}
	}
}

// resolveUnits looks the units up that are unknown or in quarantine. It only
// finds out: nothing is built or sent, as whoever was told that an outcome isn't
// known may have done something about it since; unless the job was submitted with
// leave for more.
func (s *Scheduler) resolveUnits(ctx context.Context) {
	units, err := s.journal.Units(ctx, true)
	running, rerr := s.runningJobs(ctx)
	if err := errors.Join(err, rerr); err != nil {
		s.log.Warn("units not listed", slog.Any("error", err))
		return
	}
	for _, u := range units {
		if ctx.Err() != nil {
			return
		}
		if u.State != journal.UnitUnknown && !u.Quarantine && (!s.isLost(u) || running[u.JobID]) {
			continue
		}
		o, err := s.resolveUnit(ctx, u)
		if err != nil {
			s.log.Warn("unit not looked up", slog.String("job_id", u.JobID), slog.Any("error", err))
		} else if o.State == commit.Unknown {
			s.settle(u)
		}
	}
}

// settle does for an unknown unit what its job was submitted with leave for. It
// comes after a read that proved nothing, so the table can be reached. It isn't
// waited for, as it may take as long as a commit's deadline; one runs at a time
// for a unit, and the next look starts another when it came to nothing.
func (s *Scheduler) settle(u journal.Unit) {
	action := actionRetry
	switch u.AfterDeadline {
	case journal.AfterDeadlineFence:
		action = actionFence
	case journal.AfterDeadlineRetry:
	default:
		return
	}
	if _, busy := s.settling.LoadOrStore(u.JobID, true); busy {
		return
	}
	s.wg.Go(func() {
		defer s.settling.Delete(u.JobID)
		s.log.Info("unknown commit driven by policy", slog.String("job_id", u.JobID), slog.String("action", action))
		if _, err := s.DriveUnit(s.life, &firnpb.DriveUnitRequest{JobId: u.JobID, Action: action}); err != nil {
			s.log.Warn("unknown commit not settled", slog.String("job_id", u.JobID), slog.Any("error", err))
		}
	})
}

// runningJobs are the jobs that run, but for those that only wait until somebody
// finds out what became of their commit.
func (s *Scheduler) runningJobs(ctx context.Context) (map[string]bool, error) {
	running := map[string]bool{}
	err := s.loop.call(ctx, func() {
		for _, j := range s.state.byKey {
			running[j.id] = j.commitState() != commit.CommitUnknown
		}
	})
	return running, err
}

// isLost says whether what became of a unit may be lost: it was sealed in an
// earlier incarnation of the journal, and this one is a copy.
func (s *Scheduler) isLost(u journal.Unit) bool {
	return u.Incarnation != s.journal.Incarnation() && u.State != journal.UnitCommitted && u.State != journal.UnitDropped
}

// countLost makes a unit whose journal was restored one that may have been sent:
// nothing of it is stopped or deleted before a read shows that every request
// which may have been lost with the journal is dead.
func (s *Scheduler) countLost(ctx context.Context, u journal.Unit) (journal.Unit, error) {
	if !s.isLost(u) {
		return u, nil
	}
	r, err := s.lostSends(ctx, u.Table, u.TableUUID, u.Branch, u.Token)
	if err != nil {
		return u, err
	}
	if err := s.journal.Lost(ctx, u.JobID, lostRecord(r)); err != nil {
		return u, err
	}
	s.log.Warn("a commit may have been sent by the journal that this one is a copy of", slog.String("job_id", u.JobID),
		slog.String("table", u.Table.String()), slog.Int64("seat", r.Seat.Number))
	return s.journal.Unit(ctx, u.JobID)
}

// lostSends reads a table for commit.LostSends. Seats of another table of the
// name say nothing: there the request is never dead.
func (s *Scheduler) lostSends(ctx context.Context, name commit.TableName, uuid, branch string, token commit.Token) (commit.Request, error) {
	meta, err := s.readTable(ctx, name)
	if err != nil {
		return commit.Request{}, fmt.Errorf("look how far table %s was when the journal was restored: %w", name, err)
	}
	r := commit.LostSends(meta, branch, token)
	r.ID = newID("lost-")
	if meta.UUID() != uuid {
		r.Seat = commit.Seat{}
	}
	return r, nil
}

func lostRecord(r commit.Request) journal.Send {
	return journal.Send{RequestID: r.ID, Head: r.Head, Seat: r.Seat, Tokens: r.Tokens, At: time.Now()}
}

// readTable reads a table once.
func (s *Scheduler) readTable(ctx context.Context, name commit.TableName) (commit.Metadata, error) {
	table, err := s.cfg.Catalogs.OpenTable(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := table.Close(); cerr != nil {
			s.log.Warn("closing a table failed", slog.Any("error", cerr))
		}
	}()
	return table.Read(ctx)
}

// outcomeRecord is an outcome as the journal keeps it.
func outcomeRecord(o commit.Outcome) journal.Outcome {
	out := journal.Outcome{State: o.State, Reason: o.Reason, Quarantine: o.Quarantine, Other: o.OtherSubmission, LedgerOnly: o.LedgerOnly}
	if o.Err != nil {
		out.Cause = o.Err.Error()
	}
	return out
}

// recordOutcome makes an outcome durable.
func (s *Scheduler) recordOutcome(ctx context.Context, jobID, tableUUID string, o commit.Outcome) error {
	if err := s.stripped.Save(ctx, tableUUID); err != nil {
		return err
	}
	return s.journal.Outcome(ctx, jobID, outcomeRecord(o))
}

// resolveUnit reads the table once and records what it proves of the unit. The
// error is that of the reading; an outcome that isn't known is none.
func (s *Scheduler) resolveUnit(ctx context.Context, u journal.Unit) (commit.Outcome, error) {
	unlock, err := s.keys.lock(ctx, u.Namespace+"\x00"+u.Key)
	if err != nil {
		return commit.Outcome{}, err
	}
	defer unlock()
	return s.resolveLocked(ctx, u.JobID)
}

// resolveLocked is resolveUnit for who holds the key.
func (s *Scheduler) resolveLocked(ctx context.Context, jobID string) (commit.Outcome, error) {
	u, err := s.journal.Unit(ctx, jobID)
	if err != nil {
		return commit.Outcome{}, err
	}
	if u, err = s.countLost(ctx, u); err != nil {
		return commit.Outcome{}, err
	}
	if u.State != journal.UnitUnknown && u.State != journal.UnitSent && !u.Quarantine {
		return commit.Outcome{}, nil
	}
	o, err := s.lookUp(ctx, u)
	if err != nil || o.State == commit.Unknown || o.Quarantine {
		return o, err
	}
	if u.State == journal.UnitRefused && o.State == commit.Refused {
		o.Reason = u.Reason
	}
	if err := s.recordOutcome(ctx, u.JobID, u.TableUUID, o); err != nil {
		return o, err
	}
	s.log.Info("commit unit resolved", slog.String("job_id", u.JobID), slog.String("state", string(o.State)), slog.String("reason", string(o.Reason)))
	s.sweeper.soon()
	report := reportFor(u, o)
	return o, s.loop.call(ctx, func() { s.resolved(u.JobID, report, o.Err) })
}

// resolved ends the job that waits for its commit's outcome, if it does.
func (s *Scheduler) resolved(jobID string, report commit.Report, err error) {
	if !s.isUnresolved(jobID) {
		return
	}
	j := s.state.jobs[jobID]
	j.report, j.unresolved = &report, nil
	ev := graph.RootFinished{Epoch: j.rootEpoch, Commit: report.State, Err: err}
	if err == nil {
		if ev.Result, err = wire.EncodeReport(report); err != nil {
			s.log.Error("report not encoded", slog.String("job_id", j.id), slog.Any("error", err))
		}
		j.inline = ev.Result
	}
	s.apply(j, ev)
	j.touch()
}

// isUnresolved says whether the job runs on only because the outcome of its
// commit isn't known.
func (s *Scheduler) isUnresolved(jobID string) bool {
	j := s.state.jobs[jobID]
	return j != nil && j.graph != nil && !j.hasEnded() && j.commitState() == commit.CommitUnknown
}

// lookUp reads the unit's table and finds out what the read proves: the machine
// whose deadline has passed builds nothing.
func (s *Scheduler) lookUp(ctx context.Context, u journal.Unit) (o commit.Outcome, err error) {
	sends, err := s.journal.Sends(ctx, u.Token)
	if err != nil {
		return o, err
	}
	files, share, err := s.filesOf(ctx, u)
	if err != nil {
		return o, err
	}
	defer share.Leave()
	table, err := s.cfg.Catalogs.OpenTable(ctx, u.Table)
	if err != nil && !errors.Is(err, commit.ErrTableNotFound) {
		return o, err
	}
	if table != nil {
		defer func() {
			if cerr := table.Close(); cerr != nil {
				s.log.Warn("closing a table failed", slog.Any("error", cerr))
			}
		}()
	}
	unit := commit.Unit{
		Token: u.Token, Digest: u.Digest, JobID: u.JobID, Key: u.Key, Table: u.Table, TableUUID: u.TableUUID, Branch: u.Branch,
		Operation: u.Operation, SchemaID: u.SchemaID, SpecID: u.SpecID, Prefix: u.Prefix, Files: files, Rows: u.Rows, Bytes: u.Bytes,
		Tasks: u.Tasks, Origin: u.Origin,
	}
	now := time.Now()
	m := commit.NewMachine([]commit.Unit{unit}, commit.Options{Deadline: now, Sent: requestsOf(sends, u.Branch)})
	o = commit.Outcome{State: commit.Unknown}
	actions := m.Step(commit.Begin{}, now)
	for len(actions) > 0 {
		var answer commit.Event
		for _, a := range actions {
			switch a := a.(type) {
			case commit.Read:
				var meta commit.Metadata
				rerr := err
				if table != nil {
					meta, rerr = table.Read(ctx)
				}
				answer = commit.ReadDone{Metadata: meta, Err: rerr}
			case commit.Discard:
				// There was a read that proved it dead, so there is a table.
				if derr := table.Discard(ctx, a.Request); derr != nil {
					s.log.Warn("discarding a dead commit request left files behind", slog.String("request_id", a.Request.ID), slog.Any("error", derr))
				}
			case commit.Finish:
				if o = a.Outcome; o.TokenStripped {
					s.stripped.Found(unit, o.Landed.SnapshotID)
				}
			default: // it only finds out
			}
		}
		if answer == nil {
			break
		}
		actions = m.Step(answer, now)
	}
	return o, nil
}

// reportFor is what is told of a unit's outcome.
func reportFor(u journal.Unit, o commit.Outcome) commit.Report {
	r := commit.Report{
		JobID: u.JobID, Key: u.Key, Table: u.Table, Format: adoption.FormatOf(u), Operation: u.Operation, State: commit.CommitUnknown, Attempts: u.Sends,
		OtherSubmission: o.ByOthers(), RolledBack: o.RolledBack, Deduplicated: o.Deduplicated,
	}
	switch o.State {
	case commit.Committed:
		r.State = commit.CommitCommitted
		r.Rows, r.Files, r.Bytes = u.Rows, u.Files, u.Bytes
		r.SnapshotID, r.CommittedAt = o.Landed.SnapshotID, o.Landed.CommittedAt
		if o.ByOthers() {
			r.Rows, r.Files, r.Bytes = o.Landed.Rows, o.Landed.Files, o.Landed.Bytes
		}
	case commit.Refused:
		r.State = commit.CommitRefused
	case commit.Unknown:
	}
	return r
}

// recorder writes what the committer must have on record into the journal.
type recorder struct{ s *Scheduler }

// RecordSeal implements committer.Recorder: the unit and its manifest.
func (r recorder) RecordSeal(ctx context.Context, u commit.Unit) error {
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
		Prefix: u.Prefix, Files: int64(u.Files.Len()), Rows: u.Rows, Bytes: u.Bytes, Tasks: u.Tasks, Sealed: time.Now(),
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
	size := &countingWriter{}
	if err := r.s.journal.Seal(ctx, sealed, func(w io.Writer) error {
		size.w, size.n = w, 0
		return wire.WriteManifest(size, u.Files)
	}); err != nil || !isRun {
		return err
	}
	if size.n <= heldBesides {
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

// countingWriter counts what is written.
type countingWriter struct {
	w io.Writer
	n int64
}

// Write implements io.Writer.
func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
