package iceberg

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/iceberg-go"
)

// FieldIDKey is the key of the metadata of an Arrow field that holds its
// Iceberg field id; arrow-go writes it as the Parquet field id.
const FieldIDKey = "PARQUET:field_id"

// ParseSchema reads a table schema as the Iceberg spec serialises it
// (Appendix C).
func ParseSchema(b []byte) (*iceberg.Schema, error) {
	var s iceberg.Schema
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("iceberg schema: %w", err)
	}
	if _, err := iceberg.IndexByID(&s); err != nil {
		return nil, fmt.Errorf("iceberg schema: %w", err)
	}
	return &s, nil
}

// ParseSpec reads a partition spec as the Iceberg spec serialises it and checks
// it against the schema: every field has one source column, outside lists and
// maps, of a type that its transform takes.
func ParseSpec(b []byte, schema *iceberg.Schema) (iceberg.PartitionSpec, error) {
	var spec iceberg.PartitionSpec
	if err := json.Unmarshal(b, &spec); err != nil {
		return spec, fmt.Errorf("iceberg partition spec: %w", err)
	}
	for i := range spec.NumFields() {
		if _, err := bindField(schema, spec.Field(i)); err != nil {
			return spec, err
		}
	}
	return spec, nil
}

// ArrowSchema gives the Arrow schema of a table's rows. Every field, nested
// ones included, carries its id under FieldIDKey. A uuid is the extension type
// arrow.uuid; a timestamptz has the time zone UTC.
func ArrowSchema(schema *iceberg.Schema) (*arrow.Schema, error) {
	fields, err := arrowFields(schema.Fields(), "")
	if err != nil {
		return nil, err
	}
	return arrow.NewSchema(fields, nil), nil
}

func arrowFields(in []iceberg.NestedField, prefix string) ([]arrow.Field, error) {
	out := make([]arrow.Field, len(in))
	for i, f := range in {
		a, err := arrowField(f, prefix)
		if err != nil {
			return nil, err
		}
		out[i] = a
	}
	return out, nil
}

func arrowField(f iceberg.NestedField, prefix string) (arrow.Field, error) {
	dt, err := arrowType(f.Type, prefix+f.Name)
	if err != nil {
		return arrow.Field{}, err
	}
	return arrow.Field{
		Name:     f.Name,
		Type:     dt,
		Nullable: !f.Required,
		Metadata: arrow.NewMetadata([]string{FieldIDKey}, []string{strconv.Itoa(f.ID)}),
	}, nil
}

func arrowType(t iceberg.Type, path string) (arrow.DataType, error) {
	switch t := t.(type) {
	case iceberg.BooleanType:
		return arrow.FixedWidthTypes.Boolean, nil
	case iceberg.Int32Type:
		return arrow.PrimitiveTypes.Int32, nil
	case iceberg.Int64Type:
		return arrow.PrimitiveTypes.Int64, nil
	case iceberg.Float32Type:
		return arrow.PrimitiveTypes.Float32, nil
	case iceberg.Float64Type:
		return arrow.PrimitiveTypes.Float64, nil
	case iceberg.DecimalType:
		return &arrow.Decimal128Type{Precision: int32(t.Precision()), Scale: int32(t.Scale())}, nil
	case iceberg.DateType:
		return arrow.FixedWidthTypes.Date32, nil
	case iceberg.TimeType:
		return arrow.FixedWidthTypes.Time64us, nil
	case iceberg.TimestampType:
		return &arrow.TimestampType{Unit: arrow.Microsecond}, nil
	case iceberg.TimestampTzType:
		return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, nil
	case iceberg.StringType:
		return arrow.BinaryTypes.String, nil
	case iceberg.UUIDType:
		return extensions.NewUUIDType(), nil
	case iceberg.FixedType:
		return &arrow.FixedSizeBinaryType{ByteWidth: t.Len()}, nil
	case iceberg.BinaryType:
		return arrow.BinaryTypes.Binary, nil
	case *iceberg.ListType:
		el, err := arrowField(t.ElementField(), path+".")
		if err != nil {
			return nil, err
		}
		return arrow.ListOfField(el), nil
	case *iceberg.MapType:
		key, err := arrowField(t.KeyField(), path+".")
		if err != nil {
			return nil, err
		}
		value, err := arrowField(t.ValueField(), path+".")
		if err != nil {
			return nil, err
		}
		return arrow.MapOfFields(key, value), nil
	case *iceberg.StructType:
		if len(t.FieldList) == 0 {
			return nil, fmt.Errorf("column %s: Parquet has no struct without fields", path)
		}
		fields, err := arrowFields(t.FieldList, path+".")
		if err != nil {
			return nil, err
		}
		return arrow.StructOf(fields...), nil
	case nil:
		return nil, fmt.Errorf("column %s has no type", path)
	}
	return nil, fmt.Errorf("column %s: the type %s isn't written in format version 2", path, t)
}

// boundField is a partition field with its source column: Path is the way from
// the row to the column by position, longer than one for a field of a struct.
type boundField struct {
	iceberg.PartitionField
	Source iceberg.Type
	Result iceberg.Type
	Path   []int
}

var errSourceGone = errors.New("has no source column in the schema")

func bindField(schema *iceberg.Schema, f iceberg.PartitionField) (boundField, error) {
	fail := func(err error) (boundField, error) {
		return boundField{}, fmt.Errorf("partition field %s: %w", f.Name, err)
	}
	if len(f.SourceIDs) > 1 {
		return fail(errors.New("transforms of several columns aren't supported"))
	}
	path, source := findField(schema.Fields(), f.SourceID())
	if _, void := f.Transform.(iceberg.VoidTransform); void {
		if source == nil {
			// The column of a dropped partition field of a version 1 table may
			// be dropped as well; nothing but null is ever in the field.
			source = iceberg.PrimitiveTypes.Int32
		}
		return boundField{f, source, source, nil}, nil
	}
	if source == nil {
		return fail(errSourceGone)
	}
	if _, err := newTransformer(f.Transform, source); err != nil {
		return fail(err)
	}
	return boundField{f, source, resultType(f.Transform, source), path}, nil
}

// findField looks for a field by id outside lists and maps.
func findField(fields []iceberg.NestedField, id int) ([]int, iceberg.Type) {
	for i, f := range fields {
		if f.ID == id {
			return []int{i}, f.Type
		}
		if s, ok := f.Type.(*iceberg.StructType); ok {
			if path, t := findField(s.FieldList, id); t != nil {
				return append([]int{i}, path...), t
			}
		}
	}
	return nil, nil
}

// PartitionFields gives the ids and result types of a spec's fields, in order:
// what a partition tuple of the spec holds.
func PartitionFields(schema *iceberg.Schema, spec iceberg.PartitionSpec) ([]iceberg.NestedField, error) {
	out := make([]iceberg.NestedField, spec.NumFields())
	for i := range out {
		b, err := bindField(schema, spec.Field(i))
		if err != nil {
			return nil, err
		}
		out[i] = iceberg.NestedField{ID: b.FieldID, Name: b.Name, Type: b.Result}
	}
	return out, nil
}
