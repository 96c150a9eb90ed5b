package iceberg

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/iceberg-go"
	"github.com/google/uuid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/footer"
)

// nameMappingKey is the table property that gives the columns of files without
// field ids by their names.
const nameMappingKey = "schema.name-mapping.default"

// Deriver says of a file that others wrote what a manifest needs, from its footer.
// It is safe for concurrent use.
type Deriver struct {
	schema     *iceberg.Schema
	fields     []boundField
	fieldNames []string
	specID     int
	modes      map[int]MetricsMode
	columns    []footer.Column
	leaves     map[int]leaf
	names      []iceberg.MappedField
}

// NewDeriver binds a table. The properties are the table's.
func NewDeriver(schema *iceberg.Schema, spec iceberg.PartitionSpec, properties map[string]string) (*Deriver, error) {
	d := &Deriver{schema: schema, specID: spec.ID(), leaves: map[int]leaf{}}
	var err error
	if d.modes, err = MetricsModes(schema, properties); err != nil {
		return nil, err
	}
	for i := range spec.NumFields() {
		b, err := bindField(schema, spec.Field(i))
		if err != nil {
			return nil, err
		}
		d.fields, d.fieldNames = append(d.fields, b), append(d.fieldNames, b.Name)
	}
	if text, ok := properties[nameMappingKey]; ok {
		if err := json.Unmarshal([]byte(text), &d.names); err != nil {
			return nil, fmt.Errorf("property %s: %w", nameMappingKey, err)
		}
	}
	for _, l := range leaves(schema.Fields()) {
		d.leaves[l.ID] = l
	}
	d.columns, err = fileColumns(schema.Fields())
	return d, err
}

// fileColumns are the columns as footer.Match looks for them.
func fileColumns(fields []iceberg.NestedField) ([]footer.Column, error) {
	out := make([]footer.Column, len(fields))
	for i, f := range fields {
		c := footer.Column{Name: f.Name, ID: f.ID, Key: f.ID, Required: f.Required}
		var inner []iceberg.NestedField
		switch t := f.Type.(type) {
		case *iceberg.StructType:
			c.Shape, inner = footer.Group, t.FieldList
		case *iceberg.ListType:
			c.Shape, inner = footer.Sequence, t.Fields()
		case *iceberg.MapType:
			c.Shape, inner = footer.Pairs, t.Fields()
		default:
			if _, err := arrowType(f.Type, f.Name); err != nil {
				return nil, err
			}
			c.Fits = func(stored footer.Type) error { return stores(stored, f.Type) }
		}
		var err error
		if c.Children, err = fileColumns(inner); err != nil {
			return nil, err
		}
		out[i] = c
	}
	return out, nil
}

// stores says why values stored so aren't values of a column's type. A type that
// a column may be promoted from is one that its older files have.
func stores(s footer.Type, t iceberg.Type) error {
	signed := func(bits int) bool {
		return s.Logical == footer.None || s.Logical == footer.Integer && !s.Unsigned && s.Bits <= bits
	}
	ok := false
	switch t := t.(type) {
	case iceberg.BooleanType:
		ok = s.Physical == footer.Boolean && s.Logical == footer.None
	case iceberg.Int32Type:
		ok = s.Physical == footer.Int32 && signed(32)
	case iceberg.Int64Type:
		ok = (s.Physical == footer.Int64 || s.Physical == footer.Int32) && signed(64)
	case iceberg.Float32Type:
		ok = s.Physical == footer.Float && s.Logical == footer.None
	case iceberg.Float64Type:
		ok = (s.Physical == footer.Double || s.Physical == footer.Float) && s.Logical == footer.None
	case iceberg.DecimalType:
		numeric := slices.Contains([]footer.Physical{footer.Int32, footer.Int64, footer.ByteArray, footer.FixedLenByteArray}, s.Physical)
		ok = numeric && s.Logical == footer.Decimal && s.Scale == t.Scale() && s.Precision <= t.Precision()
	case iceberg.DateType:
		ok = s.Physical == footer.Int32 && s.Logical == footer.Date
	case iceberg.TimeType:
		ok = s.Physical == footer.Int64 && s.Logical == footer.Time && s.Unit == footer.Micros
	case iceberg.TimestampType, iceberg.TimestampTzType:
		_, zoned := t.(iceberg.TimestampTzType)
		if s.Physical == footer.Int96 {
			return errors.New("an Iceberg table's timestamps are INT64 in microseconds (in Spark, set spark.sql.parquet.outputTimestampType to TIMESTAMP_MICROS)")
		}
		ok = s.Physical == footer.Int64 && s.Logical == footer.Timestamp && s.Unit == footer.Micros && s.UTC == zoned
	case iceberg.StringType:
		ok = s.Physical == footer.ByteArray && slices.Contains([]footer.Logical{footer.String, footer.Enum, footer.JSON}, s.Logical)
	case iceberg.UUIDType:
		ok = s.Physical == footer.FixedLenByteArray && s.Length == 16 && (s.Logical == footer.UUID || s.Logical == footer.None)
	case iceberg.FixedType:
		ok = s.Physical == footer.FixedLenByteArray && s.Length == t.Len() && s.Logical == footer.None
	case iceberg.BinaryType:
		ok = s.Physical == footer.ByteArray && s.Logical == footer.None
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
	if err := claim.Check(f, d.fieldNames); err != nil {
		return commit.File{}, err
	}
	if err := d.identify(f.Root); err != nil {
		return commit.File{}, err
	}
	found, err := footer.Match(f.Root, d.columns, true)
	if err != nil {
		return commit.File{}, err
	}
	out := commit.File{
		Format: "PARQUET", SchemaID: d.schema.ID, SpecID: d.specID, Rows: f.Rows, Size: f.Size, SplitOffsets: f.Offsets,
		ColumnSizes: map[int]int64{}, ValueCounts: map[int]int64{}, NullCounts: map[int]int64{}, NaNCounts: map[int]int64{},
		Lower: map[int][]byte{}, Upper: map[int][]byte{},
	}
	for id, n := range found {
		l, plain := d.leaves[id]
		mode := d.modes[id]
		if !plain || !mode.Counts {
			continue
		}
		out.ColumnSizes[id], out.ValueCounts[id] = n.Leaf.Bytes, n.Leaf.Values
		if n.Leaf.Nulls >= 0 {
			out.NullCounts[id] = n.Leaf.Nulls
		}
		if l.repeated || !mode.Bounds {
			continue
		}
		if b := lowerBound(l.Type, n.Leaf.Min, mode.Length); b != nil {
			out.Lower[id] = b
		}
		if b := upperBound(l.Type, n.Leaf.Max, mode.Length); b != nil {
			out.Upper[id] = b
		}
	}
	for _, b := range d.fields {
		var leaf *footer.Leaf
		if n := found[b.SourceID()]; n != nil && b.Path != nil {
			leaf = n.Leaf
		}
		text, said := claim.Partition[b.Name]
		hand, err := readHanded(b, text, said)
		if err != nil {
			return commit.File{}, err
		}
		v, err := derivePartition(b, leaf, f.Rows, hand)
		if err != nil {
			return commit.File{}, err
		}
		out.Partition = append(out.Partition, v)
	}
	return out, nil
}

// identify gives the columns of a file without any field id those that the table's
// name mapping has for their names.
func (d *Deriver) identify(root *footer.Node) error {
	if anyID(root) {
		return nil
	}
	if d.names == nil {
		return footer.Refuse(footer.HintIDs, "its columns have no field ids, and the table has no name mapping (property %s)", nameMappingKey)
	}
	mapNames(root.Children, d.names)
	return nil
}

func anyID(n *footer.Node) bool { return n.HasID || slices.ContainsFunc(n.Children, anyID) }

func mapNames(nodes []*footer.Node, names []iceberg.MappedField) {
	for _, n := range nodes {
		i := slices.IndexFunc(names, func(f iceberg.MappedField) bool { return slices.Contains(f.Names, n.Name) })
		if i < 0 || names[i].FieldID == nil {
			continue
		}
		n.ID, n.HasID = *names[i].FieldID, true
		children := n.Children
		if (n.Type.Logical == footer.List || n.Type.Logical == footer.Map) && len(children) == 1 {
			// The mapping names the element, the key and the value by these names,
			// whatever the file calls them.
			children = children[0].Children
			for j, c := range children {
				if name := [...]string{"key", "value"}; n.Type.Logical == footer.Map && j < len(name) {
					c.Name = name[j]
				} else {
					c.Name = "element"
				}
			}
		}
		mapNames(children, names[i].Fields)
	}
}

// tableValue is a value of a footer as one of the column's type; nil when it is
// none.
func tableValue(t iceberg.Type, v any) any {
	switch v := v.(type) {
	case bool, float64:
		return v
	case float32:
		if _, double := t.(iceberg.Float64Type); double {
			return float64(v)
		}
		return v
	case int64:
		switch t.(type) {
		case iceberg.Int32Type:
			return int32(v)
		case iceberg.DateType:
			return iceberg.Date(v)
		case iceberg.TimeType:
			return iceberg.Time(v)
		case iceberg.TimestampType, iceberg.TimestampTzType:
			return iceberg.Timestamp(v)
		}
		return v
	case decimal128.Num:
		if d, ok := t.(iceberg.DecimalType); ok {
			return iceberg.Decimal{Val: v, Scale: d.Scale()}
		}
	case []byte:
		switch t.(type) {
		case iceberg.StringType:
			if utf8.Valid(v) {
				return string(v)
			}
		case iceberg.UUIDType:
			if len(v) == 16 {
				return uuid.UUID(v)
			}
		default:
			return v
		}
	}
	return nil
}

func lowerBound(t iceberg.Type, b *footer.Bound, length int) []byte {
	if b == nil {
		return nil
	}
	switch t.(type) {
	case iceberg.StringType:
		if raw := b.Letters(); utf8.Valid(raw) {
			return truncateLowerString(raw, length)
		}
		return nil
	case iceberg.BinaryType:
		return truncateLowerBytes(b.Value.([]byte), length)
	}
	return encodeBound(t, b.Value, -1)
}

func upperBound(t iceberg.Type, b *footer.Bound, length int) []byte {
	if b == nil {
		return nil
	}
	switch t.(type) {
	case iceberg.StringType:
		if raw := b.Value.([]byte); utf8.Valid(raw) {
			return truncateUpperString(raw, length)
		}
		return nil
	case iceberg.BinaryType:
		return truncateUpperBytes(b.Value.([]byte), length)
	}
	return encodeBound(t, b.Value, 1)
}

// encodeBound serialises a bound; nil when it has no value of the type.
func encodeBound(t iceberg.Type, v any, side int) []byte {
	v = tableValue(t, v)
	switch f := v.(type) {
	case float32:
		lo, hi := zeroBounds(float64(f), float64(f))
		if v = float32(lo); side > 0 {
			v = float32(hi)
		}
	case float64:
		lo, hi := zeroBounds(f, f)
		if v = lo; side > 0 {
			v = hi
		}
	case nil:
		return nil
	}
	b, err := EncodeValue(t, v)
	if err != nil {
		return nil
	}
	return b
}
