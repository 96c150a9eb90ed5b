package sinks

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"
)

var rowSchema = arrow.NewSchema([]arrow.Field{
	{Name: "n", Type: arrow.PrimitiveTypes.Int64, Metadata: arrow.NewMetadata([]string{"PARQUET:field_id"}, []string{"1"})},
	{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "l", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32), Nullable: true},
	{Name: "u", Type: extensions.NewUUIDType(), Nullable: true},
	{Name: "m", Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32), Nullable: true},
	{Name: "st", Type: arrow.StructOf(arrow.Field{Name: "x", Type: &arrow.Decimal128Type{Precision: 20, Scale: 2}, Nullable: true}), Nullable: true},
}, nil)

func rowsOf(t interface{ Fatal(...any) }, from, n int) arrow.RecordBatch {
	rows := make([]string, n)
	for i := range rows {
		k := from + i
		rows[i] = fmt.Sprintf(`{"n":%d,"s":"row %d","l":[%d,null],"u":"00000000-0000-0000-0000-%012d","m":[{"key":"k","value":%d}],"st":{"x":"%d.25"}}`, k, k, k, k, k, k)
		if k%5 == 0 {
			rows[i] = fmt.Sprintf(`{"n":%d,"s":null,"l":null,"u":null,"m":null,"st":null}`, k)
		}
	}
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, rowSchema, strings.NewReader("["+strings.Join(rows, ",")+"]"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestWaitingRowsComeBack: every row, whole, under its own partition, partition
// by partition, whether it was spilled or not.
func TestWaitingRowsComeBack(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		q := newWaiting(dir, int64(rapid.IntRange(0, 5000).Draw(t, "budget")))
		defer q.close()
		spread := rapid.IntRange(1, 6).Draw(t, "partitions")
		for i := range spread {
			q.start(Partition{Key: fmt.Sprint(i)})
		}
		want := map[string]string{}
		at := 0
		for range rapid.IntRange(0, 6).Draw(t, "batches") {
			n := rapid.IntRange(1, 12).Draw(t, "rows")
			b := rowsOf(t, at, n)
			at += n
			var parts []Part
			for from := 0; from < n; {
				to := rapid.IntRange(from+1, n).Draw(t, "to")
				key := fmt.Sprint(rapid.IntRange(0, spread-1).Draw(t, "partition"))
				if rapid.IntRange(0, 4).Draw(t, "elsewhere") > 0 { // else: its file is open
					parts = append(parts, Part{Partition: Partition{Key: key}, From: int64(from), To: int64(to)})
					for r := from; r < to; r++ {
						want[text(b, r)] = key
					}
				}
				from = to
			}
			if err := q.add(b, parts); err != nil {
				t.Fatal(err)
			}
			b.Release()
		}
		got := map[string]string{}
		var order []string
		err := q.drain(func(p Partition, rows arrow.RecordBatch) error {
			order = append(order, p.Key)
			for r := range int(rows.NumRows()) {
				got[text(rows, r)] = p.Key
			}
			if !rows.Schema().Equal(rowSchema) || rows.Schema().Field(0).Metadata.Len() != 1 {
				t.Fatalf("the schema changed to %s", rows.Schema())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.IsSorted(order) {
			t.Fatalf("partitions come mixed: %v", order)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("got %v\nwant %v", got, want)
		}
	})
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}
}

func text(b arrow.RecordBatch, row int) string {
	var out []string
	for _, c := range b.Columns() {
		out = append(out, c.ValueStr(row))
	}
	return strings.Join(out, "|")
}

func TestSizeOfSlices(t *testing.T) {
	b := rowsOf(t, 1, 1000)
	defer b.Release()
	whole := size(b)
	if whole < 60*1000 || whole > 90*1000 {
		t.Errorf("1000 rows take %d bytes", whole)
	}
	sum := int64(0)
	for i := range int64(10) {
		s := b.NewSlice(i*100, i*100+100)
		if n := size(s); n > whole/8 {
			t.Errorf("a tenth takes %d of %d bytes", n, whole)
		} else {
			sum += n
		}
		s.Release()
	}
	if sum < whole*95/100 || sum > whole*105/100 {
		t.Errorf("ten tenths take %d bytes, the whole %d", sum, whole)
	}
}
