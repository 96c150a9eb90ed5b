package sql

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/plan"
)

// castStrings makes the strings of a VALUES list what their column is, where
// other rows of the column aren't strings. DuckDB would make the strings what
// those are: '2.5' beside 1 becomes 3, and '2020-01-01' beside now() an error.
func (t *target) castStrings(in *Insert, items [][]node) (changed bool) {
	for k, column := range items {
		i := k
		if in.Columns != nil {
			if k >= len(in.Columns) {
				break
			}
			i = t.find(in.Columns[k].Name)
		}
		if in.ByName || i < 0 || i >= len(t.types) || !mixed(column) {
			continue
		}
		castType := treeType(t.fields[i].Type, t.types[i])
		for j, n := range column {
			if s, ok := stringOf(n); ok && castType != nil {
				column[j] = maps.Clone(n) // as written, for fits
				cast := castOf("", s, column[j])
				cast["cast_type"] = castType
				clear(n)
				maps.Copy(n, cast)
				changed = true
			}
		}
	}
	return changed
}

// mixed says whether there are strings and something else among expressions.
// NULL is neither.
func mixed(items []node) bool {
	quoted, others := false, false
	for _, n := range items {
		_, is := stringOf(n)
		null, _ := child(n, "value")["is_null"].(bool)
		quoted = quoted || is
		others = others || !is && !null
	}
	return quoted && others
}

// treeType is a column's type as the parse tree has it; nil for a string and
// for nested types.
func treeType(t iceberg.Type, name string) node {
	switch t := t.(type) {
	case iceberg.DecimalType:
		return node{"id": "DECIMAL", "type_info": node{
			"type": "DECIMAL_TYPE_INFO", "alias": "", "extension_info": nil, "width": t.Precision(), "scale": t.Scale(),
		}}
	case iceberg.StringType:
		return nil
	case iceberg.PrimitiveType:
		return node{"id": name, "type_info": nil}
	}
	return nil
}

// allLiterals says whether the expressions are all literals that may stand for
// a value of the type.
func allLiterals(items []node, to iceberg.Type) bool {
	for _, n := range items {
		if !literalFits(n, to) {
			return false
		}
	}
	return len(items) > 0
}

// literalFits says whether a literal written in SQL may be converted to the
// type: a string to anything but a nested type, numbers to numbers unless
// digits after the point would go. What doesn't convert fails at run time.
func literalFits(n node, to iceberg.Type) bool {
	switch text(n, "class") {
	case "CONSTANT":
		return constantFits(child(n, "value"), to)
	case "FUNCTION":
		return functionFits(n, to)
	}
	return false
}

func constantFits(value node, to iceberg.Type) bool {
	if null, _ := value["is_null"].(bool); null {
		return true
	}
	_, isDecimal := to.(iceberg.DecimalType)
	var isInteger, isFloat bool
	switch to.(type) {
	case iceberg.Int32Type, iceberg.Int64Type:
		isInteger = true
	case iceberg.Float32Type, iceberg.Float64Type:
		isFloat = true
	}
	typ := child(value, "type")
	switch text(typ, "id") {
	case "VARCHAR":
		_, primitive := to.(iceberg.PrimitiveType)
		return primitive
	case "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UHUGEINT", "UBIGINT":
		return isInteger || isFloat || isDecimal
	case "DECIMAL":
		if d, ok := to.(iceberg.DecimalType); ok {
			return significantScale(value) <= d.Scale()
		}
		return isFloat
	case "DOUBLE", "FLOAT":
		return isFloat
	}
	return false
}

// significantScale is the number of digits after the point of a decimal
// literal, without zeros at its end.
func significantScale(value node) int {
	info := child(child(value, "type"), "type_info")
	scale, err := strconv.Atoi(fmt.Sprint(info["scale"]))
	if err != nil {
		return 38
	}
	if _, wide := value["value"].(node); wide { // a 128-bit value, in two halves
		return scale
	}
	digits := fmt.Sprint(value["value"])
	for scale > 0 && strings.HasSuffix(digits, "0") {
		digits, scale = digits[:len(digits)-1], scale-1
	}
	if digits == "" || digits == "-" {
		return 0
	}
	return scale
}

// functionFits is literalFits for what is written as a function in the tree:
// lists, maps, structs and signs.
func functionFits(n node, to iceberg.Type) bool {
	items := list(n, "children")
	name := text(n, "function_name")
	switch to := to.(type) {
	case *iceberg.ListType:
		return name == "list_value" && eachFits(items, to.Element)
	case *iceberg.MapType: // a list of keys and one of values, or nothing
		if name != "map" || len(items) == 0 {
			return name == "map"
		}
		keys, _ := items[0].(node)
		values, _ := items[len(items)-1].(node)
		return len(items) == 2 && text(keys, "function_name") == "list_value" && text(values, "function_name") == "list_value" &&
			eachFits(list(keys, "children"), to.KeyType) && eachFits(list(values, "children"), to.ValueType)
	case *iceberg.StructType:
		if name != "struct_pack" || len(items) != len(to.FieldList) {
			return false
		}
		for i, item := range items {
			c, _ := item.(node)
			if !strings.EqualFold(text(c, "alias"), to.FieldList[i].Name) || !literalFits(c, to.FieldList[i].Type) {
				return false
			}
		}
		return true
	}
	if name != "-" || len(items) != 1 {
		return false
	}
	c, _ := items[0].(node)
	return text(child(child(c, "value"), "type"), "id") != "VARCHAR" && literalFits(c, to)
}

func eachFits(items []any, to iceberg.Type) bool {
	for _, item := range items {
		if c, _ := item.(node); !literalFits(c, to) {
			return false
		}
	}
	return true
}

// constantTypes are the types of literals, and of strings that are cast to
// them, that bindConstants knows. A decimal's is known by its width and scale.
var constantTypes = setOf("BOOLEAN INTEGER BIGINT HUGEINT FLOAT DOUBLE VARCHAR BLOB DATE TIME TIMESTAMP UUID")

// bindConstants binds what needs no engine: a VALUES list, and nothing around
// it, in which each column's items are literals of one and the same type. The
// result is that of a probe. Whatever isn't plainly of that kind is left to the
// probe, with its rules for rows of different types and its errors.
func bindConstants(root node) (plan.ProbeResult, bool) {
	from := child(root, "from_table")
	if !plainValues(root) || len(list(root, "modifiers"))+len(list(child(root, "cte_map"), "map")) > 0 ||
		len(list(root, "group_expressions"))+len(list(root, "group_sets"))+len(list(from, "expected_names"))+len(list(from, "expected_types")) > 0 {
		return plan.ProbeResult{}, false
	}
	for _, part := range []string{"where_clause", "having", "qualify", "sample"} {
		if root[part] != nil || from[part] != nil {
			return plan.ProbeResult{}, false
		}
	}
	items := valuesItems(list(from, "values"))
	res := plan.ProbeResult{Columns: make([]plan.Column, len(items)), Deterministic: true, Why: "the query reads no source"}
	for i, column := range items {
		typ := constantType(column[0])
		for _, n := range column {
			if typ == "" || constantType(n) != typ {
				return plan.ProbeResult{}, false
			}
		}
		res.Columns[i] = plan.Column{Name: fmt.Sprintf("col%d", i), Type: typ}
	}
	return res, len(items) > 0
}

// constantType is the type of a literal, or of a string that is cast; empty for
// everything else. Any string can be cast as far as binding is concerned: one
// that has no such value fails when the query runs.
func constantType(n node) string {
	value, typ := child(n, "value"), child(child(n, "value"), "type")
	if text(n, "class") == "CAST" {
		c := child(n, "child")
		if _, ok := stringOf(c); !ok {
			return ""
		}
		value, typ = child(c, "value"), child(n, "cast_type")
	} else if text(n, "class") != "CONSTANT" {
		return ""
	}
	if null, ok := value["is_null"].(bool); null || !ok {
		return ""
	}
	id, info := text(typ, "id"), child(typ, "type_info")
	switch {
	case id == "DECIMAL" && info != nil:
		return fmt.Sprintf("DECIMAL(%v,%v)", info["width"], info["scale"])
	case info == nil && constantTypes[id], info == nil && id == "TIMESTAMP WITH TIME ZONE":
		return id
	}
	return ""
}
