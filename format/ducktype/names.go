package ducktype

import "slices"

// Name is a plain type's name with what is known of its values.
type Name struct {
	// Duck is DuckDB's own name of the type.
	Duck string
	// Also are other spellings that a statement may use: DuckDB's aliases and
	// those of table formats and Spark.
	Also []string
	// Bits and Digits describe integers: the magnitude's bits and the decimal
	// digits that hold every value. Unsigned tells UINTEGER from INTEGER.
	Bits, Digits int
	Unsigned     bool
}

// Null is the name of the type of a bare NULL.
const Null = `"NULL"`

// names are all plain types. It is the only place that knows how they are spelled.
var names = []Name{
	{Duck: "BOOLEAN", Also: []string{"BOOL", "LOGICAL"}},
	{Duck: "TINYINT", Also: []string{"INT1"}, Bits: 7, Digits: 3},
	{Duck: "SMALLINT", Also: []string{"INT2", "INT16", "SHORT"}, Bits: 15, Digits: 5},
	{Duck: "UTINYINT", Also: []string{"UINT8"}, Bits: 8, Digits: 3, Unsigned: true},
	{Duck: "USMALLINT", Also: []string{"UINT16"}, Bits: 16, Digits: 5, Unsigned: true},
	{Duck: "INTEGER", Also: []string{"INT", "INT4", "INT32", "SIGNED"}, Bits: 31, Digits: 10},
	{Duck: "UINTEGER", Also: []string{"UINT32"}, Bits: 32, Digits: 10, Unsigned: true},
	{Duck: "BIGINT", Also: []string{"LONG", "INT8", "INT64", "OID"}, Bits: 63, Digits: 19},
	{Duck: "UBIGINT", Also: []string{"UINT64"}, Bits: 64, Digits: 20, Unsigned: true},
	{Duck: "HUGEINT", Also: []string{"INT128"}, Bits: 127, Digits: 39},
	{Duck: "UHUGEINT", Also: []string{"UINT128"}, Bits: 128, Digits: 39, Unsigned: true},
	{Duck: "BIGNUM", Also: []string{"VARINT"}},
	{Duck: "FLOAT", Also: []string{"FLOAT4", "REAL"}},
	{Duck: "DOUBLE", Also: []string{"FLOAT8", "DOUBLE PRECISION"}},
	{Duck: "DECIMAL", Also: []string{"NUMERIC", "DEC"}},
	{Duck: "DATE"},
	{Duck: "TIME", Also: []string{"TIME WITHOUT TIME ZONE"}},
	{Duck: "TIMESTAMP", Also: []string{"DATETIME", "TIMESTAMP_US", "TIMESTAMP_NTZ", "TIMESTAMP WITHOUT TIME ZONE"}},
	{Duck: "TIMESTAMP_S"},
	{Duck: "TIMESTAMP_MS"},
	{Duck: "TIMESTAMP WITH TIME ZONE", Also: []string{"TIMESTAMPTZ", "TIMESTAMP_LTZ"}},
	{Duck: "VARCHAR", Also: []string{"STRING", "TEXT", "CHAR", "BPCHAR", "NVARCHAR", "CHARACTER VARYING"}},
	{Duck: "JSON"},
	{Duck: "UUID", Also: []string{"GUID"}},
	{Duck: "BLOB", Also: []string{"BINARY", "VARBINARY", "BYTEA"}},
	{Duck: "FIXED"},
	{Duck: "TIMESTAMP_NS"},
	{Duck: "TIME WITH TIME ZONE", Also: []string{"TIMETZ"}},
	{Duck: "TIME_NS"},
	{Duck: "INTERVAL"},
	{Duck: "BIT", Also: []string{"BITSTRING"}},
	{Duck: "UNION"},
	{Duck: "VARIANT"},
	{Duck: "GEOMETRY"},
	{Duck: Null, Also: []string{"SQLNULL", "NULL"}},
}

// Named finds a type by any of its spellings, in upper case; nil for none.
func Named(name string) *Name {
	for i := range names {
		if n := &names[i]; n.Duck == name || slices.Contains(n.Also, name) {
			return n
		}
	}
	return nil
}
