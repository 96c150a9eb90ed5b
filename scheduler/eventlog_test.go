package scheduler

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/eventlog"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/jobview"
)

// logged reads a job's events once the scheduler has closed.
func (h *harness) logged(dir, id string) []eventlog.Event {
	h.t.Helper()
	h.close()
	raw, err := os.ReadFile(filepath.Join(dir, id+".jsonl"))
	must(h.t, err)
	var all []eventlog.Event
	for line := range strings.Lines(string(raw)) {
		var e eventlog.Event
		must(h.t, json.Unmarshal([]byte(line), &e))
		all = append(all, e)
	}
	return all
}

// What was logged of the job's end is what is shown of it, stages included, and
// the transitions come in the order in which they happened.
func TestRoot33_TheEventLogHasWhatIsShown(t *testing.T) {
	dir := t.TempDir()
	h := start(t, func(c *Config) { c.EventDir = dir })
	var failed bool
	var e *fakeExecutor
	ready := make(chan struct{})
	e = startExecutor(t, h.s, executorOptions{id: "e1", slots: 1, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		<-ready
		if !failed { // one slot: one task at a time
			failed = true
			return fail(d, errors.New("connection reset"), "retryable")
		}
		return e.succeed(d, n)
	}})
	close(ready)
	st := h.run(&firnpb.ExecuteRequest{Sql: "INSERT INTO mem.ns.t SELECT 2"})
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	all := h.logged(dir, st.GetJobId())

	last := all[len(all)-1]
	want := jobview.JobOf(st)
	if last.Kind != eventlog.JobEnded || last.View == nil || !reflect.DeepEqual(last.View.Stages, want.Stages) {
		t.Fatalf("logged %+v\nshown %+v", last.View, want)
	}
	last.View.Revision = want.Revision // grows with what is told
	if !reflect.DeepEqual(*last.View, want) {
		t.Errorf("logged %+v\nshown %+v", last.View, want)
	}
	var got []string
	for _, e := range all {
		switch e.Kind {
		case eventlog.JobChanged:
			got = append(got, strings.Join(strings.Fields(e.State+" "+e.Phase+" "+e.Commit), "/"))
		case eventlog.StageChanged:
			got = append(got, e.Stage+" "+e.State)
		case eventlog.TaskEnded:
			if e.State == "failed" && !strings.Contains(e.Cause, "connection reset") {
				t.Errorf("%+v", e)
			}
		}
	}
	path := []string{
		"planning/none", "0 resolved", "running/executing/none", "0 running", "0 succeeded", "1 running", "1 succeeded",
		"running/committing/preparing", "scheduler running", "running/committing/in_flight", "scheduler succeeded", "succeeded/committed",
	}
	at := -1
	for _, step := range path {
		next := slices.Index(got[at+1:], step)
		if next < 0 {
			t.Fatalf("no %q after %q in %q", step, got[:at+1], got)
		}
		at += 1 + next
	}
	kinds := map[string]int{}
	for _, e := range all {
		kinds[e.Kind+" "+e.State]++
	}
	if tasks := parts + 2; kinds["task_ended succeeded"] != tasks || kinds["task_ended failed"] != 1 || kinds["task_started running"] != tasks+1 || kinds["job_submitted queued"]+kinds["job_submitted planning"] != 1 {
		t.Errorf("%v", kinds)
	}
}

// A cancel that comes too late is nowhere in the log; one that wins is there once,
// with what became of the table.
func TestW18_TheLogTellsWhatCameToPass(t *testing.T) {
	for _, late := range []bool{true, false} {
		dir := t.TempDir()
		h := start(t, func(c *Config) { c.EventDir = dir })
		startExecutor(t, h.s, executorOptions{id: "e1"})
		hold := newStop()
		want, answer := graph.Succeeded, graph.AnswerCommitInFlight
		if late {
			h.catalogs.set(func() { h.catalogs.send = hold.wait })
		} else {
			want, answer = graph.Cancelled, graph.AnswerCancelled
			h.catalogs.set(func() { h.catalogs.build = hold.wait })
		}
		id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
		receive(t, hold.arrived, "commit")
		resp, err := h.client.CancelJob(t.Context(), &firnpb.JobRequest{JobId: id})
		must(t, err)
		if resp.GetAnswer() != answer {
			t.Fatal(resp.GetAnswer())
		}
		close(hold.release)
		st := h.wait(id)
		for _, e := range h.logged(dir, id) {
			if e.Kind != eventlog.JobEnded && e.Kind != eventlog.JobChanged {
				continue
			}
			if ended := endedState(e.State); ended && e.State != string(want) {
				t.Errorf("logged %+v of a job that is %s", e, st.GetState())
			}
			if e.Kind == eventlog.JobEnded && e.Commit != st.GetCommit() {
				t.Errorf("logged commit %s, shown %s", e.Commit, st.GetCommit())
			}
		}
	}
}

func TestNoEventLogUnlessAskedFor(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	wantState(t, h.run(&firnpb.ExecuteRequest{Sql: insert}), graph.Succeeded, commit.CommitCommitted)
	if left, err := filepath.Glob(filepath.Join(h.dir, "*.jsonl")); err != nil || len(left) > 0 {
		t.Fatalf("%v, %v", left, err)
	}
}
