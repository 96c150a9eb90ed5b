package iceberg

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
)

var mem memory.Allocator = memory.DefaultAllocator

// Partitioner computes partition tuples of a spec over batches of a table's
// rows. It keeps no state between batches and is safe for concurrent use.
//
// Two rows are in one partition if and only if their tuples have the same
// serialised values. In particular null, the string "null" and the empty string
// are three partitions; all NaNs are one; -0.0 and 0.0 are two.
type Partitioner struct {
	fields []boundField
	apply  []transformer // nil for void
}

// NewPartitioner binds a spec to a schema.
func NewPartitioner(schema *iceberg.Schema, spec iceberg.PartitionSpec) (*Partitioner, error) {
	p := &Partitioner{}
	for i := range spec.NumFields() {
		b, err := bindField(schema, spec.Field(i))
		if err != nil {
			return nil, err
		}
		var f transformer
		if b.Path != nil {
			if f, err = newTransformer(b.Transform, b.Source); err != nil {
				return nil, err
			}
		}
		p.fields, p.apply = append(p.fields, b), append(p.apply, f)
	}
	return p, nil
}

// Unpartitioned says whether every row has the same, empty tuple: the spec has
// no field but void ones.
func (p *Partitioner) Unpartitioned() bool {
	for _, f := range p.apply {
		if f != nil {
			return false
		}
	}
	return true
}

// Apply computes the tuple of each row. The batch has the columns of
// ArrowSchema, by position; it must stay alive as long as the Keys are used.
func (p *Partitioner) Apply(batch arrow.RecordBatch) (*Keys, error) {
	k := &Keys{rows: int(batch.NumRows()), fields: p.fields, cols: make([]*keyColumn, len(p.fields))}
	for i, f := range p.fields {
		if p.apply[i] == nil {
			k.cols[i] = &keyColumn{length: k.rows, nulls: allNull{}}
			continue
		}
		if f.Path[0] >= int(batch.NumCols()) {
			return nil, fmt.Errorf("partition field %s: the batch has no column %d", f.Name, f.Path[0])
		}
		column, structs, err := descend(batch.Column(f.Path[0]), f.Path[1:])
		if err != nil {
			return nil, fmt.Errorf("partition field %s: %w", f.Name, err)
		}
		var nulls nullness = column
		if structs != nil {
			nulls = append(structs, column)
		}
		if k.cols[i], err = p.apply[i](column, nulls); err != nil {
			return nil, fmt.Errorf("partition field %s: %w", f.Name, err)
		}
	}
	return k, nil
}

// descend follows a path into structs. The nulls of the structs on the way
// make the field null, whatever its own array says.
func descend(a arrow.Array, path []int) (arrow.Array, anyNull, error) {
	var nulls anyNull
	for _, at := range path {
		s, ok := a.(*array.Struct)
		if !ok || at >= s.NumField() {
			return nil, nil, fmt.Errorf("the batch has %s where the table has a struct", a.DataType())
		}
		nulls = append(nulls, s)
		a = s.Field(at)
	}
	return a, nulls, nil
}

// nullness tells which rows are null; every Arrow array does.
type nullness interface{ IsNull(i int) bool }

type allNull struct{}

func (allNull) IsNull(int) bool { return true }

type anyNull []nullness

func (n anyNull) IsNull(i int) bool {
	for _, x := range n {
		if x.IsNull(i) {
			return true
		}
	}
	return false
}

// keyColumn holds one value a row: either integers whose serialised form has
// width bytes, or bytes that are the serialised form. The value of a null row
// is not used.
type keyColumn struct {
	length int
	nulls  nullness
	ints   []int64
	width  int
	bytes  func(i int) []byte
}

func (k *keyColumn) null(i int) bool { return k.nulls.IsNull(i) }

func (k *keyColumn) encode(i int) []byte {
	if k.bytes != nil {
		return append([]byte{}, k.bytes(i)...)
	}
	return binary.LittleEndian.AppendUint64(nil, uint64(k.ints[i]))[:k.width]
}

// appendKey adds a form of the row's value that no other value shares and that
// can't run into the next field's.
func (k *keyColumn) appendKey(dst []byte, i int) []byte {
	switch {
	case k.null(i):
		return append(dst, 0)
	case k.bytes != nil:
		b := k.bytes(i)
		dst = append(dst, 1)
		dst = binary.AppendUvarint(dst, uint64(len(b)))
		return append(dst, b...)
	}
	return binary.LittleEndian.AppendUint64(append(dst, 1), uint64(k.ints[i]))
}

// readColumn reads a column of the source type into a key column of its own
// values: the identity transform.
func readColumn(a arrow.Array, t iceberg.Type, nulls nullness) (*keyColumn, error) {
	want, err := arrowType(t, "")
	if err != nil {
		return nil, err
	}
	if !arrow.TypeEqual(a.DataType(), want) {
		return nil, fmt.Errorf("the batch has %s where the table has %s", a.DataType(), t)
	}
	k := &keyColumn{length: a.Len(), nulls: nulls}
	switch a := a.(type) {
	case *array.Boolean:
		k.width, k.ints = 1, make([]int64, a.Len())
		for i := range k.ints {
			k.ints[i] = int64(boolInt(a.Value(i)))
		}
	case *array.Int32:
		k.width, k.ints = 4, widen(a.Int32Values())
	case *array.Date32:
		k.width, k.ints = 4, widen(a.Date32Values())
	case *array.Int64:
		k.width, k.ints = 8, widen(a.Int64Values())
	case *array.Time64:
		k.width, k.ints = 8, widen(a.Time64Values())
	case *array.Timestamp:
		k.width, k.ints = 8, widen(a.TimestampValues())
	case *array.Float32:
		k.width, k.ints = 4, make([]int64, a.Len())
		for i, v := range a.Float32Values() {
			if v != v {
				v = float32(math.NaN())
			}
			k.ints[i] = int64(math.Float32bits(v))
		}
	case *array.Float64:
		k.width, k.ints = 8, make([]int64, a.Len())
		for i, v := range a.Float64Values() {
			if v != v {
				v = math.Float64frombits(canonicalNaN)
			}
			k.ints[i] = int64(math.Float64bits(v))
		}
	case *array.String:
		text, base := a.ValueBytes(), 0
		if a.Len() > 0 {
			base = a.ValueOffset(0)
		}
		k.bytes = func(i int) []byte { from := a.ValueOffset(i) - base; return text[from : from+a.ValueLen(i)] }
	case *array.Binary:
		k.bytes = a.Value
	case *array.FixedSizeBinary:
		k.bytes = a.Value
	case *array.Decimal128:
		k.bytes = func(i int) []byte { return decimalBytes(a.Value(i)) }
	case array.ExtensionArray:
		k.bytes = a.Storage().(*array.FixedSizeBinary).Value
	default:
		return nil, fmt.Errorf("no value of %s", t)
	}
	return k, nil
}

// canonicalNaN is the NaN that Java's doubleToLongBits gives for all of them.
const canonicalNaN = 0x7ff8000000000000

func widen[T ~int32 | ~int64](in []T) []int64 {
	out := make([]int64, len(in))
	for i, v := range in {
		out[i] = int64(v)
	}
	return out
}

// Keys holds the partition tuples of one batch, row by row.
type Keys struct {
	rows   int
	fields []boundField
	cols   []*keyColumn
}

// Group is the rows of a batch that have one tuple, in their order.
type Group struct {
	// Key identifies the tuple: it's equal for equal tuples, over batches and
	// processes.
	Key string
	// Values is the tuple.
	Values []commit.PartitionValue
	// Rows are indices into the batch, ascending.
	Rows []int32
}

// Len is the number of rows.
func (k *Keys) Len() int { return k.rows }

// Hash gives a hash of a row's tuple that is the same in every process and
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

// Values gives a row's tuple, one value for each field of the spec.
func (k *Keys) Values(row int) []commit.PartitionValue {
	out := make([]commit.PartitionValue, len(k.cols))
	for i, c := range k.cols {
		out[i].FieldID = k.fields[i].FieldID
		if c.null(row) {
			out[i].Null = true
		} else {
			out[i].Value = c.encode(row)
		}
	}
	return out
}

// Group collects the rows of each distinct tuple, the tuples in the order in
// which they first occur.
func (k *Keys) Group() []Group {
	var groups []Group
	index := map[string]int{}
	var key, last []byte
	at := -1
	for row := range k.rows {
		key = k.appendKey(key[:0], row)
		if at < 0 || !bytes.Equal(key, last) {
			n, ok := index[string(key)]
			if !ok {
				n = len(groups)
				index[string(key)] = n
				groups = append(groups, Group{Key: string(key), Values: k.Values(row)})
			}
			at, last = n, append(last[:0], key...)
		}
		groups[at].Rows = append(groups[at].Rows, int32(row))
	}
	return groups
}

func (k *Keys) appendKey(dst []byte, row int) []byte {
	for _, c := range k.cols {
		dst = c.appendKey(dst, row)
	}
	return dst
}
