package iceberg

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/iceberg-go"
	"pgregory.net/rapid"

	"github.com/firn-project/firn/commit"
)

// mixedSchema has columns that compress well, badly and in between.
func mixedSchema() *iceberg.Schema {
	return iceberg.NewSchema(0, required(1, "id", p.Int64), field(2, "kind", p.String), field(3, "noise", p.Binary), field(4, "price", iceberg.DecimalTypeOf(15, 2)), field(5, "day", p.Date))
}

// mixed makes rows; noise is the number of random bytes in each.
func mixed(schema *arrow.Schema, r *rand.Rand, from, n, noise int) arrow.RecordBatch {
	rb := array.NewRecordBuilder(mem, schema)
	defer rb.Release()
	buf := make([]byte, noise+8)
	for i := from; i < from+n; i++ {
		rb.Field(0).(*array.Int64Builder).Append(int64(i))
		rb.Field(1).(*array.StringBuilder).Append([]string{"alpha", "beta", "gamma"}[i%3])
		for j := 0; j < noise; j += 8 {
			binary.LittleEndian.PutUint64(buf[j:], r.Uint64())
		}
		rb.Field(2).(*array.BinaryBuilder).Append(buf[:noise])
		if err := rb.Field(3).AppendValueFromString(fmt.Sprintf("%d.%02d", r.IntN(100000), r.IntN(100))); err != nil {
			panic(err)
		}
		rb.Field(4).(*array.Date32Builder).Append(arrow.Date32(i / 1000))
	}
	return rb.NewRecordBatch()
}

// wantSizes checks that all files but the last are within 15 % of the target.
func wantSizes(t interface {
	Helper()
	Errorf(string, ...any)
}, files []commit.File, target int64,
) {
	t.Helper()
	for _, f := range files[:len(files)-1] {
		if off := float64(f.Size-target) / float64(target); off < -0.15 || off > 0.15 {
			t.Errorf("a file of %d bytes, %+.0f %% off its target of %d", f.Size, off*100, target)
		}
	}
	if last := files[len(files)-1]; float64(last.Size) > 1.15*float64(target) {
		t.Errorf("the last file has %d bytes, the target is %d", last.Size, target)
	}
}

// TestTrapB13_RollingReachesTheTarget: files come out at the target size, also
// the first, of which nothing is known.
func TestTrapB13_RollingReachesTheTarget(t *testing.T) {
	for _, c := range []struct {
		name        string
		target      int64
		rows, batch int
		noise       int
		codec       string
	}{
		{"1 MiB, small batches", 1 << 20, 200000, 2048, 32, ""},
		{"1 MiB, one large batch", 1 << 20, 200000, 200000, 32, ""},
		{"4 MiB, uncompressed", 4 << 20, 200000, 8192, 64, "uncompressed"},
		{"256 KiB, well compressed", 256 << 10, 400000, 2048, 0, ""},
		{"2 MiB, noise", 2 << 20, 60000, 4096, 200, "snappy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tb := newTable(t, mixedSchema(), nil, map[string]string{"write.parquet.compression-codec": c.codec})
			tb.opts.Context.TargetFileSize = c.target
			r := rand.New(rand.NewPCG(1, 2))
			var batches []arrow.RecordBatch
			for i := 0; i < c.rows; i += c.batch {
				batches = append(batches, mixed(tb.arrow, r, i, min(c.batch, c.rows-i), c.noise))
			}
			files := tb.write(t, batches...)
			if len(files) < 3 {
				t.Fatalf("%d files: too few to say anything", len(files))
			}
			wantSizes(t, files, c.target)
			rows := int64(0)
			for _, f := range files {
				rows += f.Rows
				if !slices.IsSorted(f.SplitOffsets) || len(f.SplitOffsets) != tb.openParquet(t, f).NumRowGroups() {
					t.Errorf("%d split offsets %v", len(f.SplitOffsets), f.SplitOffsets)
				}
			}
			if rows != int64(c.rows) {
				t.Errorf("%d rows in the files, %d written", rows, c.rows)
			}
		})
	}
}

// TestChangingData: what was learnt of early rows is wrong for later ones.
func TestChangingData(t *testing.T) {
	tb := newTable(t, mixedSchema(), nil, nil)
	tb.opts.Context.TargetFileSize = 1 << 20
	r := rand.New(rand.NewPCG(1, 2))
	var batches []arrow.RecordBatch
	for i := range 60 {
		batches = append(batches, mixed(tb.arrow, r, i*4000, 4000, (i/12)%3*80))
	}
	wantSizes(t, tb.write(t, batches...), 1<<20)
}

func TestRollingKeepsEveryRow(t *testing.T) {
	tb := keyed(t)
	attempts := 0
	rapid.Check(t, func(rt *rapid.T) {
		attempts++
		tb.opts.Attempt = fmt.Sprintf("a-%d", attempts)
		tb.opts.Context.TargetFileSize = int64(rapid.IntRange(1, 20000).Draw(rt, "target"))
		tb.opts.OpenFiles = rapid.IntRange(1, 5).Draw(rt, "open files")
		tb.opts.Memory = int64(rapid.IntRange(1000, 50000).Draw(rt, "memory"))
		spread := rapid.IntRange(1, 9).Draw(rt, "partitions")
		w := tb.open(t)
		n := 0
		for range rapid.IntRange(0, 6).Draw(rt, "batches") {
			rows := rapid.IntRange(0, 60).Draw(rt, "rows")
			b := tb.numbers(n, rows, spread)
			if err := w.Write(context.Background(), b); err != nil {
				rt.Fatal(err)
			}
			b.Release()
			n += rows
		}
		files, err := w.Close(context.Background())
		if err != nil {
			rt.Fatal(err)
		}
		got := tb.column(t, "v", files...)
		slices.Sort(got)
		if got = slices.Compact(got); len(got) != n {
			rt.Fatalf("%d rows read, %d written", len(got), n)
		}
		for _, f := range files {
			if f.Rows == 0 {
				rt.Fatal("a file without rows")
			}
		}
	})
}

// TestRowGroupProperties: limits of rows and bytes, and what memory forces.
func TestRowGroupProperties(t *testing.T) {
	for name, c := range map[string]struct {
		props  map[string]string
		memory int64
		groups int
	}{
		"rows":   {map[string]string{"write.parquet.row-group-limit": "1000"}, 0, 10},
		"bytes":  {map[string]string{"write.parquet.row-group-size-bytes": "100000"}, 0, 5},
		"memory": {nil, 400000, 3},
		"none":   {nil, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			tb := newTable(t, mixedSchema(), nil, c.props)
			tb.opts.Memory = c.memory
			r := rand.New(rand.NewPCG(1, 2))
			var batches []arrow.RecordBatch
			for i := range 10 {
				batches = append(batches, mixed(tb.arrow, r, i*1000, 1000, 16))
			}
			f := tb.write(t, batches...)
			if got := len(f[0].SplitOffsets); len(f) != 1 || got < c.groups || got > c.groups+2 {
				t.Errorf("%d files, %d row groups, want about %d", len(f), got, c.groups)
			}
		})
	}
}
