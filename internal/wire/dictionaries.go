package wire

import (
	"errors"
	"fmt"
)

// ErrDictionaries is about a stream whose dictionaries take too much memory.
var ErrDictionaries = errors.New("the stream's dictionaries are too large")

// maxDictionaries is how many bytes the dictionaries of one stream may take together.
const maxDictionaries = MaxMessage

// What a dictionary's message takes beside its body until the next batch comes: Arrow's
// reader has some structs for a part of a dictionary, and for each column and buffer in
// its header, and puts the parts together for a batch.
const (
	partBytes    = 1 << 10
	structsBytes = 8
)

// dictionaries is what a stream's dictionaries take in Arrow's reader. It keeps them for
// as long as the stream goes on, and deltas make them larger.
type dictionaries struct {
	sizes map[uint64]int64 // by id
	all   int64            // of sizes
	parts int64
	// reading: the message that was checked last is one of dictionary id.
	reading bool
	id      uint64
}

// begin is the message of a dictionary, with a body of so many bytes. One that isn't a
// delta stands in place of what there was.
func (d *dictionaries) begin(id uint64, delta bool, header, body int64) error {
	if d.sizes == nil {
		d.sizes = map[uint64]int64{}
	}
	if !delta {
		d.all -= d.sizes[id]
		d.sizes[id] = 0
	}
	d.reading, d.id = true, id
	d.parts += partBytes + structsBytes*header
	return d.take(max(body, 0))
}

// end is a message that is none of a dictionary's.
func (d *dictionaries) end() { d.reading, d.parts = false, 0 }

// take adds bytes to the dictionary that is read, if one is.
func (d *dictionaries) take(n int64) error {
	if !d.reading {
		return nil
	}
	if n > maxDictionaries-d.all-d.parts {
		return fmt.Errorf("%w: they take more than %d bytes", ErrDictionaries, int64(maxDictionaries))
	}
	d.sizes[d.id] += n
	d.all += n
	return nil
}
