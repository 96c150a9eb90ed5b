package shuffle_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/executor/shuffle"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/plan"
)

// outputFile is the file of an output of the attempt.
func (e *executor) outputFile(output int) string {
	return filepath.Join(e.dir, "shuffle/j-1/2.3.a-1", fmt.Sprint(output)+".arrow")
}

func TestLargeOutputsAreFiles(t *testing.T) {
	e := newExecutor(t, "e-1")
	p := shuffle.NewHash(2, func(b arrow.RecordBatch) (func(int) uint64, error) {
		return func(row int) uint64 { return uint64(min(b.Column(0).(*array.Int64).Value(row), 1)) }, nil
	})
	in := batch(t, 0, 3000)
	out := e.write(t, shuffle.WriterOptions{Outputs: 2, Partition: p}, in)
	for i, o := range out {
		info, err := os.Stat(e.outputFile(i))
		switch small := o.Rows == 1; {
		case small && !errors.Is(err, os.ErrNotExist):
			t.Errorf("output %d is small, and has a file: %v", i, err)
		case !small && (err != nil || info.Size() != o.Bytes):
			t.Errorf("output %d: file is %v, %v; want %d bytes", i, info, err, o.Bytes)
		}
		for _, always := range []bool{false, true} {
			e.source.AlwaysRemote = always
			if got, _, err := read(t, e.source, e.location(i)); err != nil || len(got) != int(o.Rows) {
				t.Errorf("output %d, remote %v: %d rows, %v; want %d", i, always, len(got), err, o.Rows)
			}
		}
	}
	if err := e.store.Free(attempt.Job, attempt.Stage); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(e.dir, "shuffle/*/*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestFreeWhileWritten(t *testing.T) {
	for name, rows := range map[string]int{"in memory": 3, "in a file": 3000} {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t, "e-1")
			w, err := e.store.NewWriter(attempt, schema, shuffle.WriterOptions{Memory: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Abort()
			if err := w.Write(t.Context(), batch(t, 0, rows)); err != nil {
				t.Fatal(err)
			}
			if err := e.store.Free(attempt.Job); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Commit(t.Context()); commit.CodeOf(err) != commit.CodeShuffleIO {
				t.Errorf("a freed output was committed: %v", err)
			}
			if _, _, err := read(t, e.source, e.location(0)); !isLost(err) {
				t.Errorf("freed data gives %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(e.dir, "shuffle/*/*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestFree(t *testing.T) {
	e := newExecutor(t, "e-1")
	e.write(t, shuffle.WriterOptions{}, batch(t, 0, 3))
	if err := e.store.Free(attempt.Job, attempt.Stage+1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := read(t, e.source, e.location(0)); err != nil {
		t.Errorf("freeing another stage took this one: %v", err)
	}
	// What is being read stays readable.
	r := e.source.Read(t.Context(), []plan.ShuffleLocation{e.location(0)})
	defer r.Close()
	if _, err := r.Schema(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.store.Free(attempt.Job, attempt.Stage); err != nil {
		t.Fatal(err)
	}
	if b, err := r.Next(t.Context()); err != nil {
		t.Errorf("a read that had begun broke: %v", err)
	} else {
		b.Release()
	}
	if _, _, err := read(t, e.source, e.location(0)); !isLost(err) {
		t.Errorf("freed data gives %v", err)
	}
	if err := e.store.Free("no-such-job"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "..", "a/../../b", "/"} {
		if err := e.store.Free(bad); err == nil {
			t.Errorf("freed %q", bad)
		}
	}
}

func TestClear(t *testing.T) {
	e := newExecutor(t, "e-1")
	e.write(t, shuffle.WriterOptions{}, batch(t, 0, 3000))
	if err := e.store.Clear(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(e.dir, "shuffle")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestCorruptFileIsLost(t *testing.T) {
	e := newExecutor(t, "e-1")
	e.write(t, shuffle.WriterOptions{}, batch(t, 0, 3000))
	if err := os.Truncate(e.outputFile(0), 200); err != nil {
		t.Fatal(err)
	}
	for _, always := range []bool{false, true} {
		e.source.AlwaysRemote = always
		if _, _, err := read(t, e.source, e.location(0)); !isLost(err) {
			t.Errorf("remote %v: %v", always, err)
		}
	}
}

func TestDiskErrorsAreTyped(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "shuffle"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := shuffle.NewStore(dir, 0).NewWriter(attempt, schema, shuffle.WriterOptions{Memory: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	err = w.Write(t.Context(), batch(t, 0, 3000))
	if commit.CodeOf(err) != commit.CodeShuffleIO {
		t.Errorf("error is %v", err)
	}
	if wire.Class(err) != wire.ClassRetryable {
		t.Error("another executor's disk may be good")
	}
}
