package wire

import (
	"errors"
	"fmt"
)

// ErrTooLarge is about a stream that takes too much memory when it is read.
var ErrTooLarge = errors.New("the stream takes too much memory")

// What a dictionary's message takes beside its body until the next batch comes: Arrow's
// reader has some structs for a part of a dictionary, and for each column and buffer in
// its header, and puts the parts together for a batch.
const (
	partBytes    = 1 << 10
	structsBytes = 8
)

// readerMemory is what a stream takes in Arrow's reader. It keeps dictionaries for as
// long as the stream goes on, and deltas make them larger. Of a batch it is what
// compressed buffers say that they are, all together.
type readerMemory struct {
	dictionaries map[uint64]int64 // by id
	all          int64            // of dictionaries
	parts        int64
	// reading: the message that was checked last is one of dictionary id.
	reading bool
	id      uint64
	// batch is what was taken for another one.
	batch int64
}

// dictionary is the message of one. One that isn't a delta stands in place of what there
// was.
func (m *readerMemory) dictionary(id uint64, delta bool, header int64) {
	if m.dictionaries == nil {
		m.dictionaries = map[uint64]int64{}
	}
	if !delta {
		m.all -= m.dictionaries[id]
		m.dictionaries[id] = 0
	}
	m.reading, m.id = true, id
	m.parts += partBytes + structsBytes*header
}

// other is a message that is none of a dictionary's.
func (m *readerMemory) other() { m.reading, m.parts, m.batch = false, 0, 0 }

// keep adds bytes to the dictionary that is read, if one is.
func (m *readerMemory) keep(n int64) error {
	if !m.reading {
		return nil
	}
	if n < 0 || n > MaxMessage-m.all-m.parts {
		return fmt.Errorf("%w: its dictionaries take more than %d bytes together", ErrTooLarge, int64(MaxMessage))
	}
	m.dictionaries[m.id] += n
	m.all += n
	return nil
}

// take is a buffer of the message that is decompressed to so many bytes.
func (m *readerMemory) take(n int64) error {
	if m.reading {
		return m.keep(n)
	}
	if n < 0 || n > MaxMessage-m.batch {
		return fmt.Errorf("%w: a batch takes more than %d bytes when it is decompressed", ErrTooLarge, int64(MaxMessage))
	}
	m.batch += n
	return nil
}
