// Package sql turns statements into plans.
//
// Firn has no SQL engine: heads of statements (CREATE TABLE, INSERT INTO, …)
// are parsed here (Parse); the SELECT inside is DuckDB's, taken apart by its
// own parser (TreeParser) and bound on an executor (Binder), never in the
// process that holds the catalogs' secrets.
//
// # What a task may run
//
// A user's query runs in an engine that can read files, change its settings and
// look into itself. So the query is never passed on as text. Its parse tree is
// walked from end to end (walker): every table becomes a view over a source of
// the plan, a name of a WITH query in scope, or an error; table functions are
// allowed by a list, functions that leak or escape are refused, and a kind of
// node that isn't known is refused too. The tree is then written as text, read
// again, and walked again (verifier), so that no mistake on the way from tree
// to text names anything but the views. A query in which nothing had to be
// replaced names nothing, and is passed on as it was parsed.
//
// Whatever depends on the moment (now() and its like) becomes a constant of the
// job, so that a task that runs again gives the same rows.
//
// # What an INSERT converts
//
// Values become the table's types by a CAST in the query's text, so that a row
// that doesn't fit fails where its file is known. Silent conversions are those
// that can't lose anything (format/iceberg's Widens). Literals written in the
// statement may go further, since they are in sight: a string to any plain
// type, a whole number to any number, a decimal to a floating point number or
// to a decimal with room for its digits after the point.
package sql
