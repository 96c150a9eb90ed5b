package render

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
)

// List writes things that aren't Arrow rows: cells under a header as text and CSV,
// or the items themselves as JSON.
func List[T any](w io.Writer, f Format, header []string, items []T, cells func(T) []string) error {
	out := bufio.NewWriter(w)
	var err error
	switch f {
	case JSON:
		if items == nil {
			items = []T{}
		}
		err = Object(out, items)
	case JSONL:
		for _, item := range items {
			err = errors.Join(err, Object(out, item))
		}
	case CSV:
		t := &csvTable{w: out}
		t.begin(header)
		for _, item := range items {
			for c, cell := range cells(item) {
				t.field(c, cell)
			}
			t.put("\n")
		}
	default:
		t := &textTable{w: out, names: header}
		for _, item := range items {
			line := cells(item)
			for c := range line {
				line[c] = printable(line[c])
			}
			t.pending = append(t.pending, line)
		}
		t.head()
	}
	return errors.Join(err, out.Flush())
}

// Object writes a value as one line of JSON.
func Object(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
