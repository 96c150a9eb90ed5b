package executor

import (
	"context"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
)

// Engine runs queries in one task slot. It is used by one goroutine at a time.
type Engine interface {
	// Probe describes sources and binds a query.
	Probe(ctx context.Context, req plan.ProbeRequest) (plan.ProbeResult, error)
	// Query begins to run a query. Only one runs at a time: the caller closes
	// the rows first.
	Query(ctx context.Context, q *plan.Query, task TaskInfo) (Rows, error)
	// Close frees the engine.
	Close() error
}

// TaskInfo is what a query must know of its task.
type TaskInfo struct {
	// Attempt is the id of the task attempt, fit for a file name.
	Attempt string
	// Now and TimeZone are those of the job.
	Now      time.Time
	TimeZone string
	// Kept opens what executors keep of uploads and cached frames, one location
	// after the other.
	Kept func(ctx context.Context, locations []plan.ShuffleLocation) (Batches, error)
	// Endpoints opens a part of what a Flight SQL engine's query gave.
	Endpoints func(ctx context.Context, src *plan.Source, f plan.SourceFile) (Batches, error)
	// Stores reaches the objects of a source by its settings.
	Stores func(storage map[string]string) objstore.Store
}

// Batches is a stream of record batches of one schema. It is for one goroutine.
type Batches interface {
	// Schema is that of all batches.
	Schema() *arrow.Schema
	// Next returns the next batch, which the caller releases, or io.EOF after
	// the last.
	Next(ctx context.Context) (arrow.RecordBatch, error)
	// Close frees the stream; it must be called.
	Close() error
}

// Rows is what a query gives.
type Rows interface {
	Batches
	// Rejects says how many rows could not be read and describes the first
	// few, as "file:line: why". It is complete when Next has returned io.EOF.
	Rejects() (n int64, first []string)
}

// EngineConfig says how a slot's engine runs.
type EngineConfig struct {
	// Dir is the slot's own directory, empty, for staged inputs and spilling.
	Dir string
	// Memory is its limit in bytes.
	Memory int64
	// ObjectCache bounds what it keeps of objects on disk, in bytes; 0 for no bound.
	ObjectCache int64
	// LocalAllow are the directories that sources may be read from.
	LocalAllow []string
}
