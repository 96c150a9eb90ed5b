package graph_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/graph"
)

func brokeAt(l graph.TaskLaunched, part, location string, left int) graph.TaskFailed {
	return graph.TaskFailed{
		Task: l.Task, StageAttempt: l.StageAttempt, Attempt: l.Attempt, Executor: l.Executor, Class: graph.Retryable,
		Err:   &commit.Error{Code: commit.CodeFlightRead, Op: "read"},
		Broke: &graph.SourceBreak{Part: part, Location: location, Said: "died", Left: left},
	}
}

// TestBreaksAtOtherPlaces: attempts that find out about one of several places aren't
// failures of their task, a bounded number of them; and each attempt is told of all
// breaks, the earliest first.
func TestBreaksAtOtherPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		breaks []graph.TaskFailed // what of them is about the source
		told   string             // to the attempt after them, or that the job has failed
	}{
		"each at another place":     {breaks("p@a+4 p@b+3 p@c+2 p@d+1"), "p@a p@b p@c p@d"},
		"none is left":              {breaks("p@a+0"), "p@a"},
		"none is left, twice":       {breaks("p@a+0 p@b+0"), "failed after 2 attempts"},
		"the last is the second":    {breaks("p@a+1 p@b+0"), "p@a p@b"},
		"the same place once more":  {breaks("p@a+1 p@b+1 p@a+1"), "p@b p@a"},
		"the same place, too often": {breaks("p@a+1 p@b+1 p@a+1 p@b+1"), "failed after 4 attempts"},
		"another part there":        {breaks("p@a+1 q@a+1 r@a+1"), "p@a q@a r@a"},
		"more than can be":          {breaks(strings.Repeat("p%d@a+9 ", 18)), "failed after 18 attempts"},
	} {
		j := newJob(t, graph.Spec{MaxTaskFailures: 2, Stages: []graph.StageSpec{{ID: 0, Tasks: 1, Outputs: 1, Once: true}}})
		j.apply(graph.Start{})
		for _, b := range c.breaks {
			if j.g.State() != graph.Running {
				t.Fatalf("%s: ended early: %v", name, j.g.Err())
			}
			j.apply(brokeAt(j.launch(graph.TaskID{}, "e"), b.Broke.Part, b.Broke.Location, b.Broke.Left))
		}
		got := told(j)
		if err := j.g.Err(); err != nil {
			got = err.Error()
			if e, ok := err.(*commit.Error); ok { //nolint:errorlint // the job's own
				got = strings.Replace("failed after "+e.Tried, " failed, the last on executor e; nothing was committed", "", 1)
			}
		}
		if got != c.told {
			t.Errorf("%s: got %q, want %q", name, got, c.told)
		}
	}
	// Executors may say so of any stage.
	j := insert(t)
	for n := range graph.DefaultMaxTaskFailures {
		j.apply(brokeAt(j.launch(graph.TaskID{Stage: 1}, "e"), "p", fmt.Sprint(n), 1))
	}
	if j.g.State() != graph.JobFailed {
		t.Errorf("got %s", j.g.State())
	}
}

// breaks reads PART@PLACE+LEFT …; %d in a part is its number.
func breaks(text string) (out []graph.TaskFailed) {
	for i, s := range strings.Fields(text) {
		if strings.Contains(s, "%d") {
			s = fmt.Sprintf(s, i)
		}
		part, rest, _ := strings.Cut(s, "@")
		location, left, _ := strings.Cut(rest, "+")
		out = append(out, brokeAt(graph.TaskLaunched{}, part, location, int(left[0]-'0')))
	}
	return out
}

// told is what the queued task's next attempt is told.
func told(j *job) string {
	var out []string
	for _, run := range j.queue {
		for _, b := range run.Broke {
			out = append(out, b.Part+"@"+b.Location)
		}
	}
	return strings.Join(out, " ")
}

// TestBreaksOfALostExecution: all tasks of the next one are told of the places, and no
// more of the parts.
func TestBreaksOfALostExecution(t *testing.T) {
	j := reading(t, 2)
	a, b := graph.TaskID{Stage: 0, Task: 0}, graph.TaskID{Stage: 0, Task: 1}
	for i := range 20 {
		j.apply(brokeAt(j.launch(a, "e"), "p", fmt.Sprint("old", i), 1))
	}
	j.apply(brokeAt(j.launch(a, "e"), "p", "x", 1))
	j.apply(brokeAt(j.launch(b, "e"), "q", "y", 1))
	j.apply(brokeAt(j.launch(b, "e"), "q", "x", 1))
	j.apply(lostSource(j.launch(a, "e")))
	j.apply(graph.SourceReady{Stage: 0})
	if len(j.queue) != 2 {
		t.Fatalf("queued %v", j.queue)
	}
	for _, run := range j.queue {
		var got []string
		for _, b := range run.Broke {
			got = append(got, b.Part+"@"+b.Location+b.Said)
		}
		if len(got) != 16 || !slices.Equal(got[13:], []string{"@old19", "@y", "@x"}) {
			t.Errorf("task %d is told of %v", run.Task.Task, got)
		}
	}
	j.apply(brokeAt(j.launch(b, "e"), "q2", "z", 1))
	for _, run := range j.queue {
		if want := 16 + run.Task.Task; len(run.Broke) != want {
			t.Errorf("task %d is told of %v", run.Task.Task, run.Broke)
		}
	}
}
