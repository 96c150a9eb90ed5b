//go:build chaos

package chaos_test

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/firn-project/firn/internal/failpoint"
	"github.com/firn-project/firn/internal/objstore/storetest"
)

// putFaults are what happens to the put of a version on an S3 server.
var putFaults = []fault{
	{name: "reply-lost", store: storetest.Lost},
	{name: "request-lost", store: storetest.Reset},
	{name: "412-own", store: storetest.AnswerExists},
	{name: "503", store: storetest.Busy},
	{name: "503-landed", store: storetest.AnswerBusy},
	{name: "late", store: storetest.LostLate},
	{name: "409", store: storetest.Clash},
	{name: "500", store: storetest.Broken},
	{name: "500-landed", store: storetest.Answer500},
	{name: "foreign-put", before: func(l *lab) { l.foreign("foreign-put") }},
	{name: "kill-scheduler-unsent", before: func(l *lab) { l.kill("kill-scheduler-unsent", l.scheduler) }},
}

// deltaActs are faults of processes, and other writers.
var deltaActs = []fault{
	{name: "foreign-commit", act: func(l *lab) { l.foreign("foreign-commit") }},
	{name: "kill-scheduler", act: func(l *lab) { l.kill("kill-scheduler", l.scheduler) }},
	{name: "kill-executor", act: func(l *lab) { l.kill("kill-executor", l.anyExecutor()) }},
	{name: "freeze-executor", act: func(l *lab) { l.freeze("freeze-executor", l.anyExecutor(), 2*executorTimeout) }},
	{name: "freeze-scheduler", act: func(l *lab) { l.freeze("freeze-scheduler", l.scheduler, time.Second) }},
	{name: "terminate-scheduler", act: func(l *lab) { l.signal("terminate-scheduler", l.scheduler, syscall.SIGTERM) }},
	{name: "two-schedulers", two: true},
}

// deltaPoints are the fail points of the runs: those of a scheduler but for its
// deletions, which take refusals that no store gives.
var deltaPoints = failpoint.Scheduler[:len(failpoint.Scheduler)-3]

// deltaSmoke are the first runs: each fault once, then the points around the one copy
// of a request, with one of an executor.
var deltaSmoke = [][]fault{
	{putFaults[0], putFaults[1], putFaults[2]},
	{putFaults[3], putFaults[4], deltaActs[2]},
	{putFaults[5], putFaults[6], deltaActs[6]},
	{putFaults[7], putFaults[8], deltaActs[4]},
	{putFaults[9], putFaults[10], deltaActs[3]},
	{deltaActs[0], deltaActs[1], deltaActs[5]},
	{pointFault(failpoint.BeforeSend), pointFault(failpoint.AfterClose)},
	{pointFault(failpoint.AfterSend), pointFault(failpoint.BeforeReport)},
}

// newDeltaPlan makes the plan of run k with a Delta table: on S3, and in a directory
// for some of those that need no fault of the store.
func newDeltaPlan(k int) *plan {
	rng := rand.New(rand.NewPCG(uint64(k), 0x64656c7461))
	p := &plan{name: "chaos delta", rng: rng, executors: 2, workers: 3, units: 3 + rng.IntN(3), partitioned: k%2 == 1}
	s3 := true
	switch {
	case k < len(deltaSmoke):
		p.required = deltaSmoke[k]
		s3 = k%2 == 0 || p.required[0].act == nil
	case rng.IntN(3) == 0:
		p.setPoints(deltaPoints[rng.IntN(len(deltaPoints))], failpoint.Executor[rng.IntN(len(failpoint.Executor))])
		s3 = rng.IntN(2) == 0
	default:
		from := putFaults
		if s3 = rng.IntN(4) > 0; !s3 {
			from = deltaActs
		}
		for _, i := range rng.Perm(len(from))[:2] {
			p.required = append(p.required, from[i])
		}
		if s3 {
			p.required = append(p.required, deltaActs[rng.IntN(len(deltaActs))])
		}
		p.extra = rng.Float64() * 0.3
	}
	p.stand = func(t *testing.T, dir string) stand { return newDeltaStand(t, dir, s3) }
	return p
}

// nextPut is what happens to the nth put of a version: every other one has the next
// required fault, the others some fault of the store now and then.
func (l *lab) nextPut(n int) (fault, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n%2 == 1 {
		for i, f := range l.mu.pending {
			if f.store != storetest.None || f.before != nil {
				l.mu.pending = append(l.mu.pending[:i:i], l.mu.pending[i+1:]...)
				return f, true
			}
		}
		return fault{}, false
	}
	if float64(l.mu.rng(1000)) < 1000*l.plan.extra {
		f := putFaults[l.mu.rng(len(putFaults))]
		return f, f.store != storetest.None
	}
	return fault{}, false
}
