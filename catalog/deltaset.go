package catalog

import (
	"context"
	"errors"

	icecatalog "github.com/apache/iceberg-go/catalog"

	"github.com/firn-project/firn/catalog/deltatables"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/sql"
)

// tableExists is the answer to a definition whose name is taken.
func tableExists(def sql.TableDef) error {
	if def.IfNotExists {
		return nil
	}
	return newError(commit.CodeTableExists, "create table", def.Name.String(), errors.New("there is a table of that name"))
}

// missing says whether a catalog's error is that it has no such table.
func missing(err error) bool {
	return errors.Is(err, icecatalog.ErrNoSuchTable) || errors.Is(err, icecatalog.ErrNoSuchNamespace) || errors.Is(err, commit.ErrTableNotFound)
}

// createDelta makes a Delta table in a namespace of a catalog. The catalog itself
// doesn't hear of it. s.creating is held, and there is no table of that name.
func (s *Set) createDelta(ctx context.Context, e *entry, namespaceLocation string, def sql.TableDef) error {
	if def.Location == "" {
		if e.backend.Places() && namespaceLocation == "" {
			return newError(commit.CodeTableDefinition, "create table", def.Name.String(),
				errors.New("its catalog chooses where Iceberg tables lie, and says nothing of others: write a LOCATION"))
		}
		var err error
		if def.Location, err = newLocation(e.config.Warehouse, namespaceLocation, def.Name); err != nil {
			return newError(commit.CodeTableDefinition, "create table", def.Name.String(), err)
		}
	}
	return s.delta.Create(ctx, def)
}

// deltaAccess is how the files of Delta tables in a catalog are reached.
func (s *Set) deltaAccess(catalog string) (deltatables.Access, string, error) {
	e, err := s.entry("open table", catalog)
	if err != nil {
		return deltatables.Access{}, "", err
	}
	warehouse := ""
	if !e.backend.Places() && e.config.Warehouse != "" {
		if warehouse, err = absolute(e.config.Warehouse); err != nil {
			return deltatables.Access{}, "", err
		}
	}
	return deltatables.Access{Properties: e.config.Properties, Objects: e.objects}, warehouse, nil
}

// deltaScoping is Scoping for a Delta table.
func (s *Set) deltaScoping(d *deltatables.Table) (needed bool, warning string, err error) {
	switch {
	case !objstore.Remote(d.Location):
		return false, "", nil
	case d.Objects.Narrows():
		return true, "", nil
	}
	return Unscoped("the Delta table at "+d.Location, d.Properties, s.options.AllowUnscoped)
}

// deltaMint is Mint for a Delta table: a catalog vends nothing for it.
func (s *Set) deltaMint(ctx context.Context, d *deltatables.Table, scope objstore.Scope) (objstore.Keys, error) {
	if d.Objects.Narrows() {
		return d.Objects.Narrow(ctx, scope)
	}
	if _, _, err := s.deltaScoping(d); err != nil {
		return objstore.Keys{}, err
	}
	c, expires, err := d.Objects.Resolve(ctx)
	return keysOf(c, expires), err
}

// History implements sql.Catalogs.
func (s *Set) History(ctx context.Context, name commit.TableName) ([]sql.TableVersion, error) {
	d, ok, err := s.delta.Find(ctx, "show history of", name)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return d.History(ctx)
	}
	e, _, err := s.read(ctx, "show history of", name)
	if err != nil {
		return nil, err
	}
	return nil, e.explain(ctx, "show history of", name, &commit.Error{
		Code: commit.CodeTableUnsupported, Op: "show history of", Object: name.String(), Cause: errors.New("it is an Iceberg table"),
		Hint: "`firn table describe` shows its snapshots.",
	})
}
