package objstore

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// Whoever asks while a sync is under way gets one that begins afterwards, and
// shares it.
func TestSyncsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := sharedSyncs{next: map[string]*sharedSync{}}
		release := make(chan error)
		var begun atomic.Int32
		now := func(string) error { begun.Add(1); return <-release }
		var wg sync.WaitGroup
		var ended, failed atomic.Int32
		ask := func(dir string) {
			wg.Go(func() {
				if g.sync(dir, now) != nil {
					failed.Add(1)
				}
				ended.Add(1)
			})
		}
		ask("a")
		synctest.Wait()
		for range 3 {
			ask("a")
		}
		ask("b")
		synctest.Wait()
		if begun.Load() != 2 {
			t.Fatalf("%d syncs have begun, want one of each directory", begun.Load())
		}
		release <- nil
		release <- nil
		synctest.Wait()
		if begun.Load() != 3 || ended.Load() != 2 {
			t.Fatalf("%d syncs have begun, %d callers are through; want 3 and 2", begun.Load(), ended.Load())
		}
		ask("a") // too late for the sync that runs
		synctest.Wait()
		release <- errors.New("broken")
		synctest.Wait()
		if begun.Load() != 4 || ended.Load() != 5 || failed.Load() != 3 {
			t.Fatalf("%d begun, %d through, %d failed; want 4, 5 and the three that shared the broken one", begun.Load(), ended.Load(), failed.Load())
		}
		release <- nil
		wg.Wait()
		if len(g.next) != 0 {
			t.Errorf("something is kept: %v", g.next)
		}
	})
}
