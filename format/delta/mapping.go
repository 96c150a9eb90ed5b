package delta

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Mapping is how a table's columns are found in its data files.
type Mapping string

// Kinds of column mapping, the values of PropertyMapping.
const (
	// MappingNone: files have the names of the schema.
	MappingNone Mapping = "none"
	// MappingName: files have the physical names of the schema's metadata.
	MappingName Mapping = "name"
	// MappingID: fields are found by Parquet field ids.
	MappingID Mapping = "id"
)

// KeyComment is the key of a field's metadata that holds its comment, a JSON string.
const KeyComment = "comment"

// Keys of a field's metadata.
const (
	keyPhysicalName = "delta.columnMapping.physicalName"
	keyFieldID      = "delta.columnMapping.id"
	keyNestedIDs    = "delta.columnMapping.nested.ids"
	keyInvariants   = "delta.invariants"
	keyGenerated    = "delta.generationExpression"
	keyDefault      = "CURRENT_DEFAULT"
	keyCollations   = "__COLLATIONS"
)

// MappingOf reads the table's property; absent is none.
func MappingOf(properties map[string]string) (Mapping, error) {
	switch m := Mapping(strings.ToLower(properties[PropertyMapping])); m {
	case "", MappingNone:
		return MappingNone, nil
	case MappingName, MappingID:
		return m, nil
	default:
		return "", fmt.Errorf("%s is %.40q, not none, name or id", PropertyMapping, properties[PropertyMapping])
	}
}

// PhysicalName is the field's name in data files, in partition values and in
// statistics.
func (f *Field) PhysicalName(m Mapping) (string, error) {
	if m == MappingNone {
		return f.Name, nil
	}
	raw, ok := f.Metadata[keyPhysicalName]
	if !ok {
		return "", fmt.Errorf("column %.200q has no %s, though the table maps columns", f.Name, keyPhysicalName)
	}
	var name string
	if err := json.Unmarshal(raw, &name); err != nil || name == "" {
		return "", fmt.Errorf("column %.200q: %s isn't a name", f.Name, keyPhysicalName)
	}
	return name, nil
}

// FieldID is the id that a mapped column has; ok is false when it has none.
func (f *Field) FieldID() (id int32, ok bool) {
	raw, ok := f.Metadata[keyFieldID]
	if !ok {
		return 0, false
	}
	return id, json.Unmarshal(raw, &id) == nil && id >= 0
}

// Physical is the schema as the data files have it: all names, also of nested
// fields, are physical ones.
func (s *Struct) Physical(m Mapping) (*Struct, error) {
	if m == MappingNone {
		return s, nil
	}
	t, err := physical(s, m)
	if err != nil {
		return nil, err
	}
	p, ok := t.(*Struct)
	if !ok {
		return nil, errors.New("the schema isn't a struct")
	}
	return p, nil
}

func physical(t Type, m Mapping) (Type, error) {
	switch t := t.(type) {
	case *Struct:
		out := &Struct{Fields: make([]Field, len(t.Fields))}
		seen := map[string]string{}
		for i, f := range t.Fields {
			name, err := f.PhysicalName(m)
			if err != nil {
				return nil, err
			}
			if _, ok := f.FieldID(); !ok && m == MappingID {
				return nil, fmt.Errorf("column %.200q has no %s, though the table maps columns by it", f.Name, keyFieldID)
			}
			if other, ok := seen[name]; ok {
				return nil, fmt.Errorf("columns %.200q and %.200q have one physical name %.200q", other, f.Name, name)
			}
			seen[name] = f.Name
			ft, err := physical(f.Type, m)
			if err != nil {
				return nil, err
			}
			out.Fields[i] = Field{Name: name, Type: ft, Nullable: f.Nullable, Metadata: f.Metadata}
		}
		return out, nil
	case *Array:
		e, err := physical(t.Element, m)
		return &Array{Element: e, ContainsNull: t.ContainsNull}, err
	case *Map:
		k, err := physical(t.Key, m)
		if err != nil {
			return nil, err
		}
		v, err := physical(t.Value, m)
		return &Map{Key: k, Value: v, ValueContainsNull: t.ValueContainsNull}, err
	}
	return t, nil
}

// walk calls f for each field of a type, at any depth, until it gives true.
func walk(t Type, f func(*Field) bool) bool {
	switch t := t.(type) {
	case *Struct:
		for i := range t.Fields {
			if f(&t.Fields[i]) || walk(t.Fields[i].Type, f) {
				return true
			}
		}
	case *Array:
		return walk(t.Element, f)
	case *Map:
		return walk(t.Key, f) || walk(t.Value, f)
	}
	return false
}

// contains says whether a type is, or has in it, one that f picks.
func contains(t Type, f func(Type) bool) bool {
	if f(t) {
		return true
	}
	switch t := t.(type) {
	case *Struct:
		for i := range t.Fields {
			if contains(t.Fields[i].Type, f) {
				return true
			}
		}
	case *Array:
		return contains(t.Element, f)
	case *Map:
		return contains(t.Key, f) || contains(t.Value, f)
	}
	return false
}
