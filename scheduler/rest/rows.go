package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/firn-project/firn/internal/httpserve"
	"github.com/firn-project/firn/internal/render"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/jobresult"
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
	src, err := jobresult.Of(s.flight, st)
	if err != nil {
		return nil, err
	}
	if in.Format == "arrow" && in.Limit == 0 && src.Bytes > arrowBytes {
		return nil, badRequest("read the rows of job "+in.ID, fmt.Sprintf("they have %d bytes; at most %d are given as Arrow here: give a limit, read pages in JSON, or use firn sql or the Go client", src.Bytes, arrowBytes))
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
	page, err := pageOf(ctx, src, from.Number, int64(in.Limit))
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		httpserve.JSON(w, http.StatusOK, page)
	}}, nil
}

// page reads a page in JSON.
func pageOf(ctx context.Context, src *jobresult.Rows, from, limit int64) (rowPage, error) {
	if limit == 0 {
		limit = pageRows
	}
	out := rowPage{Columns: columnsOf(src.Schema), Rows: rowsJSON("[")}
	rower, n, more := render.NewRower(src.Schema), int64(0), false
	err := src.Each(ctx, from, func(b arrow.RecordBatch) (bool, error) {
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
	src, err := jobresult.Inline(raw)
	if err != nil {
		return nil, nil, err
	}
	page, err := pageOf(context.Background(), src, 0, maxPageRows)
	return page.Columns, page.Rows, err
}

// writeArrow streams rows. Once a byte is out an error can only be told by breaking
// off.
func (s *Server) writeArrow(ctx context.Context, w http.ResponseWriter, src *jobresult.Rows, from, limit int64) {
	w.Header().Set("Content-Type", "application/vnd.apache.arrow.stream")
	out := &timedWriter{w: w, rc: http.NewResponseController(w), each: s.cfg.sendTime()}
	iw := ipc.NewWriter(out, ipc.WithSchema(src.Schema))
	var n int64
	err := src.Each(ctx, from, func(b arrow.RecordBatch) (bool, error) {
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
