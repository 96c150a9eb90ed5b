package cluster_test

import (
	"os"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/example"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/config"
)

// TestFlightSQLOfArrow: the example server of Arrow's Go library, over SQLite. It runs
// a query when its ticket is shown, and knows neither polls nor renewals.
func TestFlightSQLOfArrow(t *testing.T) {
	db, err := example.CreateDB()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, db.Close()) })
	// A SQLite database in memory is its connection's.
	db.SetMaxOpenConns(1)
	srv, err := example.NewSQLiteFlightSQLServer(db)
	if err != nil {
		t.Fatal(err)
	}
	server := flight.NewServerWithMiddleware(nil)
	server.RegisterFlightService(flightsql.NewFlightServer(srv))
	if err := server.Init("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	t.Cleanup(func() {
		server.Shutdown()
		check(t, <-served)
	})
	c := engines(t, map[string]config.FlightSource{"sqlite": {URI: "grpc://" + server.Addr().String()}})
	const all = "one 1 1\nzero 0 1\nnegative one -1 1\n(null) (null) (null)"
	if got := ask(t, c, `SELECT "keyName", value, "foreignId" FROM flight_sql('sqlite', $$SELECT * FROM intTable$$)`); got != all {
		t.Errorf("got %s", got)
	}
	must(t, c, "CREATE NAMESPACE lake.air")
	must(t, c, "CREATE TABLE lake.air.t (k STRING, v BIGINT)")
	must(t, c, `INSERT INTO lake.air.t SELECT upper("keyName"), value * 10 FROM flight_sql('sqlite', $$SELECT keyName, value FROM intTable WHERE value IS NOT NULL$$) WHERE value <> 0`)
	if got := ask(t, c, "SELECT k, v FROM lake.air.t ORDER BY v"); got != "NEGATIVE ONE -10\nONE 10" {
		t.Errorf("got %s", got)
	}
	if got := ask(t, c, `SELECT count(*) FROM flight_sql('sqlite', $$SELECT * FROM intTable$$) a JOIN flight_sql('sqlite', $$SELECT id, foreignName FROM foreignTable$$) b ON a."foreignId" = b.id`); got != "3" {
		t.Errorf("got %s", got)
	}
	err = run(t, c, "SELECT * FROM flight_sql('sqlite', $$SELECT nope FROM intTable$$)")
	if commit.CodeOf(err) != commit.CodeFlightQuery {
		t.Errorf("got %v", err)
	}
	// The statement of the how-to page, in one process and by the address.
	page, err := os.ReadFile("../../docs/how-to/flight-sql.md")
	if err != nil {
		t.Fatal(err)
	}
	_, statement, _ := strings.Cut(string(page), `firn sql --dir lake -c "`)
	statement, _, _ = strings.Cut(strings.ReplaceAll(statement, `\$`, "$"), "\"\n")
	const there = "localhost:31337"
	if !strings.Contains(statement, there) {
		t.Fatalf("the page's statement is %q", statement)
	}
	got := ask(t, embedded(t, t.TempDir()), strings.ReplaceAll(statement, there, server.Addr().String()))
	if want := "1 one 1 1\n2 zero 0 1\n3 negative one -1 1\n4 (null) (null) (null)"; got != want {
		t.Errorf("%s: got %s", statement, got)
	}
}
