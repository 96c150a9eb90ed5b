package shuffle

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// batchBytes is the size that batches in shuffle files are brought to: about
// what a Flight stream moves fastest.
const batchBytes = 1 << 20

// sizeOf estimates the bytes of a batch's own rows: a slice counts only what it
// shows, although it holds on to the whole of what it was cut from.
func sizeOf(b arrow.RecordBatch) int64 {
	var n int64
	for _, c := range b.Columns() {
		n += arraySize(c)
	}
	return n
}

func arraySize(a arrow.Array) int64 {
	n := int64(a.Len()+7) / 8
	if a.Len() == 0 {
		return 0
	}
	switch a := a.(type) {
	case array.BinaryLike:
		last := a.Len() - 1
		return n + 4*int64(a.Len()) + a.ValueOffset64(last) + int64(a.ValueLen(last)) - a.ValueOffset64(0)
	case *array.FixedSizeList:
		return n + childSize(a.ListValues(), int64(a.Data().Offset())*int64(a.DataType().(*arrow.FixedSizeListType).Len()),
			int64(a.Data().Offset()+a.Len())*int64(a.DataType().(*arrow.FixedSizeListType).Len()))
	case array.ListLike:
		from, _ := a.ValueOffsets(0)
		_, to := a.ValueOffsets(a.Len() - 1)
		return n + 4*int64(a.Len()) + childSize(a.ListValues(), from, to)
	case *array.Struct:
		for i := range a.NumField() {
			n += arraySize(a.Field(i))
		}
		return n
	case array.ExtensionArray:
		return arraySize(a.Storage())
	}
	if t, ok := a.DataType().(arrow.FixedWidthDataType); ok {
		return n + int64(a.Len())*int64(t.BitWidth())/8
	}
	// A type whose rows can't be told apart: all of its buffers.
	return n + int64(a.Data().SizeInBytes())
}

func childSize(child arrow.Array, from, to int64) int64 {
	if from < 0 || to < from || to > int64(child.Len()) {
		return 0
	}
	s := array.NewSlice(child, from, to)
	defer s.Release()
	return arraySize(s)
}

// concat makes one batch of several of one schema. The caller releases it.
func concat(schema *arrow.Schema, batches []arrow.RecordBatch) (arrow.RecordBatch, error) {
	if len(batches) == 1 {
		batches[0].Retain()
		return batches[0], nil
	}
	cols := make([]arrow.Array, 0, schema.NumFields())
	defer func() {
		for _, c := range cols {
			c.Release()
		}
	}()
	var rows int64
	for _, b := range batches {
		rows += b.NumRows()
	}
	parts := make([]arrow.Array, len(batches))
	for i := range schema.NumFields() {
		for j, b := range batches {
			parts[j] = b.Column(i)
		}
		c, err := array.Concatenate(parts, memory.DefaultAllocator)
		if err != nil {
			return nil, fmt.Errorf("join batches: column %q: %w", schema.Field(i).Name, err)
		}
		cols = append(cols, c)
	}
	return array.NewRecordBatch(schema, cols, rows), nil
}

// split cuts a batch into slices of about batchBytes and hands them out in
// order. They are valid during the call only.
func split(b arrow.RecordBatch, size int64, emit func(arrow.RecordBatch) error) error {
	if size <= batchBytes*3/2 {
		return emit(b)
	}
	step := max(1, b.NumRows()*batchBytes/size)
	for from := int64(0); from < b.NumRows(); from += step {
		s := b.NewSlice(from, min(from+step, b.NumRows()))
		err := emit(s)
		s.Release()
		if err != nil {
			return err
		}
	}
	return nil
}
