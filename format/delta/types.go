package delta

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// Type is the type of a column, field, element, key or value: a Primitive, a
// DecimalType, a *Struct, an *Array or a *Map.
type Type interface {
	// String is the type as people write it; for primitives and decimals it is
	// the name in the schema's JSON too.
	String() string
	isType()
}

// Primitive is a type that is its name.
type Primitive string

// Primitive types. Variant and Void can stand in a schema, and no file of Firn's
// has a column of them.
const (
	Boolean      Primitive = "boolean"
	Byte         Primitive = "byte"
	Short        Primitive = "short"
	Integer      Primitive = "integer"
	Long         Primitive = "long"
	Float        Primitive = "float"
	Double       Primitive = "double"
	String       Primitive = "string"
	Binary       Primitive = "binary"
	Date         Primitive = "date"
	Timestamp    Primitive = "timestamp"
	TimestampNTZ Primitive = "timestamp_ntz"
	Variant      Primitive = "variant"
	Void         Primitive = "void"
)

// primitiveOf finds a primitive type by its name in a schema.
func primitiveOf(name string) (Primitive, bool) {
	switch p := Primitive(name); p {
	case Boolean, Byte, Short, Integer, Long, Float, Double, String, Binary, Date, Timestamp, TimestampNTZ, Variant, Void:
		return p, true
	case "null": // Spark 2's name
		return Void, true
	}
	return "", false
}

// DecimalType is a number of at most Precision digits, Scale of them after the
// point.
type DecimalType struct{ Precision, Scale int }

// Decimal is a value of a DecimalType: Num without its point.
type Decimal struct {
	Num   decimal128.Num
	Scale int
}

// String is the plain notation with exactly Scale decimals.
func (d Decimal) String() string {
	s := d.Num.BigInt().String()
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	if d.Scale <= 0 {
		return sign + s
	}
	if len(s) <= d.Scale {
		s = strings.Repeat("0", d.Scale-len(s)+1) + s
	}
	return sign + s[:len(s)-d.Scale] + "." + s[len(s)-d.Scale:]
}

// Struct is a type with fields; a table's schema is one.
type Struct struct{ Fields []Field }

// Field is a column or a field of a struct.
type Field struct {
	Name     string
	Type     Type
	Nullable bool
	// Metadata is what other writers and the features keep with the field, by
	// key, as it stood in the JSON.
	Metadata map[string]json.RawMessage
}

// Array is a list of elements of one type.
type Array struct {
	Element      Type
	ContainsNull bool
}

// Map has keys, which are never null, and values.
type Map struct {
	Key, Value        Type
	ValueContainsNull bool
}

func (Primitive) isType()   {}
func (DecimalType) isType() {}
func (*Struct) isType()     {}
func (*Array) isType()      {}
func (*Map) isType()        {}

func (p Primitive) String() string { return string(p) }

func (d DecimalType) String() string { return fmt.Sprintf("decimal(%d,%d)", d.Precision, d.Scale) }

func (s *Struct) String() string {
	parts := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		parts[i] = f.Name + ":" + f.Type.String()
	}
	return "struct<" + strings.Join(parts, ",") + ">"
}

func (a *Array) String() string { return "array<" + a.Element.String() + ">" }

func (m *Map) String() string { return "map<" + m.Key.String() + "," + m.Value.String() + ">" }

// parseDecimalType reads "decimal(p,s)" and the bare "decimal" of old Spark.
func parseDecimalType(name string) (DecimalType, error) {
	if name == "decimal" {
		return DecimalType{10, 0}, nil
	}
	bad := fmt.Errorf("%.40q isn't a decimal(precision,scale) with 1 ≤ precision ≤ 38 and 0 ≤ scale ≤ precision", name)
	args, ok := strings.CutPrefix(name, "decimal(")
	args, closed := strings.CutSuffix(args, ")")
	p, s, two := strings.Cut(args, ",")
	if !ok || !closed || !two {
		return DecimalType{}, bad
	}
	precision, err := strconv.Atoi(strings.TrimSpace(p))
	if err != nil {
		return DecimalType{}, bad
	}
	scale, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || precision < 1 || precision > 38 || scale < 0 || scale > precision {
		return DecimalType{}, bad
	}
	return DecimalType{precision, scale}, nil
}

// Column finds a field by its name, exactly first and then without regard to
// case, as Spark does. It is nil when there is none.
func (s *Struct) Column(name string) *Field {
	var found *Field
	for i := range s.Fields {
		f := &s.Fields[i]
		if f.Name == name {
			return f
		}
		if found == nil && strings.EqualFold(f.Name, name) {
			found = f
		}
	}
	return found
}

// Equal says whether two types are the same in names, types and nullability;
// metadata of fields isn't compared.
func Equal(a, b Type) bool {
	switch a := a.(type) {
	case *Struct:
		b, ok := b.(*Struct)
		if !ok || len(a.Fields) != len(b.Fields) {
			return false
		}
		for i, f := range a.Fields {
			g := b.Fields[i]
			if f.Name != g.Name || f.Nullable != g.Nullable || !Equal(f.Type, g.Type) {
				return false
			}
		}
		return true
	case *Array:
		b, ok := b.(*Array)
		return ok && a.ContainsNull == b.ContainsNull && Equal(a.Element, b.Element)
	case *Map:
		b, ok := b.(*Map)
		return ok && a.ValueContainsNull == b.ValueContainsNull && Equal(a.Key, b.Key) && Equal(a.Value, b.Value)
	}
	return a == b
}

// Holds says whether a type is, or has in it, another.
func Holds(t, inner Type) bool { return contains(t, func(u Type) bool { return u == inner }) }
