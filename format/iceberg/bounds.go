package iceberg

import (
	"bytes"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
)

// Metrics gathers what the metadata keeps of one data file's columns, from the
// rows themselves. Columns inside lists and maps have no bounds, and their
// counts come from the file's footer; see Leaves.
//
// A Metrics belongs to one file and one goroutine.
type Metrics struct {
	columns []*columnMetrics
}

// NewMetrics starts the metrics of a data file. The modes are those of
// MetricsModes.
func NewMetrics(schema *iceberg.Schema, modes map[int]MetricsMode) *Metrics {
	m := &Metrics{}
	for i, f := range schema.Fields() {
		for _, l := range leaves([]iceberg.NestedField{f}) {
			mode := modes[l.ID]
			if l.repeated || !mode.Counts {
				continue
			}
			path, _ := findField([]iceberg.NestedField{f}, l.ID)
			m.columns = append(m.columns, &columnMetrics{id: l.ID, typ: l.Type, mode: mode, column: i, path: path[1:]})
		}
	}
	return m
}

// Add counts the rows of a batch that has the columns of ArrowSchema.
func (m *Metrics) Add(batch arrow.RecordBatch) error {
	for _, c := range m.columns {
		if err := c.add(batch); err != nil {
			return fmt.Errorf("metrics of column %s: %w", batch.ColumnName(c.column), err)
		}
	}
	return nil
}

// Fill puts the counts and bounds into f.
func (m *Metrics) Fill(f *commit.File) error {
	f.ValueCounts, f.NullCounts, f.NaNCounts = map[int]int64{}, map[int]int64{}, map[int]int64{}
	f.Lower, f.Upper = map[int][]byte{}, map[int][]byte{}
	for _, c := range m.columns {
		f.ValueCounts[c.id] = c.values
		f.NullCounts[c.id] = c.nulls
		if isFloat(c.typ) {
			f.NaNCounts[c.id] = c.nans
		}
		if !c.mode.Bounds || !c.seen {
			continue
		}
		lower, upper, err := c.bounds()
		if err != nil {
			return err
		}
		f.Lower[c.id] = lower
		if upper != nil {
			f.Upper[c.id] = upper
		}
	}
	return nil
}

func isFloat(t iceberg.Type) bool {
	switch t.(type) {
	case iceberg.Float32Type, iceberg.Float64Type:
		return true
	}
	return false
}

// columnMetrics gathers one column. The smallest and largest value are kept as
// an integer, a float, a decimal or bytes, by type; NaN is in neither.
type columnMetrics struct {
	id     int
	typ    iceberg.Type
	mode   MetricsMode
	column int
	path   []int

	values, nulls, nans int64
	seen                bool
	minInt, maxInt      int64
	minFloat, maxFloat  float64
	minDec, maxDec      decimal128.Num
	minBytes, maxBytes  []byte
}

func (c *columnMetrics) add(batch arrow.RecordBatch) error {
	a, structs, err := descend(batch.Column(c.column), c.path)
	if err != nil {
		return err
	}
	n := a.Len()
	c.values += int64(n)
	var null nullness = a
	switch {
	case len(structs) > 0:
		null = append(structs, a)
		for i := range n {
			if null.IsNull(i) {
				c.nulls++
			}
		}
	case a.NullN() == 0:
		null = nil
	default:
		c.nulls += int64(a.NullN())
	}
	return c.extremes(a, null)
}

// extremes goes over the values that aren't null; null is nil when none is.
func (c *columnMetrics) extremes(a arrow.Array, null nullness) error {
	switch a := a.(type) {
	case *array.Boolean:
		each(a.Len(), null, func(i int) { c.int(int64(boolInt(a.Value(i)))) })
	case *array.Int32:
		ints(c, a.Int32Values(), null)
	case *array.Int64:
		ints(c, a.Int64Values(), null)
	case *array.Date32:
		ints(c, a.Date32Values(), null)
	case *array.Time64:
		ints(c, a.Time64Values(), null)
	case *array.Timestamp:
		ints(c, a.TimestampValues(), null)
	case *array.Float32:
		v := a.Float32Values()
		each(len(v), null, func(i int) { c.float(float64(v[i])) })
	case *array.Float64:
		v := a.Float64Values()
		each(len(v), null, func(i int) { c.float(v[i]) })
	case *array.Decimal128:
		v := a.Values()
		each(len(v), null, func(i int) { c.decimal(v[i]) })
	case *array.String:
		if c.mode.Bounds {
			var lo, hi string
			seen := false
			each(a.Len(), null, func(i int) {
				v := a.Value(i)
				if !seen || v < lo {
					lo = v
				}
				if !seen || v > hi {
					hi = v
				}
				seen = true
			})
			if seen {
				c.bytes([]byte(lo))
				c.bytes([]byte(hi))
			}
		}
	case *array.Binary:
		each(a.Len(), null, func(i int) { c.bytes(a.Value(i)) })
	case *array.FixedSizeBinary:
		each(a.Len(), null, func(i int) { c.bytes(a.Value(i)) })
	case *extensions.UUIDArray:
		s := a.Storage().(*array.FixedSizeBinary)
		each(s.Len(), null, func(i int) { c.bytes(s.Value(i)) })
	default:
		return fmt.Errorf("no bounds of %s", a.DataType())
	}
	return nil
}

func each(n int, null nullness, f func(i int)) {
	for i := range n {
		if null == nil || !null.IsNull(i) {
			f(i)
		}
	}
}

// ints is the hot loop: min and max of the batch, then one step for both.
func ints[T ~int32 | ~int64](c *columnMetrics, v []T, null nullness) {
	if len(v) == 0 || !c.mode.Bounds {
		return
	}
	lo, hi, seen := v[0], v[0], false
	if null == nil {
		seen = true
		for _, x := range v {
			lo, hi = min(lo, x), max(hi, x)
		}
	} else {
		each(len(v), null, func(i int) {
			if !seen {
				lo, hi, seen = v[i], v[i], true
			}
			lo, hi = min(lo, v[i]), max(hi, v[i])
		})
	}
	if seen {
		c.int(int64(lo))
		c.int(int64(hi))
	}
}

func (c *columnMetrics) int(v int64) {
	if !c.seen {
		c.minInt, c.maxInt, c.seen = v, v, true
	}
	c.minInt, c.maxInt = min(c.minInt, v), max(c.maxInt, v)
}

func (c *columnMetrics) float(v float64) {
	if v != v {
		c.nans++
		return
	}
	if !c.seen {
		c.minFloat, c.maxFloat, c.seen = v, v, true
	}
	c.minFloat, c.maxFloat = min(c.minFloat, v), max(c.maxFloat, v)
}

func (c *columnMetrics) decimal(v decimal128.Num) {
	if !c.seen {
		c.minDec, c.maxDec, c.seen = v, v, true
	}
	if v.Less(c.minDec) {
		c.minDec = v
	}
	if v.Greater(c.maxDec) {
		c.maxDec = v
	}
}

// bytes keeps copies: a batch is released after it was added.
func (c *columnMetrics) bytes(v []byte) {
	if !c.mode.Bounds {
		return
	}
	if !c.seen || bytes.Compare(v, c.minBytes) < 0 {
		c.minBytes = append(c.minBytes[:0], v...)
	}
	if !c.seen || bytes.Compare(v, c.maxBytes) > 0 {
		c.maxBytes = append(c.maxBytes[:0], v...)
	}
	c.seen = true
}

// bounds serialises the extremes. The upper bound is nil when no bound of the
// mode's length is above every value.
func (c *columnMetrics) bounds() (lower, upper []byte, err error) {
	switch c.typ.(type) {
	case iceberg.StringType:
		return truncateLowerString(c.minBytes, c.mode.Length), truncateUpperString(c.maxBytes, c.mode.Length), nil
	case iceberg.BinaryType:
		return truncateLowerBytes(c.minBytes, c.mode.Length), truncateUpperBytes(c.maxBytes, c.mode.Length), nil
	case iceberg.FixedType, iceberg.UUIDType:
		// Bounds of these types have the type's own length; cutting them would
		// make them values of no type.
		return append([]byte{}, c.minBytes...), append([]byte{}, c.maxBytes...), nil
	case iceberg.BooleanType:
		return []byte{byte(c.minInt)}, []byte{byte(c.maxInt)}, nil
	case iceberg.Int32Type, iceberg.DateType:
		return le32(uint32(c.minInt)), le32(uint32(c.maxInt)), nil
	case iceberg.Int64Type, iceberg.TimeType, iceberg.TimestampType, iceberg.TimestampTzType:
		return le64(uint64(c.minInt)), le64(uint64(c.maxInt)), nil
	case iceberg.Float32Type:
		lo, hi := zeroBounds(c.minFloat, c.maxFloat)
		return le32(math.Float32bits(float32(lo))), le32(math.Float32bits(float32(hi))), nil
	case iceberg.Float64Type:
		lo, hi := zeroBounds(c.minFloat, c.maxFloat)
		return le64(math.Float64bits(lo)), le64(math.Float64bits(hi)), nil
	case iceberg.DecimalType:
		return decimalBytes(c.minDec), decimalBytes(c.maxDec), nil
	}
	return nil, nil, fmt.Errorf("no bounds of %s", c.typ)
}

// zeroBounds makes zero bounds hold for both zeros: readers differ on whether
// -0.0 is less than 0.0.
func zeroBounds(lo, hi float64) (float64, float64) {
	if lo == 0 {
		lo = math.Copysign(0, -1)
	}
	if hi == 0 {
		hi = 0
	}
	return lo, hi
}

// truncateLowerString gives the first n code points: a prefix is never above
// the whole. n of 0 keeps everything.
func truncateLowerString(b []byte, n int) []byte {
	if n > 0 {
		b = cutCodePoints(b, n)
	}
	return append([]byte{}, b...)
}

func truncateLowerBytes(b []byte, n int) []byte {
	if n > 0 {
		b = b[:min(len(b), n)]
	}
	return append([]byte{}, b...)
}

// truncateUpperString gives a text of at most n code points that is above every
// text with the same first n: the last code point that can be is raised by one
// and what follows is dropped. Nil when none can. Raising steps over the
// surrogates, which are no characters; UTF-8 sorts by code point.
func truncateUpperString(b []byte, n int) []byte {
	if n == 0 || len(cutCodePoints(b, n)) == len(b) {
		return append([]byte{}, b...)
	}
	cut := cutCodePoints(b, n)
	for len(cut) > 0 {
		r, size := utf8.DecodeLastRune(cut)
		cut = cut[:len(cut)-size]
		if r == utf8.RuneError && size == 1 {
			// Not UTF-8: no bound can be trusted.
			return nil
		}
		if r == utf8.MaxRune {
			continue
		}
		if r++; r == 0xd800 {
			r = 0xe000
		}
		return utf8.AppendRune(append([]byte{}, cut...), r)
	}
	return nil
}

// truncateUpperBytes does the same for bytes.
func truncateUpperBytes(b []byte, n int) []byte {
	if n == 0 || len(b) <= n {
		return append([]byte{}, b...)
	}
	for i := n - 1; i >= 0; i-- {
		if b[i] < 0xff {
			out := append([]byte{}, b[:i+1]...)
			out[i]++
			return out
		}
	}
	return nil
}
