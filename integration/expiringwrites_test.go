//go:build integration

package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/integration/servers"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/objstore/storetest"
)

// spared is for how long the scheduler doesn't make keys again that it has just made,
// whatever is said of them.
const spared = time.Second

// endings ends keys of workers at the store, long before the time that STS said.
type endings struct {
	own   string
	fault storetest.Fault

	mu sync.Mutex
	// first is when a key was used first; ended are those that have ended, with how
	// many of their requests were refused.
	first map[string]time.Time
	ended map[string]int
}

func (e *endings) choose(r storetest.Request) storetest.Fault {
	if r.Key == e.own || r.Key == "" {
		return storetest.None
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.first[r.Key]; !ok {
		e.first[r.Key] = time.Now()
	}
	if _, ok := e.ended[r.Key]; !ok {
		return storetest.None
	}
	e.ended[r.Key]++
	return e.fault
}

// end ends all keys that were used so far, from now on.
func (e *endings) end() {
	var youngest time.Time
	e.mu.Lock()
	for _, at := range e.first {
		if at.After(youngest) {
			youngest = at
		}
	}
	e.mu.Unlock()
	<-time.After(time.Until(youngest.Add(spared)))
	e.mu.Lock()
	defer e.mu.Unlock()
	for key := range e.first {
		if _, ok := e.ended[key]; !ok {
			e.ended[key] = 0
		}
	}
}

// refused are the keys that have ended, with how many of their requests were refused.
func (e *endings) refused() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.ended)
}

// expiring is a scheduler, without executors, whose tables lie in MinIO behind a proxy
// that ends keys.
type expiring struct {
	*process.Client
	t          *testing.T
	direct     servers.S3
	store, sts *storetest.Proxy
	keys       *endings
	db, server string
}

// newExpiring makes the table lake.air.t with a target size of its files. The fault is
// how the store says that keys have ended.
func newExpiring(t *testing.T, fault storetest.Fault, target int) *expiring {
	t.Helper()
	dir := t.TempDir()
	x := &expiring{t: t, direct: servers.StartMinIO(t), db: filepath.Join(dir, "catalog.db")}
	x.direct.MakeBucket(t, "lake")
	x.store, x.sts = storetest.NewProxy(t, x.direct.Endpoint), storetest.NewProxy(t, x.direct.Endpoint)
	x.keys = &endings{own: x.direct.AccessKey, fault: fault, first: map[string]time.Time{}, ended: map[string]int{}}
	through := x.direct
	through.Endpoint = x.store.URL
	config := filepath.Join(dir, "scheduler.yaml")
	body, err := json.Marshal(map[string]any{
		"sweep": map[string]any{"delay": "1s"},
		"catalogs": map[string]any{"lake": map[string]any{
			"type": "sql", "uri": "sqlite://" + x.db, "warehouse": "s3://lake/warehouse",
			"properties": with(through.Storage(), map[string]string{objstore.KeySTSEndpoint: x.sts.URL}),
		}},
	})
	if err == nil {
		err = os.WriteFile(config, body, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	x.server = process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(dir, "scheduler"), "--config", config).Address
	x.Client = process.NewClient(t, "--server", x.server)
	x.Exec(nil, "CREATE NAMESPACE lake.air")
	x.Exec(nil, fmt.Sprintf("CREATE TABLE lake.air.t (n bigint) TBLPROPERTIES ('write.target-file-size-bytes' = '%d', 'write.parquet.compression-codec' = 'uncompressed')", target))
	x.store.Begin(x.keys.choose)
	x.sts.Begin(nil)
	return x
}

// script runs a script in Python. When it prints "expire" the keys end.
func (x *expiring) script(into any, args ...string) {
	x.t.Helper()
	python := os.Getenv("FIRN_INTEROP_PYTHON")
	if python == "" {
		x.t.Fatal("FIRN_INTEROP_PYTHON is not set: run `make integration`, or set it to the output of integration/scripts/readers.sh")
	}
	module, err := filepath.Abs("../examples/python")
	if err != nil {
		x.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(x.t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+module, "PYTHONDONTWRITEBYTECODE=1", "AWS_EC2_METADATA_DISABLED=true")
	var failed bytes.Buffer
	cmd.Stderr = &failed
	in, err := cmd.StdinPipe()
	if err != nil {
		x.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		x.t.Fatal(err)
	}
	last := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if last = lines.Text(); last == "expire" {
			x.keys.end()
			if _, err := io.WriteString(in, "\n"); err != nil {
				x.t.Error(err)
			}
		}
	}
	err = cmd.Wait()
	if err == nil {
		err = json.Unmarshal([]byte(last), into)
	}
	if err != nil {
		x.t.Fatalf("%s: %v: %s\n%s", args[0], err, last, &failed)
	}
}

// expiringRead is what PyIceberg finds in the table.
type expiringRead struct {
	Rows, Distinct, Least, Greatest int64
	Files                           []string
	Snapshots                       int
}

// check wants the numbers from least on, once each and in one snapshot, and nothing
// under the prefix but the files that have them.
func (x *expiring) check(prefix string, least, rows int64) {
	x.t.Helper()
	properties, err := json.Marshal(x.direct.Storage())
	if err != nil {
		x.t.Fatal(err)
	}
	var read expiringRead
	x.script(&read, "expiring_read.py", x.db, string(properties))
	if read.Rows != rows || read.Distinct != rows || read.Least != least || read.Greatest != least+rows-1 || read.Snapshots != 1 {
		read.Files = nil
		x.t.Errorf("the table has %+v; want %d rows from %d on in one snapshot", read, rows, least)
	}
	x.only(prefix, read.Files)
}

// only waits until nothing else is left under a prefix.
func (x *expiring) only(prefix string, files []string) {
	x.t.Helper()
	var have []string
	end := time.After(time.Minute)
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		if have = x.objects(prefix); slices.Equal(have, files) {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			x.t.Fatalf("under %s lie\n%s\nwant\n%s", prefix, strings.Join(have, "\n"), strings.Join(files, "\n"))
		}
	}
}

// objects are those under a prefix, sorted.
func (x *expiring) objects(prefix string) (all []string) {
	x.t.Helper()
	for o, err := range objstore.New(x.direct.Config()).List(x.t.Context(), prefix) {
		if err != nil {
			x.t.Fatal(err)
		}
		all = append(all, o.URI)
	}
	slices.Sort(all)
	return all
}

// expiringRun is what the script says of a driver and its workers.
type expiringRun struct {
	Prefix   string
	FirstKey string `json:"first_key"`
	Rows     int64
	// Renewals are the keys that were said to have ended, in order.
	Renewals []*string
	Failures []struct{ Kind, Text string }
	Report   *struct {
		Commit      string
		Rows, Files int64
	}
}

// run runs a driver with so many workers of so many batches, whose keys end after half
// of them.
func (x *expiring) run(workers, batches int, meanwhile string) (r expiringRun) {
	x.t.Helper()
	args, err := json.Marshal(map[string]any{
		"location": "grpc://" + x.server, "key": "load", "workers": workers, "batches": batches, "expire_after": batches / 2, "meanwhile": meanwhile,
	})
	if err != nil {
		x.t.Fatal(err)
	}
	x.script(&r, "expiring_writes.py", string(args))
	refused := x.keys.refused()
	x.t.Logf("%d renewals, %d keys made, requests with keys that had ended: %d; failed tries: %+v", len(r.Renewals), x.sts.Requests()[storetest.Other], refused[r.FirstKey], r.Failures)
	if len(refused) != 1 || refused[r.FirstKey] == 0 {
		x.t.Fatalf("control: keys %v have ended, want %s, and requests with them", refused, r.FirstKey)
	}
	for _, k := range r.Renewals {
		if k == nil || *k != r.FirstKey {
			x.t.Errorf("a renewal named the keys %v, want %s", k, r.FirstKey)
		}
	}
	// pyarrow may ask three times for each request of its own.
	if n, most := refused[r.FirstKey], 20*workers; n > most {
		x.t.Errorf("%d requests with keys that had ended, want %d at most", n, most)
	}
	return r
}

// TestPythonWorkersOutliveTheirKeys: the store ends the keys of workers, of
// examples/python, while they write. They renew, once each, and go on; in the middle
// of a file, whose upload can't go on, the task is tried again. Its rows are committed
// once, and nothing else stays.
func TestPythonWorkersOutliveTheirKeys(t *testing.T) {
	for name, c := range map[string]struct {
		fault                    storetest.Fault
		target, workers, batches int
		// failed are the tries that fail.
		failed, renewals, files int
	}{
		"between files":                   {fault: storetest.Expired, target: 512 << 10, workers: 1, batches: 6, renewals: 1, files: 6},
		"between files, in MinIO's words": {fault: storetest.Forgotten, target: 512 << 10, workers: 1, batches: 6, renewals: 1, files: 6},
		"several workers":                 {fault: storetest.Expired, target: 512 << 10, workers: 3, batches: 6, renewals: 3, files: 18},
		"in the middle of an upload":      {fault: storetest.Expired, target: 64 << 20, workers: 1, batches: 30, failed: 1, renewals: 1, files: 1},
	} {
		t.Run(name, func(t *testing.T) {
			x := newExpiring(t, c.fault, c.target)
			r := x.run(c.workers, c.batches, "")
			if r.Report == nil || r.Report.Commit != "committed" || r.Report.Rows != r.Rows || r.Report.Files != int64(c.files) {
				t.Fatalf("%+v", r.Report)
			}
			if len(r.Failures) != c.failed || len(r.Renewals) != c.renewals {
				t.Errorf("%d tries failed and %d renewals, want %d and %d", len(r.Failures), len(r.Renewals), c.failed, c.renewals)
			}
			for _, f := range r.Failures {
				if !strings.Contains(f.Text, "ExpiredToken") {
					t.Errorf("a try failed of %s: %s", f.Kind, f.Text)
				}
			}
			// The first, and those after them, once for all workers.
			if n := x.sts.Requests()[storetest.Other]; n != 2 {
				t.Errorf("keys were made %d times, want 2", n)
			}
			if c.failed > 0 && x.store.Requests()[storetest.Part] < 2 {
				t.Error("control: there was no upload in parts")
			}
			x.check(r.Prefix, 0, r.Rows)
		})
	}
}

// TestPythonWorkersWithoutFurtherKeys: the keys end, and the write has ended meanwhile.
// Each try says so and ends; the table has what was committed before, if anything.
func TestPythonWorkersWithoutFurtherKeys(t *testing.T) {
	for name, c := range map[string]struct {
		target, batches  int
		meanwhile, state string
	}{
		"aborted":                         {512 << 10, 6, "abort", "aborted"},
		"aborted in the middle of a file": {64 << 20, 30, "abort", "aborted"},
		"committed with others":           {512 << 10, 6, "commit", "committed"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newExpiring(t, storetest.Expired, c.target)
			r := x.run(1, c.batches, c.meanwhile)
			if r.Report != nil || len(r.Failures) != 3 || len(r.Renewals) > 3 || len(r.Renewals) < 2 {
				t.Fatalf("%+v", r)
			}
			last := r.Failures[2]
			if last.Kind != "WriteError" || !strings.Contains(last.Text, "isn't open any more, it is "+c.state) {
				t.Errorf("the last try failed of %s: %s", last.Kind, last.Text)
			}
			if n := x.sts.Requests()[storetest.Other]; n != 1 {
				t.Errorf("keys were made %d times, want once", n)
			}
			if c.meanwhile == "commit" {
				x.check(r.Prefix, -1, 1)
			} else {
				x.only(r.Prefix, nil)
			}
		})
	}
}

// renewed are a worker's keys, of the Go client.
type renewed struct {
	w  *client.Write
	wc client.WriteContext

	mu      sync.Mutex
	expired string
	renewed []string
}

// Keys implements objstore.Renewer.
func (r *renewed) Keys(ctx context.Context) (objstore.Keys, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.expired != "" && r.expired == r.wc.Storage.AccessKeyID {
		wc, err := r.w.Renew(ctx, r.expired)
		if err != nil {
			return objstore.Keys{}, err
		}
		r.wc, r.renewed = wc, append(r.renewed, r.expired)
	}
	s := r.wc.Storage
	return objstore.Keys{AccessKeyID: s.AccessKeyID, SecretAccessKey: s.SecretAccessKey, SessionToken: s.SessionToken, Expires: s.Expires}, nil
}

// Expired implements objstore.Renewer.
func (r *renewed) Expired(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expired = id
}

// TestGoWorkerOutlivesItsKeys: a worker with the Go client, whose own store signs each
// request with the newest keys, goes on in the middle of an upload. Once the write is
// committed it's told so, and asks no further.
func TestGoWorkerOutlivesItsKeys(t *testing.T) {
	for _, fault := range []storetest.Fault{storetest.Expired, storetest.Forgotten} {
		t.Run(string(fault), func(t *testing.T) { goWorker(t, fault) })
	}
}

func goWorker(t *testing.T, fault storetest.Fault) {
	const rows = 4_000_000
	x := newExpiring(t, fault, 512<<20)
	driver := x.dial()
	w, err := driver.BeginWrite(t.Context(), "lake.air.t", client.WriteOptions{Key: "load"})
	if err != nil {
		t.Fatal(err)
	}
	wc, ok := w.Context()
	if !ok {
		t.Fatal("the write isn't open")
	}
	keys := &renewed{w: x.dial(client.WithToken(wc.WorkerToken)).JoinWrite(wc), wc: wc}
	store := objstore.New(objstore.Config{Endpoint: wc.Storage.Endpoint, Region: wc.Storage.Region, PathStyle: wc.Storage.PathStyle, Renewer: keys})
	file := filepath.Join(t.TempDir(), "rows.parquet")
	id, _ := wc.Schema.Field(0).Metadata.GetValue("PARQUET:field_id")
	duck(t, fmt.Sprintf("COPY (SELECT i AS n FROM range(%d) r(i)) TO '%s' (FORMAT parquet, PARQUET_VERSION v1, COMPRESSION uncompressed, DICTIONARY_SIZE_LIMIT 1, FIELD_IDS {n: %s})", rows, file, id))
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	uri := wc.Prefix + "a-0.parquet"
	out, err := store.Create(t.Context(), uri)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Abort()
	half := len(raw) / 2
	if _, err := out.Write(raw[:half]); err != nil {
		t.Fatal(err)
	}
	end := time.After(time.Minute)
	for tick := time.NewTicker(10 * time.Millisecond); x.store.Requests()[storetest.Part] == 0; {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("no part of the upload was sent")
		}
	}
	x.keys.end()
	if _, err := out.Write(raw[half:]); err != nil {
		t.Fatal(err)
	}
	if err := out.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{wc.Storage.AccessKeyID}; !slices.Equal(keys.renewed, want) || keys.wc.Storage.AccessKeyID == want[0] || x.keys.refused()[want[0]] == 0 {
		t.Errorf("renewed %v, want %v; refused %v", keys.renewed, want, x.keys.refused())
	}
	h, err := keys.w.HandInFiles(t.Context(), "a", []client.WrittenFile{{Path: uri, Size: int64(len(raw)), Rows: rows}})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := w.Commit(t.Context(), []client.Handle{h}); err != nil || r.Rows != rows || r.Files != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if n := x.sts.Requests()[storetest.Other]; n != 2 {
		t.Errorf("keys were made %d times, want 2", n)
	}
	x.check(wc.Prefix, 0, rows)

	x.keys.end()
	before := x.store.Requests()[storetest.Put]
	err = objstore.WriteFile(t.Context(), store, wc.Prefix+"b-0.parquet", raw[:1000])
	if err == nil || !strings.Contains(err.Error(), "it is committed ["+string(commit.CodeWriteNotOpen)+"]") {
		t.Errorf("a file after the end of the write: %v", err)
	}
	if n := x.store.Requests()[storetest.Put] - before; n > 1 {
		t.Errorf("%d requests after the end of the write", n)
	}
}

func (x *expiring) dial(opts ...client.Option) *client.Client {
	x.t.Helper()
	c, err := client.Dial(x.t.Context(), x.server, opts...)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = c.Close() })
	return c
}
