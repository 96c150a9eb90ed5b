package engine

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
)

// Stream is the running result of one query. It serves one caller at a time and
// must be closed.
type Stream struct {
	s        *session
	q        *plan.Query
	rows     *duckdb.Rows
	count    int64
	rejected int64
	rejects  []Reject
	err      error
	closed   bool
}

// RunQuery starts a task's query over the files that its sources name. The
// caller closes the stream. Errors are *commit.Error where a person can do
// something about them; Class tells whether another attempt can help. Objects are
// read under ctx until the stream is closed.
func (e *Engine) RunQuery(ctx context.Context, q *plan.Query, t TaskInfo) (*Stream, error) {
	s, err := e.open(ctx, t, forTask)
	if err != nil {
		return nil, queryError(err, nil)
	}
	rows, err := s.start(ctx, q)
	if err != nil {
		err = s.tellRejects(ctx, err, q)
		s.close()
		return nil, err
	}
	return &Stream{s: s, q: q, rows: rows}, nil
}

func (s *session) start(ctx context.Context, q *plan.Query) (*duckdb.Rows, error) {
	if _, err := s.checkTree(ctx, q.SQL, q.Sources); err != nil {
		return nil, err
	}
	for _, src := range q.Sources {
		if err := s.createView(ctx, src, q); err != nil {
			return nil, err
		}
	}
	return s.db.Query(ctx, q.SQL)
}

// Schema gives the columns of the result.
func (r *Stream) Schema() *arrow.Schema { return r.rows.Schema() }

// Next gives the next batch, which the caller releases, and io.EOF at the end.
// If more rows of the sources were unreadable than Query.RejectLimit, the end is
// an error with the list of the first ones instead.
func (r *Stream) Next(ctx context.Context) (arrow.RecordBatch, error) {
	if r.err != nil {
		return nil, r.err
	}
	if r.s.remote != nil {
		defer context.AfterFunc(ctx, r.s.remote.cancel)()
	}
	rec, err := r.rows.Next(ctx)
	for errors.Is(err, io.EOF) {
		more, merr := r.more(ctx)
		if merr != nil {
			err = merr
			break
		}
		if !more {
			break
		}
		rec, err = r.rows.Next(ctx)
	}
	switch {
	case err == nil:
		r.count += rec.NumRows()
		return rec, nil
	case !errors.Is(err, io.EOF):
		r.rows.Close()
		err = r.s.tellRejects(ctx, err, r.q)
	default:
		if broken := r.finish(ctx); broken != nil {
			err = broken
		}
	}
	r.err = err
	return nil, err
}

// finish counts rejected rows, which stay in the instance.
func (r *Stream) finish(ctx context.Context) error {
	counted := slices.ContainsFunc(r.q.Sources, func(s plan.Source) bool {
		return s.Kind == plan.SourceCSV && len(s.Files) > 0 && countsRejects(s.Options)
	})
	r.rejected, r.rejects = r.s.jsonRejected, r.s.jsonRejects
	if counted {
		r.rows.Close()
		n, list, err := r.s.rejects(ctx)
		if err != nil {
			return r.s.tell(err, r.q.Sources)
		}
		r.rejected, r.rejects = r.rejected+n, mergeRejects(r.rejects, list)
	} else {
		r.s.clean = true
	}
	if r.rejected > r.q.RejectLimit {
		return tooMany(r.rejected, r.q.RejectLimit, r.rejects, r.q.Sources)
	}
	return nil
}

// tellRejects is tell, and names every bad line if that is what the query failed
// on.
func (s *session) tellRejects(ctx context.Context, err error, q *plan.Query) error {
	err = s.tell(err, q.Sources)
	if commit.CodeOf(err) == commit.CodeRejectedRows {
		return s.explainJSON(ctx, err, q)
	}
	return err
}

// Rows is the number of rows given so far.
func (r *Stream) Rows() int64 { return r.count }

// Rejected is the number of rows that were left out as unreadable, and the first
// ten of them. Known when Next has given io.EOF.
func (r *Stream) Rejected() (int64, []Reject) { return r.rejected, r.rejects }

// Close ends the query, also in the middle, and removes what it staged and
// spilled. Closing twice does nothing.
func (r *Stream) Close() {
	if r.closed {
		return
	}
	r.closed = true
	r.rows.Close()
	r.s.close()
}
