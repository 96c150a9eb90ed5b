package flightsqlserver

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/sql"
)

// DoPutCommandStatementIngest implements flightsql.Server: rows are put on an executor
// as they come, and an INSERT reads them from there. So nothing is committed unless all
// have come.
func (s *service) DoPutCommandStatementIngest(ctx context.Context, c flightsql.StatementIngest, in flight.MessageReader) (int64, error) {
	table, err := ingestTarget(c)
	if err != nil {
		return 0, err
	}
	if _, err := request(ctx, ""); err != nil {
		return 0, err // before rows are sent
	}
	if in.Schema().NumFields() == 0 {
		return 0, badRequest("ingest into "+table, errors.New("the rows have no columns"))
	}
	upload, err := s.upload(ctx, in)
	if err != nil {
		return 0, err
	}
	n, err := s.update(ctx, "INSERT INTO "+table+" BY NAME SELECT * FROM firn_upload."+sql.QuoteIdent(upload), nil)
	return n, forIngest(err)
}

// forIngest has an error say what to do to a caller who didn't write the statement.
func forIngest(err error) error {
	e, ok := errors.AsType[*commit.Error](err)
	if !ok {
		return err
	}
	own := *e
	switch e.Code {
	case commit.CodeSQLTypeMismatch:
		own.Hint = "Cast the column to the table's type before the rows are sent."
	case commit.CodeKeyReused:
		own.Hint = "An ingest's key is of one stream of rows: `firn job describe` of that job says whether they were committed. If not, or for other rows, use a fresh key."
	default:
		return err
	}
	return &own
}

// ingestTarget is the name of the table, as SQL.
func ingestTarget(c flightsql.StatementIngest) (string, error) {
	const op, hint = "ingest", "Create the table with CREATE TABLE, and append to it."
	def := c.GetTableDefinitionOptions()
	switch {
	case len(c.GetTransactionId()) > 0:
		return "", refused(op, "it belongs to a transaction, and Firn has none", "Each ingest commits by itself.")
	case c.GetTemporary():
		return "", refused(op, "there are no temporary tables", hint)
	case def.GetIfNotExist() == flightsql.TableDefinitionOptionsTableNotExistOptionCreate:
		return "", refused(op, "tables aren't created by it", hint)
	case def.GetIfExists() == flightsql.TableDefinitionOptionsTableExistsOptionReplace, def.GetIfExists() == flightsql.TableDefinitionOptionsTableExistsOptionFail:
		return "", refused(op, "rows are appended to tables that are there, and nothing else", hint)
	case c.GetTable() == "":
		return "", badRequest(op, errors.New("no table is named"))
	}
	var parts []string
	if c.GetCatalog() != "" {
		parts = append(parts, c.GetCatalog())
	}
	if c.GetSchema() != "" {
		parts = append(parts, strings.Split(c.GetSchema(), ".")...)
	}
	for i, p := range parts {
		parts[i] = sql.QuoteIdent(p)
	}
	return strings.Join(append(parts, sql.QuoteIdent(c.GetTable())), "."), nil
}

// upload puts rows on an executor and gives the name under which they are there.
func (s *service) upload(ctx context.Context, in flight.MessageReader) (id string, err error) {
	raw, err := wire.EncodeIPC(in.Schema())
	if err != nil {
		return "", err
	}
	up, err := s.cfg.Scheduler.OpenUpload(ctx, &firnpb.OpenUploadRequest{ArrowSchema: raw})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+up.GetAddress(), append(wire.DialOptions(), s.cfg.Dial...)...)
	if err != nil {
		return "", uploadFailed(err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	put, err := flight.NewClientFromConn(conn, nil).DoPut(ctx)
	if err != nil {
		return "", uploadFailed(err)
	}
	if err := relay(put, up.GetTicket(), in); err != nil {
		// A failed send says only that the stream has ended; what is received says why.
		if errors.Is(err, io.EOF) {
			_, err = put.Recv()
		}
		return "", uploadFailed(err)
	}
	for {
		if _, err := put.Recv(); errors.Is(err, io.EOF) {
			return up.GetUploadId(), nil
		} else if err != nil {
			return "", uploadFailed(err)
		}
	}
}

// relay sends what is read on, a batch at a time.
func relay(put flight.FlightService_DoPutClient, ticket []byte, in flight.MessageReader) error {
	w := flight.NewRecordWriter(put, ipc.WithSchema(in.Schema()))
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: ticket})
	for in.Next() {
		b := in.RecordBatch()
		if err := wire.CheckBatch(b); err != nil {
			return notTaken(err, "Cast columns of dictionaries and views to plain ones, such as text, before the rows are sent.")
		}
		if err := w.Write(b); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil {
		return notTaken(err, "See the cause.")
	}
	if err := w.Close(); err != nil {
		return err
	}
	return put.CloseSend()
}

// notTaken is the error of rows that can't be read, which other tries don't change.
func notTaken(err error, hint string) error {
	if _, ok := errors.AsType[*commit.Error](err); ok {
		return err
	}
	return &commit.Error{Code: commit.CodeBadRequest, Op: "read rows", Cause: err, Tried: "Nothing was committed.", Hint: hint}
}

func uploadFailed(err error) error {
	err = wire.FromStatus(err)
	if _, ok := errors.AsType[*commit.Error](err); ok {
		return err
	}
	return &commit.Error{Code: commit.CodeUpload, Op: "put rows on an executor", Cause: err, Tried: "Nothing was committed.", Hint: "Send the rows again."}
}
