package footer

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	magic          = "PAR1"
	encryptedMagic = "PARE"
	// Trailer is how many bytes follow a footer: its length and the magic.
	Trailer = 8
	// MinFile is the length of the shortest file: a magic, an empty footer and a
	// trailer.
	MinFile = 4 + Trailer
	// MaxFooter bounds a footer that is read.
	MaxFooter = 64 << 20
)

// Length reads the trailer at a file's end: how long the footer before it is. why
// is what is wrong with the file, nil when nothing is.
func Length(end []byte, size int64) (n int64, why error) {
	if size < MinFile || len(end) < Trailer {
		return 0, errors.New("it is too short for one")
	}
	t := end[len(end)-Trailer:]
	switch string(t[4:]) {
	case magic:
	case encryptedMagic:
		return 0, errors.New("its footer is encrypted, and encrypted files aren't supported")
	default:
		return 0, errors.New("it doesn't end like one")
	}
	n = int64(binary.LittleEndian.Uint32(t))
	switch {
	case n > size-MinFile:
		return 0, fmt.Errorf("its footer would have %d bytes, more than the file", n)
	case n > MaxFooter:
		return 0, fmt.Errorf("its footer has %d bytes; at most %d are read", n, MaxFooter)
	}
	return n, nil
}

// rowsField is num_rows in Parquet's FileMetaData.
const rowsField = 3

// Rows is the number of rows in a Parquet footer, and reads nothing else of it.
func Rows(footer []byte) (int64, error) {
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
