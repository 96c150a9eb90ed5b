package iceberg

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/sinks"
)

// BenchmarkWrite writes 400,000 rows in batches of 2,048, as DuckDB gives them,
// to local disk.
func BenchmarkWrite(b *testing.B) {
	for _, c := range []struct {
		name   string
		fields []iceberg.PartitionField
		level  string
	}{
		{"unpartitioned", nil, "3"},
		{"unpartitioned-zstd1", nil, "1"},
		{"days-clustered", []iceberg.PartitionField{identity(5, 1000, "day")}, "3"},
		{"buckets-16", []iceberg.PartitionField{transform(1, 1000, "id_bucket", iceberg.BucketTransform{NumBuckets: 16})}, "3"},
		{"buckets-500-spilled", []iceberg.PartitionField{transform(1, 1000, "id_bucket", iceberg.BucketTransform{NumBuckets: 500})}, "3"},
	} {
		b.Run(c.name, func(b *testing.B) {
			const rows, step = 400000, 2048
			tb := newTable(b, mixedSchema(), c.fields, map[string]string{"write.parquet.compression-level": c.level})
			r := rand.New(rand.NewPCG(1, 2))
			var batches []arrow.RecordBatch
			for i := 0; i < rows; i += step {
				batches = append(batches, mixed(tb.arrow, r, i, step, 16))
			}
			var files []commit.File
			n := 0
			for b.Loop() {
				tb.opts.Attempt = fmt.Sprintf("a-%d", n)
				n++
				w, err := sinks.Open(context.Background(), New(), tb.opts)
				if err != nil {
					b.Fatal(err)
				}
				for _, batch := range batches {
					if err := w.Write(context.Background(), batch); err != nil {
						b.Fatal(err)
					}
				}
				if files, err = w.Close(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			size := int64(0)
			for _, f := range files {
				size += f.Size
			}
			b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(size)/rows, "B/row")
			b.ReportMetric(float64(len(files)), "files")
		})
	}
}
