package parquetfile

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/compute"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-project/firn/commit"
)

// castList casts the elements of a list of any layout. The result starts at
// offset 0 and has no elements under a null list, which the Parquet writer
// can't take.
func castList(a arrow.Array, to *arrow.ListType, path string) (arrow.Array, error) {
	l, ok := a.(array.ListLike)
	if _, isMap := a.(*array.Map); !ok || isMap {
		return nil, &valueError{commit.CodeBatchColumns, path, mismatch(a, to)}
	}
	offsets, elements, err := compactList(l, path)
	if err != nil {
		return nil, err
	}
	defer elements.Release()
	f := to.ElemField()
	child, err := castField(elements, f, path+"."+f.Name, nil)
	if err != nil {
		return nil, err
	}
	defer child.Release()
	return assemble(a, to, offsets, child), nil
}

func castMap(a arrow.Array, to *arrow.MapType, path string) (arrow.Array, error) {
	m, ok := a.(*array.Map)
	if !ok {
		return nil, &valueError{commit.CodeBatchColumns, path, mismatch(a, to)}
	}
	offsets, entries, err := compactList(m, path)
	if err != nil {
		return nil, err
	}
	defer entries.Release()
	pairs := entries.(*array.Struct)
	keys, err := castField(pairs.Field(0), to.KeyField(), path+".key", nil)
	if err != nil {
		return nil, err
	}
	defer keys.Release()
	values, err := castField(pairs.Field(1), to.ItemField(), path+".value", nil)
	if err != nil {
		return nil, err
	}
	defer values.Release()
	child := array.NewData(to.Elem(), entries.Len(), []*memory.Buffer{nil}, []arrow.ArrayData{keys.Data(), values.Data()}, 0, 0)
	defer child.Release()
	whole := array.MakeFromData(child)
	defer whole.Release()
	return assemble(a, to, offsets, whole), nil
}

// assemble makes a list or a map from offsets that start at 0, its elements and
// the nulls of the array it was made from.
func assemble(from arrow.Array, to arrow.DataType, offsets []int32, child arrow.Array) arrow.Array {
	buffers := []*memory.Buffer{validity(from), memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets))}
	data := array.NewData(to, from.Len(), buffers, []arrow.ArrayData{child.Data()}, from.NullN(), 0)
	defer data.Release()
	return array.MakeFromData(data)
}

// compactList gives the offsets and exactly the elements that they cover. The
// caller releases the elements.
func compactList(l array.ListLike, path string) ([]int32, arrow.Array, error) {
	offsets := make([]int32, l.Len()+1)
	var total, first, next int64
	gaps := false
	for i := range l.Len() {
		from, to := l.ValueOffsets(i)
		if l.IsNull(i) {
			to = from
		}
		if from != to {
			if total == 0 {
				first, next = from, from
			}
			gaps = gaps || from != next
			next = to
		}
		if total += to - from; total > math.MaxInt32 {
			return nil, nil, &valueError{commit.CodeValueOutOfRange, path, fmt.Errorf("a batch of lists has more than %d elements", math.MaxInt32)}
		}
		offsets[i+1] = int32(total)
	}
	if !gaps {
		return offsets, array.NewSlice(l.ListValues(), first, first+total), nil
	}
	b := array.NewInt64Builder(mem)
	defer b.Release()
	for i := range l.Len() {
		if l.IsNull(i) {
			continue
		}
		for from, to := l.ValueOffsets(i); from < to; from++ {
			b.Append(from)
		}
	}
	indices := b.NewArray()
	defer indices.Release()
	elements, err := compute.TakeArray(context.Background(), l.ListValues(), indices)
	return offsets, elements, err
}

// castStruct casts a struct's fields, which are matched as columns are.
func castStruct(a arrow.Array, to *arrow.StructType, path string) (arrow.Array, error) {
	s, ok := a.(*array.Struct)
	if !ok || s.NumField() != to.NumFields() {
		return nil, &valueError{commit.CodeBatchColumns, path, mismatch(a, to)}
	}
	names := a.DataType().(*arrow.StructType)
	children := make([]arrow.ArrayData, 0, to.NumFields())
	defer func() {
		for _, c := range children {
			c.Release()
		}
	}()
	for i, f := range to.Fields() {
		if got := names.Field(i).Name; !strings.EqualFold(got, f.Name) {
			return nil, &valueError{commit.CodeBatchColumns, path, fmt.Errorf("field %d is called %s in the batch and %s in the table", i+1, got, f.Name)}
		}
		c, err := castField(s.Field(i), f, path+"."+f.Name, s)
		if err != nil {
			return nil, err
		}
		c.Data().Retain()
		children = append(children, c.Data())
		c.Release()
	}
	data := array.NewData(to, a.Len(), []*memory.Buffer{validity(a)}, children, a.NullN(), 0)
	defer data.Release()
	return array.MakeFromData(data), nil
}

// validity copies an array's validity to offset 0; nil when nothing is null.
func validity(a arrow.Array) *memory.Buffer {
	if a.NullN() == 0 {
		return nil
	}
	bits := make([]byte, bitutil.BytesForBits(int64(a.Len())))
	bitutil.CopyBitmap(a.NullBitmapBytes(), a.Data().Offset(), a.Len(), bits, 0)
	return memory.NewBufferBytes(bits)
}
