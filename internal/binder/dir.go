package binder

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// dirPrefix begins the names of the pools' directories.
const dirPrefix = "firn-helpers-"

// young is for how long a directory may be there before its pool holds its lock.
const young = time.Minute

// makeDir makes an empty directory that belongs to this process for as long as the
// file that comes with it is open: it holds the directory's lock, also until the
// process is killed. The directories of those that were are removed.
func makeDir() (dir string, lock *os.File, err error) {
	removeDead(time.Now().Add(-young))
	if dir, err = os.MkdirTemp("", dirPrefix); err != nil {
		return "", nil, err
	}
	if lock, err = lockDir(dir); err != nil {
		return "", nil, errors.Join(err, os.Remove(dir))
	}
	return dir, lock, nil
}

func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// removeDead removes the directories from before a time whose locks nobody holds.
// What can't be removed stays: the next pool tries again.
func removeDead(before time.Time) {
	all, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*")) // the pattern is good
	for _, dir := range all {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() || info.ModTime().After(before) {
			continue
		}
		if lock, err := lockDir(dir); err == nil {
			_ = os.Remove(dir) // empty, or none of ours
			_ = lock.Close()   // nothing was written
		}
	}
}
