//go:build integration

package integration_test

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/catalog"
	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/integration/servers"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/sql"
)

// wantProbes compares verdicts; a probe that isn't named must be ok or skipped.
func wantProbes(t *testing.T, r sql.CatalogReport, mode sql.CatalogMode, but map[string]sql.ProbeVerdict) {
	t.Helper()
	if r.Mode != mode {
		t.Errorf("mode %q, want %q", r.Mode, mode)
	}
	for _, p := range r.Probes {
		want, named := but[p.Name]
		if (named && p.Verdict != want) || (!named && p.Verdict != sql.ProbeOK && p.Verdict != sql.ProbeSkipped) {
			t.Errorf("%s is %s: %s", p.Name, p.Verdict, p.Answer)
		}
	}
}

func TestCatalogCheckSeaweedFS(t *testing.T) {
	s := servers.StartSeaweedFS(t)
	props := map[string]string{"credential": s.AccessKey + ":" + s.SecretKey}
	maps.Copy(props, s.Storage())
	_, r := checked(t, catalog.Config{Name: "lake", Type: "rest", URI: s.Catalog, Warehouse: s.Warehouse, Properties: props})
	wantProbes(t, r, sql.ModeSeat, map[string]sql.ProbeVerdict{"stale sequence number": sql.ProbeWarning})
	if p := probeOf(t, r, "storage credentials"); !strings.Contains(p.Answer, "until 20") {
		t.Errorf("vended: %s", p.Answer)
	}
}

func TestCatalogCheckJVM(t *testing.T) {
	m := servers.StartMinIO(t)
	m.MakeBucket(t, "lake")
	c := servers.StartRESTCatalog(t, servers.RESTCatalog{Warehouse: "s3://lake/warehouse", Store: m})
	_, r := checked(t, catalog.Config{Name: "lake", Type: "rest", URI: c.URI, Properties: m.Storage()})
	wantProbes(t, r, sql.ModeSeat, map[string]sql.ProbeVerdict{"executors' keys": sql.ProbeWarning}) // nothing narrows them here
}

func TestCatalogCheckPostgreSQL(t *testing.T) {
	p := servers.StartPostgreSQL(t)
	_, r := checked(t, catalog.Config{Name: "lake", Type: "sql", URI: p.MakeDatabase(t, "lake"), Warehouse: t.TempDir()})
	wantProbes(t, r, sql.ModeSeat, nil)
}

// Java's JdbcCatalog and Firn's catalogs of type sql use the same tables: what one
// committed the other reads and builds on.
func TestJDBCCatalogIsShared(t *testing.T) {
	m := servers.StartMinIO(t)
	m.MakeBucket(t, "lake")
	db := filepath.Join(t.TempDir(), "catalog.db")
	java := servers.StartRESTCatalog(t, servers.RESTCatalog{
		Warehouse: "s3://lake/warehouse", Store: m, Properties: map[string]string{"uri": "jdbc:sqlite:" + db},
	})
	own := m.Storage()
	own["catalog-name"] = "firn"
	c, err := cluster.Start(t.Context(), cluster.Config{Dir: t.TempDir(), Catalogs: []catalog.Config{
		{Name: "java", Type: "rest", URI: java.URI, Properties: m.Storage()},
		{Name: "own", Type: "sql", URI: db, Warehouse: "s3://lake/own", Properties: own},
	}})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := client.Dial(t.Context(), c.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(cl.Close(), c.Close(context.Background())); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	l := &lake{Client: cl, t: t}
	l.must("CREATE NAMESPACE java.air", "CREATE TABLE java.air.t (id BIGINT)", "INSERT INTO java.air.t VALUES (1)",
		"INSERT INTO own.air.t VALUES (2)", "INSERT INTO java.air.t VALUES (3)",
		"CREATE TABLE own.air.u (id BIGINT)", "INSERT INTO java.air.u VALUES (4)", "INSERT INTO own.air.u VALUES (5)")
	for _, table := range []string{"java.air.t", "own.air.t"} {
		if n := l.count(table); n != 3 {
			t.Errorf("%s has %d rows, want 3", table, n)
		}
	}
	for _, table := range []string{"java.air.u", "own.air.u"} {
		if n := l.count(table); n != 2 {
			t.Errorf("%s has %d rows, want 2", table, n)
		}
	}
}
