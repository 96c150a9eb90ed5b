//go:build duckdb_arrow

package duckdb

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
)

// roundTrip reads sql's rows, appends them to another instance and compares
// what both say about them.
func TestAppendGivesBackWhatWentIn(t *testing.T) {
	mem := memory.NewCheckedAllocator(mallocator.NewMallocator())
	defer mem.AssertSize(t, 0)
	const sql = `SELECT i, CASE WHEN i % 3 = 0 THEN NULL ELSE 'text number ' || i END AS s, i::DECIMAL(20,3) / 7 AS d,
		DATE '2024-01-01' + i::INT AS dt, TIMESTAMP '1969-01-01' + INTERVAL (i) SECOND AS ts, (TIMESTAMP '1969-01-01' + INTERVAL (i) SECOND)::TIMESTAMPTZ AS tz,
		[i, NULL, 3] AS l, {'a': i, 'b': 'x' || i} AS st, MAP {'k' || i: i} AS m, i % 2 = 0 AS b, i::DOUBLE / 3 AS f, encode('b' || i) AS bl, (i * 1000)::UTINYINT IS NULL AS n
		FROM range(100) t(i) WHERE i < 0 OR i >= 0`
	const checked = `SELECT i, 'x' AS s FROM range(100000) t(i)`
	for _, q := range []string{strings.Replace(sql, ", (i * 1000)::UTINYINT IS NULL AS n", "", 1), checked} {
		from := open(t, Config{})
		rows, err := from.QueryWith(t.Context(), mem, q)
		if err != nil {
			t.Fatal(err)
		}
		var recs []arrow.RecordBatch
		for {
			rec, err := rows.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			recs = append(recs, rec)
		}
		rows.Close()
		to := open(t, Config{})
		r, err := array.NewRecordReader(rows.Schema(), recs)
		if err != nil {
			t.Fatal(err)
		}
		if err := to.AppendTable(t.Context(), "up load", rows.Schema(), r); err != nil {
			t.Fatal(err)
		}
		r.Release()
		for _, rec := range recs {
			rec.Release()
		}
		const sum = "SELECT count(*), bit_xor(hash(t)), sum(i) FILTER (i > 50), max(s) FROM %s t"
		want := text(t, from, strings.Replace(sum, "%s", "("+q+")", 1))
		for range 2 {
			if got := text(t, to, strings.Replace(sum, "%s", `"up load"`, 1)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	}
}

func TestAppendNothing(t *testing.T) {
	in := open(t, Config{})
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)
	if err := in.AppendTable(t.Context(), "e", schema, nil); err != nil {
		t.Fatal(err)
	}
	if got := text(t, in, "SELECT count(*) FROM e"); got != "0" {
		t.Errorf("got %s", got)
	}
}

// A registered Arrow view gives wrong rows or crashes the process when a query doesn't
// read all columns or has a filter, so nothing may call it or what's below it.
func TestArrowIsNeverRegisteredAsAView(t *testing.T) {
	root := filepath.Join("..", "..")
	names := []string{"." + "RegisterView(", "." + "ArrowScan("}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, n := range names {
			if strings.Contains(string(src), n) {
				t.Errorf("%s uses %s", path, n)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
