//go:build duckdb_arrow

package duckdb

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func newParser(t *testing.T) *Parser {
	t.Helper()
	p, err := NewParser()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestParserRoundTrip(t *testing.T) {
	p := newParser(t)
	for _, text := range []string{
		"SELECT 1",
		"SELECT 'it''s', E'a\\tb', $$x'y$$, \"a\"\"b\" FROM \"t\"\"x\"",
		"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 9) SELECT * FROM c ORDER BY n DESC LIMIT 3",
		"FROM u AS q(a, b) JOIN lake.air.t AT (VERSION => 3) USING (a)",
		"SELECT * EXCLUDE (a) REPLACE (b + 1 AS b) FROM t QUALIFY row_number() OVER (PARTITION BY c) = 1",
	} {
		tree, err := p.ParseSelect(t.Context(), text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !json.Valid(tree) {
			t.Fatalf("%s: the tree isn't JSON", text)
		}
		first, err := p.FormatSelect(t.Context(), tree)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		again, err := p.ParseSelect(t.Context(), first)
		if err != nil {
			t.Fatalf("%s became %s: %v", text, first, err)
		}
		second, err := p.FormatSelect(t.Context(), again)
		if err != nil || first != second {
			t.Errorf("%s: %q, then %q, %v", text, first, second, err)
		}
	}
}

func TestParserErrors(t *testing.T) {
	p := newParser(t)
	for _, c := range []struct {
		text   string
		offset int
		want   string
	}{
		{"SELEC 1", 0, "syntax error"},
		{"SELECT 'éé', 1 FROM FROM", 22, "syntax error"}, // bytes, though DuckDB counts characters
		{"SELECT 1 INTO x", -1, "SELECT INTO"},
		{"INSERT INTO t VALUES (1)", -1, "isn't a query"},
		{"CREATE TABLE t (a INT)", -1, "isn't a query"},
		{"SELECT " + strings.Repeat("NOT ", 50000) + "true", 39997, "memory exhausted"},
		{"SELECT 1" + strings.Repeat("+1", 50000), -1, "depth"},
	} {
		_, err := p.ParseSelect(t.Context(), c.text)
		var pe *ParseError
		if !errors.As(err, &pe) {
			t.Errorf("%.40s: got %v", c.text, err)
			continue
		}
		if strings.Contains(pe.Message, "SET ") {
			t.Errorf("%.40s: advice that nobody can follow: %s", c.text, pe.Message)
		}
		if !strings.Contains(pe.Message, c.want) {
			t.Errorf("%.40s: message %q, want %q in it", c.text, pe.Message, c.want)
		}
		if c.offset < 1000 && pe.Offset() != c.offset {
			t.Errorf("%.40s: offset %d, want %d", c.text, pe.Offset(), c.offset)
		}
	}
	if _, err := p.FormatSelect(t.Context(), []byte(`{"error":false}`)); err == nil {
		t.Error("formatted a tree that isn't one")
	}
	if _, err := p.ParseSelect(t.Context(), "SELECT 1"); err != nil {
		t.Errorf("after errors: %v", err)
	}
}

func TestParserLargeStatement(t *testing.T) {
	p := newParser(t)
	text := "VALUES (1,'some text')" + strings.Repeat(",(1,'some text')", 65536)
	if len(text) < 1<<20 {
		t.Fatal("too short")
	}
	tree, err := p.ParseSelect(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.FormatSelect(t.Context(), tree)
	if err != nil || strings.Count(out, "some text") != 65537 {
		t.Fatalf("%d characters, %v", len(out), err)
	}
}

func TestParserRunsNothing(t *testing.T) {
	p := newParser(t)
	for _, text := range []string{"SELECT getenv('HOME')", "FROM read_text('/etc/passwd')", "SELECT * FROM enable_logging()"} {
		if _, err := p.ParseSelect(t.Context(), text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	// The quote doesn't end the literal.
	if _, err := p.ParseSelect(t.Context(), "SELECT 1'); CREATE TABLE x(a INT); SELECT ('"); err == nil {
		t.Error("no error")
	}
	if rows, err := p.in.Strings(t.Context(), "SELECT count(*) FROM duckdb_tables()"); err != nil || rows[0][0] != "0" {
		t.Errorf("tables: %v, %v", rows, err)
	}
}

// What is looked at must be what is run: text that DuckDB would read only the
// beginning of, or can't read, is refused. Afterwards other texts are looked at.
func TestTextThatCannotBeLookedAt(t *testing.T) {
	p, err := NewParser()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, text := range []string{"SELECT 1\x00; DROP TABLE t", "SELECT '\x00'", "SELECT '\xff\xfe'", "\x00"} {
		if raw, err := p.ParseSelect(t.Context(), text); err == nil {
			t.Errorf("%q gives %s", text, raw)
		}
		if tree, err := p.in.Tree(t.Context(), text); err == nil {
			t.Errorf("%q gives %v", text, tree)
		}
		for _, good := range []string{"SELECT 'ä' AS a", "SELECT 2, 'it''s'"} {
			if _, err := p.ParseSelect(t.Context(), good); err != nil {
				t.Errorf("after %q: %v", text, err)
			}
		}
	}
}
