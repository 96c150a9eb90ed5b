package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/sql"
)

func readRows(t *testing.T, raw []byte) (*arrow.Schema, [][]string) {
	t.Helper()
	r, err := ipc.NewReader(bytes.NewReader(raw))
	must(t, err)
	defer r.Release()
	var rows [][]string
	for r.Next() {
		b := r.RecordBatch()
		for i := range int(b.NumRows()) {
			var row []string
			for c := range int(b.NumCols()) {
				row = append(row, b.Column(c).ValueStr(i))
			}
			rows = append(rows, row)
		}
	}
	return r.Schema(), rows
}

func TestSelectRowsInPlanOrder(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	startExecutor(t, h.s, executorOptions{id: "e2"})
	st := h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1"})
	wantState(t, st, graph.Succeeded, commit.CommitNone)
	if st.GetRows() != parts || len(st.GetInlineResult()) != 0 || st.GetReport() != nil {
		t.Fatalf("%v", st)
	}
	schema, _ := readRows(t, st.GetResultSchema())
	if schema.String() != rowBatch(0).Schema().String() {
		t.Fatalf("schema %s", schema)
	}
	c := flightread.New(flightread.Config{})
	defer func() { must(t, c.Close()) }()
	for i, p := range st.GetPartitions() {
		r := c.Open(t.Context(), flightread.Source{Address: p.GetAddress(), Ticket: p.GetTicket()})
		b, err := r.Next()
		must(t, err)
		if got := b.Column(0).(*array.Int64).Value(0); got != int64(i) || p.GetRows() != 1 {
			t.Fatalf("partition %d has row %d", i, got)
		}
		r.Close()
	}
}

func TestExplainRunsNothing(t *testing.T) {
	h := start(t, nil)
	e := startExecutor(t, h.s, executorOptions{id: "e1"})
	resp, err := h.execute(&firnpb.ExecuteRequest{Sql: "EXPLAIN " + insert})
	must(t, err)
	if resp.GetJob() != nil || resp.GetStatement() != "EXPLAIN" {
		t.Fatalf("%v", resp)
	}
	_, rows := readRows(t, resp.GetRowsIpc())
	if len(rows) < 3 || !strings.HasPrefix(rows[0][0], "scheduler root: commit append to mem.ns.t") || !strings.HasPrefix(rows[1][0], "stage 0 (final): 3 tasks") {
		t.Fatalf("%v", rows)
	}
	if len(e.launched) != 0 {
		t.Fatal("a task ran")
	}
	if _, err := h.execute(&firnpb.ExecuteRequest{Sql: "EXPLAIN SELECT 'bad'"}); commit.CodeOf(err) != commit.CodeBadRequest {
		t.Fatal(err)
	}
}

func TestBadRequests(t *testing.T) {
	h := start(t, nil)
	for name, tt := range map[string]struct {
		req  *firnpb.ExecuteRequest
		code commit.Code
	}{
		"nothing":        {&firnpb.ExecuteRequest{Sql: " ; "}, commit.CodeOneStatement},
		"two statements": {&firnpb.ExecuteRequest{Sql: "SELECT 1; SELECT 2"}, commit.CodeOneStatement},
		"mode":           {&firnpb.ExecuteRequest{Sql: "SELECT 1", Mode: "fast"}, commit.CodeBadRequest},
		"limit":          {&firnpb.ExecuteRequest{Sql: "SELECT 1", RejectLimit: -1}, commit.CodeBadRequest},
		"zone":           {&firnpb.ExecuteRequest{Sql: "SELECT 1", TimeZone: "Mars/Base"}, commit.CodeBadRequest},
		"plan":           {&firnpb.ExecuteRequest{Physical: []byte("{}")}, commit.CodeBadPlan},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.execute(tt.req)
			wantCode(t, err, tt.code)
		})
	}
}

func TestBindErrorFailsTheJob(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	st := h.run(&firnpb.ExecuteRequest{Sql: "SELECT 'bad'"})
	wantState(t, st, graph.JobFailed, commit.CommitNone)
	if !strings.Contains(wire.ErrorFromProto(st.GetError()).Error(), "no such column") || len(st.GetStages()) != 0 {
		t.Fatalf("%v", st)
	}
}

func TestPanicInPlanningIsAnError(t *testing.T) {
	h := start(t, func(c *Config) {
		c.bindStatement = func(context.Context, sql.Statement, plan.Session, sql.BindOptions) (plan.Node, error) { panic("bang") }
	})
	startExecutor(t, h.s, executorOptions{id: "e1"})
	st := h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1"})
	wantState(t, st, graph.JobFailed, commit.CommitNone)
	if !strings.Contains(st.GetError().GetCause(), "bang") {
		t.Fatalf("%v", st.GetError())
	}
}

func TestPhysicalPlanForAReplacedTableRefused(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	top := insertPlan(plan.Pinned{Name: committest.Name, UUID: "uuid-of-old"}, "", false)
	st := h.run(&firnpb.ExecuteRequest{Physical: physical(t, h, top)})
	wantState(t, st, graph.JobFailed, commit.CommitNone)
	if st.GetError().GetCode() != string(commit.CodeBadPlan) || !strings.Contains(st.GetError().GetCause(), "uuid-of-old") {
		t.Fatalf("%v", st.GetError())
	}
}

// A client's plan can't choose where files go.
func TestPhysicalPlanKeepsToItsPrefix(t *testing.T) {
	h := start(t, nil)
	e := startExecutor(t, h.s, executorOptions{id: "e1"})
	top := insertPlan(plan.Pinned{Name: committest.Name}, "mem://elsewhere/", false)
	id := h.run(&firnpb.ExecuteRequest{Physical: physical(t, h, top)}).GetJobId()
	task := receive(t, e.launched, "task")
	n, err := plan.Decode(task.GetFragment())
	must(t, err)
	if w := n.(*plan.Write).Context; w.Prefix != "mem://t/data/"+id+"/" || w.TableUUID != h.catalogs.table.UUID() {
		t.Fatalf("%+v", w)
	}
}

func TestPipelinedRowsCanBeReadWhileTheJobRuns(t *testing.T) {
	h := start(t, nil)
	hold := newStop()
	var e *fakeExecutor
	e = startExecutor(t, h.s, executorOptions{id: "e1", slots: parts, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		if d.GetTask() == parts-1 {
			hold.wait()
		}
		return e.succeed(d, n)
	}})
	id := h.submit(&firnpb.ExecuteRequest{Sql: "SELECT 1", Mode: "pipelined"})
	st := h.waitUntil(id, func(st *firnpb.JobStatus) bool { return len(st.GetPartitions()) == parts-1 })
	wantState(t, st, graph.Running, commit.CommitNone)
	close(hold.release)
	if st = h.wait(id); len(st.GetPartitions()) != parts {
		t.Fatalf("%v", st)
	}
}

// Rows that a client may have read aren't made again in another way: the job fails.
func TestPipelinedRowsThatWereShownAreLost(t *testing.T) {
	for _, deterministic := range []bool{true, false} {
		h := start(t, nil)
		hold := newStop()
		var e1, e2 *fakeExecutor
		e1 = startExecutor(t, h.s, executorOptions{id: "e1", slots: 2 * parts, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
			if d.GetStage() == 1 && d.GetTask() == 1 {
				hold.wait()
				return nil
			}
			return e1.succeed(d, n)
		}})
		q := queryPlan()
		q.Deterministic = deterministic
		id := h.submit(&firnpb.ExecuteRequest{Mode: "pipelined", Physical: physical(t, h, &plan.Exchange{Input: q, How: plan.ExchangeRoundRobin, Partitions: 2})})
		h.waitUntil(id, func(st *firnpb.JobStatus) bool { return len(st.GetPartitions()) == 1 })
		receive(t, hold.arrived, "second task")
		close(hold.release)
		e2 = startExecutor(t, h.s, executorOptions{id: "e2", slots: 2 * parts, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus { return e2.succeed(d, n) }})
		h.lose(e1)
		st := h.wait(id)
		if deterministic {
			wantState(t, st, graph.Succeeded, commit.CommitNone)
			continue
		}
		wantState(t, st, graph.JobFailed, commit.CommitNone)
		if st.GetError().GetCode() != string(commit.CodeResultLost) {
			t.Errorf("%v", st.GetError())
		}
	}
}

func TestCachedResultServesTheNext(t *testing.T) {
	h := start(t, nil)
	e := startExecutor(t, h.s, executorOptions{id: "e1"})
	first := h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1", Mode: "cached", IdempotencyKey: "a"})
	second := h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1", Mode: "cached", IdempotencyKey: "b"})
	if second.GetJobId() != first.GetJobId() || len(e.launched) != parts {
		t.Fatalf("%d tasks for two statements", len(e.launched))
	}
	if other := h.run(&firnpb.ExecuteRequest{Sql: "SELECT 2", Mode: "cached"}); other.GetJobId() == first.GetJobId() {
		t.Fatal("another statement got the rows")
	}
	if staged := h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1"}); staged.GetJobId() == first.GetJobId() {
		t.Fatal("a staged statement got cached rows")
	}
	h.lose(e)
	startExecutor(t, h.s, executorOptions{id: "e2"})
	if again := h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1", Mode: "cached"}); again.GetJobId() == first.GetJobId() {
		t.Fatal("rows of a lost executor were served")
	}
}

func TestUploads(t *testing.T) {
	var used plan.Upload
	h := start(t, bindUploads(func(u plan.Upload) error { used = u; return nil }))
	e := startExecutor(t, h.s, executorOptions{id: "e1"})
	resp := h.openUpload()
	tk, err := e.verifier.Verify(resp.GetTicket(), time.Now())
	must(t, err)
	if tk.GetPurpose() != wire.PurposeUpload || tk.GetJobId() != resp.GetUploadId() || tk.GetExecutorId() != "e1" || resp.GetAddress() != e.addr {
		t.Fatalf("%v", tk)
	}
	st := h.run(&firnpb.ExecuteRequest{Sql: "FROM " + resp.GetUploadId()})
	wantState(t, st, graph.Succeeded, commit.CommitNone)
	read, err := e.verifier.Verify(used.Location.Ticket, time.Now())
	must(t, err)
	if read.GetPurpose() != wire.PurposeRead || read.GetAttemptId() != tk.GetAttemptId() || used.Location.Address != e.addr {
		t.Fatalf("%v", read)
	}
	if f := receive(t, e.freed, "free"); f.GetJobId() != resp.GetUploadId() {
		t.Fatalf("freed %v, want the upload", f)
	}
	st = h.run(&firnpb.ExecuteRequest{Sql: "FROM " + resp.GetUploadId()})
	if st.GetError().GetCode() != string(commit.CodeUploadNotFound) {
		t.Fatalf("%v", st)
	}
}

func TestUploadSchemas(t *testing.T) {
	field := func(t arrow.DataType) arrow.Field { return arrow.Field{Name: "a", Type: t, Nullable: true} }
	for _, tt := range []struct {
		field arrow.Field
		want  string
	}{
		{field(arrow.PrimitiveTypes.Int32), "INTEGER"},
		{field(arrow.BinaryTypes.LargeString), "VARCHAR"},
		{field(&arrow.Decimal128Type{Precision: 18, Scale: 2}), "DECIMAL(18,2)"},
		{field(&arrow.TimestampType{Unit: arrow.Microsecond}), "TIMESTAMP"},
		{field(&arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}), "TIMESTAMP WITH TIME ZONE"},
		{field(arrow.ListOf(arrow.PrimitiveTypes.Int64)), "BIGINT[]"},
		{field(arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Float64)), "MAP(VARCHAR, DOUBLE)"},
		{field(arrow.StructOf(arrow.Field{Name: `x"y`, Type: arrow.FixedWidthTypes.Boolean})), `STRUCT("x""y" BOOLEAN)`},
		{field(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}), "VARCHAR"},
		{field(arrow.FixedWidthTypes.Duration_s), ""},
	} {
		raw, err := wire.EncodeIPC(arrow.NewSchema([]arrow.Field{tt.field}, nil))
		must(t, err)
		columns, err := uploadColumns(raw)
		switch {
		case tt.want == "" && commit.CodeOf(err) != commit.CodeBadRequest:
			t.Errorf("%s: %v", tt.field.Type, err)
		case tt.want != "" && (err != nil || columns[0].Type != tt.want):
			t.Errorf("%s: %v, %v; want %s", tt.field.Type, columns, err, tt.want)
		}
	}
	for _, raw := range [][]byte{nil, []byte("junk"), bytes.Repeat([]byte{0xff}, 64)} {
		if _, err := uploadColumns(raw); commit.CodeOf(err) != commit.CodeBadRequest {
			t.Errorf("%q: %v", raw, err)
		}
	}
	twice, err := wire.EncodeIPC(arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int8}, {Name: "A", Type: arrow.PrimitiveTypes.Int8}}, nil))
	must(t, err)
	if _, err := uploadColumns(twice); commit.CodeOf(err) != commit.CodeBadRequest {
		t.Error(err)
	}
}

func TestBinderAsksAnExecutor(t *testing.T) {
	h := start(t, nil)
	e := startExecutor(t, h.s, executorOptions{id: "e1"})
	res, err := binder{h.s, "Asia/Tokyo"}.Probe(t.Context(), plan.ProbeRequest{SQL: "SELECT 1"})
	must(t, err)
	if !res.RowWise || res.Why != "fake Asia/Tokyo" || e.probes.Load() != 1 {
		t.Fatalf("%+v", res)
	}
}

func TestCatalogRows(t *testing.T) {
	raw, err := resultRows(sql.Result{
		Statement: "DESCRIBE", Columns: []string{"name", "n", "flag", "none"},
		Rows: [][]any{{"a", nil, true, nil}, {"b", int64(1) << 60, false, nil}},
	})
	must(t, err)
	schema, rows := readRows(t, raw)
	if got := schema.Field(1).Type.String() + " " + schema.Field(2).Type.String() + " " + schema.Field(3).Type.String(); got != "int64 bool utf8" {
		t.Fatal(got)
	}
	if len(rows) != 2 || rows[1][1] != "1152921504606846976" || rows[0][1] != "(null)" {
		t.Fatal(rows)
	}
	if raw, err := resultRows(sql.Result{Columns: []string{"table"}}); err != nil || len(raw) == 0 {
		t.Fatalf("no rows have a schema all the same: %v", err)
	}
	if raw, err := resultRows(sql.Result{}); err != nil || raw != nil {
		t.Fatalf("a statement without rows: %v, %v", raw, err)
	}
}

func TestTicketKeyIsKeptAndPrivate(t *testing.T) {
	h := start(t, nil)
	first := h.s.public
	info, err := os.Stat(filepath.Join(h.dir, "ticket.key"))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v", info.Mode())
	}
	h.close()
	h = startIn(t, h.dir, h.catalogs, nil)
	if !bytes.Equal(first, h.s.public) {
		t.Fatal("the key changed")
	}
	h.close()
	must(t, os.WriteFile(filepath.Join(h.dir, "ticket.key"), []byte("no key"), 0o600))
	s, err := New(Config{Dir: h.dir, Catalogs: h.catalogs})
	must(t, err)
	wantCode(t, s.Start(t.Context()), commit.CodeJournal, "ticket.key")
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{Dir: "d", Catalogs: &fakeCatalogs{}}
	for name, edit := range map[string]func(*Config){
		"Dir":             func(c *Config) { c.Dir = "" },
		"Catalogs":        func(c *Config) { c.Catalogs = nil },
		"Dispatch":        func(c *Config) { c.Dispatch = "throw" },
		"ExecutorTimeout": func(c *Config) { c.ExecutorTimeout = time.Millisecond },
		"RootSlots":       func(c *Config) { c.RootSlots = -1 },
	} {
		c := good
		edit(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSecondSchedulerInADirectory(t *testing.T) {
	h := start(t, nil)
	s, err := New(Config{Dir: h.dir, Catalogs: h.catalogs})
	must(t, err)
	wantCode(t, s.Start(t.Context()), commit.CodeDirectoryHeld, h.dir)
}

// Nothing of the catalog's secrets is in what clients and the journal get.
func TestNoSecretInAnswers(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	st := h.run(&firnpb.ExecuteRequest{Sql: insert})
	raw, err := json.Marshal(st)
	must(t, err)
	if bytes.Contains(raw, []byte(canary)) {
		t.Fatal("a status has the secret")
	}
	h.close()
	files, err := filepath.Glob(filepath.Join(h.dir, "*"))
	must(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(canary)) {
			t.Fatalf("%s has the secret", f)
		}
	}
}

// What reaches the stores isn't kept with a plan, for the target and for the tables
// that are read, and is asked for anew.
func TestPlanIsKeptWithoutCredentials(t *testing.T) {
	h := start(t, nil)
	secret := map[string]string{"s3.secret-access-key": canary}
	table := commit.TableName{Catalog: "mem", Namespace: []string{"n"}, Name: "t"}
	top := &plan.Commit{
		Target: plan.Pinned{Name: table, Storage: secret, MetadataLocation: canary},
		Input: &plan.Write{Context: plan.WriteContext{Storage: secret}, Input: &plan.Exchange{Input: &plan.Query{Sources: []plan.Source{
			{Kind: plan.SourceTable, Table: table, Storage: secret, Files: []plan.SourceFile{{Path: "s3://bucket/a.parquet"}}},
			{Kind: plan.SourceTable, Table: table, Files: []plan.SourceFile{{Path: "file:///a.parquet"}}},
		}}}},
	}
	raw, err := withoutCredentials(top)
	must(t, err)
	if bytes.Contains(raw, []byte(canary)) {
		t.Errorf("kept: %s", raw)
	}
	query := func(n plan.Node) *plan.Query { return n.Inputs()[0].Inputs()[0].Inputs()[0].(*plan.Query) }
	if top.Target.MetadataLocation != canary || query(top).Sources[0].Storage["s3.secret-access-key"] != canary {
		t.Error("keeping the plan has changed it")
	}
	kept, err := plan.Decode(raw)
	must(t, err)
	h.catalogs.set(func() { h.catalogs.storage = secret })
	again, err := h.s.reachSources(t.Context(), kept)
	must(t, err)
	if s := query(again).Sources; s[0].Storage["s3.secret-access-key"] != canary || s[1].Storage != nil {
		t.Errorf("sources are reached by %v", s)
	}
	h.catalogs.set(func() { h.catalogs.pinErr = commit.ErrTableNotFound })
	again, err = h.s.reachSources(t.Context(), kept)
	must(t, err)
	if s := query(again).Sources; s[0].Storage != nil {
		t.Errorf("a table that is gone is reached by %v", s)
	}
}

// The pause between two answers about a job ends with the job, and with the call.
func TestPauseEndsWithTheJob(t *testing.T) {
	j := newJob(submission{}, time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := untilPublished(ctx, j, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up: %v", err)
	}
	if err := untilPublished(ctx, j, 0); err != nil {
		t.Errorf("no pause is left: %v", err)
	}
	close(j.published)
	must(t, untilPublished(t.Context(), j, time.Hour))
}
