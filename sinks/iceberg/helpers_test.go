package iceberg

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/iceberg-go"
	"go.uber.org/goleak"

	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/iceberg"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/sinks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var mem memory.Allocator = memory.DefaultAllocator

const prefix = "s3://lake/air/t/data/j-1/"

// table is a table under test: its layout, and a store for its files.
type table struct {
	schema *iceberg.Schema
	spec   iceberg.PartitionSpec
	arrow  *arrow.Schema
	opts   sinks.Options
}

// onDisk puts the table's files on the local disk and gives their directory.
func (tb *table) onDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	tb.opts.Store = objstore.New(objstore.Config{})
	tb.opts.Context.Prefix = "file://" + dir + "/data/j-1/"
	return dir
}

func newTable(tb testing.TB, schema *iceberg.Schema, fields []iceberg.PartitionField, props map[string]string) *table {
	tb.Helper()
	sj, err := json.Marshal(schema)
	if err != nil {
		tb.Fatal(err)
	}
	if fields == nil {
		fields = []iceberg.PartitionField{}
	}
	spec := iceberg.NewPartitionSpecID(3, fields...)
	pj, err := json.Marshal(spec)
	if err != nil {
		tb.Fatal(err)
	}
	as, err := format.ArrowSchema(schema)
	if err != nil {
		tb.Fatal(err)
	}
	return &table{schema: schema, spec: spec, arrow: as, opts: sinks.Options{
		Context: sinks.Context{
			Table:      commit.TableName{Catalog: "lake", Namespace: []string{"air"}, Name: "t"},
			SchemaJSON: sj, SpecJSON: pj, Properties: props, FormatVersion: 2,
			Prefix: prefix,
		},
		Attempt: "a-1", Stage: 2, Task: 5, SpillDir: tb.TempDir(),
		Store: &memStore{objects: map[string][]byte{}},
	}}
}

func (tb *table) open(t *testing.T) *sinks.Writer {
	t.Helper()
	w, err := sinks.Open(context.Background(), New(), tb.opts)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// batch makes a batch of the table's own Arrow schema from JSON rows.
func (tb *table) batch(t *testing.T, rows string) arrow.RecordBatch {
	t.Helper()
	return jsonBatch(t, tb.arrow, rows)
}

func jsonBatch(t *testing.T, schema *arrow.Schema, rows string) arrow.RecordBatch {
	t.Helper()
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// write writes batches, checks every file as the committer does, and gives them.
func (tb *table) write(t *testing.T, batches ...arrow.RecordBatch) []commit.File {
	t.Helper()
	w := tb.open(t)
	for _, b := range batches {
		if err := w.Write(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		b.Release()
	}
	files, err := w.Close(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := format.CheckBounds(tb.schema, f); err != nil {
			t.Errorf("%s: %v", f.Path, err)
		}
		if err := format.CheckPartition(tb.schema, tb.spec, f); err != nil {
			t.Errorf("%s: %v", f.Path, err)
		}
	}
	return files
}

// failure writes one batch and gives the error, which it wants; no file stays.
func (tb *table) failure(t *testing.T, b arrow.RecordBatch) error {
	t.Helper()
	defer b.Release()
	w := tb.open(t)
	err := w.Write(context.Background(), b)
	if err == nil {
		t.Fatal("the batch was taken")
	}
	if files, cerr := w.Close(context.Background()); cerr == nil {
		t.Fatalf("Close gave %d files after the failure", len(files))
	}
	tb.wantNoFiles(t)
	return err
}

func (tb *table) wantNoFiles(t *testing.T) {
	t.Helper()
	for info, err := range tb.opts.Store.List(context.Background(), tb.opts.Context.Prefix) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("left behind: %s", info.URI)
	}
}

// read reads a data file whole.
func (tb *table) read(t *testing.T, f commit.File) arrow.Table {
	t.Helper()
	r := tb.openParquet(t, f)
	ar, err := pqarrow.NewFileReader(r, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ar.ReadTable(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (tb *table) openParquet(t *testing.T, f commit.File) *file.Reader {
	t.Helper()
	o, err := tb.opts.Store.Open(context.Background(), f.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	if o.Size() != f.Size {
		t.Errorf("%s has %d bytes, its manifest row says %d", f.Path, o.Size(), f.Size)
	}
	r, err := file.NewParquetReader(io.NewSectionReader(o, 0, o.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// column gives all values of a column as text, row by row over the files.
func (tb *table) column(t *testing.T, name string, files ...commit.File) []string {
	t.Helper()
	var out []string
	for _, f := range files {
		tbl := tb.read(t, f)
		at := tbl.Schema().FieldIndices(name)[0]
		for _, chunk := range tbl.Column(at).Data().Chunks() {
			for i := range chunk.Len() {
				out = append(out, chunk.ValueStr(i))
			}
		}
		tbl.Release()
	}
	return out
}

func field(id int, name string, t iceberg.Type) iceberg.NestedField {
	return iceberg.NestedField{ID: id, Name: name, Type: t}
}

func required(id int, name string, t iceberg.Type) iceberg.NestedField {
	return iceberg.NestedField{ID: id, Name: name, Type: t, Required: true}
}

func identity(source, id int, name string) iceberg.PartitionField {
	return iceberg.PartitionField{SourceIDs: []int{source}, FieldID: id, Name: name, Transform: iceberg.IdentityTransform{}}
}

func transform(source, id int, name string, t iceberg.Transform) iceberg.PartitionField {
	return iceberg.PartitionField{SourceIDs: []int{source}, FieldID: id, Name: name, Transform: t}
}
