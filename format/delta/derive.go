package delta

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/footer"
)

// Deriver says of a file that others wrote what a manifest needs, from its footer.
// It is safe for concurrent use.
type Deriver struct {
	schema           *Struct
	partition        []string
	schemaID, specID int
	byID             bool
	columns          []footer.Column
	// leaves are FileLeaves; indexed says which of them have statistics.
	leaves  []Leaf
	indexed []bool
	prefix  int
}

// partitionKey is the key of the first partition column among what is found; a
// leaf's key is its number.
const partitionKey = -1

// NewDeriver binds a table: its schema as the log has it, its partition columns,
// its properties and, if it is clustered, the configuration of ClusteringDomain.
func NewDeriver(schema string, partition []string, properties map[string]string, clustering []byte) (*Deriver, error) {
	d := &Deriver{
		partition: partition, schemaID: SchemaID(schema), specID: PartitionID(partition), prefix: StringPrefix(properties),
	}
	var err error
	if d.schema, err = ParseSchema(schema); err != nil {
		return nil, err
	}
	mapping, err := MappingOf(properties)
	if err != nil {
		return nil, err
	}
	d.byID = mapping == MappingID
	for _, name := range partition {
		if d.schema.Column(name) == nil {
			return nil, fmt.Errorf("the partition column %.200q isn't in the schema", name)
		}
	}
	var clustered [][]string
	if len(clustering) > 0 {
		if clustered, err = ClusteringColumns(string(clustering)); err != nil {
			return nil, err
		}
	}
	indexed, err := IndexedLeaves(d.schema, partition, properties, clustered...)
	if err != nil {
		return nil, err
	}
	d.leaves = FileLeaves(d.schema, partition)
	for _, l := range d.leaves {
		d.indexed = append(d.indexed, slices.ContainsFunc(indexed, func(x Leaf) bool { return slices.Equal(x.Path, l.Path) }))
	}
	number := 0
	for _, f := range d.schema.Fields {
		at := slices.Index(partition, f.Name)
		c, err := fileColumn(f, mapping, &number, at < 0)
		if err != nil {
			return nil, err
		}
		if at >= 0 {
			c.Key, c.Required = partitionKey-at, false // its values are in the log
		}
		d.columns = append(d.columns, c)
	}
	return d, nil
}

// otherKey is that of columns that aren't leaves in Delta's sense: structs, and
// what is in lists and maps.
const otherKey = 0

// fileColumn is a column as footer.Match looks for it. counted: its leaves have
// the numbers that follow.
func fileColumn(f Field, m Mapping, number *int, counted bool) (c footer.Column, err error) {
	c = footer.Column{Required: !f.Nullable, Key: otherKey}
	if c.Name, err = f.PhysicalName(m); err != nil {
		return c, err
	}
	if m != MappingNone {
		id, ok := f.FieldID()
		if !ok {
			return c, fmt.Errorf("column %.200q has no %s, though the table maps columns", f.Name, keyFieldID)
		}
		c.ID = int(id)
	}
	if s, ok := f.Type.(*Struct); ok {
		c.Shape = footer.Group
		c.Children, err = structColumns(s, m, number, counted)
		return c, err
	}
	if counted {
		*number++
		c.Key = *number
	}
	err = shapeColumn(&c, f.Type, m)
	return c, err
}

func structColumns(s *Struct, m Mapping, number *int, counted bool) ([]footer.Column, error) {
	var out []footer.Column
	for _, f := range s.Fields {
		c, err := fileColumn(f, m, number, counted)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// shapeColumn says what a column consists of that is no struct.
func shapeColumn(c *footer.Column, t Type, m Mapping) (err error) {
	inside := func(t Type, null bool) (in footer.Column, err error) {
		in = footer.Column{Name: "element", Required: !null, Key: otherKey}
		if s, ok := t.(*Struct); ok {
			in.Shape = footer.Group
			in.Children, err = structColumns(s, m, new(int), false)
			return in, err
		}
		err = shapeColumn(&in, t, m)
		return in, err
	}
	switch t := t.(type) {
	case *Array:
		c.Shape, c.Children = footer.Sequence, make([]footer.Column, 1)
		c.Children[0], err = inside(t.Element, t.ContainsNull)
	case *Map:
		c.Shape, c.Children = footer.Pairs, make([]footer.Column, 2)
		if c.Children[0], err = inside(t.Key, false); err != nil {
			return err
		}
		c.Children[1], err = inside(t.Value, t.ValueContainsNull)
	default:
		c.Fits = func(s footer.Type) error { return stores(s, t) }
	}
	return err
}

// stores says why values stored so aren't values of a column's type.
func stores(s footer.Type, t Type) error {
	integer := func(p footer.Physical, bits int) bool {
		return s.Physical == p && (s.Logical == footer.Integer && !s.Unsigned && s.Bits <= bits || s.Logical == footer.None && bits >= 32)
	}
	plain := s.Logical == footer.None
	var ok bool
	switch t {
	case Boolean:
		ok = s.Physical == footer.Boolean && plain
	case Byte:
		ok = integer(footer.Int32, 8)
	case Short:
		ok = integer(footer.Int32, 16)
	case Integer:
		ok = integer(footer.Int32, 32)
	case Long:
		ok = integer(footer.Int64, 64)
	case Float:
		ok = s.Physical == footer.Float && plain
	case Double:
		ok = s.Physical == footer.Double && plain
	case String:
		ok = s.Physical == footer.ByteArray && slices.Contains([]footer.Logical{footer.String, footer.Enum, footer.JSON}, s.Logical)
	case Binary:
		ok = s.Physical == footer.ByteArray && plain
	case Date:
		ok = s.Physical == footer.Int32 && s.Logical == footer.Date
	case Timestamp, TimestampNTZ:
		zoned := t == Timestamp
		ok = s.Physical == footer.Int64 && s.Logical == footer.Timestamp && s.Unit == footer.Micros && s.UTC == zoned ||
			zoned && s.Physical == footer.Int96 && plain // as Spark writes it
	default:
		d, decimal := t.(DecimalType)
		numeric := slices.Contains([]footer.Physical{footer.Int32, footer.Int64, footer.ByteArray, footer.FixedLenByteArray}, s.Physical)
		ok = decimal && numeric && s.Logical == footer.Decimal && s.Scale == d.Scale && s.Precision == d.Precision
	}
	if !ok {
		return fmt.Errorf("the table has %s", t)
	}
	return nil
}

// File describes a file by its footer: everything of a commit.File but the path
// and the attempt. The error is a *footer.Error where the file isn't as the table
// needs it, or where it isn't what the claim says.
func (d *Deriver) File(f *footer.Footer, claim footer.Claim) (commit.File, error) {
	if err := claim.Check(f, d.partition); err != nil {
		return commit.File{}, err
	}
	found, err := footer.Match(f.Root, d.columns, d.byID)
	if err != nil {
		return commit.File{}, err
	}
	out := commit.File{
		Format: "PARQUET", SchemaID: d.schemaID, SpecID: d.specID, Rows: f.Rows, Size: f.Size, SplitOffsets: f.Offsets,
		NullCounts: map[int]int64{}, Lower: map[int][]byte{}, Upper: map[int][]byte{},
	}
	for i, l := range d.leaves {
		n := found[i+1]
		if n == nil {
			continue
		}
		if c := d.schema.Column(l.Path[0]); len(l.Path) == 1 && !c.Nullable {
			out.NullCounts[i+1] = 0 // Match has seen to that
		}
		if !d.indexed[i] {
			continue
		}
		// How many lists or maps are null, their elements don't tell, unless none is.
		if nulls := n.Nulls(); nulls == 0 || nulls > 0 && n.Leaf != nil {
			out.NullCounts[i+1] = nulls
		}
		if n.Leaf == nil {
			continue
		}
		if raw, ok := BoundJSON(columnValue(l.Type, n.Leaf.Min), l.Type, d.prefix, false); ok {
			out.Lower[i+1] = raw
		}
		// A footer doesn't say whether there are NaNs, which engines have above all.
		if l.Type == Float || l.Type == Double {
			continue
		}
		if raw, ok := BoundJSON(columnValue(l.Type, n.Leaf.Max), l.Type, d.prefix, true); ok {
			out.Upper[i+1] = raw
		}
	}
	for i := range d.partition {
		v, err := d.partitionValue(i, found[partitionKey-i], f.Rows, claim)
		if err != nil {
			return commit.File{}, err
		}
		out.Partition = append(out.Partition, v)
	}
	return out, nil
}

// columnValue is a bound of a footer as a value of the type; nil when it is none.
func columnValue(t Type, b *footer.Bound) any {
	if b == nil {
		return nil
	}
	switch v := b.Value.(type) {
	case int64:
		switch t {
		case Byte:
			return int8(v)
		case Short:
			return int16(v)
		case Integer:
			return int32(v)
		case Date:
			return arrow.Date32(v)
		case Timestamp, TimestampNTZ:
			return arrow.Timestamp(v)
		}
		return v
	case decimal128.Num:
		if d, ok := t.(DecimalType); ok {
			return Decimal{v, d.Scale}
		}
		return nil
	case []byte:
		if t != String {
			return nil
		}
		return string(b.Letters())
	default:
		return v
	}
}

// partitionValue is the value of a partition column: the one that was handed in,
// held against the column if the file has it, or that of the column. n is nil when
// the file doesn't have it.
func (d *Deriver) partitionValue(i int, n *footer.Node, rows int64, claim footer.Claim) (commit.PartitionValue, error) {
	out := commit.PartitionValue{FieldID: i + 1, Null: true}
	c := d.schema.Column(d.partition[i])
	refuse := func(hint, why string, args ...any) (commit.PartitionValue, error) {
		return out, footer.Refuse(hint, "partition column %.200q: "+why, append([]any{c.Name}, args...)...)
	}
	said, handed := claim.Partition[d.partition[i]]
	hand, err := canonical(c.Type, said)
	if err != nil {
		return refuse("Hand in the text that partitionValues of the Delta log has for the value.", "%v", err)
	}
	if n == nil && !handed {
		return refuse("Hand the partition's values in: a Delta table's files needn't have the columns.", "the file doesn't have it, and the manifest has no value")
	}
	if n != nil {
		text, known, err := d.fileValue(c, n.Leaf, rows)
		switch {
		case err != nil:
			return out, err
		case known && handed && !equalText(text, hand):
			return refuse("Hand in the partition that the rows have, or none to have it derived.",
				"the manifest says %s, and the file has %s", textOrNull(hand), textOrNull(text))
		case known:
			hand = text
		case handed && !within(c.Type, hand, n.Leaf):
			return refuse("Hand in the partition that the rows have.", "the manifest says %s, which isn't within the file's bounds", textOrNull(hand))
		case !handed:
			return refuse(footer.HintStatistics, "the statistics don't show that all rows have one value")
		}
	}
	if hand == nil {
		if !c.Nullable {
			return refuse("Leave the rows out or give them a value.", "it may not be null")
		}
		return out, nil
	}
	return commit.PartitionValue{FieldID: i + 1, Value: []byte(*hand)}, nil
}

// canonical is the text of a value that was handed in as Firn writes it, so that
// equal partitions have equal texts. The empty text is null, as in the log.
func canonical(t Type, text *string) (*string, error) {
	if text == nil || *text == "" {
		return nil, nil
	}
	if !utf8.ValidString(*text) {
		return nil, errors.New("the value isn't UTF-8")
	}
	value, err := DecodePartitionValue(t, text)
	if err != nil {
		return nil, err
	}
	return EncodePartitionValue(t, value)
}

// fileValue is the one value that a partition column has in a file, as text; known
// is false when the statistics don't tell.
func (d *Deriver) fileValue(c *Field, l *footer.Leaf, rows int64) (text *string, known bool, err error) {
	lo, hi := columnValue(c.Type, l.Min), columnValue(c.Type, l.Max)
	switch {
	case l.Nulls == rows:
		return nil, true, nil
	case l.Nulls > 0:
		return nil, false, footer.Refuse(footer.HintSplit, "partition column %.200q: the file spans two partitions: %d of its %d rows have null, and the others haven't",
			c.Name, l.Nulls, rows)
	case lo == nil || hi == nil:
		return nil, false, nil
	case footer.Compare(l.Min.Value, l.Max.Value) != 0:
		if !l.Min.Exact || !l.Max.Exact {
			return nil, false, nil
		}
		return nil, false, footer.Refuse(footer.HintSplit, "partition column %.200q: the file spans two partitions: it has %v and %v", c.Name, lo, hi)
	case l.Nulls < 0 || c.Type == Float || c.Type == Double:
		return nil, false, nil // there may be nulls or NaNs beside it
	}
	text, err = EncodePartitionValue(c.Type, lo)
	if err != nil {
		return nil, false, footer.Refuse(footer.HintSchema, "partition column %.200q: %v", c.Name, err)
	}
	return text, true, nil
}

// within says whether a value can be that of a column with the leaf's bounds.
func within(t Type, text *string, l *footer.Leaf) bool {
	lo, hi := columnValue(t, l.Min), columnValue(t, l.Max)
	if text == nil {
		return lo == nil && hi == nil && l.Nulls != 0
	}
	v, err := DecodePartitionValue(t, text)
	if err != nil {
		return false
	}
	below, ok := Compare(v, lo)
	if ok && below < 0 {
		return false
	}
	above, ok := Compare(v, hi)
	return !ok || above <= 0
}

func equalText(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

func textOrNull(s *string) string {
	if s == nil {
		return "null"
	}
	return fmt.Sprintf("%.200q", *s)
}
