package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/internal/cluster"
)

// TestExplainSaysWhy: EXPLAIN says which queries run whole in one task and what of them
// decided it, over real files and a table, from DuckDB's own plan.
func TestExplainSaysWhy(t *testing.T) {
	dir := t.TempDir()
	lake, err := cluster.Start(t.Context(), cluster.Config{Dir: dir, Memory: 512 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, lake.Close(context.WithoutCancel(t.Context()))) })
	c, err := client.Dial(t.Context(), lake.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, c.Close()) })
	path, err := filepath.Abs("../../examples/flights/flights-sample.parquet")
	if err != nil {
		t.Fatal(err)
	}
	flights := fmt.Sprintf("read_parquet('%s')", path)
	must(t, c, "CREATE NAMESPACE lake.air")
	must(t, c, "CREATE TABLE lake.air.t (origin string, n bigint)")
	must(t, c, "INSERT INTO lake.air.t SELECT origin, delay FROM "+flights)

	// Both are large enough to be cut, if the query lets them.
	both := fmt.Sprintf("read_parquet(['%s', '%[1]s'])", path)
	for query, why := range map[string]string{
		"SELECT origin, avg(delay) FROM %s GROUP BY origin":                   "the operator HASH_GROUP_BY needs all rows at once",
		"INSERT INTO lake.air.t SELECT origin, count(*) FROM %s GROUP BY ALL": "the operator HASH_GROUP_BY needs all rows at once",
		"SELECT max(delay) FROM %s":                                           "the operator UNGROUPED_AGGREGATE needs all rows at once",
		"SELECT origin FROM %s ORDER BY delay":                                "the operator ORDER_BY needs all rows at once",
		"SELECT origin, lag(delay) OVER (ORDER BY date) FROM %s":              "the operator WINDOW needs all rows at once",
		"SELECT DISTINCT origin FROM %s":                                      "the operator HASH_GROUP_BY needs all rows at once",
		"SELECT random() FROM %s":                                             "it isn't deterministic",
		"SELECT * FROM %s JOIN lake.air.t USING (origin)":                     "it reads more than one source",
		"INSERT INTO lake.air.t VALUES ('a', 1)":                              "it reads no source",
		"SELECT sum(n) FROM lake.air.t":                                       "the operator UNGROUPED_AGGREGATE needs all rows at once",
	} {
		query = "EXPLAIN " + strings.ReplaceAll(query, "%s", both)
		if got := ask(t, c, query); !strings.Contains(got, "query: whole, in one task ("+why+")") {
			t.Errorf("%s: want the reason %q in\n%s", query, why, got)
		}
	}
	if got := ask(t, c, "EXPLAIN SELECT origin FROM "+both+" WHERE delay > 9"); !strings.Contains(got, "query: parallel over ") ||
		!strings.Contains(got, "(each row of its one source is handled by itself)") {
		t.Errorf("a query that may run in parallel:\n%s", got)
	}
}
