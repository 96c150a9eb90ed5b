package objstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/firn-project/firn/internal/failpoint"
)

// localStore keeps objects as files. An object is written to a temporary file
// beside its place, synced, and published by link(2), which fails when the name
// is taken: there is no moment at which a reader sees a part of it, and no way
// to overwrite one. Directories that were made or changed are synced too, so
// that what Commit acknowledged survives a power failure.
type localStore struct{}

// tempSuffix ends the names of unpublished files. List doesn't show them.
const tempSuffix = ".firn-tmp"

// localPath turns a URI into a path. Percent signs are taken as they are, as
// every Iceberg library does: partition paths hold escapes that are part of the
// file's name.
func localPath(op, uri string) (string, error) {
	p := uri
	switch {
	case strings.HasPrefix(strings.ToLower(p), "file://"):
		p = p[len("file://"):]
		if rest, ok := strings.CutPrefix(p, "localhost/"); ok {
			p = "/" + rest
		}
	case strings.HasPrefix(strings.ToLower(p), "file:"):
		p = p[len("file:"):]
	}
	if !strings.HasPrefix(p, "/") {
		return "", badLocation(op, uri, errors.New("the path is not absolute"))
	}
	if strings.ContainsRune(p, 0) {
		return "", badLocation(op, uri, errors.New("the path holds a NUL byte"))
	}
	return p, nil
}

func localError(op, uri string, err error) error {
	var sentinel error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		sentinel = ErrNotFound
	case errors.Is(err, fs.ErrExist):
		sentinel = ErrExists
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		sentinel = ErrPermission
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		sentinel = ErrFull
	}
	return storageError(op, uri, sentinel, err)
}

type localObject struct {
	*os.File
	size int64
}

func (o localObject) Size() int64 { return o.size }

// Open implements Store.
func (localStore) Open(ctx context.Context, uri string) (Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := localPath("open", uri)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe would wait for a writer
	if err != nil {
		return nil, localError("open", uri, err)
	}
	st, err := f.Stat()
	switch {
	case err != nil:
	case st.IsDir():
		err = fmt.Errorf("%w: it is a directory", ErrNotFound)
	case !st.Mode().IsRegular():
		err = errors.New("it isn't a file but a pipe, socket or device")
	}
	if err != nil {
		return nil, errors.Join(localError("open", uri, err), f.Close())
	}
	return localObject{f, st.Size()}, nil
}

// Stat implements Store.
func (localStore) Stat(ctx context.Context, uri string) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	p, err := localPath("stat", uri)
	if err != nil {
		return 0, err
	}
	st, err := os.Stat(p)
	if err == nil && st.IsDir() {
		err = fmt.Errorf("%w: it is a directory", ErrNotFound)
	}
	if err != nil {
		return 0, localError("stat", uri, err)
	}
	return st.Size(), nil
}

// Delete implements Store. It leaves empty directories where they are: another
// writer may be about to put a file there.
func (localStore) Delete(ctx context.Context, uri string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p, err := localPath("delete", uri)
	if err != nil {
		return err
	}
	if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return localError("delete", uri, err)
	}
	return nil
}

// PutIfAbsent implements Store.
func (s localStore) PutIfAbsent(ctx context.Context, uri string, data []byte) error {
	w, err := s.Create(ctx, uri)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		w.Abort()
		return err
	}
	return w.Commit(ctx)
}

type localWriter struct {
	uri, path, temp string
	file            *os.File
	done            bool
}

// Create implements Store. It makes missing directories.
func (localStore) Create(ctx context.Context, uri string) (Writer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := localPath("create", uri)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(p, "/") {
		return nil, badLocation("create", uri, errors.New("the name ends in a slash"))
	}
	dir, base := filepath.Split(p)
	if err := makeDirs(filepath.Clean(dir)); err != nil {
		return nil, localError("create", uri, err)
	}
	// A long name must not make the temporary one too long for the file system.
	temp := filepath.Join(dir, "."+base[:min(len(base), 64)]+"."+rand.Text()+tempSuffix)
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, localError("create", uri, err)
	}
	return &localWriter{uri: uri, path: p, temp: temp, file: f}, nil
}

// makeDirs is MkdirAll that syncs the parent of every directory it made.
func makeDirs(dir string) error {
	if st, err := os.Stat(dir); err == nil {
		if !st.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		}
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDirs(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(parent)
}

// syncDir makes what was changed in a directory durable. Writers of one directory
// share a sync: one that asks while another sync is under way, which may have
// begun before its change, waits for the next.
func syncDir(dir string) error { return dirSyncs.sync(dir, syncNow) }

func syncNow(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	localSyncs.Add(1)
	return errors.Join(d.Sync(), d.Close())
}

var localSyncs atomic.Int64

// LocalSyncs counts the calls of fsync that this process has made for local
// objects. Benchmarks print it.
func LocalSyncs() int64 { return localSyncs.Load() }

func (w *localWriter) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	return n, localError("write", w.uri, err)
}

// Commit implements Writer. When the directory can't be synced after the link
// the object is there but may not be durable, so that the error says so and
// nothing is removed.
func (w *localWriter) Commit(ctx context.Context) error {
	if w.done {
		return storageError("commit", w.uri, nil, errors.New("the writer is finished already"))
	}
	if err := ctx.Err(); err != nil {
		w.Abort()
		return err
	}
	w.done = true
	failpoint.Slow()
	localSyncs.Add(1)
	err := w.file.Sync()
	err = errors.Join(err, w.file.Close())
	if err == nil {
		err = os.Link(w.temp, w.path)
	}
	rmErr := os.Remove(w.temp)
	if err != nil {
		return localError("commit", w.uri, err)
	}
	if err := errors.Join(rmErr, syncDir(filepath.Dir(w.path))); err != nil {
		return localError("sync", w.uri, err)
	}
	return nil
}

// Abort implements Writer.
func (w *localWriter) Abort() {
	if w.done {
		return
	}
	w.done = true
	// Nothing can be done about either error: the file was never visible.
	_ = w.file.Close()
	_ = os.Remove(w.temp)
}

// List implements Store. A missing directory has no objects.
func (localStore) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return listLocal(ctx, prefix, false)
}

// listLocal lists files, or the temporary ones.
func listLocal(ctx context.Context, prefix string, unfinished bool) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		p, err := localPath("list", prefix)
		if err != nil {
			yield(Info{}, err)
			return
		}
		l := lister{prefix: p, head: strings.TrimSuffix(prefix, p), unfinished: unfinished, yield: yield}
		l.dir(ctx, p[:strings.LastIndexByte(p, '/')+1])
	}
}

// lister walks directories in the order of whole paths, which is not the order
// of names: "a.b" comes before "a/b".
type lister struct {
	prefix string
	// head is what the caller's URIs have before the path.
	head string
	// unfinished: it lists the temporary files, and no others.
	unfinished bool
	yield      func(Info, error) bool
}

func (l *lister) dir(ctx context.Context, dir string) bool {
	if err := ctx.Err(); err != nil {
		return l.yield(Info{}, err) && false
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return true
	}
	if err != nil {
		return l.yield(Info{}, localError("list", l.head+dir, err)) && false
	}
	key := func(e os.DirEntry) string {
		if e.IsDir() {
			return e.Name() + "/"
		}
		return e.Name()
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(key(a), key(b)) })
	for _, e := range entries {
		path := dir + key(e)
		switch {
		case e.IsDir():
			if !strings.HasPrefix(path, l.prefix) && !strings.HasPrefix(l.prefix, path) {
				continue
			}
			if !l.dir(ctx, path) {
				return false
			}
		case strings.HasPrefix(path, l.prefix) && strings.HasSuffix(path, tempSuffix) == l.unfinished:
			st, err := os.Stat(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return l.yield(Info{}, localError("list", l.head+path, err)) && false
			}
			if st.IsDir() {
				continue
			}
			if !l.yield(Info{URI: l.head + path, Size: st.Size()}, nil) {
				return false
			}
		}
	}
	return true
}
