package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

// errDead is what a process that has died gets done.
var errDead = errors.New("the process has died")

// mortal is a journal whose process dies at one of its writes: right before it,
// or right after it and before anybody hears. From then on nothing is written,
// read or sent.
type mortal struct {
	journal.Journal
	mu     sync.Mutex
	writes int
	// dieAt is the number of the write, 0 for none; after says on which side.
	dieAt int
	after bool
	// sweeping: only the writes of sweeps are counted.
	sweeping bool
	died     chan struct{}
	dead     bool
}

func (m *mortal) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

func (m *mortal) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.dead {
		m.dead = true
		close(m.died)
	}
}

// write does one write, unless the process dies.
func (m *mortal) write(f func() error) error { return m.step(false, f) }

// sweep does one write of a sweep.
func (m *mortal) sweep(f func() error) error { return m.step(true, f) }

func (m *mortal) step(sweeps bool, f func() error) error {
	m.mu.Lock()
	if m.dead {
		m.mu.Unlock()
		return errDead
	}
	now := false
	if sweeps || !m.sweeping {
		m.writes++
		now = m.writes == m.dieAt
	}
	m.mu.Unlock()
	if now && !m.after {
		m.die()
		return errDead
	}
	err := f()
	if now {
		m.die()
		return errDead
	}
	return err
}

func (m *mortal) Write(ctx context.Context, b journal.Batch) error {
	if b.Empty() {
		return m.Journal.Write(ctx, b)
	}
	return m.write(func() error { return m.Journal.Write(ctx, b) })
}

func (m *mortal) PutJob(ctx context.Context, j journal.Job) error {
	return m.write(func() error { return m.Journal.PutJob(ctx, j) })
}

func (m *mortal) Seal(ctx context.Context, u journal.Unit, manifest func(io.Writer) error) error {
	return m.write(func() error { return m.Journal.Seal(ctx, u, manifest) })
}

func (m *mortal) Send(ctx context.Context, s journal.Send) error {
	return m.write(func() error { return m.Journal.Send(ctx, s) })
}

func (m *mortal) Outcome(ctx context.Context, id string, o journal.Outcome) error {
	return m.write(func() error { return m.Journal.Outcome(ctx, id, o) })
}

func (m *mortal) StepWrite(ctx context.Context, id string, ev lifecycle.Event, body []byte) (s lifecycle.State, a lifecycle.Answer, err error) {
	err = m.write(func() error {
		s, a, err = m.Journal.StepWrite(ctx, id, ev, body)
		return err
	})
	return s, a, err
}

func (m *mortal) Drop(ctx context.Context, id string) error {
	return m.write(func() error { return m.Journal.Drop(ctx, id) })
}

func (m *mortal) Deleting(ctx context.Context, id string, paths []string, loser bool) error {
	return m.sweep(func() error { return m.Journal.Deleting(ctx, id, paths, loser) })
}

func (m *mortal) Swept(ctx context.Context, id string, last bool) error {
	return m.sweep(func() error { return m.Journal.Swept(ctx, id, last) })
}

func (m *mortal) Building(ctx context.Context, b journal.Build) error {
	return m.write(func() error { return m.Journal.Building(ctx, b) })
}

func (m *mortal) DeletingBuilt(ctx context.Context, b journal.Build, clock commit.Seat, files []commit.MarkedFile) error {
	return m.sweep(func() error { return m.Journal.DeletingBuilt(ctx, b, clock, files) })
}

func (m *mortal) Strip(ctx context.Context, s journal.Stripped) error {
	return m.write(func() error { return m.Journal.Strip(ctx, s) })
}

func (m *mortal) BuildSwept(ctx context.Context, b journal.Build) error {
	return m.sweep(func() error { return m.Journal.BuildSwept(ctx, b) })
}

// mortalTable is a table whose process may be dead.
type mortalTable struct {
	commit.Marked
	m *mortal
}

func (t mortalTable) Read(ctx context.Context) (commit.Metadata, error) {
	if t.m.isDead() {
		return nil, errDead
	}
	return t.Marked.Read(ctx)
}

func (t mortalTable) Send(ctx context.Context, r commit.Request) commit.Answer {
	if t.m.isDead() {
		return commit.Answer{Class: commit.AnswerAmbiguous, Err: errDead}
	}
	return t.Marked.Send(ctx, r)
}

func (t mortalTable) Discard(ctx context.Context, r commit.Request) error {
	if t.m.isDead() {
		return errDead
	}
	return t.Marked.Discard(ctx, r)
}

// mortalCatalogs gives such tables.
type mortalCatalogs struct {
	*fakeCatalogs
	m *mortal
}

func (c mortalCatalogs) OpenTable(ctx context.Context, n commit.TableName) (commit.Table, error) {
	t, err := c.fakeCatalogs.OpenTable(ctx, n)
	return mortalTable{t.(commit.Marked), c.m}, err
}

// crash ends the scheduler as a kill would: nobody hears anything of it, and
// nothing more is on record.
func (h *harness) crash(m *mortal) {
	h.t.Helper()
	m.die()
	h.s.server.Stop()
	must(h.t, h.s.loop.call(h.t.Context(), func() {
		for _, e := range h.s.state.executors {
			e.end()
		}
	}))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = h.s.Close(ctx)
	h.s = nil
}

// startMortal starts a scheduler that dies at one write. addr is where an
// earlier process listened; empty for the first.
func startMortal(t *testing.T, dir, addr string, catalogs *fakeCatalogs, dieAt int, after bool, prepare ...func(*Scheduler)) (*harness, *mortal) {
	t.Helper()
	m := &mortal{dieAt: dieAt, after: after, died: make(chan struct{})}
	h := startIn(t, dir, catalogs, func(c *Config) {
		c.Listen = addr
		c.openJournal = func(ctx context.Context, dir string) (journal.Journal, error) {
			var err error
			m.Journal, err = journal.Open(ctx, dir)
			return m, err
		}
		c.Catalogs = mortalCatalogs{catalogs, m}
		c.ExecutorTimeout = 5 * time.Second
		del := c.DeleteFile
		c.DeleteFile = func(ctx context.Context, st map[string]string, uri string) error {
			if m.isDead() {
				return errDead
			}
			return del(ctx, st, uri)
		}
	}, prepare...)
	return h, m
}

// A scheduler that is killed at any of its writes, before it or right after it,
// and started again: the job ends as the same job under the same key, its rows
// are in the table exactly once, and no file of it was deleted.
func TestKilledAtEveryWrite(t *testing.T) {
	for name, c := range map[string]killed{
		"one stage": {sql: insert, rows: 10 * parts}, "two stages": {sql: "INSERT INTO mem.ns.t SELECT 2", rows: 20},
		"two stages, cut anew": {sql: "INSERT INTO mem.ns.t SELECT 2", rows: 10, planning: PlanningAdaptive},
	} {
		for _, after := range []bool{false, true} {
			for k := 1; ; k++ {
				fired := false
				t.Run(fmt.Sprintf("%s/after=%t/%d", name, after, k), func(t *testing.T) {
					fired = killAt(t, c, k, after, false)
				})
				if !fired || t.Failed() {
					break
				}
			}
		}
	}
}

// The same with executors that die at the same moment.
func TestKilledWithItsExecutor(t *testing.T) {
	for k := 1; ; k++ {
		fired := false
		t.Run(fmt.Sprint(k), func(t *testing.T) { fired = killAt(t, killed{sql: insert, rows: 10 * parts}, k, true, true) })
		if !fired || t.Failed() {
			break
		}
	}
}

// killed is a statement whose scheduler is killed, the rows that it writes, and how
// it is planned.
type killed struct {
	sql      string
	rows     int64
	planning string
}

// killAt runs a statement under a scheduler that dies at write k, and says
// whether it did. The write that registers the executor isn't counted.
func killAt(t *testing.T, c killed, k int, after, executorToo bool) bool {
	catalogs := &fakeCatalogs{table: committest.NewCatalog(committest.Mode{}), planning: c.planning}
	dir := t.TempDir()
	h, m := startMortal(t, dir, "", catalogs, 0, after)
	addr := h.s.Addr()
	e := startExecutor(t, h.s, executorOptions{id: "e1", slots: 4})
	must(t, h.s.scribe.record(t.Context(), journal.Batch{}))
	m.mu.Lock()
	m.writes, m.dieAt = 0, k
	m.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan *firnpb.JobStatus, 1)
	go func() {
		resp, err := h.client.Execute(ctx, &firnpb.ExecuteRequest{ProtocolVersion: wire.ProtocolVersion, Sql: c.sql, IdempotencyKey: "k"})
		if err != nil {
			return
		}
		stream, err := h.client.WatchJob(ctx, &firnpb.JobRequest{JobId: resp.GetJob().GetJobId()})
		if err != nil {
			return
		}
		for {
			st, err := stream.Recv()
			if err != nil {
				return
			}
			if endedState(st.GetState()) {
				ended <- st
				return
			}
		}
	}()
	id := ""
	select {
	case <-m.died:
		h.crash(m)
		jobs := journalJobs(t, dir)
		if len(jobs) > 0 {
			id = jobs[0].ID
		}
		if executorToo {
			e.kill()
		}
		h, _ = startMortal(t, dir, addr, catalogs, 0, false)
		if executorToo {
			startExecutor(t, h.s, executorOptions{id: "e1", slots: 4})
		}
	case st := <-ended:
		wantState(t, st, graph.Succeeded, commit.CommitCommitted)
		return false
	case <-time.After(20 * time.Second):
		t.Fatal("neither an end nor the fault")
	}
	st := h.run(&firnpb.ExecuteRequest{Sql: c.sql, IdempotencyKey: "k"})
	wantState(t, st, graph.Succeeded, commit.CommitCommitted)
	if id != "" && st.GetJobId() != id {
		t.Errorf("job %s became %s", id, st.GetJobId())
	}
	want := c.rows
	if rows := catalogs.table.Rows("main"); catalogs.table.Applied() != 1 || rows != want || st.GetReport().GetRows() != want {
		t.Errorf("%d commits, %d rows in the table, report %v", catalogs.table.Applied(), rows, st.GetReport())
	}
	h.s.sweeper.requests(t.Context(), false)
	if files := catalogs.table.MetadataFiles(); len(files) != 1 {
		t.Errorf("metadata files %v for one commit", files)
	}
	h.close()
	catalogs.set(func() {
		if len(catalogs.deleted) > 0 {
			t.Errorf("deleted %v", catalogs.deleted)
		}
	})
	return true
}

// journalJobs is what a journal has when no process holds it.
func journalJobs(t *testing.T, dir string) []journal.Job {
	t.Helper()
	j, err := journal.Open(t.Context(), dir)
	must(t, err)
	defer func() { must(t, j.Close()) }()
	jobs, err := j.Jobs(t.Context(), journal.Filter{})
	must(t, err)
	return jobs
}

// What ran on an executor while the scheduler was away goes on, and what it had
// finished isn't run again.
func TestAttemptsOutliveTheScheduler(t *testing.T) {
	catalogs := &fakeCatalogs{table: committest.NewCatalog(committest.Mode{})}
	dir := t.TempDir()
	h, m := startMortal(t, dir, "", catalogs, 0, false)
	addr := h.s.Addr()
	release := make(chan struct{})
	var e *fakeExecutor
	e = startExecutor(t, h.s, executorOptions{id: "e1", slots: parts, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		if d.GetTask() == 0 {
			<-release
		}
		return e.succeed(d, n)
	}})
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	h.waitUntil(id, func(st *firnpb.JobStatus) bool {
		return len(st.GetStages()) > 0 && st.GetStages()[0].GetTasksDone() == parts-1
	})
	must(t, h.s.scribe.record(t.Context(), journal.Batch{}))
	h.crash(m)
	close(release)
	h, _ = startMortal(t, dir, addr, catalogs, 0, false)
	wantState(t, h.wait(id), graph.Succeeded, commit.CommitCommitted)
	if len(e.launched) != parts {
		t.Errorf("%d attempts were started for %d tasks", len(e.launched), parts)
	}
}
