package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/firn-project/firn/commit"
)

const unitColumns = `job_id, namespace, key, token, digest, table_name, table_uuid, branch, operation, schema_id, spec_id,
	schema_json, spec_json,	prefix, files, row_count, bytes, tasks, sealed_ms, state, reason, cause`

// Seal implements Journal.
func (j *SQLite) Seal(ctx context.Context, u Unit, manifest []byte) error {
	table, err := json.Marshal(u.Table)
	if err != nil {
		return err
	}
	return problem("seal commit of", u.JobID, j.tx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO units (`+unitColumns+`)
			VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,'','')`,
			u.JobID, u.Namespace, u.Key, u.Token.String(), u.Digest.String(), string(table), u.TableUUID, u.Branch,
			string(u.Operation), u.SchemaID, u.SpecID, blob(u.SchemaJSON), blob(u.SpecJSON), u.Prefix, u.Files, u.Rows, u.Bytes, u.Tasks, millis(u.Sealed),
			string(UnitSealed)); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO manifests VALUES (?, ?)`, u.JobID, blob(manifest))
		return err
	}))
}

// Send implements Journal.
func (j *SQLite) Send(ctx context.Context, s Send) error {
	files, err := json.Marshal(s.MetadataFiles)
	if err != nil {
		return err
	}
	return problem("record send", s.RequestID, j.tx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO sends (request_id, snapshot_id, head, seat, pointer, metadata_files, at_ms)
			VALUES (?,?,?,?,?,?,?)`, s.RequestID, s.SnapshotID, s.Head, s.Seat.Number, s.Seat.Pointer, string(files), millis(s.At)); err != nil {
			return err
		}
		for _, t := range s.Tokens {
			if err := one(tx.ExecContext(ctx, `UPDATE units SET state = ?
				WHERE rowid = (SELECT rowid FROM units WHERE token = ? ORDER BY rowid DESC LIMIT 1) AND state IN (?, ?, ?)`,
				string(UnitSent), t.String(), string(UnitSealed), string(UnitSent), string(UnitUnknown))); err != nil {
				return fmt.Errorf("no sealed unit has token %s: %w", t, err)
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO sent_tokens VALUES (?, ?)`, t.String(), s.RequestID); err != nil {
				return err
			}
		}
		return nil
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
	return problem("record outcome of", jobID, one(j.db.ExecContext(ctx,
		`UPDATE units SET state = ?, reason = ?, cause = ? WHERE job_id = ? AND (state <> ? OR ? = ?)`,
		string(state), string(o.Reason), o.Cause, jobID, string(UnitCommitted), string(state), string(UnitCommitted))))
}

// Drop implements Journal.
func (j *SQLite) Drop(ctx context.Context, jobID string) error {
	return problem("drop the files of", jobID, j.tx(ctx, func(tx *sql.Tx) error {
		var state UnitState
		var sends int
		err := tx.QueryRowContext(ctx, `SELECT state, (SELECT count(*) FROM sent_tokens s WHERE s.token = u.token)
			FROM units u WHERE job_id = ?`, jobID).Scan((*string)(&state), &sends)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("unit of job %s: %w", jobID, ErrNotFound)
		case err != nil:
			return err
		}
		// Never sent, or proven refused; a dropped unit may be dropped again.
		if sends > 0 && state != UnitRefused && state != UnitDropped || state == UnitCommitted {
			return fmt.Errorf("unit of job %s is %s: %w", jobID, state, ErrNotDroppable)
		}
		_, err = tx.ExecContext(ctx, `UPDATE units SET state = ? WHERE job_id = ?`, string(UnitDropped), jobID)
		return err
	}))
}

// Unit implements Journal.
func (j *SQLite) Unit(ctx context.Context, jobID string) (Unit, error) {
	u, err := scanUnit(j.db.QueryRowContext(ctx, `SELECT `+unitColumns+`,
		(SELECT count(*) FROM sent_tokens s WHERE s.token = u.token) FROM units u WHERE job_id = ?`, jobID))
	if err != nil {
		return u, problem("read unit of", jobID, fmt.Errorf("unit of job %s: %w", jobID, err))
	}
	return u, nil
}

// Unresolved implements Journal.
func (j *SQLite) Unresolved(ctx context.Context, t commit.Token) (string, error) {
	var id string
	err := j.db.QueryRowContext(ctx, `SELECT job_id FROM units WHERE token = ? AND state IN (?, ?) ORDER BY rowid LIMIT 1`,
		t.String(), string(UnitSent), string(UnitUnknown)).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return id, problem("look up unit", t.String(), err)
}

// Units implements Journal.
func (j *SQLite) Units(ctx context.Context, all bool) ([]Unit, error) {
	rows, err := j.db.QueryContext(ctx, `SELECT `+unitColumns+`,
		(SELECT count(*) FROM sent_tokens s WHERE s.token = u.token) FROM units u ORDER BY sealed_ms, job_id`)
	if err != nil {
		return nil, problem("list units", "", err)
	}
	defer rows.Close()
	var units []Unit
	for rows.Next() {
		u, err := scanUnit(rows)
		if err != nil {
			return nil, problem("list units", "", err)
		}
		if all || u.Waits() {
			units = append(units, u)
		}
	}
	return units, problem("list units", "", rows.Err())
}

// Manifest implements Journal.
func (j *SQLite) Manifest(ctx context.Context, jobID string) ([]byte, error) {
	var body []byte
	err := j.db.QueryRowContext(ctx, `SELECT body FROM manifests WHERE job_id = ?`, jobID).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("manifest of job %s: %w", jobID, ErrNotFound)
	}
	return body, problem("read manifest of", jobID, err)
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
	var sealed int64
	err := s.Scan(&u.JobID, &u.Namespace, &u.Key, &token, &digest, &table, &u.TableUUID, &u.Branch, (*string)(&u.Operation),
		&u.SchemaID, &u.SpecID, &u.SchemaJSON, &u.SpecJSON, &u.Prefix, &u.Files, &u.Rows, &u.Bytes, &u.Tasks, &sealed,
		(*string)(&u.State), (*string)(&u.Reason), &u.Cause, &u.Sends)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return u, ErrNotFound
	case err != nil:
		return u, err
	}
	u.Sealed = fromMillis(sealed)
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
