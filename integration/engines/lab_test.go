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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/firn-project/firn/integration/canary"
	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/integration/servers"
	"github.com/firn-project/firn/internal/objstore"
)

// mark begins every canary; the marks are what the search must find in workers, by
// the place where they are.
const (
	mark            = "kNr7Canary-"
	markEnvironment = "kNr7Marker-of-the-environment"
	markArguments   = "kNr7Marker-of-the-arguments"
	markMemory      = "kNr7Marker.of.a.task" // as flights.py has it
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
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	l := &lab{t: t, store: servers.StartSeaweedFS(t), tokenFile: filepath.Join(dir, "client.token")}
	header := mark + "of-the-catalog-61c5"
	s3 := l.store.Storage()
	s3[objstore.KeySTSEndpoint], s3[objstore.KeyRoleARN] = l.store.Endpoint, l.store.Role
	properties := map[string]string{"credential": l.store.AccessKey + ":" + l.store.SecretKey, "header.X-Canary": header}
	maps.Copy(properties, s3)
	body, err := json.Marshal(map[string]any{
		"catalogs": map[string]any{"lake": map[string]any{"type": "rest", "uri": l.store.Catalog, "warehouse": l.store.Warehouse, "properties": properties}},
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

// input cuts the flights into twelve files. Where FIRN_TESTDATA has none, it's the
// sample, sixty times.
type input struct {
	dir                            string
	rows, distance, delay, origins int64
	months                         map[string]int64
}

func flights(t *testing.T) input {
	t.Helper()
	in, path, times := input{dir: t.TempDir()}, "../../examples/flights/flights-sample.parquet", 60
	in.rows, in.distance, in.delay = 60*50_005, 60*36_637_367, 60*322_590
	if data := os.Getenv("FIRN_TESTDATA"); data != "" {
		path, times = filepath.Join(data, "data", "flights-3m.parquet"), 1
		in.rows, in.distance, in.delay, in.origins = 3_000_000, 2_194_861_208, 20_003_603, 229
		in.months = map[string]int64{"2001-01": 508_239, "2001-02": 458_170, "2001-03": 511_502, "2001-04": 501_030, "2001-05": 518_831, "2001-06": 502_222, "2001-07": 6}
	}
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

// processesOf gives the processes that have a text in their environment, with their
// command lines.
func processesOf(t *testing.T, text string) map[int]string {
	t.Helper()
	all, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]string{}
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")); err != nil || !bytes.Contains(env, []byte(text)) {
			continue // of another user, or gone
		}
		args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		found[pid] = strings.Trim(string(bytes.ReplaceAll(args, []byte{0}, []byte{' '})), " ")
	}
	return found
}

// searchWorkers searches the memory, environment and arguments of a driver's workers
// for what they mustn't have, and for the marks, which they must.
func (l *lab) searchWorkers(state string, driver int, kinds map[string]int) {
	t := l.t
	t.Helper()
	// The canary in the header begins with the mark.
	secrets := []string{mark, l.store.SecretKey, l.token}
	all := canary.NewMarks(append(secrets, markEnvironment, markArguments, markMemory)...)
	seen := map[string]int{}
	var searched int64
	workers := processesOf(t, state)
	maps.Copy(workers, processesOf(t, l.cluster))
	for pid, args := range workers {
		if pid == driver {
			continue
		}
		found, n, err := all.Process(pid)
		if err != nil {
			continue // it has ended
		}
		searched += n
		for _, f := range found {
			seen[f]++
			if slices.ContainsFunc(secrets, func(s string) bool { return strings.HasPrefix(f, s) }) {
				t.Errorf("a worker has a secret: %s in %d, %.100s", f, pid, args)
			}
		}
		for kind := range kinds {
			if strings.Contains(args, kind) {
				seen[kind]++
			}
		}
	}
	own, _, err := all.Process(l.sched.PID())
	for _, s := range secrets[:2] {
		if !slices.ContainsFunc(own, func(f string) bool { return strings.HasPrefix(f, s) }) {
			t.Errorf("control: %s isn't found in the scheduler, which has it: %v", s, err)
		}
	}
	t.Logf("workers: %d MiB searched; processes and marks: %v", searched>>20, seen)
	for kind, least := range kinds {
		if seen[kind] < least {
			t.Errorf("control: %d of %s were searched, want %d", seen[kind], kind, least)
		}
	}
}
