// Package duckdb runs SQL in an embedded DuckDB that is locked down, and hands
// results out as streams of Arrow record batches.
//
// An Instance is one in-memory database with one connection. It is opened for
// one task (or one probe, or as a parser), costs about 7 ms, and is closed
// afterwards: nothing that a task made, attached or read can be seen by the next
// one, and settings that differ between jobs (the time zone, the memory limit)
// are fixed before the lock.
//
// Arrow readers are never registered as DuckDB views: DuckDB's scan of them
// expects the reader to carry out projections and filters, and answers wrongly
// or crashes when it doesn't. Batches go in through Instance.AppendTable and
// come out through Rows.
//
// The package needs the build tag duckdb_arrow, which DuckDB's Go bindings ask
// for.
package duckdb
