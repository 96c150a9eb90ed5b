package planner_test

import (
	"strings"
	"testing"

	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/planner"
)

func roundRobin(in plan.Node, n int) *plan.Exchange {
	return &plan.Exchange{Input: in, How: plan.ExchangeRoundRobin, Partitions: n}
}

// A pipelined job is planned statically, and says so and whether its tasks fit.
func TestPipelinedJobIsPlannedStatically(t *testing.T) {
	for slots, want := range map[int]string{
		7: "pipelined, planned statically: 7 tasks, 7 slots; all run at once\n",
		6: "pipelined, planned statically: 7 tasks, 6 slots; not all run at once: tasks wait for a slot, those that read others longest\n",
	} {
		j := planned(t, &plan.Coalesce{Input: roundRobin(query(3), 3)}, planner.Options{
			Mode: plan.ModePipelined, Adaptive: true, Slots: func() int { return slots },
		})
		text := planner.Explain(j, nil)
		if !strings.HasPrefix(text, want+"stage 2 (final): 1 task, reads stage 1 while it runs\n") {
			t.Errorf("%d slots:\n%s", slots, text)
		}
		spec := j.Spec()
		if !spec.Pipelined || spec.Validate() != nil {
			t.Errorf("%+v: %v", spec, spec.Validate())
		}
		for _, s := range spec.Stages {
			if s.Adapt != nil {
				t.Errorf("stage %d is adaptive", s.ID)
			}
		}
	}
}

// Rows that don't come again make their stage one that isn't deterministic: in a
// pipelined job always, as its first rows are read before the last, and else where they
// are spread, also by a later stage.
func TestStagesWhoseRowsDontComeAgain(t *testing.T) {
	for _, tt := range []struct {
		mode plan.Mode
		top  plan.Node
		want []bool
	}{
		{plan.ModePipelined, roundRobin(repeats(true), 2), []bool{true, true}},
		{plan.ModePipelined, roundRobin(repeats(false), 2), []bool{false, true}},
		{plan.ModePipelined, roundRobin(repeats(false), 1), []bool{false, true}},
		{plan.ModePipelined, repeats(false), []bool{false}},
		{plan.ModeStaged, repeats(false), []bool{true}},
		{plan.ModeStaged, roundRobin(roundRobin(repeats(false), 1), 2), []bool{true, false, true}},
		{plan.ModeStaged, roundRobin(roundRobin(repeats(true), 1), 2), []bool{true, true, true}},
		{plan.ModeStaged, roundRobin(roundRobin(repeats(false), 2), 2), []bool{false, true, true}},
	} {
		// The Coalesce makes the last exchange end a stage.
		j := planned(t, &plan.Coalesce{Input: tt.top}, planner.Options{Mode: tt.mode})
		for n, want := range tt.want {
			if got := j.Spec().Stages[n].Deterministic; got != want {
				t.Errorf("%s, stage %d: deterministic is %v\n%s", tt.mode, n, got, planner.Explain(j, nil))
			}
		}
	}
}

// repeats is a query in two tasks.
func repeats(deterministic bool) *plan.Query {
	q := query(2)
	q.Parallel, q.Deterministic = true, deterministic
	return q
}
