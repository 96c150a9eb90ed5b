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
	// workers are words of the command lines of its workers, and marks that must be
	// found in their memory, with how many there are at least.
	workers map[string]int
}

var engines = []engine{
	{
		name:   "spark",
		faults: []string{"failed", "executor-killed", "worker-killed", "beaten"},
		workers: map[string]int{
			"CoarseGrainedExecutorBackend": 2, "pyspark.daemon": 2, markEnvironment: 4, markArguments: 2, markMemory: 2,
		},
	},
	{
		name:    "ray",
		faults:  []string{"failed", "worker-killed"},
		workers: map[string]int{"ray::": 4, "raylet": 1, markEnvironment: 4, markMemory: 4},
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
// Each row is there once, in one version; another driver is told the same; nothing
// else stays; and no worker ever had a secret of the catalog, or the client's token.
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
	raw, err := os.ReadFile(filepath.Join(state, "written"))
	if err == nil {
		err = json.Unmarshal(raw, &written)
	}
	if err != nil {
		t.Fatal(err)
	}
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
	cmd := exec.CommandContext(t.Context(), python(t), "check.py", f.name, string(properties), table)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("check.py: %v", err)
	}
	var read struct {
		Rows, Distance, Delay, Origins int64
		Months                         map[string]int64
		Versions, Files                []string
	}
	if err := json.Unmarshal(out, &read); err != nil {
		t.Fatal(err)
	}
	if read.Rows != in.rows || read.Distance != in.distance || read.Delay != in.delay {
		t.Errorf("%d rows, sums %d and %d; want %+v", read.Rows, read.Distance, read.Delay, in)
	}
	if in.months != nil && (!maps.Equal(read.Months, in.months) || read.Origins != in.origins) {
		t.Errorf("by month %v, %d origins", read.Months, read.Origins)
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
