package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"google.golang.org/grpc"
)

// AppendOptions are optional settings of Append. The zero value is right for
// most.
type AppendOptions struct {
	// Key is the idempotency key of the commit; a UUIDv7 is made when it is
	// empty. It names this one stream: after a Commit whose answer was lost,
	// Client.JobByKey finds out what happened, while other rows under the same
	// key are refused.
	Key     string
	Session Session
	// ByPosition matches columns by their order instead of their names.
	ByPosition bool
	// AfterDeadline is Statement's.
	AfterDeadline AfterDeadline
}

// TableWriter streams batches into a table. The rows lie on an executor until
// Commit, which writes them as data files and makes one commit. It is not safe
// for concurrent use. Either Commit or Abort must be called.
type TableWriter struct {
	client  *Client
	table   string
	schema  *arrow.Schema
	opts    AppendOptions
	newKey  bool
	upload  string
	cancel  context.CancelFunc
	conn    *grpc.ClientConn
	stream  flight.FlightService_DoPutClient
	writer  *flight.Writer
	rows    int64
	failure error
	closed  bool
}

// Append starts a stream of batches of one schema into a table. ctx bounds the
// whole stream: when it ends before Commit, nothing is committed.
func (c *Client) Append(ctx context.Context, table string, schema *arrow.Schema, opts AppendOptions) (*TableWriter, error) {
	quoted, err := quoteName(table)
	if err != nil {
		return nil, err
	}
	if schema == nil || schema.NumFields() == 0 {
		return nil, &commit.Error{Code: commit.CodeBadCall, Op: "append to", Object: table, Cause: errors.New("the schema has no fields")}
	}
	newKey := opts.Key == ""
	if newKey {
		opts.Key = NewKey()
	}
	raw, err := wire.EncodeIPC(schema)
	if err != nil {
		return nil, uploadFailed(table, err)
	}
	up, err := c.rpc.OpenUpload(ctx, &firnpb.OpenUploadRequest{ArrowSchema: raw})
	if err != nil {
		return nil, c.fromRPC(ctx, err)
	}
	conn, err := c.connect(up.GetAddress())
	if err != nil {
		return nil, uploadFailed(table, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := flight.NewClientFromConn(conn, nil).DoPut(ctx)
	if err != nil {
		cancel()
		return nil, errors.Join(uploadFailed(table, wire.FromStatus(err)), conn.Close())
	}
	w := flight.NewRecordWriter(stream, ipc.WithSchema(schema))
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: up.GetTicket()})
	return &TableWriter{
		client: c, table: quoted, schema: schema, opts: opts, newKey: newKey, upload: up.GetUploadId(),
		cancel: cancel, conn: conn, stream: stream, writer: w,
	}, nil
}

// Key is the idempotency key that Commit will use.
func (w *TableWriter) Key() string { return w.opts.Key }

// Write sends one batch, which the caller goes on owning. After an error nothing
// more can be written; Commit gives the same error.
func (w *TableWriter) Write(b arrow.RecordBatch) error {
	switch {
	case w.failure != nil:
		return w.failure
	case w.closed:
		return w.failed(errors.New("the writer is closed"))
	case !b.Schema().Equal(w.schema):
		return w.failed(fmt.Errorf("a batch has another schema: %s; want %s", b.Schema(), w.schema))
	}
	if err := w.writer.Write(b); err != nil {
		return w.failed(w.serverError(err))
	}
	w.rows += b.NumRows()
	return nil
}

// serverError is the reason why the executor ended the stream: a failed send
// only says io.EOF, the reason comes with the next receive.
func (w *TableWriter) serverError(err error) error {
	if _, rerr := w.stream.Recv(); rerr != nil && !errors.Is(rerr, io.EOF) {
		return wire.FromStatus(rerr)
	}
	return err
}

func (w *TableWriter) failed(err error) error {
	w.failure = uploadFailed(w.table, err)
	return w.failure
}

// Commit ends the stream and writes its rows into the table with one commit. It
// waits for the outcome; when ctx ends before that, the report says unknown and
// the job goes on. A stream without rows commits no snapshot.
func (w *TableWriter) Commit(ctx context.Context) (commit.Report, error) {
	if w.failure != nil {
		return commit.Report{}, errors.Join(w.failure, w.Abort())
	}
	if w.closed {
		return commit.Report{}, uploadFailed(w.table, errors.New("the writer is closed"))
	}
	if err := w.finish(); err != nil {
		err = w.failed(err)
		return commit.Report{}, errors.Join(err, w.Abort())
	}
	if err := w.Abort(); err != nil { // the stream has ended: only its resources are left
		return commit.Report{}, uploadFailed(w.table, err)
	}
	how := "BY NAME "
	if w.opts.ByPosition {
		how = ""
	}
	res, err := w.client.Execute(ctx, Statement{
		SQL:     "INSERT INTO " + w.table + " " + how + "SELECT * FROM firn_upload." + quoteIdent(w.upload),
		Session: w.opts.Session, Key: w.opts.Key, KeyIsNew: w.newKey, AfterDeadline: w.opts.AfterDeadline,
	})
	if err != nil {
		return w.untold(ctx, "", err), err
	}
	job, err := res.jobOf()
	if err != nil {
		return commit.Report{}, err
	}
	s, err := job.Wait(ctx)
	switch {
	case s.settled() && s.Report != nil:
		return *s.Report, err
	case s.settled():
		return commit.Report{JobID: job.id, Key: w.opts.Key, State: s.Commit}, err
	default:
		return w.untold(ctx, job.id, err), err
	}
}

// untold is the report of a commit that was handed over, as far as is known, and
// whose end nobody told: the job may go on. Only the scheduler's own refusal says
// that it doesn't.
func (w *TableWriter) untold(ctx context.Context, job string, err error) commit.Report {
	r := commit.Report{JobID: job, Key: w.opts.Key, State: commit.CommitUnknown}
	switch commit.CodeOf(err) {
	case "", commit.CodeUnreachable, commit.CodeProtocol:
	default:
		if job == "" && ctx.Err() == nil {
			r.State = commit.CommitNone
		}
	}
	return r
}

// finish ends the stream and reads until the executor has confirmed it.
func (w *TableWriter) finish() error {
	if err := w.writer.Close(); err != nil {
		return w.serverError(err)
	}
	if err := w.stream.CloseSend(); err != nil {
		return w.serverError(err)
	}
	for {
		if _, err := w.stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return wire.FromStatus(err)
		}
	}
}

// Abort gives the stream up: nothing is committed. After Commit it does nothing.
func (w *TableWriter) Abort() error {
	if w.closed {
		return nil
	}
	w.closed = true
	w.cancel()
	return w.conn.Close()
}

func uploadFailed(table string, err error) error {
	if _, ok := errors.AsType[*commit.Error](err); ok {
		return err
	}
	return &commit.Error{
		Code: commit.CodeUpload, Op: "stream rows to", Object: table, Cause: err,
		Tried: "Nothing was committed.",
	}
}
