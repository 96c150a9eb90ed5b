package parquetfile

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/compute"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"

	"github.com/firn-project/firn/commit"
)

var mem memory.Allocator = memory.DefaultAllocator

// valueError is what a row breaks: code says which rule, column where.
type valueError struct {
	code   commit.Code
	column string
	err    error
}

func (e *valueError) Error() string { return "column " + e.column + ": " + e.err.Error() }

// Cast brings a batch to a table's Arrow schema. Columns are matched by position,
// and their names must agree but for case. Values are never rounded or wrapped
// around: one that doesn't fit is an error for a person, as is a null in a column
// that may have none. The caller releases the result.
func Cast(batch arrow.RecordBatch, schema *arrow.Schema, table string) (arrow.RecordBatch, error) {
	if int(batch.NumCols()) != schema.NumFields() {
		return nil, wrongColumns(table, fmt.Errorf("the batch has %d columns, the table %d", batch.NumCols(), schema.NumFields()))
	}
	columns := make([]arrow.Array, 0, batch.NumCols())
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	for i, f := range schema.Fields() {
		if got := batch.ColumnName(i); !strings.EqualFold(got, f.Name) {
			return nil, wrongColumns(table, fmt.Errorf("column %d is called %s in the batch and %s in the table", i+1, got, f.Name))
		}
		c, err := castField(batch.Column(i), f, f.Name, nil)
		if err != nil {
			return nil, castError(table, err)
		}
		columns = append(columns, c)
	}
	return array.NewRecordBatch(schema, columns, batch.NumRows()), nil
}

func wrongColumns(table string, cause error) error {
	return &commit.Error{
		Code: commit.CodeBatchColumns, Op: "write rows to", Object: table, Cause: cause,
		Hint: "Run the statement again; if it happens again, report it with the statement and the table's schema.",
	}
}

func castError(table string, err error) error {
	v, ok := errors.AsType[*valueError](err)
	if !ok {
		return wrongColumns(table, err)
	}
	info, _ := commit.Explain(string(v.code))
	return &commit.Error{Code: v.code, Op: "write rows to", Object: table, Cause: v, Hint: info.Hint}
}

// castField casts a column to a field of the table's Arrow schema and checks
// that a required one has no null. parent, when it isn't nil, is the array
// whose nulls cover those of a.
func castField(a arrow.Array, f arrow.Field, path string, parent arrow.Array) (arrow.Array, error) {
	out, err := castArray(a, f.Type, path)
	if err != nil {
		return nil, err
	}
	if f.Nullable || out.NullN() == 0 {
		return out, nil
	}
	nulls, first := 0, -1
	for i := range out.Len() {
		if out.IsNull(i) && (parent == nil || parent.IsValid(i)) {
			if nulls++; first < 0 {
				first = i
			}
		}
	}
	if nulls == 0 {
		return out, nil
	}
	out.Release()
	return nil, &valueError{commit.CodeNotNullViolated, path, fmt.Errorf("%d of %d values are null, and the column is NOT NULL", nulls, a.Len())}
}

// castArray casts between types that hold the same values in another form. It
// never rounds and never wraps around. The caller releases the result.
func castArray(a arrow.Array, to arrow.DataType, path string) (arrow.Array, error) {
	if d, ok := a.(*array.Dictionary); ok {
		plain, err := compute.TakeArray(context.Background(), d.Dictionary(), d.Indices())
		if err != nil {
			return nil, &valueError{commit.CodeBatchColumns, path, err}
		}
		defer plain.Release()
		return castArray(plain, to, path)
	}
	if a.DataType().ID() == arrow.NULL {
		return array.MakeArrayOfNull(mem, to, a.Len()), nil
	}
	switch to := to.(type) {
	case *arrow.ListType:
		return castList(a, to, path)
	case *arrow.MapType:
		return castMap(a, to, path)
	case *arrow.StructType:
		return castStruct(a, to, path)
	}
	if e, ok := a.(array.ExtensionArray); ok && !arrow.TypeEqual(a.DataType(), to) {
		return castArray(e.Storage(), to, path)
	}
	return castPlain(a, to, path)
}

func castPlain(a arrow.Array, to arrow.DataType, path string) (arrow.Array, error) {
	var out arrow.Array
	var err error
	switch to := to.(type) {
	case *arrow.StringType:
		return castText(a, path)
	case *arrow.BinaryType:
		if v, ok := a.(byteValues); ok && isBinary(a) {
			return keep(a, to, func() (arrow.Array, error) { return copyBytes(v, to) })
		}
	case *arrow.Int8Type:
		out, err = castIntegers(a, array.NewInt8Builder(mem), math.MinInt8, math.MaxInt8)
	case *arrow.Int16Type:
		out, err = castIntegers(a, array.NewInt16Builder(mem), math.MinInt16, math.MaxInt16)
	case *arrow.Int32Type:
		out, err = castIntegers(a, array.NewInt32Builder(mem), math.MinInt32, math.MaxInt32)
	case *arrow.Int64Type:
		out, err = castIntegers(a, array.NewInt64Builder(mem), math.MinInt64, math.MaxInt64)
	case *arrow.Float64Type:
		if v, ok := a.(*array.Float32); ok {
			return build(a, array.NewFloat64Builder(mem), func(b *array.Float64Builder, i int) error { b.Append(float64(v.Value(i))); return nil })
		}
		out, err = same(a, to)
	case *arrow.Decimal128Type:
		out, err = castDecimals(a, to)
	case *arrow.TimestampType:
		out, err = castTimestamps(a, to)
	case *arrow.FixedSizeBinaryType:
		out, err = castFixed(a, to)
	case *extensions.UUIDType:
		out, err = castUUIDs(a, to)
	default:
		out, err = same(a, to)
	}
	if err != nil {
		if v, ok := errors.AsType[*valueError](err); ok {
			v.column = path
			return nil, v
		}
		return nil, &valueError{commit.CodeBatchColumns, path, err}
	}
	if out == nil {
		return nil, &valueError{commit.CodeBatchColumns, path, mismatch(a, to)}
	}
	return out, nil
}

func mismatch(a arrow.Array, to arrow.DataType) error {
	return fmt.Errorf("the batch has %s where the table's rows have %s", a.DataType(), to)
}

// same keeps an array of the right type.
func same(a arrow.Array, to arrow.DataType) (arrow.Array, error) {
	if !arrow.TypeEqual(a.DataType(), to) {
		return nil, mismatch(a, to)
	}
	a.Retain()
	return a, nil
}

// keep keeps an array of the right type and makes another one else.
func keep(a arrow.Array, to arrow.DataType, other func() (arrow.Array, error)) (arrow.Array, error) {
	if arrow.TypeEqual(a.DataType(), to) {
		a.Retain()
		return a, nil
	}
	return other()
}

// build makes an array value by value; nulls stay nulls.
func build[B array.Builder](a arrow.Array, b B, appendValue func(B, int) error) (arrow.Array, error) {
	defer b.Release()
	b.Reserve(a.Len())
	for i := range a.Len() {
		if a.IsNull(i) {
			b.AppendNull()
			continue
		}
		if err := appendValue(b, i); err != nil {
			return nil, err
		}
	}
	return b.NewArray(), nil
}

func outOfRange(format string, args ...any) error {
	return &valueError{code: commit.CodeValueOutOfRange, err: fmt.Errorf(format, args...)}
}

// castIntegers casts any integer type to one with a sign.
func castIntegers[T int8 | int16 | int32 | int64, B interface {
	array.Builder
	Append(T)
}](a arrow.Array, b B, least, most int64) (arrow.Array, error) {
	if arrow.TypeEqual(a.DataType(), b.Type()) {
		b.Release()
		a.Retain()
		return a, nil
	}
	get := integerAt(a)
	if get == nil {
		b.Release()
		return nil, mismatch(a, b.Type())
	}
	return build(a, b, func(b B, i int) error {
		v, ok := get(i)
		if !ok || v < least || v > most {
			return outOfRange("%s doesn't fit %s", a.ValueStr(i), b.Type())
		}
		b.Append(T(v))
		return nil
	})
}

// integerAt reads an integer array; false for one above the range of int64.
func integerAt(a arrow.Array) func(int) (int64, bool) {
	switch a := a.(type) {
	case *array.Int8:
		return func(i int) (int64, bool) { return int64(a.Value(i)), true }
	case *array.Int16:
		return func(i int) (int64, bool) { return int64(a.Value(i)), true }
	case *array.Int32:
		return func(i int) (int64, bool) { return int64(a.Value(i)), true }
	case *array.Int64:
		return func(i int) (int64, bool) { return a.Value(i), true }
	case *array.Uint8:
		return func(i int) (int64, bool) { return int64(a.Value(i)), true }
	case *array.Uint16:
		return func(i int) (int64, bool) { return int64(a.Value(i)), true }
	case *array.Uint32:
		return func(i int) (int64, bool) { return int64(a.Value(i)), true }
	case *array.Uint64:
		return func(i int) (int64, bool) { v := a.Value(i); return int64(v), v <= math.MaxInt64 }
	}
	return nil
}

// castDecimals casts decimals of any width whose values fit without rounding.
func castDecimals(a arrow.Array, to *arrow.Decimal128Type) (arrow.Array, error) {
	from, ok := a.DataType().(arrow.DecimalType)
	if !ok {
		return nil, mismatch(a, to)
	}
	if a.DataType().ID() == arrow.DECIMAL128 && from.GetScale() == to.Scale && from.GetPrecision() <= to.Precision {
		if from.GetPrecision() == to.Precision {
			return same(a, to)
		}
		return retype(a, to), nil
	}
	value := decimalAt(a)
	if value == nil {
		return nil, mismatch(a, to)
	}
	return build(a, array.NewDecimal128Builder(mem, to), func(b *array.Decimal128Builder, i int) error {
		v, ok := value(i)
		if ok {
			r, err := v.Rescale(from.GetScale(), to.Scale)
			v, ok = r, err == nil && r.FitsInPrecision(to.Precision)
		}
		if !ok {
			return outOfRange("%s doesn't fit DECIMAL(%d,%d)", a.ValueStr(i), to.Precision, to.Scale)
		}
		b.Append(v)
		return nil
	})
}

func decimalAt(a arrow.Array) func(int) (decimal128.Num, bool) {
	switch a := a.(type) {
	case *array.Decimal32:
		return func(i int) (decimal128.Num, bool) { return decimal128.FromI64(int64(a.Value(i))), true }
	case *array.Decimal64:
		return func(i int) (decimal128.Num, bool) { return decimal128.FromI64(int64(a.Value(i))), true }
	case *array.Decimal128:
		return func(i int) (decimal128.Num, bool) { return a.Value(i), true }
	case *array.Decimal256:
		return func(i int) (decimal128.Num, bool) {
			v := a.Value(i).BigInt()
			if v.BitLen() > 126 {
				return decimal128.Num{}, false
			}
			return decimal128.FromBigInt(v), true
		}
	}
	return nil
}

// castTimestamps changes the unit to microseconds. A zoned array is an instant
// whatever its zone is called; zoned and zoneless are never mixed up.
func castTimestamps(a arrow.Array, to *arrow.TimestampType) (arrow.Array, error) {
	v, ok := a.(*array.Timestamp)
	if !ok {
		return nil, mismatch(a, to)
	}
	from := a.DataType().(*arrow.TimestampType)
	if (from.TimeZone == "") != (to.TimeZone == "") {
		return nil, mismatch(a, to)
	}
	if from.Unit == to.Unit {
		return retype(a, to), nil
	}
	return build(a, array.NewTimestampBuilder(mem, to), func(b *array.TimestampBuilder, i int) error {
		n := int64(v.Value(i))
		switch factor := int64(from.Unit.Multiplier() / to.Unit.Multiplier()); {
		case factor == 0 && n%1000 != 0: // nanoseconds
			return outOfRange("%s has nanoseconds; the column has microseconds", a.ValueStr(i))
		case factor == 0:
			n /= 1000
		case n > math.MaxInt64/factor || n < math.MinInt64/factor:
			return outOfRange("%d %s doesn't fit a timestamp in microseconds", n, from.Unit)
		default:
			n *= factor
		}
		b.Append(arrow.Timestamp(n))
		return nil
	})
}

func castFixed(a arrow.Array, to *arrow.FixedSizeBinaryType) (arrow.Array, error) {
	if arrow.TypeEqual(a.DataType(), to) {
		a.Retain()
		return a, nil
	}
	v, ok := a.(byteValues)
	if f, isFixed := a.(*array.FixedSizeBinary); isFixed {
		v, ok = f, true
	}
	if !ok || !isBinary(a) {
		return nil, mismatch(a, to)
	}
	return build(a, array.NewFixedSizeBinaryBuilder(mem, to), func(b *array.FixedSizeBinaryBuilder, i int) error {
		x := v.Value(i)
		if len(x) != to.ByteWidth {
			return &valueError{code: commit.CodeFixedLength, err: fmt.Errorf("a value has %d bytes, and the column's have %d", len(x), to.ByteWidth)}
		}
		b.Append(x)
		return nil
	})
}

func castUUIDs(a arrow.Array, to *extensions.UUIDType) (arrow.Array, error) {
	if arrow.TypeEqual(a.DataType(), to) {
		a.Retain()
		return a, nil
	}
	storage := &arrow.FixedSizeBinaryType{ByteWidth: 16}
	var plain arrow.Array
	var err error
	if text, ok := a.(textValues); ok {
		plain, err = build(a, array.NewFixedSizeBinaryBuilder(mem, storage), func(b *array.FixedSizeBinaryBuilder, i int) error {
			u, err := uuid.Parse(text.Value(i))
			if err != nil {
				return outOfRange("%q isn't a UUID", text.Value(i))
			}
			b.Append(u[:])
			return nil
		})
	} else {
		plain, err = castFixed(a, storage)
	}
	if err != nil {
		return nil, err
	}
	defer plain.Release()
	return array.NewExtensionArrayWithStorage(to, plain), nil
}

// byteValues and textValues are what the binary and the text arrays of all
// layouts have in common.
type byteValues interface {
	arrow.Array
	Value(int) []byte
}

type textValues interface {
	arrow.Array
	Value(int) string
}

func isBinary(a arrow.Array) bool {
	switch a.DataType().ID() {
	case arrow.BINARY, arrow.LARGE_BINARY, arrow.BINARY_VIEW, arrow.FIXED_SIZE_BINARY:
		return true
	}
	return false
}

func copyBytes(v byteValues, to *arrow.BinaryType) (arrow.Array, error) {
	return build(v, array.NewBinaryBuilder(mem, to), func(b *array.BinaryBuilder, i int) error { b.Append(v.Value(i)); return nil })
}

// castText keeps text and refuses what isn't UTF-8: readers would.
func castText(a arrow.Array, path string) (arrow.Array, error) {
	v, ok := a.(textValues)
	if !ok || a.DataType().ID() != arrow.STRING && a.DataType().ID() != arrow.LARGE_STRING && a.DataType().ID() != arrow.STRING_VIEW {
		return nil, &valueError{commit.CodeBatchColumns, path, mismatch(a, arrow.BinaryTypes.String)}
	}
	for i := range v.Len() {
		if v.IsValid(i) && !utf8.ValidString(v.Value(i)) {
			return nil, &valueError{commit.CodeTextEncoding, path, fmt.Errorf("a value isn't UTF-8: %.40q", v.Value(i))}
		}
	}
	return keep(a, arrow.BinaryTypes.String, func() (arrow.Array, error) {
		return build(a, array.NewStringBuilder(mem), func(b *array.StringBuilder, i int) error { b.Append(v.Value(i)); return nil })
	})
}

// retype gives an array's values another type of the same layout.
func retype(a arrow.Array, to arrow.DataType) arrow.Array {
	d := a.Data()
	data := array.NewData(to, d.Len(), d.Buffers(), d.Children(), d.NullN(), d.Offset())
	defer data.Release()
	return array.MakeFromData(data)
}
