package delta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/firn-project/firn/commit"
)

// checkpoint is a complete checkpoint: one file, or all parts in order.
type checkpoint struct {
	version int64
	kind    logKind
	files   []logFile
}

// segment is what a version is made of: a checkpoint, or none, and the commits
// after it up to the version.
type segment struct {
	version    int64
	checkpoint *checkpoint
	commits    []logFile
}

// Latest asks for the newest version.
const Latest int64 = -1

// listing is the part of a log that was listed.
type listing struct {
	commits     []logFile // ascending
	checkpoints []checkpoint
	newest      int64 // -1 when there is nothing
}

// list lists the log from a version on, or all of it with from 0.
func (l *Log) list(ctx context.Context, from int64) (listing, error) {
	var files []logFile
	take := func(prefix string) (last int64, err error) {
		last = -1
		dir := l.uri("")
		for info, err := range l.store.List(ctx, dir+prefix) {
			if err != nil {
				return last, err
			}
			f, ok := parseLogName(strings.TrimPrefix(info.URI, dir))
			if !ok || f.version < from {
				continue
			}
			f.size = info.Size
			files = append(files, f)
			if f.kind == kindCommit {
				last = max(last, f.version)
			}
		}
		return last, nil
	}
	if from == 0 {
		// All versions begin with a zero: 64 bits have 19 digits.
		if _, err := take("0"); err != nil {
			return listing{}, err
		}
		return newListing(files), nil
	}
	for block := from - from%blockSize; ; block += blockSize {
		last, err := take(blockPrefix(block))
		if err != nil {
			return listing{}, err
		}
		if last < block+blockSize-1 {
			return newListing(files), nil
		}
	}
}

func newListing(files []logFile) listing {
	out := listing{newest: -1}
	multi := map[[2]int64][]logFile{}
	for _, f := range files {
		switch {
		case f.kind == kindCommit:
			out.commits = append(out.commits, f)
		case f.size == 0: // never finished
			continue
		case f.kind == kindMultiPart:
			k := [2]int64{f.version, int64(f.parts)}
			multi[k] = append(multi[k], f)
			continue
		default:
			out.checkpoints = append(out.checkpoints, checkpoint{f.version, f.kind, []logFile{f}})
		}
		out.newest = max(out.newest, f.version)
	}
	for k, parts := range multi {
		slices.SortFunc(parts, func(a, b logFile) int { return cmp.Compare(a.part, b.part) })
		parts = slices.CompactFunc(parts, func(a, b logFile) bool { return a.part == b.part })
		if int64(len(parts)) == k[1] {
			out.checkpoints = append(out.checkpoints, checkpoint{k[0], kindMultiPart, parts})
			out.newest = max(out.newest, k[0])
		}
	}
	slices.SortFunc(out.commits, func(a, b logFile) int { return cmp.Compare(a.version, b.version) })
	// Newest first; of one version the kinds that read fastest first, and always
	// in one order.
	slices.SortFunc(out.checkpoints, func(a, b checkpoint) int {
		return cmp.Or(cmp.Compare(b.version, a.version), cmp.Compare(a.kind, b.kind), cmp.Compare(len(a.files), len(b.files)),
			strings.Compare(a.files[0].name, b.files[0].name))
	})
	return out
}

// segments gives the ways to build a version, best first: from each checkpoint at
// or below it, and from the beginning.
func (s listing) segments(root string, at int64) ([]segment, error) {
	if s.newest < 0 {
		return nil, notFound(root)
	}
	version := at
	if at == Latest {
		version = s.newest
	}
	if version > s.newest {
		return nil, noVersion(root, at, "the newest version is %d", s.newest)
	}
	var out []segment
	var gap error
	try := func(c *checkpoint) {
		from := int64(0)
		if c != nil {
			from = c.version + 1
		}
		seg := segment{version: version, checkpoint: c}
		want := from
		for _, f := range s.commits {
			if f.version < from || f.version > version {
				continue
			}
			if f.version != want {
				break
			}
			seg.commits = append(seg.commits, f)
			want++
		}
		if want != version+1 {
			gap = cmp.Or(gap, fmt.Errorf("the commit %s is missing, and no checkpoint at or after it is complete", commitName(want)))
			return
		}
		out = append(out, seg)
	}
	for i := range s.checkpoints {
		if s.checkpoints[i].version <= version {
			try(&s.checkpoints[i])
		}
	}
	try(nil)
	if len(out) == 0 {
		if at != Latest {
			return nil, noVersion(root, at, "%w", gap)
		}
		return nil, damaged(root+"/"+logDir, gap)
	}
	return out, nil
}

// candidates gives the ways to build a version. The hint only says where to begin
// to list.
func (l *Log) candidates(ctx context.Context, at int64) ([]segment, error) {
	h, ok, err := l.readHint(ctx)
	if err != nil {
		return nil, newError(commit.CodeStorage, "open Delta table", l.root, err)
	}
	if ok && h.Version > 0 && (at == Latest || h.Version <= at) {
		s, err := l.list(ctx, h.Version)
		if err != nil {
			return nil, newError(commit.CodeStorage, "open Delta table", l.root, err)
		}
		// Only what a checkpoint begins can be used of a log's end.
		if segs, err := s.segments(l.root, at); err == nil && segs[0].checkpoint != nil {
			return segs, nil
		}
	}
	return l.allCandidates(ctx, at)
}

// allCandidates lists the whole log. A listing of many pages isn't of one moment: a
// version may be missing from it that was written while it went on, so that a gap
// is looked at twice.
func (l *Log) allCandidates(ctx context.Context, at int64) (segs []segment, err error) {
	for range 2 {
		s, lerr := l.list(ctx, 0)
		if lerr != nil {
			return nil, newError(commit.CodeStorage, "open Delta table", l.root, lerr)
		}
		if segs, err = s.segments(l.root, at); commit.CodeOf(err) != commit.CodeMetadataInvalid {
			return segs, err
		}
	}
	return nil, err
}

// usable says whether an error of one way to build a version leaves others worth
// trying: the file is damaged or gone, and not the store out of reach.
func usable(err error) bool {
	return isNotFound(err) || commit.CodeOf(err) == commit.CodeMetadataInvalid && !errors.Is(err, context.Canceled)
}
