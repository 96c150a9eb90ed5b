package scheduler

import (
	"cmp"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/eventlog"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/metrics"
	"github.com/firn-project/firn/scheduler/planner"
)

// ticketTTL is how long a running job's own tickets hold: longer than any task
// waits before it opens its input.
const ticketTTL = 24 * time.Hour

// poll is an executor's wait for work under pull dispatch.
type poll struct {
	executor *executor
	free     int
	// tasks gets one value, or is closed when there's none to be had.
	tasks chan []*firnpb.TaskDefinition
}

// dispatch gives queued tasks to free slots. It runs after each event; jobs take
// turns task by task, so that a large one doesn't hold up a small one.
func (s *Scheduler) dispatch() {
	if len(s.state.ready) == 0 || s.state.closing {
		return
	}
	if s.cfg.Dispatch == DispatchPull {
		s.answerPolls()
		return
	}
	batches := map[*executor][]*launch{}
	free := func(e *executor) bool { return e.free() > 0 }
	for _, t := range s.launchNext(math.MaxInt, free) {
		batches[t.attempt.executor] = append(batches[t.attempt.executor], t)
	}
	for e, launches := range batches {
		s.handOut(launches, func(tasks []*firnpb.TaskDefinition) {
			if len(tasks) > 0 {
				e.outbox.launch(tasks)
			}
		})
	}
}

// launch is one attempt on its way to its executor.
type launch struct {
	attempt *attempt
	planned *planner.Job
	inputs  []plan.ShuffleLocation
	broke   []graph.SourceBreak
	// task is what its executor gets, err why there's none. They are made aside from
	// the event loop: a task may read 100,000 outputs, with a ticket for each.
	task *firnpb.TaskDefinition
	err  error
}

// handOut records the attempts and gives out, once that is durable, what of them
// is still wanted. give is called in the event loop, or with nothing when that
// has ended.
func (s *Scheduler) handOut(launches []*launch, give func([]*firnpb.TaskDefinition)) {
	for _, l := range launches {
		s.noted(l.attempt.job, journal.Batch{Started: []journal.Attempt{startedAttempt(l.attempt)}})
	}
	durable := make(chan error, 1)
	s.noted(nil, journal.Batch{}, func(err error) { durable <- err })
	s.wg.Go(func() {
		for _, l := range launches {
			s.define(l)
		}
		err := <-durable
		if !s.loop.put(func() {
			var tasks []*firnpb.TaskDefinition
			for _, l := range launches {
				switch {
				case err != nil || s.state.attempts[l.attempt.id] != l.attempt:
				case l.err != nil:
					s.apply(l.attempt.job, graph.Failed{Err: l.err})
				default:
					l.attempt.handed = true
					s.noteTask(l.attempt, eventlog.TaskStarted, "running", nil)
					tasks = append(tasks, l.task)
				}
			}
			give(tasks)
		}) {
			give(nil)
		}
	})
}

// has notes that the executor has answered for the tasks: from now on it lists
// them as long as they run.
func (e *executor) has(tasks []*firnpb.TaskDefinition) {
	for _, t := range tasks {
		if a := e.running[t.GetAttemptId()]; a != nil {
			a.given = true
		}
	}
}

// asksAgain notes that the executor has got the answers to its earlier polls, or
// never will: it sends one at a time.
func (e *executor) asksAgain() {
	for _, a := range e.running {
		a.given = a.given || a.handed
	}
}

// answerPolls shares the queued tasks out between the executors that wait, so
// that the first to ask doesn't take all. One for which there is no task waits on.
func (s *Scheduler) answerPolls() {
	for _, p := range slices.Clone(s.state.polls) {
		waiting := 0
		for _, j := range s.state.ready {
			waiting += len(j.queue)
		}
		n := min(p.free, max(1, (waiting+len(s.state.executors)-1)/len(s.state.executors)))
		tasks := s.launchNext(n, func(e *executor) bool { return e == p.executor && e.free() > 0 })
		if len(tasks) == 0 {
			continue
		}
		s.state.polls = slices.DeleteFunc(s.state.polls, func(o *poll) bool { return o == p })
		s.handOut(tasks, func(tasks []*firnpb.TaskDefinition) { p.tasks <- tasks })
	}
}

// releasePolls answers every poll with nothing.
func (s *Scheduler) releasePolls() {
	for _, p := range s.state.polls {
		close(p.tasks)
	}
	s.state.polls = nil
}

// launchNext starts up to n attempts on the executors that have room, one of each
// job in turn.
func (s *Scheduler) launchNext(n int, room func(*executor) bool) []*launch {
	var all []*launch
	up := s.up()
	now := time.Now()
	for passed := 0; len(all) < n && passed < len(s.state.ready) && s.leastBusy(room) != nil; {
		j := s.state.ready[0]
		s.state.ready = s.state.ready[1:]
		if len(j.queue) == 0 { // they were cancelled
			continue
		}
		fresh := s.placement.Fit(j.id, up, nil, 0, now) // nearly all tasks haven't failed anywhere
		run, e, found := s.next(j, func(run graph.RunTask) *executor {
			fits := fresh
			if len(run.Failed) > 0 {
				fits = s.placement.Fit(j.id, up, run.Failed, now.Sub(run.Since), now)
			}
			takes := func(e *executor) bool { return room(e) && fits(e.id) }
			e := s.leastBusy(takes)
			if e == nil || !readsFrames(j, run) {
				return e
			}
			// What it reads is looked at only now that it is launched.
			holds := map[string]bool{}
			for _, in := range run.Inputs {
				holds[in.Executor] = true
			}
			return cmp.Or(s.leastBusy(func(e *executor) bool { return takes(e) && holds[e.id] }), e)
		})
		if len(j.queue) > 0 {
			s.state.ready = append(s.state.ready, j)
		}
		if passed++; !found {
			continue
		}
		passed = 0
		if l := s.launch(e, j, run, false); l != nil {
			all = append(all, l)
		}
	}
	return all
}

// maxWaiting is how many queued tasks of a job, that wait for an executor on which
// they haven't failed, are looked at for one that needn't.
const maxWaiting = 64

// next takes the first queued task of a job that there's an executor for.
func (s *Scheduler) next(j *job, place func(graph.RunTask) *executor) (run graph.RunTask, e *executor, found bool) {
	for i, run := range j.queue[:min(len(j.queue), maxWaiting)] {
		if e := place(run); e != nil {
			copy(j.queue[1:i+1], j.queue[:i])
			j.queue = j.queue[1:]
			return run, e, true
		}
	}
	return graph.RunTask{}, nil, false
}

// readsFrames says whether a task reads pieces of cached frames.
func readsFrames(j *job, run graph.RunTask) bool {
	return slices.ContainsFunc(j.planned.Stages[run.Task.Stage].Inputs, func(in int) bool { return j.planned.Stages[in].Frame != "" })
}

// unreachable notes that an executor couldn't be read from: the job's tasks rather run
// elsewhere, and what it has of frames is made again.
func (s *Scheduler) unreachable(j *job, lost *wire.LostInputError) {
	if lost.Unreachable && !j.hasEnded() { // with its end what is known of a job goes
		s.log.Warn("executor can't be read from", slog.String("job_id", j.id), slog.String("executor", lost.Executor), slog.Any("error", lost))
		s.placement.Unreachable(j.id, lost.Executor, s.up(), time.Now())
		s.losePiecesOn(j, lost.Executor)
	}
}

func lostOf(l *wire.LostInputError) *graph.LostInput {
	return &graph.LostInput{Task: graph.TaskID{Stage: l.Stage, Task: l.Task}, Attempt: l.Attempt, Executor: l.Executor, Unreachable: l.Unreachable}
}

// up are the executors that take tasks.
func (s *Scheduler) up() []string {
	var all []string
	for _, e := range s.state.executors {
		if e.stays() {
			all = append(all, e.id)
		}
	}
	return all
}

// speculate starts second attempts of tasks that take long, where slots are free:
// work that waits goes first.
func (s *Scheduler) speculate(now time.Time) {
	if len(s.state.ready) > 0 || s.state.closing {
		return
	}
	for _, j := range s.jobsInOrder() {
		if j.graph == nil || j.graph.Phase() != graph.PhaseExecuting {
			continue
		}
		if stages := j.graph.Stages(); s.cfg.Speculation.Looks(stages) {
			for _, late := range s.cfg.Speculation.Pick(j.graph.Runs(), stages, now) {
				s.launchTwin(j, late)
			}
		}
	}
}

// launchTwin starts a second attempt on an executor that has a free slot and isn't
// the first one's, if there is one.
func (s *Scheduler) launchTwin(j *job, late graph.TaskRun) {
	run, ok := j.graph.Twin(late.Task)
	if !ok {
		return
	}
	var p *poll
	fits := s.placement.Fit(j.id, s.up(), append(slices.Clip(run.Failed), late.Executor), 0, time.Now())
	other := func(e *executor) bool { return e.id != late.Executor && e.free() > 0 && fits(e.id) }
	e := s.leastBusy(other)
	if s.cfg.Dispatch == DispatchPull {
		i := slices.IndexFunc(s.state.polls, func(p *poll) bool { return other(p.executor) })
		if i < 0 {
			return
		}
		p = s.state.polls[i]
		s.state.polls = slices.Delete(s.state.polls, i, i+1)
		e = p.executor
	}
	if e == nil {
		return
	}
	var launches []*launch
	if l := s.launch(e, j, run, true); l != nil {
		s.log.Info("task takes long and is run twice", slog.String("job_id", j.id), slog.Int("stage", run.Task.Stage), slog.Int("task", run.Task.Task),
			slog.String("attempt", late.Attempt), slog.String("executor", late.Executor), slog.String("twin", l.attempt.id), slog.String("twin_executor", e.id))
		launches = append(launches, l)
	}
	s.handOut(launches, func(tasks []*firnpb.TaskDefinition) {
		switch {
		case p != nil:
			p.tasks <- tasks
		case len(tasks) > 0:
			e.outbox.launch(tasks)
		}
	})
}

// launch starts an attempt of a task on e. Nil: the job doesn't want it any more.
func (s *Scheduler) launch(e *executor, j *job, run graph.RunTask, twin bool) *launch {
	s.use(e)
	a := &attempt{id: newID("a-"), job: j, task: run.Task, stageAttempt: run.StageAttempt, executor: e, twin: twin}
	s.state.attempts[a.id], e.running[a.id] = a, a
	s.apply(j, graph.TaskLaunched{Task: a.task, StageAttempt: a.stageAttempt, Attempt: a.id, Executor: e.id, Twin: twin})
	if s.state.attempts[a.id] != a { // taken back at once
		return nil
	}
	if lost := s.notHeld(j, run.Inputs); lost != nil {
		s.endAttempt(a)
		s.apply(j, graph.TaskFailed{
			Task: a.task, StageAttempt: a.stageAttempt, Attempt: a.id, Executor: e.id, Class: graph.Retryable, Lost: lost,
			Err: &wire.LostInputError{Stage: lost.Task.Stage, Task: lost.Task.Task, Attempt: lost.Attempt, Executor: lost.Executor, Cause: errNotHeld},
		})
		return nil
	}
	s.log.Debug("task launched", slog.String("job_id", j.id), slog.Int("stage", a.task.Stage), slog.Int("task", a.task.Task),
		slog.String("attempt", a.id), slog.String("executor", e.id))
	return &launch{attempt: a, planned: j.planned, inputs: s.locations(j, run.Inputs), broke: run.Broke}
}

var errNotHeld = errors.New("the piece of a cached frame that it stood for isn't the job's any more")

// notHeld is an input that stands for a piece of a cached frame which the job doesn't
// hold; nil for none. Without the check the task would read another run's rows, or
// nothing.
func (s *Scheduler) notHeld(j *job, inputs []graph.Accepted) *graph.LostInput {
	for _, in := range inputs {
		if frame := j.planned.Stages[in.Task.Stage].Frame; frame != "" {
			if p, ok := s.state.frames.Held(frame, j.id, in.Task.Task); !ok || !isNameOf(in.Attempt, p) {
				return &graph.LostInput{Task: in.Task, Attempt: in.Attempt, Executor: in.Executor}
			}
		}
	}
	return nil
}

// define makes what the executor gets. It touches nothing that changes.
func (s *Scheduler) define(l *launch) {
	a := l.attempt
	j := a.job
	stage := &l.planned.Stages[a.task.Stage]
	fragment, err := l.planned.Fragment(stage.ID, a.task.Task, s.sign(l.inputs, time.Now().Add(ticketTTL)))
	if err != nil {
		l.err = err
		return
	}
	l.task = &firnpb.TaskDefinition{
		JobId: j.id, Stage: uint32(a.task.Stage), StageAttempt: uint32(a.stageAttempt), Task: uint32(a.task.Task),
		AttemptId: a.id, Fragment: fragment, MemoryBytes: a.executor.memory / int64(max(a.executor.slots, 1)),
		NowUnixUs: j.now.UnixMicro(), TimeZone: j.timeZone, Outputs: uint32(stage.Outputs), Manifests: stage.Manifests,
		Streamed: j.mode == plan.ModePipelined,
	}
	for _, b := range l.broke {
		l.task.Broke = append(l.task.Broke, &firnpb.SourceBreak{Part: b.Part, Location: b.Location, Said: b.Said, Code: string(b.Code)})
	}
}

// locations says where accepted outputs can be read, with a ticket from sign. An
// executor that is gone has no address; reading from it then fails as lost input.
func (s *Scheduler) locations(j *job, inputs []graph.Accepted) []plan.ShuffleLocation {
	all := make([]plan.ShuffleLocation, 0, len(inputs))
	for _, in := range inputs {
		l := plan.ShuffleLocation{
			Job: j.id, Stage: in.Task.Stage, Task: in.Task.Task, Attempt: in.Attempt, Output: in.Output.Partition,
			Executor: in.Executor, Rows: in.Output.Rows, Bytes: in.Output.Bytes, Follow: in.Running,
		}
		if l.Frame = j.planned.Stages[in.Task.Stage].Frame; l.Frame != "" {
			p, _ := s.state.frames.Held(l.Frame, j.id, in.Task.Task)
			l.Job, l.Stage, l.Attempt = p.Build, p.Stage, p.Attempt
		}
		if l.First, l.End = in.First, in.End; in.End > 0 {
			l.Rows, l.Bytes = in.End-in.First, in.Output.Bytes*(in.End-in.First)/max(in.Output.Rows, 1)
		}
		if e := s.state.executors[in.Executor]; e != nil {
			l.Address = e.flight
		}
		all = append(all, l)
	}
	return all
}

// sign gives each location its ticket. It takes some 15 µs for each, so who signs
// many doesn't do it in the event loop.
func (s *Scheduler) sign(locations []plan.ShuffleLocation, expires time.Time) []plan.ShuffleLocation {
	for i := range locations {
		l := &locations[i]
		l.Ticket = s.signer.Sign(&firnpb.Ticket{
			Purpose: wire.PurposeRead, JobId: l.Job, Stage: uint32(l.Stage), Task: uint32(l.Task),
			AttemptId: l.Attempt, Output: uint32(l.Output), ExecutorId: l.Executor,
			ExpiresUnixMs: expires.UnixMilli(), FirstRow: l.First, EndRow: l.End, Follow: l.Follow,
		})
	}
	return locations
}

// enqueue queues a task of a job.
func (s *Scheduler) enqueue(j *job, run graph.RunTask) {
	j.queue = append(j.queue, run)
	if !slices.Contains(s.state.ready, j) {
		s.state.ready = append(s.state.ready, j)
	}
}

// cancelTask takes a task out of the queue or off its executor.
func (s *Scheduler) cancelTask(j *job, c graph.CancelTask) {
	if c.Attempt == "" && j.planned.Stages[c.Task.Stage].Frame != "" {
		s.unwantPiece(j, c.Task)
		return
	}
	if c.Attempt == "" {
		switch i := slices.IndexFunc(j.queue, func(r graph.RunTask) bool { return r.Task == c.Task }); {
		case i == 0: // as when a whole job is cancelled, which may have 100,000 tasks
			j.queue = j.queue[1:]
		case i > 0:
			j.queue = slices.Delete(j.queue, i, i+1)
		}
		return
	}
	a := s.state.attempts[c.Attempt]
	if a == nil {
		return
	}
	s.endAttempt(a)
	s.attemptOver(a, metrics.TaskCancelled, 0, nil)
	s.noted(nil, journal.Batch{Ended: []string{a.id}})
	a.executor.outbox.cancel(a.id)
}

// freeData removes shuffle data of a job that has ended, or of an upload, on all
// executors.
func (s *Scheduler) freeData(id string, stages []int) {
	for _, e := range s.state.executors {
		e.outbox.free(id, stages)
	}
}

func compareIDs(a, b string) int { return strings.Compare(a, b) }
