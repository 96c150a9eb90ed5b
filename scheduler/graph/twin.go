package graph

import "time"

// launch is an attempt that runs.
type launch struct {
	attempt, executor string
	started           time.Time
}

// Twin gives what a second attempt of a running task would read, for a task that
// takes long. It is launched by TaskLaunched with Twin set, on another executor.
// The first success of the two is accepted and the other one is stopped; a failure
// of one leaves the other alone. ok is false when the task can't have one: it
// doesn't run, has one already, or an input of it is gone. A pipelined job's tasks
// have none: their rows are read before it is known which of the two is first.
func (g *Graph) Twin(id TaskID) (run RunTask, ok bool) {
	s, t := g.find(id)
	if t == nil || !g.mayTwin(s, t) {
		return RunTask{}, false
	}
	return RunTask{Task: id, StageAttempt: t.stageAttempt, Inputs: g.inputs(s, id.Task), Failed: t.failedOn, Since: g.now}, true
}

func (g *Graph) mayTwin(s *stage, t *task) bool {
	return g.state == Running && t.state == taskRunning && t.twin.attempt == "" && !s.spec.Once && g.ready(s) && !g.spec.Pipelined
}

// ready: all that the stage reads is there, or in a pipelined job on its way.
func (g *Graph) ready(s *stage) bool {
	for _, id := range s.spec.Inputs {
		if in := g.stages[g.byID[id]]; !in.complete() && (!g.streamed(in) || !in.underWay()) {
			return false
		}
	}
	return true
}

// streamed: what stage in writes is read while that is written.
func (g *Graph) streamed(in *stage) bool { return g.spec.Pipelined && !in.spec.Whole }

// other is the attempt that runs beside the one named; none has an empty name.
func (t *task) other(attempt string) launch {
	if t.twin.attempt == attempt {
		return launch{t.attempt, t.executor, t.launched}
	}
	return t.twin
}

// on is the attempt of a running task that is on an executor.
func (t *task) on(executor string) launch {
	switch executor {
	case t.executor:
		return launch{t.attempt, t.executor, t.launched}
	case t.twin.executor:
		return t.twin
	default:
		return launch{}
	}
}

// leave takes an attempt off a running task: its twin goes on, or the task waits
// to be queued again.
func (g *Graph) leave(s *stage, t *task, attempt string) {
	switch {
	case t.twin.attempt == "":
		g.become(s, t, taskWaiting)
	case attempt == t.attempt:
		t.attempt, t.executor, t.launched = t.twin.attempt, t.twin.executor, t.twin.started
	}
	t.twin = launch{}
}
