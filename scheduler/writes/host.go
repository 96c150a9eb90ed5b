package writes

import (
	"context"
	"time"

	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

// Host is the scheduler as the service needs it: writes are jobs there.
type Host interface {
	// Begin admits a write under its key, and returns when it is open or when it is
	// known that it won't be.
	Begin(ctx context.Context, r Request) (Write, error)
	// Find gives a write by its id, Newest that of a key. One that an earlier process
	// left open is waited for until it is open again.
	Find(ctx context.Context, id string) (Write, error)
	Newest(ctx context.Context, key string) (Write, error)
	// Commit has the job of a write that is sealed by its record go on, also when ctx
	// ends meanwhile. It may be called again.
	Commit(ctx context.Context, id string) error
	// End ends the job of a write that is aborted or expired by its record, also when
	// ctx ends meanwhile, and returns when that is on record, or ctx ends. It may be
	// called again.
	End(ctx context.Context, id string) error
	// Keys gives the keys with which an open write's prefix is written to; expired is
	// the id of one that the store doesn't take any more.
	Keys(ctx context.Context, id, expired string) (objstore.Keys, error)
	// Store reaches the files of a write's table with the scheduler's own access; nil
	// when it can't look at files.
	Store(ctx context.Context, w Write) (objstore.Store, error)
	// WaitsFor says what the commit of a job waits for.
	WaitsFor(id string) string
	// Leaving is closed when clients are to leave and ask again.
	Leaving() <-chan struct{}
}

// Journal is what the service needs of the journal.
type Journal interface {
	StepWrite(ctx context.Context, jobID string, ev lifecycle.Event, body []byte) (lifecycle.State, lifecycle.Answer, error)
	WriteState(ctx context.Context, jobID string) (lifecycle.State, error)
	RunningWrites(ctx context.Context) ([]lifecycle.State, error)
}

// Request is a write to begin.
type Request struct {
	// Table is the name as it was given.
	Table string
	Key   string
	// KeyIsNew: the key was made for this request.
	KeyIsNew      bool
	TTL           time.Duration
	DryRun        bool
	AfterDeadline string
	Engine        string
}

// Write is a write as the scheduler has it.
type Write struct {
	// Job is the status of its job.
	Job *firnpb.JobStatus
	// Changed is closed when the job changes; nil when it has ended.
	Changed <-chan struct{}
	// Plan is the commit with the external operator below it, as it goes to workers:
	// without keys. Nil when the job has ended.
	Plan *plan.Commit
	// Warnings are about the keys that workers get.
	Warnings []string
	DryRun   bool
}

// context is what the write's workers write with.
func (w Write) context() plan.WriteContext {
	if w.Plan != nil {
		if e, ok := w.Plan.Input.(*plan.External); ok {
			return e.Context
		}
	}
	return plan.WriteContext{}
}
