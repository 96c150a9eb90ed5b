package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

// writers64 is the number of clients in the crowded cases.
const writers64 = 64

// benchTime is how long each side of a ratio runs: 5 s, or FIRN_BENCH_SECONDS.
func benchTime(b *testing.B) time.Duration {
	b.Helper()
	if s := os.Getenv("FIRN_BENCH_SECONDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			b.Fatalf("FIRN_BENCH_SECONDS=%q", s)
		}
		return time.Duration(n) * time.Second
	}
	return 5 * time.Second
}

// sqliteCommits counts the commits of every SQLite connection of the process. In
// WAL mode with synchronous=FULL each is one fsync; checkpoints come on top.
var sqliteCommits atomic.Int64

var countSQLite = sync.OnceFunc(func() {
	sqlite.RegisterConnectionHook(func(conn sqlite.ExecQuerierContext, _ string) error {
		if c, ok := conn.(sqlite.HookRegisterer); ok {
			c.RegisterCommitHook(func() int32 { sqliteCommits.Add(1); return 0 })
		}
		return nil
	})
})

func syncs() int64 { return objstore.LocalSyncs() + sqliteCommits.Load() }

// tally is what one side of a ratio did.
type tally struct {
	name    string
	commits int
	retries int64
	took    time.Duration
	syncs   int64
	// cpu is the processor time of the whole process, clients included.
	cpu   time.Duration
	waits []time.Duration
}

func (t *tally) perSecond() float64 { return float64(t.commits) / t.took.Seconds() }

func (t *tally) quantile(q float64) time.Duration {
	if len(t.waits) == 0 {
		return 0
	}
	slices.Sort(t.waits)
	return t.waits[min(len(t.waits)-1, int(q*float64(len(t.waits))))]
}

func (t *tally) String() string {
	return fmt.Sprintf("%-34s %7d commits %8.1f/s  wait p50 %8.2f ms  p99 %8.2f ms  fsyncs/commit %5.2f  CPU/commit %7.2f ms  retries/commit %5.2f",
		t.name, t.commits, t.perSecond(), milli(t.quantile(.5)), milli(t.quantile(.99)),
		t.syncsEach(), t.cpuEach(), float64(t.retries)/float64(max(t.commits, 1)))
}

func (t *tally) syncsEach() float64 { return float64(t.syncs) / float64(max(t.commits, 1)) }

// cpuEach is in milliseconds.
func (t *tally) cpuEach() float64 { return milli(t.cpu) / float64(max(t.commits, 1)) }

func milli(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// run lets n writers commit one thing after the other until the time is up, at
// least one each.
// commit gives the number of retries that it took.
func run(b *testing.B, name string, n int, d time.Duration, commit func(writer, i int) (int, error)) *tally {
	b.Helper()
	t := &tally{name: name}
	var mu sync.Mutex
	var wg sync.WaitGroup
	before, cpu, start := syncs(), cpuTime(b), time.Now()
	for w := range n {
		wg.Go(func() {
			for i := 0; i == 0 || time.Since(start) < d; i++ {
				began := time.Now()
				retries, err := commit(w, i)
				mu.Lock()
				if err != nil {
					b.Errorf("%s: writer %d: %v", name, w, err)
					mu.Unlock()
					return
				}
				t.commits++
				t.retries += int64(retries)
				t.waits = append(t.waits, time.Since(began))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.took, t.syncs, t.cpu = time.Since(start), syncs()-before, cpuTime(b)-cpu
	return t
}

// compareRates prints both sides and their ratio.
func compareRates(b *testing.B, firn, library *tally, atLeast float64) {
	b.Helper()
	ratio := firn.perSecond() / library.perSecond()
	b.Logf("\n%s\n%s\nratio %.1f (target at least %.1f)", firn, library, ratio, atLeast)
	b.ReportMetric(ratio, "ratio")
	b.ReportMetric(firn.perSecond(), "commits/s")
	b.ReportMetric(milli(firn.quantile(.5)), "p50-ms")
	b.ReportMetric(milli(firn.quantile(.99)), "p99-ms")
	b.ReportMetric(firn.syncsEach(), "fsyncs/commit")
	b.ReportMetric(firn.cpuEach(), "CPU-ms/commit")
}

// BenchmarkCommitInserts: 64 clients that INSERT one row each, against 64 that
// append one row each with the library's commit loop, coordinated by nothing but
// its retries. An INSERT of one row waits for disks most of its time, so there are
// more slots than processors.
func BenchmarkCommitInserts(b *testing.B) {
	countSQLite()
	d := benchTime(b)
	for range b.N {
		firn := insertRows(b, d)
		lib := newLibrary(b, writers64)
		library := run(b, "iceberg-go, 64 clients Append", writers64, d, lib.appendRow)
		compareRates(b, firn, library, 20)
	}
}

// insertRows lets 64 clients INSERT one row each into a table of a fresh cluster.
func insertRows(b *testing.B, d time.Duration) *tally {
	b.Helper()
	c, _ := startClusterOf(b, 8)
	execute(b, c, "CREATE TABLE lake.air.flights "+flightsColumns)
	const insert = "INSERT INTO lake.air.flights VALUES (TIMESTAMP '2001-01-13 12:00:00', 5, 800, 'SFO', 'LAX')"
	one := func(int, int) (int, error) {
		r, err := insertOne(c, insert)
		return r.Attempts - 1, err
	}
	run(b, "one INSERT of each client, in which slots open their engines", writers64, time.Nanosecond, one)
	return run(b, "Firn, 64 clients INSERT", writers64, d, one)
}

// BenchmarkManyInserts is Firn's side of BenchmarkCommitInserts alone, for
// profiles and for comparing two versions of the test binary that take turns.
func BenchmarkManyInserts(b *testing.B) {
	countSQLite()
	d := benchTime(b)
	for range b.N {
		t := insertRows(b, d)
		b.Logf("\n%s", t)
		b.ReportMetric(t.perSecond(), "commits/s")
		b.ReportMetric(t.syncsEach(), "fsyncs/commit")
		b.ReportMetric(t.cpuEach(), "CPU-ms/commit")
	}
}

func insertOne(c *client.Client, insert string) (commit.Report, error) {
	ctx := context.Background()
	res, err := c.Execute(ctx, client.Statement{SQL: insert})
	if err != nil {
		return commit.Report{}, err
	}
	status, err := res.Job.Wait(ctx)
	if err != nil {
		return commit.Report{}, err
	}
	return *status.Report, nil
}

// BenchmarkCommitFiles: 64 writers that hand in a written file each, against one
// library writer that commits one after the other.
func BenchmarkCommitFiles(b *testing.B) {
	countSQLite()
	d := benchTime(b)
	for range b.N {
		l := newLane(b)
		firn := run(b, "Firn, 64 writers hand in a file", writers64, d, l.handIn)
		lib := newLibrary(b, 1)
		library := run(b, "iceberg-go, 1 writer AddDataFiles", 1, d, lib.addFile)
		compareRates(b, firn, library, 15)
	}
}

// BenchmarkCommitOne: one written file after the other, with nobody else there.
// The sides take turns, so that their tables have the same history.
func BenchmarkCommitOne(b *testing.B) {
	countSQLite()
	d := benchTime(b)
	for range b.N {
		l, lib := newLane(b), newLibrary(b, 1)
		firn, library := &tally{name: "Firn, 1 writer hands in a file"}, &tally{name: "iceberg-go, 1 writer AddDataFiles"}
		for i, start := 0, time.Now(); time.Since(start) < 2*d; i++ {
			one(b, firn, i, l.handIn)
			one(b, library, i, lib.addFile)
		}
		ratio := float64(firn.quantile(.5)) / float64(library.quantile(.5))
		b.Logf("\n%s\n%s\nratio of the medians %.2f (target at most 1.1)", firn, library, ratio)
		b.ReportMetric(ratio, "ratio")
	}
}

func one(b *testing.B, t *tally, i int, commit func(writer, i int) (int, error)) {
	b.Helper()
	before, cpu, start := syncs(), cpuTime(b), time.Now()
	if _, err := commit(0, i); err != nil {
		b.Fatal(err)
	}
	took := time.Since(start)
	t.commits, t.took, t.syncs, t.waits = t.commits+1, t.took+took, t.syncs+syncs()-before, append(t.waits, took)
	t.cpu += cpuTime(b) - cpu
}

// BenchmarkCommitHistory: the 2,000th commit of a table that keeps its history
// against the 20th and what writing that much metadata costs by itself.
func BenchmarkCommitHistory(b *testing.B) {
	countSQLite()
	const last = 2000
	for range b.N {
		l := newLane(b)
		early, late := &tally{name: "commits 10 to 30"}, &tally{name: "commits 1,980 to 2,000"}
		var other tally
		for i := range last {
			t := &other
			switch {
			case i >= 10 && i < 30:
				t = early
			case i >= last-20:
				t = late
			}
			one(b, t, i, l.handIn)
		}
		var forced []time.Duration
		for range 9 {
			forced = append(forced, l.writeMetadataOnce(b))
		}
		slices.Sort(forced)
		limit := early.quantile(.5) + forced[len(forced)/2]
		ratio := float64(late.quantile(.5)) / float64(limit)
		b.Logf("\n%s\n%s\nserialising and writing that metadata file and manifest list once: %.2f ms\nratio %.2f (target at most 1.5)",
			early, late, milli(forced[len(forced)/2]), ratio)
		b.ReportMetric(ratio, "ratio")
	}
}

// writeSynced writes a file as durably as a commit does.
func writeSynced(b *testing.B, path string, raw []byte) {
	b.Helper()
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := f.Write(raw); err != nil {
		b.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		b.Fatal(err)
	}
}
