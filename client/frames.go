package client

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

// CacheOptions say how a query is cached. The zero value is good for use.
type CacheOptions struct {
	// TTL is how long the frame is kept without being used; 0 for the scheduler's
	// setting.
	TTL time.Duration
}

// Frame is a cached frame: the rows of a query, which stay on the executors. Its
// name can stand for a table in statements and pipelines of the same principal. It
// holds nothing in this process.
type Frame struct {
	client *Client
	id     string
	job    *Job
}

// FrameStatus is what the scheduler knows of a cached frame.
type FrameStatus struct {
	ID string
	// State is building, ready, lost (pieces are gone and built again when the frame
	// is used) or rebuilding.
	State string
	SQL   string
	// Job built it first.
	Job string
	// Pieces are what it is made of, Lost how many of them aren't there.
	Pieces, Lost int
	Rows, Bytes  int64
	// Executors have pieces of it.
	Executors []string
	// Users is how many jobs, and other frames, read it.
	Users int
	TTL   time.Duration
	// Expires is when it is freed, unless it is used.
	Created, Expires time.Time
	// Repeats says that lost pieces are built again alone, with the same rows. Else all
	// of the frame is.
	Repeats bool
}

// Cache runs the pipeline's query and keeps its rows on the executors, until they are
// released or not used for the frame's time to live. It waits for the rows. The
// pipeline reads and changes rows and writes none.
//
//	late, err := c.Pipeline().
//		ReadParquet("/data/flights/*.parquet").
//		SQL("SELECT * FROM input WHERE delay > 15").
//		Cache(ctx, client.CacheOptions{})
//	…
//	rows := c.Pipeline().ReadFrame(late).SQL("SELECT origin, count(*) AS n FROM input GROUP BY origin")
func (p *Pipeline) Cache(ctx context.Context, o CacheOptions) (*Frame, error) {
	switch {
	case p.err != nil:
		return nil, p.err
	case p.query == "":
		return nil, badPipeline("it reads nothing", "Begin with ReadParquet, ReadCSV, ReadJSON, ReadTable, ReadFrame or SQL.")
	case p.target != "":
		return nil, badPipeline("it writes to "+p.target+", and only rows can be cached", "Leave Write out; insert from the frame.")
	}
	s := p.stmt
	s.SQL = p.query
	return p.client.Cache(ctx, s, o)
}

// ReadFrame reads a cached frame.
func (p *Pipeline) ReadFrame(f *Frame) *Pipeline { return p.source("SELECT * FROM " + f.Name()) }

// Cache runs a SELECT and keeps its rows; see Pipeline.Cache. A statement that writes
// is refused before anything runs.
func (c *Client) Cache(ctx context.Context, s Statement, o CacheOptions) (*Frame, error) {
	if s.Key == "" {
		s.Key, s.KeyIsNew = NewKey(), true
	}
	s.Mode = ModeCached
	resp, err := c.rpc.CacheFrame(ctx, &firnpb.CacheFrameRequest{Statement: s.request(), TtlMs: o.TTL.Milliseconds()})
	if err != nil {
		return nil, c.fromRPC(ctx, err)
	}
	f := &Frame{client: c, id: resp.GetFrameId(), job: &Job{client: c, id: resp.GetJob().GetJobId(), key: s.Key, answer: resp.GetJob()}}
	if _, err := f.job.Wait(ctx); err != nil {
		return nil, err
	}
	// The job may have succeeded with more rows than may be kept.
	_, err = f.Status(ctx)
	return f, err
}

// Frame gives a handle of the cached frame with this id.
func (c *Client) Frame(id string) *Frame { return &Frame{client: c, id: id} }

// ID is the frame's id.
func (f *Frame) ID() string { return f.id }

// Name is the frame as a statement names it: firn_cache."<id>".
func (f *Frame) Name() string { return `firn_cache."` + f.id + `"` }

// Rows gives the frame's rows, in the order of the query if it has one. Lost ones are
// built again first.
func (f *Frame) Rows(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] {
	return f.query(ctx, "SELECT * FROM "+f.Name())
}

func (f *Frame) query(ctx context.Context, sql string) iter.Seq2[arrow.RecordBatch, error] {
	res, err := f.client.Execute(ctx, Statement{SQL: sql})
	if err != nil {
		return func(yield func(arrow.RecordBatch, error) bool) { yield(nil, err) }
	}
	return res.Rows(ctx)
}

// Schema is the schema of the frame's rows.
func (f *Frame) Schema(ctx context.Context) (*arrow.Schema, error) {
	p, err := f.client.rpc.GetFrame(ctx, &firnpb.FrameRequest{FrameId: f.id})
	if err != nil {
		return nil, f.client.fromRPC(ctx, err)
	}
	if len(p.GetResultSchema()) == 0 {
		return nil, &commit.Error{
			Code: commit.CodeFrameNotBuilt, Op: "read the schema of cached frame", Object: f.id,
			Cause: errors.New("the scheduler doesn't know it: the executor with the first rows was lost as they were made"),
			Hint:  "Read its rows: their batches have it.",
		}
	}
	schema, batches, err := readStream(p.GetResultSchema())
	for _, b := range batches {
		b.Release()
	}
	return schema, err
}

// Status asks how the frame is. That isn't a use: it doesn't make it live longer.
func (f *Frame) Status(ctx context.Context) (FrameStatus, error) {
	p, err := f.client.rpc.GetFrame(ctx, &firnpb.FrameRequest{FrameId: f.id})
	if err != nil {
		return FrameStatus{}, f.client.fromRPC(ctx, err)
	}
	return frameStatusOf(p), nil
}

// Release ends the frame: no statement can use it any more, and its rows go when the
// jobs that read them have ended.
func (f *Frame) Release(ctx context.Context) error {
	_, err := f.client.rpc.ReleaseFrame(ctx, &firnpb.FrameRequest{FrameId: f.id})
	if err != nil {
		return f.client.fromRPC(ctx, err)
	}
	return nil
}

// Frames lists the cached frames of the principal, oldest first.
func (c *Client) Frames(ctx context.Context) ([]FrameStatus, error) {
	resp, err := c.rpc.ListFrames(ctx, &firnpb.ListFramesRequest{})
	if err != nil {
		return nil, c.fromRPC(ctx, err)
	}
	all := make([]FrameStatus, 0, len(resp.GetFrames()))
	for _, p := range resp.GetFrames() {
		all = append(all, frameStatusOf(p))
	}
	return all, nil
}

func frameStatusOf(p *firnpb.FrameStatus) FrameStatus {
	return FrameStatus{
		ID: p.GetFrameId(), State: p.GetState(), SQL: p.GetSql(), Job: p.GetJobId(), Pieces: int(p.GetPieces()), Lost: int(p.GetLost()),
		Rows: p.GetRows(), Bytes: p.GetBytes(), Executors: p.GetExecutors(), Users: int(p.GetUsers()), Repeats: p.GetRepeats(),
		TTL: time.Duration(p.GetTtlMs()) * time.Millisecond, Created: unixMS(p.GetCreatedUnixMs()), Expires: unixMS(p.GetExpiresUnixMs()),
	}
}
