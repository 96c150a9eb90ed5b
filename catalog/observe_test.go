package catalog

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/firn-project/firn/commit"
)

// Each try goes over the wire of its own and is told of its own, with the status that
// it got.
func TestEachTryIsTold(t *testing.T) {
	var n atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && n.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("{}"))
	}))
	defer srv.Close()
	base, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]int{}
	h, err := newRESTHTTP(Config{}, base, observer{"lake", func(c Call) { calls[c.Catalog+" "+c.Method+" "+c.Code]++ }})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var into struct{}
	if err := h.getJSON(t.Context(), srv.URL, &into); err != nil {
		t.Fatal(err)
	}
	if a := h.postOnce(t.Context(), srv.URL, []byte("{}"), ""); a.Class != commit.AnswerOK {
		t.Fatal(a)
	}
	srv.Close()
	if a := h.postOnce(t.Context(), srv.URL, []byte("{}"), ""); a.Class != commit.AnswerAmbiguous {
		t.Fatal(a)
	}
	if len(calls) != 4 || calls["lake GET 503"] != 2 || calls["lake GET 200"] != 1 || calls["lake POST 200"] != 1 || calls["lake POST none"] != 1 {
		t.Errorf("%v", calls)
	}
}

func TestDatabaseCallsAreTold(t *testing.T) {
	dir := t.TempDir()
	calls := map[string]int{}
	s, err := OpenWith(t.Context(), Options{
		Configs: []Config{{Name: "lake", Type: "sql", URI: "sqlite://" + filepath.Join(dir, "c.db"), Warehouse: dir}},
		Observe: func(c Call) { calls[c.Catalog+" "+c.Method+" "+c.Code]++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	ctx := context.Background()
	if err := s.CreateNamespace(ctx, "lake", []string{"a"}, nil, false); err != nil {
		t.Fatal(err)
	}
	name := commit.TableName{Catalog: "lake", Namespace: []string{"a"}, Name: "t"}
	if _, err := s.Pin(ctx, name); err == nil {
		t.Fatal("there is a table")
	}
	if _, err := s.Tables(ctx, "lake", []string{"a"}); err != nil {
		t.Fatal(err)
	}
	if err := s.DropTable(ctx, name, true); err != nil {
		t.Fatal(err)
	}
	if calls["lake load error"] == 0 || calls["lake list ok"] == 0 || calls["lake drop error"] != 1 {
		t.Errorf("%v", calls)
	}
}
