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
	slotFieldChildren   = 14
	slotFieldMetadata   = 16

	slotDictionaryData = 6
	slotBatchBuffers   = 8
	slotBatchVariadic  = 12

	headerSchema     = 1
	headerDictionary = 2
	headerBatch      = 3
	typeUnion        = 14

	maxFields = 1 << 16
	maxDepth  = 64
)

// CheckMessage checks the lengths in the metadata of one Arrow message and gives
// the length of its body. Arrow's reader allocates by these lengths before it
// looks at what there is, and a few bytes from a hostile peer would end the
// process for want of memory. Everything else that can be wrong with a message
// the reader turns into an error itself.
func CheckMessage(header []byte) (body int64, err error) {
	defer func() {
		// Every access below is to a slice, so that an offset that leads out of
		// the message ends here.
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errMessage, p)
		}
	}()
	m := flatbuf(header)
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
	switch m[kind] {
	case headerSchema:
	case headerBatch:
		return body, m.checkVariadic(m.follow(at))
	case headerDictionary:
		if at = m.field(m.follow(at), slotDictionaryData); at == 0 {
			return 0, errMessage
		}
		return body, m.checkVariadic(m.follow(at))
	default:
		return body, nil
	}
	schema := m.follow(at)
	if err := m.checkVector(schema, slotSchemaMetadata); err != nil {
		return 0, err
	}
	budget := maxFields
	return body, m.checkFields(schema, slotSchemaFields, 0, &budget)
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
// not more than all that it has.
func (m flatbuf) checkVariadic(batch int) error {
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

// checkFields walks the fields of a schema or the children of a field. Offsets
// may lead to one place many times, so the fields are counted.
func (m flatbuf) checkFields(table, slot, depth int, budget *int) error {
	at, n, err := m.vector(table, slot)
	if err != nil {
		return err
	}
	if *budget -= n; *budget < 0 || depth > maxDepth {
		return fmt.Errorf("%w: more than %d fields, or deeper than %d", errMessage, maxFields, maxDepth)
	}
	for i := range n {
		f := m.follow(at + 4*i)
		if t := m.field(f, slotFieldType); t != 0 && m[t] == typeUnion {
			return fmt.Errorf("%w: unions aren't taken", errMessage)
		}
		if err := m.checkVector(f, slotFieldMetadata); err != nil {
			return err
		}
		if err := m.checkFields(f, slotFieldChildren, depth+1, budget); err != nil {
			return err
		}
	}
	return nil
}
