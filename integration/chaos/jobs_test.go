//go:build chaos

package chaos_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/integration/history"
	"github.com/firn-project/firn/internal/failpoint"
)

// jobFaults are what happens to jobs of several stages.
var jobFaults = []fault{
	{name: "kill-executor", act: func(l *lab) { l.kill("kill-executor", l.anyExecutor()) }},
	{name: "full-disk", act: func(l *lab) { l.fill("full-disk", l.executors[0], time.Second) }},
	{name: "freeze-executor", act: func(l *lab) { l.freeze("freeze-executor", l.anyExecutor(), 2*executorTimeout) }},
	{name: "slow-executor", act: func(l *lab) { l.slow("slow-executor", l.anyExecutor()) }},
	{name: "partition-executor", act: func(l *lab) { l.partition("partition-executor", l.anyExecutor(), 2*executorTimeout) }},
	{name: "kill-scheduler", act: func(l *lab) { l.kill("kill-scheduler", l.scheduler) }},
	{name: "slow-disk", act: func(l *lab) { l.hold("slow-disk", l.anyExecutor(), failpoint.HoldDisk, 5*time.Second) }},
	// For longer than a silent executor is waited for, so that what it couldn't read
	// is made again.
	{name: "partition-peers", act: func(l *lab) { l.hold("partition-peers", l.anyExecutor(), failpoint.HoldPeers, 15*time.Second) }},
}

// jobSmoke is how many runs have each of them once.
var jobSmoke = len(jobFaults) / 2

// newJobPlan makes the plan of run k: each fault once, then any three.
func newJobPlan(k int) *plan {
	rng := rand.New(rand.NewPCG(uint64(k), 0x6a6f6273))
	p := &plan{name: "chaos jobs", rng: rng, executors: 3, workers: 3, units: 4, smallDisk: true}
	dispatch := []string{"push", "pull"}[k%2]
	p.stand = func(t *testing.T, dir string) stand {
		return &jobStand{icebergStand: newIcebergStand(t, dir), inputs: newInputs(t, dir, 200_000), dispatch: dispatch}
	}
	if k < jobSmoke {
		p.required = jobFaults[2*k : 2*k+2]
		return p
	}
	for _, i := range rng.Perm(len(jobFaults))[:3] {
		p.required = append(p.required, jobFaults[i])
	}
	return p
}

// jobStand is a table of several columns, with files to fill it from. Its catalog
// has no faults.
type jobStand struct {
	*icebergStand
	inputs   *inputs
	dispatch string
}

func (s *jobStand) config() string {
	return s.icebergStand.config() + fmt.Sprintf("dispatch: %s\nsources: {local: {allow: [%q]}}\n", s.dispatch, s.inputs.dir)
}

func (s *jobStand) create(l *lab, _ bool) {
	execute(l.t, l.clients[0], "CREATE NAMESPACE lake.c")
	s.createTable(l, "t")
}

func (s *jobStand) createTable(l *lab, name string) {
	execute(l.t, l.clients[0], "CREATE TABLE lake.c."+name+" (unit string, a bigint, b bigint, s string, g bigint) PARTITIONED BY (g)")
}

func (s *jobStand) begin(*lab) {}

// inputs are Parquet files, and the queries over them with their rows by plain DuckDB.
type inputs struct {
	dir string
	db  *sql.DB

	mu    sync.Mutex
	known map[string]map[string]int
}

func newInputs(t *testing.T, dir string, rows int) *inputs {
	t.Helper()
	in := &inputs{dir: filepath.Join(dir, "inputs"), known: map[string]map[string]int{}}
	if err := os.Mkdir(in.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	if in.db, err = sql.Open("duckdb", "?threads=1"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.db.Close(); err != nil {
			t.Error(err)
		}
	})
	const files = 4
	for i := range files {
		// 7 rows of 10 are in one partition of the table.
		in.exec(t, fmt.Sprintf(`COPY (SELECT i AS id, i * 7919 %% 2003 AS k, CASE WHEN i %% 10 < 7 THEN 0 ELSE i %% 7 END AS g, i %% 97 AS v, md5(i::varchar) AS s
			FROM range(%d, %d) t(i)) TO '%s/facts-%d.parquet' (ROW_GROUP_SIZE 10000)`, i*rows/files, (i+1)*rows/files, in.dir, i))
	}
	in.exec(t, fmt.Sprintf("COPY (SELECT i AS k, 'name ' || i AS name, i %% 11 AS c FROM range(2003) t(i)) TO '%s/dim.parquet'", in.dir))
	return in
}

func (in *inputs) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := in.db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// query is one of the kinds of queries, with the columns a, b, s and g.
func (in *inputs) query(kind, n int) string {
	facts, dim := "read_parquet('"+in.dir+"/facts-*.parquet') f", "read_parquet('"+in.dir+"/dim.parquet') d"
	switch kind % 4 {
	case 0: // read in parallel
		return fmt.Sprintf("SELECT f.id AS a, f.v AS b, f.s AS s, f.g AS g FROM %s WHERE f.v %% 7 = %d", facts, n%7)
	case 1:
		return fmt.Sprintf("SELECT f.id AS a, d.c AS b, d.name AS s, f.g AS g FROM %s JOIN %s ON f.k = d.k WHERE d.c = %d", facts, dim, n%11)
	case 2:
		return fmt.Sprintf("SELECT f.k AS a, sum(f.v)::bigint AS b, max(f.s) AS s, f.g AS g FROM %s WHERE f.v > %d GROUP BY f.k, f.g", facts, n%11)
	default:
		return fmt.Sprintf("SELECT d.c AS a, count(*) AS b, min(f.s || d.name) AS s, f.g AS g FROM %s JOIN %s ON f.k = d.k WHERE f.v <> %d GROUP BY d.c, f.g", facts, dim, n%97)
	}
}

// line makes one text of the columns of a row.
const line = "concat_ws('|', a, b, s, g) AS line"

// rows are those of a query without faults and without Firn, each with how often it
// is there.
func (in *inputs) rows(ctx context.Context, query string) (map[string]int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.known[query] == nil {
		found, err := in.lines(ctx, "SELECT '', "+line+" FROM ("+query+")")
		if err != nil {
			return nil, err
		}
		in.known[query] = found[""]
	}
	return in.known[query], nil
}

// lines counts what a query of units and lines gives.
func (in *inputs) lines(ctx context.Context, query string) (units map[string]map[string]int, err error) {
	rows, err := in.db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	units = map[string]map[string]int{}
	for rows.Next() {
		var unit, text string
		if err := rows.Scan(&unit, &text); err != nil {
			return nil, err
		}
		if units[unit] == nil {
			units[unit] = map[string]int{}
		}
		units[unit][text]++
	}
	return units, rows.Err()
}

// jobs are statements of one run, as many times as they have ended well.
type jobs struct {
	l     *lab
	in    *inputs
	table string

	mu       sync.Mutex
	inserted map[string]string // the query of each unit
	selected int
	again    int
	lost     []string // what staged statements that ran again were told
	bad      []string
}

func (j *jobs) fail(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.bad = append(j.bad, fmt.Sprintf(format, args...))
}

// insert runs an INSERT until it has committed, under one key.
func (j *jobs) insert(unit, query string) {
	s := client.Statement{SQL: fmt.Sprintf("INSERT INTO lake.c.%s SELECT '%s' AS unit, a, b, s, g FROM (%s)", j.table, unit, query), Key: j.table + "-" + unit}
	j.mu.Lock()
	j.inserted[unit] = query
	j.mu.Unlock()
	j.until(unit, client.ModeStaged, func(ctx context.Context) error {
		res, err := j.l.clients[0].Execute(ctx, s)
		if err != nil {
			return err
		}
		st, err := res.Job.Wait(ctx)
		if err == nil && st.Commit != commit.CommitCommitted {
			err = fmt.Errorf("the job ended as %s, commit %s, without an error", st.State, st.Commit)
		}
		return err
	})
}

// choose runs a SELECT until it has given all rows, and compares them.
func (j *jobs) choose(unit, query string) {
	want, err := j.in.rows(j.l.t.Context(), query)
	if err != nil {
		j.fail("%s by DuckDB: %v", unit, err)
		return
	}
	// Rows that came before an error are thrown away: a pipelined job may end like that.
	mode := []client.Mode{client.ModeStaged, client.ModePipelined}[j.l.pick(2)]
	j.until(unit, mode, func(ctx context.Context) error {
		res, err := j.l.clients[0].Execute(ctx, client.Statement{SQL: "SELECT " + line + " FROM (" + query + ")", Mode: mode})
		if err != nil {
			return err
		}
		got := map[string]int{}
		for batch, err := range res.Rows(ctx) {
			if err != nil {
				return err
			}
			for i := range int(batch.NumRows()) {
				got[batch.Column(0).ValueStr(i)]++
			}
		}
		if d := difference(want, got); d != "" {
			j.fail("%s: %s: %s", unit, query, d)
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		j.selected++
		return nil
	})
}

// until tries something until it ends well: a fault may end it with an error, but
// not for long.
func (j *jobs) until(unit string, mode client.Mode, try func(context.Context) error) {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		ctx, cancel := context.WithTimeout(j.l.t.Context(), time.Minute)
		err := try(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			j.fail("%s has not ended well: %v", unit, err)
			return
		}
		j.l.note(unit, history.Unknown, err)
		j.mu.Lock()
		j.again++
		if mode == client.ModeStaged {
			j.lost = append(j.lost, fmt.Sprintf("%s: %v", unit, err))
		}
		j.mu.Unlock()
		pause(200 * time.Millisecond)
	}
}

// one runs the nth statement of a worker.
func (j *jobs) one(w, n int) {
	unit := fmt.Sprintf("unit-%d-%d", w, n)
	query := j.in.query(w+n, j.l.pick(1000))
	if j.l.pick(3) == 0 {
		j.choose(unit, query)
		return
	}
	j.insert(unit, query)
}

// judge compares the table with what plain DuckDB makes of the same queries.
func (j *jobs) judge(s *jobStand) (rows int, audit history.Report) {
	ctx := j.l.t.Context()
	tbl, err := s.server.Table(ctx, "c", j.table)
	if err != nil {
		j.l.t.Fatal(err)
	}
	files, err := tbl.Scan().PlanFiles(ctx)
	if err != nil {
		j.l.t.Fatal(err)
	}
	found := map[string]map[string]int{}
	if len(files) > 0 {
		var paths []string
		for _, f := range files {
			paths = append(paths, "'"+strings.TrimPrefix(f.File.FilePath(), "file://")+"'")
		}
		if found, err = j.in.lines(ctx, "SELECT unit, "+line+" FROM read_parquet(["+strings.Join(paths, ", ")+"], hive_partitioning = false)"); err != nil {
			j.l.t.Fatal(err)
		}
	}
	for unit, query := range j.inserted {
		want, err := j.in.rows(ctx, query)
		if err != nil {
			j.l.t.Fatal(err)
		}
		if d := difference(want, found[unit]); d != "" {
			j.fail("%s: %s: %s", unit, query, d)
		}
		for _, n := range found[unit] {
			rows += n
		}
		delete(found, unit)
	}
	for unit := range found {
		j.fail("the table has rows of %s, which nobody inserted", unit)
	}
	if audit, err = history.Audit(ctx, tbl, tokensKey); err != nil {
		j.l.t.Fatal(err)
	}
	j.bad = append(j.bad, audit.Breaches...)
	return rows, audit
}

// difference says how rows differ, empty when they don't.
func difference(want, got map[string]int) string {
	var out []string
	for row, n := range want {
		if got[row] != n {
			out = append(out, fmt.Sprintf("%s is there %d times, not %d", row, got[row], n))
		}
	}
	for row, n := range got {
		if want[row] == 0 {
			out = append(out, fmt.Sprintf("%s is there %d times, and wasn't inserted", row, n))
		}
	}
	slices.Sort(out)
	if len(out) > 5 {
		out = append(out[:5], fmt.Sprintf("and %d others", len(out)-5))
	}
	return strings.Join(out, "; ")
}

// TestJobChaos runs jobs of several stages, with joins and aggregates, while
// executors and the scheduler fail: each has the rows of a run without faults.
func TestJobChaos(t *testing.T) {
	eachSeed(t, jobSmoke, func(t *testing.T, k int) { runJobs(t, k, newJobPlan(k)) })
}

func runJobs(t *testing.T, k int, p *plan) {
	began := time.Now()
	l := newLab(t, p)
	s := l.stand.(*jobStand)
	j := &jobs{l: l, in: s.inputs, table: "t", inserted: map[string]string{}}
	for kind := range 4 { // what is broken without a fault isn't a fault's doing
		j.insert(fmt.Sprint("calm-", kind), s.inputs.query(kind, kind))
		j.choose(fmt.Sprint("calm-select-", kind), s.inputs.query(kind, kind))
	}
	if j.again > 0 || len(j.bad) > 0 {
		t.Fatalf("without faults %d statements ran again: %v", j.again, j.bad)
	}
	var workers sync.WaitGroup
	for w := range p.workers {
		workers.Go(func() {
			for n := range p.units {
				j.one(w, n)
			}
		})
	}
	for _, f := range p.required {
		// Not on a process that has another one.
		for deadline := time.Now().Add(time.Minute); l.fired()[f.name] == 0 && time.Now().Before(deadline); {
			pause(time.Duration(50+l.pick(200)) * time.Millisecond)
			f.act(l)
		}
	}
	workers.Wait()
	l.repairs.Wait()
	left := l.swept()
	rows, audit := j.judge(s)
	_, leftovers := l.unreferenced(filepath.Join(s.dir, "warehouse"), audit, left)
	j.bad = append(j.bad, leftovers...)
	fired := l.fired()
	for _, f := range p.required {
		if fired[f.name] == 0 {
			j.fail("the fault %s never happened", f.name)
		}
	}
	// Whoever waits for a job's end is cut off when the scheduler goes. What executors
	// lose is made again, unseen.
	if len(j.lost) > 0 && fired["kill-scheduler"] == 0 {
		j.fail("statements failed: %s", strings.Join(j.lost, "\n"))
	}
	verdict := "ok"
	if len(j.bad) > 0 {
		verdict = "BAD"
		t.Error(strings.Join(j.bad, "\n"))
	}
	fmt.Fprintf(os.Stdout, "%s run=%d %s dispatch=%s fired=%v inserted=%d selected=%d again=%d rows=%d unreferenced=%d %.1fs\n",
		p.name, k, verdict, s.dispatch, fired, len(j.inserted), j.selected, j.again, rows, len(leftovers), time.Since(began).Seconds())
}
