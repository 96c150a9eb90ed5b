package iceberg

import (
	"fmt"
	"strings"

	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/iceberg"
)

// converter turns the files of file manifests into Iceberg data files of one
// schema and spec.
type converter struct {
	schema *iceberg.Schema
	// spec has names that Avro takes.
	spec   iceberg.PartitionSpec
	fields []iceberg.NestedField
}

func newConverter(m *Metadata, u commit.Unit) (*converter, error) {
	schema, spec := m.schema(u.SchemaID), m.meta.PartitionSpecByID(u.SpecID)
	if schema == nil || spec == nil {
		return nil, fmt.Errorf("schema %d or spec %d is not in the table", u.SchemaID, u.SpecID)
	}
	fields, err := format.PartitionFields(schema, *spec)
	if err != nil {
		return nil, err
	}
	return &converter{schema, avroNames(*spec), fields}, nil
}

// avroNames renames the fields of a spec so that they can be fields of an Avro
// record: A-Z, a-z, 0-9 and _, no digit in front. The library doesn't, and can then
// neither write nor read the manifest. The escapes are those of Iceberg's Java
// library; readers go by the field ids, and by the table's own specs for names.
func avroNames(spec iceberg.PartitionSpec) iceberg.PartitionSpec {
	var fields []iceberg.PartitionField
	taken := map[string]bool{}
	for _, f := range spec.Fields() {
		f.Name = avroName(f.Name)
		if taken[f.Name] {
			f.Name = fmt.Sprintf("%s_%d", f.Name, f.FieldID)
		}
		taken[f.Name] = true
		fields = append(fields, f)
	}
	return iceberg.NewPartitionSpecID(spec.ID(), fields...)
}

func avroName(name string) string {
	var b strings.Builder
	for i, r := range name {
		switch {
		case r == '_', r >= 'A' && r <= 'Z', r >= 'a' && r <= 'z', r >= '0' && r <= '9' && i > 0:
			b.WriteRune(r)
		case r >= '0' && r <= '9':
			b.WriteString("_" + string(r))
		default:
			fmt.Fprintf(&b, "_x%X", r)
		}
	}
	return b.String()
}

func (c *converter) dataFile(f *commit.File) (iceberg.DataFile, error) {
	if f.SpecID != c.spec.ID() || f.SchemaID != c.schema.ID {
		return nil, fmt.Errorf("it was written with schema %d and spec %d, and its unit with %d and %d", f.SchemaID, f.SpecID, c.schema.ID, c.spec.ID())
	}
	if f.Format != "" && f.Format != string(iceberg.ParquetFile) {
		return nil, fmt.Errorf("the file format %q is not supported", f.Format)
	}
	partition, err := c.partition(f)
	if err != nil {
		return nil, err
	}
	b, err := iceberg.NewDataFileBuilder(c.spec, iceberg.EntryContentData, f.Path, iceberg.ParquetFile, partition, nil, nil, f.Rows, f.Size)
	if err != nil {
		return nil, err
	}
	b.SortOrderID(f.SortOrderID)
	for _, s := range []struct {
		set    func(map[int]int64) *iceberg.DataFileBuilder
		values map[int]int64
	}{
		{b.ColumnSizes, f.ColumnSizes},
		{b.ValueCounts, f.ValueCounts},
		{b.NullValueCounts, f.NullCounts},
		{b.NaNValueCounts, f.NaNCounts},
	} {
		if len(s.values) > 0 {
			s.set(s.values)
		}
	}
	if len(f.Lower) > 0 {
		b.LowerBoundValues(present(f.Lower))
	}
	if len(f.Upper) > 0 {
		b.UpperBoundValues(present(f.Upper))
	}
	if len(f.SplitOffsets) > 0 {
		b.SplitOffsets(f.SplitOffsets)
	}
	return b.Build(), nil
}

// present makes the bound of an empty string a present one.
func present(bounds map[int][]byte) map[int][]byte {
	out := make(map[int][]byte, len(bounds))
	for id, b := range bounds {
		if b == nil {
			b = []byte{}
		}
		out[id] = b
	}
	return out
}

// partition gives the tuple by field id, nil for null.
func (c *converter) partition(f *commit.File) (map[int]any, error) {
	if len(f.Partition) != len(c.fields) {
		return nil, fmt.Errorf("its partition has %d values, and the spec %d fields", len(f.Partition), len(c.fields))
	}
	out := make(map[int]any, len(c.fields))
	for i, field := range c.fields {
		v := f.Partition[i]
		if v.FieldID != field.ID {
			return nil, fmt.Errorf("partition value %d is of field %d, and the spec has field %d there", i, v.FieldID, field.ID)
		}
		if v.Null {
			out[field.ID] = nil
			continue
		}
		raw := v.Value
		if raw == nil {
			raw = []byte{}
		}
		value, err := format.DecodeValue(field.Type, raw)
		if err != nil {
			return nil, fmt.Errorf("partition field %s: %w", field.Name, err)
		}
		out[field.ID] = value
	}
	return out, nil
}
