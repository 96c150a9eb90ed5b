package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/firn-project/firn/catalog/delta/deltatest"
	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
)

// TestDeltaTable: a Delta table is made, filled and read by its name, and by its
// path, with the values that partitions get wrong elsewhere.
func TestDeltaTable(t *testing.T) {
	l := start(t, t.TempDir())
	l.must("CREATE NAMESPACE lake.air",
		`CREATE TABLE lake.air.d (id BIGINT NOT NULL, n TINYINT, x DOUBLE, dec DECIMAL(20,2), moment TIMESTAMP, tz TIMESTAMPTZ, st STRUCT(a INTEGER, b VARCHAR[]), p VARCHAR, day DATE)
			USING delta PARTITIONED BY (p, day) COMMENT 'of both kinds' TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '2')`,
		`INSERT INTO lake.air.d VALUES
			(1, 2, 'NaN', 123456789012345678.90, '1969-12-31 23:59:59.999999', '2024-06-15 12:30:00.123456+00', {'a': 1, 'b': ['q', NULL]}, 'a/b', '2024-02-03'),
			(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (3, 3, 1, 1, NULL, NULL, NULL, '', NULL), (4, 4, 2, 2, NULL, NULL, NULL, 'x/../y%2F.z:ü ', '0001-01-01')`,
		"INSERT INTO lake.air.d BY NAME SELECT i AS id, 'p' || (i % 3) AS p FROM range(5, 10) t(i)")
	want := [][]string{
		{"1", "2", "NaN", "123456789012345678.9", "a/b", "2024-02-03"},
		{"2", "(null)", "(null)", "(null)", "(null)", "(null)"},
		{"3", "3", "1", "1", "(null)", "(null)"},
		{"4", "4", "2", "2", "x/../y%2F.z:ü ", "0001-01-01"},
	}
	if got := l.query("SELECT id, n, x, dec, p, day FROM lake.air.d WHERE id < 5 ORDER BY id"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for where, n := range map[string]int64{
		"p = 'a/b'": 1, "p IS NULL": 2, "p = ''": 0, "p = 'p0'": 2, "day = DATE '2024-02-03'": 1, "x > 1e300": 1, "moment < TIMESTAMP '1970-01-01'": 1,
		"tz = TIMESTAMPTZ '2024-06-15 12:30:00.123456Z'": 1, "st.b[1] = 'q'": 1, "id >= 5": 5,
	} {
		if got := l.count("lake.air.d WHERE " + where); got != n {
			t.Errorf("%s: %d rows, want %d", where, got, n)
		}
	}
	if got := l.count("lake.air.d AT (VERSION => 1)"); got != 4 {
		t.Errorf("version 1 has %d rows, want 4", got)
	}
	ddl := l.query("SHOW CREATE TABLE lake.air.d")[0][0]
	at := ddl[strings.Index(ddl, "LOCATION 'file://")+len("LOCATION 'file://"):]
	at = at[:strings.IndexByte(at, '\'')]
	byPath := "delta.`" + at + "`"
	if got := l.count(byPath + " WHERE p LIKE 'p%'"); got != 5 {
		t.Errorf("%s has %d such rows, want 5", byPath, got)
	}
	l.must("INSERT INTO " + byPath + " (id) VALUES (100)")
	if got := l.count("lake.air.d"); got != 10 {
		t.Errorf("%d rows, want 10", got)
	}
	if got := l.query("DESCRIBE HISTORY lake.air.d"); len(got) != 4 || got[0][0] != "3" || got[0][2] != "WRITE" || got[3][2] != "CREATE TABLE" {
		t.Errorf("history %v", got)
	}
	// A table is dropped by name and taken over again.
	l.must("DROP TABLE lake.air.d", "CREATE TABLE lake.air.again USING delta LOCATION '"+at+"'")
	if got := l.count("lake.air.again"); got != 10 {
		t.Errorf("%d rows, want 10", got)
	}
}

// TestDeltaRefusals: what a Delta table can't be, or isn't yet, is refused by name.
func TestDeltaRefusals(t *testing.T) {
	l := start(t, t.TempDir())
	l.must("CREATE NAMESPACE lake.air", "CREATE TABLE lake.air.i (a INT)", "CREATE TABLE lake.air.d (a INT NOT NULL, p VARCHAR NOT NULL) USING delta PARTITIONED BY (p)")
	dir := t.TempDir()
	for _, c := range []struct {
		sql  string
		code commit.Code
		says string
	}{
		{"CREATE TABLE lake.air.i (a INT) USING delta", commit.CodeTableExists, ""},
		{"CREATE TABLE lake.air.d (a INT)", commit.CodeTableExists, ""},
		{"CREATE TABLE lake.none.d (a INT) USING delta", commit.CodeNamespaceNotFound, ""},
		{"CREATE TABLE lake.air.x (a INT, p DATE) USING delta PARTITIONED BY (year(p))", commit.CodeSQLDefinition, "year"},
		{`CREATE TABLE lake.air.x ("a b" INT) USING delta`, commit.CodeTableDefinition, "a b"},
		{"CREATE TABLE lake.air.x (a UUID) USING delta", commit.CodeSQLDefinition, "UUID"},
		{"CREATE TABLE lake.air.x (a INT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')", commit.CodeTableDefinition, "columnMapping"},
		{"CREATE TABLE lake.air.x USING delta LOCATION '" + dir + "/none'", commit.CodeTableDefinition, "no Delta table"},
		{"CREATE TABLE lake.air.x (a INT) USING delta LOCATION '" + dir + "/t/_delta_log/x'", commit.CodeTableDefinition, "log"},
		{"CREATE TABLE lake.air.x (a INT) LOCATION '" + dir + "/t'", commit.CodeSQLUnsupportedStatement, "LOCATION"},
		{"SELECT * FROM delta.`" + dir + "/none`", commit.CodeTableNotFound, ""},
		{"INSERT INTO lake.air.d VALUES (NULL, 'x')", commit.CodeNotNullViolated, "column a"},
		{"INSERT INTO lake.air.d VALUES (1, '')", commit.CodeNotNullViolated, "column p"},
		{"SELECT * FROM lake.air.d AT (VERSION => 7)", commit.CodeSnapshotNotFound, "7"},
		{"DROP NAMESPACE lake.air", commit.CodeNamespaceNotEmpty, ""},
	} {
		_, err := l.run(client.Statement{SQL: c.sql})
		if commit.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %s", c.sql, err, c.code)
		}
	}
	if n := l.count("lake.air.d"); n != 0 {
		t.Errorf("%d rows", n)
	}
}

// TestDeltaGoldenRows: every table of other systems that comes with its rows gives
// them through SQL, with deletion vectors, mapped columns and widened types applied.
func TestDeltaGoldenRows(t *testing.T) {
	l := start(t, t.TempDir())
	unpacked := t.TempDir()
	roots := []string{unpacked}
	archives := filepath.Join("..", "catalog", "delta", "testdata", "kernel")
	if data := os.Getenv("FIRN_TESTDATA"); data != "" {
		archives = filepath.Join(data, "golden", "delta", "kernel")
		roots = append(roots, archives)
	}
	deltatest.Unpack(t, archives, unpacked)
	compared := 0
	for _, dir := range roots {
		expected, err := filepath.Glob(filepath.Join(dir, "*", "expected"))
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(expected)
		for _, e := range expected {
			name := filepath.Base(filepath.Dir(e))
			t.Run(name, func(t *testing.T) {
				l := &lake{Client: l.Client, t: t}
				table := "delta.`" + filepath.Join(filepath.Dir(e), "delta") + "`"
				compared++
				rows := "read_parquet('" + e + "/*.parquet')"
				if name == "data-reader-partition-values" {
					// Its timestamps have no zone, and are UTC here; who wrote the rows
					// down took them for California's.
					rows = "(SELECT * REPLACE (as_timestamp - INTERVAL 7 HOURS AS as_timestamp) FROM " + rows + ")"
				}
				compareRows(t, l, table, rows)
			})
		}
	}
	if compared < 30 {
		t.Errorf("only %d tables were compared", compared)
	}
}

// compareRows compares two tables as multisets of rows, whatever types theirs are
// in detail, and their numbers.
func compareRows(t *testing.T, l *lake, got, want string) {
	t.Helper()
	if n, m := l.count(got), l.count(want); n != m {
		t.Errorf("%d rows, want %d", n, m)
	}
	for _, q := range [][2]string{{got, want}, {want, got}} {
		rows := l.query(fmt.Sprintf("SELECT * FROM (SELECT * FROM %s) EXCEPT ALL SELECT * FROM %s", q[0], q[1]))
		if len(rows) > 0 {
			t.Errorf("%d rows of %s aren't in %s, such as %v", len(rows), q[0], q[1], rows[0])
		}
	}
}
