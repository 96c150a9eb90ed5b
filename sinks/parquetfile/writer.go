package parquetfile

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// Writer writes one Parquet file. It isn't safe for concurrent use. What isn't
// closed is given up with the writer below it.
type Writer struct {
	options *Options
	file    *pqarrow.FileWriter
	rows    int64
}

// NewWriter starts a file over w, which it doesn't close.
func NewWriter(w io.Writer, o *Options) (*Writer, error) {
	fw, err := pqarrow.NewFileWriter(o.schema, onlyWriter{w}, o.props, o.arrow)
	if err != nil {
		return nil, err
	}
	return &Writer{options: o, file: fw}, nil
}

// onlyWriter hides every other method of a writer, Close above all.
type onlyWriter struct{ io.Writer }

// WriteRowGroup writes a batch of the options' schema as one row group. The
// library and the codec panic in places; that must not end the executor's process.
func (w *Writer) WriteRowGroup(rows arrow.RecordBatch) (err error) {
	defer recovered(&err)
	w.rows += rows.NumRows()
	return w.file.Write(rowGroup{rows, w.options})
}

// Rows is how many rows were written.
func (w *Writer) Rows() int64 { return w.rows }

func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the Parquet library gave up: %v", p)
	}
}

// Close ends the file, with a key and a value in its footer unless the key is
// empty, and gives the footer.
func (w *Writer) Close(key, value string) (footer *metadata.FileMetaData, err error) {
	defer recovered(&err)
	if key != "" {
		if err := w.file.AppendKeyValueMetadata(key, value); err != nil {
			return nil, err
		}
	}
	if err := w.file.Close(); err != nil {
		return nil, err
	}
	return w.file.FileMetadata()
}

// StartOf is where the first page of a column chunk begins.
func StartOf(chunk *metadata.ColumnChunkMetaData) int64 {
	at := chunk.DataPageOffset()
	if chunk.HasDictionaryPage() && chunk.DictionaryPageOffset() > 0 {
		at = min(at, chunk.DictionaryPageOffset())
	}
	return at
}
