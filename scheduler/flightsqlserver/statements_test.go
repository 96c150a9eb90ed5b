package flightsqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/flightsqlserver"
)

const insert = "INSERT INTO lake.a.t SELECT 1"

// Requirement 22: what the scheduler computed is one endpoint, here, to be read again;
// reading it runs nothing.
func TestRoot22_LocalResultIsReadAgain(t *testing.T) {
	f := &fake{job: succeeded(t)}
	c := dial(t, serve(t, f, nil))
	info, err := c.Execute(t.Context(), insert)
	if err != nil {
		t.Fatal(err)
	}
	if ends := info.GetEndpoint(); len(ends) != 1 || len(ends[0].GetLocation()) != 0 || !ends[0].GetExpirationTime().AsTime().After(time.Now()) {
		t.Fatalf("endpoints %v", ends)
	}
	if schema, err := flight.DeserializeSchema(info.GetSchema(), memory.DefaultAllocator); err != nil || !schema.Equal(wire.ReportSchema()) {
		t.Errorf("schema %v, %v", schema, err)
	}
	for range 3 {
		if rows, err := get(t, c, info); err != nil || len(rows) != 1 || int64(len(rows)) != info.GetTotalRecords() {
			t.Fatalf("%v, %v", rows, err)
		}
	}
	if ran := f.ran(); len(ran) != 1 || ran[0].GetSql() != insert || ran[0].GetIdempotencyKey() == "" || !ran[0].GetKeyIsNew() {
		t.Errorf("ran %v", ran)
	}
}

func TestUpdates(t *testing.T) {
	f := &fake{job: succeeded(t), answers: map[string]*firnpb.ExecuteResponse{"CREATE": {Statement: "CREATE TABLE"}, "DROP": {Statement: "DROP TABLE"}}}
	c := dial(t, serve(t, f, nil))
	for sql, want := range map[string]int64{insert: 6, "CREATE TABLE lake.a.t (n BIGINT)": 0, "DROP TABLE lake.a.t": 0} {
		if n, err := c.ExecuteUpdate(t.Context(), sql); err != nil || n != want {
			t.Errorf("%s: %d, %v", sql, n, err)
		}
	}
	before := len(f.ran())
	for _, sql := range []string{"SELECT 1", "SHOW TABLES", "EXPLAIN SELECT 1", "EXPLAIN ANALYZE " + insert, "USE lake.a", "SELECT 1; SELECT 2", "", "SELEC 1"} {
		if n, err := c.ExecuteUpdate(t.Context(), sql); err == nil {
			t.Errorf("%s: %d", sql, n)
		}
	}
	if n := len(f.ran()); n != before {
		t.Errorf("%d that were refused ran", n-before)
	}
	info, err := c.Execute(t.Context(), "CREATE TABLE lake.a.t (n BIGINT)")
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := get(t, c, info); err != nil || len(rows) != 0 {
		t.Errorf("rows of DDL: %v, %v", rows, err)
	}
}

// What became of a commit is told as it is known, and an error by which a client would
// send an INSERT again by itself never is one of a job that may go on.
func TestOutcomesAreNotMixed(t *testing.T) {
	refused := wire.ErrorToProto(&commit.Error{Code: commit.CodeConflict, Op: "commit", Object: "lake.a.t", Reason: commit.ReasonConflict, Cause: errors.New("it moved"), Hint: "Try later."})
	closing := &commit.Error{Code: commit.CodeSchedulerClosing, Op: "run job", Cause: errors.New("the scheduler is shutting down")}
	for name, c := range map[string]struct {
		fake *fake
		code commit.Code
		grpc codes.Code
		has  string
	}{
		"refused":            {&fake{job: &firnpb.JobStatus{JobId: "j-1", State: "failed", Commit: "refused", Error: refused}}, commit.CodeConflict, codes.Aborted, "Try later"},
		"unknown":            {&fake{job: &firnpb.JobStatus{JobId: "j-1", State: "running", Phase: "committing", Commit: "unknown"}}, commit.CodeUnknown, codes.Unknown, "firn job wait j-1"},
		"unknown and failed": {&fake{job: &firnpb.JobStatus{JobId: "j-1", State: "failed", Commit: "unknown", Error: refused}}, commit.CodeUnknown, codes.Unknown, "firn job wait j-1"},
		"cancelled":          {&fake{job: &firnpb.JobStatus{JobId: "j-1", State: "cancelled", Commit: "none"}}, commit.CodeJobCancelled, codes.Canceled, `commit is "none"`},
		"scheduler leaves":   {&fake{watchErr: closing}, commit.CodeUnknown, codes.Unknown, flightsqlserver.HeaderKey + ": k-1"},
		"watch breaks":       {&fake{watchErr: errors.New("broken")}, commit.CodeUnknown, codes.Unknown, "firn job wait j-1"},
		"never told":         {&fake{refuse: errors.New("broken")}, commit.CodeUnknown, codes.Unknown, flightsqlserver.HeaderKey + ": k-1"},
		"left before":        {&fake{refuse: closing}, commit.CodeUnknown, codes.Unknown, flightsqlserver.HeaderKey + ": k-1"},
		"not admitted":       {&fake{refuse: &commit.Error{Code: commit.CodeKeyReused, Op: "admit"}}, commit.CodeKeyReused, codes.InvalidArgument, "FIRN-6001"},
	} {
		t.Run(name, func(t *testing.T) {
			f := c.fake
			client := dial(t, serve(t, f, nil))
			ctx := metadata.AppendToOutgoingContext(t.Context(), flightsqlserver.HeaderKey, "k-1")
			_, err1 := client.Execute(ctx, insert)
			_, err2 := client.ExecuteUpdate(ctx, insert)
			for _, err := range []error{err1, err2} {
				if status.Code(err) != c.grpc || commit.CodeOf(wire.FromStatus(err)) != c.code || !strings.Contains(err.Error(), c.has) {
					t.Errorf("%v (%s)", err, commit.CodeOf(wire.FromStatus(err)))
				}
			}
			if ran := f.ran(); len(ran) != 2 || ran[0].GetIdempotencyKey() != "k-1" || ran[0].GetKeyIsNew() {
				t.Errorf("ran %v", ran)
			}
		})
	}
}

// A SELECT ends with its caller unless others may wait for it; an INSERT goes on.
func TestCallerLeaves(t *testing.T) {
	for _, c := range []struct {
		sql, key  string
		cancelled bool
	}{{"SELECT 1", "", true}, {"SELECT 1", "k", false}, {insert, "", false}} {
		f := &fake{changes: make(chan *firnpb.JobStatus), job: succeeded(t), cancel: "cancelled"}
		cfg := serve(t, f, nil)
		client := dial(t, cfg)
		ctx, leave := context.WithCancel(t.Context())
		if c.key != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, flightsqlserver.HeaderKey, c.key)
		}
		left := make(chan error, 1)
		go func() {
			_, err := client.Execute(ctx, c.sql)
			left <- err
		}()
		f.changes <- &firnpb.JobStatus{JobId: "j-1", State: "running"} // somebody waits
		leave()
		if err := <-left; status.Code(err) != codes.Canceled {
			t.Fatal(err)
		}
		wait(t, func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			select {
			case f.changes <- &firnpb.JobStatus{JobId: "j-1", State: "running"}:
				return false // still watched
			default:
				return !c.cancelled || len(f.cancelled) == 1
			}
		})
		f.mu.Lock()
		if got := len(f.cancelled) > 0; got != c.cancelled {
			t.Errorf("%s with key %q: cancelled %v", c.sql, c.key, f.cancelled)
		}
		f.mu.Unlock()
	}
}

// wait asks until it is so.
func wait(t testing.TB, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it didn't come to that")
		}
	}
}

// Who waits for a job when the server closes is told so at once.
func TestCloseTellsThoseWhoWait(t *testing.T) {
	f := &fake{changes: make(chan *firnpb.JobStatus), job: succeeded(t)}
	s := start(t, f, nil)
	client := dial(t, s.Addr())
	told := make(chan error, 1)
	go func() {
		_, err := client.ExecuteUpdate(t.Context(), insert)
		told <- err
	}()
	f.changes <- &firnpb.JobStatus{JobId: "j-1", State: "running"}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-told; status.Code(err) != codes.Unknown || commit.CodeOf(wire.FromStatus(err)) != commit.CodeUnknown {
		t.Error(err)
	}
}

// Nobody can have the rows of a SELECT without a key when the server closes.
func TestCloseEndsSelects(t *testing.T) {
	for key, want := range map[string]int{"": 1, "k": 0} {
		f := &fake{changes: make(chan *firnpb.JobStatus), job: succeeded(t), cancel: "cancelled"}
		s := start(t, f, nil)
		client, ctx := dial(t, s.Addr()), t.Context()
		if key != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, flightsqlserver.HeaderKey, key)
		}
		told := make(chan error, 1)
		go func() {
			_, err := client.Execute(ctx, "SELECT 1")
			told <- err
		}()
		f.changes <- &firnpb.JobStatus{JobId: "j-1", State: "running"}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-told; commit.CodeOf(wire.FromStatus(err)) != commit.CodeSchedulerClosing {
			t.Error(err)
		}
		f.mu.Lock()
		if len(f.cancelled) != want {
			t.Errorf("key %q: cancelled %v", key, f.cancelled)
		}
		f.mu.Unlock()
	}
}

// Who puts rows when the server closes is told that nothing was written.
func TestCloseTellsThoseWhoPut(t *testing.T) {
	f := &fake{job: succeeded(t)}
	s := start(t, f, nil)
	put, err := dial(t, s.Addr()).Client.DoPut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	begun, err := ingest("t")
	if err == nil {
		err = put.Send(begun)
	}
	if err != nil {
		t.Fatal(err)
	}
	closing, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.Close(closing); err != nil || closing.Err() != nil {
		t.Fatal(err, closing.Err())
	}
	_, err = put.Recv()
	if err == nil { // the library tells first that no rows were written
		_, err = put.Recv()
	}
	if commit.CodeOf(wire.FromStatus(err)) != commit.CodeSchedulerClosing || !strings.Contains(err.Error(), "Nothing was written") || len(f.ran()) != 0 {
		t.Errorf("%v, ran %v", err, f.ran())
	}
}

// ingest is the first message of rows for a table.
func ingest(table string) (*flight.FlightData, error) {
	command, err := anypb.New(&pb.CommandStatementIngest{
		Table: table, TableDefinitionOptions: &pb.CommandStatementIngest_TableDefinitionOptions{IfNotExist: pb.CommandStatementIngest_TableDefinitionOptions_TABLE_NOT_EXIST_OPTION_FAIL, IfExists: pb.CommandStatementIngest_TableDefinitionOptions_TABLE_EXISTS_OPTION_APPEND},
	})
	if err != nil {
		return nil, err
	}
	raw, err := proto.Marshal(command)
	return &flight.FlightData{FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: raw}}, err
}

func TestHeaders(t *testing.T) {
	f := &fake{job: succeeded(t)}
	c := dial(t, serve(t, f, nil))
	ctx := metadata.AppendToOutgoingContext(t.Context(), flightsqlserver.HeaderKey, "k", flightsqlserver.HeaderCatalog, "lake",
		flightsqlserver.HeaderNamespace, "a.b", flightsqlserver.HeaderTimeZone, "Europe/Vienna")
	if _, err := c.ExecuteUpdate(ctx, insert); err != nil {
		t.Fatal(err)
	}
	r := f.ran()[0]
	if s := r.GetSession(); r.GetIdempotencyKey() != "k" || r.GetKeyIsNew() || s.GetCatalog() != "lake" || strings.Join(s.GetNamespace(), "/") != "a/b" || r.GetTimeZone() != "Europe/Vienna" {
		t.Errorf("%v", r)
	}
	for _, bad := range [][]string{{flightsqlserver.HeaderKey, "a", flightsqlserver.HeaderKey, "b"}, {flightsqlserver.HeaderKey, strings.Repeat("k", 513)}, {flightsqlserver.HeaderTimeZone, strings.Repeat("z", 101)}} {
		if _, err := c.ExecuteUpdate(metadata.AppendToOutgoingContext(t.Context(), bad...), insert); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%.60v: %v", bad, err)
		}
	}
	if n := len(f.ran()); n != 1 {
		t.Errorf("%d ran", n)
	}
}

func TestPoll(t *testing.T) {
	f := &fake{job: &firnpb.JobStatus{JobId: "j-1", State: "running", PercentComplete: 50}, changes: make(chan *firnpb.JobStatus, 1)}
	c := dial(t, serve(t, f, nil))
	p, err := c.ExecutePoll(t.Context(), insert, nil)
	if err != nil || p.GetFlightDescriptor() == nil || len(p.GetInfo().GetEndpoint()) != 0 || string(p.GetInfo().GetAppMetadata()) != "j-1" {
		t.Fatalf("%v, %v", p, err)
	}
	// Not the end, for as long as a poll waits.
	if p, err = c.ExecutePoll(t.Context(), insert, p.GetFlightDescriptor()); err != nil || p.GetProgress() != 0.5 || p.GetFlightDescriptor() == nil {
		t.Fatalf("%v, %v", p, err)
	}
	f.mu.Lock()
	f.job = succeeded(t)
	f.mu.Unlock()
	if p, err = c.ExecutePoll(t.Context(), insert, p.GetFlightDescriptor()); err != nil || p.GetFlightDescriptor() != nil || len(p.GetInfo().GetEndpoint()) != 1 {
		t.Fatalf("%v, %v", p, err)
	}
	if rows, err := get(t, c, p.GetInfo()); err != nil || len(rows) != 1 {
		t.Errorf("%v, %v", rows, err)
	}
	if n := len(f.ran()); n != 1 {
		t.Errorf("%d ran", n)
	}
}

func TestCancel(t *testing.T) {
	running := &firnpb.JobStatus{JobId: "j-1", State: "running", Commit: "in_flight"}
	for _, c := range []struct {
		answer string
		job    *firnpb.JobStatus
		want   flight.CancelStatus
	}{
		{"cancelled", &firnpb.JobStatus{JobId: "j-1", State: "cancelled", Commit: "none"}, flight.CancelStatusCancelled},
		{"commit_in_flight", running, flight.CancelStatusNotCancellable},
		{"already_ended", &firnpb.JobStatus{JobId: "j-1", State: "succeeded", Commit: "committed"}, flight.CancelStatusNotCancellable},
		{"already_ended", &firnpb.JobStatus{JobId: "j-1", State: "cancelled", Commit: "none"}, flight.CancelStatusCancelled},
		// It ended as cancelled, and its commit landed all the same.
		{"already_ended", &firnpb.JobStatus{JobId: "j-1", State: "cancelled", Commit: "committed"}, flight.CancelStatusNotCancellable},
	} {
		f := &fake{job: running, cancel: c.answer}
		client := dial(t, serve(t, f, nil))
		p, err := client.ExecutePoll(t.Context(), insert, nil)
		if err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		f.job = c.job
		f.mu.Unlock()
		r, err := client.CancelFlightInfo(t.Context(), &flight.CancelFlightInfoRequest{Info: p.GetInfo()})
		if err != nil || r.GetStatus() != c.want {
			t.Errorf("%s, %v: %v, %v", c.answer, c.job, r, err)
		}
		//nolint:staticcheck // what older clients send
		old, err := client.CancelQuery(t.Context(), p.GetInfo())
		if err != nil || (old == flightsql.CancelResultCancelled) != (c.want == flight.CancelStatusCancelled) {
			t.Errorf("%s, %v: %v, %v", c.answer, c.job, old, err)
		}
	}
	f := &fake{answers: map[string]*firnpb.ExecuteResponse{"SHOW": {RowsIpc: texts(t, []string{"x"})}}}
	client := dial(t, serve(t, f, nil))
	info, err := client.Execute(t.Context(), "SHOW CATALOGS")
	if err != nil {
		t.Fatal(err)
	}
	if r, err := client.CancelFlightInfo(t.Context(), &flight.CancelFlightInfoRequest{Info: info}); err != nil || r.GetStatus() != flight.CancelStatusNotCancellable {
		t.Errorf("%v, %v", r, err)
	}
}

// Handles of prepared statements hold all that there is of them.
func TestPrepared(t *testing.T) {
	f := &fake{job: succeeded(t), answers: map[string]*firnpb.ExecuteResponse{
		"EXPLAIN SELECT": {RowsIpc: texts(t, []string{"plan"}), Columns: []*firnpb.ResultColumn{{Name: "n", Type: "BIGINT"}, {Name: "d", Type: "DECIMAL(18,2)[]"}}},
		"SHOW":           {RowsIpc: texts(t, []string{"catalog"}, []string{"lake"})},
	}}
	address := serve(t, f, nil)
	c := dial(t, address)
	p, err := c.Prepare(t.Context(), insert)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.ran()) != 0 {
		t.Error("preparing ran it")
	}
	if p.ParameterSchema() == nil || p.ParameterSchema().NumFields() != 0 {
		t.Errorf("parameters %v", p.ParameterSchema())
	}
	for range 2 {
		if n, err := p.ExecuteUpdate(t.Context()); err != nil || n != 6 {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if ran := f.ran(); len(ran) != 2 || ran[0].GetIdempotencyKey() == ran[1].GetIdempotencyKey() {
		t.Errorf("ran %v", ran)
	}
	values := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "1", Type: arrow.PrimitiveTypes.Int64}}, nil))
	values.Field(0).(*array.Int64Builder).Append(1)
	p.SetParameters(values.NewRecordBatch())
	if _, err := p.ExecuteUpdate(t.Context()); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "no parameters") {
		t.Errorf("bound: %v", err)
	}
	if _, err := p.Execute(t.Context()); status.Code(err) != codes.Unimplemented {
		t.Errorf("bound: %v", err)
	}
	p.SetParameters(nil)
	if n := len(f.ran()); n != 2 {
		t.Errorf("%d ran", n)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for sql, want := range map[string]string{
		"SELECT 1":                      "[n: type=int64, nullable, d: type=list<l: decimal(18, 2), nullable>, nullable]",
		"SHOW CATALOGS":                 "[catalog: type=utf8, nullable]",
		"EXPLAIN ANALYZE " + insert:     "[plan: type=utf8, nullable]",
		"SELECT * FROM flight_sql('e')": "",
	} {
		p, err := c.Prepare(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if s := p.DatasetSchema(); s != nil {
			var all []string
			for _, field := range s.Fields() {
				all = append(all, field.String())
			}
			got = "[" + strings.Join(all, ", ") + "]"
		}
		if got != want {
			t.Errorf("%s: %s", sql, got)
		}
	}
	// Nothing is kept for them, so their number has no end and no cost.
	for i := range 1000 {
		if _, err := c.Prepare(t.Context(), fmt.Sprintf("INSERT INTO lake.a.t SELECT %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Prepare(t.Context(), "SELECT '"+strings.Repeat("x", 1<<20)+"'"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a statement over the limit: %v", err)
	}
}

func TestWhatThereIsNot(t *testing.T) {
	f := &fake{job: succeeded(t)}
	c := dial(t, serve(t, f, nil))
	if _, err := c.BeginTransaction(t.Context()); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "autocommit") {
		t.Errorf("transaction: %v", err)
	}
	if _, err := c.SetSessionOptions(t.Context(), &flight.SetSessionOptionsRequest{}); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), flightsqlserver.HeaderCatalog) {
		t.Errorf("session: %v", err)
	}
	if _, err := c.ExecuteSubstrait(t.Context(), flightsql.SubstraitPlan{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("substrait: %v", err)
	}
	put, err := c.Client.DoPut(t.Context())
	if err == nil {
		err = put.CloseSend()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := put.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "nothing was written") || !strings.Contains(err.Error(), "FIRN-6021") {
		t.Errorf("a put of nothing: %v", err)
	}
	begin, err := c.Client.DoAction(t.Context(), &flight.Action{Type: "firn.v1.BeginWrite"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := begin.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("the open write protocol: %v", err)
	}
	if len(f.ran()) != 0 {
		t.Error("something ran")
	}
}
