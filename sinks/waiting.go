package sinks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/compute"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-project/firn/commit"
)

// waiting holds the rows of partitions that have no open file. Rows gather in
// memory; when they reach the budget they are sorted by partition and written
// as one run: an Arrow file with one batch a partition. Reading a partition
// back takes one batch of each run that has it.
type waiting struct {
	parent string
	budget int64

	order []Partition    // in the order of arrival
	index map[string]int // key → place in order

	batches []arrow.RecordBatch // compact: every row waits
	spans   []span              // rows of batches, which count as one table
	rows    int64
	bytes   int64

	dir  string
	runs []run
}

// span is a stretch of the waiting rows that belongs to one partition.
type span struct {
	partition int
	from, to  int64
}

// run is one spilled file and the partition of each of its batches.
type run struct {
	path       string
	partitions []int
}

func newWaiting(parent string, budget int64) *waiting {
	return &waiting{parent: parent, budget: budget, index: map[string]int{}}
}

func (q *waiting) has(key string) bool { _, ok := q.index[key]; return ok }

func (q *waiting) start(p Partition) {
	q.index[p.Key] = len(q.order)
	q.order = append(q.order, p)
}

// add keeps a copy of the parts' rows: a slice would hold the whole batch.
func (q *waiting) add(batch arrow.RecordBatch, parts []Part) error {
	if len(parts) == 0 {
		return nil
	}
	slices := make([]arrow.RecordBatch, len(parts))
	for i, p := range parts {
		slices[i] = batch.NewSlice(p.From, p.To)
		q.spans = append(q.spans, span{q.index[p.Key], q.rows, q.rows + p.To - p.From})
		q.rows += p.To - p.From
	}
	defer release(slices)
	compact, err := concat(batch.Schema(), slices)
	if err != nil {
		return q.failed(err)
	}
	q.batches = append(q.batches, compact)
	if q.bytes += size(compact); q.bytes > q.budget {
		return q.spill()
	}
	return nil
}

// sorted gives all rows in memory as one batch in the order of their
// partitions, and the partitions' spans in it. It empties the memory.
func (q *waiting) sorted() (arrow.RecordBatch, []span, error) {
	slices.SortStableFunc(q.spans, func(a, b span) int { return cmp.Compare(a.partition, b.partition) })
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.Reserve(int(q.rows))
	var out []span
	at := int64(0)
	for _, s := range q.spans {
		for i := s.from; i < s.to; i++ {
			b.UnsafeAppend(i)
		}
		n := s.to - s.from
		if len(out) > 0 && out[len(out)-1].partition == s.partition {
			out[len(out)-1].to += n
		} else {
			out = append(out, span{s.partition, at, at + n})
		}
		at += n
	}
	indices := b.NewArray()
	defer indices.Release()
	all, err := concat(q.batches[0].Schema(), q.batches)
	if err != nil {
		return nil, nil, err
	}
	defer all.Release()
	release(q.batches)
	q.batches, q.spans, q.rows, q.bytes = nil, nil, 0, 0
	rows, err := Take(all, indices)
	return rows, out, err
}

func (q *waiting) spill() error {
	rows, spans, err := q.sorted()
	if err != nil {
		return q.failed(err)
	}
	defer rows.Release()
	if q.dir == "" {
		if q.dir, err = os.MkdirTemp(q.parent, "firn-spill-"); err != nil {
			return q.failed(err)
		}
	}
	r := run{path: filepath.Join(q.dir, fmt.Sprintf("%d.arrow", len(q.runs)))}
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return q.failed(err)
	}
	err = func() error {
		w, err := ipc.NewFileWriter(f, ipc.WithSchema(rows.Schema()))
		if err != nil {
			return err
		}
		for _, s := range spans {
			part := rows.NewSlice(s.from, s.to)
			err := w.Write(part)
			part.Release()
			if err != nil {
				return err
			}
			r.partitions = append(r.partitions, s.partition)
		}
		return w.Close()
	}()
	if err = errors.Join(err, f.Close()); err != nil {
		return q.failed(err)
	}
	q.runs = append(q.runs, r)
	return nil
}

// drain gives all rows to emit, partition by partition.
func (q *waiting) drain(emit func(Partition, arrow.RecordBatch) error) error {
	var memoryRows arrow.RecordBatch
	var spans []span
	if len(q.batches) > 0 {
		var err error
		if memoryRows, spans, err = q.sorted(); err != nil {
			return q.failed(err)
		}
		defer memoryRows.Release()
	}
	readers := make([]*runReader, len(q.runs))
	defer func() {
		for _, r := range readers {
			r.close()
		}
	}()
	for i, r := range q.runs {
		var err error
		if readers[i], err = openRun(r); err != nil {
			return q.failed(err)
		}
	}
	for at, p := range q.order {
		for _, r := range readers {
			rows, err := r.take(at)
			if err != nil {
				return q.failed(err)
			}
			if rows == nil {
				continue
			}
			err = emit(p, rows)
			rows.Release()
			if err != nil {
				return err
			}
		}
		if len(spans) > 0 && spans[0].partition == at {
			rows := memoryRows.NewSlice(spans[0].from, spans[0].to)
			err := emit(p, rows)
			rows.Release()
			if err != nil {
				return err
			}
			spans = spans[1:]
		}
	}
	return nil
}

// close drops everything, spilled files included.
func (q *waiting) close() {
	release(q.batches)
	q.batches = nil
	if q.dir != "" {
		_ = os.RemoveAll(q.dir) // a temporary directory; nothing depends on it
	}
}

func (q *waiting) failed(err error) error {
	return &commit.Error{
		Code: commit.CodeSpill, Op: "spill rows that wait for their partition", Object: q.parent, Cause: err,
		Hint: "Give the executor more room for temporary files, or cluster the rows by partition (write.distribution-mode=hash).",
	}
}

// runReader reads a run's batches in order.
type runReader struct {
	run
	file   *os.File
	reader *ipc.FileReader
	next   int
}

func openRun(r run) (*runReader, error) {
	f, err := os.Open(r.path)
	if err != nil {
		return nil, err
	}
	reader, err := ipc.NewFileReader(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &runReader{run: r, file: f, reader: reader}, nil
}

// take gives the batch of a partition, nil when the run has none. Partitions
// are asked for in ascending order.
func (r *runReader) take(partition int) (arrow.RecordBatch, error) {
	if r.next >= len(r.partitions) || r.partitions[r.next] != partition {
		return nil, nil
	}
	r.next++
	return r.reader.RecordBatchAt(r.next - 1)
}

func (r *runReader) close() {
	if r != nil {
		_ = r.reader.Close()
		_ = r.file.Close() // was only read
	}
}

func release(batches []arrow.RecordBatch) {
	for _, b := range batches {
		b.Release()
	}
}

// concat copies batches into one.
func concat(schema *arrow.Schema, batches []arrow.RecordBatch) (arrow.RecordBatch, error) {
	columns := make([]arrow.Array, schema.NumFields())
	defer func() {
		for _, c := range columns {
			if c != nil {
				c.Release()
			}
		}
	}()
	rows := int64(0)
	for _, b := range batches {
		rows += b.NumRows()
	}
	for i := range columns {
		parts := make([]arrow.Array, len(batches))
		for j, b := range batches {
			parts[j] = b.Column(i)
		}
		var err error
		if columns[i], err = array.Concatenate(parts, memory.DefaultAllocator); err != nil {
			return nil, err
		}
	}
	return array.NewRecordBatch(schema, columns, rows), nil
}

// Take gives the rows at the indices, in their order. The caller releases the
// result.
func Take(batch arrow.RecordBatch, indices arrow.Array) (arrow.RecordBatch, error) {
	columns := make([]arrow.Array, batch.NumCols())
	defer func() {
		for _, c := range columns {
			if c != nil {
				c.Release()
			}
		}
	}()
	for i := range columns {
		var err error
		if columns[i], err = compute.TakeArrayOpts(context.Background(), batch.Column(i), indices, compute.TakeOptions{BoundsCheck: false}); err != nil {
			return nil, fmt.Errorf("column %s: %w", batch.ColumnName(i), err)
		}
	}
	return array.NewRecordBatch(batch.Schema(), columns, int64(indices.Len())), nil
}
