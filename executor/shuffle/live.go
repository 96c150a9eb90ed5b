package shuffle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// liveFlush is how long rows of a live attempt wait for others of their batch, once
// there are more.
const liveFlush = 100 * time.Millisecond

// errGone ends the reading of an output that will never be whole.
var errGone = errors.New("the task that wrote it was given up, or its output was freed")

// live is what readers know of outputs that are being written. All methods are safe
// for concurrent use, and do nothing on nil.
type live struct {
	schema *arrow.Schema

	mu sync.Mutex
	// changed is closed and replaced when there's more to read, and closed for good
	// at the end.
	changed chan struct{}
	// written is how far each output can be read, in bytes of its file.
	written []int64
	// ready: some output has rows.
	ready bool
	ended bool
	// err is why there won't be more, nil if all is there.
	err error
}

func newLive(schema *arrow.Schema, outputs int) *live {
	return &live{schema: schema, changed: make(chan struct{}), written: make([]int64, outputs)}
}

// wrote says how far an output can be read now. first: no rows were there before.
func (l *live) wrote(output int, to int64) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, l.ready = !l.ready, true
	l.written[output] = to
	if !l.ended {
		close(l.changed)
		l.changed = make(chan struct{})
	}
	return first
}

// end says that there won't be more to read; err is nil if the outputs are whole.
func (l *live) end(err error) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended, l.err = true, err
	close(l.changed)
}

// more waits until an output can be read beyond from, and says how far. The error
// is io.EOF when all is read.
func (l *live) more(ctx context.Context, output int, from int64) (int64, error) {
	for {
		l.mu.Lock()
		to, ended, err, changed := l.written[output], l.ended, l.err, l.changed
		l.mu.Unlock()
		switch {
		case err != nil:
			return 0, err
		case to > from:
			return to, nil
		case ended:
			return 0, io.EOF
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// stream gives the batches of one output. The caller releases them.
type stream interface {
	Schema() *arrow.Schema
	Next() (arrow.RecordBatch, error)
	Close()
}

// part says what is read of an output: the rows first ≤ n < end, all of them when
// both are 0. follow waits for an attempt that hasn't begun to write.
type part struct {
	follow     bool
	first, end int64
}

// read opens one output of an attempt, which may still be written. The error is
// fs.ErrNotExist when it isn't there.
func (s *Store) read(ctx context.Context, a Attempt, output int, what part) (stream, error) {
	for {
		s.mu.Lock()
		st, begun := s.jobs[a.Job][a], s.begun
		complete := st != nil && st.complete
		s.mu.Unlock()
		switch {
		case complete:
			f, err := s.open(a, output)
			if err != nil {
				return nil, err
			}
			return &fileStream{file: f, rowSlice: f.slice(what.first, what.end)}, nil
		case st != nil && st.live != nil && what.end == 0 && output >= 0 && output < len(st.live.written):
			final, _ := s.dirs(a)
			return &tail{ctx: ctx, live: st.live, output: output, name: filepath.Join(final, outputName(output))}, nil
		case st != nil || !what.follow:
			return nil, fmt.Errorf("%s output %d: %w", a, output, fs.ErrNotExist)
		}
		select {
		case <-begun:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// fileStream is an output that was written whole.
type fileStream struct {
	*file
	rowSlice
}

// Next implements stream.
func (f *fileStream) Next() (arrow.RecordBatch, error) { return f.rowSlice.Next() }

// Close implements stream.
func (f *fileStream) Close() { _ = f.file.Close() } // it was only read

// fileHead is what a file begins with and a stream of messages doesn't.
const fileHead = 8

// tail reads an output while it is written: between its head and its footer a file
// is a stream of messages.
type tail struct {
	ctx    context.Context //nolint:containedctx // of the read
	live   *live
	output int
	name   string
	f      *os.File
	// next is what is read next, to how far that can be done.
	next, to int64
	messages *ipc.Reader
	// err is why no more comes.
	err error
}

// Schema implements stream.
func (t *tail) Schema() *arrow.Schema { return t.live.schema }

// Next implements stream. It waits for the next batch to be written.
func (t *tail) Next() (arrow.RecordBatch, error) {
	if t.err != nil {
		return nil, t.err
	}
	if t.messages == nil {
		if t.err = t.open(); t.err != nil {
			return nil, t.err
		}
	}
	b, err := t.messages.Read()
	if err != nil {
		if t.err == nil { // not one of Read's
			t.err = diskError("read", t.name, err)
		}
		return nil, t.err
	}
	b.Retain()
	return b, nil
}

// open opens the file, which is there with the first batch.
func (t *tail) open() (err error) {
	if t.to, err = t.live.more(t.ctx, t.output, fileHead); err != nil {
		return err
	}
	if t.f, err = os.Open(t.name); errors.Is(err, fs.ErrNotExist) {
		return errGone
	} else if err != nil {
		return diskError("read", t.name, err)
	}
	t.next = fileHead
	if t.messages, err = ipc.NewReader(t); err != nil && t.err == nil {
		return diskError("read", t.name, err)
	}
	return t.err
}

// Read gives the bytes of the messages.
func (t *tail) Read(p []byte) (n int, err error) {
	if t.next == t.to {
		if t.to, t.err = t.live.more(t.ctx, t.output, t.next); t.err != nil {
			t.to = t.next
			return 0, t.err
		}
	}
	n, err = t.f.ReadAt(p[:min(int64(len(p)), t.to-t.next)], t.next)
	t.next += int64(n)
	if n > 0 {
		return n, nil
	}
	if err != nil {
		t.err = diskError("read", t.name, err)
	}
	return n, t.err
}

// Close implements stream.
func (t *tail) Close() {
	if t.messages != nil {
		t.messages.Release()
	}
	if t.f != nil {
		_ = t.f.Close() // it was only read
	}
}
