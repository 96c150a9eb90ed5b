package iceberg

import (
	"strings"

	"github.com/apache/iceberg-go"
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
	d, err := parseType(from)
	return err == nil && d.widens(to)
}

func (d *duckType) widens(to iceberg.Type) bool {
	switch d.kind {
	case kindList:
		l, ok := to.(*iceberg.ListType)
		return ok && d.elem[0].typ.widens(l.Element)
	case kindMap:
		m, ok := to.(*iceberg.MapType)
		return ok && d.elem[0].typ.widens(m.KeyType) && d.elem[1].typ.widens(m.ValueType)
	case kindStruct:
		s, ok := to.(*iceberg.StructType)
		if !ok || len(s.FieldList) != len(d.elem) {
			return false
		}
		for i, f := range s.FieldList {
			if !strings.EqualFold(f.Name, d.elem[i].name) || !d.elem[i].typ.widens(f.Type) {
				return false
			}
		}
		return true
	case kindEnum:
		return stringType.Equals(to)
	}
	return d.plainWidens(to)
}

func (d *duckType) plainWidens(to iceberg.Type) bool {
	r := d.row
	switch {
	case r.duck == `"NULL"`:
		return true
	case r.digits > 0:
		return r.integerWidens(to)
	case r.duck == "DECIMAL":
		t, err := decimalType(d.args)
		return err == nil && decimalWidens(t.(iceberg.DecimalType), to)
	case r.to == nil:
		return false
	case r.duck == "FLOAT":
		_, double := to.(iceberg.Float64Type)
		return double || iceberg.PrimitiveTypes.Float32.Equals(to)
	case r.duck == "DATE":
		_, timestamp := to.(iceberg.TimestampType)
		return timestamp || iceberg.PrimitiveTypes.Date.Equals(to)
	case r.duck == "BLOB":
		_, fixed := to.(iceberg.FixedType)
		return fixed || iceberg.PrimitiveTypes.Binary.Equals(to)
	}
	own, err := r.to(d.args)
	return err == nil && own.Equals(to)
}

func (r *typeRow) integerWidens(to iceberg.Type) bool {
	switch to := to.(type) {
	case iceberg.Int32Type:
		return r.bits <= 31
	case iceberg.Int64Type:
		return r.bits <= 63
	case iceberg.Float32Type:
		return r.bits <= 24
	case iceberg.Float64Type:
		return r.bits <= 53
	case iceberg.DecimalType:
		return to.Precision()-to.Scale() >= r.digits
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
