package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var errMessage = errors.New("malformed Arrow message")

// Slots of the tables that Arrow's flatbuffers format declares: a table's n-th
// field has the slot 4+2n.
const (
	slotMessageType     = 6
	slotMessageHeader   = 8
	slotMessageBody     = 10
	slotMessageMetadata = 12
	slotSchemaFields    = 6
	slotSchemaMetadata  = 8
	slotFieldType       = 8
	slotFieldDictionary = 12
	slotFieldChildren   = 14
	slotFieldMetadata   = 16

	slotEncodingID      = 4
	slotDictionaryID    = 4
	slotDictionaryData  = 6
	slotDictionaryDelta = 8
	slotBatchBuffers    = 8
	slotBatchCompressed = 10
	slotBatchVariadic   = 12

	headerSchema     = 1
	headerDictionary = 2
	headerBatch      = 3
	typeUnion        = 14
	typeBinaryView   = 23
	typeTextView     = 24

	maxFields = 1 << 16
	maxDepth  = 64
)

// Checker checks the messages of one Arrow stream. The first is its schema.
type Checker struct {
	begun bool
	// views is how many columns of views a batch has, nested ones as well; words is
	// the same of a dictionary's values, by the dictionary's id.
	views int
	words map[uint64]int
	// header is that of the last message, and batch where the buffers of its body are
	// listed; 0 for none.
	header flatbuf
	batch  int
	memory readerMemory
}

// CheckMessage checks the lengths in the metadata of the next message and gives
// the length of its body. Arrow's reader allocates by these lengths before it
// looks at what there is, and a few bytes from a hostile peer would end the
// process for want of memory. Everything else that can be wrong with a message
// the reader turns into an error itself.
func (c *Checker) CheckMessage(header []byte) (body int64, err error) {
	// Every access below is to a slice, so that an offset that leads out of the
	// message ends here.
	defer outside(&err)
	m := flatbuf(header)
	c.header, c.batch = m, 0
	root := m.follow(0)
	if err := m.checkVector(root, slotMessageMetadata); err != nil {
		return 0, err
	}
	if at := m.field(root, slotMessageBody); at != 0 {
		body = int64(binary.LittleEndian.Uint64(m[at:]))
	}
	kind, at := m.field(root, slotMessageType), m.field(root, slotMessageHeader)
	if kind == 0 {
		return body, nil
	}
	if at == 0 {
		return 0, errMessage
	}
	if m[kind] == headerDictionary {
		return body, c.checkDictionary(m.follow(at))
	}
	c.memory.other()
	switch m[kind] {
	case headerSchema:
	case headerBatch:
		c.batch = m.follow(at)
		return body, m.checkVariadic(c.batch, c.views)
	default:
		return body, nil
	}
	schema := m.follow(at)
	if err := m.checkVector(schema, slotSchemaMetadata); err != nil {
		return 0, err
	}
	fields := fieldWalk{flatbuf: m, left: maxFields, words: map[uint64]int{}}
	views, err := fields.check(schema, slotSchemaFields, 0)
	if !c.begun {
		c.begun, c.views, c.words = true, views, fields.words
	}
	return body, err
}

func outside(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", errMessage, p)
	}
}

// checkDictionary checks the message of a dictionary.
func (c *Checker) checkDictionary(dictionary int) error {
	m := c.header
	data, id := m.field(dictionary, slotDictionaryData), m.number(dictionary, slotDictionaryID)
	if data == 0 {
		return errMessage
	}
	c.batch = m.follow(data)
	delta := m.field(dictionary, slotDictionaryDelta)
	c.memory.dictionary(id, delta != 0 && m[delta] == 1, int64(len(m)))
	return m.checkVariadic(c.batch, c.words[id])
}

// CheckBody bounds what the body of the last message takes in Arrow's reader: with what
// else the reader keeps of the stream, and with its compressed buffers as large as they
// say that they are. The error is then ErrTooLarge.
func (c *Checker) CheckBody(body []byte) (err error) {
	defer outside(&err)
	if err := c.memory.keep(int64(len(body))); err != nil || c.batch == 0 {
		return err
	}
	m := c.header
	f := m.field(c.batch, slotBatchBuffers)
	if f == 0 || m.field(c.batch, slotBatchCompressed) == 0 {
		return nil
	}
	const bufferSize, sizeLength = 16, 8 // of a buffer's place, and of what a compressed one begins with
	at := m.follow(f)
	buffers := m[at+4:][:bufferSize*int64(binary.LittleEndian.Uint32(m[at:]))]
	for ; len(buffers) > 0; buffers = buffers[bufferSize:] {
		offset, length := binary.LittleEndian.Uint64(buffers), binary.LittleEndian.Uint64(buffers[8:])
		if length < sizeLength {
			continue // it is empty, or Arrow's reader refuses it
		}
		if n := int64(binary.LittleEndian.Uint64(body[offset:])); n != -1 { // -1: as it is
			if err := c.memory.take(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// flatbuf is a flatbuffer; positions in it count from its start.
type flatbuf []byte

// follow gives the position that the offset at a position leads to.
func (m flatbuf) follow(at int) int { return at + int(binary.LittleEndian.Uint32(m[at:])) }

// field gives the position of a table's field, 0 when the table hasn't got it.
func (m flatbuf) field(table, slot int) int {
	vtable := table - int(int32(binary.LittleEndian.Uint32(m[table:])))
	if slot >= int(binary.LittleEndian.Uint16(m[vtable:])) {
		return 0
	}
	off := int(binary.LittleEndian.Uint16(m[vtable+slot:]))
	if off == 0 {
		return 0
	}
	return table + off
}

// number gives a table's field of eight bytes, 0 when the table hasn't got it.
func (m flatbuf) number(table, slot int) uint64 {
	at := m.field(table, slot)
	if at == 0 {
		return 0
	}
	return binary.LittleEndian.Uint64(m[at:])
}

// vector gives the position and length of a table's vector of offsets.
func (m flatbuf) vector(table, slot int) (at, n int, err error) {
	f := m.field(table, slot)
	if f == 0 {
		return 0, 0, nil
	}
	at = m.follow(f)
	n = int(binary.LittleEndian.Uint32(m[at:]))
	at += 4
	if n > (len(m)-at)/4 {
		return 0, 0, fmt.Errorf("%w: a vector of %d entries in %d bytes", errMessage, n, len(m))
	}
	return at, n, nil
}

func (m flatbuf) checkVector(table, slot int) error {
	_, _, err := m.vector(table, slot)
	return err
}

// checkVariadic checks how many buffers a batch says that its columns of views have:
// not more than all that it has, and it says so of each column. Arrow's reader takes
// what stands behind the last for that of one more.
func (m flatbuf) checkVariadic(batch, views int) error {
	f := m.field(batch, slotBatchVariadic)
	if f == 0 {
		return nil
	}
	const countSize, bufferSize = 8, 16
	at := m.follow(f)
	n := int(binary.LittleEndian.Uint32(m[at:]))
	if at += 4; n > (len(m)-at)/countSize {
		return fmt.Errorf("%w: a vector of %d entries in %d bytes", errMessage, n, len(m))
	}
	if n < views {
		return fmt.Errorf("%w: %d columns of views, and how many buffers %d of them have", errMessage, views, n)
	}
	left := uint64(0)
	if f = m.field(batch, slotBatchBuffers); f != 0 {
		left = uint64(binary.LittleEndian.Uint32(m[m.follow(f):]))
	}
	left = min(left, uint64(len(m)/bufferSize))
	for i := range n {
		count := binary.LittleEndian.Uint64(m[at+countSize*i:])
		if count > left {
			return fmt.Errorf("%w: %d buffers of views, and %d are left", errMessage, count, left)
		}
		left -= count
	}
	return nil
}

// fieldWalk walks the fields of a schema. Offsets may lead to one place many times, so
// the fields are counted.
type fieldWalk struct {
	flatbuf
	left  int
	words map[uint64]int // Checker's
}

// check checks the fields of a schema or the children of a field, and gives how many of
// them are views.
func (w *fieldWalk) check(table, slot, depth int) (views int, err error) {
	at, n, err := w.vector(table, slot)
	if err != nil {
		return 0, err
	}
	if w.left -= n; w.left < 0 || depth > maxDepth {
		return 0, fmt.Errorf("%w: more than %d fields, or deeper than %d", errMessage, maxFields, maxDepth)
	}
	for i := range n {
		f := w.follow(at + 4*i)
		if err := w.checkVector(f, slotFieldMetadata); err != nil {
			return 0, err
		}
		inside, err := w.check(f, slotFieldChildren, depth+1)
		if err != nil {
			return 0, err
		}
		if t := w.field(f, slotFieldType); t != 0 {
			switch w.flatbuf[t] {
			case typeUnion:
				return 0, fmt.Errorf("%w: unions aren't taken", errMessage)
			case typeBinaryView, typeTextView:
				inside++
			}
		}
		if d := w.field(f, slotFieldDictionary); d != 0 { // what is inside comes by itself
			id := w.number(w.follow(d), slotEncodingID)
			w.words[id], inside = max(w.words[id], inside), 0
		}
		views += inside
	}
	return views, nil
}
