//go:build duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	bindings "github.com/duckdb/duckdb-go-bindings"
)

// Sizes of the batches that Rows gives. DuckDB makes 2,048 rows at a time, too
// few for a Parquet writer: they are merged until a batch has both the rows and
// the bytes wanted, or the most of either.
const (
	wantRows  = 8192
	wantBytes = 1 << 20
	maxRows   = 65536
	maxBytes  = 8 << 20
)

// Rows is the streamed result of one query. Rows come in plan order. It serves
// one caller at a time.
type Rows struct {
	in  *Instance
	mem memory.Allocator
	res bindings.Result
	// schema is what Next gives, raw what DuckDB does: they differ in enums.
	schema, raw *arrow.Schema
	enums       bool
	// unmerged: a column's type can't be concatenated, so chunks go out one by
	// one.
	unmerged bool
	done     bool
	closed   bool
	err      error
}

// Schema gives the result's columns. Time stamps with a zone say UTC; UUID and
// JSON are text; HUGEINT is decimal(38,0).
func (r *Rows) Schema() *arrow.Schema { return r.schema }

// Next gives the next batch: never an empty one, and one that owns its memory,
// so that it outlives the Rows and the Instance. The caller releases it. The end
// is io.EOF; an error stays. A cancelled ctx interrupts the query.
func (r *Rows) Next(ctx context.Context) (arrow.RecordBatch, error) {
	if r.err != nil {
		return nil, r.err
	}
	rec, err := r.next(ctx)
	if err != nil {
		r.err = err
	}
	return rec, err
}

func (r *Rows) next(ctx context.Context) (arrow.RecordBatch, error) {
	var parts []arrow.RecordBatch
	defer func() {
		for _, p := range parts {
			p.Release()
		}
	}()
	var rows, bytes int64
	var err error
	r.in.guard(ctx, func() {
		for !r.done && !r.full(rows, bytes) {
			var part arrow.RecordBatch
			if part, err = r.fetch(ctx); err != nil {
				return
			}
			if part == nil {
				r.done = true
				return
			}
			parts = append(parts, part)
			rows += part.NumRows()
			bytes += RecordBytes(part)
		}
	})
	switch {
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case len(parts) == 0:
		return nil, io.EOF
	}
	return r.merge(parts, rows)
}

func (r *Rows) full(rows, bytes int64) bool {
	return r.unmerged && rows > 0 || rows >= maxRows || bytes >= maxBytes || (rows >= wantRows && bytes >= wantBytes)
}

// fetch gives DuckDB's next chunk as a batch in DuckDB's memory, nil at the end.
func (r *Rows) fetch(ctx context.Context) (arrow.RecordBatch, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		chunk := bindings.FetchChunk(r.res)
		if chunk.Ptr == nil {
			if msg := bindings.ResultError(&r.res); msg != "" {
				return nil, failure(ctx, msg)
			}
			return nil, nil
		}
		if bindings.DataChunkGetSize(chunk) == 0 {
			bindings.DestroyDataChunk(&chunk)
			continue
		}
		rec, ed := bindings.DataChunkToArrowArray(r.in.options, r.raw, chunk)
		bindings.DestroyDataChunk(&chunk)
		if err := takeErrorData(ed); err != nil {
			return nil, fmt.Errorf("duckdb: result to Arrow: %w", err)
		}
		return r.decode(rec), nil
	}
}

// decode makes text of enums, which DuckDB gives as dictionaries: consumers then
// see one kind of column, and no dictionary has to be kept alive for it. It takes
// rec over.
func (r *Rows) decode(rec arrow.RecordBatch) arrow.RecordBatch {
	if !r.enums {
		return rec
	}
	defer rec.Release()
	cols := make([]arrow.Array, rec.NumCols())
	for i, c := range rec.Columns() {
		d, ok := c.(*array.Dictionary)
		if !ok {
			c.Retain()
			cols[i] = c
			continue
		}
		words := d.Dictionary().(*array.String)
		b := array.NewStringBuilder(r.mem)
		b.Reserve(d.Len())
		for j := range d.Len() {
			if d.IsNull(j) {
				b.AppendNull()
			} else {
				b.Append(words.Value(d.GetValueIndex(j)))
			}
		}
		cols[i] = b.NewArray()
		b.Release()
	}
	defer func() {
		for _, c := range cols {
			c.Release()
		}
	}()
	return array.NewRecordBatch(r.schema, cols, rec.NumRows())
}

// RecordBytes is how much memory a batch's buffers take.
func RecordBytes(rec arrow.RecordBatch) int64 {
	var n int64
	for _, c := range rec.Columns() {
		n += dataBytes(c.Data())
	}
	return n
}

func dataBytes(d arrow.ArrayData) int64 {
	var n int64
	for _, b := range d.Buffers() {
		if b != nil {
			n += int64(b.Len())
		}
	}
	for _, c := range d.Children() {
		n += dataBytes(c)
	}
	return n
}

// merge copies the parts into one batch in Go's memory; DuckDB's is released by
// the caller.
func (r *Rows) merge(parts []arrow.RecordBatch, rows int64) (arrow.RecordBatch, error) {
	if r.unmerged {
		parts[0].Retain()
		return parts[0], nil
	}
	cols := make([]arrow.Array, 0, r.schema.NumFields())
	defer func() {
		for _, c := range cols {
			c.Release()
		}
	}()
	column := make([]arrow.Array, len(parts))
	for i := range r.schema.NumFields() {
		for j, p := range parts {
			column[j] = p.Column(i)
		}
		c, err := array.Concatenate(column, r.mem)
		if err != nil {
			return nil, fmt.Errorf("duckdb: merge column %s: %w", r.schema.Field(i).Name, err)
		}
		cols = append(cols, c)
	}
	return array.NewRecordBatch(r.schema, cols, rows), nil
}

// Close ends the query, also in the middle, and frees DuckDB's side of the
// result. Batches already given stay valid. Closing twice does nothing.
func (r *Rows) Close() {
	if r.closed {
		return
	}
	r.closed = true
	if !r.done {
		bindings.Interrupt(r.in.conn)
	}
	bindings.DestroyResult(&r.res)
	if r.err == nil {
		r.err = errors.New("duckdb: the result is closed")
	}
}

// use fixes the schema of the result.
func (r *Rows) use(raw *arrow.Schema) error {
	r.raw, r.schema = raw, raw
	fields := slices.Clone(raw.Fields())
	for i, f := range fields {
		if f.Type.ID() == arrow.DICTIONARY {
			fields[i].Type, r.enums = arrow.BinaryTypes.String, true
			continue
		}
		if contains(f.Type, arrow.DICTIONARY) {
			return &Error{Type: "Not implemented", Message: fmt.Sprintf("column %q holds an ENUM inside another type: cast it to VARCHAR", f.Name)}
		}
		r.unmerged = r.unmerged || contains(f.Type, arrow.SPARSE_UNION) || contains(f.Type, arrow.DENSE_UNION)
	}
	if r.enums {
		r.schema = arrow.NewSchema(fields, nil)
	}
	return nil
}

// contains says whether a type of that kind occurs in t.
func contains(t arrow.DataType, id arrow.Type) bool {
	if t.ID() == id {
		return true
	}
	n, ok := t.(arrow.NestedType)
	return ok && slices.ContainsFunc(n.Fields(), func(f arrow.Field) bool { return contains(f.Type, id) })
}
