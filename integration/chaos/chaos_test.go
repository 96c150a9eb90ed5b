//go:build chaos

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/integration/history"
)

const (
	// tokensKey is where snapshots name the units that they hold.
	tokensKey = "firn.tokens"
	// patience is how long a client waits for one answer.
	patience = 15 * time.Second
	// settling bounds how long one unit may stay open when nothing is broken.
	settling = 30 * time.Second
)

// TestChaos runs the seeds that the environment says: FIRN_CHAOS_RUN one,
// FIRN_CHAOS_RUNS that many; the smoke test's without either.
func TestChaos(t *testing.T) { runSeeds(t, smokeRuns, newPlan) }

// TestDeltaChaos is TestChaos with a Delta table.
func TestDeltaChaos(t *testing.T) { runSeeds(t, len(deltaSmoke), newDeltaPlan) }

func runSeeds(t *testing.T, smoke int, newPlan func(k int) *plan) {
	t.Helper()
	eachSeed(t, smoke, func(t *testing.T, k int) { run(t, k, newPlan(k)) })
}

func eachSeed(t *testing.T, smoke int, run func(t *testing.T, k int)) {
	t.Helper()
	first, last := 0, smoke
	if v := os.Getenv("FIRN_CHAOS_RUNS"); v != "" {
		last = number(t, v)
	}
	if v := os.Getenv("FIRN_CHAOS_RUN"); v != "" {
		first = number(t, v)
		last = first + 1
	}
	for k := first; k < last; k++ {
		t.Run(fmt.Sprintf("run-%d", k), func(t *testing.T) {
			t.Parallel() // processes wait more than they work
			run(t, k)
		})
	}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		t.Fatalf("%q is no number of runs", s)
	}
	return n
}

// unit is one INSERT.
type unit struct {
	name string
	rows []int64
	// faithful: its client asks again until it has an answer. twin: another client
	// submits it too, at the same time. cancel: its client cancels it.
	faithful, twin, cancel bool
}

func (u unit) statement() client.Statement {
	return client.Statement{
		SQL: fmt.Sprintf("INSERT INTO lake.c.t SELECT i AS id, 'firn' AS w FROM range(%d, %d) r(i)", u.rows[0], u.rows[len(u.rows)-1]+1),
		Key: u.name,
	}
}

func run(t *testing.T, k int, p *plan) {
	began := time.Now()
	l := newLab(t, p)
	l.work()
	l.provoke()
	l.repairs.Wait()
	l.disarm()
	sent := l.stand.calm()
	bad := l.settle()
	left := l.swept()

	v, files := l.stand.judge(l)
	bad = append(bad, l.history.Check(v.rows)...)
	bad = append(bad, v.audit.Breaches...)
	kept, leftovers := l.unreferenced(files, v.audit, left)
	bad = append(bad, leftovers...)
	fired := l.fired()
	var required []string
	for _, f := range p.required {
		required = append(required, f.name)
		if fired[f.name] == 0 {
			bad = append(bad, "the fault "+f.name+" never happened")
		}
	}
	told := l.history.Counts()
	if told[history.Committed] == 0 {
		bad = append(bad, "nothing was committed")
	}
	verdict := "ok"
	if len(bad) > 0 {
		verdict = "BAD"
		t.Error(strings.Join(bad, "\n"))
	}
	fmt.Fprintf(os.Stdout, "%s run=%d %s must=%s fired=%v committed=%d failed=%d open=%d rows=%d snapshots=%d requests=%d unreferenced=%d kept=%d %.1fs\n",
		p.name, k, verdict, strings.Join(required, ","), fired, told[history.Committed], told[history.Failed], told[history.Unknown]+told[history.Open],
		len(v.rows), v.versions, sent, len(leftovers), kept, time.Since(began).Seconds())
}

// newUnit makes the next unit.
func (l *lab) newUnit(name string) unit {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := unit{name: name, faithful: l.mu.rng(10) > 0, twin: l.mu.rng(6) == 0}
	u.cancel = !u.twin && l.mu.rng(10) == 0
	for range 1 + l.mu.rng(50) {
		u.rows = append(u.rows, l.mu.nextRow)
		l.mu.nextRow++
	}
	l.mu.units[name] = u
	return u
}

// work has the clients insert their units while things break.
func (l *lab) work() {
	var workers sync.WaitGroup
	submitted := make(chan struct{}, l.plan.workers*l.plan.units)
	for w := range l.plan.workers {
		workers.Go(func() {
			for i := range l.plan.units {
				u := l.newUnit(fmt.Sprintf("unit-%d-%d", w, i))
				submitted <- struct{}{}
				l.insert(w, u)
			}
		})
	}
	workers.Go(func() {
		for _, f := range l.plan.required {
			if f.act == nil {
				continue
			}
			<-submitted
			<-submitted
			pause(time.Duration(l.pick(250)) * time.Millisecond)
			f.act(l)
		}
	})
	workers.Wait()
}

// provokeRounds is how often a fault is provoked: an executor's needs the unit's task
// to come to the executor that is armed.
const provokeRounds = 24

// provoke inserts further units until each required fault has happened.
func (l *lab) provoke() {
	for i := range provokeRounds {
		l.repairs.Wait()
		fired := l.fired()
		var missing []fault
		for _, f := range l.plan.required {
			if fired[f.name] == 0 {
				missing = append(missing, f)
			}
		}
		if len(missing) == 0 {
			return
		}
		l.mu.Lock()
		l.mu.pending, l.mu.provoked = missing, true
		l.mu.Unlock()
		var more sync.WaitGroup
		work := func() { l.insert(i, l.newUnit(fmt.Sprintf("more-%d", i))) }
		if !l.plan.refuses {
			more.Go(work)
		}
		for _, f := range missing {
			if f.act != nil {
				f.act(l)
			}
		}
		if l.plan.refuses {
			work() // only now, so that its refusal meets the armed process
			l.swept()
		}
		more.Wait()
	}
}

// insert is a client's work on one unit.
func (l *lab) insert(w int, u unit) {
	var twin sync.WaitGroup
	defer twin.Wait()
	if u.twin {
		twin.Go(func() { l.attempt(w+1, u) })
	}
	for range 10 {
		told := l.attempt(w, u)
		if told == history.Committed || u.cancel || !u.faithful {
			return
		}
		pause(time.Duration(50+l.pick(300)) * time.Millisecond)
	}
}

// attempt submits a unit once and records what its client is told.
func (l *lab) attempt(w int, u unit) history.Told {
	a, err := l.history.Invoke(u.name, u.rows)
	if err != nil {
		l.t.Error(err)
		return history.Failed
	}
	c := l.clients[w%len(l.clients)]
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	told, why := l.submit(ctx, c, u)
	if told == history.Failed && u.twin {
		told = history.Unknown // of this submission only: the twin's may be under way
	}
	if told == history.Committed && w%len(l.clients) == 1 {
		l.fire("two-schedulers")
	}
	l.note(u.name, told, why)
	a.Tell(told)
	return l.history.Told(u.name)
}

// note logs what a unit's client was told, once for each new answer.
func (l *lab) note(name string, told history.Told, why error) {
	if why == nil {
		return
	}
	text := fmt.Sprintf("unit %s: %s: %v", name, told, why)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.noted[name] != text {
		l.mu.noted[name] = text
		l.t.Log(text)
	}
}

func (l *lab) submit(ctx context.Context, c *client.Client, u unit) (history.Told, error) {
	res, err := c.Execute(ctx, u.statement())
	if err != nil {
		// It wasn't taken, or nobody knows: what an earlier submission did is
		// as open as before.
		return history.Unknown, err
	}
	if u.cancel {
		if answer, _, err := res.Job.Cancel(ctx); err == nil && answer == client.Cancelled {
			return history.Failed, errors.New("cancelled")
		}
	}
	st, err := res.Job.Wait(ctx)
	switch {
	case st.Commit == commit.CommitCommitted:
		return history.Committed, nil
	case err == nil:
		return history.Unknown, fmt.Errorf("the job ended as %s, commit %s, without an error", st.State, st.Commit)
	case !st.State.Ended() || st.Commit == commit.CommitUnknown || commit.KindOf(err) == commit.KindUnknown:
		return history.Unknown, err
	}
	return history.Failed, err
}

// settle asks for every open unit until it has an outcome, now that nothing is
// broken any more. Clients that aren't faithful don't ask.
func (l *lab) settle() []string {
	var bad []string
	for _, name := range l.history.Pending() {
		l.mu.Lock()
		u, ours := l.mu.units[name]
		l.mu.Unlock()
		if !ours || !u.faithful {
			continue
		}
		u.twin, u.cancel = false, false
		deadline := time.Now().Add(settling)
		for l.attempt(0, u) != history.Committed {
			if time.Now().After(deadline) {
				bad = append(bad, "unit "+name+" isn't settled")
				break
			}
			pause(200 * time.Millisecond)
		}
	}
	return bad
}
