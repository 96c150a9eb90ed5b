//go:build chaos

package chaos_test

import (
	"math/rand/v2"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/firn-project/firn/integration/restcatalog"
	"github.com/firn-project/firn/internal/failpoint"
	"github.com/firn-project/firn/internal/objstore/storetest"
)

// fault is one way to break things. It has one of its functions.
type fault struct {
	name string
	// commit gives what happens to one commit request.
	commit func(l *lab) *restcatalog.Fault
	// load gives what happens to the loads between two commit requests.
	load *restcatalog.Fault
	// store is what happens to one put of a Delta version, and before what happens
	// before it.
	store  storetest.Fault
	before func(l *lab)
	// act is carried out while statements are running.
	act func(l *lab)
	// two starts a second scheduler on the same catalog.
	two bool
}

func answered(status int, arrives restcatalog.Arrival) func(*lab) *restcatalog.Fault {
	return func(*lab) *restcatalog.Fault {
		f := &restcatalog.Fault{Status: status, Arrives: arrives}
		if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
			f.RetryAfter = "1"
		}
		return f
	}
}

func network(f restcatalog.Fault) func(*lab) *restcatalog.Fault {
	return func(*lab) *restcatalog.Fault { return &f }
}

// faults are all of them. A late request is never answered with a refusal: that
// a refusal of the first and only copy is told at once, and what lands after it
// raises an alarm, is decided so (see docs/explanation/proven.md).
var faults = []fault{
	{name: "request-lost", commit: network(restcatalog.Fault{Arrives: restcatalog.Never, Cut: restcatalog.Reply})},
	{name: "reply-lost", commit: network(restcatalog.Fault{Cut: restcatalog.Reply})},
	{name: "reply-cut", commit: network(restcatalog.Fault{Cut: restcatalog.Middle})},
	{name: "kill-scheduler-landed", commit: func(l *lab) *restcatalog.Fault {
		return &restcatalog.Fault{Landed: func() { l.kill("kill-scheduler-landed", l.scheduler) }}
	}},
	{name: "late", commit: network(restcatalog.Fault{Arrives: restcatalog.Late, Cut: restcatalog.Reply, After: 700 * time.Millisecond})},
	{name: "kill-executor", act: func(l *lab) { l.kill("kill-executor", l.anyExecutor()) }},
	{name: "late-504", commit: network(restcatalog.Fault{Arrives: restcatalog.Late, Status: http.StatusGatewayTimeout, After: time.Hour})},
	{name: "twice", commit: network(restcatalog.Fault{Arrives: restcatalog.Twice})},
	{name: "lying-200", commit: network(restcatalog.Fault{Arrives: restcatalog.Never, Status: http.StatusOK})},
	{name: "kill-scheduler", act: func(l *lab) { l.kill("kill-scheduler", l.scheduler) }},
	{name: "stale-load", load: &restcatalog.Fault{Stale: true}},
	refusal,
	{name: "400-landed", commit: answered(http.StatusBadRequest, restcatalog.Now)},
	{name: "kill-scheduler-unsent", commit: func(l *lab) *restcatalog.Fault {
		return &restcatalog.Fault{Arrives: restcatalog.Never, Cut: restcatalog.Reply, Before: func() { l.kill("kill-scheduler-unsent", l.scheduler) }}
	}},
	{name: "409", commit: answered(http.StatusConflict, restcatalog.Never)},
	{name: "409-landed", commit: answered(http.StatusConflict, restcatalog.Now)},
	{name: "kill-scheduler-late", commit: func(l *lab) *restcatalog.Fault {
		return &restcatalog.Fault{Arrives: restcatalog.Late, Cut: restcatalog.Reply, After: 2 * time.Second, Before: func() { l.kill("kill-scheduler-late", l.scheduler) }}
	}},
	{name: "500", commit: answered(http.StatusInternalServerError, restcatalog.Never)},
	{name: "502-landed", commit: answered(http.StatusBadGateway, restcatalog.Now)},
	{name: "freeze-executor", act: func(l *lab) { l.freeze("freeze-executor", l.anyExecutor(), 2*executorTimeout) }},
	{name: "503", commit: answered(http.StatusServiceUnavailable, restcatalog.Never)},
	{name: "503-landed", commit: answered(http.StatusServiceUnavailable, restcatalog.Now)},
	{name: "freeze-scheduler", commit: func(l *lab) *restcatalog.Fault {
		return &restcatalog.Fault{Landed: func() { l.freeze("freeze-scheduler", l.scheduler, time.Second) }}
	}},
	{name: "429", commit: answered(http.StatusTooManyRequests, restcatalog.Never)},
	{name: "delay", commit: network(restcatalog.Fault{Delay: 300 * time.Millisecond})},
	{name: "terminate-scheduler", commit: func(l *lab) *restcatalog.Fault {
		return &restcatalog.Fault{Delay: 100 * time.Millisecond, Before: func() { l.signal("terminate-scheduler", l.scheduler, syscall.SIGTERM) }}
	}},
	{name: "foreign-commit", commit: func(l *lab) *restcatalog.Fault {
		return &restcatalog.Fault{Before: func() { l.foreign("foreign-commit") }}
	}},
	{name: "two-schedulers", two: true},
}

// pointFault kills a scheduler or an executor at a fail point.
func pointFault(p failpoint.Point) fault {
	return fault{name: string(p), act: func(l *lab) { l.armPoint(p) }}
}

// refusal is the answer after which a job's files are deleted at once.
var refusal = fault{name: "400", commit: answered(http.StatusBadRequest, restcatalog.Never)}

// plan is what a run's number fixes.
type plan struct {
	// name begins the line that is printed of the run, stand makes its table.
	name        string
	stand       func(t *testing.T, dir string) stand
	rng         *rand.Rand
	required    []fault
	executors   int
	workers     int
	units       int // of each worker
	partitioned bool
	// extra is the chance that a commit request meets some further fault of the
	// network.
	extra float64
	// refuses: every other commit request is refused, so that files of the jobs
	// behind it go.
	refuses bool
	// smallDisk: the first executor has a small disk of its own.
	smallDisk bool
}

// faultRuns is how many runs have each fault once; after them each fail point of a
// scheduler has a run, the first of which have one of an executor too. Together
// they are the smoke test's.
var (
	faultRuns = (len(faults) + 1) / 2
	smokeRuns = faultRuns + len(failpoint.Scheduler)
)

// newPlan makes the plan of run k. The first runs take two faults each in order,
// so that they have each once, and then one fail point each; later ones any two or
// three faults, and others on top, or a fail point.
func newPlan(k int) *plan {
	rng := rand.New(rand.NewPCG(uint64(k), 0x6669726e))
	p := &plan{name: "chaos", stand: func(t *testing.T, dir string) stand { return newIcebergStand(t, dir) }, rng: rng, executors: 2 + rng.IntN(2), workers: 3 + rng.IntN(2), units: 3 + rng.IntN(3), partitioned: k%2 == 1}
	if k < faultRuns {
		for i := 2 * k; i < min(2*k+2, len(faults)); i++ {
			p.required = append(p.required, faults[i])
		}
		return p
	}
	if k < smokeRuns {
		n := k - faultRuns
		p.setPoints(failpoint.Scheduler[n])
		if n < len(failpoint.Executor) {
			p.setPoints(failpoint.Scheduler[n], failpoint.Executor[n])
		}
		return p
	}
	if rng.IntN(3) == 0 {
		p.setPoints(failpoint.Scheduler[rng.IntN(len(failpoint.Scheduler))], failpoint.Executor[rng.IntN(len(failpoint.Executor))])
		return p
	}
	for _, i := range rng.Perm(len(faults))[:2+rng.IntN(2)] {
		p.required = append(p.required, faults[i])
	}
	p.extra = rng.Float64() * 0.3
	return p
}

// setPoints makes the run one of fail points.
func (p *plan) setPoints(points ...failpoint.Point) {
	p.required = nil
	for _, at := range points {
		p.required = append(p.required, pointFault(at))
		p.refuses = p.refuses || at == failpoint.BeforeDeleting || at == failpoint.AfterDeleting || at == failpoint.AfterDelete
	}
}
