package delta

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/firn-project/firn/commit"
)

// TestViewsShareAnIndex: what landed is read once, and a view doesn't see what is
// newer than itself.
func TestViewsShareAnIndex(t *testing.T) {
	h := newHarness(t)
	table := h.open()
	defer table.Close()
	var views []*View
	var units []commit.Unit
	for i := range 3 {
		u := h.Unit(t, fmt.Sprint("k", i), 1, 1)
		if o := drive(t, table, u); o.State != commit.Committed {
			t.Fatalf("%v: %v", o.State, o.Err)
		}
		units = append(units, u)
		views = append(views, mustRead(t, table).(*View))
	}
	for i, v := range views {
		if v.index != views[0].index {
			t.Errorf("view %d has an index of its own", i)
		}
		for k, u := range units {
			l, ok := v.Find(commit.MainBranch, u.Token)
			if ok != (k <= i) || ok && l.Seat.Number != int64(k+1) {
				t.Errorf("version %d finds unit %d: %v, at %d", v.snap.Version(), k, ok, l.Seat.Number)
			}
		}
		if v.HasSnapshot(views[2].Head(commit.MainBranch)) != (i == 2) {
			t.Errorf("version %d and the last one's id", i)
		}
	}
}

// TestAnotherHistoryHasItsIndex: the log was put back to an older state, and went
// on from there with the same id.
func TestAnotherHistoryHasItsIndex(t *testing.T) {
	h := newHarness(t)
	table := h.open()
	defer table.Close()
	lost := h.Unit(t, "lost", 1, 1)
	drive(t, table, lost)
	old := mustRead(t, table).(*View)
	if err := os.Remove(filepath.Join(h.dir, logDir, commitName(1))); err != nil {
		t.Fatal(err)
	}
	h.Foreign(t)
	h.Foreign(t)
	v := mustRead(t, table).(*View)
	if _, ok := v.Find(commit.MainBranch, lost.Token); ok || v.index == old.index || v.snap.Version() != 2 {
		t.Errorf("version %d finds what was put back: %v", v.snap.Version(), ok)
	}
}
