package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/catalog/iceberg"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/sql"
)

// backend is one kind of catalog. Errors wrap iceberg-go's sentinels of package
// catalog, or errPermission.
type backend interface {
	Namespaces(ctx context.Context, parent []string) ([][]string, error)
	NamespaceProperties(ctx context.Context, ns []string) (map[string]string, error)
	CreateNamespace(ctx context.Context, ns []string, props map[string]string) error
	DropNamespace(ctx context.Context, ns []string) error
	Tables(ctx context.Context, ns []string) ([]string, error)
	Create(ctx context.Context, name commit.TableName, meta table.Metadata) error
	Register(ctx context.Context, name commit.TableName, metadataLocation string) error
	Drop(ctx context.Context, name commit.TableName) error
	Attach(name commit.TableName) iceberg.Attachment
	// Places says that the catalog picks the location of a new table; the
	// metadata given to Create then has none.
	Places() bool
	Close() error
}

// entry is one open catalog.
type entry struct {
	config  Config
	backend backend
	store   objstore.Store
	storage map[string]string
}

// Set is the open catalogs by name. It implements sql.Catalogs and is safe for
// concurrent use.
type Set struct {
	names   []string
	entries map[string]*entry

	mu sync.Mutex
	// tables is what is known of each table, so that pinning one that didn't
	// change, or that a commit of ours changed, parses nothing.
	tables map[string]*iceberg.Shared
}

var _ sql.Catalogs = (*Set)(nil)

// Open opens every configured catalog. The caller closes the Set.
func Open(ctx context.Context, configs []Config) (*Set, error) {
	s := &Set{entries: map[string]*entry{}, tables: map[string]*iceberg.Shared{}}
	names := map[string]bool{}
	for _, c := range configs {
		e, err := openEntry(ctx, c, names)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.names = append(s.names, c.Name)
		s.entries[c.Name] = e
	}
	slices.Sort(s.names)
	return s, nil
}

func openEntry(ctx context.Context, c Config, names map[string]bool) (*entry, error) {
	if err := c.check(names); err != nil {
		return nil, err
	}
	e := &entry{config: c, storage: c.storage()}
	e.store = objstore.New(objstore.FromStorage(e.storage))
	var err error
	switch c.Type {
	case "sql":
		e.backend, err = openSQL(ctx, c, e.store)
	case "rest":
		e.backend, err = openREST(ctx, c, e.store)
	default:
		err = configError(c.Name, fmt.Errorf("type: %w", config.CheckCatalogType(c.Type)))
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Close releases the catalogs' connections.
func (s *Set) Close() error {
	var errs []error
	for _, e := range s.entries {
		errs = append(errs, e.backend.Close())
	}
	return errors.Join(errs...)
}

func (s *Set) entry(op, name string) (*entry, error) {
	if e, ok := s.entries[name]; ok {
		return e, nil
	}
	err := &commit.Error{Code: commit.CodeCatalogUnknown, Op: op, Object: name, Cause: errors.New("no catalog of that name is configured")}
	if err.Hint = suggest(name, s.names, ""); err.Hint == "" {
		err.Hint = "Configured are: " + strings.Join(s.names, ", ") + "."
	}
	return nil, err
}

// Catalogs implements sql.Catalogs.
func (s *Set) Catalogs(context.Context) ([]string, error) { return slices.Clone(s.names), nil }

// Namespaces implements sql.Catalogs.
func (s *Set) Namespaces(ctx context.Context, catalog string, parent []string) ([][]string, error) {
	e, err := s.entry("list namespaces of", catalog)
	if err != nil {
		return nil, err
	}
	out, err := e.backend.Namespaces(ctx, parent)
	return out, e.explain(ctx, "list namespaces of", commit.TableName{Catalog: catalog, Namespace: parent}, err)
}

// CreateNamespace implements sql.Catalogs.
func (s *Set) CreateNamespace(ctx context.Context, catalog string, ns []string, props map[string]string, ifNotExists bool) error {
	e, err := s.entry("create namespace", catalog)
	if err != nil {
		return err
	}
	if err := checkNames("create namespace", catalog, ns); err != nil {
		return err
	}
	err = e.explain(ctx, "create namespace", commit.TableName{Catalog: catalog, Namespace: ns}, e.backend.CreateNamespace(ctx, ns, props))
	if ifNotExists && commit.CodeOf(err) == commit.CodeNamespaceExists {
		return nil
	}
	return err
}

// DropNamespace implements sql.Catalogs.
func (s *Set) DropNamespace(ctx context.Context, catalog string, ns []string, ifExists bool) error {
	e, err := s.entry("drop namespace", catalog)
	if err != nil {
		return err
	}
	err = e.explain(ctx, "drop namespace", commit.TableName{Catalog: catalog, Namespace: ns}, e.backend.DropNamespace(ctx, ns))
	if ifExists && commit.CodeOf(err) == commit.CodeNamespaceNotFound {
		return nil
	}
	return err
}

// Tables implements sql.Catalogs.
func (s *Set) Tables(ctx context.Context, catalog string, ns []string) ([]commit.TableName, error) {
	e, err := s.entry("list tables of", catalog)
	if err != nil {
		return nil, err
	}
	names, err := e.backend.Tables(ctx, ns)
	if err != nil {
		return nil, e.explain(ctx, "list tables of", commit.TableName{Catalog: catalog, Namespace: ns}, err)
	}
	out := make([]commit.TableName, len(names))
	for i, n := range names {
		out[i] = commit.TableName{Catalog: catalog, Namespace: slices.Clone(ns), Name: n}
	}
	return out, nil
}

// explain maps a backend's error and adds what name was probably meant.
func (e *entry) explain(ctx context.Context, op string, name commit.TableName, err error) error {
	if err == nil {
		return nil
	}
	object := name.String()
	if name.Name == "" {
		object = strings.TrimSuffix(object, ".")
	}
	err = mapped(op, object, err)
	ce, ok := errors.AsType[*commit.Error](err)
	if !ok {
		return err
	}
	hint := ""
	switch ce.Code {
	case commit.CodeTableNotFound:
		hint = e.nearTable(ctx, name)
	case commit.CodeNamespaceNotFound:
		hint = e.nearNamespace(ctx, name)
	}
	if hint == "" {
		return err
	}
	c := *ce
	c.Hint = hint
	return &c
}

// nearTable looks for the table that was meant, and first whether its namespace
// is there.
func (e *entry) nearTable(ctx context.Context, name commit.TableName) string {
	names, err := e.backend.Tables(ctx, name.Namespace)
	if err != nil {
		return e.nearNamespace(ctx, name)
	}
	return suggest(name.Name, names, strings.TrimSuffix(commit.TableName{Catalog: name.Catalog, Namespace: name.Namespace}.String(), ".")+".")
}

func (e *entry) nearNamespace(ctx context.Context, name commit.TableName) string {
	all, err := e.backend.Namespaces(ctx, nil)
	if err != nil {
		return ""
	}
	var names []string
	for _, ns := range all {
		names = append(names, strings.Join(ns, "."))
	}
	return suggest(strings.Join(name.Namespace, "."), names, name.Catalog+".")
}

// checkNames refuses names that catalogs can't hold, or would have trouble to
// give back: iceberg-go's clients refuse parts that mean something in a path.
func checkNames(op, object string, parts []string) error {
	if len(parts) == 0 {
		return newError(commit.CodeTableDefinition, op, object, errors.New("the name is empty"))
	}
	for _, p := range parts {
		if p == "" || p == "." || p == ".." || strings.ContainsAny(p, "/\x00") {
			return newError(commit.CodeTableDefinition, op, object+"."+strings.Join(parts, "."),
				fmt.Errorf("%q can't be part of a name: parts are not empty, not . or .., and hold no slash", p))
		}
	}
	return nil
}
