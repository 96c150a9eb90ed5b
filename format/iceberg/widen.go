package iceberg

import (
	"strings"

	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/format/ducktype"
)

// Widens says whether a value of a DuckDB type may be cast to a column of type
// to without being asked: only when no value of the type loses anything by it.
//
//   - an integer goes to a larger integer, to a decimal with room for its
//     digits, and to a float or double whose mantissa holds it;
//   - a decimal goes to a decimal with as many digits before and after the
//     point, to an integer when it has no digits after the point, and to a
//     float or double that gives the same digits back (6 and 15 digits);
//   - a float goes to a double, a date to a timestamp;
//   - ENUM and JSON go to a string, NULL to anything;
//   - lists, maps and structs go by their parts; a struct's fields have the
//     same names, but for case, in the same order;
//   - a BLOB goes to a fixed: a wrong length is an error when it's written;
//   - text goes to nothing but a string, and a timestamp never changes between
//     zoned and zoneless, since both depend on a session's time zone.
//
// A type that can't be parsed widens to nothing.
func Widens(from string, to iceberg.Type) bool {
	d, err := ducktype.Parse(from)
	return err == nil && widens(d, to)
}

func widens(d *ducktype.Type, to iceberg.Type) bool {
	switch d.Kind {
	case ducktype.List:
		l, ok := to.(*iceberg.ListType)
		return ok && widens(d.Elem[0].Type, l.Element)
	case ducktype.Map:
		m, ok := to.(*iceberg.MapType)
		return ok && widens(d.Elem[0].Type, m.KeyType) && widens(d.Elem[1].Type, m.ValueType)
	case ducktype.Struct:
		s, ok := to.(*iceberg.StructType)
		if !ok || len(s.FieldList) != len(d.Elem) {
			return false
		}
		for i, f := range s.FieldList {
			if !strings.EqualFold(f.Name, d.Elem[i].Name) || !widens(d.Elem[i].Type, f.Type) {
				return false
			}
		}
		return true
	case ducktype.Enum:
		return stringType.Equals(to)
	}
	return plainWidens(d, to)
}

func plainWidens(d *ducktype.Type, to iceberg.Type) bool {
	r := rowOf(d.Name)
	switch {
	case r.Duck == ducktype.Null:
		return true
	case r.Digits > 0:
		return r.integerWidens(to)
	case r.Duck == "DECIMAL":
		t, err := decimalType(d.Args)
		return err == nil && decimalWidens(t.(iceberg.DecimalType), to)
	case r.to == nil:
		return false
	case r.Duck == "FLOAT":
		_, double := to.(iceberg.Float64Type)
		return double || iceberg.PrimitiveTypes.Float32.Equals(to)
	case r.Duck == "DATE":
		_, timestamp := to.(iceberg.TimestampType)
		return timestamp || iceberg.PrimitiveTypes.Date.Equals(to)
	case r.Duck == "BLOB":
		_, fixed := to.(iceberg.FixedType)
		return fixed || iceberg.PrimitiveTypes.Binary.Equals(to)
	}
	own, err := r.to(d.Args)
	return err == nil && own.Equals(to)
}

func (r *typeRow) integerWidens(to iceberg.Type) bool {
	switch to := to.(type) {
	case iceberg.Int32Type:
		return r.Bits <= 31
	case iceberg.Int64Type:
		return r.Bits <= 63
	case iceberg.Float32Type:
		return r.Bits <= 24
	case iceberg.Float64Type:
		return r.Bits <= 53
	case iceberg.DecimalType:
		return to.Precision()-to.Scale() >= r.Digits
	}
	return false
}

func decimalWidens(from iceberg.DecimalType, to iceberg.Type) bool {
	whole := from.Precision() - from.Scale()
	switch to := to.(type) {
	case iceberg.DecimalType:
		return to.Scale() >= from.Scale() && to.Precision()-to.Scale() >= whole
	case iceberg.Int32Type:
		return from.Scale() == 0 && whole <= 9
	case iceberg.Int64Type:
		return from.Scale() == 0 && whole <= 18
	case iceberg.Float32Type:
		return from.Precision() <= 6
	case iceberg.Float64Type:
		return from.Precision() <= 15
	}
	return false
}
