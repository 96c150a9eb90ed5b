package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/flightsql/flightsqltest"
)

// engines starts a scheduler that may read an engine, two executors, and a client.
func engines(t *testing.T, sources map[string]config.FlightSource) *client.Client {
	t.Helper()
	dir := t.TempDir()
	s, err := cluster.StartScheduler(t.Context(), cluster.SchedulerConfig{
		Dir: filepath.Join(dir, "s"), CheckAllFiles: true, Logger: slog.New(slog.DiscardHandler), FlightSources: sources,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, s.Close(context.WithoutCancel(t.Context()))) })
	for i := range 2 {
		x, err := cluster.StartExecutor(t.Context(), "", config.Executor{
			Server: s.Addr(), Listen: "127.0.0.1:0", Dir: filepath.Join(dir, fmt.Sprint("x", i)), Slots: 2, Memory: 256 << 20,
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { check(t, x.Close(context.WithoutCancel(t.Context()))) })
	}
	c, err := client.Dial(t.Context(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, c.Close()) })
	return c
}

// serve starts an engine and gives its URI.
func serve(t *testing.T, s *flightsqltest.Server) string {
	t.Helper()
	addr, stop, err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return "grpc://" + addr
}

// await waits until the engine has seen something.
func await(t *testing.T, s *flightsqltest.Server, what string, seen func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Await(ctx, seen); err != nil {
		t.Fatalf("the engine hasn't seen %s: %v", what, err)
	}
}

// ask gives the first row of a query as text.
func ask(t *testing.T, c *client.Client, query string) string {
	t.Helper()
	res, err := c.Execute(t.Context(), client.Statement{SQL: query})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	var out []string
	for b, err := range res.Rows(t.Context()) {
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		for i := range int(b.NumRows()) {
			var row []string
			for _, col := range b.Columns() {
				row = append(row, col.ValueStr(i))
			}
			out = append(out, strings.Join(row, " "))
		}
	}
	return strings.Join(out, "\n")
}

func run(t *testing.T, c *client.Client, statement string) error {
	t.Helper()
	res, err := c.Execute(t.Context(), client.Statement{SQL: statement})
	if err != nil || res.Job == nil {
		return err
	}
	_, err = res.Job.Wait(t.Context())
	return err
}

func must(t *testing.T, c *client.Client, statement string) {
	t.Helper()
	if err := run(t, c, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// whole says what a table must hold: each row of one execution once.
func whole(t *testing.T, c *client.Client, table string, rows int) {
	t.Helper()
	got := ask(t, c, "SELECT count(*), count(DISTINCT n), count(DISTINCT execution), coalesce(sum(n), 0) FROM "+table)
	want := fmt.Sprintf("%d %d %d %d", rows, rows, min(rows, 1), rows*(rows-1)/2)
	if got != want {
		t.Errorf("%s has %s, want %s (rows, numbers, executions, sum)", table, got, want)
	}
}

// TestFlightSQL: every shape of engine, into tables with and without partitions, and
// read by queries that run by parts and as a whole.
func TestFlightSQL(t *testing.T) {
	failing := func(n int, code codes.Code) func(r flightsqltest.Reading) (int, error) {
		return func(r flightsqltest.Reading) (int, error) {
			if r.Read > n || r.Endpoint != 3 {
				return -1, nil
			}
			return r.Read, status.Error(code, "a worker died")
		}
	}
	const held = time.Second
	for name, e := range map[string]struct {
		s          *flightsqltest.Server
		executions int
	}{
		"tickets that end before their turn, and aren't renewed": {&flightsqltest.Server{
			Endpoints: 6, Rows: 100, Expire: held, ExpireFirst: true,
			Pace: func(ctx context.Context, r flightsqltest.Reading, _ int) {
				if r.Execution == 1 { // four slots are kept until the other two tickets have ended
					ctx, cancel := context.WithTimeout(ctx, held)
					defer cancel()
					<-ctx.Done()
				}
			},
		}, 2},
		"none":               {&flightsqltest.Server{Rows: 7}, 1},
		"one":                {&flightsqltest.Server{Endpoints: 1, Rows: 70_000, BatchRows: 7000, Width: 700}, 1},
		"many":               {&flightsqltest.Server{Endpoints: 40, Rows: 1000, NoTotals: true}, 1},
		"polled, no schema":  {&flightsqltest.Server{Endpoints: 3, Rows: 10, Polls: 3, NoSchema: true}, 1},
		"streams that break": {&flightsqltest.Server{Endpoints: 6, Rows: 5000, Get: failing(2, codes.Internal)}, 1},
		"tickets for once":   {&flightsqltest.Server{Endpoints: 6, Rows: 5000, SingleUse: true}, 1},
		"tickets for once, and streams that break": {&flightsqltest.Server{Endpoints: 6, Rows: 5000, SingleUse: true, Get: func(r flightsqltest.Reading) (int, error) {
			if r.Execution < 3 && r.Endpoint == 4 {
				return 3, status.Error(codes.Unavailable, "gone away")
			}
			return -1, nil
		}}, 3},
		"another number of endpoints each time": {&flightsqltest.Server{Rows: 3000, EndpointsOf: func(x int) int { return []int{5, 2, 9}[min(x-1, 2)] }, Get: func(r flightsqltest.Reading) (int, error) {
			if r.Execution < 3 && r.Endpoint == 1 {
				return 0, status.Error(codes.NotFound, "no such ticket")
			}
			return -1, nil
		}}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := engines(t, map[string]config.FlightSource{"engine": {URI: serve(t, e.s)}})
			endpoints := e.s.Endpoints
			if e.s.EndpointsOf != nil {
				endpoints = 9
			}
			must(t, c, "CREATE NAMESPACE lake.air")
			must(t, c, "CREATE TABLE lake.air.plain (execution BIGINT, n BIGINT, s STRING)")
			must(t, c, "CREATE TABLE lake.air.parted (n BIGINT, execution BIGINT, e BIGINT) PARTITIONED BY (bucket(4, n))")
			must(t, c, "INSERT INTO lake.air.plain SELECT execution, n, s FROM flight_sql('engine', $$SELECT * FROM flights WHERE s = ';'$$)")
			if got := e.s.Executions(); got != e.executions {
				t.Errorf("%d executions, want %d", got, e.executions)
			}
			whole(t, c, "lake.air.plain", endpoints*e.s.Rows)
			if e.executions > 1 {
				return
			}
			must(t, c, "INSERT INTO lake.air.parted SELECT n, execution, endpoint + 1 FROM flight_sql('engine', $$q$$) WHERE n >= 0")
			whole(t, c, "lake.air.parted", endpoints*e.s.Rows)
			rows := endpoints * e.s.Rows
			if got, want := ask(t, c, "SELECT count(*), count(DISTINCT endpoint) FROM flight_sql('engine', $$q$$) AS f WHERE f.n % 2 = 0"), fmt.Sprintf("%d %d", (rows+1)/2, endpoints); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// TestFlightSQLInOrder: rows of a SELECT come in the order of the endpoints, whether the
// engine says that it is one or not.
func TestFlightSQLInOrder(t *testing.T) {
	s := &flightsqltest.Server{Endpoints: 12, Rows: 5}
	c := engines(t, map[string]config.FlightSource{
		"engine": {URI: serve(t, s)}, "ordered": {URI: serve(t, &flightsqltest.Server{Endpoints: 12, Rows: 5, Ordered: true})},
	})
	var want []string
	for i := range 60 {
		want = append(want, fmt.Sprint(i))
	}
	for _, name := range []string{"engine", "ordered"} {
		if got := strings.Split(ask(t, c, "SELECT n FROM flight_sql('"+name+"', 'q')"), "\n"); !slices.Equal(got, want) {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if got := ask(t, c, "EXPLAIN SELECT n FROM flight_sql('engine', 'q') WHERE n > 3"); !strings.Contains(got, "parallel over 12 partitions") || !strings.Contains(got, "flight_sql engine: 12 endpoints") {
		t.Errorf("got %s", got)
	}
	if got := ask(t, c, "EXPLAIN SELECT max(n) FROM flight_sql('engine', 'q')"); !strings.Contains(got, "whole, in one task (the operator UNGROUPED_AGGREGATE needs all rows at once)") {
		t.Errorf("got %s", got)
	}
	await(t, s, "the end of what EXPLAIN asked", func() bool { return len(s.Cancelled()) == 2 })
}

// TestFlightSQLRefusals: each says what is wrong and what to do.
func TestFlightSQLRefusals(t *testing.T) {
	s := &flightsqltest.Server{Endpoints: 2, Rows: 5, Token: "canary-token"}
	uri := serve(t, s)
	other := serve(t, &flightsqltest.Server{Endpoints: 2, Rows: 5, Refuse: status.Error(codes.InvalidArgument, "no table nope")})
	c := engines(t, map[string]config.FlightSource{
		"engine": {URI: uri, Properties: config.Properties{"token": "canary-token"}}, "wrong": {URI: uri, Properties: config.Properties{"token": "canary-wrong"}},
		"refuses": {URI: other},
	})
	for statement, want := range map[string]struct {
		code  commit.Code
		words string
	}{
		"SELECT * FROM flight_sql('nope', 'q')":                                                       {commit.CodeFlightSourceUnknown, "engine, refuses, wrong"},
		"SELECT * FROM flight_sql('engine')":                                                          {commit.CodeSQLReaderArgument, "two arguments"},
		"SELECT * FROM flight_sql('engine', 'a' || 'b')":                                              {commit.CodeSQLReaderArgument, "written out"},
		"SELECT * FROM flight_sql('grpc://127.0.0.1:1', 'q')":                                         {commit.CodeFlightNotAllowed, "sources.flight_sql"},
		"SELECT * FROM flight_sql('grpc+tls://evil.example:1','q')":                                   {commit.CodeFlightNotAllowed, "sources.flight_sql"},
		"SELECT * FROM flight_sql('http://127.0.0.1:1', 'q')":                                         {commit.CodeFlightNotAllowed, "scheme"},
		"SELECT * FROM flight_sql('" + uri + "', 'q')":                                                {commit.CodeFlightNotAllowed, "Name the source"},
		"SELECT * FROM flight_sql('wrong', 'q')":                                                      {commit.CodeFlightAuth, "who are you"},
		"SELECT * FROM flight_sql('refuses', 'q')":                                                    {commit.CodeFlightQuery, "no table nope"},
		"SELECT nope FROM flight_sql('engine', 'q')":                                                  {commit.CodeQueryFailed, "nope"},
		"CREATE SOURCE x WITH (type = 'flight_sql', uri = 'grpc://127.0.0.1:1')":                      {commit.CodeFlightNotAllowed, "sources.flight_sql"},
		"CREATE SOURCE x WITH (type = 'flight_sql', uri = '" + uri + "', token = 'canary-x')":         {commit.CodeFlightSource, "secrets don't stand in statements"},
		"CREATE SOURCE x WITH (type = 'flight_sql', uri = '" + uri + "', token_file = '/etc/passwd')": {commit.CodeFlightSource, "isn't taken from statements"},
		"CREATE SOURCE x WITH (type = 'flight_sql', uri = 'grpc://127.0.0.1:1', secret = 'engine')":   {commit.CodeFlightNotAllowed, "127.0.0.1:1"},
		"CREATE SOURCE x WITH (type = 'flight_sql', secret = 'nope')":                                 {commit.CodeFlightSource, "nope"},
		"CREATE SOURCE x WITH (type = 'jdbc', secret = 'engine')":                                     {commit.CodeFlightSource, "flight_sql"},
		"CREATE SOURCE x WITH (type = 'flight_sql', secret = 'engine', colour = 'red')":               {commit.CodeFlightSource, "colour"},
		"CREATE SOURCE engine WITH (type = 'flight_sql', secret = 'engine')":                          {commit.CodeFlightSource, "there is one"},
		"DROP SOURCE engine": {commit.CodeFlightSource, "configuration"},
		"DROP SOURCE nope":   {commit.CodeFlightSourceUnknown, "no source"},
	} {
		err := run(t, c, statement)
		if err == nil {
			t.Errorf("%s: ran", statement)
			continue
		}
		text := err.Error() + commitHint(err)
		if commit.CodeOf(err) != want.code || !strings.Contains(text, want.words) || strings.Contains(text, "canary") {
			t.Errorf("%s: got %s; want %s with %q", statement, text, want.code, want.words)
		}
	}
	must(t, c, "CREATE SOURCE mine WITH (type = 'flight_sql', secret = 'engine')")
	must(t, c, "CREATE SOURCE IF NOT EXISTS mine WITH (type = 'flight_sql', uri = '"+uri+"', secret = 'engine')")
	if got := ask(t, c, "SHOW SOURCES"); strings.Contains(got, "canary") || !strings.Contains(got, "mine flight_sql "+uri+" engine statement") {
		t.Errorf("got %s", got)
	}
	if got := ask(t, c, "SELECT count(*) FROM flight_sql('mine', 'q')"); got != "10" {
		t.Errorf("got %s", got)
	}
	must(t, c, "DROP SOURCE mine")
	must(t, c, "DROP SOURCE IF EXISTS mine")
}

// TestFlightSQLOtherNames: an engine that announces other names than it sends, as
// Ballista does for an aggregate in several partitions. Nothing is committed, and the
// query doesn't run again.
func TestFlightSQLOtherNames(t *testing.T) {
	fields := append(flightsqltest.Schema.Fields()[:3:3], arrow.Field{Name: "count(Int64(1))[count]", Type: arrow.BinaryTypes.String})
	s := &flightsqltest.Server{Endpoints: 3, Rows: 5, Batch: func(_ flightsqltest.Reading, from, to int) arrow.RecordBatch {
		b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
		defer b.Release()
		for range to - from {
			for _, f := range b.Fields() {
				f.AppendEmptyValue()
			}
		}
		return b.NewRecordBatch()
	}}
	c := engines(t, map[string]config.FlightSource{"engine": {URI: serve(t, s)}})
	must(t, c, "CREATE NAMESPACE lake.db")
	must(t, c, "CREATE TABLE lake.db.t (n bigint, s string)")
	err := run(t, c, "INSERT INTO lake.db.t SELECT n, s FROM flight_sql('engine', 'q')")
	if text := fmt.Sprint(err); commit.CodeOf(err) != commit.CodeFlightSchema || !strings.Contains(text, "count(Int64(1))[count]") {
		t.Errorf("got %s; want %s with the name that was sent", text, commit.CodeFlightSchema)
	}
	if got := ask(t, c, "SELECT count(*) FROM lake.db.t"); got != "0" {
		t.Errorf("%s rows", got)
	}
	if got := s.Executions(); got != 1 {
		t.Errorf("the query ran %d times", got)
	}
}

func commitHint(err error) string { return " " + hint(err) }

// TestFlightSQLCancel: who cancels a job cancels the engine's query.
func TestFlightSQLCancel(t *testing.T) {
	began := make(chan struct{}, 100)
	s := &flightsqltest.Server{Endpoints: 3, Rows: 5, Pace: func(ctx context.Context, _ flightsqltest.Reading, _ int) {
		began <- struct{}{}
		<-ctx.Done()
	}}
	c := engines(t, map[string]config.FlightSource{"engine": {URI: serve(t, s)}})
	res, err := c.Execute(t.Context(), client.Statement{SQL: "SELECT n FROM flight_sql('engine', 'q')"})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	if _, _, err := res.Job.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, s, "a cancelled query", func() bool { return len(s.Cancelled()) == 1 })
	// One whose query the engine still runs.
	blocked := &flightsqltest.Server{Polls: -1, Block: make(chan struct{})}
	c = engines(t, map[string]config.FlightSource{"engine": {URI: serve(t, blocked)}})
	if res, err = c.Execute(t.Context(), client.Statement{SQL: "SELECT n FROM flight_sql('engine', 'q')"}); err != nil {
		t.Fatal(err)
	}
	await(t, blocked, "a query", func() bool { return len(blocked.Queries()) == 1 })
	if _, st, err := res.Job.Cancel(t.Context()); err != nil || st.State != "cancelled" {
		t.Errorf("got %v, %v", st.State, err)
	}
	await(t, blocked, "the end of the call", func() bool { return blocked.Left() == 1 })
}
