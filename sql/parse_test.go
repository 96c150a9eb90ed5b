package sql_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/sql"
)

// ignorePlaces compares statements without the places in the script.
var ignorePlaces = cmp.Options{
	cmpopts.IgnoreFields(sql.Ident{}, "Offset"), cmpopts.IgnoreFields(sql.ColumnDef{}, "Offset"),
	cmpopts.IgnoreFields(sql.PartitionTerm{}, "Offset"), cmpopts.IgnoreFields(sql.QueryText{}, "Offset"),
	cmpopts.IgnoreUnexported(sql.Statement{}, sql.QueryText{}), cmpopts.EquateEmpty(),
	cmpopts.IgnoreFields(sql.Statement{}, "Offset"),
}

func name(parts ...string) sql.Name {
	var n sql.Name
	for _, p := range parts {
		n = append(n, sql.Ident{Name: p})
	}
	return n
}

func query(text string) sql.QueryText { return sql.QueryText{Text: text} }

func column(name, typ string) sql.ColumnDef {
	return sql.ColumnDef{Name: sql.Ident{Name: name}, Type: typ}
}

func term(transform string, param int, column string) sql.PartitionTerm {
	return sql.PartitionTerm{Transform: transform, Param: param, Column: sql.Ident{Name: column}}
}

func TestParse(t *testing.T) {
	abc := []sql.ColumnDef{column("a", "INT")}
	for _, c := range []struct {
		in   string
		want sql.Body
	}{
		// namespaces
		{"CREATE NAMESPACE lake.air", &sql.CreateNamespace{Name: name("lake", "air")}},
		{"create schema if not exists lake.air", &sql.CreateNamespace{Name: name("lake", "air"), IfNotExists: true}},
		{"CREATE DATABASE x COMMENT 'it''s' WITH PROPERTIES ('a' = 'b', 'c'='d')", &sql.CreateNamespace{
			Name:       name("x"),
			Properties: []sql.Property{{Key: "comment", Value: "it's"}, {Key: "a", Value: "b"}, {Key: "c", Value: "d"}},
		}},
		{"DROP NAMESPACE lake.air", &sql.DropNamespace{Name: name("lake", "air")}},
		{"DROP SCHEMA IF EXISTS `a b`.\"c\"\"d\" RESTRICT", &sql.DropNamespace{Name: name("a b", `c"d`), IfExists: true}},
		{"DROP DATABASE x", &sql.DropNamespace{Name: name("x")}},
		// tables
		{"CREATE TABLE t (a INT)", &sql.CreateTable{Name: name("t"), Columns: abc}},
		{"CREATE TABLE IF NOT EXISTS lake.air.t(a INT)", &sql.CreateTable{Name: name("lake", "air", "t"), IfNotExists: true, Columns: abc}},
		{"CREATE TABLE a.b.c.d (a INT)", &sql.CreateTable{Name: name("a", "b", "c", "d"), Columns: abc}},
		{"CREATE TABLE t (a INT NOT NULL COMMENT 'x', b DECIMAL(10, 2) COMMENT 'y' NOT NULL, c VARCHAR NULL)", &sql.CreateTable{
			Name: name("t"),
			Columns: []sql.ColumnDef{
				{Name: sql.Ident{Name: "a"}, Type: "INT", NotNull: true, Comment: "x"},
				{Name: sql.Ident{Name: "b"}, Type: "DECIMAL(10, 2)", NotNull: true, Comment: "y"},
				column("c", "VARCHAR"),
			},
		}},
		{
			"CREATE TABLE t (a STRUCT(x INT, y VARCHAR[]), b MAP(VARCHAR, INT), c TIMESTAMP WITH TIME ZONE, d INT[3], e struct<p: int, q: array<string>>)",
			&sql.CreateTable{Name: name("t"), Columns: []sql.ColumnDef{
				column("a", "STRUCT(x INT, y VARCHAR[])"), column("b", "MAP(VARCHAR, INT)"), column("c", "TIMESTAMP WITH TIME ZONE"),
				column("d", "INT[3]"), column("e", "struct<p: int, q: array<string>>"),
			}},
		},
		{"CREATE TABLE t (\"select\" INT, `from where` INT, größe INT, \"a\"\"b\" INT, 氷 INT)", &sql.CreateTable{Name: name("t"), Columns: []sql.ColumnDef{
			column("select", "INT"), column("from where", "INT"), column("größe", "INT"), column(`a"b`, "INT"), column("氷", "INT"),
		}}},
		{"CREATE TABLE t (date DATE, timestamp TIMESTAMP, key INT, comment VARCHAR COMMENT 'c')", &sql.CreateTable{Name: name("t"), Columns: []sql.ColumnDef{
			column("date", "DATE"), column("timestamp", "TIMESTAMP"), column("key", "INT"),
			{Name: sql.Ident{Name: "comment"}, Type: "VARCHAR", Comment: "c"},
		}}},
		{"CREATE TABLE t (a INT) USING iceberg", &sql.CreateTable{Name: name("t"), Format: "iceberg", Columns: abc}},
		{"CREATE TABLE t (a INT) using ICEBERG comment 'x' TBLPROPERTIES ('k'='v')", &sql.CreateTable{
			Name: name("t"), Format: "iceberg", Columns: abc, Comment: "x",
			Properties: []sql.Property{{Key: "k", Value: "v"}},
		}},
		{"CREATE TABLE t (a INT) USING delta LOCATION '/x'", &sql.CreateTable{
			Name: name("t"), Format: "delta", Columns: abc, Location: sql.Ident{Name: "/x"},
		}},
		{"CREATE TABLE t USING delta LOCATION '/x'", &sql.CreateTable{Name: name("t"), Format: "delta", Location: sql.Ident{Name: "/x"}}},
		{"DESCRIBE HISTORY t", &sql.DescribeHistory{Name: name("t")}},
		{"DESCRIBE history", &sql.Describe{Name: name("history")}},
		{"CREATE TABLE t (a INT) TBLPROPERTIES ('k'='v') PARTITIONED BY (a)", &sql.CreateTable{
			Name: name("t"), Columns: abc,
			Properties: []sql.Property{{Key: "k", Value: "v"}}, Partitions: []sql.PartitionTerm{term("identity", 0, "a")},
		}},
		{
			"CREATE TABLE t (a INT) PARTITIONED BY (a, identity(a), bucket(16, a), bucket(a, 16), truncate(10, a), Truncate(a, 10), year(a), years(a), month(a), MONTHS(a), day(a), days(a), hour(a), hours(a))",
			&sql.CreateTable{Name: name("t"), Columns: abc, Partitions: []sql.PartitionTerm{
				term("identity", 0, "a"), term("identity", 0, "a"), term("bucket", 16, "a"), term("bucket", 16, "a"), term("truncate", 10, "a"), term("truncate", 10, "a"),
				term("year", 0, "a"), term("year", 0, "a"), term("month", 0, "a"), term("month", 0, "a"), term("day", 0, "a"), term("day", 0, "a"),
				term("hour", 0, "a"), term("hour", 0, "a"),
			}},
		},
		{"CREATE TABLE t (day INT) PARTITIONED BY (day, bucket(4, `day`))", &sql.CreateTable{
			Name: name("t"), Columns: []sql.ColumnDef{column("day", "INT")},
			Partitions: []sql.PartitionTerm{term("identity", 0, "day"), term("bucket", 4, "day")},
		}},
		{"DROP TABLE lake.air.t", &sql.DropTable{Name: name("lake", "air", "t")}},
		{"DROP TABLE IF EXISTS t", &sql.DropTable{Name: name("t"), IfExists: true}},
		// looking
		{"SHOW CATALOGS", &sql.Show{What: "catalogs"}},
		{"SHOW NAMESPACES", &sql.Show{What: "namespaces"}},
		{"show schemas in lake", &sql.Show{What: "namespaces", In: name("lake")}},
		{"SHOW DATABASES", &sql.Show{What: "namespaces"}},
		{"SHOW TABLES", &sql.Show{What: "tables"}},
		{"SHOW TABLES FROM lake.air", &sql.Show{What: "tables", In: name("lake", "air")}},
		{"SHOW CREATE TABLE t", &sql.ShowCreateTable{Name: name("t")}},
		{"DESCRIBE t", &sql.Describe{Name: name("t")}},
		{"DESC TABLE lake.air.t", &sql.Describe{Name: name("lake", "air", "t")}},
		{"DESCRIBE `table`", &sql.Describe{Name: name("table")}},
		{"DESCRIBE \"a.csv\".t", &sql.Describe{Name: name("a.csv", "t")}},
		{"DESCRIBE SELECT 1", &sql.Select{Query: query("DESCRIBE SELECT 1")}},
		{"DESCRIBE 'x.parquet'", &sql.Select{Query: query("DESCRIBE 'x.parquet'")}},
		{"DESCRIBE \"x.csv\"", &sql.Select{Query: query("DESCRIBE \"x.csv\"")}},
		{"USE lake", &sql.Use{Name: name("lake")}},
		{"USE lake.air", &sql.Use{Name: name("lake", "air")}},
		// queries
		{"SELECT 1", &sql.Select{Query: query("SELECT 1")}},
		{"select 1", &sql.Select{Query: query("select 1")}},
		{"(SELECT 1)", &sql.Select{Query: query("(SELECT 1)")}},
		{"WITH a AS (SELECT 1) SELECT * FROM a", &sql.Select{Query: query("WITH a AS (SELECT 1) SELECT * FROM a")}},
		{"VALUES (1), (2)", &sql.Select{Query: query("VALUES (1), (2)")}},
		{"FROM t", &sql.Select{Query: query("FROM t")}},
		{"TABLE t", &sql.Select{Query: query("TABLE t")}},
		{"SUMMARIZE t", &sql.Select{Query: query("SUMMARIZE t")}},
		{"UNPIVOT t ON a", &sql.Select{Query: query("UNPIVOT t ON a")}},
		{"WITH \"insert\" AS (SELECT 1) SELECT * FROM \"insert\"", &sql.Select{Query: query("WITH \"insert\" AS (SELECT 1) SELECT * FROM \"insert\"")}},
		// what is inside strings, names and comments
		{"SELECT ';' || \";\" || $$;$$ || $x$;$$;$x$ || E'\\';' -- ;", &sql.Select{Query: query("SELECT ';' || \";\" || $$;$$ || $x$;$$;$x$ || E'\\';'")}},
		{"SELECT 1 /* ; /* ; */ ; */ + 1", &sql.Select{Query: query("SELECT 1 /* ; /* ; */ ; */ + 1")}},
		{"/* a */ -- b\n SELECT 1 -- ;", &sql.Select{Query: query("SELECT 1")}},
		{"SELECT 'it''s; fine'", &sql.Select{Query: query("SELECT 'it''s; fine'")}},
		{"SELECT 'a\\'", &sql.Select{Query: query("SELECT 'a\\'")}},
		{"SELECT `a`, `b c` FROM `t`", &sql.Select{Query: query("SELECT \"a\", \"b c\" FROM \"t\"")}},
		{"SELECT `a``b`, `c\"d`", &sql.Select{Query: query("SELECT \"a`b\" , \"c\"\"d\"")}},
		{"SELECT '`a`', \"`b`\" -- `c`", &sql.Select{Query: query("SELECT '`a`', \"`b`\"")}},
		{"SELECT\u00a01", &sql.Select{Query: query("SELECT  1")}},
		{"SELECT '\u00a0'", &sql.Select{Query: query("SELECT '\u00a0'")}},
		{"SELECT 1e-3, .5, 1_000, 0xFF--x", &sql.Select{Query: query("SELECT 1e-3, .5, 1_000, 0xFF")}},
		{"SELECT $1", &sql.Select{Query: query("SELECT $1")}},
		{"SELECT a$b$c FROM t", &sql.Select{Query: query("SELECT a$b$c FROM t")}},
		// insert
		{"INSERT INTO t SELECT 1", &sql.Insert{Target: name("t"), Query: query("SELECT 1")}},
		{"INSERT INTO TABLE lake.air.t VALUES (1)", &sql.Insert{Target: name("lake", "air", "t"), Query: query("VALUES (1)")}},
		{"INSERT INTO t (a, \"b c\", `d`) VALUES (1, 2, 3)", &sql.Insert{
			Target:  name("t"),
			Columns: []sql.Ident{{Name: "a"}, {Name: "b c"}, {Name: "d"}}, Query: query("VALUES (1, 2, 3)"),
		}},
		{"INSERT INTO t BY NAME SELECT 1 AS a", &sql.Insert{Target: name("t"), ByName: true, Query: query("SELECT 1 AS a")}},
		{"INSERT INTO t BY POSITION SELECT 1", &sql.Insert{Target: name("t"), Query: query("SELECT 1")}},
		{"INSERT INTO t (SELECT 1)", &sql.Insert{Target: name("t"), Query: query("(SELECT 1)")}},
		{"INSERT INTO t ((SELECT 1) UNION SELECT 2)", &sql.Insert{Target: name("t"), Query: query("((SELECT 1) UNION SELECT 2)")}},
		{"INSERT INTO t (VALUES (1))", &sql.Insert{Target: name("t"), Query: query("(VALUES (1))")}},
		{"INSERT INTO t (values) SELECT 1", &sql.Insert{Target: name("t"), Columns: []sql.Ident{{Name: "values"}}, Query: query("SELECT 1")}},
		{"INSERT INTO t (a) (SELECT 1)", &sql.Insert{Target: name("t"), Columns: []sql.Ident{{Name: "a"}}, Query: query("(SELECT 1)")}},
		{"INSERT INTO t WITH x AS (SELECT 1) FROM x", &sql.Insert{Target: name("t"), Query: query("WITH x AS (SELECT 1) FROM x")}},
		{"INSERT INTO t FROM 'x.parquet'", &sql.Insert{Target: name("t"), Query: query("FROM 'x.parquet'")}},
		{"INSERT INTO `my lake`.air.t FROM `u`", &sql.Insert{Target: name("my lake", "air", "t"), Query: query("FROM \"u\"")}},
		// explain
		{"EXPLAIN SELECT 1", &sql.Explain{Statement: sql.Statement{Text: "SELECT 1", Kind: "SELECT", Body: &sql.Select{Query: query("SELECT 1")}}}},
		{"EXPLAIN ANALYZE SELECT 1", &sql.Explain{Analyze: true, Statement: sql.Statement{Text: "SELECT 1", Kind: "SELECT", Body: &sql.Select{Query: query("SELECT 1")}}}},
		{"EXPLAIN INSERT INTO t SELECT 1", &sql.Explain{Statement: sql.Statement{
			Text: "INSERT INTO t SELECT 1", Kind: "INSERT",
			Body: &sql.Insert{Target: name("t"), Query: query("SELECT 1")},
		}}},
	} {
		list, err := sql.Parse(c.in)
		if err != nil || len(list) != 1 {
			t.Errorf("%s: %d statements, %v", c.in, len(list), err)
			continue
		}
		if diff := cmp.Diff(c.want, list[0].Body, ignorePlaces); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.in, diff)
		}
	}
}

func TestParseScript(t *testing.T) {
	script := ";;\n-- first\nUSE lake; ;\n  SELECT ';' /* ; */ ;\n\nDROP TABLE t -- last;\n"
	list, err := sql.Parse(script)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, st := range list {
		if script[st.Offset:st.Offset+len(st.Text)] != st.Text {
			t.Errorf("%q isn't at %d", st.Text, st.Offset)
		}
		got = append(got, st.Kind+": "+st.Text)
	}
	if diff := cmp.Diff([]string{"USE: USE lake", "SELECT: SELECT ';'", "DROP TABLE: DROP TABLE t"}, got); diff != "" {
		t.Error(diff)
	}
	for _, empty := range []string{"", " \n\t", ";", "-- x", "/* x */;;"} {
		if list, err := sql.Parse(empty); err != nil || len(list) != 0 {
			t.Errorf("%q: %v, %v", empty, list, err)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ in, place, cause, hint string }{
		// not closed
		{"SELECT 'abc", "line 1, column 8", "string has no end", ""},
		{"SELECT\n  \"abc", "line 2, column 3", "quoted identifier has no end", ""},
		{"SELECT `abc", "line 1, column 8", "quoted identifier has no end", "Close it with `"},
		{"SELECT 1 /* /* */", "line 1, column 10", "comment has no end", "nest"},
		{"SELECT $$abc", "line 1, column 8", "string has no end", "$$"},
		{"SELECT $a$abc$$", "line 1, column 8", "string has no end", "$a$"},
		{"SELECT E'abc\\'", "line 1, column 8", "string has no end", ""},
		{"SELECT \"\"", "line 1, column 8", "can't be empty", ""},
		{"SELECT ``", "line 1, column 8", "can't be empty", ""},
		{"SELECT 1\x00", "line 1, column 9", "NUL", ""},
		{"SELECT '\xff'", "line 1, column 9", "UTF-8", ""},
		// places
		{"SELECT 'ä';\n\n  FOO", "line 3, column 3", "FOO isn't a statement", "  FOO\n    ^"},
		{"/* äöü */ FOO", "line 1, column 11", "FOO", ""},
		{"CREATE TABLE t (\r\n\ta INT,\r\n\t)", "line 3, column 2", "expected the name of a column, found )", ""},
		// statements that there aren't
		{"UPDATE t SET a = 1", "line 1, column 1", "UPDATE isn't", "INSERT INTO, SELECT"},
		{"DELETE FROM t", "line 1, column 1", "DELETE isn't", "deleted"},
		{"MERGE INTO t USING u ON true", "line 1, column 1", "MERGE isn't", ""},
		{"TRUNCATE t", "line 1, column 1", "TRUNCATE isn't", ""},
		{"ALTER TABLE t ADD COLUMN a INT", "line 1, column 1", "ALTER isn't", ""},
		{"COPY t TO 'x'", "line 1, column 1", "COPY isn't", "SELECT … FROM"},
		{"ATTACH 'x.db'", "line 1, column 1", "ATTACH isn't", ""},
		{"DETACH x", "line 1, column 1", "DETACH isn't", ""},
		{"SET memory_limit = '1TB'", "line 1, column 1", "SET isn't", "USE"},
		{"PRAGMA database_list", "line 1, column 1", "PRAGMA isn't", ""},
		{"INSTALL httpfs", "line 1, column 1", "INSTALL isn't", ""},
		{"LOAD httpfs", "line 1, column 1", "LOAD isn't", ""},
		{"CALL enable_logging()", "line 1, column 1", "CALL isn't", ""},
		{"EXPORT DATABASE 'x'", "line 1, column 1", "EXPORT isn't", ""},
		{"BEGIN", "line 1, column 1", "BEGIN isn't", "transaction"},
		{"SELEC 1", "line 1, column 1", "SELEC isn't", "SELECT?"},
		{"PIVOT t ON a", "line 1, column 1", "PIVOT", "FROM t PIVOT"},
		{"1", "line 1, column 1", "can't begin with 1", ""},
		{"'x'", "line 1, column 1", "can't begin with", ""},
		{")", "line 1, column 1", "can't begin with )", ""},
		{"WITH a AS (SELECT 1) INSERT INTO t FROM a", "line 1, column 22", "WITH before INSERT", "INSERT INTO t WITH"},
		{"WITH a AS (SELECT 1) DELETE FROM t", "line 1, column 22", "DELETE isn't", ""},
		{"CREATE VIEW v AS SELECT 1", "line 1, column 8", "CREATE VIEW isn't supported", ""},
		{"CREATE OR REPLACE TABLE t (a INT)", "line 1, column 8", "CREATE OR REPLACE", ""},
		{"CREATE TEMP TABLE t (a INT)", "line 1, column 8", "CREATE TEMP", ""},
		{"CREATE", "line 1, column 7", "ends where TABLE, NAMESPACE, CATALOG or SOURCE", ""},
		{"DROP VIEW v", "line 1, column 6", "DROP VIEW", ""},
		{"DROP", "line 1, column 5", "ends where TABLE, NAMESPACE, CATALOG or SOURCE", ""},
		// tables
		{"CREATE TABLE t", "line 1, column 15", "ends where ( and the columns", ""},
		{"CREATE TABLE t AS SELECT 1", "line 1, column 16", "CREATE TABLE … AS", "then INSERT"},
		{"CREATE TABLE t (a INT) AS SELECT 1", "line 1, column 24", "CREATE TABLE … AS", ""},
		{"CREATE TABLE t LIKE u", "line 1, column 16", "LIKE", ""},
		{"CREATE TABLE t ()", "line 1, column 17", "expected the name of a column, found )", ""},
		{"CREATE TABLE t (a)", "line 1, column 18", "expected the type of the column, found )", ""},
		{"CREATE TABLE t (a INT", "line 1, column 22", "ends where , or )", ""},
		{"CREATE TABLE t (a DECIMAL(10", "line 1, column 19", "brackets", ""},
		{"CREATE TABLE t (a INT])", "line 1, column 19", "brackets", ""},
		{"CREATE TABLE t (a INT,)", "line 1, column 23", "expected the name of a column", ""},
		{"CREATE TABLE t (select INT)", "line 1, column 17", "found the keyword select", `write "select"`},
		{"CREATE TABLE t (a INT DEFAULT 1)", "line 1, column 23", "DEFAULT isn't supported", ""},
		{"CREATE TABLE t (a INT PRIMARY KEY)", "line 1, column 23", "PRIMARY isn't supported", ""},
		{"CREATE TABLE t (a INT, PRIMARY KEY (a))", "line 1, column 24", "PRIMARY constraints", ""},
		{"CREATE TABLE t (a INT NOT)", "line 1, column 26", "expected NULL", ""},
		{"CREATE TABLE t (a INT COMMENT b)", "line 1, column 31", "expected the comment as a string", ""},
		{"CREATE TABLE t (a INT) USING hudi", "line 1, column 30", "no table format hudi", ""},
		{"CREATE TABLE t (a INT) LOCATION x", "line 1, column 33", "expected the location as a string", ""},
		{"DESCRIBE HISTORY t u", "line 1, column 20", "expected the end", ""},
		{"CREATE TABLE t (a INT) PARTITIONED (a)", "line 1, column 36", "expected BY", ""},
		{"CREATE TABLE t (a INT) PARTITIONED BY ()", "line 1, column 40", "expected a column", ""},
		{"CREATE TABLE t (a INT) PARTITIONED BY (zorder(a))", "line 1, column 40", "no partition transform zorder", "bucket(n, c)"},
		{"CREATE TABLE t (a INT) PARTITIONED BY (bucket(a))", "line 1, column 48", "second argument", ""},
		{"CREATE TABLE t (a INT) PARTITIONED BY (bucket(0, a))", "line 1, column 47", "from 1", ""},
		{"CREATE TABLE t (a INT) PARTITIONED BY (bucket(1.5, a))", "line 1, column 47", "whole number", ""},
		{"CREATE TABLE t (a INT) PARTITIONED BY (bucket(99999999999, a))", "line 1, column 47", "whole number", ""},
		{"CREATE TABLE t (a INT) PARTITIONED BY (bucket(a, a))", "line 1, column 50", "expected a whole number", ""},
		{"CREATE TABLE t (a INT) PARTITIONED BY (year(a, 1))", "line 1, column 46", "expected )", ""},
		{"CREATE TABLE t (a INT) PARTITIONED BY (s.a)", "line 1, column 41", "inside a struct", ""},
		{"CREATE TABLE t (a INT) TBLPROPERTIES (k = 'v')", "line 1, column 39", "key as a string", ""},
		{"CREATE TABLE t (a INT) TBLPROPERTIES ('k' 'v')", "line 1, column 43", "expected =", ""},
		{"CREATE TABLE t (a INT) TBLPROPERTIES ('k'='v', 'k'='w')", "line 1, column 48", "stands twice", ""},
		{"CREATE TABLE t (a INT) COMMENT 'a' COMMENT 'b'", "line 1, column 36", "COMMENT stands twice", ""},
		{"CREATE TABLE t (a INT) COMMENT E'\\x41'", "line 1, column 32", "escapes", ""},
		{"CREATE TABLE t (a INT) WITH (x = 1)", "line 1, column 24", "WITH isn't supported here", "TBLPROPERTIES"},
		{"CREATE TABLE t (a INT) foo", "line 1, column 24", "expected USING", ""},
		{"CREATE TABLE IF EXISTS t (a INT)", "line 1, column 17", "expected NOT EXISTS", ""},
		{"CREATE TABLE a. (a INT)", "line 1, column 17", "expected the name of a table, found (", ""},
		{"DROP TABLE t CASCADE", "line 1, column 14", "CASCADE", ""},
		{"DROP TABLE t PURGE", "line 1, column 14", "PURGE", "stay"},
		{"DROP TABLE t, u", "line 1, column 13", "expected the end of the statement, found ,", ""},
		// looking
		{"CREATE CATALOG x", "line 1, column 17", "ends where WITH (type", ""},
		{"CREATE CATALOG x WITH ()", "line 1, column 24", "expected a property's key, found )", ""},
		{"CREATE CATALOG x USING delta WITH (a = 'b')", "line 1, column 24", "expected ICEBERG", ""},
		{"DROP CATALOG", "line 1, column 13", "ends where the name of a catalog", ""},
		{"CHECK lake", "line 1, column 7", "expected CATALOG", ""},
		{"SHOW", "line 1, column 5", "ends where CATALOGS", ""},
		{"SHOW FUNCTIONS", "line 1, column 6", "SHOW FUNCTIONS isn't supported", ""},
		{"SHOW TABLES LIKE 'a%'", "line 1, column 13", "expected the end of the statement", ""},
		{"SHOW CREATE VIEW v", "line 1, column 13", "expected TABLE", ""},
		{"SHOW TABLES IN", "line 1, column 15", "ends where a catalog or namespace", ""},
		{"DESCRIBE", "line 1, column 9", "ends where the name of a table", ""},
		{"DESCRIBE EXTENDED t", "line 1, column 10", "EXTENDED", ""},
		{"USE", "line 1, column 4", "ends where", ""},
		{"USE a b", "line 1, column 7", "expected the end", ""},
		// insert
		{"INSERT t SELECT 1", "line 1, column 8", "expected INTO", ""},
		{"INSERT OVERWRITE t SELECT 1", "line 1, column 8", "INSERT OVERWRITE", ""},
		{"INSERT OR REPLACE INTO t SELECT 1", "line 1, column 8", "OR REPLACE", ""},
		{"INSERT INTO t", "line 1, column 14", "ends where SELECT", ""},
		{"INSERT INTO t DEFAULT VALUES", "line 1, column 15", "without rows", ""},
		{"INSERT INTO t VALUES", "line 1, column 15", "without rows", ""},
		{"INSERT INTO t (a, ) SELECT 1", "line 1, column 19", "expected the name of a column", ""},
		{"INSERT INTO t (a b) SELECT 1", "line 1, column 18", "expected , or )", ""},
		{"INSERT INTO t () SELECT 1", "line 1, column 16", "expected the name of a column", ""},
		{"INSERT INTO t BY NAME (a) SELECT 1", "line 1, column 24", "exclude each other", ""},
		{"INSERT INTO t BY x SELECT 1", "line 1, column 18", "expected NAME or POSITION", ""},
		{"INSERT INTO t PARTITION (a = 1) SELECT 1", "line 1, column 15", "PARTITION", ""},
		{"INSERT INTO t UPDATE u SET a = 1", "line 1, column 15", "expected SELECT", ""},
		{"INSERT INTO 'x.parquet' SELECT 1", "line 1, column 13", "expected the name of a table", ""},
		// explain
		{"EXPLAIN", "line 1, column 8", "ends where", ""},
		{"EXPLAIN ANALYZE", "line 1, column 16", "ends where", ""},
		{"EXPLAIN ANALYZE DROP TABLE t", "line 1, column 17", "EXPLAIN takes", ""},
		{"EXPLAIN DROP TABLE t", "line 1, column 9", "EXPLAIN takes", ""},
		{"EXPLAIN EXPLAIN SELECT 1", "line 1, column 9", "EXPLAIN takes", ""},
	} {
		_, err := sql.Parse(c.in)
		var e *commit.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: got %v", c.in, err)
			continue
		}
		if e.Object != "at "+c.place || !strings.Contains(e.Cause.Error(), c.cause) || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%s:\n got %s: %s (%s)\nwant %s: %s (%s)", c.in, e.Object, e.Cause, e.Hint, c.place, c.cause, c.hint)
		}
		if _, ok := commit.Explain(string(e.Code)); !ok {
			t.Errorf("%s: the code %s isn't registered", c.in, e.Code)
		}
	}
}

func TestParseLarge(t *testing.T) {
	text := "INSERT INTO t VALUES (1, 'x')" + strings.Repeat(", (1, 'some more text')", 60000)
	list, err := sql.Parse(text)
	if err != nil || list[0].Text != text {
		t.Fatal(err)
	}
	deep := "CREATE TABLE t (a " + strings.Repeat("STRUCT(a ", 100000) + "INT" + strings.Repeat(")", 100000) + ")"
	if _, err := sql.Parse(deep); err != nil {
		t.Fatal(err) // whether such a type can be is decided later
	}
}

// TestSnippetOfALongLine keeps messages short.
func TestSnippetOfALongLine(t *testing.T) {
	_, err := sql.Parse(strings.Repeat(" ", 500) + "FOO " + strings.Repeat("x", 500))
	var e *commit.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	lines := strings.Split(e.Hint, "\n")
	text, caret := []rune(lines[len(lines)-2]), lines[len(lines)-1]
	if len(text) > 110 || string(text[len(caret)-1:len(caret)+2]) != "FOO" {
		t.Errorf("%s\n%s", string(text), caret)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"SELECT 1", "INSERT INTO t (a) VALUES ('x')", "CREATE TABLE t (a INT NOT NULL) PARTITIONED BY (bucket(4, a))",
		"SELECT `a``b` FROM `c\"d`", "SELECT $$a$$; -- x\n/* y */ USE z", "WITH a AS (SELECT 1) INSERT INTO", "EXPLAIN (", "E'\\", "DESCRIBE \"x.csv\"", "\u00a0SELECT",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := sql.Parse(text)
		if err != nil {
			var e *commit.Error
			if !errors.As(err, &e) || e.Object == "" {
				t.Fatalf("%q: an error without a place: %v", text, err)
			}
			return
		}
		for _, st := range list {
			if st.Body == nil || st.Offset < 0 || st.Offset+len(st.Text) > len(text) || text[st.Offset:st.Offset+len(st.Text)] != st.Text {
				t.Fatalf("%q: %+v", text, st)
			}
			// A statement alone means what it meant in the script.
			again, err := sql.Parse(st.Text)
			if err != nil || len(again) != 1 || !cmp.Equal(st.Body, again[0].Body, ignorePlaces) {
				t.Fatalf("%q alone is another statement: %v", st.Text, err)
			}
		}
	})
}
