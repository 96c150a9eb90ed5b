package objstore

import "sync"

// dirSyncs are the directories that are being synced.
var dirSyncs = sharedSyncs{next: map[string]*sharedSync{}}

// sharedSyncs has those that ask for a directory to be synced while it is share
// the sync after that one. It holds nothing of a directory that isn't synced.
type sharedSyncs struct {
	mu sync.Mutex
	// next has, for each directory that is being synced, the sync after that: nil
	// when nobody has asked for one.
	next map[string]*sharedSync
}

// sharedSync is one sync and those that wait for it.
type sharedSync struct {
	turn, done chan struct{}
	err        error
}

// sync returns when a sync that has begun after the call has ended.
func (g *sharedSyncs) sync(dir string, now func(dir string) error) error {
	g.mu.Lock()
	s, running := g.next[dir]
	switch {
	case !running:
		g.next[dir] = nil
		g.mu.Unlock()
		defer g.handOver(dir)
		return now(dir)
	case s == nil:
		s = &sharedSync{turn: make(chan struct{}), done: make(chan struct{})}
		g.next[dir] = s
		g.mu.Unlock()
		<-s.turn
		defer g.handOver(dir)
		defer close(s.done)
		s.err = now(dir)
	default:
		g.mu.Unlock()
		<-s.done
	}
	return s.err
}

// handOver lets the next sync begin. Who asks from now on doesn't share it.
func (g *sharedSyncs) handOver(dir string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.next[dir]
	if s == nil {
		delete(g.next, dir)
		return
	}
	g.next[dir] = nil
	close(s.turn)
}
