package sqlitestmt

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"

	"modernc.org/sqlite"
)

// maxKept is how many compiled statements a connection keeps.
const maxKept = 64

// Open opens the database that dsn names, as sql.Open does for the driver
// "sqlite". The types of a result's columns (sql.Rows.ColumnTypes) can't be asked
// for. The caller closes it.
func Open(dsn string) (*sql.DB, error) {
	inner, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector{inner}), nil
}

// File is the beginning of the dsn of a database in a file, up to its parameters. What
// would end the path in a URI is escaped: another file would be opened.
func File(path string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath()
}

type connector struct{ driver.Connector }

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	full, ok := inner.(sqliteConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("sqlitestmt: the driver's connection is a %T", inner), inner.Close())
	}
	return &conn{sqliteConn: full, kept: map[string]*statement{}}, nil
}

// sqliteConn is what the driver's connections implement.
type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// conn is a connection. As database/sql sees to it, it serves one call at a time,
// but a statement's rows may be open while others run.
type conn struct {
	sqliteConn
	kept map[string]*statement
	// calls orders statements by their last use.
	calls uint64
}

type statement struct {
	sqliteStmt
	last uint64
	// busy: its rows are open.
	busy bool
}

// sqliteStmt is what the driver's statements implement.
type sqliteStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return c.sqliteConn.ExecContext(ctx, query, args)
	}
	return s.ExecContext(ctx, args)
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return c.sqliteConn.QueryContext(ctx, query, args)
	}
	r, err := s.QueryContext(ctx, args)
	if err != nil {
		return nil, err
	}
	s.busy = true
	return &rows{Rows: r, s: s}, nil
}

// rows are those of a statement that is kept.
type rows struct {
	driver.Rows
	s *statement
}

// Close implements driver.Rows.
func (r *rows) Close() error {
	err := r.Rows.Close()
	if r.s != nil {
		r.s.busy, r.s = false, nil
	}
	return err
}

// statement gives the compiled statement, nil while its rows are open.
func (c *conn) statement(ctx context.Context, query string) (*statement, error) {
	c.calls++
	if s := c.kept[query]; s != nil {
		if s.busy {
			return nil, nil
		}
		s.last = c.calls
		return s, nil
	}
	compiled, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	full, ok := compiled.(sqliteStmt)
	if !ok {
		return nil, compiled.Close()
	}
	if err := c.makeRoom(); err != nil {
		return nil, errors.Join(err, compiled.Close())
	}
	s := &statement{sqliteStmt: full, last: c.calls}
	c.kept[query] = s
	return s, nil
}

// makeRoom frees the statement that wasn't used for the longest time, if there
// are too many.
func (c *conn) makeRoom() error {
	if len(c.kept) < maxKept {
		return nil
	}
	oldest := ""
	for query, s := range c.kept {
		if !s.busy && (oldest == "" || s.last < c.kept[oldest].last) {
			oldest = query
		}
	}
	s := c.kept[oldest]
	if s == nil {
		return nil // all are busy
	}
	delete(c.kept, oldest)
	return s.Close()
}

// Close frees the statements and closes the connection.
func (c *conn) Close() error {
	var errs []error
	for _, s := range c.kept {
		errs = append(errs, s.Close())
	}
	clear(c.kept)
	return errors.Join(append(errs, c.sqliteConn.Close())...)
}
