package flightsqlserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/uuid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/jobresult"
	"github.com/firn-project/firn/sql"
)

// kind is what becomes of a statement.
type kind int

const (
	// query is a SELECT: a job with rows.
	query kind = iota
	// write may commit: INSERT, and EXPLAIN ANALYZE of one.
	write
	// ask is answered by the catalog or the planner, with rows, and changes nothing.
	ask
	// change is answered at once and gives no rows, as DDL does.
	change
)

// statement is one that was read, and not run yet.
type statement struct {
	sql.Statement
	kind kind
	// report: its rows are the report of a commit.
	report bool
}

// read takes a text for one statement.
func read(text string, transaction []byte) (statement, error) {
	if len(transaction) > 0 {
		return statement{}, refused("run statement", "it belongs to a transaction, and Firn has none", "Send it outside of one: each statement commits by itself.")
	}
	if len(text) > maxStatement {
		return statement{}, badRequest("run statement", fmt.Errorf("it has %d bytes; at most %d are taken", len(text), maxStatement))
	}
	all, err := sql.Parse(text)
	if err != nil {
		return statement{}, err
	}
	if len(all) != 1 {
		return statement{}, &commit.Error{
			Code: commit.CodeOneStatement, Op: "read statement", Cause: errors.New("a call carries one statement"), Hint: "Send the statements one by one.",
		}
	}
	st := statement{Statement: all[0], kind: change}
	switch body := st.Body.(type) {
	case *sql.Select:
		st.kind = query
	case *sql.Insert:
		st.kind, st.report = write, true
	case *sql.Explain:
		st.kind = ask
		if _, inserts := body.Statement.Body.(*sql.Insert); inserts && body.Analyze {
			st.kind = write
		}
	case *sql.Show, *sql.ShowCreateTable, *sql.Describe, *sql.DescribeHistory, *sql.CheckCatalog:
		st.kind = ask
	case *sql.Use:
		return st, refused("run statement", "calls have no session that USE could change", "Send the headers "+HeaderCatalog+" and "+HeaderNamespace+" with each call.")
	}
	return st, nil
}

// taken is a statement that the scheduler has taken, and run if it isn't a job.
type taken struct {
	statement
	resp *firnpb.ExecuteResponse
	key  string
	// own: nobody else knows the key.
	own bool
}

// run has the scheduler run a statement: this is the only place, and no other call
// does it again.
func (s *service) run(ctx context.Context, st statement) (*taken, error) {
	r, err := request(ctx, st.Text)
	if err != nil {
		return nil, err
	}
	t := &taken{statement: st, key: r.GetIdempotencyKey()}
	if t.key == "" {
		// Made here, so that an error can name it.
		t.key, t.own = uuid.Must(uuid.NewV7()).String(), true
		r.IdempotencyKey, r.KeyIsNew = t.key, true
	}
	if t.resp, err = s.cfg.Scheduler.Execute(ctx, r); err != nil {
		if st.kind == write && (commit.CodeOf(err) == "" || commit.CodeOf(err) == commit.CodeSchedulerClosing) {
			return nil, t.untold("", err)
		}
		return nil, err
	}
	return t, nil
}

// settle waits for the end of the statement's job and gives its last status. A SELECT
// whose caller goes meanwhile, or has to be left, is cancelled, as nobody can have its
// rows; a write goes on, as over the other doors.
func (s *service) settle(ctx context.Context, t *taken) (*firnpb.JobStatus, error) {
	st, err := s.await(ctx, t.resp.GetJob())
	id := t.resp.GetJob().GetJobId()
	switch {
	case err == nil:
		return st, jobresult.Outcome(st)
	case t.kind == write:
		return nil, t.untold(id, err)
	case t.own && (ctx.Err() != nil || s.life.Err() != nil):
		_, _ = s.cfg.Scheduler.CancelJob(context.WithoutCancel(ctx), &firnpb.JobRequest{JobId: id}) // nobody is there to be told
	}
	return nil, err
}

// errSettled ends a watch.
var errSettled = errors.New("settled")

// await waits until a job is settled.
func (s *service) await(ctx context.Context, st *firnpb.JobStatus) (*firnpb.JobStatus, error) {
	if jobresult.Settled(st) {
		return st, nil
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(s.life, func() { stop(context.Cause(s.life)) })()
	err := jobresult.Watch(ctx, s.cfg.Scheduler, st.GetJobId(), func(now *firnpb.JobStatus) error {
		if st = now; jobresult.Settled(st) {
			return errSettled
		}
		return nil
	})
	switch {
	case jobresult.Settled(st):
		return st, nil
	case err == nil:
		err = errors.New("the scheduler stopped telling of the job")
	}
	return st, err
}

// untold is the error of a write that was handed over and whose end nobody told. It
// says neither that it failed nor that it may be sent again as it is.
func (t *taken) untold(job string, cause error) error {
	again := "Send the statement again with the header " + HeaderKey + ": " + t.key + ", and nothing is added twice."
	if job != "" {
		again = "Ask with `firn job wait " + job + "`. " + again
	}
	return &commit.Error{
		Code: commit.CodeUnknown, Op: "wait for " + t.Kind, Object: job, Cause: cause,
		Tried: "Whether it commits isn't known: if it runs, it goes on.", Hint: again,
	}
}

// result is what a client reads of a statement that has run.
type result struct {
	handle  string
	job     string
	schema  *arrow.Schema
	records int64
	expires time.Time
}

// answerOf puts the rows that came with the scheduler's answer under a handle.
func (s *service) answerOf(raw []byte) (*result, error) {
	if len(raw) == 0 {
		var err error
		if raw, err = wire.EncodeIPC(arrow.NewSchema(nil, nil)); err != nil {
			return nil, err
		}
	}
	rows, err := jobresult.Inline(raw)
	if err != nil {
		return nil, err
	}
	handle, expires, err := s.answers.put(raw)
	return &result{handle: handle, schema: rows.Schema, records: -1, expires: expires}, err
}

// resultOf is the handle of a job's rows.
func (s *service) resultOf(st *firnpb.JobStatus) (*result, error) {
	rows, err := jobresult.Of(s.flight, st)
	if err != nil {
		return nil, err
	}
	r := &result{handle: jobHandle + st.GetJobId(), job: st.GetJobId(), schema: rows.Schema, records: st.GetRows()}
	r.expires = time.UnixMilli(st.GetEndedUnixMs()).Add(s.cfg.Keep)
	if len(st.GetInlineResult()) > 0 {
		// The report of a commit is as long there as the job is remembered.
		r.records, r.expires = 1, time.Now().Add(s.cfg.Keep)
	}
	return r, nil
}

// finish runs a statement to its end.
func (s *service) finish(ctx context.Context, text string, transaction []byte) (*result, error) {
	st, err := read(text, transaction)
	if err != nil {
		return nil, err
	}
	t, err := s.run(ctx, st)
	if err != nil {
		return nil, err
	}
	if t.resp.GetJob() == nil {
		return s.answerOf(t.resp.GetRowsIpc())
	}
	job, err := s.settle(ctx, t)
	if err != nil {
		return nil, err
	}
	return s.resultOf(job)
}

// update runs a statement that gives no rows, and says how many it wrote.
func (s *service) update(ctx context.Context, text string, transaction []byte) (int64, error) {
	st, err := read(text, transaction)
	if err != nil {
		return 0, err
	}
	if st.kind == query || st.kind == ask || !st.report && st.kind == write {
		return 0, refused("run statement as an update", st.Kind+" gives rows", "Send it as a query.")
	}
	t, err := s.run(ctx, st)
	if err != nil || t.resp.GetJob() == nil {
		return 0, err
	}
	job, err := s.settle(ctx, t)
	return job.GetReport().GetRows(), err
}
