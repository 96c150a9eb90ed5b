package delta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Limits of a schema's JSON. Real tables stay far below them.
const (
	maxSchemaBytes = 32 << 20
	maxSchemaDepth = 64
	maxFields      = 200_000
)

// ParseSchema reads a table's schemaString.
func ParseSchema(text string) (*Struct, error) {
	if len(text) > maxSchemaBytes {
		return nil, fmt.Errorf("the schema has %d bytes, more than %d", len(text), maxSchemaBytes)
	}
	p := &schemaParser{}
	t, err := p.parse(json.RawMessage(text), 0)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	s, ok := t.(*Struct)
	if !ok {
		return nil, fmt.Errorf("schema: its type is %s, not struct", t)
	}
	return s, nil
}

type schemaParser struct{ fields int }

// jsonType is any type that isn't a bare name.
type jsonType struct {
	Type              string          `json:"type"`
	Fields            []jsonField     `json:"fields"`
	ElementType       json.RawMessage `json:"elementType"`
	ContainsNull      *bool           `json:"containsNull"`
	KeyType           json.RawMessage `json:"keyType"`
	ValueType         json.RawMessage `json:"valueType"`
	ValueContainsNull *bool           `json:"valueContainsNull"`
}

type jsonField struct {
	Name     *string                    `json:"name"`
	Type     json.RawMessage            `json:"type"`
	Nullable *bool                      `json:"nullable"`
	Metadata map[string]json.RawMessage `json:"metadata"`
}

func (p *schemaParser) parse(raw json.RawMessage, depth int) (Type, error) {
	if depth > maxSchemaDepth {
		return nil, fmt.Errorf("types are nested more than %d deep", maxSchemaDepth)
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return nil, errors.New("a type is missing")
	}
	if raw[0] == '"' {
		var name string
		if err := json.Unmarshal(raw, &name); err != nil {
			return nil, err
		}
		return namedType(name)
	}
	var j jsonType
	if err := json.Unmarshal(raw, &j); err != nil {
		return nil, err
	}
	switch j.Type {
	case "struct":
		return p.structType(j, depth)
	case "array":
		e, err := p.parse(j.ElementType, depth+1)
		if err != nil {
			return nil, fmt.Errorf("element: %w", err)
		}
		return &Array{Element: e, ContainsNull: orTrue(j.ContainsNull)}, nil
	case "map":
		k, err := p.parse(j.KeyType, depth+1)
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		v, err := p.parse(j.ValueType, depth+1)
		if err != nil {
			return nil, fmt.Errorf("value: %w", err)
		}
		return &Map{Key: k, Value: v, ValueContainsNull: orTrue(j.ValueContainsNull)}, nil
	}
	return nil, fmt.Errorf("there is no type %.80q", j.Type)
}

func namedType(name string) (Type, error) {
	if t, ok := primitiveOf(name); ok {
		return t, nil
	}
	if strings.HasPrefix(name, "decimal") {
		return parseDecimalType(name)
	}
	return nil, fmt.Errorf("there is no type %.80q", name)
}

func (p *schemaParser) structType(j jsonType, depth int) (Type, error) {
	if p.fields += len(j.Fields); p.fields > maxFields {
		return nil, fmt.Errorf("more than %d fields", maxFields)
	}
	s := &Struct{Fields: make([]Field, len(j.Fields))}
	names := make(map[string]bool, len(j.Fields))
	for i, f := range j.Fields {
		if f.Name == nil {
			return nil, fmt.Errorf("field %d has no name", i+1)
		}
		t, err := p.parse(f.Type, depth+1)
		if err != nil {
			return nil, fmt.Errorf("field %.200q: %w", *f.Name, err)
		}
		lower := strings.ToLower(*f.Name)
		if names[lower] {
			return nil, fmt.Errorf("field %.200q stands twice (names must differ by more than case)", *f.Name)
		}
		names[lower] = true
		s.Fields[i] = Field{Name: *f.Name, Type: t, Nullable: orTrue(f.Nullable), Metadata: f.Metadata}
	}
	return s, nil
}

func orTrue(b *bool) bool { return b == nil || *b }

// SchemaJSON is the schemaString of a schema, with the keys in Spark's order.
func SchemaJSON(s *Struct) (string, error) {
	var b bytes.Buffer
	if err := appendType(&b, s); err != nil {
		return "", err
	}
	return b.String(), nil
}

func appendType(b *bytes.Buffer, t Type) error {
	switch t := t.(type) {
	case Primitive, DecimalType:
		return appendJSON(b, t.String())
	case *Array:
		b.WriteString(`{"type":"array","elementType":`)
		if err := appendType(b, t.Element); err != nil {
			return err
		}
		fmt.Fprintf(b, `,"containsNull":%t}`, t.ContainsNull)
	case *Map:
		b.WriteString(`{"type":"map","keyType":`)
		if err := appendType(b, t.Key); err != nil {
			return err
		}
		b.WriteString(`,"valueType":`)
		if err := appendType(b, t.Value); err != nil {
			return err
		}
		fmt.Fprintf(b, `,"valueContainsNull":%t}`, t.ValueContainsNull)
	case *Struct:
		b.WriteString(`{"type":"struct","fields":[`)
		for i, f := range t.Fields {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := appendField(b, f); err != nil {
				return fmt.Errorf("field %.200q: %w", f.Name, err)
			}
		}
		b.WriteString("]}")
	default:
		return fmt.Errorf("%v is no type", t)
	}
	return nil
}

func appendField(b *bytes.Buffer, f Field) error {
	b.WriteString(`{"name":`)
	if err := appendJSON(b, f.Name); err != nil {
		return err
	}
	b.WriteString(`,"type":`)
	if err := appendType(b, f.Type); err != nil {
		return err
	}
	fmt.Fprintf(b, `,"nullable":%t,"metadata":`, f.Nullable)
	m := f.Metadata
	if m == nil {
		m = map[string]json.RawMessage{}
	}
	if err := appendJSON(b, m); err != nil {
		return err
	}
	b.WriteByte('}')
	return nil
}

// appendJSON writes a value without a line end and without escaping <, > and &,
// which encoding/json does for the sake of HTML.
func appendJSON(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1)
	return nil
}
