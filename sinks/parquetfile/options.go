package parquetfile

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/firn-project/firn/sinks"
)

// Settings are what a table says of its Parquet files. Sizes are in bytes.
type Settings struct {
	Limits                               sinks.Limits
	PageBytes, PageRows, DictionaryBytes int64
	PageVersion                          parquet.DataPageVersion
	// Dictionary: columns may have one. DictionaryFor says otherwise of single
	// columns; nil says nothing.
	Dictionary    bool
	DictionaryFor func(c *schema.Column) (on, said bool)
	Codec         compress.Compression
	// Level is the codec's; nil for its default.
	Level *int
}

// Defaults are the settings of a table that says nothing: pages of version 1,
// which every reader knows, in zstd.
func Defaults() Settings {
	return Settings{
		Limits:    sinks.Limits{RowGroupBytes: 128 << 20, RowGroupRows: 1 << 20},
		PageBytes: 1 << 20, PageRows: 20000, DictionaryBytes: 2 << 20, PageVersion: parquet.DataPageV1, Dictionary: true, Codec: compress.Codecs.Zstd,
	}
}

// codecs are the names that properties have for codecs. Parquet's own "lz4" is a
// framing of Hadoop's that others read wrongly; lz4_raw is what is written for it.
var codecs = map[string]compress.Compression{
	"zstd": compress.Codecs.Zstd, "gzip": compress.Codecs.Gzip, "snappy": compress.Codecs.Snappy,
	"brotli": compress.Codecs.Brotli, "lz4": compress.Codecs.Lz4Raw, "lz4_raw": compress.Codecs.Lz4Raw,
	"uncompressed": compress.Codecs.Uncompressed, "none": compress.Codecs.Uncompressed,
}

// CodecOf finds a codec by a property's value, in any case.
func CodecOf(name string) (compress.Compression, error) {
	c, ok := codecs[strings.ToLower(strings.TrimSpace(name))]
	if !ok {
		return 0, fmt.Errorf("%q isn't one of %s", name, strings.Join(slices.Sorted(maps.Keys(codecs)), ", "))
	}
	return c, nil
}

// Levels are the compression levels that a codec takes; ok is false for one that
// has none.
func Levels(c compress.Compression) (least, most int64, ok bool) {
	l, ok := map[compress.Compression][2]int64{
		compress.Codecs.Zstd: {-5, 22}, compress.Codecs.Gzip: {0, 9}, compress.Codecs.Brotli: {0, 11},
	}[c]
	return l[0], l[1], ok
}

// Options are settings bound to the columns of a table's files.
type Options struct {
	// Limits bound row groups.
	Limits sinks.Limits

	schema *arrow.Schema
	props  *parquet.WriterProperties
	arrow  pqarrow.ArrowWriterProperties
	// text says of each column whether it's a text column that may have a
	// dictionary.
	text []bool
}

// NewOptions binds settings to the Arrow schema of a table's files, whose fields
// may carry Parquet field ids.
func NewOptions(columns *arrow.Schema, s Settings) (*Options, error) {
	opts := []parquet.WriterProperty{
		parquet.WithRootName("table"),
		parquet.WithStoreDecimalAsInteger(true),
		parquet.WithMaxRowGroupLength(math.MaxInt64),
		parquet.WithDataPageSize(s.PageBytes),
		parquet.WithBatchSize(s.PageRows),
		parquet.WithDictionaryPageSizeLimit(s.DictionaryBytes),
		parquet.WithDataPageVersion(s.PageVersion),
		parquet.WithDictionaryDefault(s.Dictionary),
		parquet.WithCompression(s.Codec),
	}
	switch {
	case s.Level != nil:
		opts = append(opts, parquet.WithCompressionLevel(*s.Level))
	case s.Codec == compress.Codecs.Zstd:
		opts = append(opts, parquet.WithCompressionLevel(defaultZstdLevel))
	}
	o := &Options{Limits: s.Limits, schema: columns, arrow: pqarrow.NewArrowWriterProperties()}
	// The columns' Parquet paths are known once the schema is.
	sc, err := pqarrow.ToParquet(columns, nil, o.arrow)
	if err != nil {
		return nil, err
	}
	for i := range sc.NumColumns() {
		c := sc.Column(i)
		// A column of all different values is hashed for nothing.
		opts = append(opts, parquet.WithDictionaryCostFallbackFor(c.Path(), true))
		if s.DictionaryFor == nil {
			continue
		}
		if on, said := s.DictionaryFor(c); said {
			opts = append(opts, parquet.WithDictionaryFor(c.Path(), on))
		}
	}
	o.props = parquet.NewWriterProperties(opts...)
	for _, f := range columns.Fields() {
		o.text = append(o.text, f.Type.ID() == arrow.STRING && o.props.DictionaryEnabledFor(f.Name))
	}
	return o, nil
}
