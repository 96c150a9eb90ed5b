// Package interop has readers that nobody here wrote read every table of a
// suite: PyIceberg and DuckDB with its iceberg extension; for Delta tables delta-rs
// and DuckDB with its delta extension, which is the Delta kernel. delta-rs also
// writes to tables that Firn writes to, and a program that was written from the page on
// the open write protocol alone hands in complete manifests.
package interop
