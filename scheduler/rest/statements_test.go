package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/rest"
)

// numbers is a stream of n rows in batches of a hundred.
func numbers(t testing.TB, n int) []byte {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}, {Name: "s", Type: arrow.BinaryTypes.String}}, nil)
	var batches []arrow.RecordBatch
	for from := 0; from < n; from += 100 {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for i := from; i < min(n, from+100); i++ {
			b.Field(0).(*array.Int64Builder).Append(1<<53 + int64(i))
			b.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("row %d", i))
		}
		batches = append(batches, b.NewRecordBatch())
	}
	raw, err := wire.EncodeIPC(schema, batches...)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// post sends a body and gives the answer.
func post(t *testing.T, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(raw)
}

func TestStatements(t *testing.T) {
	var got *firnpb.ExecuteRequest
	f := &fake{execute: func(r *firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error) {
		switch got = r; {
		case strings.Contains(r.GetSql(), "lake.a.none"):
			return nil, &commit.Error{Code: commit.CodeTableNotFound, Op: "open table", Object: "lake.a.none"}
		case r.GetIdempotencyKey() == "taken":
			return nil, &commit.Error{Code: commit.CodeKeyReused, Op: "admit statement", Object: "taken"}
		case strings.HasPrefix(r.GetSql(), "SHOW"), strings.HasPrefix(r.GetSql(), "EXPLAIN"):
			return &firnpb.ExecuteResponse{Statement: "SHOW", Session: &firnpb.Session{Catalog: "lake"}, RowsIpc: numbers(t, 2)}, nil
		}
		st := job("running")
		if r.GetIdempotencyKey() == "done" {
			st = job("succeeded")
			st.Report = &firnpb.CommitReport{Table: "lake.a.t", Commit: "committed", Deduplicated: true}
		}
		return &firnpb.ExecuteResponse{Statement: "INSERT", Job: st}, nil
	}}
	base := serve(t, f, nil) + "/api/v1/statements"
	for _, c := range []struct {
		body   string
		header []string
		status int
		has    []string
		key    string
	}{
		{`{"sql":"INSERT INTO lake.a.t SELECT 1"}`, nil, 202, []string{`"job_id":"j-1"`, `"rows":"/api/v1/jobs/j-1/rows"`}, ""},
		{`{"sql":"INSERT INTO lake.a.t SELECT 1","idempotency_key":"k"}`, nil, 202, nil, "k"},
		{`{"sql":"INSERT INTO lake.a.t SELECT 1"}`, []string{"Idempotency-Key", "k2"}, 202, nil, "k2"},
		{`{"sql":"INSERT INTO lake.a.t SELECT 1"}`, []string{"Idempotency-Key", "k\xe9"}, 400, []string{"UTF-8", "FIRN-6021"}, ""},
		{`{"sql":"INSERT INTO lake.a.t SELECT 1","idempotency_key":"k"}`, []string{"Idempotency-Key", "k"}, 202, nil, "k"},
		{`{"sql":"INSERT INTO lake.a.t SELECT 1","idempotency_key":"k"}`, []string{"Idempotency-Key", "other"}, 400, []string{"differ", "FIRN-6021"}, ""},
		{`{"sql":"INSERT INTO lake.a.t SELECT 1","idempotency_key":"done"}`, nil, 200, []string{`"deduplicated":true`, `"commit":"/api/v1/commits/j-1"`}, "done"},
		{`{"sql":"INSERT INTO lake.a.t SELECT 1","idempotency_key":"taken"}`, nil, 409, []string{`"code":"FIRN-6001"`}, "taken"},
		{`{"sql":"INSERT INTO lake.a.t SELECT 1","dry_run":true}`, nil, 202, nil, ""},
		{`{"sql":"SELECT * FROM lake.a.none"}`, nil, 404, []string{`"code":"FIRN-5003"`}, ""},
		{`{"sql":"SHOW TABLES"}`, nil, 200, []string{`"columns":[{"name":"n","type":"int64"},{"name":"s","type":"utf8"}]`, `"rows":[{"n":9007199254740992,"s":"row 0"},{"n":"9007199254740993","s":"row 1"}]`, `"catalog":"lake"`}, ""},
		{`{"sql":"INSERT INTO lake.a.t SELECT 1","explain":true}`, nil, 200, []string{`"rows":[`}, ""},
		{`{"sql":"ANALYZE INSERT INTO lake.a.t SELECT 1","explain":true}`, nil, 400, []string{"FIRN-"}, ""},
		{`{"sql":"/* */ ANALYZE INSERT INTO lake.a.t SELECT 1","explain":true}`, nil, 400, []string{"FIRN-"}, ""},
		{`{"sql":""}`, nil, 422, []string{"FIRN-6021"}, ""},
		{`{}`, nil, 422, []string{"FIRN-6021", "sql"}, ""},
		{`{"sql":7}`, nil, 422, []string{"FIRN-6021"}, ""},
		{`{"sql":"SELECT 1","mode":"pipelined"}`, nil, 202, nil, ""},
		{`{"sql":"SELECT 1","mode":"fast"}`, nil, 422, []string{"FIRN-6021", "mode"}, ""},
		{`{"sql":`, nil, 400, []string{"FIRN-6021"}, ""},
		{``, nil, 400, []string{"FIRN-6021"}, ""},
		{`{"sql":"` + strings.Repeat("x", 1<<20) + `"}`, nil, 413, []string{"FIRN-6021"}, ""},
		{`{"sql":"SELECT 1","idempotency_key":"` + strings.Repeat("x", 513) + `"}`, nil, 422, []string{"FIRN-6021"}, ""},
		{`{"sql":"SELECT 1","reject_limit":-1}`, nil, 422, []string{"FIRN-6021"}, ""},
		{`{"sql":"SELECT 1","after_deadline":"pray"}`, nil, 422, []string{"FIRN-6021"}, ""},
	} {
		got = nil
		resp, body := post(t, base, c.body, c.header...)
		if resp.StatusCode != c.status {
			t.Errorf("%.100s: %d, want %d: %s", c.body, resp.StatusCode, c.status, body)
		}
		for _, want := range c.has {
			if !strings.Contains(body, want) {
				t.Errorf("%.100s: no %s in %s", c.body, want, body)
			}
		}
		switch {
		case c.status == 202:
			if at := resp.Header.Get("Location"); at != "/api/v1/jobs/j-1" || got.GetIdempotencyKey() != c.key && (c.key != "" || !got.GetKeyIsNew()) || got.GetDryRun() != strings.Contains(c.body, "dry_run") || (got.GetMode() == "pipelined") != strings.Contains(c.body, "pipelined") {
				t.Errorf("%.100s: at %q, asked %v", c.body, at, got)
			}
		case c.status >= 400 && resp.Header.Get("Content-Type") != "application/problem+json":
			t.Errorf("%.100s: %s", c.body, resp.Header.Get("Content-Type"))
		case c.status == 422 && got != nil, c.status == 413 && got != nil:
			t.Errorf("%.100s was run", c.body)
		}
	}
	if resp, body := post(t, base+"?wait=2h", `{"sql":"SELECT 1"}`); resp.StatusCode != 400 || !strings.Contains(body, "at most 1m") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	// Another site's page can't run anything.
	if resp, _ := post(t, base, `{"sql":"SELECT 1"}`, "Sec-Fetch-Site", "cross-site"); resp.StatusCode != 403 {
		t.Errorf("%d for another site", resp.StatusCode)
	}
	if resp, _ := post(t, base, `{"sql":"SELECT 1"}`, "Authorization", "Bearer bad"); resp.StatusCode != 401 {
		t.Errorf("%d for a wrong token", resp.StatusCode)
	}
}

// A job's end is waited for, when that is asked for.
func TestStatementsWait(t *testing.T) {
	f := &fake{changes: make(chan *firnpb.JobStatus, 1), execute: func(*firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error) {
		return &firnpb.ExecuteResponse{Statement: "INSERT", Job: job("running")}, nil
	}}
	base := serve(t, f, nil) + "/api/v1/statements"
	if resp, body := post(t, base+"?wait=20ms", `{"sql":"SELECT 1"}`); resp.StatusCode != 202 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	close(f.changes)
	f.state = "succeeded"
	if resp, body := post(t, base+"?wait=30s", `{"sql":"SELECT 1"}`); resp.StatusCode != 200 || !strings.Contains(body, `"state":"succeeded"`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestRowPages(t *testing.T) {
	f := &fake{state: "succeeded", inline: numbers(t, 250)}
	base := serve(t, f, nil) + "/api/v1/jobs/j-1/rows"
	var all []string
	for token, n := "", 0; n == 0 || token != ""; n++ {
		status, _, body := call(t, "GET", base+"?limit=90&page_token="+token)
		var page struct {
			Columns []struct{ Name, Type string }
			Rows    []struct{ S string }
			Next    string `json:"next_page_token"`
		}
		if err := json.Unmarshal([]byte(body), &page); err != nil || status != 200 || len(page.Columns) != 2 || n > 3 {
			t.Fatalf("%d %s: %v", status, body, err)
		}
		for _, r := range page.Rows {
			all = append(all, r.S)
		}
		token = page.Next
	}
	if len(all) != 250 || all[0] != "row 0" || all[249] != "row 249" || len(slices.Compact(slices.Clone(all))) != 250 {
		t.Errorf("%d rows: %v", len(all), all)
	}
	for query, want := range map[string]int{"": 250, "&limit=7": 7, "&limit=130": 130, "&limit=250": 250} {
		status, contentType, body := call(t, "GET", base+"?format=arrow"+query)
		if status != 200 || contentType != "application/vnd.apache.arrow.stream" {
			t.Fatalf("%d %s", status, contentType)
		}
		r, err := ipc.NewReader(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for r.Next() {
			n += int(r.RecordBatch().NumRows())
		}
		if r.Err() != nil || n != want || !strings.HasSuffix(body, "\xff\xff\xff\xff\x00\x00\x00\x00") {
			t.Errorf("%s: %d rows, %v", query, n, r.Err())
		}
		r.Release()
	}
	for path, want := range map[string]string{
		"?limit=0": "query.limit", "?limit=100001": "query.limit", "?page_token=x": "page token", "?format=csv": "query.format",
	} {
		if status, _, body := call(t, "GET", base+path); status/100 != 4 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	f.state = "running"
	if status, _, body := call(t, "GET", base); status != 400 || !strings.Contains(body, "it is running") {
		t.Errorf("%d %s", status, body)
	}
	// Rows that are gone aren't no rows.
	f.state, f.inline = "succeeded", nil
	if status, _, body := call(t, "GET", base); status != 410 || !strings.Contains(body, "FIRN-7007") {
		t.Errorf("%d %s", status, body)
	}
}

// One row that is larger than a page is a page.
func TestAPageEndsByItsBytes(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for range 3 {
		b.Field(0).(*array.StringBuilder).Append(strings.Repeat("x", 9<<20))
	}
	raw, err := wire.EncodeIPC(schema, b.NewRecordBatch())
	if err != nil {
		t.Fatal(err)
	}
	base := serve(t, &fake{state: "succeeded", inline: raw}, nil) + "/api/v1/jobs/j-1/rows"
	status, _, body := call(t, "GET", base)
	if status != 200 || len(body) > 10<<20 || !strings.Contains(body, "next_page_token") {
		t.Errorf("%d, %d bytes", status, len(body))
	}
}

// TestLimitedArrow: a result that is too large for Arrow is given by a limit.
func TestLimitedArrow(t *testing.T) {
	raw, err := wire.EncodeIPC(arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String}}, nil))
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{state: "succeeded", schema: raw, bytes: 1 << 30}
	base := serve(t, f, nil) + "/api/v1/jobs/j-1/rows?format=arrow"
	if status, _, body := call(t, "GET", base); status != 400 || !strings.Contains(body, "give a limit") {
		t.Errorf("%d %s", status, body)
	}
	if status, contentType, body := call(t, "GET", base+"&limit=10"); status != 200 || contentType != "application/vnd.apache.arrow.stream" {
		t.Errorf("%d %s", status, body)
	}
}

// idsOf are the ids of a list, with a slash after each page.
func idsOf(t *testing.T, base, at string) (ids []string) {
	t.Helper()
	for at != "" {
		r, err := http.Get(base + at) //nolint:noctx // a test
		if err != nil {
			t.Fatal(err)
		}
		var page struct {
			Executors, Frames []struct {
				Executor string `json:"executor_id"`
				Frame    string `json:"frame_id"`
			}
		}
		err = json.NewDecoder(r.Body).Decode(&page)
		if _ = r.Body.Close(); err != nil {
			t.Fatal(err)
		}
		for _, v := range append(page.Executors, page.Frames...) {
			ids = append(ids, v.Executor+v.Frame)
		}
		ids = append(ids, "/")
		at, _, _ = strings.Cut(strings.TrimPrefix(r.Header.Get("Link"), "<"), ">")
	}
	return ids
}

func TestListsHaveNextPages(t *testing.T) {
	var asked *firnpb.ListJobsRequest
	f := &fake{listJobs: func(r *firnpb.ListJobsRequest) (*firnpb.ListJobsResponse, error) {
		asked = r
		return &firnpb.ListJobsResponse{Jobs: []*firnpb.JobStatus{job("running")}, NextPageToken: "MTo1Og"}, nil
	}, executorIDs: []string{"e-2", "e-1", "e-3"}, frameIDs: []string{"f-2", "f-3", "f-1"}}
	base := serve(t, f, nil)
	resp, err := http.Get(base + "/api/v1/jobs?limit=1&state=running&table=lake.a.t&since=2026-01-02T03:04:05Z&until=2026-01-02T03:04:06%2B01:00") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if asked.GetSinceUnixMs() != 1767323045000 || asked.GetUntilUnixMs() != 1767319446000 || asked.GetTable() != "lake.a.t" || asked.GetState() != "running" || asked.GetLimit() != 1 {
		t.Errorf("asked %v", asked)
	}
	link := resp.Header.Get("Link")
	next, rel, _ := strings.Cut(strings.TrimPrefix(link, "<"), ">")
	if rel != `; rel="next"` {
		t.Fatal(link)
	}
	first := asked
	status, _, body := call(t, "GET", base+next)
	if status != 200 || asked.GetPageToken() != "MTo1Og" || asked.GetSinceUnixMs() != first.GetSinceUnixMs() || asked.GetUntilUnixMs() != first.GetUntilUnixMs() || asked.GetState() != "running" {
		t.Errorf("%d %s: asked %v", status, body, asked)
	}
	if ids := idsOf(t, base, "/api/v1/executors?limit=2"); !slices.Equal(ids, []string{"e-1", "e-2", "/", "e-3", "/"}) {
		t.Errorf("%v", ids)
	}
	if ids := idsOf(t, base, "/api/v1/frames?limit=2"); !slices.Equal(ids, []string{"f-1", "f-2", "/", "f-3", "/"}) {
		t.Errorf("%v", ids)
	}
	for _, query := range []string{"page_token=x", "since=yesterday", "limit=1001"} {
		if status, contentType, body := call(t, "GET", base+"/api/v1/executors?"+query); query != "since=yesterday" && (status/100 != 4 || contentType != "application/problem+json") {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
	if status, _, body := call(t, "GET", base+"/api/v1/jobs?since=yesterday"); status != 422 || !strings.Contains(body, "query.since") {
		t.Errorf("%d %s", status, body)
	}
}

// Who connects again gets what is new, and the end.
func TestEventsAreResumed(t *testing.T) {
	f := &fake{changes: make(chan *firnpb.JobStatus, 2)}
	base := serve(t, f, nil)
	newer := job("succeeded")
	newer.Revision = 8
	f.changes <- job("running") // revision 7
	f.changes <- newer
	close(f.changes)
	r, err := http.NewRequestWithContext(t.Context(), "GET", base+"/api/v1/jobs/j-1/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Last-Event-ID", "7")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	next := lineReader(resp.Body)
	if name, id, _ := event(t, next); name != "status" || id != "8" {
		t.Errorf("%s %s", name, id)
	}
	if name, _, _ := event(t, next); name != "end" {
		t.Errorf("%s", name)
	}
}

// Who doesn't read is left, and holds nobody meanwhile.
func TestASlowReaderIsLeft(t *testing.T) {
	f := &fake{changes: make(chan *firnpb.JobStatus), left: make(chan struct{})}
	base := serve(t, f, func(c *rest.Config) { c.SendTime = 50 * time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /api/v1/jobs/j-1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	big := job("running")
	big.PlanText = strings.Repeat("x", 4<<20)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for n := 0; ; n++ {
		select {
		case f.changes <- big:
			continue
		case <-f.left:
			if n < 1 {
				t.Error("it was left before anything was sent")
			}
			return
		case <-ctx.Done():
			t.Fatalf("after %d events nobody has left", n)
		}
	}
}

// FuzzRequests: whatever is sent, the answer is one of the interface's, and none is a
// fault.
func FuzzRequests(f *testing.F) {
	f.Add("POST", "/api/v1/statements", "Idempotency-Key", "k", `{"sql":"SELECT 1"}`)
	f.Add("POST", "/api/v1/statements?wait=1ms", "Content-Type", "application/json", `{"sql":"SELECT 1","session":{"namespace":["a"]},"explain":true}`)
	f.Add("GET", "/api/v1/jobs?since=2026-01-02T03:04:05Z&page_token=MTo1Og", "Accept", "application/cbor", "")
	f.Add("GET", "/api/v1/jobs/j-1/rows?format=arrow&page_token=MTo5Og", "Range", "bytes=0-1", "")
	f.Add("GET", "/api/v1/jobs/j-1/events", "Last-Event-ID", "7", "")
	f.Add("POST", "/api/v1/commits/j-1/resolve", "Content-Encoding", "gzip", "{}")
	f.Add("GET", "/api/v1/tables/a%2Fb", "Authorization", "Bearer x", "")
	f.Add("BREW", "/api/v1//jobs/../jobs", "X", "", "\x00")
	inline := numbers(f, 3)
	f.Fuzz(func(t *testing.T, method, target, name, value, body string) {
		changes := make(chan *firnpb.JobStatus)
		close(changes)
		fk := &fake{changes: changes, cancelled: make(chan string, 1), executors: 1, state: "succeeded", inline: inline, execute: func(r *firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error) {
			if len(r.GetSql())%2 == 0 {
				return &firnpb.ExecuteResponse{RowsIpc: inline}, nil
			}
			return &firnpb.ExecuteResponse{Job: job("running")}, nil
		}}
		h := rest.Handler(rest.Config{
			Scheduler: fk, Logger: quietLog, Metrics: http.NotFoundHandler(),
			Authenticate: func(context.Context, string) error { return nil },
		})
		r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost", strings.NewReader(body))
		if err != nil {
			return
		}
		u, err := r.URL.Parse(target)
		if err != nil || !strings.HasPrefix(u.Path, "/") {
			return
		}
		r.URL, r.RequestURI = u, target
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(name, value)
		w := httptest.NewRecorder()
		func() {
			defer func() {
				if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it; a recorder has no deadlines
					panic(p)
				}
			}()
			h.ServeHTTP(w, r)
		}()
		if w.Code == http.StatusInternalServerError && !strings.HasPrefix(u.Path, "/api/v1/tables/boom") {
			t.Errorf("%s %q, %s: %q, %q: %s", method, target, name, value, body, w.Body)
		}
	})
}
