package cluster_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/flightsql/flightsqltest"
)

// TestFlightSQLBesideAFrame: an engine's query that a job reads beside a cached frame
// runs again as any other does, when what it gave is gone.
func TestFlightSQLBesideAFrame(t *testing.T) {
	s := &flightsqltest.Server{Endpoints: 3, Rows: 10, SingleUse: true, Get: func(r flightsqltest.Reading) (int, error) {
		if r.Execution == 1 && r.Endpoint == 1 {
			return 0, status.Error(codes.NotFound, "no such ticket")
		}
		return -1, nil
	}}
	c := engines(t, map[string]config.FlightSource{"engine": {URI: serve(t, s)}})
	f, err := c.Cache(t.Context(), client.Statement{SQL: "SELECT unnest([1, 2, 3]) AS n"}, client.CacheOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, c, "SELECT count(*), max(execution) FROM "+f.Name()+" JOIN flight_sql('engine', 'q') AS q USING (n)"); got != "3 2" {
		t.Errorf("rows and execution are %s", got)
	}
}
