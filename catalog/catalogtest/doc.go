// Package catalogtest tests Firn's Iceberg catalogs, in memory and real ones alike.
//
// Harness is a table in a catalog for the drivers' conformance suite
// (commit/committest), with iceberg-go's own client as the other writer. Answers
// is the suite of what a REST catalog, or what stands before it, may answer to a
// commit.
package catalogtest
