package iceberg

import (
	"fmt"

	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/iceberg"
)

// converter turns the files of file manifests into entries of Iceberg manifests
// of one schema and spec.
type converter struct {
	version int
	schema  *iceberg.Schema
	spec    iceberg.PartitionSpec
	entries *entrySchema
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
	entries, err := newEntrySchema(m.meta.Version(), schema, fields)
	if err != nil {
		return nil, err
	}
	return &converter{m.meta.Version(), schema, *spec, entries}, nil
}

// check refuses a file that the manifest can't describe.
func (c *converter) check(f *commit.File) error {
	if f.SpecID != c.spec.ID() || f.SchemaID != c.schema.ID {
		return fmt.Errorf("it was written with schema %d and spec %d, and its unit with %d and %d", f.SchemaID, f.SpecID, c.schema.ID, c.spec.ID())
	}
	if f.Format != "" && f.Format != string(iceberg.ParquetFile) {
		return fmt.Errorf("the file format %q is not supported", f.Format)
	}
	if f.Path == "" || f.Rows <= 0 || f.Size <= 0 {
		return fmt.Errorf("a path, a number of rows and a size are needed, and it has %q, %d and %d", f.Path, f.Rows, f.Size)
	}
	return nil
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

// partition gives the tuple in the spec's order, nil for null.
func (c *converter) partition(f *commit.File) ([]any, error) {
	fields := c.entries.fields
	if len(f.Partition) != len(fields) {
		return nil, fmt.Errorf("its partition has %d values, and the spec %d fields", len(f.Partition), len(fields))
	}
	out := make([]any, len(fields))
	for i, field := range fields {
		v := f.Partition[i]
		if v.FieldID != field.ID {
			return nil, fmt.Errorf("partition value %d is of field %d, and the spec has field %d there", i, v.FieldID, field.ID)
		}
		if v.Null {
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
		out[i] = value
	}
	return out, nil
}
