// Package sql turns statements into plans.
//
// Firn has no SQL engine: heads of statements (CREATE TABLE, INSERT INTO, …)
// are parsed here; the SELECT inside is DuckDB's, taken apart by its own parser
// (TreeParser) and bound on an executor (Binder).
package sql
