package flightsqlserver

import (
	"strings"
	"testing"

	"github.com/firn-project/firn/internal/wire/firnpb"
)

// FuzzTypes: no text of a type, which an executor may have made up, breaks anything.
// TestServedFlightSQLSchemas holds those that DuckDB writes against the rows.
func FuzzTypes(f *testing.F) {
	for _, text := range []string{
		"BIGINT", "DECIMAL(18,2)", "BIGINT[][2]", `STRUCT(a INTEGER, "b ""c, d" MAP(VARCHAR, BIGINT[]))`, "ENUM('a', 'b)')", "TIMESTAMP WITH TIME ZONE",
		"", "[]", "]", "(", ")", `STRUCT(")`, `STRUCT("`, `STRUCT("a`, `STRUCT("a")`, `STRUCT("" INTEGER)`, "STRUCT()", "STRUCT(a)", "MAP(BIGINT)", "DECIMAL(a,b)", "BIGINT[-1]", "BIGINT[99999999999]", "BIGINT[999999999999]", "DECIMAL(99999999999,-99999999999)", "NULL",
		strings.Repeat("(", 5000), strings.Repeat("STRUCT(a ", 1000), "BIGINT" + strings.Repeat("[]", 10_000),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := schemaOfColumns([]*firnpb.ResultColumn{{Name: "a", Type: text}}, "UTC")
		if s != nil && (s.NumFields() != 1 || s.Field(0).Type == nil) {
			t.Errorf("%q: %v", text, s)
		}
	})
}
