package flightsqlserver

import (
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-project/firn/internal/wire/firnpb"
)

// plain are the forms in Arrow of DuckDB's types, as rows have them.
var plain = map[string]arrow.DataType{
	"BOOLEAN": arrow.FixedWidthTypes.Boolean,
	"TINYINT": arrow.PrimitiveTypes.Int8, "SMALLINT": arrow.PrimitiveTypes.Int16, "INTEGER": arrow.PrimitiveTypes.Int32, "BIGINT": arrow.PrimitiveTypes.Int64,
	"UTINYINT": arrow.PrimitiveTypes.Uint8, "USMALLINT": arrow.PrimitiveTypes.Uint16, "UINTEGER": arrow.PrimitiveTypes.Uint32, "UBIGINT": arrow.PrimitiveTypes.Uint64,
	"FLOAT": arrow.PrimitiveTypes.Float32, "DOUBLE": arrow.PrimitiveTypes.Float64,
	"VARCHAR": arrow.BinaryTypes.String, "BLOB": arrow.BinaryTypes.Binary,
	"DATE": arrow.FixedWidthTypes.Date32, "TIME": arrow.FixedWidthTypes.Time64us,
	"TIMESTAMP": &arrow.TimestampType{Unit: arrow.Microsecond}, "TIMESTAMP_S": &arrow.TimestampType{Unit: arrow.Second},
	"TIMESTAMP_MS": &arrow.TimestampType{Unit: arrow.Millisecond}, "TIMESTAMP_NS": &arrow.TimestampType{Unit: arrow.Nanosecond},
}

// schemaOfColumns is the schema of rows with these columns; nil when there is a type
// among them whose form only the rows show.
func schemaOfColumns(columns []*firnpb.ResultColumn) *arrow.Schema {
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		t := typeOf(c.GetType())
		if t == nil {
			return nil
		}
		fields[i] = arrow.Field{Name: c.GetName(), Type: t, Nullable: true}
	}
	return arrow.NewSchema(fields, nil)
}

func typeOf(text string) arrow.DataType {
	if t := plain[text]; t != nil {
		return t
	}
	if element, ok := strings.CutSuffix(text, "[]"); ok {
		if t := typeOf(element); t != nil {
			return arrow.ListOf(t)
		}
		return nil
	}
	digits, ok := strings.CutPrefix(text, "DECIMAL(")
	if !ok {
		return nil
	}
	p, s, _ := strings.Cut(strings.TrimSuffix(digits, ")"), ",")
	precision, err := strconv.Atoi(p)
	scale, err2 := strconv.Atoi(s)
	if err != nil || err2 != nil {
		return nil
	}
	return &arrow.Decimal128Type{Precision: int32(precision), Scale: int32(scale)}
}
