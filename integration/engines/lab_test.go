//go:build interop

package engines_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/integration/servers"
	"github.com/firn-project/firn/internal/objstore"
)

// tables is a place for Delta tables.
const tables = "s3://" + servers.Bucket + "/tables"

// lab is a scheduler, without executors, whose configuration has canaries, on
// SeaweedFS with its catalog. It lets in who has a token.
type lab struct {
	t     *testing.T
	store servers.SeaweedFS
	sched *process.Server
	// spark is the URL of a master of Spark's, cluster a text in the environment of its
	// processes.
	spark, cluster string
	// tokenFile has the client's token.
	tokenFile string
	client    *process.Client
	// token is the client's.
	token string
	// catalog stands between the scheduler and the catalog.
	catalog *tokens
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	l := &lab{t: t, store: servers.StartSeaweedFS(t), tokenFile: filepath.Join(dir, "client.token")}
	l.catalog = startTokens(t, l.store.Catalog)
	header := mark + "of-the-catalog-61c5"
	s3 := l.store.Storage()
	s3[objstore.KeySTSEndpoint], s3[objstore.KeyRoleARN] = l.store.Endpoint, l.store.Role
	properties := map[string]string{"credential": l.store.AccessKey + ":" + l.store.SecretKey, "header.X-Canary": header}
	maps.Copy(properties, s3)
	body, err := json.Marshal(map[string]any{
		"catalogs": map[string]any{"lake": map[string]any{"type": "rest", "uri": l.catalog.URL, "warehouse": l.store.Warehouse, "properties": properties}},
		"delta":    map[string]any{"paths": []any{map[string]any{"location": tables, "properties": s3}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	config, home := filepath.Join(dir, "scheduler.yaml"), filepath.Join(dir, "scheduler")
	if err := os.WriteFile(config, body, 0o600); err != nil {
		t.Fatal(err)
	}
	l.sched = process.StartWith(t, []string{"FIRN_SWEEP_DELAY=5s"}, "scheduler", "--listen", "127.0.0.1:0", "--dir", home, "--config", config)
	r := process.Run(t.Context(), t, "token", "create", "--dir", home, "--role", "client", "--name", "engines")
	if r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	l.token = strings.TrimSpace(r.Stdout)
	if err := os.WriteFile(l.tokenFile, []byte(r.Stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	l.client = process.NewClient(t, "--server", l.sched.Address, "--token-file", l.tokenFile)
	return l
}

// input are the flights, cut into a file for each task. Where FIRN_TESTDATA has none,
// it's the sample, sixty times.
type input struct {
	dir  string
	rows int64
}

func flights(t *testing.T) input {
	t.Helper()
	in, path, times := input{dir: t.TempDir(), rows: 60 * 50_005}, "../../examples/flights/flights-sample.parquet", 60
	if data := os.Getenv("FIRN_TESTDATA"); data != "" {
		path, times, in.rows = filepath.Join(data, "data", "flights-3m.parquet"), 1, 3_000_000
	}
	t.Logf("input: %d rows, %s %d times", in.rows, filepath.Base(path), times)
	out, err := exec.CommandContext(t.Context(), python(t), "split.py", path, strconv.Itoa(times), in.dir, "12").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return in
}

// driver is a run of one of the drivers in Python.
type driver struct {
	t           *testing.T
	cmd         *exec.Cmd
	out, errors bytes.Buffer
	done        chan error
}

// start runs a driver. All its processes have the mark in their environment.
func start(t *testing.T, script string, run map[string]any) *driver {
	t.Helper()
	body, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(module)
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{t: t, cmd: exec.CommandContext(t.Context(), python(t), script, string(body)), done: make(chan error, 1)}
	d.cmd.Env = append(os.Environ(), "FIRN_TEST_MARK="+markEnvironment+fmt.Sprint(run["state"]), "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1", "AWS_EC2_METADATA_DISABLED=true")
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.errors
	d.cmd.WaitDelay = time.Second // what it started may hold its output open
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.done <- d.cmd.Wait() }()
	return d
}

// finish waits for the driver's end and gives the JSON that it printed.
func (d *driver) finish() (ended outcome) {
	d.t.Helper()
	if err := <-d.done; err != nil {
		d.t.Fatalf("%v\n%s\n%s", err, &d.out, &d.errors)
	}
	lines := strings.Split(strings.TrimSpace(d.out.String()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &ended); err != nil {
		d.t.Fatalf("%v\n%s\n%s", err, &d.out, &d.errors)
	}
	return ended
}

// killed waits for the driver's end, which must be by a signal.
func (d *driver) killed() {
	d.t.Helper()
	<-d.done
	if s, ok := d.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
		d.t.Fatalf("the driver wasn't killed, it ended with %v\n%s\n%s", d.cmd.ProcessState, &d.out, &d.errors)
	}
}

// outcome is what a driver prints.
type outcome struct {
	WriteID string   `json:"write_id"`
	State   string   `json:"state"`
	Sealed  []string `json:"sealed_handles"`
	Report  struct {
		Commit     string `json:"commit"`
		Rows       int64  `json:"rows"`
		Files      int64  `json:"files"`
		SnapshotID string `json:"snapshot_id"`
	} `json:"report"`
}

// await asks for a condition until it holds.
func await(t *testing.T, what string, limit time.Duration, holds func() bool) {
	t.Helper()
	late := time.After(limit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s took more than %v", what, limit)
		}
	}
}
