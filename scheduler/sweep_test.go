package scheduler

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
)

// listed is a store that has these files below every prefix, until they are
// deleted.
func (c *fakeCatalogs) listed(names ...string) func(*Scheduler) {
	return func(s *Scheduler) {
		s.cfg.ListPrefix = func(_ context.Context, _ map[string]string, prefix string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				for _, name := range names {
					gone := false
					c.set(func() { gone = slices.Contains(c.deleted, prefix+name) })
					if !gone && !yield(prefix+name, nil) {
						return
					}
				}
			}
		}
	}
}

// swept waits until nothing is left to sweep.
func (h *harness) swept() {
	h.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		jobs, err := h.s.journal.Sweeps(h.t.Context())
		must(h.t, err)
		if len(jobs) == 0 {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("not swept: %v", jobs)
		}
		h.s.sweeper.soon()
		<-time.After(5 * time.Millisecond)
	}
}

// A scheduler that is killed at any write of a sweep, before it or right after it,
// and started again, sweeps the rest: each file is deleted, and nothing else is.
func TestKilledAtEveryWriteOfASweep(t *testing.T) {
	for _, after := range []bool{false, true} {
		for k := 1; ; k++ {
			fired := false
			t.Run(fmt.Sprintf("after=%t/%d", after, k), func(t *testing.T) { fired = killSweepAt(t, k, after) })
			if !fired || t.Failed() {
				break
			}
		}
	}
}

func killSweepAt(t *testing.T, k int, after bool) bool {
	catalogs := &fakeCatalogs{table: committest.NewCatalog(committest.Mode{})}
	dir := t.TempDir()
	files := catalogs.listed("a.parquet", "b.parquet")
	soon := func(s *Scheduler) { s.cfg.ExecutorTimeout, s.cfg.SweepDelay = 300*time.Millisecond, time.Millisecond }
	h, m := startMortal(t, dir, "", catalogs, 0, after, files, soon)
	addr := h.s.Addr()
	m.mu.Lock()
	m.sweeping, m.dieAt = true, k
	m.mu.Unlock()
	startExecutor(t, h.s, executorOptions{id: "e1", slots: parts})
	st := h.run(&firnpb.ExecuteRequest{Sql: insert, DryRun: true})
	wantState(t, st, graph.Succeeded, commit.CommitNone)
	swept := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(swept)
		for !m.isDead() {
			if jobs, err := h.s.journal.Sweeps(context.Background()); err == nil && len(jobs) == 0 {
				return
			}
			select {
			case <-time.After(5 * time.Millisecond):
				h.s.sweeper.soon()
			case <-stop:
				return
			}
		}
	}()
	fired := false
	select {
	case <-m.died:
		fired = true
		<-swept
		h.crash(m)
		h, _ = startMortal(t, dir, addr, catalogs, 0, false, files, soon)
	case <-swept:
		fired = m.isDead()
	case <-time.After(20 * time.Second):
		close(stop)
		t.Fatal("neither an end nor the fault")
	}
	if h.s != nil && !m.isDead() || fired {
		h.swept()
	}
	catalogs.set(func() {
		slices.Sort(catalogs.deleted)
		got := slices.Compact(catalogs.deleted)
		prefix := "mem://t/data/" + st.GetJobId() + "/"
		if !slices.Equal(got, []string{prefix + "a.parquet", prefix + "b.parquet"}) {
			t.Errorf("deleted %v", got)
		}
	})
	return fired
}

// An executor that was thought lost writes one more file after the job's files
// were swept: the second sweep, when it can't write any more, finds it.
func TestAZombieWritesBetweenTheSweeps(t *testing.T) {
	catalogs := &fakeCatalogs{table: committest.NewCatalog(committest.Mode{})}
	late := false
	h := startIn(t, t.TempDir(), catalogs, func(c *Config) {
		c.ExecutorTimeout, c.SweepDelay = time.Second, 200*time.Millisecond
		c.ListPrefix = func(_ context.Context, _ map[string]string, prefix string) iter.Seq2[string, error] {
			name := "first.parquet"
			catalogs.set(func() {
				if late {
					name = "late.parquet"
				}
			})
			return func(yield func(string, error) bool) { yield(prefix+name, nil) }
		}
	})
	startExecutor(t, h.s, executorOptions{id: "e1", slots: parts})
	id := h.run(&firnpb.ExecuteRequest{Sql: insert, DryRun: true}).GetJobId()
	h.wantDeleted(id + "/first.parquet")
	catalogs.set(func() { late = true })
	if jobs, err := h.s.journal.Sweeps(t.Context()); err != nil || len(jobs) != 1 {
		t.Fatalf("no second sweep is due: %v, %v", jobs, err)
	}
	h.wantDeleted(id + "/late.parquet")
	h.swept()
}

// What a process built and never sent is deleted by the next one, twice, and then
// forgotten; not while it runs, and not what it sent or the table refers to.
func TestFilesOfUnsentRequests(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1", slots: parts})
	wantState(t, h.run(&firnpb.ExecuteRequest{Sql: insert}), graph.Succeeded, commit.CommitCommitted)
	build := func(s *Scheduler) {
		t.Helper()
		table, err := s.openMarked(t.Context(), committest.Name)
		must(t, err)
		m, err := table.Read(t.Context())
		must(t, err)
		_, err = table.Build(t.Context(), m, []commit.Unit{{Token: commit.Token{1}, Table: committest.Name, TableUUID: m.UUID(), Branch: commit.MainBranch}})
		must(t, err)
		must(t, table.Close())
	}
	orphans := func(remove bool) []*firnpb.OrphanFiles {
		t.Helper()
		resp, err := h.client.Orphans(t.Context(), &firnpb.OrphansRequest{Table: "mem.ns.t", Delete: remove})
		must(t, err)
		return resp.GetJobs()
	}
	want := func(n int) {
		t.Helper()
		if files := h.catalogs.table.MetadataFiles(); len(files) != n {
			t.Fatalf("metadata files %v, want %d", files, n)
		}
	}
	build(h.s)
	h.s.sweeper.requests(t.Context(), false)
	if o := orphans(true); len(o) != 1 || o[0].GetKept() == "" || len(o[0].GetFiles()) != 1 || o[0].GetDeleted() {
		t.Fatalf("of a process that runs: %v", o)
	}
	want(2)
	h.close()
	h = startIn(t, h.dir, h.catalogs, func(c *Config) { c.DeleteFile = nil })
	want(2)
	h.close()
	h = startIn(t, h.dir, h.catalogs, nil)
	until := func(what string, done func([]journal.Build) bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; {
			b, err := h.s.journal.Builds(t.Context())
			must(t, err)
			if done(b) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v", what, b)
			}
			<-time.After(time.Millisecond)
		}
	}
	until("not swept", func(b []journal.Build) bool { return len(b) == 1 && h.s.sweeper.tried(buildKey(b[0])) })
	want(1)
	// The first process was only stalled: it writes once more.
	b, err := h.s.journal.Builds(t.Context())
	must(t, err)
	stale, err := h.catalogs.OpenTable(t.Context(), committest.Name)
	must(t, err)
	stale.(commit.Marked).Mark(b[0].Mark, func(context.Context, string, string) error { return nil })
	m, err := stale.Read(t.Context())
	must(t, err)
	_, err = stale.Build(t.Context(), m, []commit.Unit{{Token: commit.Token{1}, Table: committest.Name, TableUUID: m.UUID(), Branch: commit.MainBranch}})
	must(t, err)
	want(2)
	if o := orphans(false); len(o) != 1 || o[0].GetWhy() == "" || len(o[0].GetFiles()) != 1 {
		t.Fatalf("of a process that is gone: %v", o)
	}
	h.close()
	h = startIn(t, h.dir, h.catalogs, func(c *Config) { c.SweepDelay = time.Nanosecond })
	until("not forgotten", func(b []journal.Build) bool { return len(b) == 0 })
	want(1)
}
