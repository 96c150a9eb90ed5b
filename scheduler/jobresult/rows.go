package jobresult

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

// Rows are the rows of one job: of a SELECT those that executors have, which pass by
// a batch at a time, of a job that writes its report.
type Rows struct {
	// Schema is that of all batches.
	Schema *arrow.Schema
	// Bytes is about how large the rows on executors are; 0 for those that are here.
	Bytes int64

	flight *flightread.Client
	inline []byte
	parts  []*firnpb.ResultPartition
}

// Of finds the rows of a job that has succeeded. flight reads them.
func Of(flight *flightread.Client, st *firnpb.JobStatus) (*Rows, error) {
	op := "read the rows of job " + st.GetJobId()
	if st.GetState() != "succeeded" {
		return nil, &commit.Error{
			Code: commit.CodeBadRequest, Op: op, Cause: fmt.Errorf("it is %s; a job that has succeeded has rows", st.GetState()), Hint: "See the cause.",
		}
	}
	rows := &Rows{flight: flight, inline: st.GetInlineResult(), parts: st.GetPartitions()}
	head := rows.inline
	if len(head) == 0 {
		head = st.GetResultSchema()
		if n := len(st.GetStages()); n > 0 {
			rows.Bytes = st.GetStages()[n-1].GetBytes()
		}
		if len(rows.parts) == 0 && (len(head) == 0 || st.GetRows() > 0) {
			return nil, &commit.Error{Code: commit.CodeResultLost, Op: op, Cause: errors.New("they were kept for some minutes, by the process of the scheduler that ran the job, and are gone"), Hint: "Run the statement again."}
		}
	}
	var err error
	if rows.Schema, err = schemaOf(head); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	return rows, nil
}

// Inline are the rows of an Arrow IPC stream of the scheduler's own.
func Inline(raw []byte) (*Rows, error) {
	schema, err := schemaOf(raw)
	return &Rows{Schema: schema, inline: raw}, err
}

func schemaOf(raw []byte) (*arrow.Schema, error) {
	r, err := wire.NewIPCReader(raw)
	if err != nil {
		return nil, err
	}
	defer r.Release()
	return r.Schema(), nil
}

// Each gives the rows from an offset on, batch by batch, until it answers no. A batch
// is good until give returns.
func (rows *Rows) Each(ctx context.Context, skip int64, give func(arrow.RecordBatch) (bool, error)) error {
	each := func(b arrow.RecordBatch) (bool, error) {
		if skip >= b.NumRows() {
			skip -= b.NumRows()
			return true, nil
		}
		cut := b.NewSlice(skip, b.NumRows())
		defer cut.Release()
		skip = 0
		return give(cut)
	}
	if len(rows.inline) > 0 {
		r, err := wire.NewIPCReader(rows.inline)
		if err != nil {
			return err
		}
		defer r.Release()
		_, err = drain(r.Read, false, each)
		return err
	}
	for _, p := range rows.parts {
		if p.GetRows() <= skip {
			skip -= p.GetRows()
			continue
		}
		if more, err := rows.part(ctx, p, each); err != nil || !more {
			return err
		}
	}
	return nil
}

func (rows *Rows) part(ctx context.Context, p *firnpb.ResultPartition, give func(arrow.RecordBatch) (bool, error)) (more bool, err error) {
	r := rows.flight.Open(ctx, flightread.Source{Address: p.GetAddress(), Ticket: p.GetTicket()})
	defer r.Close()
	more, err = drain(r.Next, true, give)
	if _, known := errors.AsType[*commit.Error](err); err != nil && !known && ctx.Err() == nil {
		err = &commit.Error{Code: commit.CodeResultLost, Op: "read rows from executor", Object: p.GetAddress(), Cause: err, Hint: "Run the statement again."}
	}
	return more, err
}

// drain reads batches to their end. Those of others are checked, and released when
// they are the reader's caller's to release.
func drain(next func() (arrow.RecordBatch, error), own bool, give func(arrow.RecordBatch) (bool, error)) (more bool, err error) {
	for {
		b, err := next()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err == nil {
			if err = wire.CheckBatch(b); err == nil {
				more, err = give(b)
			}
			if own {
				b.Release()
			}
		}
		if err != nil || !more {
			return false, err
		}
	}
}
