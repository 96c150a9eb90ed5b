package iceberg

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/internal/objstore"
)

// TestBatchesAreReleased: DuckDB's batches lie outside Go's heap, so that one
// that's held for ever is memory that's lost for ever.
func TestBatchesAreReleased(t *testing.T) {
	for name, spread := range map[string]int{"one partition": 1, "open partitions": 4, "waiting partitions": 50} {
		for _, abort := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, abort %v", name, abort), func(t *testing.T) {
				checked := memory.NewCheckedAllocator(memory.DefaultAllocator)
				defer checked.AssertSize(t, 0)
				tb := keyed(t)
				tb.opts.OpenFiles, tb.opts.Memory = 4, 100000
				w := tb.open(t)
				for i := range 20 {
					rb := array.NewRecordBuilder(checked, tb.arrow)
					for j := range 200 {
						rb.Field(0).(*array.Int32Builder).Append(int32((i*200 + j) % spread))
						rb.Field(1).(*array.StringBuilder).Append(strings.Repeat("x", j%20))
					}
					b := rb.NewRecordBatch()
					rb.Release()
					err := w.Write(context.Background(), b)
					b.Release()
					if err != nil {
						t.Fatal(err)
					}
				}
				if abort {
					if err := w.Abort(); err != nil {
						t.Fatal(err)
					}
				} else if _, err := w.Close(context.Background()); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// discardStore takes files and keeps none.
type discardStore struct{ objstore.Store }

func (discardStore) Create(context.Context, string) (objstore.Writer, error) {
	return discardWriter{}, nil
}

type discardWriter struct{}

func (discardWriter) Write(b []byte) (int, error)  { return len(b), nil }
func (discardWriter) Commit(context.Context) error { return nil }
func (discardWriter) Abort()                       {}

// TestMemoryIsBounded: many times the memory that's allowed goes through, in
// every way that rows can take.
func TestMemoryIsBounded(t *testing.T) {
	const budget, text = 8 << 20, 4000
	for name, spread := range map[string]int{"one partition": 1, "open partitions": 8, "waiting partitions": 200} {
		t.Run(name, func(t *testing.T) {
			tb := newTable(t, iceberg.NewSchema(0, required(1, "k", p.Int32), field(2, "v", p.String)), []iceberg.PartitionField{identity(1, 1000, "k")},
				map[string]string{"write.parquet.compression-codec": "uncompressed", "parquet.enable.dictionary": "false"})
			tb.opts.OpenFiles, tb.opts.Memory, tb.opts.Store = 8, budget, discardStore{}
			w := tb.open(t)
			value := strings.Repeat("x", text)
			runtime.GC()
			var before, now runtime.MemStats
			runtime.ReadMemStats(&before)
			peak := uint64(0)
			for i := range 120 {
				rb := array.NewRecordBuilder(mem, tb.arrow)
				for j := range 200 {
					rb.Field(0).(*array.Int32Builder).Append(int32((i*200 + j) % spread))
					rb.Field(1).(*array.StringBuilder).Append(value)
				}
				b := rb.NewRecordBatch()
				rb.Release()
				if err := w.Write(context.Background(), b); err != nil {
					t.Fatal(err)
				}
				b.Release()
				runtime.GC()
				runtime.ReadMemStats(&now)
				peak = max(peak, now.HeapAlloc-min(now.HeapAlloc, before.HeapAlloc))
			}
			files, err := w.Close(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if len(files) != spread {
				t.Errorf("%d files", len(files))
			}
			t.Logf("peak %d MiB of %d MiB of rows", peak>>20, 120*200*text>>20)
			if peak > 2*budget {
				t.Errorf("%d bytes live while %d MiB went through; %d were allowed", peak, 120*200*text>>20, budget)
			}
		})
	}
}
