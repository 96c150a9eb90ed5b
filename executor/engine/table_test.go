package engine

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
)

const null = array.NullValueStr

func table(cols []plan.Column, files ...plan.SourceFile) plan.Source {
	return plan.Source{
		View: []string{"lake", "air.ports", "T t"}, Kind: plan.SourceTable, Columns: cols, Files: files,
		Table: commit.TableName{Catalog: "lake", Namespace: []string{"air", "ports"}, Name: "T t"},
	}
}

const fromT = `FROM lake."air.ports"."T t"`

func TestTablesAreReadByFieldID(t *testing.T) {
	dir := t.TempDir()
	write(t, dir,
		// As first written: id int, name, gone.
		"COPY (SELECT i::INTEGER AS id, 'n' || i AS name, i AS gone, i::FLOAT AS f FROM range(3) t(i)) TO '%s/1.parquet' (FIELD_IDS {id: 1, name: 2, gone: 3, f: 5})",
		// Later: id long, name renamed to title, gone dropped and again there
		// under a new id, f double.
		"COPY (SELECT 'x' AS gone, 5000000000 AS id, 'new' AS title, 0.1::DOUBLE AS f) TO '%s/2.parquet' (FIELD_IDS {id: 1, title: 2, gone: 4, f: 5})",
		// A file of another writer, without ids.
		"COPY (SELECT 'noids' AS TITLE, 7::INTEGER AS id) TO '%s/3.parquet'")
	cols := []plan.Column{
		{Name: "id", Type: "BIGINT", FieldID: 1},
		{Name: "title", Type: "VARCHAR", FieldID: 2},
		{Name: "gone", Type: "VARCHAR", FieldID: 4},
		{Name: "f", Type: "DOUBLE", FieldID: 5},
		{Name: "added", Type: "DECIMAL(5,2)", FieldID: 6, Default: "1.50"},
	}
	src := table(cols,
		plan.SourceFile{Path: "file://" + dir + "/1.parquet"}, plan.SourceFile{Path: dir + "/2.parquet"},
		plan.SourceFile{Path: dir + "/3.parquet", NoFieldIDs: true})
	// Nothing is allowed: the files of tables are staged.
	e := newEngine(t)
	want := "0|n0|" + null + "|0|1.5\n1|n1|" + null + "|1|1.5\n2|n2|" + null + "|2|1.5\n5000000000|new|x|0.1|1.5\n7|noids|" + null + "|" + null + "|1.5"
	if got := mustRun(t, e, "SELECT * "+fromT, src).String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := mustRun(t, newEngine(t, "/"), "SELECT * "+fromT, src).String(); got != want {
		t.Errorf("in place: got\n%s", got)
	}
	res := mustProbe(t, e, "SELECT id, added "+fromT+" WHERE id > 0", src)
	if !res.RowWise || len(res.Columns) != 2 || res.Columns[1].Type != "DECIMAL(5,2)" {
		t.Errorf("probe %+v", res)
	}
	// Slices, of files with and without ids.
	src.Files[0].First, src.Files[0].End = 1, 2
	src.Files[2].First, src.Files[2].End = 0, 1
	if got := mustRun(t, e, "SELECT id "+fromT, src).String(); got != "1\n5000000000\n7" {
		t.Errorf("sliced: %s", got)
	}
	if _, err := os.Stat(dir + "/1.parquet"); err != nil {
		t.Errorf("a staged file lost its original: %v", err)
	}
}

// A table on another file system can't be staged by hard links.
func TestTablesElsewhereAreCopied(t *testing.T) {
	shm, err := os.MkdirTemp("/dev/shm", "firn-test-") //nolint:usetesting // another file system than that of TempDir
	if err != nil {
		t.Skip("there's no second file system to write to: ", err)
	}
	t.Cleanup(func() { os.RemoveAll(shm) })
	write(t, shm, "COPY (SELECT i AS id FROM range(3) t(i)) TO '%s/1.parquet' (FIELD_IDS {id: 1})")
	src := table([]plan.Column{{Name: "id", Type: "BIGINT", FieldID: 1}}, plan.SourceFile{Path: shm + "/1.parquet"})
	if got := mustRun(t, newEngine(t), "SELECT id "+fromT, src).String(); got != "0\n1\n2" {
		t.Errorf("got %s", got)
	}
	src.Files[0].Path = shm + "/2.parquet"
	_, err = run(t.Context(), newEngine(t), task(), &plan.Query{SQL: "SELECT id " + fromT, Sources: []plan.Source{src}})
	if commit.KindOf(err) != commit.KindNotFound || !strings.Contains(err.Error(), "2.parquet") {
		t.Errorf("a file that isn't there: %v", err)
	}
}

func TestEmptyTable(t *testing.T) {
	src := table([]plan.Column{{Name: "a b", Type: "STRUCT(x INTEGER[])", FieldID: 1}})
	e := newEngine(t)
	if got := mustRun(t, e, `SELECT count(*), count("a b") `+fromT, src).String(); got != "0|0" {
		t.Errorf("got %s", got)
	}
	st, err := e.RunQuery(t.Context(), &plan.Query{SQL: "SELECT * " + fromT, Sources: []plan.Source{src}}, task())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if st.Schema().NumFields() != 1 || st.Schema().Field(0).Name != "a b" || !strings.Contains(st.Schema().Field(0).Type.String(), "struct") {
		t.Errorf("schema %s", st.Schema())
	}
}

func TestDeletes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir,
		"COPY (SELECT CASE WHEN i = 5 THEN NULL ELSE i END AS id, 'k' || i % 3 AS k, i AS dropped FROM range(10) t(i)) TO '%s/d.parquet' (FIELD_IDS {id: 1, k: 2, dropped: 3})",
		"COPY (SELECT 100 + i AS id, 'k' || i % 3 AS k, i AS dropped FROM range(10) t(i)) TO '%s/e.parquet' (FIELD_IDS {id: 1, k: 2, dropped: 3})",
		"COPY (SELECT 'file://%s/d.parquet' AS file_path, 0::BIGINT AS pos UNION ALL SELECT '%s/e.parquet', 9 UNION ALL SELECT 's3://elsewhere/d.parquet', 1) TO '%s/pos.parquet'",
		"COPY (SELECT 3::BIGINT AS id UNION ALL SELECT NULL) TO '%s/eq1.parquet' (FIELD_IDS {id: 1})",
		"COPY (SELECT 'k1' AS k, 7::BIGINT AS dropped UNION ALL SELECT 'k0', 8) TO '%s/eq2.parquet' (FIELD_IDS {k: 2, dropped: 3})")
	cols := []plan.Column{{Name: "id", Type: "BIGINT", FieldID: 1}, {Name: "k", Type: "VARCHAR", FieldID: 2}}
	d := plan.SourceFile{
		Path: dir + "/d.parquet", PositionDeletes: []string{dir + "/pos.parquet"},
		EqualityDeletes: []plan.EqualityDelete{{Path: dir + "/eq1.parquet", FieldIDs: []int{1}}, {Path: dir + "/eq2.parquet", FieldIDs: []int{2, 3}}},
	}
	f := plan.SourceFile{Path: dir + "/e.parquet", PositionDeletes: []string{dir + "/pos.parquet"}}
	e := newEngine(t)
	want := "1 2 4 6 8 9 100 101 102 103 104 105 106 107 108"
	src := table(cols, d, f)
	if got := strings.Join(mustRun(t, e, "SELECT id "+fromT, src).rows, " "); got != sortedAs(want, got) {
		t.Errorf("got %s", got)
	}
	var sliced []string
	for _, r := range [][2]int64{{0, 4}, {4, 7}, {7, 10}} {
		one := d
		one.First, one.End = r[0], r[1]
		sliced = append(sliced, mustRun(t, e, "SELECT id "+fromT, table(cols, one)).rows...)
	}
	if got := strings.Join(sliced, " "); got != sortedAs("1 2 4 6 8 9", got) {
		t.Errorf("sliced: %s", got)
	}
	d.EqualityDeletes[0].FieldIDs = []int{99}
	_, err := run(t.Context(), e, task(), &plan.Query{SQL: "SELECT id " + fromT, Sources: []plan.Source{table(cols, d)}})
	if commit.CodeOf(err) != commit.CodeBadFile || !strings.Contains(err.Error(), "99") {
		t.Errorf("unknown field: %v", err)
	}
}

// sortedAs gives got if it has the words of want in any order.
func sortedAs(want, got string) string {
	count := map[string]int{}
	for w := range strings.FieldsSeq(want) {
		count[w]++
	}
	for w := range strings.FieldsSeq(got) {
		count[w]--
	}
	for _, n := range count {
		if n != 0 {
			return want
		}
	}
	return got
}

func TestObjects(t *testing.T) {
	backend := s3mem.New()
	if err := backend.CreateBucket("data"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend).Server())
	defer server.Close()
	storage := map[string]string{
		"s3.endpoint": server.URL, "s3.region": "us-east-1", "s3.path-style-access": "true",
		"s3.access-key-id": "k", "s3.secret-access-key": "s",
	}
	dir := t.TempDir()
	writeText(t, dir+"/p=1/x", "")
	write(t, dir, "COPY (SELECT i AS id FROM range(6000) t(i)) TO '%s/p=1/a.parquet' (ROW_GROUP_SIZE 2048)", "COPY (SELECT 6000::BIGINT AS id) TO '%s/p=1/b.parquet'")
	writeText(t, dir+"/c.csv", "id,s\n1,a\nx,b\n")
	st := objstore.New(objstore.FromStorage(storage))
	for local, key := range map[string]string{"p=1/a.parquet": "in/p=1/a.parquet", "p=1/b.parquet": "in/p=1/b.parquet", "c.csv": "in/c.csv"} {
		content, err := os.ReadFile(filepath.Join(dir, local))
		if err != nil {
			t.Fatal(err)
		}
		if err := st.PutIfAbsent(t.Context(), "s3://data/"+key, content); err != nil {
			t.Fatal(err)
		}
	}
	e := newEngine(t)
	src := files(plan.SourceParquet, "s3://data/in/**/*.parquet")
	src.Storage = storage
	res := mustProbe(t, e, "SELECT id, p FROM firn_s0", src)
	got := res.Sources[0]
	if len(got.Files) != 2 || len(got.Files[0].RowGroups) != 3 || got.Files[0].Rows != 6000 || !res.RowWise || len(res.Columns) != 2 {
		t.Fatalf("%+v (%s)", got, res.Why)
	}
	if out := mustRun(t, e, "SELECT count(*), sum(id), min(p), max(p) FROM firn_s0", got).String(); out != "6001|18003000|1|1" {
		t.Errorf("got %s", out)
	}
	got.Files = got.Files[:1]
	got.Files[0].First, got.Files[0].End = 100, 103
	if out := mustRun(t, e, "SELECT id FROM firn_s0", got).String(); out != "100\n101\n102" {
		t.Errorf("slice: %s", out)
	}
	csv := files(plan.SourceCSV, "s3://data/in/c.csv")
	csv.Storage, csv.Options = storage, map[string]string{"types": "{'id': 'INTEGER'}"}
	res = mustProbe(t, e, "FROM firn_s0", csv)
	_, err := run(t.Context(), e, task(), &plan.Query{SQL: "FROM firn_s0", Sources: res.Sources})
	if commit.CodeOf(err) != commit.CodeRejectedRows || !strings.Contains(err.Error(), "s3://data/in/c.csv:3: column id") {
		t.Errorf("rejects of an object: %v", err)
	}
	for pattern, kind := range map[string]commit.Kind{
		"s3://data/none/*.parquet": commit.KindNotFound, "s3://data/none.parquet": commit.KindNotFound, "s3://data/in/c*.csv": commit.KindInvalid,
	} {
		bad := files(plan.SourceParquet, pattern)
		bad.Storage = storage
		if err := probeFails(t, e, "FROM firn_s0", bad); commit.KindOf(err) != kind || Class(err) != ClassNotRetryable || !strings.Contains(err.Error(), "s3://data/") {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

// Parquet's statistics leave NaN out, as writers other than DuckDB do; in a query
// NaN is above every number, and a filter must find it in every row group.
func TestFiltersFindNaN(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nan.parquet")
	id := func(n string) arrow.Metadata { return arrow.MetadataFrom(map[string]string{"PARQUET:field_id": n}) }
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64, Metadata: id("1")},
		{Name: "d", Type: arrow.PrimitiveTypes.Float64, Nullable: true, Metadata: id("2")},
		{Name: "f", Type: arrow.PrimitiveTypes.Float32, Nullable: true, Metadata: id("3")},
		{Name: "s", Type: arrow.StructOf(
			arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Float64, Nullable: true, Metadata: id("5")},
			arrow.Field{Name: "y", Type: arrow.StructOf(arrow.Field{Name: "z", Type: arrow.PrimitiveTypes.Float32, Nullable: true, Metadata: id("7")}), Nullable: true, Metadata: id("6")},
		), Nullable: true, Metadata: id("4")},
	}, nil)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := pqarrow.NewFileWriter(schema, f, nil, pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	for _, rows := range []string{
		`[{"id": 1, "d": 1, "f": 1, "s": {"x": 1, "y": {"z": 1}}}, {"id": 2, "d": "NaN", "f": "NaN", "s": {"x": "NaN", "y": {"z": "NaN"}}}]`,
		`[{"id": 3, "d": -0.0, "f": -0.0, "s": {"x": null, "y": null}}, {"id": 4, "d": null, "f": null, "s": null}]`,
	} {
		b, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(rows))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		b.Release()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	src := table([]plan.Column{
		{Name: "id", Type: "BIGINT", FieldID: 1},
		{Name: "d", Type: "DOUBLE", FieldID: 2},
		{Name: "f", Type: "FLOAT", FieldID: 3},
		{Name: "s", Type: "STRUCT(x DOUBLE, y STRUCT(z FLOAT))", FieldID: 4},
	}, plan.SourceFile{Path: path})
	sliced, unnamed := src, src
	sliced.Files = []plan.SourceFile{{Path: path, First: 0, End: 4}}
	unnamed.Files = []plan.SourceFile{{Path: path, NoFieldIDs: true}}
	e := newEngine(t)
	for _, src := range []plan.Source{src, sliced, unnamed} {
		for where, want := range map[string]string{
			"d > 5": "2", "f > 5": "2", "d = 'nan'": "2", "f IN ('nan', 7)": "2", "d >= 1": "1\n2", "d < 1": "3", "d IS NULL": "4",
			"s.x > 1.5": "2", "s.y.z > 1.5": "2", "s.x = 'nan'": "2", "s.x > 1.5 AND s.y.z > 1.5 AND id > 1": "2", "s.x >= 1": "1\n2", "s.y.z IS NULL": "3\n4",
			"d::VARCHAR = '-0.0' AND f::VARCHAR = '-0.0'": "3",
		} {
			if got := mustRun(t, e, "SELECT id "+fromT+" WHERE "+where+" ORDER BY id", src).String(); got != want {
				t.Errorf("WHERE %s: got %q, want %q", where, got, want)
			}
		}
	}
}

// The table's metadata doesn't say which files lack field ids: files that were
// added as other systems wrote them. Their columns go by the table's name mapping.
func TestFilesWithoutFieldIDs(t *testing.T) {
	dir := t.TempDir()
	write(t, dir,
		"COPY (SELECT 1 AS id, 'a' AS old, {'q': 1} AS st) TO '%s/1.parquet'",
		"COPY (SELECT 2 AS id, 'b' AS title, {'q': 2} AS st) TO '%s/2.parquet' (FIELD_IDS {id: 1, title: 2, st: 3})")
	src := table([]plan.Column{
		{Name: "id", Type: "BIGINT", FieldID: 1},
		{Name: "title", Type: "VARCHAR", FieldID: 2},
		{Name: "st", Type: "STRUCT(q INTEGER)", FieldID: 3},
		{Name: "late", Type: "VARCHAR", FieldID: 4},
	}, plan.SourceFile{Path: dir + "/1.parquet"}, plan.SourceFile{Path: dir + "/2.parquet"})
	e := newEngine(t)
	const query = "SELECT id, title, st.q, late " + fromT + " ORDER BY id"
	if got, want := mustRun(t, e, query, src).String(), "1|"+null+"|1|"+null+"\n2|b|2|"+null; got != want {
		t.Errorf("without a mapping: got\n%s\nwant\n%s", got, want)
	}
	src.NameMapping = map[int][]string{1: {"id"}, 2: {"old", "title"}, 3: {"st"}}
	if got, want := mustRun(t, e, query, src).String(), "1|a|1|"+null+"\n2|b|2|"+null; got != want {
		t.Errorf("with a mapping: got\n%s\nwant\n%s", got, want)
	}
	// A column that the mapping leaves out is in no such file, whatever its name.
	src.NameMapping = map[int][]string{1: {"id"}, 3: {"st"}}
	src.Columns[1].Name = "old"
	if got, want := mustRun(t, e, "SELECT id, old "+fromT+" ORDER BY id", src).String(), "1|"+null+"\n2|b"; got != want {
		t.Errorf("left out of the mapping: got\n%s\nwant\n%s", got, want)
	}
}
