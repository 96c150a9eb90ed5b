package journal

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/google/uuid"
)

// schemaVersion is kept in the file (PRAGMA user_version). A journal of a later
// version is refused, one of an earlier version migrated.
const schemaVersion = 8

// migrations[n] makes version n+1 from version n, in one transaction with the
// number.
var migrations = [schemaVersion]string{`
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE jobs (
	seq INTEGER PRIMARY KEY AUTOINCREMENT,
	id TEXT NOT NULL UNIQUE,
	namespace TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL,
	statement TEXT NOT NULL, sql TEXT NOT NULL, tbl TEXT NOT NULL,
	state TEXT NOT NULL, commit_state TEXT NOT NULL, error TEXT NOT NULL,
	status BLOB NOT NULL,
	submitted_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX jobs_by_key ON jobs (namespace, key, seq);
CREATE INDEX jobs_by_state ON jobs (state, seq);
CREATE TABLE units (
	job_id TEXT PRIMARY KEY,
	namespace TEXT NOT NULL, key TEXT NOT NULL,
	token TEXT NOT NULL, digest TEXT NOT NULL,
	table_name TEXT NOT NULL, table_uuid TEXT NOT NULL, branch TEXT NOT NULL,
	operation TEXT NOT NULL, schema_id INTEGER NOT NULL, spec_id INTEGER NOT NULL,
	schema_json BLOB NOT NULL, spec_json BLOB NOT NULL,
	prefix TEXT NOT NULL, files INTEGER NOT NULL, row_count INTEGER NOT NULL,
	bytes INTEGER NOT NULL, tasks INTEGER NOT NULL, sealed_ms INTEGER NOT NULL,
	state TEXT NOT NULL, reason TEXT NOT NULL, cause TEXT NOT NULL
) STRICT;
CREATE TABLE manifests (job_id TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE sends (
	request_id TEXT PRIMARY KEY,
	snapshot_id TEXT NOT NULL, head TEXT NOT NULL,
	seat INTEGER NOT NULL, pointer TEXT NOT NULL, metadata_files TEXT NOT NULL,
	at_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE sent_tokens (
	token TEXT NOT NULL, request_id TEXT NOT NULL REFERENCES sends (request_id),
	PRIMARY KEY (token, request_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX units_by_token ON units (token);
`, `
CREATE TABLE lease (one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL) STRICT;
INSERT INTO lease VALUES (1, 0);
CREATE TABLE submissions (job_id TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE plans (job_id TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE executors (
	id TEXT PRIMARY KEY, incarnation TEXT NOT NULL, control TEXT NOT NULL, flight TEXT NOT NULL,
	slots INTEGER NOT NULL, memory INTEGER NOT NULL
) STRICT;
CREATE TABLE attempts (
	seq INTEGER PRIMARY KEY AUTOINCREMENT,
	id TEXT NOT NULL UNIQUE, job_id TEXT NOT NULL,
	stage INTEGER NOT NULL, task INTEGER NOT NULL, stage_attempt INTEGER NOT NULL,
	executor TEXT NOT NULL, incarnation TEXT NOT NULL, prefix TEXT NOT NULL,
	started_ms INTEGER NOT NULL, state TEXT NOT NULL, status BLOB NOT NULL
) STRICT;
CREATE INDEX attempts_by_job ON attempts (job_id, seq);
CREATE TABLE origins (token TEXT PRIMARY KEY, seat INTEGER NOT NULL, pointer TEXT NOT NULL, at_ms INTEGER NOT NULL) STRICT;
CREATE TABLE deletions (job_id TEXT NOT NULL, path TEXT NOT NULL, at_ms INTEGER NOT NULL, PRIMARY KEY (job_id, path)) STRICT, WITHOUT ROWID;
ALTER TABLE units ADD COLUMN origin_seat INTEGER NOT NULL DEFAULT 0;
ALTER TABLE units ADD COLUMN origin_pointer TEXT NOT NULL DEFAULT '';
ALTER TABLE units ADD COLUMN incarnation TEXT NOT NULL DEFAULT '';
ALTER TABLE units ADD COLUMN quarantine INTEGER NOT NULL DEFAULT 0;
ALTER TABLE units ADD COLUMN other INTEGER NOT NULL DEFAULT 0;
ALTER TABLE units ADD COLUMN since_ms INTEGER NOT NULL DEFAULT 0;
UPDATE units SET since_ms = sealed_ms, incarnation = (SELECT value FROM meta WHERE name = 'incarnation');
ALTER TABLE manifests ADD COLUMN file TEXT NOT NULL DEFAULT '';
CREATE INDEX units_by_table ON units (table_uuid, state);
CREATE INDEX jobs_by_table ON jobs (tbl, seq);
CREATE INDEX jobs_by_end ON jobs (ended_ms);
INSERT OR IGNORE INTO meta VALUES ('remembers_ms', (SELECT CAST(coalesce(min(submitted_ms), 0) AS TEXT) FROM jobs));
`, `
ALTER TABLE jobs ADD COLUMN lost INTEGER NOT NULL DEFAULT 0;
ALTER TABLE units ADD COLUMN ledger_only INTEGER NOT NULL DEFAULT 0;
ALTER TABLE units ADD COLUMN after_deadline TEXT NOT NULL DEFAULT '';
`, `
ALTER TABLE jobs ADD COLUMN sweep INTEGER NOT NULL DEFAULT 0;
UPDATE jobs SET sweep = 1 WHERE ended_ms > 0 AND tbl <> '' AND ` + leavesFiles + `;
CREATE INDEX jobs_by_sweep ON jobs (sweep) WHERE sweep > 0;
`, `
CREATE TABLE builds (
	mark TEXT NOT NULL, table_uuid TEXT NOT NULL, dir TEXT NOT NULL, table_name TEXT NOT NULL,
	incarnation TEXT NOT NULL, epoch INTEGER NOT NULL, at_ms INTEGER NOT NULL,
	PRIMARY KEY (mark, table_uuid, dir)
) STRICT, WITHOUT ROWID;
`, `
CREATE TABLE stripped (
	table_uuid TEXT PRIMARY KEY, table_name TEXT NOT NULL, job_id TEXT NOT NULL, snapshot_id TEXT NOT NULL, at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE uploads (
	id TEXT PRIMARY KEY, attempt TEXT NOT NULL, executor TEXT NOT NULL, incarnation TEXT NOT NULL, columns BLOB NOT NULL, expires_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
`, `
CREATE TABLE writes (
	job_id TEXT PRIMARY KEY, phase TEXT NOT NULL, ttl_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, max_expires_ms INTEGER NOT NULL,
	manifests INTEGER NOT NULL DEFAULT 0, files INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0,
	handles BLOB NOT NULL DEFAULT x'', digest TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
CREATE TABLE write_manifests (
	job_id TEXT NOT NULL, attempt TEXT NOT NULL, digest TEXT NOT NULL, files INTEGER NOT NULL, row_count INTEGER NOT NULL, size INTEGER NOT NULL,
	bytes INTEGER NOT NULL, body BLOB NOT NULL, file TEXT NOT NULL, PRIMARY KEY (job_id, attempt)
) STRICT;
`, `
CREATE TABLE frames (
	id TEXT PRIMARY KEY, lineage BLOB NOT NULL, pieces BLOB NOT NULL, expires_ms INTEGER NOT NULL
) STRICT;
`}

// migrate brings the schema up to date, finds out whether the file is the one
// that it was, and takes the epoch. file names the place of the journal's file;
// another place means that this is a copy, which may lack what was written to
// the first one since.
func (j *SQLite) migrate(ctx context.Context, file string) error {
	tx, err := j.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it has nothing to do
	var version int
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version > schemaVersion {
		return fmt.Errorf("the journal has version %d; this program knows versions up to %d", version, schemaVersion)
	}
	made := version == 0
	for ; version < schemaVersion; version++ {
		if _, err := tx.ExecContext(ctx, migrations[version]); err != nil {
			return fmt.Errorf("migrate from version %d: %w", version, err)
		}
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", schemaVersion)); err != nil {
		return err
	}
	if made {
		if err := setMeta(ctx, tx, "remembers_ms", strconv.FormatInt(now(), 10)); err != nil {
			return err
		}
	}
	if j.incarnation, err = incarnation(ctx, tx, file); err != nil {
		return err
	}
	if err := tx.QueryRowContext(ctx, "UPDATE lease SET epoch = epoch + 1 RETURNING epoch").Scan(&j.epoch); err != nil {
		return err
	}
	return tx.Commit()
}

// incarnation keeps the journal's incarnation as long as its file stays where
// it is. A journal of the first schema has no place yet, and keeps it too. With a
// new incarnation the jobs that run by the record are marked: what the first
// journal has written of them since the copy was made is lost.
func incarnation(ctx context.Context, tx *sql.Tx, file string) (string, error) {
	id, err := meta(ctx, tx, "incarnation")
	if err != nil {
		return "", err
	}
	place, err := meta(ctx, tx, "file")
	if err != nil {
		return "", err
	}
	if id != "" && (place == file || place == "") {
		return id, setMeta(ctx, tx, "file", file)
	}
	if _, err := tx.ExecContext(ctx, "UPDATE jobs SET lost = 1 WHERE ended_ms = 0"); err != nil {
		return "", err
	}
	id = uuid.NewString()
	if err := setMeta(ctx, tx, "incarnation", id); err != nil {
		return "", err
	}
	return id, setMeta(ctx, tx, "file", file)
}

// meta reads one value, empty when there is none.
func meta(ctx context.Context, tx *sql.Tx, name string) (value string, err error) {
	err = tx.QueryRowContext(ctx, "SELECT coalesce((SELECT value FROM meta WHERE name = ?), '')", name).Scan(&value)
	return value, err
}

func setMeta(ctx context.Context, tx *sql.Tx, name, value string) error {
	_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO meta VALUES (?, ?)", name, value)
	return err
}
