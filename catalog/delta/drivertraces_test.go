package delta

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/objstore"
)

// TestA1_A4xxSpeaksForOneCopy: the first copy's reply is lost and it lands late,
// the second is refused for its credentials. The unit is committed, once, and
// nobody says refused.
func TestA1_A4xxSpeaksForOneCopy(t *testing.T) {
	h := newHarness(t)
	table := h.open()
	defer table.Close()
	u := h.Unit(t, "k", 1, 2)
	var late func()
	n := 0
	h.store.fail = func(op, uri string) error {
		if op != "put" {
			return nil
		}
		switch n++; n {
		case 1: // lost on the way, for now
			data := h.store.putting
			late = func() {
				if err := objstore.New(objstore.Config{}).PutIfAbsent(t.Context(), uri, data); err != nil {
					t.Errorf("the late copy: %v", err)
				}
			}
			return errFault
		case 2:
			late()
			return fmt.Errorf("403: %w", objstore.ErrPermission)
		}
		return nil
	}
	o := drive(t, table, u)
	if o.State != commit.Committed {
		t.Errorf("outcome %v: %v", o.State, o.Err)
	}
	if got := h.Rows(t); got != 2 {
		t.Errorf("%d rows, want 2", got)
	}
	again := drive(t, table, u)
	if again.State != commit.Committed || !again.Deduplicated || h.Rows(t) != 2 {
		t.Errorf("again: %+v, %d rows", again, h.Rows(t))
	}
}

// TestB6_RecreatedPath: a late request must not put its version into the log of a
// table that was made anew at its path, as far as a look before can tell.
func TestB6_RecreatedPath(t *testing.T) {
	h := newHarness(t)
	table := h.open()
	defer table.Close()
	m, err := table.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := table.Build(t.Context(), m, []commit.Unit{h.Unit(t, "k", 1, 2)})
	if err != nil {
		t.Fatal(err)
	}
	old := h.dir
	if err := os.RemoveAll(filepath.Join(old, logDir)); err != nil {
		t.Fatal(err)
	}
	h.create() // elsewhere; then moved into the old place
	if err := os.Rename(filepath.Join(h.dir, logDir), filepath.Join(old, logDir)); err != nil {
		t.Fatal(err)
	}
	h.dir = old
	if a := table.Send(t.Context(), r); a.Class != commit.AnswerConflict || !errors.Is(a.Err, errReplaced) {
		t.Errorf("answer %+v", a)
	}
	if _, err := os.Stat(filepath.Join(old, logDir, commitName(1))); err == nil {
		t.Error("the new log has the old table's version")
	}
}

// TestB6_ReplacedByOthers: Spark's REPLACE gives the table another id while its
// versions go on. The unit is told that the table changed, and the seat counts.
func TestB6_ReplacedByOthers(t *testing.T) {
	h := newHarness(t)
	table := h.open()
	defer table.Close()
	u := h.Unit(t, "k", 1, 2)
	r, err := table.Build(t.Context(), mustRead(t, table), []commit.Unit{u})
	if err != nil {
		t.Fatal(err)
	}
	h.metadata(func(m *Metadata) { m.ID = uuid.NewString() })
	if a := table.Send(t.Context(), r); a.Class != commit.AnswerConflict {
		t.Errorf("answer %+v", a)
	}
	if o := drive(t, table, u); o.State != commit.Refused || o.Reason != commit.ReasonTableChanged {
		t.Errorf("outcome %v %v: %v", o.State, o.Reason, o.Err)
	}
}

func mustRead(t *testing.T, table commit.Table) commit.Metadata {
	t.Helper()
	m, err := table.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestB6_WindowAndTxn: when the commits are gone and a checkpoint has dropped the
// ledger with them, a key that a user gave is still found, and for others the view
// says that it doesn't reach back.
func TestB6_WindowAndTxn(t *testing.T) {
	h := newHarness(t)
	table := h.open()
	defer table.Close()
	given, generated := h.Unit(t, "my key", 1, 1), h.Unit(t, uuid.Must(uuid.NewV7()).String(), 1, 1)
	for _, u := range []commit.Unit{given, generated} {
		if o := drive(t, table, u); o.State != commit.Committed {
			t.Fatalf("%v: %v", o.State, o.Err)
		}
	}
	for range 70 {
		h.commitAs(`{"commitInfo":{"operation":"OPTIMIZE"}}`)
	}
	s, err := localLog(h.dir).Snapshot(t.Context(), Latest)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Checkpoint(t.Context(), CheckpointOptions{Now: testTime}); err != nil {
		t.Fatal(err)
	}
	v := h.view()
	if l, ok := v.Find(commit.MainBranch, given.Token); !ok || l.Seat.Number != 1 || l.Digest != given.Digest || l.Rows != 1 || l.Bytes != given.Bytes {
		t.Errorf("the user's key: %+v, %t", l, ok)
	}
	again := h.open()
	defer again.Close()
	if o := drive(t, again, given); o.State != commit.Committed || !o.Deduplicated || o.OtherSubmission {
		t.Errorf("the user's key once more: %+v", o)
	}
	other := h.Unit(t, "my key", 2, 1)
	if o := drive(t, again, other); o.State != commit.Committed || !o.OtherSubmission {
		t.Errorf("another submission of the user's key: %+v", o)
	}
	if l, ok := v.Find(commit.MainBranch, generated.Token); ok {
		t.Errorf("the generated key: %+v", l)
	}
	if commit.Sees(v, 1) || !commit.Sees(v, v.Window()) {
		t.Errorf("window %d, ledger %s", v.Window(), v.Ledger())
	}
	// A process that has seen them goes on showing them.
	m := mustRead(t, table)
	if _, ok := m.Find(commit.MainBranch, generated.Token); !ok || !commit.Sees(m, 0) {
		t.Error("what was shown isn't shown any more")
	}
}

// TestLedgerReachesBehindTheCheckpoint: a process that has seen nothing finds the
// tokens before the checkpoint in the newest commit of Firn's.
func TestLedgerReachesBehindTheCheckpoint(t *testing.T) {
	h := newHarness(t)
	table := h.open()
	defer table.Close()
	first, last := h.Unit(t, uuid.Must(uuid.NewV7()).String(), 1, 1), h.Unit(t, uuid.Must(uuid.NewV7()).String(), 1, 1)
	drive(t, table, first)
	drive(t, table, last)
	h.Foreign(t)
	s, err := localLog(h.dir).Snapshot(t.Context(), Latest)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Checkpoint(t.Context(), CheckpointOptions{Now: testTime}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{commitName(0), commitName(1)} {
		if err := os.Remove(filepath.Join(h.dir, logDir, n)); err != nil {
			t.Fatal(err)
		}
	}
	v := h.view()
	if l, ok := v.Find(commit.MainBranch, last.Token); !ok || l.Rows != 1 {
		t.Errorf("the commit that is still there: %+v, %t", l, ok)
	}
	if l, ok := commit.FindToken(v, commit.MainBranch, first.Token); !ok || l.Seat.Number != 1 {
		t.Errorf("the one before: %+v, %t", l, ok)
	}
	if !commit.Sees(v, 0) {
		t.Errorf("window %d, ledger %s", v.Window(), v.Ledger())
	}
}

// TestCheckpointsFollowCommits: at the table's interval, beside the commits.
func TestCheckpointsFollowCommits(t *testing.T) {
	h := newHarness(t)
	h.metadata(func(m *Metadata) { m.Configuration = map[string]string{delta.PropertyCheckpointInterval: "3"} })
	done := make(chan error, 1)
	table := Open(Options{Name: tableName, Store: h.store, Locate: h.locate, TempDir: h.parent, Checkpointed: func(v int64, err error) {
		if v != 3 {
			err = fmt.Errorf("version %d: %w", v, err)
		}
		done <- err
	}})
	for i := range 3 {
		if o := drive(t, table, h.Unit(t, fmt.Sprint(i), 1, 1)); o.State != commit.Committed {
			t.Fatalf("%v: %v", o.State, o.Err)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := table.Close(); err != nil {
		t.Error(err)
	}
	s, err := localLog(h.dir).Snapshot(t.Context(), Latest)
	if err != nil || s.seg.checkpoint == nil || s.seg.checkpoint.version != 3 {
		t.Errorf("read from %+v, %v", s.seg, err)
	}
	if got := h.Rows(t); got != 3 {
		t.Errorf("%d rows", got)
	}
}

// TestCloseEndsACheckpoint: nothing is left running.
func TestCloseEndsACheckpoint(t *testing.T) {
	h := newHarness(t)
	h.metadata(func(m *Metadata) { m.Configuration = map[string]string{delta.PropertyCheckpointInterval: "1"} })
	entered, result := make(chan bool), make(chan error, 1)
	table := Open(Options{Name: tableName, Store: h.store, Locate: h.locate, TempDir: h.parent, Checkpointed: func(_ int64, err error) { result <- err }})
	u := h.Unit(t, "k", 1, 1)
	h.store.block = func(ctx context.Context) {
		entered <- true
		<-ctx.Done()
	}
	drive(t, table, u)
	<-entered
	if err := table.Close(); err != nil {
		t.Error(err)
	}
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("the checkpoint ended with %v", err)
	}
}

func TestPartitionColumnsChanged(t *testing.T) {
	h := newHarness(t)
	table := h.open()
	defer table.Close()
	u := h.Unit(t, "k", 1, 1)
	h.metadata(func(m *Metadata) { m.PartitionColumns = nil })
	if o := drive(t, table, u); o.State != commit.Refused || o.Reason != commit.ReasonTableChanged {
		t.Errorf("outcome %v %v: %v", o.State, o.Reason, o.Err)
	}
}

// TestTableTurnsUnwritable: a feature that appears between planning and commit is
// named, and nothing is sent.
func TestTableTurnsUnwritable(t *testing.T) {
	h := newHarness(t)
	table := h.open()
	defer table.Close()
	u := h.Unit(t, "k", 1, 1)
	h.commitAs(`{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["icebergCompatV2"]}}`)
	o := drive(t, table, u)
	if o.State != commit.Refused || o.Attempts != 0 || commit.CodeOf(o.Err) != commit.CodeTableUnsupported || !strings.Contains(o.Err.Error(), "icebergCompatV2") {
		t.Errorf("outcome %v, %d attempts: %v", o.State, o.Attempts, o.Err)
	}
}

// TestManifestsAreChecked: a row of a manifest that can't be true refuses its unit.
func TestManifestsAreChecked(t *testing.T) {
	h := newHarness(t)
	v := h.view()
	file := func(change func(*commit.File)) func(*commit.Unit) {
		return func(u *commit.Unit) { committest.EditFile(u, 0, change) }
	}
	for name, change := range map[string]func(*commit.Unit){
		"partition values missing":   file(func(f *commit.File) { f.Partition = nil }),
		"partition field of another": file(func(f *commit.File) { f.Partition[0].FieldID = 2 }),
		"more nulls than rows":       file(func(f *commit.File) { f.NullCounts[1] = 9 }),
		"nulls of no column":         file(func(f *commit.File) { f.NullCounts[7] = 0 }),
		"bound of no column":         file(func(f *commit.File) { f.Lower[7] = []byte("1") }),
		"bound of another type":      file(func(f *commit.File) { f.Lower[1] = []byte(`"x"`) }),
		"bounds swapped":             file(func(f *commit.File) { f.Lower[1], f.Upper[1] = []byte("5"), []byte("4") }),
		"no rows":                    file(func(f *commit.File) { f.Rows = 0 }),
		"outside the table":          file(func(f *commit.File) { f.Path = "/elsewhere/x.parquet" }),
		"a branch":                   func(u *commit.Unit) { u.Branch = "dev" },
		"an overwrite":               func(u *commit.Unit) { u.Operation, u.Claim = commit.OperationOverwrite, &commit.Claim{} },
	} {
		u := h.Unit(t, "k", 1, 2)
		change(&u)
		if adds, err := v.adds(u, 1); err == nil {
			t.Errorf("%s: %+v", name, adds[0])
		} else if r := commit.ReasonOf(err); r != commit.ReasonValidation {
			t.Errorf("%s: reason %q: %v", name, r, err)
		}
	}
	u := h.Unit(t, "k", 1, 2)
	adds, err := v.adds(u, 1)
	if err != nil {
		t.Fatal(err)
	}
	a := adds[0]
	if want := `{"numRecords":2,"minValues":{"v":0},"maxValues":{"v":1},"nullCount":{"v":0}}`; a.Stats != want || *a.PartitionValues["p"] != "x 0" ||
		!strings.HasSuffix(a.Path, "/p=x%200/part-"+u.Files.At(0).Attempt+"-0.parquet") {
		t.Errorf("add %+v", a)
	}
}
