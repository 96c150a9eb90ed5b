package journal

import (
	"context"
	"errors"
	"time"

	"github.com/firn-project/firn/commit"
)

// ErrNotFound is wrapped when there is no record of that name.
var ErrNotFound = errors.New("not in the journal")

// Journal is the durable record. It is safe for concurrent use; every method
// that writes is atomic and durable when it returns.
type Journal interface {
	// Incarnation is a UUID made with the journal. It changes when a journal is
	// restored or lost, which is when earlier sends may be unknown to it.
	Incarnation() string

	// PutJob writes a job, replacing what was there under its id.
	PutJob(ctx context.Context, j Job) error
	// Job reads one job.
	Job(ctx context.Context, id string) (Job, error)
	// JobByKey reads the newest job that was submitted under a key.
	JobByKey(ctx context.Context, namespace, key string) (Job, error)
	// Jobs lists jobs, newest first.
	Jobs(ctx context.Context, f Filter) ([]Job, error)

	// Seal writes a unit, which has not been sent since, with its manifest. A
	// unit that was parked is sealed again when it is driven again.
	Seal(ctx context.Context, u Unit, manifest []byte) error
	// Send writes that a request is about to be sent. Each of its tokens must be
	// that of a sealed unit; when several jobs sealed one, the last is meant.
	Send(ctx context.Context, s Send) error
	// Outcome writes how the unit of a job ended, or that it isn't known.
	Outcome(ctx context.Context, jobID string, o Outcome) error
	// Drop writes that a unit's files were given up. It refuses, with
	// ErrNotDroppable, a unit that may be in a table, or may still get there.
	Drop(ctx context.Context, jobID string) error
	// Unit reads the unit of a job.
	Unit(ctx context.Context, jobID string) (Unit, error)
	// Unresolved names the job whose unit of this token was sent and may be in
	// the table, or may still get there; empty when there is none.
	Unresolved(ctx context.Context, t commit.Token) (jobID string, err error)
	// Units lists units, oldest first: all, or those that wait to be driven.
	Units(ctx context.Context, all bool) ([]Unit, error)
	// Manifest reads what Seal kept of a unit's files.
	Manifest(ctx context.Context, jobID string) ([]byte, error)
	// Sends lists the send records that name a token, in the order of sending.
	Sends(ctx context.Context, t commit.Token) ([]Send, error)

	// Close releases the journal. No other method may be called after it.
	Close() error
}

// ErrNotDroppable is wrapped when a unit's files may be in a table.
var ErrNotDroppable = errors.New("the unit's files may be in the table")

// Job is what is kept of a job.
type Job struct {
	ID string
	// Namespace and Key are the principal's namespace and idempotency key;
	// Fingerprint identifies the statement that the key belongs to.
	Namespace, Key, Fingerprint string
	// Statement is the kind of statement, SQL its text.
	Statement, SQL string
	// Table is the target's name, empty for a SELECT.
	Table string
	// State is the job's state, Commit what is known of the table.
	State  string
	Commit commit.CommitState
	// Error is what went wrong, as a line; empty when nothing did.
	Error string
	// Status is the whole status as clients get it.
	Status []byte
	// Ended is zero while the job runs.
	Submitted, Ended time.Time
}

// Filter picks jobs.
type Filter struct {
	// State is a job state; empty for all.
	State string
	// Running picks the jobs that have not ended.
	Running bool
	// Limit is the most jobs to return; 0 for all.
	Limit int
}

// UnitState is what the journal knows of a unit.
type UnitState string

// States of a unit.
const (
	// UnitSealed: fixed, and not sent.
	UnitSealed UnitState = "sealed"
	// UnitSent: a request that names it may have been sent.
	UnitSent      UnitState = "sent"
	UnitCommitted UnitState = "committed"
	UnitRefused   UnitState = "refused"
	UnitUnknown   UnitState = "unknown"
	// UnitDropped: refused, and its files were given up.
	UnitDropped UnitState = "dropped"
)

// Unit is a sealed commit unit without its files, which are in its manifest.
type Unit struct {
	JobID, Namespace, Key string
	Token                 commit.Token
	Digest                commit.Digest
	Table                 commit.TableName
	TableUUID, Branch     string
	Operation             commit.Operation
	SchemaID, SpecID      int
	// SchemaJSON and SpecJSON are what the files were written with.
	SchemaJSON, SpecJSON []byte
	Prefix               string
	Files, Rows, Bytes   int64
	Tasks                int
	Sealed               time.Time

	// State and what follows are the journal's: Seal ignores them.
	State  UnitState
	Reason commit.Reason
	Cause  string
	// Sends is the number of send records that name the token.
	Sends int
}

// Waits says whether the unit waits to be driven: what became of it is unknown,
// or it was refused for a reason that may pass.
func (u Unit) Waits() bool {
	switch u.State {
	case UnitSealed, UnitSent, UnitUnknown:
		return true
	case UnitRefused:
		return u.Reason.Parks()
	default:
		return false
	}
}

// Send is one send record: written before a request is sent.
type Send struct {
	RequestID  string
	SnapshotID string
	Head       string
	Seat       commit.Seat
	// Tokens are those of the units that the request would commit.
	Tokens []commit.Token
	// MetadataFiles are the files that were written for the request.
	MetadataFiles []string
	At            time.Time
}

// Outcome is how a unit ended.
type Outcome struct {
	State  commit.State
	Reason commit.Reason
	Cause  string
}
