//go:build chaos && soak

package chaos_test

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/firn-project/firn/integration/restcatalog"
	"github.com/firn-project/firn/internal/failpoint"
)

// soakFaults go on all the time. The scheduler and the first executor aren't
// restarted, so that what they lose for good shows.
var soakFaults = []func(l *lab){
	func(l *lab) { l.kill("kill-executor", l.executors[1+l.pick(2)]) },
	func(l *lab) { l.freeze("freeze-executor", l.anyExecutor(), 2*executorTimeout) },
	func(l *lab) { l.slow("slow-executor", l.anyExecutor()) },
	func(l *lab) { l.partition("partition-executor", l.anyExecutor(), 2*executorTimeout) },
	func(l *lab) { l.fill("full-disk", l.executors[0], time.Second) },
	func(l *lab) { l.freeze("freeze-scheduler", l.scheduler, time.Second) },
	func(l *lab) { l.hold("slow-disk", l.anyExecutor(), failpoint.HoldDisk, 2*time.Second) },
	func(l *lab) { l.hold("partition-peers", l.anyExecutor(), failpoint.HoldPeers, 2*time.Second) },
}

// soakReplies happen to every eighth commit request.
var soakReplies = []restcatalog.Fault{
	{Name: "reply-lost", Cut: restcatalog.Reply},
	{Name: "request-lost", Arrives: restcatalog.Never, Cut: restcatalog.Reply},
	{Name: "late", Arrives: restcatalog.Late, Cut: restcatalog.Reply, After: 700 * time.Millisecond},
	{Name: "409", Arrives: restcatalog.Never, Status: http.StatusConflict},
	{Name: "503-landed", Status: http.StatusServiceUnavailable, RetryAfter: "1"},
}

// soakStand forgets ended jobs and their rows soon, and shows the scheduler's metrics.
type soakStand struct{ *jobStand }

func (s *soakStand) config() string {
	return s.jobStand.config() + "http: {listen: '127.0.0.1:0'}\njournal: {retention: 30s}\nresults: {keep: 30s}\n"
}

// breakReplies has faults happen to commit requests until it's calm.
func (s *soakStand) breakReplies(l *lab) {
	s.proxy.Begin(func(c restcatalog.Class, n int) *restcatalog.Fault {
		if c != restcatalog.Commit || n%8 != 7 {
			return nil
		}
		f := soakReplies[l.pick(len(soakReplies))]
		return &f
	})
}

// gauge is what must be flat: its median of the last quarter isn't above that of the
// second one by more than a tenth and the slack.
type gauge struct {
	name  string
	slack float64
	read  func() (float64, error)
	seen  []float64
}

func (g *gauge) judge() (early, late, most float64) {
	q := len(g.seen) / 4
	early, late = median(g.seen[q:2*q]), median(g.seen[3*q:])
	return early, late, early*1.1 + g.slack
}

func median(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}

const mib = 1 << 20

// gauges are those of a lab's scheduler and first executor, and of all disks.
func (l *lab) gauges() []*gauge {
	metric := func(p *proc, name string) func() (float64, error) {
		return func() (float64, error) { return scrape(l.t.Context(), p.s.Ready["http"].(string), name) }
	}
	executor := l.executors[0]
	disks := func() (total float64, err error) {
		for i := range l.executors {
			n, err := size(filepath.Join(l.dir, "one", fmt.Sprintf("executor-%d", i)))
			if err != nil {
				return 0, err
			}
			total += n
		}
		return total, nil
	}
	return []*gauge{
		{name: "scheduler: resident bytes", slack: 16 * mib, read: metric(l.scheduler, "process_resident_memory_bytes")},
		{name: "scheduler: goroutines", slack: 20, read: metric(l.scheduler, "go_goroutines")},
		{name: "scheduler: open files", slack: 20, read: metric(l.scheduler, "process_open_fds")},
		{name: "scheduler: bytes of its directory", slack: mib, read: func() (float64, error) { return size(filepath.Join(l.dir, "one", "scheduler")) }},
		{name: "executor: resident bytes", slack: 16 * mib, read: metric(executor, "process_resident_memory_bytes")},
		{name: "executor: goroutines", slack: 20, read: metric(executor, "go_goroutines")},
		{name: "executor: threads", slack: 20, read: func() (float64, error) { return threads(executor.s.PID()) }},
		{name: "executor: open files", slack: 20, read: metric(executor, "process_open_fds")},
		{name: "executors: bytes of their directories", slack: 8 * mib, read: disks},
	}
}

// scrape reads one number of a process's metrics.
func scrape(ctx context.Context, address, name string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }() // only read
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("/metrics of %s has no %s", address, name)
}

// threads counts those of a process; DuckDB's aren't among its goroutines.
func threads(pid int) (float64, error) {
	of, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return float64(len(of)), err
}

// size is that of all files below a directory but the filler of a full disk. Files
// may go while they are counted.
func size(dir string) (total float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "filler" {
			return ignoreGone(err)
		}
		info, err := d.Info()
		if err == nil {
			total += float64(info.Size())
		}
		return ignoreGone(err)
	})
	return total, err
}

func ignoreGone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// TestSoak runs mixed statements with constant faults for FIRN_SOAK_MINUTES, 4 at
// least for the first quarter to be the start of everything: their
// rows are right, and what the processes hold is flat.
func TestSoak(t *testing.T) {
	minutes := number(t, os.Getenv("FIRN_SOAK_MINUTES"))
	if minutes < 4 {
		t.Fatal("FIRN_SOAK_MINUTES must be at least 4")
	}
	const seed = 1
	p := &plan{name: "soak", rng: rand.New(rand.NewPCG(seed, 0x736f616b)), executors: 3, workers: 3, units: 5, smallDisk: true}
	p.stand = func(t *testing.T, dir string) stand {
		return &soakStand{&jobStand{icebergStand: newIcebergStand(t, dir), inputs: newInputs(t, dir, 40_000), dispatch: "push"}}
	}
	l := newLab(t, p)
	s := l.stand.(*soakStand)
	gauges := l.gauges()
	ctx, stop := context.WithTimeout(t.Context(), time.Duration(minutes)*time.Minute)
	defer stop()
	var beside sync.WaitGroup
	beside.Go(func() {
		for ctx.Err() == nil {
			soakFaults[l.pick(len(soakFaults))](l)
			pause(time.Second)
			l.repairs.Wait()
		}
	})
	beside.Go(func() { watch(ctx, t, gauges) })
	var inserted, selected, again, rows, rounds int
	for ; ctx.Err() == nil; rounds++ {
		j := &jobs{l: l, in: s.inputs, table: fmt.Sprintf("t%d", rounds), inserted: map[string]string{}}
		n, err := s.round(l, j)
		if err != nil {
			t.Errorf("round %d: %v", rounds, err)
			break
		}
		rows, inserted, selected, again = rows+n, inserted+len(j.inserted), selected+j.selected, again+j.again
	}
	stop()
	beside.Wait()
	fmt.Fprintf(os.Stdout, "soak minutes=%d rounds=%d inserted=%d selected=%d again=%d rows=%d fired=%v\n", minutes, rounds, inserted, selected, again, rows, l.fired())
	fmt.Fprintf(os.Stdout, "%-40s %14s %14s %14s\n", "median of", "2nd quarter", "last quarter", "at most")
	for _, g := range gauges {
		early, late, most := g.judge()
		fmt.Fprintf(os.Stdout, "%-40s %14.0f %14.0f %14.0f\n", g.name, early, late, most)
		if late > most {
			t.Errorf("%s: %.0f in the last quarter, at most %.0f for %.0f in the second one", g.name, late, most, early)
		}
	}
}

// watch reads all gauges each second.
func watch(ctx context.Context, t *testing.T, gauges []*gauge) {
	for ctx.Err() == nil {
		for _, g := range gauges {
			v, err := g.read()
			if err != nil {
				t.Errorf("%s: %v", g.name, err)
				return
			}
			g.seen = append(g.seen, v)
		}
		pause(time.Second)
	}
}

// round fills a table of its own, compares its rows, and drops it with its files, so
// that nothing grows that may.
func (s *soakStand) round(l *lab, j *jobs) (rows int, err error) {
	s.createTable(l, j.table)
	s.breakReplies(l)
	var workers sync.WaitGroup
	for w := range l.plan.workers {
		workers.Go(func() {
			for n := range l.plan.units {
				unit := fmt.Sprintf("unit-%d-%d", w, n)
				if j.l.pick(3) == 0 {
					// Their rows are kept for a while.
					j.choose(unit, "SELECT * FROM ("+s.inputs.query(w+n, j.l.pick(20))+") WHERE a < 300")
					continue
				}
				j.insert(unit, s.inputs.query(w+n, j.l.pick(20)))
			}
		})
	}
	workers.Wait()
	s.calm()
	rows, _ = j.judge(s.jobStand)
	if len(j.bad) > 0 {
		return rows, fmt.Errorf("%s", strings.Join(j.bad, "\n"))
	}
	execute(l.t, l.clients[0], "DROP TABLE lake.c."+j.table)
	return rows, os.RemoveAll(filepath.Join(s.dir, "warehouse", "c.db", j.table))
}
