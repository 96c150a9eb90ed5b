package admission_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/firn-project/firn/scheduler/admission"
)

func enter(l *admission.Line, n int) (turns []*admission.Turn) {
	for range n {
		turns = append(turns, l.Enter())
	}
	return turns
}

// wantPlaced names the turns that have a place.
func wantPlaced(t *testing.T, turns []*admission.Turn, want ...bool) {
	t.Helper()
	for i, turn := range turns {
		if turn.Waits() == want[i] {
			t.Errorf("turn %d waits: %v", i, turn.Waits())
		}
	}
}

func TestPlacesGoToThoseWhoCameFirst(t *testing.T) {
	l := admission.New(2, 10)
	turns := enter(l, 5)
	wantPlaced(t, turns, true, true, false, false, false)
	turns[3].GiveUp()
	turns[0].GiveUp() // has a place, and keeps it
	if wantPlaced(t, turns[:3], true, true, false); l.Waiting() != 2 {
		t.Errorf("%d wait", l.Waiting())
	}
	turns[1].Leave()
	turns[1].Leave() // only once
	wantPlaced(t, []*admission.Turn{turns[2], turns[4]}, true, false)
	turns[0].Leave()
	if wantPlaced(t, turns[4:], true); l.Waiting() != 0 {
		t.Errorf("%d wait", l.Waiting())
	}
}

func TestOnlySoManyWait(t *testing.T) {
	l := admission.New(2, 1)
	var entered []func()
	for range 3 { // two places, and one may wait
		f, ok := l.Admit()
		if !ok {
			t.Fatal("refused with room left")
		}
		entered = append(entered, f)
	}
	if _, ok := l.Admit(); ok {
		t.Fatal("more were promised room than there is")
	}
	entered[0]() // without having entered
	entered[0]()
	f, ok := l.Admit()
	if !ok {
		t.Fatal("room that nobody took isn't there again")
	}
	if _, ok := l.Admit(); ok {
		t.Fatal("room was given back twice")
	}
	turns := enter(l, 3)
	f()
	entered[1]()
	entered[2]()
	if _, ok := l.Admit(); ok {
		t.Fatal("admitted beside one that waits")
	}
	l.Enter().Leave() // one that is on record already
	turns[2].GiveUp()
	if _, ok := l.Admit(); !ok {
		t.Fatal("refused when nobody waits")
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	l := admission.New(1, 1)
	first, second := l.Enter(), l.Enter()
	if err := first.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := second.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	second.Leave()
	if l.Waiting() != 0 {
		t.Error("it still stands in the line")
	}
}

// TestAside: others have the place meanwhile, and afterwards nobody who came later goes
// before.
func TestAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := admission.New(1, 10)
		turns := enter(l, 3)
		back := make(chan struct{})
		go func() {
			turns[0].Aside(func() { wantPlaced(t, turns, false, true, false) })
			close(back)
		}()
		synctest.Wait()
		wantPlaced(t, turns, false, true, false)
		turns[1].Leave()
		<-back
		wantPlaced(t, []*admission.Turn{turns[0], turns[2]}, true, false)

		// Left while it stood aside, it has no place to give back.
		turns[0].Aside(turns[0].Leave)
		wantPlaced(t, turns[2:], true)
		turns[0].Leave()
		if last := l.Enter(); !last.Waits() {
			t.Error("more have a place than there are")
		}
	})
}
