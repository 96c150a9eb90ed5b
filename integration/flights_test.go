//go:build integration

package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/firn-project/firn/integration/process"
)

// flights is one input of the main job with what is known of it.
type flights struct {
	path                  string
	rows, distance, delay int64
	july                  int64
}

// input is the whole file where FIRN_TESTDATA has it, else the sample, sixty times:
// 3,000,000 rows in either case.
func input(t *testing.T) flights {
	t.Helper()
	if dir := os.Getenv("FIRN_TESTDATA"); dir != "" {
		path := filepath.Join(dir, "data", "flights-3m.parquet")
		if _, err := os.Stat(path); err == nil {
			return flights{path: path, rows: 3_000_000, distance: 2_194_861_208, delay: 20_003_603, july: 6}
		}
	}
	const times = 60
	path := filepath.Join(t.TempDir(), "flights.parquet")
	duck(t, fmt.Sprintf("COPY (SELECT s.* FROM '../examples/flights/flights-sample.parquet' s, range(%d)) TO '%s'", times, path))
	return flights{path: path, rows: times * 50_005, distance: times * 36_637_367, delay: times * 322_590, july: times * 6}
}

const createFlights = `CREATE TABLE lake.air.flights (date timestamp, delay bigint, distance bigint, origin string, destination string) PARTITIONED BY (month(date))`

// TestMainJobOnFourExecutors: one scheduler and four executor processes, tasks
// on all four, one snapshot, and a second run under the same key adds nothing.
func TestMainJobOnFourExecutors(t *testing.T) {
	in := input(t)
	for dispatch, delivery := range map[string]string{"push": "stream", "pull": "poll"} {
		t.Run(dispatch, func(t *testing.T) {
			dir := t.TempDir()
			config := filepath.Join(dir, "scheduler.yaml")
			body := fmt.Sprintf("dispatch: %s\nsources:\n  local:\n    allow: [%q]\n", dispatch, filepath.Dir(in.path))
			if err := os.WriteFile(config, []byte(body), 0o600); err != nil {
				t.Fatal(err)
			}
			sched := process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(dir, "scheduler"), "--config", config)
			for i := range 4 {
				process.Start(t, "executor", "--server", sched.Address, "--dir", filepath.Join(dir, fmt.Sprintf("executor-%d", i)), "--slots", "1", "--memory", "512MB")
			}
			c := process.NewClient(t, "--server", sched.Address)
			c.Exec(nil, "CREATE NAMESPACE lake.air")
			c.Exec(nil, createFlights)
			insert := "INSERT INTO lake.air.flights SELECT * FROM read_parquet(" + process.Quote(in.path) + ")"

			var first, second process.Write
			c.Exec(&first, insert, "--idempotency-key", "main", "--delivery", delivery)
			if first.State != "succeeded" || first.Commit != "committed" || first.Rows != in.rows || first.Deduplicated {
				t.Fatalf("first insert: %+v", first)
			}
			if len(first.Executors) != 4 {
				t.Errorf("tasks ran on %d executors, want 4: %+v", len(first.Executors), first.Executors)
			}
			tasks := 0
			for _, e := range first.Executors {
				if e.Tasks == 0 {
					t.Errorf("executor %s ran no task", e.ID)
				}
				tasks += e.Tasks
			}
			if tasks != first.Tasks {
				t.Errorf("executors ran %d tasks, the job has %d", tasks, first.Tasks)
			}
			c.Exec(&second, insert, "--idempotency-key", "main")
			if !second.Deduplicated || second.SnapshotID != first.SnapshotID || second.Rows != in.rows {
				t.Errorf("second insert under the same key: %+v", second)
			}
			checkFlights(t, c, in)
			partitions := map[string]bool{}
			for _, path := range parquetFiles(t, filepath.Join(dir, "scheduler")) {
				partitions[filepath.Base(filepath.Dir(path))] = true
			}
			if len(partitions) != 7 {
				t.Errorf("partitions %v, want 7", partitions)
			}
		})
	}
}

// TestReuseOfAKey: a key names one statement for ever.
func TestReuseOfAKey(t *testing.T) {
	dir := t.TempDir()
	c := process.NewClient(t, "--dir", dir)
	c.Exec(nil, "CREATE NAMESPACE lake.a")
	c.Exec(nil, "CREATE TABLE lake.a.t (n int)")
	c.Exec(nil, "INSERT INTO lake.a.t VALUES (1)", "--idempotency-key", "k")
	if r := c.Try("INSERT INTO lake.a.t VALUES (2)", "--idempotency-key", "k"); r.Code == 0 {
		t.Errorf("another statement under the same key went through: %s", r.Stdout)
	}
	var again process.Write
	c.Exec(&again, "INSERT INTO lake.a.t VALUES (1)", "--idempotency-key", "k")
	if !again.Deduplicated {
		t.Errorf("the same statement under the same key: %+v", again)
	}
	if n := c.Row("SELECT count(*) AS n FROM lake.a.t")["n"]; n != 1.0 {
		t.Errorf("%v rows, want 1", n)
	}
}

func checkFlights(t *testing.T, c *process.Client, in flights) {
	t.Helper()
	row := c.Row(`SELECT count(*) AS "rows", sum(distance)::bigint AS distance, sum(delay)::bigint AS delay,
		count(*) FILTER (WHERE date >= TIMESTAMP '2001-07-01' AND date < TIMESTAMP '2001-08-01') AS july FROM lake.air.flights`)
	for name, want := range map[string]int64{"rows": in.rows, "distance": in.distance, "delay": in.delay, "july": in.july} {
		got, err := process.Int(row[name])
		if err != nil || got != want {
			t.Errorf("%s is %v, want %d (%v)", name, row[name], want, err)
		}
	}
}
