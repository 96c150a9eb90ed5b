package history_test

import (
	"database/sql"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/history"
)

// TestReadDelta: rows of the live files, and what is wrong with a log.
func TestReadDelta(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "_delta_log"), 0o755); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("duckdb", "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	query := func(q string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	data := func(name, rows string) {
		query(fmt.Sprintf("COPY (%s) TO '%s' (FORMAT parquet)", rows, filepath.Join(dir, name)))
	}
	version := func(n int, lines ...string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "_delta_log", fmt.Sprintf("%020d.json", n)), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func() history.Delta {
		t.Helper()
		d, err := history.ReadDelta(t.Context(), dir, "id", "k")
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	data("a b.parquet", "SELECT 1 AS id UNION ALL SELECT 2")
	data("c.parquet", "SELECT 2 AS id")
	data("d.parquet", "SELECT 3 AS id")
	version(0, `{"protocol":{}}`)
	version(1, `{"commitInfo":{"k":"t=1,u=2"}}`, `{"add":{"path":"a%20b.parquet"}}`, `{"add":{"path":"d.parquet"}}`)
	version(2, `{"remove":{"path":"d.parquet"}}`, `{"add":{"path":"c.parquet"}}`)
	data("_delta_log/00000000000000000002.checkpoint.parquet", "SELECT {'path': 'c.parquet'} AS add UNION ALL SELECT {'path': 'a%20b.parquet'}")
	d := read()
	if !maps.Equal(d.Rows, map[int64]int{1: 1, 2: 2}) || d.Versions != 3 || len(d.Files) != 3 || len(d.Breaches) != 0 {
		t.Errorf("a sound log: %+v", d)
	}
	data("_delta_log/00000000000000000002.checkpoint.parquet", "SELECT {'path': 'c.parquet'} AS add")
	version(3, `{"commitInfo":{"k":"u=2"}}`, `{"add":{"path":"c.parquet"}}`, `{"add":{"path":"gone.parquet"}}`)
	version(5, `{"protocol":{}}`)
	d = read()
	for _, want := range []string{"has 1 files, and its version 2", "token u landed with the versions 1 and 3", "adds " + dir + "/c.parquet again", "names " + dir + "/gone.parquet", "version 4 is missing"} {
		if !slices.ContainsFunc(d.Breaches, func(b string) bool { return strings.Contains(b, want) }) {
			t.Errorf("%q isn't among %q", want, d.Breaches)
		}
	}
	if len(d.Breaches) != 5 {
		t.Errorf("%d breaches: %q", len(d.Breaches), d.Breaches)
	}
}
