package sql

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
)

var errProbed = errors.New("the query was probed")

type noBinder struct{}

func (noBinder) Probe(context.Context, plan.ProbeRequest) (plan.ProbeResult, error) {
	return plan.ProbeResult{}, errProbed
}

// plainLiterals are bound without a probe, others are left to it.
var plainLiterals = []string{
	"5", "-5", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "170141183460469231731687303715884105727",
	"1.5", "-1.50", "0.1", "123456789012345678901234567890.12345678", "1e3", "-1e-3", "1_000",
	"'SFO'", "''", "'it''s'", "'ä€'", "E'a\\n'", "$$x$$", "true", "false",
	"TIMESTAMP '2001-01-13 12:00:00'", "DATE '2020-01-01'", "TIME '10:00'", "TIMESTAMPTZ '2020-01-01 00:00:00+02'",
	"'x'::VARCHAR", "'1'::INT", "CAST('1.5' AS DOUBLE)", "CAST('1.5' AS REAL)", "TRY_CAST('x' AS BIGINT)", "'1.5'::DECIMAL(5,2)", "'1.5'::DECIMAL(38, 0)", "'1.5'::NUMERIC",
	"'a'::BLOB", "'a'::BYTEA", "UUID 'c4b94fa0-0000-0000-0000-000000000000'", "'garbage'::DATE", "'300'::HUGEINT", "'t'::BOOL", "'1'::INT8", "'x'::TEXT",
}

var otherExpressions = []string{
	"NULL", "NULL::INT", "DEFAULT", "1 + 1", "- 'a'", "uuid()", "[1, 2]", "{'a': 1}", "MAP {'a': 1}", "(1, 2)", "INTERVAL 1 DAY", "5::DATE",
	"1::VARCHAR", "'a' || 'b'", "x", "'a'::nosuch", "'a'::ENUM('a', 'b')", "'1'::INT[]", "'a' COLLATE NOCASE", "(SELECT 1)", "'1'::UTINYINT", "'1'::TIMESTAMP_NS",
	"'1'::TIME WITH TIME ZONE", "DATE 'x' + 1", "$1", "'{}'::JSON", "'101'::BIT", "'1'::STRUCT(a INT)", "'1'::DECIMAL(50,2)", "CAST(CAST('1' AS INT) AS BIGINT)", "1 IS NULL", "'1'::INTERVAL",
}

// bindBoth binds a query and says what DuckDB makes of it, before and after it
// was rewritten. probed says that the query was left to the probe.
func bindBoth(t *testing.T, in *duckdb.Instance, a *Analyzer, query string) (probed bool) {
	t.Helper()
	list, err := Parse(query)
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %v", query, err)
	}
	b, err := a.bindQuery(t.Context(), list[0].src, list[0].Body.(*Select).Query, plan.Session{}, BindOptions{Now: time.Now(), Slots: 1}, nil)
	if err != nil {
		return true // also one that is refused before it is bound
	}
	for _, text := range []string{query, b.sql} {
		columns, err := in.Describe(t.Context(), text)
		if err != nil {
			t.Errorf("%s was bound as %v; DuckDB refuses %s: %v", query, b.probe.Columns, text, err)
			continue
		}
		var want []plan.Column
		for _, c := range columns {
			want = append(want, plan.Column{Name: c.Name, Type: c.Type})
		}
		if diff := cmp.Diff(want, b.probe.Columns); diff != "" {
			t.Errorf("%s (-DuckDB +Firn):\n%s", text, diff)
		}
	}
	if !b.probe.Deterministic || b.probe.RowWise || len(b.probe.Sources) > 0 {
		t.Errorf("%s: %+v", query, b.probe)
	}
	return false
}

func TestConstantsAreBoundAsDuckDBBindsThem(t *testing.T) {
	parser, err := duckdb.NewParser()
	if err != nil {
		t.Fatal(err)
	}
	defer parser.Close()
	in, err := duckdb.Open(t.Context(), duckdb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	a := &Analyzer{Binder: noBinder{}, Parser: parser}
	for _, l := range plainLiterals {
		for _, query := range []string{"VALUES (%s)", "VALUES (%[1]s), (%[1]s)"} {
			if query = fmt.Sprintf(query, l); bindBoth(t, in, a, query) {
				t.Errorf("%s was probed", query)
			}
		}
	}
	if bindBoth(t, in, a, "VALUES ("+strings.Join(plainLiterals, ", ")+")") {
		t.Error("all literals in a row were probed")
	}
	if bindBoth(t, in, a, "VALUES (now(), current_date)") {
		t.Error("the clock, which is a constant of the job, was probed")
	}
	// What is left to the probe is never wrong, so only DuckDB's answer counts.
	for i, l := range plainLiterals {
		for _, other := range append(plainLiterals[i+1:], "NULL") {
			bindBoth(t, in, a, fmt.Sprintf("VALUES (1, %s), (2, %s)", l, other))
			if i%4 == 0 {
				bindBoth(t, in, a, fmt.Sprintf("VALUES (1, %s), (2, %s)", other, l))
			}
		}
	}
}

func TestOtherQueriesAreProbed(t *testing.T) {
	parser, err := duckdb.NewParser()
	if err != nil {
		t.Fatal(err)
	}
	defer parser.Close()
	in, err := duckdb.Open(t.Context(), duckdb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	a := &Analyzer{Binder: noBinder{}, Parser: parser}
	queries := []string{
		"SELECT 1", "SELECT * FROM (VALUES (1)) t(x)", "FROM (VALUES (1))", "VALUES (1) LIMIT 1", "VALUES (1) ORDER BY 1", "WITH c AS (SELECT 1) VALUES (1)",
		"VALUES (1) UNION ALL VALUES (2)", "SELECT * FROM (VALUES (1), (2)) t(x) WHERE x > 1", "SELECT * FROM (VALUES (1)) USING SAMPLE 1 ROWS",
		"VALUES (1), ('a')", "VALUES (1), (1.5)", "VALUES (1.5), (1.55)", "VALUES (1), (NULL)", "VALUES (1, 2), (1)",
	}
	for _, e := range otherExpressions {
		queries = append(queries, "VALUES (1, "+e+")", "VALUES ("+e+"), (1)")
	}
	for _, q := range queries {
		if !bindBoth(t, in, a, q) {
			t.Errorf("%s was bound without a probe", q)
		}
	}
}
