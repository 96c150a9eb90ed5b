package catalog

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	icesql "github.com/apache/iceberg-go/catalog/sql"
	"modernc.org/sqlite"
	sqlitelib "modernc.org/sqlite/lib"

	"github.com/firn-project/firn/internal/config"
)

// sqlitePath reads "sqlite:///abs/path", with SQLAlchemy's four slashes too, or
// a path.
func sqlitePath(uri string) (string, error) {
	p := uri
	if rest, ok := strings.CutPrefix(p, "sqlite://"); ok {
		p = rest
		if !strings.HasPrefix(p, "/") {
			return "", fmt.Errorf("uri %q: want sqlite:///absolute/path.db", config.MaskURI(uri))
		}
	} else if strings.Contains(p, "://") {
		return "", fmt.Errorf("uri %q: want sqlite:///absolute/path.db or postgresql://user@host/database", config.MaskURI(uri))
	}
	if p == "" || p == ":memory:" || strings.HasSuffix(p, "/") {
		return "", fmt.Errorf("uri %q: want a file", uri)
	}
	return filepath.Abs(p)
}

var sqliteDialect = dialect{
	library: icesql.SQLite,
	typed:   `SELECT count(*) FROM pragma_table_info('iceberg_tables') WHERE name = 'iceberg_type'`,
	bind:    func(s string) string { return s },
	fault: func(err error) sqlFault {
		switch sqliteCode(err) {
		case sqlitelib.SQLITE_BUSY, sqlitelib.SQLITE_LOCKED:
			return faultBusy
		case sqlitelib.SQLITE_READONLY, sqlitelib.SQLITE_PERM, sqlitelib.SQLITE_AUTH, sqlitelib.SQLITE_CANTOPEN:
			return faultPermission
		case sqlitelib.SQLITE_CONSTRAINT:
			return faultExists
		}
		return faultOther
	},
}

func (s *sqlCatalog) openSQLite(c Config) error {
	path, err := sqlitePath(c.URI)
	if err != nil {
		return configError(c.Name, err)
	}
	s.dialect, s.place = sqliteDialect, "the file "+path
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return mapped("open catalog", c.Name, err)
	}
	// Every connection: readers beside one writer, waiting for it instead of
	// failing, and a commit is on disk before it is acknowledged.
	dsn := (&url.URL{Scheme: "file", Path: path}).String() +
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	if s.db, err = sql.Open("sqlite", dsn); err != nil {
		return configError(c.Name, err)
	}
	return nil
}

// sqliteCode is SQLite's primary result code, or 0.
func sqliteCode(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}
