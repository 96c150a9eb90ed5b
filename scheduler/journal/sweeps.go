package journal

import (
	"context"
	"database/sql"
	"time"

	"github.com/firn-project/firn/commit"
)

// Sweep is a job that has ended and may have left files that no table can have.
//
// A job is due for two sweeps from the moment that its end is on record: one at
// once, and one when nobody can write below its prefix any more. Only a job that
// committed and each of whose writing attempts was accepted has nothing to sweep:
// an accepted attempt has finished its files, and no other one had the prefix.
type Sweep struct {
	JobID string
	// Table is the name of its target.
	Table string
	Ended time.Time
	// Again: it was swept once.
	Again bool
}

// What a job's column sweep says.
const (
	sweepNone  = 0
	sweepFirst = 1
	sweepAgain = 2
)

// leavesFiles holds for a job in the table jobs that may have left files.
const leavesFiles = `EXISTS (SELECT 1 FROM attempts a WHERE a.job_id = jobs.id AND a.prefix <> '' AND (a.state <> 'accepted'
	OR NOT EXISTS (SELECT 1 FROM units u WHERE u.job_id = jobs.id AND u.state = 'committed' AND NOT u.other)))`

// unitWaits holds for a unit u whose files must stay whatever else is known.
const unitWaits = `(u.state IN ('sealed', 'sent', 'unknown') OR u.quarantine OR u.state = 'refused' AND u.reason NOT IN ('', '` +
	string(commit.ReasonValidation) + `', '` + string(commit.ReasonLimit) + `'))`

// dueForSweeps notes the sweeps of a job with its end.
func dueForSweeps(ctx context.Context, tx *sql.Tx, jobID string) error {
	_, err := tx.ExecContext(ctx, `UPDATE jobs SET sweep = ? WHERE id = ? AND sweep = ? AND `+leavesFiles, sweepFirst, jobID, sweepNone)
	return err
}

// Sweeps implements Journal.
func (j *SQLite) Sweeps(ctx context.Context) ([]Sweep, error) {
	rows, err := j.db.QueryContext(ctx, `SELECT id, tbl, ended_ms, sweep FROM jobs WHERE sweep > 0 AND ended_ms > 0
		AND NOT EXISTS (SELECT 1 FROM units u WHERE u.job_id = jobs.id AND `+unitWaits+`) ORDER BY ended_ms`)
	return list(rows, err, "sweeps", func(s scanner) (w Sweep, err error) {
		var ended int64
		var stage int
		err = s.Scan(&w.JobID, &w.Table, &ended, &stage)
		w.Ended, w.Again = fromMillis(ended), stage == sweepAgain
		return w, err
	})
}

// Swept implements Journal.
func (j *SQLite) Swept(ctx context.Context, jobID string, last bool) error {
	next := sweepAgain
	if last {
		next = sweepNone
	}
	return problem("record the sweep of", jobID, j.tx(ctx, func(tx *sql.Tx) error {
		return one(tx.ExecContext(ctx, `UPDATE jobs SET sweep = ? WHERE id = ? AND ended_ms > 0`, next, jobID))
	}))
}
