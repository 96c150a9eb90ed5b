package scheduler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
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
// of a write. The table has the key once: the set that it has is committed, and any other
// is told that it isn't.
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
	same := t.TempDir()
	must(t, os.CopyFS(same, os.DirFS(copied)))
	h = startIn(t, same, catalogs, nil)
	if got := h.driver().seal(c.WriteID, a); got.Result != openwrite.ResultSealed || got.Status.State != openwrite.StateCommitted || got.Status.Report.OtherSubmission || got.Status.Report.Rows != 10 {
		t.Errorf("the same handles: %+v, %+v, %+v", got, got.Status.Report, got.Status.Error)
	}
	h.close()
	h = startIn(t, copied, catalogs, nil)
	wantOtherSubmission(t, h.driver(), c.WriteID, 10, []string{a, b}, []string{a})
	h.close()
	wantApplied(t, catalogs, 1)
	catalogs.set(func() {
		for _, f := range catalogs.deleted {
			if f == c.Prefix+"a-0.parquet" {
				t.Errorf("a committed file was deleted: %v", catalogs.deleted)
			}
		}
	})
}

// wantOtherSubmission commits sets of handles to a write whose key another submission has
// committed with so many rows, and wants all that is asked to be told so.
func wantOtherSubmission(t *testing.T, d *driver, id string, rows int64, sets ...[]string) {
	t.Helper()
	for _, handles := range sets {
		if a := d.seal(id, handles...); a.Result != openwrite.ResultOtherHandles {
			t.Errorf("commit of %d handles: %+v, %+v", len(handles), a, a.Status.Report)
		}
	}
	key := d.must(openwrite.ActionStatus, ref(id)).Status.Key
	for what, a := range map[string]openwrite.Answer{
		"commit": d.seal(id, sets[0]...),
		"status": d.must(openwrite.ActionStatus, ref(id)),
		"resume": d.must(openwrite.ActionResume, openwrite.Resume{Version: 1, Key: key}),
		"begin":  d.must(openwrite.ActionBegin, openwrite.Begin{Version: 1, Table: writeTable, Key: key}),
		"abort":  d.must(openwrite.ActionAbort, ref(id)),
	} {
		st := a.Status
		if st.WriteID != id || st.State != openwrite.StateCommittedByOther || st.SealedHandles != nil || st.SealDigest != "" || st.Error != nil || a.Context != nil {
			t.Errorf("%s: %+v, %+v", what, a, st.Error)
		}
		if r := st.Report; r == nil || !r.OtherSubmission || !r.Deduplicated || r.Rows != rows || r.SnapshotID == "" {
			t.Errorf("%s: report %+v", what, r)
		}
	}
}

func wantApplied(t *testing.T, catalogs *fakeCatalogs, n int) {
	t.Helper()
	if got := catalogs.table.Applied(); got != n {
		t.Errorf("%d commits, want %d", got, n)
	}
}

// TestTwoSchedulersOneKey: two live schedulers have a write each of one table under one
// key. The first to commit has it; the other is told that its handles aren't there, before
// and after a restart, and its files go.
func TestTwoSchedulersOneKey(t *testing.T) {
	catalogs := &fakeCatalogs{table: committest.NewCatalog(committest.Mode{})}
	dir := t.TempDir()
	one, two := startIn(t, t.TempDir(), catalogs, nil), startIn(t, dir, catalogs, nil)
	first, second := one.driver(), two.driver()
	won, lost, never := first.begin("k"), second.begin("k"), second.begin("never")
	a, b, c := first.write(won, "a"), second.write(lost, "b"), second.write(lost, "c")
	if got := first.seal(won.WriteID, a); got.Result != openwrite.ResultSealed || got.Status.State != openwrite.StateCommitted || got.Status.Report.OtherSubmission {
		t.Fatalf("%+v, %+v", got, got.Status.Report)
	}
	// A handle names its write, so that it is void at another scheduler's.
	_, err := second.do(openwrite.ActionCommit, openwrite.Commit{Version: 1, WriteID: lost.WriteID, Handles: []string{a}})
	wantFault(t, err, commit.CodeHandleVoid, "of write")
	wantOtherSubmission(t, second, lost.WriteID, 10, []string{b, c}, []string{b}, nil)
	two.close() // with a last round of its sweeper
	two.wantDeleted("b-0.parquet")
	two.wantDeleted("c-0.parquet")
	two = startIn(t, dir, catalogs, nil)
	second = two.driver()
	wantOtherSubmission(t, second, lost.WriteID, 10, []string{b, c}, []string{b})
	// One whose commit was never asked for.
	if st := second.must(openwrite.ActionStatus, ref(never.WriteID)); st.Status.State != openwrite.StateOpen {
		t.Errorf("%+v", st)
	}
	// The outcome was recorded, and the process died before its job's end was.
	two.close()
	rewindJob(t, dir, lost.WriteID)
	two = startIn(t, dir, catalogs, nil)
	st := two.driver().must(openwrite.ActionStatus, ref(lost.WriteID)).Status
	if r := st.Report; st.State != openwrite.StateCommittedByOther || r == nil || !r.OtherSubmission || !r.Deduplicated || r.Rows != 0 || r.SnapshotID != "" {
		t.Errorf("interrupted: %+v, %+v", st, r)
	}
	if got := first.must(openwrite.ActionStatus, ref(won.WriteID)); got.Status.State != openwrite.StateCommitted || len(got.Status.SealedHandles) != 1 {
		t.Errorf("the first: %+v", got)
	}
	two.close()
	wantApplied(t, catalogs, 1)
	catalogs.set(func() {
		for _, f := range catalogs.deleted {
			if strings.HasPrefix(f, won.Prefix) {
				t.Errorf("a committed file was deleted: %v", catalogs.deleted)
			}
		}
	})
}

// TestKeyOfAnotherSchedulersWrite: a key that another scheduler has committed is told as
// soon as it is begun with, and nothing can be committed under it.
func TestKeyOfAnotherSchedulersWrite(t *testing.T) {
	catalogs := &fakeCatalogs{table: committest.NewCatalog(committest.Mode{})}
	one, two := startIn(t, t.TempDir(), catalogs, nil), startIn(t, t.TempDir(), catalogs, nil)
	won := one.driver().begin("k")
	handle := one.driver().write(won, "a")
	one.driver().seal(won.WriteID, handle)
	d := two.driver()
	a := d.must(openwrite.ActionBegin, openwrite.Begin{Version: 1, Table: writeTable, Key: "k", KeyIsNew: true})
	id := a.Status.WriteID
	for what, a := range map[string]openwrite.Answer{
		"begin": a, "status": d.must(openwrite.ActionStatus, ref(id)), "resume": d.must(openwrite.ActionResume, openwrite.Resume{Version: 1, Key: "k"}),
	} {
		if r := a.Status.Report; a.Result != openwrite.ResultStatus || a.Status.State != openwrite.StateCommitted || a.Status.SealDigest != "" || !r.Deduplicated || !r.OtherSubmission || r.Rows != 10 {
			t.Errorf("%s: %+v, %+v", what, a, r)
		}
	}
	for _, handles := range [][]string{nil, {handle}} {
		if a := d.seal(id, handles...); a.Result != openwrite.ResultOtherHandles || a.Status.State != openwrite.StateCommitted || a.Status.SealDigest != "" {
			t.Errorf("commit: %+v", a)
		}
	}
	wantApplied(t, catalogs, 1)
}

// TestRolledBackWrite: what landed and was rolled back before anybody heard of it was
// committed, isn't committed again, and is told as what it is.
func TestRolledBackWrite(t *testing.T) {
	h := start(t, func(c *Config) { c.CommitDeadline = 200 * time.Millisecond })
	h.catalogs.table.Foreign("main")
	before := h.catalogs.table.Head("main")
	h.catalogs.set(func() {
		h.catalogs.faults = []string{"late", "drop-request", "drop-request", "drop-request", "drop-request", "drop-request"}
	})
	d := h.driver()
	c := d.begin("k")
	handle := d.write(c, "a")
	d.seal(c.WriteID, handle)
	h.waitUntil(c.WriteID, func(st *firnpb.JobStatus) bool { return st.GetCommit() == string(commit.CommitUnknown) })
	if h.catalogs.table.Deliver() != 1 {
		t.Fatal("the late request didn't land")
	}
	h.catalogs.table.SetHead("main", before)
	h.s.resolveUnits(t.Context())
	for _, a := range []openwrite.Answer{d.seal(c.WriteID, handle), d.seal(c.WriteID, handle), d.must(openwrite.ActionStatus, ref(c.WriteID))} {
		if r := a.Status.Report; a.Status.State != openwrite.StateCommitted || len(a.Status.SealedHandles) != 1 || !r.RolledBack || r.OtherSubmission || r.Rows != 10 {
			t.Errorf("%+v, %+v", a, r)
		}
	}
	if h.catalogs.table.Head("main") != before || h.catalogs.table.Applied() != 1 {
		t.Errorf("head %s, %d commits", h.catalogs.table.Head("main"), h.catalogs.table.Applied())
	}
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
