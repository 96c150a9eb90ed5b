package rest

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/jobresult"
	"github.com/firn-project/firn/scheduler/jobview"
	"github.com/firn-project/firn/sql"
)

const (
	// maxStatement bounds the body of a request, in bytes.
	maxStatement = 1 << 20
	// bodyTime bounds how long a request's body may be on its way.
	bodyTime = 10 * time.Second
)

// statement is a statement to run.
type statement struct {
	SQL     string  `json:"sql" minLength:"1" doc:"one statement"`
	Session session `json:"session,omitzero"`
	Key     string  `json:"idempotency_key,omitempty" maxLength:"512" doc:"as the header Idempotency-Key: the same key and statement never add rows twice"`
	DryRun  bool    `json:"dry_run,omitempty" doc:"run and verify a write up to its commit, then delete everything that it wrote"`
	Explain bool    `json:"explain,omitempty" doc:"show the plan and run nothing"`
	Rejects int64   `json:"reject_limit,omitempty" minimum:"0" doc:"how many rows of files may be unreadable"`
	Zone    string  `json:"time_zone,omitempty" maxLength:"100" example:"Europe/Vienna" doc:"UTC when empty"`
	Mode    string  `json:"mode,omitempty" enum:"staged,pipelined,cached" doc:"how a SELECT runs; staged when empty. Rows are read here once the job has succeeded; firn sql and the Go client read those of a pipelined job while it runs"`
	After   string  `json:"after_deadline,omitempty" enum:"fence,retry" doc:"what the scheduler may do by itself once the commit was told as unknown; it only finds out when this is empty"`
}

// session is where names that aren't full are looked up.
type session struct {
	Catalog   string   `json:"catalog,omitempty"`
	Namespace []string `json:"namespace,omitempty"`
}

// links are addresses of what belongs to a job.
type links struct {
	Self   string `json:"self"`
	Events string `json:"events"`
	Rows   string `json:"rows"`
	Cancel string `json:"cancel"`
	Commit string `json:"commit,omitempty"`
}

// submitted is the answer to a statement: a job, or what there was to tell at once.
type submitted struct {
	Statement string       `json:"statement" doc:"kind of statement, such as INSERT"`
	Session   session      `json:"session" doc:"the session after the statement"`
	Job       *jobview.Job `json:"job,omitempty" doc:"of statements that run as a job"`
	Links     *links       `json:"links,omitempty"`
	Columns   []column     `json:"columns,omitempty" doc:"of statements that answer at once"`
	Rows      rowsJSON     `json:"rows,omitempty"`
}

type submittedAnswer struct {
	Status   int
	Location string `header:"Location" doc:"the job's address"`
	Body     submitted
}

func (s *Server) statements(api huma.API) {
	register(api, huma.Operation{
		OperationID: "run-statement", Method: http.MethodPost, Path: "/statements", Tags: []string{"statements"}, Summary: "Run a statement",
		Description: "INSERT and SELECT become jobs: the answer is 202 with the job's address, or 200 when the job has ended by then, however that was. Other statements are answered with 200 and their rows. " +
			"Send an Idempotency-Key with each INSERT, and the same one again when no answer came: the rows are added once. A body has at most 1 MiB.",
		MaxBodyBytes: maxStatement, BodyReadTimeout: bodyTime, DefaultStatus: http.StatusAccepted,
	}, s.runStatement)
}

func (s *Server) runStatement(ctx context.Context, in *struct {
	Key  string `header:"Idempotency-Key" maxLength:"512"`
	Wait string `query:"wait" example:"30s" doc:"wait so long for the job's end before answering, at most 1m"`
	Body statement
},
) (*submittedAnswer, error) {
	b := in.Body
	if in.Key != "" && b.Key != "" && in.Key != b.Key {
		return nil, badRequest("run statement", "the header Idempotency-Key and the body's idempotency_key differ")
	}
	if b.Key == "" {
		b.Key = in.Key
	}
	if !utf8.ValidString(b.Key) {
		return nil, badRequest("run statement", "the header Idempotency-Key isn't UTF-8")
	}
	wait, err := waitOf(in.Wait)
	if err != nil {
		return nil, err
	}
	text := b.SQL
	if b.Explain {
		// So that no text becomes EXPLAIN ANALYZE, which runs it.
		if _, err := sql.Parse(text); err != nil {
			return nil, err
		}
		text = "EXPLAIN " + text
	}
	r := &firnpb.ExecuteRequest{
		ProtocolVersion: wire.ProtocolVersion, Sql: text, Session: &firnpb.Session{Catalog: b.Session.Catalog, Namespace: b.Session.Namespace},
		IdempotencyKey: b.Key, RejectLimit: b.Rejects, TimeZone: b.Zone, Mode: b.Mode, DryRun: b.DryRun, AfterDeadline: b.After,
	}
	if b.Key == "" {
		// Made here, so that an error can name it.
		r.IdempotencyKey, r.KeyIsNew = uuid.Must(uuid.NewV7()).String(), true
	}
	resp, err := s.cfg.Scheduler.Execute(ctx, r)
	if err != nil {
		return nil, untold(r, err)
	}
	out := &submittedAnswer{Status: http.StatusOK, Body: submitted{
		Statement: resp.GetStatement(), Session: session{resp.GetSession().GetCatalog(), resp.GetSession().GetNamespace()},
	}}
	if st := resp.GetJob(); st != nil {
		s.showSubmitted(ctx, out, st, wait)
		return out, nil
	}
	if raw := resp.GetRowsIpc(); len(raw) > 0 {
		out.Body.Columns, out.Body.Rows, err = inlineRows(raw)
	}
	return out, err
}

// untold is the error of a statement whose answer didn't come. One that writes may run
// all the same, and its caller may know no key under which it could be sent again.
func untold(r *firnpb.ExecuteRequest, err error) error {
	if code := commit.CodeOf(err); !r.GetKeyIsNew() || r.GetDryRun() || code != "" && code != commit.CodeSchedulerClosing || !mayWrite(r.GetSql()) {
		return err
	}
	return &commit.Error{
		Code: commit.CodeUnknown, Op: "run statement", Cause: err, Tried: "Whether it commits isn't known: if it runs, it goes on.",
		Hint: "Send it again with the header Idempotency-Key: " + r.GetIdempotencyKey() + ", and nothing is added twice.",
	}
}

// mayWrite says whether a text has an INSERT that running it runs.
func mayWrite(text string) bool {
	all, err := sql.Parse(text)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(all, func(st sql.Statement) bool {
		if e, ok := st.Body.(*sql.Explain); ok && e.Analyze {
			st = e.Statement
		}
		_, inserts := st.Body.(*sql.Insert)
		return inserts
	})
}

// showSubmitted puts the job into the answer, after waiting for its end. The job is
// there: nothing that goes wrong from now on keeps its id from the caller.
func (s *Server) showSubmitted(ctx context.Context, out *submittedAnswer, st *firnpb.JobStatus, wait time.Duration) {
	id := st.GetJobId()
	if wait > 0 && !jobresult.Ended(st) {
		_ = s.awaitEnd(ctx, id, wait)
		if now, err := s.cfg.Scheduler.GetJob(context.WithoutCancel(ctx), &firnpb.JobRequest{JobId: id}); err == nil {
			st = now
		}
	}
	if !jobresult.Ended(st) {
		out.Status = http.StatusAccepted
	}
	job := jobview.JobOf(st)
	at := prefix + "/jobs/" + id
	out.Location, out.Body.Job = at, &job
	out.Body.Links = &links{Self: at, Events: at + "/events", Rows: at + "/rows", Cancel: at + "/cancel"}
	if job.Report != nil {
		out.Body.Links.Commit = prefix + "/commits/" + id
	}
}

func badRequest(op, cause string) error {
	return &commit.Error{Code: commit.CodeBadRequest, Op: op, Cause: errors.New(cause), Hint: "See the cause."}
}
