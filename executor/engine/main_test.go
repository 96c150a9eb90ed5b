package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"go.uber.org/goleak"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newEngine makes an engine that may read the directories.
func newEngine(t *testing.T, allow ...string) *Engine {
	t.Helper()
	e, err := New(Config{Dir: filepath.Join(t.TempDir(), "slot"), Memory: 1 << 30, Threads: 2, LocalAllow: allow})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// write runs statements in a DuckDB that may write everywhere; %s is the
// directory.
func write(t *testing.T, dir string, statements ...string) {
	t.Helper()
	in, err := duckdb.Open(t.Context(), duckdb.Config{AllowAll: true, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for _, s := range statements {
		if err := in.Exec(t.Context(), strings.ReplaceAll(s, "%s", dir)); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func writeText(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func hint(err error) string {
	if e, ok := errors.AsType[*commit.Error](err); ok {
		return e.Hint
	}
	return ""
}

func files(kind plan.SourceKind, patterns ...string) plan.Source {
	return plan.Source{View: []string{"firn_s0"}, Kind: kind, Patterns: patterns}
}

func mustProbe(t *testing.T, e *Engine, sql string, sources ...plan.Source) plan.ProbeResult {
	t.Helper()
	res, err := e.Probe(t.Context(), plan.ProbeRequest{SQL: sql, Sources: sources})
	if err != nil {
		t.Fatalf("probe %s: %v", sql, err)
	}
	return res
}

func probeFails(t *testing.T, e *Engine, sql string, sources ...plan.Source) error {
	t.Helper()
	res, err := e.Probe(t.Context(), plan.ProbeRequest{SQL: sql, Sources: sources})
	if err == nil {
		t.Fatalf("probe %s: no error, got %+v", sql, res)
	}
	return err
}

var attempts atomic.Int64

func task() TaskInfo {
	return TaskInfo{Attempt: fmt.Sprintf("a-%d", attempts.Add(1)), Now: time.Date(2024, 2, 29, 23, 30, 0, 0, time.UTC)}
}

type output struct {
	rows     []string
	rejected int64
	rejects  []Reject
}

func (o output) String() string { return strings.Join(o.rows, "\n") }

// run runs a query to its end and gives its rows as text.
func run(ctx context.Context, e *Engine, t TaskInfo, q *plan.Query) (output, error) {
	st, err := e.RunQuery(ctx, q, t)
	if err != nil {
		return output{}, err
	}
	defer st.Close()
	var out output
	for {
		rec, err := st.Next(ctx)
		if errors.Is(err, io.EOF) {
			out.rejected, out.rejects = st.Rejected()
			return out, nil
		}
		if err != nil {
			return out, err
		}
		for i := range int(rec.NumRows()) {
			cells := make([]string, rec.NumCols())
			for j, c := range rec.Columns() {
				cells[j] = c.ValueStr(i)
				if c.IsNull(i) {
					cells[j] = array.NullValueStr
				}
			}
			out.rows = append(out.rows, strings.Join(cells, "|"))
		}
		rec.Release()
	}
}

func mustRun(t *testing.T, e *Engine, sql string, sources ...plan.Source) output {
	t.Helper()
	out, err := run(t.Context(), e, task(), &plan.Query{SQL: sql, Sources: sources})
	if err != nil {
		t.Fatalf("run %s: %v", sql, err)
	}
	left, err := os.ReadDir(e.cfg.Dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left in the slot's directory: %v, %v", left, err)
	}
	return out
}
