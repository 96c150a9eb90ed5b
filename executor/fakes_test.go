package executor_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/executor"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sinks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scheduler is a fake one. Hooks may be set before an executor starts.
type scheduler struct {
	firnpb.UnimplementedSchedulerServiceServer
	addr     string
	signer   *wire.Signer
	public   ed25519.PublicKey
	dispatch string
	// onReport decides about one ReportStatus; nil acknowledges all.
	onReport func(*firnpb.ReportStatusRequest) (*firnpb.ReportStatusResponse, error)
	// onRegister may refuse.
	onRegister func(*firnpb.RegisterRequest) error
	// onHeartbeat answers heartbeats; nil knows everyone.
	onHeartbeat func(*firnpb.HeartbeatRequest) *firnpb.HeartbeatResponse
	allow       []string

	mu sync.Mutex
	// seen are all statuses; more is closed when there is another.
	seen []*firnpb.TaskStatus
	more chan struct{}

	registrations chan *firnpb.RegisterRequest
	statuses      chan *firnpb.TaskStatus
	heartbeats    chan *firnpb.HeartbeatRequest
	work          chan *firnpb.TaskDefinition
}

func newScheduler(t testing.TB, dispatch string) *scheduler {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &scheduler{
		signer: wire.NewSigner(priv), public: pub, dispatch: dispatch,
		registrations: make(chan *firnpb.RegisterRequest, 100), statuses: make(chan *firnpb.TaskStatus, 1000),
		more: make(chan struct{}), heartbeats: make(chan *firnpb.HeartbeatRequest, 1000), work: make(chan *firnpb.TaskDefinition, 100),
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	g := grpc.NewServer(wire.ServerOptions()...)
	firnpb.RegisterSchedulerServiceServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		<-done
	})
	return s
}

func (s *scheduler) Register(_ context.Context, r *firnpb.RegisterRequest) (*firnpb.RegisterResponse, error) {
	if s.onRegister != nil {
		if err := s.onRegister(r); err != nil {
			return nil, err
		}
	}
	s.registrations <- r
	return &firnpb.RegisterResponse{
		TicketPublicKey: s.public, HeartbeatMs: 20, Dispatch: s.dispatch, ClusterId: "c", LocalAllow: s.allow,
	}, nil
}

func (s *scheduler) Heartbeat(_ context.Context, r *firnpb.HeartbeatRequest) (*firnpb.HeartbeatResponse, error) {
	select {
	case s.heartbeats <- r:
	default:
	}
	if s.onHeartbeat != nil {
		return s.onHeartbeat(r), nil
	}
	return &firnpb.HeartbeatResponse{Known: true}, nil
}

func (s *scheduler) PollWork(ctx context.Context, r *firnpb.PollWorkRequest) (*firnpb.PollWorkResponse, error) {
	out := &firnpb.PollWorkResponse{Known: true}
	select {
	case t := <-s.work:
		out.Tasks = append(out.Tasks, t)
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	for len(out.GetTasks()) < int(r.GetFreeSlots()) {
		select {
		case t := <-s.work:
			out.Tasks = append(out.Tasks, t)
			continue
		default:
		}
		break
	}
	return out, nil
}

func (s *scheduler) ReportStatus(_ context.Context, r *firnpb.ReportStatusRequest) (*firnpb.ReportStatusResponse, error) {
	resp := &firnpb.ReportStatusResponse{Known: true}
	for _, st := range r.GetStatuses() {
		resp.AcknowledgedAttempts = append(resp.AcknowledgedAttempts, st.GetAttemptId())
	}
	var err error
	if s.onReport != nil {
		resp, err = s.onReport(r)
	}
	s.mu.Lock()
	s.seen = append(s.seen, r.GetStatuses()...)
	close(s.more)
	s.more = make(chan struct{})
	s.mu.Unlock()
	for _, st := range r.GetStatuses() {
		s.statuses <- st
	}
	return resp, err
}

// await gives the first status that fits, now or later.
func (s *scheduler) await(t *testing.T, fits func(*firnpb.TaskStatus) bool) *firnpb.TaskStatus {
	t.Helper()
	for {
		s.mu.Lock()
		i := slices.IndexFunc(s.seen, fits)
		if i >= 0 {
			defer s.mu.Unlock()
			return s.seen[i]
		}
		more := s.more
		s.mu.Unlock()
		select {
		case <-more:
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}

// wait gives the first status of an attempt that isn't "running".
func (s *scheduler) wait(t *testing.T, attempt string) *firnpb.TaskStatus {
	t.Helper()
	return s.await(t, func(st *firnpb.TaskStatus) bool { return st.GetAttemptId() == attempt && st.GetState() != "running" })
}

// started waits until attempts reported that they run.
func (s *scheduler) started(t *testing.T, attempts ...string) {
	t.Helper()
	for _, a := range attempts {
		s.await(t, func(st *firnpb.TaskStatus) bool { return st.GetAttemptId() == a && st.GetState() == "running" })
	}
}

// engine is a fake query engine; the SQL says what it does:
//
//	rows N      N rows with the numbers 0 to N-1
//	block       nothing until the context ends
//	panic       panics
//	fail CODE   a *commit.Error of that code
//	reject N    one row and N rejects
type engine struct {
	cfg    executor.EngineConfig
	closed func()
	probed func(context.Context) (plan.ProbeResult, error)
}

func (e *engine) Probe(ctx context.Context, _ plan.ProbeRequest) (plan.ProbeResult, error) {
	return e.probed(ctx)
}

func (e *engine) Close() error {
	e.closed()
	return nil
}

var numbers = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)

func (e *engine) Query(_ context.Context, q *plan.Query, t executor.TaskInfo) (executor.Rows, error) {
	verb, arg, _ := strings.Cut(q.SQL, " ")
	r := &fakeRows{}
	switch verb {
	case "rows":
		if _, err := fmt.Sscan(arg, &r.left); err != nil {
			return nil, err
		}
	case "block":
		r.block = true
	case "panic":
		panic("the engine broke")
	case "fail":
		return nil, &commit.Error{Code: commit.Code(arg), Op: "run", Object: "query"}
	case "reject":
		r.left = 1
		if _, err := fmt.Sscan(arg, &r.rejected); err != nil {
			return nil, err
		}
	case "upload":
		in, err := t.Kept(context.Background(), []plan.ShuffleLocation{q.Sources[0].Upload.Location})
		if err != nil {
			return nil, err
		}
		return &uploadRows{in}, nil
	}
	return r, nil
}

type uploadRows struct{ executor.Batches }

func (*uploadRows) Rejects() (int64, []string) { return 0, nil }

type fakeRows struct {
	next, left int64
	block      bool
	rejected   int64
}

func (*fakeRows) Schema() *arrow.Schema { return numbers }
func (*fakeRows) Close() error          { return nil }
func (r *fakeRows) Rejects() (int64, []string) {
	if r.rejected == 0 {
		return 0, nil
	}
	return r.rejected, []string{"x.csv:3: not a number"}
}

func (r *fakeRows) Next(ctx context.Context) (arrow.RecordBatch, error) {
	if r.block {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if r.left == 0 {
		return nil, io.EOF
	}
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	for range min(r.left, 1000) {
		b.Append(r.next)
		r.next++
		r.left--
	}
	a := b.NewArray()
	defer a.Release()
	return array.NewRecordBatch(numbers, []arrow.Array{a}, int64(a.Len())), nil
}

// driver is a fake table format: a data file holds a line for each batch.
type driver struct{}

func (driver) Bind(c sinks.Context) (sinks.Layout, error) {
	if string(c.SchemaJSON) == "bad" {
		return nil, errors.New("bad schema")
	}
	return layout{}, nil
}

type layout struct{}

func (layout) Limits() sinks.Limits {
	return sinks.Limits{RowGroupBytes: 1 << 20, RowGroupRows: 1 << 20}
}

func (layout) Split(b arrow.RecordBatch) (sinks.Split, error) {
	b.Retain()
	return sinks.Split{Batch: b, Parts: []sinks.Part{{From: 0, To: b.NumRows()}}}, nil
}

func (layout) Encode(w io.Writer, _ sinks.Partition) (sinks.Encoder, error) {
	return &encoder{w: w}, nil
}

type encoder struct {
	w    io.Writer
	rows int64
}

func (e *encoder) Write(b arrow.RecordBatch) error {
	if e.rows += b.NumRows(); e.rows == 4321 {
		panic("the encoder broke")
	}
	return nil
}

func (e *encoder) WriteRowGroup(b arrow.RecordBatch) error { return e.Write(b) }

func (e *encoder) Flush() error {
	_, err := fmt.Fprintf(e.w, "%d rows\n", e.rows)
	return err
}

func (e *encoder) Finish() (commit.File, error) {
	return commit.File{Format: "PARQUET", Rows: e.rows}, e.Flush()
}

// harness is an executor with its fakes.
type harness struct {
	*executor.Executor
	*scheduler
	control firnpb.ExecutorServiceClient
	dir     string

	lock    sync.Mutex
	engines []*engine
	closed  int
	probed  func(context.Context) (plan.ProbeResult, error)
}

func (h *harness) newEngine(cfg executor.EngineConfig) (executor.Engine, error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	e := &engine{cfg: cfg, probed: h.probed, closed: func() {
		h.lock.Lock()
		defer h.lock.Unlock()
		h.closed++
	}}
	h.engines = append(h.engines, e)
	return e, nil
}

func (h *harness) config() executor.Config {
	return executor.Config{
		Server: h.addr, Dir: h.dir, Slots: 2, Engines: h.newEngine, Sinks: map[string]sinks.Driver{"fake": driver{}},
		Logger: slog.New(slog.DiscardHandler),
	}
}

// start starts an executor against a fake scheduler.
func start(t testing.TB, s *scheduler, change func(*executor.Config)) *harness {
	t.Helper()
	h := &harness{scheduler: s, dir: t.TempDir()}
	cfg := h.config()
	if change != nil {
		change(&cfg)
	}
	var err error
	if h.Executor, err = executor.New(cfg); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+h.Addr(), append(wire.DialOptions(), grpc.WithPerRPCCredentials(wire.NewControlCredentials(s.signer, h.ID())))...)
	if err != nil {
		t.Fatal(err)
	}
	h.control = firnpb.NewExecutorServiceClient(conn)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := errors.Join(conn.Close(), h.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *harness) launch(t testing.TB, tasks ...*firnpb.TaskDefinition) {
	t.Helper()
	if _, err := h.control.LaunchTasks(t.Context(), &firnpb.LaunchTasksRequest{Tasks: tasks}); err != nil {
		t.Fatal(err)
	}
}

// def defines a task of job j-1, stage 1, task 0.
func def(tb testing.TB, attempt string, n plan.Node) *firnpb.TaskDefinition {
	tb.Helper()
	raw, err := plan.Encode(n)
	if err != nil {
		tb.Fatal(err)
	}
	return &firnpb.TaskDefinition{JobId: "j-1", Stage: 1, AttemptId: attempt, Fragment: raw}
}

func query(sql string) *plan.Query { return &plan.Query{SQL: sql} }

func write(tb testing.TB, input plan.Node) (n *plan.Write, dir string) {
	tb.Helper()
	dir = tb.TempDir()
	return &plan.Write{Input: input, Context: plan.WriteContext{Prefix: "file://" + dir + "/j-1/", Layout: plan.Layout{Format: "fake"}}}, dir
}

// location names an output of an attempt of job j-1, stage 1, task 0.
func (h *harness) location(attempt string, output int) plan.ShuffleLocation {
	return plan.ShuffleLocation{
		Job: "j-1", Stage: 1, Attempt: attempt, Output: output, Executor: h.ID(), Address: h.Addr(),
		Ticket: h.signer.Sign(&firnpb.Ticket{
			Purpose: wire.PurposeRead, JobId: "j-1", Stage: 1, AttemptId: attempt, Output: uint32(output),
			ExecutorId: h.ID(), ExpiresUnixMs: time.Now().Add(time.Hour).UnixMilli(),
		}),
	}
}

func (h *harness) probe(t *testing.T) (plan.ProbeResult, error) {
	t.Helper()
	return h.probeFor(t, plan.ProbeRequest{SQL: "SELECT 1"})
}

func (h *harness) probeFor(t *testing.T, req plan.ProbeRequest) (plan.ProbeResult, error) {
	t.Helper()
	raw, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := h.control.Probe(t.Context(), &firnpb.ProbeRequest{Request: raw})
	if err != nil {
		return plan.ProbeResult{}, err
	}
	if resp.GetError() != nil {
		return plan.ProbeResult{}, wire.TaskErrorFromProto(resp.GetError())
	}
	var res plan.ProbeResult
	return res, json.Unmarshal(resp.GetResult(), &res)
}

// acked acknowledges all statuses but those of the attempts named.
func acked(r *firnpb.ReportStatusRequest, but ...string) *firnpb.ReportStatusResponse {
	resp := &firnpb.ReportStatusResponse{Known: true}
	for _, st := range r.GetStatuses() {
		if !slices.Contains(but, st.GetAttemptId()) {
			resp.AcknowledgedAttempts = append(resp.AcknowledgedAttempts, st.GetAttemptId())
		}
	}
	return resp
}

var errDown = status.Error(codes.Unavailable, "down")
