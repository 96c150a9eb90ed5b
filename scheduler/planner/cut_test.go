package planner_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/planner"
)

func TestStages(t *testing.T) {
	limit := int64(5)
	for name, tt := range map[string]struct {
		top  plan.Node
		want string // tasks>outputs of each stage
	}{
		"select":                  {query(3), "3>1"},
		"whole select":            {query(1), "1>1"},
		"coalesced select":        {&plan.Coalesce{Input: query(3)}, "3>1 1>1"},
		"limit over one":          {&plan.Coalesce{Input: query(1), Limit: &limit}, "1>1"},
		"round robin writers":     {write(&plan.Exchange{Input: query(1), How: plan.ExchangeRoundRobin, Partitions: 4}), "1>4 4>1"},
		"hash writers":            {write(hash(query(3), 2)), "3>2 2>1"},
		"single then round robin": {write(&plan.Exchange{Input: &plan.Exchange{Input: query(3), How: plan.ExchangeSingle, Partitions: 1}, How: plan.ExchangeRoundRobin, Partitions: 2}), "3>1 1>2 2>1"},
	} {
		t.Run(name, func(t *testing.T) {
			j := planned(t, tt.top, planner.Options{})
			var got []string
			for i, s := range j.Stages {
				if s.ID != i {
					t.Errorf("stage %d has id %d", i, s.ID)
				}
				if i > 0 && (len(s.Inputs) != 1 || s.Inputs[0] != i-1) {
					t.Errorf("stage %d reads %v", i, s.Inputs)
				}
				got = append(got, string(rune('0'+s.Tasks))+">"+string(rune('0'+s.Outputs)))
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Fatalf("stages %s, want %s", s, tt.want)
			}
			if err := specProblem(j); err != "" {
				t.Fatal(err)
			}
		})
	}
}

// specProblem checks what the graph relies on.
func specProblem(j *planner.Job) string {
	spec := j.Spec()
	if spec.MaxTaskFailures == 0 || spec.MaxStageAttempts == 0 {
		return "no limits on failures"
	}
	for i, s := range spec.Stages {
		for _, in := range s.Inputs {
			if spec.Stages[in].Outputs != s.Tasks {
				return "an output partition has no reader"
			}
		}
		if i == len(spec.Stages)-1 && s.Outputs != 1 {
			return "a final task has several outputs"
		}
	}
	return ""
}

// A stage that spreads rows over several partitions may only be rerun task by
// task when it spreads them the same way each time.
func TestDeterministic(t *testing.T) {
	volatile := planned(t, write(hash(query(3), 2)), planner.Options{})
	if volatile.Stages[0].Deterministic || !volatile.Stages[1].Deterministic {
		t.Errorf("volatile query: %+v", volatile.Spec().Stages)
	}
	q := query(3)
	q.Deterministic = true
	if stable := planned(t, write(hash(q, 2)), planner.Options{}); !stable.Stages[0].Deterministic {
		t.Error("a deterministic query makes a deterministic stage")
	}
	whole := query(1)
	whole.Deterministic = true
	if j := planned(t, write(hash(whole, 2)), planner.Options{}); j.Stages[0].Deterministic {
		t.Error("a whole query gives its rows in no order to rely on")
	}
	if one := planned(t, write(query(3)), planner.Options{}); !one.Stages[0].Deterministic {
		t.Error("a task with one output is read as a whole")
	}
}

func TestFragmentHasOnlyTheTasksSlice(t *testing.T) {
	top := write(query(3))
	j := planned(t, top, planner.Options{})
	for task := range 3 {
		b, err := j.Fragment(0, task, nil)
		if err != nil {
			t.Fatal(err)
		}
		n, err := plan.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		q := n.(*plan.Write).Input.(*plan.Query)
		want := top.Input.(*plan.Query).Sources[0].Files[task].Path
		if len(q.Partitions) != 1 || len(q.Partitions[0]) != 1 || q.Partitions[0][0].Path != want {
			t.Fatalf("task %d has partitions %v", task, q.Partitions)
		}
		if f := q.Sources[0].Files; len(f) != 1 || f[0].Path != want {
			t.Fatalf("task %d has files %v", task, f)
		}
	}
	if q := top.Input.(*plan.Query); len(q.Partitions) != 3 || len(q.Sources[0].Files) != 3 {
		t.Fatal("narrowing changed the job's plan")
	}
}

func TestFragmentHasItsInputs(t *testing.T) {
	j := planned(t, write(hash(query(2), 3)), planner.Options{})
	in := []plan.ShuffleLocation{{Stage: 0, Task: 0, Attempt: "a-1", Output: 2}, {Stage: 0, Task: 1, Attempt: "a-2", Output: 2}}
	b, err := j.Fragment(1, 2, in)
	if err != nil {
		t.Fatal(err)
	}
	n, err := plan.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	r := n.(*plan.Write).Input.(*plan.ShuffleRead)
	if r.Stage != 0 || len(r.Locations) != 2 || r.Locations[1].Attempt != "a-2" || len(r.Columns) != 1 {
		t.Fatalf("shuffle read = %+v", r)
	}
	first, err := j.Fragment(0, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := plan.Decode(first); n.Kind() != plan.KindExchange {
		t.Fatalf("the first stage ends in %s, want its exchange", n.Kind())
	}
}

func TestFragmentOfNoTask(t *testing.T) {
	j := planned(t, query(2), planner.Options{})
	for _, at := range [][2]int{{-1, 0}, {1, 0}, {0, 2}, {0, -1}} {
		if _, err := j.Fragment(at[0], at[1], nil); err == nil {
			t.Errorf("stage %d task %d: no error", at[0], at[1])
		}
	}
}

func TestBadPlans(t *testing.T) {
	loop := &plan.Coalesce{}
	loop.Input = loop
	outside := query(2)
	outside.Partitioned = 7
	for name, top := range map[string]plan.Node{
		"no input":                &plan.Write{},
		"loop":                    loop,
		"no partitions":           write(&plan.Exchange{Input: query(2), How: plan.ExchangeRoundRobin}),
		"many partitions":         write(&plan.Exchange{Input: query(2), How: plan.ExchangeRoundRobin, Partitions: 1 << 30}),
		"single of two":           write(&plan.Exchange{Input: query(2), How: plan.ExchangeSingle, Partitions: 2}),
		"hash of nothing":         write(&plan.Exchange{Input: query(2), How: plan.ExchangeHash, Partitions: 2}),
		"shuffle read":            &plan.ShuffleRead{},
		"partitions of no source": outside,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := planner.PlanJob(t.Context(), top, planner.Options{JobID: "j-1", Root: planner.DefaultRoot})
			wantError(t, err, commit.CodeBadPlan, "j-1")
		})
	}
}

func TestBindFails(t *testing.T) {
	want := errors.New("no such table")
	_, err := planner.PlanJob(t.Context(), &plan.Logical{}, planner.Options{
		Bind: func(context.Context, *plan.Logical) (plan.Node, error) { return nil, want },
	})
	if !errors.Is(err, want) {
		t.Fatal(err)
	}
	if _, err := planner.PlanJob(t.Context(), &plan.Logical{}, planner.Options{}); err == nil {
		t.Fatal("a logical plan without a binder")
	}
}

func TestExplain(t *testing.T) {
	j := planned(t, commitOver(write(hash(query(3), 2))), planner.Options{Root: planner.DefaultRoot})
	const want = `scheduler root: commit append to lake.air.t, branch main (iceberg)
stage 1 (final): 2 tasks
  write lake.air.t, files of about 512 MiB
    shuffle read of stage 0
stage 0: 3 tasks
  exchange: hash into 2 partitions by the table's partitions
    query: parallel over 3 partitions (row-wise over one source)
      source parquet /in/*.parquet: 3 files
      sql SELECT * FROM firn_s0
`
	if got := planner.Explain(j, nil); got != want {
		t.Fatalf("got:\n%s\nwant:\n%s", got, want)
	}
}
