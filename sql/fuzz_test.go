package sql_test

import (
	"context"
	"testing"

	"github.com/firn-project/firn/sql"
)

// told is a parser that gives a tree whatever the text is.
type told []byte

func (p told) ParseSelect(context.Context, string) ([]byte, error) { return p, nil }

func (told) FormatSelect(context.Context, []byte) (string, error) { return "SELECT 1", nil }

// FuzzTree: trees come from another process, in which a user's text was looked at.
// None makes the analyzer panic.
func FuzzTree(f *testing.F) {
	for _, q := range []string{
		"SELECT id + 1 AS n, now() FROM t WHERE id IN (SELECT a FROM 'x.parquet') GROUP BY ALL", "VALUES (1, 'a'), (2, NULL)",
		"WITH x AS (FROM read_csv('y.csv', header = true, names = ['a'])) SELECT * EXCLUDE (a) FROM x UNION ALL FROM t AT (VERSION => 9)",
	} {
		tree, err := parser.ParseSelect(context.Background(), q)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(tree)
	}
	statements, err := sql.Parse("SELECT 1; INSERT INTO lake.air.t VALUES (1)")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, tree []byte) {
		a := &sql.Analyzer{Catalogs: newCatalogs(t), Binder: newBinder(t), Parser: told(tree)}
		for _, st := range statements {
			_, _ = a.Bind(t.Context(), st, airSession, testOptions)
		}
	})
}
