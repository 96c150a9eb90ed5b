package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/adoption"
	"github.com/firn-project/firn/scheduler/answers"
	"github.com/firn-project/firn/scheduler/committer"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/paging"
)

// Actions of DriveUnit.
const (
	actionRetry   = "retry"
	actionResolve = "resolve"
	actionFence   = "fence"
	actionDrop    = "drop"
)

// ListUnits implements firnpb.ClientServiceServer: the units that wait to be
// driven, or all. Those of running jobs don't wait.
func (s *Scheduler) ListUnits(ctx context.Context, r *firnpb.ListUnitsRequest) (*firnpb.ListUnitsResponse, error) {
	if err := paging.Between(r.GetSinceUnixMs(), r.GetUntilUnixMs()); err != nil {
		return nil, err
	}
	units, err := s.journal.Units(ctx, r.GetAll() || r.GetJobId() != "")
	if err != nil {
		return nil, err
	}
	running, err := s.runningJobs(ctx)
	if err != nil {
		return nil, err
	}
	waits := map[string]string{}
	for _, w := range s.committer.Waits() {
		waits[w.JobID] = w.For
	}
	told := func(u journal.Unit) string {
		if u.State == journal.UnitSent && !running[u.JobID] {
			return string(commit.Unknown)
		}
		return string(u.State)
	}
	units = slices.DeleteFunc(units, func(u journal.Unit) bool {
		if id := r.GetJobId(); id != "" {
			return id != u.JobID
		}
		sealed := u.Sealed.UnixMilli()
		return running[u.JobID] && !r.GetAll() || r.GetState() != "" && told(u) != r.GetState() || r.GetTable() != "" && u.Table.String() != r.GetTable() ||
			sealed < r.GetSinceUnixMs() || r.GetUntilUnixMs() > 0 && sealed >= r.GetUntilUnixMs()
	})
	resp := &firnpb.ListUnitsResponse{}
	units, resp.NextPageToken, err = paging.Page(units, func(u journal.Unit) paging.Cursor {
		return paging.Cursor{Number: u.Sealed.UnixMilli(), Name: u.JobID}
	}, int(r.GetLimit()), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	for _, u := range units {
		st := &firnpb.UnitStatus{
			JobId: u.JobID, Table: u.Table.String(), State: told(u), Reason: string(u.Reason),
			Files: u.Files, Rows: u.Rows, Bytes: u.Bytes, Prefix: u.Prefix, Cause: strings.ToValidUTF8(u.Cause, "\uFFFD"),
			Token: u.Token.String(), Digest: u.Digest.String(), TableUuid: u.TableUUID, Branch: u.Branch, IdempotencyKey: u.Key,
			SealedUnixMs: millis(u.Sealed), SinceUnixMs: millis(u.Since), Quarantine: u.Quarantine,
			WaitsFor: waits[u.JobID], AfterDeadline: string(u.AfterDeadline), LedgerOnly: u.LedgerOnly,
		}
		resp.Units = append(resp.Units, st)
		if r.GetJobId() == "" {
			continue
		}
		sends, err := s.journal.Sends(ctx, u.Token)
		if err != nil {
			return nil, err
		}
		for _, r := range sends {
			st.Sends = append(st.Sends, &firnpb.SendRecord{
				RequestId: r.RequestID, SnapshotId: r.SnapshotID, Head: r.Head, Seat: r.Seat.Number, AtUnixMs: millis(r.At),
			})
		}
	}
	if r.GetJobId() != "" && len(resp.Units) == 0 {
		return nil, errUnitNotFound(r.GetJobId())
	}
	return resp, nil
}

// DriveUnit implements firnpb.ClientServiceServer.
func (s *Scheduler) DriveUnit(ctx context.Context, r *firnpb.DriveUnitRequest) (*firnpb.JobStatus, error) {
	u, err := s.journal.Unit(ctx, r.GetJobId())
	if errors.Is(err, journal.ErrNotFound) {
		return nil, errUnitNotFound(r.GetJobId())
	}
	if err != nil {
		return nil, err
	}
	// As for a submission under the key: one at a time, and not beside a job
	// that runs.
	unlock, err := s.keys.lock(ctx, u.Namespace+"\x00"+u.Key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var running *job
	closing, unresolved := false, false
	if err := s.loop.call(ctx, func() {
		defer func() {
			unresolved = running != nil && running.id == u.JobID && running.commitState() == commit.CommitUnknown
		}()
		running, closing = s.state.byKey[u.Namespace+"\x00"+u.Key], s.state.closing
	}); err != nil {
		return nil, err
	}
	switch {
	case closing:
		return nil, errClosing()
	case running != nil && !unresolved:
		return nil, errNotDrivable(u, fmt.Errorf("job %s of the same key still runs", running.id), "Wait for it with `firn job wait "+running.id+"`.")
	}
	// What the unit was before the lock may have changed.
	if u, err = s.journal.Unit(ctx, u.JobID); err != nil {
		return nil, err
	}
	if u, err = s.countLost(ctx, u); err != nil {
		return nil, err
	}
	switch r.GetAction() {
	case actionRetry:
		return s.retryUnit(ctx, u, r.GetTable(), wireSession(r.GetSession()))
	case actionResolve:
		if _, err := s.resolveLocked(ctx, u.JobID); err != nil {
			return nil, err
		}
		return s.GetJob(ctx, &firnpb.JobRequest{JobId: u.JobID})
	case actionFence:
		return s.fenceUnit(ctx, u)
	case actionDrop:
		return s.dropUnit(ctx, u)
	default:
		return nil, badRequest("drive commit unit", fmt.Errorf("action %q isn't %s, %s, %s or %s", r.GetAction(), actionRetry, actionResolve, actionFence, actionDrop))
	}
}

func errUnitNotFound(id string) error {
	return &commit.Error{
		Code: commit.CodeUnitNotFound, Op: "find commit unit of", Object: id, Cause: errors.New("the journal has none of that job"),
		Hint: "`firn commit list` shows the units there are.",
	}
}

func errNotDrivable(u journal.Unit, cause error, hint string) error {
	return &commit.Error{Code: commit.CodeUnitNotDrivable, Op: "drive commit unit of", Object: u.JobID, Cause: cause, Hint: hint}
}

// retryUnit commits a unit again, with the files that are there. table names
// another table to adopt the files into; empty for the unit's own.
func (s *Scheduler) retryUnit(ctx context.Context, u journal.Unit, table string, session plan.Session) (*firnpb.JobStatus, error) {
	switch {
	case u.State == journal.UnitCommitted:
		return s.recordedJob(ctx, u.JobID)
	case !u.Waits():
		return nil, errNotDrivable(u, fmt.Errorf("it is %s %s", u.State, u.Reason), "Run the statement again with the same idempotency key.")
	}
	name := u.Table
	if table != "" {
		var err error
		if name, err = s.tableName(ctx, table, session); err != nil {
			return nil, err
		}
	}
	target, err := s.cfg.Catalogs.Pin(ctx, name)
	if err != nil {
		return nil, err
	}
	leave, err := s.rootSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	files, share, err := s.filesOf(ctx, u)
	if err != nil {
		return nil, err
	}
	defer share.Leave()
	if target.UUID != u.TableUUID {
		if files, err = adopt(u, table != "", target, files); err != nil {
			return nil, err
		}
	} else {
		target.SchemaJSON, target.SpecJSON = u.SchemaJSON, u.SpecJSON
	}
	if err := s.statFiles(ctx, u, target.Storage, files); err != nil {
		return nil, err
	}
	return s.runUnit(ctx, u, &plan.Commit{Target: target, Branch: u.Branch, Operation: u.Operation, Prefix: u.Prefix}, files, false)
}

// fenceUnit finds out what became of a unit, with an empty commit where that is
// what it takes: then its requests can't land any more.
func (s *Scheduler) fenceUnit(ctx context.Context, u journal.Unit) (*firnpb.JobStatus, error) {
	o, err := s.resolveLocked(ctx, u.JobID)
	if err != nil {
		return nil, err
	}
	if o.State != commit.Unknown && !o.Quarantine {
		return s.GetJob(ctx, &firnpb.JobRequest{JobId: u.JobID})
	}
	target, err := s.cfg.Catalogs.Pin(ctx, u.Table)
	if err != nil {
		return nil, err
	}
	if target.UUID != u.TableUUID {
		return nil, errNotDrivable(u, fmt.Errorf("table %s was replaced: a commit to the table of that name says nothing about the first one", u.Table),
			"Its files are kept; they can be adopted once it is proven that they can't land.")
	}
	target.SchemaJSON, target.SpecJSON = u.SchemaJSON, u.SpecJSON
	leave, err := s.rootSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	files, share, err := s.filesOf(ctx, u)
	if err != nil {
		return nil, err
	}
	defer share.Leave()
	st, err := s.runUnit(ctx, u, &plan.Commit{Target: target, Branch: u.Branch, Operation: u.Operation, Prefix: u.Prefix}, files, true)
	after, uerr := s.journal.Unit(ctx, u.JobID)
	if uerr == nil && u.State == journal.UnitRefused && after.State == journal.UnitRefused {
		// What it was refused for stays; it is final now.
		uerr = s.journal.Outcome(ctx, u.JobID, journal.Outcome{State: commit.Refused, Reason: u.Reason, Cause: u.Cause})
	}
	if uerr == nil && after.State == journal.UnitRefused {
		// That is what was asked for.
		return s.GetJob(ctx, &firnpb.JobRequest{JobId: u.JobID})
	}
	return st, errors.Join(err, uerr)
}

// filesOf are the files of a sealed unit; the caller leaves the share, by which they
// are held, when it is done with them.
func (s *Scheduler) filesOf(ctx context.Context, u journal.Unit) (commit.Files, *answers.Share, error) {
	var files commit.Packer
	share := s.manifests.Join()
	if err := s.readSealed(ctx, u, share, &files); err != nil {
		share.Leave()
		return commit.Files{}, nil, err
	}
	return files.Files(), share, nil
}

// adopt checks that the files may go into another table than the one they were
// written for, and makes them files of its schema and partition spec. Nothing
// of the unit may still land in the first table.
func adopt(u journal.Unit, asked bool, target plan.Pinned, files commit.Files) (commit.Files, error) {
	if !asked {
		return files, &commit.Error{
			Code: commit.CodeUnitNotDrivable, Op: "commit the files of", Object: u.JobID, Reason: commit.ReasonTableChanged,
			Cause: fmt.Errorf("table %s was replaced: the files were written for table %s, the table of that name is %s now", u.Table, u.TableUUID, target.UUID),
			Hint:  fmt.Sprintf("`firn commit retry %s --table %s` adopts them into the table that is there now; `firn commit drop %s` deletes them.", u.JobID, u.Table, u.JobID),
		}
	}
	if u.Sends > 0 && u.State != journal.UnitRefused {
		return files, errNotDrivable(u, errors.New("its commit was sent, and it isn't proven that it can't land in its own table any more"),
			"Retry it without another table first.")
	}
	files, err := adoption.Fit(u, target, files)
	if err != nil {
		return files, errNotDrivable(u, err, "Run the statement again on that table.")
	}
	return files, nil
}

// statFiles checks that each file is still there with its size.
func (s *Scheduler) statFiles(ctx context.Context, u journal.Unit, storage map[string]string, files commit.Files) error {
	if s.cfg.StatFile == nil {
		return nil
	}
	for _, f := range files.All() {
		size, err := s.cfg.StatFile(ctx, storage, f.Path)
		if err == nil && size != f.Size {
			err = fmt.Errorf("it has %d bytes; %d were written", size, f.Size)
		}
		if err != nil {
			return errNotDrivable(u, fmt.Errorf("file %s: %w", f.Path, err), "Run the statement again with the same idempotency key.")
		}
	}
	return nil
}

// rootSlot takes a root's place. It is taken before the memory of manifests: who has
// memory must not wait for those who wait for memory.
func (s *Scheduler) rootSlot(ctx context.Context) (leave func(), err error) {
	select {
	case s.rootSlots <- struct{}{}:
		return func() { <-s.rootSlots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// runUnit runs the commit, or only a fence for it, and records what became of the
// job. Its caller has a root's place.
func (s *Scheduler) runUnit(ctx context.Context, u journal.Unit, c *plan.Commit, files commit.Files, fence bool) (*firnpb.JobStatus, error) {
	sent, err := s.sent(ctx, u, c)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	s.targets.Store(u.JobID, c)
	defer s.targets.Delete(u.JobID)
	floor, err := s.journal.LowestOrigin(ctx, c.Target.UUID, u.JobID)
	if err != nil {
		return nil, err
	}
	origin := u.Origin
	if c.Target.UUID != u.TableUUID {
		origin = commit.Seat{} // adopted: it is another unit there
	}
	report, err := s.committer.Run(ctx, committer.Root{
		JobID: u.JobID, Key: u.Key, Namespace: u.Namespace, Plan: c, Tasks: u.Tasks, Sent: sent, Origin: origin, LedgerFloor: floor, Fence: fence,
		Read: func(_ context.Context, into *commit.Packer) error { into.Take(files); return nil },
	})
	// What became of it is recorded also for a caller that has gone.
	ctx = context.WithoutCancel(ctx)
	waiting := false
	if cerr := s.loop.call(ctx, func() {
		if waiting = s.isUnresolved(u.JobID); waiting && report.State != commit.CommitUnknown {
			s.resolved(u.JobID, report, err)
		}
	}); cerr != nil {
		return nil, errors.Join(err, cerr)
	}
	if waiting {
		st, gerr := s.GetJob(ctx, &firnpb.JobRequest{JobId: u.JobID})
		if err := errors.Join(err, gerr); err != nil {
			return nil, err
		}
		return st, nil
	}
	return s.recordDriven(ctx, u, report, started, err)
}

// recordDriven records what became of a job whose unit was driven again; err is
// what its commit ended with.
func (s *Scheduler) recordDriven(ctx context.Context, u journal.Unit, report commit.Report, started time.Time, err error) (*firnpb.JobStatus, error) {
	rec, rerr := s.journal.Job(ctx, u.JobID)
	if rerr != nil {
		return nil, errors.Join(err, rerr)
	}
	st, rerr := recorded(rec)
	if rerr != nil {
		return nil, errors.Join(err, rerr)
	}
	st.Commit, st.Report = string(report.State), reportOf(report)
	if n := len(st.Stages); n > 0 && st.Stages[n-1].GetId() == rootStage {
		root := &firnpb.StageStatus{
			Id: rootStage, State: string(graph.StageSucceeded), Attempt: st.Stages[n-1].GetAttempt() + 1,
			StartedUnixMs: started.UnixMilli(), EndedUnixMs: time.Now().UnixMilli(),
		}
		if err != nil {
			root.State, root.Error = string(graph.StageFailed), strings.ToValidUTF8(err.Error(), "\uFFFD")
		}
		showReport(root, &report)
		st.Stages[n-1] = root
	}
	rec.Commit = report.State
	st.Error, rec.Error = wire.ErrorToProto(err), ""
	if err != nil {
		rec.Error = err.Error()
	} else {
		rec.State, st.State, st.PercentComplete = string(graph.Succeeded), string(graph.Succeeded), 100
		st.Rows = report.Rows
		if st.InlineResult, rerr = wire.EncodeReport(report); rerr != nil {
			return nil, rerr
		}
	}
	st.Revision++
	if rec.Status, rerr = proto.Marshal(st); rerr != nil {
		return nil, errors.Join(err, rerr)
	}
	rerr = s.journal.PutJob(ctx, rec)
	_ = s.loop.call(ctx, func() {
		// From now on the journal answers for the job.
		if j := s.state.jobs[u.JobID]; j != nil {
			s.expire(j)
			delete(s.state.jobs, u.JobID)
		}
	})
	if err := errors.Join(err, rerr); err != nil {
		return nil, err
	}
	return st, nil
}

// sent are the requests that earlier runs sent for the unit's token in the table
// that it goes to now: they may still be on their way, so that nothing is told
// that one of them could make untrue.
func (s *Scheduler) sent(ctx context.Context, u journal.Unit, c *plan.Commit) ([]commit.Request, error) {
	token := u.Token
	if c.Target.UUID != u.TableUUID {
		token = commit.NewToken(commit.TokenInput{Namespace: u.Namespace, Key: u.Key, TableUUID: c.Target.UUID, Branch: u.Branch})
	}
	sends, err := s.journal.Sends(ctx, token)
	if err != nil {
		return nil, err
	}
	requests := make([]commit.Request, len(sends))
	for i, r := range sends {
		requests[i] = commit.Request{
			ID: r.RequestID, SnapshotID: r.SnapshotID, Head: r.Head, Branch: u.Branch, Seat: r.Seat, Tokens: r.Tokens, MetadataFiles: r.MetadataFiles,
		}
	}
	return requests, nil
}

func (s *Scheduler) recordedJob(ctx context.Context, id string) (*firnpb.JobStatus, error) {
	rec, err := s.journal.Job(ctx, id)
	if err != nil {
		return nil, err
	}
	return recorded(rec)
}

// dropUnit gives a unit's files up. The journal refuses it for a unit that may
// be in a table, and has the decision before the first file is deleted.
func (s *Scheduler) dropUnit(ctx context.Context, u journal.Unit) (*firnpb.JobStatus, error) {
	if err := s.journal.Drop(ctx, u.JobID); errors.Is(err, journal.ErrNotDroppable) {
		return nil, errNotDrivable(u, fmt.Errorf("it is %s: its files may be in the table", u.State), fmt.Sprintf("`firn commit retry %s` finds out.", u.JobID))
	} else if err != nil {
		return nil, err
	}
	if err := s.cleanJob(ctx, u.JobID); err != nil && !errors.Is(err, journal.ErrNotDroppable) {
		return nil, &commit.Error{
			Code: commit.CodeUnitNotDrivable, Op: "delete the files of", Object: u.JobID, Cause: err,
			Tried: "those that could be deleted are", Hint: fmt.Sprintf("`firn commit drop %s` deletes the rest.", u.JobID),
		}
	}
	return s.recordedJob(ctx, u.JobID)
}
