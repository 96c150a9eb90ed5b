package graph

import (
	"time"

	"github.com/firn-project/firn/commit"
)

type rootState uint8

const (
	rootNone    rootState = iota
	rootEmitted           // RunSchedulerRoot was emitted
	rootReading           // StartRoot was answered
	rootSealed            // SealRoot was answered: what it commits is fixed
	rootInFlight
	rootDone
)

// root is the scheduler root's part of the graph. Epochs that were given up
// live on only in Graph.readers.
type root struct {
	state rootState
	// resumed is how far an earlier process had come with it: the state that it
	// has once it starts. rootNone for one that begins anew.
	resumed  rootState
	epoch    int
	restarts int
	started  time.Time
	ended    time.Time
}

// pastNoReturn: a commit was let go. No cancel, no lost executor and no failure
// from outside changes the job any more; only the root's own end does.
func (g *Graph) pastNoReturn() bool { return g.root.reached() == rootInFlight }

// isSealed: what the root commits is fixed and needs no executor any more. A
// cancel still wins, up to the point of no return.
func (g *Graph) isSealed() bool {
	return g.root.reached() == rootSealed || g.root.reached() == rootInFlight
}

// Sealed says whether what the job's root commits is fixed, so that nothing but the
// root's own end, or a cancel before it is sent, ends the job any more.
func (g *Graph) Sealed() bool { return g.isSealed() }

// reached is how far the root has come, in this process or an earlier one.
func (r *root) reached() rootState {
	if r.state == rootEmitted && r.resumed != rootNone {
		return r.resumed
	}
	return r.state
}

// executed is called when every task of the final stage has its accepted
// attempt.
func (g *Graph) executed() {
	if !g.spec.HasRoot {
		g.end(Succeeded)
		return
	}
	if g.root.state != rootNone {
		return
	}
	g.cancelTasks() // reruns that turned out not to be needed
	g.root.state = rootEmitted
	g.root.epoch++
	g.commit = commit.CommitPreparing
	g.emit(RunSchedulerRoot{Epoch: g.root.epoch, Inputs: g.Accepted()})
}

func (g *Graph) rootStarted(ev RootStarted) {
	if g.state != Running || ev.Epoch != g.root.epoch || g.root.state != rootEmitted {
		g.emit(SkipRoot(ev))
		return
	}
	g.touch()
	g.root.state, g.root.started = max(rootReading, g.root.resumed), g.now
	g.readers[ev.Epoch] = true
	g.emit(StartRoot(ev))
}

func (g *Graph) rootLostInput(ev RootLostInput) {
	if g.readers[ev.Epoch] {
		delete(g.readers, ev.Epoch)
		g.touch()
	}
	if g.state != Running || ev.Epoch != g.root.epoch || g.root.state != rootReading {
		g.free()
		return
	}
	g.root.state = rootNone
	g.root.restarts++
	cause := ev.Err
	if cause == nil {
		cause = errInputLost
	}
	if g.root.restarts > g.spec.MaxStageAttempts {
		g.fail(errRoot(cause))
		return
	}
	for _, l := range ev.Lost {
		if l.Task.Stage == g.stages[len(g.stages)-1].spec.ID {
			g.markLost(nil, l)
		}
	}
	g.settleAfter(cause)
}

func (g *Graph) rootSealed(ev RootSealed) {
	switch {
	case g.state != Running || ev.Epoch != g.root.epoch:
		g.emit(StopRoot(ev))
	case g.root.state == rootReading:
		g.touch()
		g.root.state = rootSealed
		g.emit(SealRoot(ev))
	case g.isSealed():
		g.emit(SealRoot(ev))
	default:
		g.emit(StopRoot(ev))
	}
}

func (g *Graph) rootInFlight(ev RootInFlight) {
	current := g.state == Running && ev.Epoch == g.root.epoch
	switch {
	case current && (g.root.state == rootReading || g.root.state == rootSealed):
		g.touch()
		g.root.state = rootInFlight
		g.commit = commit.CommitInFlight
		g.emit(ProceedRoot(ev))
	case current && g.root.state == rootInFlight:
		g.emit(ProceedRoot(ev))
	default:
		g.emit(StopRoot(ev))
	}
}

func (g *Graph) rootFinished(ev RootFinished) {
	if g.readers[ev.Epoch] {
		delete(g.readers, ev.Epoch)
		g.touch()
	}
	mine := ev.Epoch == g.root.epoch && (g.root.state == rootReading || g.isSealed())
	if mine && g.state == Running && ev.Commit == commit.CommitUnknown {
		// There is no job state for it: the job runs until somebody finds out
		// and tells by another RootFinished.
		g.root.state, g.commit = rootInFlight, commit.CommitUnknown
		g.touch()
		return
	}
	if mine {
		g.root.state, g.root.ended = rootDone, g.now
		if ev.Commit != "" {
			g.commit = ev.Commit
		}
		if g.hasEnded() && (g.commit == commit.CommitPreparing || g.commit == commit.CommitInFlight) {
			g.commit = commit.CommitNone
		}
		if g.state == Running {
			if ev.Err != nil {
				g.fail(errRoot(ev.Err))
			} else {
				g.result = ev.Result
				g.end(Succeeded)
			}
			return
		}
	}
	g.free()
}
