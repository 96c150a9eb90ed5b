package sql_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sql"
)

// TestRewrite shows what DuckDB gets for what a user wrote.
func TestRewrite(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"SELECT t.id, air.t.score, lake.air.t.id FROM t", "SELECT t.id, air.t.score, lake.air.t.id FROM lake.air.t"},
		{"SELECT q.id FROM air.t AS q", "SELECT q.id FROM lake.air.t AS q"},
		{"SELECT q.x FROM t AS q(x, y)", "SELECT q.x FROM lake.air.t AS q(x, y)"},
		{"SELECT id FROM `t`", "SELECT id FROM lake.air.t"},
		{"SELECT id FROM lake.\"a.b\".nested", `SELECT id FROM lake."a.b".nested`},
		{`SELECT id FROM "odd ""name"`, `SELECT id FROM lake.air."odd ""name"`},
		{"FROM t AT (VERSION => 123)", `SELECT * FROM lake.air."t@123" AS t`},
		{"FROM t JOIN t AT (VERSION => 9) AS old USING (id)", "!syntax error"},
		// files
		{"SELECT x.a FROM 'dir/x.parquet'", "SELECT x.a FROM firn_s0 AS x"},
		{`SELECT y.a FROM "y.csv"`, "SELECT y.a FROM firn_s0 AS y"},
		{"SELECT read_parquet.a FROM 'dir/*.parquet'", "SELECT read_parquet.a FROM firn_s0 AS read_parquet"},
		{"SELECT read_parquet.a FROM read_parquet('x.parquet')", "SELECT read_parquet.a FROM firn_s0 AS read_parquet"},
		{"SELECT f.a FROM read_parquet(['x.parquet', 'w.parquet']) f", "SELECT f.a FROM firn_s0 AS f"},
		{"SELECT x.a FROM 's3://b/k/x.parquet'", "SELECT x.a FROM firn_s0 AS x"},
		{"SELECT l.a FROM 'x.parquet' l JOIN 'x.parquet' r USING (a)", "SELECT l.a FROM firn_s0 AS l INNER JOIN firn_s0 AS r USING (a)"},
		{"SELECT 1 FROM 'x.parquet' TABLESAMPLE 10%", "SELECT 1 FROM firn_s0 AS x TABLESAMPLE System(10.0 PERCENT)"},
		// WITH
		{"WITH t AS (SELECT * FROM t) SELECT * FROM t", "WITH t AS (SELECT * FROM lake.air.t)SELECT * FROM t"},
		{"WITH T AS (SELECT 1) SELECT * FROM t", "WITH T AS (SELECT 1) SELECT * FROM t"},
		{"SELECT * FROM (WITH t AS (SELECT 1) FROM t), t", "SELECT * FROM (WITH t AS (SELECT 1)SELECT * FROM t) , lake.air.t"},
		{"WITH firn_s0 AS (SELECT 1) SELECT * FROM 'x.parquet', firn_s0", "WITH firn_s0 AS (SELECT 1)SELECT * FROM firn_s0_ AS x , firn_s0"},
		{"WITH t AS (SELECT 1) SELECT * FROM lake.air.t", "WITH t AS (SELECT 1)SELECT * FROM lake.air.t"},
		{"WITH a AS (FROM b), b AS (SELECT 1) FROM a", "!b"}, // no reference forward
		// clock
		{"SELECT now() FROM t", `SELECT CAST('2026-03-01 23:30:00.123456+00:00' AS TIMESTAMP WITH TIME ZONE) AS "now()" FROM lake.air.t`},
		// A floating point literal stays one: DuckDB writes it as a decimal.
		{"SELECT 1e5 * id AS x FROM t", "SELECT (CAST('100000.0' AS DOUBLE) * id) AS x FROM lake.air.t"},
		{"SELECT 1e-7, 1.5 FROM t", `SELECT CAST('1e-7' AS DOUBLE) AS "1e-07", 1.5 FROM lake.air.t`},
		{"SELECT current_date", "SELECT CAST('2026-03-01' AS DATE) AS current_date"},
		{"SELECT today() + 1 AS d", "SELECT (CAST('2026-03-01' AS DATE) + 1) AS d"},
		{"SELECT id FROM t WHERE CURRENT_TIMESTAMP > now()", "SELECT id FROM lake.air.t WHERE (CAST('2026-03-01 23:30:00.123456+00:00' AS TIMESTAMP WITH TIME ZONE) > CAST('2026-03-01 23:30:00.123456+00:00' AS TIMESTAMP WITH TIME ZONE))"},
		{"SELECT localtime AS l, current_time AS c", "SELECT CAST('23:30:00.123456' AS TIME) AS l, CAST('23:30:00.123456+00:00' AS TIME WITH TIME ZONE) AS c"},
		{`SELECT "current_date" FROM 'clock.csv'`, `SELECT current_date AS current_date FROM firn_s0 AS clock`},
		{"SELECT current_date FROM 'clock.csv'", "!both a function and the name of a column"},
		{"SELECT current_date FROM (SELECT 1 AS current_date)", "!both a function and the name of a column"},
		// others
		{"SELECT * FROM range(3) r(i), unnest([1, 2]) u(j)", "SELECT * FROM range(3) r(i), unnest([1, 2]) u(j)"},
		{"SELECT (SELECT max(a) FROM 'x.parquet') AS m", "SELECT (SELECT max(a) FROM firn_s0 AS x) AS m"},
		{"SELECT * FROM range(3) r(i), t", "SELECT * FROM \"range\"(3) AS r(i) , lake.air.t"},
		{"DESCRIBE SELECT 1", "SELECT * FROM (DESCRIBE SELECT 1)"},
		{"SUMMARIZE VALUES (1)", "SELECT * FROM (SUMMARIZE VALUES (1))"},
		{"SELECT * FROM t, same.t", "!FIRN-9404"},
		{"SELECT * FROM LAKE.air.t", "!no such catalog"},
		{"SELECT\u200b\"current_date\" FROM 'clock.csv'", `SELECT current_date AS current_date FROM firn_s0 AS clock`},
		{"SUMMARIZE t", "SELECT * FROM (SUMMARIZE (SELECT * FROM lake.air.t))"},
		{"DESCRIBE 'x.parquet'", "SELECT * FROM (DESCRIBE (SELECT * FROM firn_s0 AS x))"},
	} {
		_, b, err := bindText(t, c.in)
		if want, bad := strings.CutPrefix(c.want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s\n got error %v\nwant %s", c.in, err, want)
			}
			continue
		}
		if err != nil || b.last.SQL != c.want {
			t.Errorf("%s\n got %s, %v\nwant %s", c.in, b.last.SQL, err, c.want)
		}
	}
}

// TestRewriteKeepsNames: a column that the user didn't name is called as
// DuckDB would have called it.
func TestRewriteKeepsNames(t *testing.T) {
	n, _, err := bindText(t, "SELECT now(), current_timestamp, date_trunc('day', now()), (SELECT 1), id + 1, Today() FROM t")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range n.(*plan.Query).Columns {
		got = append(got, c.Name)
	}
	want := `now()|current_timestamp|date_trunc('day', now())|(SELECT 1)|(id + 1)|today()`
	if strings.Join(got, "|") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), want)
	}
}

func TestRewriteClockInTimeZone(t *testing.T) {
	b := newBinder(t)
	an := &sql.Analyzer{Catalogs: newCatalogs(t), Binder: b, Parser: parser}
	opts := testOptions
	opts.TimeZone = "Asia/Kolkata" // 5:30 ahead: the next day
	if _, err := an.Bind(t.Context(), parseOne(t, "SELECT current_date AS d, current_time AS t, localtimestamp AS l"), airSession, opts); err != nil {
		t.Fatal(err)
	}
	want := "SELECT CAST('2026-03-02' AS DATE) AS d, CAST('05:00:00.123456+05:30' AS TIME WITH TIME ZONE) AS t, CAST('2026-03-02 05:00:00.123456' AS TIMESTAMP) AS l"
	if b.last.SQL != want {
		t.Errorf("got  %s\nwant %s", b.last.SQL, want)
	}
	opts.TimeZone = "Mars/Olympus"
	if _, err := an.Bind(t.Context(), parseOne(t, "SELECT 1"), airSession, opts); err == nil {
		t.Error("an unknown time zone was taken")
	}
}

// TestEscapes: nothing that reads, changes or hides more than the sources gets
// through, wherever it stands. The probe is never asked.
func TestEscapes(t *testing.T) {
	secret := t.TempDir() + "/secret.txt"
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		// table functions
		"FROM read_text('" + secret + "')",
		"FROM read_blob('/etc/passwd')",
		"FROM glob('/etc/*')",
		"FROM sniff_csv('/etc/passwd')",
		"FROM enable_logging()",
		"FROM ENABLE_LOGGING()",
		`FROM "enable_logging"()`,
		"FROM duckdb_logs()",
		"FROM duckdb_logs_parsed('QueryLog')",
		"FROM duckdb_settings()",
		"FROM duckdb_secrets()",
		"FROM duckdb_tables()",
		"FROM duckdb_views()",
		"FROM query('SELECT 1')",
		"FROM query_table('t')",
		"FROM query_table(['t', 'u'])",
		"FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
		"FROM pragma_table_info('t')",
		"FROM pragma_database_size()",
		"FROM parquet_metadata('x.parquet')",
		"FROM parquet_kv_metadata('x.parquet')",
		"FROM read_duckdb('x.db')",
		"FROM which_secret('s3://x', 's3')",
		"FROM checkpoint()",
		"FROM arrow_scan(1, 2, 3)",
		"FROM seq_scan('t')",
		"FROM sql_auto_complete('SEL')",
		"FROM histogram('t', 'id')",
		"FROM histogram_values('t', 'id')",
		"FROM read_json_objects('x.json')",
		"FROM main.read_text('/etc/passwd')",
		"FROM system.main.read_text('/etc/passwd')",
		"FROM truncate_duckdb_logs()",
		"FROM nosuchfunction(1)",
		// wherever they stand
		"SELECT (SELECT content FROM read_text('/etc/passwd'))",
		"SELECT 1 WHERE EXISTS (FROM read_text('/etc/passwd'))",
		"SELECT id IN (SELECT size FROM read_text('/etc/passwd')) FROM t",
		"WITH x AS (FROM read_text('/etc/passwd')) SELECT 1",
		"WITH RECURSIVE x AS (SELECT 1 UNION ALL SELECT size FROM read_text('/etc/passwd')) FROM x",
		"SELECT 1 UNION ALL SELECT size FROM read_text('/etc/passwd')",
		"SELECT * FROM t, LATERAL (SELECT * FROM read_text(t.name))",
		"SELECT * FROM t LEFT JOIN read_text('/etc/passwd') r ON true",
		"SELECT * FROM t ORDER BY (SELECT size FROM read_text('/etc/passwd'))",
		"SELECT * FROM t LIMIT (SELECT size FROM read_text('/etc/passwd'))",
		"SELECT sum(id) OVER (ORDER BY (SELECT size FROM read_text('/etc/passwd'))) FROM t",
		"SELECT sum(id) FILTER (WHERE EXISTS (FROM read_text('/etc/passwd'))) FROM t",
		"SELECT list_transform([1], lambda x: (SELECT x FROM read_text('/etc/passwd')))",
		"SELECT CASE WHEN true THEN (SELECT 1 FROM read_text('/etc/passwd')) END",
		"SELECT id FROM t GROUP BY ALL HAVING (SELECT true FROM read_text('/etc/passwd'))",
		"SELECT * FROM unnest((SELECT [size] FROM read_text('/etc/passwd')))",
		"VALUES ((SELECT size FROM read_text('/etc/passwd')))",
		"SELECT * REPLACE ((SELECT size FROM read_text('/etc/passwd')) AS id) FROM t",
		"FROM (SUMMARIZE FROM read_text('/etc/passwd'))",
		"FROM (FROM read_text('/etc/passwd')) PIVOT (sum(size) FOR filename IN ('a'))",
		"SELECT * FROM t UNPIVOT (v FOR k IN (getenv('HOME')))",
		// scalar functions
		"SELECT getenv('HOME')",
		"SELECT 'HOME'.getenv()",
		"SELECT main.getenv('HOME')",
		"SELECT [getenv(x) FOR x IN ['HOME']]",
		"SELECT list_transform(['HOME'], lambda x: getenv(x))",
		"SELECT current_setting('memory_limit')",
		"SELECT getvariable('x')",
		"SELECT nextval('s')",
		"SELECT write_log('x')",
		"SELECT setseed(0.5)",
		"SELECT sleep_ms(100000)",
		"SELECT pg_sleep(100)",
		"SELECT current_query()",
		"SELECT pg_get_viewdef(1)",
		"SELECT version()",
		"SELECT json_serialize_plan('SELECT 1')",
		"SELECT json_deserialize_sql('{}')",
		"SELECT max(getenv('HOME')) OVER ()",
		// system tables, which catalogs don't have
		"FROM duckdb_settings", "FROM duckdb_views", "FROM pragma_database_list", "FROM sqlite_master",
		"FROM information_schema.tables", "FROM pg_catalog.pg_class", "FROM system.information_schema.tables",
		"FROM memory.main.t", "FROM temp.main.t", "FROM firn_s0", "FROM main.firn_s0",
		"FROM (SHOW TABLES)", "FROM (SHOW ALL TABLES)", "FROM (SHOW DATABASES)",
		// paths
		"FROM '/etc/passwd'", "FROM read_csv(getenv('HOME'))", "FROM read_csv((SELECT 'x.csv'))", "FROM read_csv(['a.csv', getenv('X')])",
		"FROM read_csv('y.csv', delim = getenv('X'))", "FROM read_csv('y.csv', columns = (SELECT {'a': 'INT'}))",
		"FROM read_csv('y.csv', nullstr = [getenv('X')])", "FROM read_csv('y.csv', nullstr = a)", "FROM read_csv('y.csv', hive_types = {'a': getenv('X')})", "FROM read_csv('y.csv', ignore_errors = true)",
		"FROM read_parquet('x.parquet', filename = true)", "FROM read_parquet('x.parquet', delim = ',')", "FROM read_csv()",
		"FROM read_csv('y.csv', 'z.csv')", "FROM read_csv('y.csv', store_rejects = true)", "FROM read_csv('y.csv', rejects_table = 'x')",
		"FROM read_csv('y.csv', skip = 1, skip = 2)", "FROM read_csv(NULL)", "FROM read_csv([])", "FROM read_csv(1)",
		"FROM read_csv('y.csv') WITH ORDINALITY",
		// parameters and more
		"SELECT $1", "SELECT ?", "SELECT $name", "VALUES (DEFAULT)", "SELECT age(TIMESTAMP '2020-01-01')",
		"FROM t AT (TIMESTAMP => now())", "FROM t AT (VERSION => getenv('X'))", "FROM 'x.parquet' AT (VERSION => 1)", "FROM t AT (VERSION => 1.5)",
		"WITH c AS (SELECT 1) FROM c AT (VERSION => 1)", `FROM firn_upload."x"`, `FROM firn_cache."x"`, `FROM firn_cache."x" AT (VERSION => 1)`,
	} {
		_, b, err := bindText(t, q)
		if err == nil {
			t.Errorf("%s got through as %s", q, b.last.SQL)
			continue
		}
		if b.last.SQL != "" {
			t.Errorf("%s was probed as %s: %v", q, b.last.SQL, err)
		}
		if commit.CodeOf(err) == "" {
			t.Errorf("%s: the error has no code: %v", q, err)
		}
	}
}

// TestIdentifiersStayIdentifiers: names full of quotes and SQL don't break out
// on the way from tree to text.
func TestIdentifiersStayIdentifiers(t *testing.T) {
	evil := `x" FROM read_text('/etc/passwd') --`
	quoted := `"` + strings.ReplaceAll(evil, `"`, `""`) + `"`
	literal := "'" + strings.ReplaceAll(evil, "'", "''") + "'"
	for _, q := range []string{
		"SELECT 1 AS " + quoted,
		"SELECT id FROM t AS " + quoted,
		"SELECT id FROM t AS a(" + quoted + ")",
		"SELECT {" + quoted + ": 1}",
		"SELECT {" + literal + ": 1}." + quoted,
		"WITH " + quoted + " AS (SELECT 1) SELECT * FROM " + quoted,
		"SELECT " + literal,
		"SELECT * EXCLUDE (id) RENAME (name AS " + quoted + ") FROM t",
		"SELECT * REPLACE (1 AS id) FROM t",
		"SELECT sum(id) OVER " + quoted + " FROM t WINDOW " + quoted + " AS (ORDER BY id)",
		"FROM t PIVOT (sum(id) FOR name IN (" + literal + " AS " + quoted + "))",
		"SELECT CAST(NULL AS STRUCT(" + quoted + " INT))",
		"SELECT 'a' COLLATE nocase",
		"SELECT * FROM read_csv('y.csv', nullstr = " + literal + ")",
		"SELECT list_transform([1], lambda " + quoted + ": 1)",
	} {
		_, b, err := bindText(t, q)
		if err != nil {
			// Refusing is safe; running something else isn't.
			if b.last.SQL != "" && !strings.Contains(err.Error(), "Error") {
				t.Errorf("%s: %v", q, err)
			}
			continue
		}
		tree, err := parser.ParseSelect(t.Context(), b.last.SQL)
		if err != nil || strings.Contains(string(tree), `"function_name":"read_text"`) {
			t.Errorf("%s became %s, %v", q, b.last.SQL, err)
		}
	}
}

func TestReaderOptions(t *testing.T) {
	_, b, err := bindText(t, `SELECT * FROM read_csv('y.csv', delim := '|', HEADER = false, skip => 2, nullstr = ['', 'NA'],
		columns = {'a': 'BIGINT', 'b b': 'VARCHAR'}, types = MAP {'a': 'BIGINT'}, quote = '''', sample_size = -1)`)
	if err != nil {
		t.Fatal(err)
	}
	got := b.last.Sources[0].Options
	want := map[string]string{
		"delim": "'|'", "header": "false", "skip": "2", "nullstr": "main.list_value('', 'NA')",
		"columns": `main.struct_pack(a := 'BIGINT', "b b" := 'VARCHAR')`, "quote": "''''", "sample_size": "-1",
		"types": `main."map"(main.list_value('a'), main.list_value('BIGINT'))`,
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: got %s, want %s", k, got[k], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
	_, b, err = bindText(t, "FROM read_parquet('x.parquet', hive_types = {'year': INT, 'd': DATE}, union_by_name = true)")
	if err != nil || b.last.Sources[0].Options["hive_types"] != `main.struct_pack("year" := "INT", d := DATE)` || b.last.Sources[0].Options["union_by_name"] != "true" {
		t.Errorf("%+v, %v", b.last.Sources, err)
	}
	_, b, err = bindText(t, "FROM read_ndjson('z.ndjson')")
	if err != nil || b.last.Sources[0].Options["format"] != "'newline_delimited'" || b.last.Sources[0].Kind != plan.SourceJSON {
		t.Errorf("read_ndjson: %+v, %v", b.last.Sources, err)
	}
	_, _, err = bindText(t, "FROM read_csv('y.csv', delimm = ';')")
	var e *commit.Error
	if !errors.As(err, &e) || !strings.Contains(e.Hint, "Did you mean delim?") || !strings.Contains(e.Object, "line 1, column 24") {
		t.Errorf("%+v", e)
	}
}

// TestTablesThatLookAlike: DuckDB's names have no case, a catalog's do.
func TestTablesThatLookAlike(t *testing.T) {
	f := newCatalogs(t)
	f.table(t, "CREATE TABLE lake.air.T (other VARCHAR)")
	f.table(t, `CREATE TABLE lake.air."t@5" (other VARCHAR)`)
	an := &sql.Analyzer{Catalogs: f, Binder: newBinder(t), Parser: parser}
	for _, c := range []struct {
		q    string
		fine bool
	}{
		{"SELECT * FROM T", true},
		{"SELECT * FROM t a, t b", true},
		{"SELECT * FROM t a, T b", false},
		{"SELECT * FROM t AT (VERSION => 5) a, \"t@5\" b", false},
		{"SELECT * FROM \"t@5\" b, t AT (VERSION => 5)", false},
		{"SELECT * FROM t AT (VERSION => 5), t AT (VERSION => 6)", true},
	} {
		_, err := an.Bind(t.Context(), parseOne(t, strings.ReplaceAll(c.q, ", t AT (VERSION => 6)", ", (FROM t AT (VERSION => 6)) x")), airSession, testOptions)
		if (err == nil) != c.fine {
			t.Errorf("%s: %v", c.q, err)
		}
	}
	if len(f.versions) == 0 || f.versions[len(f.versions)-1] != "6" {
		t.Errorf("versions scanned: %q", f.versions)
	}
}

func TestUploads(t *testing.T) {
	b := newBinder(t)
	an := &sql.Analyzer{Catalogs: newCatalogs(t), Binder: b, Parser: parser}
	opts := testOptions
	opts.Uploads = func(id string) (plan.Upload, []plan.Column, error) {
		if id != "u-1" {
			return plan.Upload{}, nil, &commit.Error{Code: "FIRN-9", Op: "find upload", Object: id}
		}
		return plan.Upload{ID: id, Executor: "e-1"}, []plan.Column{{Name: "k", Type: "BIGINT"}}, nil
	}
	n, err := an.Bind(t.Context(), parseOne(t, `SELECT k FROM firn_upload."u-1"`), plan.Session{}, opts)
	if err != nil {
		t.Fatal(err)
	}
	q := n.(*plan.Query)
	if s := q.Sources[0]; s.Kind != plan.SourceUpload || s.Upload == nil || s.Upload.Executor != "e-1" || q.SQL != `SELECT k FROM firn_s0 AS "u-1"` {
		t.Errorf("%+v: %s", s, q.SQL)
	}
	if _, err := an.Bind(t.Context(), parseOne(t, `SELECT k FROM firn_upload."u-2"`), plan.Session{}, opts); commit.CodeOf(err) != "FIRN-9" {
		t.Errorf("got %v", err)
	}
}

func TestSyntaxErrorsOfQueries(t *testing.T) {
	for _, c := range []struct{ in, object, hint string }{
		{"SELECT 'é', 1 FROM FROM", "line 1, column 20", "                     ^"},
		{"SELECT `ä`,\n  `b` FROM FROM", "line 2, column 12", "  `b` FROM FROM"},
		{"SELECT `a\"b` FROM FROM", "line 1, column 19", ""}, // the text for DuckDB is longer
		{"SELECT\u00a01 FROM FROM", "line 1, column 15", ""},
		{"/* é */ SELECT 1 +", "line 1, column", ""},
		{"INSERT INTO t\nSELECT 1 FROM FROM", "line 2, column 15", ""},
		{"SELECT 1; SELECT 2 FROM FROM", "line 1, column 25", ""},
		{"SELECT getenv('x')", "line 1, column 8", ""},
	} {
		list, err := sql.Parse(c.in)
		if err != nil {
			t.Fatal(err)
		}
		an := &sql.Analyzer{Catalogs: newCatalogs(t), Binder: newBinder(t), Parser: parser}
		_, err = an.Bind(t.Context(), list[len(list)-1], airSession, testOptions)
		var e *commit.Error
		if !errors.As(err, &e) || !strings.Contains(e.Object, c.object) || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%q: got %+v", c.in, e)
		}
	}
}

func TestDeepAndLargeQueries(t *testing.T) {
	for _, c := range []struct {
		q    string
		fine bool
	}{
		{"VALUES (1,'some text')" + strings.Repeat(",(1,'some text')", 70000), true},
		{"SELECT id IN (1" + strings.Repeat(",1", 20000) + ") FROM t", true},
		{"SELECT " + strings.Repeat("(", 3000) + "1" + strings.Repeat(")", 3000), true},
		{"SELECT " + strings.Repeat("(", 100000) + "1" + strings.Repeat(")", 100000), false},
		{"SELECT 1" + strings.Repeat("+1", 50000), false},
		{"SELECT 1" + strings.Repeat(" UNION ALL SELECT 1", 500), true},
		{"SELECT 1" + strings.Repeat(" UNION ALL SELECT 1", 5000), true},
		{strings.Repeat("SELECT * FROM (", 5000) + "SELECT 1" + strings.Repeat(")", 5000), false},
		{"SELECT " + strings.Repeat("[", 20000) + strings.Repeat("]", 20000), false},
	} {
		_, _, err := bindText(t, c.q)
		if (err == nil) != c.fine {
			t.Errorf("%.60s…: %.300v", c.q, err)
		}
		if err != nil && commit.CodeOf(err) == "" {
			t.Errorf("%.60s…: no code: %.300v", c.q, err)
		}
	}
}

func TestUnknownNames(t *testing.T) {
	for _, c := range []struct {
		q, want string
		session plan.Session
	}{
		{"FROM nosuch", "FIRN-9404", airSession},
		{"FROM lak.air.t", "FIRN-1005", airSession},
		{"FROM t", "FIRN-1004", plan.Session{}},
		{"FROM air.t", "FIRN-1004", plan.Session{}},
		{"FROM lake.t", "FIRN-1004", plan.Session{}},
		{"FROM t", "FIRN-1004", plan.Session{Catalog: "lake"}},
		{"FROM x.parquet", "FIRN-9404", airSession},
	} {
		an := &sql.Analyzer{Catalogs: newCatalogs(t), Binder: newBinder(t), Parser: parser}
		_, err := an.Bind(t.Context(), parseOne(t, c.q), c.session, testOptions)
		if string(commit.CodeOf(err)) != c.want {
			t.Errorf("%s with %+v: %v", c.q, c.session, err)
		}
	}
	_, _, err := bindText(t, "FROM x.parquet")
	var e *commit.Error
	if !errors.As(err, &e) || !strings.Contains(e.Hint, "'x.parquet'") {
		t.Errorf("%+v", e)
	}
	an := &sql.Analyzer{Catalogs: newCatalogs(t), Binder: newBinder(t), Parser: parser}
	for q, want := range map[string]bool{"FROM 'dir/x.txt'": true, "FROM t": false} {
		_, err := an.Bind(t.Context(), parseOne(t, q), plan.Session{}, testOptions)
		if !errors.As(err, &e) || strings.Contains(e.Hint, "read_csv") != want {
			t.Errorf("%s: %v", q, err)
		}
	}
}

func TestProbeErrors(t *testing.T) {
	b := newBinder(t)
	an := &sql.Analyzer{Catalogs: newCatalogs(t), Binder: b, Parser: parser}
	b.err = fmt.Errorf("wire: %w", &commit.Error{Code: "FIRN-7", Op: "read file"})
	if _, err := an.Bind(t.Context(), parseOne(t, "FROM t"), airSession, testOptions); commit.CodeOf(err) != "FIRN-7" {
		t.Errorf("got %v", err)
	}
	b.err = errors.New("broken pipe")
	if _, err := an.Bind(t.Context(), parseOne(t, "FROM t"), airSession, testOptions); commit.CodeOf(err) != commit.CodeSQLBind || !errors.Is(err, b.err) {
		t.Errorf("got %v", err)
	}
}

// TestFrames: a cached frame is one source however often it is named, and a query that
// handles each row by itself is cut by its pieces, whatever their size.
func TestFrames(t *testing.T) {
	b := newBinder(t)
	an := &sql.Analyzer{Catalogs: newCatalogs(t), Binder: b, Parser: parser}
	opts := testOptions
	opts.Frames = func(id string) (plan.Frame, []plan.Column, error) {
		if id != "f-1" {
			return plan.Frame{}, nil, &commit.Error{Code: "FIRN-9", Op: "find frame", Object: id}
		}
		return plan.Frame{ID: id, Pieces: 3, Repeats: true, Bytes: 7}, []plan.Column{{Name: "k", Type: "BIGINT"}}, nil
	}
	for text, rowWise := range map[string]bool{
		`SELECT k FROM firn_cache."f-1" WHERE k > 1`:                           true,
		`SELECT a.k FROM firn_cache."f-1" a JOIN FIRN_CACHE."f-1" b USING (k)`: false,
		`SELECT count(*) FROM firn_cache."f-1"`:                                false,
	} {
		b.rowWise = rowWise
		n, err := an.Bind(t.Context(), parseOne(t, text), plan.Session{}, opts)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		q := n.(*plan.Query)
		if len(q.Sources) != 1 || q.Sources[0].Kind != plan.SourceFrame || q.Sources[0].Frame.ID != "f-1" || q.Parallel != rowWise || len(q.Partitions) != 0 {
			t.Errorf("%s: %+v", text, q)
		}
	}
	if _, err := an.Bind(t.Context(), parseOne(t, `FROM firn_cache."f-2"`), plan.Session{}, opts); commit.CodeOf(err) != "FIRN-9" {
		t.Errorf("got %v", err)
	}
}
