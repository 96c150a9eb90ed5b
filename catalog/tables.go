package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/catalog/deltatables"
	"github.com/firn-project/firn/catalog/iceberg"
	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/iceberg"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sql"
)

// OpenTable opens the driver of a table. The caller closes it. Whether the table
// is there shows at its first Read.
func (s *Set) OpenTable(ctx context.Context, name commit.TableName) (commit.Table, error) {
	if d, ok, err := s.delta.Find(ctx, "open table", name); err != nil {
		return nil, err
	} else if ok {
		return d.Open(), nil
	}
	e, err := s.entry("open table", name.Catalog)
	if err != nil {
		return nil, err
	}
	return s.open(e, name), nil
}

// open makes the driver of a table with what is known of it.
func (s *Set) open(e *entry, name commit.TableName) *iceberg.Table {
	return iceberg.Open(iceberg.Options{Name: name, Attach: e.backend.Attach(name), Store: e.store, Shared: s.shared(name), NoSeat: e.noSeat})
}

func (s *Set) shared(name commit.TableName) *iceberg.Shared {
	key := strings.Join(append([]string{name.Catalog, name.Name}, name.Namespace...), "\x00")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tables[key] == nil {
		s.tables[key] = &iceberg.Shared{}
	}
	return s.tables[key]
}

// CreateTable implements sql.Catalogs.
func (s *Set) CreateTable(ctx context.Context, def sql.TableDef) error {
	const op = "create table"
	if deltatables.ByPath(def.Name) {
		s.creating.Lock()
		defer s.creating.Unlock()
		def.Location = def.Name.Name
		return s.delta.Create(ctx, def)
	}
	e, err := s.entry(op, def.Name.Catalog)
	if err != nil {
		return err
	}
	if err := checkNames(op, def.Name.Catalog, append(slices.Clone(def.Name.Namespace), def.Name.Name)); err != nil {
		return err
	}
	if len(def.Name.Namespace) == 0 {
		return newError(commit.CodeTableDefinition, op, def.Name.String(), errors.New("a table's name needs a namespace"))
	}
	s.creating.Lock()
	defer s.creating.Unlock()
	if _, taken, err := s.delta.Find(ctx, op, def.Name); err != nil {
		return err
	} else if taken {
		return tableExists(def)
	}
	// This only looks before any file is written; for an Iceberg table the step
	// that decides is the backend's.
	_, err = e.backend.Attach(def.Name).Load(ctx)
	switch {
	case err == nil && (def.IfNotExists || def.Format == "delta"):
		return tableExists(def)
	case err != nil && def.Format == "delta" && !missing(err):
		return e.explain(ctx, op, def.Name, err)
	}
	ns, err := e.backend.NamespaceProperties(ctx, def.Name.Namespace)
	if err != nil {
		return e.explain(ctx, op, def.Name, err)
	}
	if def.Format == "delta" {
		return s.createDelta(ctx, e, ns["location"], def)
	}
	location := ""
	if !e.backend.Places() {
		if location, err = newLocation(e.config.Warehouse, ns["location"], def.Name); err != nil {
			return newError(commit.CodeTableDefinition, op, def.Name.String(), err)
		}
	}
	meta, err := newTable(def, location)
	if err != nil {
		return newError(commit.CodeTableDefinition, op, def.Name.String(), err)
	}
	err = e.explain(ctx, op, def.Name, e.backend.Create(ctx, def.Name, meta))
	if def.IfNotExists && commit.CodeOf(err) == commit.CodeTableExists {
		return nil
	}
	return err
}

// newTable makes the metadata of a new, empty table.
func newTable(def sql.TableDef, location string) (table.Metadata, error) {
	if def.Format != "" && def.Format != "iceberg" {
		return nil, fmt.Errorf("tables of the format %q can't be created in an Iceberg catalog", def.Format)
	}
	schema, err := format.ParseSchema(def.SchemaJSON)
	if err != nil {
		return nil, err
	}
	if len(schema.Fields()) == 0 {
		return nil, errors.New("it has no columns")
	}
	props := maps.Clone(def.Properties)
	if props == nil {
		props = map[string]string{}
	}
	if def.Comment != "" {
		props["comment"] = def.Comment
	}
	if v, ok := props[table.PropertyFormatVersion]; ok {
		if n, err := strconv.Atoi(v); err != nil || n < 1 || n > 3 {
			return nil, fmt.Errorf("the property format-version is %q; want 1, 2 or 3", v)
		}
	} else {
		props[table.PropertyFormatVersion] = "2"
	}
	spec := def.SpecJSON
	if len(spec) == 0 {
		return table.NewMetadata(schema, nil, table.UnsortedSortOrder, location, props)
	}
	ps, err := format.ParseSpec(spec, schema)
	if err != nil {
		return nil, err
	}
	return table.NewMetadata(schema, &ps, table.UnsortedSortOrder, location, props)
}

// DropTable implements sql.Catalogs.
func (s *Set) DropTable(ctx context.Context, name commit.TableName, ifExists bool) error {
	if d, ok, err := s.delta.Find(ctx, "drop table", name); err != nil {
		return err
	} else if ok {
		return d.Drop(ctx)
	}
	e, err := s.entry("drop table", name.Catalog)
	if err != nil {
		return err
	}
	err = e.explain(ctx, "drop table", name, e.backend.Drop(ctx, name))
	if ifExists && (commit.CodeOf(err) == commit.CodeTableNotFound || commit.CodeOf(err) == commit.CodeNamespaceNotFound) {
		return nil
	}
	return err
}

// RegisterTable implements sql.Catalogs.
func (s *Set) RegisterTable(ctx context.Context, name commit.TableName, metadataLocation string) error {
	const op = "register table"
	e, err := s.entry(op, name.Catalog)
	if err != nil {
		return err
	}
	if err := checkNames(op, name.Catalog, append(slices.Clone(name.Namespace), name.Name)); err != nil {
		return err
	}
	location, err := absolute(metadataLocation)
	if err != nil {
		return newError(commit.CodeTableDefinition, op, name.String(), err)
	}
	s.creating.Lock()
	defer s.creating.Unlock()
	if _, ok, err := s.delta.Find(ctx, op, name); err != nil {
		return err
	} else if ok {
		return newError(commit.CodeTableExists, op, name.String(), errors.New("there is a Delta table of that name"))
	}
	if _, err := iceberg.ReadMetadata(ctx, e.store, location); err != nil {
		return newError(commit.CodeMetadataInvalid, op, name.String(), err)
	}
	return e.explain(ctx, op, name, e.backend.Register(ctx, name, location))
}

// Pin implements sql.Catalogs.
func (s *Set) Pin(ctx context.Context, name commit.TableName) (plan.Pinned, error) {
	if d, ok, err := s.delta.Find(ctx, "open table", name); err != nil {
		return plan.Pinned{}, err
	} else if ok {
		return d.Pin(ctx)
	}
	e, m, err := s.read(ctx, "open table", name)
	if err != nil {
		return plan.Pinned{}, err
	}
	storage, err := e.storageFor(ctx, m.Location())
	if err != nil {
		return plan.Pinned{}, err
	}
	return m.Pin(storage)
}

// storageFor leaves the settings out for local files. Keys that come from a profile,
// a token or the SDK's chain are got here: executors get keys alone.
func (e *entry) storageFor(ctx context.Context, location string) (map[string]string, error) {
	if !objstore.Remote(location) {
		return nil, nil
	}
	c, _, err := e.objects.Resolve(ctx)
	return c.Storage(), err
}

// read reads a table through what is known of it.
func (s *Set) read(ctx context.Context, op string, name commit.TableName) (*entry, *iceberg.Metadata, error) {
	e, err := s.entry(op, name.Catalog)
	if err != nil {
		return nil, nil, err
	}
	m, err := s.open(e, name).Metadata(ctx)
	if err != nil {
		return nil, nil, e.explain(ctx, op, name, err)
	}
	return e, m, nil
}

// Scan implements sql.Catalogs.
func (s *Set) Scan(ctx context.Context, t plan.Pinned, version string, where sql.Filter) (plan.Source, error) {
	if d, ok, err := s.delta.Find(ctx, "read table", t.Name); err != nil {
		return plan.Source{}, err
	} else if ok {
		return d.Scan(ctx, t, version, where)
	}
	e, err := s.entry("read table", t.Name.Catalog)
	if err != nil {
		return plan.Source{}, err
	}
	m := s.shared(t.Name).Last()
	if m == nil || m.Pointer() != t.MetadataLocation || m.UUID() != t.UUID {
		if m, err = iceberg.ReadAt(ctx, e.store, t); err != nil {
			return plan.Source{}, err
		}
	}
	return m.Scan(ctx, e.store, t, version)
}

// Describe implements sql.Catalogs.
func (s *Set) Describe(ctx context.Context, name commit.TableName) (sql.TableInfo, error) {
	if d, ok, err := s.delta.Find(ctx, "describe", name); err != nil {
		return sql.TableInfo{}, err
	} else if ok {
		return d.Describe(ctx)
	}
	e, m, err := s.read(ctx, "describe", name)
	if err != nil {
		return sql.TableInfo{}, err
	}
	storage, err := e.storageFor(ctx, m.Location())
	if err != nil {
		return sql.TableInfo{}, err
	}
	p, err := m.Pin(storage)
	if err != nil {
		return sql.TableInfo{}, err
	}
	t, err := m.Totals(ctx, e.store)
	if err != nil {
		return sql.TableInfo{}, err
	}
	return sql.TableInfo{Pinned: p, Rows: t.Rows, Files: t.Files, Bytes: t.Bytes, Snapshots: t.Snapshots}, nil
}
