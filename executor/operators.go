package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/executor/shuffle"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

// open makes the stream of a fragment's input: a query, shuffle output, or a
// limit over either.
func (r *task) open(ctx context.Context, n plan.Node) (Batches, error) {
	switch n := n.(type) {
	case *plan.Query:
		engine, err := r.slot.open(r.e.localAllow())
		if err != nil {
			return nil, err
		}
		rows, err := engine.Query(ctx, n, TaskInfo{
			Attempt: r.def.GetAttemptId(), Now: time.UnixMicro(r.def.GetNowUnixUs()).UTC(), TimeZone: r.def.GetTimeZone(),
			Kept: r.e.openKept, Endpoints: r.openEndpoint, Stores: r.stores,
		})
		if err != nil {
			return nil, err
		}
		return &queryRows{Rows: rows, status: r.status}, nil
	case *plan.ShuffleRead:
		return r.e.openShuffle(ctx, n.Locations, r.status)
	case *plan.Coalesce:
		in, err := r.open(ctx, n.Input)
		if err != nil || n.Limit == nil {
			return in, err
		}
		return &limit{Batches: in, left: *n.Limit}, nil
	default:
		return nil, r.unplanned(fmt.Errorf("%s can't be the input of a task", n.Kind()))
	}
}

// queryRows counts what a query gives and keeps its rejects.
type queryRows struct {
	Rows
	status *firnpb.TaskStatus
}

func (q *queryRows) Next(ctx context.Context) (arrow.RecordBatch, error) {
	b, err := q.Rows.Next(ctx)
	if err == nil {
		q.status.RowsIn += b.NumRows()
	}
	return b, err
}

func (q *queryRows) Close() error {
	q.status.RejectedRows, q.status.Rejects = q.Rejects()
	return q.Rows.Close()
}

// shuffleRows makes the shuffle's reader a stream with a schema.
type shuffleRows struct {
	*shuffle.Reader
	schema *arrow.Schema
	status *firnpb.TaskStatus
}

// openShuffle reads locations in their order. status may be nil.
func (e *Executor) openShuffle(ctx context.Context, locations []plan.ShuffleLocation, status *firnpb.TaskStatus) (Batches, error) {
	if len(locations) == 0 {
		return nil, &commit.Error{Code: commit.CodeTaskPlan, Op: "read shuffle output", Cause: errors.New("the task has no input")}
	}
	rd := e.source.Read(ctx, locations)
	schema, err := rd.Schema(ctx)
	if err != nil {
		rd.Close()
		return nil, err
	}
	return &shuffleRows{Reader: rd, schema: schema, status: status}, nil
}

// openKept reads what executors keep beyond a job.
func (e *Executor) openKept(ctx context.Context, locations []plan.ShuffleLocation) (Batches, error) {
	return e.openShuffle(ctx, locations, nil)
}

func (s *shuffleRows) Schema() *arrow.Schema { return s.schema }

func (s *shuffleRows) Next(ctx context.Context) (arrow.RecordBatch, error) {
	b, err := s.Reader.Next(ctx)
	if err == nil && s.status != nil {
		s.status.RowsIn += b.NumRows()
	}
	return b, err
}

func (s *shuffleRows) Close() error {
	s.Reader.Close()
	return nil
}

// limit ends its input after some rows.
type limit struct {
	Batches
	left int64
}

func (l *limit) Next(ctx context.Context) (arrow.RecordBatch, error) {
	if l.left <= 0 {
		return nil, io.EOF
	}
	b, err := l.Batches.Next(ctx)
	if err != nil {
		return nil, err
	}
	if b.NumRows() > l.left {
		cut := b.NewSlice(0, l.left)
		b.Release()
		b = cut
	}
	l.left -= b.NumRows()
	return b, nil
}

// each hands all batches of in to use, then closes in.
func each(ctx context.Context, in Batches, use func(context.Context, arrow.RecordBatch) error) (err error) {
	defer func() { err = errors.Join(err, in.Close()) }()
	for {
		b, err := in.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		err = use(ctx, b)
		b.Release()
		if err != nil {
			return err
		}
	}
}

// exchange writes the rows of a fragment as shuffle output.
func (r *task) exchange(ctx context.Context, input plan.Node, how *plan.Exchange) error {
	if n := int(r.def.GetOutputs()); n != how.Partitions && n != 0 {
		return r.unplanned(fmt.Errorf("the exchange has %d partitions, the task %d outputs", how.Partitions, n))
	}
	part, err := r.partitioner(how)
	if err != nil {
		return r.unplanned(err)
	}
	in, err := r.open(ctx, input)
	if err != nil {
		return err
	}
	w, err := r.e.store.NewWriter(r.attempt(), in.Schema(), shuffle.WriterOptions{
		Outputs: how.Partitions, Partition: part, Compress: r.e.cfg.Compress, Memory: r.memory() / 8,
		Live: r.def.GetStreamed(), Ready: r.rowsReady,
	})
	if err != nil {
		return errors.Join(err, in.Close())
	}
	defer w.Abort()
	if err := each(ctx, in, w.Write); err != nil {
		return err
	}
	outs, err := w.Commit(ctx)
	if err != nil {
		return err
	}
	for i, o := range outs {
		r.status.Outputs = append(r.status.Outputs, &firnpb.TaskOutput{Partition: uint32(i), Rows: o.Rows, Bytes: o.Bytes})
		r.status.RowsOut += o.Rows
		r.status.BytesOut += o.Bytes
	}
	return nil
}

// rowsReady tells the scheduler that the attempt's first rows can be read.
func (r *task) rowsReady() {
	s := newStatus(r.def, stateRunning)
	s.StartedUnixMs, s.RowsReady = r.started.UnixMilli(), true
	r.e.reporter.report(s)
}

func (r *task) partitioner(x *plan.Exchange) (shuffle.Partitioner, error) {
	if x.Partitions < 1 || x.Partitions > 1<<14 {
		return nil, fmt.Errorf("an exchange with %d partitions", x.Partitions)
	}
	switch x.How {
	case plan.ExchangeSingle:
		return shuffle.Single{}, nil
	case plan.ExchangeRoundRobin:
		return shuffle.NewRoundRobin(x.Partitions, int(r.def.GetTask())), nil
	case plan.ExchangeHash:
		hash, err := layoutHash(x.Layout)
		if err != nil {
			return nil, err
		}
		return shuffle.NewHash(x.Partitions, hash), nil
	default:
		return nil, fmt.Errorf("unknown exchange %q", x.How)
	}
}

// memory is the task's share in bytes.
func (r *task) memory() int64 {
	if m := r.def.GetMemoryBytes(); m > 0 {
		return min(m, r.slot.cfg.Memory)
	}
	return r.slot.cfg.Memory
}

// writeManifest makes the files' manifest the task's shuffle output, with a copy
// in the status if it is small. The output is there also without files: it is
// what says that the task wrote none.
func (r *task) writeManifest(ctx context.Context, files []commit.File) error {
	b, err := wire.EncodeManifest(files)
	if err != nil {
		return err
	}
	defer b.Release()
	w, err := r.e.store.NewWriter(r.attempt(), b.Schema(), shuffle.WriterOptions{})
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := w.Write(ctx, b); err != nil {
		return err
	}
	if r.def.GetManifests() {
		raw, err := wire.EncodeManifestIPC(b)
		if err != nil {
			return err
		}
		if len(raw) <= maxManifestCopy {
			r.status.ManifestIpc = raw
		}
	}
	outs, err := w.Commit(ctx)
	if err != nil {
		return err
	}
	r.status.Outputs = []*firnpb.TaskOutput{{Partition: 0, Rows: outs[0].Rows, Bytes: outs[0].Bytes}}
	return nil
}
