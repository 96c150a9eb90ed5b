package integration_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
)

func (l *lake) cache(sql string) *client.Frame {
	l.t.Helper()
	f, err := l.Pipeline().SQL(sql).Cache(l.t.Context(), client.CacheOptions{})
	if err != nil {
		l.t.Fatalf("cache %s: %v", sql, err)
	}
	return f
}

// rowsOf reads a frame's rows.
func (l *lake) rowsOf(f *client.Frame) (out []string) {
	l.t.Helper()
	for batch, err := range f.Rows(l.t.Context()) {
		if err != nil {
			l.t.Fatal(err)
		}
		for r := range int(batch.NumRows()) {
			var row []string
			for _, col := range batch.Columns() {
				row = append(row, col.ValueStr(r))
			}
			out = append(out, strings.Join(row, "|"))
		}
		batch.Release()
	}
	return out
}

// TestCachedFrame: the rows of a query are read by SELECTs, by pipelines, by an INSERT
// and by another frame, without its source; and are gone with its release.
func TestCachedFrame(t *testing.T) {
	l := start(t, t.TempDir())
	in := filepath.Join(t.TempDir(), "in.parquet")
	duck(t, fmt.Sprintf("COPY (SELECT i AS id, i %% 7 AS k, sha256(i::varchar) AS payload FROM range(200000) t(i)) TO '%s' (ROW_GROUP_SIZE 20000)", in))
	l.must("CREATE NAMESPACE lake.air", "CREATE TABLE lake.air.t (id bigint, k bigint, payload string)")
	const rows = "SELECT k::varchar, count(*)::varchar, sum(id)::varchar, min(payload) FROM %s GROUP BY k ORDER BY k"
	query := "SELECT * FROM read_parquet('" + in + "') WHERE id % 2 = 0"
	want := l.query(fmt.Sprintf(rows, "("+query+")"))

	f := l.cache(query)
	st, err := f.Status(t.Context())
	if err != nil || st.State != "ready" || st.Rows != 100000 || st.Pieces < 2 || st.Lost != 0 || !st.Repeats || st.SQL != query || len(st.Executors) != 2 {
		t.Fatalf("%+v, %v", st, err)
	}
	schema, err := f.Schema(t.Context())
	if err != nil || schema.NumFields() != 3 || schema.Field(2).Name != "payload" {
		t.Fatalf("schema %v, %v", schema, err)
	}
	// What it was made from isn't needed any more.
	if err := os.Rename(in, in+".away"); err != nil {
		t.Fatal(err)
	}
	if got := l.query(fmt.Sprintf(rows, f.Name())); !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	if got := l.query("SELECT count(*)::varchar FROM " + f.Name() + " a JOIN " + f.Name() + " b USING (id)"); got[0][0] != "100000" {
		t.Fatalf("joined with itself: %v", got)
	}
	pipelined, err := l.run(client.Statement{SQL: "SELECT id, payload FROM " + f.Name() + " WHERE k > 2", Mode: client.ModePipelined})
	if err != nil || pipelined.Rows != 57142 {
		t.Fatalf("pipelined over a frame: %d rows, %v\n%s", pipelined.Rows, err, pipelined.Plan)
	}
	if got := l.rowsOf(f); len(got) != 100000 || !strings.HasPrefix(got[0], "0|0|") || !strings.HasPrefix(got[99999], "199998|") {
		t.Fatalf("%d rows", len(got))
	}
	job, err := l.Pipeline().ReadFrame(f).SQL("SELECT id, k, payload FROM input WHERE k < 3").Write("lake.air.t").Append().Run(t.Context())
	if err != nil || job.Report.Rows != 42858 {
		t.Fatalf("insert: %+v, %v", job.Report, err)
	}
	var plan strings.Builder
	for _, row := range l.query("EXPLAIN INSERT INTO lake.air.t SELECT * FROM " + f.Name()) {
		plan.WriteString(row[0] + "\n")
	}
	if text := plan.String(); !strings.Contains(text, "cached frame "+f.ID()) || !strings.Contains(text, "parallel over the pieces") {
		t.Errorf("plan:\n%s", text)
	}
	// A frame over a frame, parallel and whole.
	few, one := l.cache("SELECT id, k FROM "+f.Name()+" WHERE k = 1"), l.cache("SELECT k, count(*) AS n FROM "+f.Name()+" GROUP BY k")
	if err := f.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := l.query("SELECT count(*)::varchar, (SELECT sum(n)::varchar FROM " + one.Name() + ") FROM " + few.Name()); got[0][0] != "14286" || got[0][1] != "100000" {
		t.Errorf("frames over a frame: %v", got)
	}
	_, err = l.run(client.Statement{SQL: "SELECT * FROM " + f.Name()})
	if commit.CodeOf(err) != commit.CodeFrameNotFound || !strings.Contains(err.Error(), "it was released") {
		t.Errorf("after its release: %v", err)
	}
	for _, f := range []*client.Frame{few, one} {
		if err := f.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := l.Frames(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// TestFrameWhoseRowsDontRepeat: of several pieces, as of a query that handles each row of
// another such frame by itself, all are read, once each; whole, in parallel, and by a
// pipelined job.
func TestFrameWhoseRowsDontRepeat(t *testing.T) {
	l := start(t, t.TempDir())
	in := filepath.Join(t.TempDir(), "in.parquet")
	duck(t, fmt.Sprintf("COPY (SELECT i AS id, sha256(i::varchar) AS payload FROM range(200000) t(i)) TO '%s'", in))
	l.must("CREATE NAMESPACE lake.air", "CREATE TABLE lake.air.t (id bigint, payload string)")
	one := l.cache("SELECT id, max(payload) AS payload FROM read_parquet('" + in + "') GROUP BY id")
	many := l.cache("SELECT id, payload FROM " + one.Name() + " WHERE id >= 0")
	st, err := many.Status(t.Context())
	if err != nil || st.Repeats || st.Pieces < 2 || st.Rows != 200000 {
		t.Fatalf("%+v, %v", st, err)
	}
	const sums = "SELECT count(DISTINCT id)::varchar, count(*)::varchar, sum(id)::varchar, max(payload) FROM "
	want := l.query(sums + "read_parquet('" + in + "')")
	if got := l.query(sums + many.Name()); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	pipelined, err := l.run(client.Statement{SQL: "SELECT id FROM " + many.Name(), Mode: client.ModePipelined})
	if err != nil || pipelined.Rows != 200000 {
		t.Errorf("pipelined: %d rows, %v", pipelined.Rows, err)
	}
	l.must("INSERT INTO lake.air.t SELECT id, payload FROM " + many.Name())
	if got := l.query(sums + "lake.air.t"); !reflect.DeepEqual(got, want) {
		t.Errorf("inserted: %v, want %v", got, want)
	}
}

// TestWhatIsNotCached is refused before anything runs, and says why.
func TestWhatIsNotCached(t *testing.T) {
	l := start(t, t.TempDir())
	l.must("CREATE NAMESPACE lake.air", "CREATE TABLE lake.air.t (id bigint)")
	for sql, want := range map[string]struct {
		code       commit.Code
		says, hint string
	}{
		"INSERT INTO lake.air.t SELECT 1":            {commit.CodeModeRefused, "a cached job would keep the root's input instead of the job's result", "Cache the statement's query, and INSERT from the frame"},
		"CREATE TABLE lake.air.u (id bigint)":        {commit.CodeBadRequest, "CREATE TABLE gives no rows", "Cache a SELECT"},
		"EXPLAIN SELECT 1":                           {commit.CodeBadRequest, "EXPLAIN gives no rows", "Cache a SELECT"},
		"SELECT 1 AS a, 2 AS A":                      {commit.CodeFrameQuery, "several columns", "a name of its own with AS"},
		"SELECT * FROM firn_cache.\"f-nobody's\"":    {commit.CodeFrameNotFound, "no such frame", "firn cache list"},
		"SELECT * FROM firn_cache.f AT (VERSION=>1)": {commit.CodeSQLRefused, "cached frame", ""},
	} {
		_, err := l.Cache(t.Context(), client.Statement{SQL: sql}, client.CacheOptions{})
		if commit.CodeOf(err) != want.code || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%s: %v", sql, err)
		}
		if e, ok := errors.AsType[*commit.Error](err); !ok || !strings.Contains(e.Hint, want.hint) || strings.Contains(e.Hint, "mode") {
			t.Errorf("%s: the way out: %+v", sql, e)
		}
	}
	if all, err := l.Frames(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}
