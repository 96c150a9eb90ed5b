package wire_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-project/firn/internal/wire"
)

// TestViews: a message that leaves out how many buffers a column of views has is
// refused, as Arrow's reader would take memory by what stands there instead.
func TestViews(t *testing.T) {
	const text = "a text that is longer than twelve bytes"
	view, words := arrow.BinaryTypes.StringView, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.StructOf(
		arrow.Field{Name: "x", Type: arrow.BinaryTypes.StringView}, arrow.Field{Name: "y", Type: arrow.BinaryTypes.BinaryView})}
	column := func(typ arrow.DataType, json string) arrow.Array {
		a, _, err := array.FromJSON(memory.DefaultAllocator, typ, strings.NewReader(json))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	index, word := column(words.IndexType, "[0]"), column(words.ValueType, `[{"x": "`+text+`", "y": "`+strings.Repeat("QUJD", 9)+`"}]`)
	for name, columns := range map[string][]arrow.Array{
		"columns":            {column(view, `["`+text+`"]`), column(view, `["`+text+`"]`)},
		"inside":             {column(arrow.ListOf(view), `[["`+text+`"]]`), column(arrow.StructOf(arrow.Field{Name: "x", Type: view}), `[{"x": "`+text+`"}]`)},
		"in a dictionary":    {array.NewDictionaryArray(words, index, word)},
		"and a dictionary's": {column(view, `["`+text+`"]`), column(view, `["`+text+`"]`), array.NewDictionaryArray(words, index, word)},
	} {
		var fields []arrow.Field
		for _, c := range columns {
			fields = append(fields, arrow.Field{Name: "c", Type: c.DataType()})
		}
		schema := arrow.NewSchema(fields, nil)
		raw, err := wire.EncodeIPC(schema, array.NewRecordBatch(schema, columns, 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := readAll(raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		counts := func(n uint32) []byte {
			return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, n), 1), 1)
		}
		if !bytes.Contains(raw, counts(2)) {
			t.Fatalf("%s: the message has no counts of two columns", name)
		}
		if err := readAll(bytes.Replace(raw, counts(2), counts(1), 1)); err == nil || !strings.Contains(err.Error(), "2 columns of views") {
			t.Errorf("%s: one count is missing, and it says %v", name, err)
		}
	}
}

func readAll(raw []byte) error {
	r, err := wire.NewIPCReader(raw)
	if err != nil {
		return err
	}
	defer r.Release()
	for {
		if _, err := r.Read(); err == io.EOF { //nolint:errorlint // the reader's own, unwrapped
			return nil
		} else if err != nil {
			return err
		}
	}
}
