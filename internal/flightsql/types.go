package flightsql

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
)

// maxColumns bounds the columns of a source.
const maxColumns = 10_000

// columns are an engine's columns as DuckDB has them.
func (a Access) columns(schema *arrow.Schema) ([]plan.Column, error) {
	if n := schema.NumFields(); n == 0 || n > maxColumns {
		return nil, a.badColumn("", fmt.Errorf("it has %d columns; want 1 to %d", n, maxColumns))
	}
	out := make([]plan.Column, schema.NumFields())
	seen := map[string]bool{}
	for i, f := range schema.Fields() {
		name := strings.ToLower(f.Name)
		switch {
		case f.Name == "":
			return nil, a.badColumn(strconv.Itoa(i+1), errors.New("it has no name"))
		case seen[name]:
			return nil, a.badColumn(f.Name, errors.New("another column has the same name, but for case"))
		}
		seen[name] = true
		t, err := plainType(f.Type)
		if err != nil {
			return nil, a.badColumn(f.Name, err)
		}
		d, err := duckdb.TypeOf(t)
		if err != nil {
			return nil, a.badColumn(f.Name, err)
		}
		out[i] = plan.Column{Name: f.Name, Type: d}
	}
	return out, nil
}

func (a Access) badColumn(name string, cause error) error {
	object := "source " + a.Name
	if name != "" {
		object = "column " + shorten(name) + " of " + object
	}
	return &commit.Error{Code: commit.CodeFlightType, Op: "read", Object: object, Cause: cause, Hint: "Cast or name the column in the engine's query."}
}

// plainSchema is the schema of the batches that plainBatch gives.
func plainSchema(schema *arrow.Schema) (*arrow.Schema, error) {
	fields := make([]arrow.Field, schema.NumFields())
	for i, f := range schema.Fields() {
		t, err := plainType(f.Type)
		if err != nil {
			return nil, err
		}
		fields[i] = arrow.Field{Name: f.Name, Type: t, Nullable: true}
	}
	return arrow.NewSchema(fields, nil), nil
}

// maxDigits is how many digits a decimal of DuckDB and of the table formats has.
const maxDigits = 38

// plainType is the type that a column becomes: the same for those that DuckDB takes
// as they are.
func plainType(t arrow.DataType) (arrow.DataType, error) {
	switch t := t.(type) {
	case *arrow.DictionaryType:
		return plainType(t.ValueType)
	case *arrow.RunEndEncodedType:
		return plainType(t.Encoded())
	case arrow.ExtensionType:
		if t.ExtensionName() == "arrow.uuid" {
			return arrow.BinaryTypes.String, nil
		}
		return plainType(t.StorageType())
	case *arrow.NullType:
		return arrow.PrimitiveTypes.Int32, nil
	case *arrow.Float16Type:
		return arrow.PrimitiveTypes.Float32, nil
	case *arrow.StringViewType:
		return arrow.BinaryTypes.String, nil
	case *arrow.BinaryViewType:
		return arrow.BinaryTypes.Binary, nil
	case arrow.DecimalType:
		return plainDecimal(t)
	case *arrow.TimestampType:
		if t.TimeZone != "" {
			return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, nil
		}
		return t, nil
	case *arrow.StructType, *arrow.MapType, *arrow.FixedSizeListType, *arrow.ListType, *arrow.LargeListType:
		return plainNested(t.(arrow.NestedType))
	case *arrow.DenseUnionType, *arrow.SparseUnionType, *arrow.ListViewType, *arrow.LargeListViewType, *arrow.DurationType,
		*arrow.MonthIntervalType, *arrow.DayTimeIntervalType, *arrow.MonthDayNanoIntervalType:
		return nil, fmt.Errorf("the type %s isn't taken", t)
	}
	return t, nil
}

func plainDecimal(t arrow.DecimalType) (arrow.DataType, error) {
	if t.GetPrecision() > maxDigits || t.GetPrecision() < 1 {
		return nil, fmt.Errorf("the type %s has more than the %d digits that a decimal can have", t, maxDigits)
	}
	if t.GetScale() < 0 || t.GetScale() > t.GetPrecision() {
		return nil, fmt.Errorf("the type %s has a scale below 0 or above its digits", t)
	}
	return &arrow.Decimal128Type{Precision: t.GetPrecision(), Scale: t.GetScale()}, nil
}

func plainNested(t arrow.NestedType) (arrow.DataType, error) {
	fields := t.Fields()
	for i := range fields {
		own, err := plainType(fields[i].Type)
		if err != nil {
			return nil, err
		}
		fields[i] = arrow.Field{Name: fields[i].Name, Type: own, Nullable: fields[i].Nullable}
	}
	switch t := t.(type) {
	case *arrow.StructType:
		if len(fields) == 0 {
			return nil, errors.New("a struct without fields isn't taken")
		}
		return arrow.StructOf(fields...), nil
	case *arrow.MapType:
		m := arrow.MapOf(mapEntry(fields[0], 0), mapEntry(fields[0], 1))
		m.KeysSorted = t.KeysSorted
		return m, nil
	case *arrow.FixedSizeListType:
		if t.Len() < 1 {
			return nil, fmt.Errorf("a list of %d values isn't taken", t.Len())
		}
		return arrow.FixedSizeListOfField(t.Len(), fields[0]), nil
	case *arrow.LargeListType:
		return arrow.LargeListOfField(fields[0]), nil
	default:
		return arrow.ListOfField(fields[0]), nil
	}
}

func mapEntry(entries arrow.Field, i int) arrow.DataType {
	return entries.Type.(*arrow.StructType).Field(i).Type
}
