package canary

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

// Wire stands between a scheduler and executors, which speak plaintext, and keeps
// what each says to the other. Executors are given its Address as the scheduler's;
// to the scheduler it says that executors are reached through it.
type Wire struct {
	firnpb.UnimplementedSchedulerServiceServer
	// Address is for executors.
	Address string

	t     testing.TB
	sched firnpb.SchedulerServiceClient
	wg    sync.WaitGroup

	mu   sync.Mutex
	said bytes.Buffer
	// through are the proxies of executors, by their own addresses.
	through map[string]string
	open    []io.Closer
}

// NewWire starts one before the scheduler. It ends with the test.
func NewWire(t testing.TB, scheduler string) *Wire {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+scheduler, wire.DialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	lis := listen(t)
	w := &Wire{t: t, Address: lis.Addr().String(), sched: firnpb.NewSchedulerServiceClient(conn), through: map[string]string{}}
	server := grpc.NewServer(wire.ServerOptions()...)
	firnpb.RegisterSchedulerServiceServer(server, w)
	w.wg.Go(func() { _ = server.Serve(lis) })
	t.Cleanup(func() {
		server.Stop()
		_ = conn.Close()
		w.mu.Lock()
		for _, c := range w.open {
			_ = c.Close()
		}
		w.mu.Unlock()
		w.wg.Wait()
	})
	return w
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return lis
}

// Said is everything that went over the wire so far.
func (w *Wire) Said() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.said.Bytes())
}

// Write keeps what was said.
func (w *Wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.said.Write(p)
}

// pass hands a call on, and keeps both messages.
func pass[Q, A proto.Message](ctx context.Context, w *Wire, q Q, call func(context.Context, Q, ...grpc.CallOption) (A, error)) (A, error) {
	a, err := call(ctx, q)
	kept := []proto.Message{q, a}
	if err != nil {
		kept = kept[:1]
		_, _ = w.Write([]byte(wire.FromStatus(err).Error()))
	}
	for _, m := range kept {
		if raw, merr := proto.Marshal(m); merr == nil {
			_, _ = w.Write(raw)
		}
	}
	return a, err
}

// Register implements firnpb.SchedulerServiceServer.
func (w *Wire) Register(ctx context.Context, r *firnpb.RegisterRequest) (*firnpb.RegisterResponse, error) {
	at := w.proxy(r.GetControlAddress())
	r.ControlAddress, r.FlightAddress = at, at
	return pass(ctx, w, r, w.sched.Register)
}

// Heartbeat implements firnpb.SchedulerServiceServer.
func (w *Wire) Heartbeat(ctx context.Context, r *firnpb.HeartbeatRequest) (*firnpb.HeartbeatResponse, error) {
	return pass(ctx, w, r, w.sched.Heartbeat)
}

// PollWork implements firnpb.SchedulerServiceServer.
func (w *Wire) PollWork(ctx context.Context, r *firnpb.PollWorkRequest) (*firnpb.PollWorkResponse, error) {
	return pass(ctx, w, r, w.sched.PollWork)
}

// ReportStatus implements firnpb.SchedulerServiceServer.
func (w *Wire) ReportStatus(ctx context.Context, r *firnpb.ReportStatusRequest) (*firnpb.ReportStatusResponse, error) {
	return pass(ctx, w, r, w.sched.ReportStatus)
}

// StoreKeys implements firnpb.SchedulerServiceServer.
func (w *Wire) StoreKeys(ctx context.Context, r *firnpb.StoreKeysRequest) (*firnpb.StoreKeysResponse, error) {
	return pass(ctx, w, r, w.sched.StoreKeys)
}

// SourceAccess implements firnpb.SchedulerServiceServer.
func (w *Wire) SourceAccess(ctx context.Context, r *firnpb.SourceAccessRequest) (*firnpb.SourceAccessResponse, error) {
	return pass(ctx, w, r, w.sched.SourceAccess)
}

// proxy gives the address of a proxy of an executor, which keeps the bytes as they
// come: messages aren't compressed, and those cut by a frame are rare.
func (w *Wire) proxy(to string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := w.through[to]; at != "" {
		return at
	}
	lis := listen(w.t)
	w.through[to] = lis.Addr().String()
	w.open = append(w.open, lis)
	w.wg.Go(func() {
		for {
			in, err := lis.Accept()
			if err != nil {
				return
			}
			out, err := (&net.Dialer{}).Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			w.mu.Lock()
			w.open = append(w.open, in, out)
			w.mu.Unlock()
			w.wg.Go(func() { w.copy(in, out) })
			w.wg.Go(func() { w.copy(out, in) })
		}
	})
	return w.through[to]
}

func (w *Wire) copy(to, from net.Conn) {
	_, _ = io.Copy(io.MultiWriter(to, w), from)
	_ = to.Close()
}
