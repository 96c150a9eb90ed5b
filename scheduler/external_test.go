package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/internal/wire/openwrite"
	"github.com/firn-project/firn/scheduler/eventlog"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

const writeTable = "mem.ns.t"

// driver speaks the open write protocol as another engine would.
type driver struct {
	t    testing.TB
	conn *grpc.ClientConn
	rpc  flight.FlightServiceClient
	// token is shown with each call; none if it is empty.
	token string
}

func newDriver(t testing.TB, addr string) *driver {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, wire.DialOptions()...)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &driver{t: t, conn: conn, rpc: flight.NewFlightServiceClient(conn)}
}

func (h *harness) driver() *driver { return newDriver(h.t, h.s.Addr()) }

func (d *driver) ctx(ctx context.Context) context.Context {
	if d.token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+d.token)
}

// fault is what a call that failed has told.
func fault(err error) error {
	if f := openwrite.FaultIn(status.Convert(err).Message()); err != nil && f != nil {
		return f.Err()
	}
	return err
}

func (d *driver) do(kind string, body any) (openwrite.Answer, error) {
	raw, isRaw := body.([]byte)
	if !isRaw {
		var err error
		raw, err = json.Marshal(body)
		must(d.t, err)
	}
	stream, err := d.rpc.DoAction(d.ctx(d.t.Context()), &flight.Action{Type: kind, Body: raw})
	if err != nil {
		return openwrite.Answer{}, fault(err)
	}
	res, err := stream.Recv()
	if err != nil {
		return openwrite.Answer{}, fault(err)
	}
	var a openwrite.Answer
	must(d.t, json.Unmarshal(res.GetBody(), &a))
	if a.Version != openwrite.Version {
		d.t.Errorf("version %d", a.Version)
	}
	return a, nil
}

// must is do for a call that goes through.
func (d *driver) must(kind string, body any) openwrite.Answer {
	d.t.Helper()
	a, err := d.do(kind, body)
	must(d.t, err)
	return a
}

func (d *driver) begin(key string) *openwrite.Context {
	d.t.Helper()
	a := d.must(openwrite.ActionBegin, openwrite.Begin{Version: 1, Table: writeTable, Key: key, KeyIsNew: true, Engine: "test"})
	if a.Result != openwrite.ResultOpen || a.Context == nil || a.Status.State != openwrite.StateOpen {
		d.t.Fatalf("%+v", a)
	}
	return a.Context
}

func (d *driver) seal(id string, handles ...string) openwrite.Answer {
	d.t.Helper()
	return d.must(openwrite.ActionCommit, openwrite.Commit{Version: 1, WriteID: id, Handles: handles})
}

func ref(id string) openwrite.Ref { return openwrite.Ref{Version: 1, WriteID: id} }

// fileOf is a file of 10 rows that an attempt wrote.
func fileOf(c *openwrite.Context, attempt string) commit.File {
	return commit.File{
		Path: c.Prefix + attempt + "-0.parquet", Format: "PARQUET", Attempt: attempt, SchemaID: c.SchemaID, SpecID: c.SpecID, Rows: 10, Size: 100,
	}
}

// handIn puts a manifest.
func (d *driver) handIn(id, attempt string, files ...commit.File) (string, error) {
	rec, err := wire.EncodeManifest(files)
	must(d.t, err)
	return d.put([]string{openwrite.DescriptorManifest, id, attempt}, rec)
}

func (d *driver) put(path []string, rec arrow.RecordBatch) (string, error) {
	stream, err := d.rpc.DoPut(d.ctx(d.t.Context()))
	must(d.t, err)
	w := flight.NewRecordWriter(stream, ipc.WithSchema(rec.Schema()))
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: path})
	err = errors.Join(w.Write(rec), w.Close(), stream.CloseSend())
	res, rerr := stream.Recv()
	if rerr != nil {
		return "", fault(rerr)
	}
	must(d.t, err)
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		return "", fault(err)
	}
	return string(res.GetAppMetadata()), nil
}

// write hands one file of an attempt in.
func (d *driver) write(c *openwrite.Context, attempt string) string {
	d.t.Helper()
	h, err := d.handIn(c.WriteID, attempt, fileOf(c, attempt))
	must(d.t, err)
	return h
}

func wantFault(t testing.TB, err error, code commit.Code, part string) {
	t.Helper()
	if commit.CodeOf(err) != code || !strings.Contains(err.Error(), part) {
		t.Errorf("got %v; want %s with %q", err, code, part)
	}
}

// TestExternalWrite: from begin to the report. The winners' files are committed, once,
// and everything that jobs have is there for a write.
func TestExternalWrite(t *testing.T) {
	events := t.TempDir()
	h := start(t, func(c *Config) { c.EventDir = events })
	d := h.driver()
	c := d.begin("k")
	if c.Prefix != "mem://t/data/"+c.WriteID+"/" || c.Table != writeTable || c.Format != "iceberg" || c.WorkerToken == "" || c.Key != "k" ||
		!c.Expires.After(time.Now()) || c.MaxExpires.Before(c.Expires) || !slices.Equal(c.FileColumns, []string{"a"}) || c.Limits.Files != 100_000 {
		t.Errorf("context %+v", c)
	}
	if st := h.get(c.WriteID); st.GetState() != string(graph.Running) || st.GetPhase() != graph.PhaseExecuting || st.GetStatement() != statementWrite || st.GetSql() != "external write by test" || st.GetTable() != writeTable || st.GetReport() != nil {
		t.Errorf("the job of an open write: %v", st)
	}
	one, two, loser := d.write(c, "t1.0"), d.write(c, "t2.0"), d.write(c, "t1.1")
	if again := d.write(c, "t1.0"); again != one {
		t.Error("the same manifest has another handle")
	}
	other := fileOf(c, "t1.0")
	other.Rows = 11
	_, err := d.handIn(c.WriteID, "t1.0", other)
	wantFault(t, err, commit.CodeManifestRefused, "another one")
	empty, err := d.handIn(c.WriteID, "t3.0")
	must(t, err)
	if a := d.must(openwrite.ActionStatus, ref(c.WriteID)); a.Status.State != openwrite.StateOpen || a.Status.Manifests != 4 || a.Status.Expires == nil {
		t.Errorf("%+v", a)
	}
	a := d.seal(c.WriteID, two, one, empty)
	if a.Result != openwrite.ResultSealed || a.Status.State != openwrite.StateCommitted || a.Status.Report == nil || a.Status.Report.Rows != 20 || a.Status.Report.Files != 2 ||
		len(a.Status.SealedHandles) != 3 || a.Status.Report.SnapshotID == "" {
		t.Fatalf("%+v, report %+v, error %+v", a, a.Status.Report, a.Status.Error)
	}
	if rows := h.catalogs.table.Rows("main"); rows != 20 || h.catalogs.table.Applied() != 1 {
		t.Errorf("%d rows after %d commits", rows, h.catalogs.table.Applied())
	}
	// The same set joins, another one is told; nothing more is taken.
	if a := d.seal(c.WriteID, one, two, empty, one); a.Result != openwrite.ResultJoined || a.Status.State != openwrite.StateCommitted {
		t.Errorf("%+v", a)
	}
	if a := d.seal(c.WriteID, one, two, loser, empty); a.Result != openwrite.ResultOtherHandles || !slices.Contains(a.Status.SealedHandles, one) || slices.Contains(a.Status.SealedHandles, loser) {
		t.Errorf("%+v", a)
	}
	_, err = d.handIn(c.WriteID, "t4.0", fileOf(c, "t4.0"))
	wantFault(t, err, commit.CodeWriteNotOpen, "committed")
	if a := d.must(openwrite.ActionAbort, ref(c.WriteID)); a.Result != openwrite.ResultNotOpen || a.Status.State != openwrite.StateCommitted {
		t.Errorf("%+v", a)
	}
	if a := d.must(openwrite.ActionRenew, ref(c.WriteID)); a.Result != openwrite.ResultNotOpen || a.Context != nil {
		t.Errorf("%+v", a)
	}
	// A driver that comes again with the key is told.
	if a := d.must(openwrite.ActionResume, openwrite.Resume{Version: 1, Key: "k"}); a.Result != openwrite.ResultStatus || a.Status.State != openwrite.StateCommitted || len(a.Status.SealedHandles) != 3 {
		t.Errorf("%+v", a)
	}
	if a := d.must(openwrite.ActionBegin, openwrite.Begin{Version: 1, Table: writeTable, Key: "k"}); a.Result != openwrite.ResultStatus || !a.Status.Report.Deduplicated || a.Context != nil {
		t.Errorf("%+v, %+v", a, a.Status.Report)
	}
	units, err := h.client.ListUnits(t.Context(), &firnpb.ListUnitsRequest{All: true})
	must(t, err)
	if len(units.GetUnits()) != 1 || units.GetUnits()[0].GetJobId() != c.WriteID || units.GetUnits()[0].GetState() != "committed" {
		t.Errorf("units %v", units)
	}
	if st := h.get(c.WriteID); st.GetState() != string(graph.Succeeded) || len(st.GetStages()) != 2 || st.GetStages()[0].GetTasks() != 3 || len(st.GetExecutors()) != 0 {
		t.Errorf("the job: %v", st)
	}
	wantListedWrite(h, events, c.WriteID)
}

// wantListedWrite wants a committed write of 20 rows in the list of jobs, and its events
// in the log.
func wantListedWrite(h *harness, events, id string) {
	t := h.t
	t.Helper()
	jobs, err := h.client.ListJobs(t.Context(), &firnpb.ListJobsRequest{})
	must(t, err)
	if all := jobs.GetJobs(); len(all) != 1 || all[0].GetJobId() != id || all[0].GetStatement() != statementWrite || all[0].GetCommit() != string(commit.CommitCommitted) {
		t.Errorf("jobs %v", all)
	}
	all := h.logged(events, id)
	if first, last := all[0], all[len(all)-1]; first.Kind != eventlog.JobSubmitted || last.Kind != eventlog.JobEnded || last.Commit != string(commit.CommitCommitted) || last.View == nil || last.View.Report.Rows != 20 {
		t.Errorf("events from %+v to %+v", first, last)
	}
	for _, want := range []string{graph.PhaseExecuting, graph.PhaseCommitting} {
		if !slices.ContainsFunc(all, func(e eventlog.Event) bool { return e.Kind == eventlog.JobChanged && e.Phase == want }) {
			t.Errorf("no event of the phase %s in %+v", want, all)
		}
	}
}

// TestKeysOfWrites: a key means for a write what it means for a statement.
func TestKeysOfWrites(t *testing.T) {
	h := start(t, nil)
	d := h.driver()
	c := d.begin("k")
	if again := d.begin("k"); again.WriteID != c.WriteID || again.Prefix != c.Prefix {
		t.Errorf("the key began %s and %s", c.WriteID, again.WriteID)
	}
	_, err := h.execute(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	wantFault(t, err, commit.CodeKeyReused, c.WriteID)
	one := d.write(c, "a")
	if a := d.must(openwrite.ActionAbort, ref(c.WriteID)); a.Result != openwrite.ResultAborted || a.Status.State != openwrite.StateAborted {
		t.Fatalf("%+v", a)
	}
	wantState(t, h.get(c.WriteID), graph.Cancelled, commit.CommitNone)
	if a := d.must(openwrite.ActionAbort, ref(c.WriteID)); a.Result != openwrite.ResultAborted {
		t.Errorf("aborted again: %+v", a)
	}
	if a := d.seal(c.WriteID, one); a.Result != openwrite.ResultNotOpen || a.Status.State != openwrite.StateAborted {
		t.Errorf("%+v", a)
	}
	next := d.begin("k")
	if next.WriteID == c.WriteID {
		t.Fatal("an aborted write was opened again")
	}
	_, err = d.do(openwrite.ActionCommit, openwrite.Commit{Version: 1, WriteID: next.WriteID, Handles: []string{one}})
	wantFault(t, err, commit.CodeHandleVoid, "of write")
	if a := d.seal(next.WriteID, d.write(next, "a")); a.Status.State != openwrite.StateCommitted {
		t.Errorf("%+v", a)
	}
	// The table knows the key, whatever the journal says.
	dir := t.TempDir()
	other := startIn(t, dir, h.catalogs, nil)
	a := other.driver().must(openwrite.ActionBegin, openwrite.Begin{Version: 1, Table: writeTable, Key: "k", KeyIsNew: true})
	if a.Result != openwrite.ResultStatus || a.Status.State != openwrite.StateCommitted || !a.Status.Report.Deduplicated || a.Status.Report.Rows != 10 {
		t.Errorf("at another scheduler: %+v, %+v", a, a.Status.Report)
	}
	for _, key := range []string{"unheard of"} {
		_, err := d.do(openwrite.ActionResume, openwrite.Resume{Version: 1, Key: key})
		wantFault(t, err, commit.CodeWriteNotFound, key)
	}
	_, err = d.do(openwrite.ActionStatus, ref("j-none"))
	wantFault(t, err, commit.CodeWriteNotFound, "j-none")
}

// TestWriteWithoutFiles: no handles, and handles of attempts without files, are what a
// statement without rows is.
func TestWriteWithoutFiles(t *testing.T) {
	h := start(t, nil)
	d := h.driver()
	none := d.begin("none")
	d.write(none, "loser")
	empty := d.begin("empty")
	handle, err := d.handIn(empty.WriteID, "a")
	must(t, err)
	for _, a := range []openwrite.Answer{d.seal(none.WriteID), d.seal(empty.WriteID, handle)} {
		if a.Status.State != openwrite.StateCommitted || a.Status.Report.Files != 0 || a.Status.Report.SnapshotID != "" {
			t.Errorf("%+v, %+v, %+v", a, a.Status.Report, a.Status.Error)
		}
	}
	if h.catalogs.table.Applied() != 0 {
		t.Error("a snapshot without files was made")
	}
}

// TestManyDriversCommit: drivers that commit different sets, abort and expire at the
// same time are all told the same, and the table has it.
func TestManyDriversCommit(t *testing.T) {
	h := start(t, nil)
	d := h.driver()
	for round := range 10 {
		c := d.begin(fmt.Sprint("k", round))
		a, b := d.write(c, "a"), d.write(c, "b")
		before := h.catalogs.table.Rows("main")
		sets := [][]string{{a}, {a, b}, {b, a}, {a}}
		answers := make([]openwrite.Answer, len(sets)+1)
		var wg sync.WaitGroup
		for i, set := range sets {
			wg.Go(func() { answers[i] = h.driver().seal(c.WriteID, set...) })
		}
		wg.Go(func() { answers[len(sets)] = h.driver().must(openwrite.ActionAbort, ref(c.WriteID)) })
		wg.Wait()
		added := h.catalogs.table.Rows("main") - before
		sealed, aborted := 0, answers[len(sets)].Result == openwrite.ResultAborted
		for i, set := range sets {
			switch r := answers[i].Result; {
			case r == openwrite.ResultSealed:
				sealed++
				fallthrough
			case r == openwrite.ResultJoined:
				if added != int64(10*len(set)) || answers[i].Status.State != openwrite.StateCommitted {
					t.Errorf("%v was told to be committed, and %d rows were: %+v", set, added, answers[i].Status)
				}
			case r == openwrite.ResultOtherHandles && !aborted, r == openwrite.ResultNotOpen && aborted:
			default:
				t.Errorf("%+v", answers[i])
			}
		}
		if sealed > 1 || (sealed == 1) == aborted || aborted && added != 0 {
			t.Fatalf("%d seals, aborted=%t, %d rows", sealed, aborted, added)
		}
	}
}

// TestUnknownCommitOfAWrite: a commit whose answer is lost is never told as anything
// else, and the poll finds out.
func TestUnknownCommitOfAWrite(t *testing.T) {
	h := start(t, nil)
	h.catalogs.set(func() { h.catalogs.faults = []string{"500-applied"} })
	d := h.driver()
	c := d.begin("k")
	a := d.seal(c.WriteID, d.write(c, "a"))
	for range 100 {
		if a.Status.State != openwrite.StateCommitting && a.Status.State != openwrite.StateUnknown {
			break
		}
		wait := int64(1)
		a = d.must(openwrite.ActionStatus, openwrite.Ref{Version: 1, WriteID: c.WriteID, WaitSeconds: &wait})
	}
	if a.Status.State != openwrite.StateCommitted || h.catalogs.table.Rows("main") != 10 || h.catalogs.table.Applied() != 1 {
		t.Errorf("%+v; %d rows, %d commits", a, h.catalogs.table.Rows("main"), h.catalogs.table.Applied())
	}
}

// TestWriteWaits: the answer comes when it is asked to, though the commit takes longer.
func TestWriteWaits(t *testing.T) {
	h := start(t, nil)
	release := make(chan struct{})
	h.catalogs.set(func() { h.catalogs.send = func() { <-release } })
	d := h.driver()
	c := d.begin("k")
	handle := d.write(c, "a")
	none := int64(0)
	a := d.must(openwrite.ActionCommit, openwrite.Commit{Version: 1, WriteID: c.WriteID, Handles: []string{handle}, WaitSeconds: &none})
	if a.Result != openwrite.ResultSealed || a.Status.State != openwrite.StateCommitting {
		t.Errorf("%+v", a)
	}
	h.waitUntil(c.WriteID, func(st *firnpb.JobStatus) bool { return st.GetCommit() == string(commit.CommitInFlight) })
	if a := d.must(openwrite.ActionStatus, ref(c.WriteID)); a.Status.State != openwrite.StateCommitting || a.Status.Commit != string(commit.CommitInFlight) {
		t.Errorf("%+v", a)
	}
	close(release)
	if a := d.seal(c.WriteID, handle); a.Result != openwrite.ResultJoined || a.Status.State != openwrite.StateCommitted {
		t.Errorf("%+v", a)
	}
}

// TestCancelledWrite: cancelling the job of a write is an abort while it is open, and
// what it is for other jobs once it is sealed.
func TestCancelledWrite(t *testing.T) {
	h := start(t, nil)
	d := h.driver()
	open := d.begin("open")
	handle := d.write(open, "a")
	resp, err := h.client.CancelJob(t.Context(), &firnpb.JobRequest{JobId: open.WriteID})
	must(t, err)
	if resp.GetAnswer() != graph.AnswerCancelled {
		t.Error(resp)
	}
	if a := d.seal(open.WriteID, handle); a.Result != openwrite.ResultNotOpen || a.Status.State != openwrite.StateAborted {
		t.Errorf("%+v", a)
	}
	_, err = d.handIn(open.WriteID, "b")
	wantFault(t, err, commit.CodeWriteNotOpen, "aborted")

	release := make(chan struct{})
	building := make(chan struct{}, 1)
	h.catalogs.set(func() { h.catalogs.build = func() { building <- struct{}{}; <-release } })
	c := d.begin("sealed")
	handle = d.write(c, "a")
	none := int64(0)
	d.must(openwrite.ActionCommit, openwrite.Commit{Version: 1, WriteID: c.WriteID, Handles: []string{handle}, WaitSeconds: &none})
	receive(t, building, "build")
	if _, err = h.client.CancelJob(t.Context(), &firnpb.JobRequest{JobId: c.WriteID}); err != nil {
		t.Fatal(err)
	}
	close(release)
	if a := d.seal(c.WriteID, handle); a.Result != openwrite.ResultJoined || a.Status.State != openwrite.StateAborted {
		t.Errorf("%+v", a)
	}
	if h.catalogs.table.Applied() != 0 {
		t.Error("a cancelled write was committed")
	}
}

// TestExpiry: a write that nobody renews ends, and one that is renewed doesn't.
func TestExpiry(t *testing.T) {
	h := start(t, nil)
	d := h.driver()
	begin := func(key string) *openwrite.Context {
		return d.must(openwrite.ActionBegin, openwrite.Begin{Version: 1, Table: writeTable, Key: key, KeyIsNew: true, TTLSeconds: 3600}).Context
	}
	left, kept := begin("left"), begin("kept")
	handle := d.write(left, "a")
	later := time.Now().Add(30 * time.Minute)
	if _, _, err := h.s.journal.StepWrite(t.Context(), kept.WriteID, lifecycle.Renew{Now: later}, nil); err != nil {
		t.Fatal(err)
	}
	h.s.writes.Follow(t.Context(), left.Expires.Add(time.Second))
	wantState(t, h.get(left.WriteID), graph.JobFailed, commit.CommitNone)
	if a := d.seal(left.WriteID, handle); a.Result != openwrite.ResultNotOpen || a.Status.State != openwrite.StateExpired || a.Status.Error == nil || a.Status.Error.Code != string(commit.CodeWriteNotOpen) {
		t.Errorf("%+v, %+v", a, a.Status.Error)
	}
	if a := d.seal(kept.WriteID, d.write(kept, "a")); a.Status.State != openwrite.StateCommitted {
		t.Errorf("%+v", a)
	}
	h.s.writes.Follow(t.Context(), later.Add(48*time.Hour))
	if a := d.must(openwrite.ActionStatus, ref(kept.WriteID)); a.Status.State != openwrite.StateCommitted {
		t.Errorf("a committed write expired: %+v", a)
	}
}
