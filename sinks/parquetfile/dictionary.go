package parquetfile

import (
	"encoding/binary"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// The Parquet library hashes text value by value and allocates for each of them,
// which is a third of the time that a file takes. It takes a dictionary array as
// it is, however, so text that repeats is given to it as one.

var dictionaryType = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}

// firstLook is how many rows must have been seen for a column to be judged as
// one that doesn't repeat.
const firstLook = 4096

// rowGroup is a batch that gives text columns as dictionary arrays where that's
// smaller. To the writer, which asks for each column once and in turn, it is of
// the same schema.
type rowGroup struct {
	arrow.RecordBatch
	options *Options
}

// Column implements arrow.RecordBatch. A dictionary array is in the collector's
// memory, so that nobody has to release it.
func (g rowGroup) Column(i int) arrow.Array {
	c := g.RecordBatch.Column(i)
	text, ok := c.(*array.String)
	if !ok || !g.options.text[i] {
		return c
	}
	if d := DictionaryOf(text, g.options.props.DictionaryPageSizeLimit(), g.options.props.DataPageSize()); d != nil {
		return d
	}
	return c
}

// DictionaryOf gives a text column as a dictionary array; nil for a column that
// is smaller without, or whose dictionary would take more than limit bytes.
//
// Two defects of the library's statistics of dictionary arrays set limits. It
// passes over the empty text, so that the minimum would be wrong and readers
// would skip rows: a column that has one is given as it is. And it counts all
// nulls to the first page, so a column with nulls must fit into one.
func DictionaryOf(a *array.String, limit, page int64) *array.Dictionary {
	n := a.Len()
	if n == 0 || a.Data().Buffers()[2] == nil {
		return nil
	}
	offsets, text := a.ValueOffsets(), a.Data().Buffers()[2].Bytes()
	d := newTextDictionary(n)
	indices := make([]int32, n)
	seen, nulls := 0, a.NullN() > 0
	for i := range n {
		if nulls && a.IsNull(i) {
			continue
		}
		if offsets[i] == offsets[i+1] {
			return nil
		}
		indices[i] = d.add(text[offsets[i]:offsets[i+1]])
		if seen++; d.bytes > limit || seen == firstLook && d.len() > firstLook/2 {
			return nil
		}
	}
	encoded := int64(seen) * int64(bits.Len(uint(d.len()))) / 8
	if d.bytes+encoded >= int64(offsets[n]-offsets[0])+4*int64(seen) || nulls && encoded > page/2 {
		return nil
	}
	return d.array(a, indices)
}

// textDictionary numbers different texts in the order in which they come. Short
// ones, which most that repeat are, are looked up as numbers.
type textDictionary struct {
	values []byte
	ends   []int32
	// bytes is the size as a Parquet page.
	bytes int64

	slots []slot
	short int
	long  map[string]int32
}

type slot struct {
	key   uint64
	index int32 // counts from 1; 0 is an empty slot
}

// newTextDictionary begins a dictionary of a column of n values.
func newTextDictionary(n int) *textDictionary {
	slots := min(1<<bits.Len(uint(n)), 1024) // a power of two
	return &textDictionary{slots: make([]slot, slots), long: map[string]int32{}}
}

func (d *textDictionary) len() int { return len(d.ends) }

// add gives the number of a text.
func (d *textDictionary) add(v []byte) int32 {
	if len(v) >= 8 {
		i, ok := d.long[string(v)]
		if !ok {
			i = d.append(v)
			d.long[string(v)] = i
		}
		return i
	}
	// The length is part of the key: "a" isn't "a\x00".
	var b [8]byte
	b[7] = byte(len(v))
	copy(b[:], v)
	s := d.find(binary.LittleEndian.Uint64(b[:]))
	if s.index == 0 {
		if 2*(d.short+1) > len(d.slots) {
			d.grow()
			s = d.find(binary.LittleEndian.Uint64(b[:]))
		}
		s.key, s.index = binary.LittleEndian.Uint64(b[:]), d.append(v)+1
		d.short++
	}
	return s.index - 1
}

// find gives the slot of a key, or the empty one where it belongs.
func (d *textDictionary) find(key uint64) *slot {
	h := key * 0x9e3779b97f4a7c15
	for i := h >> (64 - bits.Len(uint(len(d.slots)-1))); ; i = (i + 1) & uint64(len(d.slots)-1) {
		if s := &d.slots[i]; s.key == key && s.index != 0 || s.index == 0 {
			return s
		}
	}
}

func (d *textDictionary) grow() {
	old := d.slots
	d.slots = make([]slot, 2*len(old))
	for _, s := range old {
		if s.index != 0 {
			*d.find(s.key) = s
		}
	}
}

func (d *textDictionary) append(v []byte) int32 {
	d.values = append(d.values, v...)
	d.ends = append(d.ends, int32(len(d.values)))
	d.bytes += int64(len(v)) + 4
	return int32(len(d.ends) - 1)
}

// array makes the array of a column's indices; those of nulls are anything.
func (d *textDictionary) array(a *array.String, indices []int32) *array.Dictionary {
	words := array.NewData(arrow.BinaryTypes.String, d.len(), []*memory.Buffer{
		nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(append([]int32{0}, d.ends...))), memory.NewBufferBytes(d.values),
	}, nil, 0, 0)
	defer words.Release()
	var valid *memory.Buffer
	if a.NullN() > 0 {
		valid = memory.NewBufferBytes(make([]byte, bitutil.BytesForBits(int64(a.Len()))))
		bitutil.CopyBitmap(a.NullBitmapBytes(), a.Data().Offset(), a.Len(), valid.Bytes(), 0)
	}
	data := array.NewDataWithDictionary(dictionaryType, a.Len(), []*memory.Buffer{
		valid, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(indices)),
	}, a.NullN(), 0, words)
	defer data.Release()
	return array.NewDictionaryData(data)
}
