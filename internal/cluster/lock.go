package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/firn-project/firn/commit"
)

// lockName is the file whose lock means that a process uses the directory. The
// lock is the operating system's and ends with the process, however that ends;
// the file's content only says who holds it and stays behind.
const lockName = "firn.lock"

// lockDir takes the directory for this process until the lock is closed.
func lockDir(dir string) (io.Closer, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, failed("lock directory", dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := holderOf(f)
		_ = f.Close() // only read
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, failed("lock directory", dir, err)
		}
		return nil, &commit.Error{
			Code: commit.CodeDirInUse, Op: "use directory", Object: dir,
			Cause: fmt.Errorf("%s holds it", holder),
			Hint:  "Wait for that process or stop it, use another --dir, or, if it's a scheduler, connect to it with --server.",
		}
	}
	text := fmt.Sprintf("process %d since %s\n", os.Getpid(), time.Now().UTC().Format(time.RFC3339))
	if err := errors.Join(f.Truncate(0), writeAt(f, text)); err != nil {
		return nil, errors.Join(failed("lock directory", dir, err), f.Close())
	}
	return f, nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// holderOf reads who holds the lock. Between a process's lock and its first
// write the file is empty.
func holderOf(f *os.File) string {
	raw, err := io.ReadAll(io.LimitReader(f, 200))
	if text := strings.TrimSpace(string(raw)); err == nil && text != "" {
		return text
	}
	return "another process"
}
