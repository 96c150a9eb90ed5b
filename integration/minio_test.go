//go:build integration

package integration_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/integration/servers"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/objstore/storetest"
)

// properties are a store's settings as lines of YAML.
func properties(s servers.S3, indent string) string {
	var b strings.Builder
	for k, v := range s.Storage() {
		fmt.Fprintf(&b, "%s%s: %q\n", indent, k, v)
	}
	return b.String()
}

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

// startOn starts a scheduler and four executors with the catalog as written, and
// gives a client. Statements may read what is in the bucket lake. Executors get keys
// that sts scopes; flags are further ones of theirs.
func startOn(t *testing.T, catalog string, store servers.S3, sts string, flags ...string) *process.Client {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "scheduler.yaml")
	body := "catalogs:\n  lake:\n" + catalog + "    properties:\n      s3.sts-endpoint: " + sts + "\n" + properties(store, "      ") +
		"sources:\n  stores:\n    - location: s3://lake/landing\n      properties:\n        s3.sts-endpoint: " + sts + "\n" + properties(store, "        ") +
		"delta:\n  paths:\n    - location: s3://lake/tables\n      properties:\n        s3.sts-endpoint: " + sts + "\n" + properties(store, "        ")
	if err := os.WriteFile(config, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	sched := process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(dir, "scheduler"), "--config", config)
	for i := range 4 {
		process.Start(t, append([]string{"executor", "--server", sched.Address, "--dir", filepath.Join(dir, fmt.Sprintf("executor-%d", i)), "--slots", "1", "--memory", "512MB"}, flags...)...)
	}
	return process.NewClient(t, "--server", sched.Address)
}

// TestMainJobOnMinIO: the input lies in MinIO, and so does the table, behind a
// proxy that turns requests away, breaks connections and loses replies; the catalog
// is SQLite or the Iceberg project's own REST catalog. The table has each row once,
// and nothing else lies beside its files.
func TestMainJobOnMinIO(t *testing.T) {
	in := input(t)
	for _, kind := range []string{"sql", "rest"} {
		t.Run(kind, func(t *testing.T) {
			direct := servers.StartMinIO(t)
			direct.MakeBucket(t, "lake")
			upload(t, direct, in.path, "s3://lake/landing/flights.parquet")
			proxy := storetest.NewProxy(t, direct.Endpoint)
			faulty := direct
			faulty.Endpoint = proxy.URL
			catalog := fmt.Sprintf("    type: sql\n    uri: sqlite://%s\n    warehouse: s3://lake/warehouse\n", filepath.Join(t.TempDir(), "catalog.db"))
			if kind == "rest" {
				rest := servers.StartRESTCatalog(t, servers.RESTCatalog{Warehouse: "s3://lake/warehouse", Store: direct})
				catalog = "    type: rest\n    uri: " + rest.URI + "\n"
			}
			c := startOn(t, catalog, faulty, direct.Endpoint)
			c.Exec(nil, "CREATE NAMESPACE lake.air")
			c.Exec(nil, createFlights)

			faults := map[int]storetest.Fault{2: storetest.Busy, 5: storetest.Reset, 7: storetest.Lost, 9: storetest.Broken, 11: storetest.Cut}
			proxy.Begin(func(r storetest.Request) storetest.Fault {
				f := faults[r.N%13]
				if f == storetest.Cut && r.Op != storetest.Get {
					return storetest.Answer500
				}
				return f
			})
			var w process.Write
			c.Exec(&w, "INSERT INTO lake.air.flights SELECT * FROM read_parquet('s3://lake/landing/*.parquet')", "--idempotency-key", "main")
			if w.State != "succeeded" || w.Commit != "committed" || w.Rows != in.rows {
				t.Fatalf("insert: %+v", w)
			}
			t.Logf("requests %v, faults %v", proxy.Requests(), proxy.Faults())
			if n := len(proxy.Faults()); n < 4 {
				t.Errorf("only %d kinds of faults happened: %v", n, proxy.Faults())
			}
			checkFlights(t, c, in)
			proxy.Begin(nil)
			checkFlights(t, c, in)

			files := map[string]bool{}
			for o, err := range objstore.New(direct.Config()).List(t.Context(), "s3://lake/warehouse/") {
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasSuffix(o.URI, ".parquet") {
					files[o.URI] = true
				}
			}
			if len(files) == 0 || int64(len(files)) != w.Files {
				t.Errorf("%d data files lie in the warehouse, the commit has %d", len(files), w.Files)
			}
		})
	}
}
