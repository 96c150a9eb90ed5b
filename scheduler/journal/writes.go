package journal

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/firn-project/firn/internal/failpoint"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

const (
	writeColumns = `SELECT w.job_id, w.phase, w.ttl_ms, w.expires_ms, w.max_expires_ms, w.manifests, w.files, w.bytes`
	writeEnded   = `coalesce(j.ended_ms, 1) > 0 FROM writes w LEFT JOIN jobs j ON j.id = w.job_id`
	writeQuery   = writeColumns + `, w.handles, w.digest, ` + writeEnded
)

// StepWrite implements Journal.
func (j *SQLite) StepWrite(ctx context.Context, jobID string, ev lifecycle.Event, body []byte) (s lifecycle.State, a lifecycle.Answer, err error) {
	put, isPut := ev.(lifecycle.Put)
	if isPut {
		// A manifest that won't be kept isn't written to the disk, and takes no turn of
		// those who write. That one is kept, the transaction decides.
		if _, s, a, err = stepOf(ctx, j.db, jobID, ev); err != nil || a.Verdict != lifecycle.Kept {
			return s, a, problem("read write", jobID, err)
		}
	}
	if _, sealing := ev.(lifecycle.Seal); sealing {
		failpoint.Hit(failpoint.BeforeWriteSeal)
	}
	j.sealing.RLock()
	defer j.sealing.RUnlock()
	var kept keptManifest
	if isPut {
		failpoint.Hit(failpoint.BeforeHandIn)
		if err := j.roomForManifest(jobID); err != nil {
			return s, a, err
		}
		if kept, err = j.keepManifest(body); err != nil {
			return s, a, err
		}
		defer func() { j.settle(ctx, kept, err == nil && a.Verdict == lifecycle.Kept) }()
	}
	err = j.tx(ctx, func(tx *sql.Tx) error {
		var was lifecycle.State
		var err error
		if was, s, a, err = stepOf(ctx, tx, jobID, ev); err != nil {
			return err
		}
		if isPut && a.Verdict == lifecycle.Kept {
			m := put.Manifest
			if _, err := tx.ExecContext(ctx, `INSERT INTO write_manifests (job_id, attempt, digest, files, row_count, size, bytes, body, file) VALUES (?,?,?,?,?,?,?,?,?)`,
				jobID, m.Attempt, m.Digest, m.Files, m.Rows, m.Size, m.Bytes, blob(kept.body), kept.file); err != nil {
				return err
			}
		}
		if s.Phase == was.Phase && s.Expires.Equal(was.Expires) && s.Manifests == was.Manifests {
			return nil // files and bytes change with manifests, and handles with the phase
		}
		handles := []byte{}
		if s.Phase == lifecycle.Sealed {
			if handles, err = json.Marshal(s.Handles); err != nil {
				return err
			}
		}
		return one(tx.ExecContext(ctx, `UPDATE writes SET phase = ?, expires_ms = ?, manifests = ?, files = ?, bytes = ?, handles = ?, digest = ? WHERE job_id = ?`,
			string(s.Phase), millis(s.Expires), s.Manifests, s.Files, s.Bytes, handles, s.Digest, jobID))
	})
	failpoint.HitIf(err == nil && a.Verdict == lifecycle.NowSealed, failpoint.AfterWriteSeal)
	failpoint.HitIf(err == nil && a.Verdict == lifecycle.Kept, failpoint.AfterHandIn)
	return s, a, problem("record a step of write", jobID, err)
}

// stepOf reads the record of a write, and says what an event would make of it.
func stepOf(ctx context.Context, from interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, jobID string, ev lifecycle.Event,
) (was, s lifecycle.State, a lifecycle.Answer, err error) {
	if was, err = scanWrite(from.QueryRowContext(ctx, writeQuery+` WHERE w.job_id = ?`, jobID)); err != nil {
		return was, s, a, fmt.Errorf("write %s: %w", jobID, err)
	}
	s, a = lifecycle.Step(was, func(attempt string) (m lifecycle.Manifest, ok bool) {
		m, failed := scanManifest(from.QueryRowContext(ctx, manifestQuery+` WHERE job_id = ? AND attempt = ?`, jobID, attempt))
		if failed != nil && !errors.Is(failed, sql.ErrNoRows) {
			err = errors.Join(err, failed)
		}
		return m, failed == nil
	}, ev)
	return was, s, a, err
}

// roomForManifest refuses manifests while the reserve is spent: what is left belongs
// to the commits in flight.
func (j *SQLite) roomForManifest(jobID string) error {
	if j.dir == "" {
		return nil
	}
	if j.keepReserve(); !j.hasReserve() {
		return problem("take a manifest of write", jobID, errFull)
	}
	return nil
}

// WriteState implements Journal.
func (j *SQLite) WriteState(ctx context.Context, jobID string) (lifecycle.State, error) {
	s, err := scanWrite(j.db.QueryRowContext(ctx, writeQuery+` WHERE w.job_id = ?`, jobID))
	if err != nil {
		return s, problem("read write", jobID, fmt.Errorf("write %s: %w", jobID, err))
	}
	return s, nil
}

// RunningWrites implements Journal. Handles are many, and it's asked all the time.
func (j *SQLite) RunningWrites(ctx context.Context) ([]lifecycle.State, error) {
	rows, err := j.db.QueryContext(ctx, writeColumns+`, x'', '', `+writeEnded+` WHERE j.ended_ms = 0 ORDER BY w.job_id`)
	return list(rows, err, "running writes", scanWrite)
}

const manifestQuery = `SELECT attempt, digest, files, row_count, size, bytes FROM write_manifests`

// WriteManifests implements Journal.
func (j *SQLite) WriteManifests(ctx context.Context, jobID string) ([]lifecycle.Manifest, error) {
	rows, err := j.db.QueryContext(ctx, manifestQuery+` WHERE job_id = ? ORDER BY attempt`, jobID)
	return list(rows, err, "manifests of "+jobID, scanManifest)
}

// WriteManifest implements Journal.
func (j *SQLite) WriteManifest(ctx context.Context, jobID, attempt string) ([]byte, error) {
	var body []byte
	var file string
	err := j.db.QueryRowContext(ctx, `SELECT body, file FROM write_manifests WHERE job_id = ? AND attempt = ?`, jobID, attempt).Scan(&body, &file)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, fmt.Errorf("manifest of attempt %s of write %s: %w", attempt, jobID, ErrNotFound)
	case err != nil || file == "":
		return body, problem("read manifest of", jobID, err)
	}
	return j.readKept(file)
}

// readKept reads a manifest that lies in a file of its own.
func (j *SQLite) readKept(file string) ([]byte, error) {
	path := filepath.Join(j.dir, manifestDir, file)
	body, err := os.ReadFile(path)
	if err != nil {
		return nil, problem("read manifest", path, err)
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:])+".arrow" != file {
		return nil, problem("read manifest", path, errors.New("its content isn't what was kept"))
	}
	return body, nil
}

func writeWrites(ctx context.Context, tx *sql.Tx, b Batch) error {
	for _, s := range b.Writes {
		if _, err := tx.ExecContext(ctx, `INSERT INTO writes (job_id, phase, ttl_ms, expires_ms, max_expires_ms) VALUES (?,?,?,?,?)`,
			s.WriteID, string(s.Phase), s.TTL.Milliseconds(), millis(s.Expires), millis(s.MaxExpires)); err != nil {
			return err
		}
	}
	return nil
}

// forgetHandedIn drops the manifests of a write with the end of its job: what was
// sealed of them is in the unit's own. It returns those that lie in files.
func forgetHandedIn(ctx context.Context, tx *sql.Tx, jobID string) ([]string, error) {
	rows, err := tx.QueryContext(ctx, `DELETE FROM write_manifests WHERE job_id = ? RETURNING file`, jobID)
	files, err := list(rows, err, "manifests of "+jobID, func(s scanner) (f string, err error) { return f, s.Scan(&f) })
	return slices.DeleteFunc(files, func(f string) bool { return f == "" }), err
}

func scanWrite(s scanner) (w lifecycle.State, err error) {
	var ttl, expires, most int64
	var handles []byte
	err = s.Scan(&w.WriteID, (*string)(&w.Phase), &ttl, &expires, &most, &w.Manifests, &w.Files, &w.Bytes, &handles, &w.Digest, &w.JobEnded)
	if errors.Is(err, sql.ErrNoRows) {
		return w, ErrNotFound
	}
	if err != nil {
		return w, err
	}
	w.TTL, w.Expires, w.MaxExpires = time.Duration(ttl)*time.Millisecond, fromMillis(expires), fromMillis(most)
	if len(handles) > 0 {
		err = json.Unmarshal(handles, &w.Handles)
	}
	return w, err
}

func scanManifest(s scanner) (m lifecycle.Manifest, err error) {
	return m, s.Scan(&m.Attempt, &m.Digest, &m.Files, &m.Rows, &m.Size, &m.Bytes)
}
