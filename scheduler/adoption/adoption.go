package adoption

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/journal"
)

// FormatOf is the format of the table that a unit was written for, by its partition
// spec: Iceberg's is an object, Delta's a list of columns.
func FormatOf(u journal.Unit) string {
	if bytes.HasPrefix(bytes.TrimSpace(u.SpecJSON), []byte("[")) {
		return "delta"
	}
	return "iceberg"
}

// Fit checks that the files may go into the target, and makes them files of its
// schema and partition spec. The error says why they may not.
func Fit(u journal.Unit, target plan.Pinned, files commit.Files) (commit.Files, error) {
	format := FormatOf(u)
	if target.Format != "" && target.Format != format {
		return files, fmt.Errorf("table %s is of format %s, and the files were written for one of format %s", target.Name, target.Format, format)
	}
	fit := fitIceberg
	if format == "delta" {
		fit = fitDelta
	}
	schema, spec, err := fit(u, target, files)
	if err != nil {
		return files, err
	}
	var out commit.Packer
	for _, f := range files.All() {
		f.SchemaID, f.SpecID = schema, spec
		out.Add(f)
	}
	return out.Files(), nil
}

// fitDelta wants the same columns in the same order: files number their statistics
// by them.
func fitDelta(u journal.Unit, target plan.Pinned, files commit.Files) (schema, spec int, err error) {
	from, err := delta.ParseSchema(string(u.SchemaJSON))
	if err != nil {
		return 0, 0, err
	}
	to, err := delta.ParseSchema(string(target.SchemaJSON))
	if err != nil {
		return 0, 0, err
	}
	if !delta.Equal(from, to) {
		return 0, 0, fmt.Errorf("its files don't fit table %s: it has the columns %s, and they have %s", target.Name, to, from)
	}
	by, err := delta.ParsePartition(u.SpecJSON)
	if err != nil {
		return 0, 0, err
	}
	wants, err := delta.ParsePartition(target.SpecJSON)
	if err != nil {
		return 0, 0, err
	}
	if !slices.Equal(by, wants) {
		return 0, 0, fmt.Errorf("table %s is partitioned in another way than the files", target.Name)
	}
	for i := range files.Len() {
		if !strings.HasPrefix(files.Path(i), target.Location+"/") {
			return 0, 0, fmt.Errorf("the files lie outside the directory of table %s, %s", target.Name, target.Location)
		}
	}
	return delta.SchemaID(string(target.SchemaJSON)), delta.PartitionID(wants), nil
}

func fitIceberg(u journal.Unit, target plan.Pinned, _ commit.Files) (schema, spec int, err error) {
	var from, to struct {
		schema tableSchema
		spec   tableSpec
	}
	for _, d := range []struct {
		raw []byte
		v   any
	}{{u.SchemaJSON, &from.schema}, {u.SpecJSON, &from.spec}, {target.SchemaJSON, &to.schema}, {target.SpecJSON, &to.spec}} {
		if err := json.Unmarshal(d.raw, d.v); err != nil {
			return 0, 0, errors.Join(errors.New("the schemas can't be read"), err)
		}
	}
	if why := from.schema.misfit(to.schema); why != "" {
		return 0, 0, fmt.Errorf("its files don't fit table %s: %s", target.Name, why)
	}
	if !reflect.DeepEqual(from.spec.Fields, to.spec.Fields) {
		return 0, 0, fmt.Errorf("table %s is partitioned in another way than the files", target.Name)
	}
	return to.schema.ID, to.spec.ID, nil
}

// tableSchema is what Fit compares of a table's schema.
type tableSchema struct {
	ID     int `json:"schema-id"`
	Fields []struct {
		ID       int    `json:"id"`
		Name     string `json:"name"`
		Required bool   `json:"required"`
		Type     any    `json:"type"`
	} `json:"fields"`
}

// tableSpec is what Fit compares of a partition spec.
type tableSpec struct {
	ID     int `json:"spec-id"`
	Fields []struct {
		SourceID  int    `json:"source-id"`
		FieldID   int    `json:"field-id"`
		Transform string `json:"transform"`
	} `json:"fields"`
}

// misfit says why files of schema s can't be read as files of schema to; empty
// when they can: each field is there with the same id, name and type, and
// nothing that to requires is missing.
func (s tableSchema) misfit(to tableSchema) string {
	written := map[int]int{}
	for i, f := range s.Fields {
		written[f.ID] = i
	}
	found := 0
	for _, f := range to.Fields {
		i, ok := written[f.ID]
		switch {
		case !ok && f.Required:
			return fmt.Sprintf("column %s is required and they don't have it", f.Name)
		case !ok:
			continue
		case s.Fields[i].Name != f.Name || !reflect.DeepEqual(s.Fields[i].Type, f.Type):
			return fmt.Sprintf("field %d is %s %v there and %s %v in the files", f.ID, f.Name, f.Type, s.Fields[i].Name, s.Fields[i].Type)
		case f.Required && !s.Fields[i].Required:
			return fmt.Sprintf("column %s is required there and may be null in the files", f.Name)
		}
		found++
	}
	if found < len(s.Fields) {
		return "they have columns that the table doesn't have"
	}
	return ""
}
