package lazyfile

/*
#include <stdint.h>
void firn_lazy_files(int change);
*/
import "C"

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// eager says that files are fetched whole when they're made.
const eager = false

// Answers of firnLazyRead beside a number of bytes.
const (
	failed       = -1
	readYourself = -2
)

// id is a file as the kernel knows it.
type id struct{ dev, ino uint64 }

var known = struct {
	sync.RWMutex
	files map[id]*File
}{files: map[id]*File{}}

// register has reads of the file met until the returned function is called.
func register(f *File) (func(), error) {
	if err := os.Chmod(f.path, 0o600|os.ModeSticky); err != nil {
		return nil, err
	}
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, errors.New("the file has no inode")
	}
	key := id{st.Dev, st.Ino}
	known.Lock()
	known.files[key] = f
	known.Unlock()
	C.firn_lazy_files(1)
	return func() {
		C.firn_lazy_files(-1)
		known.Lock()
		delete(known.files, key)
		known.Unlock()
	}, nil
}

//export firnLazyRead
func firnLazyRead(dev, ino uint64, buf unsafe.Pointer, n, off int64) int64 {
	known.RLock()
	f := known.files[id{dev, ino}]
	known.RUnlock()
	if f == nil {
		// A file with that bit that isn't ours, or one that was closed and emptied.
		return readYourself
	}
	got, done, err := f.prepare(unsafe.Slice((*byte)(buf), n), off)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return failed
	case done:
		return int64(got)
	}
	return readYourself
}
