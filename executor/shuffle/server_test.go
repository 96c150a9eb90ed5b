package shuffle_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/executor/shuffle"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

func TestTicketsAreChecked(t *testing.T) {
	e := newExecutor(t, "e-1")
	e.write(t, shuffle.WriterOptions{}, batch(t, 0, 3))
	stranger := newExecutor(t, "e-1")
	cases := map[string]struct {
		ticket []byte
		want   codes.Code
	}{
		"good":             {e.ticket(nil), codes.OK},
		"none":             {nil, codes.PermissionDenied},
		"forged":           {stranger.ticket(nil), codes.PermissionDenied},
		"expired":          {e.ticket(func(k *firnpb.Ticket) { k.ExpiresUnixMs = time.Now().UnixMilli() - 1 }), codes.PermissionDenied},
		"other purpose":    {e.ticket(func(k *firnpb.Ticket) { k.Purpose = wire.PurposeUpload }), codes.PermissionDenied},
		"path as job":      {e.ticket(func(k *firnpb.Ticket) { k.JobId = "../shuffle/j-1" }), codes.PermissionDenied},
		"path as attempt":  {e.ticket(func(k *firnpb.Ticket) { k.AttemptId = "../a-1" }), codes.PermissionDenied},
		"another executor": {e.ticket(func(k *firnpb.Ticket) { k.ExecutorId = "e-2" }), codes.NotFound},
		"another attempt":  {e.ticket(func(k *firnpb.Ticket) { k.AttemptId = "a-2" }), codes.NotFound},
		"another output":   {e.ticket(func(k *firnpb.Ticket) { k.Output = 7 }), codes.NotFound},
	}
	conn, err := grpc.NewClient("passthrough:///"+e.addr, wire.DialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			get, err := flight.NewClientFromConn(conn, nil).DoGet(t.Context(), &flight.Ticket{Ticket: c.ticket})
			if err != nil {
				t.Fatal(err)
			}
			_, err = get.Recv()
			if status.Code(err) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if c.want == codes.PermissionDenied && status.Convert(err).Message() != wire.ErrTicket.Error() {
				t.Errorf("the answer tells why: %v", err)
			}
		})
	}
	loc := e.location(0)
	loc.Ticket = stranger.ticket(nil)
	e.source.AlwaysRemote = true
	if _, _, err := read(t, e.source, loc); commit.CodeOf(err) != commit.CodeTicketRefused || isLost(err) {
		t.Errorf("a refused ticket reads as %v", err)
	}
}

// put uploads batches with a ticket.
func put(t *testing.T, e *executor, ticket []byte, batches ...arrow.RecordBatch) (shuffle.PutResult, error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+e.addr, wire.DialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := flight.NewClientFromConn(conn, nil).DoPut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := flight.NewRecordWriter(stream, ipc.WithSchema(schema))
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: ticket})
	for _, b := range batches {
		if err := w.Write(b); err != nil {
			break // the reason comes with Recv
		}
	}
	if len(batches) == 0 {
		empty := batch(t, 0, 0)
		_ = w.Write(empty)
	}
	_ = w.Close()
	_ = stream.CloseSend()
	var res shuffle.PutResult
	got, err := stream.Recv()
	if err != nil {
		return res, err
	}
	return res, json.Unmarshal(got.GetAppMetadata(), &res)
}

func TestUpload(t *testing.T) {
	e := newExecutor(t, "e-1")
	upload := func(k *firnpb.Ticket) {
		k.Purpose, k.JobId, k.Stage, k.Task, k.AttemptId = wire.PurposeUpload, "u-1", 0, 0, "up"
	}
	in := []arrow.RecordBatch{batch(t, 0, 10), batch(t, 10, 40)}
	res, err := put(t, e, e.ticket(upload), in...)
	if err != nil || res.Rows != 40 || res.Bytes == 0 {
		t.Fatalf("got %+v, %v", res, err)
	}
	loc := plan.ShuffleLocation{
		Job: "u-1", Attempt: "up", Executor: "e-1", Address: e.addr,
		Ticket: e.ticket(func(k *firnpb.Ticket) { upload(k); k.Purpose = wire.PurposeRead }),
	}
	got, _, err := read(t, e.source, loc)
	if err != nil || !slices.Equal(got, append(rows(t, in[0]), rows(t, in[1])...)) {
		t.Errorf("%d rows, %v", len(got), err)
	}
	if _, err := put(t, e, e.ticket(upload), in[0]); commit.CodeOf(wire.FromStatus(err)) != commit.CodeUploadExists {
		t.Errorf("putting it twice: %v", err)
	}
	if _, err := put(t, e, e.ticket(nil), in[0]); status.Code(err) != codes.PermissionDenied {
		t.Errorf("with a read ticket: %v", err)
	}
	if _, err := put(t, e, nil, in[0]); status.Code(err) != codes.PermissionDenied {
		t.Errorf("without a ticket: %v", err)
	}
}

func TestBrokenUploadLeavesNothing(t *testing.T) {
	e := newExecutor(t, "e-1")
	conn, err := grpc.NewClient("passthrough:///"+e.addr, wire.DialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := flight.NewClientFromConn(conn, nil).DoPut(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w := flight.NewRecordWriter(stream, ipc.WithSchema(schema))
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: e.ticket(func(k *firnpb.Ticket) { k.Purpose = wire.PurposeUpload })})
	if err := w.Write(batch(t, 0, 3000)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("got %v", err)
	}
	// Stop waits for the call to end.
	e.grpc.GracefulStop()
	left, err := filepath.Glob(filepath.Join(e.dir, "shuffle/*/*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	// Nor in memory: the ticket is good for another upload.
	if _, err := e.store.NewWriter(attempt, schema, shuffle.WriterOptions{}); err != nil {
		t.Error(err)
	}
}

func TestBeforeRegistrationNothingIsServed(t *testing.T) {
	s := shuffle.NewServer(shuffle.NewStore(t.TempDir(), 0), "e-1", false, slog.New(slog.DiscardHandler))
	if err := s.DoGet(&flight.Ticket{}, nil); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}
