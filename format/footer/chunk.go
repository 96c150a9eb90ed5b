package footer

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// chunk is what is kept of a ColumnChunk.
type chunk struct {
	described                  bool
	physical                   int64
	path                       [][]byte
	values, bytes              int64
	data, dictionary           int64
	nulls                      int64
	min, max                   []byte
	hasMin, hasMax             bool
	minInexact, maxInexact     bool
	legacyMin, legacyMax       []byte
	hasLegacyMin, hasLegacyMax bool
}

// chunk reads one column chunk.
func (s *scanner) chunk() (c chunk, err error) {
	c.physical, c.values, c.bytes, c.data, c.dictionary, c.nulls = -1, -1, -1, -1, -1, -1
	err = s.fields(func(id int64, typ byte) (bool, error) {
		switch id {
		case 1:
			return true, errors.New("it lies in another file")
		case 3:
			c.described = true
			return true, s.structure(typ, func(id int64, typ byte) (bool, error) { return s.chunkField(&c, id, typ) })
		case 8, 9:
			return true, errors.New("it is encrypted, and encrypted files aren't supported")
		}
		return false, nil
	})
	return c, err
}

// chunkField reads one field of ColumnMetaData.
func (s *scanner) chunkField(c *chunk, id int64, typ byte) (taken bool, err error) {
	number := map[int64]*int64{1: &c.physical, 5: &c.values, 7: &c.bytes, 9: &c.data, 11: &c.dictionary}[id]
	switch {
	case number != nil:
		*number, err = s.number(typ, 64)
	case id == 3:
		c.path, err = s.path(typ)
	case id == 12:
		err = s.structure(typ, func(id int64, typ byte) (bool, error) { return s.statistics(c, id, typ) })
	default:
		return false, nil
	}
	return true, err
}

func (s *scanner) path(typ byte) ([][]byte, error) {
	n, err := s.list(typ, typeBinary)
	if err != nil {
		return nil, err
	}
	if n > maxSchemaDeep {
		return nil, fmt.Errorf("its path has %d parts", n)
	}
	path := make([][]byte, n)
	for i := range path {
		if path[i], err = s.bytes(typeBinary); err != nil {
			return nil, err
		}
	}
	return path, nil
}

// statistics reads one field of Statistics.
func (s *scanner) statistics(c *chunk, id int64, typ byte) (taken bool, err error) {
	switch id {
	case 1:
		c.legacyMax, err = s.bytes(typ)
		c.hasLegacyMax = true
	case 2:
		c.legacyMin, err = s.bytes(typ)
		c.hasLegacyMin = true
	case 3:
		c.nulls, err = s.number(typ, 64)
		if err == nil && c.nulls < 0 {
			err = fmt.Errorf("it has %d nulls", c.nulls)
		}
	case 5:
		c.max, err = s.bytes(typ)
		c.hasMax = true
	case 6:
		c.min, err = s.bytes(typ)
		c.hasMin = true
	case 7:
		c.maxInexact = typ == typeFalse
		return false, nil
	case 8:
		c.minInexact = typ == typeFalse
		return false, nil
	default:
		return false, nil
	}
	return true, err
}

// start is where the first page begins.
func (c chunk) start() int64 {
	if c.dictionary > 0 {
		return min(c.data, c.dictionary)
	}
	return c.data
}

// check holds a chunk against its column, its row group and the bytes before the
// footer.
func (c chunk) check(l *Leaf, rows, end int64) error {
	at := l.Node
	for _, name := range slices.Backward(c.path) {
		if at == nil || at.parent == nil || string(name) != at.Name {
			return fmt.Errorf("its place has the column %.200q", bytes.Join(c.path, []byte(".")))
		}
		at = at.parent
	}
	switch {
	case !c.described:
		return errors.New("nothing describes it")
	case at.parent != nil:
		return fmt.Errorf("its place has the column %.200q", bytes.Join(c.path, []byte(".")))
	case c.physical != int64(l.Type.Physical):
		return fmt.Errorf("it is stored as %s, and the schema says %s", Physical(c.physical&0x7f), l.Type.Physical)
	case c.values < 0 || !l.Repeated && c.values != rows:
		return fmt.Errorf("it has %d values in %d rows", c.values, rows)
	case l.Repeated && c.values < rows:
		return fmt.Errorf("it has %d values in %d rows", c.values, rows)
	case c.nulls > c.values:
		return fmt.Errorf("it has %d nulls among %d values", c.nulls, c.values)
	case !l.nullable && c.nulls > 0:
		return fmt.Errorf("it has %d nulls, and the schema allows none", c.nulls)
	case c.values == 0 && c.bytes >= 0: // some writers give it no place
	case c.bytes < 0 || c.start() < int64(len(magic)) || c.start() > end || c.bytes > end-c.start():
		return fmt.Errorf("its %d bytes from %d on don't lie in the file", c.bytes, c.start())
	}
	return nil
}

// bounds are the chunk's, as far as the format defines them.
func (c chunk) bounds(t Type, typed bool, createdBy string) (lower, upper *Bound) {
	if oldDecimals(t, createdBy) {
		return nil, nil
	}
	// Signed numbers and booleans have one order, whatever is said of it, and the
	// legacy fields have it too. That of bytes was signed in them.
	signed := !t.Unsigned && (t.Physical == Boolean || t.Physical == Int32 || t.Physical == Int64)
	bound := func(raw []byte, has, inexact bool, legacy []byte, hasLegacy bool) *Bound {
		switch {
		case has && (typed || signed):
		case !has && hasLegacy && signed:
			raw = legacy
		default:
			return nil
		}
		v := decode(t, raw)
		if v == nil {
			return nil
		}
		return &Bound{Value: v, Exact: !inexact}
	}
	lower = bound(c.min, c.hasMin, c.minInexact, c.legacyMin, c.hasLegacyMin)
	upper = bound(c.max, c.hasMax, c.maxInexact, c.legacyMax, c.hasLegacyMax)
	if t.Physical == Float || t.Physical == Double {
		// One that is NaN makes the other as doubtful.
		if lower == nil || upper == nil {
			return nil, nil
		}
	}
	return lower, upper
}

// oldDecimals says whether a column has bounds of a writer that compared decimals
// in bytes wrongly.
func oldDecimals(t Type, createdBy string) bool {
	if t.Logical != Decimal || t.Physical != ByteArray && t.Physical != FixedLenByteArray {
		return false
	}
	version, ok := strings.CutPrefix(createdBy, "parquet-cpp-arrow version ")
	if !ok {
		return strings.HasPrefix(createdBy, "parquet-cpp ")
	}
	major, _, _ := strings.Cut(version, ".")
	return len(major) == 1 && major < "4"
}
