package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/firn-project/firn/commit"
)

// schemaVersion is kept in the file (PRAGMA user_version). A journal of a later
// version is refused, one of an earlier version migrated.
const schemaVersion = 1

const schema = `
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
`

// SQLite is a Journal in one SQLite file in WAL mode with synchronous=FULL.
type SQLite struct {
	db          *sql.DB
	incarnation string
	lock        *os.File
}

var _ Journal = (*SQLite)(nil)

// Open opens the journal in dir, or makes it. It holds a lock on the directory
// until Close; the error of a second Open says who holds it.
func Open(ctx context.Context, dir string) (*SQLite, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, problem("open journal", dir, err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	j, err := open(ctx, filepath.Join(dir, "journal.db"))
	if err != nil {
		return nil, errors.Join(problem("open journal", dir, err), lock.Close())
	}
	j.lock = lock
	return j, nil
}

// OpenMemory makes a journal that is gone after Close.
func OpenMemory(ctx context.Context) (*SQLite, error) {
	j, err := open(ctx, ":memory:")
	if err != nil {
		return nil, problem("open journal", "in memory", err)
	}
	return j, nil
}

func open(ctx context.Context, path string) (*SQLite, error) {
	dsn := path
	if path != ":memory:" {
		dsn = "file:" + path + "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)"
	}
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	// One connection: writes are serial anyway, and in memory each connection
	// would have a database of its own.
	db.SetMaxOpenConns(1)
	db.SetConnMaxLifetime(0)
	j := &SQLite{db: db}
	if err := j.migrate(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return j, nil
}

func (j *SQLite) migrate(ctx context.Context) error {
	return j.tx(ctx, func(tx *sql.Tx) error {
		var version int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
			return err
		}
		switch {
		case version > schemaVersion:
			return fmt.Errorf("the journal has version %d; this program knows versions up to %d", version, schemaVersion)
		case version == 0:
			if _, err := tx.ExecContext(ctx, schema); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO meta VALUES ('incarnation', ?)", uuid.NewString()); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", schemaVersion)); err != nil {
				return err
			}
		}
		return tx.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = 'incarnation'").Scan(&j.incarnation)
	})
}

// Incarnation implements Journal.
func (j *SQLite) Incarnation() string { return j.incarnation }

// Close implements Journal.
func (j *SQLite) Close() error {
	err := j.db.Close()
	if j.lock != nil {
		err = errors.Join(err, j.lock.Close())
	}
	return err
}

// tx runs f in one transaction. A panic in f rolls back.
func (j *SQLite) tx(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := j.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it has nothing to do
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// problem makes an error for people of what the database said.
func problem(op, object string, err error) error {
	if err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotDroppable) || errors.Is(err, context.Canceled) {
		return err
	}
	if _, ok := errors.AsType[*commit.Error](err); ok {
		return err
	}
	return &commit.Error{
		Code: commit.CodeJournal, Op: op, Object: object, Cause: err,
		Hint: "Check the scheduler's directory: space, permissions, and that it was written by this version.",
	}
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
