package render

import "github.com/apache/arrow-go/v18/arrow"

// Rower writes single rows as JSON objects, as the format JSON has them.
type Rower struct{ names [][]byte }

// NewRower makes one for the rows of a schema.
func NewRower(s *arrow.Schema) *Rower {
	r := &Rower{}
	for _, n := range columnNames(s) {
		r.names = append(r.names, appendString(nil, n))
	}
	return r
}

// Append writes row i of a batch behind dst.
func (r *Rower) Append(dst []byte, b arrow.RecordBatch, i int) []byte {
	return appendRow(dst, r.names, b, i)
}

// Names are the columns' in the objects.
func Names(s *arrow.Schema) []string { return columnNames(s) }
