package sinks

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Group is the rows of a batch that are in one partition: indices, ascending.
type Group struct {
	Partition
	Rows []int32
}

// SplitGroups brings the rows of each group together. Every row is in exactly one
// group. The batch is the result's, or released.
func SplitGroups(rows arrow.RecordBatch, groups []Group) (Split, error) {
	split := Split{Batch: rows}
	if len(groups) == 1 {
		split.Parts = []Part{{Partition: groups[0].Partition, To: rows.NumRows()}}
		return split, nil
	}
	order := make([]int32, 0, rows.NumRows())
	for _, g := range groups {
		from := int64(len(order))
		order = append(order, g.Rows...)
		split.Parts = append(split.Parts, Part{Partition: g.Partition, From: from, To: int64(len(order))})
	}
	if slices.IsSorted(order) {
		return split, nil // the rows of each partition lie together already
	}
	defer rows.Release()
	b := array.NewInt32Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(order, nil)
	indices := b.NewArray()
	defer indices.Release()
	var err error
	split.Batch, err = Take(rows, indices)
	return split, err
}
