package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/firn-project/firn/catalog"
	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/internal/cluster"
)

// BenchmarkSmokeCache asks the same of a query's rows over the query itself and over
// its cached frame. The two take turns; medians are printed with their ratio, and what
// caching took.
func BenchmarkSmokeCache(b *testing.B) {
	ctx := context.Background()
	cl, err := cluster.Start(ctx, cluster.Config{Dir: b.TempDir(), Executors: 2, SlotsPerExecutor: 1, Catalogs: []catalog.Config{}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := cl.Close(ctx); err != nil {
			b.Error(err)
		}
	})
	c, err := client.Dial(ctx, cl.Addr())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	flights := "read_parquet('" + input(b) + "')"
	for _, v := range []struct{ name, query, ask string }{
		{
			"result of a join and an aggregate",
			"SELECT a.origin, a.destination, count(*) AS n, avg(a.delay) AS delay FROM " + flights + " a JOIN (SELECT origin, avg(delay) AS usual FROM " + flights + " GROUP BY origin) b USING (origin) WHERE a.delay > b.usual GROUP BY ALL",
			"SELECT origin, max(delay) AS worst FROM %s GROUP BY origin",
		},
		{
			"one row in four, with a computed column",
			"SELECT date, delay, distance, origin, destination, sha256(origin || destination || date::varchar) AS trip FROM " + flights + " WHERE hash(date) % 4 = 0",
			"SELECT origin, count(DISTINCT trip) AS trips, avg(delay) AS delay FROM %s GROUP BY origin",
		},
		{
			"all rows as they are",
			"SELECT * FROM " + flights,
			"SELECT origin, avg(delay) AS delay FROM %s GROUP BY origin",
		},
	} {
		b.Run(v.name, func(b *testing.B) {
			for b.Loop() {
				compareCached(ctx, b, c, v.name, v.query, v.ask)
			}
		})
	}
}

func compareCached(ctx context.Context, b *testing.B, c *client.Client, name, query, ask string) {
	b.Helper()
	took := func(sql string) cost {
		b.Helper()
		began := time.Now()
		res, err := c.Execute(ctx, client.Statement{SQL: sql})
		if err != nil {
			b.Fatal(err)
		}
		for batch, err := range res.Rows(ctx) {
			if err != nil {
				b.Fatal(err)
			}
			batch.Release()
		}
		return cost{wall: time.Since(began)}
	}
	began := time.Now()
	frame, err := c.Pipeline().SQL(query).Cache(ctx, client.CacheOptions{})
	if err != nil {
		b.Fatal(err)
	}
	caching := time.Since(began)
	st, err := frame.Status(ctx)
	if err != nil {
		b.Fatal(err)
	}
	var source, cached []cost
	for round := range rounds + 1 {
		fresh, again := took(fmt.Sprintf(ask, "("+query+")")), took(fmt.Sprintf(ask, frame.Name()))
		if round > 0 { // the first opens engines
			source, cached = append(source, fresh), append(cached, again)
		}
	}
	if err := frame.Release(ctx); err != nil {
		b.Fatal(err)
	}
	wall := func(c cost) time.Duration { return c.wall }
	before, after := median(source, wall), median(cached, wall)
	fmt.Printf("\n%s: %.3f s from the source, %.3f s from the frame, ratio %.1f; %d rows of %.1f MB were cached in %.3f s\n",
		name, before, after, before/after, st.Rows, float64(st.Bytes)/1e6, caching.Seconds())
	b.ReportMetric(before/after, "source/frame")
}
