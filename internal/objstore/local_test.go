package objstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/objstore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLocal(t *testing.T) {
	s := objstore.New(objstore.Config{})
	t.Run("path", func(t *testing.T) { storetest.Run(t, s, t.TempDir()+"/", 3<<20) })
	t.Run("uri", func(t *testing.T) { storetest.Run(t, s, "file://"+t.TempDir()+"/", 3<<20) })
}

// Nothing but the object itself may be in the directory: not before Commit under
// a name that readers take for an object, and nothing at all after Abort.
func TestLocalLeavesNoTemporaryFile(t *testing.T) {
	dir := t.TempDir()
	s := objstore.New(objstore.Config{})
	for _, end := range []string{"commit", "abort", "exists"} {
		w, err := s.Create(t.Context(), dir+"/x")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("1")); err != nil {
			t.Fatal(err)
		}
		if end == "abort" {
			w.Abort()
		} else if err := w.Commit(t.Context()); (err != nil) != (end == "exists") {
			t.Fatalf("%s: %v", end, err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) != 1 || entries[0].Name() != "x" {
			t.Errorf("after %s: %v", end, entries)
		}
	}
}

func TestLocalPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may do everything")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	_, err := objstore.New(objstore.Config{}).Create(t.Context(), dir+"/sub/x")
	if !errors.Is(err, objstore.ErrPermission) || commit.KindOf(err) != commit.KindPermission {
		t.Errorf("Create: %v", err)
	}
}

// A pipe among a table's files is refused; opening it mustn't wait for a writer.
func TestLocalPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := objstore.New(objstore.Config{}).Open(t.Context(), pipe); err == nil || !strings.Contains(err.Error(), "isn't a file but a pipe") {
		t.Errorf("opened: %v", err)
	}
}

// A full disk is told apart from other errors, with the path. /dev/full is a
// device that has no space.
func TestLocalFull(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full")
	}
	err := objstore.LocalError("write", "file:///d/x", &os.PathError{Op: "write", Path: "/d/x", Err: syscall.ENOSPC})
	if !errors.Is(err, objstore.ErrFull) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "file:///d/x") {
		t.Errorf("%v", err)
	}
	if commit.CodeOf(err) != commit.CodeStorageFull {
		t.Errorf("code %s", commit.CodeOf(err))
	}
}

// A file where a directory is needed is an error, not a panic or a lost object.
func TestLocalFileInTheWay(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := objstore.New(objstore.Config{})
	if _, err := s.Create(t.Context(), dir+"/f/x"); err == nil {
		t.Error("Create below a file succeeded")
	}
	if _, err := s.Open(t.Context(), dir); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("Open of a directory: %v", err)
	}
}

// Directories that a failed job left empty go, with its own; one that a link names
// is somebody else's.
func TestLocalEmptyDirectoriesGo(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for _, d := range []string{"data/j/p=1/q=2", "data/j/p=2", "data/j2"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{filepath.Join(dir, "data/j/p=1/q=2/.x.1.firn-tmp"), filepath.Join(other, ".x.2.firn-tmp")} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(other, filepath.Join(dir, "data/j2/link")); err != nil {
		t.Fatal(err)
	}
	s := objstore.New(objstore.Config{})
	for prefix, want := range map[string]int{"/data/j/": 5, "/data/j2/": 0} {
		if n, err := s.RemoveUnfinished(t.Context(), "file://"+dir+prefix); err != nil || n != want {
			t.Errorf("%s: removed %d, want %d: %v", prefix, n, want, err)
		}
	}
	for path, want := range map[string]bool{filepath.Join(dir, "data/j"): false, filepath.Join(dir, "data"): true, filepath.Join(other, ".x.2.firn-tmp"): true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A temporary file is listed as unfinished while its writer is at work, and after it
// has died; not what is whole.
func TestListUnfinished(t *testing.T) {
	s, dir := objstore.New(objstore.Config{}), t.TempDir()
	if err := s.PutIfAbsent(t.Context(), dir+"/a/whole", []byte("1")); err != nil {
		t.Fatal(err)
	}
	w, err := s.Create(t.Context(), dir+"/a/half")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	list := func() (uris []string) {
		t.Helper()
		for info, err := range s.ListUnfinished(t.Context(), "file://"+dir+"/a/") {
			if err != nil {
				t.Fatal(err)
			}
			uris = append(uris, info.URI)
		}
		return uris
	}
	found := list()
	if len(found) != 1 || !strings.HasPrefix(found[0], "file://"+dir+"/a/.half.") {
		t.Fatalf("found %v", found)
	}
	if err := s.Delete(t.Context(), found[0]); err != nil {
		t.Fatal(err)
	}
	if found = list(); len(found) != 0 {
		t.Fatalf("found %v", found)
	}
}
