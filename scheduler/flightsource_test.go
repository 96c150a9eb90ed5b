package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightsql"
	"github.com/firn-project/firn/internal/flightsql/flightsqltest"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/flightsource"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/sql"
)

// readsEngine has INSERTs read an engine; the source is that of the registry.
func readsEngine(t *testing.T, s *flightsqltest.Server) (*flightsource.Registry, func(*Config)) {
	t.Helper()
	addr, stop, err := s.Start()
	must(t, err)
	t.Cleanup(stop)
	r, err := flightsource.Open(flightsource.Options{Configs: []flightsource.Config{{Name: "engine", URI: "grpc://" + addr, Token: s.Token}}})
	must(t, err)
	return r, func(c *Config) {
		c.Flight = r
		bind := c.bindStatement
		c.bindStatement = func(ctx context.Context, st sql.Statement, session plan.Session, opts sql.BindOptions) (plan.Node, error) {
			top, err := bind(ctx, st, session, opts)
			if err != nil {
				return nil, err
			}
			src, err := opts.RunQuery(ctx, "engine", "q")
			if err != nil {
				return nil, err
			}
			return plan.Rewrite(top, func(n plan.Node) {
				if q, ok := n.(*plan.Query); ok {
					src.View = q.Sources[0].View
					q.Sources, q.Deterministic, q.Partitions = []plan.Source{src}, false, nil
					for i := range src.Files {
						q.Partitions = append(q.Partitions, src.Files[i:i+1])
					}
				}
			}), nil
		}
	}
}

// TestSourceAccessIsForWhoRunsTheJob: an executor gets what reaches an engine while it
// runs an attempt of a job that reads it, and nobody else ever.
func TestSourceAccessIsForWhoRunsTheJob(t *testing.T) {
	_, edit := readsEngine(t, &flightsqltest.Server{Endpoints: parts, Rows: 1, Token: "canary-token"})
	h := start(t, edit)
	hold := newStop()
	var e1 *fakeExecutor
	e1 = startExecutor(t, h.s, executorOptions{id: "e1", slots: parts, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		hold.wait()
		return e1.succeed(d, n)
	}})
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	d := receive(t, e1.launched, "task")
	e2 := startExecutor(t, h.s, executorOptions{id: "e2"})
	ask := func(e *fakeExecutor, job, source string) (*firnpb.SourceAccessResponse, error) {
		return e.sched.SourceAccess(t.Context(), &firnpb.SourceAccessRequest{ExecutorId: e.id, Incarnation: e.incarnation, JobId: job, Source: source})
	}
	if strings.Contains(string(d.GetFragment()), "canary") {
		t.Errorf("the token travels with the task: %s", d.GetFragment())
	}
	got, err := ask(e1, id, "engine")
	must(t, err)
	var a flightsql.Access
	if err := json.Unmarshal(got.GetAccess(), &a); err != nil || a.Authorization != "Bearer canary-token" {
		t.Errorf("%+v, %v", a.Name, err)
	}
	refused := func(what string, e *fakeExecutor, job, source string) {
		t.Helper()
		if got, err := ask(e, job, source); commit.CodeOf(wire.FromStatus(err)) != commit.CodeStoreKeysRefused || len(got.GetAccess()) > 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("an executor without an attempt", e2, id, "engine")
	refused("a job that isn't there", e1, "j-none", "engine")
	refused("a source that the job doesn't read", e1, id, "other")
	got, err = e1.sched.SourceAccess(t.Context(), &firnpb.SourceAccessRequest{ExecutorId: "e1", Incarnation: "another", JobId: id, Source: "engine"})
	if err != nil || got.GetKnown() || len(got.GetAccess()) > 0 {
		t.Errorf("another incarnation: %v %v", got, err)
	}
	close(hold.release)
	wantState(t, h.wait(id), graph.Succeeded, commit.CommitCommitted)
	refused("after the end", e1, id, "engine")
}

// TestALostSourceIsReadAnew: when an executor says that an engine's part is gone, all
// tasks read another execution, which is on record by then.
func TestALostSourceIsReadAnew(t *testing.T) {
	engine := &flightsqltest.Server{Endpoints: parts, Rows: 1}
	_, edit := readsEngine(t, engine)
	h := start(t, edit)
	var e *fakeExecutor
	e = startExecutor(t, h.s, executorOptions{id: "e", slots: parts, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		src := n.Inputs()[0].(*plan.Query).Sources[0]
		if want := fmt.Sprint(src.Flight.Execution, "/", d.GetTask()); string(src.Files[0].Endpoint.Ticket) != want {
			t.Errorf("task %d of execution %d has the ticket %s", d.GetTask(), src.Flight.Execution, src.Files[0].Endpoint.Ticket)
		}
		raw, err := h.s.journal.Plan(t.Context(), d.GetJobId())
		must(t, err)
		body, _, err := splitPlanRecord(raw)
		must(t, err)
		onRecord := false // a later one may be by now
		for n := src.Flight.Execution; n <= 3; n++ {
			onRecord = onRecord || strings.Contains(string(body), fmt.Sprintf(`"Execution":%d`, n))
		}
		if !onRecord {
			t.Errorf("a task reads execution %d, which isn't on record: %s", src.Flight.Execution, body)
		}
		if src.Flight.Execution < 3 && d.GetTask() == 1 {
			st := statusFor(d, "failed")
			st.Error = wire.TaskErrorToProto(&commit.Error{Code: commit.CodeFlightLost, Op: "read", Cause: context.Canceled})
			return st
		}
		return e.succeed(d, n)
	}})
	st := h.wait(h.submit(&firnpb.ExecuteRequest{Sql: insert}))
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	if got := engine.Executions(); got != 3 || st.GetReport().GetFiles() != parts {
		t.Errorf("%d executions, %d files", got, st.GetReport().GetFiles())
	}
	if got := len(engine.Cancelled()); got != 2 {
		t.Errorf("%d earlier executions were cancelled", got)
	}
}

// TestALostSourceOfAJobWithoutOne fails that job, and nothing else.
func TestALostSourceOfAJobWithoutOne(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e", slots: parts, task: func(d *firnpb.TaskDefinition, _ plan.Node) *firnpb.TaskStatus {
		st := statusFor(d, "failed")
		st.Error = wire.TaskErrorToProto(&commit.Error{Code: commit.CodeFlightLost, Op: "read", Cause: context.Canceled})
		return st
	}})
	wantState(t, h.wait(h.submit(&firnpb.ExecuteRequest{Sql: insert})), graph.JobFailed, commit.CommitNone)
}
