package planner_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/planner"
)

// overFrames is a query over cached frames of so many pieces.
func overFrames(parallel bool, pieces ...int) *plan.Query {
	q := &plan.Query{SQL: "SELECT a FROM firn_s0", Parallel: parallel, Deterministic: true, Why: "a test", Columns: []plan.Column{{Name: "a", Type: "BIGINT"}}}
	for i, n := range pieces {
		id := "f-" + string(rune('0'+i))
		q.Sources = append(q.Sources, plan.Source{
			View: []string{"firn_s" + string(rune('0'+i))}, Kind: plan.SourceFrame, Frame: &plan.Frame{ID: id, Pieces: n, Repeats: i == 0, Bytes: 1 << 30},
		})
	}
	return q
}

// TestQueriesOverFrames: a frame is a stage of its pieces, which nobody runs. What
// handles each row by itself is cut by their sizes, also under static planning, but
// not in a pipelined job; everything else reads all pieces.
func TestQueriesOverFrames(t *testing.T) {
	slots := func() int { return 4 }
	for name, v := range map[string]struct {
		top      plan.Node
		mode     plan.Mode
		adapt    bool
		readsAll bool
		repeats  bool
		inputs   []int
		query    string
	}{
		"parallel":  {overFrames(true, 3), plan.ModeStaged, true, false, true, []int{0}, "1 task, cut by the sizes of the frame's pieces\n  query: parallel over the pieces of a cached frame (a test)"},
		"whole":     {overFrames(false, 3), plan.ModeStaged, false, true, false, []int{0}, "1 task\n  query: whole, in one task (a test)"},
		"kept":      {overFrames(true, 3), plan.ModeCached, true, false, true, []int{0}, "query: parallel over the pieces of a cached frame (a test)"},
		"pipelined": {overFrames(true, 3), plan.ModePipelined, false, true, true, []int{0}, "1 task\n  query: row by row, over all pieces of a cached frame in one task (a test)"},
		"a join":    {overFrames(false, 3, 2), plan.ModeStaged, false, true, false, []int{0, 1}, "query: whole, in one task (a test)"},
		"an insert": {commitOver(write(overFrames(true, 3))), plan.ModeStaged, true, false, false, []int{0}, "query: parallel over the pieces of a cached frame (a test)"},
	} {
		t.Run(name, func(t *testing.T) {
			j := planned(t, v.top, planner.Options{Mode: v.mode, Root: planner.DefaultRoot, Slots: slots})
			last := j.Final()
			if (last.Adapt != nil) != v.adapt || last.ReadsAll != v.readsAll || !slices.Equal(last.Inputs, v.inputs) {
				t.Fatalf("%+v", last)
			}
			if v.adapt && last.Adapt.Tasks < 4 {
				t.Errorf("cut for %d tasks", last.Adapt.Tasks)
			}
			if text := planner.Explain(j, nil); !strings.Contains(text, v.query) {
				t.Errorf("want %q:\n%s", v.query, text)
			}
			if err := j.Spec().Validate(); err != nil {
				t.Fatal(err)
			}
			for i, id := range v.inputs {
				st := j.Stages[id]
				if st.Frame != "f-"+string(rune('0'+i)) || st.Tasks != 3-i || st.Outputs != 1 || st.Deterministic != (i == 0) {
					t.Errorf("stage %d: %+v", id, st)
				}
				if _, err := j.Fragment(id, 0, nil); err == nil {
					t.Error("a frame's stage was made a task of")
				}
			}
			if v.mode == plan.ModeStaged && j.Root == nil && j.Repeats() != v.repeats {
				t.Errorf("repeats: %t", j.Repeats())
			}
			raw, err := j.Fragment(last.ID, 0, []plan.ShuffleLocation{{Job: "b", Attempt: "a-0", Frame: "f-0"}, {Job: "b", Attempt: "a-1", Frame: "f-1"}})
			if err != nil {
				t.Fatal(err)
			}
			n, err := plan.Decode(raw)
			if err != nil {
				t.Fatal(err)
			}
			for len(n.Inputs()) > 0 {
				n = n.Inputs()[0]
			}
			for i, src := range n.(*plan.Query).Sources {
				if l := src.Frame.Locations; len(l) != 1 || l[0].Attempt != "a-"+string(rune('0'+i)) {
					t.Errorf("source %d reads %+v", i, l)
				}
			}
			if text := planner.Explain(j, nil); !strings.Contains(text, "stage 0: cached frame f-0, 3 pieces") {
				t.Error(text)
			}
		})
	}
	bad := overFrames(true, 3)
	bad.Sources = append(bad.Sources, plan.Source{View: []string{"x"}, Kind: plan.SourceParquet})
	_, err := planner.PlanJob(t.Context(), bad, planner.Options{JobID: "j-1"})
	wantError(t, err, commit.CodeBadPlan, "j-1", "in parallel")
}

// TestFlightBesideAFrame: an engine's query is found, and gets its new endpoints, also in
// a stage that isn't the first one.
func TestFlightBesideAFrame(t *testing.T) {
	q := overFrames(false, 2)
	q.Sources = append(q.Sources, plan.Source{View: []string{"e"}, Kind: plan.SourceFlightSQL, Flight: &plan.FlightSource{Name: "engine", Execution: 1}, Files: make([]plan.SourceFile, 2)})
	j, err := planner.PlanJob(t.Context(), q, planner.Options{JobID: "j-1"})
	if err != nil {
		t.Fatal(err)
	}
	found := j.FlightSources()
	if len(found) != 1 || found[1].Flight == nil {
		t.Fatalf("found %+v", found)
	}
	src := found[1]
	src.Flight, src.Files = &plan.FlightSource{Name: "engine", Execution: 2}, make([]plan.SourceFile, 3)
	got := j.Reread(map[int]plan.Source{1: src}).FlightSources()[1]
	if got.Flight.Execution != 2 || len(got.Files) != 3 || j.FlightSources()[1].Flight.Execution != 1 {
		t.Errorf("%+v", got)
	}
	raw, err := j.Reread(map[int]plan.Source{1: src}).Fragment(1, 0, nil)
	if err != nil || !strings.Contains(string(raw), `"Execution":2`) {
		t.Errorf("%s, %v", raw, err)
	}
}
