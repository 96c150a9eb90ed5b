package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// badLines writes 5,000 records of which a few can't be read, and gives their line
// numbers.
func badLines(t *testing.T, path string) []int {
	t.Helper()
	bad := map[int]string{3: `{"id": 3, "s": `, 2000: `{"id": "x", "s": "two thousand"}`, 2001: `not json`, 4999: `[1, 2]`}
	var b strings.Builder
	for i := 1; i <= 5000; i++ {
		if line, ok := bad[i]; ok {
			b.WriteString(line + "\n")
			continue
		}
		fmt.Fprintf(&b, "{\"id\": %d, \"s\": \"v%d\"}\n", i, i)
	}
	writeText(t, path, b.String())
	return []int{3, 2000, 2001, 4999}
}

func jsonLines(t *testing.T, e *Engine, pattern string) plan.Source {
	t.Helper()
	src := files(plan.SourceJSON, pattern)
	src.Options = map[string]string{"format": "'newline_delimited'", "columns": "{'id': 'BIGINT', 's': 'VARCHAR'}"}
	return mustProbe(t, e, "FROM firn_s0", src).Sources[0]
}

// TestBadJSONLinesAreNamed: without a limit the error names every bad line.
func TestBadJSONLinesAreNamed(t *testing.T) {
	dir := t.TempDir()
	want := badLines(t, dir+"/a.ndjson")
	e := newEngine(t, dir)
	_, err := run(t.Context(), e, task(), &plan.Query{SQL: "FROM firn_s0", Sources: []plan.Source{jsonLines(t, e, dir+"/*.ndjson")}})
	if commit.CodeOf(err) != commit.CodeRejectedRows || Class(err) != ClassNotRetryable {
		t.Fatalf("want rejected rows, got %v", err)
	}
	for _, n := range want {
		if !strings.Contains(err.Error(), fmt.Sprintf("a.ndjson:%d: ", n)) {
			t.Errorf("line %d isn't named:\n%v", n, err)
		}
	}
	if !strings.Contains(hint(err), "--reject-limit") {
		t.Errorf("hint %q", hint(err))
	}
}

// TestBadJSONLinesAreLeftOut: under the limit they are counted, and the rows are
// all others.
func TestBadJSONLinesAreLeftOut(t *testing.T) {
	dir := t.TempDir()
	want := badLines(t, dir+"/a.ndjson")
	writeText(t, dir+"/b.ndjson", "{\"id\": 7000, \"s\": \"b\"}\n\n{\"id\": 7001}\n")
	e := newEngine(t, dir)
	src := jsonLines(t, e, dir+"/*.ndjson")
	const q = "SELECT count(*), count(id), sum(id)::BIGINT FROM firn_s0"
	out, err := run(t.Context(), e, task(), &plan.Query{SQL: q, Sources: []plan.Source{src}, RejectLimit: 4})
	if err != nil {
		t.Fatal(err)
	}
	sum := 5000 * 5001 / 2
	for _, n := range want {
		sum -= n
	}
	if got, row := out.String(), fmt.Sprintf("%d|%d|%d", 4998, 4998, sum+7000+7001); strings.NewReplacer(" ", "", "\t", "|", ",", "|").Replace(got) != row {
		t.Errorf("got %q, want %s", got, row)
	}
	if out.rejected != 4 || len(out.rejects) != 4 || out.rejects[0].Line != 3 || out.rejects[0].Reason == "" || !strings.HasSuffix(out.rejects[0].File, "a.ndjson") {
		t.Errorf("rejected %d: %v", out.rejected, out.rejects)
	}
	_, err = run(t.Context(), e, task(), &plan.Query{SQL: q, Sources: []plan.Source{src}, RejectLimit: 3})
	if commit.CodeOf(err) != commit.CodeRejectedRows {
		t.Errorf("four bad lines went under a limit of 3: %v", err)
	}
}

// TestManyBadJSONLines: the search ends when there are too many.
func TestManyBadJSONLines(t *testing.T) {
	dir := t.TempDir()
	writeText(t, dir+"/a.ndjson", strings.Repeat("{\"id\": 1, \"s\": \"a\"}\nnope\n", 3000))
	e := newEngine(t, dir)
	_, err := run(t.Context(), e, task(), &plan.Query{SQL: "FROM firn_s0", Sources: []plan.Source{jsonLines(t, e, dir+"/a.ndjson")}, RejectLimit: 5})
	if commit.CodeOf(err) != commit.CodeRejectedRows || !strings.Contains(err.Error(), "at least 15") {
		t.Errorf("got %v", err)
	}
}
