package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/firn-project/firn/commit"
)

// Stripped says that a commit landed in a table without its tokens: a catalog, or
// a tool that rewrites metadata, doesn't keep what Firn writes beside the rows.
type Stripped struct {
	TableUUID string
	// Table is the name that the table had.
	Table commit.TableName
	// JobID is the job whose commit it was; SnapshotID is what it was known by.
	JobID, SnapshotID string
	// At is the journal's: Strip ignores it.
	At time.Time
}

// Strip implements Journal.
func (j *SQLite) Strip(ctx context.Context, s Stripped) error {
	table, err := json.Marshal(s.Table)
	if err != nil {
		return err
	}
	return problem("record the lost tokens of", s.Table.String(), j.tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO stripped VALUES (?,?,?,?,?)`, s.TableUUID, string(table), s.JobID, s.SnapshotID, now())
		return err
	}))
}

// Unstrip implements Journal.
func (j *SQLite) Unstrip(ctx context.Context, tableUUID string) error {
	return problem("forget the lost tokens of", tableUUID, j.tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM stripped WHERE table_uuid = ?`, tableUUID)
		return err
	}))
}

// Stripped implements Journal.
func (j *SQLite) Stripped(ctx context.Context) ([]Stripped, error) {
	rows, err := j.db.QueryContext(ctx, `SELECT table_uuid, table_name, job_id, snapshot_id, at_ms FROM stripped ORDER BY at_ms, table_uuid`)
	return list(rows, err, "tables without tokens", func(r scanner) (s Stripped, err error) {
		var table string
		var at int64
		if err := r.Scan(&s.TableUUID, &table, &s.JobID, &s.SnapshotID, &at); err != nil {
			return s, err
		}
		s.At = fromMillis(at)
		return s, json.Unmarshal([]byte(table), &s.Table)
	})
}
