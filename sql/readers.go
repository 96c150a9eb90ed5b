package sql

import "strings"

// readerOf names the reader for a path by its ending, "" when it's no data
// file's.
func readerOf(path string) string {
	p := strings.ToLower(path)
	if i := strings.IndexByte(p, '?'); i >= 0 && strings.Contains(p, "://") {
		p = p[:i]
	}
	for _, z := range []string{".gz", ".zst"} {
		if base, ok := strings.CutSuffix(p, z); ok && !strings.HasSuffix(base, ".parquet") {
			p = base
		}
	}
	for _, e := range []struct{ ending, reader string }{
		{".parquet", "read_parquet"}, {".csv", "read_csv"}, {".tsv", "read_csv"},
		{".json", "read_json"}, {".jsonl", "read_json"}, {".ndjson", "read_json"},
	} {
		if strings.HasSuffix(p, e.ending) {
			return e.reader
		}
	}
	return ""
}
