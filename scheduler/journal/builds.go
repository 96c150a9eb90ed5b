package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/firn-project/firn/commit"
)

// Build says that a process writes files for requests to a table in a directory,
// with its mark in their names (commit.Marked). It is on record before the first
// of them is written.
type Build struct {
	Mark string
	// Table is the name that the table had, TableUUID what it is.
	Table     commit.TableName
	TableUUID string
	Dir       string
	// Incarnation, Epoch and At are the journal's: Building ignores them.
	Incarnation string
	Epoch       int64
	At          time.Time
}

// Building implements Journal.
func (j *SQLite) Building(ctx context.Context, b Build) error {
	table, err := json.Marshal(b.Table)
	if err != nil {
		return err
	}
	return problem("record the files of requests to", b.Table.String(), j.tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO builds VALUES (?, ?, ?, ?, ?, ?, ?)`,
			b.Mark, b.TableUUID, b.Dir, string(table), j.incarnation, j.epoch, now())
		return err
	}))
}

// Builds implements Journal.
func (j *SQLite) Builds(ctx context.Context) ([]Build, error) {
	rows, err := j.db.QueryContext(ctx, `SELECT mark, table_uuid, dir, table_name, incarnation, epoch, at_ms FROM builds ORDER BY at_ms, mark, dir`)
	return list(rows, err, "builds", func(s scanner) (b Build, err error) {
		var table string
		var at int64
		if err := s.Scan(&b.Mark, &b.TableUUID, &b.Dir, &table, &b.Incarnation, &b.Epoch, &at); err != nil {
			return b, err
		}
		b.At = fromMillis(at)
		return b, json.Unmarshal([]byte(table), &b.Table)
	})
}

// Unsent implements Journal.
func (j *SQLite) Unsent(ctx context.Context, requestIDs []string) ([]string, error) {
	ids, err := json.Marshal(requestIDs)
	if err != nil {
		return nil, err
	}
	rows, err := j.db.QueryContext(ctx, `SELECT value FROM json_each(?) WHERE value NOT IN (SELECT request_id FROM sends)`, string(ids))
	return list(rows, err, "requests without a send record", func(s scanner) (id string, err error) { return id, s.Scan(&id) })
}

// DeletingBuilt implements Journal.
func (j *SQLite) DeletingBuilt(ctx context.Context, b Build, clock commit.Seat, files []commit.MarkedFile) error {
	return problem("delete files of requests to", b.Table.String(), j.tx(ctx, func(tx *sql.Tx) error {
		var incarnation string
		var epoch int64
		err := tx.QueryRowContext(ctx, `SELECT incarnation, epoch FROM builds WHERE mark = ? AND table_uuid = ? AND dir = ?`, b.Mark, b.TableUUID, b.Dir).
			Scan(&incarnation, &epoch)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("mark %s in %s: %w", b.Mark, b.Dir, ErrNotFound)
		case err != nil:
			return err
		case incarnation != j.incarnation:
			return fmt.Errorf("the journal that they were written under may have sent what this copy of it doesn't know: %w", ErrNotDroppable)
		case epoch >= j.epoch:
			return fmt.Errorf("the process that writes them runs: %w", ErrNotDroppable)
		}
		var open int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM sends WHERE request_id LIKE '%-' || ?
			AND NOT (pointer <> '' AND pointer <> ? OR seat > 0 AND seat <= ?)`, b.Mark, clock.Pointer, clock.Number).Scan(&open); err != nil {
			return err
		}
		if open > 0 {
			return fmt.Errorf("%d requests of that process may land yet: %w", open, ErrNotDroppable)
		}
		for _, f := range files {
			var sent int
			if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM sends WHERE request_id = ?`, f.RequestID).Scan(&sent); err != nil {
				return err
			}
			if sent > 0 {
				return fmt.Errorf("request %s was sent: %w", f.RequestID, ErrNotDroppable)
			}
			if _, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO deletions VALUES (?, ?, ?)`, b.Mark, f.Path, now()); err != nil {
				return err
			}
		}
		return nil
	}))
}

// BuildSwept implements Journal.
func (j *SQLite) BuildSwept(ctx context.Context, b Build) error {
	return problem("record the sweep of requests to", b.Table.String(), j.tx(ctx, func(tx *sql.Tx) error {
		if err := one(tx.ExecContext(ctx, `DELETE FROM builds WHERE mark = ? AND table_uuid = ? AND dir = ? AND epoch < ?`, b.Mark, b.TableUUID, b.Dir, j.epoch)); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM deletions WHERE job_id = ? AND job_id NOT IN (SELECT mark FROM builds)`, b.Mark)
		return err
	}))
}
