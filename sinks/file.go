package sinks

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

// firstRatio is how small rows are taken to get before anything was learnt.
const firstRatio = 0.4

// maxPieces is how many small batches a row group may gather before they are
// copied together: a batch costs some kilobytes beside its rows.
const maxPieces = 64

// openFile is a partition's current file. It exists before the file does: the
// object is created when the first row group is written.
type openFile struct {
	Partition
	path    string
	object  objstore.Writer
	encoder Encoder
	written int64 // bytes that went to object
	encoded int64 // rows that went to encoder, in bytes as in memory
	pieces  []arrow.RecordBatch
	pending int64 // rows in pieces, in bytes
	rows    int64 // in pieces
	last    int   // the batch that had rows for it last
}

// Write counts what the encoder writes.
func (f *openFile) Write(b []byte) (int, error) {
	n, err := f.object.Write(b)
	f.written += int64(n)
	return n, err
}

func (f *openFile) abort() {
	release(f.pieces)
	f.pieces = nil
	if f.object != nil {
		f.object.Abort()
		f.object = nil
	}
}

// keep adds rows to the row group. Rows that share a batch with those of other
// partitions are copied, so that holding them doesn't hold the others'.
func (f *openFile) keep(rows arrow.RecordBatch, shared bool) error {
	if !shared {
		rows.Retain()
		f.pieces = append(f.pieces, rows)
		return nil
	}
	own, err := concat(rows.Schema(), []arrow.RecordBatch{rows})
	if err != nil {
		return err
	}
	f.pieces = append(f.pieces, own)
	if len(f.pieces) >= maxPieces && f.pieces[0].NumRows() < f.rows/2 {
		return f.compact()
	}
	return nil
}

func (f *openFile) compact() error {
	if len(f.pieces) < 2 {
		return nil
	}
	whole, err := concat(f.pieces[0].Schema(), f.pieces)
	if err != nil {
		return err
	}
	release(f.pieces)
	f.pieces = []arrow.RecordBatch{whole}
	return nil
}

// append gives rows to a partition's file in pieces that are small against the
// target, and ends row groups and files as they fill up.
func (w *Writer) append(ctx context.Context, f *openFile, batch arrow.RecordBatch, from, to int64, rowBytes float64) error {
	shared := to-from < batch.NumRows()
	piece := max(1, int64(float64(w.opts.Context.TargetFileSize)/32/max(1, rowBytes*max(w.ratio, 0.05))))
	for from < to {
		n := min(piece, to-from, w.limits.RowGroupRows-f.rows)
		rows := batch.NewSlice(from, from+n)
		err := f.keep(rows, shared)
		rows.Release()
		if err != nil {
			return w.failed(f, err)
		}
		from += n
		f.rows += n
		bytes := int64(rowBytes * float64(n))
		f.pending += bytes
		w.pending += bytes
		if err := w.balance(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// balance ends f's row group when it's full, its file when the target is
// reached, and the largest row group of all when they hold too much together.
func (w *Writer) balance(ctx context.Context, f *openFile) error {
	target := w.opts.Context.TargetFileSize
	ratio := w.ratio
	if f.encoded > 0 {
		ratio = float64(f.written) / float64(f.encoded)
	}
	group := int64(float64(f.pending) * ratio)
	if f.written+group >= target || group >= target/4 ||
		f.pending >= max(target-f.written, target/16) ||
		f.pending >= w.limits.RowGroupBytes || f.rows >= w.limits.RowGroupRows {
		if err := w.flush(ctx, f); err != nil {
			return err
		}
		if f.written >= target-target/20 {
			return w.roll(ctx, f)
		}
	}
	for w.pending > w.opts.Memory/2 {
		largest := f
		for _, o := range w.open {
			if o.pending > largest.pending {
				largest = o
			}
		}
		if err := w.flush(ctx, largest); err != nil {
			return err
		}
	}
	return nil
}

// flush writes the row group.
func (w *Writer) flush(ctx context.Context, f *openFile) error {
	if f.rows == 0 {
		return nil
	}
	if f.encoder == nil {
		if err := w.start(ctx, f); err != nil {
			return err
		}
	}
	if err := f.compact(); err != nil {
		return w.failed(f, err)
	}
	before := f.written
	if err := f.encoder.WriteRowGroup(f.pieces[0]); err != nil {
		return w.failed(f, err)
	}
	if f.pending > 0 {
		w.ratio = (w.ratio + float64(f.written-before)/float64(f.pending)) / 2
	}
	release(f.pieces)
	f.encoded += f.pending
	w.pending -= f.pending
	f.pieces, f.pending, f.rows = nil, 0, 0
	return nil
}

func (w *Writer) start(ctx context.Context, f *openFile) error {
	dir := f.Path
	if dir != "" {
		dir += "/"
	}
	f.path = fmt.Sprintf("%s%s%d-%d-%s-%d.parquet", w.opts.Context.Prefix, dir, w.opts.Stage, w.opts.Task, w.opts.Attempt, w.count)
	w.count++
	object, err := w.opts.Store.Create(ctx, f.path)
	if err != nil {
		return w.failed(f, err)
	}
	f.object, f.written, f.encoded = object, 0, 0
	if f.encoder, err = w.layout.Encode(f, f.Partition); err != nil {
		return w.failed(f, err)
	}
	return nil
}

// roll finishes the current file; the partition stays open for the next one.
func (w *Writer) roll(ctx context.Context, f *openFile) error {
	if err := w.flush(ctx, f); err != nil || f.encoder == nil {
		return err
	}
	file, err := f.encoder.Finish()
	if err != nil {
		return w.failed(f, err)
	}
	file.Path, file.Attempt, file.Size = f.path, w.opts.Attempt, f.written
	// Listed before it's committed: when that fails, whether the file became
	// visible isn't known, and Abort deletes it either way.
	w.files = append(w.files, file)
	if err := f.object.Commit(ctx); err != nil {
		return w.failed(f, err)
	}
	f.object, f.encoder = nil, nil
	return nil
}

// finish ends a partition's file and closes the partition.
func (w *Writer) finish(ctx context.Context, f *openFile) error {
	if err := w.roll(ctx, f); err != nil {
		return err
	}
	delete(w.open, f.Key)
	return nil
}

// failed makes an error for a person of what went wrong with a file. Errors that
// say what happened already, such as those of the store, stay what they are.
func (w *Writer) failed(f *openFile, err error) error {
	if commit.CodeOf(err) != "" || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("write data file %s: %w", f.path, err)
	}
	return &commit.Error{
		Code: commit.CodeDataFile, Op: "write data file", Object: f.path, Cause: err,
		Tried: "the attempt's files are deleted",
		Hint:  "See the cause; the task is tried again when it can help.",
	}
}
