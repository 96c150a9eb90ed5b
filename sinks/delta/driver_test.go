package delta

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"go.uber.org/goleak"

	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/sinks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const schemaJSON = `{"type":"struct","fields":[
	{"name":"p","type":"string","nullable":false,"metadata":{}},
	{"name":"id","type":"long","nullable":false,"metadata":{}},
	{"name":"x","type":"double","nullable":true,"metadata":{}},
	{"name":"s","type":"string","nullable":true,"metadata":{}},
	{"name":"st","type":{"type":"struct","fields":[{"name":"n","type":"byte","nullable":true,"metadata":{}},{"name":"b","type":"binary","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}},
	{"name":"at","type":"timestamp","nullable":true,"metadata":{}}]}`

const rowsJSON = `[
	{"p":"a/b","id":1,"x":1.5,"s":"` + long + `","st":{"n":3,"b":"aGk="},"at":"2024-01-01T00:00:00.123456Z"},
	{"p":"a/b","id":2,"x":2.5,"s":null,"st":null,"at":"1969-12-31T23:59:59.999999Z"},
	{"p":"c","id":3,"x":null,"s":"z","st":{"n":null,"b":null},"at":null}]`

const long = "abcdefghijklmnopqrstuvwxyzabcdefghij"

func write(t *testing.T, properties map[string]string, clustered, rows string) ([]commit.File, error) {
	t.Helper()
	schema, err := format.ParseSchema(schemaJSON)
	if err != nil {
		t.Fatal(err)
	}
	columns, err := format.ArrowSchema(schema)
	if err != nil {
		t.Fatal(err)
	}
	batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, columns, strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	defer batch.Release()
	w, err := sinks.Open(t.Context(), New(), sinks.Options{
		Context: sinks.Context{
			Table: commit.TableName{Catalog: "lake", Name: "t"}, SchemaJSON: []byte(schemaJSON), SpecJSON: []byte(`["p"]`),
			SortOrderJSON: []byte(clustered), Properties: properties, Prefix: "file://" + t.TempDir() + "/j-1/",
		},
		Attempt: "attempt", Store: objstore.New(objstore.Config{}), SpillDir: t.TempDir(),
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Abort() }()
	if err := w.Write(t.Context(), batch); err != nil {
		return nil, err
	}
	return w.Close(t.Context())
}

func shown(m map[int][]byte) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d=%s", k, m[k]))
	}
	return strings.Join(parts, " ")
}

// TestFiles: the files don't hold the partition column, and the manifest has what
// Delta's log wants of them.
func TestFiles(t *testing.T) {
	files, err := write(t, map[string]string{format.PropertyCodec: "SNAPPY"}, "", rowsJSON)
	if err != nil || len(files) != 2 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	f := files[slices.IndexFunc(files, func(f commit.File) bool { return f.Rows == 2 })]
	if !strings.Contains(f.Path, "/j-1/p=a%2Fb/") || string(f.Partition[0].Value) != "a/b" || f.Partition[0].FieldID != 1 {
		t.Errorf("%s, %v", f.Path, f.Partition)
	}
	// Leaves: id, x, s, st.n, st.b, at.
	if got, want := fmt.Sprint(f.NullCounts), "map[1:0 2:0 3:1 4:1 5:1 6:0]"; got != want {
		t.Errorf("nulls %s, want %s", got, want)
	}
	if got, want := shown(f.Lower), `1=1 2=1.5 3="`+long[:32]+`" 4=3 6="1969-12-31T23:59:59.999Z"`; got != want {
		t.Errorf("lower %s\nwant  %s", got, want)
	}
	if got, want := shown(f.Upper), `1=2 2=2.5 3="`+long[:32]+"\u007f"+`" 4=3 6="2024-01-01T00:00:00.124Z"`; got != want {
		t.Errorf("upper %s\nwant  %s", got, want)
	}
	schema, err := format.ParseSchema(schemaJSON)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, err := format.FileStats(schema, []string{"p"}, f); err != nil {
			t.Error(err)
		}
		if err := format.CheckPartition(schema, []string{"p"}, f); err != nil {
			t.Error(err)
		}
	}
	rd, err := file.OpenParquetFile(strings.TrimPrefix(f.Path, "file://"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	root := rd.MetaData().Schema.Root()
	var names []string
	for i := range root.NumFields() {
		names = append(names, root.Field(i).Name())
	}
	if got := strings.Join(names, " "); got != "id x s st at" {
		t.Errorf("the file has the columns %s", got)
	}
	if c, err := rd.MetaData().RowGroup(0).ColumnChunk(0); err != nil || c.Compression() != compress.Codecs.Snappy {
		t.Errorf("codec %v, %v", c.Compression(), err)
	}
}

// TestStatistics: which columns have statistics is the table's to say.
func TestStatistics(t *testing.T) {
	for name, c := range map[string]struct {
		properties map[string]string
		clustered  string
		lower      string
	}{
		"first two":      {map[string]string{format.PropertyIndexedColumns: "2"}, "", "1=1 2=1.5"},
		"none":           {map[string]string{format.PropertyIndexedColumns: "0"}, "", ""},
		"named":          {map[string]string{format.PropertyStatsColumns: "st.n, at"}, "", `4=3 6="1969-12-31T23:59:59.999Z"`},
		"clustered":      {map[string]string{format.PropertyIndexedColumns: "0"}, `{"clusteringColumns":[["x"]]}`, "2=1.5"},
		"shorter prefix": {map[string]string{format.PropertyStatsColumns: "s", format.PropertyStringPrefix: "3"}, "", `3="abc"`},
	} {
		files, err := write(t, c.properties, c.clustered, rowsJSON)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		f := files[slices.IndexFunc(files, func(f commit.File) bool { return f.Rows == 2 })]
		if got := shown(f.Lower); got != c.lower {
			t.Errorf("%s: lower %s, want %s", name, got, c.lower)
		}
		if n, ok := f.NullCounts[1]; !ok || n != 0 {
			t.Errorf("%s: the NOT NULL column has %d nulls, said: %t", name, n, ok)
		}
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		properties map[string]string
		rows       string
		code       commit.Code
	}{
		"codec":                {map[string]string{format.PropertyCodec: "lzma"}, rowsJSON, commit.CodeTableLayout},
		"number of columns":    {map[string]string{format.PropertyIndexedColumns: "few"}, rowsJSON, commit.CodeTableLayout},
		"empty partition text": {nil, `[{"p":"","id":1}]`, commit.CodeNotNullViolated},
		"null partition":       {nil, `[{"p":null,"id":1}]`, commit.CodeNotNullViolated},
		"null":                 {nil, `[{"p":"x","id":null}]`, commit.CodeNotNullViolated},
	} {
		if _, err := write(t, c.properties, "", c.rows); commit.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	for name, schema := range map[string]string{
		"variant": `{"type":"struct","fields":[{"name":"v","type":"variant","nullable":true,"metadata":{}}]}`,
		"void":    `{"type":"struct","fields":[{"name":"v","type":"void","nullable":true,"metadata":{}},{"name":"a","type":"long","nullable":true,"metadata":{}}]}`,
		"rubbish": `{`,
	} {
		if _, err := New().Bind(sinks.Context{SchemaJSON: []byte(schema), SpecJSON: []byte("[]")}); commit.CodeOf(err) != commit.CodeTableLayout {
			t.Errorf("%s: %v", name, err)
		}
	}
}
