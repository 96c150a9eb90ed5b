package delta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/objstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var tableName = commit.TableName{Catalog: "lake", Namespace: []string{"air"}, Name: "t"}

// harness is a Delta table for the conformance suite. Its name has a new directory
// each time that the table is made, as Firn makes tables.
type harness struct {
	t       *testing.T
	parent  string
	dir     string // empty when the table is dropped
	store   *faultStore
	made, n int
}

func newHarness(t *testing.T) *harness {
	h := &harness{t: t, parent: t.TempDir(), store: &faultStore{Store: objstore.New(objstore.Config{})}}
	h.create()
	return h
}

func (h *harness) create() {
	h.t.Helper()
	h.made++
	h.dir = filepath.Join(h.parent, fmt.Sprintf("t-%d", h.made))
	c, err := NewTable(TableSpec{ID: uuid.NewString(), TxnID: uuid.NewString(), Schema: testSchema(), Partition: []string{"p"}, Now: testTime, Engine: "Firn/test"})
	if err != nil {
		h.t.Fatal(err)
	}
	b, err := c.Encode()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := localLog(h.dir).Put(h.t.Context(), 0, b); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) locate(context.Context) (string, error) {
	if h.dir == "" {
		return "", notFound("lake.air.t")
	}
	return h.dir, nil
}

func (h *harness) Open(testing.TB) commit.Table { return h.open() }

func (h *harness) open() *Table {
	return Open(Options{Name: tableName, Store: h.store, Locate: h.locate, TempDir: h.parent})
}

func (h *harness) view() *View {
	h.t.Helper()
	table := h.open()
	defer table.Close()
	v, err := table.View(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return v
}

// dataFile writes a Parquet file of the column v.
func (h *harness) dataFile(path string, rows int) int64 {
	h.t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for i := range rows {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
	}
	batch := b.NewRecordBatch()
	defer batch.Release()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		h.t.Fatal(err)
	}
	w, err := pqarrow.NewFileWriter(schema, f, nil, pqarrow.DefaultWriterProps())
	if err != nil {
		h.t.Fatal(err)
	}
	if err := errors.Join(w.Write(batch), w.Close()); err != nil {
		h.t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		h.t.Fatal(err)
	}
	return st.Size()
}

func (h *harness) Unit(_ testing.TB, key string, files, rows int) commit.Unit {
	h.t.Helper()
	v := h.view()
	h.n++
	job := fmt.Sprintf("job%d", h.n)
	spec := commit.UnitSpec{
		Namespace: "ns", Key: key, JobID: job, Table: tableName, TableUUID: v.UUID(), Operation: commit.OperationAppend,
		SchemaID: v.SchemaID(), SpecID: v.SpecID(), Prefix: h.dir + "/data/" + job + "/", Tasks: max(files, 1), Origin: commit.OriginOf(v),
	}
	for i := range files {
		attempt := fmt.Sprintf("%sa%d", job, i)
		path := fmt.Sprintf("%sp=x %d/part-%s-0.parquet", spec.Prefix, i, attempt)
		f := commit.File{
			Path: path, Format: "PARQUET", Attempt: attempt, SchemaID: spec.SchemaID, SpecID: spec.SpecID, Rows: int64(rows), Size: h.dataFile(path, rows),
			Partition:  []commit.PartitionValue{{FieldID: 1, Value: fmt.Appendf(nil, "x %d", i)}},
			NullCounts: map[int]int64{1: 0}, Lower: map[int][]byte{1: []byte("0")}, Upper: map[int][]byte{1: fmt.Append(nil, rows-1)},
		}
		spec.Files = append(spec.Files, f)
	}
	return commit.NewUnit(spec)
}

func (h *harness) Rows(testing.TB) (n int64) {
	h.t.Helper()
	s, err := localLog(h.dir).Snapshot(h.t.Context(), Latest)
	if err != nil {
		h.t.Fatal(err)
	}
	for a, err := range s.Files(h.t.Context()) {
		if err != nil {
			h.t.Fatal(err)
		}
		uri, err := delta.ResolvePath(h.dir, a.Path)
		if err != nil {
			h.t.Fatal(err)
		}
		f, err := os.Open(uri)
		if err != nil {
			h.t.Fatal(err)
		}
		r, err := file.NewParquetReader(f)
		if err != nil {
			h.t.Fatal(err)
		}
		n += r.NumRows()
		if err := r.Close(); err != nil {
			h.t.Fatal(err)
		}
	}
	return n
}

func (h *harness) Exists(_ testing.TB, path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// commitAs writes the next version as somebody else does.
func (h *harness) commitAs(lines ...string) {
	h.t.Helper()
	names, err := filepath.Glob(filepath.Join(h.dir, logDir, "*.json"))
	if err != nil {
		h.t.Fatal(err)
	}
	path := filepath.Join(h.dir, logDir, commitName(int64(len(names))))
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) Foreign(testing.TB) {
	h.t.Helper()
	h.n++
	name := fmt.Sprintf("foreign-%d.parquet", h.n)
	size := h.dataFile(filepath.Join(h.dir, name), 1)
	h.commitAs(fmt.Sprintf(`{"add":{"path":%q,"partitionValues":{"p":null},"size":%d,"modificationTime":1,"dataChange":true}}`, name, size),
		`{"commitInfo":{"timestamp":1700000000001,"operation":"WRITE"}}`)
}

func (h *harness) metadata(change func(*Metadata)) {
	h.t.Helper()
	m := h.view().snap.Metadata()
	change(&m)
	b, err := json.Marshal(Action{Metadata: &m})
	if err != nil {
		h.t.Fatal(err)
	}
	h.commitAs(string(b))
}

func (h *harness) AddColumn(testing.TB) {
	h.metadata(func(m *Metadata) {
		s := testSchema()
		s.Fields = append(s.Fields, delta.Field{Name: "added", Type: delta.String, Nullable: true})
		text, err := delta.SchemaJSON(s)
		if err != nil {
			h.t.Fatal(err)
		}
		m.SchemaString = text
	})
}

// ChangeSpec: Delta tables have no specs of their files. What comes nearest is a
// change of metadata that files don't mind; partition columns change only with all
// the files (TestPartitionColumnsChanged).
func (h *harness) ChangeSpec(testing.TB) {
	h.metadata(func(m *Metadata) { m.Configuration = map[string]string{"comment": "changed"} })
}

func (h *harness) Drop(testing.TB) {
	if err := os.RemoveAll(h.dir); err != nil {
		h.t.Fatal(err)
	}
	h.dir = ""
}

func (h *harness) Recreate(testing.TB) { h.create() }

func TestConformance(t *testing.T) {
	committest.Run(t, func(t *testing.T) committest.Harness { return newHarness(t) })
}

func drive(t *testing.T, table commit.Table, u commit.Unit) commit.Outcome {
	t.Helper()
	o, ok := committest.Drive(table, []commit.Unit{u}, commit.Options{Deadline: committest.Epoch.Add(time.Minute), Seed: 1})[u.Token]
	if !ok {
		t.Fatal("no outcome")
	}
	return o
}
