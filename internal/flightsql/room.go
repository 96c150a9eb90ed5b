package flightsql

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-project/firn/internal/wire"
)

// errTooLarge is about a batch that is small on the wire only.
var errTooLarge = errors.New("the batch is too large")

// maxConverted is how many bytes the converted columns of one batch may have: a type
// without bytes, one word of a dictionary or one run may stand for any number of rows.
const maxConverted = wire.MaxMessage

// room is what is left for the columns of one batch. It is asked before memory is
// taken: Arrow's own functions take theirs in goroutines, in which an allocator can't
// refuse.
type room struct{ left int64 }

// take keeps bytes, none of them negative.
func (r *room) take(n int64) error {
	if n < 0 || n > r.left {
		return fmt.Errorf("%w: its columns take more than %d bytes when dictionaries, runs and nulls are written out", errTooLarge, maxConverted)
	}
	r.left -= n
	return nil
}

// takeEach keeps the bytes of n values of the same size.
func (r *room) takeEach(n int, each int64) error {
	if each > 0 && int64(n) > r.left/each {
		return r.take(r.left + 1)
	}
	return r.take(int64(n) * each)
}

// takeAll keeps what values[indices[i]] take for all i.
func (r *room) takeAll(values, indices arrow.Array) error {
	null := nullBytes(values.DataType())
	for i := range indices.Len() {
		n := null
		if indices.IsValid(i) {
			at := index(indices, i)
			if at < 0 || at >= int64(values.Len()) {
				return fmt.Errorf("the index %d is outside of the %d values", at, values.Len())
			}
			n = bytesOf(values, at, at+1)
		}
		if err := r.take(n); err != nil {
			return err
		}
	}
	return nil
}

// index is a value of one of Arrow's types for indices and run ends. One that an int64
// doesn't hold is negative.
func index(a arrow.Array, i int) int64 {
	switch a := a.(type) {
	case *array.Int8:
		return int64(a.Value(i))
	case *array.Int16:
		return int64(a.Value(i))
	case *array.Int32:
		return int64(a.Value(i))
	case *array.Int64:
		return a.Value(i)
	case *array.Uint8:
		return int64(a.Value(i))
	case *array.Uint16:
		return int64(a.Value(i))
	case *array.Uint32:
		return int64(a.Value(i))
	case *array.Uint64:
		return int64(a.Value(i)) //nolint:gosec // see above
	}
	return -1
}

// Bytes beside the values: one of validity, which is too much for a bit, offsets, and
// the indices by which Arrow picks values.
const (
	validity    = 1
	offset      = 4
	largeOffset = 8
	indexBytes  = 8
)

func offsetBytes(t arrow.DataType) int64 {
	switch t.ID() {
	case arrow.LARGE_STRING, arrow.LARGE_BINARY, arrow.LARGE_LIST:
		return largeOffset
	}
	return offset
}

// bytesOf is what a checked, plain array's values from one to another take.
func bytesOf(a arrow.Array, from, to int64) int64 {
	n, t := to-from, a.DataType()
	if n <= 0 {
		return 0
	}
	switch a := a.(type) {
	case array.BinaryLike:
		last := int(to - 1)
		return n*(validity+offsetBytes(t)) + a.ValueOffset64(last) + int64(a.ValueLen(last)) - a.ValueOffset64(int(from))
	case *array.Struct:
		sum := n * validity
		for i := range a.NumField() {
			sum += bytesOf(a.Field(i), from, to)
		}
		return sum
	case array.ListLike:
		first, _ := a.ValueOffsets(int(from))
		_, end := a.ValueOffsets(int(to - 1))
		return n*(validity+offsetBytes(t)) + (end-first)*indexBytes + bytesOf(a.ListValues(), first, end)
	}
	return n * nullBytes(t)
}

// nullBytes is what a null of a plain type takes; above all bounds it is about any
// number above maxConverted.
func nullBytes(t arrow.DataType) int64 {
	switch t := t.(type) {
	case *arrow.StructType:
		sum := int64(validity)
		for _, f := range t.Fields() {
			sum += nullBytes(f.Type)
		}
		return sum
	case *arrow.FixedSizeListType:
		each := nullBytes(t.Elem())
		if n := int64(t.Len()); n > maxConverted/each {
			return maxConverted + 1
		}
		return validity + each*int64(t.Len())
	case arrow.FixedWidthDataType:
		return validity + int64(t.BitWidth()+7)/8
	}
	return validity + offsetBytes(t)
}
