package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
)

// feedBytes is how much of an engine's rows is in DuckDB at a time, for a query that
// looks at each row by itself.
const feedBytes = 32 << 20

// feed gives what an engine's endpoints hold to DuckDB, as a table: all of it, or
// piece by piece, each in place of the one before.
type feed struct {
	s   *session
	src plan.Source
	// ctx is the task's: endpoints are read under it.
	ctx   context.Context //nolint:containedctx // see above
	table string
	// next is the endpoint that comes after the open one.
	next int
	open array.RecordReader
}

// newFeed makes the table, empty, and the query that reads it.
func (s *session) newFeed(ctx context.Context, src plan.Source) (*feed, string, error) {
	if s.cfg.OpenEndpoint == nil || src.Flight == nil {
		return nil, "", &commit.Error{
			Code: commit.CodeQueryRefused, Op: "read source", Object: strings.Join(src.View, "."), Cause: errors.New("no engine can be reached from here"),
		}
	}
	f := &feed{s: s, src: src, ctx: ctx, table: fmt.Sprintf("memory.main.firn_flight_%d", len(s.made))}
	s.undoWith("DROP TABLE IF EXISTS " + f.table)
	if err := f.empty(); err != nil {
		return nil, "", err
	}
	return f, "SELECT " + columnList(src.Columns) + " FROM " + f.table, nil
}

func (f *feed) empty() error {
	defs := make([]string, len(f.src.Columns))
	for i, c := range f.src.Columns {
		defs[i] = duckdb.Ident(c.Name) + " " + c.Type
	}
	return f.s.db.Exec(f.ctx, "CREATE OR REPLACE TABLE "+f.table+" ("+strings.Join(defs, ", ")+")")
}

// ended says that the table has had all rows.
func (f *feed) ended() bool { return f.open == nil && f.next == len(f.src.Files) }

// fill puts more rows into the table, about so many bytes of them; 0 for all.
func (f *feed) fill(bytes int64) error {
	p := &piece{left: bytes, all: bytes == 0}
	for !f.ended() && (p.all || p.left > 0) {
		if f.open == nil {
			r, err := f.s.cfg.OpenEndpoint(f.ctx, &f.src, f.src.Files[f.next])
			if err != nil {
				return err
			}
			f.open = r
			f.next++
		}
		p.RecordReader = f.open
		if err := f.s.db.Append(f.ctx, f.table[strings.LastIndexByte(f.table, '.')+1:], f.open.Schema(), p); err != nil {
			return fmt.Errorf("read source %s: %w", f.src.Flight.Name, err)
		}
		if p.ended {
			f.close()
		}
	}
	return nil
}

// close ends the open endpoint.
func (f *feed) close() {
	if f != nil && f.open != nil {
		f.open.Release()
		f.open = nil
	}
}

// piece ends a reader after some bytes, or marks that the reader has ended.
type piece struct {
	array.RecordReader
	left       int64
	all, ended bool
}

// Next implements array.RecordReader.
func (p *piece) Next() bool {
	if !p.all && p.left <= 0 {
		return false
	}
	if !p.RecordReader.Next() {
		p.ended = true
		return false
	}
	p.left -= max(duckdb.RecordBytes(p.RecordBatch()), 1)
	return true
}

// flightQuery reads an engine's rows: their first piece if the query may have them one
// by one, else all.
func (s *session) flightQuery(ctx context.Context, src plan.Source, q *plan.Query) (string, error) {
	if len(src.Files) == 0 {
		return emptyQuery(src.Columns)
	}
	f, body, err := s.newFeed(ctx, src)
	if err != nil {
		return "", err
	}
	if byPieces(q) {
		s.feed = f
		return body, f.fill(feedBytes)
	}
	defer f.close()
	return body, f.fill(0)
}

// byPieces says whether a query may run over pieces of its only source, one after the
// other.
func byPieces(q *plan.Query) bool {
	return q.Parallel && len(q.Sources) == 1 && q.Sources[0].Kind == plan.SourceFlightSQL
}

// more has the query run over the next piece. False: there is none.
func (r *Stream) more(ctx context.Context) (bool, error) {
	f := r.s.feed
	if f == nil || f.ended() {
		return false, nil
	}
	r.rows.Close()
	if err := f.empty(); err != nil {
		return false, err
	}
	if err := f.fill(feedBytes); err != nil {
		return false, err
	}
	rows, err := r.s.db.Query(ctx, r.q.SQL)
	if err != nil {
		return false, err
	}
	r.rows = rows
	return true, nil
}
