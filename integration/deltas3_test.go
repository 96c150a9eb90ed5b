//go:build integration

package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/objstore/storetest"
)

// TestDeltaOnMinIO: a Delta table in MinIO, by path and by name, behind a proxy that
// turns requests away, breaks connections and loses replies; executors have keys for
// their own job's prefix. The table has each row once, and every file that lies there
// is the table's.
func TestDeltaOnMinIO(t *testing.T) {
	in := input(t)
	s := onMinIO(t)
	direct := s.store
	upload(t, direct, in.path, "s3://lake/landing/flights.parquet")
	proxy := storetest.NewProxy(t, direct.Endpoint)
	faulty := direct
	faulty.Endpoint = proxy.URL
	settings := with(faulty.Storage(), s.sts)
	s.catalog["properties"] = settings
	file := lakeOf(s.catalog, "s3://lake/landing", settings)
	file["delta"] = map[string]any{"paths": []any{map[string]any{"location": "s3://lake/tables", "properties": settings}}}
	c := process.NewClient(t, "--server", startOn(t, file))
	c.Exec(nil, "CREATE NAMESPACE lake.air")
	columns := createFlights[strings.IndexByte(createFlights, '('):]
	columns = columns[:strings.LastIndex(columns, "PARTITIONED BY")]
	for _, table := range []string{"delta.`s3://lake/tables/flights`", "lake.air.flights"} {
		c.Exec(nil, "CREATE TABLE "+table+" "+columns+" USING delta PARTITIONED BY (origin)")
		proxy.Begin(storeFaults)
		var w process.Write
		c.Exec(&w, "INSERT INTO "+table+" SELECT * FROM read_parquet('s3://lake/landing/*.parquet')", "--idempotency-key", "load "+table)
		if w.State != "succeeded" || w.Commit != "committed" || w.Rows != in.rows {
			t.Fatalf("insert: %+v", w)
		}
		c.Exec(&w, "INSERT INTO "+table+" SELECT * FROM read_parquet('s3://lake/landing/*.parquet')", "--idempotency-key", "load "+table)
		if !w.Deduplicated || w.Rows != in.rows {
			t.Errorf("again under the same key: %+v", w)
		}
		t.Logf("requests %v, faults %v", proxy.Requests(), proxy.Faults())
		var got []struct {
			Rows, Distinct string
		}
		c.Exec(&got, "SELECT count(*)::varchar AS rows, sum(distance)::varchar AS \"distinct\" FROM "+table)
		var want []struct {
			Rows, Distinct string
		}
		c.Exec(&want, "SELECT count(*)::varchar AS rows, sum(distance)::varchar AS \"distinct\" FROM read_parquet('s3://lake/landing/*.parquet')")
		if len(got) != 1 || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s has %v, want %v", table, got, want)
		}
		proxy.Begin(nil)
		prefix := "s3://lake/tables/"
		if !strings.HasPrefix(table, "delta") {
			prefix = "s3://lake/warehouse/"
		}
		files := int64(0)
		for o, err := range objstore.New(direct.Config()).List(t.Context(), prefix) {
			switch {
			case err != nil:
				t.Fatal(err)
			case strings.HasSuffix(o.URI, ".parquet"):
				files++
			case !strings.Contains(o.URI, "/_delta_log/"):
				t.Errorf("%s lies beside the table's files", o.URI)
			}
		}
		if files == 0 || files != w.Files {
			t.Errorf("%d data files, the commit has %d", files, w.Files)
		}
	}
}
