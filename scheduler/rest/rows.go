package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/httpserve"
	"github.com/firn-project/firn/internal/render"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/paging"
)

// Bounds of what passes the scheduler of a SELECT's rows: executors have them, and a
// client that wants many reads them there, over Flight.
const (
	// pageRows are the rows of a page in JSON unless it is asked for others, maxPageRows
	// the most that may be asked for.
	pageRows    = 1000
	maxPageRows = 100_000
	// pageBytes is where a page in JSON ends, after at least one row.
	pageBytes = 8 << 20
	// arrowBytes is the most of one stream in Arrow.
	arrowBytes = 256 << 20
	// rowReaders is how many read rows at the same time; others wait.
	rowReaders = 4
)

// column is a column of rows.
type column struct {
	Name string `json:"name"`
	Type string `json:"type" doc:"Arrow's name of it"`
}

// rowsJSON are objects of columns, already encoded.
type rowsJSON json.RawMessage

// MarshalJSON implements json.Marshaler.
func (r rowsJSON) MarshalJSON() ([]byte, error) { return r, nil }

// Schema implements huma.SchemaProvider.
func (rowsJSON) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: "array", Description: "objects with a field for each column; numbers that a double can't hold are strings", Items: &huma.Schema{Type: "object"}}
}

// rowPage is a page of a job's rows.
type rowPage struct {
	Columns []column `json:"columns"`
	Rows    rowsJSON `json:"rows"`
	Next    string   `json:"next_page_token,omitempty" doc:"of the next page; none after the last"`
}

type rowsQuery struct {
	ID     string `path:"id" maxLength:"100" doc:"the job's id"`
	Format string `query:"format" enum:"json,arrow" default:"json" doc:"arrow is an Arrow IPC stream"`
	Limit  uint32 `query:"limit" minimum:"1" maximum:"100000" doc:"most rows; 1,000 when it isn't given, and of an Arrow stream all"`
	Token  string `query:"page_token" maxLength:"4096" doc:"next_page_token of the page before"`
}

func (s *Server) rows(api huma.API) {
	schema := api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[rowPage](), true, "RowPage")
	register(api, huma.Operation{
		OperationID: "get-rows", Method: http.MethodGet, Path: "/jobs/{id}/rows", Tags: []string{"statements"}, Summary: "Read the rows of a job that has succeeded",
		Description: "Of a SELECT its rows, which are kept for some minutes; of a job that writes its report. A page in JSON ends at its limit or after about 8 MiB. " +
			"An Arrow stream has at most 256 MiB; one that breaks off has no end marker and isn't to be used. More is read from the executors, as `firn sql` and the Go client do.",
		Responses: map[string]*huma.Response{"200": {Description: "the rows", Content: map[string]*huma.MediaType{
			"application/json":                    {Schema: schema},
			"application/vnd.apache.arrow.stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}},
		}}},
	}, s.getRows)
}

func (s *Server) getRows(ctx context.Context, in *rowsQuery) (*huma.StreamResponse, error) {
	from, err := paging.Parse(in.Token)
	if err != nil {
		return nil, err
	}
	st, err := s.cfg.Scheduler.GetJob(ctx, &firnpb.JobRequest{JobId: in.ID})
	if err != nil {
		return nil, err
	}
	src, err := s.sourceOf(st)
	if err != nil {
		return nil, err
	}
	if in.Format == "arrow" && in.Limit == 0 && src.bytes > arrowBytes {
		return nil, badRequest("read the rows of job "+in.ID, fmt.Sprintf("they have %d bytes; at most %d are given as Arrow here: give a limit, read pages in JSON, or use firn sql or the Go client", src.bytes, arrowBytes))
	}
	select {
	case s.rowSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	release := func() { <-s.rowSlots }
	if in.Format == "arrow" {
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			defer release()
			r, w := humago.Unwrap(hc)
			s.writeArrow(r.Context(), w, src, from.Number, int64(in.Limit))
		}}, nil
	}
	defer release()
	page, err := src.page(ctx, from.Number, int64(in.Limit))
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		httpserve.JSON(w, http.StatusOK, page)
	}}, nil
}

// rowSource has the rows of one job.
type rowSource struct {
	flight *flightread.Client
	schema *arrow.Schema
	inline []byte
	parts  []*firnpb.ResultPartition
	bytes  int64
}

func (s *Server) sourceOf(st *firnpb.JobStatus) (*rowSource, error) {
	op := "read the rows of job " + st.GetJobId()
	if st.GetState() != "succeeded" {
		return nil, badRequest(op, fmt.Sprintf("it is %s; a job that has succeeded has rows", st.GetState()))
	}
	src := &rowSource{flight: s.flight, inline: st.GetInlineResult(), parts: st.GetPartitions()}
	head := src.inline
	if len(head) == 0 {
		head = st.GetResultSchema()
		if n := len(st.GetStages()); n > 0 {
			src.bytes = st.GetStages()[n-1].GetBytes()
		}
		if len(src.parts) == 0 && (len(head) == 0 || st.GetRows() > 0) {
			return nil, &commit.Error{Code: commit.CodeResultLost, Op: op, Cause: errors.New("they were kept for some minutes and are gone"), Hint: "Run the statement again."}
		}
	}
	r, err := wire.NewIPCReader(head)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	defer r.Release()
	src.schema = r.Schema()
	return src, nil
}

// each gives the rows from an offset on, batch by batch, until it answers no.
func (src *rowSource) each(ctx context.Context, skip int64, each func(arrow.RecordBatch) (bool, error)) error {
	give := func(b arrow.RecordBatch) (bool, error) {
		if skip >= b.NumRows() {
			skip -= b.NumRows()
			return true, nil
		}
		cut := b.NewSlice(skip, b.NumRows())
		defer cut.Release()
		skip = 0
		return each(cut)
	}
	if len(src.inline) > 0 {
		r, err := wire.NewIPCReader(src.inline)
		if err != nil {
			return err
		}
		defer r.Release()
		_, err = drain(r.Read, false, give)
		return err
	}
	for _, p := range src.parts {
		if p.GetRows() <= skip {
			skip -= p.GetRows()
			continue
		}
		if more, err := src.part(ctx, p, give); err != nil || !more {
			return err
		}
	}
	return nil
}

func (src *rowSource) part(ctx context.Context, p *firnpb.ResultPartition, give func(arrow.RecordBatch) (bool, error)) (more bool, err error) {
	r := src.flight.Open(ctx, flightread.Source{Address: p.GetAddress(), Ticket: p.GetTicket()})
	defer r.Close()
	more, err = drain(r.Next, true, give)
	if _, known := errors.AsType[*commit.Error](err); err != nil && !known && ctx.Err() == nil {
		err = &commit.Error{Code: commit.CodeResultLost, Op: "read rows from executor", Object: p.GetAddress(), Cause: err, Hint: "Run the statement again."}
	}
	return more, err
}

// drain reads batches to their end. Those of others are checked, and released when
// they are the reader's caller's to release.
func drain(next func() (arrow.RecordBatch, error), own bool, give func(arrow.RecordBatch) (bool, error)) (more bool, err error) {
	for {
		b, err := next()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err == nil {
			if err = wire.CheckBatch(b); err == nil {
				more, err = give(b)
			}
			if own {
				b.Release()
			}
		}
		if err != nil || !more {
			return false, err
		}
	}
}

// page reads a page in JSON.
func (src *rowSource) page(ctx context.Context, from, limit int64) (rowPage, error) {
	if limit == 0 {
		limit = pageRows
	}
	out := rowPage{Columns: columnsOf(src.schema), Rows: rowsJSON("[")}
	rower, n, more := render.NewRower(src.schema), int64(0), false
	err := src.each(ctx, from, func(b arrow.RecordBatch) (bool, error) {
		for i := range int(b.NumRows()) {
			if n == limit || n > 0 && len(out.Rows) >= pageBytes {
				more = true
				return false, nil
			}
			if n > 0 {
				out.Rows = append(out.Rows, ',')
			}
			out.Rows = rower.Append(out.Rows, b, i)
			n++
		}
		return true, nil
	})
	out.Rows = append(out.Rows, ']')
	if more {
		out.Next = paging.Cursor{Number: from + n}.Token()
	}
	return out, err
}

func columnsOf(s *arrow.Schema) []column {
	all := make([]column, s.NumFields())
	for i, name := range render.Names(s) {
		all[i] = column{name, s.Field(i).Type.String()}
	}
	return all
}

// inlineRows are all rows of an Arrow IPC stream of the scheduler's own.
func inlineRows(raw []byte) ([]column, rowsJSON, error) {
	r, err := wire.NewIPCReader(raw)
	if err != nil {
		return nil, nil, err
	}
	src := &rowSource{schema: r.Schema(), inline: raw}
	r.Release()
	page, err := src.page(context.Background(), 0, maxPageRows)
	return page.Columns, page.Rows, err
}

// writeArrow streams rows. Once a byte is out an error can only be told by breaking
// off.
func (s *Server) writeArrow(ctx context.Context, w http.ResponseWriter, src *rowSource, from, limit int64) {
	w.Header().Set("Content-Type", "application/vnd.apache.arrow.stream")
	out := &timedWriter{w: w, rc: http.NewResponseController(w), each: s.cfg.sendTime()}
	iw := ipc.NewWriter(out, ipc.WithSchema(src.schema))
	var n int64
	err := src.each(ctx, from, func(b arrow.RecordBatch) (bool, error) {
		if limit > 0 && n+b.NumRows() > limit {
			b = b.NewSlice(0, limit-n)
			defer b.Release()
		}
		n += b.NumRows()
		if b.NumRows() == 0 {
			return false, nil
		}
		if err := iw.Write(b); err != nil {
			return false, err
		}
		if out.n > arrowBytes {
			return false, fmt.Errorf("more than %d bytes", arrowBytes)
		}
		return limit == 0 || n < limit, nil
	})
	if err == nil {
		err = iw.Close()
	}
	if err != nil {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "rows broken off", slog.Any("error", err))
		panic(http.ErrAbortHandler)
	}
}

// timedWriter gives each write a time of its own: who doesn't read is left.
type timedWriter struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	each time.Duration
	n    int64
}

// Write implements io.Writer.
func (t *timedWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if err := t.rc.SetWriteDeadline(time.Now().Add(t.each)); err != nil {
			return n, err
		}
		m, err := t.w.Write(p[:min(len(p), 1<<20)])
		n, t.n, p = n+m, t.n+int64(m), p[m:]
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
