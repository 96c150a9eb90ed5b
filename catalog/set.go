package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/catalog/deltatables"
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
	objects objstore.Config
	// created: by a statement.
	created bool
	// report is what its check found last; nil for none.
	report atomic.Pointer[sql.CatalogReport]
}

// Options open a Set.
type Options struct {
	// Configs are the catalogs of the configuration.
	Configs []Config
	// State is the file that keeps the catalogs that statements make and the
	// results of checks; empty keeps nothing. One Set at a time uses it.
	State string
	// CreateTypes are the types of catalogs that statements may make.
	CreateTypes []string
	// AllowUnscoped is for modes in which the executors are in the scheduler's
	// process, and can have its keys anyway.
	AllowUnscoped bool
	// Secrets is what the properties of such catalogs may refer to.
	Secrets config.SecretSources
	// Names keeps the names of Delta tables; the Set closes it. Nil: Delta tables
	// have none.
	Names deltatables.Names
	// DeltaPaths are where statements may name Delta tables by path.
	DeltaPaths []config.SourceStore
	// Observe is told of each request to a catalog, by several goroutines; nil for
	// nobody.
	Observe func(Call)
}

// Set is the open catalogs by name. It implements sql.Catalogs and
// sql.CatalogAdmin, and is safe for concurrent use.
type Set struct {
	options Options
	// admin is held by who changes the state.
	admin sync.Mutex
	state state
	// creating is held by who makes a table: a name stands for one table, be it
	// Iceberg's or Delta's.
	creating sync.Mutex
	delta    *deltatables.Tables

	mu      sync.Mutex
	entries map[string]*entry
	// closed are catalogs that statements made and that couldn't be opened
	// again: they are tried at each use.
	closed map[string]savedDef
	// dropped are catalogs that may still be in use.
	dropped []*entry
	// tables is what is known of each table, so that pinning one that didn't
	// change, or that a commit of ours changed, parses nothing.
	tables map[string]*iceberg.Shared
}

var _ sql.Catalogs = (*Set)(nil)

// Open opens every configured catalog and keeps no state. The caller closes the
// Set.
func Open(ctx context.Context, configs []Config) (*Set, error) {
	return OpenWith(ctx, Options{Configs: configs})
}

// OpenWith opens every configured catalog, and those that statements made before.
// One of the latter that can't be opened fails what uses it, until it can; where
// both have a name, the configuration's is meant. The caller closes the Set.
func OpenWith(ctx context.Context, o Options) (*Set, error) {
	s := &Set{options: o, entries: map[string]*entry{}, closed: map[string]savedDef{}, tables: map[string]*iceberg.Shared{}}
	var places []deltatables.Place
	for _, p := range o.DeltaPaths {
		c := Config{Properties: p.Properties}
		places = append(places, deltatables.Place{Location: p.Location, Access: deltatables.Access{Properties: p.Properties, Objects: c.objects()}})
	}
	s.delta = deltatables.New(deltatables.Config{Names: o.Names, Places: places, Access: s.deltaAccess})
	var err error
	if s.state, err = loadState(o.State); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	for _, c := range o.Configs {
		var e *entry
		if s.entries[c.Name] != nil {
			err = configError(c.Name, errors.New("the name stands twice"))
		} else {
			e, err = openEntry(ctx, c, s.options.Observe)
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.add(e)
	}
	for name, d := range s.state.Catalogs {
		if s.entries[name] == nil {
			if err := s.reopen(ctx, name, d); err != nil {
				s.closed[name] = d
			}
		}
	}
	return s, nil
}

// add makes a catalog known, with what its last check found if it is still the
// same. s.mu is held, or nobody else has s yet.
func (s *Set) add(e *entry) {
	if c, ok := s.state.Checks[e.config.Name]; ok && c.Identity == e.config.identity() {
		e.report.Store(&c.Report)
	}
	s.entries[e.config.Name] = e
	delete(s.closed, e.config.Name)
}

// reopen opens a catalog that a statement made.
func (s *Set) reopen(ctx context.Context, name string, d savedDef) error {
	c, err := d.config(ctx, name, s.options.Secrets)
	if err != nil {
		return err
	}
	e, err := openEntry(ctx, c, s.options.Observe)
	if err != nil {
		return err
	}
	e.created = true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(e)
	return nil
}

func openEntry(ctx context.Context, c Config, observe func(Call)) (*entry, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	e := &entry{config: c, objects: c.objects()}
	e.store = objstore.New(e.objects)
	var err error
	switch c.Type {
	case "sql":
		var b *sqlCatalog
		if b, err = openSQL(ctx, c, e.store); err == nil {
			e.backend = observed{b, observer{c.Name, observe}}
		}
	case "rest":
		e.backend, err = openREST(ctx, c, e.store, observer{c.Name, observe})
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
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, e := range append(slices.Collect(maps.Values(s.entries)), s.dropped...) {
		errs = append(errs, e.backend.Close())
	}
	if s.options.Names != nil {
		errs = append(errs, s.options.Names.Close())
	}
	return errors.Join(errs...)
}

// names are those of all catalogs, sorted. s.mu is held.
func (s *Set) names() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(s.entries)), maps.Keys(s.closed))
	slices.Sort(names)
	return names
}

// reopenTimeout bounds another try to open a catalog.
const reopenTimeout = 20 * time.Second

func (s *Set) entry(op, name string) (*entry, error) {
	e, closed, names := s.look(name)
	if closed {
		if err := s.again(name); err != nil {
			return nil, err
		}
		e, _, names = s.look(name)
	}
	if e != nil {
		return e, nil
	}
	return nil, unknown(op, name, names)
}

// look finds a catalog; closed says that it is one that has to be opened again.
func (s *Set) look(name string) (e *entry, closed bool, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, closed = s.closed[name]
	return s.entries[name], closed, s.names()
}

// again tries to open a catalog that couldn't be opened before.
func (s *Set) again(name string) error {
	s.admin.Lock()
	defer s.admin.Unlock()
	s.mu.Lock()
	d, closed := s.closed[name]
	s.mu.Unlock()
	if !closed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), reopenTimeout)
	defer cancel()
	return s.reopen(ctx, name, d)
}

func unknown(op, name string, names []string) error {
	err := &commit.Error{Code: commit.CodeCatalogUnknown, Op: op, Object: name, Cause: errors.New("no catalog of that name is configured")}
	if err.Hint = suggest(name, names, ""); err.Hint == "" {
		err.Hint = "Configured are: " + strings.Join(names, ", ") + "."
	}
	return err
}

// Catalogs implements sql.Catalogs.
func (s *Set) Catalogs(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names(), nil
}

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
	s.creating.Lock()
	defer s.creating.Unlock()
	if tables, err := s.delta.List(ctx, catalog, ns); err != nil {
		return err
	} else if len(tables) > 0 {
		return newError(commit.CodeNamespaceNotEmpty, "drop namespace", catalog+"."+strings.Join(ns, "."), fmt.Errorf("it has the Delta table %s", tables[0]))
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
	deltas, err := s.delta.List(ctx, catalog, ns)
	if err != nil {
		return nil, err
	}
	names = append(slices.Clone(names), deltas...)
	slices.Sort(names)
	names = slices.Compact(names)
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
