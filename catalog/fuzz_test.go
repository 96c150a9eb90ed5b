package catalog

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
)

// FuzzRESTAnswers: whatever a catalog answers, its caller gets an answer or an
// error in bounded time.
func FuzzRESTAnswers(f *testing.F) {
	var body atomic.Pointer[[]byte]
	var status atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/config", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"defaults":{},"overrides":{}}`)) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write(*body.Load())
	})
	server := httptest.NewServer(mux)
	f.Cleanup(server.Close)
	set, err := Open(context.Background(), []Config{{Name: "lake", Type: "rest", URI: server.URL, Warehouse: "wh"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = set.Close() })
	f.Add(200, []byte(`{"namespaces":[["a"],["b","c"]],"next-page-token":"x"}`))
	f.Add(200, []byte(`{"identifiers":[{"namespace":["a"],"name":"t"}]}`))
	f.Add(404, []byte(`{"error":{"message":"no such table","type":"NoSuchTableException","code":404}}`))
	f.Add(200, []byte(`{"metadata-location":"file:///x","metadata":{"format-version":2,"table-uuid":"9c12d441-03fe-4693-9a96-a0705ddf69c1","location":"file:///t"},"config":{"a":"b"}}`))
	f.Add(400, []byte(`[`))
	name := commit.TableName{Catalog: "lake", Namespace: []string{"a"}, Name: "t"}
	f.Fuzz(func(t *testing.T, code int, raw []byte) {
		if code < 200 || code > 499 || code == 429 { // what is waited for is tested elsewhere
			return
		}
		body.Store(&raw)
		status.Store(int64(code))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, _ = set.Namespaces(ctx, "lake", nil)
		_, _ = set.Tables(ctx, "lake", []string{"a"})
		_, _ = set.Pin(ctx, name)
		if table, err := set.OpenTable(ctx, name); err == nil {
			_, _ = table.Read(ctx)
			if err := table.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
