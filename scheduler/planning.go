package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/answers"
	"github.com/firn-project/firn/scheduler/cached"
	"github.com/firn-project/firn/scheduler/flightsource"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/planner"
	"github.com/firn-project/firn/scheduler/storekeys"
	"github.com/firn-project/firn/sql"
)

// startPlanning plans a job on a goroutine of its own, when it's the job's turn.
func (s *Scheduler) startPlanning(j *job) {
	ctx, cancel := context.WithCancel(s.life)
	turn := s.line.Enter()
	j.turn, j.cancelPlan = turn, func() {
		cancel()
		turn.GiveUp() // its room is there for the next one at once
	}
	s.wg.Go(func() {
		defer cancel()
		defer turn.Leave()
		if turn.Wait(ctx) != nil {
			return
		}
		s.loop.put(func() {
			if !j.hasEnded() {
				j.early, j.started = graph.Planning, time.Now()
				s.noteChanges(j)
				j.touch()
			}
		})
		landed, planned, err := s.planJob(ctx, j)
		s.loop.put(func() { s.jobPlanned(j, landed, planned, err) })
	})
}

// jobPlanned takes in what planning came to.
func (s *Scheduler) jobPlanned(j *job, landed *commit.Report, planned *plannedJob, err error) {
	if j.hasEnded() || err != nil && s.handsOver(j) {
		if planned != nil {
			s.endSources(planned.flight, false)
		}
		return
	}
	switch {
	case err != nil && j.external != nil && j.resume != nil && !errors.Is(err, commit.ErrTableNotFound) && commit.KindOf(err) != commit.KindNotFound:
		// Its workers may have written for hours: it is open again when its catalog is
		// back, and expires if that takes too long.
		s.log.Warn("write not taken up yet", slog.String("job_id", j.id), slog.Any("error", err))
		s.planLater(j)
	case err != nil:
		s.endEarly(j, graph.JobFailed, err)
	case landed != nil:
		j.report = landed
		if j.inline, err = wire.EncodeReport(*landed); err != nil {
			s.log.Error("report not encoded", slog.String("job_id", j.id), slog.Any("error", err))
		}
		s.endEarly(j, graph.Succeeded, nil)
	default:
		j.takePlan(planned)
		if j.external != nil {
			s.openWrite(j)
			return
		}
		s.keepSources(j)
		if j.resume != nil {
			s.resumeGraph(j)
			return
		}
		b := journal.Batch{Plans: []journal.Plan{{JobID: j.id, Body: planned.body}}}
		if j.target.Name != "" {
			b.Origins = []journal.Origin{{Token: j.token, Seat: j.origin}}
		}
		s.noted(j, b)
		j.graph = graph.New(planned.Spec(), time.Now())
		s.apply(j, graph.Start{})
	}
}

func (j *job) takePlan(p *plannedJob) {
	j.planned, j.storeKeys, j.flight, j.planBody, j.warnings = p.Job, p.keys, p.flight, p.body, p.warnings
	j.planText = textOf(p.Job, nil, p.warnings)
}

// plannedJob is a planned job with what the journal keeps of its plan, and the keys
// that its executors may ask for.
type plannedJob struct {
	*planner.Job
	body     []byte
	keys     *storekeys.Job
	flight   *flightsource.Job
	warnings []string
	// columns are what a SELECT gives.
	columns []plan.Column
}

// textOf is the plan for people; ran is how the stages ran, nil before they did.
func textOf(p *planner.Job, ran []graph.StageView, warnings []string) string {
	text := planner.Explain(p, ran)
	for _, w := range warnings {
		text = strings.TrimRight(text, "\n") + "\nwarning: " + w + "\n"
	}
	return text
}

// planJob looks whether the job's token is in the table already, and plans the
// job when it isn't. A panic is an error: it comes from one statement.
func (s *Scheduler) planJob(ctx context.Context, j *job) (landed *commit.Report, planned *plannedJob, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.logPanic(ctx, "plan job", p)
			err = fmt.Errorf("plan job %s: internal fault: %v", j.id, p)
		}
	}()
	if j.resume != nil {
		planned, err = s.planAgain(ctx, j)
		return nil, planned, err
	}
	if j.target.Name != "" {
		if landed, err = s.lookup(ctx, j); err != nil || landed != nil {
			return landed, nil, err
		}
	}
	planned, err = s.cutStages(ctx, j)
	return nil, planned, err
}

// cutStages binds the job's plan and cuts it.
func (s *Scheduler) cutStages(ctx context.Context, j *job) (_ *plannedJob, err error) {
	p := j.plan
	out := &plannedJob{flight: s.cfg.Flight.NewJob(s.life)}
	defer func() {
		if err != nil {
			s.endSources(out.flight, false)
		}
	}()
	var bound plan.Node
	if top, ok := p.(plan.Node); ok {
		own, err := s.rebase(ctx, j.id, top)
		if err != nil {
			return nil, err
		}
		bound = own
		if p, out.keys, out.warnings, err = storekeys.Scope(ctx, s.cfg.StoreKeys, own); err != nil {
			return nil, err
		}
	}
	out.Job, err = planner.PlanJob(ctx, p, planner.Options{
		JobID: j.id, Mode: j.mode, Frame: j.caches != nil, Root: s.cfg.Root, Adaptive: s.cfg.Planning == PlanningAdaptive, Slots: s.slots(ctx),
		Bind: func(ctx context.Context, l *plan.Logical) (own plan.Node, err error) {
			if bound, err = s.bind(ctx, j, l, out.flight); err == nil {
				own, out.keys, out.warnings, err = storekeys.Scope(ctx, s.cfg.StoreKeys, bound)
			}
			return own, err
		},
	})
	if err != nil {
		return nil, err
	}
	if j.caches != nil {
		if err := checkFrame(out.Job, bound); err != nil {
			return nil, err
		}
	}
	if q, ok := bound.(*plan.Query); ok {
		out.columns = q.Columns
	}
	if out.body, err = withoutCredentials(bound); err != nil {
		return nil, err
	}
	return out, nil
}

// lookup asks the table itself for the job's token, so that a key answers even
// when the journal was lost. A table that loses tokens takes no new ones. One that isn't there has no token; planning
// then says what is wrong.
func (s *Scheduler) lookup(ctx context.Context, j *job) (*commit.Report, error) {
	meta, err := s.readTable(ctx, j.target)
	if errors.Is(err, commit.ErrTableNotFound) || commit.KindOf(err) == commit.KindNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	token := commit.NewToken(commit.TokenInput{Namespace: j.namespace, Key: j.key, TableUUID: meta.UUID(), Branch: commit.MainBranch})
	landed, ok := commit.FindToken(meta, commit.MainBranch, token)
	if !ok {
		if err := s.stripped.Check(meta.UUID()); err != nil {
			return nil, err
		}
		if j.origin, err = s.admitKey(ctx, j, meta, token); err != nil {
			return nil, err
		}
		j.token = token
		return nil, s.checkResolved(ctx, j.key, token)
	}
	pinned, err := s.cfg.Catalogs.Pin(ctx, j.target)
	if err != nil {
		return nil, err
	}
	return &commit.Report{
		JobID: j.id, Key: j.key, Table: j.target, Format: pinned.Format, Operation: commit.OperationAppend,
		// What the ledger alone knows has no snapshot, and nothing says that it
		// was rolled back. An external write has no file in it.
		State: commit.CommitCommitted, Deduplicated: true, RolledBack: !landed.InHead && landed.SnapshotID != "", OtherSubmission: j.external != nil,
		Rows: landed.Rows, Files: landed.Files, Bytes: landed.Bytes, SnapshotID: landed.SnapshotID, CommittedAt: landed.CommittedAt,
	}, nil
}

// admitKey says from which seat on a token that isn't in the table would be there.
// A key that is known to be older than every record of it is refused.
func (s *Scheduler) admitKey(ctx context.Context, j *job, meta commit.Metadata, token commit.Token) (commit.Seat, error) {
	origin, err := s.journal.Origin(ctx, token)
	if !errors.Is(err, journal.ErrNotFound) {
		return origin, err
	}
	since, err := s.journal.Remembers(ctx)
	if err != nil {
		return origin, err
	}
	var first time.Time
	if j.newKey {
		first = j.submitted
	}
	return commit.AdmitKey(meta, j.key, since, first)
}

// checkResolved refuses a job whose token an earlier job sent, as long as it
// isn't proven what became of that: its files are there, and only the journal's
// send records tell when nothing of it can land any more.
func (s *Scheduler) checkResolved(ctx context.Context, key string, token commit.Token) error {
	earlier, err := s.journal.Unresolved(ctx, token)
	if err != nil || earlier == "" {
		return err
	}
	return &commit.Error{
		Code: commit.CodeUnitUnresolved, Op: "admit statement", Object: key,
		Cause: fmt.Errorf("job %s sent a commit under this key, and it isn't proven whether it landed", earlier),
		Tried: "the table was looked through; its token isn't there (yet)",
		Hint:  fmt.Sprintf("`firn commit retry %s` finishes that commit with the files that are there already.", earlier),
	}
}

// bind binds a job's statement.
func (s *Scheduler) bind(ctx context.Context, j *job, l *plan.Logical, flight *flightsource.Job) (plan.Node, error) {
	stmt, err := oneStatement(l.SQL)
	if err != nil {
		return nil, err
	}
	_, slots, err := s.anyExecutor(ctx)
	if err != nil {
		return nil, err
	}
	a := s.analyzer
	a.Binder = binder{s, j.timeZone}
	bind := a.Bind
	if s.cfg.bindStatement != nil {
		bind = s.cfg.bindStatement
	}
	var run func(context.Context, string, string) (plan.Source, error)
	if flight != nil {
		run = func(ctx context.Context, source, query string) (src plan.Source, err error) {
			// An engine may take an hour; others may plan meanwhile.
			j.turn.Aside(func() { src, err = flight.Run(ctx, source, query) })
			return src, err
		}
	}
	return bind(ctx, stmt, l.Session, sql.BindOptions{
		RunQuery: run,
		JobID:    j.id, Now: j.now, TimeZone: j.timeZone, RejectLimit: l.RejectLimit, Slots: slots,
		Adaptive: s.cfg.Planning == PlanningAdaptive,
		Uploads:  func(id string) (plan.Upload, []plan.Column, error) { return s.useUpload(ctx, j, id) },
		Frames:   func(id string) (plan.Frame, []plan.Column, error) { return s.useFrame(ctx, j, id) },
	})
}

// rebase fits a physical plan that a client submitted to its job: the target is
// pinned now, and files go below the job's own prefix, whatever the plan says.
func (s *Scheduler) rebase(ctx context.Context, jobID string, top plan.Node) (plan.Node, error) {
	c, ok := top.(*plan.Commit)
	if !ok {
		return top, nil
	}
	pinned, err := s.cfg.Catalogs.Pin(ctx, c.Target.Name)
	if err != nil {
		return nil, err
	}
	if c.Target.UUID != "" && c.Target.UUID != pinned.UUID {
		return nil, &commit.Error{
			Code: commit.CodeBadPlan, Op: "plan job for", Object: c.Target.Name.String(), Reason: commit.ReasonTableChanged,
			Cause: fmt.Errorf("the plan was made for table %s; the table of that name is %s now", c.Target.UUID, pinned.UUID),
			Hint:  "Make the plan again.",
		}
	}
	if _, external := c.Input.(*plan.External); external {
		return sql.External(pinned, jobID)
	}
	prefix := pinned.JobPrefix(jobID)
	return plan.Rewrite(c, func(n plan.Node) {
		switch n := n.(type) {
		case *plan.Commit:
			n.Target, n.Prefix = pinned, prefix
			n.Branch = cmp.Or(n.Branch, commit.MainBranch)
			n.Operation = cmp.Or(n.Operation, commit.OperationAppend)
		case *plan.Write:
			w := &n.Context
			w.Table, w.TableUUID, w.FormatVersion = pinned.Name, pinned.UUID, pinned.FormatVersion
			w.Layout = plan.Layout{Format: pinned.Format, SchemaJSON: pinned.SchemaJSON, SpecJSON: pinned.SpecJSON}
			w.SortOrderJSON, w.Properties = pinned.SortOrderJSON, pinned.Properties
			w.Prefix, w.Storage = prefix, pinned.Storage
		}
	}), nil
}

// explain plans a statement without running it.
func (s *Scheduler) explain(ctx context.Context, sub submission) (string, []*firnpb.ResultColumn, error) {
	entered, err := s.letIn("explain statement")
	if err != nil {
		return "", nil, err
	}
	j := newJob(sub, time.Now())
	j.turn = s.line.Enter()
	defer j.turn.Leave()
	entered()
	if err := j.turn.Wait(ctx); err != nil {
		return "", nil, context.Cause(ctx)
	}
	planned, err := s.cutStages(ctx, j)
	_ = s.loop.call(context.WithoutCancel(ctx), func() {
		for _, id := range j.uploads {
			s.releaseUpload(id, false)
		}
		_ = s.frameEvent(cached.Done{User: j.id})
	})
	if err != nil {
		return "", nil, err
	}
	s.endSources(planned.flight, false)
	var columns []*firnpb.ResultColumn
	for _, c := range planned.columns {
		columns = append(columns, &firnpb.ResultColumn{Name: strings.ToValidUTF8(c.Name, "\uFFFD"), Type: strings.ToValidUTF8(c.Type, "\uFFFD")})
	}
	return textOf(planned.Job, nil, planned.warnings), columns, nil
}

// analyze runs a statement to its end and tells what became of its plan. The job
// goes on when ctx ends.
func (s *Scheduler) analyze(ctx context.Context, sub submission) (string, []*firnpb.ResultColumn, error) {
	st, err := s.submit(ctx, sub)
	for err == nil && !endedState(st.GetState()) {
		var j *job
		var changed chan struct{}
		if j, st, err = s.find(ctx, &firnpb.JobRequest{JobId: st.GetJobId()}); err != nil || j == nil {
			break
		}
		if st, changed, err = s.viewChanged(ctx, j); err != nil || endedState(st.GetState()) {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-s.leave:
			err = errClosing()
		}
	}
	if err == nil && st.GetError() != nil {
		err = wire.ErrorFromProto(st.GetError())
	}
	return st.GetPlanText(), nil, err
}

// binder lets an executor bind queries, or the helper those that look at no files:
// user SQL never runs in this process.
type binder struct {
	s        *Scheduler
	timeZone string
}

// looksAtFiles says whether binding the query takes a look at files, which only
// executors have.
func looksAtFiles(req plan.ProbeRequest) bool {
	return slices.ContainsFunc(req.Sources, func(s plan.Source) bool { return !s.Kind.Known() })
}

// Probe implements sql.Binder.
func (b binder) Probe(ctx context.Context, req plan.ProbeRequest) (plan.ProbeResult, error) {
	if b.s.cfg.Binder != nil && !looksAtFiles(req) {
		return b.s.cfg.Binder.Probe(ctx, req)
	}
	var res plan.ProbeResult
	req.Sources = slices.Clone(req.Sources)
	for i := range req.Sources {
		if err := b.s.reachFiles(ctx, &req.Sources[i]); err != nil {
			return res, err
		}
	}
	asked := req
	var err error
	if asked.Sources, err = storekeys.ScopeProbe(ctx, b.s.cfg.StoreKeys, req.Sources); err != nil {
		return res, err
	}
	raw, err := json.Marshal(asked)
	if err != nil {
		return res, err
	}
	resp, err := b.s.probe(ctx, &firnpb.ProbeRequest{Request: raw, TimeZone: b.timeZone})
	if err != nil {
		return res, err
	}
	if resp.GetError() != nil {
		return res, wire.TaskErrorFromProto(resp.GetError())
	}
	if err := json.Unmarshal(resp.GetResult(), &res); err != nil {
		return res, fmt.Errorf("what an executor answered to a probe: %w", err)
	}
	// It says what is in files, never which others there are or how they're reached.
	return answers.Probe(req, res)
}

// probe asks executors. One that dies under a probe, or doesn't come to an end with
// it, costs another try, and not the statement.
func (s *Scheduler) probe(ctx context.Context, req *firnpb.ProbeRequest) (*firnpb.ProbeResponse, error) {
	const tries = 3
	var failed []string
	for {
		e, _, err := s.anyExecutor(ctx, failed...)
		if err != nil {
			return nil, err
		}
		limited, cancel := context.WithTimeout(ctx, s.cfg.ProbeTimeout)
		resp, err := e.rpc.Probe(limited, req, grpc.MaxCallRecvMsgSize(answers.MaxProbe))
		cancel()
		switch {
		case err == nil:
			return resp, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		if failed = append(failed, e.id); len(failed) == tries {
			return nil, fmt.Errorf("probe on executor %s: %w", e.id, wire.FromStatus(err))
		}
		s.log.Warn("probe failed", slog.String("executor", e.id), slog.Any("error", err))
	}
}

func (s *Scheduler) logPanic(ctx context.Context, what string, p any) {
	s.log.LogAttrs(ctx, slog.LevelError, "panic recovered", slog.String("in", what), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
}
