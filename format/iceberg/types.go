package iceberg

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/format/ducktype"
)

// typeRow is one row of the table that maps types both ways; DuckDBType,
// FromDuckDBType, Widens and the reference page are made from it.
type typeRow struct {
	*ducktype.Name
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
	{Name: ducktype.Named("BOOLEAN"), to: plain(boolType), shown: "boolean", canonical: true, parquet: "BOOLEAN"},
	{Name: ducktype.Named("TINYINT"), to: plain(intType), shown: "int"},
	{Name: ducktype.Named("SMALLINT"), to: plain(intType), shown: "int"},
	{Name: ducktype.Named("UTINYINT"), to: plain(intType), shown: "int"},
	{Name: ducktype.Named("USMALLINT"), to: plain(intType), shown: "int"},
	{Name: ducktype.Named("INTEGER"), to: plain(intType), shown: "int", canonical: true, parquet: "INT32"},
	{Name: ducktype.Named("UINTEGER"), to: plain(longType), shown: "long"},
	{Name: ducktype.Named("BIGINT"), to: plain(longType), shown: "long", canonical: true, parquet: "INT64"},
	{Name: ducktype.Named("UBIGINT"), nearest: "DECIMAL(20,0)", note: "its largest values don't fit a long"},
	{Name: ducktype.Named("HUGEINT"), nearest: "DECIMAL(38,0)", note: "Iceberg's largest integer is the 64-bit long"},
	{Name: ducktype.Named("UHUGEINT"), nearest: "DECIMAL(38,0)", note: "Iceberg's largest integer is the 64-bit long"},
	{Name: ducktype.Named("BIGNUM"), nearest: "DECIMAL(38,0)", note: "Iceberg's numbers have at most 38 digits"},
	{Name: ducktype.Named("FLOAT"), to: plain(iceberg.PrimitiveTypes.Float32), shown: "float", canonical: true, parquet: "FLOAT"},
	{Name: ducktype.Named("DOUBLE"), to: plain(iceberg.PrimitiveTypes.Float64), shown: "double", canonical: true, parquet: "DOUBLE"},
	{Name: ducktype.Named("DECIMAL"), to: decimalType, shown: "decimal(p, s)", canonical: true, note: "p up to 38; without arguments DECIMAL(18,3), as in DuckDB", parquet: "DECIMAL on INT32 (p ≤ 9), INT64 (p ≤ 18), else FIXED_LEN_BYTE_ARRAY"},
	{Name: ducktype.Named("DATE"), to: plain(iceberg.PrimitiveTypes.Date), shown: "date", canonical: true, parquet: "DATE on INT32"},
	{Name: ducktype.Named("TIME"), to: plain(iceberg.PrimitiveTypes.Time), shown: "time", canonical: true, parquet: "TIME(MICROS, not UTC) on INT64"},
	{Name: ducktype.Named("TIMESTAMP"), to: plain(iceberg.PrimitiveTypes.Timestamp), shown: "timestamp", canonical: true, note: "zoneless, microseconds", parquet: "TIMESTAMP(MICROS, not UTC) on INT64"},
	{Name: ducktype.Named("TIMESTAMP_S"), to: plain(iceberg.PrimitiveTypes.Timestamp), shown: "timestamp"},
	{Name: ducktype.Named("TIMESTAMP_MS"), to: plain(iceberg.PrimitiveTypes.Timestamp), shown: "timestamp"},
	{Name: ducktype.Named("TIMESTAMP WITH TIME ZONE"), to: plain(iceberg.PrimitiveTypes.TimestampTz), shown: "timestamptz", canonical: true, note: "an instant, stored in UTC, microseconds", parquet: "TIMESTAMP(MICROS, UTC) on INT64"},
	{Name: ducktype.Named("VARCHAR"), to: sized(stringType), shown: "string", canonical: true, note: "a length such as VARCHAR(10) is read and not kept, as in DuckDB", parquet: "STRING on BYTE_ARRAY"},
	{Name: ducktype.Named("JSON"), to: plain(stringType), shown: "string", note: "kept as its text"},
	{Name: ducktype.Named("UUID"), to: plain(iceberg.PrimitiveTypes.UUID), shown: "uuid", canonical: true, parquet: "UUID on FIXED_LEN_BYTE_ARRAY(16)"},
	{Name: ducktype.Named("BLOB"), to: plain(iceberg.PrimitiveTypes.Binary), shown: "binary", canonical: true, parquet: "BYTE_ARRAY"},
	{Name: ducktype.Named("FIXED"), to: fixedType, shown: "fixed(n)", note: "a spelling of Firn's: queries see a BLOB, and each value's length is checked when it is written", parquet: "FIXED_LEN_BYTE_ARRAY(n)"},
	{Name: ducktype.Named("TIMESTAMP_NS"), nearest: "TIMESTAMP", note: "format version 2 has no nanoseconds"},
	{Name: ducktype.Named("TIME WITH TIME ZONE"), nearest: "TIME", note: "Iceberg's time has no zone"},
	{Name: ducktype.Named("TIME_NS"), nearest: "TIME", note: "Iceberg's time has microseconds"},
	{Name: ducktype.Named("INTERVAL"), nearest: "VARCHAR", note: "Iceberg has no interval"},
	{Name: ducktype.Named("BIT"), nearest: "VARCHAR", note: "Iceberg has no bit string"},
	{Name: ducktype.Named("UNION"), nearest: "STRUCT", note: "Iceberg has no union; a struct with one field a member holds it"},
	{Name: ducktype.Named("VARIANT"), nearest: "JSON", note: "format version 2 has no variant"},
	{Name: ducktype.Named("GEOMETRY"), nearest: "BLOB", note: "format version 2 has no geometry"},
	{Name: ducktype.Named(ducktype.Null), nearest: "VARCHAR", note: "a column that is always null needs a type"},
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

// rowOf finds a type's row.
func rowOf(name *ducktype.Name) *typeRow {
	i := slices.IndexFunc(typeRows, func(r typeRow) bool { return r.Name == name })
	return &typeRows[i]
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
			return r.Duck, nil
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
	d, err := ducktype.Parse(text)
	if err != nil {
		return nil, err
	}
	return icebergType(d, nextID)
}

func icebergType(d *ducktype.Type, nextID func() int) (iceberg.Type, error) {
	switch d.Kind {
	case ducktype.List:
		id := nextID()
		el, err := icebergType(d.Elem[0].Type, nextID)
		if err != nil {
			return nil, err
		}
		return &iceberg.ListType{ElementID: id, Element: el, ElementRequired: d.Elem[0].Required}, nil
	case ducktype.Map:
		keyID, valueID := nextID(), nextID()
		key, err := icebergType(d.Elem[0].Type, nextID)
		if err != nil {
			return nil, err
		}
		value, err := icebergType(d.Elem[1].Type, nextID)
		if err != nil {
			return nil, err
		}
		return &iceberg.MapType{KeyID: keyID, KeyType: key, ValueID: valueID, ValueType: value, ValueRequired: d.Elem[1].Required}, nil
	case ducktype.Struct:
		fields := make([]iceberg.NestedField, len(d.Elem))
		for i := range fields {
			fields[i].ID = nextID()
		}
		for i, e := range d.Elem {
			ft, err := icebergType(e.Type, nextID)
			if err != nil {
				return nil, fmt.Errorf("field %s: %w", e.Name, err)
			}
			fields[i].Name, fields[i].Type, fields[i].Required = e.Name, ft, e.Required
		}
		return &iceberg.StructType{FieldList: fields}, nil
	case ducktype.Enum:
		return stringType, nil
	}
	r := rowOf(d.Name)
	if r.to == nil {
		return nil, fmt.Errorf("type %s can't be stored in an Iceberg table: %s; the nearest type is %s", r.Duck, r.note, r.nearest)
	}
	return r.to(d.Args)
}
