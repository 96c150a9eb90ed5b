package sql

import (
	"fmt"
	"slices"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// Verify reads the tree of a query as DuckDB will run it, decoded from the JSON
// of json_serialize_sql, and refuses it if anything is named in it but the views
// of its sources, or if it calls what a query may not call. The analyzer verifies
// what it wrote, whatever the way back from tree to text did; an executor verifies
// what it was sent. The error is a *commit.Error with CodeSQLRefused or
// CodeSQLSyntax.
func Verify(tree map[string]any, sources []plan.Source) error {
	if rootOf(tree) == nil {
		return (&verifier{}).fail(nil, commit.CodeSQLRefused, "it isn't exactly one query", "")
	}
	v := &verifier{views: map[string]bool{}}
	for _, s := range sources {
		if len(s.View) == 0 || len(s.View) > 3 {
			return v.fail(nil, commit.CodeSQLRefused, fmt.Sprintf("a source has a name of %d parts", len(s.View)), "")
		}
		parts := append(slices.Repeat([]string{""}, 3-len(s.View)), s.View...)
		v.views[asciiLower(viewKey(parts...))] = true
	}
	w := &walker{v: v, ctes: map[string]bool{}}
	_, err := w.walk(tree, nil, 0)
	return err
}

// verifier is the visitor behind Verify.
type verifier struct{ views map[string]bool }

func viewKey(parts ...string) string { return strings.Join(parts, "\x00") }

func (v *verifier) fail(_ node, code commit.Code, cause, hint string) error {
	return &commit.Error{Code: code, Op: "check query", Cause: fmt.Errorf("in the query as DuckDB gets it: %s", cause), Hint: hint}
}

func (v *verifier) baseTable(n node) (any, error) {
	key := asciiLower(viewKey(text(n, "catalog_name"), text(n, "schema_name"), text(n, "table_name")))
	if !v.views[key] || n["at_clause"] != nil {
		return nil, v.fail(n, commit.CodeSQLRefused, "the table "+text(n, "table_name")+" isn't a source of the query", "")
	}
	return n, nil
}

func (v *verifier) tableFunction(n node) (any, error) {
	if name := asciiLower(text(child(n, "function"), "function_name")); !tableFunctions[name] {
		return nil, v.fail(n, commit.CodeSQLRefused, "the table function "+name+" is refused: "+deniedTableFunction(name), "")
	}
	return n, nil
}

func (v *verifier) expression(n node) (any, error) {
	if name := asciiLower(text(n, "function_name")); name != "" {
		if reason := deniedFunction(name); reason != "" {
			return nil, v.fail(n, commit.CodeSQLRefused, "the function "+name+" is refused: "+reason, "")
		}
	}
	return n, nil
}

func (v *verifier) constant(n node) node { return n }

func (v *verifier) selectItem(node) error { return nil }

// ReaderTakes says whether a source of a kind may have a reader's option of that
// name.
func ReaderTakes(kind plan.SourceKind, option string) bool {
	switch kind {
	case plan.SourceParquet:
		return parquetOptions[option]
	case plan.SourceCSV:
		return csvOptions[option]
	case plan.SourceJSON:
		return jsonOptions[option]
	default:
		return false
	}
}
