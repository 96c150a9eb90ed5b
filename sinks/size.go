package sinks

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// size is the number of bytes that a batch's rows take in memory. Unlike the
// length of the buffers it doesn't count what a slice only shares.
func size(batch arrow.RecordBatch) int64 {
	n := int64(0)
	for _, c := range batch.Columns() {
		n += arraySize(c)
	}
	return n
}

func arraySize(a arrow.Array) int64 {
	length := int64(a.Len())
	if length == 0 {
		return 0
	}
	n := length / 8 // validity
	switch a := a.(type) {
	case *array.String:
		return n + 4*length + int64(len(a.ValueBytes()))
	case *array.Binary:
		return n + 4*length + int64(len(a.ValueBytes()))
	case array.ListLike: // lists and maps
		from, _ := a.ValueOffsets(0)
		_, to := a.ValueOffsets(a.Len() - 1)
		values := array.NewSlice(a.ListValues(), from, to)
		defer values.Release()
		return n + 4*length + arraySize(values)
	case *array.Struct:
		for i := range a.NumField() {
			n += arraySize(a.Field(i))
		}
		return n
	case array.ExtensionArray:
		return arraySize(a.Storage())
	}
	if dt, ok := a.DataType().(arrow.FixedWidthDataType); ok {
		return n + length*int64(dt.BitWidth())/8
	}
	return n + int64(a.Data().SizeInBytes())
}
