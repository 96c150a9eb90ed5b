package delta

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// defaultIndexed is how many leaves have statistics in a table that doesn't say.
const defaultIndexed = 32

// IndexedLeaves are the leaves of the table's schema that its properties want
// statistics of: the first 32, or as many as delta.dataSkippingNumIndexedCols
// says (-1: all), or those below the columns that delta.dataSkippingStatsColumns
// lists. Partition columns have none. also are columns that get them in any case,
// those that the table is clustered by.
func IndexedLeaves(s *Struct, partition []string, properties map[string]string, also ...[]string) ([]Leaf, error) {
	var leaves []Leaf
	for _, l := range Leaves(s) {
		if l.Type != Void && !isPartition(partition, l.Path[0]) {
			leaves = append(leaves, l)
		}
	}
	wanted := func(i int) bool { return i < defaultIndexed }
	if list, ok := properties[PropertyStatsColumns]; ok {
		names, err := splitNames(list)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", PropertyStatsColumns, err)
		}
		wanted = func(i int) bool { return below(leaves[i].Path, names) }
	} else if text, ok := properties[PropertyIndexedColumns]; ok {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < -1 {
			return nil, fmt.Errorf("%s is %.40q, neither -1 nor a number of columns", PropertyIndexedColumns, text)
		}
		wanted = func(i int) bool { return n == -1 || i < n }
	}
	var out []Leaf
	for i, l := range leaves {
		if wanted(i) || below(l.Path, also) {
			out = append(out, l)
		}
	}
	return out, nil
}

// ClusteringDomain is the domain that says by which columns a table is clustered.
const ClusteringDomain = "delta.clustering"

// ClusteringColumns reads the configuration of ClusteringDomain: the paths, in
// physical names, of the columns that must have statistics in each file.
func ClusteringColumns(configuration string) ([][]string, error) {
	var c struct {
		Columns [][]string `json:"clusteringColumns"`
	}
	if err := json.Unmarshal([]byte(configuration), &c); err != nil {
		return nil, fmt.Errorf("domain %s: %w", ClusteringDomain, err)
	}
	return c.Columns, nil
}

// StringPrefix is how many letters of text bounds keep.
func StringPrefix(properties map[string]string) int {
	n, err := strconv.Atoi(strings.TrimSpace(properties[PropertyStringPrefix]))
	if err != nil || n < 1 || n > 1<<16 {
		return defaultPrefix
	}
	return n
}

func isPartition(partition []string, name string) bool {
	for _, p := range partition {
		if strings.EqualFold(p, name) {
			return true
		}
	}
	return false
}

// below says whether a path begins with one of the names.
func below(path []string, names [][]string) bool {
next:
	for _, n := range names {
		if len(n) > len(path) {
			continue
		}
		for i := range n {
			if !strings.EqualFold(n[i], path[i]) {
				continue next
			}
		}
		return true
	}
	return false
}

// splitNames reads a list of column names such as "a, b.c, `d,e`.f".
func splitNames(list string) ([][]string, error) {
	var out [][]string
	var path []string
	var part strings.Builder
	quotedPart := false
	end := func() { path = append(path, part.String()); part.Reset(); quotedPart = false }
	inside := false
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case c == '`' && inside && i+1 < len(list) && list[i+1] == '`':
			part.WriteByte('`')
			i++
		case c == '`':
			inside, quotedPart = !inside, true
		case inside:
			part.WriteByte(c)
		case c == '.':
			end()
		case c == ',':
			end()
			out, path = append(out, path), nil
		case c == ' ' && (part.Len() == 0 || quotedPart):
		default:
			part.WriteByte(c)
		}
	}
	if inside {
		return nil, fmt.Errorf("a backtick isn't closed in %.200q", list)
	}
	if part.Len() > 0 || len(path) > 0 {
		end()
		out = append(out, path)
	}
	for _, p := range out {
		for i := range p {
			if p[i] = strings.TrimRight(p[i], " "); p[i] == "" {
				return nil, fmt.Errorf("an empty name in %.200q", list)
			}
		}
	}
	return out, nil
}

// StatsBuilder collects the statistics of one file from its batches. It isn't
// safe for concurrent use.
type StatsBuilder struct {
	leaves []*leafStats
	rows   int64
}

type leafStats struct {
	leaf     Leaf
	nulls    int64
	min, max any
	nan      bool
}

// NewStatsBuilder collects statistics of the leaves given.
func NewStatsBuilder(leaves []Leaf) *StatsBuilder {
	b := &StatsBuilder{}
	for _, l := range leaves {
		b.leaves = append(b.leaves, &leafStats{leaf: l})
	}
	return b
}

// Add takes the rows of a batch whose columns have the types of ArrowSchema and
// the names of the leaves. Other columns are passed over.
func (b *StatsBuilder) Add(batch arrow.RecordBatch) error {
	for _, l := range b.leaves {
		i := batch.Schema().FieldIndices(l.leaf.Path[0])
		if len(i) != 1 {
			return fmt.Errorf("the batch has %d columns %.200q", len(i), l.leaf.Path[0])
		}
		if err := l.column(batch.Column(i[0]), l.leaf.Path[1:]); err != nil {
			return fmt.Errorf("column %.200q: %w", strings.Join(l.leaf.Path, "."), err)
		}
	}
	b.rows += batch.NumRows()
	return nil
}

// column goes down to the leaf and notes which rows have no struct around it.
func (l *leafStats) column(a arrow.Array, path []string) error {
	var outer []*array.Struct
	for _, name := range path {
		s, ok := a.(*array.Struct)
		if !ok {
			return fmt.Errorf("%s is no struct", a.DataType())
		}
		t, _ := s.DataType().(*arrow.StructType)
		i, ok := t.FieldIdx(name)
		if !ok {
			return fmt.Errorf("there is no field %.200q", name)
		}
		outer = append(outer, s)
		a = s.Field(i)
	}
	null := a.IsNull
	if len(outer) > 0 {
		null = func(i int) bool {
			for _, s := range outer {
				if s.IsNull(i) {
					return true
				}
			}
			return a.IsNull(i)
		}
	}
	return l.values(a, null)
}

func (l *leafStats) values(a arrow.Array, null func(int) bool) error {
	if !bounded(l.leaf.Type) {
		for i := range a.Len() {
			if null(i) {
				l.nulls++
			}
		}
		return nil
	}
	want, err := ArrowType(l.leaf.Type)
	if err != nil {
		return err
	}
	if a.DataType().ID() != want.ID() {
		return fmt.Errorf("the batch has %s, not %s", a.DataType(), want)
	}
	switch a := a.(type) {
	case *array.Int8:
		scan(l, a.Len(), null, a.Value, cmp.Compare[int8], asIs)
	case *array.Int16:
		scan(l, a.Len(), null, a.Value, cmp.Compare[int16], asIs)
	case *array.Int32:
		scan(l, a.Len(), null, a.Value, cmp.Compare[int32], asIs)
	case *array.Int64:
		scan(l, a.Len(), null, a.Value, cmp.Compare[int64], asIs)
	case *array.Float32:
		scan(l, a.Len(), l.notNaN(null, func(i int) float64 { return float64(a.Value(i)) }), a.Value, cmp.Compare[float32], asIs)
	case *array.Float64:
		scan(l, a.Len(), l.notNaN(null, a.Value), a.Value, cmp.Compare[float64], asIs)
	case *array.String:
		scan(l, a.Len(), null, a.Value, strings.Compare, strings.Clone)
	case *array.Date32:
		scan(l, a.Len(), null, a.Value, cmp.Compare[arrow.Date32], asIs)
	case *array.Timestamp:
		scan(l, a.Len(), null, a.Value, cmp.Compare[arrow.Timestamp], asIs)
	case *array.Decimal128:
		scale := 0
		if t, ok := l.leaf.Type.(DecimalType); ok {
			scale = t.Scale
		}
		value := func(i int) Decimal { return Decimal{a.Value(i), scale} }
		scan(l, a.Len(), null, value, func(x, y Decimal) int { return decimal128.Num.Cmp(x.Num, y.Num) }, asIs)
	}
	return nil
}

func asIs[T any](v T) T { return v }

// notNaN makes the values that aren't numbers look like nulls to scan, and takes
// them out of the nulls again.
func (l *leafStats) notNaN(null func(int) bool, value func(int) float64) func(int) bool {
	return func(i int) bool {
		if null(i) {
			return true
		}
		if !math.IsNaN(value(i)) {
			return false
		}
		l.nan = true
		l.nulls--
		return true
	}
}

// scan finds the least and the greatest value of a batch, and keeps a copy of
// each only when it beats the ones of the batches before.
func scan[T any](l *leafStats, n int, null func(int) bool, value func(int) T, compare func(T, T) int, keep func(T) T) {
	var least, most T
	found := false
	for i := range n {
		if null(i) {
			l.nulls++
			continue
		}
		v := value(i)
		if !found {
			least, most, found = v, v, true
			continue
		}
		if compare(v, least) < 0 {
			least = v
		}
		if compare(v, most) > 0 {
			most = v
		}
	}
	if !found {
		return
	}
	if old, ok := l.min.(T); !ok || compare(least, old) < 0 {
		l.min = keep(least)
	}
	if old, ok := l.max.(T); !ok || compare(most, old) > 0 {
		l.max = keep(most)
	}
}

// Stats gives what was collected. A column with a NaN has no upper bound: engines
// don't agree on where NaN stands.
func (b *StatsBuilder) Stats() Stats {
	s := Stats{Rows: b.rows}
	for _, l := range b.leaves {
		c := ColumnStats{Path: l.leaf.Path, Type: l.leaf.Type, Nulls: l.nulls, Min: l.min, Max: l.max}
		if l.nan {
			c.Max = nil
		}
		s.Columns = append(s.Columns, c)
	}
	return s
}
