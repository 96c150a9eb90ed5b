package delta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/firn-project/firn/format/delta"
)

// leaf reads one leaf column of a checkpoint, row by row. Checkpoints come from
// anybody, so their rows are put together here from levels and values: the
// library's own way to nested Arrow arrays starts goroutines, in which a panic
// over a broken file couldn't be caught.
type leaf struct {
	column int
	path   []string
	desc   *schema.Column
	// maxDef is the level at which there's a value, maxRep that of a further
	// entry in a list or map.
	maxDef, maxRep int16

	chunk file.ColumnChunkReader
	// empty: no row of the row group has a value.
	empty      bool
	defs, reps []int16
	n, at      int // levels in the buffers, the next one
	nv, next   int // values in the buffer, the next one

	texts    []parquet.ByteArray
	fixed    []parquet.FixedLenByteArray
	bools    []bool
	int32s   []int32
	int64s   []int64
	int96s   []parquet.Int96
	float32s []float32
	float64s []float64

	// The current row: the level and, if it has a value, which.
	def   int16
	has   bool
	value int
	// entries are those of a list or map in the current row; nil is null.
	entries []*string
}

// leafBatch is how many levels are buffered for each leaf.
const leafBatch = 1024

func newLeaf(column int, desc *schema.Column) *leaf {
	return &leaf{
		column: column, path: desc.ColumnPath(), desc: desc,
		maxDef: desc.MaxDefinitionLevel(), maxRep: desc.MaxRepetitionLevel(),
		defs: make([]int16, leafBatch), reps: make([]int16, leafBatch),
	}
}

// open starts a row group.
func (l *leaf) open(group *file.RowGroupReader) error {
	l.n, l.at, l.nv, l.next = 0, 0, 0, 0
	l.chunk = nil
	if l.empty = l.maxRep == 0 && noValues(group.MetaData(), l.column); l.empty {
		return nil
	}
	c, err := group.Column(l.column)
	l.chunk = c
	return err
}

// noValues says whether a column's statistics prove that it has no value.
func noValues(m metaOf, column int) bool {
	c, err := m.ColumnChunk(column)
	if err != nil {
		return false
	}
	set, err := c.StatsSet()
	if err != nil || !set {
		return false
	}
	s, err := c.Statistics()
	return err == nil && s != nil && s.HasNullCount() && s.NullCount() == c.NumValues()
}

// fill reads further levels, with their values, of one page; ok is false at the
// end.
func (l *leaf) fill() (ok bool, err error) {
	l.n, l.at, l.nv, l.next = 0, 0, 0, 0
	if !l.chunk.HasNext() {
		return false, l.chunk.Err()
	}
	var levels int64
	switch c := l.chunk.(type) {
	case *file.ByteArrayColumnChunkReader:
		l.texts = sized(l.texts)
		levels, l.nv, err = c.ReadBatchInPage(leafBatch, l.texts, l.defs, l.reps)
	case *file.FixedLenByteArrayColumnChunkReader:
		l.fixed = sized(l.fixed)
		levels, l.nv, err = c.ReadBatchInPage(leafBatch, l.fixed, l.defs, l.reps)
	case *file.BooleanColumnChunkReader:
		l.bools = sized(l.bools)
		levels, l.nv, err = c.ReadBatch(leafBatch, l.bools, l.defs, l.reps)
	case *file.Int32ColumnChunkReader:
		l.int32s = sized(l.int32s)
		levels, l.nv, err = c.ReadBatch(leafBatch, l.int32s, l.defs, l.reps)
	case *file.Int64ColumnChunkReader:
		l.int64s = sized(l.int64s)
		levels, l.nv, err = c.ReadBatch(leafBatch, l.int64s, l.defs, l.reps)
	case *file.Int96ColumnChunkReader:
		l.int96s = sized(l.int96s)
		levels, l.nv, err = c.ReadBatch(leafBatch, l.int96s, l.defs, l.reps)
	case *file.Float32ColumnChunkReader:
		l.float32s = sized(l.float32s)
		levels, l.nv, err = c.ReadBatch(leafBatch, l.float32s, l.defs, l.reps)
	case *file.Float64ColumnChunkReader:
		l.float64s = sized(l.float64s)
		levels, l.nv, err = c.ReadBatch(leafBatch, l.float64s, l.defs, l.reps)
	default:
		return false, fmt.Errorf("column %s: a reader of type %T", strings.Join(l.path, "."), c)
	}
	l.n = int(levels)
	if err != nil {
		return false, fmt.Errorf("column %s: %w", strings.Join(l.path, "."), err)
	}
	if l.maxDef == 0 { // no levels are stored
		clear(l.defs[:l.n])
	}
	if l.maxRep == 0 {
		clear(l.reps[:l.n])
	}
	return l.n > 0, nil
}

func sized[T any](s []T) []T {
	if s == nil {
		return make([]T, leafBatch)
	}
	return s
}

// errShort: a column has fewer rows than its row group.
var errShort = errors.New("a column has fewer rows than the others")

// advance goes to the next row.
func (l *leaf) advance() error {
	l.has = false
	l.entries = nil
	if l.empty {
		l.def = 0
		return nil
	}
	if err := l.take(); err != nil {
		return err
	}
	if l.maxRep == 0 {
		return nil
	}
	// A list that is there has a level of its own, below those of an entry and of
	// an entry's value.
	there := l.maxDef - 1
	if l.desc.SchemaNode().RepetitionType() == parquet.Repetitions.Optional {
		there--
	}
	if l.def >= there {
		l.entries = []*string{}
	}
	for {
		switch {
		case l.has:
			s := l.text()
			l.entries = append(l.entries, &s)
		case l.def > there:
			l.entries = append(l.entries, nil)
		}
		if l.at == l.n {
			if ok, err := l.fill(); !ok {
				return err
			}
		}
		if l.reps[l.at] == 0 {
			return nil
		}
		if err := l.take(); err != nil {
			return err
		}
	}
}

func (l *leaf) take() error {
	if l.at == l.n {
		if ok, err := l.fill(); err != nil {
			return err
		} else if !ok {
			return errShort
		}
	}
	l.def = l.defs[l.at]
	l.at++
	if l.has = l.def == l.maxDef; l.has {
		if l.next >= l.nv {
			return errShort
		}
		l.value = l.next
		l.next++
	}
	return nil
}

// text is a copy of the current value.
func (l *leaf) text() string {
	switch {
	case l == nil || !l.has:
		return ""
	case l.texts != nil:
		return string(l.texts[l.value])
	case l.fixed != nil:
		return string(l.fixed[l.value])
	}
	return ""
}

// number is the current whole number; ok is false when there is none.
func (l *leaf) number() (n int64, ok bool) {
	switch {
	case l == nil || !l.has:
		return 0, false
	case l.int64s != nil:
		return l.int64s[l.value], true
	case l.int32s != nil:
		return int64(l.int32s[l.value]), true
	}
	return 0, false
}

func (l *leaf) numberRef() *int64 {
	if n, ok := l.number(); ok {
		return &n
	}
	return nil
}

func (l *leaf) textRef() *string {
	if l == nil || !l.has {
		return nil
	}
	s := l.text()
	return &s
}

// flag is the current boolean.
func (l *leaf) flag() bool { return l != nil && l.has && l.bools != nil && l.bools[l.value] }

// list is the current list; nil is null, and an entry that is null is left out.
func (l *leaf) list() []string {
	if l == nil || l.entries == nil {
		return nil
	}
	out := make([]string, 0, len(l.entries))
	for _, e := range l.entries {
		if e != nil {
			out = append(out, *e)
		}
	}
	return out
}

// pair is the two leaves of a map of texts.
type pair struct{ keys, values *leaf }

func (p pair) refs() map[string]*string {
	if p.keys == nil || p.keys.entries == nil {
		return nil
	}
	out := make(map[string]*string, len(p.keys.entries))
	for i, k := range p.keys.entries {
		if k != nil && p.values != nil && i < len(p.values.entries) {
			out[*k] = p.values.entries[i]
		}
	}
	return out
}

func (p pair) texts() map[string]string {
	refs := p.refs()
	if refs == nil {
		return nil
	}
	out := make(map[string]string, len(refs))
	for k, v := range refs {
		if v != nil {
			out[k] = *v
		}
	}
	return out
}

// statistic is the current value as the JSON of statistics has it; ok is false
// when it has none. upper tells bounds apart.
func (l *leaf) statistic(upper bool) (raw json.RawMessage, ok bool) {
	if !l.has {
		return nil, false
	}
	if l.bools != nil {
		return json.RawMessage(strconv.FormatBool(l.flag())), true
	}
	v, t := l.typed()
	// Bounds were cut to their length when they were written.
	return delta.BoundJSON(v, t, 1<<16, upper)
}

// typed is the current value with the Delta type that the Parquet type stands for.
func (l *leaf) typed() (any, delta.Type) {
	switch {
	case l.float32s != nil:
		return l.float32s[l.value], delta.Float
	case l.float64s != nil:
		return l.float64s[l.value], delta.Double
	case l.int96s != nil:
		return arrow.Timestamp(l.int96s[l.value].ToTime().UnixMicro()), delta.Timestamp
	}
	switch lt := l.desc.LogicalType().(type) {
	case schema.DecimalLogicalType:
		return l.decimal(int(lt.Precision()), int(lt.Scale()))
	case schema.TimestampLogicalType:
		n, _ := l.number()
		switch lt.TimeUnit() {
		case schema.TimeUnitMillis:
			n *= 1000
		case schema.TimeUnitNanos:
			n /= 1000
		}
		if lt.IsAdjustedToUTC() {
			return arrow.Timestamp(n), delta.Timestamp
		}
		return arrow.Timestamp(n), delta.TimestampNTZ
	case schema.DateLogicalType:
		n, _ := l.number()
		return arrow.Date32(n), delta.Date
	}
	if n, ok := l.number(); ok {
		return n, delta.Long
	}
	if l.fixed != nil {
		return nil, delta.Binary
	}
	return l.text(), delta.String
}

func (l *leaf) decimal(precision, scale int) (any, delta.Type) {
	t := delta.DecimalType{Precision: precision, Scale: scale}
	if n, ok := l.number(); ok {
		return delta.Decimal{Num: decimal128.FromI64(n), Scale: scale}, t
	}
	b := []byte(l.text())
	if len(b) == 0 || len(b) > 16 {
		return nil, t
	}
	n := new(big.Int).SetBytes(b)
	if b[0]&0x80 != 0 { // two's complement
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(len(b))*8))
	}
	if n.BitLen() > 127 {
		return nil, t
	}
	return delta.Decimal{Num: decimal128.FromBigInt(n), Scale: scale}, t
}

// statsObject puts statistics together from their leaves, as stats has them.
type statsObject struct {
	leaves []*leaf
}

// json is the current row's statistics; empty when there are none.
func (s statsObject) json() string {
	root := node{}
	for _, l := range s.leaves {
		path := l.path[2:] // below add.stats_parsed
		if raw, ok := l.statistic(path[0] == "maxValues"); ok {
			root.put(path, raw)
		}
	}
	if len(root.names) == 0 {
		return ""
	}
	var b bytes.Buffer
	root.write(&b)
	return b.String()
}

// node is a JSON object in the order of its columns.
type node struct {
	names []string
	kids  map[string]*node
	raw   json.RawMessage
}

func (n *node) put(path []string, raw json.RawMessage) {
	if len(path) == 0 {
		n.raw = raw
		return
	}
	k := n.kids[path[0]]
	if k == nil {
		if n.kids == nil {
			n.kids = map[string]*node{}
		}
		k = &node{}
		n.kids[path[0]], n.names = k, append(n.names, path[0])
	}
	k.put(path[1:], raw)
}

func (n *node) write(b *bytes.Buffer) {
	if n.raw != nil {
		b.Write(n.raw)
		return
	}
	b.WriteByte('{')
	for i, name := range n.names {
		if i > 0 {
			b.WriteByte(',')
		}
		quoted, _ := json.Marshal(name) // a string always can be
		b.Write(quoted)
		b.WriteByte(':')
		n.kids[name].write(b)
	}
	b.WriteByte('}')
}
