package deltatables

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.uber.org/goleak"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/sql"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLocate(t *testing.T) {
	for text, want := range map[string]string{
		"/a/b":              "file:///a/b",
		"/a//b/../c/":       "file:///a/c",
		"file:///a/b/":      "file:///a/b",
		"s3://b/a/t/":       "s3://b/a/t",
		"s3a://b/t":         "s3://b/t",
		"a/b":               "",
		"/":                 "",
		"/t/_delta_log":     "",
		"/t/_delta_log/x":   "",
		"s3://b":            "",
		"s3://b/a/../c":     "",
		"s3://b/a//c":       "",
		"gs://b/t":          "",
		"/a/b?c":            "",
		"s3://b/t%2F..%2Fu": "",
	} {
		if got, err := Locate(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
}

func openNames(t *testing.T, path string) *SQLite {
	t.Helper()
	n, err := OpenSQLite(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// TestNames: a name is taken once, is there after a restart, and may be taken again
// when it was removed.
func TestNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tables.db")
	n := openNames(t, path)
	a := commit.TableName{Catalog: "lake", Namespace: []string{"x", "y"}, Name: "a"}
	b := commit.TableName{Catalog: "lake", Namespace: []string{"x.y"}, Name: "a"}
	if err := n.Add(t.Context(), a, "file:///a"); err != nil {
		t.Fatal(err)
	}
	if err := n.Add(t.Context(), a, "file:///b"); !errors.Is(err, ErrTaken) {
		t.Errorf("a second time: %v", err)
	}
	if _, ok, err := n.Location(t.Context(), b); ok || err != nil {
		t.Errorf("another namespace's name is there: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = openNames(t, path)
	if at, ok, err := n.Location(t.Context(), a); at != "file:///a" || !ok || err != nil {
		t.Errorf("%q, %t, %v", at, ok, err)
	}
	if list, err := n.List(t.Context(), "lake", []string{"x", "y"}); err != nil || !slices.Equal(list, []string{"a"}) {
		t.Errorf("%v, %v", list, err)
	}
	if ok, err := n.Remove(t.Context(), a); !ok || err != nil {
		t.Errorf("remove: %t, %v", ok, err)
	}
	if ok, err := n.Remove(t.Context(), a); ok || err != nil {
		t.Errorf("remove what isn't there: %t, %v", ok, err)
	}
	if err := n.Add(t.Context(), a, "file:///b"); err != nil {
		t.Error(err)
	}
}

var schema = []byte(`{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}`)

func byPath(location string) sql.TableDef {
	return sql.TableDef{
		Name: commit.TableName{Catalog: PathCatalog, Name: location}, Location: location, SchemaJSON: schema, SpecJSON: []byte("[]"),
	}
}

// TestPlaces: a path is a table's only below a place, and a table doesn't reach out of
// its own directory.
func TestPlaces(t *testing.T) {
	dir := t.TempDir()
	tables := New(Config{Places: []Place{{Location: dir + "/in/"}}})
	if err := os.Mkdir(dir+"/in", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", dir+"/in/link"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]commit.Code{
		dir + "/in/link/t": commit.CodeDeltaPathNotAllowed,
		dir + "/in/t":      "",
		dir + "/inn":       commit.CodeDeltaPathNotAllowed,
		dir + "/in/../x":   commit.CodeDeltaPathNotAllowed,
		"/etc":             commit.CodeDeltaPathNotAllowed,
		"relative/x":       commit.CodeTableDefinition,
	} {
		if err := tables.Create(t.Context(), byPath(path)); commit.CodeOf(err) != want {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if err := tables.Create(t.Context(), byPath(dir+"/in/t")); commit.CodeOf(err) != commit.CodeTableExists {
		t.Errorf("a second time: %v", err)
	}
	table, _, err := tables.Find(t.Context(), "read", byPath(dir+"/in/t").Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"file:///etc/passwd", "/etc/passwd", "s3://other/x", "file://" + dir + "/inn/x"} {
		add := `{"add":{"path":"` + path + `","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}`
		if err := os.WriteFile(dir+"/in/t/_delta_log/00000000000000000001.json", []byte(add), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := table.Pin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := table.Scan(t.Context(), p, "", nil); commit.CodeOf(err) != commit.CodeTableUnsupported || !strings.Contains(err.Error(), "outside") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestUnfitStore: a store that lets a second object take a name is found out before
// the first commit. That is remembered, and looked at again.
func TestUnfitStore(t *testing.T) {
	backend := s3mem.New()
	if err := backend.CreateBucket("lake"); err != nil {
		t.Fatal(err)
	}
	s3 := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	var honest atomic.Bool
	var requests atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if !honest.Load() {
			r.Header.Del("If-None-Match")
		}
		s3.ServeHTTP(w, r)
	}))
	defer srv.Close()
	defer srv.CloseClientConnections()
	now := time.Now()
	path := filepath.Join(t.TempDir(), "tables.db")
	open := func() *Tables {
		return New(Config{
			Names: openNames(t, path), Now: func() time.Time { return now },
			Places: []Place{{Location: "s3://lake/", Access: Access{Objects: objstore.Config{Endpoint: srv.URL, AccessKeyID: "id", SecretAccessKey: "key"}}}},
		})
	}
	for range 2 { // and after a restart
		if err := open().Create(t.Context(), byPath("s3://lake/t")); commit.CodeOf(err) != commit.CodeDeltaStoreUnfit || commit.ReasonOf(err) != commit.ReasonValidation {
			t.Fatalf("created all the same: %v", err)
		}
	}
	honest.Store(true)
	now = now.Add(lookAgain)
	if err := open().Create(t.Context(), byPath("s3://lake/t")); err != nil {
		t.Fatal(err)
	}
	before := requests.Load()
	table, _, err := open().Find(context.Background(), "x", byPath("s3://lake/t").Name)
	if err == nil {
		err = table.fit(t.Context())
	}
	if err != nil || requests.Load() != before {
		t.Errorf("%v, and %d requests to a store that is known to be fit", err, requests.Load()-before)
	}
	for o, err := range table.store.List(t.Context(), "s3://lake/") {
		if err != nil || !strings.Contains(o.URI, "_delta_log/") {
			t.Errorf("left behind: %s, %v", o.URI, err)
		}
	}
}
