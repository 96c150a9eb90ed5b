package sql_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sql"
)

// insertCatalogs have tables for all that INSERT decides by.
func insertCatalogs(t testing.TB) *fakeCatalogs {
	f := newCatalogs(t)
	f.table(t, "CREATE TABLE lake.air.req (id BIGINT NOT NULL, name VARCHAR)")
	f.table(t, "CREATE TABLE lake.air.wide (i INT, l BIGINT, d DOUBLE, f FLOAT, n DECIMAL(10,2), s VARCHAR, day DATE, ts TIMESTAMP, tz TIMESTAMPTZ, u UUID, b BOOLEAN)")
	f.table(t, "CREATE TABLE lake.air.nest (l INT[], s STRUCT(a BIGINT, b VARCHAR), d DOUBLE[])")
	f.table(t, "CREATE TABLE lake.air.maps (m MAP(DATE, DECIMAL(4,1)))")
	f.table(t, "CREATE TABLE lake.air.part (id BIGINT, day DATE) PARTITIONED BY (month(day))")
	f.table(t, `CREATE TABLE lake.air.odd (id BIGINT, "na""me" VARCHAR, "select" BIGINT)`)
	return f
}

func bindInsert(t testing.TB, f *fakeCatalogs, b *fakeBinder, text string, opts sql.BindOptions) (*plan.Commit, error) {
	t.Helper()
	an := &sql.Analyzer{Catalogs: f, Binder: b, Parser: parser}
	n, err := an.Bind(t.Context(), parseOne(t, text), airSession, opts)
	if err != nil {
		return nil, err
	}
	return n.(*plan.Commit), nil
}

// queryOf finds the query below a commit.
func queryOf(n plan.Node) *plan.Query {
	for {
		if q, ok := n.(*plan.Query); ok {
			return q
		}
		n = n.Inputs()[0]
	}
}

func TestInsertSQL(t *testing.T) {
	f := insertCatalogs(t)
	for _, c := range []struct{ in, want string }{
		{
			"INSERT INTO t VALUES (1, 'a', 1.5)",
			`SELECT CAST(q.c1 AS BIGINT) AS "id", CAST(q.c2 AS VARCHAR) AS "name", CAST(q.c3 AS DOUBLE) AS "score" FROM (VALUES (1, 'a', 1.5)) AS q(c1, c2, c3)`,
		},
		{
			"INSERT INTO t VALUES (1, 'a', 1.5) -- a comment",
			`SELECT CAST(q.c1 AS BIGINT) AS "id", CAST(q.c2 AS VARCHAR) AS "name", CAST(q.c3 AS DOUBLE) AS "score" FROM (VALUES (1, 'a', 1.5)) AS q(c1, c2, c3)`,
		},
		{
			"INSERT INTO t (score, id) SELECT c, a FROM 'x.parquet'",
			`SELECT CAST(q.c2 AS BIGINT) AS "id", CAST(NULL AS VARCHAR) AS "name", CAST(q.c1 AS DOUBLE) AS "score" FROM (SELECT c, a FROM firn_s0 AS x) AS q(c1, c2)`,
		},
		{
			"INSERT INTO t BY NAME SELECT c AS SCORE, a AS id FROM 'x.parquet'",
			`SELECT CAST(q.c2 AS BIGINT) AS "id", CAST(NULL AS VARCHAR) AS "name", CAST(q.c1 AS DOUBLE) AS "score" FROM (SELECT c AS SCORE, a AS id FROM firn_s0 AS x) AS q(c1, c2)`,
		},
		{
			"INSERT INTO t SELECT a, b, c FROM 'x.parquet' ORDER BY c DESC LIMIT 3",
			`SELECT CAST(q.c1 AS BIGINT) AS "id", CAST(q.c2 AS VARCHAR) AS "name", CAST(q.c3 AS DOUBLE) AS "score" FROM (SELECT a, b, c FROM firn_s0 AS x ORDER BY c DESC LIMIT 3) AS q(c1, c2, c3)`,
		},
		{
			"INSERT INTO u SELECT a, NULL FROM 'x.parquet'",
			`SELECT CAST(q.c1 AS BIGINT) AS "id", CAST(q.c2 AS DATE) AS "day" FROM (SELECT a, NULL FROM firn_s0 AS x) AS q(c1, c2)`,
		},
		{
			`INSERT INTO odd ("SELECT", id) SELECT a, a FROM 'x.parquet'`,
			`SELECT CAST(q.c2 AS BIGINT) AS "id", CAST(NULL AS VARCHAR) AS "na""me", CAST(q.c1 AS BIGINT) AS "select" FROM (SELECT a, a FROM firn_s0 AS x) AS q(c1, c2)`,
		},
	} {
		n, err := bindInsert(t, f, newBinder(t), c.in, testOptions)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if got := queryOf(n).SQL; got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.in, got, c.want)
		}
	}
}

// TestInsertRuns: what is written for DuckDB runs there, with the values and
// types of the table.
func TestInsertRuns(t *testing.T) {
	f := insertCatalogs(t)
	in, err := duckdb.Open(t.Context(), duckdb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for _, c := range []struct{ in, want, types string }{
		{
			"INSERT INTO wide VALUES (1, 2, 3, 4.5, 1.50, 'x', '2020-02-29', '2020-01-01 10:00', '2020-01-01 10:00:00+02', '00000000-0000-0000-0000-000000000001', true), (-1, NULL, -2.5, 1e3, -7, NULL, NULL, NULL, NULL, NULL, NULL)",
			"1|2|3.0|4.5|1.50|x|2020-02-29|2020-01-01 10:00:00|2020-01-01 08:00:00+00|00000000-0000-0000-0000-000000000001|true\n-1||-2.5|1000.0|-7.00||||||",
			"INTEGER BIGINT DOUBLE FLOAT DECIMAL(10,2) VARCHAR DATE TIMESTAMP TIMESTAMP WITH TIME ZONE UUID BOOLEAN",
		},
		{
			"INSERT INTO nest VALUES ([1, 2], {'a': 1, 'b': 'x'}, [1.5, 2]), ([], NULL, [])",
			"[1, 2]|{'a': 1, 'b': x}|[1.5, 2.0]\n[]||[]", `INTEGER[] STRUCT(a BIGINT, b VARCHAR) DOUBLE[]`,
		},
		{
			"INSERT INTO maps VALUES (MAP {'2020-01-01': 1, '2020-01-02': NULL}), (MAP {}), (MAP(['2020-01-03'], [2.50])), (NULL)",
			"{2020-01-01=1.0, 2020-01-02=NULL}\n{}\n{2020-01-03=2.5}\n", "MAP(DATE, DECIMAL(4,1))",
		},
		{
			"INSERT INTO u SELECT i, DATE '2020-01-01' + i::INT FROM range(3) r(i) ORDER BY i DESC LIMIT 2",
			"2|2020-01-03\n1|2020-01-02", "BIGINT DATE",
		},
		{"INSERT INTO u VALUES (1, '2020-01-01'), (2, today()), (3, NULL)", "1|2020-01-01\n2|2026-03-01\n3|", "BIGINT DATE"},
		{"INSERT INTO u (day, id) VALUES (today() + 1, '12'), ('2020-01-01', 2 + 3)", "12|2026-03-02\n5|2020-01-01", "BIGINT DATE"},
		{"INSERT INTO t VALUES (1, 'a', 1), (2, lower('B'), '2.5')", "1|a|1.0\n2|b|2.5", "BIGINT VARCHAR DOUBLE"},
		{"INSERT INTO wide (n, u) VALUES ('2.55', uuid()), (1, '00000000-0000-0000-0000-000000000002')", "", ""},
		{
			"INSERT INTO wide (i) VALUES (1), ('2'), (-'3'::INT)", "1||||||||||\n2||||||||||\n-3||||||||||",
			"INTEGER BIGINT DOUBLE FLOAT DECIMAL(10,2) VARCHAR DATE TIMESTAMP TIMESTAMP WITH TIME ZONE UUID BOOLEAN",
		},
		{"INSERT INTO u SELECT 7, '2020-01-01' UNION ALL SELECT 8, NULL", "7|2020-01-01\n8|", "BIGINT DATE"},
	} {
		n, err := bindInsert(t, f, newBinder(t), c.in, testOptions)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		q := queryOf(n)
		var text, types []string
		for _, col := range q.Columns {
			text = append(text, "coalesce(CAST("+duckdb.Ident(col.Name)+" AS VARCHAR), '')")
		}
		rows, err := in.Strings(t.Context(), "SELECT "+strings.Join(text, ", ")+" FROM ("+q.SQL+")")
		if err != nil {
			t.Errorf("%s: %v", q.SQL, err)
			continue
		}
		if c.want == "" { // a uuid is another each time
			if rows[0][4] != "2.55" || rows[1][4] != "1.00" || rows[1][9] != "00000000-0000-0000-0000-000000000002" {
				t.Errorf("%s: %v", c.in, rows)
			}
			continue
		}
		var lines []string
		for _, r := range rows {
			lines = append(lines, strings.Join(r, "|"))
		}
		if got := strings.Join(lines, "\n"); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.in, got, c.want)
		}
		cols, err := in.Describe(t.Context(), q.SQL)
		for _, col := range cols {
			types = append(types, col.Type)
		}
		if err != nil || strings.Join(types, " ") != c.types {
			t.Errorf("%s\n got %s, %v\nwant %s", c.in, strings.Join(types, " "), err, c.types)
		}
	}
}

func TestInsertErrors(t *testing.T) {
	f := insertCatalogs(t)
	for _, c := range []struct {
		in    string
		code  commit.Code
		cause string
		hint  string
	}{
		{"INSERT INTO t VALUES (1, 'a')", commit.CodeSQLColumns, "gives 2 columns, the table lake.air.t has 3", "BY NAME"},
		{"INSERT INTO t VALUES (1, 'a', 2, 3)", commit.CodeSQLColumns, "gives 4 columns", ""},
		{"INSERT INTO t (id) VALUES (1, 2)", commit.CodeSQLColumns, "gives 2 columns, the list of columns has 1", ""},
		{"INSERT INTO t (id, id) VALUES (1, 2)", commit.CodeSQLColumns, "id is given twice", ""},
		{"INSERT INTO t (id, ID) VALUES (1, 2)", commit.CodeSQLColumns, "id is given twice", ""},
		{"INSERT INTO t (idd) VALUES (1)", commit.CodeSQLUnknownColumn, "no column idd", "Did you mean id?"},
		{"INSERT INTO t (zzz) VALUES (1)", commit.CodeSQLUnknownColumn, "no column zzz", "Its columns are id, name, score."},
		{"INSERT INTO t BY NAME SELECT 1 AS id, 2 AS scroe", commit.CodeSQLUnknownColumn, "no column scroe", "Did you mean score?"},
		{"INSERT INTO t BY NAME SELECT 1 AS id, 2 AS id", commit.CodeSQLColumns, "id is given twice", ""},
		{"INSERT INTO req (name) VALUES ('x')", commit.CodeSQLRequiredColumn, "id is NOT NULL", "BIGINT"},
		{"INSERT INTO req BY NAME SELECT 'x' AS name", commit.CodeSQLRequiredColumn, "id is NOT NULL", ""},
		{"INSERT INTO u SELECT a, b FROM 'x.parquet'", commit.CodeSQLTypeMismatch, "column 2 (b) is VARCHAR and the table's column day is DATE", "CAST(b AS DATE)"},
		{"INSERT INTO wide (s) SELECT 5", commit.CodeSQLTypeMismatch, "column 1 (5) is INTEGER", "CAST(5 AS VARCHAR)"},
		{"INSERT INTO wide (i) SELECT a FROM 'x.parquet'", commit.CodeSQLTypeMismatch, "(a) is BIGINT and the table's column i is INTEGER", "CAST(a AS INTEGER)"},
		{"INSERT INTO wide (l) SELECT sum(a) FROM 'x.parquet'", commit.CodeSQLTypeMismatch, "HUGEINT", "CAST(sum(a) AS BIGINT)"},
		{"INSERT INTO wide (n) VALUES (1.555)", commit.CodeSQLTypeMismatch, "DECIMAL(10,2)", ""},
		{"INSERT INTO wide (i) VALUES (1.5)", commit.CodeSQLTypeMismatch, "INTEGER", ""},
		{"INSERT INTO wide (i) VALUES (1), (1 + 1.5)", commit.CodeSQLTypeMismatch, "INTEGER", ""},
		{"INSERT INTO wide (day) VALUES (lower('2020-01-01'))", commit.CodeSQLTypeMismatch, "DATE", ""},
		{"INSERT INTO wide (day) VALUES (5)", commit.CodeSQLTypeMismatch, "DATE", ""},
		{"INSERT INTO wide (s) VALUES (5)", commit.CodeSQLTypeMismatch, "VARCHAR", ""},
		{"INSERT INTO wide (i) VALUES (-'1')", commit.CodeSQLBind, "-(STRING_LITERAL)", ""},
		{"INSERT INTO wide (ts) SELECT now()", commit.CodeSQLTypeMismatch, "TIMESTAMP", "AT TIME ZONE"},
		{"INSERT INTO wide (ts) SELECT TIMESTAMP_NS '2020-01-01'", commit.CodeSQLTypeMismatch, "TIMESTAMP_NS", "CAST("},
		{"INSERT INTO nest (l) VALUES ('[1]')", commit.CodeSQLTypeMismatch, "INTEGER[]", ""},
		{"INSERT INTO nest (s) VALUES ({'a': 1, 'c': 'x'})", commit.CodeSQLTypeMismatch, "STRUCT", ""},
		{"INSERT INTO maps VALUES (MAP {'2020-01-01': 1.55})", commit.CodeSQLTypeMismatch, "MAP", ""},
		{"INSERT INTO maps VALUES (MAP {lower('2020-01-01'): 1})", commit.CodeSQLTypeMismatch, "MAP", ""},
		{"INSERT INTO maps VALUES (MAP(range(2), [1, 2]))", commit.CodeSQLTypeMismatch, "MAP", ""},
		{"INSERT INTO t SELECT * FROM 'x.parquet' JOIN", commit.CodeSQLSyntax, "syntax error", ""},
		{"INSERT INTO nosuch SELECT 1", "FIRN-9404", "", ""},
		{"INSERT INTO lakee.air.t SELECT 1", commit.CodeSQLUnknownCatalog, "no such catalog", "Did you mean lake?"},
	} {
		_, err := bindInsert(t, f, newBinder(t), c.in, testOptions)
		var e *commit.Error
		if !errors.As(err, &e) || e.Code != c.code || e.Cause == nil || !strings.Contains(e.Cause.Error(), c.cause) || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%s:\n got %v (%+v)\nwant %s: %s (%s)", c.in, err, e, c.code, c.cause, c.hint)
		}
	}
	_, err := bindInsert(t, f, newBinder(t), "INSERT INTO u\nSELECT id, NULL FROM nosuch", testOptions)
	var e *commit.Error
	if !errors.As(err, &e) || !strings.HasSuffix(e.Object, "at line 2, column 22") || !errors.Is(err, commit.ErrTableNotFound) {
		t.Errorf("got %v", err)
	}
	for _, id := range []string{"", "a/b", `a\b`} {
		opts := testOptions
		opts.JobID = id
		if _, err := bindInsert(t, f, newBinder(t), "INSERT INTO u SELECT 1, NULL", opts); err == nil {
			t.Errorf("the job id %q was taken", id)
		}
	}
}

func TestInsertTargetsRefused(t *testing.T) {
	for _, c := range []struct {
		change func(*plan.Pinned)
		want   string
	}{
		{func(p *plan.Pinned) { p.FormatVersion = 3 }, "format version 3"},
		{func(p *plan.Pinned) { p.FormatVersion = 0 }, "format version 0"},
		{func(p *plan.Pinned) { p.Format = "hudi" }, "hudi"},
		{func(p *plan.Pinned) { p.Format, p.Unwritable = "delta", "a CHECK constraint" }, "a CHECK constraint"},
		{func(p *plan.Pinned) { p.Format, p.SchemaJSON = "delta", []byte(`{`) }, "schema"},
		{func(p *plan.Pinned) {
			p.Format, p.SchemaJSON = "delta", []byte(`{"type":"struct","fields":[{"name":"v","type":"variant","nullable":true,"metadata":{}}]}`)
			p.SpecJSON = []byte("[]")
		}, "column v"},
		{func(p *plan.Pinned) { p.Properties = map[string]string{"write.format.default": "orc"} }, "orc"},
		{func(p *plan.Pinned) { p.Properties = map[string]string{"write.target-file-size-bytes": "12MB"} }, "12MB"},
		{func(p *plan.Pinned) { p.Properties = map[string]string{"write.target-file-size-bytes": "0"} }, "0"},
		{func(p *plan.Pinned) { p.Properties = map[string]string{"write.distribution-mode": "sorted"} }, "sorted"},
		{func(p *plan.Pinned) { p.SchemaJSON = []byte(`{`) }, "schema"},
		{func(p *plan.Pinned) {
			p.SchemaJSON = []byte(`{"type":"struct","schema-id":0,"fields":[{"id":1,"name":"v","type":"timestamp_ns","required":false}]}`)
		}, "column v"},
		{func(p *plan.Pinned) {
			p.SpecJSON = []byte(`{"spec-id":0,"fields":[{"source-id":99,"field-id":1000,"name":"x","transform":"identity"}]}`)
		}, "partition spec"},
	} {
		f := insertCatalogs(t)
		p := f.tables["lake.air.u"]
		c.change(&p)
		f.tables["lake.air.u"] = p
		b := newBinder(t)
		_, err := bindInsert(t, f, b, "INSERT INTO u SELECT 1, NULL", testOptions)
		if commit.CodeOf(err) != commit.CodeSQLTargetUnsupported || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "lake.air.u") {
			t.Errorf("%s: got %v", c.want, err)
		}
		if b.last.SQL != "" {
			t.Errorf("%s: probed before it was refused", c.want)
		}
	}
}

func TestInsertPlan(t *testing.T) {
	big := []plan.SourceFile{parquetFile("a", 50, 50)}
	small := []plan.SourceFile{{Path: "s.parquet", Size: 1000}}
	var many strings.Builder
	for range 10001 {
		many.WriteString(", (1, NULL)")
	}
	for _, c := range []struct {
		in         string
		mode       string
		rowWise    bool
		exchange   plan.ExchangeKind
		partitions int
	}{
		{"INSERT INTO u SELECT a, NULL FROM 'x.parquet'", "", true, "", 0},
		{"INSERT INTO u SELECT a, NULL FROM 'x.parquet'", "", false, plan.ExchangeRoundRobin, 2},
		{"INSERT INTO u SELECT a, NULL FROM 'x.parquet'", "hash", true, "", 0},
		{"INSERT INTO u VALUES (1, NULL)", "", false, "", 0},
		{"INSERT INTO part SELECT a, NULL FROM 'x.parquet'", "", true, plan.ExchangeHash, 8},
		{"INSERT INTO part SELECT a, NULL FROM 'x.parquet'", "range", true, plan.ExchangeHash, 8},
		{"INSERT INTO part SELECT a, NULL FROM 'x.parquet'", "", false, plan.ExchangeHash, 8},
		{"INSERT INTO part SELECT a, NULL FROM 'x.parquet'", "none", true, "", 0},
		{"INSERT INTO part SELECT a, NULL FROM 'x.parquet'", "none", false, "", 0},
		// Few rows: one writer.
		{"INSERT INTO part VALUES (1, NULL)", "", false, "", 0},
		{"INSERT INTO part VALUES (1, NULL)", "hash", false, "", 0},
		{"INSERT INTO part VALUES (1, NULL)" + many.String()[:24], "hash", false, "", 0},
		{"INSERT INTO part VALUES " + many.String()[2:], "hash", false, plan.ExchangeHash, 2},
		{"INSERT INTO part SELECT a, NULL FROM 'dir/x.parquet'", "", true, "", 0},
		{"INSERT INTO part SELECT a, NULL FROM 'dir/x.parquet'", "", false, plan.ExchangeHash, 2},
		{"INSERT INTO part SELECT l.a, NULL FROM 'dir/x.parquet' l, 'dir/x.parquet' r", "", false, plan.ExchangeHash, 2},
		{"INSERT INTO part SELECT i, NULL FROM range(100000000) t(i)", "", false, plan.ExchangeHash, 2},
		{"INSERT INTO part SELECT a, NULL FROM (VALUES (1)) v(a), range(100000000)", "", false, plan.ExchangeHash, 2},
		{"INSERT INTO part SELECT unnest(range(100000000)), NULL FROM (VALUES (1)) v(a)", "", false, plan.ExchangeHash, 2},
	} {
		f := insertCatalogs(t)
		for name, p := range f.tables {
			p.Properties = map[string]string{"write.distribution-mode": c.mode}
			f.tables[name] = p
		}
		b := newBinder(t)
		b.rowWise, b.sizes["x.parquet"], b.sizes["dir/x.parquet"] = c.rowWise, big, small
		n, err := bindInsert(t, f, b, c.in, testOptions)
		if err != nil {
			t.Fatal(err)
		}
		w := n.Input.(*plan.Write)
		x, ok := w.Input.(*plan.Exchange)
		if ok != (c.exchange != "") || ok && (x.How != c.exchange || x.Partitions != c.partitions) {
			t.Errorf("%.100s, mode %q, row-wise %t: got %+v", c.in, c.mode, c.rowWise, w.Input)
		}
		if ok && x.How == plan.ExchangeHash && (x.Layout == nil || x.Layout.Format != "iceberg" || len(x.Layout.SpecJSON) == 0) {
			t.Errorf("%s: no layout to hash by", c.in)
		}
		if c.mode == "range" && !strings.Contains(queryOf(n).Why, "range") {
			t.Errorf("nothing says that range isn't range: %s", queryOf(n).Why)
		}
		// The plan travels.
		raw, err := plan.Encode(n)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Decode(raw); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInsertContext(t *testing.T) {
	f := insertCatalogs(t)
	p := f.tables["lake.air.req"]
	p.Properties = map[string]string{"write.target-file-size-bytes": "1048576", "a": "b"}
	p.Storage = map[string]string{"s3.region": "r"}
	p.SortOrderJSON = []byte(`{"order-id":0,"fields":[]}`)
	f.tables["lake.air.req"] = p
	opts := testOptions
	opts.RejectLimit = 7
	n, err := bindInsert(t, f, newBinder(t), "INSERT INTO req VALUES (1, 'x')", opts)
	if err != nil {
		t.Fatal(err)
	}
	want := plan.WriteContext{
		Table: p.Name, TableUUID: "u-req", FormatVersion: 2, Layout: plan.Layout{Format: "iceberg", SchemaJSON: p.SchemaJSON, SpecJSON: p.SpecJSON},
		SortOrderJSON: p.SortOrderJSON, Properties: p.Properties, Prefix: "file:///w/req/data/j-1/", TargetFileSize: 1 << 20, Storage: p.Storage,
	}
	if diff := cmp.Diff(want, n.Input.(*plan.Write).Context); diff != "" {
		t.Error(diff)
	}
	if n.Prefix != want.Prefix || n.Branch != "main" || n.Operation != commit.OperationAppend || n.Target.UUID != "u-req" {
		t.Errorf("%+v", n)
	}
	q := queryOf(n)
	if q.RejectLimit != 7 {
		t.Error("the reject limit is lost")
	}
	columns := []plan.Column{{Name: "id", Type: "BIGINT", FieldID: 1, Required: true}, {Name: "name", Type: "VARCHAR", FieldID: 2}}
	if diff := cmp.Diff(columns, q.Columns); diff != "" {
		t.Error(diff)
	}
	p.Properties = map[string]string{"write.object-storage.enabled": "true"}
	f.tables["lake.air.req"] = p
	n, err = bindInsert(t, f, newBinder(t), "INSERT INTO req VALUES (1, 'x')", opts)
	if err != nil {
		t.Fatal(err)
	}
	hash, ok := strings.CutSuffix(strings.TrimPrefix(n.Prefix, "file:///w/req/data/"), "/j-1/")
	if !ok || len(hash) != 8 || strings.Contains(hash, "/") || n.Input.(*plan.Write).Context.TargetFileSize != 512<<20 {
		t.Errorf("%s", n.Prefix)
	}
}

// TestBindKeepsContextErrors: a cancelled bind isn't the query's fault.
func TestBindKeepsContextErrors(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	an := &sql.Analyzer{Catalogs: newCatalogs(t), Binder: newBinder(t), Parser: parser}
	if _, err := an.Bind(ctx, parseOne(t, "FROM t"), airSession, testOptions); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
