package iceberg

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/iceberg"
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
	table       string
	schema      *iceberg.Schema
	schemaJSON  string
	spec        iceberg.PartitionSpec
	arrow       *arrow.Schema
	partitioner *format.Partitioner
	modes       map[int]format.MetricsMode
	parquet     *parquetfile.Options
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
func (l *layout) Limits() sinks.Limits { return l.parquet.Limits }

// Split implements sinks.Layout.
func (l *layout) Split(batch arrow.RecordBatch) (sinks.Split, error) {
	rows, err := parquetfile.Cast(batch, l.arrow, l.table)
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
	parts := make([]sinks.Group, len(groups))
	for i, g := range groups {
		parts[i] = sinks.Group{Partition: l.partition(g.Key, g.Values), Rows: g.Rows}
	}
	return sinks.SplitGroups(rows, parts)
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
