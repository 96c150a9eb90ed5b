package iceberg

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	parquetschema "github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/iceberg"
	"github.com/firn-project/firn/sinks"
	"github.com/firn-project/firn/sinks/parquetfile"
)

const propPrefix = "write.parquet."

// newParquetOptions reads what the table's properties say of its files.
func newParquetOptions(schema *arrow.Schema, table *iceberg.Schema, properties map[string]string) (*parquetfile.Options, error) {
	p := propertyReader{properties: properties}
	s := parquetfile.Defaults()
	s.Limits = sinks.Limits{
		RowGroupBytes: p.number("row-group-size-bytes", s.Limits.RowGroupBytes, 1, math.MaxInt64),
		RowGroupRows:  p.number("row-group-limit", s.Limits.RowGroupRows, 1, math.MaxInt32),
	}
	s.PageBytes = p.number("page-size-bytes", s.PageBytes, 1, math.MaxInt32)
	s.PageRows = p.number("page-row-limit", s.PageRows, 1, math.MaxInt32)
	s.DictionaryBytes = p.number("dict-size-bytes", s.DictionaryBytes, 1, math.MaxInt32)
	s.PageVersion = p.pageVersion()
	s.Dictionary = p.flag("parquet.enable.dictionary", s.Dictionary)
	p.compression(&s)
	// A column's properties are named by its path in the table.
	s.DictionaryFor = func(c *parquetschema.Column) (on, said bool) {
		name, _ := table.FindColumnName(int(c.SchemaNode().FieldID()))
		key := propPrefix + "dict-encoding-enabled.column." + name
		_, said = properties[key]
		return p.flag(key, true), said
	}
	if p.err != nil {
		return nil, p.err
	}
	o, err := parquetfile.NewOptions(schema, s)
	if err != nil {
		return nil, err
	}
	return o, p.err
}

// propertyReader reads properties and keeps the first error.
type propertyReader struct {
	properties map[string]string
	err        error
}

func (p *propertyReader) fail(key, value, want string) {
	if p.err == nil {
		p.err = fmt.Errorf("property %s: %q isn't %s", key, value, want)
	}
}

func (p *propertyReader) number(name string, def, least, most int64) int64 {
	s, ok := p.properties[propPrefix+name]
	if !ok {
		return def
	}
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n < least || n > most {
		p.fail(propPrefix+name, s, fmt.Sprintf("a number from %d to %d", least, most))
		return def
	}
	return n
}

func (p *propertyReader) flag(key string, def bool) bool {
	s, ok := p.properties[key]
	if !ok {
		return def
	}
	b, err := strconv.ParseBool(strings.ToLower(s))
	if err != nil {
		p.fail(key, s, "true or false")
	}
	return b
}

// pageVersion defaults to version 1, which every reader knows.
func (p *propertyReader) pageVersion() parquet.DataPageVersion {
	key := propPrefix + "page-version"
	switch s := p.properties[key]; strings.ToLower(s) {
	case "", "1", "v1":
	case "2", "v2":
		return parquet.DataPageV2
	default:
		p.fail(key, s, "v1 or v2")
	}
	return parquet.DataPageV1
}

func (p *propertyReader) compression(s *parquetfile.Settings) {
	key := propPrefix + "compression-codec"
	if name := p.properties[key]; name != "" {
		var err error
		if s.Codec, err = parquetfile.CodecOf(name); err != nil && p.err == nil {
			p.err = fmt.Errorf("property %s: %w", key, err)
		}
	}
	least, most, leveled := parquetfile.Levels(s.Codec)
	if _, ok := p.properties[propPrefix+"compression-level"]; ok && leveled {
		level := int(p.number("compression-level", 0, least, most))
		s.Level = &level
	}
}

// encoder writes one Parquet file.
type encoder struct {
	layout    *layout
	partition sinks.Partition
	writer    *parquetfile.Writer
	metrics   *format.Metrics
}

func newEncoder(l *layout, w io.Writer, p sinks.Partition) (*encoder, error) {
	fw, err := parquetfile.NewWriter(w, l.parquet)
	if err != nil {
		return nil, err
	}
	return &encoder{layout: l, partition: p, writer: fw, metrics: format.NewMetrics(l.schema, l.modes)}, nil
}

// WriteRowGroup implements sinks.Encoder.
func (e *encoder) WriteRowGroup(rows arrow.RecordBatch) error {
	if err := e.metrics.Add(rows); err != nil {
		return err
	}
	return e.writer.WriteRowGroup(rows)
}

// Finish implements sinks.Encoder.
func (e *encoder) Finish() (f commit.File, err error) {
	footer, err := e.writer.Close("iceberg.schema", e.layout.schemaJSON)
	if err != nil {
		return f, err
	}
	f = commit.File{
		Format: "PARQUET", SchemaID: e.layout.schema.ID, SpecID: e.layout.spec.ID(),
		Partition: e.partition.Values, Rows: e.writer.Rows(),
	}
	if err := e.metrics.Fill(&f); err != nil {
		return f, err
	}
	return f, e.readFooter(footer, &f)
}

// readFooter takes from the footer what only it knows: sizes, offsets, and the
// counts of columns in lists and maps.
func (e *encoder) readFooter(footer *metadata.FileMetaData, f *commit.File) error {
	f.ColumnSizes = map[int]int64{}
	repeated, uncounted := map[int]bool{}, map[int]bool{}
	for g := range footer.NumRowGroups() {
		rg := footer.RowGroup(g)
		for c := range rg.NumColumns() {
			chunk, err := rg.ColumnChunk(c)
			if err != nil {
				return err
			}
			if c == 0 {
				f.SplitOffsets = append(f.SplitOffsets, parquetfile.StartOf(chunk))
			}
			id := int(footer.Schema.Column(c).SchemaNode().FieldID())
			if !e.layout.modes[id].Counts {
				continue
			}
			f.ColumnSizes[id] += chunk.TotalCompressedSize()
			if _, counted := f.ValueCounts[id]; counted && !repeated[id] {
				continue
			}
			repeated[id] = true
			f.ValueCounts[id] += chunk.NumValues()
			stats, err := chunk.Statistics()
			if err != nil {
				return err
			}
			if stats == nil || !stats.HasNullCount() {
				uncounted[id] = true
				continue
			}
			f.NullCounts[id] += stats.NullCount()
		}
	}
	for id := range uncounted {
		delete(f.NullCounts, id)
	}
	return nil
}
