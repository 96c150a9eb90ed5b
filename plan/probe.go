package plan

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
