package footers

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	magic = "PAR1"
	// trailer is what follows a footer: its length and the magic.
	trailer = 8
	// minFile is a magic, an empty footer and a trailer.
	minFile = 4 + trailer
)

// footerLength reads the trailer at a file's end.
func footerLength(end []byte, size int64) (n int64, why string) {
	t := end[len(end)-trailer:]
	if string(t[4:]) != magic {
		return 0, "it doesn't end like one"
	}
	n = int64(binary.LittleEndian.Uint32(t))
	switch {
	case n > size-minFile:
		return 0, fmt.Sprintf("its footer would have %d bytes, more than the file", n)
	case n > maxFooter:
		return 0, fmt.Sprintf("its footer has %d bytes; at most %d are read", n, maxFooter)
	}
	return n, ""
}

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

// rowsField is num_rows in Parquet's FileMetaData.
const rowsField = 3

// maxDepth bounds structs within structs; a footer's schema and statistics have a
// handful.
const maxDepth = 32

var errShort = errors.New("it ends too early")

// scanner goes through a footer without keeping anything of it: whoever wrote it
// isn't trusted, and one number is wanted.
type scanner struct{ b []byte }

// rowCount is the number of rows in a Parquet footer, FileMetaData in Thrift's
// compact protocol.
func rowCount(footer []byte) (int64, error) {
	s := &scanner{footer}
	id := int64(0)
	for {
		typ, next, err := s.field(id)
		if err != nil {
			return 0, err
		}
		if id = next; typ == typeStop {
			return 0, errors.New("it has no number of rows")
		}
		if id != rowsField {
			if err := s.skip(typ, 0); err != nil {
				return 0, err
			}
			continue
		}
		if typ != typeI64 {
			return 0, errors.New("its number of rows is no number")
		}
		return s.zigzag()
	}
}

func (s *scanner) byte() (byte, error) {
	if len(s.b) == 0 {
		return 0, errShort
	}
	c := s.b[0]
	s.b = s.b[1:]
	return c, nil
}

func (s *scanner) take(n uint64) error {
	if n > uint64(len(s.b)) {
		return errShort
	}
	s.b = s.b[n:]
	return nil
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

// skip goes past a value.
func (s *scanner) skip(typ byte, depth int) error {
	if depth > maxDepth {
		return errors.New("it is nested too deeply")
	}
	switch typ {
	case typeTrue, typeFalse:
		return nil
	case typeByte:
		return s.take(1)
	case typeI16, typeI32, typeI64:
		_, err := s.varint()
		return err
	case typeDouble:
		return s.take(8)
	case typeBinary:
		n, err := s.varint()
		if err != nil {
			return err
		}
		return s.take(n)
	case typeList, typeSet:
		return s.skipList(depth)
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

func (s *scanner) skipList(depth int) error {
	c, err := s.byte()
	if err != nil {
		return err
	}
	n := uint64(c >> 4)
	if n == 15 {
		if n, err = s.varint(); err != nil {
			return err
		}
	}
	return s.skipEach(n, depth, c&0x0f)
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
