package writes

import (
	"context"
	"sync"
)

// places bounds how many manifests of one write are taken at the same time; the
// others wait. The zero value of a place is one that nobody wants.
type places struct {
	most int

	mu     sync.Mutex
	writes map[string]*place
}

// place is where the manifests of one write wait, with how many want it.
type place struct {
	slots chan struct{}
	users int
}

// take waits for a place; done gives it back.
func (p *places) take(ctx context.Context, writeID string) (done func(), err error) {
	p.mu.Lock()
	w := p.writes[writeID]
	if w == nil {
		w = &place{slots: make(chan struct{}, p.most)}
		p.writes[writeID] = w
	}
	w.users++
	p.mu.Unlock()
	leave := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if w.users--; w.users == 0 {
			delete(p.writes, writeID)
		}
	}
	select {
	case w.slots <- struct{}{}:
		return func() { <-w.slots; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
