package integration_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/internal/cluster"
)

// startPlanned is start with a way of planning.
func startPlanned(t *testing.T, planning string) *lake {
	t.Helper()
	dir := t.TempDir()
	c, err := cluster.Start(t.Context(), cluster.Config{Dir: dir, Executors: 2, SlotsPerExecutor: 2, CheckAllFiles: true, Planning: planning})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := client.Dial(t.Context(), c.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(cl.Close(), c.Close(context.Background())); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &lake{Client: cl, t: t, dir: dir}
}

// TestAdaptiveAgainstStatic: however stages are cut, a table has the same rows; a
// skewed partition isn't one task, few rows are, and EXPLAIN ANALYZE tells both.
func TestAdaptiveAgainstStatic(t *testing.T) {
	in := filepath.Join(t.TempDir(), "skewed.parquet")
	duck(t, fmt.Sprintf(`COPY (SELECT i AS id, CASE WHEN i %% 10 < 9 THEN 0 ELSE i %% 7 + 1 END AS k, sha256(i::varchar) AS payload
		FROM range(300000) t(i)) TO '%s' (ROW_GROUP_SIZE 20000)`, in))
	insert := " SELECT * FROM read_parquet('" + in + "')"
	const check = "SELECT k::varchar, count(*)::varchar, sum(id)::varchar, count(DISTINCT id)::varchar, min(payload), max(payload) FROM lake.air.t GROUP BY k ORDER BY k"
	var static [][]string
	for _, planning := range []string{"static", "adaptive"} {
		l := startPlanned(t, planning)
		l.must("CREATE NAMESPACE lake.air",
			"CREATE TABLE lake.air.t (id bigint, k bigint, payload string) PARTITIONED BY (k) TBLPROPERTIES ('write.target-file-size-bytes' = '1048576')")
		var plan strings.Builder
		for _, row := range l.query("EXPLAIN ANALYZE INSERT INTO lake.air.t" + insert) {
			plan.WriteString(row[0] + "\n")
		}
		rows := l.query(check)
		if planning == "static" {
			static = rows
			if strings.Contains(plan.String(), "planned") || len(rows) != 8 || rows[0][1] != "270000" {
				t.Errorf("static: %v\n%s", rows, plan.String())
			}
			continue
		}
		if !reflect.DeepEqual(rows, static) {
			t.Errorf("adaptive planning gives %v, static %v", rows, static)
		}
		if !strings.Contains(plan.String(), "tasks planned, ") || !strings.Contains(plan.String(), "; 1 partition split; 300000 rows") {
			t.Errorf("plan:\n%s", plan.String())
		}
		// A thousand rows of all partitions need one task.
		st, err := l.run(client.Statement{SQL: "INSERT INTO lake.air.t SELECT * FROM read_parquet('" + in + "') ORDER BY id LIMIT 1000"})
		if err != nil || !strings.Contains(st.Plan, "planned, 1 run") || st.Rows != 1000 {
			t.Errorf("%v, plan:\n%s", err, st.Plan)
		}
		st, err = l.run(client.Statement{SQL: "INSERT INTO lake.air.t SELECT * FROM read_parquet('" + in + "') WHERE id < 0"})
		if err != nil || !strings.Contains(st.Plan, "; the stage is dropped") || st.Rows != 0 {
			t.Errorf("%v, plan:\n%s", err, st.Plan)
		}
		if n := l.count("lake.air.t"); n != 301000 {
			t.Errorf("%d rows", n)
		}
	}
}
