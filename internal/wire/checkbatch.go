package wire

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// CheckBatch checks that a batch that came from outside stays within its buffers.
// The library builds arrays on whatever lengths and offsets a message has: a
// hostile one would let a loop run for ever, or the query engine, which gets rows
// as raw memory, read what isn't the sender's.
func CheckBatch(b arrow.RecordBatch) error {
	for i, c := range b.Columns() {
		if int64(c.Len()) != b.NumRows() {
			return fmt.Errorf("column %q has %d values for %d rows", b.ColumnName(i), c.Len(), b.NumRows())
		}
		if err := checkData(c); err != nil {
			return fmt.Errorf("column %q: %w", b.ColumnName(i), err)
		}
	}
	return nil
}

// CheckArray is CheckBatch for one array.
func CheckArray(a arrow.Array) error { return checkData(a) }

var errBuffer = errors.New("the values leave their buffer")

func checkData(a arrow.Array) error {
	d := a.Data()
	if d.Len() < 0 || d.Offset() < 0 || d.Offset()+d.Len() < 0 {
		return errBuffer
	}
	n := int64(d.Offset() + d.Len())
	if nulls := d.Buffers()[0]; nulls != nil && nulls.Len() > 0 && int64(nulls.Len())*8 < n {
		return errBuffer
	}
	if a.Len() == 0 {
		return nil
	}
	switch a := a.(type) {
	case *array.Null:
		return nil
	case array.BinaryLike:
		return checkRanges(a.Len(), func(i int) (int64, int64) {
			from := a.ValueOffset64(i)
			return from, from + int64(a.ValueLen(i))
		}, bufferLen(d, 2))
	case *array.FixedSizeList:
		// By division, as a product could overflow.
		if each := a.DataType().(*arrow.FixedSizeListType).Len(); each > 0 && int64(a.ListValues().Len()/int(each)) < n {
			return errBuffer
		}
		return checkData(a.ListValues())
	case *array.List, *array.LargeList, *array.Map:
		l := a.(array.ListLike)
		if err := checkRanges(l.Len(), l.ValueOffsets, int64(l.ListValues().Len())); err != nil {
			return err
		}
		return checkData(l.ListValues())
	case *array.Struct:
		for i := range a.NumField() {
			if a.Field(i).Len() < a.Len() {
				return errBuffer
			}
			if err := checkData(a.Field(i)); err != nil {
				return err
			}
		}
		return nil
	case array.ExtensionArray:
		return checkData(a.Storage())
	}
	if t, ok := a.DataType().(arrow.FixedWidthDataType); ok && a.DataType().ID() != arrow.DICTIONARY {
		if bufferLen(d, 1)*8/int64(t.BitWidth()) < n {
			return errBuffer
		}
		return nil
	}
	return fmt.Errorf("columns of type %s aren't taken from outside", a.DataType())
}

func bufferLen(d arrow.ArrayData, i int) int64 {
	if b := d.Buffers(); i < len(b) && b[i] != nil {
		return int64(b[i].Len())
	}
	return 0
}

// checkRanges wants n ranges that ascend within limit.
func checkRanges(n int, at func(int) (from, to int64), limit int64) error {
	last := int64(0)
	for i := range n {
		from, to := at(i)
		if from < last || to < from || to > limit {
			return errBuffer
		}
		last = to
	}
	return nil
}
