package shuffle

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// checkBatch checks that a batch that came from outside stays within its
// buffers. The library builds arrays on whatever offsets a message has, and the
// rows go on to the query engine as raw memory, so that a hostile stream could
// read or break what isn't its own.
func checkBatch(b arrow.RecordBatch) error {
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

var errBuffer = errors.New("the values leave their buffer")

func checkData(a arrow.Array) error {
	d := a.Data()
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
		return checkOffsets(a.Len(), func(i int) int64 { return a.ValueOffset64(i) }, bufferLen(d, 2))
	case *array.FixedSizeList:
		if int64(a.ListValues().Len()) < n*int64(a.DataType().(*arrow.FixedSizeListType).Len()) {
			return errBuffer
		}
		return checkData(a.ListValues())
	case *array.List, *array.LargeList, *array.Map:
		l := a.(array.ListLike)
		err := checkOffsets(l.Len(), func(i int) int64 {
			if i == l.Len() {
				_, to := l.ValueOffsets(i - 1)
				return to
			}
			from, _ := l.ValueOffsets(i)
			return from
		}, int64(l.ListValues().Len()))
		if err != nil {
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
		if bufferLen(d, 1)*8 < n*int64(t.BitWidth()) {
			return errBuffer
		}
		return nil
	}
	return fmt.Errorf("type %s can't be uploaded", a.DataType())
}

func bufferLen(d arrow.ArrayData, i int) int64 {
	if b := d.Buffers(); i < len(b) && b[i] != nil {
		return int64(b[i].Len())
	}
	return 0
}

// checkOffsets wants n+1 ascending offsets within limit.
func checkOffsets(n int, at func(int) int64, limit int64) error {
	last := int64(0)
	for i := range n + 1 {
		o := at(i)
		if o < last || o > limit {
			return errBuffer
		}
		last = o
	}
	return nil
}
