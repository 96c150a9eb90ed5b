//go:build interop

package interop_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/process"
)

// TestFlightSQLClient: ADBC's Flight SQL driver, which nobody here wrote, runs
// statements, keys, errors, bulk loads, metadata and cancels against processes.
func TestFlightSQLClient(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "s")
	token := func(role string) string {
		r := process.Run(t.Context(), t, "token", "create", "--dir", at, "--role", role, "--name", role, "-o", "json")
		var made struct{ Token string }
		if err := json.Unmarshal([]byte(r.Stdout), &made); err != nil || r.Code != 0 || made.Token == "" {
			t.Fatalf("%v: %s%s", err, r.Stdout, r.Stderr)
		}
		return made.Token
	}
	mine, theirs := token("client"), filepath.Join(dir, "executor.token")
	if err := os.WriteFile(theirs, []byte(token("executor")), 0o600); err != nil {
		t.Fatal(err)
	}
	s := process.Start(t, "scheduler", "--dir", at, "--listen", "127.0.0.1:0", "--flight-sql-listen", "127.0.0.1:0")
	process.Start(t, "executor", "--server", s.Address, "--dir", filepath.Join(dir, "e"), "--slots", "2", "--memory", "512MiB", "--token-file", theirs)

	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), python(t), "flightsql_client.py", "grpc://"+s.Ready["flight_sql"].(string), mine)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	t.Logf("%s", out.String())
	if err != nil {
		t.Fatalf("flightsql_client.py: %v", err)
	}
	// The program of the how-to page.
	page, err := os.ReadFile("../../docs/how-to/flight-sql-clients.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(page), "```python file=load.py\n")
	program, _, _ = strings.Cut(program, "```")
	cmd = exec.CommandContext(t.Context(), python(t), "-c", strings.ReplaceAll(program, "127.0.0.1:7352", s.Ready["flight_sql"].(string)))
	cmd.Env = append(os.Environ(), "FIRN_TOKEN="+mine)
	if raw, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(raw), "1 row") || !strings.Contains(string(raw), "[[42]]") {
		t.Errorf("the page's program: %v\n%s", err, raw)
	}
	// What was cancelled there has stopped here.
	file := filepath.Join(dir, "client.token")
	if err := os.WriteFile(file, []byte(mine), 0o600); err != nil {
		t.Fatal(err)
	}
	s.AwaitLog(t, 0, `"msg":"job ended"`, `"state":"cancelled"`)
	r := process.Run(t.Context(), t, "job", "list", "--server", s.Address, "--token-file", file, "-o", "json")
	if r.Code != 0 || strings.Count(r.Stdout, `"cancelled"`) != 1 || strings.Contains(r.Stdout, `"running"`) {
		t.Errorf("jobs: %s%s", r.Stdout, r.Stderr)
	}
}

// TestFlightSQLOfDev: `firn dev` says where Flight SQL clients connect.
func TestFlightSQLOfDev(t *testing.T) {
	s := process.Start(t, "dev", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "-o", "json")
	const program = `
import sys, adbc_driver_flightsql.dbapi as flightsql
with flightsql.connect("grpc://" + sys.argv[1], autocommit=True) as c, c.cursor() as cursor:
    cursor.execute("SELECT 6 * 7")
    print(cursor.fetchall())
`
	if raw, err := exec.CommandContext(t.Context(), python(t), "-c", program, s.Ready["flight_sql"].(string)).CombinedOutput(); err != nil || string(raw) != "[(42,)]\n" {
		t.Errorf("%v: %s", err, raw)
	}
}
