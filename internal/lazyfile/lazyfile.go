package lazyfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"
)

const (
	// window is the most that one request asks for; a longer part is fetched by
	// several at once.
	window = 8 << 20
	// inFlight bounds the requests for one part.
	inFlight = 4
)

// Part is a stretch of a file that is read as one: a column's chunk of a Parquet
// row group. Parts don't overlap.
type Part struct {
	Start, End int64
	// Group and Column say which chunk it is. Reading on to the next group is
	// foreseen for columns that were read in those before.
	Group, Column int
}

// Source is where a file's bytes come from. It is safe for concurrent use. Close
// ends the reads that are under way.
type Source interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// Quota bounds the bytes that files keep on disk together. It is safe for
// concurrent use.
type Quota struct {
	mu   sync.Mutex
	left int64
	none bool
}

// NewQuota makes a quota of some bytes; 0 means no bound.
func NewQuota(n int64) *Quota { return &Quota{left: n, none: n == 0} }

// Take takes n bytes, all or none.
func (q *Quota) Take(n int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.none {
		return true
	}
	if q.left < n {
		return false
	}
	q.left -= n
	return true
}

// File is a local file that fills itself as it's read. It is safe for concurrent
// use, and must be closed. It keeps no descriptor, so that there can be many.
type File struct {
	path   string
	source Source
	quota  *Quota
	forget func()

	// ctx ends when the file is closed.
	ctx    context.Context //nolint:containedctx // reads come from C and bring none
	cancel context.CancelFunc
	ahead  sync.WaitGroup

	mu sync.Mutex
	// parts are in order; groups has their places by their groups.
	parts   []Part
	groups  map[int][]int
	present spans
	// coming are stretches that are being fetched.
	coming []*coming
	// read are the parts that were read, by group and column.
	read map[[2]int]bool
	err  error
}

type coming struct {
	span
	done chan struct{}
}

// New makes the file at path, which must not exist. Its reads end with ctx. The
// file owns the source, and closes it.
func New(ctx context.Context, path string, source Source, quota *Quota) (*File, error) {
	f := &File{path: path, source: source, quota: quota, read: map[[2]int]bool{}, forget: func() {}}
	f.ctx, f.cancel = context.WithCancel(ctx)
	context.AfterFunc(f.ctx, func() { _ = source.Close() })
	if err := f.create(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *File) create() error {
	local, err := os.OpenFile(f.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(local.Truncate(f.Size()), local.Close()); err != nil {
		return err
	}
	if eager {
		return f.fetch(span{0, f.Size()})
	}
	f.forget, err = register(f)
	return err
}

// Path is the file's.
func (f *File) Path() string { return f.path }

// Size is the file's length.
func (f *File) Size() int64 { return f.source.Size() }

// SetParts says how the file is laid out, so that whole parts are fetched.
func (f *File) SetParts(parts []Part) {
	parts = slices.Clone(parts)
	slices.SortFunc(parts, func(a, b Part) int { return int(min(1, max(-1, a.Start-b.Start))) })
	groups := map[int][]int{}
	for i, p := range parts {
		groups[p.Group] = append(groups[p.Group], i)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parts, f.groups = parts, groups
}

// Err is the first error of a read. C code only learns that there was one.
func (f *File) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Close ends the file's reads, and empties it: a hole must never be read as data.
func (f *File) Close() error {
	f.mu.Lock()
	f.cancel() // under the lock, so that nothing is fetched ahead from now on
	f.mu.Unlock()
	err := f.source.Close()
	f.ahead.Wait()
	f.forget()
	if terr := os.Truncate(f.path, 0); !errors.Is(terr, os.ErrNotExist) {
		err = errors.Join(err, terr)
	}
	return err
}

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if n, done, err := f.prepare(p, off); done {
		return n, err
	}
	local, err := os.Open(f.path)
	if err != nil {
		return 0, err
	}
	n, err := local.ReadAt(p, off)
	return n, errors.Join(err, local.Close())
}

// prepare has what a read needs in the local file, or does the read itself: done.
func (f *File) prepare(p []byte, off int64) (n int, done bool, err error) {
	if off < 0 {
		return 0, true, fmt.Errorf("negative offset %d", off)
	}
	if off >= f.Size() {
		return 0, true, io.EOF
	}
	if err := f.ctx.Err(); err != nil {
		return 0, true, err
	}
	want := span{off, min(off+int64(len(p)), f.Size())}
	for _, s := range f.plan(want) {
		if err = f.fetch(s); err != nil {
			break
		}
	}
	if errors.Is(err, errQuota) {
		// Nothing more is kept.
		n, err = f.pass(p, want)
		done = true
	}
	if err != nil && !errors.Is(err, io.EOF) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.err == nil {
			f.err = err
		}
		return 0, true, err
	}
	return n, done, err
}

// pass reads without keeping anything.
func (f *File) pass(p []byte, want span) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := f.source.ReadAt(p[:want.end-want.start], want.start)
	if int64(n) == want.end-want.start {
		err = nil
		if n < len(p) {
			err = io.EOF
		}
	}
	return n, err
}

// plan gives what to fetch for a read: the parts that it touches, whole, and what
// lies outside of parts as it is. It also foresees what is read next.
func (f *File) plan(want span) []span {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []span
	at := want.start
	i, _ := slices.BinarySearchFunc(f.parts, want.start, func(p Part, off int64) int {
		if p.End <= off {
			return -1
		}
		return 1
	})
	for ; i < len(f.parts) && f.parts[i].Start < want.end; i++ {
		p := f.parts[i]
		if at < p.Start {
			out = append(out, span{at, p.Start})
		}
		out = append(out, span{p.Start, p.End})
		at = p.End
		f.foresee(p)
	}
	if at < want.end {
		out = append(out, span{at, want.end})
	}
	return out
}

var errQuota = errors.New("the quota of the disk is used up")

// fetch gets what is missing of a stretch into the local file, or waits for those
// who are getting it.
func (f *File) fetch(want span) error {
	for {
		f.mu.Lock()
		missing := f.present.missing(want)
		if len(missing) == 0 {
			f.mu.Unlock()
			return nil
		}
		if i := slices.IndexFunc(f.coming, func(c *coming) bool { return c.overlaps(missing[0]) }); i >= 0 {
			done := f.coming[i].done
			f.mu.Unlock()
			select {
			case <-done:
			case <-f.ctx.Done():
				return f.ctx.Err()
			}
			continue
		}
		// The first gap, up to what another one is getting.
		gap := missing[0]
		for _, c := range f.coming {
			if c.start >= gap.start {
				gap.end = min(gap.end, c.start)
			}
		}
		mine := &coming{gap, make(chan struct{})}
		f.coming = append(f.coming, mine)
		f.mu.Unlock()

		err := f.get(gap)

		f.mu.Lock()
		f.coming = slices.DeleteFunc(f.coming, func(c *coming) bool { return c == mine })
		if err == nil {
			f.present.add(gap)
		}
		close(mine.done)
		f.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// get copies a stretch from the source.
func (f *File) get(gap span) error {
	if err := f.ctx.Err(); err != nil {
		return err
	}
	if !f.quota.Take(gap.end - gap.start) {
		return errQuota
	}
	local, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(f.ctx)
	g.SetLimit(inFlight)
	for at := gap.start; at < gap.end; at += window {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			buf := make([]byte, min(window, gap.end-at))
			n, err := f.source.ReadAt(buf, at)
			if n < len(buf) {
				return errors.Join(err, io.ErrUnexpectedEOF)
			}
			_, err = local.WriteAt(buf, at)
			return err
		})
	}
	err = errors.Join(g.Wait(), local.Close())
	if errors.Is(err, syscall.ENOSPC) {
		return errQuota // the disk's own
	}
	return err
}
