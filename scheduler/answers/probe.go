package answers

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
)

const (
	// MaxProbe is how many bytes the answer to a probe may have.
	MaxProbe = 64 << 20

	maxColumns = 64 << 10
	maxGroups  = 1 << 20
)

// Probe gives the answer of an executor to a probe, with nothing in it but what was
// asked for: which of the files that the patterns stand for there are, how they are
// read, and what the query gives. Executors get keys for the files of a plan; one
// that could add others would choose what it may read.
func Probe(asked plan.ProbeRequest, got plan.ProbeResult) (plan.ProbeResult, error) {
	if len(got.Sources) != len(asked.Sources) {
		return got, badProbe("sources", fmt.Errorf("it answers for %d of %d (rule: each source once)", len(got.Sources), len(asked.Sources)))
	}
	if len(got.Columns) > maxColumns {
		return got, badProbe("columns", fmt.Errorf("%d of them (rule: at most %d)", len(got.Columns), maxColumns))
	}
	sources := slices.Clone(asked.Sources)
	for i := range sources {
		src := &sources[i]
		if src.Kind.Known() {
			continue // the scheduler knows all of it
		}
		if err := checkFiles(src.Patterns, got.Sources[i].Files); err != nil {
			return got, err
		}
		if len(got.Sources[i].Columns) > maxColumns {
			return got, badProbe(strings.Join(src.Patterns, ", "), fmt.Errorf("%d columns (rule: at most %d)", len(got.Sources[i].Columns), maxColumns))
		}
		src.Files, src.Columns, src.Options = got.Sources[i].Files, got.Sources[i].Columns, got.Sources[i].Options
	}
	got.Sources, got.Why = sources, Cut(got.Why, maxReject)
	return got, nil
}

func badProbe(object string, cause error) error {
	return &commit.Error{
		Code: commit.CodeProbeRefused, Op: "take an executor's description of", Object: Cut(object, maxName), Cause: cause,
	}
}

// checkFiles: each file is one that a pattern stands for, and a whole one.
func checkFiles(patterns []string, files []plan.SourceFile) error {
	fits := make([]func(string) bool, 0, len(patterns))
	for _, p := range patterns {
		fits = append(fits, standsFor(p))
	}
	for _, f := range files {
		if !slices.ContainsFunc(fits, func(fit func(string) bool) bool { return fit(f.Path) }) {
			return badProbe(f.Path, fmt.Errorf("no pattern of the statement stands for it (rule: only files that were asked for), patterns %s", Cut(strings.Join(patterns, ", "), maxName)))
		}
		if f.First != 0 || f.End != 0 || len(f.PositionDeletes) > 0 || len(f.EqualityDeletes) > 0 || f.NoFieldIDs {
			return badProbe(f.Path, errors.New("it is more than a whole file (rule: no slices, no deletes)"))
		}
		if f.Size < 0 || f.Rows < -1 || len(f.RowGroups) > maxGroups {
			return badProbe(f.Path, fmt.Errorf("%d bytes, %d rows in %d row groups (rule: counts aren't absurd)", f.Size, f.Rows, len(f.RowGroups)))
		}
		var rows, bytes int64
		for _, g := range f.RowGroups {
			if g.Rows < 0 || g.Bytes < 0 || rows > math.MaxInt64-g.Rows || bytes > math.MaxInt64-g.Bytes {
				return badProbe(f.Path, errors.New("its row groups don't add up (rule: counts aren't absurd)"))
			}
			rows, bytes = rows+g.Rows, bytes+g.Bytes
		}
	}
	return nil
}

// standsFor says of which files a pattern is one. A name with signs of patterns in it
// is also that name. A relative one is below a directory that only the executor
// knows, and its own rules about directories are what there is.
func standsFor(pattern string) func(string) bool {
	local, isLocal := objstore.LocalPattern(pattern)
	whole := pattern
	if isLocal {
		whole = filepath.Clean(local)
	}
	glob, err := objstore.Glob(whole)
	if err != nil {
		glob = nil // then it is no pattern
	}
	fits := func(path string) bool { return path == whole || glob != nil && glob.MatchString(path) }
	if !isLocal {
		return fits
	}
	return func(path string) bool {
		if filepath.Clean(path) != path || !filepath.IsAbs(path) {
			return false
		}
		if filepath.IsAbs(whole) {
			return fits(path)
		}
		for rest := path; rest != ""; {
			_, after, ok := strings.Cut(rest, "/")
			if !ok {
				return false
			}
			if rest = after; fits(rest) {
				return true
			}
		}
		return false
	}
}
