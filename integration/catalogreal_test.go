//go:build integration

package integration_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/firn-project/firn/catalog"
	"github.com/firn-project/firn/integration/servers"
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
	wantProbes(t, r, sql.ModeSeat, nil)
}

func TestCatalogCheckPostgreSQL(t *testing.T) {
	p := servers.StartPostgreSQL(t)
	_, r := checked(t, catalog.Config{Name: "lake", Type: "sql", URI: p.MakeDatabase(t, "lake"), Warehouse: t.TempDir()})
	wantProbes(t, r, sql.ModeSeat, nil)
}
