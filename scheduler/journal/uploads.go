package journal

import (
	"context"
	"database/sql"
	"time"
)

// Upload is a client's stream of Arrow batches that an executor keeps, or is about
// to be given.
type Upload struct {
	ID, Attempt string
	// Executor keeps it, in the incarnation named.
	Executor, Incarnation string
	// Columns are as the scheduler wrote them.
	Columns []byte
	// Expires is when it is freed, unless a job reads it then.
	Expires time.Time
}

// Uploads implements Journal.
func (j *SQLite) Uploads(ctx context.Context) ([]Upload, error) {
	rows, err := j.db.QueryContext(ctx, `SELECT id, attempt, executor, incarnation, columns, expires_ms FROM uploads ORDER BY id`)
	return list(rows, err, "uploads", func(s scanner) (u Upload, err error) {
		var expires int64
		err = s.Scan(&u.ID, &u.Attempt, &u.Executor, &u.Incarnation, &u.Columns, &expires)
		u.Expires = fromMillis(expires)
		return u, err
	})
}

func writeUploads(ctx context.Context, tx *sql.Tx, b Batch) error {
	for _, u := range b.Uploads {
		if _, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO uploads VALUES (?,?,?,?,?,?)`,
			u.ID, u.Attempt, u.Executor, u.Incarnation, blob(u.Columns), millis(u.Expires)); err != nil {
			return err
		}
	}
	for _, id := range b.Freed {
		if _, err := tx.ExecContext(ctx, `DELETE FROM uploads WHERE id = ?`, id); err != nil {
			return err
		}
	}
	return nil
}
