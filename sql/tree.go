package sql

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/firn-project/firn/commit"
)

// node is an object of DuckDB's parse tree. There are three families, told
// apart by their keys: query nodes ("cte_map"), expressions ("class") and table
// references ("sample", with a "type"); what remains are plain structs.
type node = map[string]any

// maxTreeDepth bounds the nesting of a tree. DuckDB's own limit of 1000 is on
// expressions; a chain of UNIONs nests without one.
const maxTreeDepth = 8000

// decodeTree reads the JSON of one SELECT. Numbers stay as written: locations
// and huge integers don't fit a float64.
func decodeTree(b []byte) (node, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var tree node
	if err := d.Decode(&tree); err != nil {
		return nil, fmt.Errorf("the parse tree can't be read: %w", err)
	}
	if list, ok := tree["statements"].([]any); !ok || len(list) != 1 {
		return nil, errors.New("the text isn't exactly one query")
	}
	return tree, nil
}

// rootOf gives the tree's top query node.
func rootOf(tree node) node {
	list, _ := tree["statements"].([]any)
	if len(list) != 1 {
		return nil
	}
	st, _ := list[0].(node)
	root, _ := st["node"].(node)
	return root
}

func encodeTree(tree node) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(tree); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// expressionTree wraps an expression so that FormatSelect writes it.
func expressionTree(expr any) node {
	return node{"error": false, "statements": []any{node{
		"named_param_map": []any{},
		"node": node{
			"type": "SELECT_NODE", "modifiers": []any{}, "cte_map": node{"map": []any{}},
			"select_list":  []any{expr},
			"from_table":   node{"type": "EMPTY", "alias": "", "sample": nil, "query_location": noLocation},
			"where_clause": nil, "group_expressions": []any{}, "group_sets": []any{},
			"aggregate_handling": "STANDARD_HANDLING", "having": nil, "sample": nil, "qualify": nil,
		},
	}}}
}

// noLocation is what DuckDB writes where there's no place in the text.
const noLocation = json.Number("18446744073709551615")

func text(n node, key string) string { s, _ := n[key].(string); return s }
func child(n node, key string) node  { c, _ := n[key].(node); return c }
func list(n node, key string) []any  { l, _ := n[key].([]any); return l }

// scope is the chain of CTE names that a place in the tree can see.
type scope struct {
	outer *scope
	name  string
}

func (s *scope) has(name string) bool {
	for ; s != nil; s = s.outer {
		if s.name == name {
			return true
		}
	}
	return false
}

// visitor decides about the parts of a tree that matter. Each method returns
// what takes the node's place, usually the node itself.
type visitor interface {
	// baseTable gets a table reference by name that no CTE in scope answers.
	baseTable(n node) (any, error)
	// tableFunction gets a call in a FROM clause; its arguments are walked
	// afterwards, if it's still there.
	tableFunction(n node) (any, error)
	// constant gets every literal.
	constant(n node) node
	// expression gets every other expression, before its children.
	expression(n node) (any, error)
	// selectItem gets an item of a SELECT list before it is walked.
	selectItem(item node) error
	// fail makes the error for a place.
	fail(n node, code commit.Code, cause, hint string) error
}

// walker walks a whole tree, keeping track of the CTEs in scope. What it
// doesn't know it refuses: a kind of node added to DuckDB later could hold a
// reference that nobody looked at.
type walker struct {
	v visitor
	// ctes are the names of all CTEs met, in lower case.
	ctes map[string]bool
}

var expressionClasses = setOf("FUNCTION COLUMN_REF STAR COMPARISON CONJUNCTION CAST OPERATOR CASE SUBQUERY WINDOW LAMBDA " +
	"LAMBDA_REF BETWEEN COLLATE POSITIONAL_REFERENCE TYPE")

func (w *walker) walk(v any, sc *scope, depth int) (any, error) {
	switch v := v.(type) {
	case []any:
		for i := range v {
			r, err := w.walk(v[i], sc, depth+1)
			if err != nil {
				return nil, err
			}
			v[i] = r
		}
		return v, nil
	case node:
		if depth > maxTreeDepth {
			return nil, w.v.fail(v, commit.CodeSQLSyntax, "the query is nested too deeply", "Split it into several statements.")
		}
		return w.node(v, sc, depth)
	}
	return v, nil
}

func (w *walker) node(n node, sc *scope, depth int) (any, error) {
	if _, ok := n["cte_map"]; ok {
		return n, w.query(n, sc, depth)
	}
	if class, ok := n["class"].(string); ok {
		return w.expression(n, class, sc, depth)
	}
	_, sample := n["sample"]
	_, named := n["table_name"]
	if sample || named {
		return w.tableRef(n, sc, depth)
	}
	return n, w.children(n, sc, depth)
}

// children walks everything in a node, in the order of the keys so that the
// order of visits is always the same.
func (w *walker) children(n node, sc *scope, depth int, except ...string) error {
	for _, key := range slices.Sorted(maps.Keys(n)) {
		if slices.Contains(except, key) {
			continue
		}
		switch n[key].(type) {
		case node, []any:
			r, err := w.walk(n[key], sc, depth+1)
			if err != nil {
				return err
			}
			n[key] = r
		}
	}
	return nil
}

// query walks a query node. A CTE sees those before it; only a recursive one
// sees itself.
func (w *walker) query(n node, sc *scope, depth int) error {
	for _, e := range list(child(n, "cte_map"), "map") {
		entry, _ := e.(node)
		if entry == nil {
			return w.v.fail(n, commit.CodeSQLRefused, "a WITH clause isn't understood", "")
		}
		if err := w.children(entry, sc, depth); err != nil {
			return err
		}
		sc = w.declare(sc, text(entry, "key"))
	}
	switch text(n, "type") {
	case "SELECT_NODE":
		for _, item := range list(n, "select_list") {
			if item, ok := item.(node); ok {
				if err := w.v.selectItem(item); err != nil {
					return err
				}
			}
		}
	case "SET_OPERATION_NODE":
	case "RECURSIVE_CTE_NODE":
		sc = w.declare(sc, text(n, "cte_name"))
	default:
		return w.v.fail(n, commit.CodeSQLRefused, "a query of the kind "+text(n, "type")+" isn't understood", "")
	}
	return w.children(n, sc, depth, "cte_map")
}

func (w *walker) declare(sc *scope, name string) *scope {
	name = asciiLower(name)
	w.ctes[name] = true
	return &scope{outer: sc, name: name}
}

func (w *walker) expression(n node, class string, sc *scope, depth int) (any, error) {
	switch {
	case class == "CONSTANT":
		return w.v.constant(n), nil
	case class == "PARAMETER":
		return nil, w.v.fail(n, commit.CodeSQLRefused, "parameters aren't supported", "Write the value itself.")
	case class == "DEFAULT":
		return nil, w.v.fail(n, commit.CodeSQLRefused, "DEFAULT isn't supported: columns have no default values", "Leave the column out, or write NULL.")
	case !expressionClasses[class]:
		return nil, w.v.fail(n, commit.CodeSQLRefused, "an expression of the kind "+class+" isn't understood", "")
	}
	r, err := w.v.expression(n)
	if err != nil {
		return nil, err
	}
	if r, ok := r.(node); ok {
		if err := w.children(r, sc, depth); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (w *walker) tableRef(n node, sc *scope, depth int) (any, error) {
	var r any = n
	var err error
	switch kind := text(n, "type"); kind {
	case "EMPTY", "SUBQUERY", "JOIN", "EXPRESSION_LIST", "PIVOT":
	case "BASE_TABLE":
		schema, name := asciiLower(text(n, "schema_name")), asciiLower(text(n, "table_name"))
		if text(n, "catalog_name") == "" && (schema == "" || schema == "recurring") && sc.has(name) {
			if n["at_clause"] != nil {
				return nil, w.v.fail(n, commit.CodeSQLRefused, "AT needs a catalog table; "+text(n, "table_name")+" is a WITH query", "")
			}
			return n, nil
		}
		return w.v.baseTable(n)
	case "TABLE_FUNCTION":
		if r, err = w.v.tableFunction(n); err != nil {
			return nil, err
		}
		if r, ok := r.(node); ok && text(r, "type") == "TABLE_FUNCTION" {
			return r, w.children(child(r, "function"), sc, depth)
		}
		return r, nil
	case "SHOW_REF":
		if t := text(n, "show_type"); t != "DESCRIBE" && t != "SUMMARY" || n["query"] == nil {
			return nil, w.v.fail(n, commit.CodeSQLRefused, "SHOW isn't supported inside a query", "SHOW TABLES and DESCRIBE are statements of their own.")
		}
	default:
		return nil, w.v.fail(n, commit.CodeSQLRefused, "a table reference of the kind "+kind+" isn't understood", "")
	}
	return r, w.children(n, sc, depth)
}
