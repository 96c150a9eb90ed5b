package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// lostContact is how often in a row a waiting client asks again when the
// scheduler doesn't answer, before it gives up waiting. The job goes on.
const lostContact = 5

// Job is a handle of a job on the scheduler. It holds no resources.
type Job struct {
	client *Client
	id     string
	key    string
	// answer is the status that came with the answer to a submission. Only it
	// tells that this submission was deduplicated: the job itself, asked later,
	// is the one that wrote.
	answer *firnpb.JobStatus
}

// Job gives a handle of the job with this id, which is looked up when a method
// is called.
func (c *Client) Job(id string) *Job { return &Job{client: c, id: id} }

// JobByKey gives a handle of the job that was submitted with this idempotency
// key.
func (c *Client) JobByKey(key string) *Job { return &Job{client: c, key: key} }

// ID is the job's id; empty for a handle by key.
func (j *Job) ID() string { return j.id }

// Key is the idempotency key that the job was submitted with; empty for a handle
// by id.
func (j *Job) Key() string { return j.key }

func (j *Job) request() *firnpb.JobRequest {
	if j.id != "" {
		return &firnpb.JobRequest{JobId: j.id}
	}
	return &firnpb.JobRequest{IdempotencyKey: j.key}
}

// Status asks how the job is, once.
func (j *Job) Status(ctx context.Context) (JobStatus, error) {
	p, err := j.client.rpc.GetJob(ctx, j.request())
	if err != nil {
		return JobStatus{}, j.client.fromRPC(ctx, err)
	}
	return statusOf(p)
}

// Wait waits until the job has ended, or until the scheduler's deadline has
// passed with the commit not proven either way. The status is the last one seen,
// also beside an error. The error is nil exactly when the job succeeded; it is
// the job's own (a *commit.Error) when it failed. Cancelling ctx ends the waiting,
// not the job.
func (j *Job) Wait(ctx context.Context) (JobStatus, error) {
	return j.WaitFunc(ctx, func(JobStatus) {})
}

// WaitFunc is Wait, and calls each with every status on the way.
func (j *Job) WaitFunc(ctx context.Context, each func(JobStatus)) (JobStatus, error) {
	var last JobStatus
	for s, err := range j.Events(ctx) {
		if err != nil {
			return last, err
		}
		last = s
		each(s)
	}
	return last, last.outcome()
}

// outcome is the error that a settled job ends with.
func (s JobStatus) outcome() error {
	switch {
	case s.State == StateSucceeded:
		return nil
	case s.Err != nil:
		return s.Err
	case s.State == StateCancelled:
		return &commit.Error{
			Code: commit.CodeJobCancelled, Op: "run job", Object: s.ID,
			Cause: fmt.Errorf("the job was cancelled; its commit is %q", s.Commit),
		}
	case s.Commit == commit.CommitUnknown:
		return &commit.Error{
			Code: commit.CodeUnknown, Op: "commit job", Object: s.ID,
			Cause: errors.New("the outcome of its commit isn't known yet"),
			Tried: "All files are kept, and the scheduler goes on finding out.",
			Hint:  "Ask again with `firn job wait " + s.ID + "`; don't submit the statement under another key.",
		}
	default:
		return &commit.Error{
			Code: commit.CodeProtocol, Op: "run job", Object: s.ID,
			Cause: fmt.Errorf("it ended as %q and without a reason", s.State),
		}
	}
}

// CancelAnswer is what the scheduler says to a request to cancel.
type CancelAnswer string

// Answers to Cancel.
const (
	// Cancelled: the job stops, and nothing of it is or will be committed.
	Cancelled CancelAnswer = "cancelled"
	// CommitInFlight: too late; the commit was sent, and its outcome will be
	// the job's.
	CommitInFlight CancelAnswer = "commit_in_flight"
	// AlreadyEnded: the job had ended before.
	AlreadyEnded CancelAnswer = "already_ended"
)

// Cancel asks the scheduler to stop the job. The answer says which of the two won, the cancel or the commit.
func (j *Job) Cancel(ctx context.Context) (CancelAnswer, JobStatus, error) {
	resp, err := j.client.rpc.CancelJob(ctx, j.request())
	if err != nil {
		return "", JobStatus{}, j.client.fromRPC(ctx, err)
	}
	s, err := statusOf(resp.GetJob())
	return CancelAnswer(resp.GetAnswer()), s, err
}

// Events gives the job's status at once and at every change, until there is
// nothing more to wait for. A broken connection is made again; after several
// failures in a row the sequence ends with the error.
func (j *Job) Events(ctx context.Context) iter.Seq2[JobStatus, error] {
	return func(yield func(JobStatus, error) bool) {
		f := &follower{job: j, yield: yield}
		if j.answer != nil {
			if err := f.take(j.answer); err != nil {
				yield(JobStatus{}, err)
				return
			}
		}
		for failures := 0; !f.done; {
			seen := f.revision
			err := f.follow(ctx)
			if f.done {
				return
			}
			switch {
			case err == nil || f.revision > seen:
				failures = 0
			default:
				failures++
			}
			if err != nil && (!retryable(err) || failures >= lostContact || ctx.Err() != nil) {
				yield(f.last, j.client.fromRPC(ctx, err))
				return
			}
			pause := j.client.opts.poll << failures
			if !sleep(ctx, pause) {
				yield(f.last, context.Cause(ctx))
				return
			}
		}
	}
}

// follower is one reader of a job's events, over as many calls as it takes.
type follower struct {
	job      *Job
	yield    func(JobStatus, error) bool
	last     JobStatus
	revision uint64
	started  bool
	// done: the job is settled, or the reader has stopped reading.
	done bool
}

// follow makes one call, by the client's delivery, and gives what it brings.
func (f *follower) follow(ctx context.Context) error {
	if f.job.client.opts.delivery == DeliverPoll {
		p, err := f.job.client.rpc.GetJob(ctx, f.job.request())
		if err != nil {
			return err
		}
		return f.take(p)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.job.client.rpc.WatchJob(ctx, f.job.request())
	if err != nil {
		return err
	}
	for !f.done {
		p, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f.take(p); err != nil {
			return err
		}
	}
	return nil
}

// take hands one status on, unless it says nothing new. That a job is settled is
// always news: it is the last that is ever heard of it.
func (f *follower) take(p *firnpb.JobStatus) error {
	s, err := statusOf(p)
	if err != nil {
		return err
	}
	if f.started && p.GetRevision() <= f.revision && !s.settled() {
		return nil
	}
	f.started, f.revision, f.last = true, p.GetRevision(), s
	f.done = !f.yield(s, nil) || s.settled()
	return nil
}

// retryable says whether asking again may help: the connection broke or the
// scheduler restarts.
func retryable(err error) bool { return status.Code(err) == codes.Unavailable }

// sleep waits, and says whether the context let it.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// JobFilter narrows a list of jobs. The zero value gives all that the scheduler
// keeps, newest first.
type JobFilter struct {
	State State
	// Table is the full name of the table that jobs write to.
	Table string
	// Since and Until bound the time of submission, Until excluded; zero for no bound.
	Since, Until time.Time
	Limit        int
}

// Jobs lists jobs, newest first.
func (c *Client) Jobs(ctx context.Context, f JobFilter) iter.Seq2[JobStatus, error] {
	return func(yield func(JobStatus, error) bool) {
		r := &firnpb.ListJobsRequest{State: string(f.State), Table: f.Table, SinceUnixMs: unixMs(f.Since), UntilUnixMs: unixMs(f.Until)}
		for left := f.Limit; ; {
			if r.Limit = pageSize; f.Limit > 0 {
				r.Limit = uint32(min(pageSize, left))
			}
			resp, err := c.rpc.ListJobs(ctx, r)
			if err != nil {
				yield(JobStatus{}, c.fromRPC(ctx, err))
				return
			}
			for _, p := range resp.GetJobs() {
				if s, err := statusOf(p); !yield(s, err) {
					return
				}
			}
			left -= len(resp.GetJobs())
			if r.PageToken = resp.GetNextPageToken(); r.GetPageToken() == "" || f.Limit > 0 && left <= 0 {
				return
			}
		}
	}
}

// pageSize is how many jobs are asked for at a time.
const pageSize = 500

func unixMs(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
