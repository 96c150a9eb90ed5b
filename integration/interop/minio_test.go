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

// TestOtherReadersFromMinIO writes the real input into a table on MinIO through a
// scheduler and two executors, and has others read it straight from there.
func TestOtherReadersFromMinIO(t *testing.T) {
	python := os.Getenv("FIRN_INTEROP_PYTHON")
	if python == "" {
		t.Fatal("FIRN_INTEROP_PYTHON is not set: run `make interop`")
	}
	m := servers.StartMinIO(t)
	m.MakeBucket(t, "lake")
	dir := t.TempDir()
	db := filepath.Join(dir, "catalog.db")
	var config strings.Builder
	fmt.Fprintf(&config, "catalogs:\n  lake:\n    type: sql\n    uri: sqlite://%s\n    warehouse: s3://lake/warehouse\n    properties:\n      s3.sts-endpoint: %s\n", db, m.Endpoint)
	for k, v := range m.Storage() {
		fmt.Fprintf(&config, "      %s: %q\n", k, v)
	}
	path, err := filepath.Abs("../../examples/flights/flights-sample.parquet")
	if err != nil {
		t.Fatal(err)
	}
	if data := os.Getenv("FIRN_TESTDATA"); data != "" {
		path = filepath.Join(data, "data", "flights-3m.parquet")
	}
	fmt.Fprintf(&config, "sources:\n  local:\n    allow: [%q]\n", filepath.Dir(path))
	file := filepath.Join(dir, "scheduler.yaml")
	if err := os.WriteFile(file, []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	sched := process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(dir, "scheduler"), "--config", file)
	for i := range 2 {
		process.Start(t, "executor", "--server", sched.Address, "--dir", filepath.Join(dir, fmt.Sprintf("executor-%d", i)), "--slots", "1", "--memory", "512MB")
	}
	c := process.NewClient(t, "--server", sched.Address)
	c.Exec(nil, "CREATE NAMESPACE lake.air")
	c.Exec(nil, "CREATE TABLE lake.air.flights (date timestamp, delay bigint, distance bigint, origin string, destination string) PARTITIONED BY (month(date))")
	c.Exec(nil, "INSERT INTO lake.air.flights SELECT * FROM read_parquet("+process.Quote(path)+")")
	row := c.Row(`SELECT count(*)::varchar AS "rows", sum(distance)::bigint::varchar AS distance FROM lake.air.flights`)
	out, err := exec.CommandContext(t.Context(), python, "minio_readers.py", db, "s3://lake/warehouse", m.Endpoint, m.AccessKey, m.SecretKey,
		"air.flights", fmt.Sprint(row["rows"]), fmt.Sprint(row["distance"])).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}
