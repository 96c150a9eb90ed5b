package bench

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/firn-project/firn/internal/objstore"
)

const writers32 = 32

// BenchmarkDeltaFiles: 32 writers that hand in a written file each, against 32
// that put versions into the log themselves: such that try again at once, as other
// writers of Delta tables do, which is what the target is about, and such that
// first wait for up to 10 ms. In a directory, and in a store that answers after
// 10 ms. The sides take turns, each with a new table, and the medians are
// compared.
func BenchmarkDeltaFiles(b *testing.B) {
	countSQLite()
	d := benchTime(b)
	for _, latency := range []time.Duration{0, 10 * time.Millisecond} {
		b.Run(fmt.Sprintf("latency=%v", latency), func(b *testing.B) {
			store := objstore.New(objstore.Config{})
			if latency > 0 {
				store = farStore{store, latency}
			}
			for range b.N {
				var sides [3][]*tally
				for range 3 {
					for i, side := range []func() *tally{
						func() *tally {
							return run(b, "Firn, 32 writers hand in a file", writers32, d, newDeltaLane(b, store).handIn)
						},
						func() *tally {
							return run(b, "32 uncoordinated, at once", writers32, d, newUncoordinated(b, store, writers32, 0).addFile)
						},
						func() *tally {
							return run(b, "32 uncoordinated, up to 10 ms", writers32, d, newUncoordinated(b, store, writers32, 10*time.Millisecond).addFile)
						},
					} {
						sides[i] = append(sides[i], side())
					}
				}
				compareRates(b, middle(sides[0]), middle(sides[2]), 0)
				compareRates(b, middle(sides[0]), middle(sides[1]), 10)
			}
		})
	}
}

// middle is the run of the middle rate.
func middle(runs []*tally) *tally {
	slices.SortFunc(runs, func(a, b *tally) int { return int(a.perSecond() - b.perSecond()) })
	return runs[len(runs)/2]
}
