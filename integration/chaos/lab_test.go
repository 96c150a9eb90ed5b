//go:build chaos

package chaos_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/integration/history"
	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/integration/restcatalog"
	"github.com/firn-project/firn/internal/failpoint"
)

// executorTimeout is after how much silence an executor is lost.
const executorTimeout = 2 * time.Second

// lab is one run: processes, catalog, proxy, clients and what they were told.
type lab struct {
	t       *testing.T
	plan    *plan
	stand   stand
	history *history.History
	dir     string

	scheduler *proc
	executors []*proc
	clients   []*client.Client
	// repairs restarts and thaws what was broken.
	repairs sync.WaitGroup
	// armed wait for processes to die at fail points.
	armed sync.WaitGroup

	mu struct {
		sync.Mutex
		pending []fault // required ones whose turn hasn't come
		// provoked: the run's own units are through, and single ones provoke what is
		// missing.
		provoked bool
		stale    *restcatalog.Fault
		fired    map[string]int
		nextRow  int64
		rng      func(n int) int
		foreign  int
		armed    int
		units    map[string]unit
		noted    map[string]string // the last answer that was logged, by unit
	}
}

// proc is a process that may be down.
type proc struct {
	mu sync.Mutex
	s  *process.Server
	up bool
	// link is an executor's way to its scheduler, disk a small one of its own, if
	// it has one.
	link *link
	disk string
	// holds is where files slow an executor down or cut it off, see package failpoint.
	holds string
	// settled: whoever waits for its death at a fail point leaves it be.
	settled bool
}

// env are the environment variables of the process.
func (p *proc) env() []string {
	if p.holds == "" {
		return nil
	}
	return []string{"FIRN_FAILPOINT_HOLDS=" + p.holds}
}

func newLab(t *testing.T, p *plan) *lab {
	l := &lab{t: t, plan: p, history: history.New(), dir: t.TempDir()}
	l.mu.fired, l.mu.units, l.mu.noted = map[string]int{}, map[string]unit{}, map[string]string{}
	l.mu.rng, l.mu.pending = p.rng.IntN, p.required
	l.stand = p.stand(t, l.dir)
	l.scheduler = l.cluster("one", p.executors)
	for _, f := range p.required {
		if f.two {
			l.cluster("two", 1)
		}
	}
	l.stand.create(l, p.partitioned)
	l.stand.begin(l)
	return l
}

// cluster starts a scheduler with executors and a client.
func (l *lab) cluster(name string, executors int) *proc {
	dir := filepath.Join(l.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		l.t.Fatal(err)
	}
	config := filepath.Join(dir, "scheduler.yaml")
	body := l.stand.config() + fmt.Sprintf("executors: {heartbeat: 200ms, timeout: %s, wait: 10s}\nsweep: {delay: %s}\n", executorTimeout, sweepDelay)
	if err := os.WriteFile(config, []byte(body), 0o600); err != nil {
		l.t.Fatal(err)
	}
	s := process.Start(l.t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(dir, "scheduler"), "--config", config)
	for i := range executors {
		e := &proc{up: true, link: newLink(l.t, s.Address)}
		home := filepath.Join(dir, fmt.Sprintf("executor-%d", i))
		if i == 0 && l.plan.smallDisk {
			e.disk = home
			process.SmallDisk(l.t, home, "48m")
			home = filepath.Join(home, "executor")
		}
		e.holds = filepath.Join(dir, fmt.Sprintf("holds-%d", i))
		if err := os.Mkdir(e.holds, 0o755); err != nil {
			l.t.Fatal(err)
		}
		e.s = process.StartWith(l.t, e.env(), "executor", "--server", e.link.address, "--dir", home, "--slots", "2", "--memory", "256MB", "--http-listen", "127.0.0.1:0")
		l.executors = append(l.executors, e)
	}
	c, err := client.Dial(l.t.Context(), s.Address)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			l.t.Error(err)
		}
	})
	l.clients = append(l.clients, c)
	return &proc{s: s, up: true}
}

// pick is a random number below n. The order in which goroutines ask isn't fixed.
func (l *lab) pick(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.rng(n)
}

func (l *lab) anyExecutor() *proc { return l.executors[l.pick(l.plan.executors)] }

// schedule is the proxy's: every other commit request has the next required fault,
// the others some fault now and then.
func (l *lab) schedule(c restcatalog.Class, n int) *restcatalog.Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch c {
	case restcatalog.Load:
		return l.mu.stale
	case restcatalog.Commit:
	default:
		return nil
	}
	l.mu.stale = nil
	if n%2 == 1 {
		for i, f := range l.mu.pending {
			if f.commit == nil && f.load == nil {
				continue
			}
			l.mu.pending = append(l.mu.pending[:i:i], l.mu.pending[i+1:]...)
			return l.arm(f)
		}
		if l.plan.refuses {
			return l.arm(refusal)
		}
		return nil
	}
	if float64(l.mu.rng(1000)) < 1000*l.plan.extra {
		if f := faults[l.mu.rng(len(faults))]; f.commit != nil || f.load != nil {
			return l.arm(f)
		}
	}
	return nil
}

// arm gives what happens to this commit request.
func (l *lab) arm(f fault) *restcatalog.Fault {
	if f.load != nil {
		stale := *f.load
		stale.Name = f.name
		l.mu.stale = &stale
		return nil
	}
	out := f.commit(l)
	if out.Before == nil && out.Landed == nil {
		out.Name = f.name // with a function it's the function that counts
	}
	return out
}

// fire counts a fault that has happened.
func (l *lab) fire(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.fired[name]++
}

// fired counts all faults that have happened.
func (l *lab) fired() map[string]int {
	out := l.stand.fired()
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.Copy(out, l.mu.fired)
	return out
}

// kill ends a process at once, if it's up, and has it started again soon.
func (l *lab) kill(name string, p *proc) {
	if !p.mu.TryLock() {
		return // it's being started
	}
	defer p.mu.Unlock()
	if !p.up {
		return
	}
	p.s.Kill()
	p.up = false
	l.fire(name)
	l.repair(p, time.Duration(l.pick(500))*time.Millisecond)
}

// armPoint starts a process again such that it dies at a fail point, and has it
// started once more when it did.
func (l *lab) armPoint(at failpoint.Point) {
	p := l.scheduler
	if strings.HasPrefix(string(at), "executor/") {
		p = l.anyExecutor()
	}
	l.mu.Lock()
	l.mu.armed++
	mark := filepath.Join(l.dir, fmt.Sprintf("mark-%d", l.mu.armed))
	provoked := l.mu.provoked
	l.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.s.Kill()
	n := 1
	if !l.plan.refuses && !provoked { // a single unit is inserted to provoke it
		n += l.pick(3)
	}
	armed := p.s.AgainUntil(l.t, at, n, mark, p.env()...)
	p.s = armed
	l.armed.Go(func() {
		armed.Wait()
		if _, err := os.Stat(mark); err != nil {
			return // it was ended by somebody else
		}
		l.fire(string(at))
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.s == armed && !p.settled {
			p.s = p.s.Again(l.t, p.env()...)
		}
	})
}

// disarm starts the processes again that may have a fail point ahead, such that
// they have none.
func (l *lab) disarm() {
	if l.mu.armed == 0 {
		return
	}
	all := append([]*proc{l.scheduler}, l.executors...)
	// Executors first: one that is being started waits for the scheduler.
	for _, p := range slices.Backward(all) {
		p.mu.Lock()
		p.settled = true
		p.s.Kill()
		p.mu.Unlock()
	}
	l.armed.Wait()
	for _, p := range all {
		p.s = p.s.Again(l.t, p.env()...)
	}
}

// signal sends a process a signal that ends it, and has it started again after.
func (l *lab) signal(name string, p *proc, sig os.Signal) {
	if !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	if !p.up {
		return
	}
	p.s.Signal(l.t, sig)
	p.up = false
	l.fire(name)
	l.repair(p, 0)
}

// freeze stops a process for a while.
func (l *lab) freeze(name string, p *proc, d time.Duration) {
	if !p.mu.TryLock() {
		return
	}
	if !p.up {
		p.mu.Unlock()
		return
	}
	p.s.Signal(l.t, syscall.SIGSTOP)
	l.fire(name)
	l.repairs.Go(func() {
		defer p.mu.Unlock()
		pause(d)
		p.s.Signal(l.t, syscall.SIGCONT)
	})
}

// slow lets a process run only a third of the time.
func (l *lab) slow(name string, p *proc) {
	if !p.mu.TryLock() {
		return
	}
	if !p.up {
		p.mu.Unlock()
		return
	}
	l.fire(name)
	l.repairs.Go(func() {
		defer p.mu.Unlock()
		for range 15 {
			p.s.Signal(l.t, syscall.SIGSTOP)
			pause(100 * time.Millisecond)
			p.s.Signal(l.t, syscall.SIGCONT)
			pause(50 * time.Millisecond)
		}
	})
}

// partition has an executor not reach its scheduler for a while.
func (l *lab) partition(name string, p *proc, d time.Duration) {
	p.link.set(true)
	l.fire(name)
	l.repairs.Go(func() {
		pause(d)
		p.link.set(false)
	})
}

// hold has something of an executor stand still for a while, see package failpoint.
func (l *lab) hold(name string, p *proc, what string, d time.Duration) {
	file := filepath.Join(p.holds, what)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil { // it has that already
		return
	}
	if err := f.Close(); err != nil {
		l.t.Error(err)
	}
	l.fire(name)
	l.repairs.Go(func() {
		pause(d)
		if err := os.Remove(file); err != nil {
			l.t.Error(err)
		}
	})
}

// fill leaves no space on the small disk for a while.
func (l *lab) fill(name string, p *proc, d time.Duration) {
	filler := filepath.Join(p.disk, "filler")
	if err := process.FillUp(filler); err != nil {
		l.t.Error(err)
		return
	}
	l.fire(name)
	l.repairs.Go(func() {
		pause(d)
		if err := os.Remove(filler); err != nil {
			l.t.Error(err)
		}
	})
}

// repair starts a process again that has ended or soon will.
func (l *lab) repair(p *proc, after time.Duration) {
	l.repairs.Go(func() {
		pause(after)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.s.Wait()
		p.s = p.s.Again(l.t, p.env()...)
		p.up = true
	})
}

// foreign appends a unit of one row as somebody else.
func (l *lab) foreign(name string) {
	l.mu.Lock()
	l.mu.foreign++
	unit := fmt.Sprintf("foreign-%d", l.mu.foreign)
	row := l.mu.nextRow
	l.mu.nextRow++
	l.mu.Unlock()
	a, err := l.history.Invoke(unit, []int64{row})
	if err != nil {
		l.t.Error(err)
		return
	}
	if err := l.stand.foreign(l.t.Context(), row); err != nil {
		// Its own retries are spent, or worse: it may have landed or not.
		a.Tell(history.Unknown)
		return
	}
	a.Tell(history.Committed)
	l.fire(name)
}

// pause waits: what it stands for is the time that passes outside the processes.
func pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}
