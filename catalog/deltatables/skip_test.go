package deltatables

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/firn-project/firn/sql"
)

func cmp(column, op, typ string, values ...string) sql.Comparison {
	c := sql.Comparison{Column: column, Op: op}
	for _, v := range values {
		c.Values = append(c.Values, sql.Literal{Type: typ, Text: v})
	}
	return c
}

// TestSkip: a file is left out only where its partition values or statistics show
// that no row of it is wanted.
func TestSkip(t *testing.T) {
	dir := t.TempDir()
	tables := New(Config{Places: []Place{{Location: dir}}})
	def := byPath(dir + "/t")
	def.SchemaJSON = []byte(`{"type":"struct","fields":[` + strings.Join([]string{
		`{"name":"p","type":"integer","nullable":true,"metadata":{}}`, `{"name":"Day","type":"date","nullable":true,"metadata":{}}`,
		`{"name":"id","type":"short","nullable":true,"metadata":{}}`, `{"name":"s","type":"string","nullable":true,"metadata":{}}`,
		`{"name":"x","type":"double","nullable":true,"metadata":{}}`, `{"name":"at","type":"timestamp_ntz","nullable":true,"metadata":{}}`,
	}, ",") + `]}`)
	def.SpecJSON = []byte(`["p","Day"]`)
	if err := tables.Create(t.Context(), def); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	add := func(path, p, day, stats string) {
		fmt.Fprintf(&log, `{"add":{"path":%q,"partitionValues":{"p":%s,"Day":%s},"size":1,"modificationTime":1,"dataChange":true,"stats":%q}}`+"\n", path, p, day, stats)
	}
	add("a", `"1"`, `"2024-01-01"`, `{"numRecords":2,"minValues":{"id":1,"s":"b","x":1.0,"at":"2024-01-01T00:00:00.000"},"maxValues":{"id":5,"s":"d","x":2.0,"at":"2024-01-01T00:00:00.123"},"nullCount":{"id":0,"s":1}}`)
	add("b", `"2"`, `null`, `{"numRecords":2,"minValues":{"id":6},"maxValues":{"id":9},"nullCount":{"id":0}}`)
	add("c", `null`, `"2024-02-01"`, ``)
	add("d", `"1"`, `""`, `{"rubbish":[}`)
	if err := os.WriteFile(dir+"/t/_delta_log/00000000000000000001.json", []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	table, _, err := tables.Find(t.Context(), "read", def.Name)
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := table.Pin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		where sql.Filter
		want  string
	}{
		"nothing":            {nil, "abcd"},
		"partition":          {sql.Filter{{cmp("P", "=", "BIGINT", "1")}}, "ad"},
		"partition in":       {sql.Filter{{cmp("p", "=", "BIGINT", "2", "3")}}, "b"},
		"beyond its type":    {sql.Filter{{cmp("p", "=", "BIGINT", "5000000000")}}, "abcd"},
		"partition null":     {sql.Filter{{cmp("day", "=", "")}}, "bd"},
		"date as text":       {sql.Filter{{cmp("day", "=", "VARCHAR", "2024-02-01")}}, "c"},
		"date greater":       {sql.Filter{{cmp("day", ">", "DATE", "2024-01-15")}}, "c"},
		"no date":            {sql.Filter{{cmp("day", "=", "VARCHAR", "the first")}}, "abcd"},
		"number":             {sql.Filter{{cmp("id", "=", "BIGINT", "5")}}, "acd"},
		"number above":       {sql.Filter{{cmp("id", ">", "BIGINT", "5")}}, "bcd"},
		"number at least":    {sql.Filter{{cmp("id", ">=", "BIGINT", "5")}}, "abcd"},
		"number below":       {sql.Filter{{cmp("id", "<", "BIGINT", "6")}}, "acd"},
		"number at most":     {sql.Filter{{cmp("id", "<=", "BIGINT", "6")}}, "abcd"},
		"number as text":     {sql.Filter{{cmp("id", "=", "VARCHAR", "100")}}, "abcd"},
		"null":               {sql.Filter{{cmp("id", "=", "")}}, "cd"},
		"null of some":       {sql.Filter{{cmp("s", "=", "")}}, "abcd"},
		"text":               {sql.Filter{{cmp("s", "=", "VARCHAR", "e")}}, "bcd"},
		"text as number":     {sql.Filter{{cmp("s", "=", "BIGINT", "7")}}, "abcd"},
		"floats are let be":  {sql.Filter{{cmp("x", ">", "BIGINT", "100")}}, "abcd"},
		"end of millisecond": {sql.Filter{{cmp("at", "=", "TIMESTAMP", "2024-01-01 00:00:00.123999")}}, "abcd"},
		"time":               {sql.Filter{{cmp("at", "=", "TIMESTAMP", "2024-01-01 00:00:00.124")}}, "bcd"},
		"both":               {sql.Filter{{cmp("p", "=", "BIGINT", "1"), cmp("id", "=", "BIGINT", "7")}}, "d"},
		"either":             {sql.Filter{{cmp("p", "=", "BIGINT", "2")}, {cmp("id", "=", "BIGINT", "1")}}, "abcd"},
		"unknown column":     {sql.Filter{{cmp("nope", "=", "BIGINT", "1")}}, "abcd"},
		"and an unknown one": {sql.Filter{{cmp("nope", "=", "BIGINT", "1"), cmp("p", "=", "BIGINT", "2")}}, "b"},
	} {
		src, err := table.Scan(t.Context(), pinned, "", c.where)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := map[byte]bool{}
		for _, f := range src.Files {
			got[f.Path[len(f.Path)-1]] = true
		}
		for _, b := range []byte("abcd") {
			if got[b] != strings.ContainsRune(c.want, rune(b)) {
				t.Errorf("%s: file %c is read: %t", name, b, got[b])
			}
		}
	}
}
