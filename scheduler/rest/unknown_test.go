package rest_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Paths, methods and parameters that there aren't are told as problems that name
// them.
func TestWhatThereIsNot(t *testing.T) {
	base := serve(t, &fake{}, nil)
	for _, c := range []struct {
		method, path string
		status       int
		want         string
	}{
		{http.MethodGet, "/api/v1/jbos", http.StatusNotFound, "/api/v1/jbos"},
		{http.MethodGet, "/", http.StatusNotFound, "nothing is at /"},
		{http.MethodPost, "/api/v1/jobs", http.StatusMethodNotAllowed, "POST isn't for /api/v1/jobs"},
		{http.MethodPut, "/metrics", http.StatusMethodNotAllowed, "PUT isn't for /metrics"},
		{http.MethodGet, "/api/v1/jobs?sate=failed", http.StatusUnprocessableEntity, "sate"},
		{http.MethodGet, "/api/v1/commits?tabel=lake.a.b", http.StatusUnprocessableEntity, "tabel"},
		{http.MethodPost, "/api/v1/jobs/j/cancel?wiat=1s", http.StatusUnprocessableEntity, "wiat"},
	} {
		status, kind, text := call(t, c.method, base+c.path)
		var p struct {
			Status       int
			Code, Detail string
		}
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Errorf("%s %s: %v in %s", c.method, c.path, err, text)
		}
		if status != c.status || kind != "application/problem+json" || p.Status != status || p.Code != "FIRN-6021" || !strings.Contains(p.Detail, c.want) {
			t.Errorf("%s %s: %d, %s, %s; want %d and %q", c.method, c.path, status, kind, text, c.status, c.want)
		}
	}
	// As curl -d sends it.
	resp, err := http.PostForm(base+"/api/v1/statements", url.Values{"sql": {"SELECT 1"}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusUnsupportedMediaType || !strings.Contains(string(text), "application/json") {
		t.Errorf("a form: %s, %s", resp.Status, text)
	}
}
