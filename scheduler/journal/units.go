package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/failpoint"
)

const unitColumns = `job_id, namespace, key, token, digest, table_name, table_uuid, branch, operation, schema_id, spec_id,
	schema_json, spec_json, prefix, files, row_count, bytes, tasks, sealed_ms, origin_seat, origin_pointer, incarnation,
	state, reason, cause, quarantine, other, since_ms, ledger_only, after_deadline`

// Seal implements Journal.
func (j *SQLite) Seal(ctx context.Context, u Unit, manifest func(io.Writer) error) (err error) {
	table, err := json.Marshal(u.Table)
	if err != nil {
		return err
	}
	j.sealing.RLock()
	defer j.sealing.RUnlock()
	failpoint.Hit(failpoint.BeforeManifest)
	kept, err := j.keepWritten(manifest)
	if err != nil {
		return err
	}
	failpoint.Hit(failpoint.BeforeSeal)
	named, replaced := false, ""
	defer func() { j.settle(ctx, kept, err == nil && named) }()
	err = j.tx(ctx, func(tx *sql.Tx) error {
		named, replaced = false, ""
		sealed, err := j.sealedBefore(ctx, tx, u)
		if err != nil || sealed {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO units (`+unitColumns+`)
			VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,'','',0,0,?,0,?)`,
			u.JobID, u.Namespace, u.Key, u.Token.String(), u.Digest.String(), string(table), u.TableUUID, u.Branch,
			string(u.Operation), u.SchemaID, u.SpecID, blob(u.SchemaJSON), blob(u.SpecJSON), u.Prefix, u.Files, u.Rows, u.Bytes, u.Tasks, millis(u.Sealed),
			u.Origin.Number, u.Origin.Pointer, j.incarnation, string(UnitSealed), now(), string(u.AfterDeadline)); err != nil {
			return err
		}
		err = tx.QueryRowContext(ctx, `SELECT file FROM manifests WHERE job_id = ?`, u.JobID).Scan(&replaced)
		if err == nil || errors.Is(err, sql.ErrNoRows) {
			_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO manifests VALUES (?, ?, ?)`, u.JobID, blob(kept.body), kept.file)
		}
		named = err == nil
		return err
	})
	failpoint.HitIf(err == nil, failpoint.AfterSeal)
	if err == nil && replaced != "" {
		j.dropUnnamed(ctx, replaced)
	}
	return problem("seal commit of", u.JobID, err)
}

// sealedBefore says whether the unit stands sealed as it is, so that there's
// nothing to write. The error is ErrSealed for another content that may land.
func (j *SQLite) sealedBefore(ctx context.Context, tx *sql.Tx, u Unit) (bool, error) {
	old, err := scanUnit(tx.QueryRowContext(ctx, unitQuery+` WHERE job_id = ?`, u.JobID))
	switch {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case old.State == UnitDropped:
		return false, fmt.Errorf("unit of job %s was dropped, its files are gone: %w", u.JobID, ErrSealed)
	case old.State == UnitRefused && !old.Quarantine && old.Incarnation == j.incarnation:
		return false, nil
	case old.State == UnitRefused && old.Incarnation != j.incarnation:
		return false, fmt.Errorf("unit of job %s was refused before the journal was restored, and may have been driven again since: %w", u.JobID, ErrSealed)
	case old.Token == u.Token && old.Digest == u.Digest:
		return old.State != UnitRefused, nil
	case old.State == UnitSealed && old.Sends == 0 && old.Incarnation == j.incarnation && old.Token != u.Token:
		return false, nil // its files are adopted into another table
	default:
		return false, fmt.Errorf("unit of job %s is %s: %w", u.JobID, old.State, ErrSealed)
	}
}

// Send implements Journal.
func (j *SQLite) Send(ctx context.Context, s Send) error {
	files, err := json.Marshal(s.MetadataFiles)
	if err != nil {
		return err
	}
	failpoint.Hit(failpoint.BeforeRecord)
	err = j.tx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO sends (request_id, snapshot_id, head, seat, pointer, metadata_files, at_ms)
			VALUES (?,?,?,?,?,?,?)`, s.RequestID, s.SnapshotID, s.Head, s.Seat.Number, s.Seat.Pointer, string(files), millis(s.At)); err != nil {
			return err
		}
		for _, t := range s.Tokens {
			if err := one(tx.ExecContext(ctx, `UPDATE units SET state = ?, since_ms = ?
				WHERE rowid = (SELECT rowid FROM units WHERE token = ? ORDER BY rowid DESC LIMIT 1) AND state IN (?, ?, ?)`,
				string(UnitSent), now(), t.String(), string(UnitSealed), string(UnitSent), string(UnitUnknown))); err != nil {
				return fmt.Errorf("no sealed unit has token %s: %w", t, err)
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO sent_tokens VALUES (?, ?)`, t.String(), s.RequestID); err != nil {
				return err
			}
		}
		return nil
	})
	failpoint.HitIf(err == nil, failpoint.AfterRecord)
	return problem("record send", s.RequestID, err)
}

// Lost implements Journal.
func (j *SQLite) Lost(ctx context.Context, jobID string, s Send) error {
	return problem("record lost sends of", jobID, j.tx(ctx, func(tx *sql.Tx) error {
		u, err := scanUnit(tx.QueryRowContext(ctx, unitQuery+` WHERE job_id = ?`, jobID))
		if err != nil {
			return fmt.Errorf("unit of job %s: %w", jobID, err)
		}
		state := UnitSent
		switch u.State {
		case UnitCommitted, UnitDropped:
			return nil
		case UnitRefused, UnitUnknown:
			state = UnitUnknown
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO sends (request_id, snapshot_id, head, seat, pointer, metadata_files, at_ms)
			VALUES (?,'',?,?,?,'[]',?)`, s.RequestID, s.Head, s.Seat.Number, s.Seat.Pointer, millis(s.At)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO sent_tokens VALUES (?, ?)`, u.Token.String(), s.RequestID); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE units SET state = ?, quarantine = 0, incarnation = ?, since_ms = ? WHERE job_id = ?`,
			string(state), j.incarnation, now(), jobID)
		return err
	}))
}

// Outcome implements Journal.
func (j *SQLite) Outcome(ctx context.Context, jobID string, o Outcome) error {
	var state UnitState
	switch o.State {
	case commit.Committed:
		state = UnitCommitted
	case commit.Refused:
		state = UnitRefused
	case commit.Unknown:
		state = UnitUnknown
	default:
		return fmt.Errorf("journal: outcome %q of job %s isn't one", o.State, jobID)
	}
	// Committed is proven and final: nothing takes it back.
	failpoint.Hit(failpoint.BeforeOutcome)
	err := j.tx(ctx, func(tx *sql.Tx) error {
		if err := one(tx.ExecContext(ctx, `UPDATE units SET state = ?, reason = ?, cause = ?, quarantine = ?, other = ?, ledger_only = ?, since_ms = ?
			WHERE job_id = ? AND (state <> ? OR ? = ?)`,
			string(state), string(o.Reason), o.Cause, o.Quarantine, o.Other, o.LedgerOnly, now(), jobID, string(UnitCommitted), string(state), string(UnitCommitted))); err != nil {
			return err
		}
		if state != UnitCommitted || o.LedgerOnly {
			return nil
		}
		// A token lands once. What other jobs sealed under it, and was refused for
		// good, has lost: its files needn't wait for somebody to drive it again.
		_, err := tx.ExecContext(ctx, `UPDATE units SET state = ?, other = 1, since_ms = ? FROM (SELECT token, digest FROM units WHERE job_id = ?) AS won
			WHERE units.token = won.token AND units.digest <> won.digest AND job_id <> ? AND state = ? AND NOT quarantine AND incarnation = ?`,
			string(UnitCommitted), now(), jobID, jobID, string(UnitRefused), j.incarnation)
		return err
	})
	failpoint.HitIf(err == nil, failpoint.AfterOutcome)
	return problem("record outcome of", jobID, err)
}

// Drop implements Journal.
func (j *SQLite) Drop(ctx context.Context, jobID string) error {
	return problem("drop the files of", jobID, j.tx(ctx, func(tx *sql.Tx) error {
		u, err := scanUnit(tx.QueryRowContext(ctx, unitQuery+` WHERE job_id = ?`, jobID))
		if err != nil {
			return fmt.Errorf("unit of job %s: %w", jobID, err)
		}
		if !j.givable(u) {
			return fmt.Errorf("unit of job %s is %s: %w", jobID, u.State, ErrNotDroppable)
		}
		_, err = tx.ExecContext(ctx, `UPDATE units SET state = ?, since_ms = ? WHERE job_id = ?`, string(UnitDropped), now(), jobID)
		return err
	}))
}

// givable: nothing of the unit can be in a table or get there any more. That is
// so when its final refusal is on record, and when nothing of it was ever sent.
// Both are said by the journal that saw it: what this one is a copy of may have
// sent the unit, or driven it again, since. A dropped unit may be dropped again.
func (j *SQLite) givable(u Unit) bool {
	switch u.State {
	case UnitRefused:
		return !u.Quarantine && u.Incarnation == j.incarnation
	case UnitDropped:
		return true
	case UnitSealed:
		return u.Sends == 0 && u.Incarnation == j.incarnation
	default:
		return false
	}
}

// Deleting implements Journal.
func (j *SQLite) Deleting(ctx context.Context, jobID string, paths []string, loser bool) error {
	failpoint.HitIf(len(paths) > 0, failpoint.BeforeDeleting)
	err := j.tx(ctx, func(tx *sql.Tx) error {
		var ended int64
		var lost bool
		err := tx.QueryRowContext(ctx, `SELECT ended_ms, lost FROM jobs WHERE id = ?`, jobID).Scan(&ended, &lost)
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("job %s: %w", jobID, ErrNotFound)
		}
		if err != nil {
			return err
		}
		if ended == 0 {
			return fmt.Errorf("job %s runs: %w", jobID, ErrNotDroppable)
		}
		u, err := scanUnit(tx.QueryRowContext(ctx, unitQuery+` WHERE job_id = ?`, jobID))
		switch {
		case errors.Is(err, ErrNotFound) && lost:
			return fmt.Errorf("job %s ran when this copy of the journal was made, and may have been sealed and sent since: %w", jobID, ErrNotDroppable)
		case errors.Is(err, ErrNotFound): // no seal, and so no send record
		case err != nil:
			return err
		case u.State == UnitCommitted && loser && !u.LedgerOnly:
		case u.State == UnitSealed || u.State == UnitRefused && u.Reason.Parks() || !j.givable(u):
			return fmt.Errorf("unit of job %s is %s: %w", jobID, u.State, ErrNotDroppable)
		}
		for _, p := range paths {
			if _, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO deletions VALUES (?, ?, ?)`, jobID, p, now()); err != nil {
				return err
			}
		}
		return nil
	})
	failpoint.HitIf(err == nil && len(paths) > 0, failpoint.AfterDeleting)
	return problem("delete files of", jobID, err)
}

// Deleted implements Journal.
func (j *SQLite) Deleted(ctx context.Context, jobID string) ([]string, error) {
	rows, err := j.db.QueryContext(ctx, `SELECT path FROM deletions WHERE job_id = ? ORDER BY path`, jobID)
	return list(rows, err, "deletions of "+jobID, func(s scanner) (p string, err error) { return p, s.Scan(&p) })
}

const unitQuery = `SELECT ` + unitColumns + `, (SELECT count(*) FROM sent_tokens s WHERE s.token = u.token) FROM units u`

// Unit implements Journal.
func (j *SQLite) Unit(ctx context.Context, jobID string) (Unit, error) {
	u, err := scanUnit(j.db.QueryRowContext(ctx, unitQuery+` WHERE job_id = ?`, jobID))
	if err != nil {
		return u, problem("read unit of", jobID, fmt.Errorf("unit of job %s: %w", jobID, err))
	}
	return u, nil
}

// Unresolved implements Journal.
func (j *SQLite) Unresolved(ctx context.Context, t commit.Token) (string, error) {
	var id string
	err := j.db.QueryRowContext(ctx, `SELECT job_id FROM units WHERE token = ?
		AND (state IN (?, ?) OR incarnation <> ? AND state IN (?, ?)) ORDER BY rowid LIMIT 1`,
		t.String(), string(UnitSent), string(UnitUnknown), j.incarnation, string(UnitSealed), string(UnitRefused)).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return id, problem("look up unit", t.String(), err)
}

// Units implements Journal.
func (j *SQLite) Units(ctx context.Context, all bool) ([]Unit, error) {
	rows, err := j.db.QueryContext(ctx, unitQuery+` ORDER BY sealed_ms, job_id`)
	units, err := list(rows, err, "units", scanUnit)
	if !all {
		units = slices.DeleteFunc(units, func(u Unit) bool { return !u.Waits() })
	}
	return units, err
}

// Sends implements Journal.
func (j *SQLite) Sends(ctx context.Context, t commit.Token) ([]Send, error) {
	rows, err := j.db.QueryContext(ctx, `SELECT s.request_id, snapshot_id, head, seat, pointer, metadata_files, at_ms
		FROM sent_tokens k JOIN sends s USING (request_id) WHERE k.token = ? ORDER BY s.rowid`, t.String())
	if err != nil {
		return nil, problem("list sends of", t.String(), err)
	}
	defer rows.Close()
	var all []Send
	for rows.Next() {
		s := Send{Tokens: []commit.Token{t}}
		var files string
		var at int64
		if err := rows.Scan(&s.RequestID, &s.SnapshotID, &s.Head, &s.Seat.Number, &s.Seat.Pointer, &files, &at); err != nil {
			return nil, problem("list sends of", t.String(), err)
		}
		if err := json.Unmarshal([]byte(files), &s.MetadataFiles); err != nil {
			return nil, problem("list sends of", t.String(), err)
		}
		s.At = fromMillis(at)
		all = append(all, s)
	}
	return all, problem("list sends of", t.String(), rows.Err())
}

func scanUnit(s scanner) (Unit, error) {
	var u Unit
	var token, digest, table string
	var sealed, since int64
	err := s.Scan(&u.JobID, &u.Namespace, &u.Key, &token, &digest, &table, &u.TableUUID, &u.Branch, (*string)(&u.Operation),
		&u.SchemaID, &u.SpecID, &u.SchemaJSON, &u.SpecJSON, &u.Prefix, &u.Files, &u.Rows, &u.Bytes, &u.Tasks, &sealed,
		&u.Origin.Number, &u.Origin.Pointer, &u.Incarnation,
		(*string)(&u.State), (*string)(&u.Reason), &u.Cause, &u.Quarantine, &u.Other, &since, &u.LedgerOnly, (*string)(&u.AfterDeadline), &u.Sends)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return u, ErrNotFound
	case err != nil:
		return u, err
	}
	u.Sealed, u.Since = fromMillis(sealed), fromMillis(since)
	if u.Token, err = commit.ParseToken(token); err != nil {
		return u, err
	}
	if u.Digest, err = commit.ParseDigest(digest); err != nil {
		return u, err
	}
	return u, json.Unmarshal([]byte(table), &u.Table)
}

// one makes an update that changed no row an error.
func one(res sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	return err
}

// blob is b where NULL isn't allowed.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func now() int64 { return time.Now().UnixMilli() }
