package restcatalog_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	ice "github.com/apache/iceberg-go"
	icecatalog "github.com/apache/iceberg-go/catalog"
	icerest "github.com/apache/iceberg-go/catalog/rest"
	"github.com/apache/iceberg-go/table"
	"go.uber.org/goleak"

	"github.com/firn-project/firn/integration/restcatalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lab is a catalog with one table and a proxy in front of it.
type lab struct {
	server *restcatalog.Server
	proxy  *restcatalog.Proxy
	url    string
}

var name = []string{"a", "b", "t"}

func newLab(t *testing.T) *lab {
	t.Helper()
	s, err := restcatalog.NewServer(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	p, err := restcatalog.NewProxy(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	cat := openLibrary(t, p.URL)
	for _, ns := range [][]string{{"a"}, {"a", "b"}} {
		if err := cat.CreateNamespace(t.Context(), ns, ice.Properties{}); err != nil {
			t.Fatal(err)
		}
	}
	schema := ice.NewSchema(0, ice.NestedField{ID: 1, Name: "id", Type: ice.PrimitiveTypes.Int64})
	if _, err := cat.CreateTable(t.Context(), name, schema, icecatalog.WithProperties(ice.Properties{"n": "0"})); err != nil {
		t.Fatal(err)
	}
	return &lab{server: s, proxy: p, url: p.URL + "/v1/namespaces/a%1Fb/tables/t"}
}

// openLibrary opens the catalog with iceberg-go's client: the server must speak
// the specification's language.
func openLibrary(t *testing.T, url string) *icerest.Catalog {
	t.Helper()
	cat, err := icerest.NewCatalog(t.Context(), "lake", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cat.Close() })
	return cat
}

// property is the truth: a property of the table, past the proxy.
func (l *lab) property(t *testing.T, key string) string {
	t.Helper()
	tbl, err := l.server.Table(t.Context(), name...)
	if err != nil {
		t.Fatal(err)
	}
	return tbl.Properties()[key]
}

// set sends a commit through the proxy; the requirement holds once.
func (l *lab) set(t *testing.T, value string) (status int, body string, err error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	in := `{"requirements":[],"updates":[{"action":"set-properties","updates":{"n":"` + value + `"}}]}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.url, io.NopCloser(strings.NewReader(in)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), err
}

// TestServerSpeaksTheProtocol: the library's own client can do what there is to
// do, and conflicts are told as such.
func TestServerSpeaksTheProtocol(t *testing.T) {
	l := newLab(t)
	cat := openLibrary(t, l.server.URL)
	var tables []string
	for id, err := range cat.ListTables(t.Context(), name[:2]) {
		if err != nil {
			t.Fatal(err)
		}
		tables = append(tables, strings.Join(id, "."))
	}
	if !slices.Equal(tables, []string{"a.b.t"}) {
		t.Errorf("tables %q", tables)
	}
	tbl, err := cat.LoadTable(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	uuid := table.AssertTableUUID(tbl.Metadata().TableUUID())
	if _, _, err := cat.CommitTable(t.Context(), name, []table.Requirement{uuid}, []table.Update{table.NewSetPropertiesUpdate(ice.Properties{"n": "1"})}); err != nil {
		t.Fatal(err)
	}
	if got := l.property(t, "n"); got != "1" {
		t.Errorf("property %q after the commit", got)
	}
	head := int64(7)
	_, _, err = cat.CommitTable(t.Context(), name, []table.Requirement{table.AssertRefSnapshotID("main", &head)}, []table.Update{table.NewSetPropertiesUpdate(ice.Properties{"n": "2"})})
	if err == nil || !strings.Contains(err.Error(), "CommitFailedException") {
		t.Errorf("a requirement that doesn't hold: %v", err)
	}
	if _, err := cat.LoadTable(t.Context(), []string{"a", "b", "none"}); err == nil {
		t.Error("a table that isn't there was loaded")
	}
	if err := cat.DropNamespace(t.Context(), name[:2]); err == nil {
		t.Error("a namespace with a table was dropped")
	}
}

// TestFaults: what the sender sees of each fault, and what the table has.
func TestFaults(t *testing.T) {
	for label, c := range map[string]struct {
		fault  restcatalog.Fault
		status int  // 0: no answer
		broken bool // the answer breaks off
		lands  bool
	}{
		"none":          {restcatalog.Fault{}, 200, false, true},
		"delayed":       {restcatalog.Fault{Delay: time.Millisecond}, 200, false, true},
		"request lost":  {restcatalog.Fault{Arrives: restcatalog.Never, Cut: restcatalog.Reply}, 0, false, false},
		"reply lost":    {restcatalog.Fault{Cut: restcatalog.Reply}, 0, false, true},
		"reply cut":     {restcatalog.Fault{Cut: restcatalog.Middle}, 200, true, true},
		"lying 200":     {restcatalog.Fault{Arrives: restcatalog.Never, Status: 200}, 200, false, false},
		"503 instead":   {restcatalog.Fault{Arrives: restcatalog.Never, Status: 503, RetryAfter: "1"}, 503, false, false},
		"500 after":     {restcatalog.Fault{Status: 500}, 500, false, true},
		"sent twice":    {restcatalog.Fault{Arrives: restcatalog.Twice}, 200, false, true},
		"late, flushed": {restcatalog.Fault{Arrives: restcatalog.Late, Status: 504, After: time.Hour}, 504, false, false},
	} {
		t.Run(label, func(t *testing.T) {
			l := newLab(t)
			c.fault.Name = label
			l.proxy.Begin(func(cl restcatalog.Class, n int) *restcatalog.Fault {
				if cl == restcatalog.Commit && n == 1 {
					return &c.fault
				}
				return nil
			})
			status, body, err := l.set(t, "1")
			if status != c.status || (err != nil) != (c.broken || c.status == 0) {
				t.Errorf("status %d, %v; body %s", status, err, body)
			}
			if got := l.property(t, "n"); (got == "1") != c.lands {
				t.Errorf("property %q after the request", got)
			}
			if n := l.proxy.Fired(); n[label] != 1 {
				t.Errorf("fired %v", n)
			}
			if n := l.proxy.Requests(); !maps.Equal(n, map[restcatalog.Class]int{restcatalog.Commit: 1}) {
				t.Errorf("requests %v", n)
			}
			l.proxy.Flush()
			if got, late := l.property(t, "n"), c.fault.Arrives == restcatalog.Late; late && got != "1" {
				t.Errorf("property %q after the flush", got)
			}
			l.proxy.Begin(nil)
			if status, _, err := l.set(t, "2"); status != 200 || err != nil {
				t.Errorf("after the fault: status %d, %v", status, err)
			}
		})
	}
}

// TestStaleLoad: a stale load shows the table as it was before, once there was a
// before.
func TestStaleLoad(t *testing.T) {
	l := newLab(t)
	cat := openLibrary(t, l.proxy.URL)
	load := func() string {
		tbl, err := cat.LoadTable(context.Background(), name)
		if err != nil {
			t.Fatal(err)
		}
		return tbl.Properties()["n"]
	}
	stale := false
	l.proxy.Begin(func(c restcatalog.Class, _ int) *restcatalog.Fault {
		if c == restcatalog.Load && stale {
			return &restcatalog.Fault{Name: "stale", Stale: true}
		}
		return nil
	})
	stale = true
	if got := load(); got != "0" {
		t.Errorf("with no past: %s", got)
	}
	if n := l.proxy.Fired()["stale"]; n != 0 {
		t.Errorf("a fault that did nothing is counted")
	}
	if status, _, err := l.set(t, "1"); status != 200 || err != nil {
		t.Fatal(status, err)
	}
	if got := load(); got != "0" {
		t.Errorf("stale load shows %s", got)
	}
	stale = false
	if got := load(); got != "1" {
		t.Errorf("fresh load shows %s", got)
	}
	if n := l.proxy.Fired()["stale"]; n != 1 {
		t.Errorf("fired %d", n)
	}
}
