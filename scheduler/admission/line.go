package admission

import (
	"context"
	"slices"
	"sync"
)

// Line has a number of places. Who finds none free waits, and gets one in the order in
// which they came.
//
// How many wait is bounded for those who ask with Admit, before anything else is done for
// them; the promise keeps their room until they have entered. Those who were let in
// earlier, as before a restart, enter without: a job that is on record is never refused.
type Line struct {
	places, most int

	mu struct {
		sync.Mutex
		taken, promised int
		waiting         []*Turn
	}
}

// New makes a line of so many places, in which at most so many wait.
func New(places, most int) *Line { return &Line{places: places, most: most} }

// Places is how many have a place at a time.
func (l *Line) Places() int { return l.places }

// Most is how many may wait for one.
func (l *Line) Most() int { return l.most }

// Waiting is how many wait.
func (l *Line) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.waiting)
}

// Admit promises room to one more, unless as many wait as may. The caller enters and then
// calls entered, which it also calls when it doesn't enter.
func (l *Line) Admit() (entered func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	free := max(l.places-l.mu.taken, 0)
	if len(l.mu.waiting)+l.mu.promised >= l.most+free {
		return nil, false
	}
	l.mu.promised++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.mu.promised--
	}), true
}

// Enter takes a turn. It has a place at once if one is free, and is the last of the line
// otherwise. Whoever has a turn leaves.
func (l *Line) Enter() *Turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &Turn{line: l, called: make(chan struct{})}
	l.mu.waiting = append(l.mu.waiting, t)
	l.callLocked()
	return t
}

// callLocked gives the free places to those who are first.
func (l *Line) callLocked() {
	for l.mu.taken < l.places && len(l.mu.waiting) > 0 {
		t := l.mu.waiting[0]
		l.mu.waiting[0] = nil
		l.mu.waiting = l.mu.waiting[1:]
		l.mu.taken++
		t.placed = true
		close(t.called)
	}
}

// Turn is one who waits, or has a place.
type Turn struct {
	line *Line
	// called is closed when it has a place, or has left. The lock of the line guards what
	// follows, and called itself once the turn stood aside.
	called       chan struct{}
	placed, left bool
}

// Wait returns when the turn has a place or has left, or ctx ends.
func (t *Turn) Wait(ctx context.Context) error {
	select {
	case <-t.called:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Waits says whether the turn waits for its place.
func (t *Turn) Waits() bool {
	t.line.mu.Lock()
	defer t.line.mu.Unlock()
	return !t.placed && !t.left
}

// Leave gives the turn's place to the next, or gives up its wait. It may be called again.
func (t *Turn) Leave() { t.leave(true) }

// GiveUp gives up the turn's wait. One that has a place keeps it.
func (t *Turn) GiveUp() { t.leave(false) }

func (t *Turn) leave(placed bool) {
	l := t.line
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case t.left || t.placed && !placed:
	case t.placed:
		t.left, t.placed = true, false
		l.mu.taken--
		l.callLocked()
	default:
		t.left = true
		if i := slices.Index(l.mu.waiting, t); i >= 0 {
			l.mu.waiting = slices.Delete(l.mu.waiting, i, i+1)
			close(t.called)
		}
	}
}

// Aside lets others have the turn's place while f runs. Afterwards the turn is the next to
// get one: it had its place before all that wait. One that was left meanwhile has none.
func (t *Turn) Aside(f func()) {
	l := t.line
	l.mu.Lock()
	aside := t.placed
	if aside {
		t.placed = false
		l.mu.taken--
		l.callLocked()
	}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		if !aside || t.left {
			l.mu.Unlock()
			return
		}
		called := make(chan struct{})
		t.called = called
		l.mu.waiting = slices.Insert(l.mu.waiting, 0, t)
		l.callLocked()
		l.mu.Unlock()
		<-called
	}()
	f()
}
