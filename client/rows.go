package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
)

// Rows waits for the job and gives its rows in plan order, a batch at a time. The
// batches of a SELECT come straight from the executors, by tickets that the
// scheduler signed; those of a job that writes are its one-row report.
//
// Of a job of ModePipelined the first rows come as soon as the first task of the last
// stage has some, while it and others run. Rows that came before an error are not to
// be used: they are part of a result that there isn't.
//
// A batch is valid until the next one is asked for; Retain keeps it longer. The
// rows of a SELECT can be read again until the scheduler frees them.
func (j *Job) Rows(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		r := &rowReader{ctx: ctx, client: j.client, yield: yield}
		for s, err := range j.Events(ctx) {
			if err == nil && s.settled() {
				err = s.outcome()
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if len(s.proto.GetInlineResult()) > 0 {
				s.Batches(ctx, j.client)(yield)
				return
			}
			if !r.read(s) {
				return
			}
		}
	}
}

// rowReader reads partitions in their order, as a job shows them.
type rowReader struct {
	ctx    context.Context //nolint:containedctx // of one call of Rows
	client *Client
	yield  func(arrow.RecordBatch, error) bool
	// next is the first partition that wasn't read whole, given the rows of it that
	// were.
	next  int
	given int64
}

// read reads the partitions that are new, and says whether to go on. One that can't
// be read while the job runs is waited for: the job makes it again as it was, and its
// rows go on where they broke off, or the job fails.
func (r *rowReader) read(s JobStatus) bool {
	all := s.proto.GetPartitions()
	for ; r.next < len(all); r.next, r.given = r.next+1, 0 {
		if all[r.next].GetRows() == 0 && !all[r.next].GetRunning() && r.given == 0 {
			continue
		}
		more, err := r.client.readPartition(r.ctx, all[r.next], r.given, func(b arrow.RecordBatch, err error) bool {
			r.given += b.NumRows()
			return r.yield(b, err)
		})
		switch {
		case err != nil && !s.settled() && r.ctx.Err() == nil:
			return true
		case err != nil:
			r.yield(nil, err)
			return false
		case !more:
			return false
		}
	}
	return true
}

// Schema is the schema of the job's rows; nil before the job has succeeded.
func (s JobStatus) Schema() (*arrow.Schema, error) {
	raw := s.proto.GetResultSchema()
	if len(raw) == 0 {
		raw = s.proto.GetInlineResult()
	}
	if len(raw) == 0 {
		return nil, nil
	}
	schema, _, err := readStream(raw)
	return schema, err
}

// Batches gives the rows of a job that has succeeded; see Job.Rows.
func (s JobStatus) Batches(ctx context.Context, c *Client) iter.Seq2[arrow.RecordBatch, error] {
	if raw := s.proto.GetInlineResult(); len(raw) > 0 {
		_, batches, err := readStream(raw)
		if err != nil {
			return func(yield func(arrow.RecordBatch, error) bool) { yield(nil, err) }
		}
		return batchSeq(batches)
	}
	return func(yield func(arrow.RecordBatch, error) bool) {
		for _, p := range s.proto.GetPartitions() {
			if p.GetRows() == 0 {
				continue
			}
			if more, err := c.readPartition(ctx, p, 0, yield); err != nil {
				yield(nil, err)
				return
			} else if !more {
				return
			}
		}
	}
}

func batchSeq(batches []arrow.RecordBatch) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		for _, b := range batches {
			if !yield(b, nil) {
				return
			}
		}
	}
}

// readStream reads a whole Arrow IPC stream. The batches live on Go's heap and
// need no release.
func readStream(raw []byte) (schema *arrow.Schema, batches []arrow.RecordBatch, err error) {
	defer func() {
		if p := recover(); p != nil { // the library's, on bytes that aren't Arrow
			err = badIPC(fmt.Errorf("%v", p))
		}
		if err != nil {
			for _, b := range batches {
				b.Release()
			}
			batches = nil
		}
	}()
	r, err := wire.NewIPCReader(raw)
	if err != nil {
		return nil, nil, badIPC(err)
	}
	defer r.Release()
	for r.Next() {
		b := r.RecordBatch()
		if err := wire.CheckBatch(b); err != nil {
			return nil, batches, badIPC(err)
		}
		b.Retain()
		batches = append(batches, b)
	}
	if err := r.Err(); err != nil && !errors.Is(err, io.EOF) {
		return nil, batches, badIPC(err)
	}
	return r.Schema(), batches, nil
}

func badIPC(err error) error {
	return &commit.Error{Code: commit.CodeProtocol, Op: "decode rows", Cause: err}
}
