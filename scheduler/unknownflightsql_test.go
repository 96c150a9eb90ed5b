package scheduler

import (
	"log/slog"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/scheduler/flightsqlserver"
)

// A Flight SQL client is told that a commit isn't proven, can't cancel it, and gets the
// one commit's report under the same key when it was found.
func TestUnknownOverFlightSQL(t *testing.T) {
	h, id := leaveUnknown(t)
	door, err := flightsqlserver.Start(t.Context(), flightsqlserver.Config{
		Listen: "127.0.0.1:0", Scheduler: h.s, Authenticate: h.s.cfg.Authenticate, Logger: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	defer func() { must(t, door.Close(t.Context())) }()
	c, err := flightsql.NewClient(door.Addr(), nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer c.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), flightsqlserver.HeaderKey, "k")
	_, err1 := c.ExecuteUpdate(ctx, insert)
	_, err2 := c.Execute(ctx, insert)
	_, err3 := c.ExecutePoll(ctx, insert, nil)
	for _, err := range []error{err1, err2, err3} {
		if status.Code(err) != codes.Unknown || commit.CodeOf(wire.FromStatus(err)) != commit.CodeUnknown {
			t.Errorf("%v", err)
		}
	}
	r, err := c.CancelFlightInfo(t.Context(), &flight.CancelFlightInfoRequest{Info: &flight.FlightInfo{AppMetadata: []byte(id)}})
	if err != nil || r.GetStatus() != flight.CancelStatusNotCancellable {
		t.Errorf("cancel: %v, %v", r, err)
	}
	h.catalogs.table.Deliver()
	h.s.resolveUnits(t.Context())
	wantOnce(t, h, id)
	if n, err := c.ExecuteUpdate(ctx, insert); err != nil || n != 10*parts {
		t.Errorf("%d, %v", n, err)
	}
	wantOnce(t, h, id)
}
