package rest_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/jobview"
	"github.com/firn-project/firn/scheduler/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the OpenAPI document")

// TestDocument: the document in the reference is the one of the code.
func TestDocument(t *testing.T) {
	const page = "../../docs/reference/openapi.yaml"
	want, err := rest.Document()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(page, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have, err := os.ReadFile(page); err != nil || string(have) != string(want) {
		t.Errorf("%s is not current (%v): run `go test ./scheduler/rest -run TestDocument -update`", page, err)
	}
}

// fake knows the job j-1, which commits, and has an executor.
type fake struct {
	firnpb.UnimplementedClientServiceServer
	cancelled chan string
	// changes are what a watcher of j-1 sees; its end is when it is closed.
	changes   chan *firnpb.JobStatus
	executors int
	err       error
	// state and inline are the job's, running and none when empty.
	state       string
	inline      []byte
	executorIDs []string
	frameIDs    []string
	// schema and bytes are of a result that executors have.
	schema   []byte
	bytes    int64
	execute  func(*firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error)
	listJobs func(*firnpb.ListJobsRequest) (*firnpb.ListJobsResponse, error)
	// left is closed when a watcher has left, unless it is nil.
	left chan struct{}
}

var quietLog = slog.New(slog.DiscardHandler)

func (f *fake) Execute(_ context.Context, r *firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error) {
	return f.execute(r)
}

func notFound(what string) error {
	return &commit.Error{Code: commit.CodeJobNotFound, Op: "find job", Object: what, Cause: errors.New("no record"), Hint: "look"}
}

func job(state string) *firnpb.JobStatus {
	return &firnpb.JobStatus{
		JobId: "j-1", State: state, Commit: "committed", PlanText: "scheduler root: commit\nstage 0 (final)\n", Revision: 7,
		Stages: []*firnpb.StageStatus{{Id: "0", State: "succeeded", Tasks: 2, TasksDone: 2}, {
			Id: "scheduler", State: "running", Attempt: 2, Rows: 30, Bytes: 4096, Files: 4, StartedUnixMs: 1_700_000_000_000, EndedUnixMs: 1_700_000_001_500,
			Error: "the catalog is slow", Attempts: 3, Conflicts: 1, SnapshotId: "5937117119577207079",
		}},
	}
}

func (f *fake) GetJob(_ context.Context, r *firnpb.JobRequest) (*firnpb.JobStatus, error) {
	if r.GetJobId() != "j-1" {
		return nil, notFound(r.GetJobId())
	}
	st := job(cmp.Or(f.state, "running"))
	if f.state != "" {
		st.InlineResult, st.Rows = f.inline, 250
	}
	if f.schema != nil {
		st.ResultSchema, st.Rows, st.Stages[len(st.Stages)-1].Bytes = f.schema, 0, f.bytes
	}
	return st, nil
}

func (f *fake) WatchJob(_ *firnpb.JobRequest, s grpc.ServerStreamingServer[firnpb.JobStatus]) error {
	if f.left != nil {
		defer close(f.left)
	}
	for {
		select {
		case st, open := <-f.changes:
			if !open {
				return nil
			}
			if err := s.Send(st); err != nil {
				return err
			}
		case <-s.Context().Done():
			return context.Cause(s.Context())
		}
	}
}

func (f *fake) ListJobs(_ context.Context, r *firnpb.ListJobsRequest) (*firnpb.ListJobsResponse, error) {
	if f.listJobs != nil {
		return f.listJobs(r)
	}
	if r.GetState() == "failed" {
		return &firnpb.ListJobsResponse{}, nil
	}
	return &firnpb.ListJobsResponse{Jobs: []*firnpb.JobStatus{job("running")}}, nil
}

func (f *fake) CancelJob(_ context.Context, r *firnpb.JobRequest) (*firnpb.CancelJobResponse, error) {
	f.cancelled <- r.GetJobId()
	return &firnpb.CancelJobResponse{Answer: "commit_in_flight", Job: job("running")}, nil
}

func (f *fake) ListUnits(_ context.Context, r *firnpb.ListUnitsRequest) (*firnpb.ListUnitsResponse, error) {
	u := &firnpb.UnitStatus{JobId: "j-1", Table: "lake.a.t", State: "unknown"}
	if r.GetJobId() != "" {
		u.Sends = []*firnpb.SendRecord{{RequestId: "r", SnapshotId: "5937117119577207079", Seat: 4}}
	}
	return &firnpb.ListUnitsResponse{Units: []*firnpb.UnitStatus{u}}, nil
}

func (f *fake) DriveUnit(_ context.Context, r *firnpb.DriveUnitRequest) (*firnpb.JobStatus, error) {
	if r.GetAction() != "resolve" {
		return nil, errors.New("only looking is asked for")
	}
	return job("succeeded"), nil
}

func (f *fake) ListExecutors(context.Context, *firnpb.ListExecutorsRequest) (*firnpb.ListExecutorsResponse, error) {
	resp := &firnpb.ListExecutorsResponse{}
	for _, id := range append(f.executorIDs, "e-1")[:max(1, len(f.executorIDs))] {
		resp.Executors = append(resp.Executors, &firnpb.ExecutorStatus{ExecutorId: id, State: "ready", Slots: 4})
	}
	return resp, nil
}

func (f *fake) DrainExecutor(_ context.Context, r *firnpb.DrainExecutorRequest) (*firnpb.ExecutorStatus, error) {
	return &firnpb.ExecutorStatus{ExecutorId: r.GetExecutorId(), State: "draining", Holds: []string{"j-1"}}, nil
}

func (f *fake) ListTables(_ context.Context, r *firnpb.ListTablesRequest) (*firnpb.ListTablesResponse, error) {
	return &firnpb.ListTablesResponse{Tables: []string{r.GetCatalog() + "." + strings.Join(r.GetNamespace(), ".") + ".t"}}, nil
}

func (f *fake) DescribeTable(_ context.Context, r *firnpb.DescribeTableRequest) (*firnpb.TableDescription, error) {
	if r.GetTable() == "boom" {
		panic("boom")
	}
	return &firnpb.TableDescription{Table: r.GetTable(), CurrentSnapshotId: "5937117119577207079", SchemaJson: []byte(`{"type":"struct"}`)}, nil
}

func (f *fake) Tasks(context.Context, string) (map[string][]jobview.Task, error) {
	return map[string][]jobview.Task{"0": {{Task: 0, Attempt: "a-1", Executor: "e-1", State: "succeeded"}}}, nil
}

func (f *fake) ListFrames(context.Context, *firnpb.ListFramesRequest) (*firnpb.ListFramesResponse, error) {
	var out firnpb.ListFramesResponse
	for _, id := range append(f.frameIDs, "f-1")[:max(1, len(f.frameIDs))] {
		out.Frames = append(out.Frames, &firnpb.FrameStatus{FrameId: id, State: "lost", Lost: 1, ExpiresUnixMs: 1800000000000})
	}
	return &out, nil
}

func (f *fake) ReleaseFrame(_ context.Context, r *firnpb.FrameRequest) (*firnpb.FrameStatus, error) {
	return &firnpb.FrameStatus{FrameId: r.GetFrameId(), State: "ready"}, nil
}

func (f *fake) Ready(context.Context) (int, error) { return f.executors, f.err }

// serve starts the interface; requests that have a token must have the good one.
func serve(t *testing.T, f *fake, edit func(*rest.Config)) string {
	t.Helper()
	cfg := rest.Config{
		Listen: "127.0.0.1:0", Scheduler: f, LocalOnly: true, Logger: slog.New(slog.DiscardHandler),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "firn_jobs_total 1\n") }),
		Authenticate: func(ctx context.Context, method string) error {
			if v := metadata.ValueFromIncomingContext(ctx, "authorization"); len(v) > 0 && v[0] != "Bearer good" {
				return &commit.Error{Code: commit.CodeUnauthenticated, Op: "let in", Object: method}
			}
			return nil
		},
	}
	if edit != nil {
		edit(&cfg)
	}
	s, err := rest.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return "http://" + s.Addr()
}

// call makes a request and gives the answer's status, type and body.
func call(t *testing.T, method, url string, header ...string) (int, string, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			r.Host = header[i+1]
		}
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
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(raw)
}

func TestAnswers(t *testing.T) {
	f := &fake{cancelled: make(chan string, 10), executors: 1}
	base := serve(t, f, nil)
	const jsonType, problemType = "application/json", "application/problem+json"
	for _, c := range []struct {
		method, path string
		status       int
		contentType  string
		has          []string
	}{
		{"GET", "/api/v1/jobs", 200, jsonType, []string{`"job_id":"j-1"`}},
		{"GET", "/api/v1/jobs?state=failed", 200, jsonType, []string{`"jobs":[]`}},
		{"GET", "/api/v1/jobs?state=lost", 422, problemType, []string{`"code":"FIRN-6021"`, "query.state"}},
		{"GET", "/api/v1/jobs?limit=0", 422, problemType, []string{"query.limit"}},
		{"GET", "/api/v1/jobs/j-1", 200, jsonType, []string{`"state":"running"`, `"snapshot_id":"5937117119577207079"`}},
		{"GET", "/api/v1/jobs/j-2", 404, problemType, []string{`"code":"FIRN-6008"`, `"title":"job not found"`, `"hint":"look"`, `"status":404`, `"retryable":false`}},
		{"GET", "/api/v1/jobs/j-1?wait=2h", 400, problemType, []string{"at most 1m0s"}},
		{"GET", "/api/v1/jobs/j-1?wait=10ms", 200, jsonType, []string{`"state":"running"`}},
		{"GET", "/api/v1/jobs/j-1/stages", 200, jsonType, []string{`"attempt_id":"a-1"`}},
		// Stages have ids that aren't numbers, too.
		{"GET", "/api/v1/jobs/j-1/stages/0", 200, jsonType, []string{`"stage_id":"0"`}},
		{"GET", "/api/v1/jobs/j-1/stages/scheduler", 200, jsonType, []string{`"stage_id":"scheduler"`, `"tasks":[]`, `"attempts":3`}},
		{"GET", "/api/v1/jobs/j-1/stages/7", 404, problemType, []string{`"code":"FIRN-6027"`}},
		{"GET", "/api/v1/jobs/j-1/plan", 200, "text/plain; charset=utf-8", []string{"scheduler root: commit\nstage 0"}},
		{"GET", "/api/v1/jobs/j-1/plan?format=dot", 200, "text/plain; charset=utf-8", []string{`digraph "j-1"`, `"0" -> "scheduler";`}},
		{"GET", "/api/v1/jobs/j-2/events", 404, problemType, []string{"FIRN-6008"}},
		{"POST", "/api/v1/jobs/j-1/cancel", 200, jsonType, []string{`"answer":"commit_in_flight"`}},
		{"GET", "/api/v1/commits", 200, jsonType, []string{`"state":"unknown"`}},
		{"GET", "/api/v1/commits/j-1", 200, jsonType, []string{`"sends":[{"request_id":"r","snapshot_id":"5937117119577207079"`}},
		{"POST", "/api/v1/commits/j-1/resolve", 200, jsonType, []string{`"state":"succeeded"`}},
		{"GET", "/api/v1/frames", 200, jsonType, []string{`"frame_id":"f-1"`, `"state":"lost"`, `"executors":[]`, `"expires":"2027-`}},
		{"DELETE", "/api/v1/frames/f-1", 200, jsonType, []string{`"frame_id":"f-1"`}},
		{"GET", "/api/v1/executors", 200, jsonType, []string{`"executor_id":"e-1"`, `"holds":[]`}},
		{"POST", "/api/v1/executors/e-1/drain", 200, jsonType, []string{`"state":"draining"`, `"holds":["j-1"]`}},
		{"GET", "/api/v1/tables?catalog=lake&namespace=a,b", 200, jsonType, []string{`"lake.a.b.t"`}},
		{"GET", "/api/v1/tables/lake.a.t", 200, jsonType, []string{`"schema":{"type":"struct"}`, `"current_snapshot_id":"5937117119577207079"`}},
		{"GET", "/api/v1/tables/boom", 500, problemType, []string{"internal fault"}},
		{"GET", "/metrics", 200, "text/plain; charset=utf-8", []string{"firn_jobs_total 1"}},
		{"GET", "/openapi.yaml", 200, "application/openapi+yaml", []string{"openapi: 3.1.0"}},
		{"GET", "/healthz", 200, jsonType, []string{`"ok"`}},
		{"GET", "/readyz", 200, jsonType, []string{`"ready":true`}},
		{"GET", "/api/v1/nothing", 404, "", nil},
	} {
		status, contentType, body := call(t, c.method, base+c.path)
		if status != c.status || c.contentType != "" && contentType != c.contentType {
			t.Errorf("%s %s: %d %s, want %d %s\n%s", c.method, c.path, status, contentType, c.status, c.contentType, body)
		}
		for _, want := range c.has {
			if !strings.Contains(body, want) {
				t.Errorf("%s %s: no %s in %s", c.method, c.path, want, body)
			}
		}
		if strings.HasSuffix(contentType, "json") && !json.Valid([]byte(body)) {
			t.Errorf("%s %s: %s", c.method, c.path, body)
		}
	}
}

// TestRoot31_StageListEndsWithTheScheduler: the last stage is the scheduler's, with
// no tasks and with all that its commit has.
func TestRoot31_StageListEndsWithTheScheduler(t *testing.T) {
	base := serve(t, &fake{}, nil)
	_, _, body := call(t, "GET", base+"/api/v1/jobs/j-1/stages")
	var got struct{ Stages []map[string]any }
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	last := got.Stages[len(got.Stages)-1]
	want := map[string]any{
		"stage_id": "scheduler", "state": "running", "attempt": 2.0, "task_count": 0.0, "tasks_done": 0.0, "tasks": []any{},
		"rows": 30.0, "bytes": 4096.0, "files": 4.0, "started": "2023-11-14T22:13:20Z", "ended": "2023-11-14T22:13:21.5Z",
		"error": "the catalog is slow", "attempts": 3.0, "conflicts": 1.0, "snapshot_id": "5937117119577207079",
	}
	if !reflect.DeepEqual(last, want) {
		t.Errorf("got  %v\nwant %v", last, want)
	}
	if tasks := got.Stages[0]["tasks"].([]any); len(tasks) != 1 {
		t.Errorf("%v", got.Stages[0])
	}
}

func TestReadiness(t *testing.T) {
	f := &fake{executors: 1}
	base := serve(t, f, func(c *rest.Config) { c.MinExecutors = 2 })
	if status, _, body := call(t, "GET", base+"/readyz"); status != 503 || !strings.Contains(body, `"executors":"1 of 2"`) {
		t.Errorf("%d %s", status, body)
	}
	f.executors = 2
	if status, _, body := call(t, "GET", base+"/readyz"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	f.err = errors.New("journal: disk is gone")
	if status, _, body := call(t, "GET", base+"/readyz"); status != 503 || !strings.Contains(body, "disk is gone") {
		t.Errorf("%d %s", status, body)
	}
}

// Whoever isn't let in by gRPC isn't let in here; other sites' pages can't act in
// the name of a browser on this machine.
func TestWhoIsLetIn(t *testing.T) {
	f := &fake{cancelled: make(chan string, 10)}
	base := serve(t, f, nil)
	for _, path := range []string{"/api/v1/jobs", "/metrics", "/openapi.json"} {
		if status, contentType, body := call(t, "GET", base+path, "Authorization", "Bearer bad"); status != 401 || contentType != "application/problem+json" || !strings.Contains(body, "FIRN-7110") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, _, _ := call(t, "GET", base+"/healthz", "Authorization", "Bearer bad"); status != 200 {
		t.Error("health isn't for everybody")
	}
	if status, _, body := call(t, "GET", base+"/api/v1/jobs", "Authorization", "Bearer good"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if status, _, _ := call(t, "POST", base+"/api/v1/jobs/j-1/cancel", "Sec-Fetch-Site", "cross-site"); status != 403 || len(f.cancelled) != 0 {
		t.Errorf("%d: another site cancelled a job", status)
	}
	if status, _, _ := call(t, "GET", base+"/api/v1/jobs", "Host", "evil.example:80"); status != 401 {
		t.Errorf("%d: a name that isn't this machine's", status)
	}
	if status, _, _ := call(t, "GET", base+"/api/v1/jobs", "Host", "localhost"); status != 200 {
		t.Errorf("%d: localhost", status)
	}
}

// event reads the next event of a stream, and skips what only keeps it alive.
func event(t *testing.T, read func() (string, error)) (name, id, data string) {
	t.Helper()
	for {
		line, err := read()
		if err != nil {
			t.Fatalf("stream ended: %v", err)
		}
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch key {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			data = value
		case "":
			if name != "" {
				return name, id, data
			}
		}
	}
}

func TestEvents(t *testing.T) {
	f := &fake{changes: make(chan *firnpb.JobStatus)}
	base := serve(t, f, nil)
	ctx, leave := context.WithTimeout(t.Context(), 20*time.Second)
	defer leave()
	open := func() (*http.Response, func() (string, error)) {
		r, err := http.NewRequestWithContext(ctx, "GET", base+"/api/v1/jobs/j-1/events", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp, lineReader(resp.Body)
	}
	resp, next := open()
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Fatal(ct)
	}
	go func() { f.changes <- job("running") }()
	name, id, data := event(t, next)
	var j jobview.Job
	if err := json.Unmarshal([]byte(data), &j); err != nil || name != "status" || id != "7" || j.State != "running" {
		t.Fatalf("%s %s %s: %v", name, id, data, err)
	}
	f.changes <- job("succeeded")
	if _, _, data = event(t, next); !strings.Contains(data, `"state":"succeeded"`) {
		t.Fatal(data)
	}
	close(f.changes)
	if name, _, _ := event(t, next); name != "end" {
		t.Fatal(name)
	}
	if _, err := next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// A client that leaves, and a server that closes, end the watcher: goleak would
// find it.
func TestStreamsEnd(t *testing.T) {
	for _, stays := range []bool{false, true} {
		t.Run(fmt.Sprint("stays=", stays), func(t *testing.T) {
			ctx, leave := context.WithCancel(context.Background())
			t.Cleanup(leave) // after the server has closed
			f := &fake{changes: make(chan *firnpb.JobStatus, 1)}
			base := serve(t, f, nil)
			f.changes <- job("running")
			r, err := http.NewRequestWithContext(ctx, "GET", base+"/api/v1/jobs/j-1/events", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			context.AfterFunc(ctx, func() { _ = resp.Body.Close() })
			event(t, lineReader(resp.Body))
			if !stays {
				leave()
			}
		})
	}
}

// lineReader reads lines one byte at a time: what comes later isn't waited for.
func lineReader(r io.Reader) func() (string, error) {
	return func() (string, error) {
		var line strings.Builder
		one := make([]byte, 1)
		for {
			if _, err := io.ReadFull(r, one); err != nil {
				return "", err
			}
			line.WriteByte(one[0])
			if one[0] == '\n' {
				return line.String(), nil
			}
		}
	}
}
