package graph_test

import (
	"errors"
	"testing"

	"github.com/firn-project/firn/scheduler/graph"
)

// All that an executor holds of a job is lost with the first output that a task
// couldn't read because the executor didn't answer: found out one by one, losses
// would reach the limit. A task that read from it as well isn't blamed.
func TestUnreachableExecutorLosesAllThatItHolds(t *testing.T) {
	j := newJob(t, graph.Spec{JobID: "j", MaxTaskFailures: 1, Stages: []graph.StageSpec{
		{ID: 1, Tasks: 8, Outputs: 2, Deterministic: true},
		{ID: 2, Tasks: 2, Outputs: 1, Inputs: []int{1}, Deterministic: true},
	}})
	j.apply(graph.Start{})
	var held []graph.TaskLaunched
	for n := range 8 {
		e := []string{"frozen", "other"}[n%2]
		l := j.launch(id(1, n), e)
		if e == "frozen" {
			held = append(held, l)
		}
		j.apply(j.success(l))
	}
	a, b := j.launch(id(2, 0), "other"), j.launch(id(2, 1), "other")
	lost := &graph.LostInput{Task: held[0].Task, Attempt: held[0].Attempt, Executor: "frozen", Unreachable: true}
	j.fail(a, graph.Retryable, errors.New("silence"), lost)
	if v := j.g.Stages()[0]; v.Done != 4 {
		t.Fatalf("%d tasks are done, want the 4 of the other executor", v.Done)
	}
	late := &graph.LostInput{Task: held[1].Task, Attempt: held[1].Attempt, Executor: "frozen", Unreachable: true}
	j.fail(b, graph.Retryable, errors.New("silence"), late)
	for _, l := range held {
		j.apply(j.success(j.launch(l.Task, "other")))
	}
	// It isn't excused twice: what it read now is there.
	b = j.launch(id(2, 1), "other")
	if j.g.State() != graph.Running {
		t.Fatalf("job is %s: %v", j.g.State(), j.g.Err())
	}
	j.fail(b, graph.Retryable, errors.New("silence"), late)
	if j.g.State() != graph.JobFailed {
		t.Fatalf("a task that says again what was said before: job is %s", j.g.State())
	}
}
