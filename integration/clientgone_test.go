//go:build integration

package integration_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/internal/flightsql/flightsqltest"
)

// TestInsertOutlivesItsClient: `firn sql` is killed while its INSERT runs. The job goes
// on without it; who comes back by the job's id or by its key waits for it and is told
// what became of it, and the statement under its key doesn't run again.
func TestInsertOutlivesItsClient(t *testing.T) {
	for _, delivery := range []string{"stream", "poll"} {
		t.Run(delivery, func(t *testing.T) {
			const endpoints, each = 2, 20_000
			g := newGate(endpoints)
			l := onEngine(t, &flightsqltest.Server{Endpoints: endpoints, Rows: each, Pace: g.pace}, 1)
			mark := l.scheduler.Mark()
			ctx, kill := context.WithCancel(t.Context())
			defer kill()
			gone := make(chan process.Result, 1)
			go func() {
				gone <- process.Run(ctx, t, "sql", "--server", l.scheduler.Address, "--idempotency-key", "k", "--delivery", delivery, "-c", fromEngine)
			}()
			<-g.reached
			var launch struct {
				Job string `json:"job_id"`
			}
			if err := json.Unmarshal([]byte(l.scheduler.AwaitLog(t, mark, `"msg":"task launched"`)), &launch); err != nil || launch.Job == "" {
				t.Fatalf("which job? %v", err)
			}
			kill() // with SIGKILL
			if r := <-gone; r.Code != -1 {
				t.Fatalf("the client ended before it was killed: exit code %d, %s%s", r.Code, r.Stdout, r.Stderr)
			}

			job := func(verb string, args ...string) process.Result {
				return process.Run(t.Context(), t, append([]string{"job", verb, "--server", l.scheduler.Address, "-o", "json"}, args...)...)
			}
			if w := written(t, job("describe", launch.Job)); w.State != "running" {
				t.Fatalf("the job is %s after its client was killed", w.State)
			}
			waits := make(chan process.Result, 2)
			go func() { waits <- job("wait", launch.Job) }()
			go func() { waits <- job("wait", "--key", "k") }()
			close(g.opened)
			for range cap(waits) {
				r := <-waits
				if r.Code != 0 {
					t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
				}
				if w := written(t, r); w.JobID != launch.Job || w.State != "succeeded" || w.Commit != "committed" || w.Rows != endpoints*each {
					t.Errorf("who waits is told %+v", w)
				}
			}
			if w := written(t, l.Try(fromEngine, "--idempotency-key", "k")); !w.Deduplicated || w.JobID != launch.Job {
				t.Errorf("the statement under its key: %+v", w)
			}
			l.once(endpoints*each, 1)
		})
	}
}
