package history

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Delta is what the log of a Delta table in a directory tells.
type Delta struct {
	// Rows counts each value of a column over the live files.
	Rows     map[int64]int
	Versions int
	// Report's breaches are also versions that are missing, files that are added
	// again, and checkpoints that don't have the files of their version.
	Report
}

// ReadDelta reads all commits of the table in dir from version 0 on, and nothing
// but those: it takes no short cut that a reader of Delta tables takes. The tokens
// are in commitInfo under the given key, as Audit has them.
func ReadDelta(ctx context.Context, dir, column, key string) (Delta, error) {
	out := Delta{Report: Report{Files: map[string]bool{}}}
	breach := func(format string, args ...any) { out.Breaches = append(out.Breaches, fmt.Sprintf(format, args...)) }
	live, landed := map[string]bool{}, map[string]int{}
	for ; ; out.Versions++ {
		version := filepath.Join(dir, "_delta_log", fmt.Sprintf("%020d", out.Versions))
		raw, err := os.ReadFile(version + ".json")
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil {
			return out, err
		}
		commit, err := readDeltaCommit(raw, key)
		if err != nil {
			return out, fmt.Errorf("version %d: %w", out.Versions, err)
		}
		for _, token := range commit.tokens {
			if other, twice := landed[token]; twice {
				breach("token %s landed with the versions %d and %d", token, other, out.Versions)
			}
			landed[token] = out.Versions
		}
		for _, p := range commit.removed {
			delete(live, filepath.Join(dir, p))
		}
		for _, p := range commit.added {
			path := filepath.Join(dir, p)
			if out.Files[path] {
				breach("version %d adds %s again", out.Versions, path)
			}
			if _, err := os.Stat(path); err != nil {
				breach("version %d names %s: %v", out.Versions, path, err)
				continue
			}
			live[path], out.Files[path] = true, true
		}
		if b, err := checkpointBreach(ctx, version+".checkpoint.parquet", dir, live); err != nil {
			return out, err
		} else if b != "" {
			breach("%s", b)
		}
	}
	names, err := filepath.Glob(filepath.Join(dir, "_delta_log", "0*.json"))
	if err != nil {
		return out, err
	}
	if len(names) != out.Versions {
		breach("the log has %d commits, and version %d is missing", len(names), out.Versions)
	}
	times := map[string]int{}
	for p := range live {
		times[p] = 1
	}
	out.Rows, err = countRows(ctx, times, column)
	return out, err
}

type deltaCommit struct{ added, removed, tokens []string }

func readDeltaCommit(raw []byte, key string) (c deltaCommit, err error) {
	for line := range bytes.Lines(raw) {
		var action struct {
			Add, Remove *struct{ Path string }
			CommitInfo  map[string]any
		}
		if err := json.Unmarshal(line, &action); err != nil {
			return c, err
		}
		for file, paths := range map[*struct{ Path string }]*[]string{action.Add: &c.added, action.Remove: &c.removed} {
			if file == nil {
				continue
			}
			p, err := url.PathUnescape(file.Path)
			if err != nil {
				return c, err
			}
			*paths = append(*paths, p)
		}
		if text, ok := action.CommitInfo[key].(string); ok && text != "" {
			for part := range strings.SplitSeq(text, ",") {
				token, _, _ := strings.Cut(part, "=")
				c.tokens = append(c.tokens, token)
			}
		}
	}
	return c, nil
}

// checkpointBreach compares the files of a version's checkpoint, if there is one,
// with those that the commits leave.
func checkpointBreach(ctx context.Context, path, dir string, live map[string]bool) (breach string, err error) {
	if _, err := os.Stat(path); err != nil {
		return "", nil // most versions have none
	}
	db, err := sql.Open("duckdb", "")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	found, err := db.QueryContext(ctx, fmt.Sprintf(`SELECT add.path FROM read_parquet('%s') WHERE add.path IS NOT NULL`, path))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	var have []string
	for found.Next() {
		var p string
		if err := found.Scan(&p); err != nil {
			return "", err
		}
		if p, err = url.PathUnescape(p); err != nil {
			return "", err
		}
		have = append(have, filepath.Join(dir, p))
	}
	slices.Sort(have)
	if want := slices.Sorted(maps.Keys(live)); !slices.Equal(have, want) {
		breach = fmt.Sprintf("%s has %d files, and its version %d", path, len(have), len(want))
	}
	return breach, found.Err()
}
