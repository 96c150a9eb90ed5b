package client

import (
	"context"
	"time"

	"github.com/firn-project/firn/internal/wire/firnpb"
)

// ExecutorState is how an executor is.
type ExecutorState string

// States of an executor.
const (
	// ExecutorReady takes tasks.
	ExecutorReady ExecutorState = "ready"
	// ExecutorDraining takes none; it runs some, or holds what others still read.
	ExecutorDraining ExecutorState = "draining"
	// ExecutorDrained can be stopped, and nothing has to run again for it.
	ExecutorDrained ExecutorState = "drained"
	// ExecutorReturning was known to an earlier process of the scheduler, and is
	// waited for.
	ExecutorReturning ExecutorState = "returning"
	// ExecutorPassedOver failed tasks for reasons of its own, such as a full disk, and
	// gets none for a while, as long as there are others.
	ExecutorPassedOver ExecutorState = "passed_over"
)

// Executor is what the scheduler knows of an executor.
type Executor struct {
	ID    string
	State ExecutorState
	// Address is where it is told what to do, host:port.
	Address string
	// Slots is how many tasks it runs at a time, Running how many attempts it has.
	Slots, Running int
	// Memory is for all slots together, in bytes.
	Memory int64
	// Holds are the jobs, and uploads, that may still read what is on its disk.
	Holds []string
	// Seen is when it last reported.
	Seen time.Time
}

func executorOf(p *firnpb.ExecutorStatus) Executor {
	return Executor{
		ID: p.GetExecutorId(), State: ExecutorState(p.GetState()), Address: p.GetAddress(), Slots: int(p.GetSlots()),
		Running: int(p.GetRunning()), Memory: p.GetMemoryBytes(), Holds: p.GetHolds(), Seen: time.UnixMilli(p.GetSeenUnixMs()),
	}
}

// Executors lists the executors that the scheduler knows, by id.
func (c *Client) Executors(ctx context.Context) ([]Executor, error) {
	resp, err := c.rpc.ListExecutors(ctx, &firnpb.ListExecutorsRequest{})
	if err != nil {
		return nil, c.fromRPC(ctx, err)
	}
	var all []Executor
	for _, e := range resp.GetExecutors() {
		all = append(all, executorOf(e))
	}
	return all, nil
}

// DrainExecutor has an executor take no more tasks, for good. It answers at once
// with how the executor is; ask again until that is ExecutorDrained.
func (c *Client) DrainExecutor(ctx context.Context, id string) (Executor, error) {
	p, err := c.rpc.DrainExecutor(ctx, &firnpb.DrainExecutorRequest{ExecutorId: id})
	if err != nil {
		return Executor{}, c.fromRPC(ctx, err)
	}
	return executorOf(p), nil
}
