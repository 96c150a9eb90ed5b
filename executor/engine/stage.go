package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
)

// input is a file as DuckDB opens it, with what the plan says about it.
type input struct {
	plan.SourceFile
	// open is the path that DuckDB gets.
	open string
	// schema is a Parquet file's own schema as text, only when probed.
	schema string
}

// stage makes the files of a source readable for DuckDB.
func (s *session) stage(ctx context.Context, src plan.Source) ([]input, error) {
	if src.Kind == plan.SourceParquet || src.Kind == plan.SourceTable {
		if err := s.openObjects(ctx, src, src.Files); err != nil {
			return nil, err
		}
	}
	in := make([]input, len(src.Files))
	for i, f := range src.Files {
		p, err := s.stageFile(ctx, src, f.Path)
		if err != nil {
			return nil, err
		}
		if err := sameFile(src.Kind, f, p); err != nil {
			return nil, err
		}
		in[i] = input{SourceFile: f, open: p}
		s.names[p] = f.Path
	}
	return in, nil
}

// sameFile refuses a Parquet file that isn't the one that the query was planned for:
// row groups would be read at places that they had there. Of objects it is looked at
// when they're opened.
func sameFile(kind plan.SourceKind, f plan.SourceFile, opened string) error {
	if kind != plan.SourceParquet || f.Rows < 0 || f.Size <= 0 || objstore.Remote(f.Path) {
		return nil
	}
	info, err := os.Stat(opened)
	if err != nil {
		return storeError(f.Path, err)
	}
	if info.Size() == f.Size {
		return nil
	}
	return &commit.Error{
		Code: commit.CodeSourceRead, Op: "read file", Object: f.Path,
		Cause: fmt.Errorf("it has %d bytes, and had %d when the query was planned", info.Size(), f.Size), Hint: "Run the statement again, for the rows that are there now.",
	}
}

// stageFile gives the path under which DuckDB can read a file: its own where the
// lock allows that, else one in the attempt's directory.
func (s *session) stageFile(ctx context.Context, src plan.Source, location string) (string, error) {
	local, ok := objstore.LocalPattern(location)
	if !ok {
		if opened, ok := s.remote.path(location); ok {
			return opened, nil
		}
		return s.download(ctx, src, location)
	}
	if src.Kind != plan.SourceTable {
		return s.resolve(local)
	}
	// The files of a table were named by the scheduler, which read them from
	// the table itself; the allow-list is about what people write.
	resolved, err := filepath.EvalSymlinks(local)
	if err != nil {
		return "", storeError(location, err)
	}
	if s.allowed(resolved) {
		return resolved, nil
	}
	to, err := s.place(filepath.Base(resolved))
	if err != nil {
		return "", err
	}
	if os.Link(resolved, to) == nil {
		return to, nil
	}
	// Another file system, or one without hard links.
	from, err := os.Open(resolved)
	if err != nil {
		return "", storeError(location, err)
	}
	defer func() { _ = from.Close() }()
	if err := writeFile(ctx, to, from); err != nil {
		return "", storeError(location, err)
	}
	return to, nil
}

// place makes a directory of its own for one staged file and gives the file's
// path in it. name may have directories: Hive partitions are read from them.
func (s *session) place(name string) (string, error) {
	s.staged++
	to := filepath.Join(s.dir, "in", strconv.Itoa(s.staged), filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return "", storeError(s.dir, err)
	}
	return to, nil
}

// objectName is an object's key as a safe relative path.
func objectName(uri string) string {
	_, rest, _ := strings.Cut(uri, "://")
	_, key, _ := strings.Cut(rest, "/")
	return strings.TrimPrefix(path.Clean("/"+key), "/")
}

func writeFile(ctx context.Context, to string, from io.Reader) error {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(f, &stoppable{ctx, from}, make([]byte, 1<<20))
	return errors.Join(err, f.Close())
}

// stoppable is a reader that ends with its context.
type stoppable struct {
	ctx  context.Context //nolint:containedctx // lives for one copy
	from io.Reader
}

func (r *stoppable) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(p)
}
