package executor_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"

	"github.com/firn-project/firn/executor"
	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sinks"
	"github.com/firn-project/firn/sinks/iceberg"
)

// real is a configuration with DuckDB and the Iceberg writer.
func real(allow string) func(*executor.Config) {
	return func(c *executor.Config) {
		c.Engines, c.LocalAllow = nil, []string{allow}
		c.Sinks = map[string]sinks.Driver{"iceberg": iceberg.New()}
	}
}

// csv makes a source of n rows: id, and k = id % 5.
func csv(t *testing.T, n int) (src plan.Source, dir string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("id,k\n")
	for i := range n {
		fmt.Fprintf(&b, "%d,key%d\n", i, i%5)
	}
	path := filepath.Join(dir, "x.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return plan.Source{
		View: []string{"firn_s0"}, Kind: plan.SourceCSV, Patterns: []string{path},
		Files:   []plan.SourceFile{{Path: path, Size: int64(b.Len()), Rows: -1}},
		Columns: []plan.Column{{Name: "id", Type: "BIGINT"}, {Name: "k", Type: "VARCHAR"}},
		Options: map[string]string{"header": "true"},
	}, dir
}

const (
	tableSchema = `{"type":"struct","schema-id":0,"fields":[
		{"id":1,"name":"id","required":false,"type":"long"},{"id":2,"name":"k","required":false,"type":"string"}]}`
	tableSpec = `{"spec-id":0,"fields":[{"source-id":2,"field-id":1000,"name":"k","transform":"identity"}]}`
)

// The whole way of an INSERT on an executor: a query over a file, hashed by table
// partition; then two writers, one for each output.
func TestInsertWithDuckDB(t *testing.T) {
	src, dir := csv(t, 1000)
	h := start(t, newScheduler(t, "push"), real(dir))
	layout := plan.Layout{Format: "iceberg", SchemaJSON: []byte(tableSchema), SpecJSON: []byte(tableSpec)}
	q := &plan.Query{SQL: "SELECT CAST(id AS BIGINT) AS id, k FROM firn_s0 WHERE id >= 100", Sources: []plan.Source{src}}
	h.launch(t, def(t, "a-1", &plan.Exchange{Input: q, How: plan.ExchangeHash, Partitions: 2, Layout: &layout}))
	if st := h.wait(t, "a-1"); st.GetState() != "succeeded" || st.GetRowsOut() != 900 {
		t.Fatalf("status is %v", st)
	}
	out := t.TempDir()
	rows, seen := int64(0), map[string]bool{}
	for i, attempt := range []string{"a-2", "a-3"} {
		n := &plan.Write{
			Input: &plan.ShuffleRead{Stage: 1, Locations: []plan.ShuffleLocation{h.location("a-1", i)}},
			Context: plan.WriteContext{
				FormatVersion: 2, Layout: layout, Prefix: "file://" + out + "/j-1/", TargetFileSize: 64 << 20,
			},
		}
		d := def(t, attempt, n)
		d.Manifests = true
		h.launch(t, d)
		st := h.wait(t, attempt)
		files, err := manifestOf(st)
		if st.GetState() != "succeeded" || err != nil {
			t.Fatalf("status is %v, %v", st, err)
		}
		for _, f := range files {
			rows += f.Rows
			k := string(f.Partition[0].Value)
			if seen[k] || f.Rows != 180 {
				t.Errorf("partition %s has %d rows, or files of both writers", k, f.Rows)
			}
			seen[k] = true
		}
	}
	if rows != 900 || len(seen) != 5 {
		t.Errorf("%d rows in partitions %v", rows, seen)
	}
}

// Every type that a table can be partitioned by comes out of DuckDB in a form that
// can be hashed, and equal values go to one output.
func TestHashExchangeWithDuckDB(t *testing.T) {
	src, dir := csv(t, 100)
	h := start(t, newScheduler(t, "push"), real(dir))
	for i, c := range []struct{ typ, sql, transform string }{
		{"uuid", "CAST(md5(k) AS UUID)", "bucket[4]"},
		{"uuid", "CAST(md5(k) AS UUID)", "identity"},
		{"fixed[3]", "CAST(k[1:3] AS BLOB)", "identity"},
		{"fixed[3]", "CAST(k[2:4] AS BLOB)", "bucket[3]"},
		{"binary", "CAST(k AS BLOB)", "bucket[3]"},
		{"timestamptz", "TIMESTAMPTZ '2020-01-01 00:00:00+00' + to_days(id::int)", "month"},
		{"timestamp", "TIMESTAMP '2020-01-01 00:00:00' + to_days(id::int)", "day"},
		{"date", "DATE '2020-01-01' + id::int", "month"},
		{"time", "TIME '12:00:00'", "identity"},
		{"decimal(20,2)", "CAST(id AS DECIMAL(20,2))", "truncate[10]"},
		{"int", "CAST(id AS INTEGER)", "bucket[3]"},
		{"boolean", "id > 4", "identity"},
		{"string", "CASE WHEN id > 50 THEN k END", "truncate[2]"},
	} {
		t.Run(c.typ+" "+c.transform, func(t *testing.T) {
			layout := plan.Layout{
				Format:     "iceberg",
				SchemaJSON: []byte(`{"type":"struct","schema-id":0,"fields":[{"id":1,"name":"x","required":false,"type":"` + c.typ + `"}]}`),
				SpecJSON:   []byte(`{"spec-id":0,"fields":[{"source-id":1,"field-id":1000,"name":"p","transform":"` + c.transform + `"}]}`),
			}
			q := &plan.Query{SQL: "SELECT " + c.sql + " AS x FROM firn_s0", Sources: []plan.Source{src}}
			id := fmt.Sprintf("a-%d", i)
			h.launch(t, def(t, id, &plan.Exchange{Input: q, How: plan.ExchangeHash, Partitions: 3, Layout: &layout}))
			st := h.wait(t, id)
			if st.GetState() != "succeeded" || st.GetRowsOut() != 100 {
				t.Fatalf("status is %v", st)
			}
			if c.transform != "identity" {
				return
			}
			owner, used := map[string]int{}, 0
			for o := range 3 {
				if st.GetOutputs()[o].GetRows() > 0 {
					used++
				}
				for _, v := range h.texts(t, h.location(id, o)) {
					if was, ok := owner[v]; ok && was != o {
						t.Errorf("%q is in outputs %d and %d", v, was, o)
					}
					owner[v] = o
				}
			}
			// Five values that all hashed alike would say that none was seen.
			if c.typ == "uuid" && used < 2 {
				t.Errorf("only one output is used: %v", st.GetOutputs())
			}
		})
	}
}

// texts reads an output's first column as text.
func (h *harness) texts(t *testing.T, l plan.ShuffleLocation) (out []string) {
	t.Helper()
	c := flightread.New(flightread.Config{})
	defer c.Close()
	r := c.Open(t.Context(), flightread.Source{Address: l.Address, Ticket: l.Ticket})
	defer r.Close()
	for {
		b, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range int(b.NumRows()) {
			out = append(out, b.Column(0).ValueStr(i))
		}
		b.Release()
	}
}

func TestProbeWithDuckDB(t *testing.T) {
	src, dir := csv(t, 10)
	src.Files, src.Columns = nil, nil
	h := start(t, newScheduler(t, "push"), real(dir))
	res, err := h.probeFor(t, plan.ProbeRequest{SQL: "SELECT id + 1 AS n, k FROM firn_s0", Sources: []plan.Source{src}})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Columns) != 2 || res.Columns[0].Name != "n" || res.Columns[1].Type != "VARCHAR" || len(res.Sources[0].Files) != 1 {
		t.Errorf("got %+v", res)
	}
	src.Patterns = []string{"/etc/passwd"}
	if _, err := h.probeFor(t, plan.ProbeRequest{SQL: "SELECT * FROM firn_s0", Sources: []plan.Source{src}}); err == nil {
		t.Error("a file outside the allowed directories was described")
	}
}

// A client's upload is loaded from the executor that spooled it, here the same
// one and another.
func TestUploadWithDuckDB(t *testing.T) {
	s := newScheduler(t, "push")
	h := start(t, s, real(t.TempDir()))
	other := start(t, s, real(t.TempDir()))
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "tags", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for _, row := range []string{`{"id":1,"tags":["a","a longer text than fits inline"]}`, `{"id":2,"tags":null}`, `{"id":3,"tags":[]}`} {
		if err := b.UnmarshalJSON([]byte(row)); err != nil {
			t.Fatal(err)
		}
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	ticket := func(purpose string) []byte {
		return h.signer.Sign(&firnpb.Ticket{
			Purpose: purpose, JobId: "u-1", AttemptId: "up", ExecutorId: h.ID(),
			ExpiresUnixMs: time.Now().Add(time.Hour).UnixMilli(),
		})
	}
	conn, err := grpc.NewClient("passthrough:///"+h.Addr(), wire.DialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	put, err := flight.NewClientFromConn(conn, nil).DoPut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := flight.NewRecordWriter(put, ipc.WithSchema(schema))
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: ticket(wire.PurposeUpload)})
	if err := w.Write(rec); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := put.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := put.Recv(); err != nil {
		t.Fatal(err)
	}
	q := &plan.Query{
		SQL: "SELECT id * 10 + coalesce(len(tags), 7) AS n FROM firn_u0 ORDER BY id",
		Sources: []plan.Source{{
			View: []string{"firn_u0"}, Kind: plan.SourceUpload,
			Columns: []plan.Column{{Name: "id", Type: "BIGINT"}, {Name: "tags", Type: "VARCHAR[]"}},
			Upload: &plan.Upload{ID: "u-1", Executor: h.ID(), Location: plan.ShuffleLocation{
				Job: "u-1", Attempt: "up", Executor: h.ID(), Address: h.Addr(), Ticket: ticket(wire.PurposeRead),
			}},
		}},
	}
	for attempt, reader := range map[string]*harness{"a-1": h, "a-2": other} {
		reader.launch(t, def(t, attempt, q))
		if st := h.wait(t, attempt); st.GetState() != "succeeded" {
			t.Fatalf("status is %v", st)
		}
		got, err := h.fetch(t, reader.location(attempt, 0))
		if err != nil || !slices.Equal(got, []int64{12, 27, 30}) {
			t.Errorf("got %v, %v", got, err)
		}
	}
}

// What is wrong with a query is told with the engine's code, once and for all.
func TestQueryErrorsWithDuckDB(t *testing.T) {
	src, dir := csv(t, 10)
	h := start(t, newScheduler(t, "push"), real(dir))
	for attempt, sql := range map[string]string{
		"a-cast":   "SELECT CAST(k AS BIGINT) AS n FROM firn_s0",
		"a-column": "SELECT nope FROM firn_s0",
		"a-files":  "SELECT * FROM read_text('/etc/passwd')",
	} {
		h.launch(t, def(t, attempt, &plan.Query{SQL: sql, Sources: []plan.Source{src}}))
		st := h.wait(t, attempt)
		if st.GetState() != "failed" || st.GetError().GetClass() != wire.ClassNotRetryable || st.GetError().GetCode() == "" {
			t.Errorf("%s: status is %v", attempt, st)
		}
	}
}
