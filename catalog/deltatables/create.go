package deltatables

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/google/uuid"

	"github.com/firn-project/firn/catalog/delta"
	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/sql"
)

// Create makes a table, or takes one over that is there: a definition without a
// schema names the location of an existing one. def has a name, whose namespace is
// there and has no other table of that name, and a location. The caller lets
// nobody else create a table meanwhile.
func (t *Tables) Create(ctx context.Context, def sql.TableDef) error {
	const op = "create table"
	refuse := func(err error) error { return newError(commit.CodeTableDefinition, op, def.Name.String(), err) }
	if !ByPath(def.Name) && t.config.Names == nil {
		return refuse(errors.New("names of Delta tables are kept nowhere here; name the table by its path"))
	}
	location, err := Locate(def.Location)
	if err != nil {
		return refuse(err)
	}
	table, err := t.new(ctx, op, def.Name, location)
	if err != nil {
		return err
	}
	log := delta.NewLog(table.store, location)
	_, err = log.Snapshot(ctx, delta.Latest)
	there := err == nil
	switch {
	case err != nil && !errors.Is(err, commit.ErrTableNotFound):
		return err
	case there && ByPath(def.Name) && def.IfNotExists:
		return nil
	case there && len(def.SchemaJSON) > 0:
		return &commit.Error{
			Code: commit.CodeTableExists, Op: op, Object: def.Name.String(), Cause: fmt.Errorf("there is a Delta table at %s", location),
			Hint: "To give that table a name leave the columns out: CREATE TABLE name USING delta LOCATION '…'.",
		}
	case !there && len(def.SchemaJSON) == 0:
		return refuse(fmt.Errorf("there is no Delta table at %s; write its columns to make one", location))
	case !there:
		if err := t.begin(ctx, log, table, def); err != nil {
			return err
		}
	}
	if ByPath(def.Name) {
		return nil
	}
	err = t.config.Names.Add(ctx, def.Name, location)
	if errors.Is(err, ErrTaken) {
		return newError(commit.CodeTableExists, op, def.Name.String(), err)
	}
	return err
}

// new is the table of a name that may be new.
func (t *Tables) new(ctx context.Context, op string, name commit.TableName, location string) (*Table, error) {
	if ByPath(name) {
		table, _, err := t.Find(ctx, op, name)
		return table, err
	}
	access, err := t.access(name.Catalog, location)
	if err != nil {
		return nil, newError(commit.CodeTableDefinition, op, name.String(), err)
	}
	return t.table(name, location, access), nil
}

// begin writes version 0.
func (t *Tables) begin(ctx context.Context, log *delta.Log, table *Table, def sql.TableDef) error {
	schema, err := format.ParseSchema(string(def.SchemaJSON))
	if err != nil {
		return err
	}
	partition, err := format.ParsePartition(def.SpecJSON)
	if err != nil {
		return err
	}
	txn := uuid.NewString()
	first, err := delta.NewTable(delta.TableSpec{
		ID: uuid.NewString(), TxnID: txn, Description: def.Comment, Schema: schema, Partition: partition,
		Properties: def.Properties, Now: t.config.Now(), Engine: "Firn/" + engineVersion(),
	})
	if err != nil {
		return err
	}
	data, err := first.Encode()
	if err != nil {
		return err
	}
	if err := table.fit(ctx); err != nil {
		return err
	}
	err = log.Put(ctx, 0, data)
	if err == nil {
		return nil
	}
	// Exists already, or a lost reply: the version itself says whose it is.
	switch settled, serr := log.Settle(ctx, 0, txn); {
	case serr != nil:
		return errors.Join(err, serr)
	case settled == delta.Ours:
		return nil
	case settled == delta.Theirs || errors.Is(err, objstore.ErrExists):
		return &commit.Error{
			Code: commit.CodeTableExists, Op: "create table", Object: table.Name.String(),
			Cause: fmt.Errorf("somebody else has made a table at %s", table.Location),
		}
	}
	return err
}

var engineVersion = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
})
