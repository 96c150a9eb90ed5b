package iceberg

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

func withColumn(schema *arrow.Schema, columns ...arrow.Array) arrow.RecordBatch {
	return array.NewRecordBatch(schema, columns, int64(columns[0].Len()))
}

// dirOf is the partition part of a file's path.
func (tb *table) dirOf(f commit.File) string {
	rest := strings.TrimPrefix(f.Path, tb.opts.Context.Prefix)
	if i := strings.LastIndexByte(rest, '/'); i >= 0 {
		return rest[:i]
	}
	return ""
}

// TestTrapB1_NullAndTheTextNullAreTwoPartitions: they share a directory, and
// must not share a file.
func TestTrapB1_NullAndTheTextNullAreTwoPartitions(t *testing.T) {
	tb := newTable(t, iceberg.NewSchema(0, field(1, "k", p.String), field(2, "v", p.Int32)), []iceberg.PartitionField{identity(1, 1000, "k")}, nil)
	files := tb.write(t, tb.batch(t, `[{"k":null,"v":1},{"k":"null","v":2},{"k":"","v":3},{"k":null,"v":4}]`))
	if len(files) != 3 {
		t.Fatalf("%d files, want 3", len(files))
	}
	got := map[string]string{}
	paths := map[string]bool{}
	for _, f := range files {
		v := f.Partition[0]
		key := fmt.Sprintf("%v %q", v.Null, v.Value)
		got[key] = strings.Join(tb.column(t, "v", f), ",")
		paths[f.Path] = true
		if !v.Null && v.Value == nil {
			t.Errorf("the value of partition %q is nil: it reads as null", tb.column(t, "k", f)[0])
		}
	}
	want := map[string]string{`true ""`: "1,4", `false "null"`: "2", `false ""`: "3"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("partitions %v, want %v", got, want)
	}
	if len(paths) != 3 {
		t.Errorf("files share paths: %v", paths)
	}
}

func TestPartitionsOfATransform(t *testing.T) {
	tb := newTable(t, iceberg.NewSchema(0, field(1, "ts", p.Timestamp), field(2, "s", p.String)),
		[]iceberg.PartitionField{transform(1, 1000, "ts_month", iceberg.MonthTransform{}), transform(2, 1001, "s_trunc", iceberg.TruncateTransform{Width: 2})}, nil)
	files := tb.write(t, tb.batch(t, `[{"ts":"2001-07-31 23:59:59.999999","s":"a/b=c"},{"ts":"1969-12-31 23:59:59.999999","s":"日本語"},{"ts":"2001-07-01 00:00:00","s":"a/x"}]`))
	var dirs []string
	for _, f := range files {
		dirs = append(dirs, tb.dirOf(f))
	}
	slices.Sort(dirs)
	want := []string{"ts_month=1969-12/s_trunc=%E6%97%A5%E6%9C%AC", "ts_month=2001-07/s_trunc=a%2F"}
	if !slices.Equal(dirs, want) {
		t.Errorf("directories %q, want %q", dirs, want)
	}
}

// TestTrapB12_NaNs: NaN is counted, and in no bound.
func TestTrapB12_NaNs(t *testing.T) {
	tb := newTable(t, iceberg.NewSchema(0, field(1, "one", p.Float64), field(2, "all", p.Float32), field(3, "zero", p.Float64), field(4, "none", p.Int32)), nil, nil)
	rows := jsonBatch(t, arrow.NewSchema(tb.arrow.Fields(), nil), `[{"one":1.5,"all":0,"zero":0,"none":1},{"one":0,"all":0,"zero":0,"none":2}]`)
	defer rows.Release()
	nan := 0.0
	nan /= nan
	fb := array.NewFloat64Builder(mem)
	defer fb.Release()
	fb.AppendValues([]float64{1.5, nan}, nil)
	ab := array.NewFloat32Builder(mem)
	defer ab.Release()
	ab.AppendValues([]float32{float32(nan), float32(nan)}, nil)
	f := tb.write(t, withColumn(tb.arrow, fb.NewArray(), ab.NewArray(), rows.Column(2), rows.Column(3)))[0]
	if want := map[int]int64{1: 1, 2: 2, 3: 0}; fmt.Sprint(f.NaNCounts) != fmt.Sprint(want) {
		t.Errorf("NaN counts %v, want %v", f.NaNCounts, want)
	}
	if fmt.Sprintf("%x %x", f.Lower[1], f.Upper[1]) != "000000000000f83f 000000000000f83f" {
		t.Errorf("bounds beside a NaN: %x %x", f.Lower[1], f.Upper[1])
	}
	if _, ok := f.Lower[2]; ok {
		t.Error("a column of NaNs has a bound")
	}
	if fmt.Sprintf("%x %x", f.Lower[3], f.Upper[3]) != "0000000000000080 0000000000000000" {
		t.Errorf("zero isn't bounded by both zeros: %x %x", f.Lower[3], f.Upper[3])
	}
	if f.SortOrderID != 0 {
		t.Errorf("sort order %d for rows that weren't sorted", f.SortOrderID)
	}
}

// numbers makes n rows whose k goes through spread partitions in turn.
func (tb *table) numbers(from, n, spread int) arrow.RecordBatch {
	kb, vb := array.NewInt32Builder(mem), array.NewStringBuilder(mem)
	defer kb.Release()
	defer vb.Release()
	for i := from; i < from+n; i++ {
		kb.Append(int32(i % spread))
		vb.Append(fmt.Sprintf("row %08d %x", i, uint64(i)*0x9e3779b97f4a7c15))
	}
	return withColumn(tb.arrow, kb.NewArray(), vb.NewArray())
}

func keyed(t *testing.T) *table {
	t.Helper()
	return newTable(t, iceberg.NewSchema(0, required(1, "k", p.Int32), field(2, "v", p.String)), []iceberg.PartitionField{identity(1, 1000, "k")}, nil)
}

// TestTrapB14_OpenFilesAreBounded: rows of 300 partitions, mixed, with 4 open
// files and little memory. Nothing is lost, and nothing makes tiny files.
func TestTrapB14_OpenFilesAreBounded(t *testing.T) {
	tb := keyed(t)
	tb.opts.OpenFiles, tb.opts.Memory = 4, 1<<20
	store := &countingStore{Store: tb.opts.Store}
	tb.opts.Store = store
	w := tb.open(t)
	const rows, spread = 60000, 300
	spilled := false
	for i := 0; i < rows; i += 2000 {
		b := tb.numbers(i, 2000, spread)
		if err := w.Write(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		b.Release()
		entries, err := os.ReadDir(tb.opts.SpillDir)
		if err != nil {
			t.Fatal(err)
		}
		spilled = spilled || len(entries) > 0
	}
	if !spilled {
		t.Error("nothing was spilled: the test doesn't test it")
	}
	files, err := w.Close(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != spread {
		t.Errorf("%d files for %d partitions", len(files), spread)
	}
	if store.most > 4 {
		t.Errorf("%d files were open at once, 4 may be", store.most)
	}
	got := tb.column(t, "v", files...)
	slices.Sort(got)
	if got = slices.Compact(got); len(got) != rows {
		t.Errorf("%d different rows read, %d written", len(got), rows)
	}
	for _, f := range files {
		keys := tb.column(t, "k", f)
		if slices.Min(keys) != slices.Max(keys) || f.Rows != rows/spread {
			t.Fatalf("%s holds keys %s to %s in %d rows", f.Path, slices.Min(keys), slices.Max(keys), f.Rows)
		}
	}
	if entries, _ := os.ReadDir(tb.opts.SpillDir); len(entries) > 0 {
		t.Errorf("spilled files stay: %v", entries)
	}
}

// TestClusteredInputIsNotSpilled: partitions that come one after the other are
// written as they come.
func TestClusteredInputIsNotSpilled(t *testing.T) {
	tb := keyed(t)
	tb.opts.OpenFiles = 2
	tb.opts.SpillDir = "/nonexistent"
	tb.opts.Memory = 8 << 10 // any waiting row would be spilled
	w := tb.open(t)
	for k := range 40 {
		for range 10 {
			b := tb.batch(t, fmt.Sprintf(`[{"k":%d,"v":"x"},{"k":%d,"v":"y"}]`, k, k))
			if err := w.Write(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			b.Release()
		}
	}
	files, err := w.Close(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 40 {
		t.Errorf("%d files for 40 partitions", len(files))
	}
}

// countingStore counts the objects that are being written.
type countingStore struct {
	objstore.Store
	open, most int
}

func (s *countingStore) Create(ctx context.Context, uri string) (objstore.Writer, error) {
	w, err := s.Store.Create(ctx, uri)
	if err == nil {
		s.open++
		s.most = max(s.most, s.open)
	}
	return &countingWriter{w, s}, err
}

type countingWriter struct {
	objstore.Writer
	store *countingStore
}

func (w *countingWriter) Commit(ctx context.Context) error {
	w.store.open--
	return w.Writer.Commit(ctx)
}

// TestReturningPartitionsEndTheGuess: input that looked clustered and isn't
// costs each partition one file too many, not one each time.
func TestReturningPartitionsEndTheGuess(t *testing.T) {
	tb := keyed(t)
	tb.opts.OpenFiles = 2
	w := tb.open(t)
	for range 5 {
		for k := range 3 {
			for range 10 {
				b := tb.batch(t, fmt.Sprintf(`[{"k":%d,"v":"x"}]`, k))
				if err := w.Write(context.Background(), b); err != nil {
					t.Fatal(err)
				}
				b.Release()
			}
		}
	}
	files, err := w.Close(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 4 {
		t.Errorf("%d files, want 4: the first partition has two", len(files))
	}
	if n := len(tb.column(t, "k", files...)); n != 150 {
		t.Errorf("%d rows, 150 were written", n)
	}
}
