package graph_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/graph/adaptive"
)

// rowWorld runs a job whose stages are cut anew, with the rows themselves: each
// source row has a number, and stages only move rows. Executors die with what they
// hold, attempts fail, statuses are late, and the scheduler's process ends and is
// restored from what it had on record.
type rowWorld struct {
	rt    *rapid.T
	spec  graph.Spec
	g     *graph.Graph
	queue []graph.RunTask
	// reads and made are what attempts read and wrote, by output partition.
	made map[string][][]int
	next int
	// sources are the rows of each source task.
	sources [][]int
	// running are the attempts under way, all successes that may still arrive.
	running map[string]graph.TaskLaunched
	box     []graph.TaskSucceeded
	// record is what the journal has.
	record  map[string]graph.TaskSucceeded
	layouts map[int]*adaptive.Layout
	gone    map[string]bool // executors
	// cuts counts the layouts that were made, again those of a stage that had one.
	cuts, again, crashes int
	had                  map[int]bool
}

func newRowWorld(rt *rapid.T) *rowWorld {
	w := &rowWorld{
		rt: rt, made: map[string][][]int{}, running: map[string]graph.TaskLaunched{}, record: map[string]graph.TaskSucceeded{},
		layouts: map[int]*adaptive.Layout{}, gone: map[string]bool{}, had: map[int]bool{},
	}
	w.spec = graph.Spec{JobID: "j", MaxTaskFailures: 1 << 20, MaxStageAttempts: 1 << 20}
	stages, row := rapid.IntRange(2, 4).Draw(rt, "stages"), 0
	tasks := rapid.IntRange(1, 4).Draw(rt, "sources")
	for range tasks {
		var rows []int
		for range rapid.SampledFrom([]int{0, 1, 5, 40}).Draw(rt, "rows") {
			rows = append(rows, row)
			row++
		}
		w.sources = append(w.sources, rows)
	}
	for n := range stages {
		s := graph.StageSpec{ID: n, Tasks: tasks, Outputs: rapid.IntRange(1, 4).Draw(rt, "outputs"), Deterministic: rapid.Bool().Draw(rt, "deterministic")}
		if n > 0 {
			s.Inputs = []int{n - 1}
			if rapid.IntRange(0, 3).Draw(rt, "adaptive") > 0 {
				s.Adapt = &adaptive.Policy{Tasks: rapid.IntRange(1, 5).Draw(rt, "wanted"), MinTask: rapid.Int64Range(1, 50).Draw(rt, "min"), MaxTask: 1 << 20}
			}
		}
		if n == stages-1 {
			s.Outputs = 1
		}
		w.spec.Stages = append(w.spec.Stages, s)
		tasks = s.Outputs
	}
	w.g = graph.New(w.spec, time.Unix(0, 0))
	w.follow(w.g.Apply(graph.Start{}, time.Unix(0, 0)))
	return w
}

// follow carries actions out, and writes what has to be on record.
func (w *rowWorld) follow(acts []graph.Action) {
	for _, a := range acts {
		switch a := a.(type) {
		case graph.RunTask:
			w.queue = append(w.queue, a)
		case graph.CancelTask:
			delete(w.running, a.Attempt)
			w.queue = slices.DeleteFunc(w.queue, func(r graph.RunTask) bool { return a.Attempt == "" && r.Task == a.Task })
		case graph.KeepOutput:
			i := slices.IndexFunc(w.box, func(ev graph.TaskSucceeded) bool { return ev.Attempt == a.Attempt })
			w.record[a.Attempt] = w.box[i]
		case graph.DropOutput:
			delete(w.record, a.Attempt)
		case graph.KeepLayout:
			delete(w.layouts, a.Stage)
			if a.Layout == nil {
				break
			}
			w.layouts[a.Stage] = a.Layout
			w.cuts++
			if w.had[a.Stage] {
				w.again++
			}
			w.had[a.Stage] = true
		}
	}
}

func (w *rowWorld) step(ev graph.Event) { w.follow(w.g.Apply(ev, time.Unix(0, 0))) }

// launch runs the next task: it reads what it was given and spreads the rows. A
// stage that isn't deterministic spreads and orders them as it likes.
func (w *rowWorld) launch(executor string) {
	run := w.queue[0]
	w.queue = w.queue[1:]
	w.next++
	l := graph.TaskLaunched{Task: run.Task, StageAttempt: run.StageAttempt, Attempt: fmt.Sprintf("a%d", w.next), Executor: executor}
	s := w.spec.Stages[run.Task.Stage]
	var rows []int
	if run.Task.Stage == 0 {
		rows = slices.Clone(w.sources[run.Task.Task])
	}
	for _, in := range run.Inputs {
		have := w.made[in.Attempt][in.Output.Partition]
		if in.End > 0 {
			have = have[in.First:in.End]
		}
		rows = append(rows, have...)
	}
	if !s.Deterministic {
		rows = rapid.Permutation(rows).Draw(w.rt, "order")
	}
	out := make([][]int, s.Outputs)
	for _, r := range rows {
		p := r * 7 % s.Outputs
		if !s.Deterministic {
			p = rapid.IntRange(0, s.Outputs-1).Draw(w.rt, "to")
		}
		out[p] = append(out[p], r)
	}
	w.made[l.Attempt] = out
	ev := graph.TaskSucceeded{Task: l.Task, StageAttempt: l.StageAttempt, Attempt: l.Attempt, Executor: executor, Rows: int64(len(rows))}
	for p, o := range out {
		ev.Outputs = append(ev.Outputs, graph.Output{Partition: p, Rows: int64(len(o)), Bytes: int64(len(o)) * 10})
	}
	w.running[l.Attempt] = l
	w.box = append(w.box, ev)
	w.step(l)
}

// lose ends an executor: what it runs and holds is gone.
func (w *rowWorld) lose(executor string) {
	for a, l := range w.running {
		if l.Executor == executor {
			delete(w.running, a)
		}
	}
	w.box = slices.DeleteFunc(w.box, func(ev graph.TaskSucceeded) bool {
		_, kept := w.record[ev.Attempt]
		return ev.Executor == executor && !kept
	})
	w.gone[executor] = true
}

// crash ends the scheduler's process and goes on from the record. Executors may be
// lost meanwhile.
func (w *rowWorld) crash(lost []string) {
	w.crashes++
	for _, e := range lost {
		w.lose(e)
	}
	kept := graph.Kept{Lost: map[string]bool{}, Layouts: maps.Clone(w.layouts)}
	for _, a := range slices.Sorted(maps.Keys(w.record)) {
		kept.Accepted = append(kept.Accepted, w.record[a])
		kept.Lost[a] = w.gone[w.record[a].Executor]
	}
	for _, a := range slices.Sorted(maps.Keys(w.running)) {
		kept.Launched = append(kept.Launched, w.running[a])
	}
	w.queue = nil
	var acts []graph.Action
	w.g, acts = graph.Restore(w.spec, kept, time.Unix(0, 0))
	w.follow(acts)
}

func (w *rowWorld) deliver(ev graph.TaskSucceeded) {
	if !w.gone[ev.Executor] {
		w.step(ev)
		delete(w.running, ev.Attempt)
	}
}

func (w *rowWorld) random() {
	executor := fmt.Sprintf("e%d-%d", rapid.IntRange(0, 2).Draw(w.rt, "executor"), len(w.gone)) // one that is gone doesn't come back
	alive := func() []string {
		var all []string
		for _, r := range w.g.Runs() {
			if !w.gone[r.Executor] && !slices.Contains(all, r.Executor) {
				all = append(all, r.Executor)
			}
		}
		return all
	}
	switch rapid.IntRange(0, 9).Draw(w.rt, "event") {
	case 0, 1, 2, 3:
		if len(w.queue) > 0 {
			w.launch(executor)
		}
	case 4, 5, 6:
		if len(w.box) > 0 {
			w.deliver(rapid.SampledFrom(w.box).Draw(w.rt, "status"))
		}
	case 7:
		if all := alive(); len(all) > 0 {
			e := rapid.SampledFrom(all).Draw(w.rt, "lost")
			w.lose(e)
			w.step(graph.ExecutorLost{Executor: e})
		}
	case 8:
		if len(w.box) > 0 {
			ev := rapid.SampledFrom(w.box).Draw(w.rt, "failed")
			if _, runs := w.running[ev.Attempt]; runs {
				delete(w.running, ev.Attempt)
				w.step(graph.TaskFailed{Task: ev.Task, StageAttempt: ev.StageAttempt, Attempt: ev.Attempt, Executor: ev.Executor, Class: graph.Retryable})
			}
		}
	case 9:
		if w.g.State() == graph.Running {
			var lost []string
			for _, e := range alive() {
				if rapid.IntRange(0, 3).Draw(w.rt, "dies") == 0 {
					lost = append(lost, e)
				}
			}
			w.crash(lost)
		}
	}
}

// TestCutStagesLoseNoRow: whatever is lost, late, retried or restarted, and however
// stages are cut in between, the job gives each row of its sources once.
func TestCutStagesLoseNoRow(t *testing.T) {
	cuts, again, crashes := 0, 0, 0
	for range 5 {
		rapid.Check(t, func(rt *rapid.T) {
			w := newRowWorld(rt)
			for range rapid.IntRange(0, 80).Draw(rt, "steps") {
				if w.g.State() != graph.Running {
					break
				}
				w.random()
			}
			for range 10000 {
				if w.g.State() != graph.Running {
					break
				}
				if len(w.queue) > 0 {
					w.launch("last")
					continue
				}
				for _, ev := range slices.Clone(w.box) {
					w.deliver(ev)
				}
			}
			if w.g.State() != graph.Succeeded {
				rt.Fatalf("the job is %s: %v\n%+v", w.g.State(), w.g.Err(), w.g.Stages())
			}
			var got, want []int
			for _, a := range w.g.Accepted() {
				got = append(got, w.made[a.Attempt][0]...)
			}
			for _, rows := range w.sources {
				want = append(want, rows...)
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				rt.Fatalf("rows %v, want %v\n%+v", got, want, w.g.Stages())
			}
			cuts, again, crashes = cuts+w.cuts, again+w.again, crashes+w.crashes
		})
	}
	if cuts == 0 || again == 0 || crashes == 0 {
		t.Errorf("%d layouts, %d of them anew, %d crashes: the histories miss something", cuts, again, crashes)
	}
}

// TestTenThousandInputPartitions: ten thousand tasks of 100 rows are written by a few.
func TestTenThousandInputPartitions(t *testing.T) {
	const tasks = 10000
	now := time.Unix(0, 0)
	g := graph.New(graph.Spec{JobID: "j", Stages: []graph.StageSpec{
		{ID: 0, Tasks: tasks, Outputs: 1, Deterministic: true},
		{ID: 1, Tasks: 1, Inputs: []int{0}, Outputs: 1, Deterministic: true, Adapt: &adaptive.Policy{Tasks: 4, MinTask: 1 << 20, MaxTask: 1 << 30}},
	}}, now)
	queue := g.Apply(graph.Start{}, now)
	reads, writers := map[graph.TaskID]bool{}, 0
	for n := 0; n < len(queue); n++ {
		run, ok := queue[n].(graph.RunTask)
		if !ok {
			continue
		}
		rows := int64(100)
		if run.Task.Stage == 1 {
			writers++
			rows = int64(len(run.Inputs)) * 100
			for _, in := range run.Inputs {
				if reads[in.Task] || in.End != 0 {
					t.Fatalf("%v is read twice, or in parts", in.Task)
				}
				reads[in.Task] = true
			}
		}
		l := graph.TaskLaunched{Task: run.Task, StageAttempt: run.StageAttempt, Attempt: fmt.Sprint(n), Executor: "e"}
		queue = append(queue, g.Apply(l, now)...)
		queue = append(queue, g.Apply(graph.TaskSucceeded{
			Task: l.Task, StageAttempt: l.StageAttempt, Attempt: l.Attempt, Executor: l.Executor, Rows: rows, Outputs: []graph.Output{{Rows: rows, Bytes: rows * 40}},
		}, now)...)
	}
	if g.State() != graph.Succeeded || len(reads) != tasks || writers == 0 || writers > 40 {
		t.Errorf("%s: %d tasks read %d outputs", g.State(), writers, len(reads))
	}
}

// TestOtherRowsAtTheSecondRun: a task that runs again and gives another number of
// rows takes what was cut by its first run with it.
func TestOtherRowsAtTheSecondRun(t *testing.T) {
	now := time.Unix(0, 0)
	g := graph.New(graph.Spec{JobID: "j", Stages: []graph.StageSpec{
		{ID: 0, Tasks: 2, Outputs: 1, Deterministic: true},
		{ID: 1, Tasks: 1, Inputs: []int{0}, Outputs: 1, Deterministic: true, Adapt: &adaptive.Policy{Tasks: 4, MinTask: 1, MaxTask: 100}},
	}}, now)
	n := 0
	run := func(r graph.RunTask, executor string, rows int64) []graph.Action {
		n++
		a := fmt.Sprint("a", n)
		acts := g.Apply(graph.TaskLaunched{Task: r.Task, StageAttempt: r.StageAttempt, Attempt: a, Executor: executor}, now)
		return append(acts, g.Apply(graph.TaskSucceeded{
			Task: r.Task, StageAttempt: r.StageAttempt, Attempt: a, Executor: executor, Rows: rows, Outputs: []graph.Output{{Rows: rows, Bytes: rows * 10}},
		}, now)...)
	}
	runs := func(acts []graph.Action) (all []graph.RunTask) {
		for _, a := range acts {
			if r, ok := a.(graph.RunTask); ok {
				all = append(all, r)
			}
		}
		return all
	}
	first := runs(g.Apply(graph.Start{}, now))
	run(first[0], "e1", 30)
	writers := runs(run(first[1], "e2", 30))
	if len(writers) < 2 {
		t.Fatalf("%d writers", len(writers))
	}
	run(writers[0], "e2", 20)
	again := runs(g.Apply(graph.ExecutorLost{Executor: "e1"}, now))
	if len(again) != 1 || again[0].Task.Stage != 0 {
		t.Fatalf("reruns %v", again)
	}
	acts := run(again[0], "e2", 31)
	var gone []string
	for _, a := range acts {
		if d, ok := a.(graph.DropOutput); ok {
			gone = append(gone, d.Attempt)
		}
	}
	if fmt.Sprint(gone) != "[a3]" {
		t.Errorf("dropped %v, want what was written from the first run", gone)
	}
	var rows int64
	for _, r := range runs(acts) {
		for _, in := range r.Inputs {
			if rows += in.End - in.First; in.End == 0 {
				rows += in.Output.Rows
			}
		}
	}
	if rows != 61 {
		t.Errorf("%d rows are read anew, want 61", rows)
	}
}
