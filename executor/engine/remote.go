package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"golang.org/x/sync/errgroup"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/lazyfile"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
)

const (
	// openAtOnce is how many objects are opened at the same time: that's two
	// requests each, and nothing to compute.
	openAtOnce = 8
	// footerGuess is how much of an object's end is asked for at first. Most
	// footers fit.
	footerGuess = 32 << 10
	// downloadWindow and downloadsAtOnce are for objects that are read whole.
	downloadWindow  = 8 << 20
	downloadsAtOnce = 4
)

// remote are the objects of a session. DuckDB sees Parquet objects as local files
// that are filled as it reads them; other objects are copied.
type remote struct {
	// ctx ends the reads: DuckDB can't be interrupted in the middle of one.
	ctx    context.Context //nolint:containedctx // DuckDB's reads bring none
	cancel context.CancelFunc
	quota  *lazyfile.Quota
	// paths are the local files of objects by their URIs; files and uris are what
	// they are.
	paths map[string]string
	files map[string]*lazyfile.File
	uris  map[string]string
}

// path gives the local file that stands for an object, if it was opened.
func (r *remote) path(uri string) (string, bool) {
	if r == nil {
		return "", false
	}
	p, ok := r.paths[uri]
	return p, ok
}

// err is the first error of reading an object.
func (r *remote) err() error {
	if r == nil {
		return nil
	}
	for path, f := range r.files {
		if err := f.Err(); err != nil && r.ctx.Err() == nil {
			return storeError(r.uris[path], err)
		}
	}
	return nil
}

func (r *remote) close() {
	if r == nil {
		return
	}
	r.cancel()
	for _, f := range r.files {
		_ = f.Close()
	}
}

func (s *session) remotely(ctx context.Context) *remote {
	if s.remote == nil {
		s.remote = &remote{
			quota: lazyfile.NewQuota(s.cfg.MaxStage),
			files: map[string]*lazyfile.File{}, paths: map[string]string{}, uris: map[string]string{},
		}
		s.remote.ctx, s.remote.cancel = context.WithCancel(ctx)
	}
	return s.remote
}

// openObjects opens those of a source's Parquet files that are objects.
func (s *session) openObjects(ctx context.Context, src plan.Source, files []plan.SourceFile) error {
	type opening struct {
		plan.SourceFile
		to   string
		file *lazyfile.File
	}
	var all []*opening
	for _, f := range files {
		if _, local := objstore.LocalPattern(f.Path); local {
			continue
		}
		r := s.remotely(ctx)
		if _, open := r.paths[f.Path]; open {
			continue
		}
		to, err := s.place(objectName(f.Path))
		if err != nil {
			return err
		}
		r.paths[f.Path] = to
		all = append(all, &opening{SourceFile: f, to: to})
	}
	if len(all) == 0 {
		return nil
	}
	st := s.stores(src.Storage)
	var g errgroup.Group
	g.SetLimit(openAtOnce)
	for _, o := range all {
		g.Go(func() (err error) {
			if o.file, err = s.remote.open(st, src.Kind, o.SourceFile, o.to); err != nil {
				err = storeError(o.Path, err)
			}
			return err
		})
	}
	err := g.Wait()
	for _, o := range all {
		if o.file != nil {
			s.remote.files[o.to], s.remote.uris[o.to] = o.file, o.Path
		}
	}
	return err
}

// open gives an object as a local file that is filled as it's read. Its footer is
// there already.
func (r *remote) open(st objstore.Store, kind plan.SourceKind, f plan.SourceFile, to string) (*lazyfile.File, error) {
	obj, err := st.Open(r.ctx, f.Path)
	if err != nil {
		return nil, err
	}
	size := obj.Size()
	if kind == plan.SourceParquet && f.Rows >= 0 && f.Size != size {
		return nil, errors.Join(fmt.Errorf("the object has %d bytes, and had %d when the query was planned", size, f.Size), obj.Close())
	}
	l, err := lazyfile.New(r.ctx, to, obj, r.quota)
	if err != nil {
		return nil, err
	}
	guess := min(size, footerGuess)
	if _, err := l.ReadAt(make([]byte, guess), size-guess); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, l.Close())
	}
	l.SetParts(chunks(l))
	return l, nil
}

// chunks gives the column chunks of a Parquet file; none if its footer is damaged,
// which others tell better.
func chunks(l *lazyfile.File) (parts []lazyfile.Part) {
	defer func() {
		if recover() != nil {
			parts = nil
		}
	}()
	r, err := file.NewParquetReader(io.NewSectionReader(l, 0, l.Size()))
	if err != nil {
		return nil
	}
	defer func() { _ = r.Close() }()
	md := r.MetaData()
	for g := range md.NumRowGroups() {
		rg := md.RowGroup(g)
		for c := range rg.NumColumns() {
			col, err := rg.ColumnChunk(c)
			if err != nil {
				return nil
			}
			start := chunkStart(col)
			if end := start + col.TotalCompressedSize(); start >= 0 && start < end && end <= l.Size() {
				parts = append(parts, lazyfile.Part{Start: start, End: end, Group: g, Column: c})
			}
		}
	}
	return parts
}

// chunkStart is where the first page of a column chunk begins.
func chunkStart(col *metadata.ColumnChunkMetaData) int64 {
	start := col.DataPageOffset()
	if col.HasDictionaryPage() && col.DictionaryPageOffset() > 0 {
		start = min(start, col.DictionaryPageOffset())
	}
	return start
}

// openInput opens a staged Parquet file for Firn's own reading. The caller calls
// done.
func (s *session) openInput(ctx context.Context, in input) (obj objstore.Object, done func(), err error) {
	if s.remote != nil {
		if l := s.remote.files[in.open]; l != nil {
			return l, func() {}, nil // the session closes it
		}
	}
	if obj, err = s.stores(nil).Open(ctx, in.open); err != nil {
		return nil, nil, err
	}
	return obj, func() { _ = obj.Close() }, nil
}

// download copies an object whole.
func (s *session) download(ctx context.Context, src plan.Source, uri string) (string, error) {
	to, err := s.place(objectName(uri))
	if err != nil {
		return "", err
	}
	obj, err := s.stores(src.Storage).Open(ctx, uri)
	if err != nil {
		return "", storeError(uri, err)
	}
	defer func() { _ = obj.Close() }()
	defer context.AfterFunc(ctx, func() { _ = obj.Close() })()
	if !s.remotely(ctx).quota.Take(obj.Size()) {
		return "", &commit.Error{
			Code: commit.CodeSpillFull, Op: "stage file", Object: uri,
			Cause: fmt.Errorf("its %d bytes are more than a task may keep of objects: %d in all", obj.Size(), s.cfg.MaxStage),
			Hint:  "Give the executor more disk for objects (--object-cache). Text files are copied whole; write smaller ones, or Parquet.",
		}
	}
	if err := copyObject(ctx, to, obj); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", storeError(uri, err)
	}
	return to, nil
}

// copyObject copies an object in stretches, several at once.
func copyObject(ctx context.Context, to string, obj objstore.Object) error {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(downloadsAtOnce)
	for at := int64(0); at < obj.Size(); at += downloadWindow {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			buf := make([]byte, min(downloadWindow, obj.Size()-at))
			if n, err := obj.ReadAt(buf, at); n < len(buf) {
				return errors.Join(err, io.ErrUnexpectedEOF)
			}
			_, err := f.WriteAt(buf, at)
			return err
		})
	}
	return errors.Join(g.Wait(), f.Close())
}
