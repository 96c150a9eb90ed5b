package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/sqlitestmt"
)

// SQLite is a Journal in one SQLite file in WAL mode with synchronous=FULL.
// Manifests above maxRow lie beside it, in files named by their digest.
type SQLite struct {
	db          *sql.DB
	incarnation string
	epoch       int64
	// dir is where large manifests and the reserve lie; empty in memory, where
	// everything is in rows.
	dir  string
	lock *os.File
	// sealing keeps manifests that no row names yet from being swept.
	sealing sync.RWMutex
	// claims keep single ones from being removed meanwhile.
	claims claims
	// fault stands for what the disk may answer to a transaction, in tests.
	fault func() error
	group group
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
	j.lock, j.dir = lock, dir
	if err := j.sweep(ctx); err != nil {
		return nil, errors.Join(problem("open journal", dir, err), j.Close())
	}
	j.keepReserve()
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
	dsn := sqlitestmt.File(path) + "?_txlock=immediate"
	if path != ":memory:" {
		dsn += "&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)"
	}
	db, err := sqlitestmt.Open(dsn)
	if err != nil {
		return nil, err
	}
	// One connection: writes are serial anyway, and in memory each connection
	// would have a database of its own.
	db.SetMaxOpenConns(1)
	db.SetConnMaxLifetime(0)
	j := &SQLite{db: db}
	if err = db.PingContext(ctx); err == nil {
		err = j.migrate(ctx, place(path))
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return j, nil
}

// place tells a file from its copies: a copy has another inode.
func place(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "memory"
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
	}
	return path
}

// Incarnation implements Journal.
func (j *SQLite) Incarnation() string { return j.incarnation }

// Epoch implements Journal.
func (j *SQLite) Epoch() int64 { return j.epoch }

// Leads implements Journal.
func (j *SQLite) Leads(ctx context.Context) (bool, error) {
	var epoch int64
	err := j.db.QueryRowContext(ctx, "SELECT epoch FROM lease").Scan(&epoch)
	return epoch == j.epoch, problem("read lease of", "the journal", err)
}

// Remembers implements Journal.
func (j *SQLite) Remembers(ctx context.Context) (time.Time, error) {
	var ms int64
	err := j.db.QueryRowContext(ctx, "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'remembers_ms'").Scan(&ms)
	return fromMillis(ms), problem("read", "its beginning", err)
}

// Close implements Journal.
func (j *SQLite) Close() error {
	err := j.db.Close()
	if j.lock != nil {
		err = errors.Join(err, j.lock.Close())
	}
	return err
}

// txOnce runs f in one transaction under this process's epoch.
func (j *SQLite) txOnce(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := j.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it has nothing to do
	// The transaction holds the write lock from its beginning, so nobody takes
	// the journal over between this look and the commit.
	var epoch int64
	if err := tx.QueryRowContext(ctx, "SELECT epoch FROM lease").Scan(&epoch); err != nil {
		return err
	}
	if epoch != j.epoch {
		return fmt.Errorf("epoch %d of this process is over, it is %d: %w", j.epoch, epoch, ErrDeposed)
	}
	if err := f(tx); err != nil {
		return err
	}
	if j.fault != nil {
		if err := j.fault(); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// problem makes an error for people of what the database said.
func problem(op, object string, err error) error {
	for _, own := range []error{ErrNotFound, ErrNotDroppable, ErrSealed, context.Canceled} {
		if errors.Is(err, own) {
			return err
		}
	}
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*commit.Error](err); ok {
		return err
	}
	e := &commit.Error{
		Code: commit.CodeJournal, Op: op, Object: object, Cause: err,
		Hint: "Check the scheduler's directory: space, permissions, and that it was written by this version.",
	}
	switch {
	case errors.Is(err, ErrDeposed):
		e.Code = commit.CodeJournalDeposed
		e.Hint = "Another scheduler works in this one's directory: stop this process."
	case isFull(err):
		e.Code = commit.CodeJournalFull
		e.Hint = "Free space on the disk of the scheduler's directory; statements are taken again then."
	}
	return e
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
