//go:build integration

package integration_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/firn-project/firn/integration/process"
)

// door calls a scheduler over HTTP.
type door struct {
	t    *testing.T
	base string
}

// do gives an answer's status, header and body.
func (d door) do(method, path, body string, header ...string) (int, http.Header, string) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.base+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(raw)
}

// must is do for an answer in JSON that says yes.
func (d door) must(into any, method, path, body string, header ...string) http.Header {
	d.t.Helper()
	status, head, text := d.do(method, path, body, header...)
	if status/100 != 2 {
		d.t.Fatalf("%s %s %s: %d %s", method, path, body, status, text)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		d.t.Fatalf("%s %s: %v: %s", method, path, err, text)
	}
	return head
}

type shownJob struct {
	ID       string `json:"job_id"`
	State    string `json:"state"`
	Commit   string `json:"commit"`
	Revision uint64 `json:"revision"`
	Report   struct {
		Rows         int64 `json:"rows"`
		Deduplicated bool  `json:"deduplicated"`
	} `json:"report"`
}

type ran struct {
	Job   shownJob          `json:"job"`
	Links map[string]string `json:"links"`
	Rows  []map[string]any  `json:"rows"`
}

func statement(sql string, more string) string {
	raw, _ := json.Marshal(sql) // a string can't fail
	return `{"sql":` + string(raw) + more + `}`
}

// TestStatementsOverHTTP does with processes and HTTP alone what a user does: tables,
// INSERTs under a key, SELECTs page by page and as Arrow, lists by pages, events that
// are taken up again, dry runs and errors.
func TestStatementsOverHTTP(t *testing.T) {
	dir := t.TempDir()
	s := process.Start(t, "scheduler", "--dir", filepath.Join(dir, "s"), "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0")
	var executors []*process.Server
	for i := range 2 {
		executors = append(executors, process.Start(t, "executor", "--server", s.Address, "--dir", filepath.Join(dir, fmt.Sprint("e", i)),
			"--slots", "1", "--memory", "256MiB", "--http-listen", "127.0.0.1:0"))
	}
	d := door{t, "http://" + s.Ready["http"].(string)}
	var done ran
	for _, sql := range []string{"CREATE NAMESPACE lake.a", "CREATE TABLE lake.a.t (n BIGINT, s VARCHAR)"} {
		d.must(&done, "POST", "/api/v1/statements", statement(sql, ""))
	}

	// The same key and statement add their rows once, whoever asks how often.
	insert := statement("INSERT INTO lake.a.t SELECT i, 'row ' || i FROM range(5000) r(i)", "")
	for try := range 3 {
		done = ran{}
		head := d.must(&done, "POST", "/api/v1/statements?wait=60s", insert, "Idempotency-Key", "load-1")
		if done.Job.State != "succeeded" || done.Job.Commit != "committed" || done.Job.Report.Rows != 5000 || done.Job.Report.Deduplicated != (try > 0) {
			t.Fatalf("try %d: %+v", try, done)
		}
		if head.Get("Location") != done.Links["self"] {
			t.Errorf("%v, %v", head, done.Links)
		}
	}
	if status, _, body := d.do("POST", "/api/v1/statements", statement("INSERT INTO lake.a.t SELECT 1, 'x'", ""), "Idempotency-Key", "load-1"); status != http.StatusConflict || !strings.Contains(body, "FIRN-6001") {
		t.Errorf("another statement under the key: %d %s", status, body)
	}
	var dry ran
	d.must(&dry, "POST", "/api/v1/statements?wait=60s", statement("INSERT INTO lake.a.t SELECT 1, 'dry'", `,"dry_run":true`))
	if dry.Job.State != "succeeded" || dry.Job.Commit != "none" || dry.Job.Report.Rows != 1 {
		t.Errorf("dry run: %+v", dry)
	}
	// What planning finds is the job's; what can't be a job is the request's.
	if status, _, body := d.do("POST", "/api/v1/statements?wait=60s", statement("INSERT INTO lake.a.none SELECT 1", "")); status != http.StatusOK || !strings.Contains(body, `"state":"failed"`) || !strings.Contains(body, "FIRN-5003") {
		t.Errorf("no such table: %d %s", status, body)
	}
	if status, head, body := d.do("POST", "/api/v1/statements", statement("INSRT INTO lake.a.t SELECT 1", "")); status != http.StatusBadRequest || head.Get("Content-Type") != "application/problem+json" || !strings.Contains(body, "FIRN-") {
		t.Errorf("no statement: %d %s", status, body)
	}

	// Rows, page by page and as one stream.
	var sel ran
	d.must(&sel, "POST", "/api/v1/statements?wait=60s", statement("SELECT n, s FROM lake.a.t", ""))
	seen := map[float64]bool{}
	for token, first := "", true; first || token != ""; first = false {
		var page struct {
			Rows []struct {
				N float64 `json:"n"`
				S string  `json:"s"`
			} `json:"rows"`
			Next string `json:"next_page_token"`
		}
		d.must(&page, "GET", sel.Links["rows"]+"?limit=700&page_token="+token, "")
		for _, r := range page.Rows {
			if seen[r.N] || r.S != fmt.Sprint("row ", r.N) {
				t.Fatalf("%+v again", r)
			}
			seen[r.N] = true
		}
		token = page.Next
	}
	if len(seen) != 5000 {
		t.Errorf("%d rows in JSON", len(seen))
	}
	status, head, body := d.do("GET", sel.Links["rows"]+"?format=arrow", "")
	r, err := ipc.NewReader(strings.NewReader(body))
	if err != nil {
		t.Fatalf("%d %v: %v", status, head, err)
	}
	defer r.Release()
	n := int64(0)
	for r.Next() {
		n += r.RecordBatch().NumRows()
	}
	if r.Err() != nil || n != 5000 {
		t.Errorf("%d rows in Arrow: %v", n, r.Err())
	}

	// Lists, while jobs come.
	var ids []string
	for at := "/api/v1/jobs?limit=2&state=succeeded"; at != ""; {
		var page struct{ Jobs []shownJob }
		h := d.must(&page, "GET", at, "")
		for _, j := range page.Jobs {
			ids = append(ids, j.ID)
		}
		at, _, _ = strings.Cut(strings.TrimPrefix(h.Get("Link"), "<"), ">")
		var more ran
		d.must(&more, "POST", "/api/v1/statements?wait=60s", statement("SELECT 1", ""))
	}
	if len(ids) != 3 || ids[2] != done.Job.ID || ids[1] != dry.Job.ID || ids[0] != sel.Job.ID {
		t.Errorf("jobs %v, want %s, %s and %s", ids, sel.Job.ID, dry.Job.ID, done.Job.ID)
	}
	var mine struct{ Jobs []shownJob }
	d.must(&mine, "GET", "/api/v1/jobs?table=lake.a.t", "")
	if len(mine.Jobs) != 2 {
		t.Errorf("%d jobs of the table", len(mine.Jobs))
	}
	var commits struct{ Commits []struct{ State string } }
	d.must(&commits, "GET", "/api/v1/commits?all=true&state=committed&table=lake.a.t", "")
	if len(commits.Commits) != 1 {
		t.Errorf("%+v", commits)
	}

	// Events are taken up where they were left.
	status, _, body = d.do("GET", done.Links["events"], "")
	if status != 200 || !strings.Contains(body, "event: status") || !strings.HasSuffix(body, "event: end\ndata: {}\n\n") {
		t.Errorf("%d %s", status, body)
	}
	last := ""
	for lines := bufio.NewScanner(strings.NewReader(body)); lines.Scan(); {
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			last = id
		}
	}
	if status, _, body = d.do("GET", done.Links["events"], "", "Last-Event-ID", last); status != 200 || strings.Contains(body, "event: status") || !strings.Contains(body, "event: end") {
		t.Errorf("after the last event: %d %s", status, body)
	}

	for _, e := range executors {
		ex := door{t, "http://" + e.Ready["http"].(string)}
		if status, _, body := ex.do("GET", "/readyz", ""); status != 200 {
			t.Errorf("%d %s", status, body)
		}
		if _, _, body := ex.do("GET", "/metrics", ""); !strings.Contains(body, `firn_executor_tasks_total{outcome="succeeded"}`) || !strings.Contains(body, "firn_executor_slots 1\n") {
			t.Error(body)
		}
	}
}
