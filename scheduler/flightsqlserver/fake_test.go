package flightsqlserver_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/flightsqlserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake knows the job j-1, which is as its fields say, and answers statements with it.
type fake struct {
	firnpb.UnimplementedClientServiceServer
	// answers are those to statements that begin with a text; others are j-1.
	answers map[string]*firnpb.ExecuteResponse
	// refuse is the error of all statements.
	refuse error
	// changes are what a watcher sees before job; nil for none.
	changes chan *firnpb.JobStatus
	// watchErr ends a watch.
	watchErr error
	cancel   string

	mu        sync.Mutex
	job       *firnpb.JobStatus
	executed  []*firnpb.ExecuteRequest
	cancelled []string
}

func (f *fake) Execute(_ context.Context, r *firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.executed = append(f.executed, r)
	if f.refuse != nil {
		return nil, f.refuse
	}
	for begins, resp := range f.answers {
		if strings.HasPrefix(r.GetSql(), begins) {
			return resp, nil
		}
	}
	return &firnpb.ExecuteResponse{Statement: "INSERT", Job: &firnpb.JobStatus{JobId: "j-1", State: "running", IdempotencyKey: r.GetIdempotencyKey()}}, nil
}

func (f *fake) GetJob(_ context.Context, r *firnpb.JobRequest) (*firnpb.JobStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.GetJobId() != "j-1" {
		return nil, &commit.Error{Code: commit.CodeJobNotFound, Op: "find job", Object: r.GetJobId(), Cause: errors.New("no record"), Hint: "look"}
	}
	return f.job, nil
}

func (f *fake) WatchJob(_ *firnpb.JobRequest, s grpc.ServerStreamingServer[firnpb.JobStatus]) error {
	for f.changes != nil {
		select {
		case st, open := <-f.changes:
			if !open {
				f.changes = nil
				break
			}
			if err := s.Send(st); err != nil {
				return err
			}
		case <-s.Context().Done():
			return context.Cause(s.Context())
		}
	}
	if f.watchErr != nil {
		return f.watchErr
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return s.Send(f.job)
}

func (f *fake) CancelJob(_ context.Context, r *firnpb.JobRequest) (*firnpb.CancelJobResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancelled = append(f.cancelled, r.GetJobId())
	return &firnpb.CancelJobResponse{Answer: f.cancel, Job: f.job}, nil
}

// ran are the statements that were run.
func (f *fake) ran() []*firnpb.ExecuteRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.executed
}

// succeeded is a job that wrote, with its report.
func succeeded(t testing.TB) *firnpb.JobStatus {
	t.Helper()
	raw, err := wire.EncodeReport(commit.Report{JobID: "j-1", Rows: 6, State: commit.CommitCommitted})
	if err != nil {
		t.Fatal(err)
	}
	return &firnpb.JobStatus{
		JobId: "j-1", State: "succeeded", Commit: "committed", InlineResult: raw, Rows: 6,
		Report: &firnpb.CommitReport{Rows: 6, Commit: "committed"}, EndedUnixMs: time.Now().UnixMilli(),
	}
}

// texts are rows of texts.
func texts(t testing.TB, columns []string, rows ...[]string) []byte {
	t.Helper()
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		fields[i] = arrow.Field{Name: c, Type: arrow.BinaryTypes.String, Nullable: true}
	}
	schema := arrow.NewSchema(fields, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for _, row := range rows {
		for i, text := range row {
			b.Field(i).(*array.StringBuilder).Append(text)
		}
	}
	raw, err := wire.EncodeIPC(schema, b.NewRecordBatch())
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// serve starts a server and gives its address.
func serve(t testing.TB, f *fake, edit func(*flightsqlserver.Config)) string {
	t.Helper()
	return start(t, f, edit).Addr()
}

// start starts a server; calls that show something must show the good token.
func start(t testing.TB, f *fake, edit func(*flightsqlserver.Config)) *flightsqlserver.Server {
	t.Helper()
	cfg := flightsqlserver.Config{
		Listen: "127.0.0.1:0", Scheduler: f, Logger: slog.New(slog.DiscardHandler),
		Authenticate: func(ctx context.Context, method string) error {
			if v := metadata.ValueFromIncomingContext(ctx, "authorization"); len(v) > 0 && v[0] != "Bearer good" {
				return &commit.Error{Code: commit.CodeUnauthenticated, Op: "let in", Object: method}
			}
			return nil
		},
	}
	if edit != nil {
		edit(&cfg)
	}
	s, err := flightsqlserver.Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func dial(t testing.TB, address string) *flightsql.Client {
	t.Helper()
	c, err := flightsql.NewClient(address, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close client: %v", err)
		}
	})
	return c
}

// get reads all that an info has, as texts.
func get(t testing.TB, c *flightsql.Client, info *flight.FlightInfo) (rows [][]string, err error) {
	t.Helper()
	for _, end := range info.GetEndpoint() {
		r, err := c.DoGet(t.Context(), end.GetTicket())
		if err != nil {
			return nil, err
		}
		defer r.Release()
		for {
			b, err := r.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return rows, err
			}
			for i := range int(b.NumRows()) {
				row := make([]string, b.NumCols())
				for col := range row {
					row[col] = b.Column(col).ValueStr(i)
				}
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}
