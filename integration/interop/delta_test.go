//go:build interop

package interop_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/integration/process"
)

func python(t *testing.T) string {
	t.Helper()
	p := os.Getenv("FIRN_INTEROP_PYTHON")
	if p == "" {
		t.Fatal("FIRN_INTEROP_PYTHON is not set: run `make interop`")
	}
	return p
}

// TestDeltaReaders writes the suite's Delta tables through `firn sql` and has
// delta_readers.py compare what Firn, delta-rs and the Delta kernel make of them
// with plain DuckDB's rows.
func TestDeltaReaders(t *testing.T) {
	dir, work := t.TempDir(), t.TempDir()
	suite, err := os.ReadFile("delta_suite.sql")
	if err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs("../../examples/flights/flights-sample.parquet")
	if err != nil {
		t.Fatal(err)
	}
	if data := os.Getenv("FIRN_TESTDATA"); data != "" {
		path = filepath.Join(data, "data", "flights-3m.parquet")
	}
	suite = fmt.Appendf(suite, `
CREATE TABLE lake.dsuite.flights (date timestamp, delay bigint, distance bigint, origin varchar, destination varchar) USING delta PARTITIONED BY (origin);
INSERT INTO lake.dsuite.flights SELECT * FROM read_parquet(%s);
`, process.Quote(path))
	script := filepath.Join(work, "suite.sql")
	if err := os.WriteFile(script, suite, 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), python(t), append([]string{"delta_readers.py"}, args...)...).CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Fatalf("delta_readers.py %s: %v", args[0], err)
		}
	}
	read("truth", script, work)
	for _, file := range []string{"suite", "ask"} {
		r := process.Run(t.Context(), t, "sql", "--dir", dir, "-o", "json", "-f", filepath.Join(work, file+".sql"))
		if r.Code != 0 {
			t.Fatalf("%s.sql failed with exit code %d after %d statements\n%s", file, r.Code, strings.Count(r.Stdout, "\n"), r.Stderr)
		}
		if err := os.WriteFile(filepath.Join(work, file+".jsonl"), []byte(r.Stdout), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read("check", filepath.Join(dir, "warehouse"), work)
}

// deltaRS is a process that writes Delta tables with delta-rs.
type deltaRS struct {
	t   *testing.T
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Reader
}

func startDeltaRS(t *testing.T) *deltaRS {
	t.Helper()
	// Its input ends after the test's context does.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), python(t), "delta_writer.py")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("delta_writer.py: %v\n%s", err, &stderr)
		}
	})
	return &deltaRS{t: t, in: in, out: bufio.NewReader(out)}
}

type deltaRSAnswer struct {
	Version int64
	IDs     []int64
	Error   string
}

// do has delta-rs carry out one command.
func (d *deltaRS) do(args ...any) deltaRSAnswer {
	d.mu.Lock()
	defer d.mu.Unlock()
	command := strings.TrimSpace(fmt.Sprintln(args...))
	var a deltaRSAnswer
	_, err := fmt.Fprintln(d.in, command)
	if err == nil {
		var line []byte
		if line, err = d.out.ReadBytes('\n'); err == nil {
			err = json.Unmarshal(line, &a)
		}
	}
	if err != nil || a.Error != "" {
		d.t.Errorf("%s: %v %s", command, err, a.Error)
	}
	return a
}

// TestDeltaRSTakesTurns: Firn and delta-rs append to one table in turns, and then
// both at the same time; to one that Firn made and to one that delta-rs made. Every
// row is there once by both, each version is somebody's, and checkpoints of both
// are in the log.
func TestDeltaRSTakesTurns(t *testing.T) {
	dir, theirs := t.TempDir(), filepath.Join(t.TempDir(), "theirs")
	config := filepath.Join(dir, "scheduler.yaml")
	body := fmt.Sprintf("catalogs: {lake: {type: sql, uri: 'sqlite://%s/catalog.db', warehouse: '%s/warehouse'}}\ndelta: {paths: [{location: %s}]}\n",
		dir, dir, filepath.Dir(theirs))
	if err := os.WriteFile(config, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	s := process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(dir, "scheduler"), "--config", config)
	process.Start(t, "executor", "--server", s.Address, "--dir", filepath.Join(dir, "executor"), "--slots", "4", "--memory", "512MB")
	c, err := client.Dial(t.Context(), s.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exec := func(statement string) {
		t.Helper()
		r, err := c.Execute(t.Context(), client.Statement{SQL: statement})
		if err == nil && r.Job != nil {
			_, err = r.Job.Wait(t.Context())
		}
		if err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	rs := startDeltaRS(t)
	rs.do("create", theirs)
	exec("CREATE NAMESPACE lake.n")
	exec("CREATE TABLE lake.n.ours (id BIGINT, p VARCHAR, w VARCHAR) USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.checkpointInterval' = '7')")
	exec("CREATE TABLE lake.n.theirs USING delta LOCATION " + process.Quote(theirs))
	found, err := filepath.Glob(filepath.Join(dir, "warehouse", "n", "ours-*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the table's directory: %v, %v", found, err)
	}
	for _, table := range []struct{ name, path string }{{"lake.n.ours", found[0]}, {"lake.n.theirs", theirs}} {
		t.Run(filepath.Base(table.path), func(t *testing.T) {
			const turns, together = 50, 50
			insert := func(id int) {
				exec(fmt.Sprintf("INSERT INTO %s VALUES (%d, 'p/%d', 'firn')", table.name, id, id%3))
			}
			for i := range turns {
				insert(2 * i)
				if v := rs.do("append", table.path, 2*i+1).Version; v != int64(2*i+2) {
					t.Fatalf("turn %d ends with version %d", i, v)
				}
			}
			var wg sync.WaitGroup
			const first = 2 * turns
			wg.Go(func() {
				for i := range together {
					rs.do("append", table.path, first+2*i+1)
				}
			})
			for w := range 2 {
				wg.Go(func() {
					for i := w; i < together; i += 2 {
						insert(first + 2*i)
					}
				})
			}
			wg.Wait()
			var want []int64
			for i := range int64(2 * (turns + together)) {
				want = append(want, i)
			}
			if got := rs.do("read", table.path).IDs; !slices.Equal(got, want) {
				t.Errorf("delta-rs reads %d rows, want %d: %v", len(got), len(want), got)
			}
			row := process.NewClient(t, "--server", s.Address).Row("SELECT count(*)::int AS n, count(DISTINCT id)::int AS ids, count(*) FILTER (w = 'firn')::int AS firn, max(id)::int AS last FROM " + table.name)
			if got := fmt.Sprint(row["n"], row["ids"], row["firn"], row["last"]); got != "200 200 100 199" {
				t.Errorf("Firn reads %v", row)
			}
			checkpoints, err := filepath.Glob(filepath.Join(table.path, "_delta_log", "*.checkpoint.parquet"))
			if err != nil || len(checkpoints) < 5 {
				t.Errorf("%d checkpoints, %v", len(checkpoints), err)
			}
		})
	}
}
