package render

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
)

// Format is a way to write rows.
type Format string

// Formats.
const (
	Text  Format = "text"
	JSON  Format = "json"
	JSONL Format = "jsonl"
	CSV   Format = "csv"
)

// ParseFormat reads the name of a format.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case Text, JSON, JSONL, CSV:
		return f, nil
	default:
		return "", fmt.Errorf("%q: want text, json, jsonl or csv", s)
	}
}

// Rows writes rows as they come and returns how many there were. A schema is
// needed for a header when there are none; nil takes that of the first batch.
// When the rows end with an error, what came before it has been written.
func Rows(w io.Writer, f Format, schema *arrow.Schema, rows iter.Seq2[arrow.RecordBatch, error]) (int64, error) {
	out := bufio.NewWriterSize(w, 64<<10)
	var t table
	switch f {
	case JSON:
		t = &jsonTable{w: out, array: true}
	case JSONL:
		t = &jsonTable{w: out}
	case CSV:
		t = &csvTable{w: out}
	default:
		t = &textTable{w: out}
	}
	n, err := writeRows(t, out, schema, rows)
	return n, errors.Join(err, out.Flush())
}

// table is one output. A bufio.Writer keeps the first error of a write, so that
// the methods needn't.
type table interface {
	begin(names []string)
	batch(b arrow.RecordBatch)
	end()
}

func writeRows(t table, out *bufio.Writer, schema *arrow.Schema, rows iter.Seq2[arrow.RecordBatch, error]) (n int64, err error) {
	begun := false
	for b, rerr := range rows {
		if rerr != nil {
			err = rerr
			break
		}
		if !begun {
			begun = true
			t.begin(columnNames(b.Schema()))
		}
		t.batch(b)
		_ = out.Flush() // the next may be long in coming; out keeps the error
		n += b.NumRows()
	}
	if !begun {
		t.begin(columnNames(schema))
	}
	t.end()
	return n, err
}

// columnNames makes the names of the columns unique.
func columnNames(s *arrow.Schema) []string {
	if s == nil {
		return nil
	}
	taken := map[string]bool{}
	for _, f := range s.Fields() {
		taken[f.Name] = true
	}
	seen := map[string]bool{}
	names := make([]string, s.NumFields())
	for i, f := range s.Fields() {
		name := f.Name
		for n := 1; seen[name] || n > 1 && taken[name]; n++ {
			name = fmt.Sprintf("%s_%d", f.Name, n)
		}
		seen[name] = true
		names[i] = name
	}
	return names
}

// jsonTable writes one array on one line, or one object a line.
type jsonTable struct {
	w     *bufio.Writer
	array bool
	names [][]byte
	rows  int64
	buf   []byte
}

func (t *jsonTable) begin(names []string) {
	for _, n := range names {
		t.names = append(t.names, appendString(nil, n))
	}
	if t.array {
		t.put("[")
	}
}

func (t *jsonTable) batch(b arrow.RecordBatch) {
	for i := range int(b.NumRows()) {
		if t.array && t.rows > 0 {
			t.put(",")
		}
		t.rows++
		t.buf = appendRow(t.buf[:0], t.names, b, i)
		if !t.array {
			t.buf = append(t.buf, '\n')
		}
		_, _ = t.w.Write(t.buf) // kept by the writer
	}
}

func (t *jsonTable) end() {
	if t.array {
		t.put("]\n")
	}
}

func (t *jsonTable) put(s string) { _, _ = t.w.WriteString(s) } // kept by the writer

// csvTable writes RFC 4180, but with \n. encoding/csv can't tell NULL from "".
type csvTable struct{ w *bufio.Writer }

func (t *csvTable) begin(names []string) {
	for i, n := range names {
		t.field(i, n)
	}
	t.put("\n")
}

func (t *csvTable) batch(b arrow.RecordBatch) {
	for i := range int(b.NumRows()) {
		for c, col := range b.Columns() {
			switch {
			case !col.IsNull(i):
				t.field(c, plain(col, i))
			case c > 0:
				t.put(",")
			}
		}
		t.put("\n")
	}
}

func (t *csvTable) field(c int, s string) {
	if c > 0 {
		t.put(",")
	}
	if s == "" || strings.ContainsAny(s, ",\"\r\n") || s[0] == ' ' || s[len(s)-1] == ' ' {
		s = `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
	}
	t.put(s)
}

func (t *csvTable) end() {}

func (t *csvTable) put(s string) { _, _ = t.w.WriteString(s) } // kept by the writer

// sample is how many rows the widths of a text table are measured on. Wider
// values further down push their own line out.
const sample = 1000

// textTable writes aligned columns: numbers to the right, NULL for null.
type textTable struct {
	w       *bufio.Writer
	names   []string
	widths  []int
	right   []bool
	pending [][]string
}

func (t *textTable) begin(names []string) { t.names = names }

func (t *textTable) batch(b arrow.RecordBatch) {
	if t.right == nil {
		for _, f := range b.Schema().Fields() {
			t.right = append(t.right, arrow.IsInteger(f.Type.ID()) || arrow.IsFloating(f.Type.ID()) || arrow.IsDecimal(f.Type.ID()))
		}
	}
	for i := range int(b.NumRows()) {
		cells := make([]string, b.NumCols())
		for c, col := range b.Columns() {
			cells[c] = "NULL"
			if !col.IsNull(i) {
				cells[c] = printable(plain(col, i))
			}
		}
		if t.widths != nil {
			t.line(cells)
			continue
		}
		if t.pending = append(t.pending, cells); len(t.pending) >= sample {
			t.head()
		}
	}
}

func (t *textTable) end() {
	if t.widths == nil {
		t.head()
	}
}

// head measures, writes the header and what was kept back.
func (t *textTable) head() {
	t.widths = make([]int, len(t.names))
	for c, name := range t.names {
		t.widths[c] = utf8.RuneCountInString(name)
		for _, cells := range t.pending {
			t.widths[c] = max(t.widths[c], utf8.RuneCountInString(cells[c]))
		}
	}
	if len(t.names) == 0 {
		return
	}
	t.line(t.names)
	rule := make([]string, len(t.names))
	for c, w := range t.widths {
		rule[c] = strings.Repeat("-", w)
	}
	t.line(rule)
	for _, cells := range t.pending {
		t.line(cells)
	}
	t.pending = nil
}

func (t *textTable) line(cells []string) {
	var b strings.Builder
	for c, cell := range cells {
		if c > 0 {
			b.WriteString("  ")
		}
		pad := strings.Repeat(" ", max(0, t.widths[c]-utf8.RuneCountInString(cell)))
		if c < len(t.right) && t.right[c] {
			b.WriteString(pad + cell)
		} else {
			b.WriteString(cell + pad)
		}
	}
	_, _ = t.w.WriteString(strings.TrimRight(b.String(), " ") + "\n") // kept by the writer
}

// printable keeps a value on its line and control characters out of a terminal.
func printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			fmt.Fprintf(&b, `\x%02x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return strings.NewReplacer(`\x0a`, `\n`, `\x09`, `\t`, `\x0d`, `\r`).Replace(b.String())
}
