package sql

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// ResolveTable makes a full table name of one as written: the session gives
// what is left out. It doesn't look whether the table exists.
func (a *Analyzer) ResolveTable(ctx context.Context, name Name, session plan.Session) (commit.TableName, error) {
	return a.completeTable(ctx, name.Parts(), session)
}

// completeTable makes a full table name of 1 part or more: the session gives
// what is left out. Four parts or more are a nested namespace; where DuckDB's
// grammar allows only three, the namespace is one quoted part with dots in it.
func (a *Analyzer) completeTable(ctx context.Context, parts []string, session plan.Session) (commit.TableName, error) {
	last := len(parts) - 1
	if last < 0 {
		return commit.TableName{}, &commit.Error{Code: commit.CodeSQLNameIncomplete, Op: "resolve table", Cause: errors.New("a table has no name")}
	}
	if path, ok := deltaPath(parts); ok {
		return commit.TableName{Catalog: deltaCatalog, Name: path}, nil
	}
	name := commit.TableName{Catalog: session.Catalog, Name: parts[last]}
	incomplete := func(cause string) error {
		info, _ := commit.Explain(string(commit.CodeSQLNameIncomplete))
		hint := info.Hint
		if last == 0 && strings.ContainsAny(parts[0], "./") {
			hint += fmt.Sprintf(" If %s is a file, its ending doesn't say of what kind: read it with read_parquet, read_csv or read_json.", parts[0])
		}
		return &commit.Error{
			Code: commit.CodeSQLNameIncomplete, Op: "resolve table", Object: strings.Join(parts, "."), Cause: errors.New(cause), Hint: hint,
		}
	}
	switch {
	case len(parts) == 1:
		if session.Catalog == "" || len(session.Namespace) == 0 {
			return name, incomplete("neither the name nor the session says in which catalog and namespace it is")
		}
		name.Namespace = session.Namespace
		return name, nil
	case len(parts) == 2:
		catalogs, err := a.Catalogs.Catalogs(ctx)
		if err != nil {
			return name, err
		}
		if name.Catalog == "" && slices.Contains(catalogs, parts[0]) {
			return name, incomplete(parts[0] + " is a catalog; the namespace is missing")
		}
		if name.Catalog == "" && len(catalogs) == 1 {
			name.Catalog = catalogs[0]
		}
		if name.Catalog == "" {
			return name, incomplete("neither the name nor the session says in which catalog it is")
		}
		name.Namespace = strings.Split(parts[0], ".")
		return name, nil
	}
	name.Catalog = parts[0]
	if len(parts) == 3 {
		name.Namespace = strings.Split(parts[1], ".")
	} else {
		name.Namespace = slices.Clone(parts[1:last])
	}
	return name, a.knownCatalog(ctx, name.Catalog)
}

// deltaCatalog is the catalog part of the names of Delta tables that are named by
// their paths; such names have no namespace.
const deltaCatalog = "delta"

// deltaPath reads delta.`/dir`: no other table's name has a slash.
func deltaPath(parts []string) (string, bool) {
	if len(parts) != 2 || !strings.EqualFold(parts[0], deltaCatalog) || !strings.Contains(parts[1], "/") {
		return "", false
	}
	p := strings.TrimPrefix(parts[1], "file://")
	if strings.HasPrefix(p, "/") {
		return path.Clean(p), true
	}
	return strings.TrimRight(p, "/"), true
}

func (a *Analyzer) knownCatalog(ctx context.Context, catalog string) error {
	catalogs, err := a.Catalogs.Catalogs(ctx)
	if err != nil || slices.Contains(catalogs, catalog) {
		return err
	}
	hint := "The catalogs are " + strings.Join(catalogs, ", ") + "."
	if near := nearest(catalog, catalogs); near != "" {
		hint = "Did you mean " + near + "? " + hint
	}
	return &commit.Error{
		Code: commit.CodeSQLUnknownCatalog, Op: "resolve catalog", Object: catalog,
		Cause: errors.New("there is no such catalog"), Hint: hint,
	}
}

// nearest gives the name that a misspelt one was probably meant to be: the one
// with the fewest edits, if they are at most a third of it. Empty for none.
func nearest(name string, names []string) string {
	best, bestDistance := "", len([]rune(name))/3+1
	for _, n := range names {
		if d := distance(strings.ToLower(name), strings.ToLower(n), bestDistance); d < bestDistance {
			best, bestDistance = n, d
		}
	}
	return best
}

// distance is the number of characters to insert, delete, replace or swap with
// the next; limit or more is given as limit.
func distance(a, b string, limit int) int {
	s, t := []rune(a), []rune(b)
	if abs(len(s)-len(t)) >= limit {
		return limit
	}
	before, last, row := make([]int, len(t)+1), make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range last {
		last[j] = j
	}
	for i := range s {
		row[0] = i + 1
		for j := range t {
			cost := 1
			if s[i] == t[j] {
				cost = 0
			}
			row[j+1] = min(row[j]+1, last[j+1]+1, last[j]+cost)
			if i > 0 && j > 0 && s[i] == t[j-1] && s[i-1] == t[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return min(last[len(t)], limit)
}

func abs(n int) int { return max(n, -n) }
