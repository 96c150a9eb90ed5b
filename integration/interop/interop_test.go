//go:build interop

package interop_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/process"
)

// TestOtherReaders writes the suite's tables through `firn sql` and has
// readers.py compare what PyIceberg and DuckDB make of them.
func TestOtherReaders(t *testing.T) {
	python := os.Getenv("FIRN_INTEROP_PYTHON")
	if python == "" {
		t.Fatal("FIRN_INTEROP_PYTHON is not set: run `make interop`")
	}
	dir := t.TempDir()
	suite, err := os.ReadFile("suite.sql")
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "suite.sql")
	if err := os.WriteFile(script, append(suite, flights(t)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := process.Run(t.Context(), t, "sql", "--dir", dir, "-o", "json", "-f", script); r.Code != 0 {
		t.Fatalf("the suite's statements failed with exit code %d after %d statements\n%s", r.Code, strings.Count(r.Stdout, "\n"), r.Stderr)
	}
	counts := t.TempDir()
	writeCounts(t, dir, counts)

	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), python, "readers.py", filepath.Join(dir, "catalog.db"), filepath.Join(dir, "warehouse"), counts, "suite.sql")
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	t.Logf("%s", out.String())
	if err != nil {
		t.Fatalf("readers.py: %v", err)
	}
}

// flights adds the real input: all of it where FIRN_TESTDATA has it, else the
// sample.
func flights(t *testing.T) []byte {
	t.Helper()
	path, err := filepath.Abs("../../examples/flights/flights-sample.parquet")
	if err != nil {
		t.Fatal(err)
	}
	var extra string
	if data := os.Getenv("FIRN_TESTDATA"); data != "" {
		path = filepath.Join(data, "data", "flights-3m.parquet")
		extra = fmt.Sprintf(`
CREATE TABLE lake.suite.zipcodes (zip_code string, latitude double, longitude double, city string, state string, county string) PARTITIONED BY (state);
INSERT INTO lake.suite.zipcodes SELECT * FROM read_csv(%s, header = true, all_varchar = false, types = {'zip_code': 'VARCHAR'});
`, process.Quote(filepath.Join(data, "data", "zipcodes.csv")))
	}
	return []byte(fmt.Sprintf(`
CREATE TABLE lake.suite.flights (date timestamp, delay bigint, distance bigint, origin string, destination string) PARTITIONED BY (month(date));
INSERT INTO lake.suite.flights SELECT * FROM read_parquet(%s);
`, process.Quote(path)) + extra)
}

// writeCounts asks Firn itself for the number of rows and the sums of the integer
// columns of each table, and leaves a file for each in out.
func writeCounts(t *testing.T, dir, out string) {
	t.Helper()
	c := process.NewClient(t, "--dir", dir)
	var tables []map[string]any
	c.Exec(&tables, "SHOW TABLES IN lake.suite")
	if len(tables) < 35 {
		t.Fatalf("SHOW TABLES lists %d tables, the suite has at least 35", len(tables))
	}
	var script strings.Builder
	var names []string
	for _, row := range tables {
		name := fmt.Sprint(row["table"])
		var columns []map[string]any
		c.Exec(&columns, "DESCRIBE lake.suite."+name)
		fmt.Fprintf(&script, "SELECT count(*) AS \"rows\"")
		for _, col := range columns {
			if typ := fmt.Sprint(col["type"]); typ == "int" || typ == "long" {
				fmt.Fprintf(&script, ", coalesce(sum(%[1]s), 0)::hugeint::varchar AS sum_%[1]s", col["column"])
			}
		}
		fmt.Fprintf(&script, " FROM lake.suite.%s;\n", name)
		names = append(names, name)
	}
	file := filepath.Join(out, "counts.sql")
	if err := os.WriteFile(file, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	r := process.Run(t.Context(), t, "sql", "--dir", dir, "-o", "json", "-f", file)
	if r.Code != 0 {
		t.Fatalf("counting failed: %s", r.Stderr)
	}
	lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
	if len(lines) != len(names) {
		t.Fatalf("%d lines for %d tables", len(lines), len(names))
	}
	for i, line := range lines {
		var rows []json.RawMessage
		if err := json.Unmarshal([]byte(line), &rows); err != nil || len(rows) != 1 {
			t.Fatalf("%s: %v: %s", names[i], err, line)
		}
		if err := os.WriteFile(filepath.Join(out, "suite."+names[i]+".json"), rows[0], 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
