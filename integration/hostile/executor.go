package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/firn-project/firn/internal/security"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

const (
	id = "hostile"
	// slots are so many that every task goes to this executor while it takes any.
	slots     = 64
	heartbeat = 200 * time.Millisecond
	// controlHeader is where the scheduler's calls have their ticket.
	controlHeader = "firn-control-bin"
)

// Command is what the test tells the process, one line of JSON each. The answer is a
// line of JSON too.
type Command struct {
	// Do is "take" (tasks from now on), "hold" (wait for one and take no more),
	// "rest" (take no more), or "strike": make the attack of those that were taken.
	Do     string
	Attack string
	Facts  Facts
}

// Facts are what a hostile executor may have found out about others.
type Facts struct {
	// OtherTable and OtherJob are paths of committed files: of another table, and of
	// another job on the same one.
	OtherTable, OtherJob string
	// Job and Attempt run on an honest executor, whose address is Honest.
	Job, Attempt, Honest string
}

// Answer is what became of a command.
type Answer struct {
	// Said are the answers that the attack got to its own calls.
	Said []string
	Err  string
}

// executor is the process.
type executor struct {
	firnpb.UnimplementedExecutorServiceServer
	flight.BaseFlightServer

	incarnation string
	addr        string
	conn        *grpc.ClientConn
	sched       firnpb.SchedulerServiceClient
	life        context.Context //nolint:containedctx // the process's
	key         []byte

	resting atomic.Bool
	saying  sync.Mutex
	mu      sync.Mutex
	// held are the tasks that write; served says what a Flight read of an attempt
	// gets.
	held    []task
	arrived chan struct{}
	running map[string]bool
	served  map[string]func(flight.FlightService_DoGetServer) error
	probes  func(plan.ProbeRequest) plan.ProbeResult
	// control is the ticket that the scheduler last showed with a call.
	control []string
}

type task struct {
	def   *firnpb.TaskDefinition
	write *plan.Write
}

// Main runs the process until stdin ends: args are the scheduler's address and the
// token to join with.
func Main(args []string) error {
	lis, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+args[0], append(wire.DialOptions(), security.DialToken(args[1])...)...)
	if err != nil {
		return err
	}
	life, end := context.WithCancel(context.Background())
	e := &executor{
		incarnation: fmt.Sprint("hostile-", os.Getpid()), addr: lis.Addr().String(), conn: conn, sched: firnpb.NewSchedulerServiceClient(conn), life: life,
		arrived: make(chan struct{}, 1), running: map[string]bool{}, served: map[string]func(flight.FlightService_DoGetServer) error{},
	}
	server := grpc.NewServer(append(wire.ServerOptions(), grpc.MaxSendMsgSize(1<<30))...)
	firnpb.RegisterExecutorServiceServer(server, e)
	flight.RegisterFlightServiceServer(server, e)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(lis) })
	e.resting.Store(true)
	err = e.register()
	if err == nil {
		wg.Go(e.beat)
		err = e.obey(json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout))
	}
	end()
	server.Stop()
	wg.Wait()
	return errors.Join(err, conn.Close())
}

func (e *executor) register() error {
	r, err := e.sched.Register(e.life, &firnpb.RegisterRequest{
		ProtocolVersion: wire.ProtocolVersion, ExecutorId: id, Incarnation: e.incarnation,
		ControlAddress: e.addr, FlightAddress: e.addr, Slots: slots, MemoryBytes: 1 << 30,
	})
	e.key = r.GetTicketPublicKey()
	return err
}

// beat sends heartbeats; one that isn't known any more registers again.
func (e *executor) beat() {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = e.say()
		case <-e.life.Done():
			return
		}
	}
}

func (e *executor) say() error {
	// One at a time: what is said later must not be heard earlier.
	e.saying.Lock()
	defer e.saying.Unlock()
	e.mu.Lock()
	var running []string
	for a := range e.running {
		running = append(running, a)
	}
	e.mu.Unlock()
	r, err := e.sched.Heartbeat(e.life, &firnpb.HeartbeatRequest{ExecutorId: id, Incarnation: e.incarnation, RunningAttempts: running, Draining: e.resting.Load()})
	if err == nil && !r.GetKnown() {
		err = e.register()
	}
	return err
}

// obey does what it is told, until there is nothing more.
func (e *executor) obey(in *json.Decoder, out *json.Encoder) error {
	for {
		var c Command
		if err := in.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var a Answer
		err := e.do(c, &a)
		if err != nil {
			a.Err = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

func (e *executor) do(c Command, a *Answer) error {
	attack, ok := attacks[c.Attack]
	if c.Attack != "" && !ok {
		return fmt.Errorf("no attack %q", c.Attack)
	}
	switch c.Do {
	case "take":
		e.mu.Lock()
		clear(e.running)
		clear(e.served)
		e.held, e.probes = nil, attack.probe
		e.mu.Unlock()
	case "hold":
		if err := e.await(); err != nil {
			return err
		}
	case "strike":
		e.mu.Lock()
		held := e.held
		e.mu.Unlock()
		return e.strike(attack, held, c.Facts, a)
	}
	e.resting.Store(c.Do != "take")
	return e.say()
}

// await waits for a task that writes.
func (e *executor) await() error {
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	for {
		e.mu.Lock()
		n := len(e.held)
		e.mu.Unlock()
		if n > 0 {
			return nil
		}
		select {
		case <-e.arrived:
		case <-late.C:
			return errors.New("no task came")
		}
	}
}

// LaunchTasks implements firnpb.ExecutorServiceServer: tasks that write are held,
// the others end at once.
func (e *executor) LaunchTasks(ctx context.Context, r *firnpb.LaunchTasksRequest) (*firnpb.LaunchTasksResponse, error) {
	e.mu.Lock()
	e.control = metadata.ValueFromIncomingContext(ctx, controlHeader)
	e.mu.Unlock()
	for _, def := range r.GetTasks() {
		n, err := plan.Decode(def.GetFragment())
		if err != nil {
			return nil, err
		}
		e.mu.Lock()
		e.running[def.GetAttemptId()] = true
		w, writes := n.(*plan.Write)
		if writes {
			e.held = append(e.held, task{def, w})
		}
		e.mu.Unlock()
		if !writes {
			st := status(def)
			for o := range max(def.GetOutputs(), 1) {
				st.Outputs = append(st.Outputs, &firnpb.TaskOutput{Partition: o})
			}
			go e.report(st)
		}
		select {
		case e.arrived <- struct{}{}:
		default:
		}
	}
	return &firnpb.LaunchTasksResponse{}, nil
}

func status(def *firnpb.TaskDefinition) *firnpb.TaskStatus {
	return &firnpb.TaskStatus{
		JobId: def.GetJobId(), Stage: def.GetStage(), StageAttempt: def.GetStageAttempt(), Task: def.GetTask(), AttemptId: def.GetAttemptId(), State: "succeeded",
	}
}

// report sends one status, and gives what was answered.
func (e *executor) report(statuses ...*firnpb.TaskStatus) string {
	r, err := e.sched.ReportStatus(e.life, &firnpb.ReportStatusRequest{ExecutorId: id, Incarnation: e.incarnation, Statuses: statuses})
	if err != nil {
		return said(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range statuses {
		delete(e.running, s.GetAttemptId())
	}
	return fmt.Sprintf("%d acknowledged", len(r.GetAcknowledgedAttempts()))
}

func said(err error) string {
	const most = 500
	s := fmt.Sprint(wire.FromStatus(err))
	return s[:min(len(s), most)]
}

// CancelTasks implements firnpb.ExecutorServiceServer: it's heard, and not done.
func (e *executor) CancelTasks(context.Context, *firnpb.CancelTasksRequest) (*firnpb.CancelTasksResponse, error) {
	return &firnpb.CancelTasksResponse{}, nil
}

// FreeJobData implements firnpb.ExecutorServiceServer.
func (e *executor) FreeJobData(context.Context, *firnpb.FreeJobDataRequest) (*firnpb.FreeJobDataResponse, error) {
	return &firnpb.FreeJobDataResponse{}, nil
}

// Probe implements firnpb.ExecutorServiceServer.
func (e *executor) Probe(_ context.Context, r *firnpb.ProbeRequest) (*firnpb.ProbeResponse, error) {
	var asked plan.ProbeRequest
	if err := json.Unmarshal(r.GetRequest(), &asked); err != nil {
		return nil, err
	}
	e.mu.Lock()
	lie := e.probes
	e.mu.Unlock()
	if lie == nil {
		return nil, errors.New("no probes here")
	}
	raw, err := json.Marshal(lie(asked))
	return &firnpb.ProbeResponse{Result: raw}, err
}

// DoGet implements flight.FlightServer. Tickets aren't asked for.
func (e *executor) DoGet(raw *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	t, err := wire.NewVerifier(e.key).Verify(raw.GetTicket(), time.Now())
	if err != nil {
		return err
	}
	e.mu.Lock()
	serve := e.served[t.GetAttemptId()]
	e.mu.Unlock()
	if serve == nil {
		return errors.New("nothing is served for this attempt")
	}
	return serve(stream)
}
