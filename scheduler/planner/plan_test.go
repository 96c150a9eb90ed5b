package planner_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/planner"
)

// canary is what must never leave the scheduler's process.
const canary = "canary-catalog-secret"

func query(partitions int) *plan.Query {
	q := &plan.Query{
		SQL: "SELECT * FROM firn_s0", Parallel: partitions > 1, Why: "row-wise over one source",
		Columns: []plan.Column{{Name: "a", Type: "BIGINT"}},
		Sources: []plan.Source{{View: []string{"firn_s0"}, Kind: plan.SourceParquet, Patterns: []string{"/in/*.parquet"}}},
	}
	for i := range partitions {
		f := plan.SourceFile{Path: fmt.Sprintf("/in/%d.parquet", i), Rows: 10}
		q.Sources[0].Files = append(q.Sources[0].Files, f)
		if q.Parallel {
			q.Partitions = append(q.Partitions, []plan.SourceFile{f})
		}
	}
	return q
}

func write(in plan.Node) *plan.Write {
	return &plan.Write{Input: in, Context: plan.WriteContext{Table: table, Prefix: "file:///w/data/j-1/", TargetFileSize: 512 << 20}}
}

var table = commit.TableName{Catalog: "lake", Namespace: []string{"air"}, Name: "t"}

func commitOver(in plan.Node) *plan.Commit {
	return &plan.Commit{
		Input: in, Branch: "main", Operation: commit.OperationAppend,
		Target: plan.Pinned{Name: table, Format: "iceberg", UUID: "u", MetadataLocation: canary},
	}
}

func hash(in plan.Node, n int) *plan.Exchange {
	return &plan.Exchange{Input: in, How: plan.ExchangeHash, Partitions: n, Layout: &plan.Layout{Format: "iceberg"}}
}

func planned(t *testing.T, p plan.Plan, opts planner.Options) *planner.Job {
	t.Helper()
	opts.JobID = "j-1"
	j, err := planner.PlanJob(t.Context(), p, opts)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// fragments encodes every task of the job.
func fragments(t *testing.T, j *planner.Job) [][]byte {
	t.Helper()
	var all [][]byte
	for _, s := range j.Stages {
		for task := range s.Tasks {
			b, err := j.Fragment(s.ID, task, []plan.ShuffleLocation{{Job: j.ID, Stage: 0, Ticket: []byte("t")}})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b)
		}
	}
	return all
}

func TestRoot01_OnlyThePredicateChoosesTheRoot(t *testing.T) {
	var asked []plan.Node
	top := commitOver(write(query(2)))
	j := planned(t, top, planner.Options{Root: func(n plan.Node) bool {
		asked = append(asked, n)
		return true
	}})
	if len(asked) != 1 || asked[0] != plan.Node(top) {
		t.Fatalf("the predicate was asked about %v, want the plan's top once", asked)
	}
	if j.Commit() == nil || j.Commit().Target.UUID != "u" {
		t.Fatalf("root = %+v", j.Root)
	}
	if top.Input == nil {
		t.Fatal("the caller's plan was changed")
	}
}

func TestRoot02_WithoutAMatchNothingChanges(t *testing.T) {
	tops := map[string]func() plan.Node{
		"select":          func() plan.Node { return query(3) },
		"whole select":    func() plan.Node { return &plan.Coalesce{Input: query(1)} },
		"limit":           func() plan.Node { n := int64(3); return &plan.Coalesce{Input: query(3), Limit: &n} },
		"write no root":   func() plan.Node { return write(hash(query(3), 2)) },
		"coalesce at top": func() plan.Node { return &plan.Coalesce{Input: query(3)} },
	}
	for name, top := range tops {
		t.Run(name, func(t *testing.T) {
			none := planned(t, top(), planner.Options{})
			def := planned(t, top(), planner.Options{Root: planner.DefaultRoot})
			if a, b := planner.Explain(none, nil), planner.Explain(def, nil); a != b {
				t.Fatalf("plans differ:\n%s\n%s", a, b)
			}
			a, b := fragments(t, none), fragments(t, def)
			if !bytes.Equal(bytes.Join(a, nil), bytes.Join(b, nil)) {
				t.Fatal("task messages differ")
			}
			if none.Root != nil || def.Root != nil || def.Spec().HasRoot {
				t.Fatal("a root was split off")
			}
		})
	}
}

func TestRoot03_CommitBelowTheTopRefused(t *testing.T) {
	_, err := planner.PlanJob(t.Context(), &plan.Coalesce{Input: commitOver(write(query(2)))},
		planner.Options{JobID: "j-1", Root: func(n plan.Node) bool { return n.Kind() == plan.KindCommit }})
	wantError(t, err, commit.CodeCommitBelowRoot, "j-1", "lake.air.t", "last step")

	_, err = planner.PlanJob(t.Context(), commitOver(write(commitOver(write(query(2))))),
		planner.Options{JobID: "j-1", Root: planner.DefaultRoot})
	wantError(t, err, commit.CodeCommitBelowRoot, "j-1")
}

func TestRoot03_CommitThatNoSchedulerRunsRefused(t *testing.T) {
	for name, root := range map[string]func(plan.Node) bool{"nil": nil, "no": func(plan.Node) bool { return false }} {
		t.Run(name, func(t *testing.T) {
			_, err := planner.PlanJob(t.Context(), commitOver(write(query(2))), planner.Options{JobID: "j-1", Root: root})
			wantError(t, err, commit.CodeCommitNeedsRoot, "j-1", "lake.air.t")
		})
	}
}

func TestRoot04_RootNeverInAFragment(t *testing.T) {
	for name, below := range map[string]plan.Node{
		"one stage":  write(query(4)),
		"two stages": write(hash(query(4), 3)),
		"coalesced":  &plan.Coalesce{Input: write(query(4))},
	} {
		t.Run(name, func(t *testing.T) {
			j := planned(t, commitOver(below), planner.Options{Root: planner.DefaultRoot})
			all := fragments(t, j)
			if len(all) == 0 {
				t.Fatal("no fragments")
			}
			for _, b := range all {
				if bytes.Contains(b, []byte(`"`+plan.KindCommit+`"`)) || bytes.Contains(b, []byte(canary)) {
					t.Fatalf("a task message holds the root: %s", b)
				}
				if _, err := plan.Decode(b); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestRoot05_OneSplitPoint(t *testing.T) {
	var first string
	for _, adaptive := range []bool{false, true} {
		for _, logical := range []bool{false, true} {
			t.Run(fmt.Sprintf("adaptive=%t/logical=%t", adaptive, logical), func(t *testing.T) {
				physical := commitOver(write(hash(query(4), 3)))
				var p plan.Plan = physical
				if logical {
					p = &plan.Logical{SQL: "INSERT INTO lake.air.t SELECT 1"}
				}
				bound := 0
				j := planned(t, p, planner.Options{
					Root: planner.DefaultRoot, Adaptive: adaptive,
					Bind: func(_ context.Context, l *plan.Logical) (plan.Node, error) {
						bound++
						return physical, nil
					},
				})
				if (bound == 1) != logical {
					t.Fatalf("bound %d times", bound)
				}
				if j.Commit() == nil || len(j.Stages) != 2 || j.Final().Tasks != 3 || j.Stages[0].Tasks != 4 {
					t.Fatalf("job = %s", planner.Explain(j, nil))
				}
				if !j.Final().Manifests || j.Stages[0].Manifests {
					t.Fatal("only the final stage gives manifests")
				}
				text := planner.Explain(j, nil)
				if told := strings.Contains(text, ", cut anew when stage 0 has ended\n"); told != adaptive || (j.Final().Adapt != nil) != adaptive {
					t.Fatalf("adaptive: %v\n%s", j.Final().Adapt, text)
				}
				got := strings.ReplaceAll(text, ", cut anew when stage 0 has ended", "") + string(bytes.Join(fragments(t, j), nil))
				if first == "" {
					first = got
				}
				if got != first {
					t.Fatalf("plans differ:\n%s\n%s", first, got)
				}
			})
		}
	}
}

func TestRoot06_CoalesceWithoutLimitDropped(t *testing.T) {
	j := planned(t, commitOver(&plan.Coalesce{Input: write(query(4))}), planner.Options{Root: planner.DefaultRoot})
	if len(j.Stages) != 1 || j.Final().Tasks != 4 {
		t.Fatalf("want one stage of 4 writers:\n%s", planner.Explain(j, nil))
	}
}

func TestRoot07_CoalesceWithLimitKept(t *testing.T) {
	limit := int64(3)
	j := planned(t, commitOver(&plan.Coalesce{Input: write(query(4)), Limit: &limit}), planner.Options{Root: planner.DefaultRoot})
	if len(j.Stages) != 2 || j.Stages[0].Tasks != 4 || j.Final().Tasks != 1 {
		t.Fatalf("want 4 writers and one that counts:\n%s", planner.Explain(j, nil))
	}
	if !j.Final().Manifests {
		t.Fatal("the final stage gives manifests")
	}
	if b := fragments(t, j)[4]; !bytes.Contains(b, []byte(`"Limit":3`)) {
		t.Fatalf("the limit is gone: %s", b)
	}
}

func TestRoot08_SinglePartitionInput(t *testing.T) {
	j := planned(t, commitOver(write(query(1))), planner.Options{Root: planner.DefaultRoot})
	if len(j.Stages) != 1 || j.Final().Tasks != 1 || j.Commit() == nil {
		t.Fatal(planner.Explain(j, nil))
	}
}

func TestRoot23_PipelinedJobWithRootRefused(t *testing.T) {
	testModeRefused(t, plan.ModePipelined, "no point where all stages have succeeded")
}

func TestRoot24_CachedJobWithRootRefused(t *testing.T) {
	testModeRefused(t, plan.ModeCached, "root's input instead of the job's result")
}

func testModeRefused(t *testing.T, mode plan.Mode, why string) {
	t.Helper()
	for _, p := range []plan.Plan{commitOver(write(query(2))), &plan.Logical{SQL: "INSERT"}} {
		for _, adaptive := range []bool{false, true} {
			_, err := planner.PlanJob(t.Context(), p, planner.Options{
				JobID: "j-1", Mode: mode, Root: planner.DefaultRoot, Adaptive: adaptive,
				Bind: func(context.Context, *plan.Logical) (plan.Node, error) { return commitOver(write(query(2))), nil },
			})
			wantError(t, err, commit.CodeModeRefused, "j-1", why)
			if e, ok := errors.AsType[*commit.Error](err); !ok || e.Hint != "Submit it as a staged job (leave the mode out)." {
				t.Errorf("the way out is missing: %+v", e)
			}
		}
	}
	// The same mode is fine for a job without a root.
	j := planned(t, query(2), planner.Options{Mode: mode, Root: planner.DefaultRoot})
	if j.Mode != mode || len(j.Stages) != 1 {
		t.Fatalf("a SELECT in mode %s: %s", mode, planner.Explain(j, nil))
	}
}

func TestRootOverRowsRefused(t *testing.T) {
	for name, top := range map[string]plan.Node{
		"commit over rows":     commitOver(query(2)),
		"commit over exchange": commitOver(hash(query(2), 2)),
		"a query as root":      query(2),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := planner.PlanJob(t.Context(), top, planner.Options{JobID: "j-1", Root: func(plan.Node) bool { return true }})
			wantError(t, err, commit.CodeRootInput, "j-1", "rows")
		})
	}
}

func wantError(t *testing.T, err error, code commit.Code, parts ...string) {
	t.Helper()
	e, ok := errors.AsType[*commit.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("error = %v, want %s", err, code)
	}
	if e.Hint == "" {
		t.Errorf("%v says no way out", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q doesn't say %q", err, p)
		}
	}
}
