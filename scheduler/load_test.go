package scheduler

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/sql"
)

const selectMany = "SELECT 'many'"

// many binds selectMany to a query of n tasks, everything else as ever.
func many(n int) func(*Config) {
	return func(c *Config) {
		bind := c.bindStatement
		c.bindStatement = func(ctx context.Context, st sql.Statement, s plan.Session, opts sql.BindOptions) (plan.Node, error) {
			top, err := bind(ctx, st, s, opts)
			if q, ok := top.(*plan.Query); ok && st.Body.(*sql.Select).Query.Text == selectMany {
				q.Partitions = slices.Repeat(q.Partitions[:1], n)
			}
			return top, err
		}
	}
}

// drained takes what the executor notes of what is asked of it.
func (e *fakeExecutor) drained() {
	go func() {
		for {
			select {
			case <-e.launched:
			case <-e.cancelled:
			case <-e.freed:
			case <-e.life.Done():
				return
			}
		}
	}()
}

// Jobs of a few tasks pass one of 100,000: of the slots that the large one gives
// back, they get their share at once, however many tasks it has queued.
func TestALargeJobDoesNotStarveOthers(t *testing.T) {
	for _, dispatch := range []string{DispatchPush, DispatchPull} {
		t.Run(dispatch, func(t *testing.T) {
			const small = 5
			h := start(t, func(c *Config) {
				many(100_000)(c)
				c.Dispatch = dispatch
			})
			release, large := make(chan struct{}), ""
			var e *fakeExecutor
			ready := make(chan struct{})
			e = startExecutor(t, h.s, executorOptions{id: "e1", slots: 2, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
				<-ready
				if d.GetJobId() == large {
					select {
					case <-release:
					case <-e.life.Done():
						return nil
					}
				}
				return e.succeed(d, n)
			}})
			large = h.submit(&firnpb.ExecuteRequest{Sql: selectMany})
			close(ready)
			for range e.slots {
				receive(t, e.launched, "task of the large job")
			}
			var others []string
			for range small {
				id := h.submit(&firnpb.ExecuteRequest{Sql: "SELECT 1"})
				h.waitUntil(id, func(st *firnpb.JobStatus) bool { return st.GetPhase() == graph.PhaseExecuting })
				others = append(others, id)
			}
			released := 0
			for launched := 0; launched < small*parts; released++ {
				if released > 3*parts {
					t.Fatalf("after %d tasks of the large job only %d of %d others were launched", released, launched, small*parts)
				}
				release <- struct{}{}
				for receive(t, e.launched, "task").GetJobId() != large {
					launched++
				}
			}
			for _, id := range others {
				wantState(t, h.wait(id), graph.Succeeded, commit.CommitNone)
			}
			// And it is cancelled as fast as it was queued.
			_, err := h.client.CancelJob(t.Context(), &firnpb.JobRequest{JobId: large})
			must(t, err)
			wantState(t, h.wait(large), graph.Cancelled, commit.CommitNone)
		})
	}
}

// BenchmarkSmokeTasks runs jobs of many tasks that do nothing, over real
// connections and with a journal on disk, and prints the tasks a second and the
// memory that the scheduler holds for a job of them. Beside it one job of three
// tasks after the other runs: its median and longest times are printed, too.
func BenchmarkSmokeTasks(b *testing.B) {
	for _, tasks := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(tasks), func(b *testing.B) {
			h := start(b, many(tasks))
			startExecutor(b, h.s, executorOptions{id: "e1", slots: 64}).drained()
			before := heap()
			var waits []time.Duration
			for b.Loop() {
				large := h.submit(&firnpb.ExecuteRequest{Sql: selectMany})
				for h.get(large).GetState() != string(graph.Succeeded) {
					began := time.Now()
					wantState(b, h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1"}), graph.Succeeded, commit.CommitNone)
					waits = append(waits, time.Since(began))
				}
			}
			b.ReportMetric(float64(tasks*b.N)/b.Elapsed().Seconds(), "tasks/s")
			b.ReportMetric((heap()-before)/float64(tasks*b.N), "bytes/task")
			slices.Sort(waits)
			b.ReportMetric(float64(waits[len(waits)/2].Milliseconds()), "ms/small-job")
			b.ReportMetric(float64(waits[len(waits)-1].Milliseconds()), "ms/slowest")
		})
	}
}

// heap is the bytes that are in use.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
