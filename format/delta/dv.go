package delta

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"strconv"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
)

// DeletionVector is the descriptor that an add action has when some of its rows
// are deleted. It is passed on as it stands: a remove repeats the one of its add.
type DeletionVector struct {
	// StorageType is "u" (a file named by a UUID below the table), "p" (a file
	// by its absolute path) or "i" (inline).
	StorageType    string `json:"storageType"`
	PathOrInlineDV string `json:"pathOrInlineDv"`
	// Offset is where in the file the vector begins.
	Offset *int32 `json:"offset,omitempty"`
	// SizeInBytes is the length of the vector without its frame.
	SizeInBytes int32 `json:"sizeInBytes"`
	// Cardinality is the number of deleted rows.
	Cardinality int64 `json:"cardinality"`
}

// ID tells the vectors of one file apart; with the path it is the key of a file
// in the log. A nil descriptor has none.
func (d *DeletionVector) ID() string {
	if d == nil {
		return ""
	}
	id := d.StorageType + d.PathOrInlineDV
	if d.Offset != nil {
		id += "@" + strconv.Itoa(int(*d.Offset))
	}
	return id
}

// maxVectorBytes is the largest vector that is read. One of 2^31 scattered rows
// is smaller.
const maxVectorBytes = 512 << 20

// Check says whether the descriptor is one that a table may have.
func (d *DeletionVector) Check() error {
	switch {
	case d.StorageType != "u" && d.StorageType != "p" && d.StorageType != "i":
		return fmt.Errorf("deletion vector: there is no storage type %.20q", d.StorageType)
	case d.SizeInBytes < 0 || d.SizeInBytes > maxVectorBytes:
		return fmt.Errorf("deletion vector: a size of %d bytes", d.SizeInBytes)
	case d.Cardinality < 0:
		return fmt.Errorf("deletion vector: %d deleted rows", d.Cardinality)
	case d.Offset != nil && *d.Offset < 0:
		return fmt.Errorf("deletion vector: begins at byte %d", *d.Offset)
	}
	return nil
}

// File is the URI of the file that holds the vector; empty for an inline one. The
// root is the table's, without a trailing slash.
func (d *DeletionVector) File(root string) (string, error) {
	switch d.StorageType {
	case "i":
		return "", nil
	case "p":
		return ResolvePath(root, d.PathOrInlineDV)
	case "u":
		// A random prefix, which is a directory, and 16 bytes in 20 letters.
		if len(d.PathOrInlineDV) < 20 {
			return "", fmt.Errorf("deletion vector: %.80q is too short for the name of a file", d.PathOrInlineDV)
		}
		cut := len(d.PathOrInlineDV) - 20
		id, err := decodeZ85(d.PathOrInlineDV[cut:])
		if err != nil {
			return "", fmt.Errorf("deletion vector: %w", err)
		}
		h := hex.EncodeToString(id)
		name := "deletion_vector_" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:] + ".bin"
		if prefix := d.PathOrInlineDV[:cut]; prefix != "" {
			name = prefix + "/" + name
		}
		return ResolvePath(root, EncodePath(name))
	}
	return "", d.Check()
}

// Inline reads an inline vector.
func (d *DeletionVector) Inline() (*RowSet, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	if d.StorageType != "i" {
		return nil, errors.New("deletion vector: it isn't inline")
	}
	b, err := decodeZ85(d.PathOrInlineDV)
	if err != nil {
		return nil, fmt.Errorf("deletion vector: %w", err)
	}
	// The letters come in groups of five for four bytes, so that up to three
	// bytes of padding follow.
	if int(d.SizeInBytes) > len(b) || len(b)-int(d.SizeInBytes) > 3 {
		return nil, fmt.Errorf("deletion vector: %d bytes, the descriptor says %d", len(b), d.SizeInBytes)
	}
	return d.rows(b[:d.SizeInBytes])
}

// FrameBytes is how many bytes from Offset on Framed wants: the vector's length,
// the vector and its checksum.
func (d *DeletionVector) FrameBytes() int { return int(d.SizeInBytes) + 8 }

// Start is where in its file the vector's frame begins.
func (d *DeletionVector) Start() int64 {
	if d.Offset == nil {
		return 1 // after the version
	}
	return int64(*d.Offset)
}

// VectorFileVersion is the first byte of a file of deletion vectors.
const VectorFileVersion = 1

// Framed reads the vector from FrameBytes bytes of its file.
func (d *DeletionVector) Framed(frame []byte) (*RowSet, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	if len(frame) != d.FrameBytes() {
		return nil, fmt.Errorf("deletion vector: %d bytes, want %d", len(frame), d.FrameBytes())
	}
	n := int(d.SizeInBytes)
	if size := binary.BigEndian.Uint32(frame); int64(size) != int64(n) {
		return nil, fmt.Errorf("deletion vector: the file says %d bytes, the descriptor %d", size, n)
	}
	body := frame[4 : 4+n]
	if sum := crc32.ChecksumIEEE(body); sum != binary.BigEndian.Uint32(frame[4+n:]) {
		return nil, errors.New("deletion vector: the checksum doesn't fit; the file is damaged")
	}
	return d.rows(body)
}

// rows reads the vector and compares its number of rows with the descriptor's.
func (d *DeletionVector) rows(b []byte) (*RowSet, error) {
	s, err := parseRowSet(b)
	if err != nil {
		return nil, fmt.Errorf("deletion vector: %w", err)
	}
	if s.Len() != d.Cardinality {
		return nil, fmt.Errorf("deletion vector: %d rows, the descriptor says %d", s.Len(), d.Cardinality)
	}
	return s, nil
}

// RowSet is a set of row positions in one file. It is immutable and safe for
// concurrent use.
type RowSet struct {
	// parts have the rows of one upper half of the position each, ascending.
	parts []rowPart
	rows  int64
}

type rowPart struct {
	high uint32
	low  *roaring.Bitmap
}

// vectorMagic begins a vector: the portable form of 64-bit Roaring bitmaps.
const vectorMagic = 1681511377

func parseRowSet(b []byte) (*RowSet, error) {
	if len(b) < 12 {
		return nil, fmt.Errorf("%d bytes are no vector", len(b))
	}
	if magic := binary.LittleEndian.Uint32(b); magic != vectorMagic {
		return nil, fmt.Errorf("it begins with %d, and only form %d is known", magic, vectorMagic)
	}
	count := binary.LittleEndian.Uint64(b[4:])
	rest := b[12:]
	if count > uint64(len(rest)/8) {
		return nil, fmt.Errorf("%d bitmaps don't fit %d bytes", count, len(rest))
	}
	s := &RowSet{}
	for range count {
		if len(rest) < 8 {
			return nil, errors.New("it is cut off")
		}
		high := binary.LittleEndian.Uint32(rest)
		if n := len(s.parts); n > 0 && s.parts[n-1].high >= high || high > 1<<31-1 {
			return nil, errors.New("its bitmaps are out of order")
		}
		low := roaring.New()
		n, err := low.ReadFrom(strings.NewReader(string(rest[4:])))
		if err != nil {
			return nil, fmt.Errorf("a bitmap: %w", err)
		}
		if err := low.Validate(); err != nil && !low.IsEmpty() {
			return nil, fmt.Errorf("a bitmap: %w", err)
		}
		rest = rest[4+n:]
		s.parts = append(s.parts, rowPart{high, low})
		s.rows += int64(low.GetCardinality())
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes too many", len(rest))
	}
	return s, nil
}

// Len is the number of rows in the set.
func (s *RowSet) Len() int64 { return s.rows }

// Contains says whether a row is in the set.
func (s *RowSet) Contains(row int64) bool {
	for _, p := range s.parts {
		if int64(p.high) == row>>32 {
			return p.low.Contains(uint32(row))
		}
	}
	return false
}

// All gives the rows, ascending.
func (s *RowSet) All() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for _, p := range s.parts {
			for it := p.low.Iterator(); it.HasNext(); {
				if !yield(int64(p.high)<<32 | int64(it.Next())) {
					return
				}
			}
		}
	}
}

// z85 is the alphabet of ZeroMQ's base 85.
const z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

var z85Digits = func() (d [256]byte) {
	for i := range d {
		d[i] = 0xff
	}
	for i := range len(z85) {
		d[z85[i]] = byte(i)
	}
	return d
}()

func decodeZ85(s string) ([]byte, error) {
	if len(s)%5 != 0 {
		return nil, fmt.Errorf("%d letters aren't groups of five", len(s))
	}
	out := make([]byte, 0, len(s)/5*4)
	for i := 0; i < len(s); i += 5 {
		var n uint64
		for _, c := range []byte(s[i : i+5]) {
			d := z85Digits[c]
			if d == 0xff {
				return nil, fmt.Errorf("%q isn't a letter of base 85", c)
			}
			n = n*85 + uint64(d)
		}
		if n > 1<<32-1 {
			return nil, fmt.Errorf("%q is more than four bytes", s[i:i+5])
		}
		out = binary.BigEndian.AppendUint32(out, uint32(n))
	}
	return out, nil
}
