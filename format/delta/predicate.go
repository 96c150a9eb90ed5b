package delta

import "strings"

// Predicate selects partitions: any of its terms, each of which is all of its
// comparisons. Nil selects nothing, a term without comparisons everything. It is
// about whole partitions and never narrower than what was meant: what can't be
// decided from partition values is taken to hold.
type Predicate []Term

// Term is a conjunction of comparisons.
type Term []Comparison

// Comparison compares a column with a value of the column's type.
type Comparison struct {
	Column string
	Op     Op
	// Value is nil for null.
	Value any
}

// Op is a comparison.
type Op string

// Comparisons. Only OpSame is true of a null, when both are.
const (
	OpEqual        Op = "="
	OpSame         Op = "<=>"
	OpLess         Op = "<"
	OpLessEqual    Op = "<="
	OpGreater      Op = ">"
	OpGreaterEqual Op = ">="
)

// Everything selects all partitions.
var Everything = Predicate{Term{}}

// All says whether the predicate selects every partition of a table, whatever the
// values: a term has no comparison of a partition column.
func (p Predicate) All(d Definition) bool {
next:
	for _, t := range p {
		for _, c := range t {
			if isPartition(d.Partition, c.Column) {
				continue next
			}
		}
		return true
	}
	return false
}

// Matches says whether a file with the partition values may hold selected rows.
func (p Predicate) Matches(d Definition, values map[string]*string) bool {
	for _, t := range p {
		if t.matches(d, values) {
			return true
		}
	}
	return false
}

func (t Term) matches(d Definition, values map[string]*string) bool {
	for _, c := range t {
		if isPartition(d.Partition, c.Column) && !c.matches(d, values) {
			return false
		}
	}
	return true
}

func (c Comparison) matches(d Definition, values map[string]*string) bool {
	f := d.Schema.Column(c.Column)
	if f == nil {
		return true
	}
	m, err := MappingOf(d.Properties)
	if err != nil {
		return true
	}
	name, err := f.PhysicalName(m)
	if err != nil {
		return true
	}
	text, ok := values[name]
	for k, v := range values {
		if !ok && strings.EqualFold(k, name) {
			text, ok = v, true
		}
	}
	if !ok {
		return true
	}
	v, err := DecodePartitionValue(f.Type, text)
	if err != nil {
		return true
	}
	if v == nil || c.Value == nil {
		return c.Op == OpSame && v == nil && c.Value == nil
	}
	order, ok := Compare(v, c.Value)
	if !ok {
		return true
	}
	switch c.Op {
	case OpEqual, OpSame:
		return order == 0
	case OpLess:
		return order < 0
	case OpLessEqual:
		return order <= 0
	case OpGreater:
		return order > 0
	case OpGreaterEqual:
		return order >= 0
	}
	return true
}
