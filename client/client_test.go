package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func jobAnswer(*firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error) {
	return &firnpb.ExecuteResponse{Statement: "INSERT", Job: &firnpb.JobStatus{JobId: "j-1", State: "queued"}}, nil
}

func TestExecuteSendsTheStatementAndKeepsTheSession(t *testing.T) {
	f := &fake{execute: func(*firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error) {
		return &firnpb.ExecuteResponse{Statement: "USE", Session: &firnpb.Session{Catalog: "lake", Namespace: []string{"a.b", "c"}}}, nil
	}}
	c := f.serve(t)
	res, err := c.Execute(t.Context(), client.Statement{SQL: "USE lake", Key: "k", RejectLimit: 3, Mode: client.ModeCached, TimeZone: "Europe/Vienna"})
	if err != nil {
		t.Fatal(err)
	}
	if res.Job != nil || res.Schema != nil || res.Session.Catalog != "lake" || !slices.Equal(res.Session.Namespace, []string{"a.b", "c"}) {
		t.Errorf("result %+v", res)
	}
	if _, err := c.Execute(t.Context(), client.Statement{SQL: "x", Session: res.Session}); err != nil {
		t.Fatal(err)
	}
	first, second := f.executed[0], f.executed[1]
	if first.GetIdempotencyKey() != "k" || first.GetRejectLimit() != 3 || first.GetMode() != "cached" || first.GetTimeZone() != "Europe/Vienna" ||
		first.GetProtocolVersion() != wire.ProtocolVersion {
		t.Errorf("request %v", first)
	}
	if second.GetIdempotencyKey() == "" || second.GetSession().GetNamespace()[0] != "a.b" {
		t.Errorf("request %v: want a made key and the session", second)
	}
}

// A *commit.Error is the same on both sides of the wire, so that callers decide
// by code, kind and reason.
func TestErrorsSurviveTheWire(t *testing.T) {
	want := &commit.Error{
		Code: commit.CodeConflict, Op: "commit", Object: "lake.a.t", Reason: commit.ReasonConflict,
		Cause: errors.New("somebody was faster"), Tried: "5 attempts", Hint: "again",
	}
	f := &fake{
		execute: func(*firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error) { return nil, wire.ToStatus(want) },
		watch: statuses(&firnpb.JobStatus{
			JobId: "j-1", State: "failed", Commit: "refused", Revision: 1, Error: wire.ErrorToProto(want),
		}),
	}
	c := f.serve(t)
	_, execErr := c.Execute(t.Context(), client.Statement{SQL: "x"})
	s, jobErr := c.Job("j-1").Wait(t.Context())
	if s.State != client.StateFailed || s.Commit != commit.CommitRefused {
		t.Errorf("status %+v", s)
	}
	for _, err := range []error{execErr, jobErr} {
		got, ok := errors.AsType[*commit.Error](err)
		if !ok || got.Code != want.Code || got.Reason != want.Reason || got.Tried != want.Tried || got.Hint != want.Hint ||
			got.Object != want.Object || got.Cause.Error() != want.Cause.Error() || commit.KindOf(err) != commit.KindConflict {
			t.Errorf("got %#v, want %#v", err, want)
		}
	}
}

func TestAnUnreachableSchedulerIsNamed(t *testing.T) {
	c, err := client.Dial(t.Context(), "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Execute(t.Context(), client.Statement{SQL: "x"})
	if commit.CodeOf(err) != commit.CodeUnreachable || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
}

// TestRoot20_ResultIsDecodedFromStreamAndPoll: the inline result of a job comes
// out the same by either delivery.
func TestRoot20_ResultIsDecodedFromStreamAndPoll(t *testing.T) {
	want := commit.Report{
		JobID: "j-1", Key: "k", Table: commit.TableName{Catalog: "lake", Namespace: []string{"with.dot"}, Name: "t"},
		Format: "iceberg", Operation: commit.OperationAppend, State: commit.CommitCommitted,
		Rows: 3, Files: 2, Bytes: 100, SnapshotID: "5937117119577207079", Attempts: 2, Conflicts: 1,
		CommittedAt: time.UnixMilli(1700000000000).UTC(),
	}
	raw, err := wire.EncodeReport(want)
	if err != nil {
		t.Fatal(err)
	}
	end := &firnpb.JobStatus{
		JobId: "j-1", State: "succeeded", Commit: "committed", Revision: 7, InlineResult: raw,
		Report: &firnpb.CommitReport{Table: "lake.with.dot.t", Rows: 3},
	}
	running := &firnpb.JobStatus{JobId: "j-1", State: "running", Phase: "committing", Revision: 3, PercentComplete: 99}
	for _, delivery := range []client.Delivery{client.DeliverStream, client.DeliverPoll} {
		t.Run(string(delivery), func(t *testing.T) {
			var polls atomic.Int32
			f := &fake{execute: jobAnswer, watch: statuses(running, end), get: func(*firnpb.JobRequest) (*firnpb.JobStatus, error) {
				if polls.Add(1) < 3 {
					return running, nil
				}
				return end, nil
			}}
			c := f.serve(t, client.WithDelivery(delivery), client.WithPollInterval(time.Millisecond))
			res, err := c.Execute(t.Context(), client.Statement{SQL: "INSERT"})
			if err != nil {
				t.Fatal(err)
			}
			var seen []client.State
			s, err := res.Job.WaitFunc(t.Context(), func(s client.JobStatus) { seen = append(seen, s.State) })
			if err != nil {
				t.Fatal(err)
			}
			if s.Report == nil || !cmp.Equal(*s.Report, want) {
				t.Errorf("report %+v, want %+v", s.Report, want)
			}
			if !slices.Equal(seen, []client.State{client.StateQueued, client.StateRunning, client.StateSucceeded}) {
				t.Errorf("states %v: want each revision once", seen)
			}
			var rows int64
			for b, err := range res.Rows(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				rows += b.NumRows()
			}
			if rows != 1 {
				t.Errorf("%d rows: want the report's one", rows)
			}
		})
	}
}

// The answer to a repeated submission is told only once, by Execute: asked later,
// the job is the one that wrote.
func TestARepeatedSubmissionIsDeduplicated(t *testing.T) {
	f := &fake{
		execute: func(*firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error) {
			answer := committed()
			answer.Report.Deduplicated = true
			return &firnpb.ExecuteResponse{Statement: "INSERT", Job: answer}, nil
		},
		watch: statuses(committed()),
	}
	c := f.serve(t)
	res, err := c.Execute(t.Context(), client.Statement{SQL: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := res.Job.Wait(t.Context()); err != nil || !s.Report.Deduplicated {
		t.Errorf("got %+v, %v", s.Report, err)
	}
	if s, err := c.Job(res.Job.ID()).Wait(t.Context()); err != nil || s.Report.Deduplicated {
		t.Errorf("by id: got %+v, %v", s.Report, err)
	}
}

// TestRowsOfARunningJob: what a running job shows is read while it runs, each
// partition once, and one that can't be read is read when the job has made it again.
func TestRowsOfARunningJob(t *testing.T) {
	f := &fake{execute: jobAnswer}
	f.partitions = map[string][]arrow.RecordBatch{"a": {ints(1)}, "b": {ints(2)}, "c": {ints(3)}}
	c := f.serve(t)
	read := make(chan int64)
	part := func(ticket string) *firnpb.ResultPartition {
		return &firnpb.ResultPartition{Address: f.addr, Ticket: []byte(ticket), Rows: 1}
	}
	wait := func(want int64) {
		if got := <-read; got != want {
			t.Errorf("read %d, want %d", got, want)
		}
	}
	fails := false
	f.watch = func(_ *firnpb.JobRequest, s grpc.ServerStreamingServer[firnpb.JobStatus]) error {
		if err := s.Send(&firnpb.JobStatus{JobId: "j-1", State: "running", Revision: 1, Partitions: []*firnpb.ResultPartition{part("a"), part("lost")}}); err != nil {
			return err
		}
		wait(1)
		if err := s.Send(&firnpb.JobStatus{JobId: "j-1", State: "running", Revision: 2, Partitions: []*firnpb.ResultPartition{part("a"), part("b")}}); err != nil {
			return err
		}
		wait(2)
		end := &firnpb.JobStatus{JobId: "j-1", State: "succeeded", Revision: 3, Partitions: []*firnpb.ResultPartition{part("a"), part("b"), part("c")}}
		if fails {
			end.State, end.Error = "failed", &firnpb.JobError{Code: string(commit.CodeResultLost)}
		}
		return s.Send(end)
	}
	for _, fails = range []bool{false, true} {
		var got []int64
		var failed error
		for b, err := range c.Job("j-1").Rows(t.Context()) {
			if failed = err; err != nil {
				break
			}
			v := b.Column(0).(*array.Int64).Int64Values()[0]
			if got = append(got, v); v < 3 {
				read <- v
			}
		}
		want := []int64{1, 2, 3}
		if fails {
			want = want[:2]
		}
		if !slices.Equal(got, want) || (commit.CodeOf(failed) == commit.CodeResultLost) != fails {
			t.Errorf("fails %t: got %v, %v", fails, got, failed)
		}
	}
}

func TestRowsComeInPlanOrderAndComplete(t *testing.T) {
	schema, err := wire.EncodeIPC(ints().Schema())
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{execute: jobAnswer, partitions: map[string][]arrow.RecordBatch{
		"b": {ints(1, 2), ints(3)}, "a": {ints(4)},
	}}
	c := f.serve(t)
	end := &firnpb.JobStatus{
		JobId: "j-1", State: "succeeded", Revision: 1, ResultSchema: schema,
		Partitions: []*firnpb.ResultPartition{
			{Address: f.addr, Ticket: []byte("b"), Rows: 3}, {Address: "127.0.0.1:1", Ticket: []byte("empty")}, {Address: f.addr, Ticket: []byte("a"), Rows: 1},
		},
	}
	f.watch = statuses(end)
	read := func() (got []int64, err error) {
		for b, err := range c.Job("j-1").Rows(t.Context()) {
			if err != nil {
				return got, err
			}
			got = append(got, b.Column(0).(*array.Int64).Int64Values()...)
		}
		return got, nil
	}
	if got, err := read(); err != nil || !slices.Equal(got, []int64{1, 2, 3, 4}) {
		t.Errorf("got %v, %v", got, err)
	}
	for b, err := range c.Job("j-1").Rows(t.Context()) {
		if err != nil || b.NumRows() != 2 {
			t.Fatal(b, err)
		}
		break // and no goroutine is left; TestMain looks
	}
	end.Partitions[0].Rows = 4
	if got, err := read(); commit.CodeOf(err) != commit.CodeResultLost || len(got) != 3 {
		t.Errorf("a row that is missing: got %v, %v", got, err)
	}
	end.Partitions[0].Ticket = []byte("freed")
	if got, err := read(); commit.CodeOf(err) != commit.CodeResultLost || len(got) != 0 {
		t.Errorf("a partition that is gone: got %v, %v", got, err)
	}
}

func TestWaitGoesOnAfterALostConnection(t *testing.T) {
	var calls atomic.Int32
	f := &fake{watch: func(_ *firnpb.JobRequest, s grpc.ServerStreamingServer[firnpb.JobStatus]) error {
		switch calls.Add(1) {
		case 1:
			if err := s.Send(&firnpb.JobStatus{JobId: "j-1", State: "running", Revision: 1}); err != nil {
				return err
			}
			return status.Error(codes.Unavailable, "restarting")
		case 2:
			return status.Error(codes.Unavailable, "restarting")
		case 3:
			return s.Send(&firnpb.JobStatus{JobId: "j-1", State: "running", Revision: 1}) // known
		default:
			// What is settled is told also by one that counts in another way.
			return s.Send(&firnpb.JobStatus{JobId: "j-1", State: "succeeded", Revision: 1})
		}
	}}
	c := f.serve(t, client.WithPollInterval(time.Millisecond))
	if s, err := c.Job("j-1").Wait(t.Context()); err != nil || s.State != client.StateSucceeded {
		t.Errorf("got %+v, %v", s.State, err)
	}
	f.watch = func(*firnpb.JobRequest, grpc.ServerStreamingServer[firnpb.JobStatus]) error {
		return status.Error(codes.Unavailable, "down for good")
	}
	if _, err := c.Job("j-1").Wait(t.Context()); commit.CodeOf(err) != commit.CodeUnreachable {
		t.Errorf("got %v, want an end", err)
	}
}

func TestCancellingTheContextStopsOnlyTheWaiting(t *testing.T) {
	var cancels atomic.Int32
	f := &fake{
		watch: func(_ *firnpb.JobRequest, s grpc.ServerStreamingServer[firnpb.JobStatus]) error {
			if err := s.Send(&firnpb.JobStatus{JobId: "j-1", State: "running", Revision: 1}); err != nil {
				return err
			}
			<-s.Context().Done()
			return s.Context().Err()
		},
		cancel: func(*firnpb.JobRequest) (*firnpb.CancelJobResponse, error) {
			cancels.Add(1)
			return &firnpb.CancelJobResponse{Answer: "commit_in_flight", Job: &firnpb.JobStatus{JobId: "j-1", State: "running", Commit: "in_flight"}}, nil
		},
	}
	c := f.serve(t)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	s, err := c.Job("j-1").WaitFunc(ctx, func(client.JobStatus) { cancel(why) })
	if !errors.Is(err, why) || s.State != client.StateRunning || cancels.Load() != 0 {
		t.Errorf("got %v, %v, %d cancels", s.State, err, cancels.Load())
	}
	answer, s, err := c.Job("j-1").Cancel(t.Context())
	if err != nil || answer != client.CommitInFlight || s.Commit != commit.CommitInFlight {
		t.Errorf("got %v, %v, %v", answer, s.Commit, err)
	}
}

func TestHowJobsEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		end  *firnpb.JobStatus
		kind commit.Kind
	}{
		"cancelled":                 {done("cancelled"), commit.KindCancelled},
		"failed without a reason":   {done("failed"), commit.KindFailed},
		"commit unknown, still run": {&firnpb.JobStatus{JobId: "j-1", State: "running", Commit: "unknown", Revision: 1}, commit.KindUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{watch: statuses(tc.end)}
			if _, err := f.serve(t).Job("j-1").Wait(t.Context()); err == nil || commit.KindOf(err) != tc.kind {
				t.Errorf("got %v of kind %s, want %s", err, commit.KindOf(err), tc.kind)
			}
		})
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	for _, opt := range []client.Option{client.WithDelivery("pigeon"), client.WithPollInterval(0)} {
		if c, err := client.Dial(t.Context(), "127.0.0.1:1", opt); err == nil {
			t.Error("want an error", c.Close())
		}
	}
}

// TestJobsComeInPages: a list is asked for page by page, and no further than its
// reader goes.
func TestJobsComeInPages(t *testing.T) {
	var asked []string
	f := &fake{list: func(r *firnpb.ListJobsRequest) (*firnpb.ListJobsResponse, error) {
		asked = append(asked, fmt.Sprintf("%s+%d", r.GetPageToken(), r.GetLimit()))
		resp := &firnpb.ListJobsResponse{NextPageToken: r.GetPageToken() + "n"}
		if len(resp.GetNextPageToken()) == 3 {
			resp.NextPageToken = ""
		}
		for i := range min(2, r.GetLimit()) {
			resp.Jobs = append(resp.Jobs, &firnpb.JobStatus{JobId: fmt.Sprintf("j-%s%d", r.GetPageToken(), i), State: "succeeded"})
		}
		return resp, nil
	}}
	c := f.serve(t)
	for name, tt := range map[string]struct {
		limit, stop int
		jobs, asked string
	}{
		"all":        {0, 0, "[j-0 j-1 j-n0 j-n1 j-nn0 j-nn1]", "[+500 n+500 nn+500]"},
		"three":      {3, 0, "[j-0 j-1 j-n0]", "[+3 n+1]"},
		"left early": {0, 2, "[j-0 j-1]", "[+500]"},
	} {
		asked = nil
		var got []string
		for s, err := range c.Jobs(t.Context(), client.JobFilter{Limit: tt.limit}) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, s.ID); len(got) == tt.stop {
				break
			}
		}
		if fmt.Sprint(got) != tt.jobs || fmt.Sprint(asked) != tt.asked {
			t.Errorf("%s: %v by %v", name, got, asked)
		}
	}
}
