package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
)

// blockLines is how many lines of JSON are tried together when bad ones are
// looked for.
const blockLines = 2000

// sieve finds the lines of newline-delimited JSON files that DuckDB can't read
// with the columns of their source. DuckDB stops at the first and tells its place
// only roughly, so blocks of lines are read by themselves, and halves of a block
// that fails, down to single lines. What is a bad line is so decided by DuckDB's
// reader alone.
type sieve struct {
	s    *session
	opts map[string]string
	// try is the file that a block is read from.
	try string
	// most is how many bad lines are looked for.
	most    int64
	count   int64
	rejects []Reject
}

// lineDelimited says whether each line of the files is a record of its own, so
// that single ones can be left out. Compressed files aren't looked into.
func lineDelimited(src plan.Source, in []input) bool {
	if src.Kind != plan.SourceJSON || len(in) == 0 || byName(src.Options) || src.Options["columns"] == "" ||
		src.Options["ignore_errors"] != "" || src.Options["compression"] != "" {
		return false
	}
	switch strings.ToLower(strings.Trim(src.Options["format"], "'")) {
	case "newline_delimited", "nd":
	case "", "auto":
		return !slices.ContainsFunc(in, func(f input) bool { return !startsWithRecord(f.open) })
	default:
		return false
	}
	return !slices.ContainsFunc(in, func(f input) bool { return compressed(f.open) })
}

func compressed(path string) bool {
	ext := strings.ToLower(filepath.Ext(path))
	return ext == ".gz" || ext == ".zst"
}

// startsWithRecord says whether the first line that isn't blank is an object by
// itself.
func startsWithRecord(path string) bool {
	f, err := os.Open(path)
	if err != nil || compressed(path) {
		return false
	}
	defer func() { _ = f.Close() }()
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadBytes('\n')
		if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 {
			return trimmed[0] == '{' && json.Valid(trimmed)
		}
		if err != nil {
			return false
		}
	}
}

func (s *session) newSieve(src plan.Source, most int64) (*sieve, error) {
	try, err := s.place("block.ndjson")
	if err != nil {
		return nil, err
	}
	opts := maps.Clone(src.Options)
	for _, outside := range []string{"hive_partitioning", "hive_types", "hive_types_autocast", "filename"} {
		delete(opts, outside)
	}
	opts["format"] = "'newline_delimited'"
	return &sieve{s: s, opts: opts, try: try, most: most}, nil
}

// clean stages copies without bad lines of the files that have any, as long as
// there aren't more than allowed.
func (v *sieve) clean(ctx context.Context, in []input) ([]input, error) {
	out := slices.Clone(in)
	for i, f := range in {
		to, err := v.s.place(filepath.Base(f.open))
		if err != nil {
			return nil, err
		}
		before := v.count
		if err := v.copy(ctx, f, to); err != nil {
			return nil, err
		}
		if v.count == before {
			if err := os.Remove(to); err != nil {
				return nil, err
			}
			continue
		}
		v.s.names[to] = v.s.names[f.open]
		out[i].open = to
	}
	return out, nil
}

// copy writes the good lines of a file. It ends early when most bad ones are
// found.
func (v *sieve) copy(ctx context.Context, f input, to string) (err error) {
	from, err := os.Open(f.open)
	if err != nil {
		return storeError(f.Path, err)
	}
	defer func() { _ = from.Close() }()
	out, err := os.Create(to)
	if err != nil {
		return storeError(v.s.dir, err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	r, w := bufio.NewReaderSize(from, 1<<16), bufio.NewWriter(out)
	for first, end := int64(1), false; !end && v.count < v.most; {
		var block [][]byte
		for len(block) < blockLines {
			line, err := r.ReadBytes('\n')
			if len(line) > 0 {
				block = append(block, bytes.TrimSuffix(line, []byte("\n")))
			}
			if end = errors.Is(err, io.EOF); end {
				break
			} else if err != nil {
				return storeError(f.Path, err)
			}
		}
		if err := v.sift(ctx, f, first, block, w); err != nil {
			return err
		}
		first += int64(len(block))
	}
	if err := w.Flush(); err != nil {
		return storeError(v.s.dir, err)
	}
	return nil
}

// sift writes the lines that can be read and notes the others.
func (v *sieve) sift(ctx context.Context, f input, first int64, lines [][]byte, w *bufio.Writer) error {
	if len(lines) == 0 || v.count >= v.most {
		return nil
	}
	bad, err := v.readable(ctx, lines)
	if err != nil {
		return err
	}
	if bad == nil {
		for _, l := range lines {
			// A write error stays in w until Flush.
			_, _ = w.Write(l)
			_ = w.WriteByte('\n')
		}
		return nil
	}
	if len(lines) == 1 {
		if v.count++; len(v.rejects) < listed {
			v.rejects = append(v.rejects, Reject{File: f.Path, Line: first, Text: oneLine(string(lines[0])), Reason: v.reason(bad)})
		}
		return nil
	}
	half := len(lines) / 2
	if err := v.sift(ctx, f, first, lines[:half], w); err != nil {
		return err
	}
	return v.sift(ctx, f, first+int64(half), lines[half:], w)
}

// readable has DuckDB read the lines; bad is what it says if it can't.
func (v *sieve) readable(ctx context.Context, lines [][]byte) (bad *duckdb.Error, err error) {
	if err := os.WriteFile(v.try, append(bytes.Join(lines, []byte("\n")), '\n'), 0o600); err != nil {
		return nil, storeError(v.s.dir, err)
	}
	_, err = v.s.db.Strings(ctx, "SELECT max(hash(t))::VARCHAR FROM "+call(readers[plan.SourceJSON], []input{{open: v.try}}, v.opts)+" t")
	if err == nil {
		return nil, nil
	}
	if Class(queryError(err, nil)) != ClassNotRetryable || ctx.Err() != nil {
		return nil, err
	}
	e, ok := errors.AsType[*duckdb.Error](err)
	if !ok {
		return nil, err
	}
	return e, nil
}

// reason is DuckDB's message without the place in the block's file.
func (v *sieve) reason(e *duckdb.Error) string {
	msg := strings.ReplaceAll(clean(e.Message), v.try, "")
	if head, rest, ok := strings.Cut(msg, ` in file "", `); ok {
		if _, what, ok := strings.Cut(rest, ": "); ok {
			msg = head + ": " + what
		}
	}
	msg, _, _ = strings.Cut(msg, " Try increasing")
	return strings.TrimRight(oneLine(msg), ". ")
}

// siftJSON leaves the bad lines of a JSON source out, if a limit allows some.
func (s *session) siftJSON(ctx context.Context, src plan.Source, in []input, limit int64) ([]input, error) {
	if limit <= 0 || !lineDelimited(src, in) {
		return in, nil
	}
	v, err := s.newSieve(src, limit-s.jsonRejected+listed)
	if err != nil {
		return nil, err
	}
	out, err := v.clean(ctx, in)
	if err != nil {
		return nil, err
	}
	s.jsonRejected += v.count
	s.jsonRejects = append(s.jsonRejects, v.rejects...)
	return out, nil
}

// explainJSON finds the first bad lines after a query failed on one, so that the
// error names them all with their places. Without any the error stays.
func (s *session) explainJSON(ctx context.Context, failed error, q *plan.Query) error {
	for _, src := range q.Sources {
		if src.Kind != plan.SourceJSON {
			continue
		}
		in, err := s.stage(ctx, src)
		if err != nil || !lineDelimited(src, in) {
			continue
		}
		v, err := s.newSieve(src, listed)
		if err != nil {
			return failed
		}
		if _, err := v.clean(ctx, in); err != nil || v.count == 0 {
			continue
		}
		return tooMany(v.count, q.RejectLimit, v.rejects, q.Sources)
	}
	return failed
}

// mergeRejects puts the lists of rejected rows together, by file and line.
func mergeRejects(a, b []Reject) []Reject {
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, func(x, y Reject) int {
		if x.File != y.File {
			return strings.Compare(x.File, y.File)
		}
		return int(x.Line - y.Line)
	})
	return all[:min(len(all), listed)]
}
