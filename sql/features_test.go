package sql_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sql"
)

// features are queries over t(id, name, score) and u(id, day), each with some
// construct of DuckDB's. The tree must survive the walk and the way back to
// text.
var features = []string{
	"SELECT DISTINCT ON (name) id, name FROM t ORDER BY name, id DESC NULLS LAST",
	"SELECT name, count(*), count(DISTINCT id), sum(score) FILTER (WHERE id > 1) FROM t GROUP BY ALL HAVING count(*) > 0 ORDER BY ALL",
	"SELECT name, id, sum(score) FROM t GROUP BY GROUPING SETS ((name), (id), ())",
	"SELECT name, id, sum(score) FROM t GROUP BY CUBE (name, id)",
	"SELECT name, id, grouping(name) FROM t GROUP BY ROLLUP (name, id)",
	"SELECT id, sum(score) OVER (PARTITION BY name ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW EXCLUDE TIES) FROM t",
	"SELECT id, rank() OVER w, lag(score, 1, 0.0 IGNORE NULLS) OVER w FROM t WINDOW w AS (ORDER BY id)",
	"SELECT id, sum(score) OVER (ORDER BY id RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM t",
	"SELECT * FROM t QUALIFY row_number() OVER (PARTITION BY name ORDER BY id) = 1",
	"SELECT t.id, u.day FROM t LEFT JOIN u ON t.id = u.id AND u.day > DATE '2020-01-01'",
	"SELECT * FROM t FULL OUTER JOIN u USING (id)",
	"SELECT * FROM t NATURAL JOIN u",
	"SELECT * FROM t SEMI JOIN u USING (id)",
	"SELECT * FROM t ANTI JOIN u USING (id)",
	"SELECT * FROM t a POSITIONAL JOIN u b",
	"SELECT * FROM t ASOF JOIN u ON t.id >= u.id",
	"SELECT a.id FROM t a, u b WHERE a.id = b.id",
	"SELECT t.id, x.m FROM t, LATERAL (SELECT max(day) AS m FROM u WHERE u.id = t.id) x",
	"SELECT * FROM t WHERE id IN (SELECT id FROM u) AND EXISTS (SELECT 1 FROM u WHERE u.id = t.id)",
	"SELECT * FROM t WHERE id > ALL (SELECT id FROM u) OR id = ANY (SELECT id FROM u)",
	"SELECT * FROM t WHERE (id, name) IN ((1, 'a'), (2, 'b'))",
	"SELECT id FROM t UNION SELECT id FROM u EXCEPT SELECT 3 INTERSECT SELECT 4",
	"SELECT id, name FROM t UNION ALL BY NAME SELECT id, day FROM u",
	"SELECT id FROM t EXCEPT ALL SELECT id FROM u",
	"(SELECT id FROM t ORDER BY id LIMIT 1) UNION ALL (SELECT id FROM u LIMIT 2 OFFSET 1) ORDER BY 1",
	"WITH a AS (SELECT id FROM t), b(x) AS (SELECT id FROM a) SELECT x FROM b UNION ALL SELECT id FROM a",
	"WITH a AS NOT MATERIALIZED (SELECT id FROM t) SELECT * FROM a, a AS a2",
	"WITH a AS MATERIALIZED (SELECT id FROM t) SELECT * FROM a, a AS a2",
	"WITH RECURSIVE r(n, s) AS (SELECT 1, 'x' UNION ALL SELECT n + 1, s || 'x' FROM r WHERE n < 5) SELECT * FROM r JOIN t ON t.id = r.n",
	"WITH RECURSIVE r(a, b) USING KEY (a) AS (SELECT 1, 2 UNION SELECT a, b + 1 FROM r WHERE b < 5) SELECT * FROM r, t",
	"SELECT * EXCLUDE (score) FROM t",
	"SELECT * REPLACE (upper(name) AS name) FROM t",
	"SELECT * RENAME (name AS n) FROM t",
	"SELECT t.* EXCLUDE (id), u.* FROM t JOIN u USING (id)",
	"SELECT COLUMNS('i.*') FROM t",
	"SELECT COLUMNS(c -> c LIKE 'n%') FROM t",
	"SELECT min(COLUMNS(*)) FROM t",
	"SELECT * LIKE 'n%' FROM t",
	"SELECT CASE name WHEN 'a' THEN 1 WHEN 'b' THEN 2 ELSE 3 END, CASE WHEN id > 1 THEN 'x' END FROM t",
	"SELECT id BETWEEN 1 AND 2, id NOT IN (1, 2), name IS NOT NULL, name LIKE 'a%' ESCAPE '!', name ILIKE 'A', name SIMILAR TO 'a.*', NOT id > 1 FROM t",
	"SELECT id IS DISTINCT FROM 1, coalesce(name, 'x'), nullif(id, 1), ifnull(name, '') FROM t",
	"SELECT CAST(id AS VARCHAR), TRY_CAST(name AS INT), id::DECIMAL(10, 2), name::BLOB, id::HUGEINT FROM t",
	"SELECT extract(year FROM day), date_part('month', day), day + INTERVAL 1 MONTH AS m, day - INTERVAL '2 days', date_trunc('week', day) FROM u",
	"SELECT TIMESTAMP '2020-01-01 10:00:00' AT TIME ZONE 'Europe/Berlin', TIMESTAMPTZ '2020-01-01 00:00:00+00' FROM t",
	"SELECT [1, 2, 3][2], [1, 2, 3][1:2], {'a': 1, 'b': [id]}.b, MAP {'k': id}['k'], [x * 2 FOR x IN [1, 2] IF x > 1] AS c FROM t",
	"SELECT list_transform([1, 2], lambda x, i: x + i + id) AS l, list_filter([1, 2], x -> x > id) FROM t",
	"SELECT struct_pack(a := id, b := name), row(id, name), (id, name) FROM t",
	"SELECT unnest([1, 2]), unnest({'a': 1}), id FROM t",
	"SELECT unnest([{'a': 1}, {'a': 2}], recursive := true) FROM t",
	"SELECT * FROM t, unnest([id, id + 1]) AS x(y)",
	"SELECT * FROM unnest([1, 2]) WITH ORDINALITY AS x(y, n), t",
	"SELECT string_agg(name, ',' ORDER BY id DESC), list(id ORDER BY name), arg_max(name, score), quantile_cont(score, 0.5) FROM t",
	"SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY score) FROM t",
	"SELECT substring(name FROM 1 FOR 2), trim(BOTH ' ' FROM name), position('a' IN name) FROM t",
	"SELECT name[1], name[1:2], name || 'x', name ^@ 'a', id // 2, id % 2, id ** 2, ~id, id & 1, id | 2, id << 1, xor(id, 1), -id, +id FROM t",
	"SELECT name COLLATE NOCASE FROM t ORDER BY name COLLATE NOCASE",
	"SELECT #1 FROM t",
	"SELECT id AS \"a b\", name \"c\"\"d\" FROM t",
	"SELECT id x, x + 1 AS y FROM t WHERE x > 1",
	"FROM t SELECT id WHERE id > 1",
	"FROM t",
	"TABLE t",
	"SELECT name.upper().lower() FROM t",
	"SELECT * FROM t TABLESAMPLE reservoir(10 ROWS) REPEATABLE (3)",
	"SELECT * FROM t USING SAMPLE 10% (bernoulli)",
	"SELECT * FROM t LIMIT 10% OFFSET 1",
	"FROM t PIVOT (sum(score) AS s, max(id) FOR name IN ('a', 'b' AS bb) GROUP BY id)",
	"SELECT * FROM (SELECT id, name FROM t) PIVOT (count(*) FOR name IN ('a'))",
	"SELECT * FROM u UNPIVOT INCLUDE NULLS (v FOR k IN (id AS 'i'))",
	"SELECT * FROM (SELECT id, id + 1 AS b FROM t) UNPIVOT (v FOR k IN (id, b))",
	"UNPIVOT (SELECT id, id + 1 AS b FROM t) ON id, b INTO NAME n VALUE v",
	"SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS v(x, y), t",
	"SELECT * FROM (DESCRIBE t)",
	"SELECT * FROM (SUMMARIZE t)",
	"SELECT 1e5, 1.50, 0x1F, 1_000, .5, 170141183460469231731687303715884105727, 'a''b', E'\\n', '\\xAA'::BLOB, NULL, true, $$it's$$ FROM t",
	"SELECT 'ä' AS ö, \"größe\" FROM (SELECT id AS größe FROM t)",
	"SELECT regexp_replace(name, '(a)', '\\1x', 'g'), printf('%d', id), format('{}', id), strftime(day, '%Y') FROM t JOIN u USING (id)",
	"SELECT id, (SELECT count(*) FROM u WHERE u.id = t.id) AS n, ARRAY(SELECT day FROM u) FROM t",
	"SELECT json_extract('{\"a\": 1}', '$.a'), '{\"a\": 1}'::JSON -> 'a', '{\"a\": 1}'::JSON ->> '$.a' FROM t",
	"SELECT /* c */ id -- d\n FROM t",
	"SELECT try(id / 0), error_free FROM (SELECT id, 1 AS error_free FROM t)",
	"SELECT any_value(id), first(name), last(name), mode(name), histogram(id), approx_count_distinct(id) FROM t",
	"SELECT GREATEST(1, id), LEAST(id, 2), typeof(id), hash(id), md5(name), uuid() FROM t",
}

// TestFeatures compares the columns and rows of the rewritten query with those
// that DuckDB gives for the user's own text.
func TestFeatures(t *testing.T) {
	in, err := duckdb.Open(t.Context(), duckdb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for _, s := range []string{
		"CREATE TABLE t AS SELECT i::BIGINT AS id, nullif(chr(96 + (i % 4)::INT), '`') AS name, i / 3.0::DOUBLE AS score FROM range(12) r(i)",
		"CREATE TABLE u AS SELECT i::BIGINT AS id, DATE '2020-01-30' + i::INT AS day FROM range(5, 9) r(i)",
		"ATTACH ':memory:' AS lake", "CREATE SCHEMA lake.air",
		"CREATE VIEW lake.air.t AS FROM memory.main.t", "CREATE VIEW lake.air.u AS FROM memory.main.u",
	} {
		if err := in.Exec(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	an := &sql.Analyzer{Catalogs: newCatalogs(t), Binder: newBinder(t), Parser: parser}
	for _, q := range features {
		n, err := an.Bind(t.Context(), parseOne(t, q), airSession, testOptions)
		if err != nil {
			t.Errorf("%s: %v", q, err)
			continue
		}
		own := q
		if first, _, _ := strings.Cut(q, " "); first == "TABLE" || first == "UNPIVOT" {
			own = "SELECT * FROM (" + q + ")" // DESCRIBE TABLE t is something else
		}
		columns, err := in.Describe(t.Context(), own)
		if err != nil {
			t.Errorf("DuckDB itself: %s: %v", q, err)
			continue
		}
		var want, got []string
		for _, c := range columns {
			want = append(want, c.Name+" "+c.Type)
		}
		for _, c := range n.(*plan.Query).Columns {
			got = append(got, c.Name+" "+c.Type)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: columns (-DuckDB +Firn):\n%s", q, diff)
		}
		if strings.Contains(q, "SAMPLE") || strings.Contains(q, "uuid()") || strings.Contains(q, "DESCRIBE") || len(columns) != len(got) {
			continue
		}
		rewritten := n.(*plan.Query).SQL
		if diff := cmp.Diff(rowsOf(t, in, own, len(columns)), rowsOf(t, in, rewritten, len(columns))); diff != "" {
			t.Errorf("%s became %s: rows (-DuckDB +Firn):\n%s", q, rewritten, diff)
		}
	}
}

// rowsOf gives the rows of a query as text, sorted: not all of the queries say
// an order.
func rowsOf(t *testing.T, in *duckdb.Instance, query string, columns int) []string {
	t.Helper()
	names := make([]string, columns)
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i)
	}
	rows, err := in.Strings(t.Context(), "SELECT q::VARCHAR FROM ("+query+"\n) AS q("+strings.Join(names, ", ")+")")
	if err != nil {
		t.Errorf("%s: %v", query, err)
		return nil
	}
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = r[0]
	}
	slices.Sort(out)
	return out
}
