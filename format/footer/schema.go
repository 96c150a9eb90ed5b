package footer

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of a footer's schema. Real files stay far below them.
const (
	maxNodes      = 1 << 16
	maxSchemaDeep = 64
	maxName       = 4096
)

// Repetition says how often a node's value occurs in its parent.
type Repetition int8

// Repetitions, by the format's numbers.
const (
	Required Repetition = iota
	Optional
	Repeated
)

// Node is a column of a file's schema: a leaf, or a group with children.
type Node struct {
	Name       string
	Repetition Repetition
	// ID is the field id, if HasID.
	ID    int
	HasID bool
	// Type is a leaf's; of a group's it has only Logical.
	Type     Type
	Children []*Node
	// Leaf is a leaf's statistics, nil for a group.
	Leaf *Leaf

	parent *Node
}

// Path is the node's name with those of the groups around it.
func (n *Node) Path() string {
	var parts []string
	for ; n != nil && n.parent != nil; n = n.parent {
		parts = append([]string{n.Name}, parts...)
	}
	return strings.Join(parts, ".")
}

// group says whether the node has children; a group without any is none.
func (n *Node) group() bool { return n.Leaf == nil }

// schemaReader reads the flat list of schema elements, depth first, as a tree.
type schemaReader struct {
	s      *scanner
	left   int
	leaves []*Leaf
}

// schema reads the schema: its root and its leaves in order.
func (s *scanner) schema(typ byte) (*Node, []*Leaf, error) {
	n, err := s.list(typ, typeStruct)
	if err != nil {
		return nil, nil, err
	}
	if n < 2 || n > maxNodes {
		return nil, nil, fmt.Errorf("its schema has %d elements, and from 2 to %d are read", n, maxNodes)
	}
	r := &schemaReader{s: s, left: n}
	root, err := r.node(nil, 0, 0)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case r.left != 0:
		return nil, nil, fmt.Errorf("%d elements of its schema belong to no group", r.left)
	case len(root.Children) == 0:
		return nil, nil, errors.New("its schema has no columns")
	}
	return root, r.leaves, nil
}

// levels are definition levels so far: how many nodes on the way aren't required.
func (r *schemaReader) node(parent *Node, depth, levels int) (*Node, error) {
	if depth > maxSchemaDeep {
		return nil, fmt.Errorf("its schema is nested more than %d deep", maxSchemaDeep)
	}
	if r.left == 0 {
		return nil, errors.New("its schema ends too early")
	}
	r.left--
	n := &Node{parent: parent}
	children, leaf, err := r.element(n)
	if err != nil {
		return nil, err
	}
	repeated := parent != nil && parent.repeated()
	if parent != nil && n.Repetition != Required {
		levels++
	}
	if leaf {
		n.Leaf = &Leaf{Node: n, Repeated: repeated || n.Repetition == Repeated, nullable: levels > 0, typed: true}
		r.leaves = append(r.leaves, n.Leaf)
		return n, nil
	}
	if int64(children) > int64(r.left) {
		return nil, fmt.Errorf("the group %.80q has %d children and the schema %d more elements", n.Name, children, r.left)
	}
	names := map[string]bool{}
	for range children {
		c, err := r.node(n, depth+1, levels)
		if err != nil {
			return nil, err
		}
		if names[c.Name] {
			return nil, fmt.Errorf("two columns are named %.80q", c.Path())
		}
		names[c.Name] = true
		n.Children = append(n.Children, c)
	}
	return n, nil
}

func (n *Node) repeated() bool {
	for ; n != nil && n.parent != nil; n = n.parent {
		if n.Repetition == Repeated {
			return true
		}
	}
	return false
}

// element reads one SchemaElement into n.
func (r *schemaReader) element(n *Node) (children int, leaf bool, err error) {
	var logical, legacy *Type
	var precision, scale int64
	physical, children := int64(-1), -1
	s := r.s
	err = s.fields(func(id int64, typ byte) (bool, error) {
		var v int64
		var err error
		switch id {
		case 1, 2, 3, 5, 6, 7, 8, 9:
			v, err = s.number(typ, 32)
		}
		switch id {
		case 1:
			physical = v
		case 2:
			n.Type.Length = int(v)
		case 3:
			n.Repetition = Repetition(v)
			if v < 0 || v > int64(Repeated) {
				err = fmt.Errorf("repetition %d isn't known", v)
			}
		case 4:
			var raw []byte
			if raw, err = s.bytes(typ); err == nil && (len(raw) > maxName || !utf8.Valid(raw)) {
				err = fmt.Errorf("the name %.80q isn't UTF-8 or longer than %d bytes", raw, maxName)
			}
			n.Name = string(raw)
		case 5:
			children = int(v)
		case 6:
			legacy = &Type{Logical: Other}
			if v >= 0 && v < int64(len(converted)) {
				*legacy = converted[v]
			}
		case 7:
			scale = v
		case 8:
			precision = v
		case 9:
			n.ID, n.HasID = int(v), true
		case 10:
			var t Type
			t, err = s.logicalType(typ)
			logical = &t
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return 0, false, err
	}
	t := Type{}
	switch {
	case logical != nil:
		t = *logical
	case legacy != nil:
		t = *legacy
		t.Precision, t.Scale = int(precision), int(scale)
	}
	t.Length = n.Type.Length
	n.Type = t
	if physical < 0 {
		if children < 0 {
			return 0, false, fmt.Errorf("the column %.80q has neither a type nor children", n.Name)
		}
		return children, false, nil
	}
	n.Type.Physical = Physical(physical)
	switch {
	case physical > int64(FixedLenByteArray):
		return 0, false, fmt.Errorf("the column %.80q has the unknown type %d", n.Name, physical)
	case children > 0:
		return 0, false, fmt.Errorf("the column %.80q has a type and children", n.Name)
	case n.Type.Physical == FixedLenByteArray && n.Type.Length < 1:
		return 0, false, fmt.Errorf("the column %.80q has values of %d bytes", n.Name, n.Type.Length)
	case t.Logical == Decimal && (t.Precision < 1 || t.Scale < 0 || t.Scale > t.Precision):
		return 0, false, fmt.Errorf("the column %.80q is a decimal of %d digits, %d of them after the point", n.Name, t.Precision, t.Scale)
	}
	return 0, true, nil
}
