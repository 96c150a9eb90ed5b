package plan

import "fmt"

// ProbeRequest asks an executor what a query's sources are and what the query
// gives. User SQL is bound there, never in the process that holds the secrets.
type ProbeRequest struct {
	// SQL is the query with sources named by their views.
	SQL string
	// Sources have patterns (files) or files (tables); tables also columns.
	Sources []Source
}

// ProbeResult is what the executor found.
type ProbeResult struct {
	// Sources are those of the request with Files (Parquet: with RowGroups)
	// and Columns filled in, in the same order. Several files whose schemas
	// differ are an error that names the file and the column.
	Sources []Source
	// Columns is what the query gives: names and DuckDB types. Nothing is
	// Required unless DuckDB proves it.
	Columns []Column
	// RowWise: DuckDB's own plan has only scan, filter, projection and unnest
	// over exactly one scan of one source, so it may run partition by
	// partition. Why names the operator that decided.
	RowWise bool
	Why     string
	// Deterministic: no volatile function occurs.
	Deterministic bool
}

// Parallel decides whether the query may run partition by partition: only if no cut
// of its one source can change its rows. why is the reason, either way.
func (r ProbeResult) Parallel() (ok bool, why string) {
	switch {
	case len(r.Sources) == 0:
		return false, "it reads no source"
	case len(r.Sources) > 1:
		return false, "it reads more than one source"
	case !r.RowWise:
		return false, r.Why
	case !r.Deterministic:
		return false, "it isn't deterministic"
	}
	switch s := r.Sources[0]; s.Kind {
	case SourceUpload:
		return false, "an upload is one stream"
	case SourceCSV, SourceJSON:
		if len(s.Files) < 2 {
			return false, fmt.Sprintf("one %s file can't be cut", s.Kind)
		}
	}
	return true, "each row of its one source is handled by itself"
}
