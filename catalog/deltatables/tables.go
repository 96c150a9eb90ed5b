package deltatables

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/firn-project/firn/catalog/delta"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

// Config is what Tables are made of.
type Config struct {
	// Names are not closed by Tables. Nil: tables have no names here, only paths.
	Names Names
	// Places are where statements may name tables by path.
	Places []Place
	// Access is how the files of named tables in a catalog are reached, and where
	// that catalog puts tables: its warehouse.
	Access func(catalog string) (a Access, warehouse string, err error)
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Tables are the Delta tables. It is safe for concurrent use.
type Tables struct {
	config Config
	mu     sync.Mutex
	// shared is what is known of tables, by location, so that a statement reads
	// what is new in a log and not all of it.
	shared map[string]*delta.Shared
}

// New makes Tables.
func New(c Config) *Tables {
	if c.Now == nil {
		c.Now = time.Now
	}
	for i, p := range c.Places {
		c.Places[i].Location = strings.TrimRight(p.Location, "/")
		if !objstore.Remote(p.Location) && !strings.HasPrefix(p.Location, "file://") {
			c.Places[i].Location = "file://" + c.Places[i].Location
		}
	}
	return &Tables{config: c, shared: map[string]*delta.Shared{}}
}

// Table is a Delta table that was found.
type Table struct {
	Name     commit.TableName
	Location string
	Access

	tables *Tables
	store  objstore.Store
	shared *delta.Shared
}

// maxShared is of how many tables something is kept.
const maxShared = 1000

// Find finds a table; ok is false for a name that isn't a Delta table's.
// Whether there is one at the location shows when it is read. op is what the
// caller does, for errors.
func (t *Tables) Find(ctx context.Context, op string, name commit.TableName) (table *Table, ok bool, err error) {
	if ByPath(name) {
		location, err := Locate(name.Name)
		if err != nil {
			return nil, true, newError(commit.CodeTableDefinition, op, name.String(), err)
		}
		place, ok := t.placeOf(location)
		if !ok {
			return nil, true, &commit.Error{
				Code: commit.CodeDeltaPathNotAllowed, Op: op, Object: location, Cause: errors.New("it lies outside the places of Delta tables"),
				Hint: "The scheduler's administrator adds the directory, or the bucket with its settings, to delta.paths.",
			}
		}
		name.Name = strings.TrimPrefix(location, "file://")
		return t.table(name, location, place.Access), true, nil
	}
	if t.config.Names == nil {
		return nil, false, nil
	}
	location, ok, err := t.config.Names.Location(ctx, name)
	if err != nil || !ok {
		return nil, false, err
	}
	access, err := t.access(name.Catalog, location)
	if err != nil {
		return nil, true, newError(commit.CodeCatalog, op, name.String(), err)
	}
	return t.table(name, location, access), true, nil
}

// access is how the files of a named table are reached: as those of its catalog,
// or, when they lie in one of the places, as those there.
func (t *Tables) access(catalog, location string) (Access, error) {
	access, warehouse, err := t.config.Access(catalog)
	if err != nil || warehouse != "" && below(location, warehouse) {
		return access, err
	}
	if p, ok := t.placeOf(location); ok {
		return p.Access, nil
	}
	return access, fmt.Errorf("%s is neither in the catalog's warehouse nor in one of delta.paths", location)
}

func (t *Tables) table(name commit.TableName, location string, access Access) *Table {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shared[location] == nil {
		if len(t.shared) >= maxShared {
			clear(t.shared) // what is in use is held by those who use it
		}
		t.shared[location] = &delta.Shared{}
	}
	return &Table{Name: name, Location: location, Access: access, tables: t, store: objstore.New(access.Objects), shared: t.shared[location]}
}

// Open opens the driver. The caller closes it.
func (t *Table) Open() *delta.Table {
	locate := delta.At(t.Location)
	if !ByPath(t.Name) {
		locate = func(ctx context.Context) (string, error) {
			location, ok, err := t.tables.config.Names.Location(ctx, t.Name)
			if err == nil && !ok {
				err = &commit.Error{Code: commit.CodeTableNotFound, Op: "open table", Object: t.Name.String(), Cause: commit.ErrTableNotFound}
			}
			return location, err
		}
	}
	return delta.Open(delta.Options{Name: t.Name, Store: t.store, Locate: locate, Now: t.tables.config.Now, Shared: t.shared, Ready: t.fit})
}

// view reads the table through what is known of it.
func (t *Table) view(ctx context.Context) (v *delta.View, err error) {
	d := t.Open()
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.View(ctx)
}

// List gives the names of a namespace's tables.
func (t *Tables) List(ctx context.Context, catalog string, namespace []string) ([]string, error) {
	if t.config.Names == nil {
		return nil, nil
	}
	return t.config.Names.List(ctx, catalog, namespace)
}

// Drop forgets the table's name; its files stay.
func (t *Table) Drop(ctx context.Context) error {
	if ByPath(t.Name) {
		return &commit.Error{
			Code: commit.CodeTableDefinition, Op: "drop table", Object: t.Name.String(), Cause: errors.New("a path has no name that could be forgotten"),
			Hint: "Files of a dropped table stay in any case; delete the directory when nobody reads it any more.",
		}
	}
	_, err := t.tables.config.Names.Remove(ctx, t.Name)
	return err
}

// newError makes an error for a person with the registry's hint, unless the cause is
// one already.
func newError(code commit.Code, op, object string, cause error) error {
	if commit.CodeOf(cause) != "" || errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("%s %s: %w", op, object, cause)
	}
	info, _ := commit.Explain(string(code))
	return &commit.Error{Code: code, Op: op, Object: object, Cause: cause, Hint: info.Hint}
}
