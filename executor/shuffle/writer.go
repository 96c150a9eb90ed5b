package shuffle

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/failpoint"
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
	// Live has the outputs read while they are written: what there is of them goes
	// to their files soon, first in small batches. Ready is called once, when the
	// first rows can be read.
	Live  bool
	Ready func()
}

// Output is what one output partition holds: its rows, and the bytes of its
// file.
type Output struct{ Rows, Bytes int64 }

// Writer writes the output of one task attempt. It is for one goroutine.
// Exactly one of Commit and Abort must be called; Abort after either has no
// effect.
type Writer struct {
	store   *Store
	attempt Attempt
	stored  *stored
	schema  *arrow.Schema
	opts    WriterOptions
	outs    []*output
	pending int64
	// made says that the hidden directory was made, for the first output that
	// isn't small.
	made bool
	done bool
	// flushed is when the outputs of a live attempt were last written out.
	flushed time.Time
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
	var l *live
	if opts.Live {
		l = newLive(schema, opts.Outputs)
	}
	st, err := s.begin(a, l)
	if err != nil {
		return nil, err
	}
	w := &Writer{store: s, attempt: a, stored: st, schema: schema, opts: opts, outs: make([]*output, opts.Outputs), flushed: time.Now()}
	for i := range w.outs {
		w.outs[i] = &output{w: w, n: i, full: batchBytes}
		if opts.Live {
			w.outs[i].full = 0 // the first rows don't wait
		}
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
	if err := w.opts.Partition.Partition(ctx, b, w.add); err != nil || !w.opts.Live || time.Since(w.flushed) < liveFlush {
		return err
	}
	for _, o := range w.outs {
		if err := w.flush(o); err != nil {
			return err
		}
	}
	w.flushed = time.Now()
	return nil
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
	if o.pending >= o.full {
		o.full = min(max(2*o.full, smallOutput), batchBytes)
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
	return split(b, size, o.write)
}

// Commit writes the rest and makes all outputs readable at once, also those
// without rows. After an error nothing is left behind.
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
		if err := o.finish(); err != nil {
			return nil, err
		}
		out[i] = Output{Rows: o.rows, Bytes: o.written}
	}
	final, hidden := w.store.dirs(w.attempt)
	if w.made && !w.opts.Live {
		if err := os.Rename(hidden, final); err != nil {
			return nil, diskError("rename", final, err)
		}
	}
	w.done = true
	if err := w.store.end(w.attempt, w.stored, true); err != nil {
		_ = os.RemoveAll(final)
		return nil, err
	}
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
		_ = o.close() // it is about to be removed
	}
	if w.made {
		// What can't be removed goes when the executor starts again.
		_ = os.RemoveAll(w.dir())
	}
	_ = w.store.end(w.attempt, w.stored, false)
}

// dir is where files are written. Those of a live attempt have their last name from
// the first on, as they are opened while they grow.
func (w *Writer) dir() string {
	final, hidden := w.store.dirs(w.attempt)
	if w.opts.Live {
		return final
	}
	return hidden
}

// create makes the file of an output, and before the first one the directory.
func (w *Writer) create(output int) (*os.File, error) {
	dir := w.dir()
	if !w.made {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, diskError("create", dir, err)
		}
		w.made = true
	}
	path := filepath.Join(dir, outputName(output))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, diskError("create", path, err)
	}
	return f, nil
}

// smallOutput is the size up to which an output may stay in memory.
const smallOutput = 64 << 10

// buffers are those of outputs that aren't written any more, until the next
// collection of garbage. Most outputs are small: a file manifest has some
// kilobytes.
var buffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, smallOutput) }}

// output is one output partition while it is written: into the buffer, and what
// overflows from there into a file.
type output struct {
	w *Writer
	n int
	// batches wait to be written, pending bytes of them.
	batches []arrow.RecordBatch
	pending int64
	// full is how many bytes are written as a batch.
	full int64

	buf           *bufio.Writer
	ipc           *ipc.FileWriter
	rows, written int64
	// to is the file, or at last memory if nothing has overflowed.
	to   io.Writer
	file *os.File
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

// overflow takes what the buffer of an output doesn't hold any more.
type overflow struct{ o *output }

func (t overflow) Write(p []byte) (n int, err error) {
	if t.o.to == nil {
		if t.o.file, err = t.o.w.create(t.o.n); err != nil {
			return 0, err
		}
		t.o.to = t.o.file
	}
	failpoint.Slow()
	if err = t.o.w.store.charge(t.o.w.stored, int64(len(p))); err == nil {
		n, err = t.o.to.Write(p)
	}
	if err != nil {
		err = diskError("write", t.o.file.Name(), err)
	}
	return n, err
}

func (o *output) open() (err error) {
	if o.buf != nil {
		return nil
	}
	opts := []ipc.Option{ipc.WithSchema(o.w.schema)}
	if o.w.opts.Compress {
		opts = append(opts, ipc.WithLZ4())
	}
	o.buf = buffers.Get().(*bufio.Writer)
	o.buf.Reset(overflow{o})
	o.ipc, err = ipc.NewFileWriter(o, opts...)
	return err
}

func (o *output) write(b arrow.RecordBatch) error {
	if err := o.open(); err != nil {
		return err
	}
	if err := o.ipc.Write(b); err != nil {
		return err
	}
	o.rows += b.NumRows()
	if !o.w.opts.Live {
		return nil
	}
	if err := o.buf.Flush(); err != nil {
		return err
	}
	if o.w.stored.live.wrote(o.n, o.written) && o.w.opts.Ready != nil {
		o.w.opts.Ready()
	}
	return nil
}

// finish ends the output. One that its buffer holds stays in memory if there is
// room.
func (o *output) finish() error {
	if err := o.open(); err != nil {
		return err
	}
	if err := o.ipc.Close(); err != nil {
		return errors.Join(err, o.close())
	}
	if o.file == nil && !o.w.opts.Live && o.w.store.keep(o.w.stored, o.written) {
		kept := bytes.NewBuffer(make([]byte, 0, o.written))
		o.to = kept
		err := o.buf.Flush()
		o.w.stored.memory[o.n] = kept.Bytes()
		return errors.Join(err, o.close())
	}
	return errors.Join(o.buf.Flush(), o.close())
}

// close closes the file and gives the buffer back.
func (o *output) close() error {
	if o.buf == nil {
		return nil
	}
	o.buf.Reset(nil)
	buffers.Put(o.buf)
	o.buf = nil
	if o.file == nil {
		return nil
	}
	if err := o.file.Close(); err != nil {
		return diskError("close", o.file.Name(), err)
	}
	return nil
}
