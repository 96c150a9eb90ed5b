package shuffle_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/executor/shuffle"
	"github.com/firn-project/firn/internal/wire"
)

// A quota that is used up fails the task with a reason, an advice and the place,
// leaves nothing of it behind and gives its bytes back; the output of others stays
// readable, and freeing it makes room for the next.
func TestQuota(t *testing.T) {
	e := newExecutor(t, "e-1")
	const quota = 300 << 10
	e.store = shuffle.NewStore(e.dir, quota)
	e.source.Store = e.store
	in := batch(t, 0, 5000) // about 0.2 MB
	out := e.write(t, shuffle.WriterOptions{}, in)
	if out[0].Bytes <= quota/2 || out[0].Bytes > quota {
		t.Fatalf("%d bytes don't fit the quota just once", out[0].Bytes)
	}
	other := shuffle.Attempt{Job: "j-2", ID: "a-2"}
	write := func() error {
		w, err := e.store.NewWriter(other, schema, shuffle.WriterOptions{Memory: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		for from := 0; from < 5000; from += 500 {
			if err := w.Write(t.Context(), batch(t, from, from+500)); err != nil {
				return err
			}
		}
		_, err = w.Commit(t.Context())
		return err
	}
	for range 2 { // what was given back once isn't given back again
		err := write()
		if commit.CodeOf(err) != commit.CodeShuffleFull {
			t.Fatalf("over the quota: %v", err)
		}
		for _, part := range []string{"--shuffle-disk", "307200", filepath.Join(e.dir, "shuffle", "j-2")} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q isn't in the error: %v", part, err)
			}
		}
		if e, ok := errors.AsType[*commit.Error](err); !ok || !strings.Contains(e.Hint, "Raise --shuffle-disk") {
			t.Errorf("no advice: %#v", err)
		}
		if wire.Class(err) != wire.ClassRetryable {
			t.Error("another executor may have room")
		}
	}
	if left, _ := filepath.Glob(filepath.Join(e.dir, "shuffle/j-2/*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if got, _, err := read(t, e.source, e.location(0)); err != nil || !slices.Equal(got, rows(t, in)) {
		t.Errorf("the other job's output: %d rows, %v", len(got), err)
	}
	if err := e.store.Free(attempt.Job); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := e.store.Free(other.Job); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Errorf("after its output was freed: %v", err)
	}
}

// What is freed while it is written is counted once.
func TestQuotaOfWhatIsFreedWhileWritten(t *testing.T) {
	e := newExecutor(t, "e-1")
	e.store = shuffle.NewStore(e.dir, 300<<10)
	for i := range 4 { // 4 times 0.2 MB, one after the other
		w, err := e.store.NewWriter(attempt, schema, shuffle.WriterOptions{Memory: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(t.Context(), batch(t, 0, 5000)); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if err := e.store.Free(attempt.Job); err != nil {
			t.Fatal(err)
		}
		w.Abort()
	}
}
