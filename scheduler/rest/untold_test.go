package rest_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/rest"
)

// TestAServerThatLeavesNamesTheJob: a caller without a key knows of the job by the
// answer alone; one without it would send the statement again, and add its rows twice.
func TestAServerThatLeavesNamesTheJob(t *testing.T) {
	f := &fake{changes: make(chan *firnpb.JobStatus), execute: func(*firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error) {
		return &firnpb.ExecuteResponse{Statement: "INSERT", Job: job("running")}, nil
	}}
	for _, get := range []bool{false, true} {
		s, err := rest.Start(t.Context(), rest.Config{
			Listen: "127.0.0.1:0", Scheduler: f, LocalOnly: true, Logger: slog.New(slog.DiscardHandler), Metrics: http.NotFoundHandler(),
			Authenticate: func(context.Context, string) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan error)
		go func() {
			f.changes <- job("running") // somebody waits
			closed <- s.Close(context.Background())
		}()
		base := "http://" + s.Addr() + "/api/v1/"
		var status int
		var body string
		if get {
			status, _, body = call(t, http.MethodGet, base+"jobs/j-1?wait=60s")
		} else {
			var resp *http.Response
			resp, body = post(t, base+"statements?wait=60s", `{"sql":"INSERT INTO lake.a.t SELECT 1"}`)
			status = resp.StatusCode
		}
		if want := map[bool]int{false: 202, true: 200}[get]; status != want || !strings.Contains(body, `"job_id":"j-1"`) {
			t.Errorf("%d %s; want %d and the job", status, body, want)
		}
		http.DefaultClient.CloseIdleConnections()
		if err := <-closed; err != nil {
			t.Error(err)
		}
	}
}

// TestUntoldStatements: what may run all the same isn't told as if it could be sent
// again as it is.
func TestUntoldStatements(t *testing.T) {
	var fails error
	var got *firnpb.ExecuteRequest
	f := &fake{execute: func(r *firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error) {
		got = r
		return nil, fails
	}}
	base := serve(t, f, nil) + "/api/v1/statements"
	closing := &commit.Error{Code: commit.CodeSchedulerClosing, Op: "run job", Cause: io.EOF}
	for _, c := range []struct {
		fails   error
		body    string
		status  int
		unknown bool
	}{
		{context.Canceled, `{"sql":"INSERT INTO lake.a.t SELECT 1"}`, 409, true},
		{closing, `{"sql":"INSERT INTO lake.a.t SELECT 1"}`, 409, true},
		{closing, `{"sql":"EXPLAIN ANALYZE INSERT INTO lake.a.t SELECT 1"}`, 409, true},
		{closing, `{"sql":"EXPLAIN INSERT INTO lake.a.t SELECT 1"}`, 503, false},
		{closing, `{"sql":"INSERT INTO lake.a.t SELECT 1","idempotency_key":"k"}`, 503, false},
		{closing, `{"sql":"INSERT INTO lake.a.t SELECT 1","dry_run":true}`, 503, false},
		{closing, `{"sql":"SELECT 1"}`, 503, false},
		{context.Canceled, `{"sql":"SELECT 1"}`, 504, false},
		{&commit.Error{Code: commit.CodeTableNotFound, Op: "open table"}, `{"sql":"INSERT INTO lake.a.t SELECT 1"}`, 404, false},
	} {
		fails = c.fails
		resp, body := post(t, base, c.body)
		named := strings.Contains(body, "Idempotency-Key: "+got.GetIdempotencyKey()) && strings.Contains(body, `"retryable":false`) && strings.Contains(body, "FIRN-2007")
		if resp.StatusCode != c.status || named != c.unknown {
			t.Errorf("%s: %d %s; want %d, unknown %v", c.body, resp.StatusCode, body, c.status, c.unknown)
		}
	}
}
