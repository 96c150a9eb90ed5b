package engine

import (
	"context"
	"slices"
	"strings"

	"github.com/firn-project/firn/plan"
)

// tableFunctions are those that a query may call: they make rows from their
// arguments. Readers of files aren't among them, since sources come as views;
// nor are those that show or change the state of the instance, or run text.
var tableFunctions = []string{
	"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree",
	"generate_subscripts", "test_all_types", "icu_calendar_names", "pg_timezone_names",
}

// scalarRefusals are functions with effects.
var scalarRefusals = []string{"write_log", "nextval", "currval", "setseed", "sleep_ms"}

// treeInfo is what a query's parse tree says.
type treeInfo struct {
	functions []string // lower case
	tables    [][]string
	ctes      []string
	sampled   bool
	// bare: a column is named without its table.
	bare bool
}

// checkTree parses a query and refuses it unless it is one SELECT over the views
// of its sources and harmless table functions. The scheduler has checked that
// already; an executor doesn't rely on it.
func (s *session) checkTree(ctx context.Context, sql string, sources []plan.Source) (*treeInfo, error) {
	tree, err := s.db.Tree(ctx, sql)
	if err != nil {
		return nil, err
	}
	info := &treeInfo{}
	if err := info.walk(tree); err != nil {
		return nil, err
	}
	for _, t := range info.tables {
		if !info.known(t, sources) {
			return nil, refused("%s isn't a source of the query", strings.Join(t, "."))
		}
	}
	return info, s.fixClock(ctx, info, sources)
}

func (i *treeInfo) walk(v any) error {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if err := i.walk(e); err != nil {
				return err
			}
		}
	case map[string]any:
		if err := i.node(v); err != nil {
			return err
		}
		for _, e := range v {
			if err := i.walk(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (i *treeInfo) node(v map[string]any) error {
	if v["sample"] != nil {
		i.sampled = true
	}
	if m, ok := v["cte_map"].(map[string]any); ok {
		entries, _ := m["map"].([]any)
		for _, e := range entries {
			if e, ok := e.(map[string]any); ok {
				i.ctes = append(i.ctes, text(e["key"]))
			}
		}
	}
	switch {
	case v["type"] == "BASE_TABLE":
		var name []string
		for _, k := range []string{"catalog_name", "schema_name", "table_name"} {
			if p := text(v[k]); p != "" {
				name = append(name, p)
			}
		}
		i.tables = append(i.tables, name)
	case v["type"] == "TABLE_FUNCTION":
		f, _ := v["function"].(map[string]any)
		name := strings.ToLower(text(f["function_name"]))
		if !slices.Contains(tableFunctions, name) {
			return refused("the table function %q isn't allowed", name)
		}
	case v["class"] == "FUNCTION":
		name := strings.ToLower(text(v["function_name"]))
		if slices.Contains(scalarRefusals, name) {
			return refused("the function %q isn't allowed", name)
		}
		i.functions = append(i.functions, name)
	case v["class"] == "COLUMN_REF":
		parts, _ := v["column_names"].([]any)
		i.bare = i.bare || len(parts) < 2
	}
	return nil
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// known says whether a name is a source's view or a common table expression.
func (i *treeInfo) known(name []string, sources []plan.Source) bool {
	for _, s := range sources {
		if slices.EqualFunc(s.View, name, strings.EqualFold) {
			return true
		}
	}
	return len(name) == 1 && slices.ContainsFunc(i.ctes, func(c string) bool { return strings.EqualFold(c, name[0]) })
}

// deterministic says whether the query gives the same rows whenever it runs.
func (s *session) deterministic(ctx context.Context, info *treeInfo) (bool, error) {
	if info.sampled || len(info.functions) == 0 {
		return !info.sampled, nil
	}
	if s.volatile == nil {
		rows, err := s.db.Strings(ctx, "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability <> 'CONSISTENT'")
		if err != nil {
			return false, err
		}
		s.volatile = map[string]bool{}
		for _, r := range rows {
			s.volatile[r[0]] = !slices.Contains(fixedClock, r[0])
		}
	}
	for _, f := range info.functions {
		if s.volatile[f] {
			return false, nil
		}
	}
	return true, nil
}
