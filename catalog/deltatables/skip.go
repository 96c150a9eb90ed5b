package deltatables

import (
	"slices"
	"strconv"

	"github.com/firn-project/firn/catalog/delta"
	format "github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/sql"
)

// skipper tells files that a query can do without. What isn't understood of a
// filter, or not known of a file, keeps the file.
type skipper struct {
	definition format.Definition
	physical   *format.Struct
	terms      [][]bound
	// data: some comparison is of a column that isn't a partition's.
	data bool
}

// bound is a comparison of a column that there is with values of its type.
type bound struct {
	format.Comparison
	values []any
	// path is the column's name in statistics; empty for a partition column.
	path string
}

func newSkipper(s *delta.Snapshot, where sql.Filter) *skipper {
	k := &skipper{definition: s.Definition(), physical: s.PhysicalSchema()}
	mapping, err := format.MappingOf(k.definition.Properties)
	if err != nil {
		return k
	}
	for _, t := range where {
		var bounds []bound
		for _, c := range t {
			f := k.definition.Schema.Column(c.Column)
			if f == nil {
				continue
			}
			b := bound{Comparison: format.Comparison{Column: f.Name, Op: format.Op(c.Op)}}
			if !slices.Contains(k.definition.Partition, f.Name) {
				if b.path, err = f.PhysicalName(mapping); err != nil {
					continue
				}
			}
			ok := true
			for _, l := range c.Values {
				v := valueOf(f.Type, l)
				ok = ok && v != nil
				b.values = append(b.values, v)
			}
			if len(c.Values) == 0 {
				b.Op, b.values = format.OpSame, []any{nil} // IS NULL
			}
			if ok {
				bounds = append(bounds, b)
				k.data = k.data || b.path != ""
			}
		}
		if len(bounds) == 0 {
			return &skipper{} // a term that always may hold
		}
		k.terms = append(k.terms, bounds)
	}
	return k
}

// valueOf is a literal as a value of the column's type, where the engine compares
// it as one; nil otherwise.
func valueOf(t format.Type, l sql.Literal) any {
	asDeclared := func(p format.Primitive, duck string) bool { return t == p && (l.Type == "VARCHAR" || l.Type == duck) }
	switch {
	case l.Type == "BIGINT" && (t == format.Byte || t == format.Short || t == format.Integer || t == format.Long):
		n, err := strconv.ParseInt(l.Text, 10, 64)
		if err != nil {
			return nil
		}
		return n
	case t == format.String && l.Type == "VARCHAR":
		if l.Text == "" {
			return nil // in a partition column it would be a null
		}
		return l.Text
	case asDeclared(format.Date, "DATE"), asDeclared(format.TimestampNTZ, "TIMESTAMP"):
		v, err := format.DecodePartitionValue(t, &l.Text)
		if err != nil {
			return nil
		}
		return v
	}
	return nil
}

// may says whether a file may hold a row that the query wants.
func (k *skipper) may(a *delta.Add) bool {
	if len(k.terms) == 0 {
		return true
	}
	var stats map[string]format.ColumnStats
	if k.data && a.Stats != "" {
		if s, err := format.ParseStats(k.physical, a.Stats); err == nil {
			stats = map[string]format.ColumnStats{}
			for _, c := range s.Columns {
				if len(c.Path) == 1 {
					stats[c.Path[0]] = c
				}
			}
		}
	}
	return slices.ContainsFunc(k.terms, func(t []bound) bool {
		return !slices.ContainsFunc(t, func(b bound) bool { return !k.holds(b, a, stats) })
	})
}

// holds says whether a comparison may be true of a row of the file.
func (k *skipper) holds(b bound, a *delta.Add, stats map[string]format.ColumnStats) bool {
	c, known := stats[b.path]
	return slices.ContainsFunc(b.values, func(v any) bool {
		if b.path == "" {
			return k.partitionHolds(b, v, a)
		}
		if v == nil { // IS NULL
			return !known || c.Nulls != 0
		}
		return !known || mayHold(b.Op, c.Min, c.Max, v)
	})
}

func (k *skipper) partitionHolds(b bound, v any, a *delta.Add) bool {
	f := k.definition.Schema.Column(b.Column)
	if n, ok := v.(int64); ok {
		if v = narrowed(f.Type, n); v == nil {
			return true
		}
	}
	c := b.Comparison
	c.Value = v
	return format.Predicate{format.Term{c}}.Matches(k.definition, a.PartitionValues)
}

// narrowed is a number as a value of an integer type; nil when it is none.
func narrowed(t format.Type, n int64) any {
	text := strconv.FormatInt(n, 10)
	v, err := format.DecodePartitionValue(t, &text)
	if err != nil {
		return nil
	}
	return v
}

// mayHold compares a value with bounds, which may be missing. Numbers are compared
// as the widest there are.
func mayHold(op format.Op, least, most, v any) bool {
	below := func(x, y any) bool { c, ok := format.Compare(widest(x), widest(y)); return ok && c < 0 }
	same := func(x, y any) bool { c, ok := format.Compare(widest(x), widest(y)); return ok && c == 0 }
	switch op {
	case format.OpEqual:
		return !below(v, least) && !below(most, v)
	case format.OpLess:
		return !below(v, least) && !same(v, least)
	case format.OpLessEqual:
		return !below(v, least)
	case format.OpGreater:
		return !below(most, v) && !same(most, v)
	case format.OpGreaterEqual:
		return !below(most, v)
	}
	return true
}

func widest(v any) any {
	switch v := v.(type) {
	case int8:
		return int64(v)
	case int16:
		return int64(v)
	case int32:
		return int64(v)
	}
	return v
}
