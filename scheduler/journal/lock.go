package journal

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/firn-project/firn/commit"
)

// lockDir takes the directory's lock, which the operating system gives back
// when the process ends, however it ends. The file says who holds it.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "scheduler.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, problem("lock", dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 200))
		_ = f.Close()
		return nil, &commit.Error{
			Code: commit.CodeDirectoryHeld, Op: "lock", Object: dir,
			Cause: fmt.Errorf("%s works in it", holderText(string(holder))),
			Hint:  "Stop that process, connect to it with --server, or use another directory.",
		}
	}
	if err = f.Truncate(0); err == nil {
		_, err = fmt.Fprintf(f, "process %d", os.Getpid())
	}
	if err != nil {
		_ = f.Close()
		return nil, problem("lock", dir, err)
	}
	return f, nil
}

func holderText(s string) string {
	if s = strings.TrimSpace(s); s != "" {
		return s
	}
	return "another process"
}
