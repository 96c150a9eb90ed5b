package shuffle

import (
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
)

// rowSlice gives the batches of some rows of a file.
type rowSlice struct {
	f *file
	// next is the batch to be read, row the number of its first row.
	next       int
	row        int64
	first, end int64
}

// slice reads the rows first ≤ n < end; all of them when both are 0.
func (f *file) slice(first, end int64) rowSlice { return rowSlice{f: f, first: first, end: end} }

// Next returns the next batch, which the caller releases, or io.EOF.
func (s *rowSlice) Next() (arrow.RecordBatch, error) {
	for s.end == 0 || s.row < s.end {
		if s.next == s.f.NumRecords() {
			if s.row < s.end {
				return nil, diskError("read", s.f.name, errors.New("it has fewer rows than were told"))
			}
			return nil, io.EOF
		}
		b, err := s.f.batch(s.next)
		if err != nil {
			return nil, err
		}
		row, rows := s.row, b.NumRows()
		s.next, s.row = s.next+1, row+rows
		from, to := max(s.first-row, 0), rows
		if s.end > 0 {
			to = min(to, s.end-row)
		}
		switch {
		case from >= to:
			b.Release()
		case from == 0 && to == rows:
			return b, nil
		default:
			cut := b.NewSlice(from, to)
			b.Release()
			return cut, nil
		}
	}
	return nil, io.EOF
}
