package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/firn-project/firn/internal/duckdb"
)

// FuzzLiteralOnly: text that goes through is, to DuckDB's parser too, without
// queries and calls.
func FuzzLiteralOnly(f *testing.F) {
	for _, s := range []string{
		"main.struct_pack(a := 'x', \"b\" := [1, -2.5])", "DECIMAL(18,2)", "CAST('t' AS BOOLEAN)", "{'a': DATE '2020-01-01'}", "E'\\''", "(SELECT 1)", "getenv('X')", "'a' 'b'", "\u00a0(FROM x)",
	} {
		f.Add(s)
	}
	in, err := duckdb.Open(f.Context(), duckdb.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(in.Close)
	f.Fuzz(func(t *testing.T, s string) {
		if literalOnly(s) != nil || strings.ContainsRune(s, 0) {
			return
		}
		for _, q := range []string{"SELECT (" + s + ")", "SELECT " + s, "SELECT CAST(NULL AS " + s + ")", "SELECT * FROM read_csv([''], delim = " + s + ")"} {
			tree, err := in.Tree(t.Context(), q)
			if err != nil {
				continue
			}
			visit(tree, func(n map[string]any) {
				name := strings.ToLower(text(n["function_name"]))
				// What DuckDB writes operators and brackets with is none of the text's.
				if n["class"] == "FUNCTION" && name != "read_csv" && !slices.Contains(append(callable, "-", "+", "list_value", "struct_pack", "array_extract", "array_slice", "struct_extract"), name) {
					t.Errorf("%q calls %s", s, name)
				}
				if n["class"] == "SUBQUERY" || n["type"] == "BASE_TABLE" || n["type"] == "SUBQUERY" {
					t.Errorf("%q has a query in it", s)
				}
			})
		}
	})
}

func visit(v any, f func(map[string]any)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			visit(e, f)
		}
	case map[string]any:
		f(v)
		for _, e := range v {
			visit(e, f)
		}
	}
}
