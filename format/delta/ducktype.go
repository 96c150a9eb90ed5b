package delta

import (
	"errors"
	"fmt"
	"strings"

	"github.com/firn-project/firn/format/ducktype"
)

// duckTypes are the plain types as DuckDB calls them.
var duckTypes = map[Primitive]string{
	Boolean: "BOOLEAN", Byte: "TINYINT", Short: "SMALLINT", Integer: "INTEGER", Long: "BIGINT", Float: "FLOAT", Double: "DOUBLE",
	String: "VARCHAR", Binary: "BLOB", Date: "DATE", Timestamp: "TIMESTAMP WITH TIME ZONE", TimestampNTZ: "TIMESTAMP",
}

// DuckDBType is the type, as DuckDB writes it, of a column of the type in a query.
// Names of struct fields are quoted. A variant has none, and neither has a void.
func DuckDBType(t Type) (string, error) {
	switch t := t.(type) {
	case Primitive:
		if d, ok := duckTypes[t]; ok {
			return d, nil
		}
	case DecimalType:
		return fmt.Sprintf("DECIMAL(%d,%d)", t.Precision, t.Scale), nil
	case *Array:
		e, err := DuckDBType(t.Element)
		return e + "[]", err
	case *Map:
		k, err := DuckDBType(t.Key)
		if err != nil {
			return "", err
		}
		v, err := DuckDBType(t.Value)
		return "MAP(" + k + ", " + v + ")", err
	case *Struct:
		parts := make([]string, len(t.Fields))
		for i, f := range t.Fields {
			d, err := DuckDBType(f.Type)
			if err != nil {
				return "", err
			}
			parts[i] = `"` + strings.ReplaceAll(f.Name, `"`, `""`) + `" ` + d
		}
		return "STRUCT(" + strings.Join(parts, ", ") + ")", nil
	}
	return "", fmt.Errorf("the Delta type %v has no DuckDB type here", t)
}

// ReadType is DuckDBType for reading: a column of type void is one of nulls.
func ReadType(t Type) (string, error) {
	if t == Void {
		return duckTypes[Integer], nil
	}
	return DuckDBType(t)
}

// fromDuck are the Delta types of columns declared with a DuckDB type.
var fromDuck = map[string]Type{
	"BOOLEAN": Boolean, "TINYINT": Byte, "UTINYINT": Short, "SMALLINT": Short, "USMALLINT": Integer, "INTEGER": Integer, "UINTEGER": Long, "BIGINT": Long,
	"FLOAT": Float, "DOUBLE": Double, "VARCHAR": String, "JSON": String, "BLOB": Binary, "DATE": Date,
	"TIMESTAMP": TimestampNTZ, "TIMESTAMP_S": TimestampNTZ, "TIMESTAMP_MS": TimestampNTZ, "TIMESTAMP WITH TIME ZONE": Timestamp,
}

// FromDuckDBType reads the type of a column as a statement declares it. As for
// Iceberg, TIMESTAMP has no zone: it is timestamp_ntz.
func FromDuckDBType(text string) (Type, error) {
	d, err := ducktype.Parse(text)
	if err != nil {
		return nil, err
	}
	return fromDuckType(d)
}

func fromDuckType(d *ducktype.Type) (Type, error) {
	var parts []Type
	for _, e := range d.Elem {
		t, err := fromDuckType(e.Type)
		if err != nil {
			return nil, err
		}
		parts = append(parts, t)
	}
	switch d.Kind {
	case ducktype.List:
		return &Array{Element: parts[0], ContainsNull: !d.Elem[0].Required}, nil
	case ducktype.Map:
		return &Map{Key: parts[0], Value: parts[1], ValueContainsNull: !d.Elem[1].Required}, nil
	case ducktype.Struct:
		s := &Struct{}
		for i, e := range d.Elem {
			s.Fields = append(s.Fields, Field{Name: e.Name, Type: parts[i], Nullable: !e.Required})
		}
		return s, nil
	case ducktype.Enum:
		return String, nil
	}
	if d.Name.Duck == "DECIMAL" {
		return duckDecimal(d.Args)
	}
	t, ok := fromDuck[d.Name.Duck]
	switch {
	case !ok:
		return nil, fmt.Errorf("type %s can't be stored in a Delta table", d.Name.Duck)
	case len(d.Args) > 0 && (t != String || len(d.Args) > 1):
		return nil, errors.New("the type takes no arguments")
	}
	return t, nil
}

// duckDecimal is a decimal by its arguments, with DuckDB's defaults.
func duckDecimal(args []int) (DecimalType, error) {
	t := DecimalType{18, 3}
	switch len(args) {
	case 0:
	case 1:
		t = DecimalType{args[0], 0}
	case 2:
		t = DecimalType{args[0], args[1]}
	default:
		return t, errors.New("DECIMAL takes a precision and a scale")
	}
	if t.Precision < 1 || t.Precision > 38 || t.Scale < 0 || t.Scale > t.Precision {
		return t, fmt.Errorf("DECIMAL(%d,%d): the precision goes from 1 to 38 and the scale from 0 to the precision", t.Precision, t.Scale)
	}
	return t, nil
}

// Widens says whether a value of a DuckDB type may be cast to a column of type to
// without being asked: only when no value of the type loses anything by it, by
// the rules that the reference page of SQL types has.
func Widens(from string, to Type) bool {
	d, err := ducktype.Parse(from)
	return err == nil && widens(d, to)
}

func widens(d *ducktype.Type, to Type) bool {
	switch d.Kind {
	case ducktype.List:
		a, ok := to.(*Array)
		return ok && widens(d.Elem[0].Type, a.Element)
	case ducktype.Map:
		m, ok := to.(*Map)
		return ok && widens(d.Elem[0].Type, m.Key) && widens(d.Elem[1].Type, m.Value)
	case ducktype.Struct:
		s, ok := to.(*Struct)
		if !ok || len(s.Fields) != len(d.Elem) {
			return false
		}
		for i, f := range s.Fields {
			if !strings.EqualFold(f.Name, d.Elem[i].Name) || !widens(d.Elem[i].Type, f.Type) {
				return false
			}
		}
		return true
	case ducktype.Enum:
		return to == String
	}
	return plainWidens(d, to)
}

func plainWidens(d *ducktype.Type, to Type) bool {
	switch n := d.Name; {
	case n.Duck == ducktype.Null:
		return true
	case n.Digits > 0:
		if t, ok := to.(DecimalType); ok {
			return t.Precision-t.Scale >= n.Digits
		}
		bits := map[Type]int{Byte: 7, Short: 15, Integer: 31, Long: 63, Float: 24, Double: 53}[primitive(to)]
		return bits >= n.Bits
	case n.Duck == "DECIMAL":
		t, err := duckDecimal(d.Args)
		return err == nil && decimalWidens(t, to)
	case n.Duck == "FLOAT":
		return to == Float || to == Double
	case n.Duck == "DATE":
		return to == Date || to == TimestampNTZ
	}
	own, ok := fromDuck[d.Name.Duck]
	return ok && own == to
}

// primitive is the type if it is a plain one: others can't be the key of a map.
func primitive(t Type) Primitive {
	p, _ := t.(Primitive)
	return p
}

func decimalWidens(from DecimalType, to Type) bool {
	whole := from.Precision - from.Scale
	if t, ok := to.(DecimalType); ok {
		return t.Scale >= from.Scale && t.Precision-t.Scale >= whole
	}
	digits := map[Type]int{Byte: 2, Short: 4, Integer: 9, Long: 18}[primitive(to)]
	switch to {
	case Float:
		return from.Precision <= 6
	case Double:
		return from.Precision <= 15
	}
	return from.Scale == 0 && whole <= digits
}
