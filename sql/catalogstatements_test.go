package sql_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sql"
)

func run(t testing.TB, f *fakeCatalogs, text string, session plan.Session) (sql.Result, error) {
	t.Helper()
	an := &sql.Analyzer{Catalogs: f, Parser: parser}
	return an.RunCatalogStatement(t.Context(), parseOne(t, text), session)
}

// compact drops the white space of JSON.
func compact(t testing.TB, b []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestCreateTable(t *testing.T) {
	f := newCatalogs(t)
	_, err := run(t, f, `CREATE TABLE IF NOT EXISTS lake.air.flights (
		id BIGINT NOT NULL COMMENT 'the key', at TIMESTAMP, tags STRUCT(a INT, b VARCHAR[]), m MAP(VARCHAR, STRUCT(x DOUBLE)), price DECIMAL(10, 2), day DATE, name VARCHAR
	) USING iceberg PARTITIONED BY (month(at), bucket(16, id), truncate(name, 4), day, years(day), hours(at), days(day))
	COMMENT 'all flights' TBLPROPERTIES ('write.parquet.compression-codec' = 'zstd', 'own' = 'x')`, plan.Session{})
	if err != nil {
		t.Fatal(err)
	}
	def := f.defs[len(f.defs)-1]
	// Ids as Java gives them: all columns, then what is inside them.
	schema := `{"type":"struct","schema-id":0,"fields":[
		{"id":1,"name":"id","required":true,"type":"long","doc":"the key"},
		{"id":2,"name":"at","required":false,"type":"timestamp"},
		{"id":3,"name":"tags","required":false,"type":{"type":"struct","fields":[
			{"id":8,"name":"a","required":false,"type":"int"},
			{"id":9,"name":"b","required":false,"type":{"type":"list","element-id":10,"element":"string","element-required":false}}]}},
		{"id":4,"name":"m","required":false,"type":{"type":"map","key-id":11,"key":"string","value-id":12,"value-required":false,"value":
			{"type":"struct","fields":[{"id":13,"name":"x","required":false,"type":"double"}]}}},
		{"id":5,"name":"price","required":false,"type":"decimal(10, 2)"},
		{"id":6,"name":"day","required":false,"type":"date"},
		{"id":7,"name":"name","required":false,"type":"string"}]}`
	var got, want map[string]any
	if err := json.Unmarshal(def.SchemaJSON, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(schema), &want); err != nil {
		t.Fatal(err)
	}
	delete(got, "identifier-field-ids") // optional, and empty
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
	spec := `{"spec-id":0,"fields":[
		{"source-id":2,"field-id":1000,"name":"at_month","transform":"month"},
		{"source-id":1,"field-id":1001,"name":"id_bucket","transform":"bucket[16]"},
		{"source-id":7,"field-id":1002,"name":"name_trunc","transform":"truncate[4]"},
		{"source-id":6,"field-id":1003,"name":"day","transform":"identity"},
		{"source-id":6,"field-id":1004,"name":"day_year","transform":"year"},
		{"source-id":2,"field-id":1005,"name":"at_hour","transform":"hour"},
		{"source-id":6,"field-id":1006,"name":"day_day","transform":"day"}]}`
	if got, want := compact(t, def.SpecJSON), compact(t, []byte(spec)); got != want {
		t.Errorf("spec\n got %s\nwant %s", got, want)
	}
	if !def.IfNotExists || def.Format != "iceberg" || def.Name.String() != "lake.air.flights" || def.Comment != "all flights" ||
		def.Properties["own"] != "x" || def.Properties["comment"] != "all flights" || len(def.Properties) != 3 {
		t.Errorf("%+v", def)
	}
}

func TestCreateTableErrors(t *testing.T) {
	for _, c := range []struct{ in, place, cause, hint string }{
		{"CREATE TABLE t (a INT, a INT)", "column 24", "a stands twice", ""},
		{"CREATE TABLE t (a INT, A INT)", "column 24", "differ only in case", ""},
		{"CREATE TABLE t (_pos BIGINT)", "column 17", "_pos is reserved", ""},
		{"CREATE TABLE t (a HUGEINT)", "column 19", "DECIMAL(38,0)", ""},
		{"CREATE TABLE t (a INTERVAL)", "column 19", "nearest type is VARCHAR", ""},
		{"CREATE TABLE t (a TIMESTAMP_NS)", "column 19", "TIMESTAMP", ""},
		{"CREATE TABLE t (a FOO)", "column 19", "FOO", ""},
		{"CREATE TABLE t (a DECIMAL(39, 2))", "column 19", "38", ""},
		{"CREATE TABLE t (a STRUCT(b HUGEINT))", "column 19", "HUGEINT", ""},
		{"CREATE TABLE t (a INT) PARTITIONED BY (b)", "column 40", "no column b", "Its columns are a."},
		{"CREATE TABLE t (amount INT) PARTITIONED BY (amuont)", "column 45", "no column amuont", "Did you mean amount?"},
		{"CREATE TABLE t (a INT) PARTITIONED BY (month(a))", "column 40", "month can't be taken of the column a of type int", "identity, bucket, truncate"},
		{"CREATE TABLE t (a DATE) PARTITIONED BY (hour(a))", "column 41", "hour can't be taken", "day"},
		{"CREATE TABLE t (a DOUBLE) PARTITIONED BY (bucket(4, a))", "column 43", "bucket can't be taken", ""},
		{"CREATE TABLE t (a INT[]) PARTITIONED BY (a)", "column 42", "identity can't be taken", "can't be partitioned by"},
		{"CREATE TABLE t (a STRUCT(b INT)) PARTITIONED BY (\"a.b\")", "column 50", "no column a.b", ""},
		{"CREATE TABLE t (a INT) PARTITIONED BY (a, a)", "column 43", "partition field a stands twice", ""},
		{"CREATE TABLE t (a INT, a_bucket INT) PARTITIONED BY (bucket(4, a))", "column 54", "as a column of the table is", ""},
		{"CREATE TABLE t (a " + strings.Repeat("STRUCT(a ", 100000) + "INT" + strings.Repeat(")", 100000) + ")", "column 19", "", ""},
	} {
		f := newCatalogs(t)
		before := len(f.defs)
		_, err := run(t, f, c.in, airSession)
		var e *commit.Error
		if !errors.As(err, &e) || e.Code != commit.CodeSQLDefinition || !strings.HasSuffix(e.Object, c.place) ||
			!strings.Contains(e.Cause.Error(), c.cause) || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%.100s:\n got %.500v (%+.500v)\nwant %s: %s", c.in, err, e, c.place, c.cause)
		}
		if len(f.defs) != before {
			t.Errorf("%.100s: created", c.in)
		}
	}
	f := newCatalogs(t)
	if _, err := run(t, f, "CREATE TABLE t (a INT)", plan.Session{}); commit.CodeOf(err) != commit.CodeSQLNameIncomplete {
		t.Errorf("got %v", err)
	}
	if _, err := run(t, f, "CREATE TABLE no.air.t (a INT)", airSession); commit.CodeOf(err) != commit.CodeSQLUnknownCatalog {
		t.Errorf("got %v", err)
	}
}

// TestShowCreateTableComesBack: what SHOW CREATE TABLE prints makes the table.
func TestShowCreateTableComesBack(t *testing.T) {
	for _, create := range []string{
		"CREATE TABLE lake.air.x (a BIGINT)",
		`CREATE TABLE lake."a.b"."odd ""t" ("select" VARCHAR NOT NULL COMMENT 'it''s', "a""b" DECIMAL(9,2), c STRUCT("x y" INTEGER, z VARCHAR[]), f FIXED(16), m MAP(VARCHAR, TIMESTAMPTZ))
			PARTITIONED BY ("select", bucket(8, "a""b"), truncate(3, "select")) COMMENT 'c' TBLPROPERTIES ('k''' = 'v')`,
		"CREATE TABLE lake.air.x (d DATE, t TIMESTAMP) PARTITIONED BY (year(d), month(d), day(d), hour(t))",
	} {
		f := newCatalogs(t)
		p := f.table(t, create)
		parts := []string{`"` + p.Name.Catalog + `"`, `"` + strings.Join(p.Name.Namespace, ".") + `"`, `"` + strings.ReplaceAll(p.Name.Name, `"`, `""`) + `"`}
		r, err := run(t, f, "SHOW CREATE TABLE "+strings.Join(parts, "."), plan.Session{})
		if err != nil {
			t.Fatal(err)
		}
		again := f.table(t, r.Rows[0][0].(string))
		if diff := cmp.Diff(p, again); diff != "" {
			t.Errorf("%s\n%s", r.Rows[0][0], diff)
		}
	}
}

func TestShow(t *testing.T) {
	f := newCatalogs(t)
	for _, c := range []struct {
		in      string
		session plan.Session
		want    string
	}{
		{"SHOW CATALOGS", plan.Session{}, "[catalog] [lake] [ice]"},
		{"SHOW NAMESPACES", airSession, "[catalog namespace] [lake air] [lake a.b]"},
		{"SHOW NAMESPACES IN ice", airSession, "[catalog namespace] [ice x]"},
		{"SHOW TABLES", airSession, `[catalog namespace table] [lake air odd "name] [lake air t] [lake air u]`},
		{"SHOW TABLES IN lake.air", plan.Session{}, `[catalog namespace table] [lake air odd "name] [lake air t] [lake air u]`},
		{"SHOW TABLES IN air", airSession, `[catalog namespace table] [lake air odd "name] [lake air t] [lake air u]`},
		{`SHOW TABLES IN lake.a.b`, plan.Session{}, "[catalog namespace table] [lake a.b nested]"},
		{`SHOW TABLES IN lake."a.b"`, plan.Session{}, "[catalog namespace table] [lake a.b nested]"},
		{"SHOW TABLES IN lake", plan.Session{}, `[catalog namespace table] [lake air odd "name] [lake air t] [lake air u] [lake a.b nested]`},
		{"DESCRIBE t", airSession, "[column type nullable partition comment] [id BIGINT true <nil> <nil>] [name VARCHAR true <nil> <nil>] [score DOUBLE true <nil> <nil>]"},
		{"SHOW TABLES", plan.Session{}, "!FIRN-1004"},
		{"SHOW NAMESPACES", plan.Session{}, "!FIRN-1004"},
		{"SHOW TABLES IN lake.nosuch", plan.Session{}, "!FIRN-9405"},
		{"SHOW TABLES IN nosuch.air", plan.Session{}, "!FIRN-1005"},
		{"DESCRIBE nosuch", airSession, "!FIRN-9404"},
		{"SHOW CREATE TABLE nosuch", airSession, "!FIRN-9404"},
	} {
		r, err := run(t, f, c.in, c.session)
		if code, bad := strings.CutPrefix(c.want, "!"); bad {
			if string(commit.CodeOf(err)) != code {
				t.Errorf("%s: got %v, want %s", c.in, err, code)
			}
			continue
		}
		got := fmt.Sprint(r.Columns)
		for _, row := range r.Rows {
			got += " " + fmt.Sprint(row)
		}
		if err != nil || got != c.want {
			t.Errorf("%s:\n got %s, %v\nwant %s", c.in, got, err, c.want)
		}
	}
}

func TestDescribePartitions(t *testing.T) {
	f := newCatalogs(t)
	f.table(t, "CREATE TABLE lake.air.p (id BIGINT NOT NULL COMMENT 'key', d DATE) PARTITIONED BY (bucket(4, id), d, year(d))")
	r, err := run(t, f, "DESC TABLE p", airSession)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]any{{"id", "BIGINT", false, "bucket(4, id)", "key"}, {"d", "DATE", true, "d, year(d)", nil}}
	if diff := cmp.Diff(want, r.Rows); diff != "" {
		t.Error(diff)
	}
}

func TestUse(t *testing.T) {
	for _, c := range []struct {
		in      string
		session plan.Session
		want    plan.Session
		code    string
	}{
		{"USE lake", plan.Session{}, plan.Session{Catalog: "lake"}, ""},
		{"USE ice", airSession, plan.Session{Catalog: "ice"}, ""},
		{"USE lake.air", plan.Session{}, airSession, ""},
		{"USE air", plan.Session{Catalog: "lake"}, airSession, ""},
		{"USE lake.a.b", plan.Session{}, plan.Session{Catalog: "lake", Namespace: []string{"a", "b"}}, ""},
		{"USE lake.nosuch", plan.Session{}, plan.Session{}, "FIRN-9405"},
		{"USE nosuch", plan.Session{Catalog: "lake"}, plan.Session{}, "FIRN-9405"},
		{"USE nosuch", plan.Session{}, plan.Session{}, "FIRN-1005"},
		{"USE no.such", plan.Session{}, plan.Session{}, "FIRN-1005"},
	} {
		r, err := run(t, newCatalogs(t), c.in, c.session)
		if string(commit.CodeOf(err)) != c.code {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if diff := cmp.Diff(c.want, r.Session); diff != "" {
			t.Errorf("%s: %s", c.in, diff)
		}
	}
}

func TestNamespacesAndDrops(t *testing.T) {
	f := newCatalogs(t)
	for _, in := range []string{
		"CREATE NAMESPACE lake.new COMMENT 'c'", "CREATE SCHEMA IF NOT EXISTS other", "CREATE NAMESPACE ice.a.b",
		"DROP NAMESPACE IF EXISTS lake.new", "DROP TABLE t", "DROP TABLE IF EXISTS ice.x.y",
	} {
		if r, err := run(t, f, in, airSession); err != nil || !strings.HasPrefix(in, r.Statement[:4]) || r.Rows != nil {
			t.Errorf("%s: %+v, %v", in, r, err)
		}
	}
	made := []string{"lake[new] map[comment:c] false", "lake[other] map[] true", "ice[a b] map[] false"}
	if diff := cmp.Diff(made, f.made); diff != "" {
		t.Error(diff)
	}
	dropped := []string{"lake[new] true", "lake.air.t false", "ice.x.y true"}
	if diff := cmp.Diff(dropped, f.dropped); diff != "" {
		t.Error(diff)
	}
	if _, err := run(t, f, "CREATE NAMESPACE x", plan.Session{}); commit.CodeOf(err) != commit.CodeSQLNameIncomplete {
		t.Errorf("got %v", err)
	}
}

func TestWrongEntryPoint(t *testing.T) {
	f := newCatalogs(t)
	if _, err := run(t, f, "SELECT 1", airSession); err == nil {
		t.Error("a SELECT ran as a catalog statement")
	}
	an := &sql.Analyzer{Catalogs: f, Binder: newBinder(t), Parser: parser}
	if _, err := an.Bind(t.Context(), parseOne(t, "SHOW TABLES"), airSession, testOptions); err == nil {
		t.Error("SHOW TABLES was bound")
	}
	for _, st := range []sql.Statement{{}, {Body: &sql.Use{}}, {Body: &sql.Insert{}}} {
		if _, err := an.Bind(t.Context(), st, airSession, testOptions); err == nil {
			t.Error("a statement that wasn't parsed was bound")
		}
		if _, err := an.RunCatalogStatement(t.Context(), st, airSession); err == nil {
			t.Error("a statement that wasn't parsed was run")
		}
	}
	if n, err := an.Bind(t.Context(), parseOne(t, "EXPLAIN SELECT id FROM t"), airSession, testOptions); err != nil || n.Kind() != plan.KindQuery {
		t.Errorf("EXPLAIN: %v, %v", n, err)
	}
}
