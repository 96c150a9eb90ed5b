package graph

import (
	"errors"
	"slices"
)

var errInputLost = errors.New("the output of a finished task can't be read any more")

// settle makes the graph consistent after any change: reruns what was lost and
// is needed, queues what can run, and ends the execution when the final stage
// is complete.
func (g *Graph) settle() { g.settleAfter(errInputLost) }

// settleAfter is settle with the cause to tell when a limit is reached.
func (g *Graph) settleAfter(cause error) {
	if g.state != Running || g.isSealed() {
		return
	}
	if !g.rollBack(cause) {
		return
	}
	for g.spec.Pipelined && g.retract(cause) {
		if !g.rollBack(cause) { // more is needed again
			return
		}
	}
	if g.hasEnded() {
		return
	}
	for _, s := range g.stages {
		g.queue(s)
	}
	if g.final().complete() && g.accounted() {
		g.executed()
	}
}

// rollBack walks from the final stage backwards. A stage is needed when it is
// the final one or feeds a stage that isn't complete (in a pipelined job one that
// has tasks to run: see accounted); only there lost output is given up and rerun.
// False: a limit was reached and the job has failed.
func (g *Graph) rollBack(cause error) bool {
	needed := make([]bool, len(g.stages))
	needed[len(g.stages)-1] = true
	for i, s := range slices.Backward(g.stages) {
		if needed[i] && s.lost > 0 {
			s.rollbacks++
			s.attempt++
			s.state = StageRunning
			if s.rollbacks > g.spec.MaxStageAttempts {
				s.state, s.ended = StageFailed, g.now
				g.fail(errStageLimit(s.spec.ID, s.rollbacks-1, cause))
				return false
			}
			if s.spec.Deterministic {
				g.dropLost(s)
			} else {
				g.rerunWhole(i)
			}
			g.abandonRoot()
		}
		if needed[i] && !s.complete() || g.spec.Pipelined && s.done < len(s.tasks) {
			for _, id := range s.spec.Inputs {
				needed[g.byID[id]] = true
			}
		}
	}
	return true
}

// abandonRoot ends the epoch of a root whose input is being rerun.
func (g *Graph) abandonRoot() {
	if g.root.state == rootReading {
		g.emit(StopRoot{Epoch: g.root.epoch})
	}
	g.root.state = rootNone
}

func (g *Graph) dropLost(s *stage) {
	for i := range s.tasks {
		if s.tasks[i].lost {
			g.drop(s, &s.tasks[i])
		}
	}
}

// drop takes an acceptance back. The output of that attempt is never listed
// again.
func (g *Graph) drop(s *stage, t *task) {
	if t.state == taskDone {
		g.gone[t.attempt] = g.revision
		g.emit(DropOutput{Attempt: t.attempt})
	}
	g.become(s, t, taskWaiting)
	t.lost, t.accepted = false, nil
	t.rows, t.bytes, t.files, t.rejected, t.rejects = 0, 0, 0, 0, nil
}

// rerunWhole gives up everything that stage i made and all that was made from
// it. Downstream stages come later in plan order, so rollBack has passed them
// already; all of them lie on the way to the final stage, and so does i.
func (g *Graph) rerunWhole(i int) {
	tainted := make([]bool, len(g.stages))
	tainted[i] = true
	g.giveUp(i, i, tainted)
}

// giveUp gives up what the tainted stages made and all that was made from it, from
// stage from on. Stage i goes on as it is cut; the others may be cut anew.
func (g *Graph) giveUp(i, from int, tainted []bool) {
	for n := from; n < len(g.stages); n++ {
		s := g.stages[n]
		for _, id := range s.spec.Inputs {
			tainted[n] = tainted[n] || tainted[g.byID[id]]
		}
		if !tainted[n] {
			continue
		}
		if n != i {
			s.attempt++
			s.state = StageUnresolved
		}
		for k := range s.tasks {
			g.stopTask(s, k)
			g.drop(s, &s.tasks[k])
		}
		if n != i && s.layout != nil {
			s.layout = nil
			s.cut(s.spec.Tasks)
			g.emit(KeepLayout{Stage: s.spec.ID})
		}
	}
}

// queue emits RunTask for the tasks of a stage that can run, and takes those
// back whose inputs are gone. Tasks that run already go on, as they may have read
// their input, except in a pipelined job.
func (g *Graph) queue(s *stage) {
	if s.awaitsSource {
		return
	}
	if !g.ready(s) {
		back := s.state == StageRunning || s.state == StageResolved
		running := len(s.tasks) - s.waiting - s.queued - s.done
		for n := 0; s.queued > 0 || running > 0 && g.spec.Pipelined; n++ {
			st := s.tasks[n].state
			if st == taskRunning {
				running--
			}
			if st == taskQueued || st == taskRunning && g.spec.Pipelined {
				g.stopTask(s, n)
			}
		}
		if back && s.waiting > 0 {
			s.attempt++
			s.state = StageUnresolved
		}
		return
	}
	if s.state == StageUnresolved {
		s.state = StageResolved
	}
	if s.spec.Adapt != nil && s.layout == nil {
		g.layOut(s)
	}
	from, left := s.first, s.waiting
	for s.first = len(s.tasks); left > 0; from++ {
		n := from
		t := &s.tasks[n]
		if t.state != taskWaiting {
			continue
		}
		if left--; g.held(t) {
			s.first = min(s.first, n)
		} else {
			g.become(s, t, taskQueued)
			t.stageAttempt, t.attempt, t.executor = s.attempt, "", ""
			g.emit(RunTask{Task: TaskID{s.spec.ID, n}, StageAttempt: s.attempt, Inputs: g.inputs(s, n), Failed: t.failedOn, Since: g.now, Broke: s.brokeFor(t)})
		}
	}
	if s.complete() {
		if s.state != StageSucceeded {
			s.state, s.ended = StageSucceeded, g.now
		}
	}
}
