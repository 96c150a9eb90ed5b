package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

func TestProbeDescribesParquet(t *testing.T) {
	dir := t.TempDir()
	write(t, dir,
		"COPY (SELECT i AS id, 'n' || i AS name, i::DECIMAL(9,2) AS d FROM range(5000) t(i)) TO '%s/b.parquet' (ROW_GROUP_SIZE 2048)",
		"COPY (SELECT 1::BIGINT AS id, 'x' AS name, 2::DECIMAL(9,2) AS d) TO '%s/a.parquet'",
		"COPY (SELECT 1 AS other) TO '%s/c.txt' (FORMAT parquet)")
	e := newEngine(t, dir)
	res := mustProbe(t, e, "SELECT id + 1 AS next, name FROM firn_s0 WHERE d > 1", files(plan.SourceParquet, dir+"/*.parquet"))
	src := res.Sources[0]
	if len(src.Files) != 2 || filepath.Base(src.Files[0].Path) != "a.parquet" || src.Files[1].Rows != 5000 || src.Files[1].Size == 0 {
		t.Fatalf("files %+v", src.Files)
	}
	if rg := src.Files[1].RowGroups; len(rg) != 3 || rg[0].Rows != 2048 || rg[2].Rows != 904 || rg[0].Bytes == 0 {
		t.Errorf("row groups %+v", rg)
	}
	want := []plan.Column{{Name: "id", Type: "BIGINT"}, {Name: "name", Type: "VARCHAR"}, {Name: "d", Type: "DECIMAL(9,2)"}}
	if len(src.Columns) != 3 || src.Columns[0] != want[0] || src.Columns[1] != want[1] || src.Columns[2] != want[2] {
		t.Errorf("columns %+v", src.Columns)
	}
	if len(res.Columns) != 2 || res.Columns[0] != (plan.Column{Name: "next", Type: "BIGINT"}) {
		t.Errorf("result %+v", res.Columns)
	}
	if !res.RowWise || !res.Deterministic {
		t.Errorf("row-wise %v (%s), deterministic %v", res.RowWise, res.Why, res.Deterministic)
	}
}

func TestWhichQueriesAreRowWise(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "COPY (SELECT i AS id, [i, i+1] AS l, i % 7 AS k FROM range(100) t(i)) TO '%s/a.parquet'")
	writeText(t, dir+"/a.csv", "id,k\n1,2\n")
	writeText(t, dir+"/a.json", `{"id": 1, "k": 2}`+"\n")
	e := newEngine(t, dir)
	parquet := files(plan.SourceParquet, dir+"/a.parquet")
	table := plan.Source{View: []string{"lake", "air", "t"}, Kind: plan.SourceTable, Columns: []plan.Column{{Name: "id", Type: "BIGINT", FieldID: 1}, {Name: "k", Type: "BIGINT", FieldID: 2}}}
	upload := plan.Source{View: []string{"firn_s0"}, Kind: plan.SourceUpload, Columns: table.Columns}
	for _, c := range []struct {
		sql     string
		src     plan.Source
		rowWise bool
		why     string
	}{
		{"SELECT * FROM firn_s0", parquet, true, "scan"},
		{"FROM firn_s0", parquet, true, "scan"},
		{"SELECT id * 2 FROM firn_s0 WHERE k = 3 AND id::VARCHAR LIKE '%1%'", parquet, true, ""},
		{"SELECT id, unnest(l) FROM firn_s0", parquet, true, ""},
		{"SELECT id, u FROM firn_s0, unnest(l) AS x(u)", parquet, true, ""},
		{"WITH c AS (SELECT * FROM firn_s0 WHERE k > 1) SELECT id FROM c WHERE k < 5", parquet, true, ""},
		{"SELECT id FROM (SELECT * FROM firn_s0) s", parquet, true, ""},
		{"SELECT id, random() FROM firn_s0", parquet, true, ""},
		{"SELECT id FROM firn_s0", files(plan.SourceCSV, dir+"/a.csv"), true, ""},
		{"SELECT id FROM firn_s0", files(plan.SourceJSON, dir+"/a.json"), true, ""},
		{"SELECT id FROM lake.air.t WHERE k IS NOT NULL", table, true, ""},
		{"SELECT id FROM firn_s0 WHERE k > 3", upload, true, ""},
		{"SELECT count(*) FROM firn_s0", parquet, false, ""},
		{"SELECT max(id) FROM firn_s0", parquet, false, ""},
		{"SELECT k, sum(id) FROM firn_s0 GROUP BY k", parquet, false, "GROUP"},
		{"SELECT DISTINCT k FROM firn_s0", parquet, false, ""},
		{"SELECT id FROM firn_s0 ORDER BY id", parquet, false, "ORDER"},
		{"SELECT id FROM firn_s0 ORDER BY id LIMIT 3", parquet, false, "TOP_N"},
		{"SELECT id FROM firn_s0 LIMIT 3", parquet, false, "LIMIT"},
		{"SELECT id FROM firn_s0 LIMIT 3 OFFSET 2", parquet, false, ""},
		{"SELECT id, row_number() OVER () FROM firn_s0", parquet, false, "WINDOW"},
		{"SELECT id FROM firn_s0 QUALIFY row_number() OVER (PARTITION BY k) = 1", parquet, false, ""},
		{"SELECT a.id FROM firn_s0 a JOIN firn_s0 b ON a.id = b.k", parquet, false, "JOIN"},
		{"SELECT a.id FROM firn_s0 a, firn_s0 b", parquet, false, ""},
		{"SELECT id FROM firn_s0 UNION ALL SELECT k FROM firn_s0", parquet, false, "UNION"},
		{"SELECT id FROM firn_s0 EXCEPT SELECT k FROM firn_s0", parquet, false, ""},
		{"SELECT id FROM firn_s0 WHERE id IN (SELECT 3)", parquet, false, ""},
		{"SELECT id FROM firn_s0 WHERE id > (SELECT avg(k) FROM firn_s0)", parquet, false, ""},
		{"SELECT id, (SELECT 5) FROM firn_s0", parquet, false, ""},
		{"SELECT id FROM firn_s0 TABLESAMPLE 10%", parquet, false, "SAMPLE"},
		{"SELECT id FROM firn_s0 USING SAMPLE 3 ROWS", parquet, false, ""},
		{"WITH c AS MATERIALIZED (SELECT * FROM firn_s0) SELECT id FROM c", parquet, false, ""},
		{"WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r", parquet, false, ""},
		{"SELECT max(id) FROM lake.air.t", table, false, ""},
		{"SELECT count(*) FROM lake.air.t WHERE k > 3", table, false, ""},
		{"SELECT id FROM lake.air.t WHERE k IN (SELECT id FROM lake.air.t)", table, false, ""},
	} {
		res := mustProbe(t, e, c.sql, c.src)
		if res.RowWise != c.rowWise || !strings.Contains(res.Why, c.why) || res.Why == "" {
			t.Errorf("%s: row-wise %v, %q", c.sql, res.RowWise, res.Why)
		}
	}
	if res := mustProbe(t, e, "SELECT * FROM range(3)"); res.RowWise {
		t.Errorf("no source: %+v", res)
	}
	other := parquet
	other.View = []string{"firn_s1"}
	if res := mustProbe(t, e, "SELECT id FROM firn_s0", parquet, other); res.RowWise {
		t.Errorf("two sources: %+v", res)
	}
}

func TestDeterminism(t *testing.T) {
	e := newEngine(t)
	for sql, want := range map[string]bool{
		"SELECT 1":                                      true,
		"SELECT now(), current_date, today()":           true,
		"SELECT age(TIMESTAMP '2000-01-01')":            true,
		"SELECT random()":                               false,
		"SELECT uuid()":                                 false,
		"SELECT gen_random_uuid()":                      false,
		"SELECT [x + RANDOM() for x in [1]]":            false,
		"WITH c AS (SELECT uuidv7()) FROM c":            false,
		"SELECT * FROM range(9) TABLESAMPLE 2 ROWS":     false,
		"SELECT i FROM range(9) t(i) USING SAMPLE 50%":  false,
		"SELECT i FROM range(9) t(i) ORDER BY random()": false,
	} {
		if got := mustProbe(t, e, sql).Deterministic; got != want {
			t.Errorf("%s: deterministic %v", sql, got)
		}
	}
}

func TestBadFilesAmongGoodOnes(t *testing.T) {
	dir := t.TempDir()
	writeText(t, dir+"/good/x", "")
	write(t, dir, "COPY (SELECT i AS id, 'text ' || i AS s FROM range(50000) t(i)) TO '%s/good/1.parquet' (ROW_GROUP_SIZE 2048)")
	good, err := os.ReadFile(dir + "/good/1.parquet")
	if err != nil {
		t.Fatal(err)
	}
	holed := append(append([]byte{}, good[:1000]...), good[20000:]...)
	damaged := append([]byte{}, good...)
	copy(damaged[len(damaged)-200:len(damaged)-8], strings.Repeat("\xff", 192))
	e := newEngine(t, dir)
	for name, c := range map[string]struct {
		content []byte
		code    commit.Code
		why     string
	}{
		"empty.parquet":     {nil, commit.CodeBadFile, "empty (0 bytes)"},
		"text.parquet":      {[]byte("id,s\n1,a\n2,b\n3,c\n"), commit.CodeBadFile, "not a Parquet file"},
		"tiny.parquet":      {[]byte("PAR1"), commit.CodeBadFile, "cut off"},
		"truncated.parquet": {good[:len(good)/2], commit.CodeBadFile, "cut off"},
		"holed.parquet":     {holed, commit.CodeBadFile, "bytes are missing"},
		"damaged.parquet":   {damaged, commit.CodeBadFile, "damaged"},
	} {
		writeText(t, dir+"/"+name+"/0.parquet", string(good))
		writeText(t, dir+"/"+name+"/"+name, string(c.content))
		writeText(t, dir+"/"+name+"/z.parquet", string(good))
		err := probeFails(t, e, "FROM firn_s0", files(plan.SourceParquet, dir+"/"+name+"/*.parquet"))
		if commit.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), name+"/"+name) || Class(err) != ClassNotRetryable {
			t.Errorf("%s: %v (%s)", name, err, Class(err))
		}
	}
	for _, kind := range []plan.SourceKind{plan.SourceCSV, plan.SourceJSON} {
		writeText(t, dir+"/text/a", "a,b\n1,2\n")
		writeText(t, dir+"/text/b", "")
		err := probeFails(t, e, "FROM firn_s0", files(kind, dir+"/text/*"))
		if commit.CodeOf(err) != commit.CodeBadFile || !strings.Contains(err.Error(), "text/b") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestDriftNamesFileAndColumn(t *testing.T) {
	dir := t.TempDir()
	for name, sql := range map[string]string{
		"type":    "SELECT 1::INTEGER AS id, 'a' AS s",
		"missing": "SELECT 1::BIGINT AS id",
		"extra":   "SELECT 1::BIGINT AS id, 'a' AS s, 2 AS more",
		"renamed": "SELECT 1::BIGINT AS id, 'a' AS s2",
	} {
		sub := dir + "/" + name
		writeText(t, sub+"/x", "")
		write(t, sub, "COPY (SELECT 1::BIGINT AS id, 'a' AS s) TO '%s/1.parquet'", "COPY (SELECT 1::BIGINT AS id, 'a' AS s) TO '%s/2.parquet'", "COPY ("+sql+") TO '%s/3.parquet'")
		e := newEngine(t, dir)
		src := files(plan.SourceParquet, sub+"/*.parquet")
		err := probeFails(t, e, "FROM firn_s0", src)
		column := map[string]string{"type": `"id" is INTEGER, but BIGINT`, "missing": `"s" is missing`, "extra": `column "more"`, "renamed": `"s" is missing`}[name]
		if commit.CodeOf(err) != commit.CodeSchemaDrift || !strings.Contains(err.Error(), "3.parquet") || !strings.Contains(err.Error(), column) {
			t.Errorf("%s: %v", name, err)
		}
		src.Options = map[string]string{"union_by_name": "true"}
		res := mustProbe(t, e, "FROM firn_s0", src)
		if res.RowWise {
			t.Errorf("%s: union_by_name is row-wise", name)
		}
		if got := mustRun(t, e, "SELECT count(*) FROM firn_s0", res.Sources...).String(); got != "3" {
			t.Errorf("%s: %s rows", name, got)
		}
	}
	// Another order of columns is no drift, and each file is read by name.
	write(t, dir, "COPY (SELECT 1 AS a, 'x' AS b) TO '%s/1.parquet'", "COPY (SELECT 'y' AS b, 2 AS a) TO '%s/2.parquet'")
	e := newEngine(t, dir)
	src := mustProbe(t, e, "FROM firn_s0", files(plan.SourceParquet, dir+"/?.parquet")).Sources[0]
	if got := mustRun(t, e, "FROM firn_s0", src).String(); got != "1|x\n2|y" {
		t.Errorf("both: %s", got)
	}
	src.Files = src.Files[1:]
	if got := mustRun(t, e, "FROM firn_s0", src).String(); got != "2|y" {
		t.Errorf("second alone: %s", got)
	}
}

func TestPatterns(t *testing.T) {
	dir := t.TempDir()
	e := newEngine(t, dir)
	err := probeFails(t, e, "FROM firn_s0", files(plan.SourceParquet, dir+"/none*.parquet"))
	if commit.CodeOf(err) != commit.CodeSourceNotFound || !strings.Contains(err.Error(), "none*.parquet") {
		t.Errorf("no match: %v", err)
	}
	err = probeFails(t, e, "FROM firn_s0", files(plan.SourceCSV, dir+"/none.csv"))
	if commit.CodeOf(err) != commit.CodeSourceNotFound || commit.KindOf(err) != commit.KindNotFound {
		t.Errorf("missing: %v", err)
	}
	writeText(t, dir+"/odd [1]*?'s.csv", "a\n1\n")
	writeText(t, dir+"/odd 1x.csv", "a\n2\n")
	writeText(t, dir+"/sub/deep/c.csv", "a\n3\n")
	for pattern, want := range map[string]string{
		dir + "/odd [1]*?'s.csv":            "1",
		dir + "/odd 1*.csv":                 "2",
		dir + "/**/*.csv":                   "2\n1\n3",
		"file://" + dir + "/sub/deep/c.csv": "3",
		dir + "/odd [[]*.csv":               "1",
		dir + "/sub/../sub/deep/[a-d].csv":  "3",
	} {
		src := mustProbe(t, e, "FROM firn_s0", files(plan.SourceCSV, pattern)).Sources[0]
		if got := mustRun(t, e, "FROM firn_s0", src).String(); got != want {
			t.Errorf("%s: %s", pattern, got)
		}
	}
}

func TestOnlyAllowedDirectories(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	secret := writeText(t, outside+"/secret.csv", "a\n42\n")
	if err := os.Symlink(secret, dir+"/link.csv"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, dir+"/linked"); err != nil {
		t.Fatal(err)
	}
	writeText(t, dir+"x/near.csv", "a\n1\n")
	t.Cleanup(func() { os.RemoveAll(dir + "x") })
	e := newEngine(t, dir)
	for _, p := range []string{secret, dir + "/link.csv", dir + "/linked/secret.csv", dir + "/linked/*.csv", dir + "/l*.csv", outside + "/*.csv", dir + "x/near.csv", outside + "/missing.csv", dir + "/../" + filepath.Base(outside) + "/secret.csv", "/etc/passwd"} {
		err := probeFails(t, e, "FROM firn_s0", files(plan.SourceCSV, p))
		if commit.CodeOf(err) != commit.CodeSourceNotAllowed || commit.KindOf(err) != commit.KindPermission {
			t.Errorf("%s: %v", p, err)
		} else if !strings.Contains(hint(err), "sources.local.allow") {
			t.Errorf("%s: hint %q", p, hint(err))
		}
		// A task is refused as well, whatever the plan says.
		src := files(plan.SourceCSV)
		src.Files = []plan.SourceFile{{Path: p}}
		if _, err := run(t.Context(), e, task(), &plan.Query{SQL: "FROM firn_s0", Sources: []plan.Source{src}}); err == nil {
			t.Errorf("ran over %s", p)
		}
	}
	all := newEngine(t, "/")
	src := mustProbe(t, all, "FROM firn_s0", files(plan.SourceCSV, dir+"/link.csv")).Sources[0]
	if got := mustRun(t, all, "FROM firn_s0", src).String(); got != "42" {
		t.Errorf("everything allowed: %s", got)
	}
	if _, err := New(Config{Dir: t.TempDir(), LocalAllow: []string{"relative"}}); err == nil {
		t.Error("a relative allowed directory")
	}
}

func TestHivePartitionsArePinned(t *testing.T) {
	dir := t.TempDir()
	writeText(t, dir+"/k=01/x", "")
	writeText(t, dir+"/k=abc/x", "")
	write(t, dir, "COPY (SELECT 1 AS a) TO '%s/k=01/f.parquet'", "COPY (SELECT 2 AS a) TO '%s/k=abc/f.parquet'")
	e := newEngine(t, dir)
	res := mustProbe(t, e, "SELECT a, k FROM firn_s0", files(plan.SourceParquet, dir+"/*/*.parquet"))
	src := res.Sources[0]
	if len(src.Columns) != 2 || src.Columns[1].Type != "VARCHAR" || !res.RowWise {
		t.Fatalf("%+v %s", src.Columns, res.Why)
	}
	src.Files = src.Files[:1]
	if got := mustRun(t, e, "SELECT a, k FROM firn_s0", src).String(); got != "1|01" {
		t.Errorf("one file alone: %s", got)
	}
}
