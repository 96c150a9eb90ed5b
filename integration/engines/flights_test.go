//go:build interop

package engines_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/firn-project/firn/internal/objstore"
)

// engine is one that writes.
type engine struct {
	name string
	// faults are the files by which tasks tell that they had their faults.
	faults []string
	// doomed are the processes that are killed, with the marks that are found in them
	// and their children before.
	doomed map[string][]string
	// workers are words of the command lines of its workers, and marks that must be
	// found in them, with how many there are at least.
	workers map[string]int
}

var engines = []engine{
	{
		name:   "spark",
		faults: []string{"failed", "executor-killed", "worker-killed", "overtook", "straggled"},
		doomed: map[string][]string{"executor-killed": {markEnvironment, markArguments, markMemory}, "worker-killed": {markEnvironment, markMemory}},
		workers: map[string]int{
			"CoarseGrainedExecutorBackend": 2, "pyspark.daemon": 2, markEnvironment: 4, markArguments: 2, markMemory: 2,
		},
	},
	{
		name:   "ray",
		faults: []string{"failed", "worker-killed"},
		// A worker shows no arguments but its task's name, and once that ends not even it.
		doomed: map[string][]string{"worker-killed": {markEnvironment, markArguments, markMemory}},
		// Of the four workers, Ray may not have replaced the one that was killed yet.
		workers: map[string]int{"ray::": 3, "raylet": 1, markEnvironment: 4, markArguments: 1, markMemory: 3},
	},
}

// format is a kind of table.
type format struct {
	name, table string
	create      []string
}

var formats = []format{
	{
		name: "iceberg", table: "lake.air.%s",
		create: []string{
			`CREATE TABLE lake.air.%s (date timestamp, delay bigint, distance bigint, origin string, destination string) PARTITIONED BY (month(date)) TBLPROPERTIES ('write.target-file-size-bytes' = '524288')`,
		},
	},
	{
		name: "delta", table: "lake.air.d%s",
		create: []string{
			"CREATE TABLE delta.`" + tables + "/%s` (date timestamp, delay bigint, distance bigint, origin string, destination string, month int) USING delta PARTITIONED BY (month) TBLPROPERTIES ('delta.targetFileSize' = '524288')",
			"CREATE TABLE lake.air.d%s USING delta LOCATION '" + tables + "/%[1]s'",
		},
	},
}

// TestEnginesWriteFlights has each engine write 3,000,000 rows into a table of each
// format, while tasks fail, workers are killed and the driver is killed in its commit.
// The rows are the input's, in one version; another driver is told the same; nothing
// else stays; and no worker, after the writing or before it's killed, has a secret of
// the catalog or the client's token.
func TestEnginesWriteFlights(t *testing.T) {
	in := flights(t)
	l := newLab(t)
	l.cluster = t.TempDir()
	l.spark = startSpark(t, markEnvironment+l.cluster)
	l.client.Exec(nil, "CREATE NAMESPACE lake.air")
	for _, e := range engines {
		for _, f := range formats {
			t.Run(e.name+"/"+f.name, func(t *testing.T) {
				l.t = t
				for _, s := range f.create {
					l.client.Exec(nil, fmt.Sprintf(s, e.name))
				}
				l.write(in, e, f)
			})
		}
	}
}

func (l *lab) write(in input, e engine, f format) {
	t := l.t
	t.Helper()
	// Ray has sockets below its directory, whose paths mustn't be long.
	rayDir, err := os.MkdirTemp("", "r")
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	t.Cleanup(func() {
		await(t, "the end of the engine's processes", time.Minute, func() bool { return len(processesOf(t, state)) == 0 })
		_ = os.RemoveAll(rayDir)
	})
	run := map[string]any{
		"location": "grpc://" + l.sched.Address, "token_file": l.tokenFile, "table": fmt.Sprintf(f.table, e.name), "key": "flights-of-" + e.name + f.name,
		"engine": e.name, "input": in.dir, "state": state, "ray_dir": rayDir, "mark_in_arguments": markArguments, "mode": "die", "spark": l.spark,
	}
	began := time.Now()
	d := start(t, e.name+"_flights.py", run)
	await(t, "the writing", 10*time.Minute, func() bool {
		select {
		case err := <-d.done:
			t.Fatalf("the driver ended: %v\n%s\n%s", err, &d.out, &d.errors)
		default:
		}
		l.searchDoomed(state, e.doomed)
		return told(state, "written")
	})
	t.Logf("written after %v", time.Since(began).Round(100*time.Millisecond))
	for _, name := range e.faults {
		if !told(state, name) {
			t.Errorf("the fault %s didn't happen", name)
		}
	}
	var written struct {
		Prefix  string
		Handles []string
		Driver  int
	}
	heard(t, state, "written", &written)
	l.lost(state, e, written.Handles)
	before := l.objects(written.Prefix)
	l.searchWorkers(state, written.Driver, e.workers)
	if err := os.WriteFile(filepath.Join(state, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.killed()

	run["mode"] = "resume"
	resumed := start(t, e.name+"_flights.py", run).finish()
	run["mode"] = "again"
	again := start(t, e.name+"_flights.py", run).finish()
	slices.Sort(written.Handles)
	if resumed.State != "committed" || resumed.Report.Rows != in.rows || !slices.Equal(resumed.Sealed, written.Handles) {
		t.Errorf("resumed: %+v", resumed)
	}
	if again.WriteID != resumed.WriteID || again.Report != resumed.Report || !slices.Equal(again.Sealed, resumed.Sealed) {
		t.Errorf("begun again: %+v, want %+v", again, resumed)
	}
	l.check(in, e, f, resumed, written.Prefix, before)
}

func told(state, name string) bool {
	_, err := os.Stat(filepath.Join(state, name))
	return err == nil
}

// heard reads what a task or driver told.
func heard(t *testing.T, state, name string, v any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(state, name))
	if err == nil {
		err = json.Unmarshal(raw, v)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// attempt is what an attempt of a task tells once it has handed in.
type attempt struct {
	Number int
	Handle string
}

// lost looks at the attempts that handed in and lost: the one that failed, and either
// the straggler or the second one that Spark ran beside it.
func (l *lab) lost(state string, e engine, handles []string) {
	t := l.t
	t.Helper()
	var failed, straggler, second attempt
	if heard(t, state, "failed", &failed); failed.Handle == "" || slices.Contains(handles, failed.Handle) {
		t.Errorf("the attempt that failed handed in %q, the driver has %q", failed.Handle, handles)
	}
	if !slices.Contains(e.faults, "straggled") {
		return
	}
	heard(t, state, "straggled", &straggler)
	heard(t, state, "overtook", &second)
	if straggler.Handle == second.Handle || slices.Contains(handles, straggler.Handle) == slices.Contains(handles, second.Handle) {
		t.Errorf("the straggler handed in %q, the second attempt %q; the driver has %q", straggler.Handle, second.Handle, handles)
	}
	await(t, "Spark's log", time.Minute, func() bool { return speculated(t, state, straggler.Number, second.Number) })
}

// check reads the table with a reader of others.
func (l *lab) check(in input, e engine, f format, told outcome, prefix string, before []string) {
	t := l.t
	t.Helper()
	table, settings := "air."+e.name, l.store.Storage()
	if f.name == "iceberg" {
		maps.Copy(settings, map[string]string{"type": "rest", "uri": l.store.Catalog, "warehouse": l.store.Warehouse, "credential": l.store.AccessKey + ":" + l.store.SecretKey})
	} else {
		table, settings = tables+"/"+e.name, map[string]string{
			"AWS_ENDPOINT_URL": l.store.Endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": l.store.Region, "AWS_ACCESS_KEY_ID": l.store.AccessKey, "AWS_SECRET_ACCESS_KEY": l.store.SecretKey,
		}
	}
	properties, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python(t), "check.py", f.name, string(properties), table, in.dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("check.py: %v", err)
	}
	var read struct {
		Rows, Other     int64
		Example         string
		Versions, Files []string
	}
	if err := json.Unmarshal(out, &read); err != nil {
		t.Fatal(err)
	}
	if read.Rows != in.rows || read.Other != 0 {
		t.Errorf("%d rows, want %d; %d are there more or less often than in the input, as %s", read.Rows, in.rows, read.Other, read.Example)
	}
	// Of a Delta table's version the report also says which request made it.
	if version, _, _ := strings.Cut(told.Report.SnapshotID, "-"); !slices.Equal(read.Versions, []string{version}) {
		t.Errorf("versions that added rows: %v, the report has %s", read.Versions, told.Report.SnapshotID)
	}
	if int64(len(read.Files)) != told.Report.Files {
		t.Errorf("the table has %d files, the report %d", len(read.Files), told.Report.Files)
	}
	more, uploads := 0, 0
	for _, file := range before {
		switch {
		case strings.HasPrefix(file, "an upload"):
			uploads++
		case !slices.Contains(read.Files, file):
			more++
		}
	}
	t.Logf("%d files committed; %d of attempts that lost lay beside them, and %d uploads of workers that were killed", len(read.Files), more, uploads)
	if more == 0 {
		t.Error("control: no attempt that lost had left a file")
	}
	await(t, "the sweep", time.Minute, func() bool { return slices.Equal(l.objects(prefix), read.Files) })
}

// objects are the files and the uploads that haven't ended under a prefix, sorted.
func (l *lab) objects(prefix string) []string {
	l.t.Helper()
	store := objstore.New(l.store.Config())
	var all []string
	for o, err := range store.List(l.t.Context(), prefix) {
		if err != nil {
			l.t.Fatal(err)
		}
		if !strings.HasSuffix(o.URI, "/") {
			all = append(all, o.URI)
		}
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(prefix, "s3://"), "/")
	uploads, err := l.store.Client().ListMultipartUploads(l.t.Context(), &s3.ListMultipartUploadsInput{Bucket: &bucket, Prefix: &key})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, u := range uploads.Uploads {
		all = append(all, "an upload of "+*u.Key)
	}
	slices.Sort(all)
	return all
}
