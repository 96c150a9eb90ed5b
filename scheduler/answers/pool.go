package answers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/firn-project/firn/commit"
)

// besides is what a job's manifests may take without waiting for others.
const besides = 1 << 20

// Pool bounds the memory that the file manifests of all jobs take: at most a limit, of
// which one job gets half. Jobs wait while others have theirs. The one that came first
// may go beyond the half that waiting jobs leave free, up to its own half, so that it
// gets done and the others do after it. Jobs with less than a megabyte don't wait, and
// aren't counted in the limit.
//
// It is safe for concurrent use.
type Pool struct {
	half int64

	mu   sync.Mutex
	used int64
	// shares are those with more than besides, in the order in which they asked.
	shares []*Share
	// freed is closed and replaced when something was given back.
	freed chan struct{}
}

// NewPool makes a pool of limit bytes.
func NewPool(limit int64) *Pool { return &Pool{half: limit / 2, freed: make(chan struct{})} }

// Share is one job's part. Leave must be called.
type Share struct {
	pool *Pool
	held int64
}

// Join gives a job its share, which holds nothing yet.
func (p *Pool) Join() *Share { return &Share{pool: p} }

// errFull is wrapped by what Hold says of too much.
var errFull = errors.New("the manifests of a job take too much memory")

// Hold waits until the share may hold n bytes in all. The error is errFull's when
// that is more than one job gets, else that of ctx.
func (s *Share) Hold(ctx context.Context, n int64) error {
	p := s.pool
	if n > p.half {
		return errFull
	}
	for {
		p.mu.Lock()
		ok, freed := p.take(s, n), p.freed
		p.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take takes or gives back what makes n bytes, if there is room. p.mu is held.
func (p *Pool) take(s *Share, n int64) bool {
	known := slices.Index(p.shares, s)
	if n > besides && known < 0 {
		known = len(p.shares)
		p.shares = append(p.shares, s)
	}
	if n > s.held && n > besides && known > 0 && p.used-s.held+n > p.half {
		return false
	}
	p.used += n - s.held
	if n < s.held {
		p.wake()
	}
	s.held = n
	return true
}

func (p *Pool) wake() {
	close(p.freed)
	p.freed = make(chan struct{})
}

// Leave gives everything back. It may be called again.
func (s *Share) Leave() {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= s.held
	s.held = 0
	if i := slices.Index(p.shares, s); i >= 0 {
		p.shares = slices.Delete(p.shares, i, i+1)
	}
	p.wake()
}

// tooMuch is the error of a job whose manifests are too large.
func (p *Pool) tooMuch(attempt string) error {
	return BadManifest(attempt, fmt.Sprintf("the manifests of a job take at most %d bytes of memory", p.half), "they take more")
}

// Keep holds what the packer has; for manifests that aren't an attempt's.
func (s *Share) Keep(ctx context.Context, into *commit.Packer, of string) error {
	err := s.Hold(ctx, into.Bytes())
	if errors.Is(err, errFull) {
		return s.pool.tooMuch(of)
	}
	return err
}
