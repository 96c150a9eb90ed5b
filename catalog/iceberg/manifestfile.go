package iceberg

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/apache/iceberg-go"
	"github.com/twmb/avro/ocf"

	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/iceberg"
)

// entry is a manifest's row for a file that a snapshot adds. Sequence numbers
// are null: they are inherited from the manifest list.
type entry struct {
	Status       int32    `avro:"status"`
	Snapshot     *int64   `avro:"snapshot_id"`
	Sequence     *int64   `avro:"sequence_number"`
	FileSequence *int64   `avro:"file_sequence_number"`
	File         dataFile `avro:"data_file"`
}

// dataFile has the fields of all format versions; the schema picks its own.
type dataFile struct {
	Content        int32            `avro:"content"`
	Path           string           `avro:"file_path"`
	Format         string           `avro:"file_format"`
	Partition      map[string]any   `avro:"partition"`
	Rows           int64            `avro:"record_count"`
	Size           int64            `avro:"file_size_in_bytes"`
	BlockSize      int64            `avro:"block_size_in_bytes"`
	ColumnSizes    *[]keyed[int64]  `avro:"column_sizes"`
	ValueCounts    *[]keyed[int64]  `avro:"value_counts"`
	NullCounts     *[]keyed[int64]  `avro:"null_value_counts"`
	NaNCounts      *[]keyed[int64]  `avro:"nan_value_counts"`
	DistinctCounts *[]keyed[int64]  `avro:"distinct_counts"`
	Lower          *[]keyed[[]byte] `avro:"lower_bounds"`
	Upper          *[]keyed[[]byte] `avro:"upper_bounds"`
	Key            *[]byte          `avro:"key_metadata"`
	Splits         *[]int64         `avro:"split_offsets"`
	EqualityIDs    *[]int32         `avro:"equality_ids"`
	SortOrder      *int32           `avro:"sort_order_id"`
	FirstRowID     *int64           `avro:"first_row_id"`
	Referenced     *string          `avro:"referenced_data_file"`
	ContentOffset  *int64           `avro:"content_offset"`
	ContentSize    *int64           `avro:"content_size_in_bytes"`
}

// keyed is an element of a map by field id, as Avro has it.
type keyed[V any] struct {
	Key   int32 `avro:"key"`
	Value V     `avro:"value"`
}

// byID gives a map's elements by ascending id, nil for none.
func byID[V any](m map[int]V) *[]keyed[V] {
	if len(m) == 0 {
		return nil
	}
	out := make([]keyed[V], 0, len(m))
	for _, id := range slices.Sorted(maps.Keys(m)) {
		out = append(out, keyed[V]{int32(id), m[id]})
	}
	return &out
}

// manifestWriter writes one Iceberg manifest of added data files and gathers
// its entry in the manifest list.
type manifestWriter struct {
	conv      *converter
	ocf       *ocf.Writer
	snapshot  int64
	version   int
	files     int32
	rows      int64
	summaries []summary
}

func newManifestWriter(version int, w io.Writer, conv *converter, snapshot int64) (*manifestWriter, error) {
	schema, err := json.Marshal(conv.schema)
	if err != nil {
		return nil, err
	}
	fields := make([]iceberg.PartitionField, conv.spec.NumFields())
	for i := range fields {
		fields[i] = conv.spec.Field(i)
	}
	spec, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	out, err := ocf.NewWriter(w, conv.entries.codec,
		ocf.WithSchema(conv.entries.text),
		ocf.WithMetadata(map[string][]byte{
			"schema":            schema,
			"schema-id":         []byte(strconv.Itoa(conv.schema.ID)),
			"partition-spec":    spec,
			"partition-spec-id": []byte(strconv.Itoa(conv.spec.ID())),
			"format-version":    []byte(strconv.Itoa(version)),
			"content":           []byte("data"),
		}),
		ocf.WithCodec(ocf.DeflateCodec(-1)))
	if err != nil {
		return nil, err
	}
	return &manifestWriter{conv: conv, ocf: out, snapshot: snapshot, version: version, summaries: make([]summary, len(conv.entries.fields))}, nil
}

// add writes the entry of one file. values is its partition.
func (m *manifestWriter) add(f *commit.File, values []any) error {
	partition := make(map[string]any, len(values))
	for i, c := range m.conv.entries.fields {
		partition[c.name] = c.avroValue(values[i])
		if err := m.summaries[i].add(values[i], f.Partition[i].Value); err != nil {
			return err
		}
	}
	sorted := int32(f.SortOrderID)
	e := entry{Status: int32(iceberg.EntryStatusADDED), Snapshot: &m.snapshot, File: dataFile{
		Path: f.Path, Format: string(iceberg.ParquetFile), Partition: partition, Rows: f.Rows, Size: f.Size,
		// Format version 1 requires a number here that nobody reads.
		BlockSize:   64 << 20,
		ColumnSizes: byID(f.ColumnSizes), ValueCounts: byID(f.ValueCounts), NullCounts: byID(f.NullCounts), NaNCounts: byID(f.NaNCounts),
		Lower: byID(present(f.Lower)), Upper: byID(present(f.Upper)), SortOrder: &sorted,
	}}
	if len(f.SplitOffsets) > 0 {
		e.File.Splits = &f.SplitOffsets
	}
	if err := m.ocf.Encode(&e); err != nil {
		return err
	}
	m.files++
	m.rows += f.Rows
	return nil
}

// close ends the file, which has size bytes then, and describes it.
func (m *manifestWriter) close(path string, size func() int64) (iceberg.ManifestFile, error) {
	if err := m.ocf.Close(); err != nil {
		return nil, err
	}
	partitions := make([]iceberg.FieldSummary, len(m.summaries))
	for i := range m.summaries {
		partitions[i] = m.summaries[i].summary()
	}
	return iceberg.NewManifestFile(m.version, path, size(), int32(m.conv.spec.ID()), m.snapshot).
		Content(iceberg.ManifestContentData).
		AddedFiles(m.files).AddedRows(m.rows).
		ExistingFiles(0).ExistingRows(0).DeletedFiles(0).DeletedRows(0).
		Partitions(partitions).Build(), nil
}

// summary is what a manifest list says of one partition field. A bound is never
// nil when a value was there: the empty string's is empty, and a nil bound beside
// contains_null false would have every reader prune the manifest with all its rows.
type summary struct {
	null, nan          bool
	lower, upper       any
	lowerRaw, upperRaw []byte
}

func (s *summary) add(v any, raw []byte) error {
	if v == nil {
		s.null = true
		return nil
	}
	if isNaN(v) {
		s.nan = true
		return nil
	}
	if s.lower == nil {
		s.lower, s.upper, s.lowerRaw, s.upperRaw = v, v, raw, raw
		return nil
	}
	c, err := format.CompareValues(v, s.lower)
	if err != nil {
		return err
	}
	if c < 0 {
		s.lower, s.lowerRaw = v, raw
	}
	if c, err = format.CompareValues(v, s.upper); err != nil {
		return err
	}
	if c > 0 {
		s.upper, s.upperRaw = v, raw
	}
	return nil
}

func isNaN(v any) bool {
	switch v := v.(type) {
	case float32:
		return v != v
	case float64:
		return v != v
	}
	return false
}

func (s *summary) summary() iceberg.FieldSummary {
	out := iceberg.FieldSummary{ContainsNull: s.null, ContainsNaN: &s.nan}
	if s.lower != nil {
		lower, upper := append([]byte{}, s.lowerRaw...), append([]byte{}, s.upperRaw...)
		out.LowerBound, out.UpperBound = &lower, &upper
	}
	return out
}
