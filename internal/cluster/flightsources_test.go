package cluster

import (
	"reflect"
	"testing"
	"time"

	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/flightsql"
)

// TestFlightSourcesOfTheFile: what the file says of an engine is what reaches it.
func TestFlightSourcesOfTheFile(t *testing.T) {
	r, err := openFlightSources(SchedulerConfig{Dir: t.TempDir(), FlightSources: map[string]config.FlightSource{"e": {
		URI: "grpc://10.0.0.1:1", Properties: map[string]string{"token": "canary", "ca": "pem", "header.x-tenant": "air"},
		Locations: []string{"10.0.0.2:*"}, ReadTimeout: time.Minute, AllowPlaintext: true,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	want := flightsql.Access{
		Name: "e", URI: "grpc://10.0.0.1:1", Authorization: "Bearer canary", Headers: map[string]string{"x-tenant": "air"}, CA: []byte("pem"),
		Locations: []string{"10.0.0.2:*"}, ReadTimeout: time.Minute, AllowPlaintext: true,
	}
	if a, err := r.Access(t.Context(), "e", ""); err != nil || !reflect.DeepEqual(a, want) {
		t.Errorf("%v: got %+v", err, a)
	}
}
