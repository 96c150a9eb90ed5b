//go:build interop

package engines_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/process"
)

// local is a scheduler whose catalog and tables are on the local disk.
type local struct {
	sched                     *process.Server
	client                    *process.Client
	dir, catalogDB, warehouse string
}

func newLocal(t *testing.T) *local {
	t.Helper()
	dir := t.TempDir()
	l := &local{dir: dir, catalogDB: filepath.Join(dir, "catalog.db"), warehouse: filepath.Join(dir, "warehouse")}
	config := filepath.Join(dir, "scheduler.yaml")
	body := fmt.Sprintf("catalogs: {lake: {type: sql, uri: 'sqlite://%s', warehouse: '%s'}}\n", l.catalogDB, l.warehouse)
	if err := os.WriteFile(config, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	l.sched = process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(dir, "scheduler"), "--config", config)
	l.client = process.NewClient(t, "--server", l.sched.Address)
	return l
}

// script runs a script in Python against the scheduler. Whatever it prints is given
// to said, which answers with an empty line when it returns true.
func (l *local) script(t *testing.T, name string, said func(line string) bool) {
	t.Helper()
	path, err := filepath.Abs(module)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python(t), name, "grpc://"+l.sched.Address, l.catalogDB, l.warehouse)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1")
	var errors bytes.Buffer
	cmd.Stderr = &errors
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if said(lines.Text()) {
			if _, err := io.WriteString(in, "\n"); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, &errors)
	}
}

// TestClient goes through the outcomes of writes with the example's client: each is
// told for what it is, also when the scheduler is killed in between.
func TestClient(t *testing.T) {
	l := newLocal(t)
	l.client.Exec(nil, "CREATE NAMESPACE lake.air")
	for _, name := range []string{"t", "u"} {
		l.client.Exec(nil, "CREATE TABLE lake.air."+name+" (id bigint)")
	}
	l.script(t, "outcomes.py", func(line string) bool {
		t.Log(line)
		switch line {
		case "stop":
			l.sched.Kill()
			return true
		case "start":
			l.sched = l.sched.Again(t)
			return true
		}
		return false
	})
}

// TestTypes has the example's client write each type under each partition transform:
// Firn takes the texts of its partition values, and other readers give the same rows.
func TestTypes(t *testing.T) {
	l := newLocal(t)
	l.client.Exec(nil, "CREATE NAMESPACE lake.types")
	var statements strings.Builder
	l.script(t, "all_types.py", func(line string) bool {
		if strings.HasPrefix(line, "CREATE ") {
			statements.WriteString(line)
			return false
		}
		if line != "" {
			t.Log(line)
			return false
		}
		file := filepath.Join(l.dir, "tables.sql")
		if err := os.WriteFile(file, []byte(statements.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := process.Run(t.Context(), t, "sql", "--server", l.sched.Address, "-f", file); r.Code != 0 {
			t.Fatalf("%s", r.Stderr)
		}
		return true
	})
}
