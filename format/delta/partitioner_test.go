package delta

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// TestPartitioner: rows are together if and only if the log has the same texts for
// them, and spread alike in any batch.
func TestPartitioner(t *testing.T) {
	s := &Struct{Fields: []Field{{Name: "x", Type: Long}, {Name: "f", Type: Double, Nullable: true}, {Name: "S", Type: String, Nullable: true}}}
	schema, err := ArrowSchema(s)
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{0, 1, 2, 3, 4, 5, 6}, nil)
	b.Field(1).(*array.Float64Builder).AppendValues([]float64{0, math.Copysign(0, -1), math.NaN(), math.NaN(), 1, 0, 1}, []bool{true, true, true, true, true, false, true})
	b.Field(2).(*array.StringBuilder).AppendValues([]string{"a", "a", "", "", "a", "b", "a"}, []bool{true, true, true, false, true, true, true})
	p, err := NewPartitioner(s, []string{"s", "f"})
	if err != nil {
		t.Fatal(err)
	}
	batch := b.NewRecordBatch()
	defer batch.Release()
	k, err := p.Apply(batch)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range k.Group() {
		var values []string
		for i, v := range g.Values {
			if v.FieldID != i+1 {
				t.Errorf("field id %d of value %d", v.FieldID, i)
			}
			values = append(values, fmt.Sprintf("%t %s", v.Null, v.Value))
		}
		got = append(got, fmt.Sprint(strings.Join(values, ", "), g.Rows))
		for _, row := range g.Rows {
			if k.Hash(int(row)) != k.Hash(int(g.Rows[0])) {
				t.Errorf("row %d has another hash than row %d", row, g.Rows[0])
			}
		}
	}
	want := "false a, false 0.0[0 1]; true , false NaN[2 3]; false a, false 1.0[4 6]; false b, true [5]"
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	// Fixed for ever: tasks of another release must agree.
	if h := k.Hash(0); h != 0x32b2b88d7a819c52 {
		t.Errorf("hash %#x", h)
	}
	if _, err := NewPartitioner(s, []string{"none"}); err == nil {
		t.Error("partitioned by a column that isn't there")
	}
	if _, err := p.Apply(array.NewRecordBatch(arrow.NewSchema(schema.Fields()[:1], nil), batch.Columns()[:1], batch.NumRows())); err == nil {
		t.Error("took a batch without the columns")
	}
}

func TestDuckDBTypes(t *testing.T) {
	for text, want := range map[string]string{
		"tinyint": "byte", "SMALLINT": "short", "INT": "integer", "long": "long", "USMALLINT": "integer", "DECIMAL": "decimal(18,3)", "DECIMAL(5)": "decimal(5,0)",
		"TIMESTAMP": "timestamp_ntz", "timestamptz": "timestamp", "string": "string", "VARCHAR(10)": "string", "BLOB": "binary",
		"struct<a: int, b: array<string>>": "struct<a:integer,b:array<string>>", "MAP(VARCHAR, TINYINT[])": "map<string,array<byte>>", "ENUM('a')": "string",
	} {
		got, err := FromDuckDBType(text)
		if err != nil || got.String() != want {
			t.Errorf("%s: %v, %v; want %s", text, got, err, want)
			continue
		}
		// What it is read as can be written without a word.
		d, err := DuckDBType(got)
		if err != nil || !Widens(d, got) {
			t.Errorf("%s isn't written from its own type %s: %v", text, d, err)
		}
	}
	for _, text := range []string{"UUID", "HUGEINT", "TIME", "INTERVAL", "INT(5)", "DECIMAL(39,2)", "FIXED(3)", "STRUCT(a UUID)", "nonsense"} {
		if got, err := FromDuckDBType(text); err == nil {
			t.Errorf("%s became %v", text, got)
		}
	}
	for _, c := range []struct {
		from string
		to   Type
		ok   bool
	}{
		{"INTEGER", Byte, false},
		{"TINYINT", Byte, true},
		{"UTINYINT", Byte, false},
		{"TINYINT", Long, true},
		{"BIGINT", Double, false},
		{"INTEGER", Double, true},
		{"BIGINT", DecimalType{19, 0}, true},
		{"BIGINT", DecimalType{19, 1}, false},
		{"DECIMAL(4,0)", Short, true},
		{"DECIMAL(5,0)", Short, false},
		{"DECIMAL(10,2)", DecimalType{12, 4}, true},
		{"DECIMAL(10,2)", DecimalType{12, 1}, false},
		{"FLOAT", Double, true},
		{"DOUBLE", Float, false},
		{"DATE", TimestampNTZ, true},
		{"DATE", Timestamp, false},
		{"TIMESTAMP", Timestamp, false},
		{"VARCHAR", Long, false},
		{`"NULL"`, Binary, true},
		{"TINYINT[]", &Array{Element: Long}, true},
		{"STRUCT(a INTEGER)", &Struct{Fields: []Field{{Name: "A", Type: Long}}}, true},
		{"STRUCT(a INTEGER)", &Struct{Fields: []Field{{Name: "b", Type: Long}}}, false},
		{"INTEGER", Variant, false},
	} {
		if got := Widens(c.from, c.to); got != c.ok {
			t.Errorf("%s to %v: %t", c.from, c.to, got)
		}
	}
}
