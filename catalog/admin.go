package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/firn-project/firn/catalog/probe"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/sql"
)

// checkTimeout bounds the probes of a catalog.
const checkTimeout = 3 * time.Minute

var _ sql.CatalogAdmin = (*Set)(nil)

// CatalogInfos implements sql.CatalogAdmin.
func (s *Set) CatalogInfos(context.Context) ([]sql.CatalogInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []sql.CatalogInfo
	for name, e := range s.entries {
		i := sql.CatalogInfo{Name: name, Type: e.config.Type, URI: config.MaskURI(e.config.URI), Origin: "configuration"}
		if e.created {
			i.Origin = "statement"
		}
		if r := e.report.Load(); r != nil {
			i.Mode, i.Checked = r.Mode, r.At
		}
		out = append(out, i)
	}
	for name, d := range s.closed {
		out = append(out, sql.CatalogInfo{Name: name, Type: d.Type, URI: config.MaskURI(d.URI), Origin: "statement, and can't be opened"})
	}
	slices.SortFunc(out, func(a, b sql.CatalogInfo) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// definition makes a Config of a statement's properties. The second result is
// what is kept of it.
func (s *Set) definition(ctx context.Context, def sql.CatalogDef) (Config, savedDef, error) {
	d := savedDef{Type: def.Properties["type"], URI: def.Properties["uri"], Warehouse: def.Properties["warehouse"], Properties: maps.Clone(def.Properties)}
	for _, k := range []string{"type", "uri", "warehouse"} {
		delete(d.Properties, k)
	}
	if err := config.CheckCatalogType(d.Type); err != nil {
		return Config{}, d, configError(def.Name, fmt.Errorf("type: %w", err))
	}
	if !slices.Contains(s.options.CreateTypes, d.Type) {
		return Config{}, d, &commit.Error{
			Code: commit.CodeCatalogNotAllowed, Op: "create catalog", Object: def.Name, Cause: fmt.Errorf("catalogs of type %s may not be made by statements here", d.Type),
			Hint: "The scheduler's administrator allows it by create_catalog.types in the configuration file.",
		}
	}
	c, err := d.config(ctx, def.Name, s.options.Secrets)
	return c, d, err
}

// config resolves what is kept of a definition.
func (d savedDef) config(ctx context.Context, name string, from config.SecretSources) (Config, error) {
	props, err := config.ResolveProperties(ctx, d.Properties, from)
	if err != nil {
		return Config{}, configError(name, err)
	}
	return Config{Name: name, Type: d.Type, URI: d.URI, Warehouse: d.Warehouse, Properties: props}, nil
}

// CreateCatalog implements sql.CatalogAdmin.
func (s *Set) CreateCatalog(ctx context.Context, def sql.CatalogDef) error {
	s.admin.Lock()
	defer s.admin.Unlock()
	e, closed, _ := s.look(def.Name)
	taken := e != nil || closed
	if taken && def.IfNotExists {
		return nil
	}
	if taken {
		return newError(commit.CodeCatalogExists, "create catalog", def.Name, errors.New("there is a catalog of that name"))
	}
	c, saved, err := s.definition(ctx, def)
	if err != nil {
		return err
	}
	if e, err = openEntry(ctx, c, s.options.Observe); err != nil {
		return err
	}
	e.created = true
	s.state.Catalogs[c.Name] = saved
	if err := s.state.save(s.options.State); err != nil {
		delete(s.state.Catalogs, c.Name)
		return errors.Join(err, e.backend.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(e)
	return nil
}

// DropCatalog implements sql.CatalogAdmin. What is under way in the catalog goes
// on: its connections stay open until the Set is closed.
func (s *Set) DropCatalog(_ context.Context, name string, ifExists bool) error {
	s.admin.Lock()
	defer s.admin.Unlock()
	e, closed, names := s.look(name)
	switch {
	case e == nil && !closed && ifExists:
		return nil
	case e == nil && !closed:
		return unknown("drop catalog", name, names)
	case e != nil && !e.created:
		return configError(name, errors.New("it stands in the scheduler's configuration, not in a CREATE CATALOG; remove it there"))
	}
	saved := s.state.Catalogs[name]
	delete(s.state.Catalogs, name)
	if err := s.state.save(s.options.State); err != nil {
		s.state.Catalogs[name] = saved
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, name)
	delete(s.closed, name)
	if e != nil {
		s.dropped = append(s.dropped, e)
	}
	for key := range s.tables {
		if strings.HasPrefix(key, name+"\x00") {
			delete(s.tables, key)
		}
	}
	return nil
}

// CheckCatalog implements sql.CatalogAdmin. A report that couldn't decide leaves
// what was known before.
func (s *Set) CheckCatalog(ctx context.Context, name string) (sql.CatalogReport, error) {
	e, err := s.entry("check catalog", name)
	if err != nil {
		return sql.CatalogReport{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	o := probe.Options{Name: name, Catalog: e.backend, Store: e.store, Scoping: s.Scoping}
	if !e.backend.Places() {
		o.Location = func(t commit.TableName) (string, error) { return newLocation(e.config.Warehouse, "", t) }
	}
	if v, ok := e.backend.(vendor); ok {
		o.Vend = func(ctx context.Context, t commit.TableName) (string, error) {
			all, err := v.Vend(ctx, t)
			return vendedText(all), err
		}
	}
	r := probe.Run(ctx, o)
	if r.Mode == "" {
		return r, nil
	}
	e.report.Store(&r)
	s.admin.Lock()
	defer s.admin.Unlock()
	s.state.Checks[name] = savedCheck{e.config.identity(), r}
	return r, s.state.save(s.options.State)
}

func vendedText(all []StorageCredential) string {
	if len(all) == 0 {
		return "none; the storage settings of the configuration are used"
	}
	var parts []string
	for _, c := range all {
		t := "for " + c.Prefix
		if c.Prefix == "" {
			t = "for the table"
		}
		if !c.Expires.IsZero() {
			t += " until " + c.Expires.UTC().Format(time.RFC3339)
		}
		parts = append(parts, t)
	}
	return strings.Join(parts, ", ")
}

// Writable implements sql.CatalogAdmin.
func (s *Set) Writable(_ context.Context, name string) error {
	e, err := s.entry("write to", name)
	if err != nil {
		return err
	}
	if r := e.report.Load(); r != nil && r.Mode == sql.ModeUnfit {
		return newError(commit.CodeCatalogUnfit, "write to", name, fmt.Errorf("its check of %s found that %s", r.At.Format(time.RFC3339), r.Why))
	}
	return nil
}

// noSeat says why the catalog's requests claim no seat, as its check found.
func (e *entry) noSeat() string {
	if r := e.report.Load(); r != nil && r.Mode == sql.ModeNoSeat {
		return "the check of catalog " + e.config.Name + " found that " + r.Why
	}
	return ""
}
