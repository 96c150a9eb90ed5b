package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/apache/iceberg-go/table"
	_ "github.com/duckdb/duckdb-go/v2" // reads the data files
)

// Read counts each value of a BIGINT column over the files of a table's current
// snapshot. A file that the scan names twice counts twice.
func Read(ctx context.Context, t *table.Table, column string) (rows map[int64]int, err error) {
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

// Audit checks what a table promises beyond its rows, over all its snapshots: it
// gives a line for each file that is named and isn't there, and for each token
// that the value of the summary's key says landed with two snapshots. A token is
// what stands before the first "=" of each of the value's parts, parted by spaces
// or commas.
func Audit(ctx context.Context, t *table.Table, key string) ([]string, error) {
	fs, err := t.FS(ctx)
	if err != nil {
		return nil, err
	}
	var bad []string
	exists := map[string]bool{}
	check := func(path string, snapshot int64) {
		if exists[path] {
			return
		}
		exists[path] = true
		f, err := fs.Open(path)
		if err != nil {
			bad = append(bad, fmt.Sprintf("snapshot %d names %s: %v", snapshot, path, err))
			return
		}
		_ = f.Close()
	}
	landed := map[string]int64{}
	for _, s := range t.Metadata().Snapshots() {
		if s.Summary != nil {
			for _, part := range strings.FieldsFunc(s.Summary.Properties[key], func(r rune) bool { return r == ',' || r == ' ' }) {
				token, _, _ := strings.Cut(part, "=")
				if other, twice := landed[token]; twice {
					bad = append(bad, fmt.Sprintf("token %s landed with the snapshots %d and %d", token, other, s.SnapshotID))
				}
				landed[token] = s.SnapshotID
			}
		}
		check(s.ManifestList, s.SnapshotID)
		manifests, err := s.Manifests(fs)
		if err != nil {
			bad = append(bad, fmt.Sprintf("snapshot %d: %v", s.SnapshotID, err))
			continue
		}
		for _, m := range manifests {
			entries, err := m.FetchEntries(fs, true)
			if err != nil && !errors.Is(err, io.EOF) {
				bad = append(bad, fmt.Sprintf("manifest %s: %v", m.FilePath(), err))
				continue
			}
			for _, e := range entries {
				check(e.DataFile().FilePath(), s.SnapshotID)
			}
		}
	}
	return bad, nil
}

// local is a file's path as DuckDB takes it.
func local(path string) string { return strings.TrimPrefix(path, "file://") }
