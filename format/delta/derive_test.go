package delta_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/format/footer"
)

// fileOf writes rows as another program would, and reads the footer.
func fileOf(t testing.TB, schema *arrow.Schema, rows string) *footer.Footer {
	t.Helper()
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	var out bytes.Buffer
	w, err := pqarrow.NewFileWriter(schema, &out, parquet.NewWriterProperties(), pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	raw := out.Bytes()
	n, why := footer.Length(raw, int64(len(raw)))
	if why != nil {
		t.Fatal(why)
	}
	end := int64(len(raw)) - footer.Trailer
	f, err := footer.Parse(raw[end-n:end], int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const partitioned = `{"type":"struct","fields":[{"name":"p","type":"%","nullable":true,"metadata":{}},{"name":"id","type":"long","nullable":false,"metadata":{}}]}`

func say(text string) map[string]*string { return map[string]*string{"p": &text} }

// Values of partition columns are handed in where the files don't have them, and are
// held against the files where they do.
func TestDerivePartitionColumns(t *testing.T) {
	id := arrow.Field{Name: "id", Type: arrow.PrimitiveTypes.Int64}
	col := func(typ arrow.DataType) []arrow.Field {
		return []arrow.Field{{Name: "p", Type: typ, Nullable: true}, id}
	}
	str, i32, f64 := arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Float64
	for _, c := range []struct {
		name, typ string
		fields    []arrow.Field
		rows      string
		say       map[string]*string
		want      string
	}{
		{"handed in", "string", []arrow.Field{id}, `{"id":1}`, say("a/b"), "a/b"},
		{"handed in as null", "string", []arrow.Field{id}, `{"id":1}`, map[string]*string{"p": nil}, "null"},
		{"the empty text is null", "string", []arrow.Field{id}, `{"id":1}`, say(""), "null"},
		{"not handed in", "string", []arrow.Field{id}, `{"id":1}`, nil, "refused: the file doesn't have it, and the manifest has no value"},
		{"no number", "integer", []arrow.Field{id}, `{"id":1}`, say("x"), "refused: partition value \"x\": it isn't a integer"},
		{"written in one way", "integer", []arrow.Field{id}, `{"id":1}`, say("+007"), "7"},
		{"in the file, and the same", "string", col(str), `{"p":"a","id":1}`, say("a"), "a"},
		{"in the file, not handed in", "integer", col(i32), `{"p":7,"id":1},{"p":7,"id":2}`, nil, "7"},
		{"in the file, and another", "string", col(str), `{"p":"a","id":1}`, say("b"), `refused: the manifest says "b", and the file has "a"`},
		{"in the file, said to be null", "string", col(str), `{"p":"a","id":1}`, map[string]*string{"p": nil}, `refused: the manifest says null, and the file has "a"`},
		{"in the file, null", "string", col(str), `{"p":null,"id":1}`, nil, "null"},
		{"in the file, null, said to be a", "string", col(str), `{"p":null,"id":1}`, say("a"), `refused: the manifest says "a", and the file has null`},
		{"in the file, two", "integer", col(i32), `{"p":7,"id":1},{"p":8,"id":2}`, say("7"), "refused: the file spans two partitions: it has 7 and 8"},
		{"in the file, null and another", "integer", col(i32), `{"p":7,"id":1},{"p":null,"id":2}`, say("7"), "refused: the file spans two partitions: 1 of its 2 rows have null"},
		{"a float in the file", "double", col(f64), `{"p":1.5,"id":1}`, say("1.5"), "1.5"},
		{"a float in the file, another", "double", col(f64), `{"p":1.5,"id":1}`, say("2.5"), `refused: the manifest says "2.5", which isn't within the file's bounds`},
		{"a float in the file, NaN", "double", col(f64), `{"p":1.5,"id":1}`, say("NaN"), `refused: the manifest says "NaN", which isn't`},
		{"a float in the file, not handed in", "double", col(f64), `{"p":1.5,"id":1}`, nil, "refused: the statistics don't show"},
		{"a column that there isn't", "string", []arrow.Field{id}, `{"id":1}`, map[string]*string{"p": nil, "q": nil}, `refused: the manifest has a value of the partition field "q"`},
		{"another name but for case", "string", []arrow.Field{{Name: "ID", Type: id.Type}}, `{"ID":1}`, say("a"), `refused: column "ID" of the file is named "id" in the table`},
		{"another type", "string", []arrow.Field{{Name: "id", Type: i32}}, `{"id":1}`, say("a"), `refused: column "id" is stored as INTEGER(32, signed) on INT32: the table has long`},
		{"no column that may not be null", "string", col(str)[:1], `{"p":"a"}`, say("a"), `refused: column "id" may not be null, and the file doesn't have it`},
		{"no rows", "string", []arrow.Field{id}, ``, say("a"), `refused: it has no rows`},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := delta.NewDeriver(strings.Replace(partitioned, "%", c.typ, 1), []string{"p"}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := d.File(fileOf(t, arrow.NewSchema(c.fields, nil), "["+c.rows+"]"), footer.Claim{Rows: -1, Size: -1, Partition: c.say})
			if why, ok := strings.CutPrefix(c.want, "refused: "); ok {
				e, _ := err.(*footer.Error) //nolint:errorlint // nothing wraps it
				if e == nil || !strings.Contains(e.Why, why) || e.Hint == "" {
					t.Errorf("%v, want %q and a hint", err, why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			p := got.Partition[0]
			if text := string(p.Value); p.Null != (c.want == "null") || !p.Null && text != c.want || p.FieldID != 1 {
				t.Errorf("%+v, want %s", p, c.want)
			}
		})
	}
}

// Files of a table that maps its columns have physical names, or are found by ids.
func TestDeriveWithColumnMapping(t *testing.T) {
	const schema = `{"type":"struct","fields":[
		{"name":"one","type":"long","nullable":true,"metadata":{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"col-1"}},
		{"name":"two","type":"long","nullable":true,"metadata":{"delta.columnMapping.id":2,"delta.columnMapping.physicalName":"col-2"}}]}`
	field := func(name, id string) arrow.Field {
		f := arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64, Nullable: true}
		if id != "" {
			f.Metadata = arrow.NewMetadata([]string{"PARQUET:field_id"}, []string{id})
		}
		return f
	}
	for _, c := range []struct {
		mode  string
		field arrow.Field
		want  string
	}{
		{"name", field("col-2", ""), ""},
		{"name", field("col-2", "2"), ""},
		{"name", field("col-2", "1"), `has the field id 1 in the file and 2 in the table`},
		{"name", field("two", ""), `column "two" of the file isn't one of the table's`},
		{"id", field("any", "2"), ""},
		{"id", field("col-2", ""), `no field id`},
		{"id", field("col-2", "7"), `has the field id 7`},
	} {
		d, err := delta.NewDeriver(schema, nil, map[string]string{delta.PropertyMapping: c.mode}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.File(fileOf(t, arrow.NewSchema([]arrow.Field{c.field}, nil), `[{"`+c.field.Name+`":5}]`), footer.Claim{Rows: -1, Size: -1})
		switch {
		case c.want == "" && (err != nil || string(got.Lower[2]) != "5"):
			t.Errorf("%s, %s: %v, %v", c.mode, c.field, got.Lower, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s, %s: %v, want %q", c.mode, c.field, err, c.want)
		}
	}
}
