package engine

import (
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

func TestRenamed(t *testing.T) {
	for _, c := range []struct{ file, table, old, now string }{
		{"BIGINT", "BIGINT", "", ""},
		{"STRUCT(a BIGINT)", "STRUCT(a BIGINT)", "", ""},
		{"STRUCT(a INTEGER, b VARCHAR)", "STRUCT(b VARCHAR, a BIGINT)", "", ""},
		{"STRUCT(a INTEGER)", "STRUCT(a INTEGER, b DECIMAL(9,2))", "", ""},
		{"STRUCT(a INTEGER, b VARCHAR)", "STRUCT(a INTEGER)", "", ""},
		{"STRUCT(a INTEGER)", "STRUCT(b INTEGER)", "a", "b"},
		{"STRUCT(a DECIMAL(9,2), c INTEGER)[]", "STRUCT(a DECIMAL(9,2), d INTEGER)[]", "c", "d"},
		{"STRUCT(s STRUCT(x INTEGER)[3])", "STRUCT(s STRUCT(y INTEGER)[3])", "x", "y"},
		{"MAP(VARCHAR, STRUCT(x INTEGER))", "MAP(VARCHAR, STRUCT(y INTEGER))", "x", "y"},
		{"MAP(VARCHAR, INTEGER)", "MAP(VARCHAR, BIGINT)", "", ""},
		{`STRUCT("a, (b" INTEGER, "q""" DATE)`, `STRUCT("a, (b" BIGINT, "q""" DATE, c DATE)`, "", ""},
		{`STRUCT("a b" INTEGER)`, `STRUCT("a c" INTEGER)`, "a b", "a c"},
		{"", "STRUCT(y INTEGER)", "", ""},
	} {
		if old, now := renamed(c.file, c.table); old != c.old || now != c.now {
			t.Errorf("%s, %s: %q, %q", c.file, c.table, old, now)
		}
	}
}

func TestNestedFields(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "COPY (SELECT {'a': 1, 'b': 'x'} AS st FROM range(2)) TO '%s/1.parquet' (FIELD_IDS {st: {__duckdb_field_id: 1, a: 2, b: 3}})")
	e := newEngine(t)
	read := func(typ string) (string, error) {
		src := table([]plan.Column{{Name: "st", Type: typ, FieldID: 1}}, plan.SourceFile{Path: dir + "/1.parquet"})
		out, err := run(t.Context(), e, task(), &plan.Query{SQL: "SELECT st::VARCHAR " + fromT, Sources: []plan.Source{src}})
		return out.String(), err
	}
	if got, err := read("STRUCT(b VARCHAR, a BIGINT, c DATE)"); err != nil || got != "{'b': x, 'a': 1, 'c': NULL}\n{'b': x, 'a': 1, 'c': NULL}" {
		t.Errorf("a field added: %s, %v", got, err)
	}
	if got, err := read("STRUCT(b VARCHAR)"); err != nil || got != "{'b': x}\n{'b': x}" {
		t.Errorf("a field dropped: %s, %v", got, err)
	}
	_, err := read("STRUCT(a BIGINT, title VARCHAR)")
	if commit.CodeOf(err) != commit.CodeSchemaDrift || !strings.Contains(err.Error(), `"b"`) || !strings.Contains(err.Error(), `"title"`) {
		t.Errorf("a field renamed: %v", err)
	}
}
