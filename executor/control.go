package executor

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// control is the service that the scheduler calls.
type control struct {
	firnpb.UnimplementedExecutorServiceServer
	e *Executor
}

// guard lets only the scheduler call, and makes a panic in a call its error.
func (e *Executor) guard(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			e.log.LogAttrs(ctx, slog.LevelError, "call panicked",
				slog.String("method", info.FullMethod), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			err = status.Error(codes.Internal, fmt.Sprintf("internal fault: %v", p))
		}
	}()
	if err := e.fromScheduler(ctx); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	return handle(ctx, req)
}

// introduced is how long a call waits for the registration whose key would prove
// where it comes from: it may be on its way.
const introduced = 2 * time.Second

// fromScheduler checks who calls.
func (e *Executor) fromScheduler(ctx context.Context) error {
	late := time.NewTimer(introduced)
	defer late.Stop()
	for {
		now, changed := e.session.current()
		key := ed25519.PublicKey(now.GetTicketPublicKey())
		err := wire.VerifyControl(ctx, wire.NewVerifier(key), e.cfg.ID, time.Now())
		if err == nil {
			return nil
		}
		select {
		case <-changed:
		case <-late.C:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// LaunchTasks queues tasks. When it can't take all of them it takes none of
// those that follow the first one refused.
func (c *control) LaunchTasks(_ context.Context, req *firnpb.LaunchTasksRequest) (*firnpb.LaunchTasksResponse, error) {
	for _, t := range req.GetTasks() {
		switch err := c.e.runner.launch(t); {
		case errors.Is(err, errDraining):
			return nil, status.Error(codes.Unavailable, err.Error())
		case err != nil:
			return nil, status.Error(codes.ResourceExhausted, err.Error())
		}
	}
	return &firnpb.LaunchTasksResponse{}, nil
}

// CancelTasks ends attempts; unknown ones are ignored.
func (c *control) CancelTasks(_ context.Context, req *firnpb.CancelTasksRequest) (*firnpb.CancelTasksResponse, error) {
	c.e.runner.cancel(req.GetAttemptIds())
	return &firnpb.CancelTasksResponse{}, nil
}

// FreeJobData removes shuffle data.
func (c *control) FreeJobData(_ context.Context, req *firnpb.FreeJobDataRequest) (*firnpb.FreeJobDataResponse, error) {
	stages := make([]int, len(req.GetStages()))
	for i, s := range req.GetStages() {
		stages[i] = int(s)
	}
	err := c.e.free(req.GetJobId(), stages)
	for _, job := range req.GetMoreJobs() {
		err = errors.Join(err, c.e.free(job, nil))
	}
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	return &firnpb.FreeJobDataResponse{}, nil
}

// Probe describes sources and binds a query, in a free slot or the extra one.
func (c *control) Probe(ctx context.Context, req *firnpb.ProbeRequest) (*firnpb.ProbeResponse, error) {
	raw, err := c.probe(ctx, req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		return &firnpb.ProbeResponse{Error: wire.TaskErrorToProto(err)}, nil
	}
	return &firnpb.ProbeResponse{Result: raw}, nil
}

func (c *control) probe(ctx context.Context, req *firnpb.ProbeRequest) (raw []byte, err error) {
	var pr plan.ProbeRequest
	if err := json.Unmarshal(req.GetRequest(), &pr); err != nil {
		return nil, &commit.Error{Code: commit.CodeTaskPlan, Op: "probe", Object: "sources", Cause: err}
	}
	limited, cancel := context.WithTimeout(ctx, c.e.cfg.ProbeTimeout)
	defer cancel()
	defer func() {
		if err != nil && limited.Err() != nil && ctx.Err() == nil {
			err = &commit.Error{
				Code: commit.CodeProbeTimeout, Op: "probe", Object: "sources",
				Cause: fmt.Errorf("no end within %s: %w", c.e.cfg.ProbeTimeout, err),
				Hint:  "Check that the sources can be reached from the executors and name fewer files.",
			}
		}
	}()
	s, back, err := c.e.runner.borrow(limited)
	if err != nil {
		return nil, err
	}
	defer back()
	defer func() {
		if p := recover(); p != nil {
			c.e.log.LogAttrs(ctx, slog.LevelError, "probe panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			err = errors.Join(&commit.Error{
				Code: commit.CodeTaskPanic, Op: "probe", Object: "sources",
				Cause: fmt.Errorf("panic: %v", p),
			}, s.discard())
		}
	}()
	engine, err := s.open(c.e.localAllow())
	if err != nil {
		return nil, err
	}
	res, err := engine.Probe(limited, pr)
	if err != nil {
		return nil, err
	}
	return json.Marshal(res)
}
