//go:build duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

func open(t *testing.T, cfg Config) *Instance {
	t.Helper()
	in, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.Close)
	return in
}

func text(t *testing.T, in *Instance, sql string) string {
	t.Helper()
	rows, err := in.Strings(t.Context(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	lines := make([]string, len(rows))
	for i, r := range rows {
		lines[i] = strings.Join(r, "|")
	}
	return strings.Join(lines, "\n")
}

func TestQueryStreamsInOrderAndFreesItsMemory(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	in := open(t, Config{Threads: 2})
	rows, err := in.QueryWith(t.Context(), mem, "SELECT i, 'row ' || i AS s, [i, NULL] AS l, {'a': i} AS st FROM range(300000) t(i)")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var next int64
	var batches int
	for {
		rec, err := rows.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !rec.Schema().Equal(rows.Schema()) {
			t.Fatalf("batch of schema %s, stream of %s", rec.Schema(), rows.Schema())
		}
		if rec.NumRows() < wantRows && next+rec.NumRows() != 300000 {
			t.Errorf("a batch of %d rows in the middle", rec.NumRows())
		}
		col := rec.Column(0).(*array.Int64)
		for i := range col.Len() {
			if col.Value(i) != next {
				t.Fatalf("row %d is %d", next, col.Value(i))
			}
			next++
		}
		batches++
		rec.Release()
	}
	if next != 300000 || batches > 40 {
		t.Errorf("%d rows in %d batches", next, batches)
	}
}

func TestBatchesOutliveTheInstance(t *testing.T) {
	in, err := Open(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := in.Query(t.Context(), "SELECT 'a text that is not inlined at all ' || i AS s FROM range(5) t(i)")
	if err != nil {
		t.Fatal(err)
	}
	rec, err := rows.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows.Close()
	in.Close()
	in.Close()
	if got := rec.Column(0).(*array.String).Value(4); got != "a text that is not inlined at all 4" {
		t.Errorf("got %q", got)
	}
	rec.Release()
}

func TestRowsOfNoRowsHaveASchema(t *testing.T) {
	in := open(t, Config{})
	rows, err := in.Query(t.Context(), "SELECT 1::DECIMAL(9,2) AS d, uuid() AS u WHERE false")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if rows.Schema().NumFields() != 2 || rows.Schema().Field(0).Type.ID() != arrow.DECIMAL128 {
		t.Errorf("schema %s", rows.Schema())
	}
	for range 2 {
		if rec, err := rows.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Fatalf("got %v, %v", rec, err)
		}
	}
}

func TestEveryTypeComesOut(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	in := open(t, Config{TimeZone: "Europe/Zurich"})
	rows, err := in.QueryWith(t.Context(), mem, "SELECT COLUMNS(c -> c NOT IN ('varint', 'bignum', 'time_ns', 'enum_array')) FROM test_all_types()")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	rec, err := rows.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Release()
	if rec.NumRows() != 3 {
		t.Errorf("%d rows", rec.NumRows())
	}
	for _, f := range rec.Schema().Fields() {
		if ts, ok := f.Type.(*arrow.TimestampType); ok && ts.TimeZone != "" && ts.TimeZone != "UTC" {
			t.Errorf("%s has zone %s", f.Name, ts.TimeZone)
		}
	}
}

func TestEnumsAreText(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	in := open(t, Config{})
	if err := in.Exec(t.Context(), "CREATE TYPE mood AS ENUM ('sad', 'a rather long happy text that is not inlined')"); err != nil {
		t.Fatal(err)
	}
	rows, err := in.QueryWith(t.Context(), mem, "SELECT i, CASE i % 3 WHEN 0 THEN 'sad' WHEN 1 THEN 'a rather long happy text that is not inlined' END::mood AS m FROM range(30000) t(i)")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	want := []string{"sad", "a rather long happy text that is not inlined", ""}
	n := 0
	for {
		rec, err := rows.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		m := rec.Column(1).(*array.String)
		for i := range m.Len() {
			if m.Value(i) != want[n%3] || m.IsNull(i) != (n%3 == 2) {
				t.Fatalf("row %d: %q", n, m.Value(i))
			}
			n++
		}
		rec.Release()
	}
	if n != 30000 {
		t.Errorf("%d rows", n)
	}
	if _, err := in.Query(t.Context(), "SELECT ['sad'::mood]"); err == nil || !strings.Contains(err.Error(), "cast it to VARCHAR") {
		t.Errorf("nested: %v", err)
	}
}

func TestTimeZoneIsTheJobs(t *testing.T) {
	for zone, want := range map[string]string{"": "12", "UTC": "12", "Asia/Tokyo": "21"} {
		in := open(t, Config{TimeZone: zone})
		if got := text(t, in, "SELECT hour(TIMESTAMPTZ '2024-01-01 12:00:00+00')"); got != want {
			t.Errorf("%q: hour %s, want %s", zone, got, want)
		}
	}
	if _, err := Open(t.Context(), Config{TimeZone: "Mars/Base"}); err == nil {
		t.Error("an unknown zone opened")
	}
}

// TestCancel: a query that left alone takes days ends with its context.
func TestCancel(t *testing.T) {
	const endless = "SELECT count(*) FROM range(100000000000) a(i), range(1000) b(j) WHERE hash(i + j) = 7"
	in := open(t, Config{Threads: 2})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	rows, err := in.Query(ctx, endless)
	if err == nil {
		_, err = rows.Next(ctx)
		rows.Close()
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if got := text(t, in, "SELECT 42"); got != "42" {
		t.Errorf("afterwards: %s", got)
	}
	if err := in.Exec(ctx, "CREATE TABLE t (i INT)"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with an ended context: %v", err)
	}
}

func TestCloseInTheMiddle(t *testing.T) {
	in := open(t, Config{Threads: 2})
	rows, err := in.Query(t.Context(), "SELECT i, md5(i::VARCHAR) FROM range(50000000) t(i)")
	if err != nil {
		t.Fatal(err)
	}
	rec, err := rows.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rec.Release()
	rows.Close()
	rows.Close()
	if _, err := rows.Next(t.Context()); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("Next after Close: %v", err)
	}
	if got := text(t, in, "SELECT 42"); got != "42" {
		t.Errorf("afterwards: %s", got)
	}
}

func TestErrorsInTheMiddleOfAStream(t *testing.T) {
	in := open(t, Config{})
	rows, err := in.Query(t.Context(), "SELECT CASE WHEN i = 200000 THEN 'x' ELSE i::VARCHAR END::BIGINT FROM range(400000) t(i)")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for {
		rec, err := rows.Next(t.Context())
		if err == nil {
			rec.Release()
			continue
		}
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Type != "Conversion" || !strings.Contains(e.Message, "'x'") {
			t.Errorf("got %#v", err)
		}
		return
	}
}

func TestOnlyOneSelectRuns(t *testing.T) {
	dir := t.TempDir()
	in := open(t, Config{AllowedDirs: []string{dir}, TempDir: dir})
	for _, sql := range []string{
		"COPY (SELECT 1) TO '" + dir + "/x.csv'",
		"ATTACH '" + dir + "/x.db'",
		"CREATE TABLE t (i INT)",
		"INSERT INTO t VALUES (1)",
		"SET threads = 4",
		"PRAGMA enable_profiling",
		"CALL enable_logging()",
		"EXPORT DATABASE '" + dir + "/x'",
		"LOAD httpfs",
		"SELECT 1; SELECT 2",
		"",
	} {
		rows, err := in.Query(t.Context(), sql)
		if err == nil {
			rows.Close()
			t.Errorf("ran: %s", sql)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTheLockHolds(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret.txt")
	if err := os.WriteFile(secret, []byte("42\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, "link.txt")); err != nil {
		t.Fatal(err)
	}
	in := open(t, Config{AllowedDirs: []string{dir}, TempDir: filepath.Join(dir, "spill")})
	for _, sql := range []string{
		"SELECT * FROM read_text('" + secret + "')",
		"SELECT * FROM read_csv('" + secret + "')",
		"SELECT * FROM read_text('" + dir + "/../" + filepath.Base(outside) + "/secret.txt')",
		"SELECT * FROM read_text('" + dir + "/link.txt')",
		"SELECT * FROM '" + secret + "'",
		"COPY (SELECT 1) TO '" + outside + "/x.csv'",
		"ATTACH '" + outside + "/x.db'",
		"SET lock_configuration = false",
		"SET enable_external_access = true",
		"SET allowed_directories = ['/']",
		"SET TimeZone = 'UTC'",
		"SET memory_limit = '1TB'",
		"LOAD httpfs",
		"INSTALL httpfs",
	} {
		if err := in.Exec(t.Context(), sql); err == nil {
			t.Errorf("ran: %s", sql)
		}
	}
	// Files that appear later in an allowed directory, hard links as well, can
	// be read: that is how inputs are staged.
	if err := os.Link(secret, filepath.Join(dir, "staged.txt")); err != nil {
		t.Fatal(err)
	}
	if got := text(t, in, "SELECT trim(content, chr(10)) FROM read_text('"+dir+"/staged.txt')"); got != "42" {
		t.Errorf("staged file: %q", got)
	}
	all := open(t, Config{AllowAll: true})
	if got := text(t, all, "SELECT trim(content, chr(10)) FROM read_text('"+secret+"')"); got != "42" {
		t.Errorf("with AllowAll: %q", got)
	}
}

func TestSpillAndOutOfMemory(t *testing.T) {
	dir := t.TempDir()
	const sorted = "SELECT md5(i::VARCHAR) AS s, md5(s) AS p FROM range(2000000) t(i) ORDER BY s"
	in := open(t, Config{MemoryLimit: 64 << 20, TempDir: dir})
	var n int64
	if err := drain(t.Context(), in, sorted, &n); err != nil || n != 2000000 {
		t.Errorf("with room to spill: %d rows, %v", n, err)
	}
	full := open(t, Config{MemoryLimit: 64 << 20, TempDir: t.TempDir(), MaxTempBytes: 1 << 20})
	err := drain(t.Context(), full, sorted, &n)
	if e, ok := errors.AsType[*Error](err); !ok || e.Type != "Out of Memory" || !strings.Contains(e.Message, "max_temp_directory_size") {
		t.Errorf("without room to spill: %v", err)
	}
	err = drain(t.Context(), in, "SELECT len(list(md5(i::VARCHAR))) FROM range(5000000) t(i)", &n)
	if e, ok := errors.AsType[*Error](err); !ok || e.Type != "Out of Memory" {
		t.Errorf("a list that doesn't fit: %v", err)
	}
	if got := text(t, in, "SELECT 42"); got != "42" {
		t.Errorf("afterwards: %s", got)
	}
}

func drain(ctx context.Context, in *Instance, sql string, n *int64) error {
	*n = 0
	rows, err := in.Query(ctx, sql)
	if err != nil {
		return err
	}
	defer rows.Close()
	for {
		rec, err := rows.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		*n += rec.NumRows()
		rec.Release()
	}
}

func TestDescribeAndExplain(t *testing.T) {
	in := open(t, Config{})
	cols, err := in.Describe(t.Context(), `SELECT 1 AS "a b", 'x' AS s, sum(2) AS h, {'k': [1.5]} AS st`)
	if err != nil {
		t.Fatal(err)
	}
	want := []Column{{"a b", "INTEGER"}, {"s", "VARCHAR"}, {"h", "HUGEINT"}, {"st", "STRUCT(k DECIMAL(2,1)[])"}}
	for i, w := range want {
		if i >= len(cols) || cols[i] != w {
			t.Fatalf("got %v, want %v", cols, want)
		}
	}
	plan, err := in.ExplainJSON(t.Context(), "SELECT i + 1 FROM range(3) t(i) WHERE i > 0")
	if err != nil || !strings.Contains(plan, `"name"`) || !strings.Contains(plan, "PROJECTION") {
		t.Errorf("%s, %v", plan, err)
	}
	if _, err := in.Describe(t.Context(), "SELECT nope"); err == nil || !strings.Contains(err.Error(), "nope") {
		t.Errorf("got %v", err)
	}
}
