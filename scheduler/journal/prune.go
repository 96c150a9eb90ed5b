package journal

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// Prune implements Journal.
func (j *SQLite) Prune(ctx context.Context, before time.Time) (int, error) {
	var n int64
	err := problem("prune", "jobs before "+before.UTC().Format(time.RFC3339), j.tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TEMP TABLE pruned AS SELECT id FROM jobs WHERE ended_ms > 0 AND ended_ms < ? AND sweep = 0
			AND NOT EXISTS (SELECT 1 FROM units u WHERE u.job_id = jobs.id AND `+unitWaits+`)`, millis(before))
		if err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM pruned`).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			// Should the machine's clock go back, what was forgotten stays forgotten.
			if _, err := tx.ExecContext(ctx, `UPDATE meta SET value = CAST(max(CAST(value AS INTEGER), ?) AS TEXT) WHERE name = 'remembers_ms'`, millis(before)); err != nil {
				return err
			}
		}
		for _, stmt := range prune {
			if _, err := tx.ExecContext(ctx, stmt); err != nil {
				return fmt.Errorf("%s: %w", strings.Fields(stmt)[2], err)
			}
		}
		return nil
	}))
	if err == nil && n > 0 && j.dir != "" {
		err = j.sweep(ctx)
	}
	return int(n), err
}

// prune forgets the jobs in the table pruned. A send record stays as long as a
// unit of one of its tokens does, and that of a fence, which has none, as long as
// the journal remembers its time. An origin stays as long as a unit or a running
// job may need it.
var prune = []string{
	`DELETE FROM units WHERE job_id IN (SELECT id FROM pruned)`,
	`DELETE FROM manifests WHERE job_id IN (SELECT id FROM pruned)`,
	`DELETE FROM attempts WHERE job_id IN (SELECT id FROM pruned)`,
	`DELETE FROM plans WHERE job_id IN (SELECT id FROM pruned)`,
	`DELETE FROM submissions WHERE job_id IN (SELECT id FROM pruned)`,
	`DELETE FROM writes WHERE job_id IN (SELECT id FROM pruned)`,
	`DELETE FROM write_manifests WHERE job_id IN (SELECT id FROM pruned)`,
	`DELETE FROM deletions WHERE job_id IN (SELECT id FROM pruned)`,
	`DELETE FROM jobs WHERE id IN (SELECT id FROM pruned)`,
	`DELETE FROM sent_tokens WHERE token NOT IN (SELECT token FROM units)
		AND NOT EXISTS (SELECT 1 FROM sent_tokens o JOIN units u USING (token) WHERE o.request_id = sent_tokens.request_id)`,
	`DELETE FROM sends WHERE request_id NOT IN (SELECT request_id FROM sent_tokens)
		AND at_ms < (SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'remembers_ms')`,
	`DELETE FROM origins WHERE token NOT IN (SELECT token FROM units)
		AND at_ms < (SELECT coalesce(min(submitted_ms), unixepoch() * 1000) FROM jobs WHERE ended_ms = 0)`,
	`DROP TABLE pruned`,
}
