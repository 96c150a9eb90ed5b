package iceberg

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/iceberg-go"
)

// What a row's day is doesn't depend on the rows before it.
func TestDatesInAnyOrder(t *testing.T) {
	const day = 24 * 3600 * 1e6
	edges := []int64{math.MinInt64, math.MinInt64 + 1, math.MaxInt64, math.MaxInt64 - 1, 0, -1, 1, day - 1, day, -day, -day - 1, day * 31, 980000000e6}
	r := rand.New(rand.NewPCG(3, 4))
	b := array.NewTimestampBuilder(mem, &arrow.TimestampType{Unit: arrow.Microsecond})
	var values []int64
	for range 20000 {
		v := edges[r.IntN(len(edges))]
		if len(values) > 0 && r.IntN(2) == 0 {
			v = values[len(values)-1] + r.Int64N(day) // near the row before, or over the end of the range
		}
		values = append(values, v)
		b.Append(arrow.Timestamp(v))
	}
	a := b.NewArray()
	defer a.Release()
	for _, tr := range []iceberg.Transform{iceberg.YearTransform{}, iceberg.MonthTransform{}, iceberg.DayTransform{}} {
		f, err := newTransformer(tr, iceberg.PrimitiveTypes.Timestamp)
		if err != nil {
			t.Fatal(err)
		}
		k, err := f(a, a)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			one := array.NewSlice(a, int64(i), int64(i+1))
			want, err := f(one, one)
			one.Release()
			if err != nil {
				t.Fatal(err)
			}
			if k.ints[i] != want.ints[0] {
				t.Fatalf("%s of %d after %d: %d, want %d", tr, v, values[max(0, i-1)], k.ints[i], want.ints[0])
			}
		}
	}
}

// BenchmarkMonths partitions a day's rows of every minute, in order and mixed.
func BenchmarkMonths(b *testing.B) {
	schema := iceberg.NewSchema(0, iceberg.NestedField{ID: 1, Name: "date", Type: iceberg.PrimitiveTypes.Timestamp})
	spec := iceberg.NewPartitionSpec(iceberg.PartitionField{SourceIDs: []int{1}, FieldID: 1000, Name: "m", Transform: iceberg.MonthTransform{}})
	p, err := NewPartitioner(schema, spec)
	if err != nil {
		b.Fatal(err)
	}
	as, err := ArrowSchema(schema)
	if err != nil {
		b.Fatal(err)
	}
	for _, mixed := range []bool{false, true} {
		name := "in-order"
		if mixed {
			name = "mixed"
		}
		b.Run(name, func(b *testing.B) {
			const n = 65536
			r := rand.New(rand.NewPCG(1, 2))
			tb := array.NewTimestampBuilder(mem, &arrow.TimestampType{Unit: arrow.Microsecond})
			for i := range n {
				at := int64(980000000e6) + int64(i)*60e6
				if mixed {
					at = 980000000e6 + r.Int64N(180*86400e6)
				}
				tb.Append(arrow.Timestamp(at))
			}
			batch := array.NewRecordBatch(as, []arrow.Array{tb.NewArray()}, n)
			for b.Loop() {
				k, err := p.Apply(batch)
				if err != nil {
					b.Fatal(err)
				}
				k.Group()
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
