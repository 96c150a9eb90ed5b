package shuffle

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-project/firn/commit"
)

// /dev/full answers each write as a full disk does.
func TestFullDiskIsTyped(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	defer f.Close()
	_, werr := f.WriteString("x")
	if got := diskError("write", f.Name(), werr); commit.CodeOf(got) != commit.CodeShuffleFull {
		t.Errorf("error is %v", got)
	}
}

// Small outputs become files when there is no room in memory, and stay there
// again when some was freed.
func TestRoomInMemory(t *testing.T) {
	dir := t.TempDir()
	s := NewStore(dir, 0)
	full := Attempt{Job: "full", ID: "a-0"}
	st, err := s.begin(full, nil)
	if err != nil || !s.keep(st, keptBytes-100) {
		t.Fatalf("an empty store has no room: %v", err)
	}
	if err := s.end(full, st, true); err != nil {
		t.Fatal(err)
	}
	write := func(job string) (isFile bool) {
		w, err := s.NewWriter(Attempt{Job: job, ID: "a-0"}, arrow.NewSchema(nil, nil), WriterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		if _, err := w.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		f, err := s.open(Attempt{Job: job, ID: "a-0"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		_, err = os.Stat(filepath.Join(dir, "shuffle", job, "0.0.a-0/0.arrow"))
		return err == nil
	}
	if !write("j-1") {
		t.Error("there is no room, and an output is in memory")
	}
	if err := s.Free("full"); err != nil {
		t.Fatal(err)
	}
	if write("j-2") {
		t.Error("there is room, and a small output is a file")
	}
	for _, job := range []string{"j-1", "j-2"} {
		if err := s.Free(job); err != nil {
			t.Fatal(err)
		}
	}
	if s.kept != 0 || len(s.jobs) != 0 {
		t.Errorf("%d bytes and %d jobs are left of nothing", s.kept, len(s.jobs))
	}
}
