package delta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// Stats are the statistics of one data file.
type Stats struct {
	// Rows is numRecords, -1 when it isn't known. Rows that a deletion vector
	// deletes are counted.
	Rows int64
	// Columns are in the schema's order; a column that nothing is known of may
	// be absent.
	Columns []ColumnStats
	// TightBounds is false when the bounds may be wider than the rows that a
	// deletion vector left; nil when nothing is said, which means true.
	TightBounds *bool
}

// ColumnStats are the statistics of one leaf: a column or a field of structs.
type ColumnStats struct {
	// Path has the physical names from the top.
	Path []string
	Type Type
	// Nulls is the number of nulls, -1 when it isn't known. A null struct counts
	// as a null in each of its leaves.
	Nulls int64
	// Min and Max are bounds: every value that isn't null lies between them. nil
	// is no bound.
	Min, Max any
}

// Leaf is a column or field that statistics are kept for.
type Leaf struct {
	Path []string
	Type Type
}

// Leaves are the leaves of a schema in order. Lists and maps are leaves: they
// have a count of nulls.
func Leaves(s *Struct) []Leaf { return appendLeaves(nil, nil, s) }

func appendLeaves(out []Leaf, prefix []string, s *Struct) []Leaf {
	for _, f := range s.Fields {
		path := append(append([]string(nil), prefix...), f.Name)
		if inner, ok := f.Type.(*Struct); ok {
			out = appendLeaves(out, path, inner)
			continue
		}
		out = append(out, Leaf{Path: path, Type: f.Type})
	}
	return out
}

// bounded says whether columns of a type have bounds, as Spark decides.
func bounded(t Type) bool {
	switch t {
	case Byte, Short, Integer, Long, Float, Double, String, Date, Timestamp, TimestampNTZ:
		return true
	}
	_, ok := t.(DecimalType)
	return ok
}

// JSON is the text that an add action has in stats. Bounds that JSON or other
// readers can't take are left out, never bent: a number that isn't finite, text
// that isn't UTF-8. Text is cut to prefix letters (0: 32), its upper bound
// rounded up. Timestamps have milliseconds: the lower bound is rounded down and
// the upper one up, so that both hold for a reader that takes them literally.
func (s Stats) JSON(prefix int) (string, error) {
	if s.Rows < 0 {
		return "", errors.New("statistics without a number of rows")
	}
	var lower, upper, nulls tree
	for _, c := range s.Columns {
		if raw, ok := BoundJSON(c.Min, c.Type, prefix, false); ok {
			lower.put(c.Path, raw)
		}
		if raw, ok := BoundJSON(c.Max, c.Type, prefix, true); ok {
			upper.put(c.Path, raw)
		}
		if c.Nulls >= 0 {
			nulls.put(c.Path, json.RawMessage(strconv.FormatInt(c.Nulls, 10)))
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"numRecords":%d,"minValues":`, s.Rows)
	for i, t := range []*tree{&lower, &upper, &nulls} {
		b.WriteString([]string{"", `,"maxValues":`, `,"nullCount":`}[i])
		if err := t.write(&b); err != nil {
			return "", err
		}
	}
	if s.TightBounds != nil {
		fmt.Fprintf(&b, `,"tightBounds":%t`, *s.TightBounds)
	}
	b.WriteByte('}')
	return b.String(), nil
}

// tree is a JSON object whose keys stay in the order in which they came.
type tree struct {
	names []string
	kids  map[string]*tree
	raw   json.RawMessage // of a leaf
}

func (t *tree) put(path []string, raw json.RawMessage) {
	if len(path) == 0 {
		t.raw = raw
		return
	}
	k := t.kids[path[0]]
	if k == nil {
		if t.kids == nil {
			t.kids = map[string]*tree{}
		}
		k = &tree{}
		t.kids[path[0]] = k
		t.names = append(t.names, path[0])
	}
	k.put(path[1:], raw)
}

func (t *tree) write(b *bytes.Buffer) error {
	if t.raw != nil {
		b.Write(t.raw)
		return nil
	}
	b.WriteByte('{')
	for i, n := range t.names {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := appendJSON(b, n); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := t.kids[n].write(b); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

// BoundJSON is one bound as Stats.JSON writes it, lower or upper; ok is false when
// it can't be written.
func BoundJSON(v any, t Type, prefix int, upper bool) (raw json.RawMessage, ok bool) {
	if v == nil || !bounded(t) {
		return nil, false
	}
	switch v := v.(type) {
	case int8, int16, int32, int64:
		return fmt.Append(nil, v), true
	case float32:
		return floatJSON(float64(v), 32, upper)
	case float64:
		return floatJSON(v, 64, upper)
	case Decimal:
		return json.RawMessage(v.String()), true
	case string:
		s, ok := cutLower(v, prefix)
		if upper {
			s, ok = cutUpper(v, prefix)
		}
		if !ok {
			return nil, false
		}
		return quoted(s)
	case arrow.Date32:
		if !commonYear(int64(v)) {
			return nil, false
		}
		return quoted(dateText(int64(v)))
	case arrow.Timestamp:
		if !commonYear(floorDiv(int64(v), microsPerDay)) {
			return nil, false
		}
		ms := floorDiv(int64(v), 1000)
		if upper && int64(v)%1000 != 0 {
			ms++
		}
		layout := "T15:04:05.000"
		if t == Timestamp {
			layout += "Z"
		}
		return quoted(dateText(floorDiv(ms, microsPerDay/1000)) + time.UnixMilli(ms).UTC().Format(layout))
	}
	return nil, false
}

// commonYear says whether a day is in a year of four digits, which every reader
// can parse.
func commonYear(days int64) bool {
	y := time.Unix(days*86400, 0).UTC().Year()
	return y >= 1 && y < 9999
}

// floatJSON prints a finite number. A zero lower bound is -0.0 and an upper one
// 0.0, as nobody knows which zero readers take for the smaller.
func floatJSON(v float64, bits int, upper bool) (json.RawMessage, bool) {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return nil, false
	case v == 0 && upper:
		return json.RawMessage("0.0"), true
	case v == 0:
		return json.RawMessage("-0.0"), true
	}
	return json.RawMessage(javaFloat(v, bits)), true
}

func quoted(s string) (json.RawMessage, bool) {
	var b bytes.Buffer
	err := appendJSON(&b, s)
	return b.Bytes(), err == nil
}

// maxStatsBytes is the longest statistics text that is read.
const maxStatsBytes = 64 << 20

// ParseStats reads the statistics of a file whose schema has physical names. What
// another writer put there that doesn't fit the schema says nothing, and is left
// out; only text that isn't a JSON object is an error. The upper bound of a
// timestamp is moved to the end of its millisecond, as writers cut the rest off.
func ParseStats(s *Struct, text string) (Stats, error) {
	out := Stats{Rows: -1}
	if len(text) > maxStatsBytes {
		return out, fmt.Errorf("statistics of %d bytes, more than %d", len(text), maxStatsBytes)
	}
	var j struct {
		NumRecords  json.RawMessage `json:"numRecords"`
		MinValues   json.RawMessage `json:"minValues"`
		MaxValues   json.RawMessage `json:"maxValues"`
		NullCount   json.RawMessage `json:"nullCount"`
		TightBounds *bool           `json:"tightBounds"`
	}
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return out, fmt.Errorf("statistics: %w", err)
	}
	if n, ok := count(j.NumRecords); ok {
		out.Rows = n
	}
	out.TightBounds = j.TightBounds
	out.Columns = readColumns(nil, nil, s, object(j.MinValues), object(j.MaxValues), object(j.NullCount))
	return out, nil
}

func object(raw json.RawMessage) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	return m
}

func count(raw json.RawMessage) (int64, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil && n >= 0
}

func readColumns(out []ColumnStats, prefix []string, s *Struct, lower, upper, nulls map[string]json.RawMessage) []ColumnStats {
	for _, f := range s.Fields {
		lo, hi, n := lower[f.Name], upper[f.Name], nulls[f.Name]
		if lo == nil && hi == nil && n == nil {
			continue
		}
		path := append(append([]string(nil), prefix...), f.Name)
		if inner, ok := f.Type.(*Struct); ok {
			out = readColumns(out, path, inner, object(lo), object(hi), object(n))
			continue
		}
		c := ColumnStats{Path: path, Type: f.Type, Nulls: -1}
		if n, ok := count(n); ok {
			c.Nulls = n
		}
		c.Min, c.Max = readBound(lo, f.Type), widen(readBound(hi, f.Type))
		if c.Nulls >= 0 || c.Min != nil || c.Max != nil {
			out = append(out, c)
		}
	}
	return out
}

// widen moves an upper bound in whole milliseconds to the end of the millisecond.
func widen(v any) any {
	if t, ok := v.(arrow.Timestamp); ok && t%1000 == 0 && t <= math.MaxInt64-999 {
		return t + 999
	}
	return v
}

// ParseBound reads a bound of a type as BoundJSON writes it. Unlike ParseStats it
// takes a timestamp literally, and what doesn't fit the type is an error.
func ParseBound(raw json.RawMessage, t Type) (any, error) {
	v := readBound(raw, t)
	if v == nil {
		return nil, fmt.Errorf("%.80q is no bound of type %v", raw, t)
	}
	return v, nil
}

// readBound gives the value of a bound, or nil when it is none of the type's.
func readBound(raw json.RawMessage, t Type) any {
	if len(raw) == 0 || !bounded(t) {
		return nil
	}
	text := string(raw)
	if raw[0] == '"' {
		if json.Unmarshal(raw, &text) != nil {
			return nil
		}
		if t == String {
			return text
		}
	} else if t == String {
		return nil
	}
	// Whole numbers of a column that was widened meanwhile may have a fraction,
	// and the other way round: the text decides, not its JSON type.
	v, err := decodeText(t, strings.TrimSpace(text))
	if err != nil {
		return nil
	}
	return v
}
