package sql

import (
	"context"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// ResolveTable makes a full table name of one as written: the session gives
// what is left out. It doesn't look whether the table exists.
func (a *Analyzer) ResolveTable(ctx context.Context, name Name, session plan.Session) (commit.TableName, error) {
	return a.completeTable(ctx, name.Parts(), session)
}
