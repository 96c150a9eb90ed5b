package client

import (
	"context"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/google/uuid"
)

// Session is what earlier statements fixed for the next one: where names that
// are not complete are looked up. The zero value has neither.
type Session struct {
	Catalog   string
	Namespace []string
}

func (s Session) proto() *firnpb.Session {
	return &firnpb.Session{Catalog: s.Catalog, Namespace: s.Namespace}
}

func sessionOf(s *firnpb.Session) Session {
	return Session{Catalog: s.GetCatalog(), Namespace: s.GetNamespace()}
}

// Mode says how a job's result is given. A statement that writes runs staged: the
// others are refused for it when it is planned, before anything runs.
type Mode string

// Modes.
const (
	ModeDefault Mode = ""
	ModeStaged  Mode = "staged"
	// ModePipelined runs all stages at once, as far as there are task slots, and
	// gives rows as soon as they are made; see Job.Rows.
	ModePipelined Mode = "pipelined"
	// ModeCached keeps the rows on the executors: the same statement gets them
	// again, under any key, until they haven't been asked for as long as the
	// scheduler keeps results. It runs anew when an executor with some of them was
	// lost.
	ModeCached Mode = "cached"
)

// Statement is one SQL statement to run. Only SQL is needed.
type Statement struct {
	SQL     string
	Session Session
	// Key is the idempotency key; a UUIDv7 is made when it is empty.
	Key string
	// KeyIsNew says that Key was made for this call and that nothing was sent with
	// it yet; it isn't needed when Key is empty. Without it a scheduler whose memory
	// doesn't reach back to the making of the key may have to refuse it as too old.
	KeyIsNew bool
	// RejectLimit is how many rows that can't be read or cast may be left out
	// over the whole job. 0 fails the job at the first one.
	RejectLimit int64
	Mode        Mode
	// DryRun runs a statement that writes up to its commit: the files are written
	// and verified, and then deleted. The report of the job says what would have
	// been committed; its commit field stays none. Key isn't used.
	DryRun bool
	// TimeZone is the session's time zone, UTC when empty.
	TimeZone string
	// AfterDeadline is what the scheduler may do by itself once the outcome of the
	// statement's commit was told as unknown.
	AfterDeadline AfterDeadline
}

// AfterDeadline is what the scheduler may do for a commit whose outcome wasn't
// known when its deadline passed. It always goes on looking; the default does
// nothing else, as whoever was told may have repaired the table meanwhile.
type AfterDeadline string

// Policies.
const (
	AfterDeadlineLook AfterDeadline = ""
	// AfterDeadlineFence puts an empty commit on the table, so that the requests
	// that were sent can't land any more; see Client.FenceUnit.
	AfterDeadlineFence AfterDeadline = "fence"
	// AfterDeadlineRetry commits the files again, as Client.RetryUnit does.
	AfterDeadlineRetry AfterDeadline = "retry"
)

// NewKey makes an idempotency key, a UUIDv7.
func NewKey() string { return uuid.Must(uuid.NewV7()).String() }

// Result is the scheduler's first answer to a statement: a job for INSERT and
// SELECT, rows for the statements that only ask the catalog (SHOW, DESCRIBE,
// EXPLAIN), neither for DDL and USE.
type Result struct {
	// Statement is the kind of the statement, such as "CREATE TABLE".
	Statement string
	// Session is to be given to the next statement.
	Session Session
	// Key is the idempotency key that the statement was sent with.
	Key string
	// Job is the job that runs the statement; nil if there is none.
	Job *Job
	// Schema is set when the answer carries rows itself.
	Schema *arrow.Schema

	batches []arrow.RecordBatch
}

// Execute sends one statement. It returns as soon as the scheduler has taken it;
// Result.Job.Wait waits for its end.
func (c *Client) Execute(ctx context.Context, s Statement) (*Result, error) {
	if s.Key == "" {
		s.Key, s.KeyIsNew = NewKey(), true
	}
	resp, err := c.rpc.Execute(ctx, s.request())
	if err != nil {
		return nil, c.fromRPC(ctx, err)
	}
	r := &Result{Statement: resp.GetStatement(), Session: sessionOf(resp.GetSession()), Key: s.Key}
	switch {
	case resp.GetJob() != nil:
		r.Job = &Job{client: c, id: resp.GetJob().GetJobId(), key: s.Key, answer: resp.GetJob()}
	case len(resp.GetRowsIpc()) > 0:
		r.Schema, r.batches, err = readStream(resp.GetRowsIpc())
	}
	return r, err
}

// request is the statement as it is sent.
func (s Statement) request() *firnpb.ExecuteRequest {
	return &firnpb.ExecuteRequest{
		ProtocolVersion: wire.ProtocolVersion,
		Sql:             s.SQL,
		Session:         s.Session.proto(),
		IdempotencyKey:  s.Key,
		KeyIsNew:        s.KeyIsNew,
		RejectLimit:     s.RejectLimit,
		Mode:            string(s.Mode),
		TimeZone:        s.TimeZone,
		DryRun:          s.DryRun,
		AfterDeadline:   string(s.AfterDeadline),
	}
}

// Rows gives the rows of the answer: those that came with it, or those of the
// job, after waiting for its end. DDL gives none.
func (r *Result) Rows(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] {
	if r.Job != nil {
		return r.Job.Rows(ctx)
	}
	return batchSeq(r.batches)
}
