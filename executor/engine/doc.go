// Package engine runs the queries of tasks in DuckDB and tells the analyzer what
// a query's sources are.
//
// An Engine belongs to one task slot. Each probe and each query opens its own
// locked DuckDB instance (about 7 ms) and closes it at the end, so that nothing of
// one job is ever visible to the next one in the same slot, and so that a job's
// time zone and memory limit can be fixed before the lock.
//
// # What a query may reach
//
// The executor gets a query's text from the scheduler, where a client wrote it.
// Four things stand between the text and the machine, each enough for most
// attacks:
//
//   - the text must parse as one SELECT that names nothing but the views of its
//     sources and calls only harmless functions (checkTree, sql.Verify);
//   - what the plan says about a source becomes literals and types in the engine's
//     own statements, nothing else (checkSource);
//   - a source's local files must lie under the allowed directories, symbolic
//     links resolved (Config.LocalAllow, sources.local.allow);
//   - the instance is locked: DuckDB opens files in those directories and in the
//     attempt's own directory, loads nothing, writes nowhere else.
//
// # Sources
//
// Files of a source become one view of the name that the query uses. Local
// sources are read where they are. The files of tables are staged in the attempt's
// directory first, since the lock is made before DuckDB reads: as hard links.
// Parquet objects appear there as files that fill themselves as DuckDB reads them
// (internal/lazyfile): their footers first, then the chunks of those columns and
// row groups that the query turns out to need. Other objects are copied. What a probe found out about a
// source (columns, types, CSV dialect) is pinned in its plan.Source, so that all
// tasks read alike, whichever of the files they hold.
//
// What a Flight SQL engine gave comes as streams of Arrow batches, which are appended to
// a table: to be read as a whole or, by a query that looks at each row by itself, piece
// by piece in the same place, so that a stream of any length needs bounded memory.
//
// Rows of a Parquet file are numbered; a slice of a file is a range of numbers,
// and DuckDB skips the row groups outside it. A table's deletes apply file by
// file (an anti join each), so slices of a table with deletes stay independent
// of each other.
package engine
