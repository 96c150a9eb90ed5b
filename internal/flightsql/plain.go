package flightsql

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/compute"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/encoded"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
)

// plainBatch gives a batch in the columns of plainSchema, checked: no value leaves
// its buffer. b stays the caller's.
func (a Access) plainBatch(schema *arrow.Schema, b arrow.RecordBatch) (arrow.RecordBatch, error) {
	if int(b.NumCols()) != schema.NumFields() {
		return nil, fmt.Errorf("a batch has %d columns; its stream has %d", b.NumCols(), schema.NumFields())
	}
	cols := make([]arrow.Array, 0, b.NumCols())
	defer func() {
		for _, c := range cols {
			c.Release()
		}
	}()
	r := &room{left: maxConverted}
	for i, c := range b.Columns() {
		own, err := r.plain(c, 0)
		if errors.Is(err, errLossy) {
			return nil, a.badColumn(b.ColumnName(i), err)
		}
		if errors.Is(err, errTooLarge) {
			return nil, &commit.Error{Code: commit.CodeFlightTooLarge, Op: "read", Object: "source " + a.Name, Cause: err, Hint: smallerBatches}
		}
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", b.ColumnName(i), err)
		}
		cols = append(cols, own)
	}
	out := array.NewRecordBatch(schema, cols, b.NumRows())
	if err := wire.CheckBatch(out); err != nil {
		out.Release()
		return nil, err
	}
	return out, nil
}

// errLossy is about a value that can't be taken over.
var errLossy = errors.New("a value can't be taken over without a loss")

// deepest bounds how columns are nested, longest how many values one has: some types
// need no bytes for them. room bounds all columns together.
const (
	deepest = 64
	longest = 1 << 24
)

// plain converts a column to its plainType. Go checks the indices of what it reads;
// what it leaves as it is, CheckBatch looks at.
func (r *room) plain(c arrow.Array, depth int) (arrow.Array, error) {
	if depth > deepest {
		return nil, fmt.Errorf("it is nested deeper than %d", deepest)
	}
	if c.Len() > longest {
		return nil, fmt.Errorf("%w: it has %d values; at most %d are taken", errTooLarge, c.Len(), longest)
	}
	switch c := c.(type) {
	case *array.Dictionary:
		return r.plainDictionary(c, depth)
	case *array.RunEndEncoded:
		return r.plainRuns(c, depth)
	case array.ExtensionArray:
		if c.ExtensionType().ExtensionName() == "arrow.uuid" {
			return r.plainUUID(c)
		}
		return r.plain(c.Storage(), depth+1)
	case *array.Null:
		return r.nulls(arrow.PrimitiveTypes.Int32, c.Len())
	case *array.Float16:
		return build(r, c, arrow.PrimitiveTypes.Float32, func(b *array.Float32Builder, i int) error {
			b.Append(c.Value(i).Float32())
			return nil
		})
	case *array.StringView:
		return build(r, c, arrow.BinaryTypes.String, func(b *array.StringBuilder, i int) error {
			v := c.Value(i)
			if err := r.take(int64(len(v))); err != nil {
				return err
			}
			b.Append(v)
			return nil
		})
	case *array.BinaryView:
		return build(r, c, arrow.BinaryTypes.Binary, func(b *array.BinaryBuilder, i int) error {
			v := c.Value(i)
			if err := r.take(int64(len(v))); err != nil {
				return err
			}
			b.Append(v)
			return nil
		})
	case *array.Decimal32, *array.Decimal64, *array.Decimal256:
		return r.plainDecimals(c)
	case *array.Timestamp:
		return r.plainTimestamps(c)
	case *array.Struct, *array.Map, *array.List, *array.LargeList, *array.FixedSizeList:
		return r.plainChildren(c, depth)
	}
	c.Retain()
	return c, nil
}

func (r *room) nulls(t arrow.DataType, n int) (arrow.Array, error) {
	if err := r.takeEach(n, nullBytes(t)); err != nil {
		return nil, err
	}
	return array.MakeArrayOfNull(memory.DefaultAllocator, t, n), nil
}

// build makes a column value by value. What texts have besides a null's bytes, add
// takes of r.
func build[B array.Builder](r *room, c arrow.Array, t arrow.DataType, add func(b B, i int) error) (arrow.Array, error) {
	if err := r.takeEach(c.Len(), nullBytes(t)); err != nil {
		return nil, err
	}
	b := array.NewBuilder(memory.DefaultAllocator, t).(B)
	defer b.Release()
	for i := range c.Len() {
		if c.IsNull(i) {
			b.AppendNull()
		} else if err := add(b, i); err != nil {
			return nil, err
		}
	}
	return b.NewArray(), nil
}

func (r *room) plainUUID(c array.ExtensionArray) (arrow.Array, error) {
	raw, ok := c.Storage().(*array.FixedSizeBinary)
	if !ok || raw.DataType().(*arrow.FixedSizeBinaryType).ByteWidth != 16 {
		return nil, errors.New("a UUID that hasn't 16 bytes")
	}
	return build(r, raw, arrow.BinaryTypes.String, func(b *array.StringBuilder, i int) error {
		u := raw.Value(i)
		v := fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:16])
		b.Append(v)
		return r.take(int64(len(v)))
	})
}

// plainDecimals widens the small decimals and narrows the large ones.
func (r *room) plainDecimals(c arrow.Array) (arrow.Array, error) {
	t, err := plainDecimal(c.DataType().(arrow.DecimalType))
	if err != nil {
		return nil, err
	}
	return build(r, c, t, func(b *array.Decimal128Builder, i int) error {
		switch c := c.(type) {
		case *array.Decimal32:
			b.Append(decimal128.FromI64(int64(c.Value(i))))
		case *array.Decimal64:
			b.Append(decimal128.FromI64(int64(c.Value(i))))
		case *array.Decimal256:
			v := c.Value(i).BigInt()
			const most = 127 // bits beside the sign
			if v.BitLen() > most {
				return fmt.Errorf("%w: a decimal of row %d has more than %d digits", errLossy, i, maxDigits)
			}
			b.Append(decimal128.FromBigInt(v))
		}
		return nil
	})
}

// plainTimestamps makes microseconds in UTC of moments, which DuckDB has in no other
// unit; it would cut nanoseconds without a word.
func (r *room) plainTimestamps(c *array.Timestamp) (arrow.Array, error) {
	from := c.DataType().(*arrow.TimestampType)
	if from.TimeZone == "" {
		c.Retain()
		return c, nil
	}
	to, err := plainType(from)
	if err != nil {
		return nil, err
	}
	times := map[arrow.TimeUnit]int64{arrow.Second: 1_000_000, arrow.Millisecond: 1000, arrow.Microsecond: 1, arrow.Nanosecond: 0}[from.Unit]
	return build(r, c, to, func(b *array.TimestampBuilder, i int) error {
		v := int64(c.Value(i))
		if times == 0 {
			if v%1000 != 0 {
				return fmt.Errorf("%w: the time of row %d has nanoseconds, and moments are kept in microseconds", errLossy, i)
			}
			b.Append(arrow.Timestamp(v / 1000))
			return nil
		}
		if w := v * times; w/times == v {
			b.Append(arrow.Timestamp(w))
			return nil
		}
		return fmt.Errorf("%w: the time of row %d is too far away", errLossy, i)
	})
}

func (r *room) plainDictionary(c *array.Dictionary, depth int) (arrow.Array, error) {
	words, err := r.plain(c.Dictionary(), depth+1)
	if err != nil {
		return nil, err
	}
	defer words.Release()
	if err := wire.CheckArray(c.Indices()); err != nil {
		return nil, err
	}
	return r.pick(words, c.Indices())
}

// pick gives values[indices[i]] for each i, null for a null index. Indices outside of
// the values are an error.
func (r *room) pick(values, indices arrow.Array) (arrow.Array, error) {
	if err := wire.CheckArray(values); err != nil {
		return nil, err
	}
	if values.Len() == 0 && indices.NullN() == indices.Len() {
		return r.nulls(values.DataType(), indices.Len())
	}
	if err := r.takeAll(values, indices); err != nil {
		return nil, err
	}
	return compute.TakeArrayOpts(context.Background(), values, indices, *compute.DefaultTakeOptions())
}

func (r *room) plainRuns(c *array.RunEndEncoded, depth int) (arrow.Array, error) {
	values, err := r.plain(c.Values(), depth+1)
	if err != nil {
		return nil, err
	}
	defer values.Release()
	ends := c.RunEndsArr()
	if err := wire.CheckArray(ends); err != nil {
		return nil, err
	}
	if ends.NullN() > 0 || ends.Len() != values.Len() {
		return nil, errors.New("its runs don't fit its values")
	}
	of := int64(c.Len()) * indexBytes
	if err := r.take(of); err != nil {
		return nil, err
	}
	defer func() { r.left += of }() // the indices go again
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	from, last := c.Offset(), int64(0)
	at := encoded.FindPhysicalIndex(c.Data(), from)
	for row := 0; row < c.Len(); at++ {
		if at >= ends.Len() {
			return nil, errors.New("its runs end before its rows do")
		}
		end := index(ends, at)
		if end <= last {
			return nil, errors.New("its runs don't ascend")
		}
		last = end
		for ; row < c.Len() && int64(row+from) < end; row++ {
			b.Append(int64(at))
		}
	}
	indices := b.NewArray()
	defer indices.Release()
	return r.pick(values, indices)
}

// plainChildren converts what is inside a nested column; its own buffers stay.
func (r *room) plainChildren(c arrow.Array, depth int) (arrow.Array, error) {
	t, err := plainType(c.DataType())
	if err != nil {
		return nil, err
	}
	if arrow.TypeEqual(t, c.DataType()) {
		c.Retain()
		return c, nil
	}
	d := c.Data()
	children := make([]arrow.ArrayData, 0, len(d.Children()))
	defer func() {
		for _, child := range children {
			child.Release()
		}
	}()
	for _, data := range d.Children() {
		child := array.MakeFromData(data)
		own, err := r.plain(child, depth+1)
		child.Release()
		if err != nil {
			return nil, err
		}
		own.Data().Retain()
		children = append(children, own.Data())
		own.Release()
	}
	data := array.NewData(t, d.Len(), d.Buffers(), children, d.NullN(), d.Offset())
	defer data.Release()
	return array.MakeFromData(data), nil
}
