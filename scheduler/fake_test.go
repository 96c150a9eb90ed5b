package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

// fakeExecutor speaks the executor's side of the protocol over real sockets and
// runs nothing: a write task "writes" one file of 10 rows, everything else
// gives one row for each output.
type fakeExecutor struct {
	firnpb.UnimplementedExecutorServiceServer
	flight.BaseFlightServer
	t           testing.TB
	id          string
	incarnation string
	addr        string
	server      *grpc.Server
	conn        *grpc.ClientConn
	sched       firnpb.SchedulerServiceClient
	verifier    *wire.Verifier
	slots       uint32
	replaced    atomic.Bool // another process has its id
	stop        context.CancelFunc
	life        context.Context
	wg          sync.WaitGroup

	// task decides what becomes of an attempt; nil gives the default status. A
	// status of nil isn't reported.
	task func(*firnpb.TaskDefinition, plan.Node) *firnpb.TaskStatus
	// copies: statuses carry copies of the manifests.
	copies bool
	// onGet runs before each read over Flight.
	onGet func()
	// onLaunch runs before tasks that are pushed are taken.
	onLaunch func()
	// onProbe runs before each probe.
	onProbe func()

	launched  chan *firnpb.TaskDefinition
	cancelled chan string
	freed     chan *firnpb.FreeJobDataRequest
	gets      atomic.Int64
	probes    atomic.Int64
	// refuse is how many more calls to free data fail.
	refuse  atomic.Int64
	lastReg *firnpb.RegisterResponse

	mu      sync.Mutex
	batches map[string]arrow.RecordBatch
	running map[string]bool
	seen    [][]byte
	// holds are said at registrations.
	holds []string
}

type executorOptions struct {
	id       string
	slots    int
	task     func(*firnpb.TaskDefinition, plan.Node) *firnpb.TaskStatus
	copies   bool
	onGet    func()
	onLaunch func()
	onProbe  func()
}

func startExecutor(t testing.TB, s *Scheduler, o executorOptions) *fakeExecutor {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	e := &fakeExecutor{
		t: t, id: o.id, incarnation: newID(""), addr: lis.Addr().String(), task: o.task, copies: o.copies, onGet: o.onGet, onLaunch: o.onLaunch, onProbe: o.onProbe,
		launched: make(chan *firnpb.TaskDefinition, 1000), cancelled: make(chan string, 1000), freed: make(chan *firnpb.FreeJobDataRequest, 1000),
		batches: map[string]arrow.RecordBatch{}, running: map[string]bool{},
	}
	e.life, e.stop = context.WithCancel(context.Background())
	e.server = grpc.NewServer(wire.ServerOptions()...)
	firnpb.RegisterExecutorServiceServer(e.server, e)
	flight.RegisterFlightServiceServer(e.server, e)
	e.wg.Go(func() { _ = e.server.Serve(lis) })
	e.conn, err = grpc.NewClient("passthrough:///"+s.Addr(), wire.DialOptions()...)
	must(t, err)
	e.sched = firnpb.NewSchedulerServiceClient(e.conn)
	if o.slots == 0 {
		o.slots = 2
	}
	e.slots = uint32(o.slots)
	must(t, e.register(t.Context()))
	e.verifier = wire.NewVerifier(e.lastReg.GetTicketPublicKey())
	e.wg.Go(e.heartbeats)
	if e.lastReg.GetDispatch() == DispatchPull {
		e.wg.Go(e.polls)
	}
	t.Cleanup(e.kill)
	return e
}

// register says hello, also to a scheduler that has started again.
func (e *fakeExecutor) register(ctx context.Context) error {
	e.mu.Lock()
	holds := e.holds
	e.mu.Unlock()
	reg, err := e.sched.Register(ctx, &firnpb.RegisterRequest{
		Holds: holds, ProtocolVersion: wire.ProtocolVersion, ExecutorId: e.id, Incarnation: e.incarnation,
		ControlAddress: e.addr, FlightAddress: e.addr, Slots: e.slots, MemoryBytes: 1 << 30,
	})
	switch {
	case err == nil && e.lastReg == nil:
		e.lastReg = reg
	case commit.CodeOf(wire.FromStatus(err)) == commit.CodeBadRequest:
		e.replaced.Store(true)
	}
	for _, id := range reg.GetFree() {
		e.freed <- &firnpb.FreeJobDataRequest{JobId: id}
	}
	return err
}

// kill ends the executor without a word.
func (e *fakeExecutor) kill() {
	e.stop()
	e.server.Stop()
	_ = e.conn.Close()
	e.wg.Wait()
}

func (e *fakeExecutor) heartbeats() {
	t := time.NewTicker(time.Duration(e.lastReg.GetHeartbeatMs()) * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-e.life.Done():
			return
		}
		e.mu.Lock()
		var running []string
		for id := range e.running {
			running = append(running, id)
		}
		e.mu.Unlock()
		resp, err := e.sched.Heartbeat(e.life, &firnpb.HeartbeatRequest{ExecutorId: e.id, Incarnation: e.incarnation, RunningAttempts: running})
		if err == nil && !resp.GetKnown() {
			_ = e.register(e.life)
		}
		if err == nil {
			for _, id := range resp.GetCancelAttempts() {
				e.cancelled <- id
				e.finish(id)
			}
		}
	}
}

func (e *fakeExecutor) polls() {
	for e.life.Err() == nil {
		resp, err := e.sched.PollWork(e.life, &firnpb.PollWorkRequest{ExecutorId: e.id, Incarnation: e.incarnation, FreeSlots: 2, WaitMs: 200})
		if err != nil {
			return
		}
		for _, t := range resp.GetTasks() {
			e.start(t)
		}
	}
}

// LaunchTasks implements firnpb.ExecutorServiceServer.
func (e *fakeExecutor) LaunchTasks(_ context.Context, r *firnpb.LaunchTasksRequest) (*firnpb.LaunchTasksResponse, error) {
	if e.onLaunch != nil {
		e.onLaunch()
	}
	for _, t := range r.GetTasks() {
		e.start(t)
	}
	return &firnpb.LaunchTasksResponse{}, nil
}

func (e *fakeExecutor) start(t *firnpb.TaskDefinition) {
	raw, _ := json.Marshal(t)
	e.mu.Lock()
	e.running[t.GetAttemptId()] = true
	e.seen = append(e.seen, raw, t.GetFragment())
	e.mu.Unlock()
	e.launched <- t
	e.wg.Go(func() {
		n, err := plan.Decode(t.GetFragment())
		if err != nil {
			e.t.Errorf("task message: %v", err)
			return
		}
		var st *firnpb.TaskStatus
		if e.task != nil {
			st = e.task(t, n)
		} else {
			st = e.succeed(t, n)
		}
		if st != nil {
			e.report(st)
		}
	})
}

func (e *fakeExecutor) finish(attempt string) {
	e.mu.Lock()
	delete(e.running, attempt)
	e.mu.Unlock()
}

// report repeats a status until it is acknowledged.
func (e *fakeExecutor) report(st *firnpb.TaskStatus) {
	for e.life.Err() == nil {
		resp, err := e.sched.ReportStatus(e.life, &firnpb.ReportStatusRequest{ExecutorId: e.id, Incarnation: e.incarnation, Statuses: []*firnpb.TaskStatus{st}})
		if err == nil && len(resp.GetAcknowledgedAttempts()) == 1 {
			e.finish(st.GetAttemptId())
			return
		}
		if err != nil || !resp.GetKnown() {
			select { // until it is known again, or replaced for good
			case <-time.After(5 * time.Millisecond):
			case <-e.life.Done():
			}
			if e.replaced.Load() {
				return
			}
		}
	}
}

func statusFor(t *firnpb.TaskDefinition, state string) *firnpb.TaskStatus {
	return &firnpb.TaskStatus{
		JobId: t.GetJobId(), Stage: t.GetStage(), StageAttempt: t.GetStageAttempt(), Task: t.GetTask(), AttemptId: t.GetAttemptId(), State: state,
	}
}

func fail(t *firnpb.TaskDefinition, err error, class string) *firnpb.TaskStatus {
	st := statusFor(t, "failed")
	st.Error = wire.TaskErrorToProto(err)
	st.Error.Class = class
	return st
}

// succeed makes the default outputs of a task and its status.
func (e *fakeExecutor) succeed(t *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
	st := statusFor(t, "succeeded")
	if w, ok := n.(*plan.Write); ok {
		f := commit.File{
			Path: fmt.Sprintf("%s%d-%d-%s-0.parquet", w.Context.Prefix, t.GetStage(), t.GetTask(), t.GetAttemptId()), Format: "PARQUET",
			Attempt: t.GetAttemptId(), Rows: 10, Size: 1000,
		}
		e.keepManifest(t, f)
		st.Outputs = []*firnpb.TaskOutput{{Rows: 1, Bytes: 100}}
		st.Files, st.RowsOut, st.BytesOut = 1, 10, 1000
		if e.copies {
			var raw bytes.Buffer
			_ = wire.WriteManifest(&raw, commit.PackFiles(f)) // a buffer takes everything
			st.ManifestIpc = raw.Bytes()
		}
		return st
	}
	for o := range max(t.GetOutputs(), 1) {
		e.keep(t, o, rowBatch(int64(t.GetTask())))
		st.Outputs = append(st.Outputs, &firnpb.TaskOutput{Partition: o, Rows: 1, Bytes: 8})
		st.RowsOut++
	}
	return st
}

func (e *fakeExecutor) keepManifest(t *firnpb.TaskDefinition, files ...commit.File) {
	rec, err := wire.EncodeManifest(files)
	if err != nil {
		e.t.Error(err)
		return
	}
	e.keep(t, 0, rec)
}

func (e *fakeExecutor) keep(t *firnpb.TaskDefinition, output uint32, rec arrow.RecordBatch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batches[fmt.Sprint(t.GetAttemptId(), "/", output)] = rec
}

func rowBatch(v int64) arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(v)
	return b.NewRecordBatch()
}

// DoGet implements flight.FlightServer.
func (e *fakeExecutor) DoGet(raw *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	e.gets.Add(1)
	if e.onGet != nil {
		e.onGet()
	}
	if e.life.Err() != nil {
		return status.Error(codes.Unavailable, "gone")
	}
	tk, err := e.verifier.Verify(raw.GetTicket(), time.Now())
	if err != nil || tk.GetPurpose() != wire.PurposeRead || tk.GetExecutorId() != e.id {
		return status.Error(codes.PermissionDenied, "ticket")
	}
	e.mu.Lock()
	rec := e.batches[fmt.Sprint(tk.GetAttemptId(), "/", tk.GetOutput())]
	e.mu.Unlock()
	if rec == nil {
		return status.Error(codes.NotFound, "no such output")
	}
	w := flight.NewRecordWriter(stream, ipc.WithSchema(rec.Schema()))
	if err := w.Write(rec); err != nil {
		return err
	}
	return w.Close()
}

// CancelTasks implements firnpb.ExecutorServiceServer.
func (e *fakeExecutor) CancelTasks(_ context.Context, r *firnpb.CancelTasksRequest) (*firnpb.CancelTasksResponse, error) {
	for _, id := range r.GetAttemptIds() {
		e.finish(id)
		e.cancelled <- id
	}
	return &firnpb.CancelTasksResponse{}, nil
}

// FreeJobData implements firnpb.ExecutorServiceServer.
func (e *fakeExecutor) FreeJobData(_ context.Context, r *firnpb.FreeJobDataRequest) (*firnpb.FreeJobDataResponse, error) {
	if e.refuse.Add(-1) >= 0 {
		return nil, status.Error(codes.Unavailable, "away")
	}
	e.freed <- &firnpb.FreeJobDataRequest{JobId: r.GetJobId(), Stages: r.GetStages()}
	for _, job := range r.GetMoreJobs() {
		e.freed <- &firnpb.FreeJobDataRequest{JobId: job}
	}
	return &firnpb.FreeJobDataResponse{}, nil
}

// Probe implements firnpb.ExecutorServiceServer.
func (e *fakeExecutor) Probe(_ context.Context, r *firnpb.ProbeRequest) (*firnpb.ProbeResponse, error) {
	e.probes.Add(1)
	if e.onProbe != nil {
		e.onProbe()
	}
	raw, err := json.Marshal(plan.ProbeResult{RowWise: true, Why: "fake " + r.GetTimeZone(), Columns: []plan.Column{{Name: "a", Type: "BIGINT"}}})
	if err != nil {
		return nil, err
	}
	return &firnpb.ProbeResponse{Result: raw}, nil
}
