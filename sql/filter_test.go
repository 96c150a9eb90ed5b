package sql_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/firn-project/firn/sql"
)

// TestFilters: what a scan is told that a query can do without. Whatever isn't
// plainly a comparison of the table's column with literals tells nothing.
func TestFilters(t *testing.T) {
	for query, want := range map[string]string{
		"SELECT * FROM t": "",
		"SELECT * FROM t WHERE id = 5 AND 'x' < name AND t.score >= 2":                      `id = BIGINT 5 & name > VARCHAR x & score >= BIGINT 2`,
		"SELECT * FROM lake.air.t AS q WHERE q.id IN (1, 2) AND name IS NULL":               "id = BIGINT 1, BIGINT 2 & name =",
		"SELECT * FROM t WHERE name BETWEEN 'a' AND 'b'":                                    "name >= VARCHAR a & name <= VARCHAR b",
		"SELECT * FROM t WHERE id = 1 OR id = 2":                                            "",
		"SELECT * FROM t WHERE NOT id = 1":                                                  "",
		"SELECT * FROM t WHERE id <> 1":                                                     "",
		"SELECT * FROM t WHERE id + 1 = 2":                                                  "",
		"SELECT * FROM t WHERE id = 1.5":                                                    "",
		"SELECT * FROM t WHERE id NOT IN (1)":                                               "",
		"SELECT * FROM t WHERE id IN (1, score)":                                            "",
		"SELECT * FROM t WHERE id = TRY_CAST('1' AS INTEGER)":                               "",
		"SELECT * FROM t WHERE other.id = 1":                                                "!", // not bound, but nothing of t's
		"SELECT * FROM t TABLESAMPLE 10% WHERE id = 1":                                      "",
		"SELECT * FROM t AS q(a, b, c) WHERE a = 1":                                         "",
		"SELECT * FROM t JOIN (SELECT 1 AS k) ON true WHERE id = 1":                         "",
		"SELECT * FROM (SELECT * FROM t WHERE id = 1) UNION ALL SELECT * FROM t WHERE id=2": "id = BIGINT 1 | id = BIGINT 2",
		"SELECT * FROM (SELECT * FROM t WHERE id = 1) UNION ALL SELECT * FROM t":            "",
		"SELECT * FROM t WHERE id = 1 AND EXISTS (SELECT * FROM air.t)":                     "",
		"WITH c AS (SELECT * FROM t) SELECT * FROM c WHERE id = 1":                          "",
	} {
		f := newCatalogs(t)
		if _, _, err := bindOver(t, f, query); err != nil && want != "!" {
			t.Errorf("%s: %v", query, err)
			continue
		}
		if len(f.filters) == 0 {
			t.Errorf("%s: nothing was scanned", query)
			continue
		}
		if got := shownFilter(f.filters[0]); got != strings.TrimPrefix(want, "!") {
			t.Errorf("%s:\ngot  %s\nwant %s", query, got, want)
		}
	}
}

func shownFilter(f sql.Filter) string {
	var terms []string
	for _, t := range f {
		var parts []string
		for _, c := range t {
			var values []string
			for _, v := range c.Values {
				values = append(values, v.Type+" "+v.Text)
			}
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Column, c.Op, strings.Join(values, ", "))))
		}
		terms = append(terms, strings.Join(parts, " & "))
	}
	return strings.Join(terms, " | ")
}
