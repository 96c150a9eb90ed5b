package iceberg

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	iceio "github.com/apache/iceberg-go/io"

	"github.com/firn-project/firn/internal/objstore"
)

// fileIO lets the library read manifests through our store. It exists for one
// call at a time and carries that call's context, because the library's
// interface has none. It can't write or delete.
type fileIO struct {
	ctx   context.Context //nolint:containedctx // the library's interface has none
	store objstore.Store
}

var (
	_ iceio.IO     = fileIO{}
	_ iceio.StatIO = fileIO{}
)

func (f fileIO) Open(name string) (iceio.File, error) {
	if err := f.ctx.Err(); err != nil {
		return nil, err
	}
	o, err := f.store.Open(f.ctx, name)
	if err != nil {
		return nil, err
	}
	head, length := renamedHeader(bufio.NewReader(io.NewSectionReader(o, 0, o.Size())))
	if head == nil {
		return &file{Object: o, SectionReader: io.NewSectionReader(o, 0, o.Size()), name: name}, nil
	}
	whole := io.NewSectionReader(&spliced{head, length, o}, 0, o.Size()-length+int64(len(head)))
	return &file{Object: o, SectionReader: whole, name: name}, nil
}

func (f fileIO) Stat(name string) (fs.FileInfo, error) {
	size, err := f.store.Stat(f.ctx, name)
	if err != nil {
		return nil, err
	}
	return fileInfo{name, size}, nil
}

func (fileIO) Remove(string) error {
	return errors.New("this view of the store is for reading")
}

type file struct {
	objstore.Object
	*io.SectionReader
	name string
}

func (f *file) ReadAt(p []byte, off int64) (int, error) { return f.SectionReader.ReadAt(p, off) }
func (f *file) Size() int64                             { return f.SectionReader.Size() }
func (f *file) Stat() (fs.FileInfo, error)              { return fileInfo{f.name, f.Size()}, nil }

type fileInfo struct {
	name string
	size int64
}

func (i fileInfo) Name() string     { return i.name }
func (i fileInfo) Size() int64      { return i.size }
func (fileInfo) Mode() fs.FileMode  { return 0o444 }
func (fileInfo) ModTime() time.Time { return time.Time{} }
func (fileInfo) IsDir() bool        { return false }
func (fileInfo) Sys() any           { return nil }
