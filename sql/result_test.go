package sql_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
)

// TestResultsThatArrowCannotHold: the columns arrive as text, at any depth, and
// everything else as it was.
func TestResultsThatArrowCannotHold(t *testing.T) {
	for _, c := range []struct {
		value, typ, text string
	}{
		{"340282366920938463463374607431768211455::UHUGEINT", "VARCHAR", "340282366920938463463374607431768211455"},
		{"TIMETZ '01:02:03+02'", "VARCHAR", "01:02:03+02"},
		{"'0101'::BIT", "VARCHAR", "0101"},
		{"BIGNUM '123456789012345678901234567890123456789012'", "VARCHAR", "123456789012345678901234567890123456789012"},
		{"union_value(k := 1)", "VARCHAR", "1"},
		{"1::VARIANT", "VARCHAR", "1"},
		{"[1::UHUGEINT, NULL]", "VARCHAR[]", "[1, NULL]"},
		{"{'a': '01'::BIT, 'BIT': 2, 'UNION(': 3}", `STRUCT(a VARCHAR, "BIT" INTEGER, "UNION(" INTEGER)`, "{'a': 01, 'BIT': 2, 'UNION(': 3}"},
		{"MAP {1::UHUGEINT: [union_value(k := {'x)': TIMETZ '01:02:03+02'})]}", "MAP(VARCHAR, VARCHAR[])", `{1=['{\'x)\': \'01:02:03+02\'}']}`},
		{"170141183460469231731687303715884105727::HUGEINT", "HUGEINT", ""},
		{"TIMESTAMPTZ '2020-01-01 00:00:00+00'", "TIMESTAMP WITH TIME ZONE", ""},
		{"'BIT'::ENUM('BIT', 'UNION(', 'it''s')", "ENUM('BIT', 'UNION(', 'it''s')", ""},
		{"{'BITS': 1, 'Bit': 'x'}", `STRUCT(BITS INTEGER, "Bit" VARCHAR)`, ""},
		{"TIME '01:02:03'", "TIME", ""},
	} {
		n, _, err := bindText(t, "SELECT 1 AS i, "+c.value+` AS "v ""é" ORDER BY i`)
		if err != nil {
			t.Errorf("%s: %v", c.value, err)
			continue
		}
		q := n.(*plan.Query)
		want := []plan.Column{{Name: "i", Type: "INTEGER"}, {Name: `v "é`, Type: c.typ}}
		if diff := cmp.Diff(want, q.Columns); diff != "" {
			t.Errorf("%s: columns %s", c.value, diff)
		}
		in, err := duckdb.Open(t.Context(), duckdb.Config{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := in.Describe(t.Context(), q.SQL)
		if err != nil || len(got) != 2 || got[1].Name != want[1].Name || got[1].Type != c.typ {
			t.Errorf("%s: %s gives %v, %v", c.value, q.SQL, got, err)
		}
		if c.text == "" && q.SQL != "SELECT 1 AS i, "+c.value+` AS "v ""é" ORDER BY i` {
			t.Errorf("%s became %s", c.value, q.SQL)
		}
		if c.text != "" {
			if got := oneText(t, in, `SELECT CAST("v ""é" AS VARCHAR) FROM (`+q.SQL+")"); got != c.text {
				t.Errorf("%s is %s, want %s", c.value, got, c.text)
			}
		}
		in.Close()
	}
}

// oneText is the only value of a query.
func oneText(t *testing.T, in *duckdb.Instance, query string) string {
	t.Helper()
	rows, err := in.Query(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	b, err := rows.Next(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer b.Release()
	return b.Column(0).ValueStr(0)
}
