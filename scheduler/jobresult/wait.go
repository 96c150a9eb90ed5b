package jobresult

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

// Watcher tells of jobs; every firnpb.ClientServiceServer is one.
type Watcher interface {
	WatchJob(*firnpb.JobRequest, grpc.ServerStreamingServer[firnpb.JobStatus]) error
}

// Watch gives a job's status at once and at each change, until it has ended, ctx ends
// or each returns an error, which is returned.
func Watch(ctx context.Context, w Watcher, id string, each func(*firnpb.JobStatus) error) error {
	return w.WatchJob(&firnpb.JobRequest{JobId: id}, &stream{ctx: ctx, each: each})
}

// stream is what Scheduler.WatchJob writes to.
type stream struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // a stream has one
	each func(*firnpb.JobStatus) error
}

// Context implements grpc.ServerStream.
func (s *stream) Context() context.Context { return s.ctx }

// Send implements grpc.ServerStreamingServer.
func (s *stream) Send(st *firnpb.JobStatus) error { return s.each(st) }

// Ended says whether a job is through.
func Ended(st *firnpb.JobStatus) bool {
	switch st.GetState() {
	case "succeeded", "failed", "cancelled":
		return true
	}
	return false
}

// Settled says whether there is nothing more to wait for: the job has ended, or its
// deadline has passed while its commit isn't proven either way.
func Settled(st *firnpb.JobStatus) bool {
	return Ended(st) || st.GetCommit() == string(commit.CommitUnknown)
}

// Outcome is the error that a settled job ends with; nil when it succeeded. A commit
// that isn't proven either way is told as commit.CodeUnknown, never as a failure.
func Outcome(st *firnpb.JobStatus) error {
	id := st.GetJobId()
	switch err := wire.ErrorFromProto(st.GetError()); {
	case st.GetState() == "succeeded":
		return nil
	case st.GetCommit() == string(commit.CommitUnknown) && commit.CodeOf(err) != commit.CodeUnknown:
		return &commit.Error{
			Code: commit.CodeUnknown, Op: "commit job", Object: id, Cause: errors.New("the outcome of its commit isn't known yet"),
			Tried: "All files are kept, and the scheduler goes on finding out.",
			Hint:  "Ask again with `firn job wait " + id + "`; don't submit the statement under another key.",
		}
	case err != nil:
		return err
	case st.GetState() == "cancelled":
		return &commit.Error{
			Code: commit.CodeJobCancelled, Op: "run job", Object: id, Cause: fmt.Errorf("the job was cancelled; its commit is %q", st.GetCommit()),
		}
	default:
		return fmt.Errorf("job %s is %q and has no reason", id, st.GetState())
	}
}
