package engine

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sql"
)

// treeInfo is what a query's parse tree says.
type treeInfo struct {
	functions []string // lower case
	sampled   bool
	// bare: a column is named without its table.
	bare bool
}

// checkTree parses a query and refuses it unless it is one SELECT over the views
// of its sources and harmless functions. The scheduler has checked that already;
// an executor doesn't rely on it.
func (s *session) checkTree(ctx context.Context, query string, sources []plan.Source) (*treeInfo, error) {
	tree, err := s.db.Tree(ctx, query)
	if err != nil {
		return nil, err
	}
	if err := sql.Verify(tree, sources); err != nil {
		if e, ok := errors.AsType[*commit.Error](err); ok {
			err = e.Cause
		}
		return nil, refused("%w", err)
	}
	info := &treeInfo{}
	info.walk(tree)
	return info, s.fixClock(ctx, info, sources)
}

func (i *treeInfo) walk(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			i.walk(e)
		}
	case map[string]any:
		i.node(v)
		for _, e := range v {
			i.walk(e)
		}
	}
}

func (i *treeInfo) node(v map[string]any) {
	if v["sample"] != nil {
		i.sampled = true
	}
	switch v["class"] {
	case "FUNCTION":
		i.functions = append(i.functions, strings.ToLower(text(v["function_name"])))
	case "COLUMN_REF":
		parts, _ := v["column_names"].([]any)
		i.bare = i.bare || len(parts) < 2
	}
}

func text(v any) string {
	s, _ := v.(string)
	return s
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
