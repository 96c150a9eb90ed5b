package bench

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/iceberg-go"
	icecatalog "github.com/apache/iceberg-go/catalog"
	sqlcat "github.com/apache/iceberg-go/catalog/sql"
	"github.com/apache/iceberg-go/table"
	_ "github.com/duckdb/duckdb-go/v2"
	_ "modernc.org/sqlite"

	"github.com/firn-project/firn/catalog"
	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/internal/cluster"
)

// duckCopy is DuckDB's COPY. It is no table and commits nothing: the speed of
// light here. DuckDB uses all processors.
func duckCopy(b *testing.B, in string) writer {
	b.Helper()
	db, err := sql.Open("duckdb", "")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	return writer{"DuckDB COPY", func(b *testing.B, dir string, partitioned bool) (int64, time.Duration) {
		// The partition column is left out of the files, so all write the same
		// columns.
		stmt := fmt.Sprintf("COPY (SELECT *, date_trunc('month', date) AS month FROM read_parquet('%s')) TO '%s' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (month))",
			in, filepath.Join(dir, "copy"))
		if !partitioned {
			stmt = fmt.Sprintf("COPY (FROM read_parquet('%s')) TO '%s' (FORMAT parquet, COMPRESSION zstd)", in, filepath.Join(dir, "copy.parquet"))
		}
		start := time.Now()
		res, err := db.Exec(stmt)
		took := time.Since(start)
		if err != nil {
			b.Fatal(err)
		}
		rows, err := res.RowsAffected()
		if err != nil {
			b.Fatal(err)
		}
		return rows, took
	}}
}

const flightsColumns = "(date timestamp, delay bigint, distance bigint, origin string, destination string)"

// firnInsert is the INSERT statement from a client on a cluster that is up, to
// the committed snapshot.
func firnInsert(b *testing.B, in string) writer {
	b.Helper()
	c, warehouse := startCluster(b)
	n := 0
	return writer{"Firn INSERT", func(b *testing.B, dir string, partitioned bool) (int64, time.Duration) {
		n++
		name, by := fmt.Sprintf("lake.air.flights_%d", n), ""
		if partitioned {
			by = " PARTITIONED BY (month(date))"
		}
		execute(b, c, fmt.Sprintf("CREATE TABLE %s %s%s", name, flightsColumns, by))
		start := time.Now()
		report := execute(b, c, fmt.Sprintf("INSERT INTO %s SELECT * FROM read_parquet('%s')", name, in))
		took := time.Since(start)
		// Where the others write, so that it is counted and removed with theirs.
		moveAll(b, warehouse, dir)
		return report.Rows, took
	}}
}

// libraryAppend is the library's own Append: reading, writing, committing to a
// SQL catalog. It uses the codec that Firn registers, which is the faster one.
func libraryAppend(in string) writer {
	return writer{"iceberg-go Append", func(b *testing.B, dir string, partitioned bool) (int64, time.Duration) {
		ctx := context.Background()
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
		var opts []icecatalog.CreateTableOpt
		if partitioned {
			spec := iceberg.NewPartitionSpec(iceberg.PartitionField{SourceIDs: []int{1}, FieldID: 1000, Name: "date_month", Transform: iceberg.MonthTransform{}})
			opts = append(opts, icecatalog.WithPartitionSpec(&spec))
		}
		tbl, err := cat.CreateTable(ctx, table.Identifier{"air", "flights"}, schema, opts...)
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
		return counted.rows, time.Since(start)
	}}
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

// startCluster starts an embedded cluster of two executors, with the namespace
// lake.air in it. It also gives the directory of the tables.
func startCluster(b *testing.B) (*client.Client, string) {
	b.Helper()
	return startClusterOf(b, 0)
}

// startClusterOf is startCluster with a number of slots for each executor.
func startClusterOf(b *testing.B, slots int) (*client.Client, string) {
	b.Helper()
	ctx := context.Background()
	dir := b.TempDir()
	warehouse := filepath.Join(dir, "warehouse")
	cl, err := cluster.Start(ctx, cluster.Config{Dir: dir, Executors: 2, SlotsPerExecutor: slots, Catalogs: []catalog.Config{{
		Name: "lake", Type: "sql", URI: "sqlite://" + filepath.Join(dir, "catalog.db"), Warehouse: warehouse,
	}}})
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
	execute(b, c, "CREATE NAMESPACE lake.air")
	return c, warehouse
}
