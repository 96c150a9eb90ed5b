package scheduler

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/sql"
)

// bindUploads binds FROM id to a query over the upload, unless used says why not.
func bindUploads(used func(plan.Upload) error) func(*Config) {
	return func(c *Config) {
		inner := c.bindStatement
		c.bindStatement = func(ctx context.Context, st sql.Statement, s plan.Session, o sql.BindOptions) (plan.Node, error) {
			sel, ok := st.Body.(*sql.Select)
			if !ok || !strings.HasPrefix(sel.Query.Text, "FROM ") {
				return inner(ctx, st, s, o)
			}
			up, columns, err := o.Uploads(strings.TrimPrefix(sel.Query.Text, "FROM "))
			if err == nil {
				err = used(up)
			}
			if err != nil {
				return nil, err
			}
			q := queryPlan()
			q.Columns = columns
			q.Sources = append(q.Sources, plan.Source{View: []string{"firn_u0"}, Kind: plan.SourceUpload, Upload: &up})
			return q, nil
		}
	}
}

func anyUpload(plan.Upload) error { return nil }

func (h *harness) openUpload() *firnpb.OpenUploadResponse {
	h.t.Helper()
	schema, err := wire.EncodeIPC(rowBatch(0).Schema())
	must(h.t, err)
	resp, err := h.client.OpenUpload(h.t.Context(), &firnpb.OpenUploadRequest{ArrowSchema: schema})
	must(h.t, err)
	return resp
}

// again starts a scheduler where another one was, which must have been closed.
func again(t *testing.T, dir, addr string, edits ...func(*Config)) *harness {
	t.Helper()
	return startIn(t, dir, &fakeCatalogs{table: committest.NewCatalog(committest.Mode{})}, func(c *Config) {
		c.Listen = addr
		for _, edit := range edits {
			edit(c)
		}
	})
}

// returned waits until the executor has registered again.
func (h *harness) returned(e *fakeExecutor) {
	h.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for here := false; !here; <-tick.C {
		must(h.t, h.s.loop.call(h.t.Context(), func() {
			known := h.s.state.executors[e.id]
			here = known != nil && !known.returning
		}))
	}
}

func (h *harness) uploadsOnRecord() (ids []string) {
	h.t.Helper()
	all, err := h.s.journal.Uploads(h.t.Context())
	must(h.t, err)
	for _, u := range all {
		ids = append(ids, u.ID)
	}
	return ids
}

// awaitUploads waits until just these are on record.
func (h *harness) awaitUploads(want ...string) {
	h.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !slices.Equal(h.uploadsOnRecord(), want) {
		<-tick.C
	}
}

func TestUploadsOutliveTheProcess(t *testing.T) {
	h := start(t, bindUploads(anyUpload))
	dir, addr := h.dir, h.s.Addr()
	e := startExecutor(t, h.s, executorOptions{id: "e1"})
	used, left, expired := h.openUpload().GetUploadId(), h.openUpload().GetUploadId(), h.openUpload().GetUploadId()
	rec, err := h.s.journal.Uploads(t.Context())
	must(t, err)
	old := rec[2]
	old.Expires = time.Now().Add(-time.Second)
	must(t, h.s.journal.Write(t.Context(), journal.Batch{Uploads: []journal.Upload{old}}))
	h.close()

	h = again(t, dir, addr, bindUploads(anyUpload))
	h.returned(e)
	if f := receive(t, e.freed, "free"); f.GetJobId() != expired {
		t.Fatalf("freed %v, want the upload that has expired", f)
	}
	wantState(t, h.run(&firnpb.ExecuteRequest{Sql: "FROM " + used}), graph.Succeeded, commit.CommitNone)
	if f := receive(t, e.freed, "free"); f.GetJobId() != used {
		t.Fatalf("freed %v, want the upload that was read", f)
	}
	h.awaitUploads(left)
	// With its executor's process the upload is gone.
	e.kill()
	startExecutor(t, h.s, executorOptions{id: "e1"})
	st := h.run(&firnpb.ExecuteRequest{Sql: "FROM " + left})
	if st.GetError().GetCode() != string(commit.CodeUploadNotFound) {
		t.Fatalf("%v", st)
	}
	h.awaitUploads()
}

// A job that a process left, planned or not, goes on holding its upload, however
// old that is, and frees it with its end.
func TestJobsGoOnHoldingTheirUploads(t *testing.T) {
	for _, planned := range []bool{false, true} {
		t.Run(map[bool]string{false: "not planned", true: "planned"}[planned], func(t *testing.T) {
			stop, look := newStop(), newStop()
			release, bind := sync.OnceFunc(func() { close(stop.release) }), sync.OnceFunc(func() { close(look.release) })
			defer release()
			defer bind()
			h := start(t, bindUploads(func(plan.Upload) error {
				if planned {
					return nil
				}
				stop.wait()
				return errClosing()
			}))
			dir, addr := h.dir, h.s.Addr()
			var e *fakeExecutor
			e = startExecutor(t, h.s, executorOptions{id: "e1", task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
				if planned {
					stop.wait()
				}
				return e.succeed(d, n)
			}})
			up := h.openUpload().GetUploadId()
			id := h.submit(&firnpb.ExecuteRequest{Sql: "FROM " + up})
			receive(t, stop.arrived, "start")
			rec, err := h.s.journal.Uploads(t.Context())
			must(t, err)
			rec[0].Expires = time.Now().Add(-time.Second)
			must(t, h.s.journal.Write(t.Context(), journal.Batch{Uploads: rec}))
			if !planned {
				must(t, h.s.loop.call(t.Context(), func() { h.s.state.closing = true }))
				release()
			}
			h.close()

			h = again(t, dir, addr, bindUploads(func(plan.Upload) error { look.wait(); return nil }))
			h.returned(e)
			if !planned {
				receive(t, look.arrived, "plan")
			}
			must(t, h.s.loop.call(t.Context(), func() { h.s.tick(time.Now()) }))
			if ids := h.uploadsOnRecord(); !slices.Equal(ids, []string{up}) {
				t.Fatalf("uploads on record: %v", ids)
			}
			bind()
			if planned {
				release()
			}
			wantState(t, h.wait(id), graph.Succeeded, commit.CommitNone)
			for receive(t, e.freed, "free").GetJobId() != up {
				continue // stages of the job
			}
			h.awaitUploads()
		})
	}
}

// An executor that comes back is told what of its data nobody needs any more.
func TestAReturningExecutorFreesWhatEnded(t *testing.T) {
	h := start(t, func(c *Config) {
		bindUploads(anyUpload)(c)
		c.ResultTTL = 400 * time.Millisecond
	})
	e := startExecutor(t, h.s, executorOptions{id: "e1"})
	dir, addr := h.dir, h.s.Addr()
	rows := h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1"}).GetJobId()
	inserted := h.run(&firnpb.ExecuteRequest{Sql: insert}).GetJobId()
	up := h.openUpload().GetUploadId()
	for receive(t, e.freed, "free").GetJobId() != inserted {
		continue
	}
	e.mu.Lock()
	e.holds = []string{rows, inserted, up, "j-of-another"}
	e.mu.Unlock()
	h.close()

	h = again(t, dir, addr, func(c *Config) { c.ResultTTL = 400 * time.Millisecond })
	h.returned(e)
	freed := map[string]bool{}
	for len(freed) < 3 {
		freed[receive(t, e.freed, "free").GetJobId()] = true
	}
	if !freed[rows] || !freed[inserted] || !freed["j-of-another"] {
		t.Fatalf("freed %v", freed)
	}
	ended, err := h.s.journal.Job(t.Context(), rows)
	must(t, err)
	if since := time.Since(ended.Ended); since < 400*time.Millisecond {
		t.Errorf("rows were freed %s after the end of their job", since)
	}
}

// What an executor couldn't be told to free is said again.
func TestFreeIsRepeated(t *testing.T) {
	h := start(t, nil)
	e := startExecutor(t, h.s, executorOptions{id: "e1"})
	e.refuse.Store(3)
	id := h.run(&firnpb.ExecuteRequest{Sql: insert}).GetJobId()
	for {
		if f := receive(t, e.freed, "free"); f.GetJobId() == id && len(f.GetStages()) == 0 {
			return
		}
	}
}
