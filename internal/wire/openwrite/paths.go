package openwrite

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-project/firn/internal/wire"
)

// Names of the columns of a manifest that only names files.
const (
	columnPath      = "path"
	columnSize      = "size"
	columnRows      = "rows"
	columnPartition = "partition"
)

// columnAttempt is what tells a complete manifest from one that only names files.
const columnAttempt = "attempt"

// PathsSchema is the schema of a manifest that only names files. A writer may leave
// out every column but the path, and give them in any order.
func PathsSchema() *arrow.Schema { return pathsSchema() }

var pathsSchema = sync.OnceValue(func() *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{
		{Name: columnPath, Type: arrow.BinaryTypes.String},
		{Name: columnSize, Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: columnRows, Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: columnPartition, Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.BinaryTypes.String), Nullable: true},
	}, nil)
})

// IsPaths says whether a stream of this schema is a manifest that only names files,
// and not a complete one.
func IsPaths(s *arrow.Schema) bool { return len(s.FieldIndices(columnAttempt)) == 0 }

var errPaths = errors.New("malformed manifest of paths")

// Bounds on a row.
const (
	maxPathLen    = 8 << 10
	maxValues     = 1 << 10
	maxValueLen   = 64 << 10
	notSaid       = int64(-1)
	maxManifested = wire.MaxManifestRows
)

// CheckPathsSchema says whether batches of the schema can be read by DecodePaths.
func CheckPathsSchema(s *arrow.Schema) error {
	seen := map[string]bool{}
	for _, f := range s.Fields() {
		want, ok := PathsSchema().FieldsByName(f.Name)
		switch {
		case !ok && wire.ManifestSchema().HasField(f.Name):
			return fmt.Errorf("%w: column %q is one of complete manifests, and those have a column %q, which isn't there", errPaths, f.Name, columnAttempt)
		case !ok:
			return fmt.Errorf("%w: column %.64q isn't one of its schema", errPaths, f.Name)
		case seen[f.Name]:
			return fmt.Errorf("%w: column %q stands twice", errPaths, f.Name)
		case !sameType(f.Type, want[0].Type):
			return fmt.Errorf("%w: column %q is of type %.256s, want %s", errPaths, f.Name, f.Type, want[0].Type)
		}
		seen[f.Name] = true
	}
	if !seen[columnPath] {
		return fmt.Errorf("%w: it has no column %q", errPaths, columnPath)
	}
	return nil
}

// sameType compares types, of maps only those of keys and items: libraries don't
// agree on what else is in a map's type.
func sameType(got, want arrow.DataType) bool {
	g, ok := got.(*arrow.MapType)
	w, isMap := want.(*arrow.MapType)
	if ok && isMap {
		return arrow.TypeEqual(g.KeyType(), w.KeyType()) && arrow.TypeEqual(g.ItemType(), w.ItemType())
	}
	return arrow.TypeEqual(got, want)
}

// DecodePaths reads a batch of such a manifest. Only the form is checked.
func DecodePaths(b arrow.RecordBatch) (rows []PathsRow, err error) {
	// As for complete manifests: arrays that came over the wire are built on
	// unchecked offsets, and a panic in the library must not end the scheduler.
	defer func() {
		if p := recover(); p != nil {
			rows, err = nil, fmt.Errorf("%w: %v", errPaths, p)
		}
	}()
	if err := CheckPathsSchema(b.Schema()); err != nil {
		return nil, err
	}
	if b.NumRows() > maxManifested {
		return nil, fmt.Errorf("%w: %d rows, at most %d are allowed", errPaths, b.NumRows(), maxManifested)
	}
	if err := wire.CheckBatch(b); err != nil {
		return nil, fmt.Errorf("%w: %w", errPaths, err)
	}
	rows = make([]PathsRow, b.NumRows())
	for i := range rows {
		rows[i].Size, rows[i].Rows = notSaid, notSaid
	}
	for c, f := range b.Schema().Fields() {
		for i := range rows {
			if err := decodeCell(b.Column(c), f.Name, i, &rows[i]); err != nil {
				return nil, fmt.Errorf("%w: row %d: column %q: %w", errPaths, i, f.Name, err)
			}
		}
	}
	return rows, nil
}

func decodeCell(a arrow.Array, name string, i int, row *PathsRow) (err error) {
	if a.IsNull(i) {
		if name == columnPath {
			return errors.New("null")
		}
		return nil
	}
	switch name {
	case columnPath:
		row.Path, err = text(a.(*array.String), i, maxPathLen)
		if err == nil && row.Path == "" {
			err = errors.New("empty")
		}
	case columnSize:
		row.Size, err = count(a.(*array.Int64).Value(i))
	case columnRows:
		row.Rows, err = count(a.(*array.Int64).Value(i))
	case columnPartition:
		row.Partition, err = decodeValues(a.(*array.Map), i)
	}
	return err
}

func count(n int64) (int64, error) {
	if n < 0 {
		return n, fmt.Errorf("%d is negative", n)
	}
	return n, nil
}

func text(a *array.String, i, most int) (string, error) {
	s := a.Value(i)
	switch {
	case len(s) > most:
		return "", fmt.Errorf("%d bytes, at most %d are allowed", len(s), most)
	case !utf8.ValidString(s):
		return "", errors.New("it isn't UTF-8")
	}
	return strings.Clone(s), nil
}

func decodeValues(m *array.Map, i int) (map[string]*string, error) {
	from, to := m.ValueOffsets(i)
	if to-from > maxValues {
		return nil, fmt.Errorf("%d partition values, at most %d are allowed", to-from, maxValues)
	}
	keys, items := m.Keys().(*array.String), m.Items().(*array.String)
	out := make(map[string]*string, to-from)
	for j := int(from); j < int(to); j++ {
		if keys.IsNull(j) {
			return nil, errors.New("a name is null")
		}
		k, err := text(keys, j, maxValueLen)
		if err != nil {
			return nil, err
		}
		if _, twice := out[k]; twice {
			return nil, fmt.Errorf("%.64q stands twice", k)
		}
		out[k] = nil
		if items.IsNull(j) {
			continue
		}
		v, err := text(items, j, maxValueLen)
		if err != nil {
			return nil, err
		}
		out[k] = &v
	}
	return out, nil
}

// EncodePaths makes such a manifest, as a writer would. Values are in the order of
// their names, so that equal rows have equal bytes.
func EncodePaths(rows []PathsRow) (arrow.RecordBatch, error) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, PathsSchema())
	defer b.Release()
	paths, sizes, counts := b.Field(0).(*array.StringBuilder), b.Field(1).(*array.Int64Builder), b.Field(2).(*array.Int64Builder)
	values := b.Field(3).(*array.MapBuilder)
	keys, items := values.KeyBuilder().(*array.StringBuilder), values.ItemBuilder().(*array.StringBuilder)
	for _, r := range rows {
		if !utf8.ValidString(r.Path) {
			return nil, fmt.Errorf("%w: the path %q isn't UTF-8", errPaths, r.Path)
		}
		paths.Append(r.Path)
		appendCount(sizes, r.Size)
		appendCount(counts, r.Rows)
		if values.Append(r.Partition != nil); r.Partition == nil {
			continue
		}
		for _, k := range slices.Sorted(maps.Keys(r.Partition)) {
			keys.Append(k)
			if v := r.Partition[k]; v != nil {
				items.Append(*v)
			} else {
				items.AppendNull()
			}
		}
	}
	return b.NewRecordBatch(), nil
}

func appendCount(b *array.Int64Builder, n int64) {
	if n < 0 {
		b.AppendNull()
		return
	}
	b.Append(n)
}
