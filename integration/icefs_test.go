//go:build integration

package integration_test

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"net/url"
	"sync"
	"time"

	iceio "github.com/apache/iceberg-go/io"

	"github.com/firn-project/firn/internal/objstore"
)

// registerS3 lets iceberg-go reach S3 by Firn's own client. Its client for S3 isn't
// among this module's dependencies.
var registerS3 = sync.OnceFunc(func() {
	iceio.Register("s3", func(ctx context.Context, _ *url.URL, props map[string]string) (iceio.IO, error) {
		// The library keeps it beyond the call.
		return &s3FS{context.WithoutCancel(ctx), objstore.New(objstore.FromStorage(props))}, nil
	})
})

// s3FS is a store as iceberg-go's file system.
type s3FS struct {
	ctx   context.Context // the library's interface has none
	store objstore.Store
}

var _ iceio.WriteFileIO = (*s3FS)(nil)

func (f *s3FS) Open(name string) (iceio.File, error) {
	o, err := f.store.Open(f.ctx, name)
	if err != nil {
		return nil, err
	}
	return &s3File{io.NewSectionReader(o, 0, o.Size()), o, name}, nil
}

func (f *s3FS) Remove(name string) error { return f.store.Delete(f.ctx, name) }

func (f *s3FS) Create(name string) (iceio.FileWriter, error) {
	return &s3Create{fs: f, name: name}, nil
}

func (f *s3FS) WriteFile(name string, p []byte) error {
	return objstore.WriteFile(f.ctx, f.store, name, p)
}

type s3File struct {
	*io.SectionReader
	io.Closer
	name string
}

func (f *s3File) Stat() (fs.FileInfo, error) { return f, nil }
func (f *s3File) Name() string               { return f.name }
func (f *s3File) Mode() fs.FileMode          { return 0o444 }
func (f *s3File) ModTime() time.Time         { return time.Time{} }
func (f *s3File) IsDir() bool                { return false }
func (f *s3File) Sys() any                   { return nil }

// s3Create writes its object when it's closed.
type s3Create struct {
	bytes.Buffer
	fs   *s3FS
	name string
}

func (w *s3Create) Close() error { return w.fs.WriteFile(w.name, w.Bytes()) }
