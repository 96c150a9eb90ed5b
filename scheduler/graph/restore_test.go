package graph_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/graph"
)

// TestRestoreAtAnyPoint: a graph that is restored from the record of another one,
// cut off after any event, has each acceptance that the other had, runs nothing
// twice that the record has as running, and comes to the end without help.
func TestRestoreAtAnyPoint(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		first := insert(t)
		kept := map[graph.TaskID]graph.TaskSucceeded{}
		launched := map[graph.TaskID]graph.TaskLaunched{}
		note := func(acts []graph.Action, ev *graph.TaskSucceeded) {
			for _, a := range acts {
				switch a := a.(type) {
				case graph.KeepOutput:
					kept[ev.Task] = *ev
					delete(launched, ev.Task)
				case graph.DropOutput:
					for id, k := range kept {
						if k.Attempt == a.Attempt {
							delete(kept, id)
						}
					}
				case graph.CancelTask:
					delete(launched, a.Task)
				}
			}
		}
		executors := []string{"e1", "e2"}
		for range rapid.IntRange(0, 20).Draw(rt, "events") {
			switch rapid.SampledFrom([]string{"launch", "succeed", "lose"}).Draw(rt, "event") {
			case "launch":
				if len(first.queue) > 0 {
					id := first.queue[0].Task
					l := first.launch(id, rapid.SampledFrom(executors).Draw(rt, "executor"))
					launched[id] = l
				}
			case "succeed":
				for _, l := range launched {
					ev := first.success(l)
					note(first.apply(ev), &ev)
					break
				}
			case "lose":
				e := rapid.SampledFrom(executors).Draw(rt, "lost")
				for id, l := range launched {
					if l.Executor == e {
						delete(launched, id)
					}
				}
				note(first.apply(graph.ExecutorLost{Executor: e}), nil)
			}
		}
		if first.g.State() != graph.Running {
			return
		}
		var rec graph.Kept
		for _, k := range kept {
			rec.Accepted = append(rec.Accepted, k)
		}
		for _, l := range launched {
			rec.Launched = append(rec.Launched, l)
		}
		g, acts := graph.Restore(first.spec, rec, first.now)
		var accepted []string
		for _, r := range g.Runs() {
			if r.Done {
				accepted = append(accepted, r.Attempt)
			}
		}
		if len(accepted) != len(kept) {
			rt.Fatalf("%d acceptances of %d", len(accepted), len(kept))
		}
		for _, k := range kept {
			if !slices.Contains(accepted, k.Attempt) {
				rt.Fatalf("attempt %s was forgotten", k.Attempt)
			}
		}
		for _, a := range acts {
			if run, ok := a.(graph.RunTask); ok {
				if _, runs := launched[run.Task]; runs {
					rt.Fatalf("task %v runs already", run.Task)
				}
			}
		}
		finish(rt, first, g, acts, launched)
	})
}

// finish lets everything succeed until the root is to run.
func finish(rt *rapid.T, first *job, g *graph.Graph, acts []graph.Action, running map[graph.TaskID]graph.TaskLaunched) {
	queue := acts
	for _, l := range running {
		queue = append(queue, g.Apply(first.success(l), first.now)...)
	}
	for n := 0; len(queue) > 0 && n < 1000; n++ {
		a := queue[0]
		queue = queue[1:]
		switch a := a.(type) {
		case graph.RunSchedulerRoot:
			return
		case graph.RunTask:
			l := graph.TaskLaunched{Task: a.Task, StageAttempt: a.StageAttempt, Attempt: "again", Executor: "e3"}
			queue = append(queue, g.Apply(l, first.now)...)
			queue = append(queue, g.Apply(first.success(l), first.now)...)
		}
	}
	rt.Fatal("the root never runs")
}

// What the record has and the spec doesn't fit is left out: its task runs again.
func TestRestoreLeavesOutWhatMakesNoSense(t *testing.T) {
	j := insert(t)
	good := j.success(graph.TaskLaunched{Task: id(1, 0), StageAttempt: 1, Attempt: "a", Executor: "e"})
	bad := j.success(graph.TaskLaunched{Task: id(1, 1), StageAttempt: 1, Attempt: "b", Executor: "e"})
	bad.Outputs = nil
	none := good
	none.Task = id(9, 0)
	g, _ := graph.Restore(j.spec, graph.Kept{Accepted: []graph.TaskSucceeded{good, bad, none}, Launched: []graph.TaskLaunched{{Task: id(7, 3)}}}, j.now)
	runs := g.Runs()
	if len(runs) != 1 || runs[0].Attempt != "a" || !runs[0].Done {
		t.Fatalf("%+v", runs)
	}
}

// After the seal a lost executor changes nothing, a cancel still wins, and a root
// of an earlier epoch can't seal.
func TestSealedRoot(t *testing.T) {
	j := committing(t)
	if n := count[graph.SealRoot](j.apply(graph.RootSealed{Epoch: 1})); n != 1 {
		t.Fatalf("%d answers", n)
	}
	if acts := j.apply(graph.ExecutorLost{Executor: "e1"}); len(acts) > 0 {
		t.Fatalf("a lost executor after the seal: %v", acts)
	}
	if n := count[graph.StopRoot](j.apply(graph.RootSealed{Epoch: 0})); n != 1 {
		t.Fatal("a root of another epoch sealed")
	}
	acts := j.apply(graph.CancelRequested{})
	if get[graph.CancelAnswer](t, acts).Answer != graph.AnswerCancelled || count[graph.StopRoot](acts) != 1 {
		t.Fatalf("%v", acts)
	}
	if n := count[graph.StopRoot](j.apply(graph.RootInFlight{Epoch: 1})); n != 1 {
		t.Fatal("a cancelled job was sent")
	}
}

// A record may end between the acceptance that broke the reject limit and the
// job's failure: the restored job fails, too.
func TestRestoreOverTheRejectLimit(t *testing.T) {
	limit := int64(5)
	spec := graph.Spec{RejectLimit: &limit, Stages: []graph.StageSpec{{ID: 1, Tasks: 2, Outputs: 1, Deterministic: true}}}
	j := newJob(t, spec)
	j.apply(graph.Start{})
	ev := j.success(j.launch(id(1, 0), "e"))
	ev.Rejected = 6
	g, _ := graph.Restore(j.spec, graph.Kept{Accepted: []graph.TaskSucceeded{ev}}, j.now)
	if commit.CodeOf(g.Err()) != commit.CodeRejectLimit {
		t.Errorf("%s, %v", g.State(), g.Err())
	}
}
