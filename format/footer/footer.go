package footer

import (
	"errors"
	"fmt"
	"math"
)

// maxRowGroups bounds a file's row groups.
const maxRowGroups = 1 << 16

// Footer is what a file's footer says.
type Footer struct {
	// Rows is the number of rows: the footer's own number, which its row groups
	// add up to.
	Rows int64
	// Size is the length of the file.
	Size      int64
	createdBy string
	// Root has the columns as children.
	Root *Node
	// leaves are the leaf columns, in the order in which they are stored.
	leaves []*Leaf
	// Offsets are where the row groups begin, ascending; nil when they don't
	// ascend.
	Offsets []int64
}

// Leaf is what a footer says of one leaf column, over all row groups.
type Leaf struct {
	*Node
	// Repeated: inside a list or a map, so that rows hold any number of values.
	Repeated bool
	// Bytes is the compressed size.
	Bytes int64
	// Values counts values and nulls, and one for each empty list around them.
	Values int64
	// Nulls is -1 when the footer doesn't say it of every row group.
	Nulls int64
	// Min and Max are bounds of all values that are neither null nor NaN; nil is
	// no bound.
	Min, Max *Bound

	// nullable: the format can store a null in it.
	nullable bool
	// typed: min and max have the order of the type.
	typed bool
	// noMin and noMax: a row group with values has no bound.
	noMin, noMax bool
}

// reader holds what one pass leaves for the next: row groups stand before the
// fields that say how to read them.
type reader struct {
	Footer
	length int64
	groups []byte
	seen   int
	orders []bool
}

// Parse reads the footer of a file of size bytes. The error says what is wrong
// with it.
func Parse(raw []byte, size int64) (*Footer, error) {
	r := &reader{length: int64(len(raw)), groups: nil}
	r.Size = size
	if size < MinFile || r.length > size-MinFile {
		return nil, fmt.Errorf("a footer of %d bytes doesn't fit into a file of %d", len(raw), size)
	}
	s := &scanner{raw}
	if err := s.fields(func(id int64, typ byte) (bool, error) { return r.field(s, id, typ) }); err != nil {
		return nil, err
	}
	const all = 1<<2 | 1<<3 | 1<<4
	if r.seen&all != all {
		return nil, errors.New("it has no schema, no number of rows or no row groups")
	}
	for i, l := range r.leaves {
		l.typed = i < len(r.orders) && r.orders[i] && len(r.orders) == len(r.leaves)
	}
	if err := r.rowGroups(&scanner{r.groups}); err != nil {
		return nil, err
	}
	for _, l := range r.leaves {
		if l.noMin {
			l.Min = nil
		}
		if l.noMax {
			l.Max = nil
		}
	}
	f := r.Footer
	return &f, nil
}

// field reads one field of FileMetaData.
func (r *reader) field(s *scanner, id int64, typ byte) (taken bool, err error) {
	if id > 0 && id < 16 {
		r.seen |= 1 << id
	}
	switch id {
	case 2:
		r.Root, r.leaves, err = s.schema(typ)
	case 3:
		r.Rows, err = s.number(typ, 64)
		if err == nil && r.Rows < 0 {
			err = fmt.Errorf("it has %d rows", r.Rows)
		}
	case 4:
		before := s.b
		if typ != typeList {
			return true, fmt.Errorf("its row groups have type %d", typ)
		}
		err = s.skip(typ, 0)
		r.groups = before[:len(before)-len(s.b)]
	case 6:
		var text []byte
		text, err = s.bytes(typ)
		r.createdBy = string(text[:min(len(text), 200)])
	case 7:
		r.orders, err = s.columnOrders(typ)
	case 8, 9:
		err = errors.New("the file is encrypted, and encrypted files aren't supported")
	default:
		return false, nil
	}
	return true, err
}

// columnOrders reads which columns have bounds in the order of their type.
func (s *scanner) columnOrders(typ byte) ([]bool, error) {
	n, err := s.list(typ, typeStruct)
	if err != nil {
		return nil, err
	}
	if n > maxNodes {
		return nil, fmt.Errorf("it has orders of %d columns", n)
	}
	orders := make([]bool, n)
	for i := range orders {
		if err := s.fields(func(id int64, _ byte) (bool, error) {
			orders[i] = id == 1
			return false, nil
		}); err != nil {
			return nil, err
		}
	}
	return orders, nil
}

func (r *reader) rowGroups(s *scanner) error {
	n, err := s.list(typeList, typeStruct)
	if err != nil {
		return err
	}
	if n > maxRowGroups {
		return fmt.Errorf("it has %d row groups, and at most %d are read", n, maxRowGroups)
	}
	rows, ascending := int64(0), true
	for range n {
		g, err := r.rowGroup(s)
		if err != nil {
			return err
		}
		if rows > math.MaxInt64-g.rows {
			return errors.New("its row groups have more rows than there are numbers")
		}
		rows += g.rows
		if g.rows == 0 {
			continue
		}
		if k := len(r.Offsets); k > 0 && r.Offsets[k-1] >= g.start {
			ascending = false
		}
		r.Offsets = append(r.Offsets, g.start)
	}
	if rows != r.Rows {
		return fmt.Errorf("its row groups have %d rows, and it says %d", rows, r.Rows)
	}
	if !ascending {
		r.Offsets = nil
	}
	return nil
}

// group is what is kept of a row group.
type group struct{ rows, start int64 }

func (r *reader) rowGroup(s *scanner) (g group, err error) {
	var columns []byte
	g.rows = -1
	err = s.fields(func(id int64, typ byte) (bool, error) {
		switch id {
		case 1:
			before := s.b
			if typ != typeList {
				return true, fmt.Errorf("the columns of a row group have type %d", typ)
			}
			err := s.skip(typ, 0)
			columns = before[:len(before)-len(s.b)]
			return true, err
		case 3:
			var err error
			g.rows, err = s.number(typ, 64)
			return true, err
		}
		return false, nil
	})
	if err != nil {
		return g, err
	}
	if columns == nil || g.rows < 0 {
		return g, errors.New("a row group has no columns or no number of rows")
	}
	c := &scanner{columns}
	n, err := c.list(typeList, typeStruct)
	if err != nil {
		return g, err
	}
	if n != len(r.leaves) {
		return g, fmt.Errorf("a row group has %d columns, and the schema %d", n, len(r.leaves))
	}
	for i, l := range r.leaves {
		ch, err := c.chunk()
		if err == nil {
			err = r.add(l, ch, g.rows)
		}
		if err != nil {
			return g, fmt.Errorf("column %.200q: %w", l.Path(), err)
		}
		if i == 0 {
			g.start = ch.start()
		}
	}
	return g, nil
}

// add takes a column chunk into its column.
func (r *reader) add(l *Leaf, ch chunk, rows int64) error {
	if err := ch.check(l, rows, r.Size-Trailer-r.length); err != nil {
		return err
	}
	if l.Bytes > math.MaxInt64-ch.bytes || l.Values > math.MaxInt64-ch.values {
		return errors.New("its sizes add up to more than there are numbers")
	}
	l.Bytes += ch.bytes
	l.Values += ch.values
	nulls := ch.nulls
	if !l.nullable {
		nulls = 0
	}
	switch {
	case nulls < 0 || l.Nulls < 0:
		l.Nulls = -1
	default:
		l.Nulls += nulls
	}
	if ch.values == 0 || nulls == ch.values {
		return nil
	}
	lower, upper := ch.bounds(l.Type, l.typed, r.createdBy)
	if lower != nil && upper != nil && Compare(lower.Value, upper.Value) > 0 {
		return errors.New("the lower bound in its statistics is above the upper one")
	}
	l.noMin, l.noMax = l.noMin || lower == nil, l.noMax || upper == nil
	l.Min, l.Max = outer(l.Min, lower, -1), outer(l.Max, upper, 1)
	return nil
}

// outer is the bound of two that lies further out in the direction of side.
func outer(a, b *Bound, side int) *Bound {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	switch n := Compare(a.Value, b.Value) * side; {
	case n > 0 || n == 0 && a.Exact:
		return a
	}
	return b
}
