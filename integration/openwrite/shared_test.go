package openwrite_test

import (
	"sync"
	"testing"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
)

// Many writes to one table commit at once: some share a commit, one of them whose
// file is gone is refused without taking the others along, a losing attempt's file
// goes, and a driver that asks again hears of the same snapshot.
func TestWritesShareCommits(t *testing.T) {
	const writes = 32
	for format := range formats {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := start(t, format)
			e := newExpected()
			open := make([]*client.Write, writes)
			won := make([]attempt, writes)
			for i := range writes {
				var wc client.WriteContext
				open[i], wc = s.begin(client.WriteOptions{})
				won[i] = s.taken(open[i], wc, 2)
				s.taken(open[i], wc, 2) // a losing attempt
			}
			const bad = writes / 2
			remove(t, won[bad].path)
			reports, errs := make([]commit.Report, writes), make([]error, writes)
			var wg sync.WaitGroup
			for i, w := range open {
				wg.Go(func() { reports[i], errs[i] = w.Commit(t.Context(), []client.Handle{won[i].handle}) })
			}
			wg.Wait()
			snapshots := map[string]int{}
			for i, rep := range reports {
				if i == bad {
					if errs[i] == nil || rep.State != commit.CommitNone && rep.State != commit.CommitRefused {
						t.Errorf("without its file: %+v, %v", rep, errs[i])
					}
					continue
				}
				if errs[i] != nil || rep.State != commit.CommitCommitted || rep.Rows != 2 || rep.Files != 1 || rep.SnapshotID == "" {
					t.Fatalf("write %d: %+v, %v", i, rep, errs[i])
				}
				snapshots[rep.SnapshotID]++
				e.add(won[i])
				again, err := open[i].Commit(t.Context(), []client.Handle{won[i].handle})
				if err != nil || again.SnapshotID != rep.SnapshotID || again.Rows != rep.Rows {
					t.Errorf("write %d, asked again: %+v, %v; was %+v", i, again, err, rep)
				}
			}
			if len(snapshots) >= writes-1 {
				t.Errorf("%d commits of %d writes: none was shared", len(snapshots), writes-1)
			}
			s.judge(e)
		})
	}
}
