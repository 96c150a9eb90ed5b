//go:build interop

package interop_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/integration/servers"
)

// shared reads what Firn wrote into a PostgreSQL catalog, appends to it, and makes
// a table of its own there.
const shared = `
import sys
import pyarrow as pa
from pyiceberg.catalog import load_catalog

c = load_catalog("pg", type="sql", uri=sys.argv[1], warehouse=sys.argv[2])
t = c.load_table("air.flights")
print("read", sorted(t.scan().to_arrow().column("id").to_pylist()))
t.append(pa.table({"id": pa.array([3], pa.int64())}))
c.create_namespace("theirs")
c.create_table("theirs.t", pa.schema([pa.field("id", pa.int64())])).append(pa.table({"id": pa.array([7], pa.int64())}))
`

// TestPyIcebergSharesPostgreSQL: Firn and PyIceberg write to one catalog in turns.
func TestPyIcebergSharesPostgreSQL(t *testing.T) {
	python := os.Getenv("FIRN_INTEROP_PYTHON")
	if python == "" {
		t.Fatal("FIRN_INTEROP_PYTHON is not set: run `make interop`")
	}
	uri := strings.Replace(servers.StartPostgreSQL(t).MakeDatabase(t, "lake"), "postgres://", "postgresql://", 1)
	theirs := strings.Replace(uri, "postgresql://", "postgresql+psycopg2://", 1)
	dir, warehouse := t.TempDir(), t.TempDir()
	c := process.NewClient(t, "--dir", dir)
	// The URI as PyIceberg writes it does here too.
	for _, s := range []string{
		fmt.Sprintf("CREATE CATALOG pg WITH (type = 'sql', uri = %s, warehouse = %s)", process.Quote(theirs), process.Quote(warehouse)),
		"CREATE NAMESPACE pg.air", "CREATE TABLE pg.air.flights (id BIGINT)",
	} {
		if r := c.Try(s); r.Code != 0 {
			t.Fatalf("%s: %s", s, r.Stderr)
		}
	}
	insert := func(table string, id int) {
		t.Helper()
		s := fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, id)
		if r := c.Try(s); r.Code != 0 {
			t.Fatalf("%s: %s", s, r.Stderr)
		}
	}
	insert("pg.air.flights", 1)
	insert("pg.air.flights", 2)
	script := filepath.Join(t.TempDir(), "shared.py")
	if err := os.WriteFile(script, []byte(shared), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), python, script, theirs, "file://"+warehouse).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "read [1, 2]") {
		t.Fatalf("PyIceberg: %v\n%s", err, out)
	}
	insert("pg.air.flights", 4)
	insert("pg.theirs.t", 8)
	for table, want := range map[string]string{"pg.air.flights": "10/4", "pg.theirs.t": "15/2"} {
		row := c.Row("SELECT sum(id)::varchar AS s, count(*)::varchar AS n FROM " + table)
		if got := fmt.Sprint(row["s"], "/", row["n"]); got != want {
			t.Errorf("%s: %s, want %s", table, got, want)
		}
	}
}
