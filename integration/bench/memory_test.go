package bench

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/process"
)

// BenchmarkMemory inserts the flights, once and ten times over, by an executor
// process of its own, and prints the process's peak of resident memory beside
// its --memory. It needs Linux and bin/firn.
func BenchmarkMemory(b *testing.B) {
	once := input(b)
	tenfold := filepath.Join(b.TempDir(), "tenfold.parquet")
	db, err := sql.Open("duckdb", "")
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	// Each copy has other days, so that ten times the rows are in as many
	// months more or less.
	if _, err := db.Exec(fmt.Sprintf("COPY (SELECT date + INTERVAL (i) DAY AS date, delay, distance, origin, destination FROM read_parquet('%s'), range(10) t(i)) TO '%s' (FORMAT parquet)", once, tenfold)); err != nil {
		b.Fatal(err)
	}
	for _, in := range []struct{ name, path string }{{"once", once}, {"tenfold", tenfold}} {
		for _, memory := range []string{"128MiB", "512MiB", "2GiB"} {
			b.Run(in.name+"/"+memory, func(b *testing.B) {
				for b.Loop() {
					b.ReportMetric(peak(b, in.path, memory), "peak-MiB")
				}
			})
		}
	}
}

// peak is the executor's VmHWM in MiB after two inserts: a leak would show in
// the second.
func peak(b *testing.B, in, memory string) float64 {
	b.Helper()
	dir := b.TempDir()
	conf := filepath.Join(dir, "scheduler.yaml")
	if err := os.WriteFile(conf, []byte("sources: {local: {allow: ['/']}}\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	scheduler := process.Start(b, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(dir, "scheduler"), "--config", conf)
	executor := process.Start(b, "executor", "--server", scheduler.Address, "--dir", filepath.Join(dir, "executor"), "--slots", "2", "--memory", memory)
	c := process.NewClient(b, "--server", scheduler.Address)
	c.Exec(nil, "CREATE NAMESPACE lake.air")
	c.Exec(nil, "CREATE TABLE lake.air.flights "+flightsColumns+" PARTITIONED BY (month(date))")
	for range 2 {
		c.Exec(nil, "INSERT INTO lake.air.flights SELECT * FROM read_parquet("+process.Quote(in)+")")
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", executor.PID()))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	scheduler.Stop(b)
	executor.Stop(b)
	return float64(kib) / 1024
}
