package iceberg

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/iceberg"
	"github.com/firn-project/firn/sinks"
)

const propPrefix = "write.parquet."

// parquetOptions is what the table's properties say of its files.
type parquetOptions struct {
	limits sinks.Limits
	props  *parquet.WriterProperties
	arrow  pqarrow.ArrowWriterProperties
	// dictionary says of each of the table's columns whether it's a text column
	// that may have a dictionary.
	dictionary []bool
}

// codecs are the names that write.parquet.compression-codec takes. Parquet's
// own "lz4" is a framing of Hadoop's that others read wrongly; lz4_raw is what
// is written for it.
var codecs = map[string]compress.Compression{
	"zstd": compress.Codecs.Zstd, "gzip": compress.Codecs.Gzip, "snappy": compress.Codecs.Snappy,
	"brotli": compress.Codecs.Brotli, "lz4": compress.Codecs.Lz4Raw, "lz4_raw": compress.Codecs.Lz4Raw,
	"uncompressed": compress.Codecs.Uncompressed, "none": compress.Codecs.Uncompressed,
}

// levels are the compression levels that a codec takes; the others have none.
var levels = map[compress.Compression][2]int64{
	compress.Codecs.Zstd: {-5, 22}, compress.Codecs.Gzip: {0, 9}, compress.Codecs.Brotli: {0, 11},
}

func newParquetOptions(schema *arrow.Schema, table *iceberg.Schema, properties map[string]string) (parquetOptions, error) {
	p := propertyReader{properties: properties}
	o := parquetOptions{limits: sinks.Limits{
		RowGroupBytes: p.number("row-group-size-bytes", 128<<20, 1, math.MaxInt64),
		RowGroupRows:  p.number("row-group-limit", 1<<20, 1, math.MaxInt32),
	}}
	opts := []parquet.WriterProperty{
		parquet.WithRootName("table"),
		parquet.WithStoreDecimalAsInteger(true),
		parquet.WithMaxRowGroupLength(math.MaxInt64),
		parquet.WithDataPageSize(p.number("page-size-bytes", 1<<20, 1, math.MaxInt32)),
		parquet.WithBatchSize(p.number("page-row-limit", 20000, 1, math.MaxInt32)),
		parquet.WithDictionaryPageSizeLimit(p.number("dict-size-bytes", 2<<20, 1, math.MaxInt32)),
		parquet.WithDataPageVersion(p.pageVersion()),
		parquet.WithDictionaryDefault(p.flag("parquet.enable.dictionary", true)),
	}
	opts = append(opts, p.compression()...)
	if p.err != nil {
		return o, p.err
	}
	// The columns' Parquet paths are known once the schema is; a column's
	// properties are named by its path in the table.
	o.arrow = pqarrow.NewArrowWriterProperties()
	sc, err := pqarrow.ToParquet(schema, nil, o.arrow)
	if err != nil {
		return o, err
	}
	for i := range sc.NumColumns() {
		c := sc.Column(i)
		// A column of all different values is hashed for nothing.
		opts = append(opts, parquet.WithDictionaryCostFallbackFor(c.Path(), true))
		name, _ := table.FindColumnName(int(c.SchemaNode().FieldID()))
		key := propPrefix + "dict-encoding-enabled.column." + name
		if _, ok := properties[key]; ok {
			opts = append(opts, parquet.WithDictionaryFor(c.Path(), p.flag(key, true)))
		}
	}
	o.props = parquet.NewWriterProperties(opts...)
	for _, f := range schema.Fields() {
		o.dictionary = append(o.dictionary, f.Type.ID() == arrow.STRING && o.props.DictionaryEnabledFor(f.Name))
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

func (p *propertyReader) compression() []parquet.WriterProperty {
	key := propPrefix + "compression-codec"
	name := strings.ToLower(p.properties[key])
	if name == "" {
		name = "zstd"
	}
	codec, ok := codecs[name]
	if !ok {
		p.fail(key, name, "one of zstd, gzip, snappy, brotli, lz4, lz4_raw and uncompressed")
	}
	opts := []parquet.WriterProperty{parquet.WithCompression(codec)}
	bounds, leveled := levels[codec]
	if _, ok := p.properties[propPrefix+"compression-level"]; ok && leveled {
		opts = append(opts, parquet.WithCompressionLevel(int(p.number("compression-level", 0, bounds[0], bounds[1]))))
	} else if codec == compress.Codecs.Zstd {
		opts = append(opts, parquet.WithCompressionLevel(defaultZstdLevel))
	}
	return opts
}

// encoder writes one Parquet file.
type encoder struct {
	layout    *layout
	partition sinks.Partition
	writer    *pqarrow.FileWriter
	metrics   *format.Metrics
	rows      int64
}

func newEncoder(l *layout, w io.Writer, p sinks.Partition) (*encoder, error) {
	fw, err := pqarrow.NewFileWriter(l.arrow, onlyWriter{w}, l.parquet.props, l.parquet.arrow)
	if err != nil {
		return nil, err
	}
	return &encoder{layout: l, partition: p, writer: fw, metrics: format.NewMetrics(l.schema, l.modes)}, nil
}

// onlyWriter hides every other method of a writer, Close above all.
type onlyWriter struct{ io.Writer }

// WriteRowGroup implements sinks.Encoder. The library and the codec panic in
// places; that must not end the executor's process.
func (e *encoder) WriteRowGroup(rows arrow.RecordBatch) (err error) {
	defer recovered(&err)
	if err := e.metrics.Add(rows); err != nil {
		return err
	}
	e.rows += rows.NumRows()
	return e.writer.Write(rowGroup{rows, &e.layout.parquet})
}

func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the Parquet library gave up: %v", p)
	}
}

// Finish implements sinks.Encoder.
func (e *encoder) Finish() (f commit.File, err error) {
	defer recovered(&err)
	if err := e.writer.AppendKeyValueMetadata("iceberg.schema", e.layout.schemaJSON); err != nil {
		return f, err
	}
	if err := e.writer.Close(); err != nil {
		return f, err
	}
	footer, err := e.writer.FileMetadata()
	if err != nil {
		return f, err
	}
	f = commit.File{
		Format: "PARQUET", SchemaID: e.layout.schema.ID, SpecID: e.layout.spec.ID(),
		Partition: e.partition.Values, Rows: e.rows,
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
				f.SplitOffsets = append(f.SplitOffsets, startOf(chunk))
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

func startOf(chunk *metadata.ColumnChunkMetaData) int64 {
	at := chunk.DataPageOffset()
	if chunk.HasDictionaryPage() && chunk.DictionaryPageOffset() > 0 {
		at = min(at, chunk.DictionaryPageOffset())
	}
	return at
}
