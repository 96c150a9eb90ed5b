package wire

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/firn-project/firn/commit"
)

// Bounds on what a file manifest may hold. They are far above anything that a
// writer makes and exist so that a hostile executor can't make the scheduler
// allocate without end: what is decoded is never much larger than the batch.
const (
	// MaxManifestRows is the most rows that one batch of a manifest may have.
	MaxManifestRows = 1 << 20
	maxPathLen      = 8 << 10
	maxNameLen      = 256
	maxPartition    = 1 << 10
	maxEntries      = 1 << 16
	maxValueLen     = 1 << 20
)

// errManifest is wrapped by every error of DecodeManifest.
var errManifest = errors.New("malformed file manifest")

// DecodeManifest reads a file manifest; see EachFile.
func DecodeManifest(b arrow.RecordBatch) (files []commit.File, err error) {
	err = EachFile(b, func(f commit.File) error {
		files = append(files, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if files == nil {
		files = []commit.File{}
	}
	return files, nil
}

// EachFile reads a file manifest, one file after the other. Its input is untrusted: a
// batch of another schema, with nulls, with numbers out of range, with a key twice or
// with absurd sizes is an error. Only the form is checked here; whether the
// files may be committed is verified by the committer. Empty maps and lists
// come back as nil. Files may have been given before an error is found.
func EachFile(b arrow.RecordBatch, each func(commit.File) error) (err error) {
	// The checks below are meant to be complete. The arrays of a batch that
	// came over the wire are built by a library on unchecked offsets, though,
	// and a panic in there must not end the scheduler.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errManifest, p)
		}
	}()
	if err := checkManifest(b); err != nil {
		return fmt.Errorf("%w: %w", errManifest, err)
	}
	for i := range int(b.NumRows()) {
		var f commit.File
		if err := decodeFile(b, i, &f); err != nil {
			return fmt.Errorf("%w: row %d, of %.512q: %w", errManifest, i, f.Path, err)
		}
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}

// checkManifest compares the batch's schema with ours and refuses nulls, at
// every level.
func checkManifest(b arrow.RecordBatch) error {
	if err := checkSchema(b.Schema()); err != nil {
		return err
	}
	if b.NumRows() > MaxManifestRows {
		return fmt.Errorf("%d rows, at most %d are allowed", b.NumRows(), MaxManifestRows)
	}
	for i, c := range b.Columns() {
		if got := c.DataType(); !arrow.TypeEqual(got, ManifestSchema().Field(i).Type) {
			return fmt.Errorf("column %q is of type %.256s, not the schema's", b.ColumnName(i), got)
		}
		if got := c.Len(); int64(got) != b.NumRows() {
			return fmt.Errorf("column %q has %d values for %d rows", b.ColumnName(i), got, b.NumRows())
		}
	}
	// Only now is a loop over an array's length known to end.
	if err := CheckBatch(b); err != nil {
		return err
	}
	for i, c := range b.Columns() {
		if err := checkNulls(c); err != nil {
			return fmt.Errorf("column %q: %w", b.ColumnName(i), err)
		}
	}
	return nil
}

// CheckManifestSchema says whether the batches of a stream are file manifests. It is
// for streams: a hostile one would otherwise be read to its first batch.
func CheckManifestSchema(s *arrow.Schema) error {
	if err := checkSchema(s); err != nil {
		return fmt.Errorf("%w: %w", errManifest, err)
	}
	return nil
}

func checkSchema(got *arrow.Schema) error {
	want := ManifestSchema()
	for _, f := range want.Fields() {
		if !got.HasField(f.Name) {
			return fmt.Errorf("it has no column %q", f.Name)
		}
	}
	for _, f := range got.Fields() {
		if !want.HasField(f.Name) {
			return fmt.Errorf("column %.64q isn't one of its schema", f.Name)
		}
	}
	if got.NumFields() != want.NumFields() {
		return fmt.Errorf("%d columns, want %d", got.NumFields(), want.NumFields())
	}
	for i, f := range want.Fields() {
		if g := got.Field(i); g.Name != f.Name {
			return fmt.Errorf("column %d is %.64q, want %q: they stand in the schema's order", i, g.Name, f.Name)
		} else if !arrow.TypeEqual(g.Type, f.Type) {
			return fmt.Errorf("column %q is of type %.256s, want %s", f.Name, g.Type, f.Type)
		}
	}
	return nil
}

// checkNulls refuses nulls in the array and in what it nests. A null count is a
// claim of the sender, so each value is asked.
func checkNulls(a arrow.Array) error {
	for i := range a.Len() {
		if a.IsNull(i) {
			return fmt.Errorf("null at %d", i)
		}
	}
	switch a := a.(type) {
	case array.ListLike: // lists and maps
		return checkNulls(a.ListValues())
	case *array.Struct:
		for i := range a.NumField() {
			if err := checkNulls(a.Field(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func decodeFile(b arrow.RecordBatch, i int, f *commit.File) (err error) {
	for _, s := range []struct {
		col, most int
		to        *string
	}{{colPath, maxPathLen, &f.Path}, {colFormat, maxNameLen, &f.Format}, {colAttempt, maxNameLen, &f.Attempt}} {
		if *s.to, err = text(b, s.col, i, s.most); err != nil {
			return err
		}
	}
	i32 := func(col int) int { return int(b.Column(col).(*array.Int32).Value(i)) }
	i64 := func(col int) int64 { return b.Column(col).(*array.Int64).Value(i) }
	f.SchemaID, f.SpecID, f.SortOrderID = i32(colSchemaID), i32(colSpecID), i32(colSortOrderID)
	f.Rows, f.Size = i64(colRows), i64(colSize)
	if f.Rows < 0 || f.Size < 0 {
		return fmt.Errorf("%d rows in %d bytes", f.Rows, f.Size)
	}
	if f.Partition, err = decodePartition(b.Column(colPartition).(*array.List), i); err != nil {
		return err
	}
	for _, m := range []struct {
		col int
		to  *map[int]int64
	}{{colColumnSizes, &f.ColumnSizes}, {colValueCounts, &f.ValueCounts}, {colNullCounts, &f.NullCounts}, {colNaNCounts, &f.NaNCounts}} {
		if *m.to, err = decodeMap(b, m.col, i, count); err != nil {
			return err
		}
	}
	if f.Lower, err = decodeMap(b, colLower, i, value); err != nil {
		return err
	}
	if f.Upper, err = decodeMap(b, colUpper, i, value); err != nil {
		return err
	}
	f.SplitOffsets, err = decodeOffsets(b.Column(colSplitOffsets).(*array.List), i)
	return err
}

func text(b arrow.RecordBatch, col, i, most int) (string, error) {
	s := b.Column(col).(*array.String).Value(i)
	if len(s) > most {
		return "", fmt.Errorf("%s of %d bytes, at most %d are allowed", b.ColumnName(col), len(s), most)
	}
	if !utf8.ValidString(s) {
		return "", fmt.Errorf("%s isn't UTF-8", b.ColumnName(col))
	}
	return strings.Clone(s), nil
}

func decodePartition(l *array.List, i int) ([]commit.PartitionValue, error) {
	from, to := l.ValueOffsets(i)
	if to-from > maxPartition {
		return nil, fmt.Errorf("%d partition values, at most %d are allowed", to-from, maxPartition)
	}
	if to == from {
		return nil, nil
	}
	row := l.ListValues().(*array.Struct)
	ids, nulls := row.Field(0).(*array.Int32), row.Field(1).(*array.Boolean)
	out := make([]commit.PartitionValue, 0, to-from)
	for j := int(from); j < int(to); j++ {
		v, err := value(row.Field(2), j)
		if err != nil {
			return nil, err
		}
		p := commit.PartitionValue{FieldID: int(ids.Value(j)), Null: nulls.Value(j), Value: v}
		if p.Null {
			p.Value = nil
		}
		out = append(out, p)
	}
	return out, nil
}

func decodeMap[V any](b arrow.RecordBatch, col, i int, item func(arrow.Array, int) (V, error)) (map[int]V, error) {
	m := b.Column(col).(*array.Map)
	from, to := m.ValueOffsets(i)
	if to-from > maxEntries {
		return nil, fmt.Errorf("%s has %d entries, at most %d are allowed", b.ColumnName(col), to-from, maxEntries)
	}
	if to == from {
		return nil, nil
	}
	keys := m.Keys().(*array.Int32)
	out := make(map[int]V, to-from)
	for j := int(from); j < int(to); j++ {
		v, err := item(m.Items(), j)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.ColumnName(col), err)
		}
		k := int(keys.Value(j))
		if _, twice := out[k]; twice {
			return nil, fmt.Errorf("%s has field %d twice", b.ColumnName(col), k)
		}
		out[k] = v
	}
	return out, nil
}

func count(a arrow.Array, i int) (int64, error) {
	v := a.(*array.Int64).Value(i)
	if v < 0 {
		return 0, fmt.Errorf("negative count %d", v)
	}
	return v, nil
}

// value copies a binary value, since the batch's memory doesn't outlive it. A
// present, empty value stays present.
func value(a arrow.Array, i int) ([]byte, error) {
	v := a.(*array.Binary).Value(i)
	if len(v) > maxValueLen {
		return nil, fmt.Errorf("value of %d bytes, at most %d are allowed", len(v), maxValueLen)
	}
	return append([]byte{}, v...), nil
}

func decodeOffsets(l *array.List, i int) ([]int64, error) {
	from, to := l.ValueOffsets(i)
	if to-from > maxEntries {
		return nil, fmt.Errorf("%d split offsets, at most %d are allowed", to-from, maxEntries)
	}
	var out []int64
	last := int64(-1)
	for _, v := range l.ListValues().(*array.Int64).Int64Values()[from:to] {
		if v <= last {
			return nil, errors.New("split offsets don't ascend")
		}
		last = v
		out = append(out, v)
	}
	return out, nil
}
