package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
)

const parquetMagic = "PAR1"

// readFooter checks that an object is a whole Parquet file and gives its row
// groups and its schema as text. A file that isn't is refused by name with the
// reason.
func readFooter(f plan.SourceFile, obj objstore.Object) (plan.SourceFile, string, error) {
	size := obj.Size()
	f.Size = size
	if size == 0 {
		return f, "", badFile(f.Path, "the file is empty (0 bytes)")
	}
	if size < 12 {
		return f, "", notParquet(f, obj)
	}
	tail := make([]byte, 4)
	if _, err := obj.ReadAt(tail, size-4); err != nil && !errors.Is(err, io.EOF) {
		return f, "", storeError(f.Path, err)
	}
	if string(tail) != parquetMagic {
		return f, "", notParquet(f, obj)
	}
	return rowGroups(f, obj)
}

// notParquet says why a file without the magic number at its end isn't Parquet. Its
// beginning is looked at only here: for an object that's a request.
func notParquet(f plan.SourceFile, obj objstore.Object) error {
	head := make([]byte, min(4, f.Size))
	if _, err := obj.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return storeError(f.Path, err)
	}
	switch {
	case string(head) == "PARE":
		return badFile(f.Path, "the Parquet file is encrypted")
	case string(head) != parquetMagic:
		return badFile(f.Path, fmt.Sprintf("not a Parquet file: it starts with %q", bytes.TrimRight(head, "\x00")))
	case f.Size < 12:
		return badFile(f.Path, fmt.Sprintf("the Parquet file is cut off after %d bytes", f.Size))
	}
	return badFile(f.Path, fmt.Sprintf("the Parquet file is cut off: its footer is missing at the end (byte %d)", f.Size))
}

func rowGroups(f plan.SourceFile, obj objstore.Object) (out plan.SourceFile, schema string, err error) {
	// A hostile or damaged footer makes the decoder panic in places.
	defer func() {
		if p := recover(); p != nil {
			err = badFile(f.Path, fmt.Sprintf("the Parquet footer is damaged: %v", p))
		}
	}()
	r, err := file.NewParquetReader(io.NewSectionReader(obj, 0, f.Size))
	if err != nil {
		return f, "", badFile(f.Path, fmt.Sprintf("the Parquet footer is damaged: %v", err))
	}
	defer func() { _ = r.Close() }()
	md := r.MetaData()
	f.Rows = md.NumRows
	f.RowGroups = make([]plan.RowGroup, md.NumRowGroups())
	var rows int64
	for i := range f.RowGroups {
		rg := md.RowGroup(i)
		f.RowGroups[i] = plan.RowGroup{Rows: rg.NumRows(), Bytes: rg.TotalByteSize()}
		rows += rg.NumRows()
		for c := range rg.NumColumns() {
			col, err := rg.ColumnChunk(c)
			if err != nil {
				return f, "", badFile(f.Path, fmt.Sprintf("the Parquet footer is damaged: %v", err))
			}
			start := chunkStart(col)
			if start < 0 || start+col.TotalCompressedSize() > f.Size {
				return f, "", badFile(f.Path, fmt.Sprintf("row group %d lies beyond the end of the file: bytes are missing in the middle", i))
			}
		}
	}
	if rows != md.NumRows {
		return f, "", badFile(f.Path, fmt.Sprintf("the footer counts %d rows, its row groups %d", md.NumRows, rows))
	}
	return f, md.Schema.String(), nil
}

// probeParquet reads the footers of a source's files and makes them readable for
// binding.
func (s *session) probeParquet(ctx context.Context, src plan.Source) ([]input, error) {
	if err := s.openObjects(ctx, src, src.Files); err != nil {
		return nil, err
	}
	in := make([]input, len(src.Files))
	for i, f := range src.Files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		one, err := s.probeFooter(ctx, f)
		if err != nil {
			return nil, err
		}
		in[i] = one
	}
	return in, nil
}

func (s *session) probeFooter(ctx context.Context, f plan.SourceFile) (input, error) {
	in := input{SourceFile: f}
	if path, local := objstore.LocalPattern(f.Path); local {
		resolved, err := s.resolve(path)
		if err != nil {
			return input{}, err
		}
		in.open = resolved
	} else {
		in.open, _ = s.remote.path(f.Path)
	}
	obj, done, err := s.openInput(ctx, in)
	if err != nil {
		return input{}, storeError(f.Path, err)
	}
	defer done()
	if in.SourceFile, in.schema, err = readFooter(f, obj); err != nil {
		return input{}, err
	}
	s.names[in.open] = f.Path
	return in, nil
}
