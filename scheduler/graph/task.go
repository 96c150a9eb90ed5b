package graph

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/graph/adaptive"
)

type taskState uint8

const (
	taskWaiting taskState = iota // its inputs aren't there
	taskQueued                   // RunTask was emitted
	taskRunning
	taskDone // accepted
)

type task struct {
	// n is the task's number in its stage, since the graph's revision when it was
	// launched.
	n            int
	since        uint64
	state        taskState
	stageAttempt int
	attempt      string
	executor     string
	// launched and ended are the times of that attempt.
	launched, ended time.Time
	// twin runs beside it; its attempt is empty when there's none.
	twin launch
	// lost: the accepted output can't be read any more. It is rerun only when
	// something needs it.
	lost     bool
	failures int
	// failedOn are the executors on which it failed.
	failedOn []string
	// broke are the streams that broke off in its attempts, the earliest first, spared
	// counts those attempts that aren't among the failures; see SourceBreak.
	broke    []SourceBreak
	spared   int
	accepted []Accepted
	// flows: the running attempt of a pipelined job has rows to be read. heldBy is
	// the running attempt that it couldn't read.
	flows    bool
	heldBy   LostInput
	rows     int64
	bytes    int64
	files    int
	rejected int64
	rejects  []string
}

type stage struct {
	spec      StageSpec
	state     StageState
	attempt   int
	rollbacks int
	tasks     []task
	// layout is how an adaptive stage was cut into tasks.
	layout  *adaptive.Layout
	started time.Time
	ended   time.Time
	// awaitsSource: its source is being run again; see RunSource.
	awaitsSource bool
	// broke are the places at which streams of earlier executions broke off.
	broke []SourceBreak
	// doneOn counts the tasks that were accepted on each executor.
	doneOn map[string]int
	tally
}

// complete: every task was accepted and its output is still there.
func (s *stage) complete() bool {
	return (s.spec.Adapt == nil || s.layout != nil) && s.done == len(s.tasks) && s.lost == 0
}

// outputs lists accepted outputs in plan order; only those of one partition
// when it isn't nil.
func (s *stage) outputs(partition *int) []Accepted {
	var all []Accepted
	for i := range s.tasks {
		if s.tasks[i].state != taskDone {
			continue
		}
		for _, a := range s.tasks[i].accepted {
			if partition == nil || a.Output.Partition == *partition {
				all = append(all, a)
			}
		}
	}
	return all
}

func (g *Graph) find(id TaskID) (*stage, *task) {
	i, ok := g.byID[id.Stage]
	if !ok || id.Task < 0 || id.Task >= len(g.stages[i].tasks) {
		return nil, nil
	}
	return g.stages[i], &g.stages[i].tasks[id.Task]
}

func (g *Graph) taskLaunched(ev TaskLaunched) {
	s, t := g.find(ev.Task)
	switch {
	case t == nil || g.state != Running || t.stageAttempt != ev.StageAttempt,
		ev.Twin && (!g.mayTwin(s, t) || t.executor == ev.Executor), !ev.Twin && t.state != taskQueued:
		g.emit(CancelTask{Task: ev.Task, Attempt: ev.Attempt, Executor: ev.Executor})
		return
	}
	g.touch()
	g.seenOn(ev.Executor, ev.Task)
	if ev.Twin {
		t.twin = launch{ev.Attempt, ev.Executor, g.now}
		return
	}
	g.become(s, t, taskRunning)
	t.since = g.revision
	t.attempt, t.executor, t.launched = ev.Attempt, ev.Executor, g.now
	s.state = StageRunning
	t.flows, t.heldBy = false, LostInput{}
	if s.started.IsZero() {
		s.started = g.now
	}
	if g.spec.Pipelined && s.underWay() {
		g.settle() // its readers can run
	}
}

// current returns the task if the status is about the attempt that it was last
// launched under, or its twin, and nil for anything duplicate, late or stale.
func (g *Graph) current(id TaskID, stageAttempt int, attempt, executor string) (*stage, *task) {
	s, t := g.find(id)
	if t == nil || g.state != Running || t.state != taskRunning || t.stageAttempt != stageAttempt ||
		(t.attempt != attempt || t.executor != executor) && (t.twin.attempt != attempt || t.twin.executor != executor) {
		return nil, nil
	}
	return s, t
}

func (g *Graph) taskSucceeded(ev TaskSucceeded) {
	s, t := g.current(ev.Task, ev.StageAttempt, ev.Attempt, ev.Executor)
	if t == nil {
		return
	}
	g.touch()
	if err := checkOutputs(s.spec, ev); err != nil {
		g.retry(s, ev.Task, t, launch{attempt: ev.Attempt, executor: ev.Executor}, err)
		g.settle()
		return
	}
	loser := t.other(ev.Attempt)
	g.accept(s, t, ev)
	t.ended = g.now
	g.emit(KeepOutput{Attempt: ev.Attempt})
	fit := g.checkLayouts(s, ev.Task)
	if loser.attempt != "" {
		g.emit(CancelTask{Task: ev.Task, Attempt: loser.attempt, Executor: loser.executor})
	}
	if ev.Rejected > 0 && !g.checkRejects() {
		return
	}
	// A success that leaves its stage open gives nothing else to do, and a stage may
	// have 100,000 of them.
	if !fit || s.complete() || g.spec.Pipelined && (g.pipe.holding || g.final().complete()) {
		g.settle()
	}
}

// checkRejects fails the job when its tasks left out more rows than are allowed.
func (g *Graph) checkRejects() bool {
	limit := g.spec.RejectLimit
	if limit == nil {
		return true
	}
	var rows int64
	for _, s := range g.stages {
		rows += s.rejected
	}
	if rows <= *limit {
		return true
	}
	_, why := g.Rejected()
	g.fail(errRejected(rows, *limit, why))
	return false
}

// accept takes the attempt's output over.
func (g *Graph) accept(s *stage, t *task, ev TaskSucceeded) {
	if t.twin.attempt == ev.Attempt {
		t.launched = t.twin.started
	}
	t.lost, t.twin = false, launch{}
	t.stageAttempt, t.attempt, t.executor = ev.StageAttempt, ev.Attempt, ev.Executor
	t.rows, t.bytes, t.files = ev.Rows, ev.Bytes, ev.Files
	t.rejected, t.rejects = ev.Rejected, ev.Rejects
	g.become(s, t, taskDone)
	g.seenOn(ev.Executor, ev.Task)
	t.accepted = nil
	for _, o := range ev.Outputs {
		t.accepted = append(t.accepted, Accepted{
			Task: ev.Task, Attempt: ev.Attempt, Executor: ev.Executor, Output: o, Manifest: ev.Manifest,
		})
	}
	// A layout finds an output by its number.
	slices.SortFunc(t.accepted, func(a, b Accepted) int { return cmp.Compare(a.Output.Partition, b.Output.Partition) })
}

// checkOutputs proves what can be proven of a success by its numbers alone:
// every partition once and no other, and rows that add up. Manifests have one
// row for each file.
func checkOutputs(s StageSpec, ev TaskSucceeded) error {
	want := max(s.Outputs, 1)
	seen := make(map[int]bool, len(ev.Outputs))
	var rows int64
	for _, o := range ev.Outputs {
		switch {
		case o.Partition < 0 || o.Partition >= want:
			return errReport(ev, fmt.Sprintf("output partition %d of %d", o.Partition, want))
		case seen[o.Partition]:
			return errReport(ev, fmt.Sprintf("output partition %d stands twice", o.Partition))
		case o.Rows < 0 || o.Bytes < 0:
			return errReport(ev, fmt.Sprintf("output partition %d has %d rows and %d bytes", o.Partition, o.Rows, o.Bytes))
		}
		seen[o.Partition] = true
		rows += o.Rows
	}
	switch {
	case len(seen) < want:
		return errReport(ev, fmt.Sprintf("%d of %d output partitions", len(seen), want))
	case ev.Rows < 0 || ev.Bytes < 0 || ev.Files < 0 || ev.Rejected < 0:
		return errReport(ev, "a count is negative")
	case s.Manifests && rows != int64(ev.Files):
		return errReport(ev, fmt.Sprintf("%d files were written, but the manifests have %d rows", ev.Files, rows))
	case !s.Manifests && rows != ev.Rows:
		return errReport(ev, fmt.Sprintf("%d rows were written, but the outputs have %d", ev.Rows, rows))
	}
	return nil
}

func (g *Graph) taskFailed(ev TaskFailed) {
	s, t := g.current(ev.Task, ev.StageAttempt, ev.Attempt, ev.Executor)
	if t == nil {
		return
	}
	g.touch()
	err := ev.Err
	if err == nil {
		err = errors.New("the executor gave no cause")
	}
	// An executor may say so of any stage.
	gone := ev.SourceLost && s.spec.Once
	switch {
	case ev.Class == NotRetryable && !gone:
		s.state, s.ended = StageFailed, g.now
		g.fail(errTask(ev.Task, ev.Executor, err))
		return
	case ev.Lost != nil && g.markLost(s, *ev.Lost):
		// The limit on the producer's rollbacks bounds this.
		g.leave(s, t, ev.Attempt)
	case ev.Lost != nil && g.gone[ev.Lost.Attempt] > t.since:
		// It was given up while the task ran, which runs again with what there is now.
		g.leave(s, t, ev.Attempt)
	case ev.Lost != nil && g.hold(s, t, *ev.Lost):
	case gone:
		g.sourceLost(s, err)
		if g.hasEnded() {
			return
		}
	case s.spec.Once && ev.Broke != nil && t.spares(*ev.Broke):
		g.leave(s, t, ev.Attempt)
	default:
		g.retry(s, ev.Task, t, launch{attempt: ev.Attempt, executor: ev.Executor}, err)
	}
	g.settleAfter(err)
}

// retry puts the task back when one attempt of it failed, unless its twin goes on,
// or fails the job when the task had its tries.
func (g *Graph) retry(s *stage, id TaskID, t *task, failed launch, err error) {
	t.failures++
	if !slices.Contains(t.failedOn, failed.executor) {
		t.failedOn = append(slices.Clip(t.failedOn), failed.executor) // RunTask has the old one
	}
	g.leave(s, t, failed.attempt)
	if t.failures >= g.spec.MaxTaskFailures {
		s.state, s.ended = StageFailed, g.now
		g.fail(errTaskLimit(id, t.failures+t.spared, failed.executor, err))
	}
}

// markLost marks the output that a task of stage consumer couldn't read. False:
// that output isn't the accepted one (any more), so there's nothing to rerun.
func (g *Graph) markLost(consumer *stage, l LostInput) bool {
	reads := consumer == nil
	if consumer != nil {
		for _, id := range consumer.spec.Inputs {
			reads = reads || id == l.Task.Stage
		}
	}
	s, t := g.find(l.Task)
	if !reads || t == nil || t.state != taskDone || t.attempt != l.Attempt {
		return false
	}
	g.lose(s, t)
	if l.Unreachable {
		for _, id := range g.tasksOn(l.Executor) {
			if s, t := g.find(id); t != nil && t.state == taskDone && t.executor == l.Executor {
				g.lose(s, t)
			}
		}
	}
	return true
}

func (g *Graph) outputsLost(ev OutputsLost) {
	if g.state != Running || g.isSealed() {
		return
	}
	hit := false
	for _, l := range ev.Lost {
		hit = g.markLost(nil, l) || hit
	}
	if hit {
		g.touch()
		g.settle()
	}
}

func (g *Graph) executorLost(ev ExecutorLost) {
	if g.state != Running || g.isSealed() {
		return
	}
	err := errExecutorLost(ev.Executor)
	last := len(g.stages) - 1
	hit := false
	for _, id := range g.tasksOn(ev.Executor) {
		s, t := g.find(id)
		switch {
		case t == nil: // its stage was cut anew
		case t.state == taskRunning:
			gone := t.on(ev.Executor)
			if gone.attempt == "" {
				continue
			}
			hit = true
			g.retry(s, id, t, gone, err)
			if g.hasEnded() {
				return
			}
		case t.executor != ev.Executor:
		case s == g.stages[last] && t.hasCopy():
		case t.state == taskDone && !t.lost:
			hit = true
			g.lose(s, t)
		}
	}
	if hit {
		g.touch()
		g.settleAfter(err)
	}
}

// hasCopy: the root can do without the executor, as the manifest came with the
// success.
func (t *task) hasCopy() bool {
	for _, a := range t.accepted {
		if a.Manifest == nil {
			return false
		}
	}
	return true
}

// cancelTasks stops whatever is queued or running.
func (g *Graph) cancelTasks() {
	for _, s := range g.stages {
		for n := range s.tasks {
			g.stopTask(s, n)
		}
	}
}

// stopTask takes a task off its executor or out of the queue.
func (g *Graph) stopTask(s *stage, n int) {
	t := &s.tasks[n]
	switch t.state {
	case taskQueued:
		g.emit(CancelTask{Task: TaskID{s.spec.ID, n}})
	case taskRunning:
		g.emit(CancelTask{Task: TaskID{s.spec.ID, n}, Attempt: t.attempt, Executor: t.executor})
		if t.twin.attempt != "" {
			g.emit(CancelTask{Task: TaskID{s.spec.ID, n}, Attempt: t.twin.attempt, Executor: t.twin.executor})
		}
		t.twin = launch{}
	default:
		return
	}
	g.become(s, t, taskWaiting)
}

// inputs lists what task n of a stage reads, in plan order.
func (g *Graph) inputs(s *stage, n int) []Accepted {
	if s.layout != nil {
		return g.laidOut(s, n)
	}
	var all []Accepted
	partition := &n
	if s.spec.ReadsAll {
		partition = nil
	}
	for _, id := range s.spec.Inputs {
		in := g.stages[g.byID[id]]
		if g.spec.Pipelined {
			all = append(all, in.streams(partition)...)
		} else {
			all = append(all, in.outputs(partition)...)
		}
	}
	return all
}

// rootPrefix starts every message about a root that failed.
const rootPrefix = "Error running the job's scheduler root"

// errRoot keeps the code, the reason and the advice of the cause.
func errRoot(cause error) error {
	e := &commit.Error{Code: commit.CodeRootFailed, Op: rootPrefix, Cause: cause}
	if inner, ok := asError(cause); ok {
		e.Code, e.Reason, e.Tried, e.Hint = inner.Code, inner.Reason, inner.Tried, inner.Hint
	}
	return e
}
