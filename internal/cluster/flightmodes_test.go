package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/flightsql/flightsqltest"
)

// TestFlightSQLKeepsTickets: tickets that end before their turn comes are renewed, so
// that the query runs once.
func TestFlightSQLKeepsTickets(t *testing.T) {
	const endpoints = 12
	s := &flightsqltest.Server{Endpoints: endpoints, Rows: 10, Expire: 3 * time.Second, Renews: true}
	s.Pace = func(ctx context.Context, r flightsqltest.Reading, _ int) {
		// By the third renewal those tickets would have ended that nobody renewed.
		_ = s.Await(ctx, func() bool { return s.Renewed() >= 3*endpoints })
	}
	c := engines(t, map[string]config.FlightSource{"engine": {URI: serve(t, s)}})
	if got := ask(t, c, "SELECT count(*) FROM (SELECT n FROM flight_sql('engine', 'q'))"); got != "120" {
		t.Errorf("got %s", got)
	}
	must(t, c, "CREATE NAMESPACE lake.air")
	must(t, c, "CREATE TABLE lake.air.t (n BIGINT, execution BIGINT)")
	must(t, c, "INSERT INTO lake.air.t SELECT n, execution FROM flight_sql('engine', 'q')")
	whole(t, c, "lake.air.t", 120)
	if got := s.Executions(); got != 2 {
		t.Errorf("%d executions of two statements", got)
	}
}

// TestFlightSQLOverTLS: with the right authority the rows come; with the system's, or
// without TLS on either side, a hint says what to look at. The password goes to the
// engine once.
func TestFlightSQLOverTLS(t *testing.T) {
	s := &flightsqltest.Server{Endpoints: 3, Rows: 10, User: "u", Password: "canary"}
	addr, ca, stop, err := s.StartTLS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	plain := serve(t, &flightsqltest.Server{Endpoints: 1, Rows: 10})
	alone := &flightsqltest.Server{Endpoints: 3, Rows: 10}
	aloneAddr, aloneCA, stop, err := alone.StartTLS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	login := config.Properties{"username": "u", "password": "canary"}
	c := engines(t, map[string]config.FlightSource{
		"good":   {URI: "grpc+tls://" + addr, Properties: config.Properties{"username": "u", "password": "canary", "ca": string(ca)}},
		"system": {URI: "grpc+tls://" + addr, Properties: login},
		"plain":  {URI: "grpc://" + addr, Properties: login},
		"tls":    {URI: "grpc+tls://" + strings.TrimPrefix(plain, "grpc://")},
		"alone":  {URI: "grpc+tls://" + aloneAddr, Properties: config.Properties{"ca": string(aloneCA)}},
		"no ca":  {URI: "grpc+tls://" + addr, Properties: config.Properties{"ca": "nothing"}},
	})
	for range 2 {
		if got := ask(t, c, "SELECT count(*) FROM flight_sql('good', 'q')"); got != "30" {
			t.Errorf("got %s", got)
		}
	}
	if got := s.Logins(); got != 1 {
		t.Errorf("%d logins", got)
	}
	s.EndSessions()
	if got := ask(t, c, "SELECT count(*) FROM flight_sql('good', 'q')"); got != "30" {
		t.Errorf("got %s", got)
	}
	// By the address of an entry.
	must(t, c, "CREATE NAMESPACE lake.air")
	must(t, c, "CREATE TABLE lake.air.t (execution BIGINT, n BIGINT)")
	must(t, c, "INSERT INTO lake.air.t SELECT execution, n FROM flight_sql('grpc+tls://"+aloneAddr+"', $$SELECT 'it''s' FROM flights$$)")
	whole(t, c, "lake.air.t", 30)
	for source, code := range map[string]commit.Code{"system": commit.CodeFlightUnavailable, "plain": commit.CodeFlightUnavailable, "tls": commit.CodeFlightUnavailable, "no ca": commit.CodeConfig} {
		err := run(t, c, "SELECT * FROM flight_sql('"+source+"', 'q')")
		if commit.CodeOf(err) != code || strings.Contains(fmt.Sprint(err), "canary") {
			t.Errorf("%s: got %v, want %s", source, err, code)
		}
	}
}

// embedded starts a lake in this process, and a client.
func embedded(t *testing.T, dir string) *client.Client {
	t.Helper()
	l, err := cluster.Start(t.Context(), cluster.Config{Dir: dir, SlotsPerExecutor: 2, Memory: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, l.Close(context.WithoutCancel(t.Context()))) })
	c, err := client.Dial(t.Context(), l.Addr(), client.WithToken(l.Token()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, c.Close()) })
	return c
}

// TestFlightSQLEmbedded: in one process every address may be named, and a source's
// secret may be where the statement says.
func TestFlightSQLEmbedded(t *testing.T) {
	dir := t.TempDir()
	s := &flightsqltest.Server{Endpoints: 3, Rows: 10, Token: "canary-token"}
	uri, open := serve(t, s), serve(t, &flightsqltest.Server{Endpoints: 3, Rows: 10})
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("canary-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := embedded(t, filepath.Join(dir, "lake"))
	if got := ask(t, c, "SELECT sum(n) FROM flight_sql('"+open+"', 'q')"); got != "435" {
		t.Errorf("got %s", got)
	}
	if err := run(t, c, "SELECT * FROM flight_sql('"+uri+"', 'q')"); commit.CodeOf(err) != commit.CodeFlightAuth {
		t.Errorf("got %v", err)
	}
	must(t, c, "CREATE SOURCE mine WITH (type = 'flight_sql', uri = '"+uri+"', token_file = '"+token+"')")
	if err := run(t, c, "CREATE SOURCE other WITH (type = 'flight_sql', uri = '"+uri+"', token = 'canary-token')"); commit.CodeOf(err) != commit.CodeFlightSource {
		t.Errorf("got %v", err)
	}
	if got := ask(t, c, "SELECT count(*) FROM flight_sql('mine', 'q')"); got != "30" {
		t.Errorf("got %s", got)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "lake", "sources.json"))
	if err != nil || strings.Contains(string(raw), "canary") || !strings.Contains(string(raw), token) {
		t.Errorf("kept %s, %v", raw, err)
	}
}

// TestFlightSQLPipelined: rows come while parts are still read.
func TestFlightSQLPipelined(t *testing.T) {
	s := &flightsqltest.Server{Endpoints: 5, Rows: 100}
	c := engines(t, map[string]config.FlightSource{"engine": {URI: serve(t, s)}})
	res, err := c.Execute(t.Context(), client.Statement{SQL: "SELECT n FROM flight_sql('engine', 'q')", Mode: client.ModePipelined})
	if err != nil {
		t.Fatal(err)
	}
	rows := int64(0)
	for b, err := range res.Rows(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		rows += b.NumRows()
	}
	if rows != 500 {
		t.Errorf("%d rows", rows)
	}
}

// TestFlightSQLCached: a frame of an engine's rows is refused, before they are read, and
// the engine is told.
func TestFlightSQLCached(t *testing.T) {
	s := &flightsqltest.Server{Endpoints: 8, Rows: 100}
	c := engines(t, map[string]config.FlightSource{"engine": {URI: serve(t, s)}})
	_, err := c.Cache(t.Context(), client.Statement{SQL: "SELECT n, execution FROM flight_sql('engine', 'q')"}, client.CacheOptions{})
	if commit.CodeOf(err) != commit.CodeFrameQuery {
		t.Errorf("got %v", err)
	}
	await(t, s, "the end of the query", func() bool { return len(s.Cancelled()) == 1 })
}
