//go:build duckdb_arrow

package duckdb

import (
	"context"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	bindings "github.com/duckdb/duckdb-go-bindings"
)

// AppendTable makes a table in the instance's memory (which spills to
// Config.TempDir) and fills it with batches: those of r, or none if r is nil.
// It doesn't release r. Buffers should come from a C allocator (memory/mallocator):
// DuckDB reads them in place while it copies.
func (in *Instance) AppendTable(ctx context.Context, table string, schema *arrow.Schema, r array.RecordReader) error {
	cols := make([]string, schema.NumFields())
	for i, f := range schema.Fields() {
		t, err := TypeOf(f.Type)
		if err != nil {
			return fmt.Errorf("duckdb: column %s: %w", f.Name, err)
		}
		cols[i] = Ident(f.Name) + " " + t
	}
	if err := in.Exec(ctx, "CREATE TABLE "+Ident(table)+" ("+strings.Join(cols, ", ")+")"); err != nil {
		return err
	}
	if r == nil {
		return nil
	}
	return in.appendBatches(ctx, table, schema, r)
}

// Append fills a table that is there with the batches of r, whose columns are those of
// the table, by AppendTable's rules.
func (in *Instance) Append(ctx context.Context, table string, schema *arrow.Schema, r array.RecordReader) error {
	return in.appendBatches(ctx, table, schema, r)
}

func (in *Instance) appendBatches(ctx context.Context, table string, schema *arrow.Schema, r array.RecordReader) error {
	converted, ed := bindings.SchemaFromArrow(in.conn, schema)
	defer bindings.DestroyArrowConvertedSchema(&converted)
	if err := takeErrorData(ed); err != nil {
		return fmt.Errorf("duckdb: schema from Arrow: %w", err)
	}
	var app bindings.Appender
	if bindings.AppenderCreate(in.conn, "", table, &app) == bindings.StateError {
		err := parseError(bindings.AppenderError(app))
		bindings.AppenderDestroy(&app)
		return err
	}
	defer bindings.AppenderDestroy(&app)
	for r.Next() {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if r.RecordBatch().NumRows() == 0 {
			continue
		}
		chunk, ed := bindings.DataChunkFromArrow(in.conn, r.RecordBatch(), converted)
		if err := takeErrorData(ed); err != nil {
			return fmt.Errorf("duckdb: batch from Arrow: %w", err)
		}
		state := bindings.AppendDataChunk(app, chunk)
		bindings.DestroyDataChunk(&chunk)
		if state == bindings.StateError {
			return parseError(bindings.AppenderError(app))
		}
	}
	if err := r.Err(); err != nil {
		return err
	}
	if bindings.AppenderClose(app) == bindings.StateError {
		return parseError(bindings.AppenderError(app))
	}
	return nil
}

// TypeOf gives the DuckDB type that an Arrow column becomes.
func TypeOf(t arrow.DataType) (string, error) {
	switch t := t.(type) {
	case *arrow.Decimal128Type:
		return fmt.Sprintf("DECIMAL(%d,%d)", t.Precision, t.Scale), nil
	case *arrow.TimestampType:
		return timestampType(t), nil
	case *arrow.StructType:
		fields := make([]string, t.NumFields())
		for i, f := range t.Fields() {
			ft, err := TypeOf(f.Type)
			if err != nil {
				return "", err
			}
			fields[i] = Ident(f.Name) + " " + ft
		}
		return "STRUCT(" + strings.Join(fields, ", ") + ")", nil
	case *arrow.MapType:
		k, err := TypeOf(t.KeyType())
		if err != nil {
			return "", err
		}
		v, err := TypeOf(t.ItemType())
		return "MAP(" + k + ", " + v + ")", err
	case *arrow.FixedSizeListType:
		e, err := TypeOf(t.Elem())
		return fmt.Sprintf("%s[%d]", e, t.Len()), err
	case arrow.ListLikeType:
		e, err := TypeOf(t.Elem())
		return e + "[]", err
	}
	if s, ok := plainTypes[t.ID()]; ok {
		return s, nil
	}
	if e, ok := t.(arrow.ExtensionType); ok && e.ExtensionName() == "arrow.uuid" {
		return "UUID", nil
	}
	return "", fmt.Errorf("no DuckDB type is known for Arrow's %s", t)
}

func timestampType(t *arrow.TimestampType) string {
	if t.TimeZone != "" {
		return "TIMESTAMP WITH TIME ZONE"
	}
	switch t.Unit {
	case arrow.Second:
		return "TIMESTAMP_S"
	case arrow.Millisecond:
		return "TIMESTAMP_MS"
	case arrow.Nanosecond:
		return "TIMESTAMP_NS"
	default:
		return "TIMESTAMP"
	}
}

var plainTypes = map[arrow.Type]string{
	arrow.BOOL: "BOOLEAN",
	arrow.INT8: "TINYINT", arrow.INT16: "SMALLINT", arrow.INT32: "INTEGER", arrow.INT64: "BIGINT",
	arrow.UINT8: "UTINYINT", arrow.UINT16: "USMALLINT", arrow.UINT32: "UINTEGER", arrow.UINT64: "UBIGINT",
	arrow.FLOAT32: "FLOAT", arrow.FLOAT64: "DOUBLE",
	arrow.STRING: "VARCHAR", arrow.LARGE_STRING: "VARCHAR", arrow.STRING_VIEW: "VARCHAR",
	arrow.BINARY: "BLOB", arrow.LARGE_BINARY: "BLOB", arrow.BINARY_VIEW: "BLOB", arrow.FIXED_SIZE_BINARY: "BLOB",
	arrow.DATE32: "DATE", arrow.DATE64: "DATE", arrow.TIME32: "TIME", arrow.TIME64: "TIME",
	arrow.INTERVAL_MONTH_DAY_NANO: "INTERVAL",
}
