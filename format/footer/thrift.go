package footer

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Types of Thrift's compact protocol.
const (
	typeStop = iota
	typeTrue
	typeFalse
	typeByte
	typeI16
	typeI32
	typeI64
	typeDouble
	typeBinary
	typeList
	typeSet
	typeMap
	typeStruct
)

// maxDepth bounds structs within structs; a footer's schema and statistics have a
// handful.
const maxDepth = 32

var errShort = errors.New("it ends too early")

// scanner goes through a footer and keeps nothing but slices of it: whoever wrote
// it isn't trusted.
type scanner struct{ b []byte }

func (s *scanner) byte() (byte, error) {
	if len(s.b) == 0 {
		return 0, errShort
	}
	c := s.b[0]
	s.b = s.b[1:]
	return c, nil
}

func (s *scanner) take(n uint64) ([]byte, error) {
	if n > uint64(len(s.b)) {
		return nil, errShort
	}
	b := s.b[:n:n]
	s.b = s.b[n:]
	return b, nil
}

func (s *scanner) varint() (uint64, error) {
	v, n := binary.Uvarint(s.b)
	if n <= 0 {
		return 0, errShort
	}
	s.b = s.b[n:]
	return v, nil
}

func (s *scanner) zigzag() (int64, error) {
	v, n := binary.Varint(s.b)
	if n <= 0 {
		return 0, errShort
	}
	s.b = s.b[n:]
	return v, nil
}

// number reads a number of a field of type typ, which must be one of at most bits.
func (s *scanner) number(typ byte, bits int) (int64, error) {
	switch typ {
	case typeByte:
		c, err := s.byte()
		return int64(int8(c)), err
	case typeI16, typeI32, typeI64:
		n, err := s.zigzag()
		if err == nil && bits < 64 && n != n<<(64-bits)>>(64-bits) {
			err = fmt.Errorf("the number %d has more than %d bits", n, bits)
		}
		return n, err
	}
	return 0, fmt.Errorf("a number has type %d", typ)
}

// bytes reads the value of a field of bytes or text.
func (s *scanner) bytes(typ byte) ([]byte, error) {
	if typ != typeBinary {
		return nil, fmt.Errorf("a text has type %d", typ)
	}
	n, err := s.varint()
	if err != nil {
		return nil, err
	}
	return s.take(n)
}

// field reads a field's header; last is the id of the field before it.
func (s *scanner) field(last int64) (typ byte, id int64, err error) {
	c, err := s.byte()
	if err != nil {
		return 0, 0, err
	}
	typ, id = c&0x0f, last+int64(c>>4)
	if typ != typeStop && c>>4 == 0 {
		id, err = s.zigzag()
	}
	return typ, id, err
}

// fields calls f for each field of a struct. What f doesn't take is skipped. A
// field that stands twice is an error: readers would differ on which one counts.
func (s *scanner) fields(f func(id int64, typ byte) (taken bool, err error)) error {
	var seen uint64
	id := int64(0)
	for {
		typ, next, err := s.field(id)
		if err != nil || typ == typeStop {
			return err
		}
		id = next
		if id >= 0 && id < 64 {
			if seen&(1<<id) != 0 {
				return fmt.Errorf("field %d stands twice", id)
			}
			seen |= 1 << id
		}
		taken, err := f(id, typ)
		if err == nil && !taken {
			err = s.skip(typ, 0)
		}
		if err != nil {
			return err
		}
	}
}

// structure reads a field that is a struct.
func (s *scanner) structure(typ byte, f func(id int64, typ byte) (bool, error)) error {
	if typ != typeStruct {
		return fmt.Errorf("a struct has type %d", typ)
	}
	return s.fields(f)
}

// list reads the header of a list of elements of one type. There are at most as
// many as bytes are left, an element taking one at least.
func (s *scanner) list(typ, of byte) (int, error) {
	if typ != typeList {
		return 0, fmt.Errorf("a list has type %d", typ)
	}
	n, elem, err := s.listHeader()
	switch {
	case err != nil:
		return 0, err
	case n > uint64(len(s.b)):
		return 0, errShort
	case n > 0 && elem != of:
		return 0, fmt.Errorf("a list has elements of type %d", elem)
	}
	return int(n), nil
}

func (s *scanner) listHeader() (n uint64, elem byte, err error) {
	c, err := s.byte()
	if err != nil {
		return 0, 0, err
	}
	if n = uint64(c >> 4); n == 15 {
		n, err = s.varint()
	}
	return n, c & 0x0f, err
}

// skip goes past a value.
func (s *scanner) skip(typ byte, depth int) error {
	if depth > maxDepth {
		return errors.New("it is nested too deeply")
	}
	switch typ {
	case typeTrue, typeFalse:
		return nil
	case typeByte:
		_, err := s.take(1)
		return err
	case typeI16, typeI32, typeI64:
		_, err := s.varint()
		return err
	case typeDouble:
		_, err := s.take(8)
		return err
	case typeBinary:
		_, err := s.bytes(typ)
		return err
	case typeList, typeSet:
		n, elem, err := s.listHeader()
		if err != nil {
			return err
		}
		return s.skipEach(n, depth, elem)
	case typeMap:
		return s.skipMap(depth)
	case typeStruct:
		return s.skipStruct(depth)
	default:
		return fmt.Errorf("type %d isn't known", typ)
	}
}

func (s *scanner) skipStruct(depth int) error {
	id := int64(0)
	for {
		typ, next, err := s.field(id)
		if err != nil || typ == typeStop {
			return err
		}
		id = next
		if err := s.skip(typ, depth+1); err != nil {
			return err
		}
	}
}

func (s *scanner) skipMap(depth int) error {
	n, err := s.varint()
	if err != nil || n == 0 {
		return err
	}
	c, err := s.byte()
	if err != nil {
		return err
	}
	return s.skipEach(n, depth, c>>4, c&0x0f)
}

// skipEach goes past n elements, each of values of the types. In a list a boolean
// takes a byte, unlike in a field.
func (s *scanner) skipEach(n uint64, depth int, types ...byte) error {
	if n > uint64(len(s.b)) { // an element takes a byte at least
		return errShort
	}
	for range n {
		for _, typ := range types {
			if typ == typeTrue || typ == typeFalse {
				typ = typeByte
			}
			if err := s.skip(typ, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
