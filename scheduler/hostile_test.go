package scheduler

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
)

// TestAManifestThatIsHeldBack: an executor that reports success and then never sends
// its manifest costs its job some tries, not a root that waits for ever.
func TestAManifestThatIsHeldBack(t *testing.T) {
	h := start(t, func(c *Config) { c.ExecutorTimeout = 200 * time.Millisecond })
	end := make(chan struct{})
	startExecutor(t, h.s, executorOptions{id: "e1", onGet: func() { <-end }})
	t.Cleanup(func() { close(end) }) // before the executor is waited for
	st := h.run(&firnpb.ExecuteRequest{Sql: insert})
	wantState(t, st, graph.JobFailed, commit.CommitNone)
	if msg := wire.ErrorFromProto(st.GetError()).Error(); !strings.Contains(msg, "nothing came from the executor") {
		t.Error(msg)
	}
}

// TestProbesThatHang: an executor that never answers a probe is passed over.
func TestProbesThatHang(t *testing.T) {
	h := start(t, func(c *Config) { c.ProbeTimeout = 100 * time.Millisecond })
	end := make(chan struct{})
	slow := startExecutor(t, h.s, executorOptions{id: "e1", slots: 100, onProbe: func() { <-end }})
	t.Cleanup(func() { close(end) })
	honest := startExecutor(t, h.s, executorOptions{id: "e2", slots: 1})
	_, err := binder{s: h.s}.Probe(t.Context(), plan.ProbeRequest{SQL: "SELECT 1"})
	must(t, err)
	if slow.probes.Load() != 1 || honest.probes.Load() != 1 {
		t.Errorf("%d and %d probes", slow.probes.Load(), honest.probes.Load())
	}
}

// TestOnePollForEachExecutor: however often an executor asks for work, one question
// of it waits.
func TestOnePollForEachExecutor(t *testing.T) {
	h := start(t, func(c *Config) { c.Dispatch = DispatchPull })
	c := schedulerClient(t, h)
	_, err := c.Register(t.Context(), registration("e1", "i"))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan struct{}, 100)
	for range 100 {
		go func() {
			_, _ = c.PollWork(ctx, &firnpb.PollWorkRequest{ExecutorId: "e1", Incarnation: "i", FreeSlots: 1, WaitMs: 60_000})
			answered <- struct{}{}
		}()
	}
	for range 99 {
		receive(t, answered, "answer to a poll that another one replaced")
	}
	must(t, h.s.loop.call(t.Context(), func() {
		if n := len(h.s.state.polls); n != 1 {
			t.Errorf("%d polls wait", n)
		}
	}))
	cancel()
	receive(t, answered, "end of the last poll")
}

// TestWhoIsNotLetInSendsNothing: a caller is refused by the headers of its call,
// before its message has come.
func TestWhoIsNotLetInSendsNothing(t *testing.T) {
	h := start(t, func(c *Config) {
		c.Authenticate = func(context.Context, string) error {
			return &commit.Error{Code: commit.CodeUnauthenticated, Op: "let in"}
		}
	})
	conn, err := grpc.NewClient("passthrough:///"+h.s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	// A stream on which nothing is sent: an answer can only come of the headers.
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, firnpb.SchedulerService_Register_FullMethodName)
	must(t, err)
	err = stream.RecvMsg(&firnpb.RegisterResponse{})
	if commit.CodeOf(wire.FromStatus(err)) != commit.CodeUnauthenticated {
		t.Errorf("answered with %v", err)
	}
}

// TestGiantMessages: what is larger than a statement can be isn't read.
func TestGiantMessages(t *testing.T) {
	h := start(t, nil)
	c := schedulerClient(t, h)
	_, err := c.ReportStatus(t.Context(), &firnpb.ReportStatusRequest{
		ExecutorId: "e1", Incarnation: "i", Statuses: []*firnpb.TaskStatus{{AttemptId: "a", ManifestIpc: make([]byte, wire.MaxRequest+1)}},
	})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message of 64 MiB: %v", err)
	}
	for name, edit := range map[string]func(*firnpb.RegisterRequest){
		"id":      func(r *firnpb.RegisterRequest) { r.ExecutorId = strings.Repeat("e", 32<<20) },
		"address": func(r *firnpb.RegisterRequest) { r.ControlAddress = strings.Repeat("1", 32<<20) },
	} {
		r := registration("e1", "i")
		edit(r)
		if _, err := c.Register(t.Context(), r); commit.CodeOf(wire.FromStatus(err)) != commit.CodeBadRequest {
			t.Errorf("a giant %s: %v", name, err)
		}
	}
}
