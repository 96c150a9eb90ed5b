package deltatables

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/sqlitestmt"
)

// Names keeps which names stand for Delta tables, and where these lie. It is safe
// for concurrent use.
type Names interface {
	// Location gives the location of the table of that name; ok is false when
	// there is none.
	Location(ctx context.Context, name commit.TableName) (location string, ok bool, err error)
	// Add keeps a name. The error wraps ErrTaken when it is kept already.
	Add(ctx context.Context, name commit.TableName, location string) error
	// Remove forgets a name; ok is false when there is none.
	Remove(ctx context.Context, name commit.TableName) (ok bool, err error)
	// List gives the names of one namespace, sorted.
	List(ctx context.Context, catalog string, namespace []string) ([]string, error)
	// Fitness gives what was found out about a store; ok is false for nothing.
	Fitness(ctx context.Context, store string) (f Fitness, ok bool, err error)
	// KeepFitness keeps it.
	KeepFitness(ctx context.Context, store string, f Fitness) error
	Close() error
}

// Fitness is what was found out about an object store: whether it keeps a second
// writer from a name that is taken.
type Fitness struct {
	Fit bool
	At  time.Time
}

// ErrTaken is the error for a name that is kept already.
var ErrTaken = errors.New("the name is taken")

// SQLite is Names in a file of SQLite.
type SQLite struct{ db *sql.DB }

var _ Names = (*SQLite)(nil)

// OpenSQLite opens the file, or makes it. The caller closes it.
func OpenSQLite(ctx context.Context, path string) (*SQLite, error) {
	db, err := sqlitestmt.Open(sqlitestmt.File(path) + "?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	if err == nil {
		db.SetMaxOpenConns(1)
		_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS delta_tables (
			catalog TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, location TEXT NOT NULL,
			PRIMARY KEY (catalog, namespace, name)) WITHOUT ROWID;
			CREATE TABLE IF NOT EXISTS delta_stores (store TEXT PRIMARY KEY, fit INTEGER NOT NULL, at_ms INTEGER NOT NULL) WITHOUT ROWID`)
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}
	if err != nil {
		return nil, newError(commit.CodeCatalog, "open the names of Delta tables", path, err)
	}
	return &SQLite{db}, nil
}

// Close implements Names.
func (s *SQLite) Close() error { return s.db.Close() }

// inOne joins the parts of a namespace by a sign that none of them has.
func inOne(namespace []string) string { return strings.Join(namespace, "\x00") }

// Location implements Names.
func (s *SQLite) Location(ctx context.Context, name commit.TableName) (location string, ok bool, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT location FROM delta_tables WHERE catalog = ? AND namespace = ? AND name = ?`,
		name.Catalog, inOne(name.Namespace), name.Name).Scan(&location)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return location, err == nil, problem(name, err)
}

// Add implements Names.
func (s *SQLite) Add(ctx context.Context, name commit.TableName, location string) error {
	r, err := s.db.ExecContext(ctx, `INSERT INTO delta_tables (catalog, namespace, name, location) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		name.Catalog, inOne(name.Namespace), name.Name, location)
	if err != nil {
		return problem(name, err)
	}
	n, err := r.RowsAffected()
	if err == nil && n == 0 {
		return fmt.Errorf("%s: %w", name, ErrTaken)
	}
	return problem(name, err)
}

// Remove implements Names.
func (s *SQLite) Remove(ctx context.Context, name commit.TableName) (ok bool, err error) {
	r, err := s.db.ExecContext(ctx, `DELETE FROM delta_tables WHERE catalog = ? AND namespace = ? AND name = ?`,
		name.Catalog, inOne(name.Namespace), name.Name)
	if err != nil {
		return false, problem(name, err)
	}
	n, err := r.RowsAffected()
	return n > 0, problem(name, err)
}

// List implements Names.
func (s *SQLite) List(ctx context.Context, catalog string, namespace []string) (names []string, err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT name FROM delta_tables WHERE catalog = ? AND namespace = ? ORDER BY name`, catalog, inOne(namespace))
	of := commit.TableName{Catalog: catalog, Namespace: namespace}
	if err != nil {
		return nil, problem(of, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, problem(of, err)
		}
		names = append(names, name)
	}
	return names, problem(of, rows.Err())
}

// Fitness implements Names.
func (s *SQLite) Fitness(ctx context.Context, store string) (f Fitness, ok bool, err error) {
	var ms int64
	err = s.db.QueryRowContext(ctx, `SELECT fit, at_ms FROM delta_stores WHERE store = ?`, store).Scan(&f.Fit, &ms)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return f, false, nil
	case err != nil:
		return f, false, newError(commit.CodeCatalog, "look up the store", store, err)
	}
	f.At = time.UnixMilli(ms)
	return f, true, nil
}

// KeepFitness implements Names.
func (s *SQLite) KeepFitness(ctx context.Context, store string, f Fitness) error {
	_, err := s.db.ExecContext(ctx, `INSERT INTO delta_stores (store, fit, at_ms) VALUES (?, ?, ?)
		ON CONFLICT (store) DO UPDATE SET fit = excluded.fit, at_ms = excluded.at_ms`, store, f.Fit, f.At.UnixMilli())
	if err != nil {
		return newError(commit.CodeCatalog, "keep what was found out about the store", store, err)
	}
	return nil
}

func problem(name commit.TableName, err error) error {
	if err == nil {
		return nil
	}
	return newError(commit.CodeCatalog, "look up the Delta table", name.String(), err)
}
