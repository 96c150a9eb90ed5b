package client_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a scheduler and an executor behind one listener, whose answers the
// test sets.
type fake struct {
	firnpb.UnimplementedClientServiceServer
	flight.BaseFlightServer

	addr    string
	execute func(*firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error)
	watch   func(*firnpb.JobRequest, grpc.ServerStreamingServer[firnpb.JobStatus]) error
	get     func(*firnpb.JobRequest) (*firnpb.JobStatus, error)
	cancel  func(*firnpb.JobRequest) (*firnpb.CancelJobResponse, error)
	list    func(*firnpb.ListJobsRequest) (*firnpb.ListJobsResponse, error)
	// partitions by ticket.
	partitions map[string][]arrow.RecordBatch
	putError   error

	mu                sync.Mutex
	executed          []*firnpb.ExecuteRequest
	uploaded          []arrow.RecordBatch
	putBegun, putDone chan struct{}
}

// serve starts the fake and a client of it; both end with the test.
func (f *fake) serve(t *testing.T, opts ...client.Option) *client.Client {
	t.Helper()
	return f.serveAs(t, f, opts...)
}

// serveAs is serve with a scheduler that answers more.
func (f *fake) serveAs(t *testing.T, as firnpb.ClientServiceServer, opts ...client.Option) *client.Client {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	firnpb.RegisterClientServiceServer(srv, as)
	flight.RegisterFlightServiceServer(srv, f)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(lis) // Stop ends it
	}()
	f.addr, f.putBegun, f.putDone = lis.Addr().String(), make(chan struct{}, 1), make(chan struct{}, 1)
	c, err := client.Dial(t.Context(), f.addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		srv.Stop()
		<-served
	})
	return c
}

func (f *fake) Execute(_ context.Context, req *firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error) {
	f.mu.Lock()
	f.executed = append(f.executed, req)
	f.mu.Unlock()
	return f.execute(req)
}

func (f *fake) WatchJob(req *firnpb.JobRequest, s grpc.ServerStreamingServer[firnpb.JobStatus]) error {
	return f.watch(req, s)
}

func (f *fake) GetJob(_ context.Context, req *firnpb.JobRequest) (*firnpb.JobStatus, error) {
	return f.get(req)
}

func (f *fake) CancelJob(_ context.Context, req *firnpb.JobRequest) (*firnpb.CancelJobResponse, error) {
	return f.cancel(req)
}

func (f *fake) OpenUpload(context.Context, *firnpb.OpenUploadRequest) (*firnpb.OpenUploadResponse, error) {
	return &firnpb.OpenUploadResponse{UploadId: `u"1`, Address: f.addr, Ticket: []byte("put")}, nil
}

func (f *fake) DoGet(t *flight.Ticket, s flight.FlightService_DoGetServer) error {
	batches, ok := f.partitions[string(t.GetTicket())]
	if !ok {
		return status.Error(codes.NotFound, "gone")
	}
	w := flight.NewRecordWriter(s, ipc.WithSchema(batches[0].Schema()))
	for _, b := range batches {
		if err := w.Write(b); err != nil {
			return err
		}
	}
	return w.Close()
}

func (f *fake) DoPut(s flight.FlightService_DoPutServer) error {
	f.putBegun <- struct{}{}
	defer func() { f.putDone <- struct{}{} }()
	if f.putError != nil {
		return f.putError
	}
	r, err := flight.NewRecordReader(s)
	if err != nil {
		return err
	}
	defer r.Release()
	if string(r.LatestFlightDescriptor().GetCmd()) != "put" {
		return status.Error(codes.PermissionDenied, "no ticket")
	}
	var got []arrow.RecordBatch
	for {
		b, err := r.Read()
		if err == io.EOF { //nolint:errorlint // the stream's own
			break
		}
		if err != nil {
			return err
		}
		b.Retain()
		got = append(got, b)
	}
	f.mu.Lock()
	f.uploaded = got
	f.mu.Unlock()
	return s.Send(&flight.PutResult{})
}

// ints makes a batch with one column.
func ints(values ...int64) arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(values, nil)
	return b.NewRecordBatch()
}

// done is the status of a job that has ended.
func done(state string) *firnpb.JobStatus {
	return &firnpb.JobStatus{JobId: "j-1", State: state, Revision: 9}
}

// statuses answers a watch with a fixed list.
func statuses(list ...*firnpb.JobStatus) func(*firnpb.JobRequest, grpc.ServerStreamingServer[firnpb.JobStatus]) error {
	return func(_ *firnpb.JobRequest, s grpc.ServerStreamingServer[firnpb.JobStatus]) error {
		for _, p := range list {
			if err := s.Send(p); err != nil {
				return err
			}
		}
		return nil
	}
}

func (f *fake) ListJobs(_ context.Context, r *firnpb.ListJobsRequest) (*firnpb.ListJobsResponse, error) {
	return f.list(r)
}
