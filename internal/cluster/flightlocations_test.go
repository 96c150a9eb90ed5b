package cluster_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/flightsql/flightsqltest"
)

// worker is a place where an engine's rows are. fails says for each stream after how
// many batches it fails, and with what.
type worker struct {
	fails func(flightsqltest.Reading) (int, error)
	asked atomic.Int64
}

func always(after int, code codes.Code, words string) func(flightsqltest.Reading) (int, error) {
	return func(flightsqltest.Reading) (int, error) { return after, status.Error(code, words) }
}

// withWorkers starts a cluster and an engine whose every endpoint has the workers as its
// locations.
func withWorkers(t *testing.T, s *flightsqltest.Server, workers ...*worker) *client.Client {
	t.Helper()
	var uris []string
	for _, w := range workers {
		uris = append(uris, serve(t, &flightsqltest.Server{Of: s, Rows: s.Rows, BatchRows: s.BatchRows, Get: func(r flightsqltest.Reading) (int, error) {
			w.asked.Add(1)
			if w.fails == nil {
				return 0, nil
			}
			return w.fails(r)
		}}))
	}
	s.Locations = func(int) []string { return uris }
	c := engines(t, map[string]config.FlightSource{"engine": {URI: serve(t, s), Locations: []string{"127.0.0.1:*"}}})
	must(t, c, "CREATE NAMESPACE lake.air")
	must(t, c, "CREATE TABLE lake.air.t (execution BIGINT, n BIGINT)")
	return c
}

// TestFlightSQLLocations: the next location is read whatever the earlier one does, and
// the rows of both never come together.
func TestFlightSQLLocations(t *testing.T) {
	breaks := always(2, codes.Internal, "a worker died")
	for name, c := range map[string]struct {
		s          *flightsqltest.Server
		workers    []*worker // the last is good
		executions int
		first      int64 // how often the first is asked; 0: as often as may be
	}{
		"the first breaks":                  {&flightsqltest.Server{Endpoints: 3, Rows: 5000}, []*worker{{fails: breaks}, {}}, 1, 3},
		"five break":                        {&flightsqltest.Server{Endpoints: 1, Rows: 5000}, []*worker{{fails: breaks}, {fails: breaks}, {fails: breaks}, {fails: breaks}, {fails: breaks}, {}}, 1, 1},
		"the first sends too much":          {&flightsqltest.Server{Endpoints: 3, Rows: 5000}, []*worker{{fails: always(2, codes.ResourceExhausted, "grpc: received message larger than max (9 vs. 8)")}, {}}, 1, 3},
		"the first serves no rows":          {&flightsqltest.Server{Endpoints: 3, Rows: 5000}, []*worker{{fails: always(0, codes.Unimplemented, "ask my workers")}, {}}, 1, 3},
		"the first isn't for us":            {&flightsqltest.Server{Endpoints: 3, Rows: 5000}, []*worker{{fails: always(0, codes.PermissionDenied, "not yours")}, {}}, 1, 3},
		"the first breaks tickets for once": {&flightsqltest.Server{Endpoints: 3, Rows: 5000, SingleUse: true}, []*worker{{fails: breaks}, {}}, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := withWorkers(t, c.s, c.workers...)
			must(t, cl, "INSERT INTO lake.air.t SELECT execution, n FROM flight_sql('engine', 'q')")
			whole(t, cl, "lake.air.t", c.s.Endpoints*c.s.Rows)
			if got := c.s.Executions(); got != c.executions {
				t.Errorf("%d executions, want %d", got, c.executions)
			}
			if got := c.workers[0].asked.Load(); c.first > 0 && got != c.first {
				t.Errorf("the first location was asked %d times, want %d", got, c.first)
			}
		})
	}
}

// TestFlightSQLLocationsAsAWhole: so does a task that reads all endpoints.
func TestFlightSQLLocationsAsAWhole(t *testing.T) {
	first := &worker{fails: always(2, codes.Internal, "a worker died")}
	c := withWorkers(t, &flightsqltest.Server{Endpoints: 6, Rows: 5000}, first, &worker{})
	must(t, c, "INSERT INTO lake.air.t SELECT execution, n FROM flight_sql('engine', 'q') ORDER BY n DESC")
	whole(t, c, "lake.air.t", 6*5000)
	if got := first.asked.Load(); got != 1 {
		t.Errorf("the first location was asked %d times", got)
	}
}

// TestFlightSQLNoLocation: the error at the end names each location and what it said,
// and nothing is written.
func TestFlightSQLNoLocation(t *testing.T) {
	for name, c := range map[string]struct {
		workers []*worker
		code    commit.Code
		words   []string
	}{
		"all refuse": {[]*worker{{fails: always(0, codes.Unimplemented, "ask my workers")}, {fails: always(0, codes.PermissionDenied, "not yours")}}, commit.CodeFlightAuth, []string{"ask my workers", "not yours"}},
		"all break":  {[]*worker{{fails: always(2, codes.Internal, "a has died")}, {fails: always(3, codes.Internal, "b has died")}}, commit.CodeTaskLimit, []string{"a has died", "b has died"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &flightsqltest.Server{Endpoints: 2, Rows: 5000}
			cl := withWorkers(t, s, c.workers...)
			err := run(t, cl, "INSERT INTO lake.air.t SELECT execution, n FROM flight_sql('engine', 'q')")
			if commit.CodeOf(err) != c.code || s.Executions() != 1 {
				t.Fatalf("%d executions: %v", s.Executions(), err)
			}
			for i, uri := range s.Locations(0) {
				if !strings.Contains(err.Error(), uri+" said ") || !strings.Contains(err.Error(), c.words[i]) {
					t.Errorf("%v doesn't say what %s said", err, uri)
				}
			}
			whole(t, cl, "lake.air.t", 0)
		})
	}
}
