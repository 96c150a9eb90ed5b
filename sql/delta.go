package sql

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/plan"
)

// defineDelta binds a CREATE TABLE of a Delta table. What Delta's own rules are
// for names and properties is seen to by whoever makes the log.
func defineDelta(src *source, ct *CreateTable, name commit.TableName) (TableDef, error) {
	def := TableDef{
		Name: name, IfNotExists: ct.IfNotExists, Format: "delta", Comment: ct.Comment, Location: ct.Location.Name, Properties: map[string]string{},
	}
	for _, p := range ct.Properties {
		def.Properties[p.Key] = p.Value
	}
	byPath := name.Catalog == deltaCatalog && len(name.Namespace) == 0
	switch {
	case byPath && def.Location != "":
		return def, undefinable(src, ct.Location.Offset, "the table's name is its location already", "Leave LOCATION out.")
	case len(ct.Columns) == 0 && def.Location == "":
		return def, undefinable(src, ct.Name[0].Offset, "the table has no columns", "Write them, or the LOCATION of a table that is there.")
	case len(ct.Columns) == 0:
		if len(ct.Partitions) > 0 || len(ct.Properties) > 0 || ct.Comment != "" {
			return def, undefinable(src, ct.Name[0].Offset, "a table that is there already has its own partitions, properties and comment", "Leave them out.")
		}
		return def, nil
	}
	schema := &delta.Struct{}
	seen := map[string]bool{}
	for _, c := range ct.Columns {
		lower := strings.ToLower(c.Name.Name)
		if seen[lower] {
			return def, undefinable(src, c.Name.Offset, "the column "+c.Name.Name+" stands twice; names must differ by more than case", "")
		}
		seen[lower] = true
		t, err := delta.FromDuckDBType(c.Type)
		if err != nil {
			return def, undefinable(src, c.Offset, "the column "+c.Name.Name+": "+err.Error(), "")
		}
		f := delta.Field{Name: c.Name.Name, Type: t, Nullable: !c.NotNull}
		if c.Comment != "" {
			text, err := json.Marshal(c.Comment)
			if err != nil {
				return def, undefinable(src, c.Offset, err.Error(), "")
			}
			f.Metadata = map[string]json.RawMessage{delta.KeyComment: text}
		}
		schema.Fields = append(schema.Fields, f)
	}
	partition := []string{}
	for _, p := range ct.Partitions {
		if p.Transform != "identity" {
			return def, undefinable(src, p.Offset, "Delta tables are partitioned by columns, and "+p.Transform+"(…) isn't one", "Add a column with that value.")
		}
		f := schema.Column(p.Column.Name)
		if f == nil {
			return def, undefinable(src, p.Column.Offset, "there's no column "+p.Column.Name+" to partition by", "")
		}
		partition = append(partition, f.Name)
	}
	text, err := delta.SchemaJSON(schema)
	if err == nil {
		def.SchemaJSON = []byte(text)
		def.SpecJSON, err = json.Marshal(partition)
	}
	if err != nil {
		return def, undefinable(src, ct.Name[0].Offset, err.Error(), "")
	}
	return def, nil
}

// readDeltaTarget is readTarget for a Delta table.
func readDeltaTarget(p plan.Pinned, refuse func(hint, cause string, args ...any) error) (*target, error) {
	if p.Unwritable != "" {
		return nil, refuse("Another engine may write it, or change the table so that Firn can.", "%s", p.Unwritable)
	}
	schema, err := delta.ParseSchema(string(p.SchemaJSON))
	if err != nil {
		return nil, refuse("", "its schema can't be read: %w", err)
	}
	partition, err := delta.ParsePartition(p.SpecJSON)
	if err != nil {
		return nil, refuse("", "%w", err)
	}
	t := &target{pinned: p, fileSize: defaultFileSize, distribution: "hash", partitioned: len(partition) > 0}
	for i, f := range schema.Fields {
		d, err := delta.DuckDBType(f.Type)
		if err != nil {
			return nil, refuse("", "its column %s can't be written: %w", f.Name, err)
		}
		t.types = append(t.types, d)
		t.fields = append(t.fields, field{Name: f.Name, ID: i + 1, Required: !f.Nullable, Type: literalType(f.Type), widens: func(from string) bool {
			return delta.Widens(from, f.Type)
		}})
	}
	if s, ok := p.Properties[delta.PropertyTargetFileSize]; ok {
		if t.fileSize, err = byteSize(s); err != nil {
			return nil, refuse("It is a number of bytes, or one with kb, mb or gb behind it.", "its property %s is %q", delta.PropertyTargetFileSize, s)
		}
	}
	return t, nil
}

// literalType is an Iceberg type that the same literals may become.
func literalType(t delta.Type) iceberg.Type {
	switch t := t.(type) {
	case delta.DecimalType:
		return iceberg.DecimalTypeOf(t.Precision, t.Scale)
	case *delta.Array:
		return &iceberg.ListType{Element: literalType(t.Element)}
	case *delta.Map:
		return &iceberg.MapType{KeyType: literalType(t.Key), ValueType: literalType(t.Value)}
	case *delta.Struct:
		s := &iceberg.StructType{}
		for _, f := range t.Fields {
			s.FieldList = append(s.FieldList, iceberg.NestedField{Name: f.Name, Type: literalType(f.Type)})
		}
		return s
	}
	switch t {
	case delta.Byte, delta.Short, delta.Integer:
		return iceberg.PrimitiveTypes.Int32
	case delta.Long:
		return iceberg.PrimitiveTypes.Int64
	case delta.Float:
		return iceberg.PrimitiveTypes.Float32
	case delta.Double:
		return iceberg.PrimitiveTypes.Float64
	case delta.Boolean:
		return iceberg.PrimitiveTypes.Bool
	case delta.Binary:
		return iceberg.PrimitiveTypes.Binary
	case delta.Date:
		return iceberg.PrimitiveTypes.Date
	case delta.Timestamp:
		return iceberg.PrimitiveTypes.TimestampTz
	case delta.TimestampNTZ:
		return iceberg.PrimitiveTypes.Timestamp
	}
	return iceberg.PrimitiveTypes.String
}

// byteSize reads a number of bytes, such as 128mb.
func byteSize(s string) (int64, error) {
	s = strings.ToLower(strings.TrimSpace(s))
	factor := int64(1)
	for _, u := range []struct {
		name string
		size int64
	}{{"gb", 1 << 30}, {"g", 1 << 30}, {"mb", 1 << 20}, {"m", 1 << 20}, {"kb", 1 << 10}, {"k", 1 << 10}, {"b", 1}} {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			s, factor = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 || n > 1<<40/factor {
		return 0, errors.New("it isn't a size")
	}
	return n * factor, nil
}

// describeDelta is what DESCRIBE and SHOW CREATE TABLE say of a Delta table.
func describeDelta(p plan.Pinned) (described, error) {
	d := described{pinned: p, using: "delta"}
	schema, err := delta.ParseSchema(string(p.SchemaJSON))
	if err != nil {
		return d, err
	}
	partition, err := delta.ParsePartition(p.SpecJSON)
	if err != nil {
		return d, err
	}
	for _, f := range schema.Fields {
		c := describedColumn{name: f.Name, nullable: f.Nullable}
		var known error
		if c.typ, known = delta.DuckDBType(f.Type); known != nil {
			c.typ = f.Type.String()
		}
		if raw, ok := f.Metadata[delta.KeyComment]; ok && json.Unmarshal(raw, &c.comment) != nil {
			c.comment = ""
		}
		d.columns = append(d.columns, c)
	}
	for _, name := range partition {
		for i := range d.columns {
			if strings.EqualFold(d.columns[i].name, name) {
				d.columns[i].partition = quoteIfNeeded(d.columns[i].name)
				d.terms = append(d.terms, d.columns[i].partition)
			}
		}
	}
	return d, nil
}

// history gives one row for each version.
func history(versions []TableVersion, r *Result) error {
	r.Columns = []string{"version", "timestamp", "operation", "parameters", "read_version", "blind_append", "metrics", "engine"}
	for _, v := range versions {
		row := []any{v.Version, v.At.Format("2006-01-02 15:04:05.000") + "Z", v.Operation, nil, nil, nil, nil, v.Engine}
		for i, m := range map[int]map[string]string{3: v.Parameters, 6: v.Metrics} {
			if len(m) == 0 {
				continue
			}
			text, err := json.Marshal(m)
			if err != nil {
				return fmt.Errorf("version %d: %w", v.Version, err)
			}
			row[i] = string(text)
		}
		if v.ReadVersion != nil {
			row[4] = *v.ReadVersion
		}
		if v.BlindAppend != nil {
			row[5] = *v.BlindAppend
		}
		r.Rows = append(r.Rows, row)
	}
	return nil
}
