package iceberg

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/iceberg-go"
)

// Table properties that choose what is kept of each column.
const (
	metricsDefaultKey    = "write.metadata.metrics.default"
	metricsColumnPrefix  = "write.metadata.metrics.column."
	metricsMaxColumnsKey = "write.metadata.metrics.max-inferred-column-defaults"

	metricsDefaultLength     = 16
	metricsDefaultMaxColumns = 100
)

// MetricsMode says what a data file's entry keeps of one column.
type MetricsMode struct {
	// Counts keeps value, null and NaN counts and the column's size.
	Counts bool
	// Bounds keeps lower and upper bounds, Length code points or bytes long at
	// most; 0 keeps them whole.
	Bounds bool
	Length int
}

// ParseMetricsMode reads none, counts, truncate(N) or full, in any case.
func ParseMetricsMode(s string) (MetricsMode, error) {
	switch m := strings.ToLower(strings.TrimSpace(s)); m {
	case "none":
		return MetricsMode{}, nil
	case "counts":
		return MetricsMode{Counts: true}, nil
	case "full":
		return MetricsMode{Counts: true, Bounds: true}, nil
	default:
		arg, ok := strings.CutPrefix(m, "truncate(")
		arg, closed := strings.CutSuffix(arg, ")")
		n, err := strconv.Atoi(arg)
		if !ok || !closed || err != nil || n < 1 {
			return MetricsMode{}, fmt.Errorf("metrics mode %q: want none, counts, truncate(N) or full", s)
		}
		return MetricsMode{Counts: true, Bounds: true, Length: n}, nil
	}
}

// MetricsModes gives the mode of every leaf column by field id, from the table
// properties write.metadata.metrics.*. Without a default of its own a table
// keeps truncate(16) for its first 100 leaf columns and nothing of the rest, so
// that a table of thousands of columns doesn't drown in metrics. A column is
// named in a property as in the schema, with dots between nested names.
func MetricsModes(schema *iceberg.Schema, properties map[string]string) (map[int]MetricsMode, error) {
	mode, limit := MetricsMode{Counts: true, Bounds: true, Length: metricsDefaultLength}, metricsDefaultMaxColumns
	if s, ok := properties[metricsMaxColumnsKey]; ok {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("property %s: %q isn't a number of columns", metricsMaxColumnsKey, s)
		}
		limit = n
	}
	if s, ok := properties[metricsDefaultKey]; ok {
		var err error
		if mode, err = ParseMetricsMode(s); err != nil {
			return nil, fmt.Errorf("property %s: %w", metricsDefaultKey, err)
		}
		limit = int(^uint(0) >> 1)
	}
	modes := map[int]MetricsMode{}
	for i, leaf := range leaves(schema.Fields()) {
		m := mode
		if i >= limit {
			m = MetricsMode{}
		}
		if s, ok := properties[metricsColumnPrefix+leaf.path]; ok {
			var err error
			if m, err = ParseMetricsMode(s); err != nil {
				return nil, fmt.Errorf("property %s%s: %w", metricsColumnPrefix, leaf.path, err)
			}
		}
		modes[leaf.ID] = m
	}
	return modes, nil
}

// leaf is a primitive column of a schema.
type leaf struct {
	iceberg.NestedField
	path string
	// repeated: inside a list or a map, so that rows hold any number of values.
	repeated bool
	// solid: neither it nor what is around it may be null.
	solid bool
}

// leaves lists the primitive columns in the order of the schema, which is that
// of a Parquet file's columns.
func leaves(fields []iceberg.NestedField) []leaf { return leavesIn(fields, "", false, true) }

// leavesIn lists those of a struct, or of a list or map. solid: it can't be null.
func leavesIn(fields []iceberg.NestedField, prefix string, repeated, solid bool) []leaf {
	var out []leaf
	for _, f := range fields {
		path := prefix + f.Name
		switch t := f.Type.(type) {
		case *iceberg.StructType:
			out = append(out, leavesIn(t.FieldList, path+".", repeated, solid && f.Required)...)
		case *iceberg.ListType:
			out = append(out, leavesIn(t.Fields(), path+".", true, false)...)
		case *iceberg.MapType:
			out = append(out, leavesIn(t.Fields(), path+".", true, false)...)
		default:
			out = append(out, leaf{NestedField: f, path: path, repeated: repeated, solid: solid && f.Required})
		}
	}
	return out
}
