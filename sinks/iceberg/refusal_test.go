package iceberg

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/sinks"
)

func TestRefusedRows(t *testing.T) {
	nullable := func(name string, dt arrow.DataType) *arrow.Schema {
		return arrow.NewSchema([]arrow.Field{{Name: name, Type: dt, Nullable: true}}, nil)
	}
	structOf := func(fields ...iceberg.NestedField) iceberg.Type { return &iceberg.StructType{FieldList: fields} }
	cases := []struct {
		name   string
		column iceberg.NestedField
		in     arrow.DataType
		rows   string
		code   commit.Code
		says   []string
	}{
		{"null in a required column", required(1, "c", p.Int32), arrow.PrimitiveTypes.Int32, `[{"c":1},{"c":null},{"c":null}]`, commit.CodeNotNullViolated, []string{"column c", "2 of 3", "NOT NULL"}},
		{"null in a required field of a struct", field(1, "c", structOf(required(2, "x", p.Int32))), arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int32, Nullable: true}), `[{"c":null},{"c":{"x":null}}]`, commit.CodeNotNullViolated, []string{"column c.x", "1 of"}},
		{"null in a list of required elements", field(1, "c", &iceberg.ListType{ElementID: 2, Element: p.Int32, ElementRequired: true}), arrow.ListOf(arrow.PrimitiveTypes.Int32), `[{"c":[1,null]}]`, commit.CodeNotNullViolated, []string{"column c.element"}},
		{"integer too large", field(1, "c", p.Int32), arrow.PrimitiveTypes.Int64, `[{"c":2147483648}]`, commit.CodeValueOutOfRange, []string{"2147483648", "int32"}},
		{"unsigned beyond long", field(1, "c", p.Int64), arrow.PrimitiveTypes.Uint64, `[{"c":18446744073709551615}]`, commit.CodeValueOutOfRange, []string{"18446744073709551615"}},
		{"decimal with too many digits", field(1, "c", iceberg.DecimalTypeOf(5, 2)), &arrow.Decimal128Type{Precision: 38, Scale: 2}, `[{"c":"1000.00"}]`, commit.CodeValueOutOfRange, []string{"DECIMAL(5,2)"}},
		{"decimal that would be rounded", field(1, "c", iceberg.DecimalTypeOf(5, 2)), &arrow.Decimal128Type{Precision: 38, Scale: 3}, `[{"c":"0.001"}]`, commit.CodeValueOutOfRange, []string{"DECIMAL(5,2)"}},
		{"nanoseconds", field(1, "c", p.Timestamp), &arrow.TimestampType{Unit: arrow.Nanosecond}, `[{"c":"2001-01-01 00:00:00.000000001"}]`, commit.CodeValueOutOfRange, []string{"nanoseconds"}},
		{"seconds beyond microseconds", field(1, "c", p.Timestamp), &arrow.TimestampType{Unit: arrow.Second}, `[{"c":9223372036854775}]`, commit.CodeValueOutOfRange, []string{"timestamp"}},
		{"fixed too short", field(1, "c", iceberg.FixedTypeOf(3)), arrow.BinaryTypes.Binary, `[{"c":"AAE="}]`, commit.CodeFixedLength, []string{"2 bytes", "3"}},
		{"not a uuid", field(1, "c", p.UUID), arrow.BinaryTypes.String, `[{"c":"zzz"}]`, commit.CodeValueOutOfRange, []string{"zzz"}},
		{"text for a number", field(1, "c", p.Int32), arrow.BinaryTypes.String, `[{"c":"1"}]`, commit.CodeBatchColumns, []string{"utf8", "int32"}},
		{"zoned for zoneless", field(1, "c", p.Timestamp), &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, `[{"c":0}]`, commit.CodeBatchColumns, nil},
		{"another name", field(1, "other", p.Int32), arrow.PrimitiveTypes.Int32, `[{"c":1}]`, commit.CodeBatchColumns, []string{"other"}},
		{"another field name", field(1, "c", structOf(field(2, "x", p.Int32))), arrow.StructOf(arrow.Field{Name: "y", Type: arrow.PrimitiveTypes.Int32, Nullable: true}), `[{"c":{"y":1}}]`, commit.CodeBatchColumns, []string{"x", "y"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tb := newTable(t, iceberg.NewSchema(0, c.column), nil, nil)
			err := tb.failure(t, jsonBatch(t, nullable("c", c.in), c.rows))
			if commit.CodeOf(err) != c.code {
				t.Errorf("code %s, want %s: %v", commit.CodeOf(err), c.code, err)
			}
			for _, s := range append(c.says, "lake.air.t") {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("the error doesn't say %q: %v", s, err)
				}
			}
		})
	}
}

func TestNullsOfAbsentStructsAreNoViolation(t *testing.T) {
	inner := &iceberg.StructType{FieldList: []iceberg.NestedField{required(2, "x", p.Int32)}}
	tb := newTable(t, iceberg.NewSchema(0, field(1, "c", inner)), nil, nil)
	files := tb.write(t, tb.batch(t, `[{"c":null},{"c":{"x":4}},{"c":null}]`))
	if got := strings.Join(tb.column(t, "c", files...), " "); got != `(null) {"x":4} (null)` {
		t.Errorf("read %s", got)
	}
}

func TestInvalidTextIsRefused(t *testing.T) {
	tb := newTable(t, iceberg.NewSchema(0, field(1, "c", p.String)), nil, nil)
	in := arrow.NewSchema([]arrow.Field{{Name: "c", Type: arrow.BinaryTypes.Binary, Nullable: true}}, nil)
	raw := jsonBatch(t, in, `[{"c":"/w=="}]`)
	defer raw.Release()
	d := raw.Column(0).Data()
	text := array.MakeFromData(array.NewData(arrow.BinaryTypes.String, d.Len(), d.Buffers(), nil, d.NullN(), d.Offset()))
	err := tb.failure(t, withColumn(tb.arrow, text))
	if commit.CodeOf(err) != commit.CodeTextEncoding {
		t.Errorf("want %s: %v", commit.CodeTextEncoding, err)
	}
}

func TestRefusedTables(t *testing.T) {
	good := iceberg.NewSchema(0, field(1, "c", p.Int32))
	for name, c := range map[string]struct {
		change func(*sinks.Context)
		says   string
	}{
		"schema that isn't JSON": {func(c *sinks.Context) { c.SchemaJSON = []byte("{") }, "schema"},
		"no schema":              {func(c *sinks.Context) { c.SchemaJSON = nil }, "schema"},
		"spec of another table": {func(c *sinks.Context) {
			c.SpecJSON = []byte(`{"spec-id":0,"fields":[{"source-id":9,"field-id":1000,"name":"x","transform":"identity"}]}`)
		}, "source column"},
		"unknown transform": {func(c *sinks.Context) {
			c.SpecJSON = []byte(`{"spec-id":0,"fields":[{"source-id":1,"field-id":1000,"name":"x","transform":"zorder"}]}`)
		}, "zorder"},
		"transform of other types": {func(c *sinks.Context) {
			c.SpecJSON = []byte(`{"spec-id":0,"fields":[{"source-id":1,"field-id":1000,"name":"x","transform":"month"}]}`)
		}, "month"},
		"unknown codec":              {func(c *sinks.Context) { c.Properties = map[string]string{"write.parquet.compression-codec": "rar"} }, "rar"},
		"level out of range":         {func(c *sinks.Context) { c.Properties = map[string]string{"write.parquet.compression-level": "99"} }, "99"},
		"page size that's no number": {func(c *sinks.Context) { c.Properties = map[string]string{"write.parquet.page-size-bytes": "big"} }, "big"},
		"metrics mode": {func(c *sinks.Context) {
			c.Properties = map[string]string{"write.metadata.metrics.default": "truncate(0)"}
		}, "truncate(0)"},
		"format version": {func(c *sinks.Context) { c.FormatVersion = 3 }, "version 3"},
	} {
		t.Run(name, func(t *testing.T) {
			tb := newTable(t, good, nil, nil)
			c.change(&tb.opts.Context)
			_, err := sinks.Open(context.Background(), New(), tb.opts)
			if commit.CodeOf(err) != commit.CodeTableLayout || !strings.Contains(err.Error(), c.says) {
				t.Errorf("want %s that says %q: %v", commit.CodeTableLayout, c.says, err)
			}
		})
	}
}

func TestValueWithoutPartition(t *testing.T) {
	tb := newTable(t, iceberg.NewSchema(0, field(1, "c", p.Int32)), []iceberg.PartitionField{transform(1, 1000, "c_trunc", iceberg.TruncateTransform{Width: 10000})}, nil)
	err := tb.failure(t, tb.batch(t, `[{"c":-2147483648}]`))
	if commit.CodeOf(err) != commit.CodePartitionValue || !strings.Contains(err.Error(), "-2147483648") {
		t.Errorf("want %s: %v", commit.CodePartitionValue, err)
	}
}

func TestNoPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	tb := newTable(t, iceberg.NewSchema(0, field(1, "c", p.Int32)), nil, nil)
	if err := os.Chmod(tb.onDisk(t), 0o500); err != nil {
		t.Fatal(err)
	}
	w := tb.open(t)
	if err := w.Write(context.Background(), tb.batch(t, `[{"c":1}]`)); err != nil {
		t.Fatal(err)
	}
	_, err := w.Close(context.Background())
	if _, ok := errors.AsType[*commit.Error](err); !ok {
		t.Errorf("want a *commit.Error: %v", err)
	}
}
