package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/cluster"
)

// exampleClient connects to a cluster of its own; stop ends both. Programs call
// client.Dial with the address of their scheduler.
func exampleClient(ctx context.Context) (c *client.Client, stop func()) {
	dir, err := os.MkdirTemp("", "firn-example")
	if err != nil {
		log.Fatal(err)
	}
	cl, err := cluster.Start(ctx, cluster.Config{Dir: dir, SlotsPerExecutor: 2})
	if err != nil {
		log.Fatal(err)
	}
	if c, err = client.Dial(ctx, cl.Addr()); err != nil {
		log.Fatal(err)
	}
	for _, sql := range []string{"CREATE NAMESPACE lake.air", "CREATE TABLE lake.air.flights (origin VARCHAR, delay BIGINT)"} {
		if _, err := c.Execute(ctx, client.Statement{SQL: sql}); err != nil {
			log.Fatal(err)
		}
	}
	return c, func() {
		if err := c.Close(); err != nil {
			log.Fatal(err)
		}
		if err := cl.Close(ctx); err != nil {
			log.Fatal(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			log.Fatal(err)
		}
	}
}

// Submit an INSERT, wait for its commit, and read the table.
func Example() {
	ctx := context.Background()
	c, stop := exampleClient(ctx)
	defer stop()

	insert := client.Statement{
		SQL: "INSERT INTO lake.air.flights VALUES ('BOS', 12), ('SFO', -3)",
		Key: "load-2026-11-30",
	}
	for range 2 { // the second time under the same key adds nothing
		res, err := c.Execute(ctx, insert)
		if err != nil {
			log.Fatal(err)
		}
		status, err := res.Job.Wait(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(status.State, status.Report.Rows, "rows, deduplicated:", status.Report.Deduplicated)
	}

	res, err := c.Execute(ctx, client.Statement{SQL: "SELECT origin, delay FROM lake.air.flights ORDER BY delay"})
	if err != nil {
		log.Fatal(err)
	}
	for batch, err := range res.Rows(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		for i := range int(batch.NumRows()) {
			fmt.Println(batch.Column(0).ValueStr(i), batch.Column(1).ValueStr(i))
		}
	}
	// Output:
	// succeeded 2 rows, deduplicated: false
	// succeeded 2 rows, deduplicated: true
	// SFO -3
	// BOS 12
}

// Errors say what kind they are, whatever machine they come from.
func ExampleClient_Execute_errors() {
	ctx := context.Background()
	c, stop := exampleClient(ctx)
	defer stop()

	res, err := c.Execute(ctx, client.Statement{SQL: "INSERT INTO lake.air.nosuch VALUES (1)"})
	if err == nil {
		_, err = res.Job.Wait(ctx)
	}
	switch commit.KindOf(err) {
	case commit.KindConflict:
		fmt.Println("somebody else was faster; nothing was committed")
	case commit.KindUnknown:
		fmt.Println("ask again with the same key")
	case commit.KindNotFound:
		fmt.Println("there is no such table")
	}
	// Output: there is no such table
}

// Stream Arrow batches into a table: one commit at the end.
func ExampleClient_Append() {
	ctx := context.Background()
	c, stop := exampleClient(ctx)
	defer stop()

	schema := arrow.NewSchema([]arrow.Field{
		{Name: "delay", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "origin", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	w, err := c.Append(ctx, "lake.air.flights", schema, client.AppendOptions{})
	if err != nil {
		log.Fatal(err)
	}
	rows := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer rows.Release()
	for n := range int64(3) {
		rows.Field(0).(*array.Int64Builder).AppendValues([]int64{n, 10 * n}, nil)
		rows.Field(1).(*array.StringBuilder).AppendValues([]string{"BOS", "JFK"}, nil)
		batch := rows.NewRecordBatch()
		err := w.Write(batch)
		batch.Release()
		if err != nil {
			log.Fatal(err)
		}
	}
	report, err := w.Commit(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.State, report.Rows, "rows in", report.Table)
	// Output: committed 6 rows in lake.air.flights
}

// Read, transform and write in one job with one commit.
func ExampleClient_Pipeline() {
	ctx := context.Background()
	c, stop := exampleClient(ctx)
	defer stop()

	file, err := os.CreateTemp("", "flights*.csv")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(file.Name())
	if _, err := file.WriteString("origin,delay\nBOS,12\nSFO,-3\nJFK,40\n"); err != nil {
		log.Fatal(err)
	}
	status, err := c.Pipeline().
		ReadCSV(client.ReadOptions{"header": "true"}, file.Name()).
		SQL("SELECT origin, delay FROM input WHERE delay > 0").
		Write("lake.air.flights").Append().
		Run(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.Report.State, status.Report.Rows, "rows")
	// Output: committed 2 rows
}

// A pipelined job gives its first rows while it makes the others.
func ExampleJob_Rows_pipelined() {
	ctx := context.Background()
	c, stop := exampleClient(ctx)
	defer stop()

	res, err := c.Execute(ctx, client.Statement{SQL: "SELECT range AS n FROM range(1000000)", Mode: client.ModePipelined})
	if err != nil {
		log.Fatal(err)
	}
	rows := int64(0)
	for batch, err := range res.Rows(ctx) {
		if err != nil {
			log.Fatal(err) // what came before is part of a result that there isn't
		}
		if rows == 0 {
			fmt.Println("the first row is", batch.Column(0).ValueStr(0))
		}
		rows += batch.NumRows()
	}
	fmt.Println(rows, "rows")
	// Output:
	// the first row is 0
	// 1000000 rows
}

// Cancel stops the job and says whether it came before the commit.
func ExampleJob_Cancel() {
	ctx := context.Background()
	c, stop := exampleClient(ctx)
	defer stop()

	res, err := c.Execute(ctx, client.Statement{SQL: "SELECT count(*) FROM range(1000000000) a, range(1000000000) b"})
	if err != nil {
		log.Fatal(err)
	}
	answer, _, err := res.Job.Cancel(ctx)
	if err != nil {
		log.Fatal(err)
	}
	status, err := c.Job(res.Job.ID()).Wait(ctx)
	fmt.Println(answer, status.State, commit.KindOf(err))
	// Output: cancelled cancelled cancelled
}

// Events follow a job while it runs.
func ExampleJob_Events() {
	ctx := context.Background()
	c, stop := exampleClient(ctx)
	defer stop()

	job, err := c.Pipeline().SQL("SELECT 'BOS', range FROM range(10)").Write("lake.air.flights").Append().Start(ctx)
	if err != nil {
		log.Fatal(err)
	}
	var last client.JobStatus
	for status, err := range job.Events(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		last = status
	}
	fmt.Println(last.State, last.Commit, last.Stages[len(last.Stages)-1].ID)
	// Output: succeeded committed scheduler
}

// Tables can be listed and described.
func ExampleClient_DescribeTable() {
	ctx := context.Background()
	c, stop := exampleClient(ctx)
	defer stop()

	names, err := c.Tables(ctx, "lake", "air")
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range names {
		table, err := c.DescribeTable(ctx, name)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(table.Name, table.Format, table.FormatVersion, table.Rows)
	}
	// Output: lake.air.flights iceberg 2 0
}

// The rows of a query are kept on the executors, and read by later statements.
func ExamplePipeline_Cache() {
	ctx := context.Background()
	c, stop := exampleClient(ctx)
	defer stop()

	late, err := c.Pipeline().SQL("SELECT 'BOS' AS origin, range AS delay FROM range(100) WHERE range > 89").Cache(ctx, client.CacheOptions{TTL: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	defer late.Release(ctx)
	status, err := c.Pipeline().ReadFrame(late).Write("lake.air.flights").Append().Run(ctx)
	if err != nil {
		log.Fatal(err)
	}
	res, err := c.Execute(ctx, client.Statement{SQL: "SELECT max(delay)::varchar FROM " + late.Name()})
	if err != nil {
		log.Fatal(err)
	}
	for batch, err := range res.Rows(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(status.Report.Rows, batch.Column(0).ValueStr(0))
		batch.Release()
	}
	// Output: 10 99
}

// Have files committed that others wrote: a driver begins and commits, workers write.
func ExampleClient_BeginWrite() {
	ctx := context.Background()
	c, stop := exampleClient(ctx)
	defer stop()

	write, err := c.BeginWrite(ctx, "lake.air.flights", client.WriteOptions{Key: "load-2026-11-30"})
	if err != nil {
		log.Fatal(err)
	}
	wc, open := write.Context()
	if !open {
		log.Fatal("a driver before this one has sealed it: write.Wait tells what became of it")
	}

	// In a worker, which got wc as JSON: each attempt has an id of its own.
	path := wc.Prefix + "task1-0.parquet"
	if err := writeParquet(path, wc.Schema); err != nil {
		log.Fatal(err)
	}
	handle, err := c.JoinWrite(wc).HandInFiles(ctx, "task1", []client.WrittenFile{{Path: path, Size: -1, Rows: -1}})
	if err != nil {
		log.Fatal(err)
	}

	// In the driver again.
	report, err := write.Commit(ctx, []client.Handle{handle})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.State, report.Rows, "rows in", report.Files, "file")
	// Output: committed 2 rows in 1 file
}

// writeParquet writes two rows of the schema of the flights.
func writeParquet(uri string, schema *arrow.Schema) error {
	path := strings.TrimPrefix(uri, "file://")
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	rows := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer rows.Release()
	rows.Field(0).(*array.StringBuilder).AppendValues([]string{"BOS", "JFK"}, nil)
	rows.Field(1).(*array.Int64Builder).AppendValues([]int64{12, -3}, nil)
	batch := rows.NewRecordBatch()
	defer batch.Release()
	w, err := pqarrow.NewFileWriter(schema, f, nil, pqarrow.DefaultWriterProps())
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(w.Write(batch), w.Close()) // which closes the file
}
