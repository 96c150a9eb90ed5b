package delta

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/firn-project/firn/format/delta"
)

// checkpointGroup is how many actions a row group of a checkpoint has. Those that
// aren't of files have row groups of their own, so that a reader of the state
// passes over all others by their null counts.
const checkpointGroup = 32 << 10

func text(name string) arrow.Field {
	return arrow.Field{Name: name, Type: arrow.BinaryTypes.String, Nullable: true}
}

func whole(name string) arrow.Field {
	return arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64, Nullable: true}
}

func half(name string) arrow.Field {
	return arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int32, Nullable: true}
}

func boolean(name string) arrow.Field {
	return arrow.Field{Name: name, Type: arrow.FixedWidthTypes.Boolean, Nullable: true}
}

func textMap(name string) arrow.Field {
	return arrow.Field{Name: name, Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.BinaryTypes.String), Nullable: true}
}

func textList(name string) arrow.Field {
	return arrow.Field{Name: name, Type: arrow.ListOfField(arrow.Field{Name: "element", Type: arrow.BinaryTypes.String, Nullable: true}), Nullable: true}
}

func group(name string, fields ...arrow.Field) arrow.Field {
	return arrow.Field{Name: name, Type: arrow.StructOf(fields...), Nullable: true}
}

// checkpointSchema has every field optional: some writers of Parquet make a null
// of what isn't, and then readers refuse the file.
var checkpointSchema = func() *arrow.Schema {
	vector := group("deletionVector", text("storageType"), text("pathOrInlineDv"), half("offset"), half("sizeInBytes"), whole("cardinality"))
	return arrow.NewSchema([]arrow.Field{
		group("txn", text("appId"), whole("version"), whole("lastUpdated")),
		group("add", text("path"), textMap("partitionValues"), whole("size"), whole("modificationTime"), boolean("dataChange"), text("stats"), textMap("tags"),
			vector, whole("baseRowId"), whole("defaultRowCommitVersion"), text("clusteringProvider")),
		group("remove", text("path"), whole("deletionTimestamp"), boolean("dataChange"), boolean("extendedFileMetadata"), textMap("partitionValues"), whole("size"),
			vector, whole("baseRowId"), whole("defaultRowCommitVersion")),
		group("metaData", text("id"), text("name"), text("description"), group("format", text("provider"), textMap("options")), text("schemaString"),
			textList("partitionColumns"), whole("createdTime"), textMap("configuration")),
		group("protocol", half("minReaderVersion"), half("minWriterVersion"), textList("readerFeatures"), textList("writerFeatures")),
		group("domainMetadata", text("domain"), text("configuration"), boolean("removed")),
	}, nil)
}()

// Columns of checkpointSchema.
const (
	columnTxn = iota
	columnAdd
	columnRemove
	columnMetadata
	columnProtocol
	columnDomain
)

var codecs = map[string]compress.Compression{
	"": compress.Codecs.Zstd, "zstd": compress.Codecs.Zstd, "snappy": compress.Codecs.Snappy, "gzip": compress.Codecs.Gzip,
	"none": compress.Codecs.Uncompressed, "uncompressed": compress.Codecs.Uncompressed,
}

// writeCheckpoint writes actions as a Parquet file.
func writeCheckpoint(w io.Writer, properties map[string]string, actions iter.Seq2[Action, error]) error {
	return writeGroups(w, properties, checkpointGroup, true, actions)
}

// writeGroups writes row groups of at most so many actions. With split, those of
// files begin a row group of their own.
func writeGroups(w io.Writer, properties map[string]string, most int, split bool, actions iter.Seq2[Action, error]) error {
	codec, ok := codecs[codecOf(properties)]
	if !ok {
		codec = compress.Codecs.Zstd
	}
	props := parquet.NewWriterProperties(
		parquet.WithCompression(codec), parquet.WithVersion(parquet.V1_0),
		parquet.WithDictionaryFor("add.path", false), parquet.WithDictionaryFor("add.stats", false), parquet.WithDictionaryFor("remove.path", false),
	)
	// The Parquet writer closes what it writes to, and the file is read after.
	fw, err := pqarrow.NewFileWriter(checkpointSchema, struct{ io.Writer }{w}, props, pqarrow.DefaultWriterProps())
	if err != nil {
		return err
	}
	b := &checkpointBuilder{array.NewRecordBuilder(memory.DefaultAllocator, checkpointSchema)}
	defer b.Release()
	rows, files := 0, false
	flush := func() error {
		if rows == 0 {
			return nil
		}
		rows = 0
		batch := b.NewRecordBatch()
		defer batch.Release()
		return fw.Write(batch)
	}
	for a, aerr := range actions {
		if aerr != nil {
			return errors.Join(aerr, fw.Close())
		}
		_, isFile := a.fileKey()
		if split && isFile && !files || rows == most {
			if err := flush(); err != nil {
				return errors.Join(err, fw.Close())
			}
		}
		files = isFile
		if err := b.append(&a); err != nil {
			return errors.Join(err, fw.Close())
		}
		rows++
	}
	if err := flush(); err != nil {
		return errors.Join(err, fw.Close())
	}
	return fw.Close()
}

// checkpointBuilder collects actions as rows.
type checkpointBuilder struct{ *array.RecordBuilder }

func (b *checkpointBuilder) append(a *Action) error {
	column := -1
	row := func(i int) fieldRow {
		column = i
		s, _ := b.Field(i).(*array.StructBuilder)
		s.Append(true)
		return fieldRow{s, 0}
	}
	switch {
	case a.Txn != nil:
		f := row(columnTxn)
		f.text(&a.Txn.AppID).whole(&a.Txn.Version).whole(a.Txn.LastUpdated)
	case a.Add != nil:
		c := a.Add
		f := row(columnAdd)
		f.text(&c.Path).refs(c.PartitionValues, true).whole(&c.Size).whole(&c.ModificationTime).flag(&c.DataChange).text(orNil(c.Stats)).
			refs(c.Tags, false).vector(c.DeletionVector).whole(c.BaseRowID).whole(c.DefaultRowCommitVersion).text(c.ClusteringProvider)
	case a.Remove != nil:
		c := a.Remove
		f := row(columnRemove)
		f.text(&c.Path).whole(c.DeletionTimestamp).flag(&c.DataChange).flag(c.ExtendedFileMetadata).refs(c.PartitionValues, false).whole(c.Size).
			vector(c.DeletionVector).whole(c.BaseRowID).whole(c.DefaultRowCommitVersion)
	case a.Metadata != nil:
		c := a.Metadata
		f := row(columnMetadata)
		f.text(&c.ID).text(c.Name).text(c.Description).format(c.Format).text(&c.SchemaString).list(c.PartitionColumns, true).
			whole(c.CreatedTime).texts(c.Configuration)
	case a.Protocol != nil:
		c := a.Protocol
		f := row(columnProtocol)
		f.half(int32(c.MinReaderVersion)).half(int32(c.MinWriterVersion)).list(c.ReaderFeatures, c.ReaderFeatures != nil).
			list(c.WriterFeatures, c.WriterFeatures != nil)
	case a.DomainMetadata != nil:
		c := a.DomainMetadata
		f := row(columnDomain)
		f.text(&c.Domain).text(&c.Configuration).flag(&c.Removed)
	default:
		return fmt.Errorf("an action that no checkpoint holds: %+v", *a)
	}
	for i := range b.Fields() {
		if i != column {
			b.Field(i).AppendNull()
		}
	}
	return nil
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// fieldRow appends the fields of one struct in their order.
type fieldRow struct {
	s    *array.StructBuilder
	next int
}

func (f *fieldRow) builder() array.Builder {
	f.next++
	return f.s.FieldBuilder(f.next - 1)
}

func (f *fieldRow) text(v *string) *fieldRow {
	if b, ok := f.builder().(*array.StringBuilder); ok && v != nil {
		b.Append(*v)
	} else {
		b.AppendNull()
	}
	return f
}

func (f *fieldRow) whole(v *int64) *fieldRow {
	if b, ok := f.builder().(*array.Int64Builder); ok && v != nil {
		b.Append(*v)
	} else {
		b.AppendNull()
	}
	return f
}

func (f *fieldRow) half(v int32) *fieldRow {
	if b, ok := f.builder().(*array.Int32Builder); ok {
		b.Append(v)
	}
	return f
}

func (f *fieldRow) flag(v *bool) *fieldRow {
	if b, ok := f.builder().(*array.BooleanBuilder); ok && v != nil {
		b.Append(*v)
	} else {
		b.AppendNull()
	}
	return f
}

// refs appends a map; a nil one is null unless it is required.
func (f *fieldRow) refs(m map[string]*string, required bool) *fieldRow {
	b, ok := f.builder().(*array.MapBuilder)
	if !ok || m == nil && !required {
		b.AppendNull()
		return f
	}
	b.Append(true)
	keys, _ := b.KeyBuilder().(*array.StringBuilder)
	items, _ := b.ItemBuilder().(*array.StringBuilder)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		keys.Append(k)
		if v := m[k]; v != nil {
			items.Append(*v)
		} else {
			items.AppendNull()
		}
	}
	return f
}

func (f *fieldRow) texts(m map[string]string) {
	refs := make(map[string]*string, len(m))
	for k, v := range m {
		refs[k] = &v
	}
	f.refs(refs, true)
}

func (f *fieldRow) list(v []string, there bool) *fieldRow {
	b, ok := f.builder().(*array.ListBuilder)
	if !ok || !there {
		b.AppendNull()
		return f
	}
	b.Append(true)
	values, _ := b.ValueBuilder().(*array.StringBuilder)
	for _, s := range v {
		values.Append(s)
	}
	return f
}

func (f *fieldRow) format(v Format) *fieldRow {
	b, ok := f.builder().(*array.StructBuilder)
	if ok {
		b.Append(true)
		inner := fieldRow{b, 0}
		inner.text(&v.Provider).texts(v.Options)
	}
	return f
}

func (f *fieldRow) vector(v *delta.DeletionVector) *fieldRow {
	b, ok := f.builder().(*array.StructBuilder)
	if !ok || v == nil {
		b.AppendNull()
		return f
	}
	b.Append(true)
	inner := fieldRow{b, 0}
	inner.text(&v.StorageType).text(&v.PathOrInlineDV)
	if o, ok := inner.builder().(*array.Int32Builder); ok && v.Offset != nil {
		o.Append(*v.Offset)
	} else {
		o.AppendNull()
	}
	inner.half(v.SizeInBytes).whole(&v.Cardinality)
	return f
}
