package scheduler

import (
	stdsql "database/sql"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
)

func wantCode(t *testing.T, err error, code commit.Code, parts ...string) {
	t.Helper()
	if commit.CodeOf(err) != code {
		t.Fatalf("error = %v, want %s", err, code)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q doesn't say %q", err, p)
		}
	}
}

// TestTextThatIsNotUTF8: doors in the scheduler's process may hand over what protobuf
// wouldn't, and one such job on record would break every list of jobs.
func TestTextThatIsNotUTF8(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	for _, r := range []*firnpb.ExecuteRequest{
		{Sql: insert, IdempotencyKey: "k\xe9"},
		{Sql: insert, IdempotencyKey: "k", Session: &firnpb.Session{Catalog: "\xff"}},
	} {
		r.ProtocolVersion = wire.ProtocolVersion
		_, err := h.s.Execute(t.Context(), r)
		wantCode(t, err, commit.CodeBadRequest, "UTF-8")
	}
	if jobs, err := h.s.ListJobs(t.Context(), &firnpb.ListJobsRequest{}); err != nil || len(jobs.GetJobs()) != 0 {
		t.Errorf("%v, %v", jobs, err)
	}
}

func TestKeyOfACommittedJobAnswersWithItsReport(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	req := &firnpb.ExecuteRequest{Sql: insert + ";", IdempotencyKey: "k"}
	first := h.run(req)
	for _, where := range []string{"same process", "next process"} {
		resp, err := h.execute(req)
		must(t, err)
		st := resp.GetJob()
		wantState(t, st, graph.Succeeded, commit.CommitCommitted)
		if st.GetJobId() != first.GetJobId() || !st.GetReport().GetDeduplicated() || st.GetReport().GetSnapshotId() != first.GetReport().GetSnapshotId() {
			t.Fatalf("%s: %v", where, st)
		}
		if r, err := wire.DecodeReport(st.GetInlineResult()); err != nil || !r.Deduplicated || r.Rows != 10*parts {
			t.Fatalf("%s: %+v, %v", where, r, err)
		}
		if st := h.get(first.GetJobId()); st.GetReport().GetDeduplicated() {
			t.Fatal("the first job's own report says deduplicated")
		}
		h.close()
		h = startIn(t, h.dir, h.catalogs, nil) // without executors: nothing may run
	}
	if h.catalogs.table.Applied() != 1 {
		t.Fatalf("%d commits", h.catalogs.table.Applied())
	}
}

func TestTokenInTheTableAnswersWithoutAJournal(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	first := h.run(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	h.close()
	h = startIn(t, t.TempDir(), h.catalogs, nil)
	e := startExecutor(t, h.s, executorOptions{id: "e1"})
	st := h.run(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	r := st.GetReport()
	if !r.GetDeduplicated() || r.GetSnapshotId() != first.GetReport().GetSnapshotId() || r.GetRows() != 10*parts {
		t.Fatalf("report = %v", r)
	}
	if dec, err := wire.DecodeReport(st.GetInlineResult()); err != nil || !dec.Deduplicated {
		t.Fatalf("inline: %+v, %v", dec, err)
	}
	if len(e.launched) != 0 || h.catalogs.table.Applied() != 1 {
		t.Fatal("the statement ran again")
	}
}

func TestKeyReusedForAnotherStatement(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	hold := newStop()
	h.catalogs.set(func() { h.catalogs.send = hold.wait })
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	receive(t, hold.arrived, "send")
	others := map[string]*firnpb.ExecuteRequest{
		"statement": {Sql: "INSERT INTO mem.ns.t SELECT 2"},
		"target":    {Sql: "INSERT INTO mem.ns.other SELECT 1"},
		"limit":     {Sql: insert, RejectLimit: 5},
		"select":    {Sql: "SELECT 1"},
		"zone":      {Sql: insert, TimeZone: "Asia/Tokyo"},
		"session":   {Sql: insert, Session: &firnpb.Session{Catalog: "mem"}},
		"physical":  {Physical: h.physicalInsert()},
	}
	check := func(when string) {
		for name, req := range others {
			req.IdempotencyKey = "k"
			_, err := h.execute(req)
			if commit.CodeOf(err) != commit.CodeKeyReused || !strings.Contains(err.Error(), id) {
				t.Errorf("%s, another %s: %v", when, name, err)
			}
		}
	}
	check("running")
	close(hold.release)
	h.wait(id)
	check("committed")
}

func TestSameKeyWhileTheJobRuns(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	hold := newStop()
	h.catalogs.set(func() { h.catalogs.send = hold.wait })
	var wg sync.WaitGroup
	got := make([]string, 8)
	for i := range got {
		wg.Go(func() { got[i] = h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"}) })
	}
	wg.Wait()
	for _, id := range got {
		if id != got[0] {
			t.Fatalf("jobs %v, want one", got)
		}
	}
	if st, err := h.client.GetJob(t.Context(), &firnpb.JobRequest{IdempotencyKey: "k"}); err != nil || st.GetJobId() != got[0] {
		t.Fatalf("job by key: %v, %v", st, err)
	}
	close(hold.release)
	h.wait(got[0])
	if h.catalogs.table.Applied() != 1 {
		t.Fatalf("%d commits", h.catalogs.table.Applied())
	}
}

func TestKeyOfAFailedJobRunsAgain(t *testing.T) {
	h := start(t, nil)
	broken := true
	var mu sync.Mutex
	var e *fakeExecutor
	e = startExecutor(t, h.s, executorOptions{id: "e1", task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		mu.Lock()
		defer mu.Unlock()
		if broken {
			return fail(d, &commit.Error{Code: commit.CodeBadRequest, Op: "read file", Object: "x.parquet"}, wire.ClassNotRetryable)
		}
		return e.succeed(d, n)
	}})
	st := h.run(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	wantState(t, st, graph.JobFailed, commit.CommitNone)
	if !strings.Contains(wire.ErrorFromProto(st.GetError()).Error(), "x.parquet") {
		t.Fatalf("%v", st.GetError())
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	again := h.run(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	wantState(t, again, graph.Succeeded, commit.CommitCommitted)
	if again.GetJobId() == st.GetJobId() || again.GetReport().GetDeduplicated() {
		t.Fatalf("%v", again)
	}
}

// The process dies after the send record and before the outcome: the next one
// finds out, with the files that are there, and tells whoever asks by the job's
// id or its key. No executor is needed for it.
func TestInterruptedInFlight(t *testing.T) {
	for name, landed := range map[string]bool{"landed": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			h := start(t, nil)
			startExecutor(t, h.s, executorOptions{id: "e1"})
			st := h.run(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
			id := st.GetJobId()
			h.close()
			rewind(t, h.dir, id)
			if !landed {
				h.catalogs = &fakeCatalogs{table: committest.NewCatalog(committest.Mode{})}
			}
			h = startIn(t, h.dir, h.catalogs, nil)
			if again := h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"}); again != id {
				t.Fatalf("the key ran again, as job %s", again)
			}
			st = h.wait(id)
			wantState(t, st, graph.Succeeded, commit.CommitCommitted)
			if st.GetReport().GetRows() != 10*parts || st.GetReport().GetSnapshotId() == "" || len(st.GetInlineResult()) == 0 {
				t.Fatalf("%v", st.GetReport())
			}
			if h.catalogs.table.Applied() != 1 || h.catalogs.table.Rows("main") != 10*parts {
				t.Fatalf("%d commits, %d rows", h.catalogs.table.Applied(), h.catalogs.table.Rows("main"))
			}
		})
	}
}

// rewind makes the journal what it was when the job's commit had been sent.
func rewind(t *testing.T, dir, id string) {
	t.Helper()
	rewindJob(t, dir, id)
	j, err := journal.Open(t.Context(), dir)
	must(t, err)
	defer func() { must(t, j.Close()) }()
	u, err := j.Unit(t.Context(), id)
	must(t, err)
	db, err := stdsql.Open("sqlite", filepath.Join(dir, "journal.db"))
	must(t, err)
	_, err = db.ExecContext(t.Context(), "UPDATE units SET state = 'sealed', reason = '', cause = '' WHERE job_id = ?", id)
	must(t, err)
	must(t, db.Close())
	must(t, j.Send(t.Context(), journal.Send{RequestID: "r-again", Tokens: []commit.Token{u.Token}}))
}

// rewindJob takes the end of a job back, and not what is on record of its unit.
func rewindJob(t *testing.T, dir, id string) {
	t.Helper()
	j, err := journal.Open(t.Context(), dir)
	must(t, err)
	defer func() { must(t, j.Close()) }()
	rec, err := j.Job(t.Context(), id)
	must(t, err)
	st, err := recorded(rec)
	must(t, err)
	st.State, st.Commit, st.Report, st.InlineResult = "running", "in_flight", nil, nil
	rec.State, rec.Commit = "running", commit.CommitInFlight
	rec.Ended = time.Time{}
	rec.Status, err = proto.Marshal(st)
	must(t, err)
	must(t, j.PutJob(t.Context(), rec))
}

// The process dies after the outcome and before the job's end is on record: the
// job has succeeded, and whoever still waits for it hears of it.
func TestInterruptedAfterTheCommit(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	first := h.run(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	id := first.GetJobId()
	h.close()
	rewind(t, h.dir, id)
	j, err := journal.Open(t.Context(), h.dir)
	must(t, err)
	must(t, j.Outcome(t.Context(), id, journal.Outcome{State: commit.Committed}))
	must(t, j.Close())
	h = startIn(t, h.dir, h.catalogs, nil)
	st := h.wait(id)
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	if r := st.GetReport(); st.GetError() != nil || r.GetRows() != 10*parts || r.GetFiles() != parts || r.GetCommit() != "committed" || r.GetTable() != "mem.ns.t" {
		t.Fatalf("%v", st)
	}
	r, err := wire.DecodeReport(st.GetInlineResult())
	if must(t, err); r.Rows != 10*parts || r.State != commit.CommitCommitted {
		t.Fatalf("%+v", r)
	}
	resp, err := h.execute(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	must(t, err)
	if resp.GetJob().GetJobId() != id || !resp.GetJob().GetReport().GetDeduplicated() {
		t.Fatalf("%v", resp.GetJob())
	}
}

// What the journal keeps of an ended job is newer than all that was told while
// it ran, so that a client that waits across a restart takes it in.
func TestRecordedEndIsNewerThanWhatWasTold(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	hold := newStop()
	h.catalogs.set(func() { h.catalogs.send = hold.wait })
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	receive(t, hold.arrived, "send")
	running := h.get(id)
	wantState(t, running, graph.Running, commit.CommitInFlight)
	close(hold.release)
	h.wait(id)
	h.close()
	h = startIn(t, h.dir, h.catalogs, nil)
	if st := h.get(id); st.GetRevision() <= running.GetRevision() {
		t.Fatalf("revision %d is on record; %d was told", st.GetRevision(), running.GetRevision())
	}
}

func TestInterruptedBeforeTheCommit(t *testing.T) {
	h := start(t, nil)
	// No executor: the job waits in planning when the process goes. A killed
	// process leaves the journal as it was at admission.
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	rec, err := h.s.journal.Job(t.Context(), id)
	must(t, err)
	h.close()
	j, err := journal.Open(t.Context(), h.dir)
	must(t, err)
	must(t, j.PutJob(t.Context(), rec))
	must(t, j.Close())
	h = startIn(t, h.dir, h.catalogs, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	wantState(t, h.wait(id), graph.Succeeded, commit.CommitCommitted)
	again, err := h.execute(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: "k"})
	must(t, err)
	if again.GetJob().GetJobId() != id || !again.GetJob().GetReport().GetDeduplicated() {
		t.Fatalf("%v", again)
	}
}

func TestJobsSurviveARestart(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	a := h.run(&firnpb.ExecuteRequest{Sql: insert})
	b := h.run(&firnpb.ExecuteRequest{Sql: "SELECT 1"})
	c := h.run(&firnpb.ExecuteRequest{Sql: "SELECT 'bad'"})
	h.close()
	h = startIn(t, h.dir, h.catalogs, nil)
	jobs, err := h.client.ListJobs(t.Context(), &firnpb.ListJobsRequest{})
	must(t, err)
	var got []string
	for _, j := range jobs.GetJobs() {
		got = append(got, j.GetJobId()+" "+j.GetState()+" "+j.GetCommit())
	}
	want := []string{c.GetJobId() + " failed none", b.GetJobId() + " succeeded none", a.GetJobId() + " succeeded committed"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("jobs %v, want %v", got, want)
	}
	if st := h.wait(a.GetJobId()); st.GetReport().GetSnapshotId() != a.GetReport().GetSnapshotId() || len(st.GetInlineResult()) == 0 {
		t.Fatalf("%v", st)
	}
	for _, f := range []*firnpb.ListJobsRequest{{Limit: 1}, {State: "failed"}} {
		jobs, err = h.client.ListJobs(t.Context(), f)
		must(t, err)
		if len(jobs.GetJobs()) != 1 || jobs.GetJobs()[0].GetJobId() != c.GetJobId() {
			t.Fatalf("%v: %v", f, jobs)
		}
	}
	_, err = h.client.GetJob(t.Context(), &firnpb.JobRequest{JobId: "j-none"})
	wantCode(t, wire.FromStatus(err), commit.CodeJobNotFound, "j-none")
	_, err = h.client.CancelJob(t.Context(), &firnpb.JobRequest{IdempotencyKey: "none"})
	wantCode(t, wire.FromStatus(err), commit.CodeJobNotFound, "none")
}

func TestLongKeyRefused(t *testing.T) {
	h := start(t, nil)
	_, err := h.execute(&firnpb.ExecuteRequest{Sql: insert, IdempotencyKey: strings.Repeat("k", maxKey+1)})
	wantCode(t, err, commit.CodeBadRequest, "key")
}
