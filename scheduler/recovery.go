package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/cached"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/planner"
	"github.com/firn-project/firn/scheduler/storekeys"
)

// resume is what the journal has of a job that an earlier process left running.
type resume struct {
	plan     []byte
	attempts []journal.Attempt
	// unit is what it had sealed, nil when it hadn't; sent the requests that
	// may be under way.
	unit *journal.Unit
	sent []commit.Request
}

// recoverJobs takes up what an earlier process left: the executors that it knew,
// and the jobs that ran.
//
// The executors are taken to be alive until ExecutorTimeout has passed or they
// register in another incarnation: their shuffle data and the attempts that they
// run are as good as they were. A job goes on from where the record ends: one
// that wasn't planned is planned again, one that was runs on from its accepted
// attempts, and one that had sealed its unit commits that and nothing else. Ids
// and keys stay, so who waits for the job hears of its end.
//
// A sealed job is at its seal, or past its point of no return, before anybody
// can reach this process: no cancel, no lost executor and no failed planning
// comes in between.
func (s *Scheduler) recoverJobs(ctx context.Context) error {
	executors, err := s.journal.Executors(ctx)
	if err != nil {
		return err
	}
	uploads, err := s.journal.Uploads(ctx)
	if err != nil {
		return err
	}
	kept, err := s.journal.Frames(ctx)
	if err != nil {
		return err
	}
	running, err := s.journal.Jobs(ctx, journal.Filter{Running: true})
	if err != nil {
		return err
	}
	var jobs []*job
	for _, rec := range slices.Backward(running) {
		j, err := s.recoverJob(ctx, rec)
		if err != nil {
			return err
		}
		if j != nil {
			jobs = append(jobs, j)
		}
	}
	return errors.Join(s.loop.call(ctx, func() {
		if err = s.recoverUploads(uploads, jobs); err != nil {
			return
		}
		for _, r := range executors {
			e, err := s.addExecutor(r)
			if err != nil {
				s.log.Warn("executor not taken up", slog.String("executor", r.ID), slog.Any("error", err))
				continue
			}
			e.returning = true
		}
		if err = s.recoverFrames(kept, jobs); err != nil {
			return
		}
		for _, j := range jobs {
			if j.caches != nil {
				_ = s.reserveFrame(j, true) // its id is new
			}
			s.state.jobs[j.id] = j
			s.state.byKey[j.keyID()] = j
			s.log.Info("job taken up", slog.String("job_id", j.id), slog.Bool("planned", j.resume != nil))
			if j.planned != nil {
				if j.external != nil {
					close(j.opened)
				}
				s.keepSources(j)
				s.resumeGraph(j)
			} else {
				s.startPlanning(j)
			}
		}
	}), err)
}

// recoverJob makes the job of a record; nil when there is nothing to go on with
// and its end was recorded instead.
func (s *Scheduler) recoverJob(ctx context.Context, rec journal.Job) (*job, error) {
	u, err := s.journal.Unit(ctx, rec.ID)
	sealed := err == nil
	if err != nil && !errors.Is(err, journal.ErrNotFound) {
		return nil, err
	}
	sends, err := s.journal.Sends(ctx, u.Token)
	if err != nil {
		return nil, err
	}
	raw, err := s.journal.Submission(ctx, rec.ID)
	known := err == nil
	if err != nil && !errors.Is(err, journal.ErrNotFound) {
		return nil, err
	}
	body, err := s.journal.Plan(ctx, rec.ID)
	planned := err == nil
	if err != nil && !errors.Is(err, journal.ErrNotFound) {
		return nil, err
	}
	open := u.State == journal.UnitSealed || u.State == journal.UnitSent || u.State == journal.UnitUnknown
	if !known || sealed && (!open || !planned) {
		s.log.Warn("job was interrupted", slog.String("job_id", rec.ID), slog.String("commit", string(u.State)))
		return nil, s.journal.PutJob(ctx, interrupted(rec, u, sends, time.Now()))
	}
	j, err := jobOf(rec, raw)
	if err != nil {
		return nil, fmt.Errorf("take up job %s: %w", rec.ID, err)
	}
	if j.caches != nil && j.caches.again {
		// Who wants the pieces that it was to build asks for them again.
		return nil, s.journal.PutJob(ctx, interrupted(rec, u, sends, time.Now()))
	}
	j.lost = rec.Lost || sealed && s.isLost(u)
	if st, err := recorded(rec); err == nil {
		j.revision = st.GetRevision() + 1<<32 // above what the earlier process told
	}
	if !planned {
		return j, nil
	}
	if err := s.recoverWrite(ctx, j); err != nil {
		return nil, err
	}
	j.resume = &resume{sent: requestsOf(sends, u.Branch)}
	if j.resume.plan, j.layouts, err = splitPlanRecord(body); err != nil {
		return nil, fmt.Errorf("take up job %s: %w", rec.ID, err)
	}
	if j.resume.attempts, err = s.journal.Attempts(ctx, rec.ID); err != nil || !sealed {
		return j, err
	}
	j.resume.unit = &u
	again, err := s.planAgain(ctx, j)
	if err != nil {
		// Its unit stays as it is; `firn commit retry` drives it.
		s.log.Error("job with a sealed commit not taken up", slog.String("job_id", rec.ID), slog.Any("error", err))
		return nil, s.journal.PutJob(ctx, interrupted(rec, u, sends, time.Now()))
	}
	j.takePlan(again)
	return j, nil
}

// requestsOf are the requests of send records.
func requestsOf(sends []journal.Send, branch string) []commit.Request {
	requests := make([]commit.Request, len(sends))
	for i, r := range sends {
		requests[i] = commit.Request{
			ID: r.RequestID, SnapshotID: r.SnapshotID, Head: r.Head, Branch: branch, Seat: r.Seat, Tokens: r.Tokens, MetadataFiles: r.MetadataFiles,
		}
	}
	return requests
}

// planAgain cuts the plan that the journal has into the stages that it was cut
// into. How the stores of its tables are reached is asked anew; a job that has
// sealed its unit doesn't need it.
func (s *Scheduler) planAgain(ctx context.Context, j *job) (*plannedJob, error) {
	top, err := plan.Decode(j.resume.plan)
	if err != nil {
		return nil, fmt.Errorf("take up job %s: %w", j.id, err)
	}
	c, writes := top.(*plan.Commit)
	if writes {
		j.token = commit.NewToken(commit.TokenInput{Namespace: j.namespace, Key: j.key, TableUUID: c.Target.UUID, Branch: c.Branch})
		if j.origin, err = s.journal.Origin(ctx, j.token); err != nil && !errors.Is(err, journal.ErrNotFound) {
			return nil, err
		}
	}
	if writes && j.resume.unit == nil {
		pinned, err := s.pinAgain(ctx, c.Target.Name)
		if err != nil {
			return nil, err
		}
		if pinned.UUID == c.Target.UUID {
			top = withTarget(top, pinned.Storage, pinned.MetadataLocation)
		}
	}
	if j.resume.unit == nil {
		if top, err = s.reachSources(ctx, top); err != nil {
			return nil, err
		}
	}
	if j.caches != nil && j.caches.again {
		if top, err = s.sourceFrames(ctx, j, top); err != nil {
			return nil, err
		}
	}
	out := &plannedJob{body: j.resume.plan, flight: s.cfg.Flight.NewJob(s.life, slices.Collect(maps.Values(planner.FlightSources(top)))...)}
	if top, out.keys, out.warnings, err = storekeys.Scope(ctx, s.cfg.StoreKeys, top); err != nil {
		return nil, err
	}
	if out.Job, err = planner.PlanJob(ctx, top, planner.Options{
		JobID: j.id, Mode: j.mode, Root: s.cfg.Root, Adaptive: s.cfg.Planning == PlanningAdaptive, Slots: s.slots(ctx),
	}); err != nil {
		return nil, err
	}
	if j.external != nil {
		out.Job = out.WithTasks(len(j.write.Handles))
	}
	return out, nil
}

// reachFiles says how the objects that a statement names are reached. All of one
// source lie in one store.
func (s *Scheduler) reachFiles(ctx context.Context, src *plan.Source) error {
	if s.cfg.ReachSource == nil || src.Kind.Known() {
		return nil
	}
	src.Storage = nil
	locations := slices.Clone(src.Patterns)
	for _, f := range src.Files {
		locations = append(locations, f.Path)
	}
	first := true
	for _, l := range locations {
		if !objstore.Remote(l) {
			continue
		}
		storage, err := s.cfg.ReachSource(ctx, l)
		if err != nil {
			return err
		}
		if !first && !maps.Equal(storage, src.Storage) {
			return &commit.Error{
				Code: commit.CodeSourceNotAllowed, Op: "read files", Object: l, Cause: errors.New("it lies in another store than the files before it"),
				Hint: "Read each store's files by a call of its own, and put them together with UNION ALL.",
			}
		}
		src.Storage, first = storage, false
	}
	return nil
}

// reachSources says how the tables and files in object stores that a plan reads are
// reached.
// One that is gone stays as it is: what was read of it may be all that is needed.
func (s *Scheduler) reachSources(ctx context.Context, top plan.Node) (plan.Node, error) {
	var failed error
	top = withSources(top, func(src *plan.Source) map[string]string {
		if failed == nil && src.Kind != plan.SourceTable {
			failed = s.reachFiles(ctx, src)
		}
		if failed != nil || src.Kind != plan.SourceTable || len(src.Files) == 0 || !objstore.Remote(src.Files[0].Path) {
			return src.Storage
		}
		pinned, err := s.pinAgain(ctx, src.Table)
		if err != nil && !errors.Is(err, commit.ErrTableNotFound) && commit.KindOf(err) != commit.KindNotFound {
			failed = err
		}
		return pinned.Storage
	})
	return top, failed
}

// pinAgain pins a table, and tries for a while: a catalog may come up at the same
// time as the scheduler.
func (s *Scheduler) pinAgain(ctx context.Context, name commit.TableName) (pinned plan.Pinned, err error) {
	const tries, pause = 10, 2 * time.Second
	for range tries {
		pinned, err = s.cfg.Catalogs.Pin(ctx, name)
		if err == nil || errors.Is(err, commit.ErrTableNotFound) || commit.KindOf(err) == commit.KindNotFound {
			return pinned, err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return pinned, context.Cause(ctx)
		}
	}
	return pinned, err
}

// resumeGraph puts the job's graph where the record ends.
func (s *Scheduler) resumeGraph(j *job) {
	s.resumeFrames(j)
	kept := s.keptAttempts(j)
	g, actions := graph.Restore(j.planned.Spec(), kept, time.Now())
	j.graph, j.started = g, j.submitted
	s.log.Info("job goes on", slog.String("job_id", j.id), slog.Int("accepted", len(kept.Accepted)), slog.Int("running", len(kept.Launched)),
		slog.Bool("sealed", kept.Sealed), slog.Bool("sent", kept.Sent))
	// What was launched and isn't running any more is stopped by the executor's
	// next heartbeat: nobody here knows it.
	for _, l := range kept.Launched {
		e := s.state.executors[l.Executor]
		a := &attempt{id: l.Attempt, job: j, task: l.Task, stageAttempt: l.StageAttempt, executor: e, handed: true, given: true}
		s.state.attempts[a.id], e.running[a.id] = a, a
	}
	if j.resume.unit == nil {
		j.resume = nil
	}
	s.carryOut(j, actions)
	j.touch()
}

// keptAttempts picks of the job's attempts those that are still good: of each
// task the accepted one, even if its output is lost, or else the one that was started last and hasn't ended, on an executor
// that is still the one it was. Once the unit is sealed no executor is needed.
func (s *Scheduler) keptAttempts(j *job) graph.Kept {
	kept := graph.Kept{
		Sealed: j.resume.unit != nil, Sent: j.lost || len(j.resume.sent) > 0, Lost: map[string]bool{}, Layouts: j.layouts,
	}
	if j.external != nil {
		kept.Accepted = j.acceptedHandles()
		return kept
	}
	last := map[graph.TaskID]journal.Attempt{}
	var order []graph.TaskID
	for _, a := range j.resume.attempts {
		id := graph.TaskID{Stage: a.Stage, Task: a.Task}
		old, seen := last[id]
		if !seen {
			order = append(order, id)
		}
		if a.Stage == j.planned.Final().ID {
			kept.Shown = max(kept.Shown, a.Task+1)
		}
		better := a.State == journal.AttemptAccepted || old.State != journal.AttemptAccepted && (a.State == journal.AttemptStarted || old.State == journal.AttemptEnded)
		if !seen || better {
			last[id] = a
		}
	}
	for _, id := range order {
		a := last[id]
		e := s.state.executors[a.Executor]
		here := e != nil && e.incarnation == a.Incarnation
		switch a.State {
		case journal.AttemptAccepted:
			if j.planned.Stages[a.Stage].Frame != "" {
				here = s.resumeHeld(j, a)
			}
			st := &firnpb.TaskStatus{}
			if proto.Unmarshal(a.Status, st) != nil {
				continue
			}
			copied := len(st.GetManifestIpc()) > 0 && a.Stage == j.planned.Final().ID
			kept.Accepted = append(kept.Accepted, success(st, id, a.StageAttempt, a.Executor))
			kept.Lost[a.ID] = !here && !copied && !kept.Sealed
		case journal.AttemptStarted:
			if here && !kept.Sealed {
				kept.Launched = append(kept.Launched, graph.TaskLaunched{Task: id, StageAttempt: a.StageAttempt, Attempt: a.ID, Executor: a.Executor})
			}
		case journal.AttemptEnded:
		}
	}
	return kept
}

// recoverFrames takes up the frames of an earlier process, and lets the jobs that name
// them go on holding them: before anything else, as a frame that was released goes when
// nobody holds it.
func (s *Scheduler) recoverFrames(records []journal.Frame, jobs []*job) error {
	var all []cached.Record
	lineages := map[string]*lineage{}
	for _, r := range records {
		l, rec := &lineage{}, cached.Record{}
		if err := errors.Join(json.Unmarshal(r.Lineage, l), json.Unmarshal(r.Pieces, &rec)); err != nil {
			return fmt.Errorf("take up cached frame %s: %w", r.ID, err)
		}
		rec.Expires = r.Expires
		all, lineages[r.ID] = append(all, rec), l
	}
	s.state.frames = newFrames(s.cfg, all...)
	s.state.frames.lineages = lineages
	for _, r := range all {
		for _, id := range lineages[r.ID].Frames {
			_ = s.frameEvent(cached.Use{Frame: id, Owner: r.Owner, User: r.ID, Again: true})
		}
		for _, j := range jobs {
			if j.names(r.ID) {
				_ = s.frameEvent(cached.Use{Frame: r.ID, Owner: j.namespace, User: j.id, Again: true})
			}
		}
	}
	for _, r := range all {
		s.checkPieces(r.ID)
	}
	return nil
}

// resumeFrames has a job that goes on read its frames again. Without one of them it
// fails when it wants a piece that it hasn't read.
func (s *Scheduler) resumeFrames(j *job) {
	for _, id := range framesOf(j.planned) {
		_ = s.frameEvent(cached.Use{Frame: id, Owner: j.namespace, User: j.id, Again: true})
	}
}

// resumeHeld takes up a piece that the job was given in an earlier process, and says
// whether it is still there.
func (s *Scheduler) resumeHeld(j *job, a journal.Attempt) bool {
	frame := j.planned.Stages[a.Stage].Frame
	real, _, _ := strings.Cut(a.ID, "@")
	j.holdPiece(graph.TaskID{Stage: a.Stage, Task: a.Task}, a.ID) // who reads it may tell that it is lost
	if !s.state.frames.Has(frame, a.Task, real) {
		return false
	}
	_ = s.frameEvent(cached.Holds{Frame: frame, User: j.id, Piece: a.Task})
	return true
}
