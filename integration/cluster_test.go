package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/duckdb/duckdb-go/v2"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/cluster"
)

// lake is an embedded cluster with a client.
type lake struct {
	*client.Client
	t   *testing.T
	dir string
}

func start(t *testing.T, dir string) *lake {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Config{Dir: dir, Executors: 2, CheckAllFiles: true})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := client.Dial(t.Context(), c.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(cl.Close(), c.Close(context.Background())); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &lake{Client: cl, t: t, dir: dir}
}

// run executes a statement to its end.
func (l *lake) run(stmt client.Statement) (client.JobStatus, error) {
	res, err := l.Execute(l.t.Context(), stmt)
	if err != nil || res.Job == nil {
		return client.JobStatus{}, err
	}
	return res.Job.Wait(l.t.Context())
}

func (l *lake) must(statements ...string) {
	l.t.Helper()
	for _, s := range statements {
		if _, err := l.run(client.Statement{SQL: s}); err != nil {
			l.t.Fatalf("%s: %v", s, err)
		}
	}
}

// count runs SELECT count(*) over what follows FROM.
func (l *lake) count(from string) int64 {
	l.t.Helper()
	rows := l.query("SELECT count(*)::varchar AS n FROM " + from)
	var n int64
	if _, err := fmt.Sscan(rows[0][0], &n); err != nil {
		l.t.Fatal(err)
	}
	return n
}

// query reads all rows as text.
func (l *lake) query(query string) [][]string {
	l.t.Helper()
	res, err := l.Execute(l.t.Context(), client.Statement{SQL: query})
	if err != nil {
		l.t.Fatalf("%s: %v", query, err)
	}
	var out [][]string
	for batch, err := range res.Rows(l.t.Context()) {
		if err != nil {
			l.t.Fatalf("%s: %v", query, err)
		}
		for r := range int(batch.NumRows()) {
			var row []string
			for _, col := range batch.Columns() {
				row = append(row, col.ValueStr(r))
			}
			out = append(out, row)
		}
		batch.Release()
	}
	return out
}

// duck runs statements in plain DuckDB, to make input files.
func duck(t *testing.T, statements ...string) {
	t.Helper()
	db, err := sql.Open("duckdb", "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// TestBadInput: each bad statement gives an error of the right kind that names
// what is wrong, and leaves the table as it was.
func TestBadInput(t *testing.T) {
	l := start(t, t.TempDir())
	in := t.TempDir()
	file := func(name string) string { return filepath.Join(in, name) }
	duck(t,
		fmt.Sprintf("COPY (SELECT i::bigint AS n, 'v' || i AS s FROM range(1000) t(i)) TO '%s' (FORMAT parquet)", file("good-1.parquet")),
		fmt.Sprintf("COPY (SELECT i::bigint AS n, 'v' || i AS s FROM range(1000) t(i)) TO '%s' (FORMAT parquet)", file("trunc-1.parquet")),
		fmt.Sprintf("COPY (SELECT i::bigint AS n, 'v' || i AS s FROM range(1000) t(i)) TO '%s' (FORMAT parquet)", file("drift-1.parquet")),
		fmt.Sprintf("COPY (SELECT 'x' || i AS n, 'v' || i AS s FROM range(1000) t(i)) TO '%s' (FORMAT parquet)", file("drift-2.parquet")),
		fmt.Sprintf("COPY (SELECT i::bigint AS n, 'v' || i AS s FROM range(1000) t(i)) TO '%s' (FORMAT parquet)", file("empty-1.parquet")),
		fmt.Sprintf("COPY (SELECT i::bigint AS n, 'v' || i AS s FROM range(1000) t(i)) TO '%s' (FORMAT parquet)", file("text-1.parquet")))
	whole, err := os.ReadFile(file("trunc-1.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{
		"trunc-2.parquet": string(whole[:len(whole)/2]),
		"empty-2.parquet": "",
		"text-2.parquet":  "this is no parquet file, whatever its name says",
		"bad.csv":         "n,s\n1,a\n2,b\nthree,c\n4,d\nfive,e\n",
	} {
		if err := os.WriteFile(file(name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file("secret.parquet"), whole, 0o000); err != nil {
		t.Fatal(err)
	}
	l.must("CREATE NAMESPACE lake.bad", "CREATE TABLE lake.bad.t (n bigint NOT NULL, s string, d decimal(5,2))", "INSERT INTO lake.bad.t VALUES (1, 'one', 1.5)")
	before, err := l.DescribeTable(t.Context(), "lake.bad.t")
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		name, sql string
		kind      commit.Kind
		says      []string
	}{
		{"unknown table", "INSERT INTO lake.bad.nope VALUES (1)", commit.KindNotFound, []string{"nope"}},
		{"unknown source table", "INSERT INTO lake.bad.t SELECT * FROM lake.bad.tt", commit.KindNotFound, []string{"tt"}},
		{"unknown namespace", "CREATE TABLE lake.no_such.t (n int)", commit.KindNotFound, []string{"no_such"}},
		{"unknown catalog", "INSERT INTO pond.bad.t VALUES (1)", commit.KindNotFound, []string{"pond", "lake"}},
		{"unknown column in list", "INSERT INTO lake.bad.t (n, sss) VALUES (1, 'x')", commit.KindInvalid, []string{"sss", "s"}},
		{"unknown column in query", "INSERT INTO lake.bad.t SELECT m, s, d FROM lake.bad.t", commit.KindInvalid, []string{"m"}},
		{"type mismatch", "INSERT INTO lake.bad.t SELECT s, s, d FROM lake.bad.t", commit.KindInvalid, []string{"n", "VARCHAR", "BIGINT", "CAST"}},
		{"lossy cast", "INSERT INTO lake.bad.t SELECT 1.5::double, 'x', 1", commit.KindInvalid, []string{"n", "DOUBLE", "BIGINT"}},
		{"too few columns", "INSERT INTO lake.bad.t SELECT 1", commit.KindInvalid, []string{"3"}},
		{"NOT NULL", "INSERT INTO lake.bad.t SELECT CASE WHEN i = 7 THEN NULL ELSE i END, 'x', NULL FROM range(10) t(i)", commit.KindInvalid, []string{"n"}},
		{"NOT NULL left out", "INSERT INTO lake.bad.t (s) VALUES ('x')", commit.KindInvalid, []string{"n"}},
		{"decimal overflow", "INSERT INTO lake.bad.t SELECT 1, 'x', 123456.78::decimal(8,2)::decimal(5,2)", commit.KindInvalid, []string{"123456.78"}},
		{"syntax", "INSERT INTO lake.bad.t SELEKT 1", commit.KindInvalid, []string{"line 1"}},
		{"syntax in query", "INSERT INTO lake.bad.t\nSELECT 1,, 2", commit.KindInvalid, []string{"line 2"}},
		{"truncated file", "INSERT INTO lake.bad.t SELECT n, s, NULL FROM read_parquet('" + file("trunc-*.parquet") + "')", commit.KindInvalid, []string{"trunc-2.parquet"}},
		{"empty file", "INSERT INTO lake.bad.t SELECT n, s, NULL FROM read_parquet('" + file("empty-*.parquet") + "')", commit.KindInvalid, []string{"empty-2.parquet"}},
		{"no parquet", "INSERT INTO lake.bad.t SELECT n, s, NULL FROM read_parquet('" + file("text-*.parquet") + "')", commit.KindInvalid, []string{"text-2.parquet"}},
		{"drifting schema", "INSERT INTO lake.bad.t SELECT n, s, NULL FROM read_parquet('" + file("drift-*.parquet") + "')", commit.KindInvalid, []string{"drift-2.parquet", "n"}},
		{"no such file", "INSERT INTO lake.bad.t SELECT n, s, NULL FROM read_parquet('" + file("none-*.parquet") + "')", commit.KindNotFound, []string{"none-*.parquet"}},
		{"bad rows", "INSERT INTO lake.bad.t SELECT n, s, NULL FROM read_csv('" + file("bad.csv") + "', types = {'n': 'BIGINT'})", commit.KindInvalid, []string{"bad.csv", "4", "three", "6", "five", "reject-limit"}},
		{"division of text", "INSERT INTO lake.bad.t SELECT 'abc'::bigint, 'x', NULL", commit.KindInvalid, []string{"abc"}},
		{"table exists", "CREATE TABLE lake.bad.t (n int)", commit.KindInvalid, []string{"lake.bad.t"}},
		{"unsupported type", "CREATE TABLE lake.bad.u (n hugeint)", commit.KindInvalid, []string{"n", "HUGEINT", "DECIMAL"}},
		{"unsupported statement", "DELETE FROM lake.bad.t", commit.KindInvalid, []string{"DELETE"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := l.run(client.Statement{SQL: c.sql})
			if err == nil {
				t.Fatal("it went through")
			}
			e, ok := errors.AsType[*commit.Error](err)
			if !ok {
				t.Fatalf("not an error for people: %v", err)
			}
			if kind := commit.KindOf(err); kind != c.kind {
				t.Errorf("kind %s, want %s: %v", kind, c.kind, err)
			}
			text := strings.Join([]string{e.Error(), e.Tried, e.Hint}, "\n")
			for _, s := range c.says {
				if !strings.Contains(text, s) {
					t.Errorf("it doesn't say %q:\n%s", s, text)
				}
			}
			if e.Hint == "" {
				t.Errorf("it doesn't say what to do: %s", text)
			}
		})
	}

	after, err := l.DescribeTable(t.Context(), "lake.bad.t")
	if err != nil {
		t.Fatal(err)
	}
	if before.MetadataLocation != after.MetadataLocation {
		t.Errorf("the table changed: %s, then %s", before.MetadataLocation, after.MetadataLocation)
	}
	// The good rows of a file with bad ones go in when the user says so.
	status, err := l.run(client.Statement{SQL: "INSERT INTO lake.bad.t SELECT n, s, NULL FROM read_csv('" + file("bad.csv") + "', types = {'n': 'BIGINT'})", RejectLimit: 2})
	if err != nil || status.Report == nil || status.Report.Rows != 3 {
		t.Errorf("with a reject limit of 2: %+v, %v", status.Report, err)
	}
}

// parquetFiles lists the Parquet files under a directory.
func parquetFiles(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".parquet" {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
