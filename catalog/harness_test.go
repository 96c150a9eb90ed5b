package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	ice "github.com/apache/iceberg-go"
	icecatalog "github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/table"
	"go.uber.org/goleak"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	format "github.com/firn-project/firn/format/iceberg"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sql"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.Cleanup(func(code int) {
			if postgres.stop != nil {
				postgres.stop()
			}
			os.Exit(code)
		}),
		// The library's Parquet reader and bun keep pools of their own.
		goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"))
}

var airT = commit.TableName{Catalog: "lake", Namespace: []string{"air"}, Name: "t"}

func testSchema(tb testing.TB) []byte {
	tb.Helper()
	b, err := json.Marshal(ice.NewSchema(0,
		ice.NestedField{ID: 1, Name: "id", Type: ice.PrimitiveTypes.Int64, Required: true},
		ice.NestedField{ID: 2, Name: "k", Type: ice.PrimitiveTypes.String}))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// harness is a table in a real catalog, with the library's own client as the
// other writer.
type harness struct {
	set *Set
	lib icecatalog.Catalog
	n   int
}

var _ committest.Rollbacker = (*harness)(nil)

func newHarness(tb testing.TB, set *Set, lib icecatalog.Catalog) *harness {
	tb.Helper()
	h := &harness{set: set, lib: lib}
	if err := set.CreateNamespace(context.Background(), "lake", airT.Namespace, nil, true); err != nil {
		tb.Fatal(err)
	}
	h.Recreate(tb)
	return h
}

func (h *harness) Recreate(tb testing.TB) {
	tb.Helper()
	def := sql.TableDef{Name: airT, Format: "iceberg", SchemaJSON: testSchema(tb)}
	if err := h.set.CreateTable(context.Background(), def); err != nil {
		tb.Fatal(err)
	}
}

func (h *harness) Drop(tb testing.TB) {
	tb.Helper()
	if err := h.set.DropTable(context.Background(), airT, false); err != nil {
		tb.Fatal(err)
	}
}

func (h *harness) Open(tb testing.TB) commit.Table {
	tb.Helper()
	tbl, err := h.set.OpenTable(context.Background(), airT)
	if err != nil {
		tb.Fatal(err)
	}
	return tbl
}

func (h *harness) pin(tb testing.TB) plan.Pinned {
	tb.Helper()
	p, err := h.set.Pin(context.Background(), airT)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func (h *harness) Unit(tb testing.TB, key string, files, rows int) commit.Unit {
	tb.Helper()
	p := h.pin(tb)
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
		JobID: fmt.Sprintf("j-%d", h.n), Key: key, Table: airT, TableUUID: p.UUID, Branch: commit.MainBranch, Operation: commit.OperationAppend,
		SchemaID: schema.ID, SpecID: spec.ID(), Tasks: 1, Digest: commit.Digest{byte(h.n)},
		Prefix: fmt.Sprintf("%s/j-%d/", p.DataLocation, h.n),
		Token:  commit.NewToken(commit.TokenInput{Key: key, TableUUID: p.UUID, Branch: commit.MainBranch}),
	}
	raw := ids(tb, schema, rows)
	for i := range files {
		f := commit.File{Path: fmt.Sprintf("%s%05d.parquet", u.Prefix, i), Format: "PARQUET", SchemaID: u.SchemaID, SpecID: u.SpecID, Rows: int64(rows), Size: int64(len(raw))}
		local := strings.TrimPrefix(f.Path, "file://")
		if err := os.MkdirAll(filepath.Dir(local), 0o750); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(local, raw, 0o600); err != nil {
			tb.Fatal(err)
		}
		u.Files = append(u.Files, f)
		u.Rows += f.Rows
		u.Bytes += f.Size
	}
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

func (h *harness) load(tb testing.TB) *table.Table {
	tb.Helper()
	tbl, err := h.lib.LoadTable(context.Background(), identifier(airT))
	if err != nil {
		tb.Fatal(err)
	}
	return tbl
}

func (h *harness) Rows(tb testing.TB) int64 {
	tb.Helper()
	at, err := h.load(tb).Scan().ToArrowTable(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	defer at.Release()
	return at.NumRows()
}

func (h *harness) Exists(tb testing.TB, path string) bool {
	tb.Helper()
	_, err := os.Stat(strings.TrimPrefix(path, "file://"))
	return err == nil
}

func (h *harness) Foreign(tb testing.TB) {
	tb.Helper()
	tbl := h.load(tb)
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

func (h *harness) tx(tb testing.TB, change func(*table.Transaction) error) {
	tb.Helper()
	tx := h.load(tb).NewTransaction()
	if err := change(tx); err != nil {
		tb.Fatal(err)
	}
	if _, err := tx.Commit(context.Background()); err != nil {
		tb.Fatal(err)
	}
}

func (h *harness) AddColumn(tb testing.TB) {
	tb.Helper()
	h.tx(tb, func(tx *table.Transaction) error {
		return tx.UpdateSchema(true, false).AddColumn([]string{"extra"}, ice.PrimitiveTypes.Int32, "", false, nil).Commit()
	})
}

func (h *harness) ChangeSpec(tb testing.TB) {
	tb.Helper()
	h.tx(tb, func(tx *table.Transaction) error {
		return tx.UpdateSpec(true).AddField("id", ice.BucketTransform{NumBuckets: 4}, "id_bucket").Commit()
	})
}

func (h *harness) Rollback(tb testing.TB) {
	tb.Helper()
	tbl := h.load(tb)
	parent := *tbl.CurrentSnapshot().ParentSnapshotID
	_, _, err := h.lib.CommitTable(context.Background(), identifier(airT), nil,
		[]table.Update{table.NewSetSnapshotRefUpdate(commit.MainBranch, parent, table.BranchRef, 0, 0, 0)})
	if err != nil {
		tb.Fatal(err)
	}
}
