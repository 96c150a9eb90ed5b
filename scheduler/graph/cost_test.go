package graph_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/firn-project/firn/scheduler/graph"
)

// BenchmarkEvents gives what one event costs that a job of 100,000 tasks may have
// many of: a task that fails and is launched again, and an executor that is lost
// with one of the tasks.
func BenchmarkEvents(b *testing.B) {
	const tasks = 100_000
	running := func() *graph.Graph {
		g := graph.New(graph.Spec{
			JobID: "j", MaxTaskFailures: 1 << 30, MaxStageAttempts: 1 << 30,
			Stages: []graph.StageSpec{{ID: 1, Tasks: tasks, Deterministic: true}, {ID: 2, Tasks: 1, Inputs: []int{1}, Deterministic: true}},
		}, time.Unix(0, 0))
		g.Apply(graph.Start{}, time.Unix(0, 0))
		for n := range tasks {
			g.Apply(graph.TaskLaunched{Task: graph.TaskID{Stage: 1, Task: n}, StageAttempt: 1, Attempt: fmt.Sprint("a", n), Executor: "e"}, time.Unix(0, 0))
		}
		return g
	}
	last := graph.TaskID{Stage: 1, Task: tasks - 1}
	b.Run("failed", func(b *testing.B) {
		g := running()
		attempt := fmt.Sprint("a", last.Task)
		for i := 0; b.Loop(); i++ {
			g.Apply(graph.TaskFailed{Task: last, StageAttempt: 1, Attempt: attempt, Executor: "e", Class: graph.Retryable}, time.Unix(0, 0))
			attempt = fmt.Sprint("b", i)
			g.Apply(graph.TaskLaunched{Task: last, StageAttempt: 1, Attempt: attempt, Executor: "e"}, time.Unix(0, 0))
		}
	})
	b.Run("lost", func(b *testing.B) {
		g := running()
		g.Apply(graph.TaskFailed{Task: last, StageAttempt: 1, Attempt: fmt.Sprint("a", last.Task), Executor: "e", Class: graph.Retryable}, time.Unix(0, 0))
		for i := 0; b.Loop(); i++ {
			e := fmt.Sprint("e", i)
			g.Apply(graph.TaskLaunched{Task: last, StageAttempt: 1, Attempt: e, Executor: e}, time.Unix(0, 0))
			g.Apply(graph.ExecutorLost{Executor: e}, time.Unix(0, 0))
		}
	})
}
