package flightsqlserver_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/flightsqlserver"
)

func TestWhoIsLetIn(t *testing.T) {
	f := &fake{job: succeeded(t)}
	c := dial(t, serve(t, f, nil))
	basic := func(password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte("anybody:"+password))
	}
	for authorization, want := range map[string]codes.Code{
		"": codes.OK, "Bearer good": codes.OK, basic("good"): codes.OK, "Bearer bad": codes.Unauthenticated, basic("bad"): codes.Unauthenticated,
		"Basic !": codes.Unauthenticated, "Basic " + base64.StdEncoding.EncodeToString([]byte("good")): codes.Unauthenticated, "x": codes.Unauthenticated,
	} {
		ctx := t.Context()
		if authorization != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
		}
		if _, err := c.Execute(ctx, insert); status.Code(err) != want {
			t.Errorf("%q: %v", authorization, err)
		}
	}
	// Clients that have a user and a password exchange it for a token first.
	ctx, err := c.Client.AuthenticateBasicToken(t.Context(), "anybody", "good")
	if err != nil {
		t.Fatal(err)
	}
	if md, _ := metadata.FromOutgoingContext(ctx); len(md.Get("authorization")) != 1 || md.Get("authorization")[0] != "Bearer good" {
		t.Errorf("got %v", md)
	}
	if _, err := c.Client.AuthenticateBasicToken(t.Context(), "anybody", "bad"); status.Code(err) != codes.Unauthenticated {
		t.Errorf("bad password: %v", err)
	}
}

// Long errors reach clients that take few headers, with their begin, code and hint.
func TestLongErrors(t *testing.T) {
	f := &fake{refuse: &commit.Error{Code: commit.CodeSQLRefused, Op: "bind query", Object: "§", Cause: errors.New(strings.Repeat("é", 50_000)), Hint: "Do this."}}
	address := serve(t, f, nil)
	c, err := flightsql.NewClient(address, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithMaxHeaderListSize(8<<10))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Execute(t.Context(), "SELECT 1")
	if text := status.Convert(err).Message(); status.Code(err) != codes.InvalidArgument || !strings.HasPrefix(text, "bind query §") || !strings.HasSuffix(text, "[FIRN-1002]. Do this") {
		t.Errorf("%.2000v", err)
	}
}

// catalogAnswers are those of two catalogs, one without namespaces.
func catalogAnswers(t testing.TB) map[string]*firnpb.ExecuteResponse {
	t.Helper()
	table := []string{"catalog", "namespace", "table"}
	return map[string]*firnpb.ExecuteResponse{
		"SHOW CATALOGS":                          {RowsIpc: texts(t, []string{"catalog", "type"}, []string{"lake", "sql"}, []string{"bay", "rest"})},
		`SHOW NAMESPACES IN "lake"`:              {RowsIpc: texts(t, table[:2], []string{"lake", "air"}, []string{"lake", "a_r"})},
		`SHOW NAMESPACES IN "bay"`:               {RowsIpc: texts(t, table[:2])},
		`SHOW TABLES IN "lake"."air"`:            {RowsIpc: texts(t, table, []string{"lake", "air", "flights"}, []string{"lake", "air", "Fl%ghts"})},
		`SHOW TABLES IN "lake"."a_r"`:            {RowsIpc: texts(t, table)},
		`EXPLAIN SELECT * FROM "lake"."air"."fl`: {RowsIpc: texts(t, []string{"plan"}), Columns: []*firnpb.ResultColumn{{Name: "n", Type: "BIGINT"}}},
	}
}

func TestMetadata(t *testing.T) {
	f := &fake{answers: catalogAnswers(t)}
	c := dial(t, serve(t, f, nil))
	text := func(s string) *string { return &s }
	for name, list := range map[string]struct {
		ask  func(context.Context) (*flight.FlightInfo, error)
		want string
	}{
		"catalogs": {func(ctx context.Context) (*flight.FlightInfo, error) { return c.GetCatalogs(ctx) }, "[[bay] [lake]]"},
		"schemas": {func(ctx context.Context) (*flight.FlightInfo, error) {
			return c.GetDBSchemas(ctx, &flightsql.GetDBSchemasOpts{})
		}, "[[lake a_r] [lake air]]"},
		"schemas of a pattern": {func(ctx context.Context) (*flight.FlightInfo, error) {
			return c.GetDBSchemas(ctx, &flightsql.GetDBSchemasOpts{Catalog: text("lake"), DbSchemaFilterPattern: text(`a\_r`)})
		}, "[[lake a_r]]"},
		"schemas of no catalog": {func(ctx context.Context) (*flight.FlightInfo, error) {
			return c.GetDBSchemas(ctx, &flightsql.GetDBSchemasOpts{Catalog: text("")})
		}, "[]"},
		"tables": {func(ctx context.Context) (*flight.FlightInfo, error) {
			return c.GetTables(ctx, &flightsql.GetTablesOpts{})
		}, "[[lake air Fl%ghts TABLE] [lake air flights TABLE]]"},
		"tables of patterns": {func(ctx context.Context) (*flight.FlightInfo, error) {
			return c.GetTables(ctx, &flightsql.GetTablesOpts{DbSchemaFilterPattern: text("_i%"), TableNameFilterPattern: text(`Fl\%%`), TableTypes: []string{"TABLE"}})
		}, "[[lake air Fl%ghts TABLE]]"},
		"views": {func(ctx context.Context) (*flight.FlightInfo, error) {
			return c.GetTables(ctx, &flightsql.GetTablesOpts{TableTypes: []string{"VIEW"}})
		}, "[]"},
		"types": {func(ctx context.Context) (*flight.FlightInfo, error) { return c.GetTableTypes(ctx) }, "[[TABLE]]"},
		"primary keys": {func(ctx context.Context) (*flight.FlightInfo, error) {
			return c.GetPrimaryKeys(ctx, flightsql.TableRef{Table: "flights"})
		}, "[]"},
		"exported keys": {func(ctx context.Context) (*flight.FlightInfo, error) {
			return c.GetExportedKeys(ctx, flightsql.TableRef{Table: "flights"})
		}, "[]"},
		"imported keys": {func(ctx context.Context) (*flight.FlightInfo, error) {
			return c.GetImportedKeys(ctx, flightsql.TableRef{Table: "flights"})
		}, "[]"},
		"cross reference": {func(ctx context.Context) (*flight.FlightInfo, error) {
			return c.GetCrossReference(ctx, flightsql.TableRef{Table: "a"}, flightsql.TableRef{Table: "b"})
		}, "[]"},
		"unknown information": {func(ctx context.Context) (*flight.FlightInfo, error) {
			return c.GetSqlInfo(ctx, []flightsql.SqlInfo{99_999})
		}, "[]"},
	} {
		info, err := list.ask(t.Context())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		rows, err := get(t, c, info)
		if rows == nil {
			rows = [][]string{}
		}
		if err != nil || fmt.Sprint(rows) != list.want {
			t.Errorf("%s: %v, %v; want %s", name, rows, err, list.want)
		}
	}
	for _, r := range f.ran() {
		if r.GetIdempotencyKey() != "" {
			t.Errorf("%s has a key", r.GetSql())
		}
	}
}

func TestTablesWithColumns(t *testing.T) {
	c := dial(t, serve(t, &fake{answers: catalogAnswers(t)}, nil))
	info, err := c.GetTables(t.Context(), &flightsql.GetTablesOpts{IncludeSchema: true})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := get(t, c, info)
	if err != nil || len(rows) != 2 {
		t.Fatalf("%v, %v", rows, err)
	}
	// The first one can't be read: it is there without columns.
	for i, want := range []int{0, 1} {
		raw, err := base64.StdEncoding.DecodeString(rows[i][4])
		if err != nil {
			t.Fatal(err)
		}
		if s, err := flight.DeserializeSchema(raw, memory.DefaultAllocator); err != nil || s.NumFields() != want {
			t.Errorf("%v: %v, %v", rows[i][:4], s, err)
		}
	}
}

func TestServerInformation(t *testing.T) {
	c := dial(t, serve(t, &fake{}, nil))
	for _, ids := range [][]flightsql.SqlInfo{nil, {flightsql.SqlInfoFlightSqlServerName, 99_999, flightsql.SqlInfoFlightSqlServerReadOnly}} {
		info, err := c.GetSqlInfo(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := get(t, c, info)
		if err != nil || ids != nil && len(rows) != 2 || ids == nil && len(rows) < 20 || !strings.Contains(fmt.Sprint(rows), "Firn") {
			t.Errorf("%v: %v, %v", ids, rows, err)
		}
	}
	varchar := int32(12)
	for only, want := range map[*int32]int{nil: 11, &varchar: 1} {
		info, err := c.GetXdbcTypeInfo(t.Context(), only)
		if err != nil {
			t.Fatal(err)
		}
		if rows, err := get(t, c, info); err != nil || len(rows) != want {
			t.Errorf("%d types, %v", len(rows), err)
		}
	}
}

// megabytes are rows of a megabyte each, each in a batch of its own.
func megabytes(t testing.TB, n int) []byte {
	t.Helper()
	b := array.NewStringBuilder(memory.DefaultAllocator)
	b.Append(strings.Repeat("x", 1<<20))
	schema := arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String}}, nil)
	batch := array.NewRecordBatch(schema, []arrow.Array{b.NewArray()}, 1)
	raw, err := wire.EncodeIPC(schema, slices.Repeat([]arrow.RecordBatch{batch}, n)...)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Who takes no rows for as long as they are kept is told so, and not that they end.
func TestIdleReader(t *testing.T) {
	f := &fake{answers: map[string]*firnpb.ExecuteResponse{"SHOW": {RowsIpc: megabytes(t, 40)}}}
	c := dial(t, serve(t, f, func(cfg *flightsqlserver.Config) {
		cfg.Keep, cfg.Readers, cfg.ReaderWait = 200*time.Millisecond, 1, 10*time.Second
	}))
	info, err := c.Execute(t.Context(), "SHOW CATALOGS")
	if err != nil {
		t.Fatal(err)
	}
	slow, err := c.Client.DoGet(t.Context(), info.GetEndpoint()[0].GetTicket())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Recv(); err != nil {
		t.Fatal(err)
	}
	// Another one gets its turn although the first is there. What it wants is gone.
	if _, err := get(t, c, info); commit.CodeOf(wire.FromStatus(err)) != commit.CodeResultLost {
		wait(t, func() bool {
			_, err := get(t, c, info)
			return commit.CodeOf(wire.FromStatus(err)) == commit.CodeResultLost
		})
	}
	for err == nil {
		_, err = slow.Recv()
	}
	if commit.CodeOf(wire.FromStatus(err)) != commit.CodeResultLost || !strings.Contains(err.Error(), "took none") {
		t.Errorf("the slow one: %v", err)
	}
}

// Rows are given to some clients at a time.
func TestReaders(t *testing.T) {
	f := &fake{answers: map[string]*firnpb.ExecuteResponse{"SHOW": {RowsIpc: megabytes(t, 40)}}}
	c := dial(t, serve(t, f, func(cfg *flightsqlserver.Config) {
		cfg.Readers, cfg.ReaderWait = 1, 20*time.Millisecond
	}))
	info, err := c.Execute(t.Context(), "SHOW CATALOGS")
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	slow, err := c.Client.DoGet(ctx, info.GetEndpoint()[0].GetTicket())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Recv(); err != nil { // the schema: it is its turn
		t.Fatal(err)
	}
	other, err := c.Client.DoGet(t.Context(), info.GetEndpoint()[0].GetTicket())
	if err == nil {
		_, err = other.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "FIRN-6082") {
		t.Errorf("another one: %v", err)
	}
	leave()
	wait(t, func() bool {
		other, err := c.Client.DoGet(t.Context(), info.GetEndpoint()[0].GetTicket())
		if err == nil {
			_, err = other.Recv()
		}
		return err == nil
	})
}

func TestAnswersExpire(t *testing.T) {
	f := &fake{answers: map[string]*firnpb.ExecuteResponse{"SHOW": {RowsIpc: texts(t, []string{"s"}, []string{"x"})}}}
	c := dial(t, serve(t, f, func(cfg *flightsqlserver.Config) { cfg.Keep = 300 * time.Millisecond }))
	info, err := c.Execute(t.Context(), "SHOW CATALOGS")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if rows, err := get(t, c, info); err != nil || len(rows) != 1 {
			t.Fatalf("%v, %v", rows, err)
		}
	}
	wait(t, func() bool {
		_, err := get(t, c, info)
		return status.Code(err) == codes.NotFound && commit.CodeOf(wire.FromStatus(err)) == commit.CodeResultLost && strings.Contains(err.Error(), "Run the statement again")
	})
	if len(f.ran()) != 1 {
		t.Error("reading ran it")
	}
}

// hostile are bytes that nobody of good will sends.
func hostile() [][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	all := [][]byte{nil, {}, []byte("job:j-1"), bytes.Repeat([]byte{0xff}, 10), []byte(strings.Repeat("x", 1<<20))}
	for range 50 {
		raw := make([]byte, r.IntN(200))
		for i := range raw {
			raw[i] = byte(r.Uint32())
		}
		all = append(all, raw)
	}
	for _, handle := range []string{"", "job:", "job:j-2", "job:../j-1", "answer:", "answer:x", "statement:SELECT 1", "\x00", strings.Repeat("job:", 10_000)} {
		ticket, err := flightsql.CreateStatementQueryTicket([]byte(handle))
		if err != nil {
			panic(err)
		}
		all = append(all, ticket, ticket[:len(ticket)-1], append(ticket, 0xff))
	}
	return all
}

// FuzzCalls: whatever is sent, the answer is an error that says what is wrong with it.
func FuzzCalls(f *testing.F) {
	for _, raw := range hostile() {
		f.Add(raw)
	}
	c := dial(f, serve(f, &fake{job: &firnpb.JobStatus{JobId: "j-1", State: "running"}, refuse: &commit.Error{Code: commit.CodeBadRequest, Op: "run"}}, nil))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := call(t.Context(), c.Client, raw); err != nil {
			t.Error(err)
		}
	})
}

// call sends bytes wherever they may be sent. What it gives is wrong with the answers.
func call(ctx context.Context, c flight.Client, raw []byte) error {
	var errs []error
	check := func(what string, err error) {
		switch status.Code(err) {
		case codes.InvalidArgument, codes.NotFound, codes.Unimplemented:
		case codes.OK: // such as a list that is the same for all
		default:
			errs = append(errs, fmt.Errorf("%s %.50q: %w", what, raw, err))
		}
	}
	d := &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: raw}
	_, err := c.GetFlightInfo(ctx, d)
	check("info", err)
	_, err = c.PollFlightInfo(ctx, d)
	check("poll", err)
	_, err = c.GetSchema(ctx, d)
	check("schema", err)
	get, err := c.DoGet(ctx, &flight.Ticket{Ticket: raw})
	for err == nil {
		_, err = get.Recv()
	}
	check("get", end(err))
	for _, action := range []string{
		flight.CancelFlightInfoActionType, flight.RenewFlightEndpointActionType, flightsql.CreatePreparedStatementActionType, flightsql.ClosePreparedStatementActionType,
		flightsql.CancelQueryActionType, flightsql.BeginTransactionActionType, flight.SetSessionOptionsActionType, "x",
	} {
		act, err := c.DoAction(ctx, &flight.Action{Type: action, Body: raw})
		for err == nil {
			_, err = act.Recv()
		}
		check(action, end(err))
	}
	for _, d := range []*flight.FlightData{{FlightDescriptor: d}, {DataHeader: raw}, {FlightDescriptor: d, DataHeader: raw, DataBody: raw}} {
		put, err := c.DoPut(ctx)
		if err == nil {
			err = put.Send(d)
		}
		if err == nil || errors.Is(err, io.EOF) {
			_ = put.CloseSend()
			_, err = put.Recv()
		}
		check("put", end(err))
	}
	return errors.Join(errs...)
}

// end is nil for the end of a stream.
func end(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
