package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
	"github.com/firn-project/firn/executor/engine"
	"github.com/firn-project/firn/plan"
)

// duckDB is the engine that is used outside tests.
type duckDB struct {
	*engine.Engine
	dir string
	// kept is the running task's way to what executors keep.
	kept func(context.Context, []plan.ShuffleLocation) (Batches, error)
	// endpoints is its way to Flight SQL engines.
	endpoints func(context.Context, *plan.Source, plan.SourceFile) (Batches, error)
}

// newDuckDB makes the engine of a slot. Half of the slot's memory is DuckDB's:
// the rest is for what takes its rows.
func newDuckDB(cfg EngineConfig) (Engine, error) {
	d := &duckDB{dir: cfg.Dir}
	e, err := engine.New(engine.Config{
		Dir: cfg.Dir, Memory: cfg.Memory / 2, LocalAllow: cfg.LocalAllow, MaxStage: cfg.ObjectCache,
		OpenKept: d.openKept, OpenEndpoint: d.openEndpoint,
	})
	if err != nil {
		return nil, err
	}
	d.Engine = e
	return d, nil
}

// Query implements Engine.
func (d *duckDB) Query(ctx context.Context, q *plan.Query, t TaskInfo) (Rows, error) {
	d.kept, d.endpoints = t.Kept, t.Endpoints
	s, err := d.RunQuery(ctx, q, engine.TaskInfo{Attempt: t.Attempt, Now: t.Now, TimeZone: t.TimeZone, Stores: t.Stores})
	if err != nil {
		return nil, err
	}
	return duckRows{s}, nil
}

// Close implements Engine.
func (d *duckDB) Close() error { return errors.Join(d.Engine.Close(), os.RemoveAll(d.dir)) }

type duckRows struct{ *engine.Stream }

func (r duckRows) Rejects() (int64, []string) {
	n, first := r.Rejected()
	lines := make([]string, len(first))
	for i, f := range first {
		lines[i] = f.String()
	}
	return n, lines
}

func (r duckRows) Close() error {
	r.Stream.Close()
	return nil
}

func (d *duckDB) openKept(ctx context.Context, locations []plan.ShuffleLocation) (array.RecordReader, error) {
	if d.kept == nil {
		return nil, errors.New("the task has no way to what executors keep")
	}
	in, err := d.kept(ctx, locations)
	if err != nil {
		return nil, err
	}
	return readerOf(ctx, in), nil
}

func (d *duckDB) openEndpoint(ctx context.Context, src *plan.Source, f plan.SourceFile) (array.RecordReader, error) {
	if d.endpoints == nil {
		return nil, errors.New("the task has no way to engines")
	}
	in, err := d.endpoints(ctx, src, f)
	if err != nil {
		return nil, err
	}
	return readerOf(ctx, in), nil
}

func readerOf(ctx context.Context, in Batches) array.RecordReader {
	r := &keptReader{ctx: ctx, in: in, mem: mallocator.NewMallocator()}
	r.refs.Store(1)
	return r
}

// keptReader hands a stream to DuckDB, which reads buffers in place: what it
// gets are copies in C memory.
type keptReader struct {
	ctx   context.Context //nolint:containedctx // the interface has none
	in    Batches
	mem   *mallocator.Mallocator
	refs  atomic.Int64
	batch arrow.RecordBatch
	err   error
}

func (r *keptReader) Retain() { r.refs.Add(1) }

func (r *keptReader) Release() {
	if r.refs.Add(-1) == 0 {
		r.drop()
		if err := r.in.Close(); r.err == nil {
			r.err = err
		}
	}
}

func (r *keptReader) drop() {
	if r.batch != nil {
		r.batch.Release()
		r.batch = nil
	}
}

func (r *keptReader) Schema() *arrow.Schema          { return r.in.Schema() }
func (r *keptReader) RecordBatch() arrow.RecordBatch { return r.batch }
func (r *keptReader) Record() arrow.RecordBatch      { return r.batch }
func (r *keptReader) Err() error                     { return r.err }

// Next implements array.RecordReader.
func (r *keptReader) Next() bool {
	r.drop()
	if r.err != nil {
		return false
	}
	b, err := r.in.Next(r.ctx)
	if errors.Is(err, io.EOF) {
		return false
	}
	if err == nil {
		r.batch, err = r.copy(b)
		b.Release()
	}
	r.err = err
	return err == nil
}

func (r *keptReader) copy(b arrow.RecordBatch) (arrow.RecordBatch, error) {
	cols := make([]arrow.Array, 0, b.NumCols())
	defer func() {
		for _, c := range cols {
			c.Release()
		}
	}()
	for i, c := range b.Columns() {
		out, err := array.Concatenate([]arrow.Array{c}, r.mem)
		if err != nil {
			return nil, fmt.Errorf("copy column %q: %w", b.ColumnName(i), err)
		}
		cols = append(cols, out)
	}
	return array.NewRecordBatch(b.Schema(), cols, b.NumRows()), nil
}
