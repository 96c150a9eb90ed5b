package catalog

import (
	"context"
	"errors"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sql"
)

// Config names one catalog and says how to reach it.
type Config struct {
	// Name is the first part of the names of its tables.
	Name string
	// Type is "sql" (SQLite) or "rest".
	Type string
	// URI is a path or sqlite:///path for "sql", and http(s)://… for "rest".
	URI string
	// Warehouse is where new tables are put, a URI or an absolute path.
	Warehouse string
	// Properties are the catalog's own, in Iceberg's names: s3.endpoint,
	// s3.access-key-id, …; for "rest" also credential, token, scope,
	// oauth2-server-uri, prefix. They hold secrets.
	Properties map[string]string
}

// Set is the open catalogs by name. It implements sql.Catalogs and is safe for
// concurrent use.
type Set struct{}

var _ sql.Catalogs = (*Set)(nil)

// Open opens every configured catalog. The caller closes the Set.
func Open(ctx context.Context, configs []Config) (*Set, error) { return &Set{}, nil }

var errSoon = errors.New("not implemented")

// Close releases the catalogs' connections.
func (s *Set) Close() error { return nil }

// OpenTable opens the driver of a table. The caller closes it.
func (s *Set) OpenTable(ctx context.Context, name commit.TableName) (commit.Table, error) {
	return nil, errSoon
}

// Catalogs implements sql.Catalogs.
func (s *Set) Catalogs(ctx context.Context) ([]string, error) { return nil, errSoon }

// Namespaces implements sql.Catalogs.
func (s *Set) Namespaces(ctx context.Context, catalog string, parent []string) ([][]string, error) {
	return nil, errSoon
}

// CreateNamespace implements sql.Catalogs.
func (s *Set) CreateNamespace(ctx context.Context, catalog string, ns []string, props map[string]string, ifNotExists bool) error {
	return errSoon
}

// DropNamespace implements sql.Catalogs.
func (s *Set) DropNamespace(ctx context.Context, catalog string, ns []string, ifExists bool) error {
	return errSoon
}

// Tables implements sql.Catalogs.
func (s *Set) Tables(ctx context.Context, catalog string, ns []string) ([]commit.TableName, error) {
	return nil, errSoon
}

// CreateTable implements sql.Catalogs.
func (s *Set) CreateTable(ctx context.Context, def sql.TableDef) error { return errSoon }

// DropTable implements sql.Catalogs.
func (s *Set) DropTable(ctx context.Context, name commit.TableName, ifExists bool) error {
	return errSoon
}

// RegisterTable implements sql.Catalogs.
func (s *Set) RegisterTable(ctx context.Context, name commit.TableName, metadataLocation string) error {
	return errSoon
}

// Pin implements sql.Catalogs.
func (s *Set) Pin(ctx context.Context, name commit.TableName) (plan.Pinned, error) {
	return plan.Pinned{}, errSoon
}

// Scan implements sql.Catalogs.
func (s *Set) Scan(ctx context.Context, t plan.Pinned, version string) (plan.Source, error) {
	return plan.Source{}, errSoon
}

// Describe implements sql.Catalogs.
func (s *Set) Describe(ctx context.Context, name commit.TableName) (sql.TableInfo, error) {
	return sql.TableInfo{}, errSoon
}
