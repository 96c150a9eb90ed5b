//go:build interop

package interop_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/process"
)

// TestRandomTables fills tables of random schemas, partition specs and properties
// with random rows of awkward values, from every kind of source, and has
// random_tables.py compare Firn, PyIceberg and DuckDB's iceberg extension with plain
// DuckDB over the sources, and each data file's entry with the file. The tables
// follow from the seed: FIRN_RANDOM_SEED chooses another.
func TestRandomTables(t *testing.T) {
	python := os.Getenv("FIRN_INTEROP_PYTHON")
	if python == "" {
		t.Fatal("FIRN_INTEROP_PYTHON is not set: run `make interop`")
	}
	seed := "1"
	if s := os.Getenv("FIRN_RANDOM_SEED"); s != "" {
		seed = s
	}
	const tables = 6
	dir, work := t.TempDir(), t.TempDir()
	script := func(args ...string) {
		t.Helper()
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), python, append([]string{"random_tables.py"}, args...)...)
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		t.Logf("%s", out.String())
		if err != nil {
			t.Fatalf("random_tables.py %s with seed %s: %v", args[0], seed, err)
		}
	}
	script("make", seed, strconv.Itoa(tables), work)
	for _, file := range []string{"fill", "ask"} {
		r := process.Run(t.Context(), t, "sql", "--dir", dir, "-o", "json", "-f", filepath.Join(work, file+".sql"))
		if r.Code != 0 {
			t.Fatalf("%s.sql failed with exit code %d after %d statements, seed %s\n%s\n%s", file, r.Code, strings.Count(r.Stdout, "\n"), seed, r.Stderr, r.Stdout)
		}
		if err := os.WriteFile(filepath.Join(work, file+".jsonl"), []byte(r.Stdout), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script("check", seed, strconv.Itoa(tables), work, filepath.Join(dir, "catalog.db"), filepath.Join(dir, "warehouse"), work)
}
