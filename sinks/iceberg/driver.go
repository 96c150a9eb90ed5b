package iceberg

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/iceberg"
	"github.com/firn-project/firn/sinks"
)

// New returns the driver. It makes libzstd the Parquet codec of the process, so
// call it before anything reads or writes Parquet with arrow-go.
func New() sinks.Driver {
	useLibzstd()
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
	table       string
	schema      *iceberg.Schema
	schemaJSON  string
	spec        iceberg.PartitionSpec
	arrow       *arrow.Schema
	partitioner *format.Partitioner
	modes       map[int]format.MetricsMode
	parquet     parquetOptions
	// partitions keeps what was computed of each partition seen.
	partitions map[string]sinks.Partition
}

func newLayout(ctx sinks.Context) (*layout, error) {
	if ctx.FormatVersion > 2 {
		return nil, fmt.Errorf("format version %d isn't written; versions 1 and 2 are", ctx.FormatVersion)
	}
	schema, err := format.ParseSchema(ctx.SchemaJSON)
	if err != nil {
		return nil, err
	}
	l := &layout{
		table: ctx.Table.String(), schema: schema, schemaJSON: string(ctx.SchemaJSON),
		partitions: map[string]sinks.Partition{},
	}
	if l.spec, err = format.ParseSpec(ctx.SpecJSON, schema); err != nil {
		return nil, err
	}
	if l.arrow, err = format.ArrowSchema(schema); err != nil {
		return nil, err
	}
	if l.partitioner, err = format.NewPartitioner(schema, l.spec); err != nil {
		return nil, err
	}
	if l.modes, err = format.MetricsModes(schema, ctx.Properties); err != nil {
		return nil, err
	}
	l.parquet, err = newParquetOptions(l.arrow, schema, ctx.Properties)
	return l, err
}

// Limits implements sinks.Layout.
func (l *layout) Limits() sinks.Limits { return l.parquet.limits }

// Split implements sinks.Layout.
func (l *layout) Split(batch arrow.RecordBatch) (sinks.Split, error) {
	rows, err := l.cast(batch)
	if err != nil {
		return sinks.Split{}, err
	}
	if l.partitioner.Unpartitioned() {
		part := sinks.Part{Partition: l.partition("", l.voidTuple()), To: rows.NumRows()}
		return sinks.Split{Batch: rows, Parts: []sinks.Part{part}}, nil
	}
	keys, err := l.partitioner.Apply(rows)
	if err != nil {
		rows.Release()
		return sinks.Split{}, &commit.Error{
			Code: commit.CodePartitionValue, Op: "partition rows of", Object: l.table, Cause: err,
			Hint: "Leave the row out, or partition the table by another transform.",
		}
	}
	groups := keys.Group()
	split := sinks.Split{Batch: rows}
	if len(groups) == 1 {
		split.Parts = []sinks.Part{{Partition: l.partition(groups[0].Key, groups[0].Values), To: rows.NumRows()}}
		return split, nil
	}
	order := make([]int32, 0, rows.NumRows())
	for _, g := range groups {
		from := int64(len(order))
		order = append(order, g.Rows...)
		split.Parts = append(split.Parts, sinks.Part{Partition: l.partition(g.Key, g.Values), From: from, To: int64(len(order))})
	}
	if slices.IsSorted(order) {
		return split, nil // the rows of each partition lie together already
	}
	defer rows.Release()
	b := array.NewInt32Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(order, nil)
	indices := b.NewArray()
	defer indices.Release()
	split.Batch, err = sinks.Take(rows, indices)
	return split, err
}

func (l *layout) partition(key string, values []commit.PartitionValue) sinks.Partition {
	p, ok := l.partitions[key]
	if !ok {
		p = sinks.Partition{Key: key, Values: values, Path: format.PartitionPath(l.spec, l.schema, values)}
		l.partitions[key] = p
	}
	return p
}

// voidTuple is the tuple of a spec without fields but void ones.
func (l *layout) voidTuple() []commit.PartitionValue {
	values := make([]commit.PartitionValue, l.spec.NumFields())
	for i := range values {
		values[i] = commit.PartitionValue{FieldID: l.spec.Field(i).FieldID, Null: true}
	}
	return values
}

// Encode implements sinks.Layout.
func (l *layout) Encode(w io.Writer, p sinks.Partition) (sinks.Encoder, error) {
	return newEncoder(l, w, p)
}

// cast brings a batch to the table's Arrow schema. Columns are matched by
// position, and their names must agree but for case.
func (l *layout) cast(batch arrow.RecordBatch) (arrow.RecordBatch, error) {
	if int(batch.NumCols()) != l.arrow.NumFields() {
		return nil, l.wrongColumns(fmt.Errorf("the batch has %d columns, the table %d", batch.NumCols(), l.arrow.NumFields()))
	}
	columns := make([]arrow.Array, 0, batch.NumCols())
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	for i, f := range l.arrow.Fields() {
		if got := batch.ColumnName(i); !strings.EqualFold(got, f.Name) {
			return nil, l.wrongColumns(fmt.Errorf("column %d is called %s in the batch and %s in the table", i+1, got, f.Name))
		}
		c, err := castField(batch.Column(i), f, f.Name, nil)
		if err != nil {
			return nil, l.castError(err)
		}
		columns = append(columns, c)
	}
	return array.NewRecordBatch(l.arrow, columns, batch.NumRows()), nil
}

func (l *layout) wrongColumns(cause error) error {
	return &commit.Error{
		Code: commit.CodeBatchColumns, Op: "write rows to", Object: l.table, Cause: cause,
		Hint: "Run the statement again; if it happens again, report it with the statement and the table's schema.",
	}
}
