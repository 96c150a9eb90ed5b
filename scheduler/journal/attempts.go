package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/failpoint"
)

// Write implements Journal.
func (j *SQLite) Write(ctx context.Context, b Batch) error {
	if b.Empty() {
		return nil
	}
	if err := j.hasRoom(b); err != nil {
		return err
	}
	object := ""
	if len(b.Jobs) > 0 {
		object = "job " + b.Jobs[0].ID
	}
	b.hit(failpoint.BeforeStart, failpoint.BeforeAccept, failpoint.BeforeEnd)
	var forgotten []string
	err := j.tx(ctx, func(tx *sql.Tx) error {
		forgotten = nil
		for _, r := range b.Jobs {
			files, err := putJob(ctx, tx, r)
			if err != nil {
				return err
			}
			forgotten = append(forgotten, files...)
		}
		for _, p := range b.Plans {
			if _, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO plans VALUES (?, ?)`, p.JobID, blob(p.Body)); err != nil {
				return err
			}
		}
		for _, o := range b.Origins {
			if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO origins VALUES (?,?,?,?)`, o.Token.String(), o.Seat.Number, o.Seat.Pointer, now()); err != nil {
				return err
			}
		}
		if err := writeExecutors(ctx, tx, b); err != nil {
			return err
		}
		if err := writeUploads(ctx, tx, b); err != nil {
			return err
		}
		if err := writeFrames(ctx, tx, b); err != nil {
			return err
		}
		if err := writeWrites(ctx, tx, b); err != nil {
			return err
		}
		return writeAttempts(ctx, tx, b)
	})
	if err == nil {
		j.dropUnnamed(ctx, forgotten...)
		b.hit(failpoint.AfterStart, failpoint.AfterAccept, failpoint.AfterEnd)
	}
	return problem("record", object, err)
}

// hit passes the points of what the batch has.
func (b *Batch) hit(started, accepted, ended failpoint.Point) {
	failpoint.HitIf(len(b.Started) > 0, started)
	failpoint.HitIf(len(b.Accepted) > 0, accepted)
	failpoint.HitIf(slices.ContainsFunc(b.Jobs, func(r Job) bool { return !r.Ended.IsZero() }), ended)
}

func writeExecutors(ctx context.Context, tx *sql.Tx, b Batch) error {
	for _, e := range b.Gone {
		if _, err := tx.ExecContext(ctx, `DELETE FROM executors WHERE id = ? AND incarnation = ?`, e.ID, e.Incarnation); err != nil {
			return err
		}
	}
	for _, e := range b.Executors {
		if _, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO executors VALUES (?,?,?,?,?,?)`,
			e.ID, e.Incarnation, e.Control, e.Flight, e.Slots, e.Memory); err != nil {
			return err
		}
	}
	return nil
}

func writeAttempts(ctx context.Context, tx *sql.Tx, b Batch) error {
	for _, a := range b.Started {
		if _, err := tx.ExecContext(ctx, `INSERT INTO attempts
			(id, job_id, stage, task, stage_attempt, executor, incarnation, prefix, started_ms, state, status) VALUES (?,?,?,?,?,?,?,?,?,?,x'')`,
			a.ID, a.JobID, a.Stage, a.Task, a.StageAttempt, a.Executor, a.Incarnation, a.Prefix, millis(a.Started), string(AttemptStarted)); err != nil {
			return err
		}
	}
	for _, a := range b.Accepted {
		if err := one(tx.ExecContext(ctx, `UPDATE attempts SET state = ?, status = ? WHERE id = ? AND state = ?`,
			string(AttemptAccepted), blob(a.Status), a.ID, string(AttemptStarted))); err != nil {
			return fmt.Errorf("accept attempt %s: %w", a.ID, err)
		}
	}
	for _, id := range b.Ended {
		if _, err := tx.ExecContext(ctx, `UPDATE attempts SET state = ?, status = x'' WHERE id = ?`, string(AttemptEnded), id); err != nil {
			return err
		}
	}
	return nil
}

// Submission implements Journal.
func (j *SQLite) Submission(ctx context.Context, jobID string) ([]byte, error) {
	return j.body(ctx, "submission of job "+jobID, `SELECT body FROM submissions WHERE job_id = ?`, jobID)
}

// Plan implements Journal.
func (j *SQLite) Plan(ctx context.Context, jobID string) ([]byte, error) {
	return j.body(ctx, "plan of job "+jobID, `SELECT body FROM plans WHERE job_id = ?`, jobID)
}

func (j *SQLite) body(ctx context.Context, what, query, id string) ([]byte, error) {
	var body []byte
	err := j.db.QueryRowContext(ctx, query, id).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	return body, problem("read", what, err)
}

// Attempts implements Journal.
func (j *SQLite) Attempts(ctx context.Context, jobID string) ([]Attempt, error) {
	rows, err := j.db.QueryContext(ctx, `SELECT id, job_id, stage, task, stage_attempt, executor, incarnation, prefix, started_ms, state, status
		FROM attempts WHERE job_id = ? ORDER BY seq`, jobID)
	return list(rows, err, "attempts of "+jobID, func(s scanner) (a Attempt, err error) {
		var started int64
		err = s.Scan(&a.ID, &a.JobID, &a.Stage, &a.Task, &a.StageAttempt, &a.Executor, &a.Incarnation, &a.Prefix, &started, (*string)(&a.State), &a.Status)
		a.Started = fromMillis(started)
		return a, err
	})
}

// Executors implements Journal.
func (j *SQLite) Executors(ctx context.Context) ([]Executor, error) {
	rows, err := j.db.QueryContext(ctx, `SELECT id, incarnation, control, flight, slots, memory FROM executors ORDER BY id`)
	return list(rows, err, "executors", func(s scanner) (e Executor, err error) {
		return e, s.Scan(&e.ID, &e.Incarnation, &e.Control, &e.Flight, &e.Slots, &e.Memory)
	})
}

// list reads all rows of a query and closes them.
func list[T any](rows *sql.Rows, err error, what string, scan func(scanner) (T, error)) ([]T, error) {
	if err != nil {
		return nil, problem("list", what, err)
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, problem("list", what, err)
		}
		all = append(all, v)
	}
	return all, problem("list", what, rows.Err())
}

// Origin implements Journal.
func (j *SQLite) Origin(ctx context.Context, t commit.Token) (seat commit.Seat, err error) {
	err = j.db.QueryRowContext(ctx, `SELECT seat, pointer FROM origins WHERE token = ?`, t.String()).Scan(&seat.Number, &seat.Pointer)
	if errors.Is(err, sql.ErrNoRows) {
		return seat, fmt.Errorf("origin of %s: %w", t, ErrNotFound)
	}
	return seat, problem("read origin of", t.String(), err)
}

// LowestOrigin implements Journal.
func (j *SQLite) LowestOrigin(ctx context.Context, tableUUID, exceptJob string) (*commit.Seat, error) {
	var n sql.NullInt64
	err := j.db.QueryRowContext(ctx, `SELECT min(origin_seat) FROM units WHERE table_uuid = ? AND state IN (?,?,?,?) AND job_id <> ?
		AND (origin_seat <> 0 OR origin_pointer <> '') AND (state <> ? OR quarantine OR reason NOT IN ('', ?, ?))`,
		tableUUID, string(UnitSealed), string(UnitSent), string(UnitUnknown), string(UnitRefused), exceptJob, string(UnitRefused),
		string(commit.ReasonValidation), string(commit.ReasonLimit)).Scan(&n)
	if err != nil || !n.Valid {
		return nil, problem("look up origins of", tableUUID, err)
	}
	return &commit.Seat{Number: n.Int64}, nil
}
