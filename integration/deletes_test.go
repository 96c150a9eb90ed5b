package integration_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/iceberg-go"
	sqlcat "github.com/apache/iceberg-go/catalog/sql"
	"github.com/apache/iceberg-go/table"
)

// foreignDeletes is a table of Firn's that another engine deletes rows of.
type foreignDeletes struct {
	*lake
	cat  *sqlcat.Catalog
	name string
	n    int
}

func newForeignDeletes(l *lake, cat *sqlcat.Catalog, name, spec string) *foreignDeletes {
	l.must("CREATE TABLE lake.d." + name + " (id bigint, k varchar, n bigint) " + spec)
	return &foreignDeletes{lake: l, cat: cat, name: name}
}

func (d *foreignDeletes) table() *table.Table {
	d.t.Helper()
	tbl, err := d.cat.LoadTable(d.t.Context(), table.Identifier{"d", d.name})
	if err != nil {
		d.t.Fatal(err)
	}
	return tbl
}

// insert commits one data file for each partition and returns their paths.
func (d *foreignDeletes) insert(values string) []string {
	d.t.Helper()
	before := d.paths()
	d.must("INSERT INTO lake.d." + d.name + " VALUES " + values)
	return slices.DeleteFunc(d.paths(), func(p string) bool { return slices.Contains(before, p) })
}

func (d *foreignDeletes) paths() []string {
	d.t.Helper()
	tbl := d.table()
	if tbl.CurrentSnapshot() == nil {
		return nil
	}
	tasks, err := tbl.Scan().PlanFiles(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	var out []string
	for _, t := range tasks {
		out = append(out, t.File.FilePath())
	}
	slices.Sort(out)
	return out
}

// deleteFile writes a delete file of the query's rows. Those of a partitioned
// table are in the partition k, a string or nil.
func (d *foreignDeletes) deleteFile(query, ids string, equality []int, k any) iceberg.DataFile {
	d.t.Helper()
	d.n++
	tbl := d.table()
	path := filepath.Join(strings.TrimPrefix(tbl.Location(), "file://"), "data", fmt.Sprintf("delete-%d.parquet", d.n))
	duck(d.t, fmt.Sprintf("COPY (%s) TO '%s' (FORMAT parquet, FIELD_IDS {%s})", query, path, ids))
	info, err := os.Stat(path)
	if err != nil {
		d.t.Fatal(err)
	}
	content, tuple := iceberg.EntryContentPosDeletes, map[int]any{}
	if equality != nil {
		content = iceberg.EntryContentEqDeletes
	}
	if spec := tbl.Spec(); spec.NumFields() > 0 {
		tuple[1000] = k
	}
	b, err := iceberg.NewDataFileBuilder(tbl.Spec(), content, "file://"+path, iceberg.ParquetFile, tuple, nil, nil, 1, info.Size())
	if err != nil {
		d.t.Fatal(err)
	}
	if equality != nil {
		b.EqualityFieldIDs(equality)
	}
	return b.Build()
}

// positions deletes rows of files by their numbers.
func (d *foreignDeletes) positions(k any, rows ...any) iceberg.DataFile {
	d.t.Helper()
	var values []string
	for i := 0; i < len(rows); i += 2 {
		values = append(values, fmt.Sprintf("('%s', %d::BIGINT)", rows[i], rows[i+1]))
	}
	return d.deleteFile("SELECT * FROM (VALUES "+strings.Join(values, ", ")+") t(file_path, pos) ORDER BY ALL", "file_path: 2147483546, pos: 2147483545", nil, k)
}

func (d *foreignDeletes) commit(files ...iceberg.DataFile) {
	d.t.Helper()
	tx := d.table().NewTransaction()
	if err := tx.NewRowDelta(nil).AddDeletes(files...).Commit(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	if _, err := tx.Commit(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

// check compares the ids that Firn reads with want and with the library's scan.
func (d *foreignDeletes) check(step, want string) {
	d.t.Helper()
	var got []string
	for _, row := range d.query("SELECT id::varchar FROM lake.d." + d.name + " ORDER BY id") {
		got = append(got, row[0])
	}
	if strings.Join(got, " ") != want {
		d.t.Errorf("%s, %s: Firn reads %s, want %s", d.name, step, strings.Join(got, " "), want)
	}
	if n := d.count("lake.d." + d.name); n != int64(len(got)) {
		d.t.Errorf("%s, %s: count(*) is %d of %d rows", d.name, step, n, len(got))
	}
	data, err := d.table().Scan().ToArrowTable(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	defer data.Release()
	if data.NumRows() != int64(len(got)) {
		d.t.Errorf("%s, %s: the library reads %d rows, Firn %d", d.name, step, data.NumRows(), len(got))
	}
}

// TestDeletesOfOtherEngines reads tables with several data files and delete
// files. Position deletes apply to files of their sequence number and below,
// equality deletes to files below, each in its own partition.
func TestDeletesOfOtherEngines(t *testing.T) {
	dir := t.TempDir()
	l := start(t, dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "catalog.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	cat, err := sqlcat.NewCatalog("lake", db, sqlcat.SQLite, iceberg.Properties{"warehouse": "file://" + filepath.Join(dir, "warehouse")})
	if err != nil {
		t.Fatal(err)
	}
	l.must("CREATE NAMESPACE lake.d")

	plain := newForeignDeletes(l, cat, "plain", "")
	a := plain.insert("(1, 'x', 1), (2, 'x', 9), (3, null, null), (4, 'y', 0)")[0]
	b := plain.insert("(5, 'x', 1), (6, null, null), (7, 'y', null)")[0]
	plain.commit(plain.positions(nil, a, 0, b, 2), plain.positions(nil, b, 0))
	plain.check("after positions in two files", "2 3 4 6")
	plain.commit(plain.deleteFile("SELECT NULL::VARCHAR AS k, NULL::BIGINT AS n UNION ALL SELECT 'x', NULL", "k: 2, n: 3", []int{2, 3}, nil))
	plain.check("null is equal to null", "2 4")
	plain.insert("(8, null, null), (3, null, null), (9, 'y', 0)")
	plain.check("later rows stay", "2 3 4 8 9")
	plain.commit(plain.deleteFile("SELECT 3::BIGINT AS id UNION ALL SELECT 9", "id: 1", []int{1}, nil), plain.positions(nil, a, 3))
	plain.check("both kinds", "2 8")

	parts := newForeignDeletes(l, cat, "parts", "PARTITIONED BY (k)")
	parts.insert("(1, 'x', 1), (2, 'y', 1), (3, null, 1), (4, 'x', 2), (5, null, 2), (6, '', 1)")
	one := func(k any) iceberg.DataFile {
		return parts.deleteFile("SELECT 1::BIGINT AS n", "n: 3", []int{3}, k)
	}
	parts.commit(one("x"))
	parts.check("one partition", "2 3 4 5 6")
	parts.commit(one(nil))
	parts.check("the partition of null, not that of the empty text", "2 4 5 6")
	parts.commit(one(""))
	parts.check("the partition of the empty text", "2 4 5")
	var x string
	for _, p := range parts.paths() {
		if strings.Contains(p, "k=x") {
			x = p
		}
	}
	// A position delete in another partition names the file without effect.
	parts.commit(parts.positions("y", x, 1))
	parts.check("a position delete of another partition", "2 4 5")
	parts.commit(parts.positions("x", x, 1))
	parts.check("a position delete of its own", "2 5")
	parts.insert("(7, 'x', 1), (8, null, 1)")
	parts.check("later rows", "2 5 7 8")
	l.must("INSERT INTO lake.d.plain SELECT id + 100, k, n FROM lake.d.parts")
	plain.check("a copy of what is left", "2 8 102 105 107 108")
}
