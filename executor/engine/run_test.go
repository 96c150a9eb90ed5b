package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
	"pgregory.net/rapid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// cut gives the slices of files between cuts of their rows.
func cut(files []plan.SourceFile, cuts func(rows int64) []int64) []plan.SourceFile {
	var out []plan.SourceFile
	for _, f := range files {
		first := int64(0)
		for _, end := range append(cuts(f.Rows), f.Rows) {
			if end <= first {
				continue
			}
			part := f
			part.First, part.End = first, end
			out = append(out, part)
			first = end
		}
	}
	return out
}

func TestSlicesGiveEachRowExactlyOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, dir,
		"COPY (SELECT i AS id FROM range(10000) t(i)) TO '%s/1.parquet' (ROW_GROUP_SIZE 2048)",
		"COPY (SELECT 10000 + i AS id FROM range(3) t(i)) TO '%s/2.parquet'",
		"COPY (SELECT 10003 + i AS id FROM range(5000) t(i)) TO '%s/3.parquet' (ROW_GROUP_SIZE 2048)")
	e := newEngine(t, dir)
	src := mustProbe(t, e, "FROM firn_s0", files(plan.SourceParquet, dir+"/*.parquet")).Sources[0]
	rapid.Check(t, func(rt *rapid.T) {
		parts := cut(src.Files, func(rows int64) []int64 {
			cuts := rapid.SliceOfN(rapid.Int64Range(0, rows), 0, 3).Draw(rt, "cuts")
			for i := range cuts {
				if i > 0 {
					cuts[i] = max(cuts[i], cuts[i-1])
				}
			}
			return cuts
		})
		tasks := rapid.IntRange(1, 3).Draw(rt, "tasks")
		var got []string
		per := (len(parts) + tasks - 1) / tasks
		for len(parts) > 0 {
			one := src
			one.Files, parts = parts[:min(per, len(parts))], parts[min(per, len(parts)):]
			got = append(got, mustRun(t, e, "FROM firn_s0", one).rows...)
		}
		if len(got) != 15003 {
			rt.Fatalf("%d rows", len(got))
		}
		for i, v := range got {
			if v != strconv.Itoa(i) {
				rt.Fatalf("row %d is %s", i, v)
			}
		}
	})
}

func TestFlightsByRowGroups(t *testing.T) {
	data := os.Getenv("FIRN_TESTDATA")
	if data == "" {
		t.Skip("FIRN_TESTDATA isn't set")
	}
	dir := filepath.Join(data, "data")
	e := newEngine(t, dir)
	res := mustProbe(t, e, "SELECT distance, delay FROM firn_s0", files(plan.SourceParquet, dir+"/flights-3m.parquet"))
	f := res.Sources[0].Files[0]
	if len(f.RowGroups) != 11 || f.Rows != 3000000 || !res.RowWise {
		t.Fatalf("%d row groups, %d rows, %s", len(f.RowGroups), f.Rows, res.Why)
	}
	var distance, delay, rows int64
	first := int64(0)
	for _, rg := range f.RowGroups {
		src := res.Sources[0]
		src.Files = []plan.SourceFile{f}
		src.Files[0].First, src.Files[0].End = first, first+rg.Rows
		first += rg.Rows
		out := mustRun(t, e, "SELECT sum(distance)::BIGINT, sum(delay)::BIGINT, count(*) FROM firn_s0", src)
		var a, b, n int64
		if _, err := fmt.Sscanf(strings.ReplaceAll(out.rows[0], "|", " "), "%d %d %d", &a, &b, &n); err != nil {
			t.Fatal(err)
		}
		if n != rg.Rows {
			t.Errorf("row group of %d rows gives %d", rg.Rows, n)
		}
		distance, delay, rows = distance+a, delay+b, rows+n
	}
	if distance != 2194861208 || delay != 20003603 || rows != 3000000 {
		t.Errorf("distance %d, delay %d, rows %d", distance, delay, rows)
	}
}

func TestCSVIsPinned(t *testing.T) {
	dir := t.TempDir()
	// The second file alone would be taken for numbers with a comma.
	writeText(t, dir+"/1.csv", "id;note;at\n1;a, b;31.12.2020\n2;;01.02.2021\n")
	writeText(t, dir+"/2.csv", "id;note;at\n3;4,5;05.06.2021\n")
	e := newEngine(t, dir)
	src := files(plan.SourceCSV, dir+"/*.csv")
	src.Options = map[string]string{"dateformat": "'%d.%m.%Y'"}
	res := mustProbe(t, e, "FROM firn_s0", src)
	src = res.Sources[0]
	if src.Options["auto_detect"] != "false" || src.Options["delim"] != "';'" || src.Options["header"] != "true" {
		t.Errorf("options %v", src.Options)
	}
	if len(src.Columns) != 3 || src.Columns[0].Type != "BIGINT" || src.Columns[1].Type != "VARCHAR" || src.Columns[2].Type != "DATE" {
		t.Errorf("columns %v", src.Columns)
	}
	all := src.Files
	src.Files = all[1:]
	if got := mustRun(t, e, "FROM firn_s0", src).String(); got != "3|4,5|2021-06-05" {
		t.Errorf("second file: %s", got)
	}
	src.Files = all[:1]
	if got := mustRun(t, e, "FROM firn_s0", src).String(); got != "1|a, b|2020-12-31\n2|"+array.NullValueStr+"|2021-02-01" {
		t.Errorf("first file: %s", got)
	}
	typed := files(plan.SourceCSV, dir+"/1.csv")
	typed.Options = map[string]string{"types": "{'id': 'DECIMAL(9,1)'}", "sep": "';'", "filename": "true"}
	res = mustProbe(t, e, "FROM firn_s0", typed)
	if got := mustRun(t, e, "SELECT id, filename FROM firn_s0 LIMIT 1", res.Sources...).String(); got != "1|"+dir+"/1.csv" {
		t.Errorf("typed: %s (%v)", got, res.Sources[0].Options)
	}
	own := files(plan.SourceCSV, dir+"/1.csv")
	own.Options = map[string]string{"columns": "{'x': 'VARCHAR', 'y': 'VARCHAR', 'z': 'VARCHAR'}", "delim": "';'", "header": "true"}
	res = mustProbe(t, e, "FROM firn_s0", own)
	if got := mustRun(t, e, "SELECT x, z FROM firn_s0 LIMIT 1", res.Sources...).String(); got != "1|31.12.2020" {
		t.Errorf("own columns: %s (%v)", got, res.Sources[0].Options)
	}
}

func TestCSVFilesMustHaveTheSameColumns(t *testing.T) {
	dir := t.TempDir()
	writeText(t, dir+"/1.csv", "id,name\n1,a\n")
	for name, content := range map[string]string{"renamed": "id,title\n2,b\n", "swapped": "name,id\nb,2\n", "more": "id,name,more\n2,b,c\n", "fewer": "id\n2\n"} {
		writeText(t, dir+"/2.csv", content)
		err := probeFails(t, newEngine(t, dir), "FROM firn_s0", files(plan.SourceCSV, dir+"/*.csv"))
		if commit.CodeOf(err) != commit.CodeSchemaDrift || !strings.Contains(err.Error(), "2.csv") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestQuotesBeyondTheSample(t *testing.T) {
	dir := t.TempDir()
	writeText(t, dir+"/1.csv", "id,note\n"+strings.Repeat("1,a\n", 30000)+"2,\"x, \"\"y\"\"\"\n")
	writeText(t, dir+"/2.csv", "id,note\n3,\"p, q\"\n")
	writeText(t, dir+"/stray.csv", "id,note\n1,\"open\n2,\"again\n")
	e := newEngine(t, dir)
	src := mustProbe(t, e, "FROM firn_s0", files(plan.SourceCSV, dir+"/?.csv")).Sources[0]
	if got := mustRun(t, e, "FROM firn_s0 WHERE id > 1", src).String(); got != "2|x, \"y\"\n3|p, q" {
		t.Errorf("got %s (%v)", got, src.Options)
	}
	src = mustProbe(t, e, "FROM firn_s0", files(plan.SourceCSV, dir+"/stray.csv")).Sources[0]
	if got := mustRun(t, e, "FROM firn_s0", src).String(); got != "1|\"open\n2|\"again" {
		t.Errorf("got %s (%v)", got, src.Options)
	}
}

// Every option that the analyzer lets through must work from the probe to the
// task.
func TestReaderOptions(t *testing.T) {
	dir := t.TempDir()
	writeText(t, dir+"/1.csv", "A Col,b\n1,x\n2,y\n")
	writeText(t, dir+"/1.json", "{\"a\": 1}\n{\"a\": 2}\n")
	write(t, dir, "COPY (SELECT 1 AS a UNION ALL SELECT 2) TO '%s/1.parquet'")
	e := newEngine(t, dir)
	for kind, options := range map[plan.SourceKind][]string{
		plan.SourceCSV: {
			"all_varchar=true", "allow_quoted_nulls=false", "auto_detect=true", "auto_type_candidates=['BIGINT', 'VARCHAR']",
			"column_names=['p', 'q']", "column_types={'b': 'VARCHAR'}", "columns={'p': 'BIGINT', 'q': 'VARCHAR'}", "comment='#'",
			"compression='none'", "date_format='%d.%m.%Y'", "dateformat='%d.%m.%Y'", "decimal_separator='.'", "delim=','", "delimiter=','",
			"dtypes={'b': 'VARCHAR'}", "encoding='utf-8'", "escape='\"'", "force_not_null=['b']", "header=true", "max_line_size=1000000",
			"maximum_line_size=1000000", "names=['p', 'q']", "new_line='\\n'", "normalize_names=true", "null='x'", "null_padding=true",
			"nullstr='x'", "quote='\"'", "sample_size=-1", "sep=','", "skip=0", "strict_mode=false", "thousands=','",
			"timestamp_format='%Y'", "timestampformat='%Y'", "types={'b': 'VARCHAR'}", "union_by_name=true", "hive_partitioning=false",
			// As DuckDB's formatter writes lists, structs and booleans.
			"types=main.struct_pack(b := 'VARCHAR')", "columns=main.struct_pack(p := 'BIGINT', q := 'VARCHAR')", "names=main.list_value('p', 'q')",
			"nullstr=main.list_value('-', 'z')", "union_by_name=CAST('t' AS BOOLEAN)", "header=CAST('t' AS BOOLEAN)",
		},
		plan.SourceJSON: {
			"auto_detect=true", "columns={'a': 'INTEGER'}", "compression='uncompressed'", "date_format='%Y'", "timestamp_format='%Y'", "convert_strings_to_integers=true", "dateformat='%Y'",
			"field_appearance_threshold=0.5", "format='newline_delimited'", "map_inference_threshold=10", "maximum_depth=3",
			"maximum_object_size=1000000", "maximum_sample_files=1", "records=true", "sample_size=1", "timestampformat='%Y'", "union_by_name=true",
		},
		plan.SourceParquet: {"binary_as_string=true", "union_by_name=true", "hive_partitioning=true", "hive_types_autocast=false", "can_have_nan=true"},
	} {
		for _, o := range options {
			name, value, _ := strings.Cut(o, "=")
			src := files(kind, dir+"/1."+string(kind))
			src.Options = map[string]string{name: value}
			res, err := e.Probe(t.Context(), plan.ProbeRequest{SQL: "SELECT count(*) FROM firn_s0", Sources: []plan.Source{src}})
			if err != nil {
				t.Errorf("%s %s: %v", kind, o, err)
				continue
			}
			out, err := run(t.Context(), e, task(), &plan.Query{SQL: "SELECT count(*), count(s) FROM firn_s0 s", Sources: res.Sources})
			if err != nil || out.String() != "2|2" {
				t.Errorf("%s %s: %s, %v (%v)", kind, o, out, err, res.Sources[0].Options)
			}
		}
	}
}

func TestQueryErrorsAreCleanAndClassed(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "COPY (SELECT 'x' || i AS s FROM range(9) t(i)) TO '%s/a.parquet'")
	e := newEngine(t, dir)
	src := mustProbe(t, e, "FROM firn_s0", files(plan.SourceParquet, dir+"/*.parquet")).Sources[0]
	for sql, want := range map[string]string{
		"SELECT s::INT FROM firn_s0":                          "Could not convert string 'x0' to INT32",
		"SELECT nope FROM firn_s0":                            `"nope" not found`,
		"SELECT 9223372036854775807 + length(s) FROM firn_s0": "Overflow",
		"SELECT FROM WHERE":                                   "syntax error",
	} {
		_, err := run(t.Context(), e, task(), &plan.Query{SQL: sql, Sources: []plan.Source{src}})
		if commit.CodeOf(err) != commit.CodeQueryFailed || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "LINE 1") || Class(err) != ClassNotRetryable {
			t.Errorf("%s: %v (%s)", sql, err, Class(err))
		}
	}
	_, err := run(t.Context(), e, task(), &plan.Query{SQL: "SELECT s::INT FROM firn_s0", Sources: []plan.Source{src}})
	if !strings.Contains(err.Error(), "a.parquet") {
		t.Errorf("the file isn't named: %v", err)
	}
	small := task()
	small.MemoryBytes = 32 << 20
	_, err = run(t.Context(), e, small, &plan.Query{SQL: "SELECT length(string_agg(md5(i::VARCHAR), '')) FROM range(3000000) t(i)"})
	if commit.CodeOf(err) != commit.CodeQueryMemory || Class(err) != ClassNotRetryable {
		t.Errorf("out of memory: %v", err)
	}
	// A file that went away since the probe.
	if err := os.Remove(dir + "/a.parquet"); err != nil {
		t.Fatal(err)
	}
	_, err = run(t.Context(), e, task(), &plan.Query{SQL: "FROM firn_s0", Sources: []plan.Source{src}})
	if commit.CodeOf(err) != commit.CodeSourceNotFound || !strings.Contains(err.Error(), "a.parquet") {
		t.Errorf("removed file: %v", err)
	}
}

func TestDamagedPages(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "COPY (SELECT i AS id, md5(i::VARCHAR) AS s FROM range(50000) t(i)) TO '%s/1.parquet' (COMPRESSION snappy, FIELD_IDS {id: 1, s: 2})")
	good, err := os.ReadFile(dir + "/1.parquet")
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(t, dir)
	for _, at := range []int{10, len(good) / 2} {
		damaged := append([]byte{}, good...)
		for i := range 40 {
			damaged[at+i] ^= 0x5a
		}
		writeText(t, dir+"/2.parquet", string(damaged))
		src := mustProbe(t, e, "FROM firn_s0", files(plan.SourceParquet, dir+"/2.parquet")).Sources[0]
		_, err := run(t.Context(), e, task(), &plan.Query{SQL: "FROM firn_s0", Sources: []plan.Source{src}})
		if commit.CodeOf(err) != commit.CodeBadFile || !strings.Contains(err.Error(), "2.parquet") || Class(err) != ClassNotRetryable {
			t.Errorf("at %d: %v", at, err)
		}
		// The file of a table is staged, and named as the table does.
		own := table([]plan.Column{{Name: "id", Type: "BIGINT", FieldID: 1}, {Name: "s", Type: "VARCHAR", FieldID: 2}}, plan.SourceFile{Path: "file://" + dir + "/2.parquet"})
		other := newEngine(t)
		_, err = run(t.Context(), other, task(), &plan.Query{SQL: "SELECT * " + fromT, Sources: []plan.Source{own}})
		if commit.CodeOf(err) != commit.CodeBadFile || !strings.Contains(err.Error(), "2.parquet") || strings.Contains(err.Error(), other.cfg.Dir) {
			t.Errorf("table, at %d: %v", at, err)
		}
	}
}

func TestFullSpillDirectory(t *testing.T) {
	e, err := New(Config{Dir: filepath.Join(t.TempDir(), "slot"), Memory: 64 << 20, MaxSpill: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	_, err = run(t.Context(), e, task(), &plan.Query{SQL: "SELECT md5(i::VARCHAR) AS s, md5(s) AS p FROM range(2000000) t(i) ORDER BY s"})
	if commit.CodeOf(err) != commit.CodeSpillFull || !strings.Contains(hint(err), "Free space") {
		t.Errorf("got %v", err)
	}
}

func TestEscapeAttempts(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	secret := writeText(t, outside+"/secret.txt", "42\n")
	writeText(t, dir+"/a.csv", "a\n1\n")
	e := newEngine(t, dir)
	src := mustProbe(t, e, "FROM firn_s0", files(plan.SourceCSV, dir+"/a.csv")).Sources[0]
	for _, sql := range []string{
		"COPY (SELECT 1) TO '" + dir + "/out.csv'",
		"EXPORT DATABASE '" + dir + "/out'",
		"ATTACH '" + dir + "/out.db' AS x",
		"SET memory_limit = '1TB'",
		"CREATE TABLE t (i INT)",
		"DROP VIEW firn_s0",
		"CALL enable_logging()",
		"PRAGMA enable_profiling",
		"INSTALL httpfs",
		"SELECT 1; SELECT 2",
		"SELECT * FROM enable_logging()",
		"SELECT * FROM duckdb_logs",
		"SELECT * FROM duckdb_settings()",
		"SELECT * FROM read_text('" + secret + "')",
		"SELECT * FROM read_csv('" + dir + "/a.csv')",
		"SELECT * FROM '" + dir + "/a.csv'",
		"SELECT * FROM '" + secret + "'",
		"SELECT * FROM glob('" + outside + "/*')",
		"SELECT * FROM query('SELECT 1')",
		"SELECT * FROM query_table('firn_s0')",
		"SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
		"SELECT * FROM sniff_csv('" + secret + "')",
		"SELECT * FROM parquet_metadata('" + secret + "')",
		"SELECT * FROM information_schema.tables",
		"SELECT * FROM pragma_database_list",
		"SELECT * FROM checkpoint()",
		"SELECT (SELECT content FROM read_text('" + secret + "'))",
		"WITH c AS (SELECT * FROM read_blob('" + secret + "')) FROM c",
		"SELECT write_log('x')",
		"SELECT * FROM other",
		"",
	} {
		q := &plan.Query{SQL: sql, Sources: []plan.Source{src}}
		out, err := run(t.Context(), e, task(), q)
		if err == nil {
			t.Errorf("ran: %s: %s", sql, out)
		} else if Class(err) != ClassNotRetryable {
			t.Errorf("%s: %v is %s", sql, err, Class(err))
		}
		if _, err := e.Probe(t.Context(), plan.ProbeRequest{SQL: sql, Sources: q.Sources}); err == nil {
			t.Errorf("probed: %s", sql)
		}
	}
	if left, _ := filepath.Glob(dir + "/*"); len(left) != 1 {
		t.Errorf("files %v", left)
	}
}

func TestTheJobsTimeAndZone(t *testing.T) {
	e := newEngine(t)
	info := task()
	info.TimeZone = "Asia/Tokyo"
	out, err := run(t.Context(), e, info, &plan.Query{SQL: "SELECT now() = TIMESTAMPTZ '2024-02-29 23:30:00+00', current_date::VARCHAR, localtimestamp::VARCHAR, current_timestamp::VARCHAR, current_time::VARCHAR, age(TIMESTAMP '2024-01-01')::VARCHAR"})
	if err != nil || out.String() != "true|2024-03-01|2024-03-01 08:30:00|2024-03-01 08:30:00+09|08:30:00|2 months" {
		t.Errorf("%s, %v", out, err)
	}
}

func TestCancellation(t *testing.T) {
	e := newEngine(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	// Left alone the query takes days: that it ends is what is tested.
	_, err := run(ctx, e, task(), &plan.Query{SQL: "SELECT count(*) FROM range(100000000000) a(i), range(1000) b(j) WHERE hash(i + j) = 7"})
	if Class(err) != ClassCancelled {
		t.Error(err)
	}
	if left, _ := os.ReadDir(e.cfg.Dir); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

func TestLargeResultsStream(t *testing.T) {
	e := newEngine(t)
	info := task()
	info.MemoryBytes = 256 << 20
	st, err := e.RunQuery(t.Context(), &plan.Query{SQL: "SELECT i, md5(i::VARCHAR) AS a, md5((i+1)::VARCHAR) AS b FROM range(4000000) t(i)"}, info)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var peak uint64
	for {
		rec, err := st.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		rec.Release()
		if st.Rows()%500000 < 20000 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapInuse)
		}
	}
	if st.Rows() != 4000000 {
		t.Errorf("%d rows", st.Rows())
	}
	// The result is more than 300 MB.
	if peak > 100<<20 {
		t.Errorf("the Go heap held %d MB", peak>>20)
	}
}

func TestUploads(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int32}, {Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)
	b := array.NewRecordBuilder(mallocator.NewMallocator(), schema)
	defer b.Release()
	b.Field(0).(*array.Int32Builder).AppendValues([]int32{1, 2, 3}, nil)
	b.Field(1).(*array.StringBuilder).AppendValues([]string{"a", "", "c"}, []bool{true, false, true})
	rec := b.NewRecordBatch()
	defer rec.Release()
	opened := ""
	e, err := New(Config{Dir: filepath.Join(t.TempDir(), "slot"), OpenKept: func(_ context.Context, l []plan.ShuffleLocation) (array.RecordReader, error) {
		if l[0].Job == "gone" {
			return nil, &commit.Error{Code: commit.CodeSourceNotFound, Op: "read upload", Object: "gone"}
		}
		opened = l[0].Job
		return array.NewRecordReader(schema, []arrow.RecordBatch{rec, rec})
	}})
	if err != nil {
		t.Fatal(err)
	}
	src := plan.Source{View: []string{"firn_s0"}, Kind: plan.SourceUpload, Upload: &plan.Upload{ID: "u-1", Location: plan.ShuffleLocation{Job: "u-1"}}, Columns: []plan.Column{{Name: "id", Type: "BIGINT"}, {Name: "s", Type: "VARCHAR"}}}
	want := "1|a\n2|" + array.NullValueStr + "\n3|c\n1|a\n2|" + array.NullValueStr + "\n3|c"
	if got := mustRun(t, e, "SELECT id, s FROM firn_s0", src).String(); got != want || opened != "u-1" {
		t.Errorf("got %s", got)
	}
	// A stream can be scanned more than once.
	if got := mustRun(t, e, "SELECT count(*), count(DISTINCT a.id) FROM firn_s0 a, firn_s0 b", src).String(); got != "36|3" {
		t.Errorf("twice: %s", got)
	}
	// Pieces of a cached frame are read like that, and none at all give no rows.
	frame := plan.Source{View: src.View, Kind: plan.SourceFrame, Columns: src.Columns, Frame: &plan.Frame{ID: "f-1", Locations: []plan.ShuffleLocation{{Job: "j-1"}, {Job: "j-2"}}}}
	if got := mustRun(t, e, "SELECT id, s FROM firn_s0", frame).String(); got != want || opened != "j-1" {
		t.Errorf("frame: %s", got)
	}
	frame.Frame = &plan.Frame{ID: "f-1"}
	if got := mustRun(t, e, "SELECT count(*), min(s) FROM firn_s0", frame).String(); got != "0|"+array.NullValueStr {
		t.Errorf("no piece: %s", got)
	}
	src.Upload = &plan.Upload{ID: "gone", Location: plan.ShuffleLocation{Job: "gone"}}
	if _, err := run(t.Context(), e, task(), &plan.Query{SQL: "FROM firn_s0", Sources: []plan.Source{src}}); commit.CodeOf(err) != commit.CodeSourceNotFound {
		t.Errorf("gone: %v", err)
	}
	src.Upload.ID = "u-2"
	if _, err := run(t.Context(), newEngine(t), task(), &plan.Query{SQL: "FROM firn_s0", Sources: []plan.Source{src}}); commit.CodeOf(err) != commit.CodeSourceNotFound {
		t.Errorf("without uploads: %v", err)
	}
}

func TestTasksOfASlotSeeNothingOfEachOther(t *testing.T) {
	dir := t.TempDir()
	writeText(t, dir+"/a.csv", "a\n1\n")
	e := newEngine(t, dir)
	src := mustProbe(t, e, "FROM firn_s0", files(plan.SourceCSV, dir+"/a.csv")).Sources[0]
	mustRun(t, e, "FROM firn_s0", src)
	if _, err := run(t.Context(), e, task(), &plan.Query{SQL: "FROM firn_s0"}); commit.CodeOf(err) != commit.CodeQueryRefused {
		t.Errorf("got %v", err)
	}
	for _, id := range []string{"", ".", "..", "../x", "a/b", "/x"} {
		if _, err := run(t.Context(), e, TaskInfo{Attempt: id}, &plan.Query{SQL: "SELECT 1"}); err == nil {
			t.Errorf("attempt %q ran", id)
		}
	}
}
