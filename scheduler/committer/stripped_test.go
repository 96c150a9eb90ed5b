package committer_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/scheduler/committer"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/stripped"
)

// A table that lost the token of a commit takes no other, also of those that were
// waiting for their turn; the commit itself counts.
func TestA5_ATableThatLosesTokensTakesNoMore(t *testing.T) {
	j, err := journal.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	marks, err := stripped.Load(t.Context(), j, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t, func(c *committer.Config) { c.Stripped = marks })
	l.c = committest.NewCatalog(committest.Mode{StripTokens: true})
	queued, once := make(chan struct{}), sync.Once{}
	var all sync.WaitGroup
	l.hook(func(_ context.Context, effect string) {
		if effect != "send" {
			return
		}
		once.Do(func() {
			for i := range 3 {
				job := fmt.Sprintf("j-%d", i+1)
				all.Go(func() {
					rep, err := l.com.Run(context.Background(), l.root(job, job))
					if rep.State != commit.CommitRefused || commit.CodeOf(err) != commit.CodeTokensStripped || commit.ReasonOf(err) != commit.ReasonPermission {
						t.Errorf("%s: %s, %v", job, rep.State, err)
					}
				})
			}
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for len(l.com.Waits()) < 4 {
				<-tick.C
			}
			close(queued)
		})
	})
	rep, err := l.com.Run(t.Context(), l.root("j-0", "k"))
	<-queued
	all.Wait()
	if err != nil || rep.State != commit.CommitCommitted {
		t.Fatalf("%+v, %v", rep, err)
	}
	if n := l.c.Sends(); n != 1 {
		t.Fatalf("%d requests were sent", n)
	}
	if err := marks.Allow(t.Context(), l.c.UUID()); err != nil {
		t.Fatal(err)
	}
	if rep, err = l.com.Run(t.Context(), l.root("j-5", "k5")); err != nil || rep.State != commit.CommitCommitted {
		t.Fatalf("after it was allowed: %+v, %v", rep, err)
	}
}
