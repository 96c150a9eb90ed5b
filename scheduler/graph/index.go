package graph

import (
	"cmp"
	"slices"
)

// tally is what is asked of a stage's tasks so often that it's counted: a stage may
// have 100,000 of them.
type tally struct {
	waiting, queued, done int
	// first isn't after the first task that waits.
	first int
	// lost are those of done whose output is gone.
	lost        int
	rows, bytes int64
	files       int
	rejected    int64
}

// cut gives a stage n tasks that wait.
func (s *stage) cut(n int) {
	s.tasks, s.tally = make([]task, n), tally{waiting: n}
	for i := range s.tasks {
		s.tasks[i].n = i
	}
}

// become changes a task's state. A task is taken in or out of what is counted as it
// is then: what it gave is set before it is done, and cleared after it was.
func (g *Graph) become(s *stage, t *task, to taskState) {
	s.count(t, -1)
	// While a task is done its executor stays the same, so both counts are of that one.
	if by := btoi(to == taskDone) - btoi(t.state == taskDone); by != 0 {
		if s.doneOn[t.executor] += by; s.doneOn[t.executor] == 0 {
			delete(s.doneOn, t.executor)
		}
	}
	t.state = to
	s.count(t, 1)
	if to == taskWaiting {
		s.first = min(s.first, t.n)
	}
	if to != taskRunning {
		t.flows = false
	}
	g.changed(s, t)
}

func (s *stage) count(t *task, by int) {
	switch t.state {
	case taskWaiting:
		s.waiting += by
	case taskQueued:
		s.queued += by
	case taskRunning:
	case taskDone:
		s.done += by
		s.lost += by * btoi(t.lost)
		s.rows, s.bytes, s.files = s.rows+int64(by)*t.rows, s.bytes+int64(by)*t.bytes, s.files+by*t.files
		s.rejected += int64(by) * t.rejected
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// lose marks that the output of a task that is done can't be read any more.
func (g *Graph) lose(s *stage, t *task) {
	if !t.lost {
		t.lost = true
		s.lost++
		g.changed(s, t)
	}
}

// seenOn takes note that an attempt of a task was on an executor.
func (g *Graph) seenOn(executor string, id TaskID) {
	if g.on[executor] == nil {
		g.on[executor] = map[TaskID]bool{}
	}
	g.on[executor][id] = true
}

// tasksOn are the tasks that run on an executor or were accepted there, and maybe
// others that did, in plan order.
func (g *Graph) tasksOn(executor string) []TaskID {
	all := make([]TaskID, 0, len(g.on[executor]))
	for id := range g.on[executor] {
		all = append(all, id)
	}
	slices.SortFunc(all, func(a, b TaskID) int {
		return cmp.Or(cmp.Compare(g.byID[a.Stage], g.byID[b.Stage]), cmp.Compare(a.Task, b.Task))
	})
	return all
}

// DoneOn counts the accepted attempts by executor, of the stages of which that is asked.
func (g *Graph) DoneOn(of func(stage int) bool) map[string]int {
	all := map[string]int{}
	for _, s := range g.stages {
		if of(s.spec.ID) {
			for e, n := range s.doneOn {
				all[e] += n
			}
		}
	}
	return all
}

// HasOutputOn says whether an attempt was accepted on an executor.
func (g *Graph) HasOutputOn(executor string) bool {
	return slices.ContainsFunc(g.stages, func(s *stage) bool { return s.doneOn[executor] > 0 })
}
