package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func committed() *firnpb.JobStatus {
	return &firnpb.JobStatus{
		JobId: "j-1", State: "succeeded", Commit: "committed", Revision: 1,
		Report: &firnpb.CommitReport{Table: "lake.air.t", Commit: "committed", Rows: 3, SnapshotId: "7"},
	}
}

func TestAppendStreamsAndCommitsOnce(t *testing.T) {
	f := &fake{execute: jobAnswer, watch: statuses(committed())}
	c := f.serve(t)
	w, err := c.Append(t.Context(), `lake.air."t.1"`, ints().Schema(), client.AppendOptions{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []arrow.RecordBatch{ints(1, 2), ints(3)} {
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	rep, err := w.Commit(t.Context())
	if err != nil || rep.Rows != 3 || rep.SnapshotID != "7" {
		t.Fatalf("got %+v, %v", rep, err)
	}
	if len(f.uploaded) != 2 || f.uploaded[1].Column(0).(*array.Int64).Value(0) != 3 {
		t.Errorf("uploaded %v", f.uploaded)
	}
	if len(f.executed) != 1 {
		t.Fatalf("%d statements, want one", len(f.executed))
	}
	got := f.executed[0]
	if got.GetSql() != `INSERT INTO "lake"."air"."t.1" BY NAME SELECT * FROM firn_upload."u""1"` || got.GetIdempotencyKey() != "k" {
		t.Errorf("statement %v", got)
	}
	if _, err := w.Commit(t.Context()); err == nil {
		t.Error("a second Commit: want an error")
	}
	if err := w.Write(ints(4)); err == nil {
		t.Error("Write after Commit: want an error")
	}
	if err := w.Abort(); err != nil {
		t.Errorf("Abort after Commit: %v", err)
	}
}

func TestAppendWithoutRowsStillCommits(t *testing.T) {
	f := &fake{execute: jobAnswer, watch: statuses(committed())}
	w, err := f.serve(t).Append(t.Context(), "lake.air.t", ints().Schema(), client.AppendOptions{ByPosition: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sql := f.executed[0].GetSql(); strings.Contains(sql, "BY NAME") || f.executed[0].GetIdempotencyKey() != w.Key() {
		t.Errorf("statement %v", f.executed[0])
	}
}

// Who stops waiting isn't told that nothing was committed: the job goes on.
func TestACommitNobodyWaitsForIsUnknown(t *testing.T) {
	refusal := &commit.Error{Code: commit.CodeBadRequest, Op: "admit", Cause: errors.New("no")}
	for name, c := range map[string]struct {
		execute func(*firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error)
		stop    bool
		want    commit.CommitState
	}{
		"refused": {func(*firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error) { return nil, wire.ToStatus(refusal) }, false, commit.CommitNone},
		"lost answer": {func(*firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error) {
			return nil, status.Error(codes.Unavailable, "reset")
		}, false, commit.CommitUnknown},
		"stopped": {jobAnswer, true, commit.CommitUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f := &fake{execute: c.execute, watch: func(_ *firnpb.JobRequest, s grpc.ServerStreamingServer[firnpb.JobStatus]) error {
				if err := s.Send(&firnpb.JobStatus{JobId: "j-1", State: "running", Commit: "none", Revision: 7}); err != nil {
					return err
				}
				cancel()
				<-s.Context().Done()
				return s.Context().Err()
			}}
			w, err := f.serve(t).Append(t.Context(), "lake.air.t", ints().Schema(), client.AppendOptions{Key: "k"})
			if err != nil {
				t.Fatal(err)
			}
			rep, err := w.Commit(ctx)
			if err == nil || rep.State != c.want || rep.Key != "k" || (rep.JobID != "") != c.stop {
				t.Errorf("%+v, %v; want %s", rep, err, c.want)
			}
		})
	}
}

func TestAbortCommitsNothing(t *testing.T) {
	f := &fake{execute: jobAnswer}
	w, err := f.serve(t).Append(t.Context(), "lake.air.t", ints().Schema(), client.AppendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(ints(1)); err != nil {
		t.Fatal(err)
	}
	// A stream that is aborted before the server has heard of it never gets there.
	<-f.putBegun
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	<-f.putDone
	if len(f.executed) != 0 || f.uploaded != nil {
		t.Errorf("executed %v, uploaded %v", f.executed, f.uploaded)
	}
}

func TestARefusedStreamSaysWhyAndCommitsNothing(t *testing.T) {
	f := &fake{execute: jobAnswer, putError: status.Error(codes.ResourceExhausted, "the disk is full")}
	w, err := f.serve(t).Append(t.Context(), "lake.air.t", ints().Schema(), client.AppendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	<-f.putDone
	_ = w.Write(ints(1)) // may or may not see it already
	_, err = w.Commit(t.Context())
	if commit.CodeOf(err) != commit.CodeUpload || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("got %v", err)
	}
	if len(f.executed) != 0 {
		t.Errorf("executed %v", f.executed)
	}
}

func TestABatchOfAnotherSchemaIsRefused(t *testing.T) {
	f := &fake{execute: jobAnswer}
	w, err := f.serve(t).Append(t.Context(), "lake.air.t", ints().Schema(), client.AppendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other := arrow.NewSchema([]arrow.Field{{Name: "other", Type: arrow.PrimitiveTypes.Int64}}, nil)
	bad := array.NewRecordBatch(other, []arrow.Array{ints(1).Column(0)}, 1)
	first := w.Write(bad)
	if commit.CodeOf(first) != commit.CodeUpload {
		t.Errorf("got %v", first)
	}
	if err := w.Write(ints(1)); !errors.Is(err, first) {
		t.Errorf("got %v, want the first error again", err)
	}
	if _, err := w.Commit(t.Context()); !errors.Is(err, first) {
		t.Errorf("got %v, want the first error again", err)
	}
	if len(f.executed) != 0 {
		t.Error("something was committed")
	}
}

func TestAppendRefusesBadCalls(t *testing.T) {
	c := (&fake{}).serve(t)
	for name, schema := range map[string]*arrow.Schema{"lake..t": ints().Schema(), "lake.t": nil, "": ints().Schema(), `"a`: ints().Schema()} {
		if _, err := c.Append(t.Context(), name, schema, client.AppendOptions{}); commit.CodeOf(err) != commit.CodeBadCall {
			t.Errorf("%q: got %v", name, err)
		}
	}
}
