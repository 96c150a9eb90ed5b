package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

const jobColumns = `id, namespace, key, fingerprint, statement, sql, tbl, state, commit_state, error, status, submitted_ms, ended_ms, lost`

// PutJob implements Journal.
func (j *SQLite) PutJob(ctx context.Context, r Job) error { return j.Write(ctx, Batch{Jobs: []Job{r}}) }

// putJob returns the files of manifests that it has forgotten.
func putJob(ctx context.Context, tx *sql.Tx, r Job) (forgotten []string, err error) {
	_, err = tx.ExecContext(ctx, `
		INSERT INTO jobs (`+jobColumns+`) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,0)
		ON CONFLICT (id) DO UPDATE SET state = excluded.state, commit_state = excluded.commit_state,
			error = excluded.error, status = excluded.status, tbl = excluded.tbl, ended_ms = excluded.ended_ms`,
		r.ID, r.Namespace, r.Key, r.Fingerprint, r.Statement, r.SQL, r.Table, r.State, string(r.Commit), r.Error, blob(r.Status),
		millis(r.Submitted), millis(r.Ended))
	if err == nil && r.Submission != nil {
		_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO submissions VALUES (?, ?)`, r.ID, r.Submission)
	}
	if err == nil && !r.Ended.IsZero() && r.Table != "" {
		err = dueForSweeps(ctx, tx, r.ID)
	}
	if err == nil && !r.Ended.IsZero() {
		forgotten, err = forgetHandedIn(ctx, tx, r.ID)
	}
	return forgotten, err
}

// Job implements Journal.
func (j *SQLite) Job(ctx context.Context, id string) (Job, error) {
	r, err := scanJob(j.db.QueryRowContext(ctx, `SELECT `+jobColumns+`, seq FROM jobs WHERE id = ?`, id))
	if err != nil {
		return r, problem("read job", id, fmt.Errorf("job %s: %w", id, err))
	}
	return r, nil
}

// JobByKey implements Journal.
func (j *SQLite) JobByKey(ctx context.Context, namespace, key string) (Job, error) {
	r, err := scanJob(j.db.QueryRowContext(ctx,
		`SELECT `+jobColumns+`, seq FROM jobs WHERE namespace = ? AND key = ? ORDER BY seq DESC LIMIT 1`, namespace, key))
	if err != nil {
		return r, problem("read job", key, fmt.Errorf("job of key %s: %w", key, err))
	}
	return r, nil
}

// Jobs implements Journal.
func (j *SQLite) Jobs(ctx context.Context, f Filter) ([]Job, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = -1
	}
	rows, err := j.db.QueryContext(ctx, `SELECT `+jobColumns+`, seq FROM jobs
		WHERE (? = '' OR state = ?) AND (NOT ? OR ended_ms = 0) AND (? = '' OR tbl = ?)
		AND (? = 0 OR seq < ?) AND submitted_ms >= ? AND (? = 0 OR submitted_ms < ?) ORDER BY seq DESC LIMIT ?`,
		f.State, f.State, f.Running, f.Table, f.Table, f.Before, f.Before, millis(f.Since), millis(f.Until), millis(f.Until), limit)
	if err != nil {
		return nil, problem("list jobs", "", err)
	}
	defer rows.Close()
	var all []Job
	for rows.Next() {
		r, err := scanJob(rows)
		if err != nil {
			return nil, problem("list jobs", "", err)
		}
		all = append(all, r)
	}
	return all, problem("list jobs", "", rows.Err())
}

type scanner interface{ Scan(dest ...any) error }

func scanJob(s scanner) (Job, error) {
	var r Job
	var submitted, ended int64
	err := s.Scan(&r.ID, &r.Namespace, &r.Key, &r.Fingerprint, &r.Statement, &r.SQL, &r.Table, &r.State,
		(*string)(&r.Commit), &r.Error, &r.Status, &submitted, &ended, &r.Lost, &r.Seq)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	r.Submitted, r.Ended = fromMillis(submitted), fromMillis(ended)
	return r, err
}
