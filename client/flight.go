package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

// readPartition gives the batches of one result partition, without the first rows of
// them, and checks that they are all there. more is false when the caller wants no
// more.
func (c *Client) readPartition(ctx context.Context, p *firnpb.ResultPartition, skip int64, yield func(arrow.RecordBatch, error) bool) (more bool, err error) {
	r := c.flight.Open(ctx, flightread.Source{Address: p.GetAddress(), Ticket: p.GetTicket()})
	defer r.Close()
	var rows int64
	for {
		b, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, lostRows(ctx, p, err)
		}
		rest := max(skip-rows, 0)
		rows += b.NumRows()
		if rest > 0 {
			cut := b.NewSlice(min(rest, b.NumRows()), b.NumRows())
			b.Release()
			b = cut
		}
		more := b.NumRows() == 0 || yield(b, nil)
		b.Release()
		if !more {
			return false, nil
		}
	}
	if rows < skip || rows != p.GetRows() && !p.GetRunning() {
		return false, lostRows(ctx, p, fmt.Errorf("%d of %d rows came", rows, p.GetRows()))
	}
	return true, nil
}

// lostRows is the error for rows that an executor no longer gives.
func lostRows(ctx context.Context, p *firnpb.ResultPartition, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, ok := errors.AsType[*commit.Error](err); ok {
		return err
	}
	return &commit.Error{
		Code: commit.CodeResultLost, Op: "read rows from executor", Object: p.GetAddress(), Cause: err,
		Hint: "Run the statement again.",
	}
}
