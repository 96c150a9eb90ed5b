package scenarios_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/integration/restcatalog"
)

// The tests here are the traces of docs/explanation/proven.md that concern
// catalogs, against a REST catalog with faults. Package commit has each over the
// step functions alone.

// soon is a deadline of commits that a test can wait for.
const soon = 2 * time.Second

var (
	// late arrives when the test says so; its sender hears nothing.
	late = restcatalog.Fault{Arrives: restcatalog.Late, Cut: restcatalog.Reply, After: time.Hour}
	// lost never arrives.
	lost = restcatalog.Fault{Arrives: restcatalog.Never, Cut: restcatalog.Reply}
)

// meet lets the commit requests from now on meet the faults, one each, and those
// after them the last one.
func (l *lab) meet(faults ...restcatalog.Fault) {
	for i := range faults {
		faults[i].Name = "fault"
	}
	l.proxy.Begin(func(c restcatalog.Class, n int) *restcatalog.Fault {
		if c != restcatalog.Commit {
			return nil
		}
		return &faults[min(n, len(faults))-1]
	})
}

// apply changes the table as another tool does.
func (l *lab) apply(updates ...table.Update) {
	if err := l.server.Apply(l.t.Context(), ident, updates...); err != nil {
		l.t.Error(err)
	}
}

// head is the id of main's snapshot.
func (l *lab) head() int64 { return l.table().CurrentSnapshot().SnapshotID }

// setHead moves main, as a rollback or set_current_snapshot does.
func (l *lab) setHead(id int64) {
	l.apply(table.NewSetSnapshotRefUpdate(commit.MainBranch, id, table.BranchRef, 0, 0, 0))
}

// foreign appends the next id as another writer.
func (l *lab) foreign() {
	id := l.next
	l.next++
	if err := restcatalog.Change(l.t.Context(), l.server.URL, ident, restcatalog.Append(id)); err != nil {
		l.t.Error(err)
	}
}

// expire removes all snapshots but the head.
func (l *lab) expire() {
	var old []int64
	for _, s := range l.table().Metadata().Snapshots() {
		if s.SnapshotID != l.head() {
			old = append(old, s.SnapshotID)
		}
	}
	l.apply(table.NewRemoveSnapshotsUpdate(old, false))
}

// forget is the loss of the journal, and a new scheduler.
func (l *lab) forget() {
	l.stop()
	if err := os.RemoveAll(filepath.Join(l.dir, "cluster")); err != nil {
		l.t.Fatal(err)
	}
	l.start()
}

// submit starts an insert of n rows.
func (l *lab) submit(key string, n int) *client.Job {
	l.t.Helper()
	res, err := l.client.Execute(l.t.Context(), client.Statement{SQL: l.statement(n), Key: key})
	if err != nil {
		l.t.Fatal(err)
	}
	return res.Job
}

// await waits until the job's commit is in a state.
func (l *lab) await(j *client.Job, want commit.CommitState) client.JobStatus {
	l.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		st, err := l.client.Job(j.ID()).Status(l.t.Context())
		if err != nil {
			l.t.Fatal(err)
		}
		if st.Commit == want {
			return st
		}
		if st.State.Ended() {
			l.t.Fatalf("commit %s, %v; want %s", st.Commit, st.Err, want)
		}
	}
	panic("unreachable")
}

// resolve finds out what became of a job's commit, once the job itself has
// given up.
func (l *lab) resolve(j *client.Job, want commit.CommitState) client.JobStatus {
	l.t.Helper()
	sent := l.proxy.Requests()[restcatalog.Commit]
	st, err := l.client.ResolveUnit(l.t.Context(), j.ID())
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; commit.CodeOf(err) == commit.CodeUnitNotDrivable && i < 500; i++ {
		<-tick.C
		st, err = l.client.ResolveUnit(l.t.Context(), j.ID())
	}
	if err != nil || st.Commit != want {
		l.t.Errorf("resolved as %s, %v; want %s", st.Commit, err, want)
	}
	if now := l.proxy.Requests()[restcatalog.Commit]; now != sent {
		l.t.Errorf("finding out sent %d commit requests", now-sent)
	}
	return st
}

// A 4xx speaks for its own copy: while another is under way the outcome is
// unknown, and what lands is found.
func TestA1_A4xxSpeaksForOneCopyOverREST(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity} {
		l := newLabOf(t, "", restcatalog.Lies{}, soon)
		l.meet(late, restcatalog.Fault{Arrives: restcatalog.Never, Status: status})
		j := l.submit("k", 5)
		l.await(j, commit.CommitUnknown)
		l.fired()
		l.resolve(j, commit.CommitUnknown)
		l.proxy.Flush()
		l.resolve(j, commit.CommitCommitted)
		if n := snapshots(l.holds(5)); n != 1 {
			t.Errorf("%d: %d snapshots", status, n)
		}
		l.stop()
	}
}

// Landed, and rolled back before anybody was told: committed, and not again.
func TestA2_LandedThenRolledBackOverREST(t *testing.T) {
	for name, after := range map[string]func(*lab){"alone": func(*lab) {}, "then another commit": (*lab).foreign} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "")
			l.must("first", 3)
			old := l.head()
			l.meet(restcatalog.Fault{Cut: restcatalog.Reply, Landed: func() {
				l.setHead(old)
				l.next = 3 // the rows that were rolled back aren't there
				after(l)
			}}, restcatalog.Fault{})
			st, err := l.run("k", "INSERT INTO lake.s.t SELECT i AS id, 'w' AS w FROM range(100, 105) r(i)")
			l.fired()
			if err != nil || st.Commit != commit.CommitCommitted || !st.Report.RolledBack || st.Report.Attempts != 1 {
				t.Errorf("commit %s, %+v, %v", st.Commit, st.Report, err)
			}
			l.holds(l.next)
		})
	}
}

// The head goes back and comes again while a request is on its way.
func TestA3_HeadsComeBackOverREST(t *testing.T) {
	l := newLab(t, "")
	l.must("a", 1)
	s0 := l.head()
	l.must("b", 1)
	s1 := l.head()
	first := late
	first.Before = func() { l.setHead(s0) }
	l.meet(first, restcatalog.Fault{Before: func() { l.setHead(s1); l.proxy.Flush() }}, restcatalog.Fault{})
	l.must("c", 5)
	l.fired()
	if n := snapshots(l.holds(7)); n != 3 {
		t.Errorf("%d snapshots with rows, want 3", n)
	}
}

// A catalog that shows heads without parents: the ledger knows what landed.
func TestA4_ACatalogWithoutHistoryOverREST(t *testing.T) {
	l := newLabOf(t, "", restcatalog.Lies{HeadOnly: true}, 0)
	l.meet(restcatalog.Fault{Cut: restcatalog.Reply, Landed: l.foreign}, restcatalog.Fault{})
	st := l.must("k", 5)
	l.fired()
	if st.Report.Attempts != 1 {
		t.Errorf("%d attempts", st.Report.Attempts)
	}
	l.holds(6)
}

// A catalog that loses what Firn writes beside the rows: one copy, found by its
// snapshot. It counts, and nothing more is committed to the table, by the next
// scheduler neither, until an operator says so.
func TestA5_StrippedTokensOverREST(t *testing.T) {
	l := newLabOf(t, "", restcatalog.Lies{KeepsAtMost: 30}, 0)
	first := "INSERT INTO lake.s.t SELECT i AS id, 'w' AS w FROM range(0, 5) r(i)"
	l.next = 5
	if st, err := l.run("k", first); err != nil || st.Report.Attempts != 1 {
		t.Errorf("%+v, %v", st.Report, err)
	}
	refused := func(key string) {
		t.Helper()
		sent := l.proxy.Requests()[restcatalog.Commit]
		_, err := l.run(key, "INSERT INTO lake.s.t VALUES (99, 'w')")
		if commit.CodeOf(err) != commit.CodeTokensStripped || l.proxy.Requests()[restcatalog.Commit] != sent {
			t.Errorf("%s: %v, %d requests", key, err, l.proxy.Requests()[restcatalog.Commit]-sent)
		}
	}
	refused("second")
	l.stop()
	l.start()
	refused("third")
	if st, err := l.run("k", first); err != nil || !st.Report.Deduplicated {
		t.Errorf("the first key again: %+v, %v", st.Report, err)
	}
	if d, err := l.client.DescribeTable(t.Context(), "lake.s.t"); err != nil || !strings.Contains(d.RefusesCommits, "without the token") {
		t.Errorf("described as %q, %v", d.RefusesCommits, err)
	}
	l.server.Lie(restcatalog.Lies{})
	refused("fourth")
	if d, err := l.client.AllowCommits(t.Context(), "lake.s.t"); err != nil || d.RefusesCommits != "" {
		t.Errorf("allowed: %q, %v", d.RefusesCommits, err)
	}
	l.must("fifth", 1)
	if n := snapshots(l.holds(6)); n != 2 {
		t.Errorf("%d snapshots", n)
	}
}

// The same, found out later: the commit was told as unknown, and lands.
func TestA5_StrippedTokensFoundOutLaterOverREST(t *testing.T) {
	l := newLabOf(t, "", restcatalog.Lies{KeepsAtMost: 30}, soon)
	l.meet(late, lost)
	j := l.submit("k", 5)
	l.await(j, commit.CommitUnknown)
	l.proxy.Flush()
	l.resolve(j, commit.CommitCommitted)
	if _, err := l.insert("second", 1); commit.CodeOf(err) != commit.CodeTokensStripped {
		t.Errorf("second: %v", err)
	}
	l.holds(5)
}

// A request that was sent counts as under way for the next scheduler too, which
// only finds out: unknown until somebody takes the seat, and refused then.
func TestA6_RecordedSendsOverREST(t *testing.T) {
	l := newLabOf(t, "", restcatalog.Lies{}, soon)
	l.meet(late, lost)
	j := l.submit("k", 5)
	l.await(j, commit.CommitUnknown)
	l.stop()
	l.start()
	l.meet(restcatalog.Fault{})
	fields := l.table().Schema().Fields()
	l.apply(table.NewAddSchemaUpdate(ice.NewSchema(1, fields[0])), table.NewSetCurrentSchemaUpdate(1))
	l.resolve(j, commit.CommitUnknown) // the column is gone, and may come back
	l.next = 0
	l.foreign()
	l.resolve(j, commit.CommitRefused)
	l.holds(1) // and what was late has arrived
}

// A key comes again when its snapshot has expired and the journal is lost.
func TestA8_ExpiredUnderTheSameKeyOverREST(t *testing.T) {
	l := newLab(t, "")
	l.must("k", 5)
	l.foreign()
	l.expire()
	l.forget()
	st, err := l.run("k", "INSERT INTO lake.s.t SELECT i AS id, 'w' AS w FROM range(0, 5) r(i)")
	if err != nil || st.Report == nil || !st.Report.Deduplicated {
		t.Errorf("%+v, %v", st.Report, err)
	}
	l.holds(6)
}

// ALTER TABLE doesn't move the head, and a request asserts the schema.
func TestA11_ColumnAddedAtTheCommitOverREST(t *testing.T) {
	l := newLab(t, "")
	l.meet(restcatalog.Fault{Before: func() {
		fields := append(slices.Clone(l.table().Schema().Fields()), ice.NestedField{ID: 3, Name: "x", Type: ice.PrimitiveTypes.String})
		l.apply(table.NewAddSchemaUpdate(ice.NewSchema(1, fields...)), table.NewSetCurrentSchemaUpdate(1))
	}}, restcatalog.Fault{})
	if st := l.must("k", 5); st.Report.Attempts != 2 {
		t.Errorf("%d attempts, want a second request", st.Report.Attempts)
	}
	l.holds(5)
}

// The journal is lost with a request under way. The same key builds again, and of
// the two requests one lands.
func TestA13_AJournalThatLostItsSendsOverREST(t *testing.T) {
	l := newLabOf(t, "", restcatalog.Lies{}, soon)
	l.meet(late, lost)
	l.await(l.submit("k", 5), commit.CommitUnknown)
	l.forget()
	l.meet(restcatalog.Fault{})
	l.next = 0
	l.must("k", 5)
	if n := snapshots(l.holds(5)); n != 1 {
		t.Errorf("%d snapshots", n)
	}
}

// A table without any snapshot, of another tool: its first request has no seat.
// It is never told as refused after silence, and a retry commits.
func TestB2_NullParentsOverREST(t *testing.T) {
	l := newLabOf(t, "", restcatalog.Lies{}, soon)
	if err := l.server.Empty(t.Context(), "s", "t"); err != nil {
		t.Fatal(err)
	}
	l.meet(late, restcatalog.Fault{Arrives: restcatalog.Never, Status: http.StatusForbidden})
	j := l.submit("k", 5)
	l.await(j, commit.CommitUnknown)
	l.foreign()
	l.resolve(j, commit.CommitUnknown)
	l.meet(restcatalog.Fault{})
	if st, err := l.client.RetryUnit(t.Context(), j.ID(), ""); err != nil || st.Commit != commit.CommitCommitted {
		t.Errorf("commit %s, %v", st.Commit, err)
	}
	l.holds(6)
}

// A commit on another branch takes the seat, and some say 400 to that.
func TestC1_NoFalseRefusalsOverREST(t *testing.T) {
	for name, lies := range map[string]restcatalog.Lies{"409": {}, "400": {ConflictStatus: http.StatusBadRequest}} {
		t.Run(name, func(t *testing.T) {
			l := newLabOf(t, "", lies, 0)
			l.must("a", 1)
			l.meet(restcatalog.Fault{Before: func() {
				s := *l.table().CurrentSnapshot()
				parent := s.SnapshotID
				s.SnapshotID, s.ParentSnapshotID, s.SequenceNumber = parent/2+1, &parent, s.SequenceNumber+1
				s.Summary = &table.Summary{Operation: table.OpAppend}
				l.apply(table.NewAddSnapshotUpdate(&s), table.NewSetSnapshotRefUpdate("other", s.SnapshotID, table.BranchRef, 0, 0, 0))
			}}, restcatalog.Fault{})
			if st := l.must("b", 5); st.Report.Attempts != 2 || st.Report.Conflicts != 1 {
				t.Errorf("%+v", st.Report)
			}
			l.holds(6)
		})
	}
}

// Catalogs in use have answered a conflict with 200, as if the commit were done, and
// with 400 and 500. What the table shows decides: the rows are there once, and the
// other writer's commit is kept.
func TestWrongAnswersToAConflictOverREST(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusBadRequest, http.StatusInternalServerError} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			l := newLabOf(t, "", restcatalog.Lies{ConflictStatus: status}, 0)
			l.must("a", 1)
			l.meet(restcatalog.Fault{Before: l.foreign}, restcatalog.Fault{})
			if st := l.must("b", 5); st.Report.Attempts != 2 || st.Report.Conflicts != 1 {
				t.Errorf("%+v", st.Report)
			}
			l.holds(7)
		})
	}
}

// A 409 with the head where it was is nobody's conflict.
func TestC2_A409ForNothingOverREST(t *testing.T) {
	l := newLab(t, "")
	busy := restcatalog.Fault{Arrives: restcatalog.Never, Status: http.StatusConflict}
	l.meet(busy, busy, restcatalog.Fault{})
	if st := l.must("k", 5); st.Report.Attempts != 3 || st.Report.Conflicts != 0 {
		t.Errorf("%+v", st.Report)
	}
	l.holds(5)
}

// The refusal of a batch is nobody's outcome.
func TestC3_ARefusedBatchIsSplitOverREST(t *testing.T) {
	l := newLab(t, "")
	here, all := make(chan struct{}), make(chan struct{})
	l.meet(restcatalog.Fault{Before: func() { close(here); <-all }},
		restcatalog.Fault{Arrives: restcatalog.Never, Status: http.StatusRequestEntityTooLarge}, restcatalog.Fault{})
	first := l.submit("first", 1)
	<-here
	go func() {
		defer close(all)
		l.gathered(6)
	}()
	if failed := l.many(5); len(failed) > 0 {
		t.Errorf("%d failed: %v", len(failed), failed[0])
	}
	if _, err := first.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	l.holds(6)
}

// A parked unit blocks nobody, and whoever passes it settles it.
func TestC5_AParkedUnitBlocksNobodyOverREST(t *testing.T) {
	l := newLabOf(t, "", restcatalog.Lies{}, soon)
	l.meet(late, lost)
	j := l.submit("k", 5)
	l.await(j, commit.CommitUnknown)
	l.next = 0
	l.meet(restcatalog.Fault{})
	l.must("other", 3)
	l.resolve(j, commit.CommitRefused)
	l.holds(3)
}

// A catalog that takes commit requests and never answers. The outcome is told as
// unknown; a fence settles it, and what comes late doesn't land.
func TestFenceOverREST(t *testing.T) {
	l := newLabOf(t, "", restcatalog.Lies{}, soon)
	silent, end := late, make(chan struct{})
	silent.Landed = func() { <-end }
	l.meet(silent, silent)
	j := l.submit("k", 5)
	l.await(j, commit.CommitUnknown)
	close(end)
	l.meet(restcatalog.Fault{})
	l.resolve(j, commit.CommitUnknown)
	st, err := l.client.FenceUnit(t.Context(), j.ID())
	if err != nil || st.Commit != commit.CommitRefused {
		t.Errorf("after the fence: %s, %v", st.Commit, err)
	}
	if _, err := j.Wait(t.Context()); commit.ReasonOf(err) != commit.ReasonBudget {
		t.Errorf("told as %v", err)
	}
	l.holds(0)
}
