package flightsqlserver

import (
	"cmp"
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
	"HUGEINT": &arrow.Decimal128Type{Precision: 38}, "UUID": arrow.BinaryTypes.String, "JSON": arrow.BinaryTypes.String,
	"INTERVAL": arrow.FixedWidthTypes.MonthDayNanoInterval, "TIME_NS": arrow.FixedWidthTypes.Time64ns,
	"TIMESTAMP_MS": &arrow.TimestampType{Unit: arrow.Millisecond}, "TIMESTAMP_NS": &arrow.TimestampType{Unit: arrow.Nanosecond},
}

// maxType is the longest text of a type that is read, in bytes.
const maxType = 10_000

// schemaOfColumns is the schema of rows with these columns in a session's time zone;
// nil when there is a type among them whose form only the rows show.
func schemaOfColumns(columns []*firnpb.ResultColumn, zone string) *arrow.Schema {
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		if len(c.GetType()) > maxType {
			return nil
		}
		t := typeOf(c.GetType(), zone)
		if t == nil {
			return nil
		}
		fields[i] = arrow.Field{Name: c.GetName(), Type: t, Nullable: true}
	}
	return arrow.NewSchema(fields, nil)
}

// typeOf reads a type as DuckDB writes it; nil for one that isn't known.
func typeOf(text, zone string) arrow.DataType {
	if t := plain[text]; t != nil {
		return t
	}
	if text == "TIMESTAMP WITH TIME ZONE" {
		return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: cmp.Or(zone, "UTC")}
	}
	if i := strings.LastIndexByte(text, '['); i > 0 && strings.HasSuffix(text, "]") {
		return listOf(typeOf(text[:i], zone), text[i+1:len(text)-1])
	}
	name, inside, ok := strings.Cut(strings.TrimSuffix(text, ")"), "(")
	if !ok {
		return nil
	}
	parts := split(inside)
	switch {
	case name == "ENUM":
		return arrow.BinaryTypes.String
	case name == "STRUCT":
		return structOf(parts, zone)
	case name == "MAP" && len(parts) == 2:
		if k, v := typeOf(parts[0], zone), typeOf(parts[1], zone); k != nil && v != nil {
			return arrow.MapOf(k, v)
		}
	case name == "DECIMAL" && len(parts) == 2:
		precision, err := strconv.ParseInt(parts[0], 10, 32)
		scale, err2 := strconv.ParseInt(parts[1], 10, 32)
		if err == nil && err2 == nil && 0 <= scale && scale <= precision && precision <= 38 {
			return &arrow.Decimal128Type{Precision: int32(precision), Scale: int32(scale)}
		}
	}
	return nil
}

func listOf(element arrow.DataType, size string) arrow.DataType {
	if element == nil {
		return nil
	}
	if size == "" {
		return arrow.ListOfField(arrow.Field{Name: "l", Type: element, Nullable: true})
	}
	n, err := strconv.ParseInt(size, 10, 32)
	if err != nil || n <= 0 {
		return nil
	}
	return arrow.FixedSizeListOfField(int32(n), arrow.Field{Type: element, Nullable: true})
}

func structOf(parts []string, zone string) arrow.DataType {
	fields := make([]arrow.Field, len(parts))
	for i, p := range parts {
		name, text, ok := strings.Cut(p, " ")
		if strings.HasPrefix(p, `"`) {
			end := 1
			for ; end < len(p); end++ {
				if p[end] != '"' {
					continue
				}
				if end++; end == len(p) || p[end] != '"' {
					break
				}
			}
			if end < 2 || p[end-1] != '"' {
				return nil
			}
			name, text, ok = strings.ReplaceAll(p[1:end-1], `""`, `"`), strings.TrimPrefix(p[end:], " "), true
		}
		t := typeOf(text, zone)
		if !ok || t == nil {
			return nil
		}
		fields[i] = arrow.Field{Name: name, Type: t, Nullable: true}
	}
	return arrow.StructOf(fields...)
}

// split cuts at commas outside of brackets and quotes.
func split(text string) (parts []string) {
	depth, quote, from := 0, rune(0), 0
	for i, c := range text {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth--
		case c == ',' && depth == 0:
			parts, from = append(parts, strings.TrimSpace(text[from:i])), i+1
		}
	}
	return append(parts, strings.TrimSpace(text[from:]))
}
