package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/firn-project/firn/commit"
	"github.com/google/uuid"
)

// Names in an executor's directory.
const (
	lockName  = "executor.lock"
	idName    = "executor.id"
	slotsName = "slots"
)

// lockDir makes the directory if needed and takes its lock, which the operating
// system frees when the process ends in whatever way. The file names the
// holder, for the error of the next one.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, dirError(dir, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, dirError(dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close() //nolint:errcheck // nothing was written
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, dirError(dir, err)
		}
		holder, rerr := os.ReadFile(f.Name())
		if rerr != nil || len(holder) == 0 {
			holder = []byte("another process")
		}
		return nil, &commit.Error{
			Code: commit.CodeExecutorDirHeld, Op: "use directory", Object: dir,
			Cause: fmt.Errorf("it is held by %s", strings.TrimSpace(string(holder))),
			Hint:  "Give each executor a directory of its own with --dir, or stop the process that holds it.",
		}
	}
	holder := fmt.Sprintf("an executor with process id %d\n", os.Getpid())
	if err := errors.Join(f.Truncate(0), writeAt(f, holder)); err != nil {
		return nil, errors.Join(dirError(dir, err), f.Close())
	}
	return f, nil
}

func writeAt(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

func dirError(dir string, err error) error {
	return &commit.Error{
		Code: commit.CodeExecutorConfig, Op: "use directory", Object: dir, Cause: err,
		Hint: "Name a directory that the executor may write to with --dir.",
	}
}

// identity gives the id that belongs to the directory, and makes one for a new
// directory. The caller holds the lock.
func identity(dir string) (string, error) {
	path := filepath.Join(dir, idName)
	raw, err := os.ReadFile(path)
	if err == nil {
		if id := strings.TrimSpace(string(raw)); validID(id) {
			return id, nil
		}
		return "", dirError(dir, fmt.Errorf("%s doesn't hold an executor's id; remove the file to get a new one", path))
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", dirError(dir, err)
	}
	id := "e-" + uuid.NewString()[:13]
	tmp := path + ".tmp"
	if err := errors.Join(os.WriteFile(tmp, []byte(id+"\n"), 0o600), os.Rename(tmp, path)); err != nil {
		return "", dirError(dir, err)
	}
	return id, nil
}

// validID says whether an id is fit for paths and messages.
func validID(s string) bool {
	if s == "" || len(s) > 128 || s[0] == '.' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	})
}
