package footer

import (
	"fmt"
	"strings"
)

// Error says what of a file isn't as the table needs it, and what whoever wrote
// the file can do.
type Error struct{ Why, Hint string }

func (e *Error) Error() string { return e.Why }

// Refuse makes an Error with a hint.
func Refuse(hint, why string, args ...any) error {
	return &Error{Why: fmt.Sprintf(why, args...), Hint: hint}
}

// Hints that the formats share.
const (
	// HintSchema says how to get a file of the table's schema.
	HintSchema = "Write the file with the Arrow schema of the write context: in pyarrow, table.cast(schema) before pyarrow.parquet.write_table."
	// HintIDs says how to get field ids into a file.
	HintIDs = `Write the file with the Arrow schema of the write context, whose fields have their ids under "PARQUET:field_id": pyarrow writes them into the file.`
	// HintRequired says how to show that there are no nulls.
	HintRequired = "Write the column as required (in pyarrow, nullable=False, as the write context's schema has it), and with statistics."
	// HintStatistics says that statistics are missing.
	HintStatistics = "Write the file with statistics of the partition columns, or hand the partition's values in."
	// HintSplit says how to get files of one partition.
	HintSplit = "Write one file for each partition: all rows of a file must have the same partition values."
)

// Shape is what a column of a table consists of.
type Shape int8

// Shapes.
const (
	// Plain columns hold values of one type.
	Plain Shape = iota
	// Group is a struct: Children are its fields.
	Group
	// Sequence is a list: its only child is the element.
	Sequence
	// Pairs is a map: its children are key and value.
	Pairs
)

// Column is what a table has as a column, to be found in a file.
type Column struct {
	Name string
	// ID is the field id; columns are found by it, or by Name. A column without
	// one has 0.
	ID       int
	Shape    Shape
	Required bool
	// Fits says why a Plain column can't be stored so; nil when it can.
	Fits     func(Type) error
	Children []Column
	// Key is the caller's name for the column among what Match found.
	Key int
}

// Match finds a table's columns in a file, by field ids or by names, and gives the
// nodes by the columns' keys. Columns that may be null may be absent. It is an
// error when the file has another column than the table's, because a column that
// the table gets later could take it for its own; when a column is stored in
// another type; or when one that may not be null may be.
func Match(root *Node, columns []Column, byID bool) (map[int]*Node, error) {
	m := &matcher{byID: byID, found: map[int]*Node{}}
	if err := m.children(root.Children, columns, true); err != nil {
		return nil, err
	}
	return m.found, nil
}

type matcher struct {
	byID  bool
	found map[int]*Node
}

// children matches the fields of a struct. solid: neither the struct nor what is
// around it can be null.
func (m *matcher) children(nodes []*Node, columns []Column, solid bool) error {
	at := make(map[any]int, len(columns))
	for i, c := range columns {
		at[m.key(c.ID, c.Name)] = i
	}
	there := make([]*Node, len(columns))
	for _, n := range nodes {
		if m.byID && !n.HasID {
			return Refuse(HintIDs, "column %.200q of the file has no field id", n.Path())
		}
		i, ok := at[m.key(n.ID, n.Name)]
		if !ok {
			return m.unknown(n, columns)
		}
		if there[i] != nil {
			return Refuse(HintIDs, "columns %.200q and %.200q of the file have one field id, %d", there[i].Path(), n.Path(), n.ID)
		}
		there[i] = n
	}
	for i, c := range columns {
		if there[i] == nil {
			if c.Required {
				return Refuse(HintSchema, "column %.200q may not be null, and the file doesn't have it", c.Name)
			}
			continue
		}
		if err := m.column(there[i], c, solid); err != nil {
			return err
		}
	}
	return nil
}

func (m *matcher) key(id int, name string) any {
	if m.byID {
		return id
	}
	return name
}

func (m *matcher) unknown(n *Node, columns []Column) error {
	if m.byID {
		return Refuse(HintIDs, "column %.200q of the file has the field id %d, and the table has no such field there", n.Path(), n.ID)
	}
	for _, c := range columns {
		if strings.EqualFold(c.Name, n.Name) {
			return Refuse(HintSchema, "column %.200q of the file is named %.200q in the table", n.Path(), c.Name)
		}
	}
	return Refuse(HintSchema, "column %.200q of the file isn't one of the table's", n.Path())
}

func (m *matcher) column(n *Node, c Column, solid bool) error {
	if n.Repetition == Repeated {
		return Refuse(HintSchema, "column %.200q is repeated: lists are stored in three levels, which the format calls LIST", n.Path())
	}
	if c.ID != 0 && n.HasID && n.ID != c.ID {
		return Refuse(HintIDs, "column %.200q has the field id %d in the file and %d in the table", n.Path(), n.ID, c.ID)
	}
	if err := required(n, c, solid); err != nil {
		return err
	}
	m.found[c.Key] = n
	solid = solid && c.Required
	switch c.Shape {
	case Group:
		if !n.group() || n.Type.Logical != None {
			return shapeError(n, "a struct")
		}
		return m.children(n.Children, c.Children, solid)
	case Sequence:
		inner := n.inner(List, 1)
		if inner == nil {
			return shapeError(n, "a list in three levels")
		}
		return m.parts(inner.Children, c.Children)
	case Pairs:
		inner := n.inner(Map, 2)
		if inner == nil || inner.Children[0].Repetition != Required {
			return shapeError(n, "a map in three levels, with keys that are required")
		}
		return m.parts(inner.Children, c.Children)
	}
	if n.group() {
		return shapeError(n, "no struct, list or map")
	}
	if err := c.Fits(n.Type); err != nil {
		return Refuse(HintSchema, "column %.200q is stored as %s: %v", n.Path(), n.Type, err)
	}
	return nil
}

// parts matches the element of a list, or the key and the value of a map, which
// are found by their places.
func (m *matcher) parts(nodes []*Node, columns []Column) error {
	for i, c := range columns {
		if m.byID && !nodes[i].HasID {
			return Refuse(HintIDs, "column %.200q of the file has no field id", nodes[i].Path())
		}
		if err := m.column(nodes[i], c, false); err != nil {
			return err
		}
	}
	return nil
}

func shapeError(n *Node, want string) error {
	return Refuse(HintSchema, "column %.200q is %s in the table, and stored in another way", n.Path(), want)
}

// inner is the repeated group in a list or map of three levels.
func (n *Node) inner(kind Logical, children int) *Node {
	if !n.group() || n.Type.Logical != kind || len(n.Children) != 1 {
		return nil
	}
	if in := n.Children[0]; in.group() && in.Repetition == Repeated && len(in.Children) == children {
		return in
	}
	return nil
}

// required says why a column that may not be null could be. Nulls of what is
// around a column count as its own in a footer.
func required(n *Node, c Column, solid bool) error {
	if !c.Required || n.Repetition == Required {
		return nil
	}
	switch nulls := n.Nulls(); {
	case nulls == 0:
		return nil
	case nulls < 0:
		return Refuse(HintRequired, "column %.200q may not be null, and the file doesn't say that it has no nulls", n.Path())
	case solid && c.Shape == Plain:
		return Refuse("Leave the rows out or give them a value.", "column %.200q may not be null, and the file has %d nulls in it", n.Path(), nulls)
	default:
		return Refuse(HintRequired, "column %.200q may not be null, and the file counts %d nulls in it or around it", n.Path(), nulls)
	}
}

// Nulls is how many nulls a column has at most, itself or around it: its own for a
// leaf, else those of the leaf below it with the fewest. -1 is unknown. Leaves in
// lists below it tell nothing: some writers count what is missing there, others
// don't.
func (n *Node) Nulls() int64 {
	if n.Leaf != nil {
		return n.Leaf.Nulls
	}
	if n.solid() {
		return 0
	}
	least := int64(-1)
	for _, c := range n.Children {
		if c.Repetition == Repeated {
			continue
		}
		if k := c.Nulls(); k >= 0 && (least < 0 || k < least) {
			least = k
		}
	}
	return least
}

// solid says whether neither the node nor what is around it can be null.
func (n *Node) solid() bool {
	for ; n != nil && n.parent != nil; n = n.parent {
		if n.Repetition != Required {
			return false
		}
	}
	return true
}
