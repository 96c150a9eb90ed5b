package cluster_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/security"
	"github.com/firn-project/firn/scheduler/eventlog"
	"github.com/firn-project/firn/scheduler/jobview"
)

// httpGet reads an answer; token may be empty.
func httpGet(t *testing.T, url, token string) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, raw
}

// An INSERT, as REST, the event log, metrics and the Go client show it: all the
// same.
func TestHTTPShowsAnInsert(t *testing.T) {
	dir := t.TempDir()
	s, err := cluster.StartScheduler(t.Context(), cluster.SchedulerConfig{Dir: dir, HTTP: config.HTTP{Listen: "127.0.0.1:0"}, EventLog: true, OwnToken: "own"})
	if err != nil {
		t.Fatal(err)
	}
	open := true
	stop := func() {
		if open {
			open = false
			if err := s.Close(t.Context()); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	}
	defer stop()
	base := "http://" + s.HTTPAddr()
	if status, body := httpGet(t, base+"/readyz", ""); status != http.StatusServiceUnavailable || !strings.Contains(string(body), "0 of 1") {
		t.Errorf("without an executor: %d %s", status, body)
	}
	ex, err := cluster.StartExecutor(t.Context(), "e-1", config.Executor{
		Server: s.Addr(), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Dir: filepath.Join(dir, "e"), Slots: 2, Memory: 256 << 20,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := ex.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	if status, body := httpGet(t, base+"/readyz", ""); status != http.StatusOK {
		t.Errorf("with an executor: %d %s", status, body)
	}

	c, err := client.Dial(t.Context(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var job client.JobStatus
	for _, stmt := range []string{"CREATE NAMESPACE lake.a", "CREATE TABLE lake.a.t (n BIGINT)", "INSERT INTO lake.a.t SELECT unnest(range(1, 7))"} {
		res, err := c.Execute(t.Context(), client.Statement{SQL: stmt})
		if err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
		if res.Job != nil {
			if job, err = res.Job.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}

	status, raw := httpGet(t, base+"/api/v1/jobs/"+job.ID, "own")
	var shown jobview.Job
	if err := json.Unmarshal(raw, &shown); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, raw, err)
	}
	if shown.State != "succeeded" || shown.Commit != string(commit.CommitCommitted) || shown.Report.Rows != 6 || shown.Report.SnapshotID != job.Report.SnapshotID {
		t.Errorf("%s", raw)
	}
	// Requirement 30: the root stands on top.
	if !strings.HasPrefix(shown.Plan, "scheduler root: commit append to lake.a.t") {
		t.Error(shown.Plan)
	}
	if last := shown.Stages[len(shown.Stages)-1]; last.ID != "scheduler" || len(last.Tasks) != 0 || last.State != "succeeded" || last.SnapshotID == "" {
		t.Errorf("%+v", last)
	}
	_, metrics := httpGet(t, base+"/metrics", "")
	documented(t, metrics)
	for _, want := range []string{
		`firn_jobs_total{operation="insert",state="succeeded"} 1`, `firn_commits_total{format="iceberg",operation="append",outcome="committed"} 1`,
		`firn_rows_written_total{format="iceberg"} 6`, `firn_executors{state="ready"} 1`, `firn_commit_state_unknown{format="iceberg"} 0`, `firn_commit_queue_length{format="delta"} 0`,
		`firn_catalog_requests_total{catalog="lake",code="ok",method="load"}`, `firn_catalog_requests_total{catalog="lake",code="ok",method="swap"} 1`,
		"firn_manifests_received_total 1", "firn_manifest_duplicates_total 0", `firn_orphan_files{format="iceberg"} 0`, "firn_leader 1",
		"firn_tasks_pending 0", `firn_tasks_total{outcome="succeeded"}`, "firn_build_info",
	} {
		if !strings.Contains(string(metrics), want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	_, metrics = httpGet(t, "http://"+ex.HTTPAddr()+"/metrics", "")
	documented(t, metrics)
	for _, want := range []string{
		"firn_executor_slots 2", "firn_executor_tasks_running 0", `firn_executor_tasks_total{outcome="succeeded"}`, "firn_executor_files_written_total 1",
		`firn_executor_flight_streams_total{direction="read",outcome="ok"}`, `firn_executor_flight_streams{direction="upload"} 0`,
		"firn_executor_shuffle_disk_bytes 0", "firn_executor_shuffle_disk_limit_bytes 0", "firn_executor_spill_bytes", "firn_executor_registered 1",
		"firn_build_info",
	} {
		if !strings.Contains(string(metrics), want) {
			t.Errorf("no %s in the executor's metrics", want)
		}
	}
	for path, want := range map[string]string{"/healthz": `"ok"`, "/readyz": `"ready":true`} {
		if status, raw := httpGet(t, "http://"+ex.HTTPAddr()+path, ""); status != http.StatusOK || !strings.Contains(string(raw), want) {
			t.Errorf("%s of the executor: %d %s", path, status, raw)
		}
	}
	if status, raw := httpGet(t, base+"/api/v1/jobs", "wrong"); status != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d %s", status, raw)
	}

	stop() // writes what the log still has
	log, err := os.ReadFile(filepath.Join(dir, "events", job.ID+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	var end eventlog.Event
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &end); err != nil || end.Kind != eventlog.JobEnded {
		t.Fatalf("%s: %v", lines[len(lines)-1], err)
	}
	end.View.Revision = shown.Revision
	if !reflect.DeepEqual(*end.View, shown) {
		t.Errorf("logged %+v\nshown %+v", *end.View, shown)
	}
}

// documented: what is served is on the reference page, with its type.
func documented(t *testing.T, metrics []byte) {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	served := 0
	for line := range strings.Lines(string(metrics)) {
		f := strings.Fields(line)
		if len(f) != 4 || f[1] != "TYPE" || !strings.HasPrefix(f[2], "firn_") {
			continue
		}
		served++
		if !strings.Contains(string(page), "| `"+f[2]+"` | "+f[3]+" |") {
			t.Errorf("%s, a %s, isn't on the page of metrics", f[2], f[3])
		}
	}
	if served < 10 {
		t.Errorf("%d metrics are served", served)
	}
}

// The rules for plaintext hold for this address too.
func TestHTTPIsNoWayAround(t *testing.T) {
	s, err := cluster.StartScheduler(t.Context(), cluster.SchedulerConfig{Dir: t.TempDir(), HTTP: config.HTTP{Listen: "192.0.2.1:0"}})
	if commit.CodeOf(err) != commit.CodePlaintext {
		if err == nil {
			_ = s.Close(t.Context())
		}
		t.Fatalf("plaintext for other machines: %v", err)
	}
}

// httpsGet is httpGet under TLS.
func httpsGet(t *testing.T, c *http.Client, url string) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func TestHTTPOverTLS(t *testing.T) {
	ca := newAuthority(t)
	s, err := cluster.StartScheduler(t.Context(), cluster.SchedulerConfig{Dir: t.TempDir(), HTTP: config.HTTP{Listen: "127.0.0.1:0"}, TLS: ca.good(t, "")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	for name, c := range map[string]struct {
		unit string
		want int
	}{
		"nobody": {"", http.StatusOK}, "a client": {"firn-client", http.StatusOK}, "an executor": {"firn-executor", http.StatusUnauthorized},
	} {
		files := security.Files{CA: ca.file}
		if c.unit != "" {
			own := ca.issue(t, name, c.unit, time.Now().Add(time.Hour))
			files.Cert, files.Key = own.Cert, own.Key
		}
		conf, err := files.Client()
		if err != nil {
			t.Fatal(err)
		}
		caller := &http.Client{Transport: &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true}, Timeout: 10 * time.Second}
		if status, err := httpsGet(t, caller, "https://"+s.HTTPAddr()+"/api/v1/jobs"); err != nil || status != c.want {
			t.Errorf("%s: %d, %v", name, status, err)
		}
		caller.CloseIdleConnections()
	}
	if _, err := httpsGet(t, http.DefaultClient, "https://"+s.HTTPAddr()+"/healthz"); err == nil {
		t.Error("a certificate of nobody's is trusted")
	}
}
