package speculation_test

import (
	"testing"
	"time"

	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/speculation"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// stage has tasks that took so many seconds; a negative one still runs, since so
// many seconds.
func stage(id int, seconds ...int) (runs []graph.TaskRun, view graph.StageView) {
	view = graph.StageView{ID: id, Tasks: len(seconds)}
	for n, s := range seconds {
		r := graph.TaskRun{Task: graph.TaskID{Stage: id, Task: n}, Attempt: "a", Executor: "e"}
		if s < 0 {
			r.Started = t0.Add(time.Duration(s) * time.Second)
		} else {
			r.Done, r.Started, r.Ended = true, t0.Add(-time.Hour), t0.Add(-time.Hour+time.Duration(s)*time.Second)
			view.Done++
		}
		runs = append(runs, r)
	}
	return runs, view
}

func TestPick(t *testing.T) {
	for name, c := range map[string]struct {
		seconds []int
		want    []int
		policy  speculation.Policy
	}{
		"one hangs":                        {[]int{10, 10, 10, -31}, []int{3}, speculation.Default},
		"not long enough":                  {[]int{10, 10, 10, -30}, nil, speculation.Default},
		"too few have ended":               {[]int{10, 10, -100, -100}, nil, speculation.Default},
		"short tasks aren't worth it":      {[]int{1, 1, 1, -9}, nil, speculation.Default},
		"the median counts, not the mean":  {[]int{1, 1, 1, 1, 100, -11}, []int{5}, speculation.Default},
		"the one that runs longest first":  {[]int{1, 1, 1, 1, 1, 1, -20, -40}, []int{7, 6}, speculation.Default},
		"off":                              {[]int{10, 10, 10, -1000}, nil, speculation.Policy{}},
		"a stage of one task has no other": {[]int{-1000}, nil, speculation.Default},
		"all have ended":                   {[]int{1, 1}, nil, speculation.Default},
	} {
		runs, view := stage(1, c.seconds...)
		var got []int
		for _, r := range c.policy.Pick(runs, []graph.StageView{view}, t0) {
			got = append(got, r.Task.Task)
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		}
	}
}

func TestTwinsAreNotRepeated(t *testing.T) {
	runs, view := stage(1, 1, 1, 1, -100)
	twin := runs[3]
	twin.Attempt, twin.Twin = "b", true
	if got := speculation.Default.Pick(append(runs, twin), []graph.StageView{view}, t0); got != nil {
		t.Errorf("%v", got)
	}
}

// After a restart of the scheduler nobody knows how long tasks took.
func TestUnknownTimes(t *testing.T) {
	runs, view := stage(1, 1, 1, 1, -100)
	for i := range runs {
		if runs[i].Done {
			runs[i].Started = time.Time{}
		}
	}
	if got := speculation.Default.Pick(runs, []graph.StageView{view}, t0); got != nil {
		t.Errorf("%v", got)
	}
}
