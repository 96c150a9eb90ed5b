package sinks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-project/firn/commit"
)

// Writer writes the rows of one task attempt. It belongs to one goroutine.
//
// # Open files
//
// Each partition has at most one open file, and at most Options.OpenFiles are
// open. When rows come for one partition more, one of two things happens:
//
//   - While the input looks clustered, the file that has had no rows for the
//     longest time, and for at least eight batches, is finished, and the new
//     partition takes its place. If rows for a partition that was finished so
//     come after all, the input isn't clustered, and no file is finished early
//     from then on: each partition gets at most one file too many.
//   - Else the rows wait: in memory, then in Arrow files in the spill directory.
//     Close writes the waiting partitions one after the other, so that each
//     row is spilled at most once and every partition still gets whole files.
//
// # Memory
//
// Rows are kept as they came until their row group is encoded in one go, so
// that memory is known and not guessed. Of Options.Memory, half is for the row
// groups; when it's used up, the largest one is written. Encoding one copies it
// once more. An eighth is for waiting rows; when they are spilled, they are
// copied twice to be sorted by partition. On top come the batch in hand, its
// copy sorted by partition, and the pages and dictionary of the one column that
// is being encoded.
//
// # File size
//
// A file's size is known only for row groups that were written. For the rest
// the writer learns how small rows get: the ratio of bytes written to bytes in
// memory, of the file itself or else of the last files. Row groups are ended at
// a quarter of the target, and when they would take the file to the target
// even if nothing got smaller, so that a ratio that's suddenly wrong costs at
// most a sixteenth of the target. A file is finished only after its last row
// group was written and the target is really reached.
//
// # Failure
//
// A data file becomes visible whole when it's finished, never before. After an
// error the writer takes no more rows; Abort, or a Close that fails, deletes
// all files of the attempt. What can't be deleted is left to the sweep of the
// job's prefix.
type Writer struct {
	opts   Options
	layout Layout
	limits Limits

	open      map[string]*openFile
	pending   int64 // rows in encoders, in bytes
	batches   int   // seen so far
	finished  map[string]bool
	scattered bool
	waiting   *waiting

	ratio float64
	count int // files started
	files []commit.File
	err   error
	done  bool
}

// clusteredIdle is how many batches a file must have had no rows for before it
// may be finished in favour of another partition.
const clusteredIdle = 8

// abortTimeout bounds the deletion of an attempt's files: the context of the
// attempt is usually cancelled by then.
const abortTimeout = 30 * time.Second

var errClosed = errors.New("the writer is closed")

// Open binds the driver to the table. Nothing is created until rows come.
func Open(ctx context.Context, d Driver, opts Options) (*Writer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	switch {
	case opts.Attempt == "" || strings.ContainsAny(opts.Attempt, `/\`):
		return nil, fmt.Errorf("sinks: the attempt id %q can't be part of a path", opts.Attempt)
	case !strings.HasSuffix(opts.Context.Prefix, "/"):
		return nil, fmt.Errorf("sinks: the data prefix %q doesn't end in a slash", opts.Context.Prefix)
	case opts.Store == nil:
		return nil, errors.New("sinks: no object store")
	}
	if opts.Memory <= 0 {
		opts.Memory = DefaultMemory
	}
	if opts.OpenFiles <= 0 {
		opts.OpenFiles = DefaultOpenFiles
	}
	if opts.Context.TargetFileSize <= 0 {
		opts.Context.TargetFileSize = DefaultTargetFileSize
	}
	if opts.SpillDir == "" {
		opts.SpillDir = os.TempDir()
	}
	layout, err := d.Bind(opts.Context)
	if err != nil {
		return nil, err
	}
	return &Writer{
		opts:     opts,
		layout:   layout,
		limits:   layout.Limits(),
		open:     map[string]*openFile{},
		finished: map[string]bool{},
		waiting:  newWaiting(opts.SpillDir, opts.Memory/8),
		ratio:    firstRatio,
	}, nil
}

// Write writes the rows of a batch, which the caller keeps and releases. A
// batch that breaks a rule of the table (NOT NULL, a number that doesn't fit)
// is an error, and so is every later call.
func (w *Writer) Write(ctx context.Context, batch arrow.RecordBatch) error {
	if w.done {
		return errClosed
	}
	if w.err == nil {
		w.err = w.write(ctx, batch)
	}
	return w.err
}

func (w *Writer) write(ctx context.Context, batch arrow.RecordBatch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if batch.NumRows() == 0 {
		return nil
	}
	split, err := w.layout.Split(batch)
	if err != nil {
		return err
	}
	defer split.Batch.Release()
	w.batches++
	rowBytes := float64(size(split.Batch)) / float64(split.Batch.NumRows())
	var wait []Part
	for _, p := range split.Parts {
		f, err := w.fileFor(ctx, p.Partition)
		if err != nil {
			return err
		}
		if f == nil {
			wait = append(wait, p)
			continue
		}
		if err := w.append(ctx, f, split.Batch, p.From, p.To, rowBytes); err != nil {
			return err
		}
	}
	return w.waiting.add(split.Batch, wait)
}

// fileFor gives the open file of a partition, nil when its rows must wait.
func (w *Writer) fileFor(ctx context.Context, p Partition) (*openFile, error) {
	if f := w.open[p.Key]; f != nil {
		f.last = w.batches
		return f, nil
	}
	if w.waiting.has(p.Key) {
		return nil, nil
	}
	if w.finished[p.Key] {
		w.scattered = true
	}
	if len(w.open) >= w.opts.OpenFiles {
		idle := w.mostIdle()
		if w.scattered || w.batches-idle.last < clusteredIdle {
			w.waiting.start(p)
			return nil, nil
		}
		w.finished[idle.Key] = true
		if err := w.finish(ctx, idle); err != nil {
			return nil, err
		}
	}
	f := &openFile{Partition: p, last: w.batches}
	w.open[p.Key] = f
	return f, nil
}

func (w *Writer) mostIdle() *openFile {
	var idle *openFile
	for _, f := range w.open {
		if idle == nil || f.last < idle.last || f.last == idle.last && f.Key < idle.Key {
			idle = f
		}
	}
	return idle
}

// Close finishes all files and describes them, in the order in which they were
// finished. An attempt without rows has no file. When it fails, the attempt's
// files are deleted.
func (w *Writer) Close(ctx context.Context) ([]commit.File, error) {
	if w.done {
		return nil, errClosed
	}
	if w.err == nil {
		w.err = w.finishAll(ctx)
	}
	if w.err != nil {
		return nil, errors.Join(w.err, w.Abort())
	}
	w.done = true
	w.waiting.close()
	return w.files, nil
}

func (w *Writer) finishAll(ctx context.Context) error {
	if err := w.finishOpen(ctx); err != nil {
		return err
	}
	err := w.waiting.drain(func(p Partition, rows arrow.RecordBatch) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		f := w.open[p.Key]
		if f == nil {
			// Rows come partition by partition: the one before is complete.
			if err := w.finishOpen(ctx); err != nil {
				return err
			}
			f = &openFile{Partition: p}
			w.open[p.Key] = f
		}
		return w.append(ctx, f, rows, 0, rows.NumRows(), float64(size(rows))/float64(rows.NumRows()))
	})
	if err != nil {
		return err
	}
	return w.finishOpen(ctx)
}

func (w *Writer) finishOpen(ctx context.Context) error {
	for len(w.open) > 0 {
		if err := w.finish(ctx, w.mostIdle()); err != nil {
			return err
		}
	}
	return nil
}

// Abort gives up: open files are dropped and finished ones deleted. It uses its
// own time limit and no context of the caller's. After Close succeeded it does
// nothing: the files are the caller's then. It may be called more than once.
func (w *Writer) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	w.waiting.close()
	for _, f := range w.open {
		f.abort()
	}
	w.open = nil
	ctx, cancel := context.WithTimeout(context.Background(), abortTimeout)
	defer cancel()
	var errs []error
	for _, f := range w.files {
		if err := w.opts.Store.Delete(ctx, f.Path); err != nil {
			errs = append(errs, fmt.Errorf("delete %s: %w", f.Path, err))
		}
	}
	w.files = nil
	return errors.Join(errs...)
}
