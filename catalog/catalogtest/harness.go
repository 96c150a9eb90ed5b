package catalogtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	ice "github.com/apache/iceberg-go"
	icecatalog "github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	format "github.com/firn-project/firn/format/iceberg"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sql"
)

// Catalogs is what the harness needs of Firn's catalogs: *catalog.Set.
type Catalogs interface {
	CreateNamespace(ctx context.Context, catalog string, ns []string, props map[string]string, ifNotExists bool) error
	CreateTable(ctx context.Context, def sql.TableDef) error
	DropTable(ctx context.Context, name commit.TableName, ifExists bool) error
	OpenTable(ctx context.Context, name commit.TableName) (commit.Table, error)
	Pin(ctx context.Context, name commit.TableName) (plan.Pinned, error)
}

// Schema is that of the harness's tables, as JSON.
func Schema() []byte {
	return []byte(`{"type":"struct","schema-id":0,"identifier-field-ids":[],"fields":[
		{"id":1,"name":"id","type":"long","required":true},{"id":2,"name":"k","type":"string","required":false}]}`)
}

// Harness is a table in a real catalog, with the library's own client as the
// other writer. One test uses it, and one goroutine.
type Harness struct {
	// Set is the way to the catalog; it may be exchanged for another way to the same one.
	Set   Catalogs
	lib   icecatalog.Catalog
	store objstore.Store
	table commit.TableName
	n     int
}

var (
	_ committest.Harness    = (*Harness)(nil)
	_ committest.Rollbacker = (*Harness)(nil)
)

// New makes the table, and its namespace if it isn't there. lib is the other
// writer's way to the same catalog, store reaches the table's files.
func New(tb testing.TB, set Catalogs, lib icecatalog.Catalog, store objstore.Store, name commit.TableName) *Harness {
	tb.Helper()
	h := &Harness{Set: set, lib: lib, store: store, table: name}
	if err := set.CreateNamespace(context.Background(), name.Catalog, name.Namespace, nil, true); err != nil {
		tb.Fatal(err)
	}
	h.Recreate(tb)
	return h
}

// Recreate makes the table.
func (h *Harness) Recreate(tb testing.TB) {
	tb.Helper()
	def := sql.TableDef{Name: h.table, Format: "iceberg", SchemaJSON: Schema()}
	if err := h.Set.CreateTable(context.Background(), def); err != nil {
		tb.Fatal(err)
	}
}

// Drop drops the table.
func (h *Harness) Drop(tb testing.TB) {
	tb.Helper()
	if err := h.Set.DropTable(context.Background(), h.table, false); err != nil {
		tb.Fatal(err)
	}
}

// Open opens the table through Firn.
func (h *Harness) Open(tb testing.TB) commit.Table {
	tb.Helper()
	tbl, err := h.Set.OpenTable(context.Background(), h.table)
	if err != nil {
		tb.Fatal(err)
	}
	return tbl
}

// Pin is what a job that begins now is pinned to.
func (h *Harness) Pin(tb testing.TB) plan.Pinned {
	tb.Helper()
	p, err := h.Set.Pin(context.Background(), h.table)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// Unit makes a unit with files that the store has.
func (h *Harness) Unit(tb testing.TB, key string, files, rows int) commit.Unit {
	tb.Helper()
	p := h.Pin(tb)
	schema, err := format.ParseSchema(p.SchemaJSON)
	if err != nil {
		tb.Fatal(err)
	}
	spec, err := format.ParseSpec(p.SpecJSON, schema)
	if err != nil {
		tb.Fatal(err)
	}
	h.n++
	u := commit.Unit{
		JobID: fmt.Sprintf("j-%d", h.n), Key: key, Table: h.table, TableUUID: p.UUID, Branch: commit.MainBranch, Operation: commit.OperationAppend,
		SchemaID: schema.ID, SpecID: spec.ID(), Tasks: 1, Digest: commit.Digest{byte(h.n)},
		Prefix: fmt.Sprintf("%s/j-%d/", p.DataLocation, h.n),
		Token:  commit.NewToken(commit.TokenInput{Key: key, TableUUID: p.UUID, Branch: commit.MainBranch}),
	}
	raw := ids(tb, schema, rows)
	var packer commit.Packer
	for i := range files {
		f := commit.File{Path: fmt.Sprintf("%s%05d.parquet", u.Prefix, i), Format: "PARQUET", SchemaID: u.SchemaID, SpecID: u.SpecID, Rows: int64(rows), Size: int64(len(raw))}
		if err := objstore.WriteFile(context.Background(), h.store, f.Path, raw); err != nil {
			tb.Fatal(err)
		}
		packer.Add(f)
		u.Rows += f.Rows
		u.Bytes += f.Size
	}
	u.Files = packer.Files()
	return u
}

// batch makes rows of which only id has a value.
func batch(schema *arrow.Schema, rows int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for i := range rows {
		for c := range schema.NumFields() {
			if c == 0 {
				b.Field(0).(*array.Int64Builder).Append(int64(i))
			} else {
				b.Field(c).AppendNull()
			}
		}
	}
	return b.NewRecordBatch()
}

func ids(tb testing.TB, schema *ice.Schema, rows int) []byte {
	tb.Helper()
	as, err := format.ArrowSchema(schema)
	if err != nil {
		tb.Fatal(err)
	}
	rec := batch(as, rows)
	defer rec.Release()
	var buf bytes.Buffer
	w, err := pqarrow.NewFileWriter(as, &buf, nil, pqarrow.DefaultWriterProps())
	if err != nil {
		tb.Fatal(err)
	}
	if err := w.Write(rec); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// Load loads the table with the library.
func (h *Harness) Load(tb testing.TB) *table.Table {
	tb.Helper()
	tbl, err := h.lib.LoadTable(context.Background(), h.identifier())
	if err != nil {
		tb.Fatal(err)
	}
	return tbl
}

// Rows counts with the library.
func (h *Harness) Rows(tb testing.TB) int64 {
	tb.Helper()
	at, err := h.Load(tb).Scan().ToArrowTable(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	defer at.Release()
	return at.NumRows()
}

// Exists asks the store.
func (h *Harness) Exists(tb testing.TB, path string) bool {
	tb.Helper()
	_, err := h.store.Stat(context.Background(), path)
	if err != nil && !errors.Is(err, objstore.ErrNotFound) {
		tb.Fatal(err)
	}
	return err == nil
}

// Foreign appends with the library.
func (h *Harness) Foreign(tb testing.TB) {
	tb.Helper()
	tbl := h.Load(tb)
	as, err := format.ArrowSchema(tbl.Schema())
	if err != nil {
		tb.Fatal(err)
	}
	rec := batch(as, 1)
	defer rec.Release()
	at := array.NewTableFromRecords(as, []arrow.RecordBatch{rec})
	defer at.Release()
	if _, err := tbl.AppendTable(context.Background(), at, 1, nil); err != nil {
		tb.Fatal(err)
	}
}

func (h *Harness) tx(tb testing.TB, change func(*table.Transaction) error) {
	tb.Helper()
	tx := h.Load(tb).NewTransaction()
	if err := change(tx); err != nil {
		tb.Fatal(err)
	}
	if _, err := tx.Commit(context.Background()); err != nil {
		tb.Fatal(err)
	}
}

// AddColumn changes the schema with the library.
func (h *Harness) AddColumn(tb testing.TB) {
	tb.Helper()
	h.tx(tb, func(tx *table.Transaction) error {
		return tx.UpdateSchema(true, false).AddColumn([]string{"extra"}, ice.PrimitiveTypes.Int32, "", false, nil).Commit()
	})
}

// ChangeSpec changes the partitioning with the library.
func (h *Harness) ChangeSpec(tb testing.TB) {
	tb.Helper()
	h.tx(tb, func(tx *table.Transaction) error {
		return tx.UpdateSpec(true).AddField("id", ice.BucketTransform{NumBuckets: 4}, "id_bucket").Commit()
	})
}

// Rollback implements committest.Rollbacker.
func (h *Harness) Rollback(tb testing.TB) {
	tb.Helper()
	tbl := h.Load(tb)
	parent := *tbl.CurrentSnapshot().ParentSnapshotID
	_, _, err := h.lib.CommitTable(context.Background(), h.identifier(), nil,
		[]table.Update{table.NewSetSnapshotRefUpdate(commit.MainBranch, parent, table.BranchRef, 0, 0, 0)})
	if err != nil {
		tb.Fatal(err)
	}
}

func (h *Harness) identifier() table.Identifier {
	return append(slices.Clone(h.table.Namespace), h.table.Name)
}
