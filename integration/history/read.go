package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	iceio "github.com/apache/iceberg-go/io"
	"github.com/apache/iceberg-go/table"
	_ "github.com/duckdb/duckdb-go/v2" // reads the data files
)

// Read counts each value of a BIGINT column over the files of a table's current
// snapshot. A file that the scan names twice counts twice.
func Read(ctx context.Context, t *table.Table, column string) (map[int64]int, error) {
	tasks, err := t.Scan().PlanFiles(ctx)
	if err != nil {
		return nil, fmt.Errorf("plan a scan: %w", err)
	}
	times := map[string]int{}
	for _, task := range tasks {
		if n := len(task.DeleteFiles); n > 0 {
			return nil, fmt.Errorf("%s has %d delete files", task.File.FilePath(), n)
		}
		times[local(task.File.FilePath())]++
	}
	return countRows(ctx, times, column)
}

// countRows counts each value of a column over local Parquet files, each as often
// as it stands.
func countRows(ctx context.Context, times map[string]int, column string) (rows map[int64]int, err error) {
	rows = map[int64]int{}
	if len(times) == 0 {
		return rows, nil
	}
	paths := make([]string, 0, len(times))
	for p := range times {
		paths = append(paths, "'"+strings.ReplaceAll(p, "'", "''")+"'")
	}
	slices.Sort(paths)
	db, err := sql.Open("duckdb", "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	found, err := db.QueryContext(ctx, fmt.Sprintf(`SELECT filename, "%s", count(*) FROM read_parquet([%s], filename = true, hive_partitioning = false) GROUP BY ALL`, column, strings.Join(paths, ", ")))
	if err != nil {
		return nil, fmt.Errorf("read the table's files: %w", err)
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	for found.Next() {
		var path string
		var id int64
		var n int
		if err := found.Scan(&path, &id, &n); err != nil {
			return nil, err
		}
		rows[id] += n * times[path]
	}
	return rows, found.Err()
}

// Report is what an audit found.
type Report struct {
	// Files are all data files that a snapshot names, Metadata all manifest lists
	// and manifests, as local paths.
	Files, Metadata map[string]bool
	// Breaches has a line for each file that is named and isn't there, and for
	// each token that landed with two snapshots.
	Breaches []string
}

// Audit checks what a table promises beyond its rows, over all its snapshots. The
// tokens are in the summary's value of the given key, parted by commas; a token is
// what stands before its "=".
func Audit(ctx context.Context, t *table.Table, key string) (Report, error) {
	fs, err := t.FS(ctx)
	if err != nil {
		return Report{}, err
	}
	a := auditor{fs: fs, report: Report{Files: map[string]bool{}, Metadata: map[string]bool{}}, manifests: map[string]bool{}}
	landed := map[string]int64{}
	for _, s := range t.Metadata().Snapshots() {
		if s.Summary != nil && s.Summary.Properties[key] != "" {
			for part := range strings.SplitSeq(s.Summary.Properties[key], ",") {
				token, _, _ := strings.Cut(part, "=")
				if other, twice := landed[token]; twice {
					a.breach("token %s landed with the snapshots %d and %d", token, other, s.SnapshotID)
				}
				landed[token] = s.SnapshotID
			}
		}
		a.snapshot(s)
	}
	return a.report, nil
}

// auditor walks over the files of snapshots.
type auditor struct {
	fs        iceio.IO
	report    Report
	manifests map[string]bool
}

func (a *auditor) breach(format string, args ...any) {
	a.report.Breaches = append(a.report.Breaches, fmt.Sprintf(format, args...))
}

func (a *auditor) snapshot(s table.Snapshot) {
	a.report.Metadata[local(s.ManifestList)] = true
	manifests, err := s.Manifests(a.fs)
	if err != nil {
		a.breach("snapshot %d: %v", s.SnapshotID, err)
		return
	}
	for _, m := range manifests {
		if a.manifests[m.FilePath()] {
			continue
		}
		a.manifests[m.FilePath()] = true
		a.report.Metadata[local(m.FilePath())] = true
		for e, err := range m.Entries(a.fs, true) {
			if err != nil {
				a.breach("manifest %s of snapshot %d: %v", m.FilePath(), s.SnapshotID, err)
				break
			}
			path := e.DataFile().FilePath()
			if a.report.Files[local(path)] {
				continue
			}
			a.report.Files[local(path)] = true
			f, err := a.fs.Open(path)
			if err != nil {
				a.breach("snapshot %d names %s: %v", s.SnapshotID, path, err)
				continue
			}
			_ = f.Close()
		}
	}
}

// local is a file's path as DuckDB takes it.
func local(path string) string { return strings.TrimPrefix(path, "file://") }
