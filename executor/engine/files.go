package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
)

const globChars = "*?["

// expand finds what a source's patterns stand for, with sizes: the files of each
// pattern in order of their names, patterns in the order written.
func (s *session) expand(ctx context.Context, src plan.Source) ([]plan.SourceFile, error) {
	var all []plan.SourceFile
	for _, pattern := range src.Patterns {
		var files []plan.SourceFile
		var err error
		if p, local := objstore.LocalPattern(pattern); local {
			files, err = s.expandLocal(ctx, p)
		} else {
			files, err = expandObjects(ctx, s.stores(src.Storage), pattern)
		}
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, &commit.Error{
				Code: commit.CodeSourceNotFound, Op: "find files", Object: pattern,
				Cause: errors.New("no file matches"), Hint: "Check the path; it's read on the executor's machine.",
			}
		}
		all = append(all, files...)
	}
	return all, nil
}

func (s *session) expandLocal(ctx context.Context, pattern string) ([]plan.SourceFile, error) {
	pattern, err := filepath.Abs(pattern)
	if err != nil {
		return nil, err
	}
	// A name that exists is that file, whatever signs are in it.
	if _, err := os.Lstat(pattern); err == nil || !strings.ContainsAny(pattern, globChars) {
		f, err := s.statLocal(pattern)
		return []plan.SourceFile{f}, err
	}
	base := filepath.Dir(pattern[:strings.IndexAny(pattern, globChars)] + "x")
	if _, err := s.resolve(base); err != nil {
		return nil, err
	}
	found, err := s.db.Strings(ctx, "SELECT file FROM glob("+duckdb.Quote(pattern)+") ORDER BY file")
	if err != nil {
		return nil, fmt.Errorf("find files %s: %w", pattern, err)
	}
	files := make([]plan.SourceFile, len(found))
	for i, row := range found {
		if files[i], err = s.statLocal(row[0]); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// resolve gives the path with its symbolic links resolved, if it is allowed.
func (s *session) resolve(path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		// Whether a forbidden file exists is nobody's business.
		if !s.allowed(filepath.Clean(path)) {
			return "", notAllowed(path)
		}
		return "", storeError(path, err)
	}
	if !s.allowed(resolved) {
		return "", notAllowed(path)
	}
	return resolved, nil
}

func notAllowed(path string) error {
	return &commit.Error{
		Code: commit.CodeSourceNotAllowed, Op: "read file", Object: path,
		Cause: errors.New("it lies outside the directories that sources may be read from"),
		Hint:  "Add its directory to sources.local.allow in the scheduler's configuration.",
	}
}

func (s *session) statLocal(path string) (plan.SourceFile, error) {
	resolved, err := s.resolve(path)
	if err != nil {
		return plan.SourceFile{}, err
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return plan.SourceFile{}, storeError(path, err)
	}
	if !info.Mode().IsRegular() {
		return plan.SourceFile{}, badFile(path, "it is not a regular file")
	}
	return plan.SourceFile{Path: path, Size: info.Size(), Rows: -1}, nil
}

func expandObjects(ctx context.Context, st objstore.Store, pattern string) ([]plan.SourceFile, error) {
	cut := strings.IndexAny(pattern, globChars)
	if cut < 0 {
		size, err := st.Stat(ctx, pattern)
		if err != nil {
			return nil, storeError(pattern, err)
		}
		return []plan.SourceFile{{Path: pattern, Size: size, Rows: -1}}, nil
	}
	match, err := objstore.Glob(pattern)
	if err != nil {
		return nil, &commit.Error{Code: commit.CodeQueryFailed, Op: "find files", Object: pattern, Cause: err}
	}
	var files []plan.SourceFile
	for info, err := range st.List(ctx, pattern[:cut]) {
		if err != nil {
			return nil, storeError(pattern, err)
		}
		if match.MatchString(info.URI) {
			files = append(files, plan.SourceFile{Path: info.URI, Size: info.Size, Rows: -1})
		}
	}
	slices.SortFunc(files, func(a, b plan.SourceFile) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}
