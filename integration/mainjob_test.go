//go:build integration

package integration_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/integration/restcatalog"
	"github.com/firn-project/firn/integration/servers"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/objstore/storetest"
)

// upload copies a local file to a store.
func upload(t *testing.T, s servers.S3, path, uri string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := objstore.New(s.Config()).Create(t.Context(), uri)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if _, err := io.Copy(w, f); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// lakeOf is a scheduler's file with a catalog lake, and a place in a store that
// statements may read.
func lakeOf(catalog map[string]any, landing string, settings map[string]string) map[string]any {
	return map[string]any{
		"catalogs": map[string]any{"lake": catalog},
		"sources":  map[string]any{"stores": []any{map[string]any{"location": landing, "properties": settings}}},
	}
}

// with gives settings with others beside them.
func with(settings map[string]string, others map[string]string) map[string]string {
	all := maps.Clone(settings)
	maps.Copy(all, others)
	return all
}

// startOn starts a scheduler with a file, which is JSON and so YAML, and four
// executors; flags are further ones of theirs. It gives the scheduler's address.
func startOn(t *testing.T, file map[string]any, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	body, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "scheduler.yaml")
	if err := os.WriteFile(config, body, 0o600); err != nil {
		t.Fatal(err)
	}
	sched := process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(dir, "scheduler"), "--config", config)
	for i := range 4 {
		process.Start(t, append([]string{"executor", "--server", sched.Address, "--dir", filepath.Join(dir, fmt.Sprintf("executor-%d", i)), "--slots", "1", "--memory", "512MB"}, flags...)...)
	}
	return sched.Address
}

// site is a store with a catalog that keeps its tables there.
type site struct {
	store servers.S3
	// bucket is where the input is put; tables is below what the catalog's tables lie.
	bucket, tables string
	// sts are the settings by which the store's keys can be narrowed.
	sts map[string]string
	// catalog is the scheduler's without its properties, which are those of the
	// store and these.
	catalog    map[string]any
	properties map[string]string
	// rest is the catalog's URI, if it's a REST catalog.
	rest string
	// reader are PyIceberg's properties of the catalog.
	reader map[string]string
}

// onMinIO: the catalog is SQLite's, and STS makes the executors' keys.
func onMinIO(t *testing.T) site {
	m := servers.StartMinIO(t)
	m.MakeBucket(t, "lake")
	db := filepath.Join(t.TempDir(), "catalog.db")
	sts := map[string]string{objstore.KeySTSEndpoint: m.Endpoint}
	return site{
		store: m, bucket: "lake", tables: "s3://lake/warehouse/", sts: sts, properties: sts,
		catalog: map[string]any{"type": "sql", "uri": "sqlite://" + db, "warehouse": "s3://lake/warehouse"},
		reader:  map[string]string{"type": "sql", "uri": "sqlite:///" + db, "warehouse": "s3://lake/warehouse"},
	}
}

// onMinIOWithJVM: the Iceberg project's REST catalog vends the executors' keys.
func onMinIOWithJVM(t *testing.T) site {
	m := servers.StartMinIO(t)
	m.MakeBucket(t, "lake")
	c := servers.StartRESTCatalog(t, servers.RESTCatalog{Warehouse: "s3://lake/warehouse", Store: m, Vend: true})
	return site{
		store: m, bucket: "lake", tables: "s3://lake/warehouse/", sts: map[string]string{objstore.KeySTSEndpoint: m.Endpoint},
		catalog: map[string]any{"type": "rest"}, rest: c.URI,
		reader: map[string]string{"type": "rest", "uri": c.URI},
	}
}

// onSeaweedFS: so does its own catalog.
func onSeaweedFS(t *testing.T) site {
	w := servers.StartSeaweedFS(t)
	credential := w.AccessKey + ":" + w.SecretKey
	return site{
		store: w.S3, bucket: servers.Bucket, tables: w.Warehouse + "/",
		sts:     map[string]string{objstore.KeySTSEndpoint: w.Endpoint, objstore.KeyRoleARN: w.Role},
		catalog: map[string]any{"type": "rest", "warehouse": w.Warehouse}, properties: map[string]string{"credential": credential}, rest: w.Catalog,
		reader: map[string]string{"type": "rest", "uri": w.Catalog, "warehouse": w.Warehouse, "credential": credential},
	}
}

// TestMainJobOnObjectStores: the input lies in an object store, and so does the
// table, behind a proxy that turns requests away, breaks connections and loses
// replies; a REST catalog is behind one that does the same. The table has each row
// once, nothing else lies beside its files, and others read the same from there.
func TestMainJobOnObjectStores(t *testing.T) {
	in := input(t)
	for name, start := range map[string]func(*testing.T) site{
		"minio, sqlite, keys by sts": onMinIO, "minio, jvm catalog, vended keys": onMinIOWithJVM, "seaweedfs, its catalog, vended keys": onSeaweedFS,
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			landing := "s3://" + s.bucket + "/landing"
			upload(t, s.store, in.path, landing+"/flights.parquet")
			store := storetest.NewProxy(t, s.store.Endpoint)
			faulty := s.store
			faulty.Endpoint = store.URL
			var catalog *restcatalog.Proxy
			if s.rest != "" {
				var err error
				if catalog, err = restcatalog.NewProxy(s.rest); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(catalog.Close)
				s.catalog["uri"] = catalog.URL
			}
			s.catalog["properties"] = with(faulty.Storage(), s.properties)
			address := startOn(t, lakeOf(s.catalog, landing, with(faulty.Storage(), s.sts)))
			c := process.NewClient(t, "--server", address)
			checkCatalog(t, c, address)
			c.Exec(nil, "CREATE NAMESPACE lake.air")
			c.Exec(nil, createFlights)

			store.Begin(storeFaults)
			if catalog != nil {
				catalog.Begin(catalogFaults)
			}
			var w process.Write
			c.Exec(&w, "INSERT INTO lake.air.flights SELECT * FROM read_parquet('"+landing+"/*.parquet')", "--idempotency-key", "main")
			if w.State != "succeeded" || w.Commit != "committed" || w.Rows != in.rows {
				t.Fatalf("insert: %+v", w)
			}
			t.Logf("store: requests %v, faults %v", store.Requests(), store.Faults())
			if n := len(store.Faults()); n < 4 {
				t.Errorf("only %d kinds of faults happened: %v", n, store.Faults())
			}
			if catalog != nil {
				t.Logf("catalog: requests %v, faults %v", catalog.Requests(), catalog.Fired())
				if n := len(catalog.Fired()); n != 4 {
					t.Errorf("%d kinds of faults happened at the catalog: %v", n, catalog.Fired())
				}
				catalog.Begin(nil)
			}
			checkFlights(t, c, in)
			store.Begin(nil)
			checkFlights(t, c, in)
			checkFiles(t, s, w.Files)
			checkReaders(t, s, in)
		})
	}
}

// storeFaults are those of a store: turned away, reset, done without a reply, failed,
// broken off.
func storeFaults(r storetest.Request) storetest.Fault {
	f := map[int]storetest.Fault{2: storetest.Busy, 5: storetest.Reset, 7: storetest.Lost, 9: storetest.Broken, 11: storetest.Cut}[r.N%13]
	if f == storetest.Cut && r.Op != storetest.Get {
		return storetest.Answer500
	}
	return f
}

// catalogFaults: a load is turned away, and one is reset; the first commit is turned
// away, and the second lands without a reply.
func catalogFaults(c restcatalog.Class, n int) *restcatalog.Fault {
	switch {
	case c == restcatalog.Load && n == 1:
		return &restcatalog.Fault{Name: "load 503", Arrives: restcatalog.Never, Status: 503, RetryAfter: "1"}
	case c == restcatalog.Load && n == 3:
		return &restcatalog.Fault{Name: "load reset", Arrives: restcatalog.Never, Cut: restcatalog.Reply}
	case c == restcatalog.Commit && n == 1:
		return &restcatalog.Fault{Name: "commit 503", Arrives: restcatalog.Never, Status: 503, RetryAfter: "1"}
	case c == restcatalog.Commit && n == 2:
		return &restcatalog.Fault{Name: "reply lost", Cut: restcatalog.Reply}
	}
	return nil
}

// checkCatalog runs `firn catalog check` and wants its result to be kept.
func checkCatalog(t *testing.T, c *process.Client, address string) {
	t.Helper()
	r := process.Run(t.Context(), t, "catalog", "check", "lake", "--server", address)
	if r.Code != 0 || !strings.Contains(r.Stdout, "seat") {
		t.Errorf("catalog check: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	t.Logf("%s", r.Stdout)
	if mode := c.Row("SHOW CATALOGS")["mode"]; mode != "seat" {
		t.Errorf("SHOW CATALOGS shows the mode %v", mode)
	}
}

// checkFiles wants the data files of the commit below the site's tables, and no
// others.
func checkFiles(t *testing.T, s site, want int64) {
	t.Helper()
	files := map[string]bool{}
	for o, err := range objstore.New(s.store.Config()).List(t.Context(), s.tables) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(o.URI, ".parquet") {
			files[o.URI] = true
		}
	}
	if len(files) == 0 || int64(len(files)) != want {
		t.Errorf("%d data files lie in the warehouse, the commit has %d", len(files), want)
	}
}

// checkReaders has PyIceberg and DuckDB read the table straight from the store.
func checkReaders(t *testing.T, s site, in flights) {
	t.Helper()
	python := os.Getenv("FIRN_INTEROP_PYTHON")
	if python == "" {
		t.Fatal("FIRN_INTEROP_PYTHON is not set: run `make integration`, or set it to the output of integration/scripts/readers.sh")
	}
	properties, err := json.Marshal(with(s.store.Storage(), s.reader))
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), python, "store_readers.py", string(properties), "air.flights", fmt.Sprint(in.rows), fmt.Sprint(in.distance)).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
