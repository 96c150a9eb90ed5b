package graph_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/graph"
)

// world is a cluster around one graph that loses, repeats and reorders. It
// knows what really happened and holds every action against it.
type world struct {
	*job
	rt *rapid.T
	// reads are the inputs that each attempt was given, by attempt.
	reads map[string][]graph.Accepted
	// box are statuses that may still arrive, again and in any order.
	box      []graph.Event
	epoch    int
	reading  map[int]bool
	stopped  map[int]bool
	inFlight bool
	freed    map[int]bool
	ended    bool
	model    *model
	// twins counts those that were accepted.
	twins  int
	isTwin map[string]bool
	// shown is what a client has of each task of a pipelined job's final stage.
	shown []string
	again int
	// had is what somebody has of what can be read, who has asked up to a listing.
	had     []graph.Accepted
	listing uint64
	asked   int
	// flowing are the attempts that said that they have rows; faulty: an output may
	// have been lost.
	flowing map[string]bool
	faulty  bool
}

func newWorld(rt *rapid.T) *world {
	spec := graph.Spec{
		JobID: "j", HasRoot: rapid.Bool().Draw(rt, "root"),
		MaxTaskFailures: rapid.IntRange(1, 3).Draw(rt, "failures"), MaxStageAttempts: rapid.IntRange(1, 3).Draw(rt, "rollbacks"),
	}
	spec.Pipelined = !spec.HasRoot && rapid.Bool().Draw(rt, "pipelined")
	stages := rapid.IntRange(1, 4).Draw(rt, "stages")
	for n := range stages {
		s := graph.StageSpec{
			ID: n + 1, Tasks: rapid.IntRange(1, 3).Draw(rt, "tasks"), Outputs: rapid.IntRange(1, 3).Draw(rt, "outputs"),
			Deterministic: rapid.Bool().Draw(rt, "deterministic"), ReadsAll: rapid.Bool().Draw(rt, "all"),
			Whole: spec.Pipelined && rapid.IntRange(0, 3).Draw(rt, "whole") == 0,
		}
		for in := 1; in <= n; in++ {
			if in == n || rapid.Bool().Draw(rt, "reads") {
				s.Inputs = append(s.Inputs, in)
			}
		}
		if n == stages-1 {
			s.Outputs, s.Manifests = 1, spec.HasRoot
		}
		spec.Stages = append(spec.Stages, s)
	}
	return &world{
		job: newJob(rt, spec), rt: rt, model: newModel(), isTwin: map[string]bool{}, reads: map[string][]graph.Accepted{}, reading: map[int]bool{}, stopped: map[int]bool{}, freed: map[int]bool{}, flowing: map[string]bool{},
	}
}

// step applies an event and checks what comes of it.
func (w *world) step(ev graph.Event) {
	want := w.model.expect(ev)
	if w.isTwin[want] {
		w.twins++
	}
	acts := w.apply(ev)
	switch ev := ev.(type) {
	case graph.RowsReady:
		w.flowing[ev.Attempt] = true
	case graph.ExecutorLost:
		w.faulty = true
	case graph.TaskFailed:
		w.faulty = w.faulty || ev.Lost != nil
	}
	w.model.follow(w, want, acts)
	w.read(acts)
	for _, a := range acts {
		switch a := a.(type) {
		case graph.RunTask:
			w.check(!w.ended, "a task runs after the end")
		case graph.RunSchedulerRoot:
			w.check(a.Epoch == w.epoch+1, "epoch %d after %d", a.Epoch, w.epoch)
			w.check(!w.ended && !w.inFlight, "a root after the end or after the point of no return")
			w.epoch = a.Epoch
			w.complete(a.Inputs)
		case graph.StartRoot:
			w.check(a.Epoch == w.epoch && !w.ended, "root of epoch %d started", a.Epoch)
			w.reading[a.Epoch] = true
		case graph.ProceedRoot:
			w.check(a.Epoch == w.epoch && !w.ended && w.reading[a.Epoch] && !w.stopped[a.Epoch], "root of epoch %d let go", a.Epoch)
			w.inFlight = true
		case graph.StopRoot:
			w.stopped[a.Epoch] = true
		case graph.JobEnded:
			w.check(!w.ended, "the job ended twice")
			w.ended = true
			if w.g.State() == graph.Succeeded && !w.spec.HasRoot {
				w.complete(w.g.Accepted())
			}
		case graph.FreeJobData:
			w.check(len(w.reading) == 0, "freed while %v read", w.reading)
			w.check(w.ended, "freed before the end")
			stages := a.Stages
			if stages == nil {
				for _, s := range w.spec.Stages {
					stages = append(stages, s.ID)
				}
			}
			for _, s := range stages {
				w.check(!w.freed[s], "stage %d freed twice", s)
				w.freed[s] = true
			}
		case graph.CancelAnswer:
			w.check(!w.inFlight || a.Answer != graph.AnswerCancelled, "a cancel won after the point of no return")
		}
	}
	if w.g.Progress() == 100 {
		w.check(w.g.State() == graph.Succeeded, "100 %% of a job that is %s", w.g.State())
	}
}

func (w *world) check(ok bool, format string, args ...any) {
	w.rt.Helper()
	if !ok {
		w.rt.Fatalf(format+"\nstages %+v\nstate %s", append(args, w.g.Stages(), w.g.State())...)
	}
}

// complete: each task of the final stage is listed once, and no two attempts
// of one task of a stage that isn't deterministic are anywhere in what led to
// the result.
func (w *world) complete(inputs []graph.Accepted) {
	final := w.spec.Stages[len(w.spec.Stages)-1]
	w.check(len(inputs) == final.Tasks, "%d inputs for %d tasks", len(inputs), final.Tasks)
	for n, in := range inputs {
		w.check(in.Task == id(final.ID, n), "input %d is of %v", n, in.Task)
	}
	seen := map[graph.TaskID]string{}
	var visit func(in graph.Accepted)
	visit = func(in graph.Accepted) {
		if s := w.spec.Stages[in.Task.Stage-1]; !s.Deterministic {
			old, ok := seen[in.Task]
			w.check(!ok || old == in.Attempt, "rows of two runs of %v: %s and %s", in.Task, old, in.Attempt)
			seen[in.Task] = in.Attempt
		}
		for _, r := range w.reads[in.Attempt] {
			visit(r)
		}
	}
	for _, in := range inputs {
		visit(in)
	}
}

func (w *world) launchNext(executor string) {
	run := w.queue[0]
	w.queue = w.queue[1:]
	w.next++
	l := graph.TaskLaunched{Task: run.Task, StageAttempt: run.StageAttempt, Attempt: fmt.Sprintf("a%d", w.next), Executor: executor}
	w.reads[l.Attempt] = run.Inputs
	want := 0
	s := w.spec.Stages[run.Task.Stage-1]
	for _, in := range s.Inputs {
		p := w.spec.Stages[in-1]
		switch {
		case s.ReadsAll:
			want += p.Tasks * p.Outputs
		case run.Task.Task < p.Outputs:
			want += p.Tasks
		}
	}
	w.check(len(run.Inputs) == want, "task %v reads %d outputs, want %d", run.Task, len(run.Inputs), want)
	w.step(l)
	w.box = append(w.box, w.success(l))
	w.running[l.Task] = l
}

// launchTwin launches a second attempt of a task that runs, on another executor.
func (w *world) launchTwin(executor string) {
	for _, r := range w.g.Runs() {
		run, ok := w.g.Twin(r.Task)
		if !ok || r.Executor == executor {
			continue
		}
		w.next++
		l := graph.TaskLaunched{Task: run.Task, StageAttempt: run.StageAttempt, Attempt: fmt.Sprintf("a%d", w.next), Executor: executor, Twin: true}
		w.reads[l.Attempt], w.isTwin[l.Attempt] = run.Inputs, true
		w.model.listed(w, run.Inputs)
		w.step(l)
		w.box = append(w.box, w.success(l))
		return
	}
}

// rootEvent is an event of the root's latest epoch, or of one that many before.
func (w *world) rootEvent(kind, late int) {
	switch kind {
	case 0:
		w.step(graph.RootStarted{Epoch: max(w.epoch-late, 0)})
	case 1:
		if e := w.epoch - late; w.reading[e] {
			w.step(graph.RootInFlight{Epoch: e})
		}
	case 2:
		for e := range w.reading {
			delete(w.reading, e)
			ev := graph.RootFinished{Epoch: e, Commit: commit.CommitCommitted, Result: []byte("r")}
			if e != w.epoch || !w.inFlight {
				ev.Commit, ev.Err = commit.CommitNone, errors.New("stopped")
			}
			w.step(ev)
			break
		}
	case 3:
		if in := w.g.Accepted(); w.reading[w.epoch] && !w.inFlight && len(in) > 0 {
			lost := rapid.SampledFrom(in).Draw(w.rt, "lost")
			delete(w.reading, w.epoch)
			w.step(graph.RootLostInput{Epoch: w.epoch, Lost: []graph.LostInput{{Task: lost.Task, Attempt: lost.Attempt, Executor: lost.Executor}}})
		}
	}
}

func (w *world) random() {
	executor := rapid.SampledFrom([]string{"e0", "e1", "e2"})
	switch rapid.IntRange(0, 14).Draw(w.rt, "event") {
	case 14:
		var lost []graph.LostInput
		for _, r := range w.g.Runs() {
			if rapid.IntRange(0, 2).Draw(w.rt, "is lost") == 0 {
				lost = append(lost, graph.LostInput{Task: r.Task, Attempt: r.Attempt, Executor: r.Executor})
			}
		}
		w.step(graph.OutputsLost{Lost: lost})
	case 13:
		if len(w.box) > 0 {
			s := rapid.SampledFrom(w.box).Draw(w.rt, "rows").(graph.TaskSucceeded)
			w.step(graph.RowsReady{Task: s.Task, StageAttempt: s.StageAttempt, Attempt: s.Attempt, Executor: s.Executor})
		}
	case 0, 1, 2:
		if len(w.queue) > 0 {
			w.launchNext(executor.Draw(w.rt, "executor"))
		}
	case 3, 4, 5:
		if len(w.box) > 0 { // stays in the box: at least once
			ev := rapid.SampledFrom(w.box).Draw(w.rt, "status").(graph.TaskSucceeded)
			if rapid.IntRange(0, 9).Draw(w.rt, "forged") == 0 {
				ev.StageAttempt += rapid.IntRange(-1, 1).Draw(w.rt, "of another stage attempt")
				ev.Executor = executor.Draw(w.rt, "from")
			}
			w.step(ev)
		}
	case 12:
		w.launchTwin(executor.Draw(w.rt, "executor"))
	case 6:
		w.step(graph.ExecutorLost{Executor: executor.Draw(w.rt, "executor")})
	case 7:
		if len(w.box) > 0 {
			s := rapid.SampledFrom(w.box).Draw(w.rt, "failed").(graph.TaskSucceeded)
			f := graph.TaskFailed{Task: s.Task, StageAttempt: s.StageAttempt, Attempt: s.Attempt, Executor: s.Executor, Class: graph.Retryable, Err: errors.New("x")}
			if in := w.reads[s.Attempt]; len(in) > 0 && rapid.Bool().Draw(w.rt, "fetch") {
				l := rapid.SampledFrom(in).Draw(w.rt, "input")
				f.Lost = &graph.LostInput{Task: l.Task, Attempt: l.Attempt, Executor: l.Executor}
			}
			w.step(f)
		}
	case 8, 9, 10:
		w.rootEvent(rapid.IntRange(0, 3).Draw(w.rt, "root"), rapid.IntRange(0, 1).Draw(w.rt, "late"))
	case 11:
		if rapid.IntRange(0, 9).Draw(w.rt, "cancel") == 0 {
			w.step(graph.CancelRequested{})
		}
	}
}

// settleDown lets everything go well from here on: the job must end, and all
// data must be free.
func (w *world) settleDown() {
	for range 1000 {
		switch {
		case len(w.queue) > 0:
			w.launchNext("e9")
		case !w.ended && w.g.Phase() != graph.PhaseCommitting && len(w.box) > 0:
			for _, ev := range slices.Clone(w.box) {
				w.step(ev)
			}
		case len(w.reading) > 0 && !w.ended && !w.inFlight && w.reading[w.epoch]:
			w.rootEvent(1, 0)
		case len(w.reading) > 0:
			w.rootEvent(2, 0)
		case !w.ended:
			w.rootEvent(0, 0)
		default:
			w.step(graph.ResultExpired{})
			w.check(len(w.freed) == len(w.spec.Stages), "freed %v of %d stages", w.freed, len(w.spec.Stages))
			return
		}
	}
	w.check(false, "the job doesn't end")
}

func TestRandomHistories(t *testing.T) {
	ends := map[graph.State]int{}
	again := 0
	for range 10 { // ten times the usual number of histories
		rapid.Check(t, func(rt *rapid.T) {
			w := newWorld(rt)
			w.step(graph.Start{})
			for range rapid.IntRange(0, 60).Draw(rt, "steps") {
				w.random()
			}
			w.settleDown()
			ends[w.g.State()]++
			if w.epoch > 1 {
				again++
			}
		})
	}
	for _, s := range []graph.State{graph.Succeeded, graph.JobFailed, graph.Cancelled} {
		if ends[s] == 0 {
			t.Errorf("no history ended as %s: %v", s, ends)
		}
	}
	if again == 0 {
		t.Error("no root started again")
	}
}
