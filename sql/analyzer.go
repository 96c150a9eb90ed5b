package sql

import (
	"context"
	"time"

	"github.com/firn-project/firn/plan"
)

// Analyzer turns statements into plans and runs those that only touch a
// catalog. It is safe for concurrent use when its parts are.
type Analyzer struct {
	Catalogs Catalogs
	Binder   Binder
	Parser   TreeParser
}

// BindOptions is what a job fixes for its statement.
type BindOptions struct {
	// JobID becomes part of the data prefix.
	JobID string
	// Now is what now() and its like give, everywhere in the job.
	Now time.Time
	// TimeZone is an IANA name; empty for UTC.
	TimeZone string
	// RejectLimit is how many rows may be unreadable, over the whole job.
	RejectLimit int64
	// Slots is the number of task slots that the job may use, 1 or more.
	Slots int
	// Uploads looks up a client's spooled stream; nil when there are none.
	Uploads func(id string) (plan.Upload, []plan.Column, error)
}

// Result is what a catalog statement gives.
type Result struct {
	// Statement is the kind of the statement.
	Statement string
	// Columns and Rows are empty for statements that give no rows. A value is
	// a string, a bool, an int64 or nil.
	Columns []string
	Rows    [][]any
	// Session is the caller's, changed by USE.
	Session plan.Session
}

// Bind turns an INSERT into a plan with a commit on top, and a SELECT into a
// *plan.Query. Errors are *commit.Error.
func (a *Analyzer) Bind(ctx context.Context, st Statement, session plan.Session, opts BindOptions) (plan.Node, error) {
	panic("not yet")
}

// RunCatalogStatement runs everything but INSERT, SELECT and EXPLAIN. Errors
// are *commit.Error.
func (a *Analyzer) RunCatalogStatement(ctx context.Context, st Statement, session plan.Session) (Result, error) {
	panic("not yet")
}
