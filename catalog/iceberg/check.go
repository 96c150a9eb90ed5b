package iceberg

import (
	"fmt"
	"maps"
	"slices"

	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
)

// CheckUnit implements commit.Metadata. Columns that were added meanwhile are
// fine unless they must have a value; renamed ones are too, since files name
// their columns by id.
func (m *Metadata) CheckUnit(u commit.Unit) error {
	name := u.Table
	if name.Name == "" {
		name = m.name
	}
	if u.TableUUID != m.UUID() {
		return changed(name, commit.ConflictRefMoved, "it was dropped and made again, or replaced: its UUID is %s, and the job was planned against %s", m.UUID(), u.TableUUID)
	}
	spec := m.meta.PartitionSpecByID(u.SpecID)
	if spec == nil {
		return changed(name, commit.ConflictSpec, "partition spec %d that the files were written with is gone", u.SpecID)
	}
	written := m.schema(u.SchemaID)
	if written == nil {
		return changed(name, commit.ConflictSchema, "schema %d that the files were written with is gone", u.SchemaID)
	}
	current := m.meta.CurrentSchema()
	if written.ID == current.ID {
		return nil
	}
	return m.compatible(name, written, current)
}

func (m *Metadata) schema(id int) *iceberg.Schema {
	for _, s := range m.meta.Schemas() {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// compatible says whether rows written with one schema may be read with the
// other.
func (m *Metadata) compatible(name commit.TableName, written, current *iceberg.Schema) error {
	old, err := iceberg.IndexByID(written)
	if err != nil {
		return newError(commit.CodeMetadataInvalid, "read schema of", name.String(), err)
	}
	now, err := iceberg.IndexByID(current)
	if err != nil {
		return newError(commit.CodeMetadataInvalid, "read schema of", name.String(), err)
	}
	for _, id := range slices.Sorted(maps.Keys(old)) {
		f := old[id]
		c, ok := now[id]
		switch {
		case !ok:
			return changed(name, commit.ConflictSchema, "column %s (field id %d) was dropped", columnName(written, f), id)
		case !promotable(f.Type, c.Type, m.meta.Version()):
			return changed(name, commit.ConflictSchema, "column %s has the type %s now, and the files hold %s", columnName(current, c), c.Type, f.Type)
		case c.Required && !f.Required:
			return changed(name, commit.ConflictSchema, "column %s may not be null any more, and the files were written when it might", columnName(current, c))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(now)) {
		c := now[id]
		if _, ok := old[id]; !ok && c.Required && c.InitialDefault == nil && !insideNew(current, old, id) {
			return changed(name, commit.ConflictSchema, "column %s was added, must have a value, and has no default for rows written before it", columnName(current, c))
		}
	}
	return nil
}

// insideNew says whether a field lies inside a column that is itself new, so
// that its being required says nothing about old rows.
func insideNew(s *iceberg.Schema, old map[int]iceberg.NestedField, id int) bool {
	parents, err := iceberg.IndexParents(s)
	if err != nil {
		return false
	}
	parent, ok := parents[id]
	if !ok {
		return false
	}
	_, was := old[parent]
	return !was
}

func columnName(s *iceberg.Schema, f iceberg.NestedField) string {
	if n, ok := s.FindColumnName(f.ID); ok {
		return n
	}
	return fmt.Sprintf("%q", f.Name)
}

// promotable says whether values of one type may be read as another (Iceberg
// spec, Schema Evolution). Children of nested types have ids of their own and
// are compared there.
func promotable(from, to iceberg.Type, version int) bool {
	if from.Equals(to) {
		return true
	}
	switch f := from.(type) {
	case iceberg.Int32Type:
		_, ok := to.(iceberg.Int64Type)
		return ok
	case iceberg.Float32Type:
		_, ok := to.(iceberg.Float64Type)
		return ok
	case iceberg.DecimalType:
		t, ok := to.(iceberg.DecimalType)
		return ok && t.Scale() == f.Scale() && t.Precision() >= f.Precision()
	case iceberg.DateType:
		switch to.(type) {
		case iceberg.TimestampType, iceberg.TimestampNsType:
			return version >= 3
		}
		return false
	case iceberg.UnknownType:
		return version >= 3
	case *iceberg.StructType:
		_, ok := to.(*iceberg.StructType)
		return ok
	case *iceberg.ListType:
		t, ok := to.(*iceberg.ListType)
		return ok && t.ElementID == f.ElementID
	case *iceberg.MapType:
		t, ok := to.(*iceberg.MapType)
		return ok && t.KeyID == f.KeyID && t.ValueID == f.ValueID
	}
	return false
}
