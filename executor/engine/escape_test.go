package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// TestForgedQueries: an executor relies on nobody having looked at a query. Every
// statement that the scheduler refuses (package internal/cluster runs them through
// it) is refused by the engine too, in a probe and in a task.
func TestForgedQueries(t *testing.T) {
	raw, err := os.ReadFile("../../internal/cluster/testdata/escapes.txt")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	out := writeText(t, filepath.Join(t.TempDir(), "secret.csv"), "a\n1\n")
	e := newEngine(t, root)
	fill := strings.NewReplacer("$OUT", out, "$ROOT", root)
	for line := range strings.Lines(string(raw)) {
		_, statement, ok := strings.Cut(line, " | ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		statement = fill.Replace(strings.TrimSpace(statement))
		_, err := e.Probe(t.Context(), plan.ProbeRequest{SQL: statement})
		if c := commit.CodeOf(err); c != commit.CodeQueryRefused && c != commit.CodeQueryFailed {
			t.Errorf("probe %s: %v", statement, err)
		}
		_, err = run(t.Context(), e, task(), &plan.Query{SQL: statement})
		if c := commit.CodeOf(err); c != commit.CodeQueryRefused && c != commit.CodeQueryFailed {
			t.Errorf("run %s: %v", statement, err)
		}
	}
	if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
		t.Errorf("something was written: %v, %v", left, err)
	}
}

// TestForgedSources: what a plan says about a source becomes text of the engine's
// own statements, and must not become statements.
func TestForgedSources(t *testing.T) {
	root := t.TempDir()
	path := writeText(t, filepath.Join(root, "a.csv"), "a\n1\n")
	e := newEngine(t, root)
	csv := files(plan.SourceCSV, path)
	csv.Files = []plan.SourceFile{{Path: path}}
	with := func(change func(*plan.Source)) plan.Source {
		s := csv
		change(&s)
		return s
	}
	attach := "1); ATTACH '" + root + "/x.db' AS x; SELECT (1"
	for name, src := range map[string]plan.Source{
		"option":         with(func(s *plan.Source) { s.Options = map[string]string{"skip": attach} }),
		"name of option": with(func(s *plan.Source) { s.Options = map[string]string{"skip = 1); SELECT 1; --": "1"} }),
		"query":          with(func(s *plan.Source) { s.Options = map[string]string{"skip": "(SELECT 0)"} }),
		"function":       with(func(s *plan.Source) { s.Options = map[string]string{"nullstr": "getenv('HOME')"} }),
		"rejects table":  with(func(s *plan.Source) { s.Options = map[string]string{"rejects_table": "'now'"} }),
		"type":           {View: []string{"t"}, Kind: plan.SourceTable, Columns: []plan.Column{{Name: "a", Type: "INT); ATTACH ':memory:' AS x; --"}}},
		"type of a file": with(func(s *plan.Source) { s.Columns = []plan.Column{{Name: "a", Type: "INT, (SELECT 1)"}} }),
		"default":        {View: []string{"t"}, Kind: plan.SourceTable, Columns: []plan.Column{{Name: "a", Type: "INT", Default: "(SELECT 1)"}}},
		"name of a view": {View: []string{"a", "b", "c", "d"}, Kind: plan.SourceTable, Columns: []plan.Column{{Name: "a", Type: "INT"}}},
		"no name":        {Kind: plan.SourceTable, Columns: []plan.Column{{Name: "a", Type: "INT"}}},
		"the system's":   {View: []string{"system", "main", "duckdb_logs"}, Kind: plan.SourceTable, Columns: []plan.Column{{Name: "a", Type: "INT"}}},
		"unknown reader": with(func(s *plan.Source) { s.Kind = "read_text" }),
		"link out":       with(func(s *plan.Source) { link(t, root, s) }),
		"a directory":    with(func(s *plan.Source) { s.Files[0].Path, s.Patterns = root, []string{root} }),
		"relative": with(func(s *plan.Source) {
			s.Files, s.Patterns = []plan.SourceFile{{Path: "../a.csv"}}, []string{"../a.csv"}
		}),
		"relative by uri": with(func(s *plan.Source) {
			s.Files, s.Patterns = []plan.SourceFile{{Path: "file:../a.csv"}}, []string{"file:../a.csv"}
		}),
	} {
		sql := "SELECT 1 FROM " + strings.Join(src.View, ".")
		if _, err := e.Probe(t.Context(), plan.ProbeRequest{SQL: sql, Sources: []plan.Source{src}}); err == nil {
			t.Errorf("%s: the probe took it", name)
		}
		if out, err := run(t.Context(), e, task(), &plan.Query{SQL: sql, Sources: []plan.Source{src}}); err == nil {
			t.Errorf("%s: the task took it: %v", name, out)
		}
	}
	if left, err := filepath.Glob(root + "/*.db"); err != nil || len(left) > 0 {
		t.Errorf("something was written: %v, %v", left, err)
	}
}

// link has a source read a link that leads out of the allowed directory.
func link(t *testing.T, root string, s *plan.Source) {
	t.Helper()
	path := filepath.Join(root, "link.csv")
	if err := os.Symlink(writeText(t, filepath.Join(t.TempDir(), "out.csv"), "a\n1\n"), path); err != nil {
		t.Fatal(err)
	}
	s.Files, s.Patterns = []plan.SourceFile{{Path: path}}, []string{path}
}

func TestLiteralOnly(t *testing.T) {
	for _, s := range []string{
		"", "1", "-1", "1.5e-3", "true", "NULL", "'x'", "'it''s -- ; /* */ (SELECT'", `'"'`, "''''", "['a', 'b']", "{'a': 'INT', 'b c': DATE}",
		"main.struct_pack(a := 'BIGINT', \"b b\" := 'VARCHAR')", `main."map"(main.list_value('a'), main.list_value('BIGINT'))`,
		"CAST('t' AS BOOLEAN)", "main.list_value('-', 'z')", "struct_pack(\"year\" := \"INT\", d := DATE)", "DATE '2020-01-01'", "'ab'::BLOB",
		"DECIMAL(18,2)", "STRUCT(a INTEGER, \"b \"\"c\" VARCHAR[], ünicode INTEGER)[]", "MAP(VARCHAR, DECIMAL(3,1))", "ENUM('a', 'b')",
		"TIMESTAMP WITH TIME ZONE", "INTEGER[3]", `"NULL"`,
	} {
		if err := literalOnly(s); err != nil {
			t.Errorf("%s: it %v", s, err)
		}
	}
	for _, s := range []string{
		"(SELECT 1)", "( FROM x)", "(VALUES (1))", "(TABLE t)", "getenv('X')", "main.getenv('X')", `"getenv"('X')`, `main."getenv" ('X')`, "GETENV\n('X')", "'X'.getenv()",
		"'X' . getenv ( )", "1; SELECT 1", "1 -- x", "1 /* x", "1) OR (1", "'open", `"open`, "(1", "1)", "[1)", "E'\\'; SELECT 1; --'", "e'\\''", "$$x$$", "a || b", "1 = 1", "x > 1",
		"?", "$1", "`x`", "ARRAY(SELECT 1)", "(\u00a0SELECT 1)", "(\u2003FROM x)", "CASE WHEN a THEN b END", "EXISTS (1)", "\x00", "\xff", "INTEGER[](1)", "[x](1)", "COLUMNS('a')",
		"struct_pack(a := getenv('X'))", "lambda x: x",
	} {
		if err := literalOnly(s); err == nil {
			t.Errorf("%q went through", s)
		}
	}
}
