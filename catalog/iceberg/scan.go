package iceberg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/iceberg"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
)

// Scan lists what a SELECT of the table reads: the live data files of one
// snapshot with the delete files that apply to each. version is a snapshot id, a
// branch or a tag; empty means the snapshot that p was pinned at, with the
// table's current schema. A named version is read with the schema that it was
// written with.
func (m *Metadata) Scan(ctx context.Context, store objstore.Store, p plan.Pinned, version string) (plan.Source, error) {
	name := p.Name.String()
	s, schema, err := m.version(p, version)
	if err != nil {
		return plan.Source{}, err
	}
	src := plan.Source{
		View:    append(append([]string{p.Name.Catalog}, p.Name.Namespace...), p.Name.Name),
		Kind:    plan.SourceTable,
		Table:   p.Name,
		Storage: p.Storage,
	}
	if src.Columns, err = columns(schema); err != nil {
		return plan.Source{}, newError(commit.CodeTableUnsupported, "read table", name, err)
	}
	if src.NameMapping, err = nameMapping(m.meta.Properties()[table.DefaultNameMappingKey]); err != nil {
		return plan.Source{}, newError(commit.CodeMetadataInvalid, "read table", name, err)
	}
	if s == nil {
		return src, nil
	}
	manifests, err := readManifestList(ctx, store, s)
	if err != nil {
		return plan.Source{}, newError(commit.CodeMetadataInvalid, "read table", name, err)
	}
	live, err := m.readEntries(ctx, store, manifests)
	if err != nil {
		if _, ok := errors.AsType[*unsupportedError](err); ok {
			return plan.Source{}, newError(commit.CodeTableUnsupported, "read table", name, err)
		}
		return plan.Source{}, newError(commit.CodeMetadataInvalid, "read table", name, err)
	}
	for _, e := range live.data {
		f := e.DataFile()
		file := plan.SourceFile{Path: f.FilePath(), Size: f.FileSizeBytes(), Rows: f.Count()}
		live.deletes.attach(e, &file)
		src.Files = append(src.Files, file)
	}
	return src, nil
}

// version finds the snapshot to read and its schema. The snapshot is nil for a
// table without one.
func (m *Metadata) version(p plan.Pinned, version string) (*table.Snapshot, *iceberg.Schema, error) {
	current := m.meta.CurrentSchema()
	if version == "" {
		if p.SnapshotID == "" {
			return nil, current, nil
		}
		id, err := strconv.ParseInt(p.SnapshotID, 10, 64)
		if err == nil {
			if s := m.meta.SnapshotByID(id); s != nil {
				return s, current, nil
			}
		}
		return nil, nil, m.noSnapshot(p.SnapshotID)
	}
	s := m.meta.SnapshotByName(version)
	if id, err := strconv.ParseInt(version, 10, 64); err == nil && m.meta.SnapshotByID(id) != nil {
		s = m.meta.SnapshotByID(id)
	}
	if s == nil {
		return nil, nil, m.noSnapshot(version)
	}
	if s.SchemaID != nil {
		if old := m.schema(*s.SchemaID); old != nil {
			return s, old, nil
		}
	}
	return s, current, nil
}

// newest is how many snapshots an error lists.
const newest = 5

func (m *Metadata) noSnapshot(version string) error {
	all := m.meta.Snapshots()
	slices.Reverse(all)
	var have []string
	for _, s := range all[:min(newest, len(all))] {
		have = append(have, strconv.FormatInt(s.SnapshotID, 10))
	}
	for name := range m.meta.Refs() {
		if name != commit.MainBranch {
			have = append(have, name)
		}
	}
	hint := "The table has no snapshots yet."
	if len(have) > 0 {
		hint = "The newest snapshots, branches and tags are " + strings.Join(have, ", ") + "; the metadata file " + m.pointer + " lists all of them."
	}
	return &commit.Error{
		Code: commit.CodeSnapshotNotFound, Op: "read table", Object: m.name.String(),
		Cause: fmt.Errorf("it has no snapshot, branch or tag %q", version), Hint: hint,
	}
}

// columns describes a schema to DuckDB.
func columns(s *iceberg.Schema) ([]plan.Column, error) {
	out := make([]plan.Column, 0, len(s.Fields()))
	for _, f := range s.Fields() {
		t, err := format.DuckDBType(f.Type)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", f.Name, err)
		}
		c := plan.Column{Name: f.Name, Type: t, FieldID: f.ID, Required: f.Required}
		if f.InitialDefault != nil {
			if c.Default, err = defaultLiteral(f.InitialDefault, t); err != nil {
				return nil, fmt.Errorf("column %s: %w", f.Name, err)
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// nameMapping gives the names of columns in files without field ids (Iceberg
// spec, Column Projection). A column that it doesn't have is in no such file.
func nameMapping(property string) (map[int][]string, error) {
	if property == "" {
		return nil, nil
	}
	var fields iceberg.NameMapping
	if err := json.Unmarshal([]byte(property), &fields); err != nil {
		return nil, fmt.Errorf("property %s: %w", table.DefaultNameMappingKey, err)
	}
	names := map[int][]string{}
	for _, f := range fields {
		if f.FieldID != nil {
			names[*f.FieldID] = f.Names
		}
	}
	return names, nil
}

// defaultLiteral writes an initial default as SQL. Values are as the metadata's
// JSON has them, which are forms that DuckDB casts from, except for bytes.
func defaultLiteral(v any, duckdbType string) (string, error) {
	var text string
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return "", fmt.Errorf("the default %v has no literal", v)
		}
		text = strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		text = v
	case fmt.Stringer:
		text = v.String()
	case int, int32, int64, float32:
		text = fmt.Sprint(v)
	default:
		return "", &unsupportedError{fmt.Sprintf("defaults of the form %T are not supported", v)}
	}
	if duckdbType == "BLOB" {
		return "from_hex('" + strings.ReplaceAll(text, "'", "''") + "')", nil
	}
	return "CAST('" + strings.ReplaceAll(text, "'", "''") + "' AS " + duckdbType + ")", nil
}

// unsupportedError names a part of the format that isn't read here.
type unsupportedError struct{ what string }

func (e *unsupportedError) Error() string { return e.what }

// entries are the live files of a snapshot.
type entries struct {
	data    []iceberg.ManifestEntry
	deletes *deleteIndex
}

func (m *Metadata) readEntries(ctx context.Context, store objstore.Store, manifests []iceberg.ManifestFile) (*entries, error) {
	out := &entries{deletes: newDeleteIndex(func(id int32) bool {
		spec := m.meta.PartitionSpecByID(int(id))
		return spec != nil && spec.IsUnpartitioned()
	})}
	for _, mf := range manifests {
		// Counts are -1 when a version 1 list doesn't have them.
		if mf.AddedDataFiles() == 0 && mf.ExistingDataFiles() == 0 {
			continue
		}
		for e, err := range mf.Entries(fileIO{ctx, store}, true) {
			if err != nil {
				return nil, fmt.Errorf("manifest %s: %w", mf.FilePath(), err)
			}
			f := e.DataFile()
			switch {
			case f.FileFormat() == iceberg.PuffinFile:
				return nil, &unsupportedError{"it has deletion vectors (format version 3), which this version of Firn doesn't read"}
			case f.FileFormat() != iceberg.ParquetFile:
				return nil, &unsupportedError{fmt.Sprintf("file %s is of the format %s, and only Parquet is read", f.FilePath(), f.FileFormat())}
			case mf.ManifestContent() == iceberg.ManifestContentDeletes:
				if err := out.deletes.add(e, mf.PartitionSpecID()); err != nil {
					return nil, err
				}
			default:
				out.data = append(out.data, e)
			}
		}
	}
	return out, nil
}
