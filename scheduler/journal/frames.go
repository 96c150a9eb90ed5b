package journal

import (
	"context"
	"database/sql"
	"time"
)

// Frame is a cached frame: rows of a query that executors keep.
type Frame struct {
	ID string
	// Lineage is what it is made from, Pieces what there is of it, as the scheduler
	// wrote them. When written, nil leaves what was there.
	Lineage, Pieces []byte
	// Expires is when it is freed, unless somebody uses it then.
	Expires time.Time
}

// Frames implements Journal.
func (j *SQLite) Frames(ctx context.Context) ([]Frame, error) {
	rows, err := j.db.QueryContext(ctx, `SELECT id, lineage, pieces, expires_ms FROM frames ORDER BY id`)
	return list(rows, err, "cached frames", func(s scanner) (f Frame, err error) {
		var expires int64
		err = s.Scan(&f.ID, &f.Lineage, &f.Pieces, &expires)
		f.Expires = fromMillis(expires)
		return f, err
	})
}

func writeFrames(ctx context.Context, tx *sql.Tx, b Batch) error {
	for _, f := range b.Frames {
		stmt, args := `UPDATE frames SET expires_ms = ?2 WHERE id = ?1`, []any{f.ID, millis(f.Expires)}
		if f.Lineage != nil || f.Pieces != nil {
			stmt = `INSERT INTO frames VALUES (?1, coalesce(?3, x''), coalesce(?4, x''), ?2)
				ON CONFLICT (id) DO UPDATE SET lineage = coalesce(?3, lineage), pieces = coalesce(?4, pieces), expires_ms = ?2`
			args = append(args, f.Lineage, f.Pieces)
		}
		if _, err := tx.ExecContext(ctx, stmt, args...); err != nil {
			return err
		}
	}
	for _, id := range b.Forgotten {
		if _, err := tx.ExecContext(ctx, `DELETE FROM frames WHERE id = ?`, id); err != nil {
			return err
		}
	}
	return nil
}
