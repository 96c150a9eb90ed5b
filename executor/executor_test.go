package executor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/executor"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

func shortProbes(c *executor.Config) { c.ProbeTimeout = 20 * time.Millisecond }

func TestRegisters(t *testing.T) {
	s := newScheduler(t, "push")
	h := start(t, s, func(c *executor.Config) { c.Memory, c.Build = 1<<30, "v1" })
	r := <-s.registrations
	if r.GetProtocolVersion() != wire.ProtocolVersion || r.GetExecutorId() != h.ID() || r.GetIncarnation() == "" ||
		r.GetControlAddress() != h.Addr() || r.GetFlightAddress() != h.Addr() ||
		r.GetSlots() != 2 || r.GetMemoryBytes() != 1<<30 || r.GetBuild() != "v1" {
		t.Errorf("registered as %v", r)
	}
	h.launch(t, def(t, "a-1", query("rows 1")))
	h.wait(t, "a-1")
	h.lock.Lock()
	defer h.lock.Unlock()
	if got := h.engines[0].cfg.Memory; got != 1<<29 {
		t.Errorf("a slot has %d bytes", got)
	}
}

func TestIdentityBelongsToTheDirectory(t *testing.T) {
	s := newScheduler(t, "push")
	dir := t.TempDir()
	run := func(id string) *firnpb.RegisterRequest {
		t.Helper()
		h := start(t, s, func(c *executor.Config) { c.Dir, c.ID = dir, id })
		r := <-s.registrations
		if err := h.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r
	}
	first, second, given := run(""), run(""), run("mine")
	if first.GetExecutorId() != second.GetExecutorId() {
		t.Errorf("ids are %s and %s", first.GetExecutorId(), second.GetExecutorId())
	}
	if first.GetIncarnation() == second.GetIncarnation() {
		t.Error("two starts have one incarnation")
	}
	if given.GetExecutorId() != "mine" {
		t.Errorf("given id became %s", given.GetExecutorId())
	}
}

func TestOtherProtocolVersionIsRefused(t *testing.T) {
	for name, refusal := range map[string]error{
		"plain": status.Error(codes.FailedPrecondition, "this scheduler speaks protocol version 99"),
		"typed": wire.ToStatus(&commit.Error{
			Code: commit.CodeExecutorVersion, Op: "register", Object: "executor",
			Cause: fmt.Errorf("this scheduler speaks protocol version 99, the executor %d", wire.ProtocolVersion),
		}),
	} {
		t.Run(name, func(t *testing.T) {
			s := newScheduler(t, "push")
			s.onRegister = func(*firnpb.RegisterRequest) error { return refusal }
			h := &harness{scheduler: s, dir: t.TempDir()}
			ex, err := executor.New(h.config())
			if err != nil {
				t.Fatal(err)
			}
			err = ex.Start(t.Context())
			if commit.CodeOf(err) != commit.CodeExecutorVersion {
				t.Fatalf("error is %v", err)
			}
			for _, v := range []string{"99", fmt.Sprint(wire.ProtocolVersion)} {
				if !strings.Contains(err.Error(), v) {
					t.Errorf("%q doesn't name version %s", err, v)
				}
			}
			if err := ex.Close(t.Context()); err != nil {
				t.Errorf("Close after a failed Start: %v", err)
			}
		})
	}
}

func TestStartWaitsForTheScheduler(t *testing.T) {
	s := newScheduler(t, "push")
	tries := 0
	s.onRegister = func(*firnpb.RegisterRequest) error {
		if tries++; tries < 3 {
			return errDown
		}
		return nil
	}
	start(t, s, nil)
	if tries != 3 {
		t.Errorf("%d tries", tries)
	}
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	s := newScheduler(t, "push")
	ctx, cancel := context.WithCancel(t.Context())
	s.onRegister = func(*firnpb.RegisterRequest) error {
		cancel()
		return errDown
	}
	h := &harness{scheduler: s, dir: t.TempDir()}
	ex, err := executor.New(h.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := ex.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestDirectoryIsHeldByOne(t *testing.T) {
	s := newScheduler(t, "push")
	first := start(t, s, nil)
	h := &harness{scheduler: s, dir: first.dir}
	ex, err := executor.New(h.config())
	if err != nil {
		t.Fatal(err)
	}
	err = ex.Start(t.Context())
	if commit.CodeOf(err) != commit.CodeExecutorDirHeld || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("error is %v, want the holder's process id", err)
	}
	// The second one must not have cleaned up the first one's files.
	first.launch(t, def(t, "a-1", query("rows 5")))
	first.wait(t, "a-1")
	if err := ex.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got, err := first.fetch(t, first.location("a-1", 0)); err != nil || len(got) != 5 {
		t.Errorf("%d rows, %v", len(got), err)
	}
}

func TestLeftoversAreRemoved(t *testing.T) {
	s := newScheduler(t, "push")
	dir := t.TempDir()
	for _, p := range []string{"shuffle/j-0/1/0/a-0/0.arrow", "slots/0/spill/x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, p), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := start(t, s, func(c *executor.Config) { c.Dir = dir })
	if left := files(t, dir); slices.ContainsFunc(left, func(p string) bool { return strings.Contains(p, "shuffle") || strings.Contains(p, "slots") }) {
		t.Errorf("left: %v", left)
	}
	h.launch(t, def(t, "a-1", query("rows 5")))
	h.wait(t, "a-1")
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := files(t, dir); len(left) != 2 { // the lock and the id
		t.Errorf("after Close: %v", left)
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.closed != len(h.engines) {
		t.Errorf("%d of %d engines closed", h.closed, len(h.engines))
	}
}

func TestPull(t *testing.T) {
	s := newScheduler(t, "pull")
	for i := range 7 {
		s.work <- def(t, fmt.Sprintf("a-%d", i), query("rows 3"))
	}
	start(t, s, nil)
	done := map[string]bool{}
	for len(done) < 7 {
		if st := <-s.statuses; st.GetState() == "succeeded" {
			done[st.GetAttemptId()] = true
		} else if st.GetState() != "running" {
			t.Fatal(st)
		}
	}
}

// A slot that is busy isn't offered.
func TestPullAsksForFreeSlotsOnly(t *testing.T) {
	s := newScheduler(t, "pull")
	h := start(t, s, nil)
	for _, id := range []string{"a-1", "a-2", "a-3"} {
		s.work <- def(t, id, query("block"))
	}
	h.started(t, "a-1", "a-2")
	if len(s.work) != 1 {
		t.Fatalf("%d tasks left, want 1", len(s.work))
	}
	if _, err := h.control.CancelTasks(t.Context(), &firnpb.CancelTasksRequest{AttemptIds: []string{"a-1"}}); err != nil {
		t.Fatal(err)
	}
	h.started(t, "a-3")
}

func TestLostAcknowledgementsAreRepeated(t *testing.T) {
	s := newScheduler(t, "push")
	calls := 0
	s.onReport = func(r *firnpb.ReportStatusRequest) (*firnpb.ReportStatusResponse, error) {
		switch calls++; {
		case calls <= 2:
			return nil, errDown
		case calls == 3:
			return acked(r, "a-1"), nil // the answer names others only
		default:
			return acked(r), nil
		}
	}
	h := start(t, s, nil)
	h.launch(t, def(t, "a-1", query("rows 1")))
	succeeded := 0
	for succeeded < 2 {
		if st := <-s.statuses; st.GetState() == "succeeded" {
			succeeded++
		}
	}
	// It is told while it isn't acknowledged, and not any more afterwards.
	for len(s.heartbeats) > 0 {
		<-s.heartbeats
	}
	<-s.heartbeats
	for hb := range s.heartbeats {
		if len(hb.GetRunningAttempts()) == 0 {
			break
		}
	}
}

func TestUnacknowledgedAttemptsStayInHeartbeats(t *testing.T) {
	s := newScheduler(t, "push")
	s.onReport = func(r *firnpb.ReportStatusRequest) (*firnpb.ReportStatusResponse, error) {
		return acked(r, "a-1"), nil
	}
	h := start(t, s, nil)
	h.launch(t, def(t, "a-1", query("rows 1")))
	h.wait(t, "a-1")
	for len(s.heartbeats) > 0 {
		<-s.heartbeats
	}
	<-s.heartbeats
	hb := <-s.heartbeats
	if !slices.Equal(hb.GetRunningAttempts(), []string{"a-1"}) || hb.GetFreeSlots() != 2 {
		t.Errorf("heartbeat is %v", hb)
	}
}

// Who shuts down says so: at once that it takes no more, and with its last word
// that it has gone, after which no heartbeat comes that would register it again.
func TestShuttingDownIsSaid(t *testing.T) {
	s := newScheduler(t, "push")
	h := start(t, s, nil)
	h.launch(t, def(t, "a-1", query("block")))
	h.started(t, "a-1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- h.Close(ctx) }()
	for hb := range s.heartbeats {
		if hb.GetDraining() {
			if hb.GetLeft() || !slices.Equal(hb.GetRunningAttempts(), []string{"a-1"}) {
				t.Errorf("while a task runs: %v", hb)
			}
			break
		}
	}
	cancel()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	var last *firnpb.HeartbeatRequest
	for len(s.heartbeats) > 0 {
		last = <-s.heartbeats
	}
	if !last.GetLeft() || len(last.GetRunningAttempts()) != 0 {
		t.Errorf("the last word is %v", last)
	}
}

// The scheduler asks for it once; all heartbeats from then on say so, also to one
// that never asked.
func TestDrainIsAskedFor(t *testing.T) {
	s := newScheduler(t, "push")
	var asked atomic.Bool
	s.onHeartbeat = func(*firnpb.HeartbeatRequest) *firnpb.HeartbeatResponse {
		return &firnpb.HeartbeatResponse{Known: true, Drain: asked.CompareAndSwap(false, true)}
	}
	h := start(t, s, nil)
	h.launch(t, def(t, "a-1", query("block")))
	for range 2 {
		hb := <-s.heartbeats
		for !hb.GetDraining() {
			hb = <-s.heartbeats
		}
		if hb.GetLeft() || !slices.Equal(hb.GetRunningAttempts(), []string{"a-1"}) {
			t.Errorf("while a task runs: %v", hb)
		}
	}
}

func TestDuplicateLaunchesRunOnce(t *testing.T) {
	s := newScheduler(t, "push")
	h := start(t, s, nil)
	d := def(t, "a-1", query("block"))
	h.launch(t, d, d)
	h.started(t, "a-1")
	h.launch(t, d)
	hb := <-s.heartbeats
	for len(hb.GetRunningAttempts()) == 0 {
		hb = <-s.heartbeats
	}
	if hb.GetFreeSlots() != 1 {
		t.Errorf("heartbeat is %v", hb)
	}
	if _, err := h.control.CancelTasks(t.Context(), &firnpb.CancelTasksRequest{AttemptIds: []string{"a-1"}}); err != nil {
		t.Fatal(err)
	}
	h.wait(t, "a-1")
	// Also when it has ended: the same id never runs again.
	h.launch(t, d, def(t, "a-2", query("rows 1")))
	h.wait(t, "a-2")
	h.lock.Lock()
	defer h.lock.Unlock()
	if len(h.engines) > 2 {
		t.Errorf("%d engines were made", len(h.engines))
	}
	runs := 0
	for len(s.statuses) > 0 {
		if st := <-s.statuses; st.GetAttemptId() == "a-1" && st.GetState() == "running" {
			runs++
		}
	}
	if runs != 1 {
		t.Errorf("the attempt ran %d times", runs)
	}
}

func TestHeartbeatCancels(t *testing.T) {
	s := newScheduler(t, "push")
	s.onHeartbeat = func(r *firnpb.HeartbeatRequest) *firnpb.HeartbeatResponse {
		return &firnpb.HeartbeatResponse{Known: true, CancelAttempts: r.GetRunningAttempts()}
	}
	h := start(t, s, nil)
	h.launch(t, def(t, "a-1", query("block")))
	if st := h.wait(t, "a-1"); st.GetState() != "cancelled" {
		t.Errorf("status is %v", st)
	}
}

func TestRegistersAgain(t *testing.T) {
	for _, via := range []string{"heartbeat", "report"} {
		t.Run(via, func(t *testing.T) {
			s := newScheduler(t, "push")
			known := make(chan struct{})
			isKnown := func() bool {
				select {
				case <-known:
					return true
				default:
					return false
				}
			}
			if via == "heartbeat" {
				s.onHeartbeat = func(*firnpb.HeartbeatRequest) *firnpb.HeartbeatResponse {
					return &firnpb.HeartbeatResponse{Known: isKnown()}
				}
			} else {
				s.onReport = func(r *firnpb.ReportStatusRequest) (*firnpb.ReportStatusResponse, error) {
					resp := acked(r)
					resp.Known = isKnown()
					return resp, nil
				}
			}
			h := start(t, s, nil)
			first := <-s.registrations
			h.launch(t, def(t, "a-1", query("rows 1")))
			second := <-s.registrations
			close(known)
			if first.GetIncarnation() != second.GetIncarnation() || first.GetExecutorId() != second.GetExecutorId() {
				t.Errorf("registered as %v, then as %v", first, second)
			}
			if st := h.wait(t, "a-1"); st.GetState() != "succeeded" {
				t.Error(st)
			}
		})
	}
}

func TestCloseDrains(t *testing.T) {
	s := newScheduler(t, "push")
	h := start(t, s, nil)
	h.launch(t, def(t, "a-1", query("block")))
	h.started(t, "a-1")
	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan error, 1)
	go func() { closed <- h.Close(ctx) }()
	// No more tasks are taken, while the one that runs goes on.
	for {
		_, err := h.control.LaunchTasks(t.Context(), &firnpb.LaunchTasksRequest{Tasks: []*firnpb.TaskDefinition{def(t, "a-2", query("block"))}})
		if status.Code(err) == codes.Unavailable {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-closed:
		t.Fatalf("closed (%v) while a task ran", err)
	default:
	}
	cancel()
	st := h.wait(t, "a-1")
	if st.GetState() != "failed" || st.GetError().GetClass() != wire.ClassRetryable || !strings.Contains(st.GetError().GetCause(), "shuts down") {
		t.Errorf("status is %v", st)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestLocalAllow(t *testing.T) {
	for name, c := range map[string]struct{ own, want []string }{
		"the scheduler's": {nil, []string{"/data"}},
		"its own":         {[]string{"/mine"}, []string{"/mine"}},
		"nothing":         {[]string{}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScheduler(t, "push")
			s.allow = []string{"/data"}
			h := start(t, s, func(cfg *executor.Config) { cfg.LocalAllow = c.own })
			h.launch(t, def(t, "a-1", query("rows 1")))
			h.wait(t, "a-1")
			h.lock.Lock()
			defer h.lock.Unlock()
			if got := h.engines[0].cfg.LocalAllow; !slices.Equal(got, c.want) {
				t.Errorf("allowed %v, want %v", got, c.want)
			}
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := executor.Config{Server: "127.0.0.1:1", Dir: t.TempDir()}
	for name, change := range map[string]func(*executor.Config){
		"server": func(c *executor.Config) { c.Server = "" },
		"dir":    func(c *executor.Config) { c.Dir = "" },
		"slots":  func(c *executor.Config) { c.Slots = -1 },
		"memory": func(c *executor.Config) { c.Slots, c.Memory = 4, 10<<20 },
		"id":     func(c *executor.Config) { c.ID = "a/b" },
	} {
		cfg := good
		change(&cfg)
		_, err := executor.New(cfg)
		if commit.CodeOf(err) != commit.CodeExecutorConfig || !strings.Contains(err.Error(), "setting "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := executor.New(good); err != nil {
		t.Error(err)
	}
}

func TestAddressInUse(t *testing.T) {
	s := newScheduler(t, "push")
	h := &harness{scheduler: s, dir: t.TempDir()}
	cfg := h.config()
	cfg.Listen = s.addr
	ex, err := executor.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := ex.Start(t.Context()); commit.CodeOf(err) != commit.CodeExecutorConfig || !strings.Contains(err.Error(), s.addr) {
		t.Errorf("error is %v", err)
	}
}
