package delta

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-project/firn/commit"
)

// Partitioner tells which rows of a batch belong to one partition of a table. It
// keeps no state between batches and is safe for concurrent use.
//
// Two rows are in one partition if and only if partitionValues has the same texts
// for them. So null and the empty string are one partition, and so are 0.0 and
// -0.0.
type Partitioner struct{ columns []partitionColumn }

type partitionColumn struct {
	Field
	at int
}

// NewPartitioner binds the partition columns to the schema.
func NewPartitioner(schema *Struct, partition []string) (*Partitioner, error) {
	p := &Partitioner{}
	for _, name := range partition {
		f := schema.Column(name)
		if f == nil {
			return nil, fmt.Errorf("the partition column %.200q isn't a column", name)
		}
		c := partitionColumn{Field: *f}
		for i := range schema.Fields {
			if &schema.Fields[i] == f {
				c.at = i
			}
		}
		p.columns = append(p.columns, c)
	}
	return p, nil
}

// Apply reads the partition values of each row. The batch has the columns of the
// schema, by position.
func (p *Partitioner) Apply(batch arrow.RecordBatch) (*Keys, error) {
	k := &Keys{rows: int(batch.NumRows()), columns: p.columns}
	for _, c := range p.columns {
		if c.at >= int(batch.NumCols()) {
			return nil, fmt.Errorf("column %.200q: the batch has no column %d", c.Name, c.at)
		}
		of, texts, err := distinct(batch.Column(c.at), c.Type)
		if err != nil {
			return nil, fmt.Errorf("column %.200q: %w", c.Name, err)
		}
		k.of, k.texts = append(k.of, of), append(k.texts, texts)
	}
	return k, nil
}

// distinct gives the texts of the different values of a column, and for each row
// the number of its own.
func distinct(a arrow.Array, t Type) (of []int32, texts []*string, err error) {
	value, err := values(a, t)
	if err != nil {
		return nil, nil, err
	}
	of = make([]int32, a.Len())
	seen := map[any]int32{}
	for i := range of {
		var v any
		if a.IsValid(i) {
			v = value(i)
		}
		n, ok := seen[v]
		if !ok {
			text, err := EncodePartitionValue(t, v)
			if err != nil {
				return nil, nil, err
			}
			n = int32(len(texts))
			seen[v] = n
			texts = append(texts, text)
		}
		of[i] = n
	}
	return of, texts, nil
}

// values reads the values of an array as EncodePartitionValue takes them.
func values(a arrow.Array, t Type) (func(int) any, error) {
	switch a := a.(type) {
	case *array.Boolean:
		return func(i int) any { return a.Value(i) }, nil
	case *array.Int8:
		return func(i int) any { return a.Value(i) }, nil
	case *array.Int16:
		return func(i int) any { return a.Value(i) }, nil
	case *array.Int32:
		return func(i int) any { return a.Value(i) }, nil
	case *array.Int64:
		return func(i int) any { return a.Value(i) }, nil
	case *array.Float32:
		return func(i int) any { return a.Value(i) }, nil
	case *array.Float64:
		return func(i int) any { return a.Value(i) }, nil
	case *array.String:
		return func(i int) any { return a.Value(i) }, nil
	case *array.Date32:
		return func(i int) any { return a.Value(i) }, nil
	case *array.Timestamp:
		if u, ok := a.DataType().(*arrow.TimestampType); ok && u.Unit == arrow.Microsecond {
			return func(i int) any { return a.Value(i) }, nil
		}
	case *array.Decimal128:
		if d, ok := t.(DecimalType); ok {
			return func(i int) any { return Decimal{a.Value(i), d.Scale} }, nil
		}
	case *array.Binary:
		return nil, errors.New("a table can't be partitioned by a binary column")
	}
	return nil, fmt.Errorf("the batch has %s where the table has %v", a.DataType(), t)
}

// Keys are the partition values of one batch, row by row.
type Keys struct {
	rows    int
	columns []partitionColumn
	// of has, by column and row, the index into the column's texts.
	of    [][]int32
	texts [][]*string
}

// Group is the rows of a batch that are in one partition, in their order.
type Group struct {
	// Key identifies the partition, over batches and processes.
	Key string
	// Values are those of a file manifest: see FileLeaves.
	Values []commit.PartitionValue
	// Rows are indices into the batch, ascending.
	Rows []int32
}

// Hash gives a hash of a row's partition that is the same in every process and
// release, so that it can spread rows over the tasks of a stage.
func (k *Keys) Hash(row int) uint64 {
	var scratch [64]byte
	x := uint64(0xcbf29ce484222325)
	for _, b := range k.appendKey(scratch[:0], row) {
		x = (x ^ uint64(b)) * 0x100000001b3
	}
	// That was FNV-1a, whose low bits are weak on short input; they are mixed as
	// SplitMix64 does.
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (k *Keys) appendKey(dst []byte, row int) []byte {
	for c := range k.columns {
		text := k.texts[c][k.of[c][row]]
		if text == nil {
			dst = append(dst, 0)
			continue
		}
		dst = binary.AppendUvarint(append(dst, 1), uint64(len(*text)))
		dst = append(dst, *text...)
	}
	return dst
}

// Group collects the rows of each partition, the partitions in the order in which
// they first occur.
func (k *Keys) Group() []Group {
	var groups []Group
	index := map[string]int{}
	var key []byte
	last := -1
	for row := range k.rows {
		if last >= 0 && k.same(row-1, row) {
			groups[last].Rows = append(groups[last].Rows, int32(row))
			continue
		}
		key = k.appendKey(key[:0], row)
		n, ok := index[string(key)]
		if !ok {
			n = len(groups)
			index[string(key)] = n
			groups = append(groups, Group{Key: string(key), Values: k.Values(row)})
		}
		groups[n].Rows = append(groups[n].Rows, int32(row))
		last = n
	}
	return groups
}

func (k *Keys) same(a, b int) bool {
	for _, of := range k.of {
		if of[a] != of[b] {
			return false
		}
	}
	return true
}

// Values are a row's partition values as a file manifest has them.
func (k *Keys) Values(row int) []commit.PartitionValue {
	out := make([]commit.PartitionValue, len(k.columns))
	for c := range out {
		out[c].FieldID = c + 1
		if text := k.texts[c][k.of[c][row]]; text != nil {
			out[c].Value = []byte(*text)
		} else {
			out[c].Null = true
		}
	}
	return out
}
