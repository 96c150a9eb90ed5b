package cluster_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	_ "github.com/apache/arrow-go/v18/arrow/flight/flightsql/driver"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/security"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/scheduler/flightsqlserver"
)

// flightSQL starts a cluster and gives a client of its Flight SQL address.
func flightSQL(t *testing.T) (*cluster.Cluster, *flightsql.Client) {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Config{Dir: t.TempDir(), FlightSQL: "127.0.0.1:0", SlotsPerExecutor: 2, Memory: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	client, err := flightsql.NewClient(c.FlightSQLAddr(), nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return c, client
}

// numbers runs a query and gives its first column, which is of whole numbers.
func numbers(t *testing.T, c *flightsql.Client, query string) []int64 {
	t.Helper()
	info, err := c.Execute(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return readNumbers(t, c, info)
}

func readNumbers(t *testing.T, c *flightsql.Client, info *flight.FlightInfo) (all []int64) {
	t.Helper()
	for _, end := range info.GetEndpoint() {
		r, err := c.DoGet(t.Context(), end.GetTicket())
		if err != nil {
			t.Fatal(err)
		}
		defer r.Release()
		for {
			b, err := r.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b.Column(0).(*array.Int64).Int64Values()...)
		}
	}
	return all
}

// Requirements 22 and 36: a result that the scheduler computed is served to a Flight
// SQL client, from one endpoint without a location, and again when it is asked for.
// The statement runs once, whatever is read.
func TestRoot36_FlightSQLServesTheRootsResult(t *testing.T) {
	_, c := flightSQL(t)
	for _, ddl := range []string{"CREATE NAMESPACE lake.a", "CREATE TABLE lake.a.t (n BIGINT)"} {
		if n, err := c.ExecuteUpdate(t.Context(), ddl); err != nil || n != 0 {
			t.Fatalf("%s: %d, %v", ddl, n, err)
		}
	}
	info, err := c.Execute(t.Context(), "INSERT INTO lake.a.t SELECT unnest(range(0, 7))")
	if err != nil {
		t.Fatal(err)
	}
	if ends := info.GetEndpoint(); len(ends) != 1 || len(ends[0].GetLocation()) != 0 || !ends[0].GetExpirationTime().AsTime().After(time.Now()) {
		t.Fatalf("endpoints %v", ends)
	}
	var first commit.Report
	for i := range 3 {
		r, err := c.DoGet(t.Context(), info.GetEndpoint()[0].GetTicket())
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Read()
		if err != nil || b.NumRows() != 1 || !r.Schema().Equal(wire.ReportSchema()) {
			t.Fatalf("%v, %v", b, err)
		}
		raw, err := wire.EncodeIPC(r.Schema(), b)
		if err != nil {
			t.Fatal(err)
		}
		report, err := wire.DecodeReport(raw)
		if err != nil || report.Rows != 7 || report.State != commit.CommitCommitted || report.JobID != string(info.GetAppMetadata()) {
			t.Fatalf("%+v, %v", report, err)
		}
		if i == 0 {
			first = report
		} else if fmt.Sprint(first) != fmt.Sprint(report) {
			t.Errorf("read again: %+v, before %+v", report, first)
		}
		r.Release()
	}
	if got := numbers(t, c, "SELECT count(*) FROM lake.a.t"); len(got) != 1 || got[0] != 7 {
		t.Errorf("%v rows are in the table", got)
	}
	if got := numbers(t, c, "SELECT n FROM lake.a.t ORDER BY n DESC"); fmt.Sprint(got) != "[6 5 4 3 2 1 0]" {
		t.Errorf("in order: %v", got)
	}
}

// The same INSERT under one key, over each call that runs statements, is committed
// once; without a key each is a statement of its own.
func TestServedFlightSQLKeys(t *testing.T) {
	_, c := flightSQL(t)
	for _, ddl := range []string{"CREATE NAMESPACE lake.a", "CREATE TABLE lake.a.t (n BIGINT)"} {
		if _, err := c.ExecuteUpdate(t.Context(), ddl); err != nil {
			t.Fatal(err)
		}
	}
	const insert = "INSERT INTO lake.a.t VALUES (1)"
	keyed := metadata.AppendToOutgoingContext(t.Context(), flightsqlserver.HeaderKey, "k")
	p, err := c.Prepare(t.Context(), insert)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if n, err := c.ExecuteUpdate(keyed, insert); err != nil || n != 1 {
			t.Fatalf("%d, %v", n, err)
		}
		if _, err := c.Execute(keyed, insert); err != nil {
			t.Fatal(err)
		}
		if n, err := p.ExecuteUpdate(keyed); err != nil || n != 1 {
			t.Fatalf("%d, %v", n, err)
		}
		if poll, err := c.ExecutePoll(keyed, insert, nil); err != nil || poll.GetFlightDescriptor() != nil {
			t.Fatalf("%v, %v", poll, err)
		}
	}
	if got := numbers(t, c, "SELECT count(*) FROM lake.a.t"); got[0] != 1 {
		t.Fatalf("%d rows under one key", got[0])
	}
	if _, err := c.ExecuteUpdate(keyed, "INSERT INTO lake.a.t VALUES (2)"); commit.CodeOf(wire.FromStatus(err)) != commit.CodeKeyReused {
		t.Errorf("another statement under the key: %v", err)
	}
	for range 2 {
		if n, err := p.ExecuteUpdate(t.Context()); err != nil || n != 1 {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if got := numbers(t, c, "SELECT count(*) FROM lake.a.t"); got[0] != 3 {
		t.Errorf("%d rows, want 3", got[0])
	}
}

func TestServedFlightSQLIngest(t *testing.T) {
	_, c := flightSQL(t)
	for _, ddl := range []string{"CREATE NAMESPACE lake.a", `CREATE TABLE lake.a."T 1" (n BIGINT, s VARCHAR)`} {
		if _, err := c.ExecuteUpdate(t.Context(), ddl); err != nil {
			t.Fatal(err)
		}
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String}, {Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	rows := func() array.RecordReader {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for i := range 1000 {
			b.Field(0).(*array.StringBuilder).Append("x")
			b.Field(1).(*array.Int64Builder).Append(int64(i))
		}
		batch := b.NewRecordBatch()
		r, err := array.NewRecordReader(schema, []arrow.RecordBatch{batch, batch})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	lake, ns := "lake", "a"
	to := func(table string, ifNot flightsql.TableDefinitionOptionsTableNotExistOption, ifThere flightsql.TableDefinitionOptionsTableExistsOption) *flightsql.ExecuteIngestOpts {
		return &flightsql.ExecuteIngestOpts{
			TableDefinitionOptions: &flightsql.TableDefinitionOptions{IfNotExist: ifNot, IfExists: ifThere}, Table: table, Catalog: &lake, Schema: &ns,
		}
	}
	appendTo := to("T 1", flightsql.TableDefinitionOptionsTableNotExistOptionFail, flightsql.TableDefinitionOptionsTableExistsOptionAppend)
	keyed := metadata.AppendToOutgoingContext(t.Context(), flightsqlserver.HeaderKey, "k")
	if n, err := c.ExecuteIngest(keyed, rows(), appendTo); err != nil || n != 2000 {
		t.Fatalf("%d, %v", n, err)
	}
	// A key is of one stream: another one under it is refused, so no row comes twice.
	if n, err := c.ExecuteIngest(keyed, rows(), appendTo); commit.CodeOf(wire.FromStatus(err)) != commit.CodeKeyReused {
		t.Errorf("the key again: %d, %v", n, err)
	}
	for _, bad := range []*flightsql.ExecuteIngestOpts{
		to("T 1", flightsql.TableDefinitionOptionsTableNotExistOptionFail, flightsql.TableDefinitionOptionsTableExistsOptionReplace),
		to("u", flightsql.TableDefinitionOptionsTableNotExistOptionCreate, flightsql.TableDefinitionOptionsTableExistsOptionAppend),
	} {
		if _, err := c.ExecuteIngest(t.Context(), rows(), bad); status.Code(err) != codes.Unimplemented {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := c.ExecuteIngest(t.Context(), rows(), to(`none"; DROP TABLE lake.a."T 1`, 0, 0)); commit.CodeOf(wire.FromStatus(err)) != commit.CodeTableNotFound {
		t.Errorf("no such table: %v", err)
	}
	// A stream that breaks off commits nothing.
	leaving, leave := context.WithCancel(t.Context())
	r := rows()
	if _, err := c.ExecuteIngest(leaving, breaking{r, leave}, appendTo); err == nil {
		t.Error("a stream that broke off was taken")
	}
	// Neither does one with something that isn't Arrow behind good rows.
	cmd, err := anypb.New(&pb.CommandStatementIngest{Table: "T 1", Catalog: &lake, Schema: &ns, TableDefinitionOptions: appendTo.TableDefinitionOptions})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := proto.Marshal(cmd)
	if err != nil {
		t.Fatal(err)
	}
	put, err := c.Client.DoPut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := flight.NewRecordWriter(put, ipc.WithSchema(schema))
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: raw})
	good := rows()
	good.Next()
	if err := w.Write(good.RecordBatch()); err != nil {
		t.Fatal(err)
	}
	if err := put.Send(&flight.FlightData{DataHeader: []byte("no Arrow")}); err != nil {
		t.Fatal(err)
	}
	_ = put.CloseSend()
	for err == nil {
		_, err = put.Recv()
	}
	if commit.CodeOf(wire.FromStatus(err)) != commit.CodeBadRequest {
		t.Errorf("no Arrow: %v", err)
	}
	if got := numbers(t, c, `SELECT sum(n)::BIGINT FROM lake.a."T 1"`); got[0] != 999*1000 {
		t.Errorf("%v", got)
	}
}

// breaking leaves when its first batch was taken.
type breaking struct {
	array.RecordReader
	leave func()
}

func (b breaking) Next() bool {
	if b.RecordReader.Next() {
		return true
	}
	b.leave()
	return false
}

// What is told of a query's schema before it runs is what its rows have.
func TestServedFlightSQLSchemas(t *testing.T) {
	_, c := flightSQL(t)
	columns := []string{
		"true", "1::TINYINT", "1::SMALLINT", "1", "1::BIGINT", "1::UTINYINT", "1::USMALLINT", "1::UINTEGER", "1::UBIGINT", "1::FLOAT", "1::DOUBLE", "1.5",
		"1::DECIMAL(38,3)", "'x'", "'x'::BLOB", "DATE '2026-01-01'", "TIME '10:00:00'", "TIMESTAMP '2026-01-01 00:00:00'", "'2026-01-01'::TIMESTAMP_S",
		"'2026-01-01'::TIMESTAMP_MS", "'2026-01-01'::TIMESTAMP_NS", "[1, 2]", "[['x']]", "NULL::INTEGER", "1::HUGEINT", "uuid()", "now()", "INTERVAL 1 DAY",
		"{'a': 1, 'b \"c, d': 'x', 'e': {'f': [now()]}}", "MAP {'a': {'b': 1.5}}", "array_value(1, 2)", "'a'::ENUM('a', 'b)')", "'1'::JSON", "TIME_NS '10:00:00'",
	}
	query := "SELECT " + strings.Join(columns, ", ")
	p, err := c.Prepare(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	info, err := p.Execute(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	schema, err := flight.DeserializeSchema(info.GetSchema(), memory.DefaultAllocator)
	if err != nil {
		t.Fatal(err)
	}
	if p.DatasetSchema() == nil {
		t.Fatal("nothing is told before")
	}
	for i, f := range schema.Fields() {
		if told := p.DatasetSchema().Field(i); !told.Equal(f) {
			t.Errorf("%s: told %v, has %v", columns[i], told, f)
		}
	}
	if s, err := c.GetExecuteSchema(t.Context(), query); err != nil {
		t.Error(err)
	} else if told, err := flight.DeserializeSchema(s.GetSchema(), memory.DefaultAllocator); err != nil || !told.Equal(schema) {
		t.Errorf("%v, %v", told, err)
	}
	// What only rows show isn't guessed.
	for _, column := range []string{"NULL", "[NULL]", "'101'::BIT", "1::UHUGEINT"} {
		p, err := c.Prepare(t.Context(), "SELECT "+column+" AS x")
		if err != nil {
			t.Fatalf("%s: %v", column, err)
		}
		told := p.DatasetSchema()
		info, err := p.Execute(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", column, err)
		}
		if schema, err := flight.DeserializeSchema(info.GetSchema(), memory.DefaultAllocator); err != nil || told != nil && !told.Equal(schema) {
			t.Errorf("%s: told %v, has %v, %v", column, told, schema, err)
		}
	}
}

// Go's database/sql, by arrow-go's own driver.
func TestServedFlightSQLByDatabaseSQL(t *testing.T) {
	cl, _ := flightSQL(t)
	db, err := sql.Open("flightsql", "flightsql://"+cl.FlightSQLAddr()+"?timeout=30s&firn-catalog=lake&firn-namespace=a")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, ddl := range []string{"CREATE NAMESPACE lake.a", "CREATE TABLE t (n BIGINT, s VARCHAR, d DOUBLE)"} {
		if _, err := db.ExecContext(t.Context(), ddl); err != nil {
			t.Fatalf("%s: %v", ddl, err)
		}
	}
	res, err := db.ExecContext(t.Context(), "INSERT INTO t SELECT range, 'row ' || range, range / 2 FROM range(5000)")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := res.RowsAffected(); err != nil || n != 5000 {
		t.Errorf("%d, %v", n, err)
	}
	rows, err := db.QueryContext(t.Context(), "SELECT n, s, d FROM t ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var i int64
	for ; rows.Next(); i++ {
		var n int64
		var s string
		var d float64
		if err := rows.Scan(&n, &s, &d); err != nil || n != i || s != fmt.Sprint("row ", i) || d != float64(i)/2 {
			t.Fatalf("row %d: %d %q %v, %v", i, n, s, d, err)
		}
	}
	if err := rows.Err(); err != nil || i != 5000 {
		t.Errorf("%d rows, %v", i, err)
	}
	if _, err := db.QueryContext(t.Context(), "SELECT * FROM none"); err == nil || !strings.Contains(err.Error(), "FIRN-5003") {
		t.Errorf("no such table: %v", err)
	}
	if _, err := db.QueryContext(t.Context(), "SELECT n FROM t WHERE n = ?", 1); err == nil {
		t.Error("a parameter was taken")
	}
}

// A query that is cancelled stops; an INSERT that was cancelled has added nothing.
func TestServedFlightSQLCancel(t *testing.T) {
	_, c := flightSQL(t)
	for _, ddl := range []string{"CREATE NAMESPACE lake.a", "CREATE TABLE lake.a.t (n BIGINT)"} {
		if _, err := c.ExecuteUpdate(t.Context(), ddl); err != nil {
			t.Fatal(err)
		}
	}
	// Hours of work.
	const long = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range + b.range = 7"
	for _, statement := range []string{long, "INSERT INTO lake.a.t " + long} {
		p, err := c.ExecutePoll(t.Context(), statement, nil)
		if err != nil || p.GetFlightDescriptor() == nil {
			t.Fatalf("%v, %v", p, err)
		}
		r, err := c.CancelFlightInfo(t.Context(), &flight.CancelFlightInfoRequest{Info: p.GetInfo()})
		if err != nil || r.GetStatus() != flight.CancelStatusCancelled {
			t.Errorf("%v, %v", r, err)
		}
		if _, err := c.ExecutePoll(t.Context(), statement, p.GetFlightDescriptor()); commit.CodeOf(wire.FromStatus(err)) != commit.CodeJobCancelled {
			t.Errorf("after the cancel: %v", err)
		}
	}
	if got := numbers(t, c, "SELECT count(*) FROM lake.a.t"); got[0] != 0 {
		t.Errorf("%d rows", got[0])
	}
}

// Tokens, certificates and the rules for plaintext are those of the other addresses.
func TestServedFlightSQLIsNoWayAround(t *testing.T) {
	s, err := cluster.StartScheduler(t.Context(), cluster.SchedulerConfig{Dir: t.TempDir(), FlightSQL: config.FlightSQL{Listen: "192.0.2.1:0"}})
	if commit.CodeOf(err) != commit.CodePlaintext {
		if err == nil {
			_ = s.Close(t.Context())
		}
		t.Fatalf("plaintext for other machines: %v", err)
	}
	ca, dir := newAuthority(t), t.TempDir()
	s, err = cluster.StartScheduler(t.Context(), cluster.SchedulerConfig{Dir: dir, FlightSQL: config.FlightSQL{Listen: "127.0.0.1:0"}, TLS: ca.good(t, "")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	tokens := security.OpenTokens(dir)
	_, good, err := tokens.Create("c", security.RoleClient, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	_, executors, err := tokens.Create("e", security.RoleExecutor, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	files := security.Files{CA: ca.file}
	tlsConfig, err := files.Client()
	if err != nil {
		t.Fatal(err)
	}
	c, err := flightsql.NewClient(s.FlightSQLAddr(), nil, nil, grpc.WithTransportCredentials(credentials.NewTLS(tlsConfig)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for token, want := range map[string]codes.Code{good: codes.OK, "": codes.Unauthenticated, "firn_x": codes.Unauthenticated, executors: codes.Unauthenticated} {
		ctx := t.Context()
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
		}
		if _, err := c.Execute(ctx, "CREATE NAMESPACE IF NOT EXISTS lake.a"); status.Code(err) != want {
			t.Errorf("%.10q: %v", token, err)
		}
	}
}
