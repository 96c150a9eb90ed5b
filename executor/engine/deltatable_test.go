package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/plan"
)

// deltaTable is a source of files of a Delta table.
func deltaTable(t *testing.T, schema, mapping string, partition []string, files ...plan.SourceFile) plan.Source {
	t.Helper()
	s, err := delta.ParseSchema(schema)
	if err != nil {
		t.Fatal(err)
	}
	var cols []plan.Column
	for i, f := range s.Fields {
		typ, err := delta.ReadType(f.Type)
		if err != nil {
			t.Fatal(err)
		}
		cols = append(cols, plan.Column{Name: f.Name, Type: typ, FieldID: i + 1})
	}
	src := table(cols, files...)
	src.Delta = &plan.DeltaSource{SchemaJSON: []byte(schema), Partition: partition, Mapping: mapping}
	return src
}

func deltaFields(fields ...string) string {
	return `{"type":"struct","fields":[` + strings.Join(fields, ",") + `]}`
}

func deltaField(name, typ string) string {
	return fmt.Sprintf(`{"name":%q,"type":%s,"nullable":true,"metadata":{}}`, name, typ)
}

// vectorOf is an inline deletion vector of rows.
func vectorOf(t *testing.T, rows ...uint32) *plan.DeletionVector {
	t.Helper()
	var b bytes.Buffer
	b.Write(binary.LittleEndian.AppendUint32(nil, 1681511377))
	b.Write(binary.LittleEndian.AppendUint64(nil, 1))
	b.Write(make([]byte, 4))
	if _, err := roaring.BitmapOf(rows...).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	size := b.Len()
	for b.Len()%4 != 0 {
		b.WriteByte(0)
	}
	const letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
	var text []byte
	for raw := b.Bytes(); len(raw) > 0; raw = raw[4:] {
		n := binary.BigEndian.Uint32(raw)
		group := make([]byte, 5)
		for i := 4; i >= 0; i-- {
			group[i], n = letters[n%85], n/85
		}
		text = append(text, group...)
	}
	return &plan.DeletionVector{StorageType: "i", PathOrInline: string(text), Size: int32(size), Cardinality: int64(len(rows))}
}

// TestDeltaFiles: columns that a file lacks, types that were widened, partition
// values of all types, and deleted rows, which have the same form in each way of
// reading.
func TestDeltaFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir,
		"COPY (SELECT i::TINYINT AS id, i::FLOAT AS x, {'a': i::SMALLINT} AS st, DATE '2024-01-01' AS moment FROM range(4) t(i)) TO '%s/1.parquet'",
		"COPY (SELECT 5000000000 AS id, 'NaN'::DOUBLE AS x, {'a': 7, 'b': 'q'} AS st, TIMESTAMP '2024-01-01 00:00:00.5' AS moment, 'new' AS added) TO '%s/2.parquet'")
	schema := deltaFields(deltaField("ID", `"long"`), deltaField("x", `"double"`), deltaField("st", deltaFields(deltaField("a", `"integer"`), deltaField("b", `"string"`))),
		deltaField("moment", `"timestamp_ntz"`), deltaField("added", `"string"`), deltaField("p", `"timestamp"`), deltaField("d", `"decimal(20,2)"`),
		deltaField("day", `"date"`), deltaField("f", `"float"`), deltaField("t", `"string"`), deltaField("flag", `"boolean"`))
	text := func(s string) *string { return &s }
	values := []*string{text("2024-06-15T12:30:00.123456Z"), text("123456789012345678.90"), text("-0044-03-15"), text("NaN"), text("it's"), text("true")}
	nulls := make([]*string, len(values))
	for name, vector := range map[string]*plan.DeletionVector{"whole": nil, "deleted": vectorOf(t, 0, 2)} {
		src := deltaTable(t, schema, "none", []string{"p", "d", "day", "f", "t", "flag"},
			plan.SourceFile{Path: dir + "/1.parquet", Partition: values, Vector: vector}, plan.SourceFile{Path: "file://" + dir + "/2.parquet", Partition: nulls})
		var want []string
		for i := range 4 {
			if vector == nil || i%2 == 1 {
				want = append(want, fmt.Sprintf("%d|%[1]d.0|%[1]d|%s|2024-01-01 00:00:00|%[2]s|2024-06-15 12:30:00.123456+00|123456789012345678.90|0045-03-15 (BC)|nan|it's|true", i, null))
			}
		}
		want = append(want, "5000000000|nan|7|q|2024-01-01 00:00:00.5|new|"+strings.TrimSuffix(strings.Repeat(null+"|", 6), "|"))
		query := `SELECT id, x::VARCHAR, st.a, st.b, moment::VARCHAR, added, p::VARCHAR, d::VARCHAR, "day"::VARCHAR, f::VARCHAR, t, flag ` + fromT + " ORDER BY 1"
		if got := mustRun(t, newEngine(t), query, src).String(); got != strings.Join(want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, strings.Join(want, "\n"))
		}
		// Statistics of row groups leave NaN out, and have the old types.
		for where, n := range map[string]int{"x > 1e300": 1, "id = 3": 1, "moment = TIMESTAMP '2024-01-01'": len(want) - 1, "f > 1": len(want) - 1, "st.a >= 7": 1, "p IS NULL": 1} {
			if got := mustRun(t, newEngine(t), "SELECT count(*) "+fromT+" WHERE "+where, src).String(); got != fmt.Sprint(n) {
				t.Errorf("%s: %s: %s rows, want %d", name, where, got, n)
			}
		}
	}
}

// TestDeltaMapping: columns and nested fields have other names in files.
func TestDeltaMapping(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, `COPY (SELECT i AS "c-1", {'c-3': i, 'c-4': [{'c-5': 'e' || i}]} AS "c-2", MAP {'k': {'c-7': i}} AS "c-6" FROM range(3) t(i)) TO '%s/1.parquet' (FIELD_IDS {"c-1": 1, "c-2": 2, "c-6": 6})`,
		`COPY (SELECT 9::BIGINT AS "c-1", NULL::STRUCT("c-3" BIGINT, "c-4" STRUCT("c-5" VARCHAR)[]) AS "c-2", NULL::MAP(VARCHAR, STRUCT("c-7" BIGINT)) AS "c-6") TO '%s/2.parquet' (FIELD_IDS {"c-1": 1, "c-2": 2, "c-6": 6})`)
	field := func(name, typ string, id int) string {
		return fmt.Sprintf(`{"name":%q,"type":%s,"nullable":true,"metadata":{"delta.columnMapping.id":%d,"delta.columnMapping.physicalName":"c-%[3]d"}}`, name, typ, id)
	}
	array := func(e string) string { return `{"type":"array","elementType":` + e + `,"containsNull":true}` }
	schema := deltaFields(field("id", `"long"`, 1), field("st", deltaFields(field("n", `"long"`, 3), field("list", array(deltaFields(field("s", `"string"`, 5))), 4)), 2),
		field("m", `{"type":"map","keyType":"string","valueType":`+deltaFields(field("v", `"double"`, 7))+`,"valueContainsNull":true}`, 6))
	for _, mapping := range []string{"name", "id"} {
		for name, vector := range map[string]*plan.DeletionVector{"whole": nil, "deleted": vectorOf(t, 1)} {
			src := deltaTable(t, schema, mapping, nil, plan.SourceFile{Path: dir + "/1.parquet", Vector: vector}, plan.SourceFile{Path: dir + "/2.parquet"})
			want := "0|0|e0|0\n1|1|e1|1\n2|2|e2|2\n9|" + null + "|" + null + "|" + null
			if vector != nil {
				want = strings.Replace(want, "1|1|e1|1\n", "", 1)
			}
			if got := mustRun(t, newEngine(t), "SELECT id, st.n, st.list[1].s, m['k'].v "+fromT+" ORDER BY 1", src).String(); got != want {
				t.Errorf("%s, %s: got\n%s\nwant\n%s", mapping, name, got, want)
			}
		}
	}
}

// TestDeltaTimestampsWithoutZone: timestamps that a file has without a zone are UTC,
// whatever the session's zone is.
func TestDeltaTimestampsWithoutZone(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "COPY (SELECT TIMESTAMP '2024-06-15 12:00:00' AS z, TIMESTAMPTZ '2024-06-15 12:00:00+00' AS n) TO '%s/1.parquet'")
	src := deltaTable(t, deltaFields(deltaField("z", `"timestamp"`), deltaField("n", `"timestamp_ntz"`)), "none", nil, plan.SourceFile{Path: dir + "/1.parquet"})
	in := task()
	in.TimeZone = "America/New_York"
	got, err := run(t.Context(), newEngine(t), in, &plan.Query{SQL: "SELECT epoch(z)::BIGINT, n::VARCHAR " + fromT, Sources: []plan.Source{src}})
	if err != nil || got.String() != "1718452800|2024-06-15 12:00:00" {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestDeltaBadFiles: what doesn't add up is an error that names the file.
func TestDeltaBadFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "COPY (SELECT 1::BIGINT AS id) TO '%s/1.parquet'")
	schema := deltaFields(deltaField("id", `"long"`), deltaField("p", `"integer"`))
	short, other := vectorOf(t, 0), vectorOf(t, 0)
	short.PathOrInline = short.PathOrInline[:5]
	other.Cardinality = 2
	word := "word"
	for name, f := range map[string]plan.SourceFile{
		"vector cut off":       {Partition: []*string{nil}, Vector: short},
		"vector of other rows": {Partition: []*string{nil}, Vector: other},
		"vector that is gone":  {Partition: []*string{nil}, Vector: &plan.DeletionVector{StorageType: "u", File: "file://" + dir + "/none.bin"}},
		"no partition value":   {},
		"no number":            {Partition: []*string{&word}},
	} {
		f.Path = dir + "/1.parquet"
		_, err := run(t.Context(), newEngine(t), task(), &plan.Query{SQL: "SELECT * " + fromT, Sources: []plan.Source{deltaTable(t, schema, "none", []string{"p"}, f)}})
		if err == nil || !strings.Contains(err.Error(), "1.parquet") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
