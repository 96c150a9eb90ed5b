package graph

import (
	"time"

	"github.com/firn-project/firn/commit"
)

// Graph is one job as a state machine. It is used by one goroutine.
//
// What it guarantees, whatever the order, repetition or loss of events:
//
//   - A task has at most one accepted attempt. Only the attempt that the task
//     was last launched under, or its twin, can be accepted, and acceptance
//     ends both launches; so a duplicate, a late and a stale status find no
//     launch of theirs and change nothing.
//   - Whatever the acceptances are, KeepOutput and DropOutput name each change,
//     so that a record of them, cut off anywhere, is a state that was.
//   - RunSchedulerRoot is emitted only while every task of the final stage has
//     its accepted attempt, and once for each epoch. A new epoch begins only
//     when an accepted output was lost before the root sealed its unit, and a
//     root of an earlier epoch is told to stop at each question it asks.
//   - Cancel and the point of no return (RootInFlight) are decided here, in
//     the order in which the two events are applied: exactly one wins.
//   - A final state is left by no event. FreeJobData names a stage at most
//     once, and not while a root may still read it.
//   - What a running task of a pipelined job reads is what its inputs' current
//     attempts write, or were accepted with; see pipe.
//
// Reruns are driven by demand. A lost output is only marked; settle then walks
// from the final stage backwards and reruns what is both lost and still needed
// by something unfinished. So an executor that held only output that everybody
// has read costs nothing, and one that held a final output costs that task
// and, transitively, the lost inputs of it and nothing else. A stage that isn't
// deterministic reruns whole, and so does everything that read from it: rows
// of two different runs must never meet in one result.
type Graph struct {
	spec    Spec
	specErr error
	stages  []*stage
	byID    map[int]int
	state   State
	commit  commit.CommitState
	err     error
	result  []byte
	root    root
	readers map[int]bool // epochs of roots that may be reading
	// on are the tasks that were on each executor.
	on map[string]map[TaskID]bool
	// gone are the revisions in which accepted attempts were given up.
	gone     map[string]uint64
	freed    bool // everything but a kept final stage
	kept     bool // the final stage outlives success, for the client
	pipe     pipe
	revision uint64
	started  time.Time
	ended    time.Time
	now      time.Time
	out      []Action
}

// Phases of a running job.
const (
	PhasePlanning   = "planning"
	PhaseExecuting  = "executing"
	PhaseCommitting = "committing"
)

// Default limits, for a Spec that leaves them out.
const (
	DefaultMaxTaskFailures  = 4
	DefaultMaxStageAttempts = 4
)

// New returns the graph of a planned job, in state Planning. A spec that makes
// no sense fails the job when it starts.
func New(spec Spec, now time.Time) *Graph {
	if spec.MaxTaskFailures <= 0 {
		spec.MaxTaskFailures = DefaultMaxTaskFailures
	}
	if spec.MaxStageAttempts <= 0 {
		spec.MaxStageAttempts = DefaultMaxStageAttempts
	}
	g := &Graph{
		spec: spec, state: Planning, commit: commit.CommitNone,
		byID: map[int]int{}, readers: map[int]bool{}, on: map[string]map[TaskID]bool{}, gone: map[string]uint64{}, started: now, now: now,
	}
	g.specErr = spec.Validate()
	for i, s := range spec.Stages {
		st := &stage{spec: s, state: StageUnresolved, attempt: 1, doneOn: map[string]int{}}
		st.cut(max(s.Tasks, 0))
		g.stages = append(g.stages, st)
		g.byID[s.ID] = i
	}
	return g
}

// Apply takes in one event and returns what must be done, in this order. now
// never runs backwards.
func (g *Graph) Apply(ev Event, now time.Time) []Action {
	g.now, g.out = now, nil
	switch ev := ev.(type) {
	case Start:
		g.start()
	case TaskLaunched:
		g.taskLaunched(ev)
	case TaskSucceeded:
		g.taskSucceeded(ev)
	case RowsReady:
		g.rowsReady(ev)
	case TaskFailed:
		g.taskFailed(ev)
	case ExecutorLost:
		g.executorLost(ev)
	case OutputsLost:
		g.outputsLost(ev)
	case RootStarted:
		g.rootStarted(ev)
	case RootLostInput:
		g.rootLostInput(ev)
	case RootSealed:
		g.rootSealed(ev)
	case RootInFlight:
		g.rootInFlight(ev)
	case RootFinished:
		g.rootFinished(ev)
	case CancelRequested:
		g.cancel()
	case Failed:
		if !g.pastNoReturn() {
			g.fail(ev.Err)
		}
	case ResultExpired:
		g.resultExpired()
	case SourceReady:
		g.sourceReady(ev)
	}
	g.show()
	out := g.out
	g.out = nil
	return out
}

// State is the job's state.
func (g *Graph) State() State { return g.state }

// Commit says whether the table changed, whatever the job's state.
func (g *Graph) Commit() commit.CommitState { return g.commit }

// Phase is one of the Phase constants while the job hasn't ended, then empty.
func (g *Graph) Phase() string {
	switch {
	case g.hasEnded():
		return ""
	case g.state != Running:
		return PhasePlanning
	case g.root.state != rootNone:
		return PhaseCommitting
	default:
		return PhaseExecuting
	}
}

// Err is why the job failed; nil unless its state is JobFailed.
func (g *Graph) Err() error { return g.err }

// Result is the inline result, an Arrow IPC stream; nil unless a job with a
// root has succeeded.
func (g *Graph) Result() []byte { return g.result }

// Revision grows with every event that changed anything.
func (g *Graph) Revision() uint64 { return g.revision }

// Times are when the job was planned and when it ended (zero before that).
func (g *Graph) Times() (started, ended time.Time) { return g.started, g.ended }

// Progress is in percent. It is 100 only when the job has succeeded: not while
// its root runs, and not after a failure.
func (g *Graph) Progress() int {
	if g.state == Succeeded {
		return 100
	}
	done, all := 0, 0
	for _, s := range g.stages {
		done += s.done
		all += len(s.tasks)
	}
	if all == 0 {
		return 0
	}
	return done * 99 / all
}

// Stages is what can be shown of the stages, in plan order.
func (g *Graph) Stages() []StageView {
	views := make([]StageView, 0, len(g.stages))
	for _, s := range g.stages {
		views = append(views, StageView{
			ID: s.spec.ID, State: s.state, Attempt: s.attempt, Tasks: len(s.tasks), Done: s.done,
			Rows: s.rows, Bytes: s.bytes, Files: s.files, Started: s.started, Ended: s.ended, Layout: s.layout,
		})
	}
	return views
}

// StageMark is a stage's state without its numbers.
type StageMark struct {
	ID      int
	State   StageState
	Attempt int
}

// StageMarks are the states of the stages, in plan order; unlike Stages it doesn't
// look at their tasks.
func (g *Graph) StageMarks() []StageMark {
	marks := make([]StageMark, len(g.stages))
	for i, s := range g.stages {
		marks[i] = StageMark{s.spec.ID, s.state, s.attempt}
	}
	return marks
}

// RootView is what can be shown of the scheduler root.
type RootView struct {
	// Epoch counts the runs of the root; 0 before the first.
	Epoch int
	// State is StageUnresolved before the final stage succeeded.
	State   StageState
	Started time.Time
	Ended   time.Time
}

// Root is what can be shown of the scheduler root; ok is false for a job
// without one.
func (g *Graph) Root() (v RootView, ok bool) {
	v = RootView{Epoch: g.root.epoch, Started: g.root.started, Ended: g.root.ended}
	switch g.root.state {
	case rootNone:
		v.State = StageUnresolved
	case rootEmitted:
		v.State = StageResolved
	case rootReading, rootSealed, rootInFlight:
		v.State = StageRunning
	case rootDone:
		v.State = StageFailed
		if g.state == Succeeded {
			v.State = StageSucceeded
		}
	}
	return v, g.spec.HasRoot
}

// Accepted are the final stage's accepted outputs, in plan order.
func (g *Graph) Accepted() []Accepted {
	if len(g.stages) == 0 {
		return nil
	}
	return g.final().outputs(nil)
}

// final is the last stage; a graph that runs has one.
func (g *Graph) final() *stage { return g.stages[len(g.stages)-1] }

// TaskRun is the current or accepted attempt of one task.
type TaskRun struct {
	Task     TaskID
	Attempt  string
	Executor string
	Done     bool
	// Twin: it runs beside another attempt of its task.
	Twin bool
	// Started and Ended are zero where they aren't known.
	Started, Ended time.Time
}

// Runs are the attempts that run or were accepted, in plan order.
func (g *Graph) Runs() []TaskRun {
	var runs []TaskRun
	for _, s := range g.stages {
		for i := range s.tasks {
			t, id := &s.tasks[i], TaskID{s.spec.ID, i}
			switch t.state {
			case taskRunning:
				runs = append(runs, TaskRun{Task: id, Attempt: t.attempt, Executor: t.executor, Started: t.launched})
				if t.twin.attempt != "" {
					runs = append(runs, TaskRun{Task: id, Attempt: t.twin.attempt, Executor: t.twin.executor, Twin: true, Started: t.twin.started})
				}
			case taskDone:
				runs = append(runs, TaskRun{Task: id, Attempt: t.attempt, Executor: t.executor, Done: true, Started: t.launched, Ended: t.ended})
			case taskWaiting, taskQueued:
			}
		}
	}
	return runs
}

// Rejected is how many rows the accepted attempts left out, and the first ten
// reasons ("file:line: why"), in plan order.
func (g *Graph) Rejected() (rows int64, why []string) {
	for _, s := range g.stages {
		rows += s.rejected
		for i, left := 0, s.rejected; left > 0 && len(why) < 10 && i < len(s.tasks); i++ {
			if t := &s.tasks[i]; t.state == taskDone {
				why = append(why, t.rejects[:min(len(t.rejects), 10-len(why))]...)
				left -= t.rejected
			}
		}
	}
	return rows, why
}

func (g *Graph) emit(a ...Action) { g.out = append(g.out, a...) }

func (g *Graph) touch() { g.revision++ }

func (g *Graph) hasEnded() bool {
	return g.state == Succeeded || g.state == JobFailed || g.state == Cancelled
}

func (g *Graph) start() {
	if g.state != Planning {
		return
	}
	g.touch()
	if g.specErr != nil {
		g.fail(g.specErr)
		return
	}
	g.state = Running
	g.settle()
}

// fail ends the job as failed.
func (g *Graph) fail(err error) {
	if g.hasEnded() {
		return
	}
	g.err = err
	g.end(JobFailed)
}

// end moves the job to a final state: nothing runs on, and data is freed as
// soon as nobody reads it.
func (g *Graph) end(s State) {
	g.touch()
	g.state, g.ended = s, g.now
	g.cancelTasks()
	for _, st := range g.stages {
		if st.state == StageRunning || st.state == StageResolved {
			st.state, st.ended = StageFailed, g.now
		}
	}
	if g.root.state == rootReading || g.root.state == rootSealed {
		g.emit(StopRoot{Epoch: g.root.epoch})
	}
	if s != Succeeded && g.root.state != rootDone && g.commit == commit.CommitPreparing {
		g.commit = commit.CommitNone
	}
	g.emit(JobEnded{})
	g.free()
}

// free emits FreeJobData once the job has ended and no root reads any more.
func (g *Graph) free() {
	if g.freed || !g.hasEnded() || len(g.readers) > 0 {
		return
	}
	g.freed = true
	if g.state != Succeeded || g.spec.HasRoot {
		g.emit(FreeJobData{})
		return
	}
	g.kept = true
	var ids []int
	for _, s := range g.stages[:len(g.stages)-1] {
		ids = append(ids, s.spec.ID)
	}
	if len(ids) > 0 { // nil would mean the whole job
		g.emit(FreeJobData{Stages: ids})
	}
}

// resultExpired frees the final stage that was kept for the client.
func (g *Graph) resultExpired() {
	if g.kept {
		g.kept = false
		g.touch()
		g.emit(FreeJobData{Stages: []int{g.stages[len(g.stages)-1].spec.ID}})
	}
}

func (g *Graph) cancel() {
	switch {
	case g.hasEnded():
		g.emit(CancelAnswer{AnswerAlreadyEnded})
	case g.pastNoReturn():
		g.emit(CancelAnswer{AnswerCommitInFlight})
	default:
		g.end(Cancelled)
		g.emit(CancelAnswer{AnswerCancelled})
	}
}
