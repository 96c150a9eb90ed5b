package delta

import (
	"fmt"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
)

// fieldIDKey is the metadata of an Arrow field that becomes the Parquet field id.
const fieldIDKey = "PARQUET:field_id"

// ArrowSchema is the Arrow schema of the schema's columns, in order. Columns that
// map to a field id carry it. Void columns are left out, as they are from files;
// a variant, and a void below the top, has no Arrow type here and is an error.
func ArrowSchema(s *Struct) (*arrow.Schema, error) {
	var fields []arrow.Field
	for i := range s.Fields {
		if s.Fields[i].Type == Void {
			continue
		}
		f, err := arrowField(&s.Fields[i])
		if err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return arrow.NewSchema(fields, nil), nil
}

func arrowField(f *Field) (arrow.Field, error) {
	t, err := ArrowType(f.Type)
	if err != nil {
		return arrow.Field{}, fmt.Errorf("column %.200q: %w", f.Name, err)
	}
	out := arrow.Field{Name: f.Name, Type: t, Nullable: f.Nullable}
	if id, ok := f.FieldID(); ok {
		out.Metadata = arrow.NewMetadata([]string{fieldIDKey}, []string{strconv.Itoa(int(id))})
	}
	return out, nil
}

// ArrowType is the Arrow type of a column: timestamps have microseconds, and the
// zone UTC unless they are timestamp_ntz.
func ArrowType(t Type) (arrow.DataType, error) {
	switch t := t.(type) {
	case Primitive:
		if a := arrowPrimitive(t); a != nil {
			return a, nil
		}
	case DecimalType:
		return &arrow.Decimal128Type{Precision: int32(t.Precision), Scale: int32(t.Scale)}, nil
	case *Struct:
		fields := make([]arrow.Field, len(t.Fields))
		for i := range t.Fields {
			f, err := arrowField(&t.Fields[i])
			if err != nil {
				return nil, err
			}
			fields[i] = f
		}
		return arrow.StructOf(fields...), nil
	case *Array:
		e, err := ArrowType(t.Element)
		if err != nil {
			return nil, err
		}
		return arrow.ListOfField(arrow.Field{Name: "element", Type: e, Nullable: t.ContainsNull}), nil
	case *Map:
		k, err := ArrowType(t.Key)
		if err != nil {
			return nil, err
		}
		v, err := ArrowType(t.Value)
		if err != nil {
			return nil, err
		}
		m := arrow.MapOf(k, v)
		m.SetItemNullable(t.ValueContainsNull)
		return m, nil
	}
	return nil, fmt.Errorf("a %v can't be read or written by this version", t)
}

func arrowPrimitive(p Primitive) arrow.DataType {
	switch p {
	case Boolean:
		return arrow.FixedWidthTypes.Boolean
	case Byte:
		return arrow.PrimitiveTypes.Int8
	case Short:
		return arrow.PrimitiveTypes.Int16
	case Integer:
		return arrow.PrimitiveTypes.Int32
	case Long:
		return arrow.PrimitiveTypes.Int64
	case Float:
		return arrow.PrimitiveTypes.Float32
	case Double:
		return arrow.PrimitiveTypes.Float64
	case String:
		return arrow.BinaryTypes.String
	case Binary:
		return arrow.BinaryTypes.Binary
	case Date:
		return arrow.FixedWidthTypes.Date32
	case Timestamp:
		return arrow.FixedWidthTypes.Timestamp_us
	case TimestampNTZ:
		return &arrow.TimestampType{Unit: arrow.Microsecond}
	}
	return nil
}

// FromArrow is the Delta type that holds every value of an Arrow type; integers
// without a sign take the next wider type. ok is false when there is none.
func FromArrow(t arrow.DataType) (d Type, ok bool) {
	switch t := t.(type) {
	case *arrow.BooleanType:
		return Boolean, true
	case *arrow.Int8Type:
		return Byte, true
	case *arrow.Int16Type, *arrow.Uint8Type:
		return Short, true
	case *arrow.Int32Type, *arrow.Uint16Type:
		return Integer, true
	case *arrow.Int64Type, *arrow.Uint32Type:
		return Long, true
	case *arrow.Float32Type:
		return Float, true
	case *arrow.Float64Type:
		return Double, true
	case *arrow.StringType, *arrow.LargeStringType, *arrow.StringViewType:
		return String, true
	case *arrow.BinaryType, *arrow.LargeBinaryType, *arrow.BinaryViewType, *arrow.FixedSizeBinaryType:
		return Binary, true
	case *arrow.Date32Type:
		return Date, true
	case *arrow.TimestampType:
		if t.Unit == arrow.Nanosecond {
			return nil, false
		}
		if t.TimeZone == "" {
			return TimestampNTZ, true
		}
		return Timestamp, true
	case arrow.DecimalType:
		if p, s := t.GetPrecision(), t.GetScale(); p >= 1 && p <= 38 && s >= 0 && s <= p {
			return DecimalType{int(p), int(s)}, true
		}
		return nil, false
	case *arrow.MapType:
		k, ok := FromArrow(t.KeyType())
		v, ok2 := FromArrow(t.ItemType())
		return &Map{Key: k, Value: v, ValueContainsNull: t.ItemField().Nullable}, ok && ok2
	case arrow.ListLikeType:
		e, ok := FromArrow(t.Elem())
		return &Array{Element: e, ContainsNull: t.ElemField().Nullable}, ok
	case *arrow.StructType:
		s := &Struct{}
		for _, f := range t.Fields() {
			ft, ok := FromArrow(f.Type)
			if !ok {
				return nil, false
			}
			s.Fields = append(s.Fields, Field{Name: f.Name, Type: ft, Nullable: f.Nullable})
		}
		return s, true
	}
	return nil, false
}
