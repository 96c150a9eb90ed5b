package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/paging"
	"github.com/firn-project/firn/sql"
)

// Execute implements firnpb.ClientServiceServer.
func (s *Scheduler) Execute(ctx context.Context, r *firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error) {
	if err := checkVersion("talk to client", "", r.GetProtocolVersion()); err != nil {
		return nil, err
	}
	mode := plan.Mode(r.GetMode())
	switch mode {
	case "":
		mode = plan.ModeStaged
	case plan.ModeStaged, plan.ModePipelined, plan.ModeCached:
	default:
		return nil, badRequest("run statement", fmt.Errorf("mode %q isn't one of %s, %s and %s", mode, plan.ModeStaged, plan.ModePipelined, plan.ModeCached))
	}
	sub, err := newSubmission(r, mode)
	if err != nil {
		return nil, err
	}
	if len(r.GetPhysical()) > 0 {
		return s.executePhysical(ctx, r, sub)
	}
	return s.executeSQL(ctx, r, sub)
}

// newSubmission checks what all kinds of statements have.
func newSubmission(r *firnpb.ExecuteRequest, mode plan.Mode) (sub submission, err error) {
	if err := checkText(r); err != nil {
		return sub, err
	}
	if r.GetRejectLimit() < 0 {
		return sub, badRequest("run statement", fmt.Errorf("the reject limit is %d; want 0 or more", r.GetRejectLimit()))
	}
	zone := r.GetTimeZone()
	if zone == "" {
		zone = "UTC"
	}
	if _, err := time.LoadLocation(zone); err != nil || zone == "Local" {
		return sub, badRequest("run statement", fmt.Errorf("time zone %q isn't known", zone))
	}
	after := journal.AfterDeadline(r.GetAfterDeadline())
	switch after {
	case journal.AfterDeadlineLook, journal.AfterDeadlineFence, journal.AfterDeadlineRetry:
	default:
		return sub, badRequest("run statement", fmt.Errorf("after_deadline %q isn't %q, %q or empty", after, journal.AfterDeadlineFence, journal.AfterDeadlineRetry))
	}
	sub = submission{
		namespace: defaultNamespace, key: r.GetIdempotencyKey(), newKey: r.GetKeyIsNew(), mode: mode, timeZone: zone, dryRun: r.GetDryRun(), afterDeadline: after,
	}
	if sub.dryRun || sub.key == "" {
		sub.key, sub.newKey = newID(""), true
	}
	return sub, nil
}

func (s *Scheduler) executeSQL(ctx context.Context, r *firnpb.ExecuteRequest, sub submission) (*firnpb.ExecuteResponse, error) {
	session := plan.Session{Catalog: r.GetSession().GetCatalog(), Namespace: r.GetSession().GetNamespace()}
	stmt, err := oneStatement(r.GetSql())
	if err != nil {
		return nil, err
	}
	resp := &firnpb.ExecuteResponse{Statement: stmt.Kind, Session: r.GetSession()}
	logical := func(st sql.Statement) error {
		sub.statement, sub.sql = st.Kind, st.Text
		sub.plan = &plan.Logical{SQL: st.Text, Session: session, RejectLimit: r.GetRejectLimit()}
		if in, ok := st.Body.(*sql.Insert); ok {
			sub.target, err = s.analyzer.ResolveTable(ctx, in.Target, session)
		}
		return err
	}
	switch body := stmt.Body.(type) {
	case *sql.Insert, *sql.Select:
		if _, write := body.(*sql.Insert); sub.dryRun && !write {
			return nil, badRequest("run statement dry", fmt.Errorf("%s writes nothing", stmt.Kind))
		}
		if err := logical(stmt); err != nil {
			return nil, err
		}
		sub.fingerprint = statementPrint(r, sub, session)
		if sub.caches != nil {
			sub.asFrame()
		}
		resp.Job, err = s.submit(ctx, sub)
		return resp, err
	}
	if sub.caches != nil {
		return nil, errNoFrame(stmt)
	}
	switch body := stmt.Body.(type) {
	case *sql.Explain:
		if err := logical(body.Statement); err != nil {
			return nil, err
		}
		explain := s.explain
		if body.Analyze {
			sub.fingerprint = statementPrint(r, sub, session)
			explain = s.analyze
		}
		text, columns, err := explain(ctx, sub)
		if err != nil {
			return nil, err
		}
		resp.Columns = columns
		resp.RowsIpc, err = planRows(text)
		return resp, err
	default:
		if sub.dryRun {
			return nil, badRequest("run statement dry", fmt.Errorf("%s has no dry run; INSERT has", stmt.Kind))
		}
		res, err := s.analyzer.RunCatalogStatement(ctx, stmt, session)
		if err != nil {
			return nil, err
		}
		resp.Statement = res.Statement
		resp.Session = &firnpb.Session{Catalog: res.Session.Catalog, Namespace: res.Session.Namespace}
		resp.RowsIpc, err = resultRows(res)
		return resp, err
	}
}

// statementPrint is the fingerprint of a statement.
func statementPrint(r *firnpb.ExecuteRequest, sub submission, session plan.Session) string {
	return fingerprint("sql", sub.sql, session.Catalog, strings.Join(session.Namespace, "\x00"), sub.target.String(), sub.timeZone, string(sub.mode), strconv.FormatInt(r.GetRejectLimit(), 10))
}

// executePhysical runs a plan that the client bound itself.
func (s *Scheduler) executePhysical(ctx context.Context, r *firnpb.ExecuteRequest, sub submission) (*firnpb.ExecuteResponse, error) {
	top, err := plan.Decode(r.GetPhysical())
	if err != nil {
		return nil, &commit.Error{Code: commit.CodeBadPlan, Op: "read plan", Cause: err, Hint: "Send what plan.Encode wrote."}
	}
	if err := checkClientPlan(top, false); err != nil {
		return nil, &commit.Error{Code: commit.CodeBadPlan, Op: "read plan", Cause: err, Hint: "Submit SQL: the scheduler then finds the tables' files, and makes the tickets."}
	}
	if top, err = s.reachSources(ctx, top); err != nil {
		return nil, err
	}
	sub.plan, sub.statement = top, "PLAN"
	if c, ok := top.(*plan.Commit); ok {
		sub.target = c.Target.Name
		if err := s.analyzer.Writable(ctx, sub.target); err != nil {
			return nil, err
		}
	}
	sub.fingerprint = fingerprint("physical", string(r.GetPhysical()), sub.timeZone, string(sub.mode))
	st, err := s.submit(ctx, sub)
	return &firnpb.ExecuteResponse{Statement: sub.statement, Session: r.GetSession(), Job: st}, err
}

// checkClientPlan refuses what only the scheduler may put into a plan: which files
// a table has and how they are reached, since executors read those wherever they
// lie; shuffle output; and where files are written, which is known of a commit's
// own writes alone. Paths that a client names are held against the executors'
// allowed directories. toCommit says that n's files go to a commit.
func checkClientPlan(n plan.Node, toCommit bool) error {
	switch n := n.(type) {
	case *plan.Commit:
		toCommit = true
	case *plan.Coalesce:
	case *plan.Write:
		if !toCommit {
			return errors.New("it writes files that no commit takes")
		}
		toCommit = false
	case *plan.ShuffleRead:
		return errors.New("it reads shuffle output")
	case *plan.External:
		return errors.New("it is an external write, which is begun over Flight")
	case *plan.Query:
		for _, src := range n.Sources {
			switch {
			case src.Kind == plan.SourceTable:
				return fmt.Errorf("its source %s is a table", strings.Join(src.View, "."))
			case src.Kind == plan.SourceFrame || src.Frame != nil:
				return fmt.Errorf("its source %s is a cached frame", strings.Join(src.View, "."))
			case src.Kind == plan.SourceFlightSQL || src.Flight != nil:
				return fmt.Errorf("its source %s is a query of an engine", strings.Join(src.View, "."))
			case len(src.Storage) > 0:
				return fmt.Errorf("its source %s brings settings of a store", strings.Join(src.View, "."))
			}
		}
	default:
		toCommit = false
	}
	for _, in := range n.Inputs() {
		if err := checkClientPlan(in, toCommit); err != nil {
			return err
		}
	}
	return nil
}

// oneStatement parses a text that is exactly one statement.
func oneStatement(text string) (sql.Statement, error) {
	stmts, err := sql.Parse(text)
	if err != nil {
		return sql.Statement{}, err
	}
	if len(stmts) != 1 {
		return sql.Statement{}, &commit.Error{
			Code: commit.CodeOneStatement, Op: "read statement", Cause: fmt.Errorf("a request carries one statement; this text has %d", len(stmts)),
			Hint: "Send the statements one by one.",
		}
	}
	return stmts[0], nil
}

func badRequest(op string, cause error) error {
	return &commit.Error{Code: commit.CodeBadRequest, Op: op, Cause: cause, Hint: "See the cause."}
}

// find looks a job up, first among those in memory: by id, or the newest of a
// key. Exactly one of the results is set.
func (s *Scheduler) find(ctx context.Context, r *firnpb.JobRequest) (*job, *firnpb.JobStatus, error) {
	var j *job
	id, key := r.GetJobId(), r.GetIdempotencyKey()
	if err := s.loop.call(ctx, func() {
		if id != "" {
			j = s.state.jobs[id]
		} else {
			j = s.state.byKey[defaultNamespace+"\x00"+key]
		}
	}); err != nil {
		return nil, nil, err // what it found may still be written
	} else if j != nil {
		return j, nil, nil
	}
	var rec journal.Job
	var err error
	if id != "" {
		rec, err = s.journal.Job(ctx, id)
	} else {
		rec, err = s.journal.JobByKey(ctx, defaultNamespace, key)
	}
	if errors.Is(err, journal.ErrNotFound) {
		err = &commit.Error{
			Code: commit.CodeJobNotFound, Op: "find job", Object: id + key, Cause: errors.New("the scheduler has no record of it"),
			Hint: "`firn job list` shows the jobs there are.",
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if id == "" {
		// A job that has ended may still hold rows.
		if err := s.loop.call(ctx, func() { j = s.state.jobs[rec.ID] }); err != nil {
			return nil, nil, err
		} else if j != nil {
			return j, nil, nil
		}
	}
	st, err := recorded(rec)
	return nil, st, err
}

// view is the job's status. A job's end isn't told before the journal has it.
func (s *Scheduler) view(ctx context.Context, j *job) (*firnpb.JobStatus, error) {
	st, _, err := s.viewChanged(ctx, j)
	return st, err
}

func (s *Scheduler) viewChanged(ctx context.Context, j *job) (*firnpb.JobStatus, chan struct{}, error) {
	var st *firnpb.JobStatus
	var changed chan struct{}
	for {
		hold := false
		if err := s.loop.call(ctx, func() {
			hold = j.hasEnded() && !j.isPublished()
			st, changed = s.status(j), j.changed
		}); err != nil {
			return nil, nil, err
		}
		if !hold {
			return st, changed, nil
		}
		select {
		case <-j.published:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-s.life.Done():
			return nil, nil, errClosing()
		}
	}
}

// GetJob implements firnpb.ClientServiceServer.
func (s *Scheduler) GetJob(ctx context.Context, r *firnpb.JobRequest) (*firnpb.JobStatus, error) {
	j, st, err := s.find(ctx, r)
	if j != nil {
		st, err = s.view(ctx, j)
		if err == nil && st.GetPhase() == graph.PhaseCommitting && !endedState(st.GetState()) {
			st.WaitsFor = s.committer.WaitsFor(j.id)
		}
	}
	return st, err
}

// tellEvery is how often a client is told of a job's progress. Statements of a few
// milliseconds change more often than anybody looks.
const tellEvery = 200 * time.Millisecond

// tellRows is up to how many partitions the rows of a pipelined job are told of at
// once. A client that reads so many has something to do.
const tellRows = 16

// WatchJob implements firnpb.ClientServiceServer. Changes that come faster than
// tellEvery, or than the client takes them, are told together; the end is told at
// once.
func (s *Scheduler) WatchJob(r *firnpb.JobRequest, stream grpc.ServerStreamingServer[firnpb.JobStatus]) error {
	ctx := stream.Context()
	j, st, err := s.find(ctx, r)
	if err != nil {
		return err
	}
	if j == nil {
		return stream.Send(st)
	}
	readable := 0
	for leaving := false; ; {
		st, changed, err := s.viewChanged(ctx, j)
		if err != nil {
			return err
		}
		if err := stream.Send(st); err != nil {
			return err
		}
		if j.isPublished() && endedState(st.GetState()) {
			return nil
		}
		if leaving {
			return errClosing()
		}
		told := time.Now()
		select {
		case <-changed:
		case <-s.leave: // with the last there is to tell
			leaving = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if n := len(st.GetPartitions()); j.mode == plan.ModePipelined && (n == 0 || n > readable) && n < tellRows {
			readable = n
			continue // the next change may be rows to be read
		}
		if err := untilPublished(ctx, j, time.Until(told.Add(tellEvery))); err != nil {
			return err
		}
	}
}

// untilPublished waits for the job's end to be on record, or for a while.
func untilPublished(ctx context.Context, j *job, pause time.Duration) error {
	if pause <= 0 {
		return nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-j.published:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func endedState(state string) bool {
	switch graph.State(state) {
	case graph.Succeeded, graph.JobFailed, graph.Cancelled:
		return true
	default:
		return false
	}
}

// ListJobs implements firnpb.ClientServiceServer. The newest come first; plans,
// rows and tickets are left out. Pages go by the order in which jobs came, which
// never changes.
func (s *Scheduler) ListJobs(ctx context.Context, r *firnpb.ListJobsRequest) (*firnpb.ListJobsResponse, error) {
	after, err := paging.Parse(r.GetPageToken())
	if err == nil {
		err = paging.Between(r.GetSinceUnixMs(), r.GetUntilUnixMs())
	}
	if err != nil {
		return nil, err
	}
	live := map[string]*firnpb.JobStatus{}
	if err := s.loop.call(ctx, func() {
		for id, j := range s.state.jobs {
			if !j.hasEnded() {
				live[id] = s.status(j)
			}
		}
	}); err != nil {
		return nil, err
	}
	// The journal has a running job as it was admitted: its state is compared
	// here, and only those of ended jobs there. One more than asked for says whether
	// there is another page.
	filter := journal.Filter{Table: r.GetTable(), Before: after.Number, Since: timeOf(r.GetSinceUnixMs()), Until: timeOf(r.GetUntilUnixMs())}
	limit := int(r.GetLimit())
	if limit > 0 {
		filter.Limit = limit + 1
	}
	switch {
	case endedState(r.GetState()):
		filter.State = r.GetState()
	case r.GetState() != "":
		filter.Running, filter.Limit = true, 0
	}
	records, err := s.journal.Jobs(ctx, filter)
	if err != nil {
		return nil, err
	}
	resp := &firnpb.ListJobsResponse{}
	var last journal.Job
	for _, rec := range records {
		st := live[rec.ID]
		if st == nil {
			if st, err = recorded(rec); err != nil {
				return nil, err
			}
		}
		if r.GetState() != "" && st.GetState() != r.GetState() {
			continue
		}
		if limit > 0 && len(resp.GetJobs()) >= limit {
			resp.NextPageToken = paging.Cursor{Number: last.Seq}.Token()
			break
		}
		st.Partitions, st.InlineResult, st.ResultSchema, st.PlanText = nil, nil, nil, ""
		resp.Jobs, last = append(resp.Jobs, st), rec
	}
	return resp, nil
}

// timeOf is a time of the wire; zero for 0.
func timeOf(unixMs int64) time.Time {
	if unixMs == 0 {
		return time.Time{}
	}
	return time.UnixMilli(unixMs)
}

// CancelJob implements firnpb.ClientServiceServer. Up to the point of no return
// the cancel wins; after it the answer says that a commit is in flight.
func (s *Scheduler) CancelJob(ctx context.Context, r *firnpb.JobRequest) (*firnpb.CancelJobResponse, error) {
	j, st, err := s.find(ctx, r)
	if err != nil {
		return nil, err
	}
	resp := &firnpb.CancelJobResponse{Answer: graph.AnswerAlreadyEnded, Job: st}
	if j == nil {
		return resp, nil
	}
	if err := s.loop.call(ctx, func() { resp.Answer = s.cancelJob(j) }); err != nil {
		return nil, err
	}
	resp.Job, err = s.view(ctx, j)
	return resp, err
}

func (s *Scheduler) cancelJob(j *job) string {
	if j.graph == nil {
		if j.hasEnded() {
			return graph.AnswerAlreadyEnded
		}
		s.endEarly(j, graph.Cancelled, nil)
		return graph.AnswerCancelled
	}
	for _, a := range s.apply(j, graph.CancelRequested{}) {
		if answer, ok := a.(graph.CancelAnswer); ok {
			return answer.Answer
		}
	}
	return graph.AnswerAlreadyEnded
}

var _ firnpb.ClientServiceServer = (*Scheduler)(nil)
