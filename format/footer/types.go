package footer

import "fmt"

// Physical is how values are stored.
type Physical int8

// Physical types, by the format's numbers.
const (
	Boolean Physical = iota
	Int32
	Int64
	Int96
	Float
	Double
	ByteArray
	FixedLenByteArray
)

func (p Physical) String() string {
	names := [...]string{"BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"}
	if int(p) < len(names) && p >= 0 {
		return names[p]
	}
	return fmt.Sprintf("physical type %d", int(p))
}

// Logical is what the values stand for.
type Logical int8

// Logical types. Other is one that no column of a table has.
const (
	None Logical = iota
	String
	Enum
	JSON
	Decimal
	Date
	Time
	Timestamp
	Integer
	UUID
	List
	Map
	Other
)

// Unit is that of times and timestamps.
type Unit int8

// Units.
const (
	Millis Unit = iota + 1
	Micros
	Nanos
)

// Type is the type of a leaf column. Legacy annotations are read as the logical
// types that the format says they mean.
type Type struct {
	Physical Physical
	Logical  Logical
	// Length is that of values of FixedLenByteArray.
	Length int
	// Precision and Scale are those of a Decimal.
	Precision, Scale int
	// UTC says that a Time or Timestamp is an instant, in Unit.
	UTC  bool
	Unit Unit
	// Bits and Unsigned are those of an Integer.
	Bits     int
	Unsigned bool
}

func (t Type) String() string {
	physical := t.Physical.String()
	if t.Physical == FixedLenByteArray {
		physical = fmt.Sprintf("%s(%d)", physical, t.Length)
	}
	unit := [...]string{"?", "MILLIS", "MICROS", "NANOS"}[t.Unit]
	zone := "not UTC"
	if t.UTC {
		zone = "UTC"
	}
	logical := ""
	switch t.Logical {
	case None, List, Map:
		return physical
	case String:
		logical = "STRING"
	case Enum:
		logical = "ENUM"
	case JSON:
		logical = "JSON"
	case Decimal:
		logical = fmt.Sprintf("DECIMAL(%d,%d)", t.Precision, t.Scale)
	case Date:
		logical = "DATE"
	case Time:
		logical = fmt.Sprintf("TIME(%s, %s)", unit, zone)
	case Timestamp:
		logical = fmt.Sprintf("TIMESTAMP(%s, %s)", unit, zone)
	case Integer:
		sign := "signed"
		if t.Unsigned {
			sign = "unsigned"
		}
		logical = fmt.Sprintf("INTEGER(%d, %s)", t.Bits, sign)
	case UUID:
		logical = "UUID"
	case Other:
		logical = "another logical type"
	}
	return logical + " on " + physical
}

// converted are the legacy annotations by their numbers.
var converted = [...]Type{
	{Logical: String},
	{Logical: Map},
	{Logical: Map}, // MAP_KEY_VALUE
	{Logical: List},
	{Logical: Enum},
	{Logical: Decimal},
	{Logical: Date},
	{Logical: Time, Unit: Millis, UTC: true},
	{Logical: Time, Unit: Micros, UTC: true},
	{Logical: Timestamp, Unit: Millis, UTC: true},
	{Logical: Timestamp, Unit: Micros, UTC: true},
	{Logical: Integer, Bits: 8, Unsigned: true},
	{Logical: Integer, Bits: 16, Unsigned: true},
	{Logical: Integer, Bits: 32, Unsigned: true},
	{Logical: Integer, Bits: 64, Unsigned: true},
	{Logical: Integer, Bits: 8},
	{Logical: Integer, Bits: 16},
	{Logical: Integer, Bits: 32},
	{Logical: Integer, Bits: 64},
	{Logical: JSON},
	{Logical: Other}, // BSON
	{Logical: Other}, // INTERVAL
}

// logicalNames are the members of the LogicalType union that have no content.
var logicalNames = map[int64]Logical{1: String, 2: Map, 3: List, 4: Enum, 6: Date, 12: JSON, 14: UUID}

// logicalType reads a LogicalType.
func (s *scanner) logicalType(typ byte) (t Type, err error) {
	members := 0
	err = s.structure(typ, func(id int64, typ byte) (bool, error) {
		members++
		switch id {
		case 5:
			t.Logical = Decimal
			return true, s.structure(typ, func(id int64, typ byte) (bool, error) {
				if id != 1 && id != 2 {
					return false, nil
				}
				n, err := s.number(typ, 32)
				if id == 1 {
					t.Scale = int(n)
				} else {
					t.Precision = int(n)
				}
				return true, err
			})
		case 7, 8:
			if t.Logical = Time; id == 8 {
				t.Logical = Timestamp
			}
			return true, s.timeType(typ, &t)
		case 10:
			t.Logical, t.Unsigned = Integer, true
			return true, s.structure(typ, func(id int64, typ byte) (bool, error) {
				switch id {
				case 1:
					n, err := s.number(typ, 8)
					t.Bits = int(n)
					return true, err
				case 2:
					t.Unsigned = typ != typeTrue
				}
				return false, nil
			})
		}
		name, ok := logicalNames[id]
		if t.Logical = name; !ok {
			t.Logical = Other
		}
		return false, nil
	})
	if err == nil && members != 1 {
		err = fmt.Errorf("a logical type has %d members", members)
	}
	return t, err
}

func (s *scanner) timeType(typ byte, t *Type) error {
	return s.structure(typ, func(id int64, typ byte) (bool, error) {
		switch id {
		case 1:
			t.UTC = typ == typeTrue
		case 2:
			return true, s.structure(typ, func(id int64, _ byte) (bool, error) {
				if id >= int64(Millis) && id <= int64(Nanos) {
					t.Unit = Unit(id)
				}
				return false, nil
			})
		}
		return false, nil
	})
}
