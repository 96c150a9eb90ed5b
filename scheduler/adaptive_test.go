package scheduler

import (
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
)

func adaptiveCatalogs() *fakeCatalogs {
	return &fakeCatalogs{table: committest.NewCatalog(committest.Mode{}), planning: PlanningAdaptive}
}

// rowsOut has each task that makes an exchange say how many rows are in each of its
// outputs.
func rowsOut(e **fakeExecutor, rows func(output int) int64) func(*firnpb.TaskDefinition, plan.Node) *firnpb.TaskStatus {
	return func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		st := (*e).succeed(d, n)
		if _, writes := n.(*plan.Write); !writes {
			st.RowsOut = 0
			for i, o := range st.GetOutputs() {
				o.Rows, o.Bytes = rows(i), rows(i)*1000
				st.RowsOut += o.Rows
			}
		}
		return st
	}
}

// TestRoot35_AdaptiveInsertCommitsOnce: cut anew, an INSERT commits once, under push
// and pull, told of by stream and by poll, with an executor lost in between or not.
func TestRoot35_AdaptiveInsertCommitsOnce(t *testing.T) {
	for _, dispatch := range []string{DispatchPush, DispatchPull} {
		for _, form := range []string{"logical", "physical"} {
			for _, delivery := range []string{"stream", "poll"} {
				for _, executors := range []string{"stay", "lost"} {
					t.Run(strings.Join([]string{dispatch, form, delivery, executors}, "/"), func(t *testing.T) {
						testAdaptiveInsert(t, dispatch, form, delivery, executors == "lost")
					})
				}
			}
		}
	}
}

func testAdaptiveInsert(t *testing.T, dispatch, form, delivery string, lose bool) {
	h := startIn(t, t.TempDir(), adaptiveCatalogs(), func(c *Config) { c.Dispatch = dispatch })
	hold := newStop()
	var e1, e2 *fakeExecutor
	first := rowsOut(&e1, func(int) int64 { return 5 })
	e1 = startExecutor(t, h.s, executorOptions{id: "e1", slots: parts, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		if _, writes := n.(*plan.Write); writes && lose {
			hold.wait()
			return nil
		}
		return first(d, n)
	}})
	req := &firnpb.ExecuteRequest{Sql: "INSERT INTO mem.ns.t SELECT 2"}
	if form == "physical" {
		req = &firnpb.ExecuteRequest{Physical: physical(t, h, insertPlan(plan.Pinned{Name: committest.Name}, "", true))}
	}
	id := h.submit(req)
	if lose {
		receive(t, hold.arrived, "write")
		close(hold.release)
		e2 = startExecutor(t, h.s, executorOptions{id: "e2", slots: parts, task: rowsOut(&e2, func(int) int64 { return 5 })})
		h.lose(e1)
	}
	st := h.ended(id, delivery)
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	if st.GetStages()[1].GetTasks() != 1 || h.catalogs.table.Applied() != 1 || h.catalogs.table.Rows("main") != 10 {
		t.Errorf("%d commits, %d rows, %v", h.catalogs.table.Applied(), h.catalogs.table.Rows("main"), st.GetStages())
	}
}

// TestExplainAnalyze: it runs the statement and tells how its stages were cut, before
// and after.
func TestExplainAnalyze(t *testing.T) {
	for name, c := range map[string]struct {
		rows func(output int) int64
		want []string
		// commits is how many rows are committed.
		commits int64
	}{
		"merged":  {func(int) int64 { return 5 }, []string{"stage 1 (final): 2 tasks planned, 1 run; 10 rows", ", 1 file\n", "stage 0: 3 tasks; 30 rows"}, 10},
		"empty":   {func(n int) int64 { return int64(n) * 5 }, []string{"2 tasks planned, 1 run; 1 partition without rows; 10 rows"}, 10},
		"skewed":  {func(n int) int64 { return int64(n)*5_000_000 + 1 }, []string{"1 partition split"}, -1},
		"dropped": {func(int) int64 { return 0 }, []string{"2 tasks planned, 0 run; 2 partitions without rows; the stage is dropped"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := startIn(t, t.TempDir(), adaptiveCatalogs(), nil)
			var e *fakeExecutor
			e = startExecutor(t, h.s, executorOptions{id: "e1", slots: parts, task: rowsOut(&e, c.rows)})
			resp, err := h.execute(&firnpb.ExecuteRequest{Sql: "EXPLAIN ANALYZE INSERT INTO mem.ns.t SELECT 2", IdempotencyKey: "k"})
			must(t, err)
			r, err := wire.NewIPCReader(resp.GetRowsIpc())
			must(t, err)
			defer r.Release()
			var text strings.Builder
			for r.Next() {
				for i := range int(r.RecordBatch().NumRows()) {
					text.WriteString(r.RecordBatch().Column(0).ValueStr(i) + "\n")
				}
			}
			for _, want := range c.want {
				if !strings.Contains(text.String(), want) {
					t.Errorf("no %q in\n%s", want, text.String())
				}
			}
			if rows := h.catalogs.table.Rows("main"); c.commits >= 0 && rows != c.commits {
				t.Errorf("%d rows are committed", rows)
			}
		})
	}
	h := startIn(t, t.TempDir(), adaptiveCatalogs(), nil)
	_, err := h.execute(&firnpb.ExecuteRequest{Sql: "EXPLAIN ANALYZE SELECT 'bad'"})
	wantCode(t, err, commit.CodeNoExecutors)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	_, err = h.execute(&firnpb.ExecuteRequest{Sql: "EXPLAIN ANALYZE SELECT 'bad'"})
	wantCode(t, err, commit.CodeBadRequest)
}
