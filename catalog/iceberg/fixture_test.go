package iceberg_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	ice "github.com/apache/iceberg-go"
	iceio "github.com/apache/iceberg-go/io"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/catalog/iceberg"
	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/iceberg"
	"github.com/firn-project/firn/internal/objstore"
)

// pointers is a catalog of one table that holds a pointer and nothing else.
type pointers struct {
	pointer string
	sends   int
	// answer replaces the answer of the next send, which is applied or not.
	answer *commit.Answer
	drop   bool
	// compares: it is taken for a catalog that compares requirements itself.
	compares bool
}

func (p *pointers) Swaps() bool { return !p.compares }

func (p *pointers) Load(context.Context) (iceberg.Loaded, error) {
	if p.pointer == "" {
		return iceberg.Loaded{}, iceberg.TableNotFound(tableName, "")
	}
	return iceberg.Loaded{Pointer: p.pointer}, nil
}

func (p *pointers) Send(_ context.Context, c iceberg.Change) commit.Answer {
	p.sends++
	a := commit.Answer{Class: commit.AnswerOK}
	switch {
	case p.drop:
	case p.pointer != c.From:
		a = commit.Answer{Class: commit.AnswerConflict, Err: fmt.Errorf("pointer moved")}
	default:
		p.pointer = c.To
	}
	if p.answer != nil {
		a = *p.answer
	}
	return a
}

var tableName = commit.TableName{Catalog: "lake", Namespace: []string{"air"}, Name: "t"}

// fixture is a table on local disk.
type fixture struct {
	t      testing.TB
	dir    string
	cat    *pointers
	store  objstore.Store
	now    time.Time
	driver *iceberg.Table
	n      int
	// seq gives delete files a data sequence number of their own.
	seq map[string]int64
}

// idKV is the schema id long, k string, v double.
func idKV() *ice.Schema {
	return ice.NewSchema(0,
		ice.NestedField{ID: 1, Name: "id", Type: ice.PrimitiveTypes.Int64, Required: true},
		ice.NestedField{ID: 2, Name: "k", Type: ice.PrimitiveTypes.String},
		ice.NestedField{ID: 3, Name: "v", Type: ice.PrimitiveTypes.Float64},
	)
}

func byK() *ice.PartitionSpec {
	s := ice.NewPartitionSpec(ice.PartitionField{SourceIDs: []int{2}, FieldID: 1000, Name: "k", Transform: ice.IdentityTransform{}})
	return &s
}

func newFixture(tb testing.TB, schema *ice.Schema, spec *ice.PartitionSpec, props map[string]string) *fixture {
	tb.Helper()
	f := &fixture{t: tb, dir: tb.TempDir(), cat: &pointers{}, store: objstore.New(objstore.Config{}), now: time.Now()}
	meta, err := table.NewMetadata(schema, spec, table.UnsortedSortOrder, "file://"+f.dir, props)
	if err != nil {
		tb.Fatal(err)
	}
	f.publish(meta)
	f.reopen()
	return f
}

// publish makes meta the table's state, as a foreign writer would.
func (f *fixture) publish(meta table.Metadata) {
	f.t.Helper()
	location := iceberg.FirstMetadataPath(meta)
	if err := iceberg.WriteMetadata(f.t.Context(), f.store, location, meta); err != nil {
		f.t.Fatal(err)
	}
	f.cat.pointer = location
}

// foreign applies updates as another engine would.
func (f *fixture) foreign(updates ...table.Update) {
	f.t.Helper()
	meta, err := table.UpdateTableMetadata(f.meta(), updates, f.cat.pointer)
	if err != nil {
		f.t.Fatal(err)
	}
	f.publish(meta)
}

func (f *fixture) reopen() {
	f.driver = iceberg.Open(iceberg.Options{Name: tableName, Attach: f.cat, Store: f.store, Now: func() time.Time { return f.now }})
	driver := f.driver
	f.t.Cleanup(func() { // what it merges ahead is in the test's directory
		if err := driver.Close(); err != nil {
			f.t.Errorf("close: %v", err)
		}
	})
}

func (f *fixture) meta() table.Metadata {
	f.t.Helper()
	m, err := iceberg.ReadMetadata(f.t.Context(), f.store, f.cat.pointer)
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

func (f *fixture) read() *iceberg.Metadata {
	f.t.Helper()
	m, err := f.driver.Metadata(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

// row is a row of idKV; nil is null.
type row struct {
	id int64
	k  *string
	v  *float64
}

func rows(k *string, ids ...int64) []row {
	var out []row
	for _, id := range ids {
		out = append(out, row{id: id, k: k})
	}
	return out
}

// file writes a data file of rows that are all in one partition.
func (f *fixture) file(partitioned bool, rs []row) commit.File {
	f.t.Helper()
	schema, err := format.ArrowSchema(idKV())
	if err != nil {
		f.t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for _, r := range rs {
		b.Field(0).(*array.Int64Builder).Append(r.id)
		if r.k == nil {
			b.Field(1).AppendNull()
		} else {
			b.Field(1).(*array.StringBuilder).Append(*r.k)
		}
		if r.v == nil {
			b.Field(2).AppendNull()
		} else {
			b.Field(2).(*array.Float64Builder).Append(*r.v)
		}
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	f.n++
	path := filepath.Join(f.dir, "data", fmt.Sprintf("%04d.parquet", f.n))
	size := writeParquet(f.t, path, schema, rec)
	out := commit.File{
		Path: "file://" + path, Format: "PARQUET", Rows: int64(len(rs)), Size: size,
		ValueCounts: map[int]int64{1: int64(len(rs)), 2: int64(len(rs))}, SplitOffsets: []int64{4},
	}
	if partitioned {
		v := commit.PartitionValue{FieldID: 1000, Null: rs[0].k == nil}
		if rs[0].k != nil {
			v.Value = []byte(*rs[0].k)
		}
		out.Partition = []commit.PartitionValue{v}
	}
	return out
}

func writeParquet(tb testing.TB, path string, schema *arrow.Schema, rec arrow.RecordBatch) int64 {
	tb.Helper()
	var buf bytes.Buffer
	w, err := pqarrow.NewFileWriter(schema, &buf, nil, pqarrow.DefaultWriterProps())
	if err != nil {
		tb.Fatal(err)
	}
	if err := w.Write(rec); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, buf.Bytes(), 0o600); err != nil {
		tb.Fatal(err)
	}
	return int64(buf.Len())
}

// unit makes a unit for the table as it is.
func (f *fixture) unit(key string, files ...commit.File) commit.Unit {
	f.t.Helper()
	m := f.meta()
	u := commit.Unit{
		JobID: "j-" + key, Key: key, Table: tableName, TableUUID: m.TableUUID().String(), Branch: commit.MainBranch,
		Operation: commit.OperationAppend, SchemaID: m.CurrentSchema().ID, SpecID: m.DefaultPartitionSpec(),
	}
	u.Token = commit.NewToken(commit.TokenInput{Key: key, TableUUID: u.TableUUID, Branch: u.Branch})
	u.Digest = commit.Digest{byte(len(key)), 1}
	var p commit.Packer
	for _, f := range files {
		f.SchemaID, f.SpecID = u.SchemaID, u.SpecID
		u.Rows += f.Rows
		u.Bytes += f.Size
		p.Add(f)
	}
	u.Files = p.Files()
	return u
}

func (f *fixture) build(units ...commit.Unit) commit.Request {
	f.t.Helper()
	r, err := f.driver.Build(f.t.Context(), f.read(), units)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// append commits units, which must land.
func (f *fixture) append(units ...commit.Unit) commit.Request {
	f.t.Helper()
	r := f.build(units...)
	if a := f.driver.Send(f.t.Context(), r); a.Class != commit.AnswerOK {
		f.t.Fatalf("send: %+v", a)
	}
	return r
}

// ids reads the table with the library's own scan, which knows nothing of ours.
func (f *fixture) ids(filter ice.BooleanExpression) []int64 {
	f.t.Helper()
	tbl := table.New(table.Identifier{"air", "t"}, f.meta(), f.cat.pointer, iceio.LoadFSFunc(nil, f.cat.pointer), nil)
	scan := tbl.Scan(table.WithRowFilter(filter))
	at, err := scan.ToArrowTable(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	defer at.Release()
	var out []int64
	for _, c := range at.Column(0).Data().Chunks() {
		out = append(out, c.(*array.Int64).Int64Values()...)
	}
	slices.Sort(out)
	return out
}

func all() ice.BooleanExpression { return ice.AlwaysTrue{} }

func sameIDs(tb testing.TB, what string, got []int64, want ...int64) {
	tb.Helper()
	if !slices.Equal(got, want) {
		tb.Errorf("%s: ids %v, want %v", what, got, want)
	}
}

// metadataFiles lists what is in the table's metadata directory.
func (f *fixture) metadataFiles() []string {
	f.t.Helper()
	entries, err := os.ReadDir(filepath.Join(f.dir, "metadata"))
	if err != nil {
		f.t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func (f *fixture) summary() map[string]string {
	f.t.Helper()
	return f.meta().CurrentSnapshot().Summary.Properties
}

func (f *fixture) manifests() []ice.ManifestFile {
	f.t.Helper()
	b, err := os.ReadFile(strings.TrimPrefix(f.meta().CurrentSnapshot().ManifestList, "file://"))
	if err != nil {
		f.t.Fatal(err)
	}
	ms, err := ice.ReadManifestList(bytes.NewReader(b))
	if err != nil {
		f.t.Fatal(err)
	}
	return ms
}

func number(tb testing.TB, m map[string]string, key string) int64 {
	tb.Helper()
	n, err := strconv.ParseInt(m[key], 10, 64)
	if err != nil {
		tb.Errorf("%s: %v", key, err)
	}
	return n
}

// raw is the metadata file as JSON.
func (f *fixture) raw() map[string]any {
	f.t.Helper()
	b, err := os.ReadFile(strings.TrimPrefix(f.cat.pointer, "file://"))
	if err != nil {
		f.t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		f.t.Fatal(err)
	}
	return out
}
