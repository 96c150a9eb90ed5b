package catalog

import (
	stdsql "database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	ice "github.com/apache/iceberg-go"
	icesql "github.com/apache/iceberg-go/catalog/sql"

	"github.com/firn-project/firn/catalog/catalogtest"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/sql"
)

func openSet(tb testing.TB, dir string) *Set {
	tb.Helper()
	return openWith(tb, Config{Name: "lake", Type: "sql", URI: "sqlite://" + dir + "/catalog.db", Warehouse: dir + "/warehouse"})
}

// library opens the same file as iceberg-go's catalog does for others.
func library(tb testing.TB, dir string) *icesql.Catalog {
	tb.Helper()
	db, err := stdsql.Open("sqlite", "file:"+dir+"/catalog.db?_pragma=busy_timeout(10000)")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	lib, err := icesql.NewCatalog("lake", db, icesql.SQLite, ice.Properties{})
	if err != nil {
		tb.Fatal(err)
	}
	return lib
}

func TestSQLConformance(t *testing.T) {
	committest.Run(t, func(t *testing.T) committest.Harness {
		t.Helper()
		dir := t.TempDir()
		return newHarness(t, openSet(t, dir), library(t, dir))
	})
}

func wantCode(t *testing.T, what string, err error, code commit.Code) {
	t.Helper()
	if got := commit.CodeOf(err); got != code {
		t.Errorf("%s: %v (code %q), want %s", what, err, got, code)
	}
}

func hint(err error) string {
	if e, ok := errors.AsType[*commit.Error](err); ok {
		return e.Hint
	}
	return ""
}

func TestNamespaces(t *testing.T) {
	s := openSet(t, t.TempDir())
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.CreateNamespace(ctx, "lake", []string{"air"}, map[string]string{"owner": "me"}, false))
	must(s.CreateNamespace(ctx, "lake", []string{"air", "old"}, nil, false))
	must(s.CreateNamespace(ctx, "lake", []string{"dotted.name"}, nil, false))
	must(s.CreateNamespace(ctx, "lake", []string{"日本 x"}, nil, false))
	wantCode(t, "again", s.CreateNamespace(ctx, "lake", []string{"air"}, nil, false), commit.CodeNamespaceExists)
	must(s.CreateNamespace(ctx, "lake", []string{"air"}, nil, true))
	wantCode(t, "empty", s.CreateNamespace(ctx, "lake", []string{""}, nil, false), commit.CodeTableDefinition)
	wantCode(t, "none", s.CreateNamespace(ctx, "lake", nil, nil, false), commit.CodeTableDefinition)

	all, err := s.Namespaces(ctx, "lake", nil)
	must(err)
	want := [][]string{{"air"}, {"air", "old"}, {"dotted.name"}, {"日本 x"}}
	if fmt.Sprint(all) != fmt.Sprint(want) {
		t.Errorf("namespaces %q, want %q", all, want)
	}
	below, err := s.Namespaces(ctx, "lake", []string{"air"})
	must(err)
	if fmt.Sprint(below) != "[[air old]]" {
		t.Errorf("below air: %q", below)
	}
	wantCode(t, "not empty", s.DropNamespace(ctx, "lake", []string{"air"}, false), commit.CodeNamespaceNotEmpty)
	must(s.DropNamespace(ctx, "lake", []string{"air", "old"}, false))
	must(s.DropNamespace(ctx, "lake", []string{"air"}, false))
	err = s.DropNamespace(ctx, "lake", []string{"air"}, false)
	wantCode(t, "gone", err, commit.CodeNamespaceNotFound)
	must(s.DropNamespace(ctx, "lake", []string{"air"}, true))
	_, err = s.Namespaces(ctx, "laek", nil)
	wantCode(t, "catalog", err, commit.CodeCatalogUnknown)
	if !strings.Contains(hint(err), "lake") {
		t.Errorf("no suggestion: %q", hint(err))
	}
}

func create(t *testing.T, s *Set, name string, change func(*sql.TableDef)) error {
	t.Helper()
	def := sql.TableDef{Name: commit.TableName{Catalog: "lake", Namespace: []string{"air"}, Name: name}, Format: "iceberg", SchemaJSON: catalogtest.Schema()}
	if change != nil {
		change(&def)
	}
	return s.CreateTable(t.Context(), def)
}

func TestTables(t *testing.T) {
	dir := t.TempDir()
	s := openSet(t, dir)
	ctx := t.Context()
	err := create(t, s, "flights", nil)
	wantCode(t, "no namespace", err, commit.CodeNamespaceNotFound)
	if err := s.CreateNamespace(ctx, "lake", []string{"air"}, nil, false); err != nil {
		t.Fatal(err)
	}
	spec, err := json.Marshal(ice.NewPartitionSpec(ice.PartitionField{SourceIDs: []int{2}, FieldID: 1000, Name: "k_bucket", Transform: ice.BucketTransform{NumBuckets: 8}}))
	if err != nil {
		t.Fatal(err)
	}
	err = create(t, s, "flights", func(d *sql.TableDef) {
		d.SpecJSON, d.Comment, d.Properties = spec, "all flights", map[string]string{"write.parquet.compression-codec": "zstd"}
	})
	if err != nil {
		t.Fatal(err)
	}
	name := commit.TableName{Catalog: "lake", Namespace: []string{"air"}, Name: "flights"}
	p, err := s.Pin(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if p.FormatVersion != 2 || p.Properties["comment"] != "all flights" || p.Properties["write.parquet.compression-codec"] != "zstd" || p.SnapshotID != "" || p.Storage != nil {
		t.Errorf("pinned %+v", p)
	}
	if !strings.Contains(string(p.SpecJSON), `"bucket[8]"`) || !strings.HasPrefix(p.Location, "file://"+dir+"/warehouse/air/flights-") {
		t.Errorf("spec %s, location %s", p.SpecJSON, p.Location)
	}
	if _, err := os.Stat(strings.TrimPrefix(p.MetadataLocation, "file://")); err != nil || !strings.Contains(p.MetadataLocation, "/metadata/00000-") {
		t.Errorf("metadata file %s: %v", p.MetadataLocation, err)
	}
	wantCode(t, "again", create(t, s, "flights", nil), commit.CodeTableExists)
	if err := create(t, s, "flights", func(d *sql.TableDef) { d.IfNotExists = true }); err != nil {
		t.Errorf("IF NOT EXISTS: %v", err)
	}
	if got, _ := s.Pin(ctx, name); got.UUID != p.UUID {
		t.Error("IF NOT EXISTS made another table")
	}
	_, err = s.Pin(ctx, commit.TableName{Catalog: "lake", Namespace: []string{"air"}, Name: "flihgts"})
	wantCode(t, "misspelt", err, commit.CodeTableNotFound)
	if !strings.Contains(hint(err), "lake.air.flights") || !errors.Is(err, commit.ErrTableNotFound) {
		t.Errorf("%v: hint %q", err, hint(err))
	}
	_, err = s.Pin(ctx, commit.TableName{Catalog: "lake", Namespace: []string{"iar"}, Name: "flights"})
	if !strings.Contains(hint(err), "lake.air") {
		t.Errorf("%v: hint %q", err, hint(err))
	}
	list, err := s.Tables(ctx, "lake", []string{"air"})
	if err != nil || len(list) != 1 || list[0].String() != "lake.air.flights" {
		t.Errorf("tables %v, %v", list, err)
	}
	_, err = s.Tables(ctx, "lake", []string{"no"})
	wantCode(t, "tables of nothing", err, commit.CodeNamespaceNotFound)
	wantCode(t, "not empty", s.DropNamespace(ctx, "lake", []string{"air"}, false), commit.CodeNamespaceNotEmpty)
	if err := s.DropTable(ctx, name, false); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "dropped", s.DropTable(ctx, name, false), commit.CodeTableNotFound)
	if err := s.DropTable(ctx, name, true); err != nil {
		t.Errorf("IF EXISTS: %v", err)
	}
	if _, err := os.Stat(strings.TrimPrefix(p.MetadataLocation, "file://")); err != nil {
		t.Errorf("a dropped table's files stay: %v", err)
	}
	if err := create(t, s, "flights", nil); err != nil {
		t.Fatal(err)
	}
	again, err := s.Pin(ctx, name)
	if err != nil || again.Location == p.Location || again.UUID == p.UUID {
		t.Errorf("made again at %s, %v", again.Location, err)
	}
	// The old table can be adopted under another name, once.
	other := commit.TableName{Catalog: "lake", Namespace: []string{"air"}, Name: "old"}
	if err := s.RegisterTable(ctx, other, strings.TrimPrefix(p.MetadataLocation, "file://")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Pin(ctx, other); err != nil || got.UUID != p.UUID {
		t.Errorf("registered %s, %v; want %s", got.UUID, err, p.UUID)
	}
	wantCode(t, "register again", s.RegisterTable(ctx, other, p.MetadataLocation), commit.CodeTableExists)
	third := commit.TableName{Catalog: "lake", Namespace: []string{"no"}, Name: "old"}
	wantCode(t, "register nowhere", s.RegisterTable(ctx, third, p.MetadataLocation), commit.CodeNamespaceNotFound)
	if err := s.RegisterTable(ctx, other, dir+"/missing.json"); commit.KindOf(err) != commit.KindNotFound || !strings.Contains(err.Error(), "missing.json") {
		t.Errorf("register of a missing file: %v", err)
	}
	if err := os.WriteFile(dir+"/bad.json", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	third.Namespace = []string{"air"}
	third.Name = "bad"
	wantCode(t, "register a bad file", s.RegisterTable(ctx, third, dir+"/bad.json"), commit.CodeMetadataInvalid)
}

func TestCreateTableRefuses(t *testing.T) {
	dir := t.TempDir()
	s := openSet(t, dir)
	if err := s.CreateNamespace(t.Context(), "lake", []string{"air"}, nil, false); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*sql.TableDef){
		"format version": func(d *sql.TableDef) { d.Properties = map[string]string{"format-version": "4"} },
		"version text":   func(d *sql.TableDef) { d.Properties = map[string]string{"format-version": "two"} },
		"schema":         func(d *sql.TableDef) { d.SchemaJSON = []byte(`{"type":"struct"`) },
		"no columns":     func(d *sql.TableDef) { d.SchemaJSON = []byte(`{"type":"struct","schema-id":0,"fields":[]}`) },
		"spec": func(d *sql.TableDef) {
			d.SpecJSON = []byte(`{"spec-id":0,"fields":[{"source-id":9,"field-id":1000,"name":"x","transform":"identity"}]}`)
		},
		"delta":        func(d *sql.TableDef) { d.Format = "delta" },
		"no name":      func(d *sql.TableDef) { d.Name.Name = "" },
		"no namespace": func(d *sql.TableDef) { d.Name.Namespace = nil },
	} {
		wantCode(t, name, create(t, s, "x", change), commit.CodeTableDefinition)
	}
	if _, err := os.Stat(dir + "/warehouse"); !os.IsNotExist(err) {
		t.Errorf("a refused CREATE TABLE left files: %v", err)
	}
}

func TestFormatVersions(t *testing.T) {
	s := openSet(t, t.TempDir())
	if err := s.CreateNamespace(t.Context(), "lake", []string{"air"}, nil, false); err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"1", "2", "3"} {
		if err := create(t, s, "v"+v, func(d *sql.TableDef) { d.Properties = map[string]string{"format-version": v} }); err != nil {
			t.Fatal(err)
		}
		p, err := s.Pin(t.Context(), commit.TableName{Catalog: "lake", Namespace: []string{"air"}, Name: "v" + v})
		if err != nil || fmt.Sprint(p.FormatVersion) != v {
			t.Errorf("version %d, %v; want %s", p.FormatVersion, err, v)
		}
		if _, stored := p.Properties["format-version"]; stored {
			t.Error("format-version is kept as a property")
		}
	}
}

// Of many creations of one name one wins, and the others leave nothing.
func TestCreateRace(t *testing.T) {
	dir := t.TempDir()
	s := openSet(t, dir)
	if err := s.CreateNamespace(t.Context(), "lake", []string{"air"}, nil, false); err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = create(t, s, "t", nil) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			wantCode(t, "loser", err, commit.CodeTableExists)
		}
	}
	files, err := filepath.Glob(dir + "/warehouse/air/*/metadata/*.json")
	if won != 1 || err != nil || len(files) != 1 {
		t.Errorf("%d won, and left %v (%v)", won, files, err)
	}
}

// Names that would climb or end a path stay inside the warehouse, and apart.
func TestOddNames(t *testing.T) {
	dir := t.TempDir()
	s := openSet(t, dir)
	ctx := t.Context()
	seen := map[string]bool{}
	for _, ns := range [][]string{{"a.b"}, {"a", "b"}, {"..."}, {`x\y`}, {"ü 日"}, {`q"'`}} {
		if err := s.CreateNamespace(ctx, "lake", ns, nil, false); err != nil {
			t.Fatalf("%q: %v", ns, err)
		}
		for _, tbl := range []string{"t", "..up", "a'b\"c", "日本 %2F?#"} {
			name := commit.TableName{Catalog: "lake", Namespace: ns, Name: tbl}
			if err := s.CreateTable(ctx, sql.TableDef{Name: name, SchemaJSON: catalogtest.Schema()}); err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			p, err := s.Pin(ctx, name)
			if err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			if seen[p.UUID] || p.Name.String() != name.String() {
				t.Errorf("%q is another table", name)
			}
			seen[p.UUID] = true
			rel, err := filepath.Rel(dir+"/warehouse", strings.TrimPrefix(p.Location, "file://"))
			if err != nil || strings.HasPrefix(rel, "..") || strings.Count(rel, "/") != len(ns) {
				t.Errorf("%q lies at %s", name, p.Location)
			}
			info, err := s.Describe(ctx, name)
			if err != nil || info.Rows != 0 || info.Snapshots != 0 {
				t.Errorf("%q: %+v, %v", name, info, err)
			}
		}
		names, err := s.Tables(ctx, "lake", ns)
		if err != nil || len(names) != 4 {
			t.Errorf("%q has the tables %v, %v", ns, names, err)
		}
		for _, name := range names {
			if err := s.DropTable(ctx, name, false); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
	for _, bad := range []string{"", ".", "..", "a/b", "a\x00b"} {
		wantCode(t, bad, s.CreateNamespace(ctx, "lake", []string{bad}, nil, false), commit.CodeTableDefinition)
		wantCode(t, bad, s.CreateTable(ctx, sql.TableDef{Name: commit.TableName{Catalog: "lake", Namespace: []string{"a"}, Name: bad}, SchemaJSON: catalogtest.Schema()}), commit.CodeTableDefinition)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/text", []byte(strings.Repeat("not a database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	ok := Config{Name: "lake", Type: "sql", URI: dir + "/c.db"}
	for name, configs := range map[string][]Config{
		"no name":     {{Type: "sql", URI: dir + "/c.db"}},
		"dotted name": {{Name: "a.b", Type: "sql", URI: dir + "/c.db"}},
		"twice":       {ok, ok},
		"type":        {{Name: "x", Type: "hive", URI: "thrift://x"}},
		"no uri":      {{Name: "x", Type: "sql"}},
		"memory":      {{Name: "x", Type: "sql", URI: ":memory:"}},
		"mysql":       {{Name: "x", Type: "sql", URI: "mysql://x"}},
	} {
		s, err := Open(t.Context(), configs)
		wantCode(t, name, err, commit.CodeCatalogConfig)
		if s != nil {
			t.Errorf("%s: a Set beside the error", name)
		}
	}
	_, err := Open(t.Context(), []Config{{Name: "x", Type: "sql", URI: dir + "/text"}})
	if err == nil || !strings.Contains(err.Error(), dir+"/text") {
		t.Errorf("not a database: %v", err)
	}
}

func TestStorageHoldsNoCatalogSecret(t *testing.T) {
	c := Config{Properties: map[string]string{
		"token": "CANARY", "credential": "CANARY", "oauth2-server-uri": "CANARY", "header.X": "CANARY",
		"s3.access-key-id": "id", "s3.secret-access-key": "key", "client.region": "eu",
	}}
	got := c.storage()
	if len(got) != 3 || got["s3.region"] != "eu" || got["s3.access-key-id"] != "id" {
		t.Errorf("%v", got)
	}
	if i := slices.IndexFunc([]string{"token", "credential"}, func(k string) bool { return got[k] != "" }); i >= 0 {
		t.Error("a secret travels")
	}
}

func TestSuggest(t *testing.T) {
	names := []string{"flights", "airports", "x"}
	for name, want := range map[string]string{"fligths": "flights", "FLIGHTS": "flights", "airport": "airports", "zzzzzz": "", "y": "x", "": ""} {
		got := suggest(name, names, "")
		if (want == "" && got != "" && name != "") || (want != "" && !strings.Contains(got, want)) {
			t.Errorf("suggest(%q) = %q, want %q", name, got, want)
		}
	}
}
