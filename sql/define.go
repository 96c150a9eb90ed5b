package sql

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/iceberg"
)

// firstPartitionFieldID is what the Iceberg spec starts partition fields at.
const firstPartitionFieldID = 1000

// define binds a CREATE TABLE: types, ids, partition fields.
func define(src *source, ct *CreateTable, name commit.TableName) (TableDef, error) {
	switch {
	case ct.Location.Name != "":
		return TableDef{}, src.errorAt(commit.CodeSQLUnsupportedStatement, "parse statement", ct.Location.Offset,
			"LOCATION isn't supported: the catalog chooses where its tables lie", "`firn table register` adopts a table that lies elsewhere.")
	case len(ct.Columns) == 0:
		return TableDef{}, undefinable(src, ct.Name[0].Offset, "the table has no columns", "")
	}
	schema, err := defineSchema(src, ct)
	if err != nil {
		return TableDef{}, err
	}
	spec, err := defineSpec(src, ct, schema)
	if err != nil {
		return TableDef{}, err
	}
	def := TableDef{
		Name: name, IfNotExists: ct.IfNotExists, Format: "iceberg", Comment: ct.Comment,
		Properties: map[string]string{},
	}
	for _, p := range ct.Properties {
		def.Properties[p.Key] = p.Value
	}
	if ct.Comment != "" {
		def.Properties["comment"] = ct.Comment
	}
	if def.SchemaJSON, err = json.Marshal(schema); err != nil {
		return def, undefinable(src, ct.Name[0].Offset, err.Error(), "")
	}
	if def.SpecJSON, err = json.Marshal(spec); err != nil {
		return def, undefinable(src, ct.Name[0].Offset, err.Error(), "")
	}
	// What was written must read back: by then it's too late for a message
	// that knows the statement.
	back, err := format.ParseSchema(def.SchemaJSON)
	if err == nil {
		_, err = format.ParseSpec(def.SpecJSON, back)
	}
	if err != nil {
		return def, undefinable(src, ct.Name[0].Offset, err.Error(), "")
	}
	return def, nil
}

func undefinable(src *source, offset int, cause, hint string) error {
	return src.errorAt(commit.CodeSQLDefinition, "create table", offset, cause, hint)
}

// reservedColumns are names of Iceberg's metadata columns, which readers add
// to every table.
var reservedColumns = setOf("_file _pos _deleted _spec_id _partition _row_id _last_updated_sequence_number")

// defineSchema assigns ids as Java does: all columns first, then what is
// nested in them, level by level.
func defineSchema(src *source, ct *CreateTable) (*iceberg.Schema, error) {
	id := len(ct.Columns)
	nextID := func() int { id++; return id }
	fields := make([]iceberg.NestedField, len(ct.Columns))
	seen := map[string]string{}
	for i, c := range ct.Columns {
		lower := strings.ToLower(c.Name.Name)
		if other, ok := seen[lower]; ok {
			cause := "the column " + c.Name.Name + " stands twice"
			if other != c.Name.Name {
				cause = fmt.Sprintf("the columns %s and %s differ only in case", other, c.Name.Name)
			}
			return nil, undefinable(src, c.Name.Offset, cause, "Queries match names without regard to case.")
		}
		seen[lower] = c.Name.Name
		if reservedColumns[lower] {
			return nil, undefinable(src, c.Name.Offset, "the name "+c.Name.Name+" is reserved: readers add a column of that name", "Choose another name.")
		}
		t, err := format.FromDuckDBType(c.Type, nextID)
		if err != nil {
			return nil, undefinable(src, c.Offset, "the column "+c.Name.Name+": "+err.Error(), "")
		}
		fields[i] = iceberg.NestedField{ID: i + 1, Name: c.Name.Name, Type: t, Required: c.NotNull, Doc: c.Comment}
	}
	return iceberg.NewSchema(0, fields...), nil
}

// defineSpec names the partition fields as Java does.
func defineSpec(src *source, ct *CreateTable, schema *iceberg.Schema) (iceberg.PartitionSpec, error) {
	var fields []iceberg.PartitionField
	names := map[string]bool{}
	var columns []string
	for _, c := range ct.Columns {
		columns = append(columns, c.Name.Name)
	}
	for _, p := range ct.Partitions {
		f, ok := findColumn(schema.Fields(), p.Column.Name)
		if !ok {
			hint := "Its columns are " + strings.Join(columns, ", ") + "."
			if near := nearest(p.Column.Name, columns); near != "" {
				hint = "Did you mean " + near + "? " + hint
			}
			return iceberg.PartitionSpec{}, undefinable(src, p.Column.Offset, "there's no column "+p.Column.Name+" to partition by", hint)
		}
		t, suffix := transformOf(p)
		if !t.CanTransform(f.Type) {
			return iceberg.PartitionSpec{}, undefinable(src, p.Offset,
				fmt.Sprintf("%s can't be taken of the column %s of type %s", p.Transform, f.Name, f.Type), transformHint(f.Type))
		}
		name := f.Name + suffix
		if names[name] {
			return iceberg.PartitionSpec{}, undefinable(src, p.Offset, "the partition field "+name+" stands twice", "")
		}
		if other, ok := findColumn(schema.Fields(), name); ok && other.ID != f.ID {
			return iceberg.PartitionSpec{}, undefinable(src, p.Offset,
				"the partition field would be called "+name+", as a column of the table is", "Rename the column.")
		}
		names[name] = true
		fields = append(fields, iceberg.PartitionField{
			SourceIDs: []int{f.ID}, FieldID: firstPartitionFieldID + len(fields), Name: name, Transform: t,
		})
	}
	return iceberg.NewPartitionSpecID(0, fields...), nil
}

// findColumn looks a column up: as written, or without regard to case. Fields
// inside a struct aren't columns.
func findColumn(fields []iceberg.NestedField, name string) (iceberg.NestedField, bool) {
	i := slices.IndexFunc(fields, func(f iceberg.NestedField) bool { return f.Name == name })
	if i < 0 {
		i = slices.IndexFunc(fields, func(f iceberg.NestedField) bool { return strings.EqualFold(f.Name, name) })
	}
	if i < 0 {
		return iceberg.NestedField{}, false
	}
	return fields[i], true
}

func transformOf(p PartitionTerm) (t iceberg.Transform, suffix string) {
	switch p.Transform {
	case "bucket":
		return iceberg.BucketTransform{NumBuckets: p.Param}, "_bucket"
	case "truncate":
		return iceberg.TruncateTransform{Width: p.Param}, "_trunc"
	case "year":
		return iceberg.YearTransform{}, "_year"
	case "month":
		return iceberg.MonthTransform{}, "_month"
	case "day":
		return iceberg.DayTransform{}, "_day"
	case "hour":
		return iceberg.HourTransform{}, "_hour"
	case "void":
		return iceberg.VoidTransform{}, "_null"
	}
	return iceberg.IdentityTransform{}, ""
}

// transformHint names what can be taken of a type.
func transformHint(t iceberg.Type) string {
	var can []string
	for _, name := range []string{"identity", "bucket", "truncate", "year", "month", "day", "hour"} {
		if t2, _ := transformOf(PartitionTerm{Transform: name, Param: 1}); t2.CanTransform(t) {
			can = append(can, name)
		}
	}
	if can == nil {
		return "A column of that type can't be partitioned by."
	}
	return "Of that type can be taken: " + strings.Join(can, ", ") + "."
}
