package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
)

// BenchmarkOneRow inserts one row at a time on an idle embedded cluster: what a
// statement costs beside its rows.
func BenchmarkOneRow(b *testing.B) {
	for _, by := range []string{"", " PARTITIONED BY (month(date))"} {
		name := "unpartitioned"
		if by != "" {
			name = "partitioned"
		}
		b.Run(name, func(b *testing.B) {
			c, _ := startCluster(b)
			execute(b, c, "CREATE TABLE lake.air.flights "+flightsColumns+by)
			const insert = "INSERT INTO lake.air.flights VALUES (TIMESTAMP '2001-01-13 12:00:00', 5, 800, 'SFO', 'LAX')"
			execute(b, c, insert) // slots open their engines
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				execute(b, c, insert)
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
			b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
		})
	}
}

// execute runs a statement to its end and gives the report of a write.
func execute(b *testing.B, c *client.Client, stmt string) commit.Report {
	b.Helper()
	ctx := context.Background()
	res, err := c.Execute(ctx, client.Statement{SQL: stmt})
	if err != nil {
		b.Fatal(err)
	}
	if res.Job == nil {
		return commit.Report{}
	}
	status, err := res.Job.Wait(ctx)
	if err != nil {
		b.Fatal(err)
	}
	if status.Report == nil {
		b.Fatalf("no report of %s", fmt.Sprintf("%.60q", stmt))
	}
	return *status.Report
}

// moveAll moves what is in a directory to another one.
func moveAll(b *testing.B, from, to string) {
	b.Helper()
	entries, err := os.ReadDir(from)
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			b.Fatal(err)
		}
	}
}
