package iceberg

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/apache/iceberg-go"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the generated page")

func counter(from int) func() int {
	return func() int { from++; return from - 1 }
}

func TestFromDuckDBType(t *testing.T) {
	for text, want := range map[string]string{
		"INTEGER": "int", "int": "int", " Int4 ": "int", "TINYINT": "int", "USMALLINT": "int", "UINTEGER": "long",
		"BIGINT": "long", "long": "long", "INT8": "long", "REAL": "float", "double precision": "double", "FLOAT8": "double",
		"DECIMAL(10,2)": "decimal(10, 2)", "numeric": "decimal(18, 3)", "decimal(38)": "decimal(38, 0)",
		"VARCHAR": "string", "varchar(10)": "string", "STRING": "string", "character varying(5)": "string", "JSON": "string",
		"TIMESTAMP": "timestamp", "timestamp without time zone": "timestamp", "DATETIME": "timestamp", "TIMESTAMP_MS": "timestamp",
		"TIMESTAMP WITH TIME ZONE": "timestamptz", "timestamptz": "timestamptz", "DATE": "date", "TIME": "time",
		"UUID": "uuid", "BLOB": "binary", "binary": "binary", "fixed(16)": "fixed[16]", "BOOL": "boolean", "ENUM('a', 'it''s')": "string",
		"INTEGER[]": "list<int>", "INT[3]": "list<int>", "array<string>": "list<string>", "LIST<int>": "list<int>",
		"INTEGER[][]": "list<list<int>>", "MAP(VARCHAR, DOUBLE)": "map<string, double>", "map<string,array<int>>": "map<string, list<int>>",
	} {
		got, err := FromDuckDBType(text, counter(100))
		if err != nil || got.String() != want {
			t.Errorf("%q: %v (%v), want %s", text, got, err, want)
		}
	}
}

func TestNestedTypesAndIDs(t *testing.T) {
	got, err := FromDuckDBType(`STRUCT(a INTEGER, "b ""c" STRUCT(x DATE NOT NULL, y VARCHAR[]), m map<string,int>)`, counter(10))
	if err != nil {
		t.Fatal(err)
	}
	want := &iceberg.StructType{FieldList: []iceberg.NestedField{
		{ID: 10, Name: "a", Type: pt.Int32},
		{ID: 11, Name: `b "c`, Type: &iceberg.StructType{FieldList: []iceberg.NestedField{
			{ID: 13, Name: "x", Type: pt.Date, Required: true},
			{ID: 14, Name: "y", Type: &iceberg.ListType{ElementID: 15, Element: pt.String}},
		}}},
		{ID: 12, Name: "m", Type: &iceberg.MapType{KeyID: 16, KeyType: pt.String, ValueID: 17, ValueType: pt.Int32}},
	}}
	if !got.Equals(want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
	text, err := DuckDBType(got)
	if want := `STRUCT("a" INTEGER, "b ""c" STRUCT("x" DATE, "y" VARCHAR[]), "m" MAP(VARCHAR, INTEGER))`; err != nil || text != want {
		t.Errorf("back: %s (%v), want %s", text, err, want)
	}
}

func TestTypesWithoutAHome(t *testing.T) {
	for text, nearest := range map[string]string{
		"UBIGINT": "DECIMAL(20,0)", "hugeint": "DECIMAL(38,0)", "TIMESTAMP_NS": "TIMESTAMP", "INTERVAL": "VARCHAR",
		"BIT": "VARCHAR", "TIMETZ": "TIME", "TIME WITH TIME ZONE": "TIME", "UNION(a INTEGER, b VARCHAR)": "STRUCT", `"NULL"`: "VARCHAR", "INTERVAL[]": "VARCHAR",
		"STRUCT(a UBIGINT)": "DECIMAL(20,0)",
	} {
		_, err := FromDuckDBType(text, counter(1))
		if err == nil || !strings.Contains(err.Error(), nearest) {
			t.Errorf("%s: the error doesn't name %s: %v", text, nearest, err)
		}
	}
}

func TestBadTypes(t *testing.T) {
	for _, text := range []string{
		"", "(", "INTEGERS", "INTEGER INTEGER", "DECIMAL(39,0)", "DECIMAL(2,3)", "DECIMAL(0)", "DECIMAL(1,2,3)", "DECIMAL(a)", "INTEGER(3)",
		"STRUCT()", "STRUCT(a)", "STRUCT(a INTEGER", "STRUCT(a INTEGER, A VARCHAR)", "STRUCT(INTEGER, VARCHAR)", "MAP(INTEGER)", "MAP INTEGER", "list<int", "INTEGER[", "INTEGER[x]",
		"ENUM()", "ENUM('a'", "ENUM(a)", `"unclosed`, "fixed", "fixed(0)", "fixed(99999999999)", "TIME WITH", "struct<a int not>",
		strings.Repeat("STRUCT(a ", 10000) + "INTEGER" + strings.Repeat(")", 10000), "INTEGER" + strings.Repeat("[]", 10000),
	} {
		if got, err := FromDuckDBType(text, counter(1)); err == nil {
			t.Errorf("%.60q is read as %v", text, got)
		}
	}
}

func FuzzFromDuckDBType(f *testing.F) {
	for _, s := range []string{"INTEGER", "STRUCT(a INTEGER[3], b MAP(VARCHAR, ENUM('x')))", "decimal(10,2)", "struct<a:int not null>", `UNION("x(" INT)`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		typ, err := FromDuckDBType(text, counter(1))
		if err != nil {
			return
		}
		duck, err := DuckDBType(typ)
		if err != nil {
			t.Fatalf("%q gives %s, which has no DuckDB type: %v", text, typ, err)
		}
		if _, err := FromDuckDBType(duck, counter(1)); err != nil {
			t.Fatalf("%q gives %q, which can't be read: %v", text, duck, err)
		}
	})
}

func TestWidens(t *testing.T) {
	list := func(e iceberg.Type) iceberg.Type { return &iceberg.ListType{ElementID: 1, Element: e} }
	str := func(fields ...iceberg.NestedField) iceberg.Type { return &iceberg.StructType{FieldList: fields} }
	d := iceberg.DecimalTypeOf
	for _, c := range []struct {
		from string
		to   iceberg.Type
		want bool
	}{
		{"INTEGER", pt.Int32, true},
		{"INTEGER", pt.Int64, true},
		{"BIGINT", pt.Int32, false},
		{"UINTEGER", pt.Int32, false},
		{"UINTEGER", pt.Int64, true},
		{"UBIGINT", pt.Int64, false},
		{"UBIGINT", d(20, 0), true},
		{"HUGEINT", d(38, 0), false},
		{"TINYINT", pt.Int32, true},
		{"INTEGER", pt.Float64, true},
		{"BIGINT", pt.Float64, false},
		{"INTEGER", pt.Float32, false},
		{"SMALLINT", pt.Float32, true},
		{"INTEGER", d(10, 0), true},
		{"INTEGER", d(10, 2), false},
		{"INTEGER", d(12, 2), true},
		{"INTEGER", pt.String, false},
		{"BOOLEAN", pt.Int32, false},
		{"FLOAT", pt.Float64, true},
		{"DOUBLE", pt.Float32, false},
		{"DOUBLE", d(38, 10), false},
		{"DOUBLE", pt.Float64, true},
		{"DECIMAL(10,2)", d(12, 2), true},
		{"DECIMAL(10,2)", d(12, 4), true},
		{"DECIMAL(10,2)", d(12, 5), false},
		{"DECIMAL(10,2)", d(10, 1), false},
		{"DECIMAL(9,0)", pt.Int32, true},
		{"DECIMAL(10,0)", pt.Int32, false},
		{"DECIMAL(18,0)", pt.Int64, true},
		{"DECIMAL(2,1)", pt.Int64, false},
		{"DECIMAL(15,3)", pt.Float64, true},
		{"DECIMAL(16,3)", pt.Float64, false},
		{"DATE", pt.Timestamp, true},
		{"DATE", pt.TimestampTz, false},
		{"DATE", pt.Date, true},
		{"TIMESTAMP", pt.Date, false},
		{"TIMESTAMP", pt.TimestampTz, false},
		{"TIMESTAMP WITH TIME ZONE", pt.Timestamp, false},
		{"TIMESTAMP_S", pt.Timestamp, true},
		{"TIMESTAMP_NS", pt.Timestamp, false},
		{"VARCHAR", pt.String, true},
		{"VARCHAR", pt.Int32, false},
		{"VARCHAR", pt.Date, false},
		{"VARCHAR", pt.UUID, false},
		{"ENUM('a')", pt.String, true},
		{"JSON", pt.String, true},
		{`"NULL"`, pt.Date, true},
		{`"NULL"`, list(pt.Int32), true},
		{`"NULL"[]`, list(pt.Int32), true},
		{"BLOB", pt.Binary, true},
		{"BLOB", iceberg.FixedTypeOf(4), true},
		{"BLOB", pt.String, false},
		{"UUID", pt.UUID, true},
		{"UUID", pt.String, false},
		{"INTEGER[]", list(pt.Int64), true},
		{"BIGINT[]", list(pt.Int32), false},
		{"INTEGER[3]", list(pt.Int32), true},
		{"INTEGER", list(pt.Int32), false},
		{"STRUCT(a INTEGER)", str(column(1, "A", pt.Int64)), true},
		{"STRUCT(a INTEGER)", str(column(1, "b", pt.Int64)), false},
		{"STRUCT(a INTEGER, b DATE)", str(column(1, "a", pt.Int32)), false},
		{"MAP(VARCHAR, INTEGER)", &iceberg.MapType{KeyID: 1, KeyType: pt.String, ValueID: 2, ValueType: pt.Int64}, true},
		{"no such type", pt.Int32, false},
		{"", pt.Int32, false},
		{"INTERVAL", pt.String, false},
	} {
		if got := Widens(c.from, c.to); got != c.want {
			t.Errorf("Widens(%s, %s) = %v", c.from, c.to, got)
		}
	}
}

// TestEveryTypeWidensToItself: the type that a column is cast to is one that it
// takes as it is.
func TestEveryTypeWidensToItself(t *testing.T) {
	gen := typeGenerator()
	rapid.Check(t, func(t *rapid.T) {
		typ := gen.Draw(t, "type")
		duck, err := DuckDBType(typ)
		if err != nil {
			t.Fatal(err)
		}
		if !Widens(duck, typ) {
			t.Fatalf("%s doesn't widen to %s", duck, typ)
		}
	})
}

func typeGenerator() *rapid.Generator[iceberg.Type] {
	plain := rapid.Custom(func(t *rapid.T) iceberg.Type {
		p := rapid.IntRange(1, 38).Draw(t, "precision")
		return rapid.SampledFrom([]iceberg.Type{
			pt.Bool, pt.Int32, pt.Int64, pt.Float32, pt.Float64, pt.Date, pt.Time, pt.Timestamp, pt.TimestampTz, pt.String, pt.UUID, pt.Binary,
			iceberg.FixedTypeOf(p), iceberg.DecimalTypeOf(p, rapid.IntRange(0, p).Draw(t, "scale")),
		}).Draw(t, "plain")
	})
	return rapid.Custom(func(t *rapid.T) iceberg.Type {
		a, b := plain.Draw(t, "a"), plain.Draw(t, "b")
		// Another name than the second field's: a struct has each name once.
		name := rapid.StringN(1, 9, -1).Filter(func(s string) bool { return s != "\x00" }).Draw(t, "name")
		return rapid.SampledFrom([]iceberg.Type{
			a,
			&iceberg.ListType{ElementID: 1, Element: a}, &iceberg.MapType{KeyID: 1, KeyType: a, ValueID: 2, ValueType: b},
			&iceberg.StructType{FieldList: []iceberg.NestedField{column(1, name, a), column(2, "\x00", &iceberg.ListType{ElementID: 3, Element: b})}},
		}).Draw(t, "type")
	})
}

func TestUnwrittenTypes(t *testing.T) {
	for _, typ := range []iceberg.Type{pt.TimestampNs, iceberg.VariantType{}, iceberg.UnknownType{}, &iceberg.StructType{}, nil} {
		if _, err := ArrowSchema(iceberg.NewSchema(0, column(1, "c", typ))); err == nil {
			t.Errorf("%v has an Arrow type", typ)
		}
	}
	if _, err := DuckDBType(pt.TimestampNs); err == nil {
		t.Error("timestamp_ns has a DuckDB type")
	}
}

func TestTypesPage(t *testing.T) {
	const path = "../../docs/reference/sql-types.md"
	if *update {
		if err := os.WriteFile(path, []byte(typesPage()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != typesPage() {
		t.Errorf("the page is out of date (%v); run: go test ./format/iceberg -run TestTypesPage -update", err)
	}
}
