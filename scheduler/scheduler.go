package scheduler

import (
	"context"
)

// Committer is what a root needs; the implementation is package
// scheduler/committer.
type Committer interface{}

// Scheduler is a running scheduler.
type Scheduler struct{ cfg Config }

// New checks the configuration. Nothing runs before Start.
func New(cfg Config) (*Scheduler, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Scheduler{cfg: cfg}, nil
}

// Start opens the journal and serves until Close. ctx bounds the start only.
func (s *Scheduler) Start(ctx context.Context) error { panic("not yet") }

// Addr is the address that the scheduler listens on, host:port.
func (s *Scheduler) Addr() string { panic("not yet") }

// Close takes no new work, finishes commits in flight, fails what else runs and
// waits for all goroutines. ctx bounds the wait.
func (s *Scheduler) Close(ctx context.Context) error { panic("not yet") }
