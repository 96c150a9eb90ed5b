package engine

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

func badCSV(t *testing.T, bad int) (*Engine, plan.Source) {
	t.Helper()
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("id,name\n")
	for i := range 30000 {
		switch {
		case i >= 25000 && i < 25000+bad && i%2 == 0:
			fmt.Fprintf(&b, "x%d,bad\n", i)
		case i >= 25000 && i < 25000+bad:
			fmt.Fprintf(&b, "%d\n", i)
		default:
			fmt.Fprintf(&b, "%d,n\n", i)
		}
	}
	writeText(t, dir+"/rows.csv", b.String())
	e := newEngine(t, dir)
	src := mustProbe(t, e, "FROM firn_s0", files(plan.SourceCSV, dir+"/rows.csv")).Sources[0]
	if src.Columns[0].Type != "BIGINT" {
		t.Fatalf("columns %v", src.Columns)
	}
	return e, src
}

func TestRejectedRows(t *testing.T) {
	e, src := badCSV(t, 13)
	q := &plan.Query{SQL: "FROM firn_s0", Sources: []plan.Source{src}, RejectLimit: 13}
	out, err := run(t.Context(), e, task(), q)
	if err != nil {
		t.Fatal(err)
	}
	if out.rejected != 13 || len(out.rejects) != 10 || len(out.rows) != 30000-13 {
		t.Errorf("%d rows, %d rejected, listed %d", len(out.rows), out.rejected, len(out.rejects))
	}
	first := out.rejects[0]
	if filepath.Base(first.File) != "rows.csv" || first.Line != 25002 || first.Column != "id" || first.Text != "x25000,bad" || !strings.Contains(first.Reason, `"x25000"`) {
		t.Errorf("first reject %+v", first)
	}
	if second := out.rejects[1]; second.Line != 25003 || !strings.Contains(second.Reason, "Expected Number of Columns") {
		t.Errorf("second reject %+v", second)
	}
	for limit, want := range map[int64]string{0: "rows can't be read, 0 are allowed", 12: "13 rows can't be read, 12 are allowed"} {
		q.RejectLimit = limit
		_, err := run(t.Context(), e, task(), q)
		ce, ok := errors.AsType[*commit.Error](err)
		if !ok || ce.Code != commit.CodeRejectedRows || Class(err) != ClassNotRetryable || !strings.Contains(ce.Hint, "--reject-limit") ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "rows.csv:25002: column id") || strings.Count(err.Error(), "\n  ") != 10 {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	// A query that reads the source twice rejects each row once.
	q = &plan.Query{SQL: "SELECT count(*) FROM firn_s0 a JOIN firn_s0 b ON a.id = b.id AND a.name = b.name", Sources: []plan.Source{src}, RejectLimit: 13}
	if out, err = run(t.Context(), e, task(), q); err != nil || out.rejected != 13 {
		t.Errorf("twice: %d, %v", out.rejected, err)
	}
	src.Options["ignore_errors"] = "true"
	q = &plan.Query{SQL: "FROM firn_s0", Sources: []plan.Source{src}}
	if out, err = run(t.Context(), e, task(), q); err != nil || out.rejected != 0 || len(out.rows) != 30000-13 {
		t.Errorf("ignored by the statement: %d rejected, %d rows, %v", out.rejected, len(out.rows), err)
	}
}

func TestManyRejects(t *testing.T) {
	e, src := badCSV(t, 4000)
	_, err := run(t.Context(), e, task(), &plan.Query{SQL: "FROM firn_s0", Sources: []plan.Source{src}, RejectLimit: 100})
	if commit.CodeOf(err) != commit.CodeRejectedRows || !strings.Contains(err.Error(), "at least 1") {
		t.Errorf("got %v", err)
	}
}

func TestBadJSONNamesFileAndLine(t *testing.T) {
	dir := t.TempDir()
	var b strings.Builder
	for i := range 30000 {
		if i == 28000 {
			b.WriteString(`{"a": "x"}` + "\n")
			continue
		}
		fmt.Fprintf(&b, "{\"a\": %d}\n", i)
	}
	writeText(t, dir+"/rows.json", b.String())
	e := newEngine(t, dir)
	src := mustProbe(t, e, "FROM firn_s0", files(plan.SourceJSON, dir+"/*.json")).Sources[0]
	_, err := run(t.Context(), e, task(), &plan.Query{SQL: "FROM firn_s0", Sources: []plan.Source{src}})
	if commit.CodeOf(err) != commit.CodeRejectedRows || !strings.Contains(err.Error(), "rows.json:28001: ") {
		t.Errorf("got %v", err)
	}
	writeText(t, dir+"/ok.json", "{\"a\": 1, \"b\": {\"c\": [1, 2]}}\n{\"a\": 2}\n")
	src = mustProbe(t, e, "FROM firn_s0", files(plan.SourceJSON, dir+"/ok.json")).Sources[0]
	if got := mustRun(t, e, "SELECT a, b.c[2] FROM firn_s0", src).String(); got != "1|2\n2|"+array.NullValueStr {
		t.Errorf("got %s", got)
	}
}
