package committer_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/firn-project/firn/commit"
)

// TestWritersThatComeBackGoTogether: those whose files landed in one request hand
// in their next ones within a moment of each other, and share a request again.
func TestWritersThatComeBackGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, nil)
		g.build = func([]commit.Unit) { time.Sleep(80 * time.Millisecond) }
		for w := range 8 {
			g.wg.Go(func() {
				for n := range 3 {
					k := fmt.Sprintf("k%d-%d", w, n)
					if _, err := g.com.Run(t.Context(), g.root("j"+k, k)); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Duration(w) * time.Millisecond)
				}
			})
		}
		g.finish()
		var sizes []int
		for _, jobs := range g.requests {
			sizes = append(sizes, len(jobs))
		}
		if !slices.Equal(sizes, []int{1, 8, 8, 8}) {
			t.Errorf("requests of %v units", sizes)
		}
	})
}
