package committest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
)

// Harness is what a driver's test brings to the conformance suite: one table,
// fresh for each test, and everything that others may do to it.
type Harness interface {
	// Open opens the table as a process of its own would. The suite closes
	// what it opens.
	Open(t testing.TB) commit.Table
	// Unit makes a commit unit of the given number of real data files with
	// rows rows each, written for the table as it is now. The same key gives
	// the same token and other files.
	Unit(t testing.TB, key string, files, rows int) commit.Unit
	// Rows counts the rows of the main branch, not through the driver.
	Rows(t testing.TB) int64
	// Exists says whether a file of the table is there.
	Exists(t testing.TB, path string) bool
	// Foreign appends one row as another writer, which knows nothing of Firn.
	Foreign(t testing.TB)
	// AddColumn adds an optional column, ChangeSpec makes a new default
	// partition spec.
	AddColumn(t testing.TB)
	ChangeSpec(t testing.TB)
	// Drop drops the table, Recreate makes a new one of its name.
	Drop(t testing.TB)
	Recreate(t testing.TB)
}

// Rollbacker is a Harness whose table can be rolled back.
type Rollbacker interface {
	// Rollback sets the main branch to its head's parent.
	Rollback(t testing.TB)
}

// Run is the conformance suite. open makes a fresh table for each test.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, h Harness)
	}{
		{"Append", testAppend},
		{"FoundByToken", testFoundByToken},
		{"OtherSubmission", testOtherSubmission},
		{"Batch", testBatch},
		{"ConflictIsBuiltAgain", testConflict},
		{"StaleRequestRefused", testStaleRequest},
		{"SameSeatLandsOnce", testSameSeat},
		{"SentTwiceLandsOnce", testSentTwice},
		{"TableDropped", testDropped},
		{"TableRecreated", testRecreated},
		{"RequestMeetsRecreatedTable", testRequestMeetsRecreated},
		{"ColumnAdded", testColumnAdded},
		{"RequestMeetsAddedColumn", testRequestMeetsColumn},
		{"SpecChanged", testSpecChanged},
		{"EmptyUnit", testEmpty},
		{"LargeUnit", testLarge},
		{"DiscardDeletesItsOwn", testDiscard},
		{"ReadIsOneMoment", testImmutable},
		{"RolledBack", testRolledBack},
		{"CancelledContext", testContext},
		{"Sight", testSight},
		{"LedgerOfABatch", testLedger},
		{"AddedFiles", testAddedFiles},
		{"Fence", testFence},
		{"FenceFindsWhatLanded", testFenceFinds},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

func openTable(t *testing.T, h Harness) commit.Table {
	t.Helper()
	table := h.Open(t)
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return table
}

// opts keeps the suite's waits short; Drive's clock doesn't sleep anyway.
func opts() commit.Options {
	return commit.Options{Deadline: Epoch.Add(time.Minute), Seed: 1}
}

func driveOne(t *testing.T, table commit.Table, u commit.Unit) commit.Outcome {
	t.Helper()
	o, ok := Drive(table, []commit.Unit{u}, opts())[u.Token]
	if !ok {
		t.Fatal("the machine ended without an outcome")
	}
	return o
}

func mustCommit(t *testing.T, table commit.Table, u commit.Unit) commit.Outcome {
	t.Helper()
	o := driveOne(t, table, u)
	if o.State != commit.Committed {
		t.Fatalf("outcome %s: %v", OutcomeText(o), o.Err)
	}
	return o
}

func read(t *testing.T, table commit.Table) commit.Metadata {
	t.Helper()
	m, err := table.Read(context.Background())
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return m
}

func build(t *testing.T, table commit.Table, units ...commit.Unit) commit.Request {
	t.Helper()
	r, err := table.Build(context.Background(), read(t, table), units)
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	return r
}

func wantRows(t *testing.T, h Harness, want int64) {
	t.Helper()
	if got := h.Rows(t); got != want {
		t.Errorf("the table has %d rows, want %d", got, want)
	}
}

// wantRefusedAnswer: the request must not have been applied, and the driver
// must say so in a class that isn't success or silence.
func wantRefusedAnswer(t *testing.T, a commit.Answer) {
	t.Helper()
	if a.Class == commit.AnswerOK || a.Class == commit.AnswerAmbiguous || a.Err == nil {
		t.Errorf("answer %q (%v), want a refusal with its text", a.Class, a.Err)
	}
}

func testAppend(t *testing.T, h Harness) {
	table := openTable(t, h)
	before := read(t, table)
	u := h.Unit(t, "k", 2, 3)
	o := mustCommit(t, table, u)
	if o.Attempts != 1 || o.Conflicts != 0 || o.Deduplicated || o.RolledBack || o.TokenStripped {
		t.Errorf("outcome %s", OutcomeText(o))
	}
	if o.Landed.Rows != 6 || o.Landed.Files != 2 || o.Landed.Bytes != u.Bytes || o.Landed.Digest != u.Digest || !o.Landed.InHead || o.Landed.CommittedAt.IsZero() {
		t.Errorf("the table shows %+v", o.Landed)
	}
	after := read(t, table)
	if after.Head(commit.MainBranch) != o.Landed.SnapshotID || !after.HasSnapshot(o.Landed.SnapshotID) {
		t.Errorf("head %q, want the commit's snapshot %q", after.Head(commit.MainBranch), o.Landed.SnapshotID)
	}
	if after.Clock().Number <= before.Clock().Number && after.Clock().Pointer == before.Clock().Pointer {
		t.Errorf("the clock stands still: %+v", after.Clock())
	}
	if after.UUID() != u.TableUUID {
		t.Errorf("UUID %q, want %q", after.UUID(), u.TableUUID)
	}
	wantRows(t, h, 6)
}

func testFoundByToken(t *testing.T, h Harness) {
	u := h.Unit(t, "k", 1, 5)
	first := mustCommit(t, openTable(t, h), u)
	h.Foreign(t)
	again := mustCommit(t, openTable(t, h), u)
	if !again.Deduplicated || again.OtherSubmission || again.Attempts != 0 || again.Landed.SnapshotID != first.Landed.SnapshotID {
		t.Errorf("outcome %s, want the first commit %s", OutcomeText(again), first.Landed.SnapshotID)
	}
	if again.Landed.Rows != 5 || again.Landed.Files != 1 || again.Landed.Bytes != u.Bytes {
		t.Errorf("the numbers kept beside the token: %+v", again.Landed)
	}
	wantRows(t, h, 6)
}

func testOtherSubmission(t *testing.T, h Harness) {
	table := openTable(t, h)
	mustCommit(t, table, h.Unit(t, "k", 1, 5))
	other := h.Unit(t, "k", 1, 7)
	o := mustCommit(t, table, other)
	if !o.OtherSubmission || !o.Deduplicated || o.Landed.Rows != 5 {
		t.Errorf("outcome %s with %d rows, want the other submission's 5", OutcomeText(o), o.Landed.Rows)
	}
	for _, f := range other.Files.All() {
		if !h.Exists(t, f.Path) {
			t.Errorf("the driver deleted the data file %s", f.Path)
		}
	}
	wantRows(t, h, 5)
}

func testBatch(t *testing.T, h Harness) {
	table := openTable(t, h)
	a, b := h.Unit(t, "a", 1, 2), h.Unit(t, "b", 2, 3)
	out := Drive(table, []commit.Unit{a, b}, opts())
	oa, ob := out[a.Token], out[b.Token]
	if oa.State != commit.Committed || ob.State != commit.Committed || oa.Landed.SnapshotID != ob.Landed.SnapshotID {
		t.Fatalf("outcomes %s (%v) and %s (%v), want one snapshot", OutcomeText(oa), oa.Err, OutcomeText(ob), ob.Err)
	}
	if oa.Landed.Rows != 2 || ob.Landed.Rows != 6 || ob.Landed.Files != 2 {
		t.Errorf("each unit keeps its own numbers; got %+v and %+v", oa.Landed, ob.Landed)
	}
	wantRows(t, h, 8)
}

func testConflict(t *testing.T, h Harness) {
	table := openTable(t, h)
	u := h.Unit(t, "k", 1, 2)
	r := NewRunner(table, commit.NewMachine([]commit.Unit{u}, opts()))
	foreign := 2
	r.Each = func(a commit.Action) []commit.Event {
		if _, ok := a.(commit.Send); ok && foreign > 0 {
			foreign--
			h.Foreign(t)
		}
		return nil
	}
	for r.Step() {
	}
	if o := r.Outcomes[u.Token]; o.State != commit.Committed || o.Attempts != 3 || o.Conflicts != 2 {
		t.Errorf("outcome %s (%v)\n%v", OutcomeText(o), o.Err, r.Trace)
	}
	wantRows(t, h, 4)
}

func testStaleRequest(t *testing.T, h Harness) {
	table := openTable(t, h)
	r := build(t, table, h.Unit(t, "k", 1, 2))
	h.Foreign(t)
	wantRefusedAnswer(t, table.Send(context.Background(), r))
	m := read(t, table)
	if m.HasSnapshot(r.SnapshotID) {
		t.Error("a request on a stale head was applied")
	}
	if !passed(r.Seat, m.Clock()) {
		t.Errorf("the seat %+v isn't passed by the clock %+v though somebody else took it", r.Seat, m.Clock())
	}
	wantRows(t, h, 1)
}

// passed says whether a clock shows a seat as taken.
func passed(s, clock commit.Seat) bool {
	return s.Pointer != "" && s.Pointer != clock.Pointer || s.Number > 0 && clock.Number >= s.Number
}

func testSameSeat(t *testing.T, h Harness) {
	a, b := openTable(t, h), openTable(t, h)
	u := h.Unit(t, "k", 1, 2)
	ra, rb := build(t, a, u), build(t, b, u)
	if ra.Seat != rb.Seat {
		t.Fatalf("two requests from one state claim %+v and %+v", ra.Seat, rb.Seat)
	}
	if ra.SnapshotID == rb.SnapshotID || ra.ID == rb.ID {
		t.Error("two requests share an id")
	}
	if ans := a.Send(context.Background(), ra); ans.Class != commit.AnswerOK {
		t.Fatalf("answer %q: %v", ans.Class, ans.Err)
	}
	wantRefusedAnswer(t, b.Send(context.Background(), rb))
	wantRows(t, h, 2)
}

func testSentTwice(t *testing.T, h Harness) {
	table := openTable(t, h)
	r := build(t, table, h.Unit(t, "k", 1, 2))
	if ans := table.Send(context.Background(), r); ans.Class != commit.AnswerOK {
		t.Fatalf("answer %q: %v", ans.Class, ans.Err)
	}
	if ans := table.Send(context.Background(), r); ans.Class == commit.AnswerOK && h.Rows(t) != 2 {
		t.Error("the second copy was applied too")
	}
	wantRows(t, h, 2)
}

func wantTableChanged(t *testing.T, o commit.Outcome) {
	t.Helper()
	if o.State != commit.Refused || o.Reason != commit.ReasonTableChanged || commit.ReasonOf(o.Err) != commit.ReasonTableChanged {
		t.Errorf("outcome %s: %v, want refused table_changed", OutcomeText(o), o.Err)
	}
}

func testDropped(t *testing.T, h Harness) {
	table := openTable(t, h)
	u := h.Unit(t, "k", 1, 2)
	h.Drop(t)
	if _, err := table.Read(context.Background()); !errors.Is(err, commit.ErrTableNotFound) {
		t.Errorf("read of a dropped table: %v, want ErrTableNotFound", err)
	}
	wantTableChanged(t, driveOne(t, table, u))
}

func testRecreated(t *testing.T, h Harness) {
	table := openTable(t, h)
	u := h.Unit(t, "k", 1, 2)
	h.Drop(t)
	h.Recreate(t)
	if m := read(t, table); m.UUID() == u.TableUUID {
		t.Error("the new table has the old one's UUID")
	}
	wantTableChanged(t, driveOne(t, table, u))
	wantRows(t, h, 0)
}

func testRequestMeetsRecreated(t *testing.T, h Harness) {
	table := openTable(t, h)
	r := build(t, table, h.Unit(t, "k", 1, 2))
	h.Drop(t)
	h.Recreate(t)
	wantRefusedAnswer(t, table.Send(context.Background(), r))
	wantRows(t, h, 0)
}

func testColumnAdded(t *testing.T, h Harness) {
	table := openTable(t, h)
	u := h.Unit(t, "k", 1, 2)
	h.AddColumn(t)
	mustCommit(t, table, u)
	wantRows(t, h, 2)
}

func testRequestMeetsColumn(t *testing.T, h Harness) {
	table := openTable(t, h)
	u := h.Unit(t, "k", 1, 2)
	r := build(t, table, u)
	h.AddColumn(t)
	wantRefusedAnswer(t, table.Send(context.Background(), r))
	wantRows(t, h, 0)
	mustCommit(t, table, u)
	wantRows(t, h, 2)
}

func testSpecChanged(t *testing.T, h Harness) {
	table := openTable(t, h)
	u := h.Unit(t, "k", 1, 2)
	r := build(t, table, u)
	h.ChangeSpec(t)
	wantRefusedAnswer(t, table.Send(context.Background(), r))
	mustCommit(t, table, u) // the old spec is still in the metadata
	wantRows(t, h, 2)
}

func testEmpty(t *testing.T, h Harness) {
	table := openTable(t, h)
	before := read(t, table)
	o := mustCommit(t, table, h.Unit(t, "k", 0, 0))
	if o.Landed.SnapshotID != "" || o.Attempts != 0 {
		t.Errorf("outcome %s, want no snapshot", OutcomeText(o))
	}
	if after := read(t, table); after.Clock() != before.Clock() {
		t.Error("a unit without files changed the table")
	}
}

func testLarge(t *testing.T, h Harness) {
	files := 300
	if testing.Short() {
		files = 50
	}
	table := openTable(t, h)
	o := mustCommit(t, table, h.Unit(t, "k", files, 1))
	if o.Landed.Files != int64(files) || o.Landed.Rows != int64(files) {
		t.Errorf("the table shows %+v, want %d files", o.Landed, files)
	}
	wantRows(t, h, int64(files))
}

func testDiscard(t *testing.T, h Harness) {
	ctx := context.Background()
	table := openTable(t, h)
	u := h.Unit(t, "k", 1, 2)
	lost := build(t, table, u)
	landed := build(t, table, u)
	if ans := table.Send(ctx, landed); ans.Class != commit.AnswerOK {
		t.Fatalf("answer %q: %v", ans.Class, ans.Err)
	}
	wantRefusedAnswer(t, table.Send(ctx, lost))
	for range 2 { // again is no error
		if err := table.Discard(ctx, lost); err != nil {
			t.Fatalf("discard: %v", err)
		}
	}
	for _, f := range lost.MetadataFiles {
		if h.Exists(t, f) {
			t.Errorf("%s of the dead request is still there", f)
		}
	}
	for _, f := range landed.MetadataFiles {
		if !h.Exists(t, f) {
			t.Errorf("%s of the landed request is gone", f)
		}
	}
	for _, f := range u.Files.All() {
		if !h.Exists(t, f.Path) {
			t.Errorf("the data file %s is gone", f.Path)
		}
	}
	wantRows(t, h, 2)
}

func testImmutable(t *testing.T, h Harness) {
	table := openTable(t, h)
	u := h.Unit(t, "k", 1, 2)
	m := read(t, table)
	head, clock := m.Head(commit.MainBranch), m.Clock()
	mustCommit(t, table, u)
	if _, found := m.Find(commit.MainBranch, u.Token); found || m.Head(commit.MainBranch) != head || m.Clock() != clock {
		t.Error("a read shows what happened after it")
	}
}

func testRolledBack(t *testing.T, h Harness) {
	rb, ok := h.(Rollbacker)
	if !ok {
		t.Skip("the harness can't roll back")
	}
	table := openTable(t, h)
	mustCommit(t, table, h.Unit(t, "first", 1, 1))
	u := h.Unit(t, "k", 1, 2)
	mustCommit(t, table, u)
	rb.Rollback(t)
	o := mustCommit(t, table, u)
	if !o.Deduplicated || !o.RolledBack || o.Landed.InHead {
		t.Errorf("outcome %s, want the rolled back commit and no second one", OutcomeText(o))
	}
	wantRows(t, h, 1)
}

func testContext(t *testing.T, h Harness) {
	table := openTable(t, h)
	u := h.Unit(t, "k", 1, 2)
	m := read(t, table)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := table.Read(ctx); err == nil {
		t.Error("a read went on after its context's end")
	}
	if _, err := table.Build(ctx, m, []commit.Unit{u}); err == nil {
		t.Error("a build went on after its context's end")
	}
	mustCommit(t, table, u)
}
