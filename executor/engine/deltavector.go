package engine

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"

	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
)

// deleted makes a table of the rows that a vector deletes, in its column pos, and
// gives its name.
func (s *session) deleted(ctx context.Context, src plan.Source, file string, v *plan.DeletionVector) (string, error) {
	rows, err := s.readVector(ctx, src, v)
	if err != nil {
		return "", badFile(file, err.Error())
	}
	s.staged++
	name := fmt.Sprintf("firn_vector_%d", s.staged)
	r := rowNumbers(rows)
	defer r.Release()
	if err := s.db.AppendTable(ctx, name, r.Schema(), r); err != nil {
		return "", fmt.Errorf("load the deletion vector of %s: %w", file, err)
	}
	s.undoWith("DROP TABLE memory.main." + duckdb.Ident(name))
	return "memory.main." + duckdb.Ident(name), nil
}

// readVector reads a deletion vector: from the log, or from its file.
func (s *session) readVector(ctx context.Context, src plan.Source, v *plan.DeletionVector) (*delta.RowSet, error) {
	d := delta.DeletionVector{
		StorageType: v.StorageType, PathOrInlineDV: v.PathOrInline, Offset: v.Offset, SizeInBytes: v.Size, Cardinality: v.Cardinality,
	}
	if err := d.Check(); err != nil {
		return nil, err
	}
	if v.File == "" {
		return d.Inline()
	}
	obj, err := s.stores(src.Storage).Open(ctx, v.File)
	if err != nil {
		return nil, err
	}
	defer func() { _ = obj.Close() }()
	frame := make([]byte, d.FrameBytes())
	if n, err := obj.ReadAt(frame, d.Start()); n < len(frame) {
		return nil, fmt.Errorf("%s: %w", v.File, errors.Join(err, io.ErrUnexpectedEOF))
	}
	return d.Framed(frame)
}

// vectorBatch is how many row numbers go into one batch.
const vectorBatch = 64 << 10

// rowNumbers gives the rows of a set as batches of one column. The caller releases
// the reader.
func rowNumbers(rows *delta.RowSet) array.RecordReader {
	schema := arrow.NewSchema([]arrow.Field{{Name: "pos", Type: arrow.PrimitiveTypes.Int64}}, nil)
	return array.ReaderFromIter(schema, func(yield func(arrow.RecordBatch, error) bool) {
		b := array.NewRecordBuilder(mallocator.NewMallocator(), schema)
		defer b.Release()
		pos := b.Field(0).(*array.Int64Builder)
		for row := range rows.All() {
			pos.Append(row)
			if pos.Len() == vectorBatch && !yield(b.NewRecordBatch(), nil) {
				return
			}
		}
		if pos.Len() > 0 {
			yield(b.NewRecordBatch(), nil)
		}
	})
}
