package bench

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/firn-project/firn/catalog"
	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

// BenchmarkSmokeFirstRow reads all flights as a staged and as a pipelined job, straight
// from the query's tasks and through two exchanges. The modes take turns; medians of
// the time from the client's call to the first row, and to the last, are printed with
// their ratios.
func BenchmarkSmokeFirstRow(b *testing.B) {
	in := input(b)
	info, err := os.Stat(in)
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	cl, err := cluster.Start(ctx, cluster.Config{Dir: b.TempDir(), Executors: 2, SlotsPerExecutor: 3, Planning: "static", Catalogs: []catalog.Config{}})
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
	conn, err := grpc.NewClient(cl.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	f := &firstRow{client: c, rpc: firnpb.NewClientServiceClient(conn), rows: count64(b, c, in)}
	for _, v := range []struct {
		name   string
		stages int
	}{{"one stage", 1}, {"three stages", 3}} {
		b.Run(v.name, func(b *testing.B) {
			raw, err := plan.Encode(flightsPlan(in, info.Size(), f.rows, v.stages))
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				f.compare(b, v.name, raw)
			}
		})
	}
}

// flightsPlan is the plan of a SELECT over halves of the file.
func flightsPlan(in string, size, rows int64, stages int) plan.Node {
	half := func(first, end int64) []plan.SourceFile {
		return []plan.SourceFile{{Path: in, Size: size, Rows: rows, First: first, End: end}}
	}
	var n plan.Node = &plan.Query{
		SQL: "SELECT * FROM flights", Parallel: true, Deterministic: true,
		Sources:    []plan.Source{{View: []string{"flights"}, Kind: plan.SourceParquet, Patterns: []string{in}, Files: []plan.SourceFile{{Path: in, Size: size, Rows: rows}}}},
		Partitions: [][]plan.SourceFile{half(0, rows/2), half(rows/2, rows)},
	}
	for range stages - 1 {
		n = &plan.Exchange{Input: n, How: plan.ExchangeRoundRobin, Partitions: 2}
	}
	return n
}

// count64 is how many rows a file has.
func count64(b *testing.B, c *client.Client, in string) int64 {
	b.Helper()
	res, err := c.Execute(context.Background(), client.Statement{SQL: "SELECT count(*)::varchar FROM read_parquet('" + in + "')"})
	if err != nil {
		b.Fatal(err)
	}
	var n int64
	for batch, err := range res.Rows(context.Background()) {
		if err != nil {
			b.Fatal(err)
		}
		if _, err := fmt.Sscan(batch.Column(0).ValueStr(0), &n); err != nil {
			b.Fatal(err)
		}
	}
	return n
}

// firstRow measures when rows come.
type firstRow struct {
	client *client.Client
	rpc    firnpb.ClientServiceClient
	rows   int64
}

func (f *firstRow) compare(b *testing.B, name string, raw []byte) {
	b.Helper()
	modes := []client.Mode{client.ModeStaged, client.ModePipelined}
	first, last := make([][]cost, len(modes)), make([][]cost, len(modes))
	for round := range rounds + 1 {
		for turn := range modes {
			i := (turn + round) % len(modes)
			one, all := f.read(b, raw, modes[i])
			if round > 0 { // the first opens engines
				first[i], last[i] = append(first[i], cost{wall: one}), append(last[i], cost{wall: all})
			}
		}
	}
	wall := func(c cost) time.Duration { return c.wall }
	staged, pipelined := median(first[0], wall), median(first[1], wall)
	stagedAll, pipelinedAll := median(last[0], wall), median(last[1], wall)
	fmt.Printf("\n%s: first of %d rows after %.3f s staged, %.3f s pipelined, ratio %.3f; last after %.3f s and %.3f s, ratio %.2f\n",
		name, f.rows, staged, pipelined, pipelined/staged, stagedAll, pipelinedAll, pipelinedAll/stagedAll)
	b.ReportMetric(pipelined/staged, "first/staged")
	b.ReportMetric(pipelinedAll/stagedAll, "last/staged")
}

func (f *firstRow) read(b *testing.B, raw []byte, mode client.Mode) (first, last time.Duration) {
	b.Helper()
	ctx := context.Background()
	began := time.Now()
	resp, err := f.rpc.Execute(ctx, &firnpb.ExecuteRequest{ProtocolVersion: wire.ProtocolVersion, Physical: raw, Mode: string(mode)})
	if err != nil {
		b.Fatal(err)
	}
	var rows int64
	for batch, err := range f.client.Job(resp.GetJob().GetJobId()).Rows(ctx) {
		if err != nil {
			b.Fatal(err)
		}
		if rows == 0 {
			first = time.Since(began)
		}
		rows += batch.NumRows()
	}
	if rows != f.rows {
		b.Fatalf("%d of %d rows came", rows, f.rows)
	}
	return first, time.Since(began)
}
