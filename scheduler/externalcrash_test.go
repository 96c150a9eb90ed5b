package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/internal/wire/openwrite"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/storekeys"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

// stubborn is a driver with its workers that goes on after a restart of the scheduler:
// it sends what wasn't answered again, and knows nothing but its key and what it was
// told.
type stubborn struct {
	*driver
	handles map[string]string
}

// run does the whole of a write as far as it gets: two attempts win, one loses. Its
// error is the first call's that wasn't answered.
func (s *stubborn) run() (openwrite.Answer, error) {
	a, err := s.do(openwrite.ActionBegin, openwrite.Begin{Version: 1, Table: writeTable, Key: "k", KeyIsNew: true})
	if err != nil || a.Result != openwrite.ResultOpen {
		return a, err
	}
	for _, attempt := range []string{"a", "b", "loser"} {
		h, err := s.handIn(a.Context.WriteID, attempt, fileOf(a.Context, attempt))
		if err != nil {
			if commit.CodeOf(err) == commit.CodeWriteNotOpen {
				break // it was sealed by the call that wasn't answered
			}
			return a, err
		}
		if old := s.handles[attempt]; old != "" && old != h {
			s.t.Errorf("attempt %s has two handles", attempt)
		}
		s.handles[attempt] = h
	}
	return s.do(openwrite.ActionCommit, openwrite.Commit{Version: 1, WriteID: a.Context.WriteID, Handles: []string{s.handles["a"], s.handles["b"]}})
}

// TestWriteKilledAtEveryWrite: a scheduler that is killed at any of its writes, right
// before it or right after, and started again: the write ends as the same write under
// the same key, exactly the winners' rows are in the table, once.
func TestWriteKilledAtEveryWrite(t *testing.T) {
	points := 0
	for _, after := range []bool{false, true} {
		for k := 1; ; k++ {
			fired := false
			t.Run(fmt.Sprintf("after=%t/%d", after, k), func(t *testing.T) { fired = killWriteAt(t, k, after) })
			if !fired || t.Failed() {
				break
			}
			points++
		}
	}
	if points < 20 {
		t.Errorf("only %d points", points)
	}
}

func killWriteAt(t *testing.T, k int, after bool) bool {
	catalogs := &fakeCatalogs{table: committest.NewCatalog(committest.Mode{})}
	dir := t.TempDir()
	h, m := startMortal(t, dir, "", catalogs, 0, after)
	addr := h.s.Addr()
	m.mu.Lock()
	m.writes, m.dieAt = 0, k
	m.mu.Unlock()
	conn, err := grpc.NewClient("passthrough:///"+addr, wire.DialOptions()...)
	must(t, err)
	defer conn.Close()
	s := &stubborn{driver: &driver{t: t, conn: conn, rpc: flight.NewFlightServiceClient(conn)}, handles: map[string]string{}}
	type result struct {
		a   openwrite.Answer
		err error
	}
	done := make(chan result, 1)
	go func() {
		a, err := s.run()
		done <- result{a, err}
	}()
	fired := false
	var got result
	select {
	case <-m.died:
		fired = true
		h.crash(m)
		<-done
		id := ""
		if jobs := journalJobs(t, dir); len(jobs) > 0 {
			id = jobs[0].ID
		}
		h, _ = startMortal(t, dir, addr, catalogs, 0, false)
		s.driver = newDriver(t, addr)
		a, err := s.run()
		must(t, err)
		if id != "" && a.Status.WriteID != id {
			t.Errorf("write %s became %s", id, a.Status.WriteID)
		}
		got = result{a: a}
	case got = <-done:
		must(t, got.err)
	}
	if got.a.Result == openwrite.ResultStatus {
		// It was sealed, and this is how it goes on.
		w := int64(30)
		got.a = s.must(openwrite.ActionStatus, openwrite.Ref{Version: 1, WriteID: got.a.Status.WriteID, WaitSeconds: &w})
	}
	if got.a.Status.State != openwrite.StateCommitted || got.a.Status.Report == nil || got.a.Status.Report.Rows != 20 {
		t.Errorf("%+v, %+v, %+v", got.a, got.a.Status.Report, got.a.Status.Error)
	}
	if rows := catalogs.table.Rows("main"); rows != 20 || catalogs.table.Applied() != 1 {
		t.Errorf("%d rows after %d commits", rows, catalogs.table.Applied())
	}
	h.close()
	catalogs.set(func() {
		if len(catalogs.deleted) > 0 {
			t.Errorf("deleted %v", catalogs.deleted)
		}
	})
	return fired
}

// TestWriteOutlivesTheScheduler: a write that is open stays open with its manifests,
// also when its catalog isn't there at once; one that was aborted is ended.
func TestWriteOutlivesTheScheduler(t *testing.T) {
	catalogs := &fakeCatalogs{table: committest.NewCatalog(committest.Mode{})}
	dir := t.TempDir()
	h, m := startMortal(t, dir, "", catalogs, 0, false)
	addr := h.s.Addr()
	d := h.driver()
	c := d.begin("k")
	handle := d.write(c, "a")
	gone := d.begin("gone")
	// Its record says so, and nothing else does yet.
	if _, _, err := h.s.journal.StepWrite(t.Context(), gone.WriteID, lifecycle.Abort{}, nil); err != nil {
		t.Fatal(err)
	}
	h.crash(m)
	h, _ = startMortal(t, dir, addr, catalogs, 0, false)
	d = newDriver(t, addr)
	a := d.must(openwrite.ActionResume, openwrite.Resume{Version: 1, Key: "k"})
	if a.Result != openwrite.ResultOpen || a.Context.WriteID != c.WriteID || a.Context.Prefix != c.Prefix || a.Status.Manifests != 1 {
		t.Fatalf("%+v", a)
	}
	if again := d.write(a.Context, "a"); again != handle {
		t.Error("another handle")
	}
	if st := d.must(openwrite.ActionStatus, ref(gone.WriteID)); st.Status.State != openwrite.StateAborted {
		t.Errorf("%+v", st)
	}
	wantState(t, h.wait(gone.WriteID), graph.Cancelled, commit.CommitNone)
	// A worker's token holds on, as its key does.
	w := newDriver(t, addr)
	w.token = c.WorkerToken
	if _, err := w.handIn(c.WriteID, "b", fileOf(c, "b")); err != nil {
		t.Error(err)
	}
	if a := d.seal(c.WriteID, handle); a.Result != openwrite.ResultSealed || a.Status.State != openwrite.StateCommitted || catalogs.table.Rows("main") != 10 {
		t.Errorf("%+v", a)
	}
}

// TestRestoredJournalOfAWrite: a journal that was restored from a copy may know an old state
// of a write. Whatever is committed from there, the table has the key once.
func TestRestoredJournalOfAWrite(t *testing.T) {
	catalogs := &fakeCatalogs{table: committest.NewCatalog(committest.Mode{})}
	dir := t.TempDir()
	h := startIn(t, dir, catalogs, nil)
	d := h.driver()
	c := d.begin("k")
	a, b := d.write(c, "a"), d.write(c, "b")
	copied := h.copyJournal()
	if got := d.seal(c.WriteID, a); got.Status.State != openwrite.StateCommitted {
		t.Fatalf("%+v", got)
	}
	h.close()
	h = startIn(t, copied, catalogs, nil)
	got := h.driver().seal(c.WriteID, a, b)
	if got.Status.State != openwrite.StateCommitted || !got.Status.Report.OtherSubmission || got.Status.Report.Rows != 10 || catalogs.table.Applied() != 1 {
		t.Errorf("%+v, %+v, %+v", got, got.Status.Report, got.Status.Error)
	}
	catalogs.set(func() {
		for _, f := range catalogs.deleted {
			if f == c.Prefix+"a-0.parquet" {
				t.Errorf("a committed file was deleted: %v", catalogs.deleted)
			}
		}
	})
}

// laterKeys are keys of a store whose STS doesn't answer at first.
type laterKeys struct{ failures atomic.Int32 }

func (k *laterKeys) Scoping(context.Context, storekeys.Store) (bool, string, error) {
	if k.failures.Add(-1) >= 0 {
		return false, "", errors.New("STS doesn't answer")
	}
	return true, "", nil
}

func (*laterKeys) Mint(context.Context, storekeys.Store, objstore.Scope) (objstore.Keys, error) {
	return objstore.Keys{AccessKeyID: "scoped", SecretAccessKey: "key", Expires: time.Now().Add(time.Hour)}, nil
}

// TestWriteIsTakenUpLater: what it takes to write may not be there when the scheduler
// comes back; the write is open again when it is, and nothing is given up before.
func TestWriteIsTakenUpLater(t *testing.T) {
	catalogs := &fakeCatalogs{table: committest.NewCatalog(committest.Mode{}), storage: map[string]string{objstore.KeyEndpoint: "http://127.0.0.1:9", objstore.KeySecretKey: canary}}
	dir, keys := t.TempDir(), &laterKeys{}
	with := func(c *Config) { c.StoreKeys = keys }
	h := startIn(t, dir, catalogs, with)
	c := h.driver().begin("k")
	handle := h.driver().write(c, "a")
	h.close()
	keys.failures.Store(1)
	h = startIn(t, dir, catalogs, with)
	a := h.driver().must(openwrite.ActionResume, openwrite.Resume{Version: 1, Key: "k"})
	if a.Result != openwrite.ResultOpen || a.Context.WriteID != c.WriteID || keys.failures.Load() >= 0 {
		t.Fatalf("%+v", a)
	}
	if a := h.driver().seal(c.WriteID, handle); a.Status.State != openwrite.StateCommitted {
		t.Errorf("%+v", a)
	}
}

// TestBeginOfNoTable: a write that can't begin says why, and none is begun.
func TestBeginOfNoTable(t *testing.T) {
	h := start(t, nil)
	h.catalogs.set(func() {
		h.catalogs.pinErr = &commit.Error{Code: commit.CodeTokensStripped, Op: "pin", Cause: errors.New("no way")}
	})
	_, err := h.driver().do(openwrite.ActionBegin, openwrite.Begin{Version: 1, Table: writeTable, Key: "k", KeyIsNew: true})
	wantFault(t, err, commit.CodeTokensStripped, "no way")
	h.catalogs.set(func() { h.catalogs.pinErr = nil })
	h.driver().begin("k")
}

// TestParkedWrite: the commit of a write that was refused for a reason which may go away
// is driven again as any other, and the protocol tells what became of it; also under a
// process that never had the write open.
func TestParkedWrite(t *testing.T) {
	catalogs := &fakeCatalogs{table: committest.NewCatalog(committest.Mode{}), faults: []string{"403"}}
	dir := t.TempDir()
	h := startIn(t, dir, catalogs, nil)
	d := h.driver()
	c := d.begin("k")
	handle := d.write(c, "a")
	a := d.seal(c.WriteID, handle)
	if a.Status.State != openwrite.StateRefused || a.Status.Error == nil || a.Status.Error.Reason != string(commit.ReasonPermission) || a.Status.Error.Outcome != "refused" {
		t.Fatalf("%+v, %+v", a.Status, a.Status.Error)
	}
	if again := d.seal(c.WriteID, handle); again.Result != openwrite.ResultJoined || again.Status.State != openwrite.StateRefused {
		t.Errorf("%+v", again)
	}
	_, err := h.client.DriveUnit(t.Context(), &firnpb.DriveUnitRequest{JobId: c.WriteID, Action: actionRetry})
	must(t, err)
	want := func(a openwrite.Answer) {
		t.Helper()
		if a.Status.State != openwrite.StateCommitted || a.Status.Report == nil || a.Status.Report.Rows != 10 || a.Status.Error != nil {
			t.Errorf("%+v, %+v, %+v", a, a.Status.Report, a.Status.Error)
		}
	}
	want(d.must(openwrite.ActionStatus, ref(c.WriteID)))
	want(d.seal(c.WriteID, handle))
	h.close()
	h = startIn(t, dir, catalogs, nil)
	d = h.driver()
	want(d.must(openwrite.ActionStatus, ref(c.WriteID)))
	want(d.must(openwrite.ActionResume, openwrite.Resume{Version: 1, Key: "k"}))
	want(d.seal(c.WriteID, handle))
	if catalogs.table.Rows("main") != 10 || catalogs.table.Applied() != 1 {
		t.Errorf("%d rows", catalogs.table.Rows("main"))
	}
}
