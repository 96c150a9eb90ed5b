package openwrite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"go.uber.org/goleak"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/internal/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// formats are what tables are declared with.
var formats = map[string]string{"iceberg": "", "delta": " USING delta"}

// stand is a cluster with the table lake.w.t (id BIGINT NOT NULL, p VARCHAR),
// partitioned by p.
type stand struct {
	*client.Client
	t    testing.TB
	dir  string
	addr string
	// attempts makes attempts' ids, ids the rows'.
	attempts, ids atomic.Int64
}

func start(t testing.TB, format string) *stand {
	t.Helper()
	dir := t.TempDir()
	cl, err := cluster.Start(t.Context(), cluster.Config{Dir: dir, CheckAllFiles: true})
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{t: t, dir: dir, addr: cl.Addr()}
	t.Cleanup(func() {
		if err := cl.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	s.Client = s.dial(t, cl.Addr())
	s.must("CREATE NAMESPACE lake.w", "CREATE TABLE lake.w.t (id BIGINT NOT NULL, p VARCHAR)"+formats[format]+" PARTITIONED BY (p)")
	return s
}

func (s *stand) dial(t testing.TB, addr string, opts ...client.Option) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

func (s *stand) must(statements ...string) {
	s.t.Helper()
	for _, sql := range statements {
		res, err := s.Execute(s.t.Context(), client.Statement{SQL: sql})
		if err == nil && res.Job != nil {
			_, err = res.Job.Wait(s.t.Context())
		}
		if err != nil {
			s.t.Fatalf("%s: %v", sql, err)
		}
	}
}

// rows counts how often each id is in the table.
func (s *stand) rowsOf(table string) map[int64]int {
	s.t.Helper()
	res, err := s.Execute(s.t.Context(), client.Statement{SQL: "SELECT id FROM " + table})
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[int64]int{}
	for b, err := range res.Rows(s.t.Context()) {
		if err != nil {
			s.t.Fatal(err)
		}
		ids, ok := b.Column(0).(*array.Int64)
		for i := range int(b.NumRows()) {
			if !ok {
				s.t.Fatalf("the column is %s", b.Column(0).DataType())
			}
			out[ids.Value(i)]++
		}
	}
	return out
}

func (s *stand) begin(opts client.WriteOptions) (*client.Write, client.WriteContext) {
	s.t.Helper()
	w, err := s.BeginWrite(s.t.Context(), "lake.w.t", opts)
	if err != nil {
		s.t.Fatal(err)
	}
	wc, ok := w.Context()
	if !ok {
		s.t.Fatal("the write isn't open")
	}
	return w, wc
}

// attempt is one try of a task: its file, and its rows.
type attempt struct {
	id, path string
	rows     []int64
	handle   client.Handle
}

// write writes the file of an attempt, as a worker that knows nothing of Firn: n
// rows of one partition.
func (s *stand) write(wc client.WriteContext, n int) attempt {
	s.t.Helper()
	a := attempt{id: fmt.Sprintf("task_%d", s.attempts.Add(1))}
	for range n {
		a.rows = append(a.rows, s.ids.Add(1))
	}
	a.path = wc.Prefix + a.id + "-0.parquet"
	s.put(wc, a.path, a.rows, "x")
	return a
}

// put writes a Parquet file over what is there.
func (s *stand) put(wc client.WriteContext, uri string, ids []int64, p string) {
	s.t.Helper()
	path := strings.TrimPrefix(uri, "file://")
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		s.t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	var fields []arrow.Field
	for _, name := range wc.FileColumns {
		fields = append(fields, wc.Schema.Field(wc.Schema.FieldIndices(name)[0]))
	}
	schema := arrow.NewSchema(fields, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for _, id := range ids {
		for i, f := range fields {
			if f.Name == "id" {
				b.Field(i).(*array.Int64Builder).Append(id)
			} else {
				b.Field(i).(*array.StringBuilder).Append(p)
			}
		}
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	w, err := pqarrow.NewFileWriter(schema, f, parquet.NewWriterProperties(), pqarrow.DefaultWriterProps())
	if err != nil {
		s.t.Fatal(err)
	}
	if err := errors.Join(w.Write(rec), w.Close()); err != nil {
		s.t.Fatal(err)
	}
}

// handIn hands the attempt's file in by its path.
func (s *stand) handIn(ctx context.Context, w *client.Write, a *attempt) (err error) {
	x := "x"
	a.handle, err = w.HandInFiles(ctx, a.id, []client.WrittenFile{{Path: a.path, Size: -1, Rows: int64(len(a.rows)), Partition: map[string]*string{"p": &x}}})
	return err
}

// taken writes a file and hands it in.
func (s *stand) taken(w *client.Write, wc client.WriteContext, n int) attempt {
	s.t.Helper()
	a := s.write(wc, n)
	if err := s.handIn(s.t.Context(), w, &a); err != nil {
		s.t.Fatal(err)
	}
	return a
}

// files are those below the cluster's warehouse.
func (s *stand) files() map[string]bool {
	s.t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(s.dir, "warehouse"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(filepath.Base(path), "task_") {
			found["file://"+path] = true
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

// settle waits until exactly these files are left: a write's others go by record
// once it has ended.
func (s *stand) settle(want map[string]bool) {
	s.t.Helper()
	var have map[string]bool
	for range 300 {
		have = s.files()
		same := len(have) == len(want)
		for f := range want {
			same = same && have[f]
		}
		if same {
			return
		}
		wait(s.t, 100*time.Millisecond)
	}
	for f := range want {
		if !have[f] {
			s.t.Errorf("a committed file is gone: %s", f)
		}
	}
	for f := range have {
		if !want[f] {
			s.t.Errorf("a file that isn't committed stays: %s", f)
		}
	}
}

// wait is the pause between two looks at what another process does.
func wait(t testing.TB, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// expected is what the table must hold at the end.
type expected struct {
	rows  map[int64]bool
	files map[string]bool
}

func newExpected() *expected { return &expected{map[int64]bool{}, map[string]bool{}} }

func (e *expected) add(attempts ...attempt) {
	for _, a := range attempts {
		e.files[a.path] = true
		for _, id := range a.rows {
			e.rows[id] = true
		}
	}
}

// judge holds the table and the store against what must be there.
func (s *stand) judge(e *expected) {
	s.t.Helper()
	rows := s.rowsOf("lake.w.t")
	for id := range e.rows {
		if rows[id] != 1 {
			s.t.Errorf("row %d is there %d times, want once", id, rows[id])
		}
	}
	for id, n := range rows {
		if !e.rows[id] {
			s.t.Errorf("row %d is there %d times, want never", id, n)
		}
	}
	s.settle(e.files)
}
