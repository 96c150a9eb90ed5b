package flightsqlserver

import (
	"context"
	"errors"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/scheduler/jobresult"
)

// preparedHandle begins the handle of a prepared statement; its text follows. So
// nothing is kept of it, however many there are and whoever forgets to close them.
const preparedHandle = "statement:"

func textOf(handle []byte) (string, error) {
	text, ok := strings.CutPrefix(string(handle), preparedHandle)
	if !ok {
		return "", notAHandle(string(handle))
	}
	return text, nil
}

// CreatePreparedStatement implements flightsql.Server. It runs nothing that changes
// anything.
func (s *service) CreatePreparedStatement(ctx context.Context, r flightsql.ActionCreatePreparedStatementRequest) (flightsql.ActionCreatePreparedStatementResult, error) {
	st, err := read(r.GetQuery(), r.GetTransactionId())
	if err != nil {
		return flightsql.ActionCreatePreparedStatementResult{}, err
	}
	update := st.report || st.kind == change
	out := flightsql.ActionCreatePreparedStatementResult{
		Handle: []byte(preparedHandle + st.Text), ParameterSchema: arrow.NewSchema(nil, nil), IsUpdate: &update,
	}
	if !update {
		// Clients tell by its schema whether a statement gives rows.
		out.DatasetSchema, err = s.schemaOf(ctx, st)
	}
	return out, err
}

// ClosePreparedStatement implements flightsql.Server.
func (*service) ClosePreparedStatement(_ context.Context, r flightsql.ActionClosePreparedStatementRequest) error {
	_, err := textOf(r.GetPreparedStatementHandle())
	return err
}

// GetFlightInfoPreparedStatement implements flightsql.Server: it runs the statement.
func (s *service) GetFlightInfoPreparedStatement(ctx context.Context, q flightsql.PreparedStatementQuery, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	text, err := textOf(q.GetPreparedStatementHandle())
	if err != nil {
		return nil, err
	}
	return s.info(ctx, text, nil, d)
}

// PollFlightInfoPreparedStatement implements flightsql.Server: it runs the statement
// and tells how far it is.
func (s *service) PollFlightInfoPreparedStatement(ctx context.Context, q flightsql.PreparedStatementQuery, d *flight.FlightDescriptor) (*flight.PollInfo, error) {
	text, err := textOf(q.GetPreparedStatementHandle())
	if err != nil {
		return nil, err
	}
	return s.poll(ctx, text, nil, d)
}

// GetSchemaPreparedStatement implements flightsql.Server.
func (s *service) GetSchemaPreparedStatement(ctx context.Context, q flightsql.PreparedStatementQuery, _ *flight.FlightDescriptor) (*flight.SchemaResult, error) {
	text, err := textOf(q.GetPreparedStatementHandle())
	if err != nil {
		return nil, err
	}
	return s.schemaResult(ctx, text, nil)
}

// DoPutPreparedStatementQuery implements flightsql.Server: it binds nothing.
func (*service) DoPutPreparedStatementQuery(_ context.Context, q flightsql.PreparedStatementQuery, in flight.MessageReader, _ flight.MetadataWriter) ([]byte, error) {
	if _, err := textOf(q.GetPreparedStatementHandle()); err != nil {
		return nil, err
	}
	return q.GetPreparedStatementHandle(), noParameters(in)
}

// DoPutPreparedStatementUpdate implements flightsql.Server: it runs the statement.
func (s *service) DoPutPreparedStatementUpdate(ctx context.Context, u flightsql.PreparedStatementUpdate, in flight.MessageReader) (int64, error) {
	text, err := textOf(u.GetPreparedStatementHandle())
	if err != nil {
		return 0, err
	}
	if err := noParameters(in); err != nil {
		return 0, err
	}
	return s.update(ctx, text, nil)
}

// noParameters refuses values for parameters.
func noParameters(in flight.MessageReader) error {
	for in.Next() {
		if b := in.RecordBatch(); b.NumCols() > 0 && b.NumRows() > 0 {
			return refused("bind parameters", "statements have no parameters", "Write the values into the statement, or load rows in bulk (ingest).")
		}
	}
	if err := in.Err(); err != nil {
		return badRequest("bind parameters", err)
	}
	return nil
}

// schemaOf is the schema of the rows that a statement gives, without running it. It is
// nil when only running tells it: of a query over flight_sql, which planning would have
// the engine run, and of types that have no fixed form in Arrow.
func (s *service) schemaOf(ctx context.Context, st statement) (*arrow.Schema, error) {
	switch {
	case st.report:
		return wire.ReportSchema(), nil
	case st.kind == change:
		return arrow.NewSchema(nil, nil), nil
	case st.kind == write:
		return arrow.NewSchema([]arrow.Field{{Name: "plan", Type: arrow.BinaryTypes.String, Nullable: true}}, nil), nil
	case st.kind == query && strings.Contains(strings.ToLower(st.Text), "flight_sql"):
		return nil, nil
	}
	text := st.Text
	if st.kind == query {
		text = "EXPLAIN " + text
	}
	r, err := request(ctx, text)
	if err != nil {
		return nil, err
	}
	r.IdempotencyKey = ""
	resp, err := s.cfg.Scheduler.Execute(ctx, r)
	if err != nil {
		return nil, err
	}
	if st.kind == query {
		return schemaOfColumns(resp.GetColumns(), r.GetTimeZone()), nil
	}
	rows, err := jobresult.Inline(resp.GetRowsIpc())
	if err != nil {
		return nil, err
	}
	return rows.Schema, nil
}

func (s *service) schemaResult(ctx context.Context, text string, transaction []byte) (*flight.SchemaResult, error) {
	st, err := read(text, transaction)
	if err != nil {
		return nil, err
	}
	schema, err := s.schemaOf(ctx, st)
	if err == nil && schema == nil {
		err = badRequest("tell the schema", errors.New("only running the statement tells it"))
	}
	if err != nil {
		return nil, err
	}
	return &flight.SchemaResult{Schema: flight.SerializeSchema(schema, memory.DefaultAllocator)}, nil
}
