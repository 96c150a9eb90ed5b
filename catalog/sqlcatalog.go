package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	icecatalog "github.com/apache/iceberg-go/catalog"
	icesql "github.com/apache/iceberg-go/catalog/sql"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/catalog/iceberg"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

// sqlCatalog is a catalog in an SQLite file or a PostgreSQL database, in the
// tables that PyIceberg's SqlCatalog and Java's JdbcCatalog use. Namespaces and
// listings go through iceberg-go; rows of tables are written here, in one
// statement each, so that what is checked and what is changed is one step.
type sqlCatalog struct {
	// name is the catalog's in the rows of its tables.
	name    string
	dialect dialect
	// place names the database in errors.
	place string
	db    *sql.DB
	ice   *icesql.Catalog
	store objstore.Store
	// typed says that iceberg_tables has the column iceberg_type, which older
	// catalogs lack.
	typed bool
}

// dialect is what differs from database to database.
type dialect struct {
	library icesql.SupportedDialect
	// typed counts the columns iceberg_type of iceberg_tables.
	typed string
	// bind writes a statement's ?1, ?2, … as the database wants them.
	bind func(statement string) string
	// fault sorts an error.
	fault func(error) sqlFault
}

// sqlFault is what an error of a database means.
type sqlFault int

const (
	// faultOther: nothing more is known.
	faultOther sqlFault = iota
	// faultPermission: the database refuses it, and did nothing.
	faultPermission
	// faultExists: a row of that key is there.
	faultExists
	// faultBusy: nothing was done, and waiting helps.
	faultBusy
)

// openSQL opens a catalog of type sql by its URI.
func openSQL(ctx context.Context, c Config, store objstore.Store) (*sqlCatalog, error) {
	s := &sqlCatalog{name: c.Name, store: store}
	if n := c.Properties["catalog-name"]; n != "" {
		s.name = n
	}
	var err error
	if postgresURI(c.URI) {
		err = s.openPostgres(c)
	} else {
		err = s.openSQLite(c)
	}
	if err != nil {
		return nil, err
	}
	if err := s.init(ctx); err != nil {
		return nil, errors.Join(s.wrap("open catalog", c.Name, err), s.db.Close())
	}
	return s, nil
}

func (s *sqlCatalog) init(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sqlTimeout)
	defer cancel()
	if err := s.db.PingContext(ctx); err != nil {
		return err
	}
	var n int
	// The tables are made only when they aren't there: a role may be allowed to
	// use them and not to make any. Two processes may make them at once, and
	// the second finds them.
	err := s.db.QueryRowContext(ctx, `SELECT count(*) FROM iceberg_tables, iceberg_namespace_properties WHERE 1 = 0`).Scan(&n)
	props := map[string]string{"init_catalog_tables": strconv.FormatBool(err != nil)}
	if s.ice, err = icesql.NewCatalog(s.name, s.db, s.dialect.library, props); err != nil {
		if s.ice, err = icesql.NewCatalog(s.name, s.db, s.dialect.library, props); err != nil {
			return err
		}
	}
	err = s.db.QueryRowContext(ctx, s.dialect.typed).Scan(&n)
	s.typed = n > 0
	return err
}

// wrap adds the database to an error and marks what it refuses for want of
// permission.
func (s *sqlCatalog) wrap(op, object string, err error) error {
	if err == nil {
		return nil
	}
	if s.dialect.fault(err) == faultPermission {
		err = fmt.Errorf("%w: %w", errPermission, err)
	}
	return mapped(op, object, fmt.Errorf("%w (catalog in %s)", err, s.place))
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
	r, err := s.db.ExecContext(ctx, s.dialect.bind(`INSERT INTO iceberg_tables
		(catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location`+column+`)
		SELECT CAST(?1 AS TEXT), CAST(?2 AS TEXT), CAST(?3 AS TEXT), CAST(?4 AS TEXT), NULL`+value+`
		WHERE EXISTS (SELECT 1 FROM iceberg_namespace_properties WHERE catalog_name = CAST(?1 AS TEXT) AND namespace = CAST(?2 AS TEXT))
		   OR EXISTS (SELECT 1 FROM iceberg_tables WHERE catalog_name = CAST(?1 AS TEXT) AND table_namespace = CAST(?2 AS TEXT))`),
		s.name, ns, name.Name, location)
	if err != nil && s.dialect.fault(err) == faultExists {
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
	rows, err := s.db.QueryContext(ctx, s.dialect.bind(`SELECT namespace FROM iceberg_namespace_properties WHERE catalog_name = ?1
		UNION SELECT table_namespace FROM iceberg_tables WHERE catalog_name = ?1`), s.name)
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
