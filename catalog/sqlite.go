package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	icecatalog "github.com/apache/iceberg-go/catalog"
	icesql "github.com/apache/iceberg-go/catalog/sql"
	"github.com/apache/iceberg-go/table"
	"modernc.org/sqlite"
	sqlitelib "modernc.org/sqlite/lib"

	"github.com/firn-project/firn/catalog/iceberg"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

// sqlCatalog is a catalog in an SQLite file, in the tables that PyIceberg's
// SqlCatalog and Java's JdbcCatalog use. Namespaces and listings go through
// iceberg-go; rows of tables are written here, in one statement each, so that
// what is checked and what is changed is one step.
type sqlCatalog struct {
	name  string
	path  string
	db    *sql.DB
	ice   *icesql.Catalog
	store objstore.Store
	// typed says that iceberg_tables has the column iceberg_type, which older
	// catalogs lack.
	typed bool
}

// sqlitePath reads "sqlite:///abs/path", with SQLAlchemy's four slashes too, or
// a path.
func sqlitePath(uri string) (string, error) {
	p := uri
	if rest, ok := strings.CutPrefix(p, "sqlite://"); ok {
		p = rest
		if !strings.HasPrefix(p, "/") {
			return "", fmt.Errorf("uri %q: want sqlite:///absolute/path.db", uri)
		}
	} else if strings.Contains(p, "://") {
		return "", fmt.Errorf("uri %q: catalogs of type sql are SQLite files: sqlite:///absolute/path.db", uri)
	}
	if p == "" || p == ":memory:" || strings.HasSuffix(p, "/") {
		return "", fmt.Errorf("uri %q: want a file", uri)
	}
	return filepath.Abs(p)
}

func openSQLite(ctx context.Context, c Config, store objstore.Store) (*sqlCatalog, error) {
	path, err := sqlitePath(c.URI)
	if err != nil {
		return nil, configError(c.Name, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, mapped("open catalog", c.Name, err)
	}
	// Every connection: readers beside one writer, waiting for it instead of
	// failing, and a commit is on disk before it is acknowledged.
	dsn := (&url.URL{Scheme: "file", Path: path}).String() +
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, configError(c.Name, err)
	}
	s := &sqlCatalog{name: c.Name, path: path, db: db, store: store}
	if err := s.init(ctx); err != nil {
		return nil, errors.Join(s.wrap("open catalog", c.Name, err), db.Close())
	}
	return s, nil
}

func (s *sqlCatalog) init(ctx context.Context) error {
	if err := s.db.PingContext(ctx); err != nil {
		return err
	}
	var err error
	if s.ice, err = icesql.NewCatalog(s.name, s.db, icesql.SQLite, map[string]string{}); err != nil {
		return err
	}
	var n int
	err = s.db.QueryRowContext(ctx, `SELECT count(*) FROM pragma_table_info('iceberg_tables') WHERE name = 'iceberg_type'`).Scan(&n)
	s.typed = n > 0
	return err
}

// wrap adds the file to an error and marks what SQLite refuses for want of
// permission.
func (s *sqlCatalog) wrap(op, object string, err error) error {
	if err == nil {
		return nil
	}
	switch sqliteCode(err) {
	case sqlitelib.SQLITE_READONLY, sqlitelib.SQLITE_PERM, sqlitelib.SQLITE_AUTH, sqlitelib.SQLITE_CANTOPEN:
		err = fmt.Errorf("%w: %w", errPermission, err)
	}
	return mapped(op, object, fmt.Errorf("%w (catalog file %s)", err, s.path))
}

// sqliteCode is SQLite's primary result code, or 0.
func sqliteCode(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

func (s *sqlCatalog) Close() error {
	return errors.Join(s.ice.Close(), s.db.Close())
}

func (s *sqlCatalog) Namespaces(ctx context.Context, parent []string) ([][]string, error) {
	all, err := s.ice.ListNamespaces(ctx, parent)
	if err != nil {
		return nil, err
	}
	out := make([][]string, 0, len(all))
	for _, ns := range all {
		if !slices.Equal(ns, parent) {
			out = append(out, ns)
		}
	}
	slices.SortFunc(out, slices.Compare[[]string])
	return out, nil
}

func (s *sqlCatalog) NamespaceProperties(ctx context.Context, ns []string) (map[string]string, error) {
	return s.ice.LoadNamespaceProperties(ctx, ns)
}

func (s *sqlCatalog) CreateNamespace(ctx context.Context, ns []string, props map[string]string) error {
	return s.ice.CreateNamespace(ctx, ns, props)
}

func (s *sqlCatalog) DropNamespace(ctx context.Context, ns []string) error {
	below, err := s.Namespaces(ctx, ns)
	if err != nil {
		return err
	}
	if len(below) > 0 {
		return fmt.Errorf("%w: it has the namespace %s", icecatalog.ErrNamespaceNotEmpty, strings.Join(below[0], "."))
	}
	return s.ice.DropNamespace(ctx, ns)
}

func (s *sqlCatalog) Tables(ctx context.Context, ns []string) ([]string, error) {
	var out []string
	for ident, err := range s.ice.ListTables(ctx, ns) {
		if err != nil {
			return nil, err
		}
		out = append(out, ident[len(ident)-1])
	}
	slices.Sort(out)
	return out, nil
}

func (s *sqlCatalog) Drop(ctx context.Context, name commit.TableName) error {
	return s.ice.DropTable(ctx, identifier(name))
}

// Places implements backend.
func (*sqlCatalog) Places() bool { return false }

// Create writes the first metadata file and then the row that makes it a table.
func (s *sqlCatalog) Create(ctx context.Context, name commit.TableName, meta table.Metadata) error {
	location := iceberg.FirstMetadataPath(meta)
	if err := iceberg.WriteMetadata(ctx, s.store, location, meta); err != nil {
		return err
	}
	err := s.Register(ctx, name, location)
	if errors.Is(err, icecatalog.ErrTableAlreadyExists) || errors.Is(err, icecatalog.ErrNoSuchNamespace) {
		// Surely not inserted. After any other error the row may be there.
		err = errors.Join(err, s.store.Delete(context.WithoutCancel(ctx), location))
	}
	return err
}

// Register inserts the table's row if its namespace is there.
func (s *sqlCatalog) Register(ctx context.Context, name commit.TableName, location string) error {
	ns, err := s.namespaceKey(ctx, name.Namespace)
	if err != nil {
		return err
	}
	column, value := "", ""
	if s.typed {
		column, value = ", iceberg_type", ", 'TABLE'"
	}
	r, err := s.db.ExecContext(ctx, `INSERT INTO iceberg_tables
		(catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location`+column+`)
		SELECT ?1, ?2, ?3, ?4, NULL`+value+`
		WHERE EXISTS (SELECT 1 FROM iceberg_namespace_properties WHERE catalog_name = ?1 AND namespace = ?2)
		   OR EXISTS (SELECT 1 FROM iceberg_tables WHERE catalog_name = ?1 AND table_namespace = ?2)`,
		s.name, ns, name.Name, location)
	if sqliteCode(err) == sqlitelib.SQLITE_CONSTRAINT {
		return fmt.Errorf("%w: %s", icecatalog.ErrTableAlreadyExists, name)
	}
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, fmt.Errorf("%w: %s", icecatalog.ErrNoSuchNamespace, strings.Join(name.Namespace, ".")))
	}
	return nil
}

// namespaceKey is how a namespace stands in the tables: joined by dots, or, when
// a part holds a dot itself, in iceberg-go's own form. Which one the library
// chose is read back from what it stored.
func (s *sqlCatalog) namespaceKey(ctx context.Context, ns []string) (string, error) {
	joined := strings.Join(ns, ".")
	if !slices.ContainsFunc(ns, func(p string) bool { return strings.Contains(p, ".") }) {
		return joined, nil
	}
	rows, err := s.db.QueryContext(ctx, `SELECT namespace FROM iceberg_namespace_properties WHERE catalog_name = ?1
		UNION SELECT table_namespace FROM iceberg_tables WHERE catalog_name = ?1`, s.name)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			return "", err
		}
		if parts, ok := encodedNamespace(key); ok && slices.Equal(parts, ns) {
			return key, nil
		}
	}
	return joined, rows.Err()
}

func (s *sqlCatalog) Attach(name commit.TableName) iceberg.Attachment {
	return &sqlAttachment{catalog: s, name: name}
}

func identifier(name commit.TableName) table.Identifier {
	return append(slices.Clone(name.Namespace), name.Name)
}
