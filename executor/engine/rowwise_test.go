package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/firn-project/firn/plan"
)

// statements are a hundred queries over firn_s0 and what is decided about each: what
// of DuckDB's plan makes it run whole, or "" for one that runs partition by
// partition.
var statements = []struct{ sql, whole string }{
	// Each row by itself.
	{"FROM firn_s0", ""},
	{"SELECT * FROM firn_s0", ""},
	{"SELECT origin FROM firn_s0", ""},
	{"SELECT 1 FROM firn_s0", ""},
	{"SELECT 'x' AS a, NULL AS b FROM firn_s0", ""},
	{"SELECT f.id FROM firn_s0 AS f", ""},
	{"SELECT f FROM firn_s0 AS f", ""},
	{"SELECT * EXCLUDE (legs) FROM firn_s0", ""},
	{"SELECT * REPLACE (delay / 60 AS delay) FROM firn_s0", ""},
	{"SELECT * RENAME (delay AS late) FROM firn_s0", ""},
	{"SELECT COLUMNS('d.*') FROM firn_s0", ""},
	{"SELECT COLUMNS(c -> c LIKE '%i%') FROM firn_s0", ""},
	{"SELECT id FROM firn_s0 WHERE delay > 100", ""},
	{"SELECT id FROM firn_s0 WHERE origin = 'LAS' AND distance BETWEEN 200 AND 900", ""},
	{"SELECT id FROM firn_s0 WHERE origin LIKE 'L%' OR destination ILIKE 'l%'", ""},
	{"SELECT id FROM firn_s0 WHERE origin IN ('LAS', 'LAX')", ""},
	{"SELECT id FROM firn_s0 WHERE origin NOT IN ('LAS', 'LAX')", ""},
	{"SELECT id FROM firn_s0 WHERE delay IS DISTINCT FROM distance", ""},
	{"SELECT id FROM firn_s0 WHERE date >= TIMESTAMP '2001-01-01 12:00:00'", ""},
	{"SELECT id FROM firn_s0 WHERE regexp_matches(origin, '^[A-L]')", ""},
	{"SELECT id FROM firn_s0 WHERE id % 3 = 0 AND NOT (id % 2 = 0)", ""},
	{"SELECT id FROM firn_s0 WHERE legs[1] = 'LAS'", ""},
	{"SELECT id FROM firn_s0 WHERE trip.origin = 'LAS'", ""},
	{"SELECT id + 1, -delay, distance * 2.5, id // 7, id ** 2 FROM firn_s0", ""},
	{"SELECT id::VARCHAR, TRY_CAST(origin AS INTEGER), delay::DECIMAL(9,2) FROM firn_s0", ""},
	{"SELECT CASE WHEN delay > 15 THEN 'late' WHEN delay IS NULL THEN NULL ELSE 'good' END FROM firn_s0", ""},
	{"SELECT coalesce(delay, 0), nullif(distance, 0), greatest(delay, distance), ifnull(delay, 1) FROM firn_s0", ""},
	{"SELECT upper(origin) || '-' || lower(destination), length(origin), substr(origin, 2, 1) FROM firn_s0", ""},
	{"SELECT regexp_replace(origin, '[AEIOU]', '_', 'g'), string_split(origin, 'A') FROM firn_s0", ""},
	{"SELECT year(date), date_trunc('hour', date), date + INTERVAL 1 DAY, strftime(date, '%Y-%m') FROM firn_s0", ""},
	{"SELECT extract(epoch FROM date), date::DATE, date_diff('day', DATE '2001-01-01', date::DATE) FROM firn_s0", ""},
	{"SELECT round(delay / 7.0, 2), abs(delay), floor(distance / 100.0), sqrt(distance) FROM firn_s0", ""},
	{"SELECT hash(origin), md5(origin), sha256(destination) FROM firn_s0", ""},
	{"SELECT [origin, destination], {'o': origin, 'd': delay}, MAP {origin: delay} FROM firn_s0", ""},
	{"SELECT [x || '!' FOR x IN legs IF x > 'D'] FROM firn_s0", ""},
	{"SELECT list_transform(legs, x -> lower(x)), list_filter(legs, x -> x > 'M'), legs[1:1] FROM firn_s0", ""},
	{"SELECT list_sort(legs), list_sum([delay, distance]), list_aggregate([id, delay], 'max') FROM firn_s0", ""},
	{"SELECT trip.*, struct_pack(a := id, b := origin), struct_insert(trip, n := id) FROM firn_s0", ""},
	{"SELECT to_json(trip), json_extract_string(to_json(trip), '$.origin') FROM firn_s0", ""},
	{"SELECT origin COLLATE NOCASE = 'las' FROM firn_s0", ""},
	{"SELECT unnest(legs) FROM firn_s0", ""},
	{"SELECT id, unnest(legs), unnest([1, 2, 3]) FROM firn_s0", ""},
	{"SELECT id, unnest(trip) FROM firn_s0", ""},
	{"SELECT id, u FROM firn_s0, unnest(legs) AS x(u)", ""},
	{"SELECT id, unnest(range(id % 3)) FROM firn_s0", ""},
	{"SELECT id, generate_subscripts(legs, 1) FROM firn_s0", ""},
	{"UNPIVOT firn_s0 ON delay, distance INTO NAME what VALUE n", ""},
	{"SELECT id FROM (SELECT id, delay FROM firn_s0 WHERE delay > 0) WHERE id > 10", ""},
	{"WITH late AS (SELECT * FROM firn_s0 WHERE delay > 60) SELECT origin FROM late WHERE distance > 500", ""},
	{"WITH a AS (FROM firn_s0), b AS (SELECT id * 2 AS i FROM a) SELECT i + 1 FROM b", ""},
	{"SELECT delay + d FROM (SELECT delay, distance AS d FROM firn_s0) AS x", ""},
	// All rows at once.
	{"SELECT count(*) FROM firn_s0", "AGGREGATE"},
	{"SELECT count(*) FROM firn_s0 WHERE delay > 100", "AGGREGATE"},
	{"SELECT min(date), max(date) FROM firn_s0", "AGGREGATE"},
	{"SELECT sum(delay) FILTER (WHERE origin = 'LAS') FROM firn_s0", "AGGREGATE"},
	{"SELECT count(DISTINCT origin) FROM firn_s0", "AGGREGATE"},
	{"SELECT list(id ORDER BY delay) FROM firn_s0", "AGGREGATE"},
	{"SELECT first(origin), last(origin), any_value(delay) FROM firn_s0", "AGGREGATE"},
	{"SELECT approx_count_distinct(origin), quantile_cont(delay, 0.5) FROM firn_s0", "AGGREGATE"},
	{"SELECT origin, avg(delay) FROM firn_s0 GROUP BY origin", "GROUP_BY"},
	{"SELECT origin, count(*) FROM firn_s0 GROUP BY ALL HAVING count(*) > 9", "GROUP_BY"},
	{"SELECT origin, destination, count(*) FROM firn_s0 GROUP BY ROLLUP (origin, destination)", "GROUP_BY"},
	{"SELECT DISTINCT origin FROM firn_s0", "GROUP_BY"},
	{"SELECT DISTINCT ON (origin) origin, id FROM firn_s0", "GROUP_BY"},
	{"SELECT count(*) FROM (SELECT unnest(legs) FROM firn_s0)", "AGGREGATE"},
	{"PIVOT firn_s0 ON origin IN ('LAS', 'LAX') USING count(*) GROUP BY destination", "GROUP_BY"},
	{"FROM (SUMMARIZE firn_s0)", "GROUP_BY"},
	{"SELECT id FROM firn_s0 ORDER BY delay", "ORDER_BY"},
	{"SELECT id FROM (SELECT id FROM firn_s0 ORDER BY delay) WHERE id > 3", "ORDER_BY"},
	{"SELECT id FROM firn_s0 ORDER BY delay LIMIT 3", "TOP_N"},
	{"SELECT id FROM firn_s0 LIMIT 3", "LIMIT"},
	{"SELECT id FROM firn_s0 WHERE delay > 0 LIMIT 3 OFFSET 2", "LIMIT"},
	{"SELECT id FROM firn_s0 LIMIT 10%", "LIMIT"},
	{"SELECT id FROM firn_s0 LIMIT 0", "EMPTY"},
	{"SELECT id, row_number() OVER () FROM firn_s0", "WINDOW"},
	{"SELECT id, sum(delay) OVER (PARTITION BY origin ORDER BY date) FROM firn_s0", "WINDOW"},
	{"SELECT id, lag(delay) OVER () FROM firn_s0", "WINDOW"},
	{"SELECT id FROM firn_s0 QUALIFY rank() OVER (PARTITION BY origin ORDER BY delay) = 1", "WINDOW"},
	{"SELECT a.id FROM firn_s0 a JOIN firn_s0 b ON a.id = b.id + 1", "JOIN"},
	{"SELECT a.id FROM firn_s0 a LEFT JOIN firn_s0 b ON a.delay < b.distance AND b.id < 3", "JOIN"},
	{"SELECT a.id FROM firn_s0 a SEMI JOIN firn_s0 b ON a.id = b.delay", "JOIN"},
	{"SELECT a.id FROM firn_s0 a ASOF JOIN firn_s0 b ON a.date >= b.date", "JOIN"},
	{"SELECT a.id, b.id FROM firn_s0 a POSITIONAL JOIN firn_s0 b", "POSITIONAL"},
	{"SELECT id, v FROM firn_s0, (VALUES (1), (2)) AS x(v)", "PRODUCT"},
	{"SELECT id FROM firn_s0 WHERE delay > (SELECT avg(delay) FROM firn_s0)", "JOIN"},
	{"SELECT id FROM firn_s0 WHERE EXISTS (SELECT 1 FROM firn_s0 b WHERE b.delay = firn_s0.distance)", "JOIN"},
	{"SELECT id FROM firn_s0 UNION ALL SELECT delay FROM firn_s0", "UNION"},
	{"SELECT id FROM firn_s0 UNION SELECT delay FROM firn_s0", "GROUP_BY"},
	{"SELECT id FROM firn_s0 INTERSECT SELECT delay FROM firn_s0", "GROUP_BY"},
	{"SELECT id FROM firn_s0 UNION ALL SELECT id FROM firn_s0 WHERE false", "UNION"},
	{"SELECT id, u FROM firn_s0, unnest(legs) AS x(u) WHERE u < 'M'", "DELIM_JOIN"},
	{"SELECT id FROM firn_s0 WHERE delay = (SELECT 3)", "JOIN"},
	{"SELECT id FROM firn_s0 WHERE 1 = 0", "EMPTY"},
	{"SELECT id FROM firn_s0 TABLESAMPLE 10 ROWS", "SAMPLE"},
	{"SELECT id FROM firn_s0 TABLESAMPLE SYSTEM (10%)", "SAMPLE"},
	{"SELECT id, random() FROM firn_s0", volatile},
	{"SELECT id FROM firn_s0 WHERE uuid()::VARCHAR < 'a'", volatile},
	{"WITH m AS MATERIALIZED (FROM firn_s0) SELECT id FROM m", "CTE"},
	{"WITH RECURSIVE r AS (SELECT min(id) AS n FROM firn_s0 UNION ALL SELECT n + 1 FROM r WHERE n < 9) FROM r", "REC_CTE"},
	{"SELECT id FROM firn_s0, range(2)", "PRODUCT"},
}

const volatile = "isn't deterministic"

// TestHundredStatements: which statements may run partition by partition is decided
// from DuckDB's plan. Over real data, those that may give the same rows in the same
// order as the whole in one task; some of the others are shown not to.
func TestHundredStatements(t *testing.T) {
	if len(statements) != 100 {
		t.Errorf("%d statements", len(statements))
	}
	dir := t.TempDir()
	var copies []string
	for i, groups := range []string{"2048", "100000", "4096"} {
		copies = append(copies, fmt.Sprintf("COPY (SELECT file_row_number AS id, * EXCLUDE (file_row_number), [origin, destination] AS legs, "+
			"{'origin': origin, 'delay': delay} AS trip FROM read_parquet('../../examples/flights/flights-sample.parquet', file_row_number = true) "+
			"WHERE file_row_number // 3000 = %d) TO '%%s/%d.parquet' (ROW_GROUP_SIZE %s)", i, i, groups))
	}
	write(t, dir, copies...)
	e := newEngine(t, dir)
	const enough = 20 // of those that run whole, to see that cutting them up would show
	differ := 0
	for _, c := range statements {
		res := mustProbe(t, e, c.sql, files(plan.SourceParquet, dir+"/*.parquet"))
		parallel, why := res.Parallel()
		if parallel != (c.whole == "") || !strings.Contains(why, c.whole) || why == "" {
			t.Errorf("%s: parallel %v, %q; want %q", c.sql, parallel, why, c.whole)
			continue
		}
		if !parallel && differ == enough {
			continue
		}
		whole := mustRun(t, e, c.sql, res.Sources...).rows
		var parts []string
		for _, slice := range finest(res.Sources[0].Files) {
			one := res.Sources[0]
			one.Files = slice
			parts = append(parts, mustRun(t, e, c.sql, one).rows...)
		}
		same := slices.Equal(whole, parts)
		switch {
		case parallel && len(whole) == 0:
			t.Errorf("%s: no rows, so nothing is shown", c.sql)
		case parallel && !same:
			t.Errorf("%s: %d rows from the whole, %d from its parts, or others", c.sql, len(whole), len(parts))
		case !parallel && !same:
			differ++
		}
	}
	if differ < enough {
		t.Errorf("only %d of the statements that run whole need to", differ)
	}
}

// finest cuts files as finely as can be.
func finest(files []plan.SourceFile) [][]plan.SourceFile {
	var out [][]plan.SourceFile
	for _, f := range files {
		row := int64(0)
		for _, g := range f.RowGroups {
			piece := f
			piece.First, piece.End = row, row+g.Rows
			row = piece.End
			out = append(out, []plan.SourceFile{piece})
		}
	}
	return out
}

// TestNothingButColumnsIsBound: a table is bound by an empty one, but what that has
// beside its columns isn't there when the query runs.
func TestNothingButColumnsIsBound(t *testing.T) {
	e := newEngine(t)
	columns := []plan.Column{{Name: "id", Type: "BIGINT", FieldID: 1}}
	for _, src := range []plan.Source{
		{View: []string{"lake", "air", "t"}, Kind: plan.SourceTable, Columns: columns},
		{View: []string{"firn_s0"}, Kind: plan.SourceUpload, Columns: columns},
	} {
		name := strings.Join(src.View, ".")
		if err := probeFails(t, e, "SELECT rowid FROM "+name, src); !strings.Contains(err.Error(), "rowid") {
			t.Errorf("%s: %v", name, err)
		}
		if res := mustProbe(t, e, "SELECT id FROM "+name+" TABLESAMPLE SYSTEM (10%)", src); res.RowWise {
			t.Errorf("%s: a sample is row-wise", name)
		}
	}
}
