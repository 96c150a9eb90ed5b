package shuffle

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/firn-project/firn/commit"
)

// WriterOptions say how an attempt's output is written.
type WriterOptions struct {
	// Outputs is the number of output partitions; 1 when zero.
	Outputs int
	// Partition spreads the rows; Single when nil.
	Partition Partitioner
	// Compress uses lz4. It pays only on a network slower than about 7 Gbit/s.
	Compress bool
	// Memory bounds the bytes of rows that wait for their batch to fill; 32
	// MiB when zero. With many outputs batches get smaller instead.
	Memory int64
}

// Output is what one output partition holds: its rows, and the bytes of its
// file.
type Output struct{ Rows, Bytes int64 }

// Writer writes the output of one task attempt. It is for one goroutine.
// Exactly one of Commit and Abort must be called; Abort after either has no
// effect.
type Writer struct {
	schema        *arrow.Schema
	opts          WriterOptions
	outs          []*output
	pending       int64
	final, hidden string
	done          bool
}

// NewWriter begins the output of an attempt.
func (s *Store) NewWriter(a Attempt, schema *arrow.Schema, opts WriterOptions) (*Writer, error) {
	if !a.valid() {
		return nil, fmt.Errorf("write shuffle output: %s has an id that can't be a path", a)
	}
	if opts.Outputs == 0 {
		opts.Outputs = 1
	}
	if opts.Partition == nil {
		opts.Partition = Single{}
	}
	if opts.Memory == 0 {
		opts.Memory = 32 << 20
	}
	w := &Writer{schema: schema, opts: opts, outs: make([]*output, opts.Outputs)}
	w.final, w.hidden = s.dirs(a)
	if err := os.MkdirAll(filepath.Dir(w.hidden), 0o700); err != nil {
		return nil, diskError("create", w.hidden, err)
	}
	// The directory must be new: two writers of one attempt would mix.
	if err := os.Mkdir(w.hidden, 0o700); err != nil {
		return nil, diskError("create", w.hidden, err)
	}
	for i := range w.outs {
		w.outs[i] = &output{path: filepath.Join(w.hidden, outputName(i)), compress: opts.Compress}
	}
	return w, nil
}

// Write adds the rows of a batch. The caller goes on owning the batch.
func (w *Writer) Write(ctx context.Context, b arrow.RecordBatch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !sameColumns(b.Schema(), w.schema) {
		return &commit.Error{
			Code: commit.CodeShuffleColumns, Op: "write shuffle output",
			Cause: fmt.Errorf("a batch has %s, want %s", b.Schema(), w.schema),
		}
	}
	if b.Schema() != w.schema {
		// Batches may differ in metadata and nullability; a file can't.
		b = array.NewRecordBatch(w.schema, b.Columns(), b.NumRows())
		defer b.Release()
	}
	return w.opts.Partition.Partition(ctx, b, w.add)
}

// sameColumns compares without metadata and nullability, which don't change how
// rows are laid out.
func sameColumns(a, b *arrow.Schema) bool {
	if a == b {
		return true
	}
	if a.NumFields() != b.NumFields() {
		return false
	}
	for i := range a.NumFields() {
		if a.Field(i).Name != b.Field(i).Name || !arrow.TypeEqual(a.Field(i).Type, b.Field(i).Type) {
			return false
		}
	}
	return true
}

func (w *Writer) add(out int, part arrow.RecordBatch) error {
	if part.NumRows() == 0 {
		return nil
	}
	o := w.outs[out]
	size := sizeOf(part)
	part.Retain()
	o.batches = append(o.batches, part)
	o.pending += size
	w.pending += size
	if o.pending >= batchBytes {
		return w.flush(o)
	}
	for w.pending > w.opts.Memory {
		if err := w.flush(w.largest()); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) largest() *output {
	most := w.outs[0]
	for _, o := range w.outs {
		if o.pending > most.pending {
			most = o
		}
	}
	return most
}

// flush writes what an output has waiting.
func (w *Writer) flush(o *output) error {
	if len(o.batches) == 0 {
		return nil
	}
	size := o.pending
	b, err := concat(w.schema, o.batches)
	w.pending -= size
	o.release()
	if err != nil {
		return err
	}
	defer b.Release()
	return split(b, size, func(s arrow.RecordBatch) error { return o.write(w.schema, s) })
}

// Commit writes the rest and makes all outputs readable at once. Every output
// has a file, also without rows. After an error nothing is left behind.
func (w *Writer) Commit(ctx context.Context) ([]Output, error) {
	if w.done {
		return nil, errors.New("shuffle output is committed or aborted already")
	}
	defer w.Abort()
	out := make([]Output, len(w.outs))
	for i, o := range w.outs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := w.flush(o); err != nil {
			return nil, err
		}
		if err := o.finish(w.schema); err != nil {
			return nil, err
		}
		out[i] = Output{Rows: o.rows, Bytes: o.written}
	}
	if err := os.Rename(w.hidden, w.final); err != nil {
		return nil, diskError("rename", w.final, err)
	}
	w.done = true
	return out, nil
}

// Abort removes what was written.
func (w *Writer) Abort() {
	if w.done {
		return
	}
	w.done = true
	for _, o := range w.outs {
		o.release()
		o.close()
	}
	// What can't be removed goes when the executor starts again.
	_ = os.RemoveAll(w.hidden)
}

// buffers are those of files that aren't written any more, until the next
// collection of garbage. Most outputs are small: a file manifest has some
// kilobytes.
var buffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 64<<10) }}

// output is one output partition while it is written.
type output struct {
	path     string
	compress bool
	// batches wait to be written, pending bytes of them.
	batches []arrow.RecordBatch
	pending int64

	f             *os.File
	buf           *bufio.Writer
	ipc           *ipc.FileWriter
	rows, written int64
}

func (o *output) release() {
	for _, b := range o.batches {
		b.Release()
	}
	o.batches, o.pending = o.batches[:0], 0
}

// Write counts and passes on, for the IPC writer.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.buf.Write(p)
	o.written += int64(n)
	return n, err
}

func (o *output) open(schema *arrow.Schema) error {
	if o.f != nil {
		return nil
	}
	f, err := os.OpenFile(o.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return diskError("create", o.path, err)
	}
	opts := []ipc.Option{ipc.WithSchema(schema)}
	if o.compress {
		opts = append(opts, ipc.WithLZ4())
	}
	o.f, o.buf = f, buffers.Get().(*bufio.Writer)
	o.buf.Reset(f)
	if o.ipc, err = ipc.NewFileWriter(o, opts...); err != nil {
		return diskError("write", o.path, err)
	}
	return nil
}

func (o *output) write(schema *arrow.Schema, b arrow.RecordBatch) error {
	if err := o.open(schema); err != nil {
		return err
	}
	if err := o.ipc.Write(b); err != nil {
		return diskError("write", o.path, err)
	}
	o.rows += b.NumRows()
	return nil
}

func (o *output) finish(schema *arrow.Schema) error {
	if err := o.open(schema); err != nil {
		return err
	}
	err := errors.Join(o.ipc.Close(), o.buf.Flush(), o.f.Close())
	o.done()
	if err != nil {
		return diskError("write", o.path, err)
	}
	return nil
}

// close gives the file up.
func (o *output) close() {
	if o.f != nil {
		_ = o.f.Close() // it is about to be removed
		o.done()
	}
}

// done gives the buffer back. The file is closed.
func (o *output) done() {
	o.buf.Reset(nil)
	buffers.Put(o.buf)
	o.f, o.buf = nil, nil
}
