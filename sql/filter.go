package sql

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/firn-project/firn/plan"
)

// Filter says of a table which rows a query can do without: those of which none of
// the terms holds. nil filters nothing. It is taken from the text alone, so that
// what it names may not be there.
type Filter [][]Comparison

// Comparison compares a column with literals; it holds when it does for one of them.
type Comparison struct {
	Column string
	// Op is =, <, <=, > or >=.
	Op string
	// Values are none for IS NULL, which has the operator =.
	Values []Literal
}

// Literal is a value as written.
type Literal struct {
	// Type is BIGINT for whole numbers, else VARCHAR or the type that a string is
	// cast to.
	Type, Text string
}

// comparisons are the operators by their names in a parse tree, with what they are
// when the sides are changed.
var comparisons = map[string][2]string{
	"COMPARE_EQUAL": {"=", "="}, "COMPARE_LESSTHAN": {"<", ">"}, "COMPARE_LESSTHANOREQUALTO": {"<=", ">="},
	"COMPARE_GREATERTHAN": {">", "<"}, "COMPARE_GREATERTHANOREQUALTO": {">=", "<="},
}

// filterKey is the key of a node's own note; it never reaches DuckDB.
const filterKey = "firn_filter"

// filters collects, for each table of a query by its full name and version, what
// all references to it filter by. A reference that filters nothing makes it nil. A
// CTE that has a table's name counts as a reference; that only keeps more rows.
func (a *Analyzer) filters(ctx context.Context, tree node, session plan.Session) map[string]Filter {
	search(tree, func(n node) {
		from, where := child(n, "from_table"), child(n, "where_clause")
		if text(n, "type") == "SELECT_NODE" && text(from, "type") == "BASE_TABLE" && where != nil && from["sample"] == nil && len(list(from, "column_name_alias")) == 0 {
			from[filterKey] = term(nil, where, []string{text(from, "alias"), text(from, "table_name")})
		}
	})
	out := map[string]Filter{}
	search(tree, func(n node) {
		if text(n, "type") != "BASE_TABLE" {
			return
		}
		t, _ := n[filterKey].([]Comparison)
		delete(n, filterKey)
		name, err := a.completeTable(ctx, tableParts(n), session)
		if err != nil {
			return // it is no table, or refused later
		}
		key := name.String()
		before, seen := out[key]
		if len(t) == 0 || seen && before == nil {
			out[key] = nil
			return
		}
		out[key] = append(before, t)
	})
	return out
}

func tableParts(n node) []string {
	parts := []string{text(n, "catalog_name"), text(n, "schema_name"), text(n, "table_name")}
	return slices.DeleteFunc(parts, func(p string) bool { return p == "" })
}

// term adds the comparisons that must hold for an expression to be true; what isn't
// understood adds none.
func term(t []Comparison, e node, of []string) []Comparison {
	kind := text(e, "type")
	switch text(e, "class") {
	case "CONJUNCTION":
		if kind == "CONJUNCTION_AND" {
			for _, c := range list(e, "children") {
				c, _ := c.(node)
				t = term(t, c, of)
			}
		}
	case "COMPARISON":
		if op, ok := comparisons[kind]; ok {
			t = compare(t, child(e, "left"), op[0], of, child(e, "right"))
			t = compare(t, child(e, "right"), op[1], of, child(e, "left"))
		}
	case "BETWEEN":
		if kind == "COMPARE_BETWEEN" {
			t = compare(t, child(e, "input"), ">=", of, child(e, "lower"))
			t = compare(t, child(e, "input"), "<=", of, child(e, "upper"))
		}
	case "OPERATOR":
		var parts []node
		for _, c := range list(e, "children") {
			c, _ := c.(node)
			parts = append(parts, c)
		}
		switch {
		case kind == "COMPARE_IN" && len(parts) > 1:
			t = compare(t, parts[0], "=", of, parts[1:]...)
		case kind == "OPERATOR_IS_NULL" && len(parts) == 1:
			t = compare(t, parts[0], "=", of)
		}
	}
	return t
}

// compare adds a comparison of a column with literals, if that is what it is.
func compare(t []Comparison, column node, op string, of []string, values ...node) []Comparison {
	name, ok := columnOf(column, of)
	if !ok {
		return t
	}
	c := Comparison{Column: name, Op: op}
	for _, v := range values {
		l, ok := literalOf(v)
		if !ok {
			return t
		}
		c.Values = append(c.Values, l)
	}
	return append(t, c)
}

// columnOf reads a column, alone or behind one of the names of its table.
func columnOf(n node, of []string) (string, bool) {
	names := list(n, "column_names")
	if text(n, "class") != "COLUMN_REF" || len(names) == 0 || len(names) > 2 {
		return "", false
	}
	last, _ := names[len(names)-1].(string)
	if len(names) == 2 {
		first, _ := names[0].(string)
		if !slices.ContainsFunc(of, func(o string) bool { return o != "" && strings.EqualFold(o, first) }) {
			return "", false
		}
	}
	return last, last != ""
}

func literalOf(n node) (Literal, bool) {
	typ := "VARCHAR"
	if text(n, "class") == "CAST" {
		if try, _ := n["try_cast"].(bool); try || child(n, "cast_type")["type_info"] != nil {
			return Literal{}, false
		}
		typ = text(child(n, "cast_type"), "id")
		n = child(n, "child")
	}
	if s, ok := stringOf(n); ok {
		return Literal{Type: typ, Text: s}, true
	}
	value := child(n, "value")
	number, ok := value["value"].(json.Number)
	if !ok || typ != "VARCHAR" || text(n, "class") != "CONSTANT" {
		return Literal{}, false
	}
	switch text(child(value, "type"), "id") {
	case "TINYINT", "SMALLINT", "INTEGER", "BIGINT":
		return Literal{Type: "BIGINT", Text: number.String()}, true
	}
	return Literal{}, false
}
