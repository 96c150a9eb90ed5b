package bench

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/iceberg-go"
	icecatalog "github.com/apache/iceberg-go/catalog"
	sqlcat "github.com/apache/iceberg-go/catalog/sql"
	"github.com/apache/iceberg-go/table"
	_ "github.com/duckdb/duckdb-go/v2"
	_ "modernc.org/sqlite"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/internal/cluster"
)

// input is the whole flights file where FIRN_TESTDATA has it, else the sample.
func input(b *testing.B) string {
	b.Helper()
	if dir := os.Getenv("FIRN_TESTDATA"); dir != "" {
		return filepath.Join(dir, "data", "flights-3m.parquet")
	}
	path, err := filepath.Abs("../../examples/flights/flights-sample.parquet")
	if err != nil {
		b.Fatal(err)
	}
	return path
}

// BenchmarkSmoke writes the flights, partitioned by month, in three ways and
// prints rows/s of each as a ratio to DuckDB's COPY.
func BenchmarkSmoke(b *testing.B) {
	in := input(b)
	for range b.N {
		duck, rows := duckCopy(b, in)
		firn := firnInsert(b, in, rows)
		lib := libraryAppend(b, in, rows)
		fmt.Printf("\n%-28s %12s %14s %18s\n", "", "seconds", "rows/s", "relative to COPY")
		for _, r := range []struct {
			name string
			took time.Duration
		}{{"DuckDB COPY", duck}, {"Firn INSERT", firn}, {"iceberg-go Append", lib}} {
			fmt.Printf("%-28s %12.2f %14.0f %18.2f\n", r.name, r.took.Seconds(), float64(rows)/r.took.Seconds(), duck.Seconds()/r.took.Seconds())
		}
		fmt.Printf("%d rows of %s, partitioned by month, zstd\n\n", rows, filepath.Base(in))
		b.ReportMetric(duck.Seconds()/firn.Seconds(), "firn/copy")
		b.ReportMetric(lib.Seconds()/firn.Seconds(), "firn/append")
	}
}

func duckCopy(b *testing.B, in string) (time.Duration, int64) {
	b.Helper()
	db, err := sql.Open("duckdb", "")
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	start := time.Now()
	_, err = db.Exec(fmt.Sprintf(`COPY (SELECT *, date_trunc('month', date) AS month FROM read_parquet('%s')) TO '%s'
		(FORMAT parquet, COMPRESSION zstd, PARTITION_BY (month))`, in, filepath.Join(b.TempDir(), "copy")))
	took := time.Since(start)
	if err != nil {
		b.Fatal(err)
	}
	var rows int64
	if err := db.QueryRow(fmt.Sprintf("SELECT count(*) FROM read_parquet('%s')", in)).Scan(&rows); err != nil {
		b.Fatal(err)
	}
	return took, rows
}

// firnInsert measures the statement alone, on a cluster that is up.
func firnInsert(b *testing.B, in string, rows int64) time.Duration {
	b.Helper()
	ctx := context.Background()
	cl, err := cluster.Start(ctx, cluster.Config{Dir: b.TempDir(), Executors: 2})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := cl.Close(ctx); err != nil {
			b.Error(err)
		}
	}()
	c, err := client.Dial(ctx, cl.Addr())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for _, stmt := range []string{
		"CREATE NAMESPACE lake.air",
		"CREATE TABLE lake.air.flights (date timestamp, delay bigint, distance bigint, origin string, destination string) PARTITIONED BY (month(date))",
	} {
		if _, err := c.Execute(ctx, client.Statement{SQL: stmt}); err != nil {
			b.Fatal(err)
		}
	}
	start := time.Now()
	res, err := c.Execute(ctx, client.Statement{SQL: fmt.Sprintf("INSERT INTO lake.air.flights SELECT * FROM read_parquet('%s')", in)})
	if err != nil {
		b.Fatal(err)
	}
	status, err := res.Job.Wait(ctx)
	took := time.Since(start)
	if err != nil {
		b.Fatal(err)
	}
	if status.Report.Rows != rows {
		b.Fatalf("Firn wrote %d rows, want %d", status.Report.Rows, rows)
	}
	return took
}

// libraryAppend measures the library's own Append: reading, writing, committing.
func libraryAppend(b *testing.B, in string, rows int64) time.Duration {
	b.Helper()
	ctx := context.Background()
	dir := b.TempDir()
	db, err := sql.Open("sqlite", filepath.Join(dir, "catalog.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	cat, err := sqlcat.NewCatalog("lib", db, sqlcat.SQLite, iceberg.Properties{"warehouse": "file://" + dir, "init_catalog_tables": "true"})
	if err != nil {
		b.Fatal(err)
	}
	if err := cat.CreateNamespace(ctx, table.Identifier{"air"}, nil); err != nil {
		b.Fatal(err)
	}
	schema := iceberg.NewSchema(0,
		iceberg.NestedField{ID: 1, Name: "date", Type: iceberg.PrimitiveTypes.Timestamp},
		iceberg.NestedField{ID: 2, Name: "delay", Type: iceberg.PrimitiveTypes.Int64},
		iceberg.NestedField{ID: 3, Name: "distance", Type: iceberg.PrimitiveTypes.Int64},
		iceberg.NestedField{ID: 4, Name: "origin", Type: iceberg.PrimitiveTypes.String},
		iceberg.NestedField{ID: 5, Name: "destination", Type: iceberg.PrimitiveTypes.String})
	spec := iceberg.NewPartitionSpec(iceberg.PartitionField{SourceIDs: []int{1}, FieldID: 1000, Name: "date_month", Transform: iceberg.MonthTransform{}})
	tbl, err := cat.CreateTable(ctx, table.Identifier{"air", "flights"}, schema, icecatalog.WithPartitionSpec(&spec))
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	rd, err := file.OpenParquetFile(in, false)
	if err != nil {
		b.Fatal(err)
	}
	defer rd.Close()
	pr, err := pqarrow.NewFileReader(rd, pqarrow.ArrowReadProperties{BatchSize: 64 << 10, Parallel: true}, memory.DefaultAllocator)
	if err != nil {
		b.Fatal(err)
	}
	rr, err := pr.GetRecordReader(ctx, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer rr.Release()
	counted := &counter{RecordReader: rr}
	if _, err := tbl.Append(ctx, counted, nil); err != nil {
		b.Fatal(err)
	}
	took := time.Since(start)
	if counted.rows != rows {
		b.Fatalf("the library wrote %d rows, want %d", counted.rows, rows)
	}
	return took
}

// counter counts the rows that went through a reader.
type counter struct {
	pqarrow.RecordReader
	rows int64
}

func (c *counter) Next() bool {
	ok := c.RecordReader.Next()
	if ok {
		c.rows += c.RecordReader.RecordBatch().NumRows()
	}
	return ok
}

var _ interface {
	Schema() *arrow.Schema
	Next() bool
} = (*counter)(nil)
