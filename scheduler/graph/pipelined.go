package graph

// pipe is what a pipelined job has besides.
//
// Its tasks are queued once each task of the stages that they read runs or was
// accepted, and they are taken off their executors when that's no longer so. From
// this follows:
//
//   - A task that runs reads the attempts that its inputs have now. When one of
//     those ends without being accepted, whoever reads it begins anew, with the
//     attempt that comes next.
//   - No two tasks wait for each other, and none for a slot that a task has which
//     waits for it: what a running task waits for runs, down to a task that
//     waits for nobody, as no task waits for its readers. So with however few
//     slots, and however many jobs, something goes on.
//   - What a reader of rows that don't repeat has made of them goes with them:
//     where a stage that isn't deterministic has to run a task again, everything
//     is given up that was made by tasks behind it.
//   - Rows of the final stage that were shown are never followed by those of
//     another run, unless that gives the same ones: else the job fails.
type pipe struct {
	// shown is how many tasks of the final stage, from the first on, a client may
	// have read rows of.
	shown int
	// listed is what Readable gives, listing counts its changes, and dirty are the
	// tasks of the final stage of which something has changed since.
	listed  []listed
	listing uint64
	dirty   []int
	// holding: some task waits for the end of an attempt that it can't read.
	holding bool
}

// listed is a task of which a client was shown the outputs.
type listed struct {
	attempt string
	running bool
	// since is the listing that it is in as it is now, and in each one after that.
	since uint64
}

// underWay: every task runs or was accepted and can be read.
func (s *stage) underWay() bool { return !s.stopped() && s.lost == 0 }

// begun: some task runs or was accepted.
func (s *stage) begun() bool { return s.waiting+s.queued < len(s.tasks) }

// stopped: some task has no attempt, now or accepted.
func (s *stage) stopped() bool { return s.waiting+s.queued > 0 }

// stoppedBefore: one of the first tasks has no attempt.
func (s *stage) stoppedBefore(n int) bool {
	for i := range min(n, len(s.tasks)) {
		if t := &s.tasks[i]; t.state == taskWaiting || t.state == taskQueued {
			return true
		}
	}
	return false
}

// streams lists what was accepted and what is being written, in plan order; only
// that of one partition when it isn't nil.
func (s *stage) streams(partition *int) []Accepted {
	var all []Accepted
	for i := range s.tasks {
		t := &s.tasks[i]
		if t.state == taskRunning {
			all = append(all, t.running(TaskID{s.spec.ID, i}, max(s.spec.Outputs, 1), partition)...)
			continue
		}
		for _, a := range t.accepted {
			if partition == nil || a.Output.Partition == *partition {
				all = append(all, a)
			}
		}
	}
	return all
}

// running are the outputs that the task's attempt writes, or the one named.
func (t *task) running(id TaskID, outputs int, partition *int) []Accepted {
	first, end := 0, outputs
	if partition != nil {
		first, end = *partition, min(*partition+1, outputs)
	}
	var all []Accepted
	for n := first; n < end; n++ {
		all = append(all, Accepted{Task: id, Attempt: t.attempt, Executor: t.executor, Output: Output{Partition: n}, Running: true})
	}
	return all
}

// hold keeps a task waiting that couldn't read an attempt which still runs, until
// that has ended: it has failed and says so by itself, or its executor is lost, or
// it can be read when it is accepted.
func (g *Graph) hold(s *stage, t *task, l LostInput) bool {
	if !g.spec.Pipelined {
		return false
	}
	for _, id := range s.spec.Inputs {
		if _, in := g.find(l.Task); id == l.Task.Stage && in != nil && in.state == taskRunning && in.attempt == l.Attempt {
			g.leave(s, t, t.attempt)
			t.heldBy = l
			return true
		}
	}
	return false
}

// held says whether a task waits for the end of an attempt.
func (g *Graph) held(t *task) bool {
	if t.heldBy.Attempt == "" {
		return false
	}
	_, in := g.find(t.heldBy.Task)
	if in == nil || in.state != taskRunning || in.attempt != t.heldBy.Attempt {
		t.heldBy = LostInput{}
		return false
	}
	g.pipe.holding = true
	return true
}

// retract gives up what was made from rows that there aren't any more and that
// don't come again, and says whether there was any of it. If a client may have read
// such rows the job fails.
func (g *Graph) retract(cause error) (gaveUp bool) {
	g.pipe.holding = false
	for i, s := range g.stages {
		if s.spec.Deterministic || !s.stopped() {
			continue
		}
		if g.pipe.shown > 0 && (s != g.final() || s.stoppedBefore(g.pipe.shown)) {
			// Rows were shown of a task that ran, so all tasks of the stages before it
			// did. Of its own stage others may never have had a slot.
			s.state, s.ended = StageFailed, g.now
			g.fail(errShown(cause))
			return false
		}
		behind := g.behind(i)
		for n := range g.stages {
			if n != i && behind[n] && g.stages[n].begun() {
				tainted := make([]bool, len(g.stages))
				tainted[i] = true
				g.giveUp(i, i+1, tainted)
				gaveUp = true
				break
			}
		}
	}
	return gaveUp
}

// behind marks stage i and all that read it, directly or not.
func (g *Graph) behind(i int) []bool {
	marks := make([]bool, len(g.stages))
	marks[i] = true
	for n := i + 1; n < len(g.stages); n++ {
		for _, id := range g.stages[n].spec.Inputs {
			marks[n] = marks[n] || marks[g.byID[id]]
		}
	}
	return marks
}

// accounted: every task of a pipelined job has had its success, also those whose
// readers were faster with theirs. What they say of rejected rows counts.
func (g *Graph) accounted() bool {
	if !g.spec.Pipelined {
		return true
	}
	for _, s := range g.stages {
		if s.done < len(s.tasks) {
			return false
		}
	}
	return true
}

func (g *Graph) rowsReady(ev RowsReady) {
	if s, t := g.current(ev.Task, ev.StageAttempt, ev.Attempt, ev.Executor); t != nil && g.spec.Pipelined && !t.flows {
		g.touch()
		t.flows = true
		g.changed(s, t)
	}
}

// readable: a client can read rows of the task, or that it has none.
func (t *task) readable() bool {
	return t.state == taskRunning && t.flows || t.state == taskDone && !t.lost
}

// show notes of which tasks a client may read rows from now on.
func (g *Graph) show() {
	if !g.spec.Pipelined || g.state != Running {
		return
	}
	for tasks := g.final().tasks; g.pipe.shown < len(tasks) && tasks[g.pipe.shown].readable(); {
		g.pipe.shown++
	}
	g.list()
}

// list brings up to date what is listed. It looks at what has changed only: there may
// be 100,000 tasks.
func (g *Graph) list() {
	p, tasks := &g.pipe, g.final().tasks
	before := p.listing
	for _, n := range p.dirty {
		switch {
		case n >= len(p.listed):
		case !tasks[n].readable():
			p.listed = p.listed[:n]
			p.listing++
		case !p.listed[n].is(&tasks[n]):
			p.listing++
			p.listed[n] = tasks[n].listed(p.listing)
		}
	}
	for n := len(p.listed); n < min(p.shown, len(tasks)) && tasks[n].readable(); n++ {
		p.listing++
		p.listed = append(p.listed, tasks[n].listed(p.listing))
	}
	if p.listing != before {
		g.touch()
	}
	p.dirty = p.dirty[:0]
}

// changed takes note that a task's attempt, or what can be read of it, has changed.
func (g *Graph) changed(s *stage, t *task) {
	if g.spec.Pipelined && s == g.final() {
		g.pipe.dirty = append(g.pipe.dirty, t.n)
	}
}

func (t *task) listed(since uint64) listed { return listed{t.attempt, t.state == taskRunning, since} }

// is says whether the task is still as it was listed.
func (l listed) is(t *task) bool { return l == t.listed(l.since) }

// Listing grows with each change of what Readable gives.
func (g *Graph) Listing() uint64 { return g.pipe.listing }

// Readable is an output that a client can read, at its place among all of them.
type Readable struct {
	Accepted
	Place int
}

// Readable is what a client can read of a pipelined job that runs: the outputs of
// the final stage up to the first task that has none yet, so that rows stay in plan
// order. There are n of them, and changed are those that weren't in an earlier listing
// as they are now: all for listing 0.
func (g *Graph) Readable(listing uint64) (n int, changed []Readable) {
	s := g.final()
	outputs := max(s.spec.Outputs, 1)
	for i := range g.pipe.listed {
		t := &s.tasks[i]
		if g.pipe.listed[i].since <= listing {
			continue
		}
		all := t.accepted
		if t.state == taskRunning {
			all = t.running(TaskID{s.spec.ID, i}, outputs, nil)
		}
		for k, a := range all {
			changed = append(changed, Readable{a, i*outputs + k})
		}
	}
	return len(g.pipe.listed) * outputs, changed
}
