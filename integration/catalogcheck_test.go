package integration_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/catalog"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/integration/restcatalog"
	"github.com/firn-project/firn/sql"
)

// checked opens a catalog and runs its check.
func checked(t *testing.T, c catalog.Config) (*catalog.Set, sql.CatalogReport) {
	t.Helper()
	set, err := catalog.Open(t.Context(), []catalog.Config{c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	})
	r, err := set.CheckCatalog(t.Context(), c.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Probes {
		t.Logf("%-22s %-8s %s", p.Name, p.Verdict, p.Answer)
	}
	t.Logf("mode %q: %s", r.Mode, r.Why)
	return set, r
}

func probeOf(t *testing.T, r sql.CatalogReport, name string) sql.CatalogProbe {
	t.Helper()
	for _, p := range r.Probes {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no probe %q", name)
	return sql.CatalogProbe{}
}

// Each lie that a catalog in use told is found out, and the mode follows from it.
func TestCatalogCheckFindsLies(t *testing.T) {
	ok, warning, failed := sql.ProbeOK, sql.ProbeWarning, sql.ProbeFailed
	for name, c := range map[string]struct {
		lies  restcatalog.Lies
		mode  sql.CatalogMode
		probe map[string]sql.ProbeVerdict
		says  string
	}{
		"none": {restcatalog.Lies{}, sql.ModeSeat, map[string]sql.ProbeVerdict{
			"scratch": ok, "commit": ok, "long summary": ok, "ledger": ok, "stale head": ok, "history": ok, "put-if-absent": ok, "storage credentials": ok, "removed": ok,
		}, "409"},
		"200 for a conflict": {restcatalog.Lies{ConflictStatus: 200}, sql.ModeSeat, map[string]sql.ProbeVerdict{"stale head": warning}, "200 OK"},
		"400 for a conflict": {restcatalog.Lies{ConflictStatus: 400}, sql.ModeSeat, map[string]sql.ProbeVerdict{"stale head": warning}, "400 Bad Request"},
		"500 for a conflict": {restcatalog.Lies{ConflictStatus: 500}, sql.ModeSeat, map[string]sql.ProbeVerdict{"stale head": warning}, "500 Internal"},
		"any head":           {restcatalog.Lies{AnyHead: true}, sql.ModeUnfit, map[string]sql.ProbeVerdict{"stale head": failed}, "it landed"},
		"any sequence": {restcatalog.Lies{AnySequence: true}, sql.ModeNoSeat, map[string]sql.ProbeVerdict{
			"stale head": ok, "stale sequence number": failed, "history": ok,
		}, "it landed"},
		"short values":  {restcatalog.Lies{KeepsAtMost: 1000}, sql.ModeSeat, map[string]sql.ProbeVerdict{"long summary": failed, "ledger": failed}, "0 bytes came back"},
		"head only":     {restcatalog.Lies{HeadOnly: true}, sql.ModeSeat, map[string]sql.ProbeVerdict{"history": warning, "stale head": ok}, "missing"},
		"other parents": {restcatalog.Lies{Reparents: true}, sql.ModeUnfit, map[string]sql.ProbeVerdict{"history": failed}, "another parent"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := restcatalog.NewServer(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			s.Lie(c.lies)
			set, r := checked(t, catalog.Config{Name: "lake", Type: "rest", URI: s.URL})
			if r.Mode != c.mode {
				t.Errorf("mode %q, want %q", r.Mode, c.mode)
			}
			text, err := json.Marshal(r)
			if err != nil || !strings.Contains(string(text), c.says) {
				t.Errorf("the report doesn't say %q", c.says)
			}
			for probe, want := range c.probe {
				if got := probeOf(t, r, probe); got.Verdict != want || got.Tried == "" || got.Answer == "" {
					t.Errorf("%s: %+v, want %s", probe, got, want)
				}
			}
			if err := set.Writable(t.Context(), "lake"); (commit.CodeOf(err) == commit.CodeCatalogUnfit) != (c.mode == sql.ModeUnfit) {
				t.Errorf("writable: %v", err)
			}
			if ns, err := set.Namespaces(t.Context(), "lake", nil); err != nil || len(ns) != 0 {
				t.Errorf("the check left %v, %v", ns, err)
			}
		})
	}
}

// What a check finds decides how the tables are committed to, and is there after
// a restart, for the same catalog only.
func TestCatalogCheckIsKept(t *testing.T) {
	dir := t.TempDir()
	s, err := restcatalog.NewServer(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	s.Lie(restcatalog.Lies{AnySequence: true})
	o := catalog.Options{State: filepath.Join(dir, "catalogs.json"), Configs: []catalog.Config{{Name: "lake", Type: "rest", URI: s.URL}}}
	noSeat := func(o catalog.Options, check bool) string {
		t.Helper()
		set, err := catalog.OpenWith(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		if check {
			if _, err := set.CheckCatalog(t.Context(), "lake"); err != nil {
				t.Fatal(err)
			}
		}
		name := commit.TableName{Catalog: "lake", Namespace: []string{"air"}, Name: "t"}
		ctx := context.Background()
		if err := set.CreateNamespace(ctx, "lake", name.Namespace, nil, true); err != nil {
			t.Fatal(err)
		}
		schema := []byte(`{"type":"struct","schema-id":0,"fields":[{"id":1,"name":"id","required":false,"type":"long"}]}`)
		if err := set.CreateTable(ctx, sql.TableDef{Name: name, IfNotExists: true, SchemaJSON: schema}); err != nil {
			t.Fatal(err)
		}
		table, err := set.OpenTable(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		defer table.Close()
		m, err := table.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return m.(commit.Unseated).NoSeat(commit.MainBranch)
	}
	if why := noSeat(o, false); why != "" {
		t.Errorf("before the check: %s", why)
	}
	for _, check := range []bool{true, false} {
		if why := noSeat(o, check); !strings.Contains(why, "the check of catalog lake") {
			t.Errorf("check %t: no seat because of %q", check, why)
		}
	}
	other := o
	other.Configs = []catalog.Config{{Name: "lake", Type: "rest", URI: s.URL, Warehouse: "other"}}
	if why := noSeat(other, false); why != "" {
		t.Errorf("another catalog of the name: %s", why)
	}
	if info, err := os.Stat(o.State); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the state file: %v, %v", info, err)
	}
}

func TestCatalogCheckSQLite(t *testing.T) {
	dir := t.TempDir()
	_, r := checked(t, catalog.Config{Name: "lake", Type: "sql", URI: filepath.Join(dir, "c.db"), Warehouse: dir + "/w"})
	if r.Mode != sql.ModeSeat || !strings.Contains(r.Why, "pointer") {
		t.Errorf("mode %q: %s", r.Mode, r.Why)
	}
	for _, p := range r.Probes {
		if p.Verdict != sql.ProbeOK && p.Verdict != sql.ProbeSkipped {
			t.Errorf("%+v", p)
		}
	}
	left, err := filepath.Glob(dir + "/w/*/*/metadata/*")
	if err != nil || len(left) > 0 {
		t.Errorf("the check left %v", left)
	}
}
