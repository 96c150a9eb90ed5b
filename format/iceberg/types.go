package iceberg

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/iceberg-go"
)

// typeRow is one row of the table that maps types both ways. It is the only
// place that knows names of types; DuckDBType, FromDuckDBType, Widens and the
// reference page are made from it.
type typeRow struct {
	// duck is DuckDB's own name of the type.
	duck string
	// also are other spellings that a statement may use: DuckDB's aliases and
	// those of Iceberg and Spark.
	also []string
	// to makes the Iceberg type of a column declared with it; nil when the
	// type has no home, and then nearest and why say what to do.
	to func(args []int) (iceberg.Type, error)
	// shown is the Iceberg type as the reference page writes it.
	shown string
	// canonical rows are the ones that a column of the Iceberg type is cast to.
	canonical bool
	// nearest is the DuckDB type to use instead.
	nearest string
	// note goes to the reference page and, for refusals, into the error.
	note string
	// bits and digits describe integers: the magnitude's bits and the decimal
	// digits that hold every value. unsigned tells UINTEGER from INTEGER.
	bits, digits int
	unsigned     bool
	// parquet is the physical form, for the reference page.
	parquet string
}

func plain(t iceberg.Type) func([]int) (iceberg.Type, error) {
	return func(args []int) (iceberg.Type, error) {
		if len(args) > 0 {
			return nil, errors.New("the type takes no arguments")
		}
		return t, nil
	}
}

var (
	boolType   = iceberg.PrimitiveTypes.Bool
	intType    = iceberg.PrimitiveTypes.Int32
	longType   = iceberg.PrimitiveTypes.Int64
	stringType = iceberg.PrimitiveTypes.String
)

var typeRows = []typeRow{
	{duck: "BOOLEAN", also: []string{"BOOL", "LOGICAL"}, to: plain(boolType), shown: "boolean", canonical: true, parquet: "BOOLEAN"},
	{duck: "TINYINT", also: []string{"INT1"}, to: plain(intType), shown: "int", bits: 7, digits: 3},
	{duck: "SMALLINT", also: []string{"INT2", "INT16", "SHORT"}, to: plain(intType), shown: "int", bits: 15, digits: 5},
	{duck: "UTINYINT", also: []string{"UINT8"}, to: plain(intType), shown: "int", bits: 8, digits: 3, unsigned: true},
	{duck: "USMALLINT", also: []string{"UINT16"}, to: plain(intType), shown: "int", bits: 16, digits: 5, unsigned: true},
	{duck: "INTEGER", also: []string{"INT", "INT4", "INT32", "SIGNED"}, to: plain(intType), shown: "int", canonical: true, bits: 31, digits: 10, parquet: "INT32"},
	{duck: "UINTEGER", also: []string{"UINT32"}, to: plain(longType), shown: "long", bits: 32, digits: 10, unsigned: true},
	{duck: "BIGINT", also: []string{"LONG", "INT8", "INT64", "OID"}, to: plain(longType), shown: "long", canonical: true, bits: 63, digits: 19, parquet: "INT64"},
	{duck: "UBIGINT", also: []string{"UINT64"}, nearest: "DECIMAL(20,0)", note: "its largest values don't fit a long", bits: 64, digits: 20, unsigned: true},
	{duck: "HUGEINT", also: []string{"INT128"}, nearest: "DECIMAL(38,0)", note: "Iceberg's largest integer is the 64-bit long", bits: 127, digits: 39},
	{duck: "UHUGEINT", also: []string{"UINT128"}, nearest: "DECIMAL(38,0)", note: "Iceberg's largest integer is the 64-bit long", bits: 128, digits: 39, unsigned: true},
	{duck: "BIGNUM", also: []string{"VARINT"}, nearest: "DECIMAL(38,0)", note: "Iceberg's numbers have at most 38 digits"},
	{duck: "FLOAT", also: []string{"FLOAT4", "REAL"}, to: plain(iceberg.PrimitiveTypes.Float32), shown: "float", canonical: true, parquet: "FLOAT"},
	{duck: "DOUBLE", also: []string{"FLOAT8", "DOUBLE PRECISION"}, to: plain(iceberg.PrimitiveTypes.Float64), shown: "double", canonical: true, parquet: "DOUBLE"},
	{duck: "DECIMAL", also: []string{"NUMERIC", "DEC"}, to: decimalType, shown: "decimal(p, s)", canonical: true, note: "p up to 38; without arguments DECIMAL(18,3), as in DuckDB", parquet: "DECIMAL on INT32 (p ≤ 9), INT64 (p ≤ 18), else FIXED_LEN_BYTE_ARRAY"},
	{duck: "DATE", to: plain(iceberg.PrimitiveTypes.Date), shown: "date", canonical: true, parquet: "DATE on INT32"},
	{duck: "TIME", also: []string{"TIME WITHOUT TIME ZONE"}, to: plain(iceberg.PrimitiveTypes.Time), shown: "time", canonical: true, parquet: "TIME(MICROS, not UTC) on INT64"},
	{duck: "TIMESTAMP", also: []string{"DATETIME", "TIMESTAMP_US", "TIMESTAMP_NTZ", "TIMESTAMP WITHOUT TIME ZONE"}, to: plain(iceberg.PrimitiveTypes.Timestamp), shown: "timestamp", canonical: true, note: "zoneless, microseconds", parquet: "TIMESTAMP(MICROS, not UTC) on INT64"},
	{duck: "TIMESTAMP_S", to: plain(iceberg.PrimitiveTypes.Timestamp), shown: "timestamp"},
	{duck: "TIMESTAMP_MS", to: plain(iceberg.PrimitiveTypes.Timestamp), shown: "timestamp"},
	{duck: "TIMESTAMP WITH TIME ZONE", also: []string{"TIMESTAMPTZ", "TIMESTAMP_LTZ"}, to: plain(iceberg.PrimitiveTypes.TimestampTz), shown: "timestamptz", canonical: true, note: "an instant, stored in UTC, microseconds", parquet: "TIMESTAMP(MICROS, UTC) on INT64"},
	{duck: "VARCHAR", also: []string{"STRING", "TEXT", "CHAR", "BPCHAR", "NVARCHAR", "CHARACTER VARYING"}, to: sized(stringType), shown: "string", canonical: true, note: "a length such as VARCHAR(10) is read and not kept, as in DuckDB", parquet: "STRING on BYTE_ARRAY"},
	{duck: "JSON", to: plain(stringType), shown: "string", note: "kept as its text"},
	{duck: "UUID", also: []string{"GUID"}, to: plain(iceberg.PrimitiveTypes.UUID), shown: "uuid", canonical: true, parquet: "UUID on FIXED_LEN_BYTE_ARRAY(16)"},
	{duck: "BLOB", also: []string{"BINARY", "VARBINARY", "BYTEA"}, to: plain(iceberg.PrimitiveTypes.Binary), shown: "binary", canonical: true, parquet: "BYTE_ARRAY"},
	{duck: "FIXED", to: fixedType, shown: "fixed(n)", note: "a spelling of Firn's: queries see a BLOB, and each value's length is checked when it is written", parquet: "FIXED_LEN_BYTE_ARRAY(n)"},
	{duck: "TIMESTAMP_NS", nearest: "TIMESTAMP", note: "format version 2 has no nanoseconds"},
	{duck: "TIME WITH TIME ZONE", also: []string{"TIMETZ"}, nearest: "TIME", note: "Iceberg's time has no zone"},
	{duck: "TIME_NS", nearest: "TIME", note: "Iceberg's time has microseconds"},
	{duck: "INTERVAL", nearest: "VARCHAR", note: "Iceberg has no interval"},
	{duck: "BIT", also: []string{"BITSTRING"}, nearest: "VARCHAR", note: "Iceberg has no bit string"},
	{duck: "UNION", nearest: "STRUCT", note: "Iceberg has no union; a struct with one field a member holds it"},
	{duck: "VARIANT", nearest: "JSON", note: "format version 2 has no variant"},
	{duck: "GEOMETRY", nearest: "BLOB", note: "format version 2 has no geometry"},
	{duck: `"NULL"`, also: []string{"SQLNULL", "NULL"}, nearest: "VARCHAR", note: "a column that is always null needs a type"},
}

func decimalType(args []int) (iceberg.Type, error) {
	p, s := 18, 3
	switch len(args) {
	case 0:
	case 1:
		p, s = args[0], 0
	case 2:
		p, s = args[0], args[1]
	default:
		return nil, errors.New("DECIMAL takes a precision and a scale")
	}
	if p < 1 || p > 38 || s < 0 || s > p {
		return nil, fmt.Errorf("DECIMAL(%d,%d): the precision goes from 1 to 38 and the scale from 0 to the precision", p, s)
	}
	return iceberg.DecimalTypeOf(p, s), nil
}

func fixedType(args []int) (iceberg.Type, error) {
	if len(args) != 1 || args[0] < 1 || args[0] > 1<<20 {
		return nil, fmt.Errorf("FIXED takes a length in bytes from 1 to %d", 1<<20)
	}
	return iceberg.FixedTypeOf(args[0]), nil
}

func sized(t iceberg.Type) func([]int) (iceberg.Type, error) {
	return func(args []int) (iceberg.Type, error) {
		if len(args) > 1 {
			return nil, errors.New("the type takes one length")
		}
		return t, nil
	}
}

// rowOf finds a type's row by any of its spellings, in upper case.
func rowOf(name string) *typeRow {
	for i := range typeRows {
		if r := &typeRows[i]; r.duck == name || slices.Contains(r.also, name) {
			return r
		}
	}
	return nil
}

// DuckDBType gives the type, as DuckDB writes it, that a query's column is cast
// to before it's written to a column of type t. Names of struct fields are
// quoted.
func DuckDBType(t iceberg.Type) (string, error) {
	switch t := t.(type) {
	case iceberg.DecimalType:
		return fmt.Sprintf("DECIMAL(%d,%d)", t.Precision(), t.Scale()), nil
	case iceberg.FixedType:
		return "BLOB", nil
	case *iceberg.ListType:
		el, err := DuckDBType(t.Element)
		return el + "[]", err
	case *iceberg.MapType:
		key, err := DuckDBType(t.KeyType)
		if err != nil {
			return "", err
		}
		value, err := DuckDBType(t.ValueType)
		return "MAP(" + key + ", " + value + ")", err
	case *iceberg.StructType:
		parts := make([]string, len(t.FieldList))
		for i, f := range t.FieldList {
			ft, err := DuckDBType(f.Type)
			if err != nil {
				return "", err
			}
			parts[i] = `"` + strings.ReplaceAll(f.Name, `"`, `""`) + `" ` + ft
		}
		return "STRUCT(" + strings.Join(parts, ", ") + ")", nil
	case nil:
		return "", errors.New("a column without a type")
	}
	for i := range typeRows {
		if r := &typeRows[i]; r.canonical && r.shown == t.String() {
			return r.duck, nil
		}
	}
	return "", fmt.Errorf("the Iceberg type %s has no DuckDB type here", t)
}

// FromDuckDBType reads the type of a column as a statement declares it, in
// DuckDB's spelling or in that of Iceberg and Spark (struct<a: int>,
// array<string>, fixed(16)). nextID gives the ids of nested fields: those of
// one level before those below it, as Java assigns them. An error names the
// nearest type that there is.
func FromDuckDBType(text string, nextID func() int) (iceberg.Type, error) {
	d, err := parseType(text)
	if err != nil {
		return nil, err
	}
	return d.iceberg(nextID)
}

func (d *duckType) iceberg(nextID func() int) (iceberg.Type, error) {
	switch d.kind {
	case kindList:
		id := nextID()
		el, err := d.elem[0].typ.iceberg(nextID)
		if err != nil {
			return nil, err
		}
		return &iceberg.ListType{ElementID: id, Element: el, ElementRequired: d.elem[0].required}, nil
	case kindMap:
		keyID, valueID := nextID(), nextID()
		key, err := d.elem[0].typ.iceberg(nextID)
		if err != nil {
			return nil, err
		}
		value, err := d.elem[1].typ.iceberg(nextID)
		if err != nil {
			return nil, err
		}
		return &iceberg.MapType{KeyID: keyID, KeyType: key, ValueID: valueID, ValueType: value, ValueRequired: d.elem[1].required}, nil
	case kindStruct:
		fields := make([]iceberg.NestedField, len(d.elem))
		for i := range fields {
			fields[i].ID = nextID()
		}
		for i, e := range d.elem {
			ft, err := e.typ.iceberg(nextID)
			if err != nil {
				return nil, fmt.Errorf("field %s: %w", e.name, err)
			}
			fields[i].Name, fields[i].Type, fields[i].Required = e.name, ft, e.required
		}
		return &iceberg.StructType{FieldList: fields}, nil
	case kindEnum:
		return stringType, nil
	}
	if d.row.to == nil {
		return nil, fmt.Errorf("type %s can't be stored in an Iceberg table: %s; the nearest type is %s", d.row.duck, d.row.note, d.row.nearest)
	}
	return d.row.to(d.args)
}
