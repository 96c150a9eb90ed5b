package delta

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/sinks"
	"github.com/firn-project/firn/sinks/parquetfile"
)

// New returns the driver. It makes libzstd the Parquet codec of the process, so
// call it before anything reads or writes Parquet with arrow-go.
func New() sinks.Driver {
	parquetfile.UseLibzstd()
	return driver{}
}

type driver struct{}

// Bind implements sinks.Driver.
func (driver) Bind(ctx sinks.Context) (sinks.Layout, error) {
	l, err := newLayout(ctx)
	if err != nil {
		return nil, &commit.Error{
			Code: commit.CodeTableLayout, Op: "write to", Object: ctx.Table.String(), Cause: err,
			Hint: "See the cause; a property can be set to another value.",
		}
	}
	return l, nil
}

// layout is a table bound for writing.
type layout struct {
	table            string
	schemaID, specID int
	partition        []string
	// rows is the schema of the table's rows, file that of its files, and columns
	// say where those are among the rows'.
	rows, file  *arrow.Schema
	columns     []int
	partitioner *format.Partitioner
	// required are the partition columns that may not be null.
	required []bool
	parquet  *parquetfile.Options
	// leaves have statistics; number is the manifest's for each of them, and whole
	// are the numbers of columns without nulls.
	leaves []format.Leaf
	number []int
	whole  []int
	prefix int
	// partitions keeps what was computed of each partition seen.
	partitions map[string]sinks.Partition
}

func newLayout(ctx sinks.Context) (*layout, error) {
	schema, err := format.ParseSchema(string(ctx.SchemaJSON))
	if err != nil {
		return nil, err
	}
	l := &layout{
		table: ctx.Table.String(), schemaID: format.SchemaID(string(ctx.SchemaJSON)), prefix: format.StringPrefix(ctx.Properties),
		partitions: map[string]sinks.Partition{},
	}
	if l.partition, err = format.ParsePartition(ctx.SpecJSON); err != nil {
		return nil, err
	}
	l.specID = format.PartitionID(l.partition)
	if l.partitioner, err = format.NewPartitioner(schema, l.partition); err != nil {
		return nil, err
	}
	for _, name := range l.partition {
		l.required = append(l.required, !schema.Column(name).Nullable)
	}
	if l.rows, err = format.ArrowSchema(schema); err != nil {
		return nil, err
	}
	if l.rows.NumFields() != len(schema.Fields) {
		return nil, errors.New("it has a column of type void")
	}
	var fields []arrow.Field
	for i, f := range l.rows.Fields() {
		if !slices.Contains(l.partition, f.Name) {
			fields, l.columns = append(fields, f), append(l.columns, i)
		}
	}
	l.file = arrow.NewSchema(fields, nil)
	s := parquetfile.Defaults()
	if codec, ok := ctx.Properties[format.PropertyCodec]; ok {
		if s.Codec, err = parquetfile.CodecOf(codec); err != nil {
			return nil, fmt.Errorf("property %s: %w", format.PropertyCodec, err)
		}
	}
	if l.parquet, err = parquetfile.NewOptions(l.file, s); err != nil {
		return nil, err
	}
	return l, l.bindStats(schema, ctx)
}

// bindStats finds the leaves that have statistics, and their numbers.
func (l *layout) bindStats(schema *format.Struct, ctx sinks.Context) (err error) {
	var clustered [][]string
	if len(ctx.SortOrderJSON) > 0 {
		if clustered, err = format.ClusteringColumns(string(ctx.SortOrderJSON)); err != nil {
			return err
		}
	}
	if l.leaves, err = format.IndexedLeaves(schema, l.partition, ctx.Properties, clustered...); err != nil {
		return err
	}
	all := format.FileLeaves(schema, l.partition)
	for _, leaf := range l.leaves {
		at := slices.IndexFunc(all, func(a format.Leaf) bool { return slices.Equal(a.Path, leaf.Path) })
		l.number = append(l.number, at+1)
	}
	for i, a := range all {
		if len(a.Path) == 1 && !schema.Column(a.Path[0]).Nullable {
			l.whole = append(l.whole, i+1)
		}
	}
	return nil
}

// Limits implements sinks.Layout.
func (l *layout) Limits() sinks.Limits { return l.parquet.Limits }

// Split implements sinks.Layout.
func (l *layout) Split(batch arrow.RecordBatch) (sinks.Split, error) {
	rows, err := parquetfile.Cast(batch, l.rows, l.table)
	if err != nil {
		return sinks.Split{}, err
	}
	if len(l.partition) == 0 {
		return sinks.Split{Batch: rows, Parts: []sinks.Part{{Partition: sinks.Partition{}, To: rows.NumRows()}}}, nil
	}
	defer rows.Release()
	keys, err := l.partitioner.Apply(rows)
	if err != nil {
		return sinks.Split{}, l.refused(commit.CodePartitionValue, err)
	}
	groups := keys.Group()
	parts := make([]sinks.Group, len(groups))
	for i, g := range groups {
		p, err := l.partitionOf(g)
		if err != nil {
			return sinks.Split{}, err
		}
		parts[i] = sinks.Group{Partition: p, Rows: g.Rows}
	}
	columns := make([]arrow.Array, len(l.columns))
	for i, at := range l.columns {
		columns[i] = rows.Column(at)
	}
	return sinks.SplitGroups(array.NewRecordBatch(l.file, columns, rows.NumRows()), parts)
}

func (l *layout) partitionOf(g format.Group) (sinks.Partition, error) {
	p, ok := l.partitions[g.Key]
	if ok {
		return p, nil
	}
	texts := map[string]*string{}
	for i, v := range g.Values {
		if v.Null && l.required[i] {
			return p, l.refused(commit.CodeNotNullViolated, fmt.Errorf(
				"column %s: a row has the empty text, which is null in a partition column of a Delta table, and the column is NOT NULL", l.partition[i]))
		}
		if !v.Null {
			text := string(v.Value)
			texts[l.partition[i]] = &text
		}
	}
	p = sinks.Partition{Key: g.Key, Values: g.Values, Path: format.PartitionDir(l.partition, texts)}
	l.partitions[g.Key] = p
	return p, nil
}

func (l *layout) refused(code commit.Code, cause error) error {
	info, _ := commit.Explain(string(code))
	return &commit.Error{Code: code, Op: "write rows to", Object: l.table, Cause: cause, Hint: info.Hint}
}

// Encode implements sinks.Layout.
func (l *layout) Encode(w io.Writer, p sinks.Partition) (sinks.Encoder, error) {
	fw, err := parquetfile.NewWriter(w, l.parquet)
	if err != nil {
		return nil, err
	}
	return &encoder{layout: l, partition: p, writer: fw, stats: format.NewStatsBuilder(l.leaves)}, nil
}

// encoder writes one file.
type encoder struct {
	layout    *layout
	partition sinks.Partition
	writer    *parquetfile.Writer
	stats     *format.StatsBuilder
}

// WriteRowGroup implements sinks.Encoder.
func (e *encoder) WriteRowGroup(rows arrow.RecordBatch) error {
	if err := e.stats.Add(rows); err != nil {
		return err
	}
	return e.writer.WriteRowGroup(rows)
}

// Finish implements sinks.Encoder.
func (e *encoder) Finish() (commit.File, error) {
	footer, err := e.writer.Close("", "")
	if err != nil {
		return commit.File{}, err
	}
	l := e.layout
	f := commit.File{
		Format: "PARQUET", SchemaID: l.schemaID, SpecID: l.specID, Partition: e.partition.Values, Rows: e.writer.Rows(),
		NullCounts: map[int]int64{}, Lower: map[int][]byte{}, Upper: map[int][]byte{},
	}
	for i, c := range e.stats.Stats().Columns {
		n := l.number[i]
		f.NullCounts[n] = c.Nulls
		if raw, ok := format.BoundJSON(c.Min, c.Type, l.prefix, false); ok {
			f.Lower[n] = raw
		}
		if raw, ok := format.BoundJSON(c.Max, c.Type, l.prefix, true); ok {
			f.Upper[n] = raw
		}
	}
	for _, n := range l.whole {
		f.NullCounts[n] = 0 // Cast has seen to that
	}
	for g := range footer.NumRowGroups() {
		chunk, err := footer.RowGroup(g).ColumnChunk(0)
		if err != nil {
			return f, err
		}
		f.SplitOffsets = append(f.SplitOffsets, parquetfile.StartOf(chunk))
	}
	return f, nil
}
