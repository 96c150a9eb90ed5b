package footers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/footer"
	"github.com/firn-project/firn/internal/objstore"
)

// Checker checks files, and describes them. It is safe for concurrent use.
type Checker struct {
	all  bool
	wait time.Duration
	// memory bounds the bytes of the footers that are more than a tail: one of the
	// largest at a time, or many that are smaller.
	memory *semaphore.Weighted
}

// New makes a checker. With all it checks every file; otherwise Always and one in a
// hundred of the rest. wait is how long a check asks a store that can't be reached
// again.
func New(all bool, wait time.Duration) *Checker {
	return &Checker{all: all, wait: wait, memory: semaphore.NewWeighted(footer.MaxFooter)}
}

const (
	// Always is how many files of a unit are looked at in any case.
	Always = 1000
	// restShare is the share of the others, 1 in so many.
	restShare = 100
	// parallel is how many are looked at at the same time.
	parallel = 16
	// tail is how much is read of a file's end at first: most footers fit.
	tail = 16 << 10
	// largeTime is how long a footer may be read that others wait for memory behind.
	largeTime = time.Minute
)

// Check looks at the files of a unit. The error has a reason (validation) when a
// file isn't what its manifest says; it names the file and the rule. A store that
// can't be reached is asked again for a while, and is no reason to refuse.
func (c *Checker) Check(ctx context.Context, store objstore.Store, u commit.Unit) error {
	g, first := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, i := range c.sample(u.Files.Len()) {
		if first.Err() != nil {
			break
		}
		g.Go(func() error { return c.patiently(first, store, u, u.Files.At(i)) })
	}
	if err := g.Wait(); err != nil || ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx) // some weren't looked at
}

// sample picks the files to look at. Which ones those are can't be foreseen.
func (c *Checker) sample(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	if c.all || n <= Always {
		return all
	}
	k := Always + (n-Always+restShare-1)/restShare
	for i := range k { // the first k of a shuffle
		j := i + rand.IntN(n-i) //nolint:gosec // seeded by the system for each process
		all[i], all[j] = all[j], all[i]
	}
	return all[:k]
}

// patiently asks a store that can't be reached again, until its time is over.
func (c *Checker) patiently(ctx context.Context, store objstore.Store, u commit.Unit, f commit.File) error {
	pause, until := 100*time.Millisecond, time.Now().Add(c.wait)
	for {
		err := c.file(ctx, store, u, f)
		if err == nil || commit.CodeOf(err) == commit.CodeVerification || ctx.Err() != nil || !time.Now().Add(pause).Before(until) {
			return err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// file looks at one file.
func (c *Checker) file(ctx context.Context, store objstore.Store, u commit.Unit, f commit.File) error {
	o, err := store.Open(ctx, f.Path)
	if errors.Is(err, objstore.ErrNotFound) {
		return commit.Misfit(u, f.Path, "files are there", "there's no such file")
	}
	if err != nil {
		return fmt.Errorf("look at %s before its commit: %w", f.Path, err)
	}
	defer o.Close() //nolint:errcheck // it was only read
	if o.Size() != f.Size {
		return commit.Misfit(u, f.Path, "a file has the size that its manifest says", fmt.Sprintf("%d bytes instead of %d", o.Size(), f.Size))
	}
	rows, why, err := c.rows(ctx, o)
	switch {
	case err != nil:
		return fmt.Errorf("read the footer of %s: %w", f.Path, err)
	case why != nil:
		return commit.Misfit(u, f.Path, "files are whole Parquet files", why.Error())
	case rows != f.Rows:
		return commit.Misfit(u, f.Path, "a file has as many rows as its manifest says", fmt.Sprintf("%d rows in its footer instead of %d", rows, f.Rows))
	}
	return nil
}

// rows reads how many rows a file has by its footer: one small read of its end in
// most cases. why says what is wrong with the file.
func (c *Checker) rows(ctx context.Context, o objstore.Object) (rows int64, why, err error) {
	why, err = c.footer(ctx, o, func(raw []byte) error {
		var err error
		if rows, err = footer.Rows(raw); err != nil {
			return unreadable(err)
		}
		return nil
	})
	return rows, why, err
}

func unreadable(err error) error { return fmt.Errorf("its footer can't be read: %w", err) }

// footer calls use with a file's footer. One that is more than a tail waits until there
// is memory for it. why is what is wrong with the file, or what use found to be.
func (c *Checker) footer(ctx context.Context, o objstore.Object, use func(raw []byte) error) (why, err error) {
	if o.Size() < footer.MinFile {
		return errors.New("it is too short for one"), nil
	}
	end := make([]byte, min(o.Size(), tail))
	if err := readAt(ctx, o, end, o.Size()-int64(len(end))); err != nil {
		return nil, err
	}
	n, why := footer.Length(end, o.Size())
	if why != nil {
		return why, nil
	}
	raw := end[:len(end)-footer.Trailer]
	if n <= int64(len(raw)) {
		return use(raw[int64(len(raw))-n:]), nil
	}
	if err := c.memory.Acquire(ctx, n); err != nil {
		return nil, err
	}
	defer c.memory.Release(n)
	ctx, cancel := context.WithTimeoutCause(ctx, largeTime, errSlow)
	defer cancel()
	raw = make([]byte, n)
	if err := readAt(ctx, o, raw, o.Size()-footer.Trailer-n); err != nil {
		return nil, err
	}
	return use(raw), nil
}

var errSlow = fmt.Errorf("the store didn't give it within %s", largeTime)

// readAt reads all of p, unless ctx ends. A file that ends too early was cut while it
// was read, and is looked at again.
func readAt(ctx context.Context, o objstore.Object, p []byte, off int64) error {
	// Only its end ends an object's reads.
	stop := context.AfterFunc(ctx, func() { _ = o.Close() })
	defer stop()
	n, err := o.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}
