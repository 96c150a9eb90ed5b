package delta

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
)

// TestCheckpointIsTheLog: what is read from a checkpoint is what was read from the
// commits, also when these are gone.
func TestCheckpointIsTheLog(t *testing.T) {
	tt := newTestTable(t, map[string]string{delta.PropertyCheckpointInterval: "4"})
	tt.fill(15)
	want := shown(t, tt.snapshot(Latest))
	for v := int64(0); v <= 15; v++ {
		s := tt.snapshot(v)
		if s.WantsCheckpoint() != (v > 0 && v%4 == 0) {
			t.Errorf("version %d wants a checkpoint: %t", v, s.WantsCheckpoint())
		}
		if s.WantsCheckpoint() {
			if err := s.Checkpoint(t.Context(), CheckpointOptions{Now: testTime}); err != nil {
				t.Fatal(err)
			}
			// Each one is made from the one before.
			if diff := cmp.Diff(want, shown(t, tt.snapshot(Latest))); diff != "" {
				t.Errorf("after the checkpoint of version %d:\n%s", v, diff)
			}
		}
	}
	for v := range int64(12) {
		tt.remove(commitName(v))
	}
	tt.remove(checkpointName(4), checkpointName(8))
	s := tt.snapshot(Latest)
	if diff := cmp.Diff(want, shown(t, s)); diff != "" {
		t.Errorf("without the commits:\n%s", diff)
	}
	if s.seg.checkpoint == nil || s.seg.checkpoint.version != 12 || len(s.Commits()) != 3 {
		t.Errorf("read from %+v", s.seg)
	}
}

// TestCheckpointContent: tombstones and transactions age, removed domains are
// gone, and commitInfo isn't there.
func TestCheckpointContent(t *testing.T) {
	tt := newTestTable(t, map[string]string{delta.PropertyFileRetention: "interval 1 hour", delta.PropertyTxnRetention: "interval 1 day"})
	old, fresh := testTime.Add(-48*time.Hour).UnixMilli(), testTime.UnixMilli()
	tt.put(1, Commit{Adds: []*Add{plainAdd("a"), plainAdd("b"), plainAdd("c"), plainAdd("d")}})
	undated := plainAdd("c").removal(0, true)
	undated.DeletionTimestamp = nil
	withStats := plainAdd("b").removal(fresh, true)
	withStats.Stats = "{}"
	tt.put(2, Commit{
		Removes: []*Remove{plainAdd("a").removal(old, true), withStats, undated},
		Txns:    []Txn{{AppID: "old", Version: 1, LastUpdated: &old}, {AppID: "fresh", Version: 1, LastUpdated: &fresh}, {AppID: "undated", Version: 1}},
		Domains: []DomainMetadata{{Domain: "gone", Configuration: "x"}, {Domain: "kept", Configuration: "{}"}},
	})
	tt.put(3, Commit{Domains: []DomainMetadata{{Domain: "gone", Removed: true}}})
	if err := tt.snapshot(3).Checkpoint(t.Context(), CheckpointOptions{Now: testTime}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(tt.path(checkpointName(3)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	err = scanParquet(t.Context(), memoryObject{bytes.NewReader(b)}, wanted{state: true, files: true}, func(a Action) error {
		switch {
		case a.Add != nil:
			got = append(got, "add "+a.Add.Path)
		case a.Remove != nil:
			got = append(got, "remove "+a.Remove.Path)
		case a.Txn != nil:
			got = append(got, "txn "+a.Txn.AppID)
		case a.DomainMetadata != nil:
			got = append(got, "domain "+a.DomainMetadata.Domain)
		case a.Protocol != nil:
			got = append(got, "protocol")
		case a.Metadata != nil:
			got = append(got, "metaData")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"protocol", "metaData", "txn fresh", "txn undated", "domain kept", "remove b", "add d"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("checkpoint (-want +got):\n%s", diff)
	}
}

type memoryObject struct{ *bytes.Reader }

func (o memoryObject) Size() int64 { return o.Reader.Size() }
func (memoryObject) Close() error  { return nil }

// TestCheckpointCutOff: whatever the step at which the writer dies, readers see
// the same table, and the next attempt succeeds.
func TestCheckpointCutOff(t *testing.T) {
	for step := 0; ; step++ {
		tt := newTestTable(t, nil)
		tt.fill(10)
		want := shown(t, tt.snapshot(Latest))
		s := tt.snapshot(Latest)
		n := 0
		tt.store.fail = func(op, uri string) error {
			if n++; n > step {
				return fmt.Errorf("%s: %w", op, errFault)
			}
			return nil
		}
		err := s.Checkpoint(t.Context(), CheckpointOptions{Now: testTime})
		tt.store.fail = nil
		if diff := cmp.Diff(want, shown(t, tt.snapshot(Latest))); diff != "" {
			t.Fatalf("cut off after %d steps:\n%s", step, diff)
		}
		if err == nil {
			if step < 10 {
				t.Errorf("a checkpoint in %d steps", step)
			}
			return
		}
		if !errors.Is(err, errFault) {
			t.Fatalf("after %d steps: %v", step, err)
		}
		if err := s.Checkpoint(t.Context(), CheckpointOptions{Now: testTime}); err != nil {
			t.Fatalf("again, after %d steps: %v", step, err)
		}
	}
}

func TestCheckpointsOfOthers(t *testing.T) {
	tt := newTestTable(t, nil)
	tt.fill(20)
	first, second := tt.snapshot(10), tt.snapshot(20)
	for _, s := range []*Snapshot{second, first, first} { // the last is there already
		if err := s.Checkpoint(t.Context(), CheckpointOptions{Now: testTime}); err != nil {
			t.Fatal(err)
		}
	}
	h, ok, err := tt.log.readHint(t.Context())
	if err != nil || !ok || h.Version != 20 || h.NumOfAddFiles == nil || *h.NumOfAddFiles != 4 {
		t.Errorf("_last_checkpoint says %+v, %t, %v", h, ok, err)
	}
	// Statistics as structs aren't written, so no checkpoint is: it would lose them.
	tt = newTestTable(t, nil)
	m := tt.snapshot(0).Metadata()
	m.Configuration = map[string]string{delta.PropertyStatsAsStruct: "true"}
	tt.put(1, Commit{Metadata: &m})
	if err := tt.snapshot(1).Checkpoint(t.Context(), CheckpointOptions{Now: testTime}); !errors.Is(err, ErrNoCheckpoint) {
		t.Errorf("a table that wants structs: %v", err)
	}
	m.Configuration = map[string]string{"delta.constraints.c": "v > 0"}
	tt.put(2, Commit{Metadata: &m, Protocol: &delta.Protocol{MinReaderVersion: 1, MinWriterVersion: 3}})
	if err := tt.snapshot(2).Checkpoint(t.Context(), CheckpointOptions{Now: testTime}); commit.CodeOf(err) != commit.CodeTableUnsupported {
		t.Errorf("a table that may not be written: %v", err)
	}
}

// TestTallyTellsDifferences: the check of a checkpoint, by which a file that
// reads back as something else never gets into the log.
func TestTallyTellsDifferences(t *testing.T) {
	actions := []Action{{Add: richAdd("a")}, {Add: plainAdd("b")}, {Txn: &Txn{AppID: "x", Version: 1}}}
	sum := func(actions ...Action) *tally {
		w := newTally()
		w.seed = seedForTests
		for _, a := range actions {
			if err := w.add(a); err != nil {
				t.Fatal(err)
			}
		}
		return w
	}
	whole := sum(actions...)
	if err := whole.compare(sum(actions[2], actions[0], actions[1])); err != nil {
		t.Errorf("the order matters: %v", err)
	}
	changed := *actions[0].Add
	changed.Stats = strings.Replace(changed.Stats, "7}", "6}", 1)
	for name, other := range map[string]*tally{
		"one fewer": sum(actions[:2]...), "statistics": sum(Action{Add: &changed}, actions[1], actions[2]),
		"another transaction": sum(actions[0], actions[1], Action{Txn: &Txn{AppID: "x", Version: 2}}),
	} {
		if whole.compare(other) == nil {
			t.Errorf("%s: no difference", name)
		}
	}
}

// TestCheckpointIsReadBack: a file that lacks something, or can't be read, isn't
// taken for the checkpoint that was meant.
func TestCheckpointIsReadBack(t *testing.T) {
	actions := []Action{
		{Protocol: &delta.Protocol{MinReaderVersion: 1, MinWriterVersion: 2}}, {Metadata: &Metadata{ID: "i"}}, {Add: richAdd("a")}, {Remove: plainAdd("b").removal(1, true)},
	}
	meant := newTally()
	for _, a := range actions {
		if err := meant.add(a); err != nil {
			t.Fatal(err)
		}
	}
	for n := range len(actions) + 1 {
		var b bytes.Buffer
		if err := writeCheckpoint(&b, nil, actionsOf(actions[:n]...)); err != nil {
			t.Fatal(err)
		}
		if err := meant.verify(t.Context(), memoryObject{bytes.NewReader(b.Bytes())}); (err == nil) != (n == len(actions)) {
			t.Errorf("%d of %d actions: %v", n, len(actions), err)
		}
		if err := meant.verify(t.Context(), memoryObject{bytes.NewReader(b.Bytes()[:b.Len()-9])}); err == nil {
			t.Error("half a file was taken")
		}
	}
}

// TestInCommitTimeNeedsTheCommitBefore: a checkpoint doesn't have the time.
func TestInCommitTimeNeedsTheCommitBefore(t *testing.T) {
	tt := newTestTable(t, map[string]string{delta.PropertyInCommitTimestamps: "true"})
	ahead := testTime.Add(time.Hour).UnixMilli()
	tt.put(1, Commit{Info: CommitInfo{TxnID: "x", Operation: "WRITE", InCommitTimestamp: &ahead}})
	if err := tt.snapshot(1).Checkpoint(t.Context(), CheckpointOptions{Now: testTime}); err != nil {
		t.Fatal(err)
	}
	s := tt.snapshot(1)
	if len(s.Commits()) != 0 {
		t.Fatalf("the checkpoint wasn't used: %+v", s.seg)
	}
	if _, at, err := s.Times(t.Context(), testTime); err != nil || at == nil || *at != ahead+1 {
		t.Errorf("the next time is %v, %v, want %d", at, err, ahead+1)
	}
	tt.remove(commitName(1))
	if _, at, err := s.Times(t.Context(), testTime); err == nil {
		t.Errorf("the next time is %d, though nobody knows the one before", *at)
	}
}
