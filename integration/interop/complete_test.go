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

// completeColumns are those of complete_manifests.py.
const completeColumns = `id bigint NOT NULL, n int, x double, s varchar, b boolean, d date, ts timestamp, amount decimal(18,2), raw blob, kind varchar,
  place struct(zip int, city varchar), tags varchar[], nothing bigint`

// writesLab is a scheduler with a catalog in its directory, and what the programs in
// Python need to write through it and to read its tables.
type writesLab struct {
	dir    string
	sched  *process.Server
	client *process.Client
}

func newWritesLab(t *testing.T) *writesLab {
	t.Helper()
	l := &writesLab{dir: t.TempDir()}
	config := filepath.Join(l.dir, "scheduler.yaml")
	body := fmt.Sprintf("catalogs: {lake: {type: sql, uri: 'sqlite://%s', warehouse: '%s'}}\n", l.catalog(), l.warehouse())
	if err := os.WriteFile(config, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	l.sched = process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(l.dir, "scheduler"), "--config", config)
	l.client = process.NewClient(t, "--server", l.sched.Address)
	l.client.Exec(nil, "CREATE NAMESPACE lake.complete")
	return l
}

func (l *writesLab) catalog() string   { return filepath.Join(l.dir, "catalog.db") }
func (l *writesLab) warehouse() string { return filepath.Join(l.dir, "warehouse") }

// create makes a table of the columns of complete_manifests.py.
func (l *writesLab) create(name, rest string) {
	l.client.Exec(nil, fmt.Sprintf("CREATE TABLE lake.complete.%s (%s) %s", name, completeColumns, rest))
}

// script runs a program in Python that may import the example's client, and returns what
// it prints.
func (l *writesLab) script(t *testing.T, args ...string) string {
	t.Helper()
	examples, err := filepath.Abs("../../examples/python")
	if err != nil {
		t.Fatal(err)
	}
	var out, errors bytes.Buffer
	cmd := exec.CommandContext(t.Context(), python(t), args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+examples, "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stdout, cmd.Stderr = &out, &errors
	err = cmd.Run()
	t.Logf("%s", out.String())
	if err != nil {
		t.Fatalf("%s: %v\n%s", args[0], err, &errors)
	}
	return out.String()
}

// TestCompleteManifests: a program that knows no more than the page about the open write
// protocol hands in manifests that it has made itself, and what other readers find in
// the tables, rows and statistics, is what the rows say.
func TestCompleteManifests(t *testing.T) {
	l := newWritesLab(t)
	l.create("ice_month", "PARTITIONED BY (month(d), kind)")
	l.create("ice_bucket", "PARTITIONED BY (bucket(2, s), amount)")
	l.create("delta_kind", "USING delta PARTITIONED BY (kind, d)")
	l.create("delta_amount", "USING delta PARTITIONED BY (amount, b)")
	tables := []string{"ice_month", "ice_bucket", "delta_kind", "delta_amount"}
	args := []string{"complete_manifests.py", "grpc://" + l.sched.Address}
	for _, name := range tables {
		args = append(args, "lake.complete."+name)
	}
	lines := strings.Split(strings.TrimSpace(l.script(t, args...)), "\n")
	l.script(t, append([]string{"complete_readers.py", l.catalog(), l.warehouse(), t.TempDir()}, tables...)...)
	for i, name := range tables {
		var report struct {
			Rows   int64
			Commit string
		}
		if err := json.Unmarshal([]byte(lines[i]), &report); err != nil || report.Rows != 120 || report.Commit != "committed" {
			t.Errorf("%s: %v: %s", name, err, lines[i])
		}
	}
}

// TestCompleteManifestsRefused: a manifest that contradicts the table, the file or itself
// is refused with words that say what and where, and the same write goes on, or a new
// one under its key.
func TestCompleteManifestsRefused(t *testing.T) {
	l := newWritesLab(t)
	l.create("ice", "PARTITIONED BY (month(d), kind)")
	l.create("delta", "USING delta PARTITIONED BY (kind, d)")
	l.script(t, "complete_refused.py", "grpc://"+l.sched.Address, "lake.complete.ice", "lake.complete.delta")
	process.Start(t, "executor", "--server", l.sched.Address, "--dir", filepath.Join(l.dir, "e"), "--slots", "1", "--memory", "512MiB")
	// What was right was committed: twice all rows, and nothing of what was refused.
	for _, name := range []string{"ice", "delta"} {
		row := l.client.Row("SELECT count(*) AS n, count(DISTINCT id) AS ids FROM lake.complete." + name)
		if row["n"] != 240.0 || row["ids"] != 120.0 {
			t.Errorf("%s: %v", name, row)
		}
	}
}
