package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/firn-project/firn/plan"
)

// everything lists what isn't DuckDB's own in an instance, but for the macros
// that every session replaces.
const everything = `SELECT database_name FROM duckdb_databases() WHERE NOT internal AND database_name <> 'memory'
	UNION ALL SELECT schema_name FROM duckdb_schemas() WHERE NOT internal AND schema_name <> 'main'
	UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal
	UNION ALL SELECT table_name FROM duckdb_tables() WHERE NOT internal`

func TestAnInstanceServesTheNextSessionEmpty(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "COPY (SELECT i AS id FROM range(3) t(i)) TO '%s/1.parquet' (FIELD_IDS {id: 1})")
	e := newEngine(t, dir)
	parquet := mustProbe(t, e, "FROM firn_s0", files(plan.SourceParquet, dir+"/1.parquet")).Sources[0]
	table := table([]plan.Column{{Name: "id", Type: "BIGINT", FieldID: 1}}, plan.SourceFile{Path: dir + "/1.parquet"})
	own := table
	own.View = []string{"memory", "x y", "t"}
	mustRun(t, e, "SELECT 1")
	first := e.idle[forTask]
	if first == nil {
		t.Fatal("no instance was kept")
	}
	for name, session := range map[string]func(){
		"values":           func() { mustRun(t, e, "SELECT 1") },
		"file":             func() { mustRun(t, e, "FROM firn_s0", parquet) },
		"table":            func() { mustRun(t, e, "SELECT id "+fromT, table) },
		"table and file":   func() { mustRun(t, e, "SELECT id "+fromT+" UNION ALL FROM firn_s0", table, parquet) },
		"catalog's name":   func() { mustRun(t, e, `SELECT id FROM memory."x y".t`, own) },
		"temporary result": func() { mustRun(t, e, "SELECT count(*) FROM (SELECT DISTINCT hash(i) FROM range(100000) t(i))") },
	} {
		session()
		if e.idle[forTask] != first {
			t.Fatalf("%s: the instance wasn't used again", name)
		}
		if left, err := first.Strings(t.Context(), everything); err != nil || len(left) > 0 {
			t.Errorf("%s left %v, %v", name, left, err)
		}
	}
	first = nil
	for range 2 {
		mustProbe(t, e, "SELECT id "+fromT, table)
		if left, err := e.idle[forProbe].Strings(t.Context(), everything); err != nil || len(left) > 0 {
			t.Errorf("a probe left %v, %v", left, err)
		}
		if first != nil && e.idle[forProbe] != first {
			t.Error("a probe's instance wasn't used again")
		}
		first = e.idle[forProbe]
	}
}

func TestAnInstanceIsGivenUp(t *testing.T) {
	dir := t.TempDir()
	writeText(t, dir+"/a.csv", "a\n1\nx\n")
	e := newEngine(t, dir)
	src := files(plan.SourceCSV, dir+"/a.csv")
	src.Options = map[string]string{"columns": "{'a': 'INTEGER'}", "header": "true", "auto_detect": "false"}
	src = mustProbe(t, e, "FROM firn_s0", src).Sources[0]
	for name, session := range map[string]func() error{
		"after an error": func() error {
			_, err := run(t.Context(), e, task(), &plan.Query{SQL: "SELECT error('no') FROM range(3)"})
			if err == nil {
				return fmt.Errorf("no error")
			}
			return nil
		},
		"in the middle of a query": func() error {
			st, err := e.RunQuery(t.Context(), &plan.Query{SQL: "SELECT i FROM range(1000000) t(i)"}, task())
			if err == nil {
				st.Close()
			}
			return err
		},
		"with rejected rows": func() error {
			out, err := run(t.Context(), e, task(), &plan.Query{SQL: "FROM firn_s0", Sources: []plan.Source{src}, RejectLimit: 5})
			if err == nil && out.rejected != 1 {
				err = fmt.Errorf("%d rows were rejected", out.rejected)
			}
			return err
		},
	} {
		mustRun(t, e, "SELECT 1")
		if e.idle[forTask] == nil {
			t.Fatalf("%s: nothing to give up", name)
		}
		if err := session(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if e.idle[forTask] != nil {
			t.Errorf("%s: the instance was kept", name)
		}
	}
}

// An instance that was opened for one time zone, memory or kind of session
// doesn't serve another.
func TestAnInstanceIsOnlyForItsSettings(t *testing.T) {
	e := newEngine(t)
	clock := func(zone string, memory int64) string {
		info := task()
		info.TimeZone, info.MemoryBytes = zone, memory
		out, err := run(t.Context(), e, info, &plan.Query{SQL: "SELECT current_time::VARCHAR"})
		if err != nil {
			t.Fatal(err)
		}
		settings, err := e.idle[forTask].Strings(t.Context(), "SELECT current_setting('TimeZone'), current_setting('memory_limit')")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(settings[0], "|") + "|" + out.String()
	}
	for range 2 {
		if got := clock("Asia/Tokyo", 64<<20); got != "Asia/Tokyo|64.0 MiB|08:30:00" {
			t.Errorf("got %s", got)
		}
		if got := clock("UTC", 64<<20); got != "UTC|64.0 MiB|23:30:00" {
			t.Errorf("got %s", got)
		}
		if got := clock("UTC", 128<<20); got != "UTC|128.0 MiB|23:30:00" {
			t.Errorf("got %s", got)
		}
	}
	// The clock is the job's own, also when the instance is an earlier one's.
	info := task()
	info.TimeZone, info.MemoryBytes = "UTC", 128<<20
	info.Now = info.Now.AddDate(1, 0, 0)
	before := e.idle[forTask]
	out, err := run(t.Context(), e, info, &plan.Query{SQL: "SELECT today()::VARCHAR"})
	if err != nil || out.String() != "2025-03-01" || e.idle[forTask] != before {
		t.Errorf("%s, %v", out, err)
	}
}

// What a file holds is read anew by each session.
func TestAChangedFileIsReadAnew(t *testing.T) {
	dir := t.TempDir()
	e := newEngine(t, dir)
	for i := range 3 {
		write(t, dir, strings.ReplaceAll("COPY (SELECT # AS n) TO '%s/a.parquet'", "#", fmt.Sprint(i)))
		src := plan.Source{View: []string{"firn_s0"}, Kind: plan.SourceParquet, Files: []plan.SourceFile{{Path: dir + "/a.parquet"}}}
		if got := mustRun(t, e, "FROM firn_s0", src).String(); got != fmt.Sprint(i) {
			t.Errorf("got %s, want %d", got, i)
		}
	}
}

// Probes and tasks that take turns in a slot keep an instance each.
func TestProbesAndTasksKeepAnInstanceEach(t *testing.T) {
	e := newEngine(t)
	mustProbe(t, e, "VALUES (1)")
	mustRun(t, e, "VALUES (1)")
	probe, run := e.idle[forProbe], e.idle[forTask]
	mustProbe(t, e, "VALUES (2)")
	mustRun(t, e, "VALUES (2)")
	if probe == nil || run == nil || e.idle[forProbe] != probe || e.idle[forTask] != run {
		t.Error("an instance wasn't used again")
	}
}

// Queries that look at the clock get the job's, also after ones that didn't
// and so left an earlier job's in the instance.
func TestTheClockIsSetForQueriesThatLookAtIt(t *testing.T) {
	e := newEngine(t)
	at := func(years int, sql string) string {
		info := task()
		info.Now = info.Now.AddDate(years, 0, 0)
		out, err := run(t.Context(), e, info, &plan.Query{SQL: sql})
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return out.String()
	}
	for i, look := range []string{
		"SELECT now()::DATE::VARCHAR",
		"SELECT Today()::VARCHAR",
		"SELECT current_date::VARCHAR",
		"SELECT CAST(q.c1 AS VARCHAR) FROM (SELECT current_date) AS q(c1)",
		"VALUES (CURRENT_TIMESTAMP::DATE::VARCHAR)",
		"SELECT n::DATE::VARCHAR FROM generate_series(now(), now(), INTERVAL 1 DAY) t(n)",
	} {
		if got := at(2*i, "VALUES ('x')"); got != "x" {
			t.Fatalf("got %s", got)
		}
		// The 29th of February a number of years that isn't a multiple of four later.
		want := fmt.Sprint(task().Now.Year()+2*i+1) + "-03-01"
		if got := at(2*i+1, look); got != want {
			t.Errorf("%s: got %s, want %s", look, got, want)
		}
	}
}
